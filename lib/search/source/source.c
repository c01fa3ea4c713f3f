/* Candidates of a source: scored, checked and balanced by what the source says of their stages. */
#include "search/source/source.h"

#include "search/algorithms/gallop.h"
#include "search/state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- asking ------------------------------------------------------------------------ */

struct source_ask source_ask_of(const struct space *sp, const struct candidate *c, int k,
                                int first_rank) {
    const struct search_stage *st = &c->stages[k];
    return (struct source_ask){.graph = &sp->blocks,
                               .first = st->first,
                               .end = st->end,
                               .devices = st->devices,
                               .first_rank = first_rank,
                               .devices_per_node = (int)sp->p.cluster.groups[0].devices,
                               .behind = c->n_stages - 1 - k,
                               .micro_batch = c->micro_batch,
                               .memory_bytes = sp->p.memory_bytes,
                               .mesh = st->mesh,
                               .layouts = st->layouts};
}

/* What was asked once is known. */
struct known {
    bool good;
    struct source_cost cost;
};

bool source_stage(struct evaluate *ev, const struct source_ask *ask,
                  struct source_cost *out) {
    uint64_t key = memo_mix(memo_mix(5, (uint64_t)ask->first << 32 | (uint64_t)ask->end),
                            (uint64_t)ask->devices << 32 | (uint64_t)ask->behind);
    key = memo_mix(memo_mix(key, (uint64_t)ask->first_rank), (uint64_t)ask->micro_batch);
    key = memo_mix(memo_mix(key, (uint64_t)(uintptr_t)ask->mesh),
                   (uint64_t)(uintptr_t)ask->layouts);
    void **slot = memo_slot(&ev->sums, key);
    struct known *known = *slot;
    if (!known) {
        *slot = known = mem_alloc(sizeof *known);
        known->good =
            ev->space->p.source->stage(ev->space->p.source, ask, &known->cost, NULL);
    }
    *out = known->cost;
    return known->good;
}

/* ---- candidates ---------------------------------------------------------------------- */

bool source_legal(struct evaluate *ev, const struct candidate *c) {
    int rank = 0;
    for (int k = 0; k < c->n_stages; k++) {
        const struct search_stage *st = &c->stages[k];
        struct source_cost cost;
        if (st->first >= st->end || st->devices < 1 || st->place || st->zero ||
            st->recompute_level)
            return false;
        struct source_ask ask = source_ask_of(ev->space, c, k, rank);
        if (!source_stage(ev, &ask, &cost))
            return false;
        rank += st->devices;
    }
    return c->schedule == SCHEDULE_DEFAULT && c->n_groups == c->n_stages &&
           space_may_have_stages(ev->space, c->n_stages);
}

struct score source_score(struct evaluate *ev, const struct candidate *c) {
    struct score out = {.time_us = 0};
    double slowest = -1, fullest = -1;
    int rank = 0;
    for (int k = 0; k < c->n_stages; k++) {
        struct source_ask ask = source_ask_of(ev->space, c, k, rank);
        struct source_cost cost = {.us = INFINITY};
        out.unknown |= !source_stage(ev, &ask, &cost);
        out.time_us += cost.us;
        if (cost.us > slowest) {
            slowest = cost.us;
            out.slowest = k;
        }
        if (cost.bytes > fullest) {
            fullest = cost.bytes;
            out.fullest = k;
        }
        rank += c->stages[k].devices;
    }
    out.time_us += (double)(ev->space->p.batch / c->micro_batch - 1) * slowest;
    if (ev->space->p.memory_bytes && fullest > (double)ev->space->p.memory_bytes)
        out.overflow = 1 + (int64_t)(fullest - (double)ev->space->p.memory_bytes);
    return out;
}

static json_t *cost_json(const struct source_cost *c) {
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "us", c->us, "again_us", c->recompute_us,
                     "convert_us", c->convert_us, "message_us", c->message_us, "bytes",
                     c->bytes);
}

struct plan *source_plan(const struct space *sp, const struct candidate *c,
                         int64_t *max_bytes) {
    struct plan *plan = space_plan_of(sp, c);
    json_t *stages = json_array();
    double most = 0;
    int rank = 0;
    for (int k = 0; k < c->n_stages; k++) {
        struct source_ask ask = source_ask_of(sp, c, k, rank);
        struct source_cost cost = {0};
        sp->p.source->stage(sp->p.source, &ask, &cost, plan->stages[k].recompute);
        plan->stages[k].first_rank = rank;
        json_array_append_new(stages, cost_json(&cost));
        most = fmax(most, cost.bytes);
        rank += c->stages[k].devices;
    }
    json_decref(plan->provenance);
    plan->provenance = json_pack("{s:o}", "stages", stages);
    *max_bytes = (int64_t)most;
    return plan;
}

/* ---- balancing ----------------------------------------------------------------------- */

/* What passes a cut inside of a block may be far more than between blocks, so how far a stage reaches is
 * bisected on the units, and then, when the bound is nearly found, single ops beyond are looked at. */
struct balance {
    struct evaluate *ev;
    struct candidate *c;
    int n_cuts, *cuts; /* where units begin, and the end */
    int *at;           /* by stage: the cut where it ended last */
    int *end;          /* and the op */
    bool fine;
    double longest; /* with these */
};

static bool reaches(struct balance *b, int k, int first, int end, int rank, double bound,
                    double *us) {
    struct source_ask ask = source_ask_of(b->ev->space, b->c, k, rank);
    struct source_cost cost;
    ask.first = first;
    ask.end = end;
    if (!source_stage(b->ev, &ask, &cost))
        return false;
    *us = cost.us;
    return cost.us <= bound && (!b->ev->space->p.memory_bytes ||
                                cost.bytes <= (double)b->ev->space->p.memory_bytes);
}

/* Stage k from op `first` on, and how far it may go. */
struct reach {
    struct balance *b;
    int k, first, most, rank;
    double bound;
};

static bool reaches_cut(void *ctx, int cut) {
    struct reach *r = ctx;
    double us;
    int end = r->b->cuts[cut];
    return end <= r->most && reaches(r->b, r->k, r->first, end, r->rank, r->bound, &us);
}

/* The last cut that stage k reaches; the one at or before `first`: none. */
static int farthest_cut(struct reach *r) {
    struct balance *b = r->b;
    int lo = 0;
    while (lo + 1 < b->n_cuts && b->cuts[lo + 1] <= r->first)
        lo++;
    return gallop(lo, b->n_cuts, b->at[r->k], reaches_cut, r);
}

static int farthest(struct balance *b, int k, int first, int rank, double bound) {
    enum { WINDOW = 8 }; /* ops, where they are their own units */
    int most = b->ev->space->p.model->n_ops - (b->c->n_stages - 1 - k);
    int cut = b->at[k] = farthest_cut(&(struct reach){b, k, first, most, rank, bound});
    int end = b->cuts[cut] > first ? b->cuts[cut] : first;
    int beyond = cut + 1 < b->n_cuts ? b->cuts[cut + 1] - 1 : most;
    double us;
    if (end > first && !b->fine)
        return end;
    beyond = beyond < end + WINDOW ? end + WINDOW : beyond;
    for (int e = beyond < most ? beyond : most; e > end; e--)
        if (reaches(b, k, first, e, rank, bound, &us))
            return e;
    return end;
}

static bool fits(struct balance *b, double bound) {
    int n = b->c->n_stages, n_ops = b->ev->space->p.model->n_ops, at = 0, rank = 0;
    double longest = 0, us = 0;
    for (int k = 0; k < n; k++) {
        int end = k == n - 1 ? n_ops : farthest(b, k, at, rank, bound);
        if (end <= at || !reaches(b, k, at, end, rank, bound, &us))
            return false;
        longest = fmax(longest, us);
        at = b->end[k] = end;
        rank += b->c->stages[k].devices;
    }
    b->longest = longest;
    return true;
}

static void apply(const struct balance *b) {
    for (int k = 0; k < b->c->n_stages; k++) {
        b->c->stages[k].first = k ? b->end[k - 1] : 0;
        b->c->stages[k].end = b->end[k];
    }
}

static void find_cuts(struct balance *b) {
    const struct structure *st = &b->ev->space->blocks.s;
    b->cuts = mem_array((size_t)st->n_ops + 1, sizeof *b->cuts);
    for (int i = 0; i < st->n_ops; i++)
        if (structure_begins_unit(st, i))
            b->cuts[b->n_cuts++] = i;
    b->cuts[b->n_cuts++] = st->n_ops;
}

/* Of the candidate as it is; INFINITY where it does not fit. */
static double longest_now(struct balance *b) {
    double longest = 0, us;
    int rank = 0;
    for (int k = 0; k < b->c->n_stages; k++) {
        const struct search_stage *st = &b->c->stages[k];
        if (!reaches(b, k, st->first, st->end, rank, INFINITY, &us))
            return INFINITY;
        longest = fmax(longest, us);
        rank += st->devices;
    }
    return longest;
}

/* Bisects between what was found and `low`, which is too short; returns the latter. */
static double bisect(struct balance *b, double low, double near, double *high) {
    for (int i = 0; i < 14 && low < *high * near; i++) {
        double bound = low > 0 ? (low + *high) / 2 : *high * 0.9;
        if (fits(b, bound)) {
            *high = b->longest;
            apply(b);
        } else {
            low = bound;
        }
    }
    return low;
}

bool source_balance(struct evaluate *ev, struct candidate *c) {
    struct balance b = {.ev = ev, .c = c};
    size_t n = (size_t)c->n_stages;
    find_cuts(&b);
    b.end = mem_array(2 * n, sizeof *b.end);
    b.at = b.end + n;
    double high = longest_now(&b);
    bool found = isfinite(high);
    if (fits(&b, found ? high * (1 - 1e-9) : INFINITY)) {
        found = true;
        high = b.longest;
        apply(&b);
    }
    if (!found) {
        b.fine = true;
        found = fits(&b, INFINITY);
        high = b.longest;
        if (found)
            apply(&b);
    }
    if (found) {
        double low = bisect(&b, 0, 0.99, &high);
        b.fine = true;
        bisect(&b, low * 0.985, 0.9998, &high);
    }
    free(b.end);
    free(b.cuts);
    return found;
}

/* ---- layouts ------------------------------------------------------------------------ */

/* The layouts that an op may have: batch on the outer axes, one dim on the inner ones. */
int source_layouts(const struct model_op *op, const struct mesh *mesh, int batch,
                   struct layout *out, int most) {
    int n = 0, at_batch = op_space_find(&op->space, batch);
    for (int inner = 0; inner <= mesh->n_axes; inner++)
        for (int d = 0; d < op->space.n && n < most; d++) {
            if (d == at_batch || !role_splits(op->space.role[d]))
                continue;
            struct layout *l = &out[n];
            memset(l, PLACE_NONE, sizeof *l);
            for (int a = 0; a < mesh->n_axes; a++)
                l->dim[a] = (int8_t)(a < mesh->n_axes - inner ? at_batch : d);
            n++;
            if (!inner)
                break;
        }
    return n;
}
