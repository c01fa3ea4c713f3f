#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

static const char *const schedule_names[] = {"gpipe", "1f1b"};
static const char *const optimizer_names[] = {"adamw", "sgd"};

static int find_name(const char *const *names, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (!strcmp(names[i], name))
            return i;
    return -1;
}

const char *schedule_name(enum schedule s) {
    return schedule_names[s];
}

int schedule_find(const char *name) {
    return find_name(schedule_names, SCHEDULE_COUNT, name);
}

const char *optimizer_name(enum optimizer o) {
    return optimizer_names[o];
}

int optimizer_find(const char *name) {
    return find_name(optimizer_names, OPTIMIZER_COUNT, name);
}

int optimizer_states(enum optimizer o) {
    return o == OPTIMIZER_adamw ? 2 : 1;
}

int64_t plan_micro_batches(const struct plan *p) {
    return p->batch / p->micro_batch;
}

/* Stages of consecutive ops, as the search makes them; nothing is split. */
struct plan *plan_create(struct model *m, int n_stages, const int *bounds) {
    struct arena arena = {0};
    struct plan *p = arena_alloc(&arena, sizeof *p);
    p->arena = arena;
    p->model = m;
    p->n_stages = n_stages;
    p->stages = arena_array(&p->arena, (size_t)n_stages, sizeof *p->stages);
    p->stage_of = arena_array(&p->arena, (size_t)m->n_ops, sizeof *p->stage_of);
    for (int s = 0; s < n_stages; s++) {
        struct stage *st = &p->stages[s];
        st->n_ops = bounds[s + 1] - bounds[s];
        st->ops = arena_array(&p->arena, (size_t)st->n_ops, sizeof *st->ops);
        st->layouts = arena_array(&p->arena, (size_t)st->n_ops, sizeof *st->layouts);
        st->recompute = arena_array(&p->arena, (size_t)st->n_ops, sizeof *st->recompute);
        memset(st->layouts, PLACE_NONE, sizeof *st->layouts * (size_t)st->n_ops);
        for (int i = 0; i < st->n_ops; i++) {
            st->ops[i] = bounds[s] + i;
            p->stage_of[bounds[s] + i] = s;
        }
    }
    return p;
}

void plan_destroy(struct plan *p) {
    if (!p)
        return;
    json_decref(p->provenance);
    if (p->owns_model)
        model_destroy(p->model);
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

/* Also numbers the ranks: stages have them one after the other. */
int plan_check(struct plan *p, struct err *err) {
    if (p->micro_batch < 1 || p->batch < 1 || p->batch % p->micro_batch)
        return err_input(err, "micro_batch: %lld does not divide the batch of %lld samples",
                         (long long)p->micro_batch, (long long)p->batch);
    if (check_size(p, err) < 0)
        return -1;
    int64_t rank = 0;
    for (int s = 0; s < p->n_stages; s++) {
        p->stages[s].first_rank = (int)rank;
        rank += mesh_devices(&p->stages[s].mesh);
        if (rank > 1 << 24)
            return err_input(err, "stages: more than %d devices", 1 << 24);
        if (check_stage(p, s, err) < 0)
            return err_at(err, "stages[%d]", s);
    }
    p->devices = (int)rank;
    return 0;
}
