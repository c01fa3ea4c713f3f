/* synthetic.h - data out of nothing that can still be learned (private to lib/data).
 *
 * Tokens: a Markov chain over at most SYNTHETIC_STATES token ids, spread over the
 * vocabulary. From each state it goes to one of four others with probability 1/2, 1/4,
 * 1/8, 1/8, so a model that has learned it all has a loss of 1.75 ln 2 = 1.213 (less
 * where two coincide). Images: one random prototype per class, plus noise.
 *
 *     struct synthetic syn;
 *     synthetic_init(&syn, seed, vocab);
 *     synthetic_tokens(&syn, stream, 0, seq + 1, out);
 */
#ifndef WEFT_SYNTHETIC_H
#define WEFT_SYNTHETIC_H

#include <stdint.h>

enum { SYNTHETIC_STATES = 256, SYNTHETIC_NEXT = 4 };

struct synthetic {
    uint64_t seed;
    int states;
    int32_t token[SYNTHETIC_STATES];                /* id of a state */
    uint8_t next[SYNTHETIC_STATES][SYNTHETIC_NEXT]; /* likeliest first */
};

/* Draws the chain; vocab is in 1..INT32_MAX (unused for images: give 1). */
void synthetic_init(struct synthetic *syn, uint64_t seed, int64_t vocab);

/* Tokens [first, first+count) of the sequence that `stream` names; costs O(first+count).
 */
void synthetic_tokens(const struct synthetic *syn, uint64_t stream, int64_t first,
                      int64_t count, int32_t *out);

/* Values [first, first+count), in [0, 1], of the image that `stream` names, or NULL; its
 * label < classes. */
void synthetic_image(const struct synthetic *syn, uint64_t stream, int64_t classes,
                     int64_t first, int64_t count, float *values, int32_t *label);

#endif
