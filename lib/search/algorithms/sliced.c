/* Sliced pipelines: see sliced.h. */
#include "search/algorithms/sliced.h"
#include "search/algorithms/improve.h"

#include "search/algorithms/hops.h"

#include <stdlib.h>

struct best {
    struct candidate c, next;
    struct score score;
    bool any;
};

static void offer(struct search *s, struct best *b, struct candidate *c) {
    if (!eval_legal(&s->eval, c))
        return;
    struct score score = pool_score(&s->pool, c);
    if (b->any && !score_better(&score, &b->score))
        return;
    candidate_copy(&b->c, c);
    b->score = score;
    b->any = true;
}

static void take_over(struct best *top, const struct best *b) {
    if (top->any && !score_better(&b->score, &top->score))
        return;
    candidate_copy(&top->c, &b->c);
    top->score = b->score;
    top->any = true;
}

/* Offers the candidate under every schedule, and with several stages on each group. */
static void offer_schedules(struct search *s, struct best *b, struct candidate *c) {
    struct candidate chunked = candidate_make(&s->space);
    for (int f = 0; f < SCHEDULE_COUNT; f++) {
        c->schedule = (enum schedule)f;
        if (space_has_schedule(&s->space, c->schedule) && !schedules_round(1u << f))
            offer(s, b, c);
    }
    for (int chunks = 2; chunks <= MOST_CHUNKS; chunks++)
        if (space_goes_round(&s->space) && space_chunk(&s->space, c, chunks, &chunked))
            offer(s, b, &chunked);
    candidate_release(&chunked);
}

/* Tries every other level of ZeRO in all stages, laid out anew, because the best
 * layouts depend on it. */
static void change_zero(struct search *s, struct best *b, sliced_layouter *lay_out,
                        void *ctx) {
    struct best other = {.c = candidate_make(&s->space)};
    for (int zero = 0; zero < space_zero_levels(&s->space) && !budget_stopped(&s->budget);
         zero++) {
        bool differs = false;
        candidate_copy(&other.c, &b->c);
        for (int k = 0; k < other.c.n_stages; k++) {
            differs |= other.c.stages[k].zero != zero && other.c.stages[k].devices > 1;
            other.c.stages[k].zero = zero;
        }
        for (int k = 0; k < other.c.n_stages && differs; k++)
            lay_out(s, &other.c, k, ctx);
        candidate_copy(&b->next, &other.c);
        if (differs && search_balance(s, &b->next, INFINITY))
            offer(s, b, &b->next);
        if (differs)
            offer(s, b, &other.c);
    }
    candidate_release(&other.c);
}

/* Lays out all stages and balances the cuts, as long as that helps. */
static void polish(struct search *s, struct best *b, sliced_layouter *lay_out, void *ctx) {
    enum { ROUNDS = 4 };
    for (int round = 0; round < ROUNDS && !budget_stopped(&s->budget); round++) {
        struct score before = b->score;
        for (int k = 0; k < b->c.n_stages; k++) {
            candidate_copy(&b->next, &b->c);
            if (lay_out(s, &b->next, k, ctx))
                offer(s, b, &b->next);
        }
        candidate_copy(&b->next, &b->c);
        if (search_balance(s, &b->next, INFINITY))
            offer(s, b, &b->next);
        if (!score_better(&b->score, &before))
            break;
    }
}

/* Polishes the best starts of hops that are not much slower than the first one. */
static void polish_starts(struct search *s, struct best *b, struct best *top,
                          sliced_layouter *lay_out, void *ctx) {
    enum { MOST = 4 };
    static const double NEAR = 1.1;
    int64_t n;
    struct option *starts = hops_starts(s, &n);
    for (int64_t i = 0; i < n && i < MOST && !budget_stopped(&s->budget); i++) {
        if (starts[i].score.unknown || starts[i].score.overflow ||
            starts[i].score.time_us > NEAR * starts[0].score.time_us)
            break;
        candidate_copy(&b->c, &starts[i].c);
        b->score = starts[i].score;
        b->any = true;
        polish(s, b, lay_out, ctx);
        take_over(top, b);
    }
    for (int64_t i = 0; i < n; i++)
        candidate_release(&starts[i].c);
    free(starts);
}

/* Large micro-batches come first, because they are usually the fastest: a good plan is
 * then known early. */
void sliced_pipelines(struct search *s, sliced_layouter *lay_out, void *ctx) {
    const struct search_problem *p = space_problem_of(&s->space);
    struct best b = {.c = candidate_make(&s->space), .next = candidate_make(&s->space)},
                top = {.c = candidate_make(&s->space), .next = candidate_make(&s->space)};
    for (int i = p->n_micro - 1; i >= 0 && !budget_stopped(&s->budget); i--) {
        b.any = false;
        for (int shard = 0; shard < 2; shard++)
            if (search_slice(s, p->micro[i], shard, &b.next))
                offer_schedules(s, &b, &b.next);
        if (!b.any)
            continue;
        polish(s, &b, lay_out, ctx);
        take_over(&top, &b);
    }
    polish_starts(s, &b, &top, lay_out, ctx);
    if (top.any) {
        change_zero(s, &top, lay_out, ctx);
        polish(s, &top, lay_out, ctx);
    }
    candidate_release(&b.c);
    candidate_release(&b.next);
    candidate_release(&top.c);
    candidate_release(&top.next);
}
