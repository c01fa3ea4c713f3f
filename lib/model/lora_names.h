/* lora_names.h - inside lora.c: what PEFT calls adapters, worked out from what the weights section calls
 * the products that they stand beside.
 *
 *     struct lora_names names;
 *     lora_names_begin(&names, section);
 *     lora_names_add(&names, "layer.*.q", op, a, b);
 *     lora_names_end(&names, doc);              // members "adapter", "adapter_config" of its "weights"
 */
#ifndef WEFT_LORA_NAMES_H
#define WEFT_LORA_NAMES_H

#include "common/json.h"

#include <stdbool.h>

/* Sizes of the document; ends of the names of ops. */
#define LORA_RANK  "lora"
#define LORA_ALPHA "lora_alpha"
#define LORA_A     "_lora_a"
#define LORA_B     "_lora_b"

struct lora_names {
    const json_t *tensors;     /* those of the section, borrowed; NULL: it has none */
    json_t *adapter, *targets; /* what is made */
    int added,
        turned; /* adapters; those of weights that have their inputs first (Conv1D of GPT-2) */
    bool unnamed; /* some stand beside a part of a tensor, for which PEFT has no name */
};

void lora_names_begin(struct lora_names *n, const json_t *section);
/* One for the ops of the file that the pattern `path` covers; a and b are the ops of the adapter. */
void lora_names_add(struct lora_names *n, const char *path, const json_t *op,
                    const json_t *a, const json_t *b);
/* Writes the members, and releases what n holds. */
void lora_names_end(struct lora_names *n, json_t *doc);

#endif
