/* seen.h - how many keys a query of attention sees. */
#ifndef WEFT_SEEN_H
#define WEFT_SEEN_H

#include <stdbool.h>
#include <stdint.h>

/* The most that one can see: all, those of a window, or those of a document; 0: there is none. */
static inline int64_t keys_most(int64_t kv_seq, int64_t window, int64_t document) {
    const int64_t most = window && window < kv_seq ? window : kv_seq;
    return document && document < most ? document : most;
}

/* In the mean over the last `seq` queries of as many positions as there are keys: all, or under a
 * causal mask those up to the query's own, of which a window, unless it is 0, holds the last ones. Where
 * the sequence is documents of so many positions, 0 standing for one of all, queries are as often
 * anywhere in one. */
static inline double keys_seen(int64_t seq, int64_t kv_seq, bool causal, int64_t window,
                               int64_t document) {
    if (!causal)
        return (double)kv_seq;
    if (document && document < kv_seq)
        seq = kv_seq = document;
    const int64_t most = window && window < kv_seq ? window : kv_seq;
    /* the first queries lack most - 1 - first, one less, and so on down to none */
    const int64_t lacking = most - 1 - (kv_seq - seq), less = lacking < 0 ? 0 : lacking;
    return (double)most - 0.5 * (double)less * (double)(less + 1) / (double)seq;
}

#endif
