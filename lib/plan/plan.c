#include "plan/pin.h"
#include "plan/plan_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const optimizer_names[] = {
#define X(name, states) #name,
    OPTIMIZERS(X)
#undef X
};
static const char *const aggregate_names[] = {
#define X(name) #name,
    AGGREGATES(X)
#undef X
};
static const char *const average_names[] = {
#define X(name) #name,
    AVERAGES(X)
#undef X
};
static const char *const recompute_names[] = {"none", "selective", "all"};
static const char *const dtype_names[] = {
    [DTYPE_f32] = "fp32", [DTYPE_bf16] = "bf16", [DTYPE_f16] = "fp16"};

enum dtype plan_tensor_dtype(const struct plan *p, int tensor) {
    const struct model_tensor *t = &p->model->tensors[tensor];
    return t->integer ? DTYPE_i32 : t->wide ? DTYPE_f32 : p->dtype;
}

static int find_name(const char *const *names, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (!strcmp(names[i], name))
            return i;
    return -1;
}

const char *optimizer_name(enum optimizer o) {
    return optimizer_names[o];
}

int optimizer_find(const char *name) {
    return find_name(optimizer_names, OPTIMIZER_COUNT, name);
}

const char *aggregate_name(enum aggregate a) {
    return aggregate_names[a];
}

int aggregate_find(const char *name) {
    return find_name(aggregate_names, AGGREGATE_COUNT, name);
}

const char *average_name(enum average a) {
    return average_names[a];
}

int average_find(const char *name) {
    return find_name(average_names, AVERAGE_COUNT, name);
}

int recompute_find(const char *name) {
    return find_name(recompute_names, RECOMPUTE_COUNT, name);
}

int optimizer_states(enum optimizer o) {
    static const int states[] = {
#define X(name, states) states,
        OPTIMIZERS(X)
#undef X
    };
    return states[o];
}

enum optimizer optimizer_of(enum optimizer o, const struct model_param *p) {
    return o == OPTIMIZER_muon && !p->matrix ? OPTIMIZER_adamw : o;
}

const char *plan_dtype_name(enum dtype dtype) {
    return dtype_names[dtype];
}

int plan_dtype_find(const char *name) {
    return find_name(dtype_names, sizeof dtype_names / sizeof *dtype_names, name);
}

int64_t plan_micro_batches(const struct plan *p) {
    return p->batch / p->micro_batch;
}

void plan_group_name(const struct plan *p, int group, char *buf, size_t n) {
    int first = p->first_chunk[group], end = p->first_chunk[group + 1];
    size_t used = (size_t)snprintf(buf, n, end - first > 1 ? "stages" : "stage");
    for (int i = first; i < end && used < n; i++)
        used += (size_t)snprintf(buf + used, n - used, "%s%d", i > first ? ", " : " ",
                                 p->chunks[i]);
}

struct plan *plan_room(struct model *m, int n_stages) {
    struct arena arena = {0};
    struct plan *p = arena_alloc(&arena, sizeof *p);
    size_t n = (size_t)n_stages;
    p->arena = arena;
    p->model = m;
    p->n_stages = n_stages;
    p->stages = arena_array(&p->arena, n, sizeof *p->stages);
    p->stage_of = arena_array(&p->arena, (size_t)m->n_ops, sizeof *p->stage_of);
    p->chunks = arena_array(&p->arena, n, sizeof *p->chunks);
    p->first_chunk = arena_array(&p->arena, n + 1, sizeof *p->first_chunk);
    return p;
}

void plan_stage_room(struct plan *p, struct stage *st, int n_ops) {
    size_t n = (size_t)n_ops;
    st->n_ops = n_ops;
    st->ops = arena_array(&p->arena, n, sizeof *st->ops);
    st->layouts = arena_array(&p->arena, n, sizeof *st->layouts);
    st->recompute = arena_array(&p->arena, n, sizeof *st->recompute);
    st->zero = arena_array(&p->arena, n, sizeof *st->zero);
    st->offload = arena_array(&p->arena, n, sizeof *st->offload);
    if (n)
        memset(st->layouts, PLACE_NONE, sizeof *st->layouts * n);
}

/* Stages of consecutive ops, as the search makes them; nothing is split. */
struct plan *plan_create(struct model *m, int n_stages, const int *bounds) {
    struct plan *p = plan_room(m, n_stages);
    p->n_groups = n_stages;
    p->logits = 1;
    for (int s = 0; s < n_stages; s++) {
        struct stage *st = &p->stages[s];
        st->group = s;
        plan_stage_room(p, st, bounds[s + 1] - bounds[s]);
        for (int i = 0; i < st->n_ops; i++) {
            st->ops[i] = bounds[s] + i;
            p->stage_of[bounds[s] + i] = s;
        }
    }
    return p;
}

static void copy_stage(struct plan *p, struct stage *to, const struct stage *from) {
    size_t n = (size_t)from->n_ops;
    struct stage room = *from;
    plan_stage_room(p, &room, from->n_ops);
    *to = room;
    memcpy(to->ops, from->ops, n * sizeof *to->ops);
    memcpy(to->layouts, from->layouts, n * sizeof *to->layouts);
    memcpy(to->recompute, from->recompute, n * sizeof *to->recompute);
    memcpy(to->zero, from->zero, n * sizeof *to->zero);
    memcpy(to->offload, from->offload, n * sizeof *to->offload);
}

struct plan *plan_copy(const struct plan *p, struct model *m) {
    struct plan *out = plan_room(m, p->n_stages);
    for (int s = 0; s < p->n_stages; s++)
        copy_stage(out, &out->stages[s], &p->stages[s]);
    memcpy(out->stage_of, p->stage_of, (size_t)m->n_ops * sizeof *out->stage_of);
    out->batch = p->batch;
    out->micro_batch = p->micro_batch;
    out->schedule = p->schedule;
    out->optimizer = p->optimizer;
    out->dtype = p->dtype;
    out->reduce = p->reduce;
    out->aggregate = p->aggregate;
    out->faulty = p->faulty;
    out->average = p->average;
    out->average_every = p->average_every;
    out->overlap = p->overlap;
    out->logits = p->logits;
    out->n_groups = p->n_groups;
    out->devices = p->devices;
    return out;
}

void plan_destroy(struct plan *p) {
    if (!p)
        return;
    json_decref(p->provenance);
    if (p->owns_model) {
        pins_destroy((struct pins *)p->pins);
        model_destroy(p->model);
    }
    struct arena arena = p->arena;
    arena_release(&arena); /* p itself lives in it */
}

/* Layouts fit, and what the stage needs is made in it or before it. */
static int check_stage(const struct plan *p, int s, struct err *err) {
    const struct stage *st = &p->stages[s];
    const struct model *m = p->model;
    for (int i = 0; i < st->n_ops; i++) {
        const struct model_op *op = &m->ops[st->ops[i]];
        if (layout_check(m, op, &st->mesh, &st->layouts[i], p->micro_batch, err) < 0)
            return -1;
        for (int k = 0; k < op->n_in; k++) {
            int producer = m->tensors[op->in[k]].producer;
            if (producer >= 0 && p->stage_of[producer] > s)
                return err_input(err,
                                 "ops: %s needs the result of %s, which comes later, in "
                                 "stages[%d]",
                                 op->name, m->ops[producer].name, p->stage_of[producer]);
        }
    }
    return 0;
}

static double elements(const struct plan *p, const struct shape *s) {
    struct extents x = model_extents(p->model, s, p->batch);
    double n = 1;
    for (int i = 0; i < x.rank; i++)
        n *= (double)x.size[i];
    return n;
}

unsigned plan_data_axes(const struct plan *p, const struct stage *st, int i) {
    const struct model_op *op = &p->model->ops[st->ops[i]];
    unsigned axes = 0;
    for (int a = 0; a < st->mesh.n_axes; a++) {
        const int dim = st->layouts[i].dim[a];
        axes |= dim != PLACE_NONE && op->space.dim[dim] == p->model->batch ? 1u << a : 0;
    }
    return axes;
}

unsigned plan_apart_axes(const struct plan *p, const struct stage *st, int i) {
    unsigned axes = p->average == AVERAGE_none ? 0 : plan_data_axes(p, st, i);
    for (int a = 0; a < st->mesh.n_axes; a++)
        if (st->mesh.size[a] == 1)
            axes &= ~(1u << a);
    return axes & ~st->together;
}

/* Of as many as may be bad, as many more must be good, and one. Replicas of an op without parameters have
 * nothing to agree on, and one alone has nobody to agree with. */
static int check_aggregate(const struct plan *p, int s, struct err *err) {
    const struct stage *st = &p->stages[s];
    for (int i = 0; i < st->n_ops && p->aggregate != AGGREGATE_mean; i++) {
        const unsigned axes = plan_data_axes(p, st, i);
        const int n = mesh_group_size(&st->mesh, axes), least = 2 * p->faulty + 1;
        const struct model_op *op = &p->model->ops[st->ops[i]];
        if (n == 1 || !op->n_param)
            continue;
        if (n < least || n > AGGREGATE_MOST)
            return err_input(
                err,
                "mesh: the batch of %s is split over %d, and aggregate %s with "
                "%d faulty takes %d to %d",
                op->name, n, aggregate_name(p->aggregate), p->faulty, least,
                AGGREGATE_MOST);
    }
    return 0;
}

/* All offsets and counts are 64-bit: what one step computes must stay far below that. */
static int check_size(const struct plan *p, struct err *err) {
    const struct model *m = p->model;
    double total = 0;
    for (int i = 0; i < m->n_tensors; i++)
        total += elements(p, &m->tensors[i].shape);
    for (int i = 0; i < m->n_params; i++)
        total += elements(p, &m->params[i].shape);
    if (total > 0x1p54)
        return err_input(err,
                         "batch: the tensors of one step hold %.3g elements, expected at "
                         "most 2^54",
                         total);
    return 0;
}

/* What the schedules can order (schedule.c). */
static int check_schedule(const struct plan *p, int s, struct err *err) {
    int home = p->stages[s % p->n_groups].group;
    bool first = p->chunks[p->first_chunk[p->stages[s].group]] == s;
    enum schedule_stages takes = schedule_traits(p->schedule)->stages;
    if (takes == STAGES_ROUND && (p->n_stages % p->n_groups || p->stages[s].group != home ||
                                  first != (s < p->n_groups)))
        return err_input(err,
                         "group: %s stages go round the groups: expected %d of %d, and as "
                         "many stages on each",
                         schedule_name(p->schedule), home, p->n_groups);
    if (takes == STAGES_ONE && p->n_groups < p->n_stages)
        return err_input(err, "group: %s has one stage on each group",
                         schedule_name(p->schedule));
    return 0;
}

/* Stages by group: counted, then put in their places. */
static void sort_chunks(struct plan *p) {
    int *first = p->first_chunk;
    memset(first, 0, sizeof *first * (size_t)(p->n_groups + 1));
    for (int s = 0; s < p->n_stages; s++)
        first[p->stages[s].group + 1]++;
    for (int g = 0; g < p->n_groups; g++)
        first[g + 1] += first[g];
    for (int s = p->n_stages - 1; s >= 0; s--) /* each end moves down to the beginning */
        p->chunks[--first[p->stages[s].group + 1]] = s;
    memmove(first, first + 1, sizeof *first * (size_t)p->n_groups);
    first[p->n_groups] = p->n_stages;
}

/* Numbers the ranks: groups have them one after the other. */
static int number_ranks(struct plan *p, struct err *err) {
    int64_t rank = 0;
    sort_chunks(p);
    for (int g = 0; g < p->n_groups; g++) {
        const int *chunk = p->chunks + p->first_chunk[g],
                  *end = p->chunks + p->first_chunk[g + 1];
        if (chunk == end)
            return err_input(err, "stages: no stage has group %d, of 0 to %d", g,
                             p->n_groups - 1);
        int first = *chunk, devices = mesh_devices(&p->stages[first].mesh);
        for (; chunk < end; chunk++) {
            int s = *chunk;
            if (mesh_devices(&p->stages[s].mesh) != devices)
                return err_input(err,
                                 "stages[%d].mesh: %d devices, but stages[%d] of the same "
                                 "group has %d",
                                 s, mesh_devices(&p->stages[s].mesh), first, devices);
            p->stages[s].first_rank = (int)rank;
        }
        rank += devices;
        if (rank > 1 << 24)
            return err_input(err, "stages: more than %d devices", 1 << 24);
    }
    p->devices = (int)rank;
    return 0;
}

int plan_check(struct plan *p, struct err *err) {
    if (p->micro_batch < 1 || p->batch < 1 || p->batch % p->micro_batch)
        return err_input(err, "micro_batch: %lld does not divide the batch of %lld samples",
                         (long long)p->micro_batch, (long long)p->batch);
    if (check_size(p, err) < 0)
        return -1;
    if (p->reduce == DTYPE_f16 && p->dtype != DTYPE_f16)
        return err_input(err,
                         "reduce: fp16 is for plans of dtype fp16, which scale the loss");
    if (p->average != AVERAGE_none && p->aggregate != AGGREGATE_mean)
        return err_input(err,
                         "average: replicas that train apart sum no gradients, of which "
                         "aggregate %s could be taken",
                         aggregate_name(p->aggregate));
    if (number_ranks(p, err) < 0)
        return -1;
    for (int s = 0; s < p->n_stages; s++)
        if (check_schedule(p, s, err) < 0 || check_stage(p, s, err) < 0 ||
            check_aggregate(p, s, err) < 0)
            return err_at(err, "stages[%d]", s);
    return p->pins ? pins_check(p->pins, p, err) : 0;
}
