/* Emission: buffers, instructions, and the instructions that carry out a conversion. */
#include "program/emit/emit.h"

#include <stdlib.h>
#include <string.h>

int emit_buffer(struct emit *e, int64_t elems, enum dtype dtype, enum memory_class mem) {
    arr_push(&e->buffers, (struct buffer){.elems = elems, .dtype = dtype, .mem = mem});
    return (int)e->buffers.n - 1;
}

/* A new temporary of the type of another buffer. */
static int buffer_like(struct emit *e, int64_t elems, int other) {
    return emit_buffer(e, elems, e->buffers.p[other].dtype, MEM_temporaries);
}

static enum dtype tensor_dtype(const struct emit *e, int tensor) {
    return plan_tensor_dtype(e->plan, tensor);
}

enum dtype emit_param_dtype(const struct emit *e, int param) {
    return e->m->params[param].running ? DTYPE_f32 : e->plan->dtype;
}

struct instr *emit_instr(struct emit *e, enum opcode code) {
    arr_push(&e->instrs, instr_init(code));
    struct instr *i = &arr_last(&e->instrs);
    i->op = e->op;
    i->param = e->param;
    i->trains = e->trains;
    return i;
}

struct extents emit_extents(const struct emit *e, const struct shape *s) {
    return model_extents(e->m, s, e->plan->micro_batch);
}

int emit_value(struct emit *e, int tensor, struct placement p) {
    const struct model_tensor *t = &e->m->tensors[tensor];
    return emit_buffer(e, emit_elements(e, &t->shape, p), tensor_dtype(e, tensor),
                       MEM_temporaries);
}

int64_t emit_elements(const struct emit *e, const struct shape *s, struct placement p) {
    struct extents x = emit_extents(e, s);
    return placement_elements(e->mesh, &x, p);
}

void avail_add(struct emit *e, int *list, int tensor, struct placement place, int buffer) {
    arr_push(&e->avails, (struct avail){place, buffer, list[tensor]});
    list[tensor] = (int)e->avails.n - 1;
}

int avail_find(const struct emit *e, int head, struct placement place) {
    for (int i = head; i >= 0; i = e->avails.p[i].next)
        if (placement_equal(e->avails.p[i].place, place))
            return e->avails.p[i].buffer;
    return -1;
}

int emit_copy(struct emit *e, int src, int dst, int64_t elems) {
    struct instr *i = emit_instr(e, I_copy);
    i->in.copy.x = src;
    i->out.copy.y = dst;
    i->n.copy.elems = i->n.copy.inner = elems;
    i->copy = (struct copy){.rank = 1, .size = {elems}, .src = {1}, .dst = {1}};
    return dst;
}

int emit_add(struct emit *e, int a, int b, int64_t elems) {
    int y = buffer_like(e, elems, a);
    struct instr *i = emit_instr(e, I_add);
    i->in.add.a = a;
    i->in.add.b = b;
    i->out.add.y = y;
    i->n.add.elems = elems;
    return y;
}

void emit_cast(struct emit *e, int src, int dst, int64_t elems) {
    struct instr *i =
        emit_instr(e, e->buffers.p[dst].dtype == DTYPE_f32 ? I_widen : I_narrow);
    i->in.narrow.x = src;
    i->out.narrow.y = dst;
    i->n.narrow.elems = elems;
}

/* All collectives have the numbers and operands of all_reduce. */
void emit_collective(struct emit *e, enum opcode code, unsigned axes, int x, int y,
                     int64_t elems) {
    struct instr *i = emit_instr(e, code);
    i->axes = axes;
    i->in.all_reduce.x = x;
    i->out.all_reduce.y = y;
    i->n.all_reduce.elems = elems;
    i->n.all_reduce.parts = mesh_group_size(e->mesh, axes);
}

int emit_segment(const struct emit *e, int instr) {
    int s = 0;
    while (instr >= e->seg_first[s + 1])
        s++;
    return s;
}

void emit_end_segment(struct emit *e, enum segment segment) {
    for (int s = segment + 1; s <= SEG_COUNT; s++)
        e->seg_first[s] = (int)e->instrs.n;
}

struct instr emit_start(struct emit *e, struct instr *collective) {
    struct instr wait = instr_init(I_wait);
    struct instr_work w;
    instr_work(collective->code, &collective->n, &w);
    wait.work = collective->work = e->n_works++;
    wait.op = collective->op;
    wait.trains = collective->trains;
    wait.param = collective->param;
    wait.axes = collective->axes;
    wait.in.wait.x = collective->in.v[0];
    wait.out.wait.y = collective->out.v[0];
    wait.n.wait.elems = w.in[0];
    wait.n.wait.result = w.out[0];
    return wait;
}

/* ---- conversions -------------------------------------------------------------------------- */

/* One step of a conversion: a tensor of these sizes goes from x to y. */
struct conversion {
    const struct extents *sizes;
    const struct convert_step *step;
    int x, y;
};

/* Local elements of the tensor before a dim, and from it on, under a placement. */
static void around(const struct emit *e, const struct conversion *c, struct placement p,
                   int axis, int64_t *pre, int64_t *rest) {
    *pre = *rest = 1;
    for (int i = 0; i < c->sizes->rank; i++)
        *(i < axis ? pre : rest) *= placement_size(e->mesh, c->sizes, p, i);
}

/* [g][pre][chunk] to [pre][g][chunk] if `gather` is set, else back. */
static void emit_interleave(struct emit *e, int x, int y, int64_t g, int64_t pre,
                            int64_t chunk, bool gather) {
    int64_t apart[2] = {pre * chunk, chunk}, woven[2] = {chunk, g * chunk};
    const int64_t *src = gather ? apart : woven, *dst = gather ? woven : apart;
    struct instr *i = emit_instr(e, I_copy);
    i->in.copy.x = x;
    i->out.copy.y = y;
    i->n.copy.elems = g * pre * chunk;
    i->n.copy.inner = chunk;
    i->copy = (struct copy){.rank = 3,
                            .size = {g, pre, chunk},
                            .src = {src[0], src[1], 1},
                            .dst = {dst[0], dst[1], 1}};
}

static int64_t group_of(const struct emit *e, const struct conversion *c) {
    return mesh_group_size(e->mesh, c->step->axes);
}

/* Peers' boxes arrive one after the other. That is the tensor if its split dim is the
 * outermost; otherwise they are woven together. */
static void step_all_gather(struct emit *e, const struct conversion *c, int64_t after) {
    int64_t pre, rest;
    around(e, c, c->step->before, c->step->from, &pre, &rest);
    int t = pre == 1 ? c->y : buffer_like(e, after, c->x);
    emit_collective(e, I_all_gather, c->step->axes, c->x, t, after);
    if (pre > 1)
        emit_interleave(e, t, c->y, group_of(e, c), pre, rest, true);
}

/* The reverse of an all-gather: boxes are taken apart, then each peer sums its own. */
static void step_reduce_scatter(struct emit *e, const struct conversion *c,
                                int64_t before) {
    int64_t pre, rest;
    around(e, c, c->step->after, c->step->to, &pre, &rest);
    int x = c->x;
    if (pre > 1) {
        x = buffer_like(e, before, c->x);
        emit_interleave(e, c->x, x, group_of(e, c), pre, rest, false);
    }
    emit_collective(e, I_reduce_scatter, c->step->axes, x, c->y, before);
}

/* The box that one peer gets is split on both `from` and `to`. What arrives is one box from
 * every peer, and dim `from` is woven together from them. */
static void step_all_to_all(struct emit *e, const struct conversion *c, int64_t n) {
    int64_t g = group_of(e, c), pre, rest;
    around(e, c, c->step->before, c->step->to, &pre, &rest);
    int x = c->x;
    if (pre > 1) {
        x = buffer_like(e, n, c->x);
        emit_interleave(e, c->x, x, g, pre, rest / g, false);
    }
    around(e, c, c->step->after, c->step->from, &pre, &rest);
    int t = pre > 1 ? buffer_like(e, n, c->x) : c->y;
    emit_collective(e, I_all_to_all, c->step->axes, x, t, n);
    if (pre > 1)
        emit_interleave(e, t, c->y, g, pre, rest / g, true);
}

/* Every rank takes its part of each row; where it begins depends on the rank (src_step). */
static void step_slice(struct emit *e, const struct conversion *c, int64_t after) {
    int64_t pre, rest;
    around(e, c, c->step->after, c->step->to, &pre, &rest);
    struct instr *i = emit_instr(e, I_copy);
    i->in.copy.x = c->x;
    i->out.copy.y = c->y;
    i->n.copy.elems = after;
    i->n.copy.inner = rest;
    i->axes = c->step->axes;
    i->copy = (struct copy){.rank = 2,
                            .size = {pre, rest},
                            .src = {group_of(e, c) * rest, 1},
                            .dst = {rest, 1},
                            .src_step = rest};
}

/* An all-reduce works in place; all other steps write a new buffer, or `dest`. */
static int emit_step(struct emit *e, const struct extents *sizes,
                     const struct convert_step *step, int x, int dest) {
    int64_t before = placement_elements(e->mesh, sizes, step->before);
    int64_t after = placement_elements(e->mesh, sizes, step->after);
    if (step->kind == CONVERT_all_reduce) {
        emit_collective(e, I_all_reduce, step->axes, x, x, before);
        return dest >= 0 ? emit_copy(e, x, dest, before) : x;
    }
    struct conversion c = {sizes, step, x, dest >= 0 ? dest : buffer_like(e, after, x)};
    switch (step->kind) {
    case CONVERT_all_gather: step_all_gather(e, &c, after); break;
    case CONVERT_reduce_scatter: step_reduce_scatter(e, &c, before); break;
    case CONVERT_all_to_all: step_all_to_all(e, &c, after); break;
    case CONVERT_slice: step_slice(e, &c, after); break;
    case CONVERT_all_reduce: break;
    }
    return c.y;
}

int emit_convert(struct emit *e, const struct shape *s, int buffer, struct placement from,
                 struct placement to, int dest) {
    struct convert_step steps[CONVERT_MAX_STEPS];
    struct extents sizes = emit_extents(e, s);
    int n = convert_path(e->mesh, &sizes, from, to, steps, NULL);
    if (n == 0 && dest >= 0)
        return emit_copy(e, buffer, dest, emit_elements(e, s, from));
    for (int i = 0; i < n; i++)
        buffer = emit_step(e, &sizes, &steps[i], buffer, i == n - 1 ? dest : -1);
    return buffer;
}
