/* Tables: what each op of the file costs under one setting of a stage.
 *
 * The setting is compiled once as a single stage of a small model; every instruction names the op
 * on whose behalf it runs. Of a repeated block, the second one stands for all. */
#include "search/search_impl.h"

#include <stdlib.h>
#include <string.h>

static uint64_t table_key(const struct search *s, const struct search_stage *st,
                          int64_t micro_batch, int first_rank, bool again) {
    uint64_t h = search_mix((uint64_t)micro_batch << 1 | (uint64_t)st->zero, (uint64_t)st->devices);
    int64_t per_node = s->p.cluster.devices_per_node;
    /* Where the devices lie matters as far as groups may cross nodes. */
    int64_t at = first_rank % per_node;
    h = search_mix(h, at + st->devices <= per_node ? 0 : (uint64_t)at + 1);
    h = search_mix(h, again ? st->recompute : 0);
    h = search_layout_hash(st, h);
    return h ? h : 1;
}

static struct table **find_slot(const struct search *s, uint64_t key) {
    uint64_t mask = (uint64_t)s->cap_tables - 1, i = key & mask;
    while (s->tables[i] && s->tables[i]->key != key)
        i = (i + 1) & mask;
    return &s->tables[i];
}

static void insert(struct search *s, struct table *t) {
    if (2 * s->n_tables >= s->cap_tables) {
        struct table **old = s->tables;
        int64_t n = s->cap_tables;
        s->cap_tables = n ? 2 * n : 1024;
        s->tables = mem_array((size_t)s->cap_tables, sizeof *s->tables);
        for (int64_t i = 0; i < n; i++)
            if (old[i])
                *find_slot(s, old[i]->key) = old[i];
        free(old);
    }
    *find_slot(s, t->key) = t;
    s->n_tables++;
}

void search_forget(struct search *s) {
    for (int64_t i = 0; i < s->cap_tables; i++)
        free(s->tables[i]);
    free(s->tables);
    free(s->crossings);
    free(s->home_place);
    model_destroy(s->small);
}

/* ---- attribution ---------------------------------------------------------------------------- */

/* Adds to the op's place; ops of blocks other than the chosen one are left out. */
static struct place_cost *place_of(const struct search *s, const struct model *m,
                                   struct table *t, int op) {
    const struct model_op *o = &m->ops[op];
    if (o->block >= 0 && o->block != s->small_block)
        return NULL;
    return &t->place[o->place];
}

/* The op on whose behalf each instruction of a stage runs. */
static int *find_owners(const struct model *m, const struct stage_program *sp) {
    int *owners = mem_array((size_t)sp->n_instrs, sizeof *owners);
    for (int i = 0; i < sp->n_instrs; i++) {
        const struct instr *ins = &sp->instrs[i];
        owners[i] = ins->op >= 0      ? ins->op
                    : ins->param >= 0 ? m->params[ins->param].first_op
                                      : m->n_ops - 1;
    }
    return owners;
}

static bool is_gradient(const struct stage_program *sp, int buffer) {
    return buffer >= 0 && sp->buffers[buffer].mem == MEM_gradients;
}

/* What is done to many gradients at once, those from `offset` on: each op's share by its bytes.
 * reduce: it stands before the norm. */
static void share_gradients(const struct search *s, const struct model *m, struct table *t,
                            const struct stage_program *sp, int64_t offset, int64_t elems,
                            double us, bool reduce) {
    for (int g = 0; g < sp->n_grads; g++) {
        const struct buffer *b = &sp->buffers[sp->grads[g].buffer];
        struct place_cost *p = place_of(s, m, t, m->params[sp->grads[g].param].first_op);
        if (!p || b->offset < offset || b->offset >= offset + 4 * elems)
            continue;
        *(reduce ? &p->reduce_us : &p->update_us) += us * (double)b->elems / (double)elems;
    }
}

static void share_times(struct search *s, const struct model *m, struct table *t,
                        const struct plan *plan, const struct stage_program *sp,
                        const int *owners) {
    bool before_norm = true;
    for (int i = 0; i < sp->n_instrs; i++) {
        const struct instr *ins = &sp->instrs[i];
        double us = cost_instr_us(&s->cost, plan, sp, ins);
        if (ins->code == I_norm) {
            t->norm_us = us;
            before_norm = false;
            continue;
        }
        if (i >= sp->seg[SEG_UPDATE] && ins->code == I_all_reduce && is_gradient(sp, ins->in[0])) {
            const struct buffer *b = &sp->buffers[ins->in[0]];
            share_gradients(s, m, t, sp, b->offset, b->elems, us, true);
            continue;
        }
        if (ins->code == I_fill) {
            share_gradients(s, m, t, sp, 0, sp->arena_bytes / 4,
                            us * (double)sp->arena_bytes / (double)sp->bytes[MEM_gradients], false);
            continue;
        }
        struct place_cost *p = place_of(s, m, t, owners[i]);
        if (!p)
            continue;
        if (i < sp->seg[SEG_BACKWARD])
            p->forward_us += us;
        else if (i < sp->seg[SEG_UPDATE])
            p->backward_us += us;
        else if (before_norm)
            p->reduce_us += us;
        else
            p->update_us += us;
    }
}

static int64_t aligned(int64_t elems) {
    return (4 * elems + 63) / 64 * 64;
}

static void share_memory(struct search *s, const struct model *m, struct table *t,
                         const struct stage_program *sp, const int *owners) {
    int64_t temp_base = sp->arena_bytes - sp->bytes[MEM_temporaries] - sp->bytes[MEM_buffers];
    for (int b = 0; b < sp->n_buffers; b++) {
        const struct buffer *buf = &sp->buffers[b];
        if (buf->first < 0 || buf->first >= sp->n_instrs)
            continue;
        struct place_cost *p = place_of(s, m, t, owners[buf->first]);
        if (buf->mem == MEM_activations && p)
            p->slot_bytes += aligned(buf->elems);
        if (buf->mem != MEM_temporaries)
            continue;
        bool update = buf->first >= sp->seg[SEG_UPDATE];
        if (update && p)
            p->update_temp_bytes += aligned(buf->elems);
        for (int i = buf->first; i <= buf->last && !update; i++) {
            struct place_cost *q = place_of(s, m, t, owners[i]);
            int64_t top = buf->offset + aligned(buf->elems) - temp_base;
            if (q && top > q->temp_bytes)
                q->temp_bytes = top;
        }
    }
    for (int i = 0; i < sp->n_params; i++) {
        int64_t bytes = aligned(sp->buffers[sp->params[i].buffer].elems);
        struct place_cost *p = place_of(s, m, t, m->params[sp->params[i].param].first_op);
        if (p)
            p->fixed_bytes += bytes;
    }
    for (int i = 0; i < sp->n_grads; i++) {
        struct place_cost *p = place_of(s, m, t, m->params[sp->grads[i].param].first_op);
        if (p)
            p->fixed_bytes += aligned(sp->buffers[sp->grads[i].buffer].elems);
    }
    for (int i = 0; i < sp->n_states; i++) {
        struct place_cost *p = place_of(s, m, t, m->params[sp->states[i].param].first_op);
        if (p)
            p->fixed_bytes += aligned(sp->buffers[sp->states[i].buffer].elems);
    }
}

/* A tied parameter away from home is held once more, with its gradient. */
static void price_ties(struct search *s, const struct model *m, struct table *t,
                       const struct plan *plan) {
    const struct stage *st = &plan->stages[0];
    struct dim_sizes sizes = dim_sizes_of(m, plan->micro_batch);
    for (int i = 0; i < m->n_ops; i++) {
        const struct model_op *op = &m->ops[i];
        for (int k = 0; k < op->n_param; k++) {
            const struct shape *shape = &m->params[op->param[k]].shape;
            if (m->params[op->param[k]].first_op == i)
                continue;
            struct placement p = placement_operand(&st->mesh, &st->layouts[i], shape_dims(shape));
            t->place[op->place].tied_bytes =
                3 * aligned(placement_elements(&st->mesh, shape, &sizes, p));
        }
    }
    (void)s;
}

/* Receiving and packing each op's result at a stage's edge. */
static void price_boundaries(struct search *s, const struct model *m, struct table *t,
                             const struct plan *plan) {
    const struct stage *st = &plan->stages[0];
    struct dim_sizes sizes = dim_sizes_of(m, plan->micro_batch);
    for (int i = 0; i + 1 < m->n_ops; i++) {
        struct place_cost *p = place_of(s, m, t, i);
        if (!p)
            continue;
        const struct shape *shape = &m->tensors[m->ops[i].out].shape;
        struct placement place = placement_result(&st->mesh, &st->layouts[i], shape_dims(shape));
        place = placement_resolve(&st->mesh, shape, &sizes, place);
        int64_t n = placement_elements(&st->mesh, shape, &sizes, place);
        p->take_us[0] = cost_p2p_us(&s->cost, plan->devices, false, 4 * n);
        if (s->p.cluster.nodes > 1)
            p->take_us[1] = cost_p2p_us(&s->cost, plan->devices, true, 4 * n);
        p->pack_us = cost_copy_us(&s->cost, n, n);
    }
}

/* ---- making a table ------------------------------------------------------------------------------ */

/* The setting as a plan of one stage for the small model. */
static struct plan *table_plan(struct search *s, struct model *m, const struct search_stage *st,
                               int64_t micro_batch, int first_rank, bool again) {
    int bounds[2] = {0, m->n_ops};
    struct plan *plan = plan_create(m, 1, bounds);
    plan->batch = plan->micro_batch = micro_batch;
    plan->optimizer = s->p.optimizer;
    struct stage *out = &plan->stages[0];
    search_mesh(st->devices, &out->mesh);
    out->zero = st->zero;
    for (int i = 0; i < m->n_ops; i++) {
        out->layouts[i] = st->layout[m->ops[i].place];
        out->recompute[i] = again && m->ops[i].block >= 0 &&
                            (st->recompute >> m->ops[i].place & 1);
    }
    /* Layouts of ops that are not in the stage may not fit its devices: they do no work here. */
    struct dim_sizes sizes = dim_sizes_of(m, micro_batch);
    for (int i = 0; i < m->n_ops; i++)
        if (layout_check(m, &m->ops[i], &out->mesh, &out->layouts[i], &sizes, NULL) < 0)
            memset(&out->layouts[i], PLACE_NONE, sizeof out->layouts[i]);
    plan->devices = mesh_devices(&out->mesh);
    out->first_rank = first_rank % (int)s->p.cluster.devices_per_node;
    return plan;
}

static void fill_table(struct search *s, const struct search_stage *st, int64_t micro_batch,
                       int first_rank, bool again, struct table *t) {
    struct model *m = s->small ? s->small : s->p.model;
    struct plan *plan = table_plan(s, m, st, micro_batch, first_rank, again);
    struct stage_program sp;
    cost_forget(&s->cost);
    stage_compile(plan, 0, &sp, NULL);
    int *owners = find_owners(m, &sp);
    share_times(s, m, t, plan, &sp, owners);
    t->unknown = s->cost.n_missing > 0;
    share_memory(s, m, t, &sp, owners);
    price_ties(s, m, t, plan);
    price_boundaries(s, m, t, plan);
    free(owners);
    stage_program_release(&sp);
    plan_destroy(plan);
    s->compiled++;
}

const struct table *search_table(struct search *s, const struct search_stage *st,
                                 int64_t micro_batch, int first_rank, bool again) {
    uint64_t key = table_key(s, st, micro_batch, first_rank, again);
    struct table *t = s->cap_tables ? *find_slot(s, key) : NULL;
    if (t)
        return t;
    t = mem_alloc(sizeof *t);
    t->key = key;
    fill_table(s, st, micro_batch, first_rank, again, t);
    insert(s, t);
    return t;
}
