/* lora.h - low-rank adapters (Hu et al., LoRA, 2021): beside a product that stays as it is, two small ones
 * that are trained. They are ops like others, so plans, predictions and searches know nothing of them.
 *
 *     struct lora spec = {.rank = 8, .alpha = 16, .on = "layer.*.q layer.*.v"};
 *     if (lora_add(doc, NULL, &spec, &err) < 0) ...            // weft-model(5), changed in place
 *
 * Of y = x W, batch dims B, contracted dims K and new dims N, they make
 *
 *     a[B lora] = alpha / rank * x[B K] A[K lora],   y[B N] += a[B lora] C[lora N]
 *
 * A begins uniform as in PEFT, C with zeros. Everything else is frozen. The document says what PEFT calls
 * them (Names elsewhere, weft-model(5)), where its tensors of the weights say what they stand beside.
 */
#ifndef WEFT_LORA_H
#define WEFT_LORA_H

#include "common/err.h"
#include "common/json.h"

#include <stdint.h>

struct lora {
    int64_t rank, alpha; /* both >= 1 */
    /* Patterns of ops, separated by blanks; NULL: every product with a weight that stands in a block. */
    const char *on;
};

/* Adds adapters to a document of a model, which is read with these overrides to be understood. Returns 0,
 * or -1: a pattern covers no product with a weight, or not all instances of one, or the document has
 * adapters already. The document is then of no use. */
int lora_add(json_t *doc, const char *set, const struct lora *spec, struct err *err);

#endif
