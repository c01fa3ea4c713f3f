/* Incumbents (see incumbents.h). */
#include "search/pool/incumbents.h"

#include <stdlib.h>

static void write_down(struct pool *pool, const struct candidate *c,
                       const struct score *score, uint64_t hash, bool instead) {
    struct incumbent l = {.k = {.score = *score, .hash = hash, .member = pool->member},
                          .instead = instead};
    l.k.class = pool_class(pool, c);
    l.k.c.stages = mem_array((size_t)c->n_stages, sizeof *c->stages);
    candidate_copy(&l.k.c, c);
    arr_push(&pool->incumbents, l);
}

/* Returns whether the best candidate is the one that was noted last. */
static bool is_known(const struct pool *pool) {
    int64_t i = pool->incumbents.n - 1;
    while (i > 0 && pool->incumbents.p[i].instead)
        i--;
    return i >= 0 && pool->incumbents.p[i].k.hash == pool->best[0].hash;
}

void pool_note_incumbent(struct pool *pool) {
    enum { SPARE = 4 };
    if (!pool->n_best || budget_out_of_time(pool->budget))
        return;
    pool->next_incumbent = pool->budget->work + pool->budget->work / 2;
    for (int i = 0, known = is_known(pool); i < pool->n_best && i <= SPARE && !known; i++)
        write_down(pool, &pool->best[i].c, &pool->best[i].score, pool->best[i].hash, i > 0);
    pool_evaluate_best(pool);
}

void pool_note_incumbent_if_due(struct pool *pool) {
    if (pool->budget->work >= pool->next_incumbent)
        pool_note_incumbent(pool);
    else if (!budget_is_limited(pool->budget))
        pool_evaluate_best(pool);
}

void pool_add_incumbent(struct pool *pool, const struct candidate *c,
                        const struct score *score) {
    if (!score->overflow && !score->unknown)
        write_down(pool, c, score, 0, false);
}

void pool_forget_incumbents(struct pool *pool) {
    for (int64_t i = 0; i < pool->incumbents.n; i++)
        candidate_release(&pool->incumbents.p[i].k.c);
    pool->incumbents.n = 0;
    pool->incumbents_evaluated = 0;
    pool->next_incumbent = 0;
}
