/* Sliced pipelines: see sliced.h. */
#include "search/sliced.h"

struct best {
    struct candidate c, next;
    struct score score;
    bool any;
};

static void offer(struct search *s, struct best *b, struct candidate *c) {
    if (!search_legal(s, c))
        return;
    struct score score = search_score(s, c);
    if (b->any && !score_better(&score, &b->score))
        return;
    candidate_copy(&b->c, c);
    b->score = score;
    b->any = true;
}

/* Under every schedule, with one stage on each group and with several. */
static void offer_schedules(struct search *s, struct best *b, struct candidate *c) {
    struct candidate chunked = candidate_make(s);
    for (int f = 0; f < SCHEDULE_COUNT; f++) {
        c->schedule = (enum schedule)f;
        if (search_has_schedule(s, c->schedule) && c->schedule != SCHEDULE_interleaved)
            offer(s, b, c);
    }
    for (int chunks = 2; chunks <= MOST_CHUNKS; chunks++)
        if (search_has_schedule(s, SCHEDULE_interleaved) &&
            search_chunk(s, c, chunks, &chunked))
            offer(s, b, &chunked);
    candidate_release(&chunked);
}

/* Layouts of all stages, then cuts, as long as that helps. */
static void polish(struct search *s, struct best *b, sliced_layouter *lay_out, void *ctx) {
    enum { ROUNDS = 4 };
    for (int round = 0; round < ROUNDS && !search_stopped(s); round++) {
        struct score before = b->score;
        for (int k = 0; k < b->c.n_stages; k++) {
            candidate_copy(&b->next, &b->c);
            if (lay_out(s, &b->next, k, ctx))
                offer(s, b, &b->next);
        }
        candidate_copy(&b->next, &b->c);
        if (search_balance(s, &b->next))
            offer(s, b, &b->next);
        if (!score_better(&b->score, &before))
            break;
    }
}

void sliced_pipelines(struct search *s, sliced_layouter *lay_out, void *ctx) {
    const struct search_problem *p = search_problem_of(s);
    struct best b = {.c = candidate_make(s), .next = candidate_make(s)};
    for (int i = p->n_micro - 1; i >= 0 && !search_stopped(s); i--) {
        b.any = false;
        for (int shard = 0; shard < 2; shard++)
            if (search_slice(s, p->micro[i], shard, &b.next))
                offer_schedules(s, &b, &b.next);
        if (b.any)
            polish(s, &b, lay_out, ctx);
    }
    candidate_release(&b.c);
    candidate_release(&b.next);
}
