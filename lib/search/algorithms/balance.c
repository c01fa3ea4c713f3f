/* Balancing: where to cut the list of ops once the devices and layouts of the stages are
 * settled.
 *
 * Every stage takes as many ops as it can within a time bound and its memory; where memory
 * is short it recomputes as few blocks as will do. The least bound under which all ops
 * find a place is found by bisection. So one step does what would take many single moves
 * between neighbours, and a change of one stage is judged by what it is worth after the
 * others have made room. How far a stage reaches is bisected too, on the prefix sums, so
 * that a thousand layers cost little more than ten.
 *
 * Stages end at cuts, where the fewest elements pass (space/cuts.c). A stage that reaches
 * none ends at any op, and so may all stages if nothing fits otherwise or if that is faster
 * (find_finer). The time of a stage includes receiving from its neighbours. */
#include "search/algorithms/gallop.h"
#include "search/algorithms/improve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How long a stage takes to receive what passes a cut, as far as known. Bisection returns
 * to a few cuts again and again, and many others pass as many elements as the last. */
enum { KNOWN = 16 };
struct passing {
    int op[KNOWN]; /* by op % KNOWN; 0: none yet */
    double us[KNOWN];
    bool asked;
    double elems, elems_us; /* asked last */
};

struct fill {
    const struct prefix *prefix;
    struct long_lived
        *far; /* shared by stages in a row that have one prefix; NULL: not needed */
    int rank;
    struct passing before, behind; /* tensors in front of it, gradients behind it */
    struct in_flight in_flight;
    uint64_t key;           /* of all that recompute depends on, except ops and memory */
    double memory;          /* for its ops; 0 = no limit */
    int first, end, blocks; /* found last: the ops, and blocks recomputed */
    bool alike;             /* all stages from here on have this prefix */
};

struct filler {
    struct evaluate *ev;
    struct candidate *c;
    double micro_batches;
    struct fill *fills;
    struct long_lived *fars; /* [stages], or NULL */
    double longest;
    bool fine;      /* stages may end at any op */
    bool relaxed;   /* no limit of memory, and nothing passes between stages */
    double most_us; /* slower candidates are of no use */
};

static double time_of(const struct filler *f, const struct load *l) {
    return l->v[LOAD_forward] + l->v[LOAD_backward] + l->v[LOAD_weights] +
           (l->v[LOAD_before_norm] + l->v[LOAD_update]) / f->micro_batches;
}

/* ---- memory ----------------------------------------------------------------------------- */

/* The bytes that ops first .. end-1 need on a device without recompute. */
struct need {
    double fixed, slot[POOL_COUNT], temp, update;
};

static struct need need_of(const struct filler *f, const struct fill *to,
                           const struct brief *before, int first, int end) {
    const struct space *sp = f->ev->space;
    struct brief b = prefix_brief(sp, to->prefix, end);
    if (to->far)
        long_lived_add(to->far, first, end, &b);
    int64_t update_temp, temp = prefix_temp(sp, to->prefix, first, end, &update_temp);
    struct need need = {.fixed = b.fixed - before->fixed,
                        .temp = (double)temp,
                        .update = b.across - before->across + (double)update_temp};
    for (int p = 0; p < POOL_COUNT; p++)
        need.slot[p] = b.slot[p] - before->slot[p];
    return need;
}

static double need_bytes(const struct fill *to, const struct need *n,
                         const struct load *l) {
    double slot[POOL_COUNT];
    for (int p = 0; p < POOL_COUNT; p++)
        slot[p] = n->slot[p] + l->v[LOAD_slot + p];
    return n->fixed + held_bytes(slot, &to->in_flight) +
           fmax(fmax(n->temp, (double)l->temp), n->update);
}

/* Finds about the fewest blocks of ops first .. end-1 that stage k has to recompute to fit
 * into its memory, and the time that this takes; -1 if it does not fit with all of them. */
static void find_fewest(struct filler *f, int k, const struct brief *before, int first,
                        int end, struct fewest *found) {
    const struct fill *to = &f->fills[k];
    struct search_stage st = f->c->stages[k];
    struct need need = need_of(f, to, before, first, end);
    struct load l = {0};
    double without = need_bytes(to, &need, &l);
    found->us = 0;
    found->blocks = 0;
    if (without <= to->memory)
        return;
    st.first = first;
    st.end = end;
    st.recompute_level = st.recompute_level ? st.recompute_level : RECOMPUTE_LEVELS - 1;
    int all = st.recompute_blocks = space_stage_blocks(f->ev->space, &st);
    l = eval_recompute(f->ev, to->prefix, &st);
    double least = need_bytes(to, &need, &l);
    found->blocks = -1;
    if (least > to->memory)
        return;
    /* Blocks are much alike, so their share is about the needed share of the savings. */
    int n = (int)ceil(all * (without - to->memory) / (without - least));
    for (bool fits = false; !fits; n += !fits) {
        st.recompute_blocks = n;
        l = eval_recompute(f->ev, to->prefix, &st);
        fits = n >= all || need_bytes(to, &need, &l) <= to->memory;
    }
    found->us = time_of(f, &l);
    found->blocks = n;
}

/* Looks the answer up first: candidates share most of their stages, and bisection repeats
 * itself, so nine in ten answers are known. */
static const struct fewest *fewest_blocks(struct filler *f, int k,
                                          const struct brief *before, int first, int end) {
    const struct fill *to = &f->fills[k];
    uint64_t room;
    memcpy(&room, &to->memory, sizeof room);
    uint64_t key = memo_mix(memo_mix(to->key, (uint64_t)first << 32 | (uint64_t)end), room);
    struct fewest *found = eval_fewest(f->ev, key);
    if (found->key != key) {
        find_fewest(f, k, before, first, end, found);
        found->key = key;
    }
    return found;
}

/* ---- what passes the cuts --------------------------------------------------------------- */

/* Returns how long the devices of stage k take to receive elements from a neighbour. */
static double take_us(struct filler *f, int k, int neighbour, double elems) {
    const struct candidate *c = f->c;
    double us = cost_message_us(
        &f->ev->cost, f->fills[neighbour].rank, f->fills[k].rank, c->stages[k].devices,
        (int64_t)(elems * (double)dtype_size(f->ev->space->p.dtype)));
    cost_forget(&f->ev->cost);
    return us;
}

/* Returns the elements that a device of stage k receives of what passes in front of an op:
 * of tensors, as their first reader wants them, if `reader`; else of gradients, as their
 * origins want them. */
static double passing_elems(const struct filler *f, int k, int op, bool reader) {
    const struct space *sp = f->ev->space;
    const struct crossing *x = &sp->crossings[op];
    double elems = 0;
    for (int i = 0; i < x->n; i++) {
        const struct edge *e = &sp->blocks.s.edges[x->edges[i]];
        int r = reader ? edge_reader_from(e, op) : -1;
        if (e->tensor >= 0 && r < e->n)
            elems += prefix_shard(sp, f->fills[k].prefix, e, r).want;
    }
    return elems;
}

/* Returns how long stage k takes to receive what passes in front of an op: from the next
 * stage if `behind`, else from the one before. Chunks of a single group pass nothing. */
static double passing_us(struct filler *f, int k, int op, bool behind) {
    struct passing *p = behind ? &f->fills[k].behind : &f->fills[k].before;
    int neighbour = behind ? k + 1 : k - 1;
    if (f->relaxed || neighbour < 0 || neighbour >= f->c->n_stages || f->c->n_groups == 1 ||
        op == 0 || op == f->ev->space->p.model->n_ops)
        return 0;
    if (p->op[op % KNOWN] == op)
        return p->us[op % KNOWN];
    double elems = passing_elems(f, k, op, !behind);
    if (!p->asked || p->elems != elems)
        p->elems_us = take_us(f, k, neighbour, elems);
    p->asked = true;
    p->elems = elems;
    p->op[op % KNOWN] = op;
    return p->us[op % KNOWN] = p->elems_us;
}

/* ---- filling ---------------------------------------------------------------------------- */

/* Returns whether stage k can take ops first .. end-1 within the bound and its memory. Sets
 * the time that they take and, in its fill, the blocks to recompute. */
static bool reaches(struct filler *f, int k, const struct brief *before, int first, int end,
                    double bound, double *taken) {
    struct fill *to = &f->fills[k];
    if (f->ev->space->p.pins && !prefix_legal(f->ev->space, to->prefix, first, end))
        return false;
    *taken = prefix_time_us(f->ev->space, to->prefix, end) - before->time_us;
    to->blocks = 0;
    if (*taken > bound || f->relaxed || to->memory <= 0)
        return *taken <= bound;
    const struct fewest *fewest = fewest_blocks(f, k, before, first, end);
    to->blocks = fewest->blocks;
    *taken += fewest->us;
    if (to->blocks < 0)
        return false;
    return *taken <= bound;
}

/* A stage that begins with op `first`, and its time bound. `taken` and `blocks` are its
 * time and the blocks recomputed, with the end that was reached last. */
struct reach {
    struct filler *f;
    int k, first;
    struct brief before;
    double bound, taken;
    int blocks;
};

static bool reaches_op(void *ctx, int end) {
    struct reach *r = ctx;
    double taken;
    if (!reaches(r->f, r->k, &r->before, r->first, end, r->bound, &taken))
        return false;
    r->taken = taken;
    r->blocks = r->f->fills[r->k].blocks;
    return true;
}

/* Tests an end in front of one that was reached. Where the stage recomputes nothing, it
 * reaches this one as well, and only its time changes. */
static bool reaches_less(struct reach *r, int end) {
    if (end <= r->first || r->blocks)
        return end > r->first && reaches_op(r, end);
    r->taken =
        prefix_time_us(r->f->ev->space, r->f->fills[r->k].prefix, end) - r->before.time_us;
    return true;
}

static bool reaches_cut(void *ctx, int cut) {
    const struct reach *r = ctx;
    return reaches_op(ctx, r->f->ev->space->cuts[cut]);
}

/* Returns the last cut that the stage reaches or, if it reaches none or need not end at
 * one, the last op: at most `most`, and `first` if not even one op fits. */
static int last_reached(struct reach *r, int most, int guess) {
    const struct space *sp = r->f->ev->space;
    if (r->f->fine)
        return gallop(r->first, most + 1, guess, reaches_op, r);
    int before = sp->cut_before[r->first], next = sp->cuts[before + 1];
    int cut = gallop(before, sp->cut_before[most] + 1,
                     sp->cut_before[guess < most ? guess : most], reaches_cut, r);
    if (cut > before)
        return sp->cuts[cut];
    return gallop(r->first, next <= most ? next : most + 1, guess, reaches_op, r);
}

/* Returns the last cut in front of an end or, if the stage has none, the op before it. */
static int end_before(const struct reach *r, int end) {
    const struct space *sp = r->f->ev->space;
    int cut = sp->cuts[sp->cut_before[end - 1]];
    return cut > r->first && !r->f->fine ? cut : end - 1;
}

/* Goes back from the end that was reached to one where the stage has time to receive what
 * passes there, or to `first`. */
static int go_back(struct reach *r, int end, double bound) {
    bool reached = true;
    r->bound = INFINITY;
    while (end > r->first &&
           !(reached && r->taken <= bound - passing_us(r->f, r->k, end, true)))
        reached = reaches_less(r, end = end_before(r, end));
    return end;
}

/* Gives stage k as many ops from `first` on as it can take, but at least one, and returns
 * their end. The bound leaves time for what passes between units, and where more passes,
 * the end goes back until there is time for that. */
static int fill(struct filler *f, int k, int first, double bound) {
    const struct structure *st = &f->ev->space->blocks.s;
    struct fill *to = &f->fills[k];
    int most = f->ev->space->p.model->n_ops - (f->c->n_stages - 1 - k);
    struct reach r = {f, k, first, prefix_brief(f->ev->space, to->prefix, first), 0, 0, 0};
    double in_us = passing_us(f, k, first, false);
    int same = first + to->end - to->first; /* as many ops as last time */
    int guess = same < most ? structure_unit_of(st, same) : most;
    r.bound = bound - in_us - (guess > first ? passing_us(f, k, guess, true) : 0);
    int last = go_back(&r, last_reached(&r, most, same), bound - in_us);
    int end = space_allowed_end(f->ev->space, f->c->n_stages, k, first,
                                last > first ? last : last + 1);
    bool fits = last > first && end == last;
    double taken = r.taken;
    to->blocks = r.blocks;
    if (!fits)
        fits = reaches(f, k, &r.before, first, end, INFINITY, &taken);
    if (!fits && end > first + 1)
        taken = INFINITY;
    if (!fits)
        to->blocks = 0;
    taken += in_us + passing_us(f, k, end, true);
    f->longest = taken > f->longest ? taken : f->longest;
    to->first = first;
    to->end = end;
    return end;
}

/* Returns whether stage k and those after it, if all have one prefix, exceed the bound with
 * the ops from `first` on. This shows early that a bound is too short. */
static bool too_much(const struct filler *f, int k, int first, double bound) {
    const struct prefix *t = f->fills[k].prefix;
    double us = prefix_time_us(f->ev->space, t, f->ev->space->p.model->n_ops) -
                prefix_time_us(f->ev->space, t, first);
    return f->fills[k].alike && us > (f->c->n_stages - k) * bound * (1 + 1e-9);
}

/* Fills the stages in turn; returns whether all ops find a place under the bound. */
static bool fits(struct filler *f, double bound) {
    int at = 0;
    f->longest = 0;
    for (int k = 0; k < f->c->n_stages; k++) {
        if (at >= f->ev->space->p.model->n_ops || too_much(f, k, at, bound))
            return false;
        at = fill(f, k, at, bound);
        if (f->longest > bound || isinf(f->longest))
            return false;
    }
    return at == f->ev->space->p.model->n_ops;
}

static struct long_lived *far_of(struct filler *f, int k) {
    struct fill *to = &f->fills[k];
    if (!f->fars)
        return NULL;
    if (k > 0 && f->fills[k - 1].prefix == to->prefix)
        return f->fills[k - 1].far;
    long_lived_begin(&f->fars[k], f->ev, to->prefix);
    return &f->fars[k];
}

static uint64_t key_of(const struct filler *f, int k) {
    const struct fill *to = &f->fills[k];
    uint64_t key = prefix_hash(to->prefix, (uint64_t)f->c->stages[k].recompute_level);
    for (int p = 0; p < POOL_COUNT; p++)
        key = memo_mix(key, (uint64_t)to->in_flight.n[p]);
    return key;
}

static void prepare(struct filler *f) {
    struct evaluate *ev = f->ev;
    const struct candidate *c = f->c;
    if (ev->space->has_long_lived && ev->space->p.memory_bytes)
        f->fars = mem_array((size_t)c->n_stages, sizeof *f->fars);
    f->micro_batches = (double)(ev->space->p.batch / c->micro_batch);
    f->fills = mem_array((size_t)f->c->n_stages, sizeof *f->fills);
    int *rank = mem_array((size_t)c->n_stages, sizeof *rank);
    candidate_ranks(c, rank);
    for (int k = 0; k < c->n_stages; k++) {
        struct fill *to = &f->fills[k];
        to->prefix = candidate_prefix(ev, c, k, rank[k]);
        to->far = far_of(f, k);
        to->in_flight = candidate_in_flight(ev, c, k);
        to->key = key_of(f, k);
        to->rank = rank[k];
        /* What messages need is not known before the cuts, see make_room. */
        to->memory = (double)eval_stage_room(ev, rank[k], c->stages[k].devices);
        to->memory *= (double)c->n_groups / c->n_stages; /* a group's stages share evenly */
    }
    for (int k = c->n_stages - 1; k >= 0; k--)
        f->fills[k].alike =
            k == c->n_stages - 1 ||
            (f->fills[k + 1].alike && f->fills[k].prefix == f->fills[k + 1].prefix);
    free(rank);
}

/* Writes the cuts and recomputed blocks that were found last into the candidate. */
static void apply(const struct filler *f) {
    for (int k = 0; k < f->c->n_stages; k++) {
        struct search_stage *st = &f->c->stages[k];
        st->first = k ? f->fills[k - 1].end : 0;
        st->end = f->fills[k].end;
        if (f->fills[k].blocks && !st->recompute_level)
            st->recompute_level = RECOMPUTE_LEVELS - 1;
        st->recompute_blocks = f->fills[k].blocks;
    }
}

/* Returns the time of the longest stage as the ops are cut now; INFINITY if one does not
 * fit. A candidate often differs little from a balanced one, so this is near the result. */
static double present_us(struct filler *f) {
    double most = 0;
    for (int k = 0; k < f->c->n_stages; k++) {
        const struct search_stage *st = &f->c->stages[k];
        struct fill *to = &f->fills[k];
        struct brief before = prefix_brief(f->ev->space, to->prefix, st->first);
        double us;
        to->first = st->first;
        to->end = st->end;
        if (!reaches(f, k, &before, st->first, st->end, INFINITY, &us))
            return INFINITY;
        most = fmax(most, us + passing_us(f, k, st->first, false) +
                              passing_us(f, k, st->end, true));
    }
    return most;
}

/* No bound below `low` is long enough; `high` is. */
struct bounds {
    double low, high;
};

/* Steps down from the bound that fits, a little at first, until one does not, and then
 * bisects between the two. */
static void find_least(struct filler *f, struct bounds *b) {
    enum { MOST = 20 };
    double step = 0.005;
    bool below = false;
    for (int i = 0; i < MOST && b->low < b->high * 0.9995; i++, step *= 4) {
        double bound = (b->low + b->high) / 2;
        if (!below)
            bound = fmax(bound, b->high * (1 - step));
        if (fits(f, bound)) {
            b->high = f->longest;
            apply(f);
        } else {
            b->low = bound;
            below = true;
        }
    }
}

/* Finds a bound under which all ops have a place: that of the present cuts, or else any. */
static bool find_any(struct filler *f, struct bounds *b) {
    double present = present_us(f);
    bool found = isfinite(present) && fits(f, present * (1 + 1e-9));
    if (!found)
        found = fits(f, INFINITY);
    if (f->fills[0].alike)
        b->low =
            prefix_time_us(f->ev->space, f->fills[0].prefix, f->ev->space->p.model->n_ops) /
            f->c->n_stages;
    b->high = f->longest;
    if (found)
        apply(f);
    return found;
}

/* Where stages have few blocks, cuts inside blocks even out what whole blocks leave uneven.
 * They are taken if the longest stage gets shorter by FINER: with t5:3B on 24 devices with
 * 2.7 GB each, which a pipeline of 13 stages fills, the step takes 12.5 s instead of 13.8.
 * With 0.03 it does not. */
static void find_finer(struct filler *f, struct bounds *b) {
    static const double FINER = 0.02;
    f->fine = true;
    if (!fits(f, b->high * (1 - FINER)))
        return;
    b->high = f->longest;
    b->low = 0;
    apply(f);
    find_least(f, b);
}

/* Finds the least bound and applies its cuts; false if nothing fits. */
static bool balance_once(struct filler *f) {
    struct bounds b = {0};
    f->fine = false;
    bool found = find_any(f, &b);
    if (!found) {
        f->fine = true;
        found = find_any(f, &b);
    }
    if (found)
        find_least(f, &b);
    if (found && !f->fine)
        find_finer(f, &b);
    return found;
}

/* Returns whether all ops find a place if stages end at cuts, or else at any op. */
static bool fits_either(struct filler *f, double bound) {
    f->fine = false;
    if (fits(f, bound))
        return true;
    f->fine = true;
    return fits(f, bound);
}

/* Returns whether no cuts keep all stages within `longest`. A few fillings show it, where
 * balancing takes dozens, and it holds for two thirds of what hops offers. The first
 * filling looks at time alone, because recompute is what takes work. */
static bool is_beyond(struct filler *f, double longest) {
    f->fine = f->relaxed = true;
    bool in_time = fits(f, longest);
    f->relaxed = false;
    return !in_time || !fits_either(f, longest);
}

/* Returns whether the candidate is of no use wherever it is cut. The longest stage takes
 * its time once for each micro-batch, so it shows that, except where groups have several
 * stages. Restores the guesses from which balancing goes on, because its result depends a
 * little on them. */
static bool is_hopeless(struct filler *f) {
    const int n = f->c->n_stages;
    const double longest = f->most_us / f->micro_batches;
    if (isinf(longest) || f->c->n_groups < n)
        return false;
    int *guess = mem_array(2 * (size_t)n, sizeof *guess);
    for (int k = 0; k < n; k++) {
        guess[2 * k] = f->fills[k].first;
        guess[2 * k + 1] = f->fills[k].end;
    }
    const bool hopeless = is_beyond(f, longest);
    for (int k = 0; k < n; k++) {
        f->fills[k].first = guess[2 * k];
        f->fills[k].end = guess[2 * k + 1];
    }
    free(guess);
    return hopeless;
}

/* What messages and tied parameters need depends on the cuts. Where a stage exceeds its
 * memory because of them, takes the excess off what its ops may have. Returns false if no
 * stage does. */
static bool make_room(struct filler *f) {
    const struct candidate *c = f->c;
    if (!f->ev->space->p.memory_bytes || !eval_legal(f->ev, c))
        return false;
    bool any = false;
    double *excess = mem_array((size_t)c->n_groups, sizeof *excess);
    eval_overflows(f->ev, c, excess);
    for (int k = 0; k < c->n_stages; k++) {
        double over = excess[k % c->n_groups] * c->n_groups / c->n_stages;
        /* 0 would be no limit */
        f->fills[k].memory = fmax(f->fills[k].memory - fmax(over, 0), 1);
        any |= over > 0;
    }
    free(excess);
    return any;
}

/* Balances once more after make_room. A candidate that no longer fits anywhere stays as it
 * was cut, a little too large. *found becomes false if it fits, but would be too slow. */
static bool balance_again(struct filler *f, bool *found) {
    if (!is_hopeless(f))
        return balance_once(f);
    *found = !fits_either(f, INFINITY);
    return false;
}

bool search_balance(struct search *s, struct candidate *c, double most_us) {
    enum { MORE = 3 };
    struct filler f = {.ev = &s->eval, .c = c, .most_us = most_us};
    prepare(&f);
    bool found = !is_hopeless(&f) && balance_once(&f);
    for (int i = 0; found && i < MORE && make_room(&f) && balance_again(&f, &found);)
        i++;
    for (int k = 0; f.fars && k < c->n_stages; k++)
        long_lived_end(&f.fars[k]);
    free(f.fars);
    free(f.fills);
    return found;
}
