/* Lower bounds: what an op does wherever it stands, and what it keeps. */
#include "search/bound/op_bounds_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- one op alone ------------------------------------------------------------------------ */

/* Returns whether the instruction is one of the op itself, and not one that converts a
 * placement or adds up gradients of several readers. */
static bool is_its_own(const struct model_op *o, const struct instr *ins) {
    enum key_kind key = opcode_key(ins->code);
    return (key == KEY_SHAPE || key == KEY_CURVE) && ins->code != I_copy &&
           (ins->code != I_add || o->kind == OP_add);
}

int op_bound_operand(const struct model_op *o, int tensor) {
    for (int k = 0; k < o->n_in; k++)
        if (o->in[k] == tensor)
            return k;
    return -1;
}

static bool is_kept(const struct stage_program *sp, int buffer) {
    return buffer >= 0 && sp->buffers[buffer].mem == MEM_activations;
}

/* Reads the time and kept bytes of an op off the program of a stage that has only this
 * op. */
static void read_program(struct op_bounds *f, const struct stage_program *sp, int op,
                         int devices, struct trait *t, struct local *out) {
    const struct model_op *o = &f->ev->space->blocks.x.model->ops[op];
    *out = (struct local){0};
    for (int p = 0; p < POOL_COUNT; p++)
        out->own += (double)sp->slots[p].bytes;
    for (int i = 0; i < sp->seg[SEG_REDUCE]; i++) {
        const struct instr *ins = &sp->instrs[i];
        bool forward = i < sp->seg[SEG_BACKWARD];
        if (is_its_own(o, ins))
            *(forward ? &out->forward_us : &out->backward_us) +=
                op_bound_own_us(f, sp, ins, devices, &out->missing);
        bool taken = ins->code == I_recv || ins->code == I_input;
        int k = forward && taken ? op_bound_operand(o, ins->tensor) : -1;
        if (k >= 0 && is_kept(sp, ins->out.v[0])) {
            out->own -= (double)buffer_bytes(&sp->buffers[ins->out.v[0]]);
            t->keeps |= 1u << k;
        }
        t->keeps_own |= forward && ins->code == I_send && is_kept(sp, ins->in.send.x);
        int given = !forward && ins->code == I_send ? op_bound_operand(o, ins->tensor) : -1;
        t->gives |= given >= 0 ? 1u << given : 0;
    }
}

/* Hashes the local sizes, and how far dims that are not parallel are split. */
static uint64_t local_hash(const struct op_bounds *f, int op, const struct mesh *mesh,
                           const struct layout *l, int64_t micro_batch) {
    const struct blocks *g = &f->ev->space->blocks;
    const struct op_space *space = &g->x.model->ops[op].space;
    uint64_t h = memo_mix(1, g->xs.alike[op]);
    for (int k = 0; k < space->n; k++) {
        int64_t n = model_dim_size(g->x.model, space->dim[k], micro_batch);
        int64_t size = layout_size(mesh, l, k, n);
        bool split = space->role[k] != ROLE_parallel && size < n;
        h = memo_mix(h, (uint64_t)size << 1 | split);
        /* The sizes of axes decide how far they split a dim that has one element for
         * several of this one (model/kind.h). */
        for (int a = 0; a < mesh->n_axes && size < n && g->x.model->ops[op].n_in > 1; a++)
            h = l->dim[a] == k ? memo_mix(h, (uint64_t)mesh->size[a]) : h;
    }
    return h;
}

/* Compiles the op alone, unless an op with the same local sizes was compiled before. */
const struct local *op_bound_local(struct op_bounds *f, int op, const struct mesh *mesh,
                                   const struct layout *l, int64_t micro_batch,
                                   int devices) {
    struct graph *g = &f->ev->graph;
    uint64_t key = local_hash(f, op, mesh, l, micro_batch);
    void **slot = memo_slot(&f->locals, key);
    if (!*slot) {
        struct local *out = mem_alloc(sizeof *out);
        struct setting st = {.devices = devices,
                             .micro_batch = micro_batch,
                             .mesh = mesh,
                             .regather = space_may_regather(f->ev->space)};
        struct stage_program sp;
        f->at[g->b->x.node_of[op]] = *l;
        graph_compile(g, &st, op, f->at, &sp);
        read_program(f, &sp, op, devices, &f->traits[op], out);
        *slot = out;
    }
    return *slot;
}

/* ---- traits ------------------------------------------------------------------------------ */

/* What the op keeps and gives is read off its program on one device, its readers off
 * the whole model. */
void op_bound_find_traits(struct op_bounds *f, int op) {
    struct graph *g = &f->ev->graph;
    const struct model_op *o = &g->b->x.model->ops[op];
    struct trait *t = &f->traits[op];
    struct setting st = {.devices = 1,
                         .micro_batch = f->ev->space->p.micro[f->ev->space->p.n_micro - 1]};
    struct stage_program sp;
    struct local unused;
    memset(&f->at[g->b->x.node_of[op]], PLACE_NONE, sizeof *f->at);
    graph_compile(g, &st, op, f->at, &sp);
    read_program(f, &sp, op, 1, t, &unused);
    for (int k = 0; k < o->n_in; k++) {
        const struct model_op *whole = &g->b->whole->ops[g->b->x.from[op]];
        int producer = g->b->whole->tensors[whole->in[k]].producer;
        t->readers[k] = 0;
        if (producer < 0)
            continue;
        for (int e = g->b->s.edges_of[producer]; e < g->b->s.edges_of[producer + 1]; e++)
            if (g->b->s.edges[e].tensor == whole->in[k]) {
                t->readers[k] = g->b->s.edges[e].n;
                t->later |= (unsigned)(g->b->s.edges[e].readers[0] < g->b->x.from[op]) << k;
            }
        double times = 0;
        for (int j = 0; j < o->n_in; j++)
            times += o->in[j] == o->in[k];
        t->readers[k] *= times;
    }
    for (int e = g->b->xs.edges_of[op]; e < g->b->xs.edges_of[op + 1]; e++)
        for (int k = 0; k < o->n_out; k++)
            t->read[k] |= g->b->xs.edges[e].tensor == o->out[k] && g->b->xs.edges[e].n > 0;
}

/* Returns the tensor whose bytes this one shares. */
static int root_of(const struct model *m, int tensor) {
    for (;;) {
        int op = m->tensors[tensor].producer;
        if (op < 0 || !op_is(&m->ops[op], KIND_FREE))
            return tensor;
        tensor = m->ops[op].in[0];
    }
}

static bool may_be_made_repeated(const struct space *sp, int op) {
    int node = sp->blocks.x.node_of[op];
    return sp->recompute[0][node] || sp->recompute[1][node] || sp->recompute[2][node];
}

/* Of a tensor's maker and readers, charges the first one that keeps it. */
void op_bound_share_kept(struct op_bounds *f) {
    const struct model *m = f->ev->space->blocks.x.model;
    bool *counted = mem_array((size_t)m->n_tensors, sizeof *counted);
    int *items = mem_array((size_t)m->n_ops, sizeof *items);
    for (int i = 0; i < m->n_ops; i++) {
        const struct model_op *o = &m->ops[i];
        struct trait *t = &f->traits[i];
        for (int k = 0; k < OP_BOUND_ITEMS; k++)
            t->maker[k] = -1;
        for (int k = 0; k < o->n_in; k++) {
            int root = root_of(m, o->in[k]), maker = m->tensors[root].producer;
            if (!(t->keeps >> k & 1) || counted[root])
                continue;
            counted[root] = true;
            t->counts |= 1u << k;
            t->maker[k] =
                maker >= 0 && may_be_made_repeated(f->ev->space, maker) ? maker : -1;
        }
        for (int k = 0; k < o->n_out && t->keeps_own; k++)
            counted[root_of(m, o->out[k])] = true;
        t->maker[OP_BOUND_OWN] = may_be_made_repeated(f->ev->space, i) ? i : -1;
        for (int k = 0; k < OP_BOUND_ITEMS; k++)
            if (t->maker[k] >= 0)
                items[t->maker[k]]++;
    }
    for (int i = 0; i < m->n_ops; i++)
        for (int k = 0; k < OP_BOUND_ITEMS; k++)
            if (f->traits[i].maker[k] >= 0)
                f->traits[i].shares[k] = items[f->traits[i].maker[k]];
    free(counted);
    free(items);
}
