/* plan-draw.h - plans drawn from the whole space: groups and stages on them, meshes, a layout for every
 * op, what goes round in a ring, recompute, ZeRO, offloads, micro-batches, schedule, types.
 *
 *     struct rng r = {seed, 0};
 *     struct plan *p = draw_plan(&r, m, OPTIMIZER_sgd, 4);
 *     draw_types(seed, k, 4, p);
 */
#ifndef WEFT_TEST_PLAN_DRAW_H
#define WEFT_TEST_PLAN_DRAW_H

#include "../unit/plan-move.h"

#include "common/rng.h"
#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

enum { DRAWN_BATCH = 24 };

static void random_mesh(struct rng *r, int devices, struct mesh *mesh) {
    *mesh = (struct mesh){0};
    while (devices > 1) {
        int f = 2;
        while (devices % f)
            f++;
        devices /= f;
        int a = mesh->n_axes ? (int)rng_below(r, mesh->n_axes + 1) : 0;
        if (a < mesh->n_axes) {
            mesh->size[a] *= f;
        } else {
            snprintf(mesh->name[a], sizeof mesh->name[a], "a%d", a);
            mesh->size[a] = f;
            mesh->n_axes++;
        }
    }
}

/* Dims by preference, as a person gives them for an axis of a stage. */
struct rules {
    int n[MESH_MAX_AXES], dim[MESH_MAX_AXES][4];
};

static struct rules random_rules(struct rng *r, const struct model *m) {
    struct rules rules = {0};
    for (int a = 0; a < MESH_MAX_AXES; a++) {
        rules.n[a] = 1 + (int)rng_below(r, 4);
        for (int i = 0; i < rules.n[a]; i++) {
            const struct op_space *x;
            do
                x = &m->ops[rng_below(r, m->n_ops)].space;
            while (!x->n);
            rules.dim[a][i] = x->dim[rng_below(r, x->n)];
        }
    }
    return rules;
}

/* Every axis takes the first of its dims on which the op can be split. */
static void ruled_layout(const struct rules *rules, const struct model *m,
                         const struct model_op *op, const struct mesh *mesh, int64_t batch,
                         struct layout *l) {
    memset(l, PLACE_NONE, sizeof *l);
    for (int a = 0; a < mesh->n_axes; a++)
        for (int i = 0; i < rules->n[a] && l->dim[a] == PLACE_NONE; i++) {
            l->dim[a] = (int8_t)op_space_find(&op->space, rules->dim[a][i]);
            if (layout_check(m, op, mesh, l, batch, NULL) < 0)
                l->dim[a] = PLACE_NONE;
        }
}

/* Every axis takes a random dim that it divides, or none; something may go round. */
static void random_layout(struct rng *r, const struct model *m, const struct model_op *op,
                          const struct mesh *mesh, int64_t batch, struct layout *l) {
    memset(l, PLACE_NONE, sizeof *l);
    if (layout_ring(&op->space) != PLACE_NONE && rng_below(r, 2))
        l->ring = (int8_t)layout_ring(&op->space);
    for (int a = 0; a < mesh->n_axes; a++) {
        for (int tries = 0; tries < 4; tries++) {
            int k = (int)rng_below(r, op->space.n + 1);
            l->dim[a] = (int8_t)(k == op->space.n ? PLACE_NONE : k);
            if (layout_check(m, op, mesh, l, batch, NULL) == 0)
                break;
            l->dim[a] = PLACE_NONE;
        }
    }
}

/* Cuts n into k positive parts; bounds[0] = 0 .. bounds[k] = n. */
static void random_cuts(struct rng *r, int n, int k, int *bounds) {
    bounds[0] = 0;
    for (int i = 1; i <= k; i++) {
        int most = n - (k - i) - bounds[i - 1];
        bounds[i] = i == k ? n : bounds[i - 1] + 1 + (int)rng_below(r, most < 1 ? 1 : most);
        if (bounds[i] > n - (k - i))
            bounds[i] = n - (k - i);
    }
}

/* Do micro-batches of so many samples hold whole groups of every op? */
static bool holds_groups(const struct model *m, int64_t micro_batch) {
    bool good = true;
    for (int i = 0; i < m->n_ops; i++)
        good &= m->ops[i].attr[ATTR_group] == 0 ||
                micro_batch % (int64_t)m->ops[i].attr[ATTR_group] == 0;
    return good;
}

static struct plan *draw_plan(struct rng *r, struct model *m, enum optimizer optimizer,
                              int devices) {
    static const int64_t micro[] = {24, 12, 8, 6, 4, 2};
    int most = devices < 4 || rng_below(r, 4) == 0 ? devices : 4;
    int groups = 1 + (int)rng_below(r, most), bounds[64], shares[16];
    enum schedule schedule = (enum schedule)rng_below(r, SCHEDULE_COUNT);
    bool chunks = schedule_traits(schedule)->stages != STAGES_ONE;
    int stages = groups * (chunks ? 1 + (int)rng_below(r, 4) : 1);
    if (stages > m->n_ops)
        stages = groups;
    random_cuts(r, m->n_ops, stages, bounds);
    random_cuts(r, devices, groups, shares);
    struct plan *p = plan_create(m, stages, bounds);
    if (rng_below(r, 3) == 0)
        move_ops(r, p);
    p->n_groups = groups;
    p->batch = DRAWN_BATCH;
    do
        p->micro_batch = micro[rng_below(r, 6)];
    while (!holds_groups(m, p->micro_batch));
    p->schedule = schedule;
    p->optimizer = optimizer;
    p->overlap = rng_below(r, 2);
    /* Recomputed is what a word says, or some ops more or less often. */
    int64_t word = rng_below(r, RECOMPUTE_COUNT + 2), often = 1 + rng_below(r, 4);
    for (int s = 0; s < stages; s++) {
        struct stage *st = &p->stages[s];
        bool round = schedule_traits(schedule)->stages != STAGES_ANY || s < groups;
        st->group = round ? s % groups : (int)rng_below(r, groups);
        random_mesh(r, shares[st->group + 1] - shares[st->group], &st->mesh);
        int offload = rng_below(r, 3) ? 0 : (int)rng_below(r, OFFLOAD_SETS);
        int zero = (int)rng_below(r, 1 + ZERO_PARAMETERS), mixed = rng_below(r, 3) == 0;
        st->regather = rng_below(r, 3) == 0;
        struct rules rules = random_rules(r, m);
        bool ruled = rng_below(r, 3) == 0;
        for (int i = 0; i < st->n_ops; i++) {
            const struct model_op *op = &m->ops[st->ops[i]];
            if (ruled)
                ruled_layout(&rules, m, op, &st->mesh, p->micro_batch, &st->layouts[i]);
            else
                random_layout(r, m, op, &st->mesh, p->micro_batch, &st->layouts[i]);
            st->recompute[i] = word < RECOMPUTE_COUNT
                                   ? plan_recomputes(m, (enum recompute)word, st->ops[i])
                                   : !op_is(op, KIND_LOSSES) && rng_below(r, 4) < often;
            st->zero[i] = (int8_t)(mixed && rng_below(r, 3) == 0
                                       ? (int)rng_below(r, 1 + ZERO_PARAMETERS)
                                       : zero);
            if (offload)
                st->offload[i] =
                    (int8_t)(rng_below(r, 4) ? offload : (int)rng_below(r, OFFLOAD_SETS));
        }
    }
    return p;
}

/* Every other plan is of 16 bits, half of these sum gradients so. */
static void draw_types(uint64_t seed, int64_t k, int n, struct plan *p) {
    static const enum dtype types[] = {DTYPE_f32, DTYPE_bf16, DTYPE_f32, DTYPE_f16};
    uint64_t bits = rng_bits(seed, 1 << 20, (uint64_t)k);
    p->dtype = types[bits % 4];
    p->reduce = bits >> 8 & 1 ? p->dtype : DTYPE_f32;
    /* of no faulty replicas, the trimmed mean is the mean */
    p->aggregate = bits >> 16 & 1 ? AGGREGATE_trimmed : AGGREGATE_mean;
    p->logits = 1 + (int64_t)(bits >> 32 & 3);
    /* Steps of SGD are linear: replicas that train apart and average after each of them do as those
     * that sum gradients. Two that meet are all. */
    if (p->optimizer != OPTIMIZER_sgd || (bits >> 24 & 3) == 0)
        return;
    p->aggregate = AGGREGATE_mean;
    p->average = n == 2 ? AVERAGE_pairs : AVERAGE_all;
    p->average_every = 1;
}

#endif
