/* Tables: what each op of the file costs under one setting of a stage.
 *
 * The setting is compiled once as a single stage of a small model; every instruction
 * names the op on whose behalf it runs. Of a repeated block, the second one stands for
 * all. */
#include "search/search_impl.h"

#include <stdlib.h>
#include <string.h>

static uint64_t table_key(const struct search *s, const struct search_stage *st,
                          int64_t micro_batch, int first_rank, bool again) {
    uint64_t h = search_mix(search_mix(1, (uint64_t)micro_batch), (uint64_t)st->devices);
    h = search_mix(h, (uint64_t)st->zero);
    h = search_mix(h, (uint64_t)cluster_alias(&s->p.cluster, first_rank, st->devices));
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
    model_destroy(s->small);
}

/* ---- attribution --------------------------------------------------------------------- */

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

/* What is done to many gradients at once, those from `offset` on: each op's share by its
 * bytes. reduce: it stands before the norm. */
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

bool search_lacks(struct search *s) {
    if (!s->cost.n_missing)
        return false;
    if (!s->n_missing)
        s->missing = s->cost.missing[0];
    s->n_missing += s->cost.n_missing;
    cost_forget(&s->cost);
    return true;
}

/* Marks those whose gradients lie in this stretch. */
static void mark_gradients(const struct search *s, const struct model *m, struct table *t,
                           const struct stage_program *sp, int64_t offset, int64_t elems) {
    for (int g = 0; g < sp->n_grads; g++) {
        const struct buffer *b = &sp->buffers[sp->grads[g].buffer];
        struct place_cost *p = place_of(s, m, t, m->params[sp->grads[g].param].first_op);
        if (p && b->offset >= offset && b->offset < offset + 4 * elems)
            p->unknown = true;
    }
}

static void share_times(struct search *s, const struct model *m, struct table *t,
                        const struct plan *plan, const struct stage_program *sp,
                        const int *owners) {
    bool before_norm = true;
    for (int i = 0; i < sp->n_instrs; i++) {
        const struct instr *ins = &sp->instrs[i];
        double us = cost_instr(&s->cost, plan, sp, ins).us;
        bool unknown = search_lacks(s);
        if (ins->code == I_norm) {
            t->norm_us = us;
            before_norm = false;
            continue;
        }
        if (i >= sp->seg[SEG_UPDATE] && ins->code == I_all_reduce &&
            is_gradient(sp, ins->in.all_reduce.x)) {
            const struct buffer *b = &sp->buffers[ins->in.all_reduce.x];
            share_gradients(s, m, t, sp, b->offset, b->elems, us, true);
            if (unknown)
                mark_gradients(s, m, t, sp, b->offset, b->elems);
            continue;
        }
        if (ins->code == I_fill) {
            share_gradients(s, m, t, sp, 0, sp->arena_bytes / 4,
                            us * (double)sp->arena_bytes / (double)sp->bytes[MEM_gradients],
                            false);
            continue;
        }
        struct place_cost *p = place_of(s, m, t, owners[i]);
        if (!p)
            continue;
        p->unknown |= unknown;
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

/* Lifetimes of the temporaries of the update, [2 * buffer] first and last instruction.
 * (Those that the buffers tell are from before reductions were merged.) */
static int *update_lifetimes(const struct stage_program *sp) {
    int *life = mem_array(2 * (size_t)sp->n_buffers + 1, sizeof *life);
    for (int b = 0; b < sp->n_buffers; b++)
        life[2 * b] = -1;
    for (int i = sp->seg[SEG_UPDATE]; i < sp->n_instrs; i++)
        for (int k = 0; k < INSTR_MAX_IN + INSTR_MAX_OUT; k++) {
            const struct instr *ins = &sp->instrs[i];
            int b = k < INSTR_MAX_IN ? ins->in.v[k] : ins->out.v[k - INSTR_MAX_IN];
            if (b < 0 || sp->buffers[b].mem != MEM_temporaries)
                continue;
            life[2 * b] = life[2 * b] < 0 ? i : life[2 * b];
            life[2 * b + 1] = i;
        }
    return life;
}

/* What lives across the norm adds up over the parameters. */
static void share_update_memory(struct search *s, const struct model *m, struct table *t,
                                const struct stage_program *sp, const int *owners) {
    int norm = sp->seg[SEG_UPDATE], *life = update_lifetimes(sp);
    while (norm < sp->n_instrs && sp->instrs[norm].code != I_norm)
        norm++;
    int64_t *local =
        mem_array((size_t)sp->n_instrs + 1, sizeof *local); /* by instruction */
    for (int b = 0; b < sp->n_buffers; b++) {
        int first = life[2 * b], last = life[2 * b + 1];
        struct place_cost *p = first >= 0 ? place_of(s, m, t, owners[first]) : NULL;
        if (first >= 0 && first < norm && last > norm) {
            if (p)
                p->update_kept_bytes += aligned(sp->buffers[b].elems);
            continue;
        }
        for (int i = first; i >= 0 && i <= last; i++)
            local[i] += aligned(sp->buffers[b].elems);
    }
    for (int i = sp->seg[SEG_UPDATE]; i < sp->n_instrs; i++) {
        struct place_cost *p = place_of(s, m, t, owners[i]);
        if (p && local[i] > p->update_temp_bytes)
            p->update_temp_bytes = local[i];
    }
    free(local);
    free(life);
}

/* Which ops read a kept value in the backward pass: all behind the one that made it? */
static void find_readers(struct search *s, const struct model *m, struct table *t,
                         const struct stage_program *sp, const int *owners) {
    struct reader {
        int first, last;
    } *readers = mem_array((size_t)sp->n_buffers + 1, sizeof *readers);
    for (int b = 0; b < sp->n_buffers; b++)
        readers[b] = (struct reader){m->n_ops, -1};
    for (int i = sp->seg[SEG_BACKWARD]; i < sp->seg[SEG_UPDATE]; i++)
        for (int k = 0; k < INSTR_MAX_IN; k++) {
            int b = sp->instrs[i].in.v[k];
            if (b < 0)
                continue;
            readers[b].first = owners[i] < readers[b].first ? owners[i] : readers[b].first;
            readers[b].last = owners[i] > readers[b].last ? owners[i] : readers[b].last;
        }
    for (int b = 0; b < sp->n_buffers; b++) {
        const struct buffer *buf = &sp->buffers[b];
        int owner = buf->first >= 0 && buf->first < sp->n_instrs ? owners[buf->first] : -1;
        struct place_cost *p = owner >= 0 ? place_of(s, m, t, owner) : NULL;
        if (!p || buf->mem != MEM_activations || readers[b].last < 0 ||
            readers[b].first <= owner)
            continue;
        p->passed_bytes += aligned(buf->elems);
        p->first_reader = readers[b].first - owner;
        p->last_reader = readers[b].last - owner;
    }
    free(readers);
}

static void share_memory(struct search *s, const struct model *m, struct table *t,
                         const struct stage_program *sp, const int *owners) {
    int64_t temp_base =
        sp->arena_bytes - sp->bytes[MEM_temporaries] - sp->bytes[MEM_buffers];
    for (int b = 0; b < sp->n_buffers; b++) {
        const struct buffer *buf = &sp->buffers[b];
        if (buf->first < 0 || buf->first >= sp->seg[SEG_UPDATE])
            continue;
        struct place_cost *p = place_of(s, m, t, owners[buf->first]);
        if (buf->mem == MEM_activations && p)
            p->slot_bytes += aligned(buf->elems);
        if (buf->mem != MEM_temporaries)
            continue;
        for (int i = buf->first; i <= buf->last; i++) {
            struct place_cost *q = place_of(s, m, t, owners[i]);
            int64_t top = buf->offset + aligned(buf->elems) - temp_base;
            if (q && top > q->temp_bytes)
                q->temp_bytes = top;
        }
    }
    share_update_memory(s, m, t, sp, owners);
    find_readers(s, m, t, sp, owners);
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

static void price_take(struct search *s, const struct plan *plan, int64_t elems,
                       double us[2]) {
    us[0] = cost_p2p_us(&s->cost, plan->devices, false, 4 * elems);
    if (cluster_nodes(&s->p.cluster) > 1)
        us[1] = cost_p2p_us(&s->cost, plan->devices, true, 4 * elems);
}

/* A tied parameter away from home is held once more, with its gradient: that goes home,
 * and the new value comes back. */
static void price_ties(struct search *s, const struct model *m, struct table *t,
                       const struct plan *plan) {
    const struct stage *st = &plan->stages[0];
    for (int i = 0; i < m->n_ops; i++) {
        const struct model_op *op = &m->ops[i];
        for (int k = 0; k < op->n_param; k++) {
            if (op->param[k] < 0)
                continue;
            const struct shape *shape = &m->params[op->param[k]].shape;
            int home = m->params[op->param[k]].first_op;
            if (home == i)
                continue;
            struct extents sizes = model_extents(m, shape, plan->micro_batch);
            struct placement p =
                placement_operand(&st->mesh, &st->layouts[i], &op->param_map[k]);
            int64_t n = placement_elements(&st->mesh, &sizes, p);
            t->place[op->place].tied_bytes = 2 * aligned(n);
            price_take(s, plan, n, t->place[op->place].tied_us);
            const struct model_op *first = &m->ops[home];
            for (int j = 0; j < first->n_param; j++)
                if (first->param[j] == op->param[k])
                    p = placement_operand(&st->mesh, &st->layouts[home],
                                          &first->param_map[j]);
            if (st->zero)
                p = placement_scatter(&st->mesh, &sizes, p);
            t->place[op->place].unknown_take |= search_lacks(s);
            price_take(s, plan, placement_elements(&st->mesh, &sizes, p),
                       t->place[m->ops[home].place].tied_us);
            t->place[m->ops[home].place].unknown_take |= search_lacks(s);
        }
    }
}

/* Receiving and packing each op's result at a stage's edge. */
static void price_boundaries(struct search *s, const struct model *m, struct table *t,
                             const struct plan *plan) {
    const struct stage *st = &plan->stages[0];
    for (int i = 0; i + 1 < m->n_ops; i++) {
        struct place_cost *p = place_of(s, m, t, i);
        if (!p)
            continue;
        const struct shape *shape = &m->tensors[m->ops[i].out[0]].shape;
        struct extents sizes = model_extents(m, shape, plan->micro_batch);
        struct placement place =
            placement_result(&st->mesh, &st->layouts[i], &m->ops[i].out_map[0]);
        place = placement_resolve(&st->mesh, &sizes, place);
        int64_t n = placement_elements(&st->mesh, &sizes, place);
        price_take(s, plan, n, p->take_us);
        p->pack_us = cost_copy_us(&s->cost, n, n);
        p->result_bytes = aligned(n);
        p->unknown_take |= search_lacks(s);
    }
}

/* ---- making a table ------------------------------------------------------------------ */

/* The setting as a plan of one stage for the small model. */
static struct plan *table_plan(struct search *s, struct model *m,
                               const struct search_stage *st, int64_t micro_batch,
                               int first_rank, bool again) {
    int bounds[2] = {0, m->n_ops};
    struct plan *plan = plan_create(m, 1, bounds);
    plan->batch = plan->micro_batch = micro_batch;
    plan->optimizer = s->p.optimizer;
    struct stage *out = &plan->stages[0];
    search_mesh(st->devices, &out->mesh);
    out->zero = st->zero;
    for (int i = 0; i < m->n_ops; i++) {
        out->layouts[i] = st->layout[m->ops[i].place];
        out->recompute[i] =
            again && m->ops[i].block >= 0 && (st->recompute >> m->ops[i].place & 1);
    }
    /* Layouts of ops that are not in the stage may not fit its devices: they do no work
     * here. */
    for (int i = 0; i < m->n_ops; i++)
        if (layout_check(m, &m->ops[i], &out->mesh, &out->layouts[i], micro_batch, NULL) <
            0)
            memset(&out->layouts[i], PLACE_NONE, sizeof out->layouts[i]);
    plan->devices = mesh_devices(&out->mesh);
    out->first_rank = (int)cluster_alias(&s->p.cluster, first_rank, plan->devices);
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
