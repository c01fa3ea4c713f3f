/* Starts by the stages solver (lib/solve/stages/stages.h): for one micro-batch, the
 * number of stages, the ops and devices of each, and its uniform preset, all at once.
 *
 * The model is a row of units (units.h), and cuts fall between them. A column is a
 * number of devices with a preset, a level of ZeRO and a share of recomputed blocks.
 * Prefix sums tell what any range of units costs in a column, including what it takes
 * from its neighbours, and for how many micro-batches in flight it has memory. Where
 * there are several kinds of devices, a column is of one of them, and the kinds stand
 * along the pipeline in the order of their ranks or in reverse. The solver is exact for
 * this problem. It leaves out that messages depend on both neighbours and on the ranks
 * of their devices, and that ramps of unequal stages differ. hops goes on from here:
 * cuts inside units, other layouts, fewer recomputed blocks. */
#include "search/algorithms/grid.h"
#include "search/algorithms/improve.h"
#include "search/algorithms/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_UNITS = 64,
    MOST_QUANTA = 64,  /* equal portions of the devices, at most */
    MOST_COLUMNS = 12, /* of one number of devices */
};

/* A level of recompute (space.h), and the share of the blocks that is recomputed. */
static const struct recompute_share {
    int level;
    double share;
} recompute_shares[] = {{0, 0}, {1, 1}, {2, 1. / 3}, {2, 2. / 3}, {2, 1}};

/* Sums over all units in front of one; in_us, out_us and the temporaries are of this
 * unit alone. */
struct sums {
    double time_us, fixed, slot, across;
    /* the time of receiving the tensors that pass in front of it (in_us) and their
     * gradients (out_us); [1]: from another node */
    double in_us[2], out_us[2];
    double temp, update_temp;
};

struct column {
    struct search_stage st;
    int class; /* of its devices */
    double memory;
    double recompute_share; /* of its blocks */
    struct long_lived
        *long_lived; /* of its prefix; NULL: the model has none, or memory is not limited */
    struct sums at[MOST_UNITS + 1];
};

struct slicer {
    struct search *s;
    int64_t micro_batch;
    double micro_batches;
    int zero, zeros; /* levels of ZeRO that are tried: zero .. zeros - 1 */
    int n_units, bound[MOST_UNITS + 1]; /* the first op of each unit, and the end */
    int quantum;                        /* devices that are only used together */
    int n_classes;                      /* of devices */
    struct device_class classes[CLUSTER_MAX_GROUPS];
    int per_node;     /* devices in a node */
    bool tells_nodes; /* The price of a message depends on whether it leaves the node. */
    bool reversed;    /* The last class of devices comes first in the pipeline. */
    ARR(struct column *) columns;        /* sorted by number of devices */
    ARR(struct long_lived *) long_lived; /* by prefix */
    bool has_long_lived;
    struct grid grid; /* for its experts */
};

/* ---- columns ------------------------------------------------------------------------- */

/* Returns the time of reducing these gradients, as their share of the collectives that
 * reduce all of the model's. */
static double reductions_us(const struct load *all, const double *all_us,
                            const struct load *l) {
    double us = 0;
    for (int i = 0; i < LOAD_REDUCTIONS && l->over[i]; i++)
        for (int k = 0; k < LOAD_REDUCTIONS && all->over[k]; k++)
            if (all->over[k] == l->over[i] && all->elems[k] > 0)
                us += all_us[k] * l->elems[i] / all->elems[k];
    return us;
}

static void add_recompute(struct slicer *z, const struct prefix *t, struct column *c, int u,
                          struct sums *more) {
    struct search_stage st = c->st;
    st.first = z->bound[u];
    st.end = z->bound[u + 1];
    st.recompute_blocks = space_stage_blocks(&z->s->space, &st);
    struct load l = eval_recompute(&z->s->eval, t, &st);
    more->time_us += c->recompute_share * (l.v[LOAD_forward] + l.v[LOAD_backward]);
    more->slot += c->recompute_share * l.v[LOAD_slot];
}

/* Sums the costs of all units in front of each unit. */
static void fill_column(struct slicer *z, const struct prefix *t, struct column *c) {
    struct evaluate *ev = &z->s->eval;
    struct load all = prefix_until(ev->space, t, ev->space->p.model->n_ops);
    double all_us[LOAD_REDUCTIONS] = {0};
    struct sums recompute = {0};
    bool missing = false;
    for (int i = 0; i < LOAD_REDUCTIONS && all.over[i]; i++)
        all_us[i] =
            graph_reduce_us(&ev->graph, &t->st, all.over[i], all.elems[i], &missing);
    for (int u = 0; u <= z->n_units; u++) {
        struct load l = prefix_until(ev->space, t, z->bound[u]);
        double update_us =
            l.v[LOAD_before_norm] + l.v[LOAD_update] + reductions_us(&all, all_us, &l);
        c->at[u] =
            (struct sums){.time_us = l.v[LOAD_forward] + l.v[LOAD_backward] +
                                     update_us / z->micro_batches + recompute.time_us,
                          .fixed = l.v[LOAD_fixed],
                          .slot = l.v[LOAD_slot] + recompute.slot,
                          .across = l.v[LOAD_across]};
        if (u == z->n_units)
            break;
        int64_t update,
            temp = prefix_temp(ev->space, t, z->bound[u], z->bound[u + 1], &update);
        c->at[u].temp = (double)temp;
        c->at[u].update_temp = (double)update;
        for (int inter_node = 0; u && inter_node <= z->tells_nodes; inter_node++)
            eval_takes(ev, t, z->bound[u], inter_node, &c->at[u].in_us[inter_node],
                       &c->at[u].out_us[inter_node]);
        if (c->st.recompute_level)
            add_recompute(z, t, c, u, &recompute);
    }
    cost_forget(&ev->cost);
}

/* Returns whether `a` is no slower and no larger than b over the whole model. */
static bool dominates(const struct slicer *z, const struct column *a,
                      const struct column *b) {
    const struct sums *x = &a->at[z->n_units], *y = &b->at[z->n_units];
    return x->time_us <= y->time_us &&
           (!z->s->space.p.memory_bytes || (x->fixed <= y->fixed && x->slot <= y->slot));
}

/* Adds the column, unless another one with as many devices dominates it. It drops those
 * that it dominates and, if there are MOST_COLUMNS others, the slowest of them. */
static void keep_column(struct slicer *z, struct column *c) {
    int64_t first = z->columns.n, slowest = -1, n = 0;
    while (first > 0 && z->columns.p[first - 1]->st.devices == c->st.devices &&
           z->columns.p[first - 1]->class == c->class)
        first--;
    for (int64_t i = first; i < z->columns.n; i++)
        if (dominates(z, z->columns.p[i], c)) {
            free(c);
            return;
        }
    n = first;
    for (int64_t i = first; i < z->columns.n; i++) {
        if (dominates(z, c, z->columns.p[i])) {
            free(z->columns.p[i]);
            continue;
        }
        z->columns.p[n] = z->columns.p[i];
        if (slowest < 0 || z->columns.p[n]->at[z->n_units].time_us >
                               z->columns.p[slowest]->at[z->n_units].time_us)
            slowest = n;
        n++;
    }
    z->columns.n = n;
    if (n - first < MOST_COLUMNS) {
        arr_push(&z->columns, c);
    } else {
        free(z->columns.p[slowest]);
        z->columns.p[slowest] = c;
    }
}

/* Scoring may free prefixes. The first problem asks for everything while they still
 * exist, and later problems find it in the memo. */
static struct long_lived *long_lived_of(struct slicer *z, const struct prefix *t) {
    if (!z->long_lived.n || z->long_lived.p[z->long_lived.n - 1]->t != t) {
        struct long_lived *long_lived = mem_alloc(sizeof *long_lived);
        long_lived_begin(long_lived, &z->s->eval, t);
        arr_push(&z->long_lived, long_lived);
    }
    return z->long_lived.p[z->long_lived.n - 1];
}

/* Adds a column of this preset, unless some op cannot be laid out in it. */
static void add_column(struct slicer *z, int class, int devices, struct preset preset,
                       int zero, struct recompute_share recompute) {
    struct evaluate *ev = &z->s->eval;
    struct column *c = mem_alloc(sizeof *c);
    int rank = z->classes[class].first;
    c->class = class;
    c->memory = (double)eval_stage_room(ev, rank, devices);
    c->st = (struct search_stage){
        .end = ev->space->p.model->n_ops, .devices = devices, .zero = zero};
    c->st.recompute_level = recompute.level;
    c->recompute_share = recompute.share;
    space_apply_preset(ev->space, &c->st, z->micro_batch, preset);
    const struct prefix *t = eval_prefix(ev, &c->st, z->micro_batch, rank, false);
    if (!prefix_legal(ev->space, t, 0, ev->space->p.model->n_ops)) {
        free(c);
        return;
    }
    fill_column(z, t, c);
    c->long_lived = z->has_long_lived ? long_lived_of(z, t) : NULL;
    keep_column(z, c);
}

/* Adds the preset with every level of ZeRO and every share of recomputed blocks. */
static void add_preset(struct slicer *z, int class, int devices, struct preset preset) {
    bool limited = z->s->space.p.memory_bytes > 0;
    for (int zero = z->zero; zero < z->zeros; zero++)
        for (size_t i = 0;
             i < (limited ? sizeof recompute_shares / sizeof *recompute_shares : 1); i++)
            add_column(z, class, devices, preset, zero, recompute_shares[i]);
}

/* Adds the presets of this number of devices. The sequence is split by the fewest axes
 * with which the others can split the micro-batch. */
static void add_columns(struct slicer *z, int class, int devices) {
    struct pool *pool = &z->s->pool;
    struct search_stage whole = {.end = pool->space->p.model->n_ops, .devices = devices};
    int axes = space_mesh_axes(pool->space, &whole);
    for (int j = 0; j <= axes && !budget_stopped(pool->budget); j++)
        for (int seq = 0; seq <= (j && space_has_sequence(pool->space)); seq++) {
            struct preset preset = {.model_axes = j, .inner = ~0u, .sequence = seq};
            while (!search_splits_batch(devices, z->micro_batch, preset) &&
                   space_has_sequence(pool->space) && j + preset.context_axes < axes)
                preset.context_axes++;
            if (j + preset.context_axes < axes &&
                !search_splits_batch(devices, z->micro_batch, preset))
                continue;
            add_preset(z, class, devices, preset);
            preset.expert_axes = grid_expert_axes(&z->grid, devices, preset);
            if (preset.expert_axes)
                add_preset(z, class, devices, preset);
        }
}

static bool divides_classes(const struct slicer *z, int n) {
    for (int i = 0; i < z->n_classes; i++)
        if (z->classes[i].end % n)
            return false;
    return true;
}

/* Divides the devices into equal portions, at most MOST_QUANTA and none across two
 * classes; where that is impossible, classes are not distinguished. */
static void find_quantum(struct slicer *z) {
    int devices = z->s->space.p.devices;
    z->n_classes = space_device_classes(&z->s->space, z->classes);
    z->quantum = 1;
    while (devices / z->quantum > MOST_QUANTA || devices % z->quantum)
        z->quantum++;
    for (int n = z->quantum; z->n_classes > 1; n++) {
        if (divides_classes(z, n)) {
            z->quantum = n;
            break;
        }
        if (n >= z->classes[0].end) {
            z->n_classes = 1;
            z->classes[0].end = devices;
        }
    }
}

/* Nodes are distinguished if all have the same size and no portion straddles two of
 * them. */
static void find_nodes(struct slicer *z) {
    const struct cluster *c = &z->s->space.p.cluster;
    z->per_node = (int)c->groups[0].devices;
    z->tells_nodes = z->n_classes == 1 && z->per_node < z->s->space.p.devices &&
                     z->per_node % z->quantum == 0;
    for (int g = 1; g < c->n_groups; g++)
        z->tells_nodes &= c->groups[g].devices == z->per_node;
}

/* Adds columns for every number of devices that divides a class. */
static void find_columns(struct slicer *z) {
    find_quantum(z);
    find_nodes(z);
    for (int i = 0; i < z->n_classes; i++) {
        int devices = z->classes[i].end - z->classes[i].first;
        for (int n = z->quantum; n <= devices; n += z->quantum)
            if (devices % n == 0)
                add_columns(z, i, n);
    }
}

/* ---- the solver's problem ------------------------------------------------------------ */

/* Returns how many stages may follow a stage of these units in this column, by the
 * micro-batches in flight that fit; -1 if none fits. */
static int16_t successors(const struct slicer *z, const struct column *c, int first,
                          int last, double temp, double update,
                          const struct brief *long_lived) {
    const struct sums *a = &c->at[first], *b = &c->at[last + 1];
    double room = c->memory - (b->fixed - a->fixed) - long_lived->fixed;
    double left = update <= room ? room - temp : -1;
    double slot = b->slot - a->slot + long_lived->slot[POOL_FORWARD_BACKWARD];
    if (!z->s->space.p.memory_bytes || left >= slot * z->micro_batches)
        return (int16_t)z->n_units;
    double s = slot > 0 && left >= slot ? floor(left / slot) - 1 : -1;
    return (int16_t)(s < z->n_units ? s : z->n_units);
}

/* Returns the first place of a class in the row of devices along the pipeline. */
static int row_of(const struct slicer *z, int class) {
    const struct device_class *c = &z->classes[class];
    return z->reversed ? z->classes[z->n_classes - 1].end - c->end : c->first;
}

/* Fills the costs of a column for all ranges of units. The configuration tells whether
 * the stage in front and the stage behind are on another node. */
static void fill_config(const struct slicer *z, const struct stages_problem *p, int config,
                        double *time, int16_t *succ) {
    const struct column *column = z->columns.p[p->configs[config].config];
    bool node_in = p->configs[config].submesh & 2,
         node_out = p->configs[config].submesh & 1;
    const struct sums *at = column->at;
    for (int first = 0; first < z->n_units; first++) {
        double temp = 0, update = 0;
        for (int last = first; last < z->n_units; last++) {
            size_t i = units_cell(first, last, z->n_units, p->num_configs) + (size_t)config;
            temp = fmax(temp, at[last].temp);
            update = fmax(update, at[last].update_temp);
            struct brief long_lived = {0};
            if (column->long_lived)
                long_lived_add(column->long_lived, z->bound[first], z->bound[last + 1],
                               &long_lived);
            double across = at[last + 1].across - at[first].across;
            time[i] = long_lived.time_us + at[last + 1].time_us - at[first].time_us +
                      at[first].in_us[node_in] + at[last + 1].out_us[node_out];
            succ[i] =
                space_may_be_stage(&z->s->space, z->bound[first], z->bound[last + 1])
                    ? successors(z, column, first, last, temp, across + update, &long_lived)
                    : -1;
        }
    }
}

/* Adds places of a column. As in the solver, c.lo and c.hi count the devices of the stage
 * and those behind it. */
static void add_choice(struct stages_problem *p, int column, bool node_in, bool node_out,
                       struct stages_choice c) {
    int k = p->num_configs, ends = 2 * node_in + node_out;
    while (k > 0 && p->configs[k - 1].config == column && p->configs[k - 1].submesh != ends)
        k--;
    bool known = k > 0 && p->configs[k - 1].config == column;
    if (!known)
        p->configs[p->num_configs++] = (struct stages_config){ends, .config = column};
    c.config = known ? k - 1 : p->num_configs - 1;
    p->choices[p->num_choices++] = c;
}

/* Adds the places of a column where nodes are alike: a stage may begin at every offset
 * in a node at which it fits or, if it is larger than a node, only at its start. */
static void add_in_nodes(const struct slicer *z, struct stages_problem *p, int column,
                         int size) {
    int per = z->per_node / z->quantum, last = size < per ? per - size : 0;
    for (int at = 0; at <= last; at++) {
        int hi = p->devices - at, lo = hi;
        while (lo - per >= size)
            lo -= per;
        add_choice(p, column, at == 0, size >= per || at == last,
                   (struct stages_choice){.size = size, .lo = lo, .hi = hi, .step = per});
    }
}

/* Adds the places at which each column may stand. */
static void add_choices(const struct slicer *z, struct stages_problem *p) {
    for (int c = 0; c < (int)z->columns.n; c++) {
        const struct column *column = z->columns.p[c];
        const struct device_class *class = &z->classes[column->class];
        int begin = row_of(z, column->class) / z->quantum;
        int end = begin + (class->end - class->first) / z->quantum;
        int n = column->st.devices, size = n / z->quantum;
        if (z->tells_nodes && (z->per_node % n == 0 || n % z->per_node == 0)) {
            add_in_nodes(z, p, c, size);
            continue;
        }
        add_choice(p, c, z->tells_nodes, z->tells_nodes,
                   (struct stages_choice){.size = size,
                                          .lo = p->devices - end + size,
                                          .hi = p->devices - begin});
    }
}

/* The caller frees the tables. */
static void make_problem(const struct slicer *z, struct stages_problem *p) {
    /* a column's left and right neighbour may each be on the same node or on another
     * one */
    enum { VARIANTS = 4 };
    int offsets = z->tells_nodes ? z->per_node / z->quantum : 1;
    int64_t room = z->columns.n * (offsets > VARIANTS ? offsets : VARIANTS);
    units_problem(&z->s->space, z->n_units, room, z->micro_batches, NULL, NULL, p);
    p->devices /= z->quantum;
    p->num_configs = p->num_choices = 0;
    add_choices(z, p);
    size_t cells = units_cells(z->n_units, p->num_configs);
    double *time = mem_array(cells, sizeof *time);
    int16_t *succ = mem_array(cells, sizeof *succ);
    for (int k = 0; k < p->num_configs; k++)
        fill_config(z, p, k, time, succ);
    p->dense_time = time;
    p->dense_succ = succ;
}

/* Makes a candidate of the solver's plan, with its groups on the ranks that the plan
 * gives them. */
static void take_answer(const struct slicer *z, const struct stages_problem *p,
                        const struct stages_plan *plan, struct candidate *out) {
    int *order = mem_array((size_t)plan->n, sizeof *order);
    out->n_stages = out->n_groups = plan->n;
    out->micro_batch = z->micro_batch;
    out->schedule = space_first_schedule(&z->s->space);
    for (int k = 0; k < plan->n; k++) {
        const struct stages_stage *from = &plan->stages[k];
        const struct column *c =
            z->columns.p[p->configs[p->choices[from->choice].config].config];
        struct search_stage *st = &out->stages[k];
        *st = c->st;
        st->first = z->bound[from->first];
        st->end = z->bound[from->last + 1];
        st->recompute_blocks =
            (int)ceil(c->recompute_share * space_stage_blocks(&z->s->space, st));
        st->place =
            z->classes[c->class].first + from->device * z->quantum - row_of(z, c->class);
    }
    candidate_order(out, order);
    candidate_place(out, order);
    free(order);
}

/* Solves the problem; takes the answer over if it is better than `*value`, which it
 * updates. */
static bool solve(const struct slicer *z, double *value, struct candidate *out) {
    struct stages_problem p;
    struct stages_answer a;
    struct solve_limits limits = {.gap = 1e-3, .seed = 1, .threads = 1};
    make_problem(z, &p);
    bool found = stages_solve(&p, &limits, &a, NULL) == 0;
    bool better = found && a.plan.value < *value;
    if (better) {
        *value = a.plan.value;
        take_answer(z, &p, &a.plan, out);
    }
    if (found)
        stages_answer_release(&a);
    free((void *)p.dense_time);
    free((void *)p.dense_succ);
    stages_release(&p);
    return better;
}

/* Solves with both orders of the device classes, and keeps the better answer. */
static bool solve_orders(struct slicer *z, struct candidate *out) {
    bool found = false;
    double value = INFINITY;
    for (int r = 0;
         r < (z->n_classes > 1 ? 2 : 1) && z->columns.n && !budget_stopped(&z->s->budget);
         r++) {
        z->reversed = r;
        found |= solve(z, &value, out);
    }
    return found;
}

/* The columns do not count tensors that merely pass through a stage, nor buffers of
 * messages. So if the answer does not fit, the problem is solved again with that much
 * less memory. */
static bool solve_within(struct slicer *z, struct candidate *out) {
    enum { TRIES = 3 };
    bool found = solve_orders(z, out);
    for (int i = 0; i < TRIES && found && eval_legal(&z->s->eval, out); i++) {
        struct score score = pool_score(&z->s->pool, out);
        if (score.unknown || !score.overflow)
            break;
        for (int64_t c = 0; c < z->columns.n; c++)
            z->columns.p[c]->memory -= (double)score.overflow;
        struct candidate less = candidate_make(&z->s->space);
        bool solved = solve_orders(z, &less);
        if (solved)
            candidate_copy(out, &less);
        candidate_release(&less);
        if (!solved)
            break;
    }
    return found;
}

/* ZeRO beyond the optimizer's state is tried only if `shard` is set; without a memory
 * limit nothing is sharded. */
bool search_slice(struct search *s, int64_t micro_batch, bool shard,
                  struct candidate *out) {
    int levels = s->space.p.memory_bytes ? space_zero_levels(&s->space) : 1;
    struct slicer z = {.s = s,
                       .micro_batch = micro_batch,
                       .micro_batches = (double)(s->space.p.batch / micro_batch),
                       .zero = shard ? levels - 1 : 0,
                       .zeros = shard || levels <= 1 + ZERO_OPTIMIZER ? levels
                                                                      : 1 + ZERO_OPTIMIZER};
    z.has_long_lived = s->space.p.memory_bytes && s->space.has_long_lived;
    grid_init(&z.grid, s);
    z.n_units = units_find_parts(&s->space, MOST_UNITS, z.bound);
    find_columns(&z);
    bool found = solve_within(&z, out);
    for (int64_t i = 0; i < z.columns.n; i++)
        free(z.columns.p[i]);
    arr_release(&z.columns);
    for (int64_t i = 0; i < z.long_lived.n; i++) {
        long_lived_end(z.long_lived.p[i]);
        free(z.long_lived.p[i]);
    }
    arr_release(&z.long_lived);
    grid_release(&z.grid);
    return found;
}
