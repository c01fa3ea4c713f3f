/* decode.h - what a model says of the next token, position by position.
 *
 * Nothing is lowered anew for it. A plan of the compiler splits the sequence over as many devices
 * as it has positions; the program of the device with the coordinate r then computes position r
 * alone, and gathers from the others what its attention sees of their keys and values. One rank
 * that plays these devices one after the other, and keeps what each would have sent, decodes:
 * the buffers of the gathers are the cache of keys and values. A second program with fewer
 * devices, of some positions each, goes through a prompt and fills the same cache.
 *
 *     struct decoder *d = decoder_create(m, &options, &err);
 *     decoder_load_checkpoint(d, ck, &err);          // or decoder_load_weights
 *     decoder_begin(d, NULL, NULL, &err);
 *     decoder_run(d, tokens, 0, n, logits, &err);    // positions 0 .. n-1
 *     decoder_run(d, tokens, n, n + 1, logits, &err);
 *     decoder_destroy(d);
 */
#ifndef WEFT_DECODE_H
#define WEFT_DECODE_H

#include "checkpoint/checkpoint.h"
#include "device/device.h"
#include "model/weights.h"
#include "plan/plan.h"

struct decoder_options {
    int64_t batch;                       /* sequences side by side, >= 1 */
    enum dtype dtype;                    /* of tensors and parameters */
    const struct device_backend *device; /* NULL = the CPU */
    int threads;
};

struct decoder;

/* Of a model (borrowed) with one loss over the next tokens of a sequence that is written from left
 * to right, alone (inputs "token") or behind an encoder ("input", "shifted-target"). NULL on
 * failure, with EXIT_INPUT where the model is of another kind. */
struct decoder *decoder_create(struct model *m, const struct decoder_options *o,
                               struct err *err);
void decoder_destroy(struct decoder *d); /* NULL is fine */

/* Parameters, all of them. Return 0 or -1. */
int decoder_load_checkpoint(struct decoder *d, const struct checkpoint *ck,
                            struct err *err);
int decoder_load_weights(struct decoder *d, const struct weight_file *f, struct err *err);

/* Positions of a sequence, of an encoder's input (0 = there is none), and how many tokens there are
 * to choose from. */
int64_t decoder_positions(const struct decoder *d);
int64_t decoder_inputs(const struct decoder *d);
int64_t decoder_vocab(const struct decoder *d);
/* Bytes that it takes on its device. */
int64_t decoder_bytes(const struct decoder *d);

/* Begins new sequences. Of a model with an encoder: input[batch][decoder_inputs], of which the first
 * lengths[batch] count, and the encoder runs; else both are NULL. Returns 0 or -1. */
int decoder_begin(struct decoder *d, const int32_t *input, const int32_t *lengths,
                  struct err *err);

/* Goes through positions first .. end-1 of tokens[batch][decoder_positions], all of which are
 * known; those before `first` were gone through already. logits[batch][decoder_vocab]: what the last
 * of them says of the token behind it. Returns 0 or -1. */
int decoder_run(struct decoder *d, const int32_t *tokens, int64_t first, int64_t end,
                float *logits, struct err *err);

#endif
