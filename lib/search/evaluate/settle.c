/* Settling memory: estimates may miss what a plan holds by a little (gaps between temporaries). Where
 * the best candidates are full to the brim by estimate and too large when they are compiled, a
 * search that noted it in the end only would have looked at the wrong candidates all the while.
 * So hops asks at the end of each of its phases, and goes on with that much less memory. */
#include "search/space/devices.h"

#include <stdlib.h>

/* Scores the candidates that are kept by what memory is left now. */
static void score_again(struct search *s) {
    int n = s->n_kept;
    struct candidate *c = mem_array((size_t)n, sizeof *c);
    for (int i = 0; i < n; i++) {
        c[i] = candidate_make(s);
        candidate_copy(&c[i], &s->kept[i].c);
    }
    s->n_kept = 0;
    for (int i = 0; i < n; i++) {
        search_score(s, &c[i]);
        candidate_release(&c[i]);
    }
    free(c);
}

bool search_settle(struct search *s) {
    enum { TRIES = 4, PART = 1000 };
    int64_t before = s->reserve_bytes, excess = 0;
    uint64_t last = 0; /* the candidate whose excess that is */
    for (int i = 0; i < TRIES && s->p.memory_bytes && !s->p.source && s->n_kept &&
                    !search_out_of_time(s);
         i++) {
        const struct kept *best = &s->kept[0];
        if (best->judged && !best->excess) /* on the way: it is known to fit */
            break;
        uint64_t hash = candidate_hash(&best->c);
        if (i == 0 || hash != last) /* else it is the best with less memory, too */
            excess = search_excess(s, best);
        last = hash;
        if (excess <= 0)
            break;
        s->reserve_bytes += excess + s->p.memory_bytes / PART;
        score_again(s);
    }
    return s->reserve_bytes > before;
}
