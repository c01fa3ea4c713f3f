/* partition_window.c - how far the pipeline can be after so many stages, and what its cuts cost.
 *
 * Suppose that no load is above T. Then the first j stages hold at most j T of work and those
 * behind leave at least what they cannot hold: the down-set D_j lies in a window of work. What
 * lies deep enough before the window is in D_j, what lies far enough behind it is not, so D_j
 * costs at least the least cut between the two, which is a maximum flow (tensors are
 * hyperedges, the order is arcs that no cut may take). Stages pay for what is cut, so they hold
 * less work, so the windows shrink, and the cuts rise: this goes on until nothing changes. An
 * empty window refutes T.
 *
 * A tensor may be cut at several borders, but is paid only once or twice. Its weight is
 * therefore split over the borders where it can be cut (those make up a network). Of one that
 * is cut at border i the stages 1..j pay, if there is no CPU among them,
 *
 *   - at least once for i <= j (the stage in front of i that touches it),
 *   - twice if it cannot be cut at j, because all of it lies in 1..j then.
 *
 * With a CPU as stage p what touches the tensor may be the CPU, which pays nothing: borders in
 * front of p count once (twice if the tensor cannot reach p), those behind only if the tensor
 * cannot be cut at j (twice if it cannot reach p either). Stages behind j: the mirror image.
 *
 * Which stage is the CPU, and how many accelerators are used, are cases that are refuted one
 * by one; the windows of what remains are joined.
 */
#include "solve/partition/partition_core.h"

#include "common/mem.h"
#include "solve/partition/partition_flow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ITEMS = 1500, MAX_STAGES = PARTITION_WINDOWS - 1, MAX_ROUNDS = 6 };

/* One case: k stages, the CPU is stage cpu (from 1; 0 = none is used). */
struct windows {
    const struct partition_core *c;
    double limit, work,
        cpu_work; /* T; of all items; what a CPU can take off accelerators */
    double slack;
    double *before, *behind; /* [items] work of what an item drags along, itself included */
    int stages, cpu;
    double lo[MAX_STAGES + 1], hi[MAX_STAGES + 1]; /* of D_0 .. D_k */
    double cut[MAX_STAGES + 1];
    bool apart[MAX_STAGES + 1][MAX_STAGES + 1]; /* no tensor can be cut at both borders */
    signed char *side; /* [border * items] 1: in D_i, -1: not in it, 0: either */
    bool *crosses;     /* [border * tensors] can be cut there */
    bool empty;        /* some D_i both holds an item and does not: no such chain exists */
};

/* ---- what is known of an item -------------------------------------------------------- */

/* Most accelerator work that one CPU can do within T: the best ratios first. */
struct ratio {
    double accel, cpu;
};

static int ratio_order(const void *x, const void *y) {
    const struct ratio *a = x, *b = y;
    double p = a->accel * b->cpu, q = b->accel * a->cpu;
    return p > q ? -1 : p < q;
}

static double most_cpu_work(const struct partition_core *c, double limit) {
    struct ratio *v = mem_array((size_t)c->n + 1, sizeof *v);
    double work = 0;
    for (int32_t i = 0; i < c->n; i++)
        v[i] = (struct ratio){c->accel[i], c->cpu[i]};
    qsort(v, (size_t)c->n, sizeof *v, ratio_order);
    for (int32_t i = 0; i < c->n && limit > 0; i++) {
        work += v[i].cpu <= limit ? v[i].accel : v[i].accel * (limit / v[i].cpu);
        limit -= v[i].cpu;
    }
    free(v);
    return work;
}

static void measure_closures(struct windows *w) {
    const struct partition_core *c = w->c;
    for (int32_t v = 0; v < c->n; v++) {
        const uint64_t *desc = c->desc + (size_t)v * (size_t)c->words;
        for (int32_t i = 0; i < c->words; i++)
            for (uint64_t bits = desc[i]; bits; bits &= bits - 1) {
                int32_t x = i * 64 + __builtin_ctzll(bits);
                w->behind[v] += c->accel[x];
                w->before[x] += c->accel[v];
            }
    }
}

/* ---- borders ------------------------------------------------------------------------ */

static signed char *side_of(const struct windows *w, int border) {
    return w->side + (size_t)border * (size_t)w->c->n;
}

static bool *crosses_at(const struct windows *w, int border) {
    return w->crosses + (size_t)border * (size_t)w->c->tensors;
}

/* Which items the window decides, and which tensors can be cut. */
static void decide_sides(struct windows *w, int border) {
    const struct partition_core *c = w->c;
    signed char *side = side_of(w, border);
    bool *crosses = crosses_at(w, border);
    for (int32_t v = 0; v < c->n; v++) {
        bool in = w->work - w->behind[v] < w->lo[border] - w->slack;
        bool out = w->before[v] > w->hi[border] + w->slack;
        side[v] = (signed char)(in - out);
        w->empty = w->empty || (in && out);
    }
    for (int32_t h = 0; h < c->tensors; h++) {
        bool in = false, out = false;
        for (int32_t e = c->pins.at[h]; e < c->pins.at[h + 1]; e++) {
            in = in || side[c->pins.v[e]] >= 0;
            out = out || side[c->pins.v[e]] <= 0;
        }
        crosses[h] = in && out;
    }
}

/* The part of each tensor's weight that stands at a border is 1 / borders[h]. */
static double least_cut(const struct windows *w, int border, const int *borders) {
    const struct partition_core *c = w->c;
    const signed char *side = side_of(w, border);
    const bool *crosses = crosses_at(w, border);
    int32_t *node = mem_array((size_t)c->n + 1, sizeof *node), nodes = 2;
    for (int32_t v = 0; v < c->n; v++)
        node[v] = side[v] > 0 ? 0 : side[v] < 0 ? 1 : nodes++;
    int32_t first = nodes;
    for (int32_t h = 0; h < c->tensors; h++)
        nodes += crosses[h] ? 2 : 0;
    struct partition_flow f;
    partition_flow_init(&f, nodes);
    for (int32_t v = 0; v < c->n; v++)
        for (int32_t e = c->pred.at[v]; e < c->pred.at[v + 1]; e++)
            if (node[v] != 1 && node[c->pred.v[e]] != 0)
                partition_flow_arc(&f, node[v], node[c->pred.v[e]], INFINITY);
    for (int32_t h = 0; h < c->tensors; h++) {
        if (!crosses[h])
            continue;
        for (int32_t e = c->pins.at[h]; e < c->pins.at[h + 1]; e++) {
            partition_flow_arc(&f, node[c->pins.v[e]], first, INFINITY);
            partition_flow_arc(&f, first + 1, node[c->pins.v[e]], INFINITY);
        }
        partition_flow_arc(&f, first, first + 1, c->weight[h] / borders[h]);
        first += 2;
    }
    double cut = partition_flow_cut(&f);
    partition_flow_release(&f);
    free(node);
    return cut;
}

/* All cuts anew; whether one rose. */
static bool raise_cuts(struct windows *w) {
    const struct partition_core *c = w->c;
    int *borders = mem_array((size_t)c->tensors + 1, sizeof *borders);
    bool rose = false;
    for (int i = 1; i < w->stages; i++) {
        decide_sides(w, i);
        for (int32_t h = 0; h < c->tensors; h++)
            borders[h] += crosses_at(w, i)[h];
    }
    for (int i = 1; i < w->stages; i++) {
        for (int k = 1; k < w->stages; k++) {
            w->apart[i][k] = true;
            for (int32_t h = 0; h < c->tensors && w->apart[i][k]; h++)
                w->apart[i][k] = !(crosses_at(w, i)[h] && crosses_at(w, k)[h]);
        }
        double cut = least_cut(w, i, borders) * (1 - 1e-9);
        rose = rose || cut > w->cut[i] + 1e-4 * w->limit;
        w->cut[i] = cut;
    }
    free(borders);
    return rose;
}

/* ---- windows ---------------------------------------------------------------------- */

/* Borders and stages counted from the other end. */
static int turned(const struct windows *w, int i, bool turn) {
    return turn ? w->stages - i : i;
}

/* How often stages 1..j surely pay for a tensor that is cut at border i <= j. */
static int times_paid(const struct windows *w, int i, int j, bool turn) {
    int cpu = w->cpu && turn ? w->stages + 1 - w->cpu : w->cpu;
    const bool *apart = w->apart[turned(w, i, turn)];
    bool inside = j == w->stages || (i < j && apart[turned(w, j, turn)]);
    if (!cpu || j < cpu)
        return 1 + inside;
    if (i < cpu)
        return 1 + (i < cpu - 1 && apart[turned(w, cpu - 1, turn)]);
    return inside * (1 + (i > cpu && apart[turned(w, cpu, turn)]));
}

/* What stages 1..j hold at most. */
static double most_work(const struct windows *w, int j, bool turn) {
    int cpu = w->cpu && turn ? w->stages + 1 - w->cpu : w->cpu;
    double hold = w->limit * (j - (cpu && cpu <= j)) + (cpu && cpu <= j ? w->cpu_work : 0);
    for (int i = 1; i <= j && i < w->stages; i++)
        hold -= times_paid(w, i, j, turn) * w->cut[turned(w, i, turn)];
    return hold;
}

/* Whether the case is refuted. */
static bool shrink_windows(struct windows *w) {
    for (int j = 0; j <= w->stages; j++) {
        w->hi[j] = fmin(w->hi[j], most_work(w, j, false));
        w->lo[j] = fmax(w->lo[j], w->work - most_work(w, w->stages - j, true));
        w->empty = w->empty || w->lo[j] > w->hi[j] + 2 * w->slack;
    }
    return w->empty;
}

static bool refuted(struct windows *w) {
    w->empty = false;
    for (int j = 0; j <= w->stages; j++)
        w->cut[j] = w->lo[j] = 0, w->hi[j] = w->work;
    for (int round = 0; round < MAX_ROUNDS; round++)
        if (shrink_windows(w))
            return true;
        else if (!raise_cuts(w))
            break;
    return shrink_windows(w);
}

/* ---- all cases -------------------------------------------------------------------- */

static void join_windows(const struct windows *w, struct partition_windows *out) {
    for (int j = 0; j <= w->stages; j++) {
        int cpus = w->cpu && w->cpu <= j;
        double *lo = &out->lo[j - cpus][cpus], *hi = &out->hi[j - cpus][cpus];
        *lo = fmin(*lo, w->lo[j] - 2 * w->slack);
        *hi = fmax(*hi, w->hi[j] + 2 * w->slack);
    }
}

bool partition_windows_fit(const struct partition_core *c) {
    return c->goal == PARTITION_MAXLOAD && c->desc && c->tensors && c->n <= MAX_ITEMS &&
           c->cpus <= 1 && c->accels >= 2 && c->accels + c->cpus <= MAX_STAGES;
}

bool partition_windows_refute(const struct partition_core *c, double limit,
                              struct partition_watch *watch,
                              struct partition_windows *out) {
    size_t n = (size_t)c->n + 1, k = MAX_STAGES + 1;
    struct windows w = {.c = c, .limit = limit};
    bool open = false;
    w.before = mem_array(n, sizeof *w.before), w.behind = mem_array(n, sizeof *w.behind);
    w.side = mem_array(n * k, sizeof *w.side);
    w.crosses = mem_array(((size_t)c->tensors + 1) * k, sizeof *w.crosses);
    measure_closures(&w);
    for (int32_t v = 0; v < c->n; v++)
        w.work += c->accel[v];
    w.slack = 1e-10 * w.work;
    w.cpu_work = c->cpus ? most_cpu_work(c, limit) : 0;
    for (int i = 0; i < PARTITION_WINDOWS; i++)
        for (int cpus = 0; cpus < 2; cpus++)
            out->lo[i][cpus] = INFINITY, out->hi[i][cpus] = -INFINITY;
    out->work = w.work;
    for (int accels = c->accels; accels >= 0 && !watch->stopped; accels--) {
        for (w.cpu = 0; w.cpu <= (c->cpus ? accels + 1 : 0); w.cpu++) {
            w.stages = accels + (w.cpu > 0);
            if (partition_watch_stop_now(watch) || (w.stages && !refuted(&w))) {
                join_windows(&w, out);
                open = true;
            }
        }
    }
    free(w.before), free(w.behind), free(w.side), free(w.crosses);
    return !open && !watch->stopped;
}
