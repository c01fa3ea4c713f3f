/* Starts of hops: the best uniform pipelines of every useful depth and micro-batch,
 * balanced, and the pipelines of the stages solver. */
#include "search/algorithms/grid.h"
#include "search/algorithms/hops.h"
#include "search/algorithms/improve.h"

#include <stdlib.h>

int option_by_score(const void *a, const void *b) {
    const struct option *x = a, *y = b;
    return score_better(&x->score, &y->score) ? -1 : score_better(&y->score, &x->score);
}

/* Returns whether to try a depth: all small ones, and powers of two, divisors of the
 * devices and the largest one if each stage has a block or an op outside blocks. Splits
 * and merges reach the others. */
static bool is_depth(const struct space *sp, int k) {
    int max = space_max_groups(sp);
    if (sp->pinned.n_stages)
        return k == sp->pinned.n_stages;
    return k <= 4 || (k <= structure_units(&sp->blocks.s) &&
                      (!(k & (k - 1)) || k == max || sp->p.devices % k == 0));
}

/* The best uniform pipelines of one depth and micro-batch, best first. Any two differ in
 * their layouts or in the level of ZeRO. */
enum { KEPT = 3 };
struct ranking {
    int n;
    struct option best[KEPT];
};

struct starts {
    struct search *s;
    struct grid grid;
    /* `sharded` holds those that shard gradients or parameters. They are of use where
     * there is no pipeline, or where no plain one fits. */
    struct ranking plain, sharded;
    ARR(struct option) list;
    struct candidate scratch;
};

/* Inserts the candidate at `at`, in the room of the entry at `last`, which is dropped. */
static void insert(struct ranking *k, int at, int last, const struct candidate *c,
                   struct score score) {
    struct option room = k->best[last];
    for (int i = last; i > at; i--)
        k->best[i] = k->best[i - 1];
    k->best[at] = room;
    candidate_copy(&k->best[at].c, c);
    k->best[at].score = score;
}

static bool same_kind(const struct candidate *a, const struct candidate *b) {
    return a->stages[0].layouts == b->stages[0].layouts &&
           a->stages[0].zero == b->stages[0].zero;
}

static void take_uniform(void *arg, const struct candidate *c, struct score score) {
    struct starts *st = arg;
    struct ranking *k = c->stages[0].zero > ZERO_OPTIMIZER ? &st->sharded : &st->plain;
    int same = 0, at = 0;
    if (score.unknown)
        return;
    while (same < k->n && !same_kind(&k->best[same].c, c))
        same++;
    while (at < k->n && !score_better(&score, &k->best[at].score))
        at++;
    if (at == KEPT || at > same)
        return;
    if (same == k->n)
        same = k->n < KEPT ? k->n++ : KEPT - 1;
    insert(k, at, same, c, score);
}

static void push(struct starts *st, const struct option *o) {
    struct option copy = {.c = candidate_make(&st->s->space), .score = o->score};
    candidate_copy(&copy.c, &o->c);
    arr_push(&st->list, copy);
}

static void take_better(struct option *best, const struct candidate *c,
                        struct score score) {
    if (score.unknown || !score_better(&score, &best->score))
        return;
    best->score = score;
    candidate_copy(&best->c, c);
}

/* Replaces *best by the balanced candidate if that is better. If balancing finds nothing
 * that fits, all blocks are recomputed. */
static void balance(struct starts *st, const struct candidate *from, struct option *best) {
    struct search *s = st->s;
    struct candidate *c = &st->scratch;
    candidate_copy(c, from);
    bool fits = search_balance(s, c, INFINITY);
    if (!eval_legal(&s->eval, c))
        return;
    for (int k = 0; k < c->n_stages && !fits; k++) {
        c->stages[k].recompute_blocks = space_stage_blocks(&s->space, &c->stages[k]);
        c->stages[k].recompute_level =
            c->stages[k].recompute_blocks ? RECOMPUTE_LEVELS - 1 : 0;
    }
    take_better(best, c, pool_score(&s->pool, c));
}

/* Adds all that were kept, balanced; returns whether one of them fits. */
static bool push_kept(struct starts *st, const struct ranking *k) {
    struct option o = {.c = candidate_make(&st->s->space)};
    bool fits = false;
    for (int i = 0; i < k->n; i++) {
        o.score = k->best[i].score;
        candidate_copy(&o.c, &k->best[i].c);
        balance(st, &k->best[i].c, &o);
        push(st, &o);
        fits |= !o.score.overflow;
    }
    candidate_release(&o.c);
    return fits;
}

static void add_even(struct starts *st) {
    struct pool *pool = &st->s->pool;
    const struct search_problem *p = space_problem_of(pool->space);
    for (int k = 1; k <= space_max_groups(pool->space); k++)
        for (int i = p->n_micro - 1;
             is_depth(pool->space, k) && i >= 0 && !budget_stopped(pool->budget); i--) {
            if (!grid_is_busy(pool->space, k, i))
                continue;
            st->plain.n = st->sharded.n = 0;
            grid_walk(&st->grid, k, p->micro[i]);
            bool fits = push_kept(st, &st->plain);
            if (k == 1 || !fits)
                push_kept(st, &st->sharded);
        }
}

/* Adds the stages solver's pipelines. Larger micro-batches take more memory, so once two
 * in a row cannot be sliced although a smaller one could, the rest is not tried. A single
 * one may fail only because its devices cannot split it. */
static void add_sliced(struct starts *st, bool shard) {
    enum { MOST_WITHOUT = 2 };
    struct search *s = st->s;
    const struct search_problem *p = space_problem_of(&s->space);
    struct option o = {.c = candidate_make(&s->space)};
    bool any = false;
    for (int i = 0, without = 0;
         i < p->n_micro && !budget_stopped(&s->budget) && !(any && without == MOST_WITHOUT);
         i++) {
        if (!search_slice(s, p->micro[i], shard, &o.c) || !eval_legal(&s->eval, &o.c)) {
            without++;
            continue;
        }
        any = true;
        without = 0;
        o.score = pool_score(&s->pool, &o.c);
        balance(st, &o.c, &o);
        bool found = !o.score.unknown;
        for (int64_t k = 0; k < st->list.n; k++)
            found &= candidate_hash(&st->list.p[k].c) != candidate_hash(&o.c);
        if (found)
            push(st, &o);
    }
    candidate_release(&o.c);
}

/* Tries the candidate in scratch as it is, cut between blocks, and balanced. */
static void try_cuts(struct starts *st, struct option *best) {
    struct search *s = st->s;
    struct candidate *c = &st->scratch;
    if (budget_stopped(&s->budget) || !eval_legal(&s->eval, c))
        return;
    take_better(best, c, pool_score(&s->pool, c));
    struct candidate *even = &st->grid.next;
    candidate_copy(even, c);
    if (grid_cut_blocks(&st->grid, c) && eval_legal(&s->eval, c))
        take_better(best, c, pool_score(&s->pool, c));
    balance(st, even, best);
}

/* Tries several stages on each group for all starts, because another depth and
 * micro-batch may be the best then. */
static void add_interleaved(struct starts *st) {
    const struct space *sp = &st->s->space;
    struct option o = {.c = candidate_make(sp)};
    for (int64_t i = 0, n = st->list.n; i < n; i++) {
        struct score plain = st->list.p[i].score;
        o.score = plain;
        for (int v = 2; v <= MOST_CHUNKS; v++)
            if (space_goes_round(sp) && space_chunk(sp, &st->list.p[i].c, v, &st->scratch))
                try_cuts(st, &o);
        if (score_better(&o.score, &plain))
            push(st, &o);
    }
    candidate_release(&o.c);
}

/* Returns whether start i is the best of its depth and micro-batch. */
static bool is_first_shape(const struct starts *st, int64_t i) {
    const struct candidate *c = &st->list.p[i].c;
    for (int64_t k = 0; k < i; k++)
        if (st->list.p[k].c.n_stages == c->n_stages &&
            st->list.p[k].c.n_groups == c->n_groups &&
            st->list.p[k].c.micro_batch == c->micro_batch)
            return false;
    return true;
}

/* Adds the best starts, and the best of a few shapes, under a schedule that splits weight
 * gradients off. Few are tried, because all is compiled anew. */
static void add_apart_under(struct starts *st, enum schedule schedule) {
    enum { FEW = 3 };
    const struct space *sp = &st->s->space;
    struct option o = {.c = candidate_make(sp)};
    int tried = 0, shapes = 0;
    for (int64_t i = 0, n = st->list.n; i < n && shapes < FEW; i++) {
        const struct candidate *from = &st->list.p[i].c;
        bool first = is_first_shape(st, i);
        if (from->n_groups < 2 || from->n_groups < from->n_stages ||
            (!first && tried >= FEW))
            continue;
        tried++;
        shapes += first;
        o.score = (struct score){.unknown = true};
        candidate_copy(&st->scratch, from);
        st->scratch.schedule = schedule;
        try_cuts(st, &o);
        if (!o.score.unknown)
            push(st, &o);
    }
    candidate_release(&o.c);
}

static void add_apart(struct starts *st) {
    for (int s = 0; s < SCHEDULE_COUNT; s++)
        if (space_has_schedule(&st->s->space, (enum schedule)s) &&
            schedule_traits((enum schedule)s)->splits)
            add_apart_under(st, (enum schedule)s);
}

/* Where devices or links differ, adds the best few starts with neighbouring stages on
 * different nodes. */
static void add_dealt(struct starts *st) {
    enum { FEW = 4 };
    const struct space *sp = &st->s->space;
    struct option o = {.c = candidate_make(sp)};
    for (int64_t i = 0, n = 0; i < st->list.n && n < FEW && space_has_places(sp); i++) {
        candidate_copy(&st->scratch, &st->list.p[i].c);
        if (!candidate_deal(sp, &st->scratch))
            continue;
        n++;
        o.score = (struct score){.unknown = true};
        try_cuts(st, &o);
        if (!o.score.unknown)
            push(st, &o);
    }
    candidate_release(&o.c);
}

static bool any_fits(const struct starts *st) {
    for (int64_t i = 0; i < st->list.n; i++)
        if (!st->list.p[i].score.overflow)
            return true;
    return false;
}

static void sort(struct starts *st) {
    if (st->list.n)
        qsort(st->list.p, (size_t)st->list.n, sizeof *st->list.p, option_by_score);
}

static void ranking_init(struct ranking *k, const struct space *sp) {
    for (int i = 0; i < KEPT; i++)
        k->best[i].c = candidate_make(sp);
}

static void ranking_release(struct ranking *k) {
    for (int i = 0; i < KEPT; i++)
        candidate_release(&k->best[i].c);
}

static struct option *make_starts(struct search *s, int64_t *n) {
    struct starts st = {.s = s, .scratch = candidate_make(&s->space)};
    ranking_init(&st.plain, &s->space);
    ranking_init(&st.sharded, &s->space);
    grid_init(&st.grid, s);
    st.grid.take = take_uniform;
    st.grid.arg = &st;
    add_even(&st);
    add_sliced(&st, false);
    if (!any_fits(&st) && space_zero_levels(&s->space) > 1 + ZERO_OPTIMIZER)
        add_sliced(&st, true);
    sort(&st);
    add_dealt(&st);
    sort(&st);
    add_apart(&st);
    add_interleaved(&st);
    sort(&st);
    grid_release(&st.grid);
    ranking_release(&st.plain);
    ranking_release(&st.sharded);
    candidate_release(&st.scratch);
    *n = st.list.n;
    return st.list.p;
}

/* ---- kept for later calls ------------------------------------------------------------ */

/* Keeps copies of the starts, with no more room than their stages take. */
static void keep_starts(struct search *s, const struct option *starts, int64_t n) {
    s->starts = mem_array((size_t)n + 1, sizeof *s->starts);
    s->n_starts = n;
    for (int64_t i = 0; i < n; i++) {
        const struct candidate *c = &starts[i].c;
        s->starts[i] = starts[i];
        s->starts[i].c.stages = mem_array((size_t)c->n_stages, sizeof *c->stages);
        candidate_copy(&s->starts[i].c, c);
    }
}

static struct option *copy_starts(const struct search *s, int64_t *n) {
    struct option *starts = mem_array((size_t)s->n_starts + 1, sizeof *starts);
    *n = s->n_starts;
    for (int64_t i = 0; i < *n; i++) {
        starts[i] =
            (struct option){.c = candidate_make(&s->space), .score = s->starts[i].score};
        candidate_copy(&starts[i].c, &s->starts[i].c);
    }
    return starts;
}

struct option *hops_starts(struct search *s, int64_t *n) {
    if (s->starts)
        return copy_starts(s, n);
    struct option *starts = make_starts(s, n);
    if (!budget_stopped(&s->budget))
        keep_starts(s, starts, *n);
    return starts;
}
