/* Settling memory: estimates may miss a little of what a plan holds (gaps between
 * temporaries). If the best candidates fill the memory by estimate and are too large
 * when they are compiled, a search that noticed it only at the end would have looked
 * at the wrong candidates all the time. So hops asks at the end of each of its phases,
 * and continues with that much less memory. The candidates that it then finds may
 * be estimated more closely. What they do not need of the reserve is given back before
 * another algorithm goes on. */
#include "search/pool/pool.h"

#include <math.h>
#include <stdlib.h>

enum { PART = 1000 }; /* 1 / PART of the memory is reserved beyond what a candidate needs */

/* Scores the candidates in the pool again with the memory that is left now. */
static void rescore(struct pool *pool) {
    int n = pool->n_best;
    struct candidate *c = mem_array((size_t)n, sizeof *c);
    for (int i = 0; i < n; i++) {
        c[i] = candidate_make(pool->space);
        candidate_copy(&c[i], &pool->best[i].c);
    }
    pool->n_best = 0;
    pool->budget->best_us = INFINITY;
    for (int i = 0; i < n; i++) {
        pool_score(pool, &c[i]);
        candidate_release(&c[i]);
    }
    free(c);
}

bool pool_settle(struct pool *pool) {
    enum { TRIES = 4 };
    int64_t before = pool->ev->reserve_bytes, excess = 0;
    uint64_t last = 0; /* hash of the candidate that `excess` belongs to */
    for (int i = 0; i < TRIES && pool->space->p.memory_bytes && pool->n_best &&
                    !budget_out_of_time(pool->budget);
         i++) {
        const struct entry *best = &pool->best[0];
        /* it was evaluated on the way and is known to fit */
        if (best->evaluated && !best->excess)
            break;
        uint64_t hash = candidate_hash(&best->c);
        if (i == 0 || hash != last) /* otherwise the same candidate is still the best */
            excess = eval_excess(pool->ev, &best->c);
        last = hash;
        if (excess <= 0)
            break;
        pool->ev->reserve_bytes += excess + pool->space->p.memory_bytes / PART;
        rescore(pool);
    }
    return pool->ev->reserve_bytes > before;
}

void pool_give_back(struct pool *pool) {
    if (!pool->ev->reserve_bytes || !pool->n_best || budget_out_of_time(pool->budget))
        return;
    int64_t reserve =
        eval_reserve_of(pool->ev, &pool->best[0].c) + pool->space->p.memory_bytes / PART;
    if (reserve >= pool->ev->reserve_bytes)
        return;
    pool->ev->reserve_bytes = reserve;
    rescore(pool);
}
