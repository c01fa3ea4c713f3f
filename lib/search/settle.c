/* Settling memory: estimates may miss what a plan holds by a little (gaps between temporaries). Where
 * the best candidates are full to the brim by estimate and too large when they are compiled, a search that
 * noted it in the end only would have looked at the wrong candidates all the while. So hops asks at the
 * end of each of its phases, and goes on with that much less memory. */
#include "search/devices.h"

#include <stdlib.h>

/* Bytes beyond the memory of any device; at most 0: it fits. */
static int64_t excess_of(struct search *s, const struct candidate *c, bool merged) {
    struct plan *plan = search_plan_of(s, c);
    int64_t most = 0;
    bool changed = merged && search_merge_meshes(plan);
    struct program *g = plan_check(plan, NULL) == 0 ? program_compile(plan, NULL) : NULL;
    for (int k = 0; g && k < g->n_stages; k++) {
        int64_t more = g->stages[k].arena_bytes - search_stage_memory(s, plan, k);
        most = !k || more > most ? more : most;
    }
    program_destroy(g);
    plan_destroy(plan);
    if (!changed || most <= 0)
        return most;
    int64_t apart = excess_of(s, c, false);
    return apart < most ? apart : most;
}

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
            excess = excess_of(s, &best->c, true);
        last = hash;
        if (excess <= 0)
            break;
        s->reserve_bytes += excess + s->p.memory_bytes / PART;
        score_again(s);
    }
    return s->reserve_bytes > before;
}
