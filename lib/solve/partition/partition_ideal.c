/* partition_ideal.c - the exact search: a shortest path over down-sets, bounded from both
 * ends.
 *
 * A partition is a chain of down-sets, empty to full; a label (a accelerators and b CPUs
 * used, value) at a down-set is a partial chain. Down-sets are taken in the order of their
 * size. From each, every larger down-set that one stage can reach is enumerated once: take
 * or leave the first free item, where leaving it closes everything behind it. Nothing is
 * enumerated that the bounds rule out for every label here:
 *
 *   - the latencies of the stage, plus every tensor that surely crosses its border (one
 *     item inside, one in an earlier stage or left out), reach the cut;
 *   - what is closed by the items left out is more work than the remaining devices can do
 *     below the cut (partition_rates.c): this stage cannot take it any more.
 *
 * Only down-sets that survive both are stored, so the number of labels depends on the slack
 * between the cut and the even share of the work, not on the number of down-sets. A stopped
 * search still proves a bound: every chain better than the cut runs through a stored label
 * that was not finished, so the least bound of those labels holds.
 */
#include "solve/partition/partition_core.h"

#include "common/hashtable.h"
#include "common/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ON_ACCEL = 1, ON_CPU = 2 };

struct label {
    double value, bound; /* of the chain so far; of every chain that goes on from here */
    int32_t set, parent, next;
    int16_t accels, cpus; /* used */
    bool is_cpu;          /* the last stage */
};

/* Running sums of the stage S that grows on the down-set I. Assigning a copy undoes them
 * all. */
struct sums {
    double accel, cpu, size, act;
    double touched, full;         /* tensors with an item in S; with all items in S */
    double paid;                  /* touched by S, and by I or by an item left out */
    double cut;                   /* with items inside and outside of I + S */
    double rest;                  /* accelerator latency outside of I + S */
    double left[PARTITION_RATES]; /* worth outside of I + S */
    double open[PARTITION_RATES]; /* of that, what S can still take */
    uint64_t hash;
    int32_t count; /* items in I + S */
    int32_t out;   /* edges from S to what is outside of I + S */
};

struct frame {
    struct sums before;
    int32_t lo, at, hi; /* candidates, and the one being tried */
    int32_t closed;     /* length of the closed stack when the frame began */
    int kinds;
};

struct search {
    const struct partition_core *c;
    struct partition_watch *w;
    double cut;
    /* stored down-sets */
    uint64_t *sets, *hashes;
    int32_t *heads, *chain, *bucket;
    int32_t n_sets, cap_sets;
    struct hashtable table; /* over sets */
    ARR(struct label) labels;
    int32_t done; /* label of the best whole chain, -1 = none */
    bool overflow;
    /* the down-set being grown */
    uint64_t *now, *closed;
    struct sums s;
    int32_t *in_i, *in_s, *in_x; /* per tensor: items in I, in S, left out */
    int32_t *need;               /* per item: predecessors outside of I + S */
    int32_t *need_i;             /* per item: predecessors outside of I */
    int32_t first;   /* the first item outside of I: none out there comes before it */
    bool first_only; /* only stages with it come next */
    struct frame *frames;
    ARR(int32_t) cand;
    int32_t *closed_stack, n_closed;
    ARR(int32_t) here; /* labels of I worth going on from */
    double lim[2][PARTITION_RATES];
    double flight;
};

static const uint64_t *set_at(const struct search *q, int32_t i) {
    return q->sets + (size_t)i * (size_t)q->c->words;
}

/* ---- stored down-sets ------------------------------------------------------------ */

static bool same_set(const void *search, int64_t i, const void *set) {
    const struct search *q = search;
    return !memcmp(set_at(q, (int32_t)i), set, (size_t)q->c->words * sizeof *q->now);
}

static void grow_sets(struct search *q) {
    size_t words = (size_t)q->c->words;
    q->cap_sets = q->cap_sets ? 2 * q->cap_sets : 256;
    size_t cap = (size_t)q->cap_sets;
    q->sets = mem_grow(q->sets, cap * words + 1, sizeof *q->sets);
    q->hashes = mem_grow(q->hashes, cap, sizeof *q->hashes);
    q->heads = mem_grow(q->heads, cap, sizeof *q->heads);
    q->chain = mem_grow(q->chain, cap, sizeof *q->chain);
}

/* Returns the number of the set `now`, which is stored if it is new, or -1 when the
 * memory is used up. */
static int32_t set_number(struct search *q) {
    size_t bytes = (size_t)q->c->words * sizeof *q->now;
    int64_t known = hashtable_find(&q->table, q->s.hash, same_set, q, q->now);
    if (known >= 0)
        return (int32_t)known;
    int64_t used = (int64_t)q->n_sets * ((int64_t)bytes + 32) +
                   q->labels.n * (int64_t)sizeof(struct label);
    if (used > PARTITION_IDEAL_MAX_BYTES / 2) { /* arrays double, so half is the limit */
        q->overflow = true;
        return -1;
    }
    if (q->n_sets == q->cap_sets)
        grow_sets(q);
    int32_t i = (int32_t)hashtable_put(&q->table, q->s.hash, same_set, q, q->now);
    q->n_sets++;
    memcpy(q->sets + (size_t)i * (size_t)q->c->words, q->now, bytes);
    q->hashes[i] = q->s.hash;
    q->heads[i] = -1;
    q->chain[i] = q->bucket[q->s.count];
    q->bucket[q->s.count] = i;
    return i;
}

/* Stores a label unless another is no worse in every respect. The greatest load of a chain
 * is at least the bound on what follows, so labels below that bound are equally good. */
static void add_label(struct search *q, int32_t set, struct label l) {
    for (int32_t i = q->heads[set]; i >= 0; i = q->labels.p[i].next) {
        struct label *o = &q->labels.p[i];
        if (o->accels <= l.accels && o->cpus <= l.cpus && o->value <= l.bound)
            return;
        if (o->accels >= l.accels && o->cpus >= l.cpus && o->bound >= l.value)
            o->value = o->bound = INFINITY; /* dead */
    }
    l.set = set;
    l.next = q->heads[set];
    q->heads[set] = (int32_t)q->labels.n;
    arr_push(&q->labels, l);
}

/* ---- the end of a stage ---------------------------------------------------------- */

/* Returns a bound for every chain that continues from `now` with so many devices used
 * and `value` so far. */
static double bound_here(const struct search *q, int accels, int cpus, double value) {
    const struct partition_core *c = q->c;
    const struct sums *s = &q->s;
    int more_accels = c->accels - accels, more_cpus = c->cpus - cpus;
    if (s->count == c->n)
        return value;
    if (!more_accels && !more_cpus)
        return INFINITY;
    double load = partition_rates_bound(c, s->left, more_accels, more_cpus);
    if (!more_cpus) /* each tensor cut here is paid for by some stage that comes */
        load = fmax(load, (s->rest + s->cut) * (1 - 1e-12) / more_accels);
    return fmax(value, load);
}

static void emit_label(struct search *q, int32_t from, bool is_cpu) {
    const struct partition_core *c = q->c;
    const struct sums *s = &q->s;
    struct label l = q->labels.p[from];
    double load = is_cpu ? s->cpu : s->accel + (s->touched - s->full);
    double flight = fmin((double)c->micro_batches, l.accels + l.cpus + 1);
    if (is_cpu ? l.cpus >= c->cpus : l.accels >= c->accels)
        return;
    if (!is_cpu && s->size + flight * s->act > c->max_size * (1 + 1e-12))
        return;
    l.value = fmax(l.value, load);
    l.accels += !is_cpu;
    l.cpus += is_cpu;
    l.bound = fmax(l.bound, bound_here(q, l.accels, l.cpus, l.value));
    if (l.bound >= q->cut)
        return;
    l.parent = from;
    l.is_cpu = is_cpu;
    if (s->count == c->n) {
        q->done = (int32_t)q->labels.n;
        q->cut = l.value;
        l.set = l.next = -1;
        arr_push(&q->labels, l);
        return;
    }
    int32_t set = set_number(q);
    if (set >= 0)
        add_label(q, set, l);
}

/* Returns whether S comes next in the one order that is searched. Stages that do not
 * depend on each other may stand in any order where it does not matter how many stages
 * come before them, so one order is enough: next is the stage of the first item outside
 * I, or one that must come before it. */
static bool in_turn(const struct search *q) {
    return !q->c->any_order || q->s.out > 0 || partition_set_has(q->now, q->first);
}

static void emit(struct search *q, int kinds) {
    if (!in_turn(q))
        return;
    for (int64_t i = 0; i < q->here.n; i++)
        for (int kind = 0; kind < 2; kind++)
            if (kinds & (kind ? ON_CPU : ON_ACCEL))
                emit_label(q, q->here.p[i], kind);
}

/* ---- growing a stage ------------------------------------------------------------- */

static void take(struct search *q, int32_t v) {
    const struct partition_core *c = q->c;
    struct sums *s = &q->s;
    for (int32_t e = c->touch.at[v]; e < c->touch.at[v + 1]; e++) {
        int32_t h = c->touch.v[e], pins = c->pins.at[h + 1] - c->pins.at[h];
        double w = c->weight[h];
        int32_t in_s = ++q->in_s[h];
        if (in_s == 1) {
            s->touched += w;
            if (!q->in_i[h])
                s->cut += w;
            if (q->in_i[h] || q->in_x[h])
                s->paid += w;
        }
        if (in_s == pins)
            s->full += w;
        if (in_s + q->in_i[h] == pins)
            s->cut -= w;
    }
    s->accel += c->accel[v], s->cpu += c->cpu[v];
    s->size += c->size[v], s->act += c->act[v];
    s->rest -= c->accel[v];
    for (int r = 0; r < c->rates; r++) {
        s->left[r] -= c->rate[r].worth[v];
        s->open[r] -= c->rate[r].worth[v];
    }
    s->hash ^= c->key[v];
    s->count++;
    s->out += c->succ.at[v + 1] - c->succ.at[v] - q->need_i[v];
    partition_set_add(q->now, v);
    for (int32_t e = c->succ.at[v]; e < c->succ.at[v + 1]; e++)
        q->need[c->succ.v[e]]--;
}

static void untake(struct search *q, int32_t v) {
    const struct partition_core *c = q->c;
    for (int32_t e = c->touch.at[v]; e < c->touch.at[v + 1]; e++)
        q->in_s[c->touch.v[e]]--;
    partition_set_drop(q->now, v);
    for (int32_t e = c->succ.at[v]; e < c->succ.at[v + 1]; e++)
        q->need[c->succ.v[e]]++;
}

/* Leaves v out of the stage, which closes everything behind it. */
static void leave(struct search *q, int32_t v) {
    const struct partition_core *c = q->c;
    struct sums *s = &q->s;
    for (int32_t e = c->touch.at[v]; e < c->touch.at[v + 1]; e++) {
        int32_t h = c->touch.v[e];
        if (!q->in_x[h]++ && q->in_s[h] && !q->in_i[h])
            s->paid += c->weight[h];
    }
    const uint64_t *desc = c->desc + (size_t)v * (size_t)c->words;
    for (int32_t w = v >> 6; w < c->words; w++) {
        uint64_t fresh = desc[w] & ~q->closed[w];
        q->closed[w] |= fresh;
        for (; fresh; fresh &= fresh - 1) {
            int32_t x = w * 64 + __builtin_ctzll(fresh);
            q->closed_stack[q->n_closed++] = x;
            for (int r = 0; r < c->rates; r++)
                s->open[r] -= c->rate[r].worth[x];
        }
    }
}

static void reopen(struct search *q, const struct frame *f) {
    const struct partition_core *c = q->c;
    for (int32_t i = f->lo; i < f->at; i++)
        for (int32_t v = q->cand.p[i], e = c->touch.at[v]; e < c->touch.at[v + 1]; e++)
            q->in_x[c->touch.v[e]]--;
    while (q->n_closed > f->closed)
        partition_set_drop(q->closed, q->closed_stack[--q->n_closed]);
}

/* Returns the kinds of device on which the stage, and everything it can still grow to,
 * may stand. */
static int kinds_left(const struct search *q, int kinds) {
    const struct partition_core *c = q->c;
    const struct sums *s = &q->s;
    if (s->accel + s->paid >= q->cut)
        kinds &= ~ON_ACCEL;
    if (s->cpu >= q->cut)
        kinds &= ~ON_CPU;
    if (s->size + q->flight * s->act > c->max_size * (1 + 1e-12))
        kinds &= ~ON_ACCEL;
    for (int r = 0; r < c->rates; r++) {
        double left = s->left[r] - s->open[r] - 2 * c->rate[r].slack;
        if (left > q->lim[0][r])
            kinds &= ~ON_ACCEL;
        if (left > q->lim[1][r])
            kinds &= ~ON_CPU;
    }
    return kinds;
}

static void push_frame(struct search *q, int depth, int32_t from, int32_t to, int32_t v,
                       int kinds) {
    const struct partition_core *c = q->c;
    struct frame *f = &q->frames[depth];
    *f = (struct frame){.kinds = kinds, .closed = q->n_closed};
    q->cand.n = to;
    f->lo = f->at = to;
    for (int32_t i = from; i < to; i++)
        arr_push(&q->cand, q->cand.p[i]);
    for (int32_t e = c->succ.at[v]; e < c->succ.at[v + 1]; e++)
        if (!q->need[c->succ.v[e]])
            arr_push(&q->cand, c->succ.v[e]);
    f->hi = (int32_t)q->cand.n;
}

/* Leaves out the candidate that has been tried. */
static void next_candidate(struct search *q, struct frame *f) {
    int32_t v = q->cand.p[f->at];
    untake(q, v);
    q->s = f->before;
    leave(q, v);
    f->at++;
    f->kinds = kinds_left(q, f->kinds);
    if (!f->kinds || (q->first_only && f == q->frames))
        f->hi = f->at;
}

/* Enumerates every down-set above I that one stage can reach. The candidates of frame 0
 * must be set. */
static void grow(struct search *q) {
    int depth = 0;
    while (depth >= 0) {
        struct frame *f = &q->frames[depth];
        if (f->at == f->hi || q->w->stopped || q->overflow) {
            reopen(q, f);
            if (--depth >= 0)
                next_candidate(q, &q->frames[depth]);
            continue;
        }
        int32_t v = q->cand.p[f->at];
        f->before = q->s;
        take(q, v);
        partition_watch_stop(q->w);
        int kinds = kinds_left(q, q->c->supported[v] ? f->kinds : f->kinds & ON_CPU);
        if (kinds) {
            emit(q, kinds);
            push_frame(q, depth + 1, f->at + 1, f->hi, v, kinds);
            depth++;
        } else {
            next_candidate(q, f);
        }
    }
}

/* ---- one down-set after the other ------------------------------------------------ */

/* Collects the labels of a set that are worth continuing, and the limits that they allow
 * at most. */
static int open_labels(struct search *q, int32_t set) {
    const struct partition_core *c = q->c;
    int kinds = 0;
    q->here.n = 0;
    q->flight = INFINITY;
    for (int k = 0; k < 2; k++)
        for (int r = 0; r < c->rates; r++)
            q->lim[k][r] = -1;
    for (int32_t i = q->heads[set]; i >= 0; i = q->labels.p[i].next) {
        const struct label *l = &q->labels.p[i];
        if (l->bound >= q->cut)
            continue;
        arr_push(&q->here, i);
        q->flight =
            fmin(q->flight, fmin((double)c->micro_batches, l->accels + l->cpus + 1));
        int accels = c->accels - l->accels, cpus = c->cpus - l->cpus;
        for (int k = 0; k < 2; k++) {
            if (!(k ? cpus : accels))
                continue;
            kinds |= k ? ON_CPU : ON_ACCEL;
            for (int r = 0; r < c->rates; r++)
                q->lim[k][r] =
                    fmax(q->lim[k][r],
                         partition_rates_room(c, r, q->cut, accels - !k, cpus - k));
        }
    }
    return kinds;
}

/* Makes a set the down-set I: its counts, its sums, and the free items as candidates. */
static void load_set(struct search *q, int32_t set, int kinds) {
    const struct partition_core *c = q->c;
    const uint64_t *bits = set_at(q, set);
    size_t tensors = (size_t)c->tensors * sizeof *q->in_i;
    memcpy(q->now, bits, (size_t)c->words * sizeof *q->now);
    memcpy(q->closed, bits, (size_t)c->words * sizeof *q->closed);
    memset(q->in_i, 0, tensors), memset(q->in_s, 0, tensors), memset(q->in_x, 0, tensors);
    q->s = (struct sums){.hash = q->hashes[set]};
    int64_t edges = 0;
    q->n_closed = 0;
    q->cand.n = 0;
    for (int32_t v = 0; v < c->n; v++) {
        if (partition_set_has(bits, v)) {
            q->s.count++;
            for (int32_t e = c->touch.at[v]; e < c->touch.at[v + 1]; e++)
                q->in_i[c->touch.v[e]]++;
            continue;
        }
        q->s.rest += c->accel[v];
        for (int r = 0; r < c->rates; r++)
            q->s.left[r] += c->rate[r].worth[v];
        q->need[v] = 0;
        for (int32_t e = c->pred.at[v]; e < c->pred.at[v + 1]; e++)
            q->need[v] += !partition_set_has(bits, c->pred.v[e]);
        q->need_i[v] = q->need[v];
        edges += q->need[v];
        if (!q->need[v])
            arr_push(&q->cand, v);
    }
    memcpy(q->s.open, q->s.left, sizeof q->s.open);
    for (int32_t h = 0; h < c->tensors; h++)
        if (q->in_i[h] && q->in_i[h] < c->pins.at[h + 1] - c->pins.at[h])
            q->s.cut += c->weight[h];
    q->first = q->cand.p[0];
    q->first_only = c->any_order && !edges;
    q->frames[0] = (struct frame){.hi = (int32_t)q->cand.n, .kinds = kinds};
}

static void search_init(struct search *q, const struct partition_core *c, double low,
                        double cut, struct partition_watch *w) {
    size_t n = (size_t)c->n + 2, t = (size_t)c->tensors + 1;
    *q = (struct search){.c = c, .w = w, .cut = cut, .done = -1};
    q->bucket = mem_array(n, sizeof *q->bucket);
    memset(q->bucket, -1, n * sizeof *q->bucket);
    q->now = mem_array((size_t)c->words + 1, sizeof *q->now);
    q->closed = mem_array((size_t)c->words + 1, sizeof *q->closed);
    q->in_i = mem_array(t, sizeof *q->in_i), q->in_s = mem_array(t, sizeof *q->in_s);
    q->in_x = mem_array(t, sizeof *q->in_x), q->need = mem_array(n, sizeof *q->need);
    q->need_i = mem_array(n, sizeof *q->need_i);
    q->frames = mem_array(n, sizeof *q->frames);
    q->closed_stack = mem_array(n, sizeof *q->closed_stack);
    int32_t root = set_number(q);
    struct label l = {.parent = -1};
    for (int r = 0; r < c->rates; r++)
        q->s.left[r] = c->rate[r].total;
    for (int32_t v = 0; v < c->n; v++)
        q->s.rest += c->accel[v];
    l.bound = fmax(low, bound_here(q, 0, 0, 0));
    add_label(q, root, l);
}

static void search_release(struct search *q) {
    free(q->sets), free(q->hashes), free(q->heads), free(q->chain), free(q->bucket);
    hashtable_release(&q->table), free(q->now), free(q->closed), free(q->in_i),
        free(q->in_s);
    free(q->in_x), free(q->need), free(q->need_i), free(q->frames), free(q->closed_stack);
    arr_release(&q->labels), arr_release(&q->cand), arr_release(&q->here);
}

static void store_chain(const struct search *q, struct partition_chain *best) {
    const struct partition_core *c = q->c;
    int stages = 0;
    for (int32_t l = q->done; q->labels.p[l].parent >= 0; l = q->labels.p[l].parent)
        stages++;
    best->value = q->labels.p[q->done].value;
    best->stages = stages;
    for (int32_t l = q->done, s = stages; --s >= 0; l = q->labels.p[l].parent) {
        const struct label *x = &q->labels.p[l];
        best->is_cpu[s] = x->is_cpu;
        for (int32_t v = 0; v < c->n; v++)
            if (x->set < 0 || partition_set_has(set_at(q, x->set), v))
                best->stage_of[v] = s; /* later passes, of smaller sets, overwrite */
    }
}

/* Returns the least bound of the labels that were not finished. */
static double frontier(const struct search *q, int32_t count, int32_t set) {
    double bound = q->cut;
    for (int32_t n = count; n <= q->c->n; n++)
        for (int32_t i = n == count ? set : q->bucket[n]; i >= 0; i = q->chain[i])
            for (int32_t l = q->heads[i]; l >= 0; l = q->labels.p[l].next)
                bound = fmin(bound, q->labels.p[l].bound);
    return bound;
}

double partition_ideal(const struct partition_core *c, double low, double cut,
                       struct partition_watch *w, struct partition_chain *best) {
    struct search q;
    search_init(&q, c, low, cut, w);
    double bound = NAN;
    for (int32_t count = 0; count < c->n && isnan(bound); count++)
        for (int32_t set = q.bucket[count]; set >= 0; set = q.chain[set]) {
            int kinds = open_labels(&q, set);
            if (!kinds)
                continue;
            load_set(&q, set, kinds);
            grow(&q);
            if (w->stopped || q.overflow) {
                w->stopped = true;
                bound = frontier(&q, count, set);
                break;
            }
        }
    if (isnan(bound))
        bound = q.cut;
    if (q.done >= 0 && q.cut < best->value)
        store_chain(&q, best);
    search_release(&q);
    return bound;
}
