/* spans.h - span corruption: input and target sequences out of a window of plain tokens (private to
 * lib/data).
 *
 * The objective of T5 (Raffel et al., Exploring the Limits of Transfer Learning with a Unified
 * Text-to-Text Transformer, 2020, 3.1.4 and 3.3): a share of the tokens, in spans of a mean length,
 * is left out of the input, where a sentinel stands for each span; the target is the spans, each
 * behind its sentinel. Both end with `eos`, if there is one.
 *
 *     window  I had a nice cup of tea     input   I had S0 cup S1 .
 *                                         target  S0 a nice S1 of tea .
 *
 * A window is as long as just fills an input of `seq` positions, so no step is spent on padding (T5's
 * random_spans_helper). Lengths of spans, and of what is between them, are random compositions of
 * their sums (its random_spans_noise_mask), here by selection sampling (Knuth, The Art of Computer
 * Programming 2, 3.4.2, algorithm S), so that they can be walked over without memory.
 */
#ifndef WEFT_SPANS_H
#define WEFT_SPANS_H

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

struct spans {
    int64_t window;        /* tokens, of which */
    int64_t noise;         /* so many are left out */
    int64_t spans;         /* in so many spans */
    int64_t input, target; /* lengths of the sequences */
    int64_t sentinel;      /* id of the first; the others count down from it */
    int64_t eos;           /* id at the end of both, or -1 */
};

/* For inputs of `seq` positions. density (0, 1) is the share of noise, mean (>= 1) the mean length of
 * a span. Returns 0, or -1 where nothing fits into seq. */
int spans_init(struct spans *s, int64_t seq, double density, double mean, int64_t sentinel,
               int64_t eos, struct err *err);

/* Reads tokens [first, first+count) of the window. */
typedef int (*spans_reader)(const void *ctx, int64_t first, int64_t count, int32_t *out,
                            struct err *err);

/* Positions [first, first+count) of the input or of the target of a sample. */
struct spans_part {
    uint64_t key; /* names its random numbers */
    bool target;
    int64_t first, count;
};

/* Writes the part, as far as there is such, of tokens that `read` reads. Costs O(window) steps. Returns
 * 0, or what the reader returned. */
int spans_read(const struct spans *s, const struct spans_part *part, spans_reader read,
               const void *ctx, int32_t *out, struct err *err);

#endif
