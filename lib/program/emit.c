/* Emission: buffers, instructions, and the instructions that carry out a conversion. */
#include "program/emit.h"

#include <stdlib.h>
#include <string.h>

int emit_buffer(struct emit *e, int64_t elems, enum memory_class mem) {
    arr_push(&e->buffers,
             (struct buffer){.elems = elems, .mem = mem, .first = -1, .last = -1});
    return (int)e->buffers.n - 1;
}

struct instr *emit_instr(struct emit *e, enum opcode code) {
    struct instr i = {.code = code,
                      .op = e->op,
                      .tensor = -1,
                      .param = e->param,
                      .transfer = -1,
                      .place = placement_replicate()};
    memset(i.in, -1, sizeof i.in);
    memset(i.out, -1, sizeof i.out);
    arr_push(&e->instrs, i);
    return &arr_last(&e->instrs);
}

int64_t emit_elements(const struct emit *e, const struct shape *s, struct placement p) {
    return placement_elements(e->mesh, s, &e->sizes, p);
}

void avail_add(struct emit *e, int *list, int tensor, struct placement place, int buffer) {
    arr_push(&e->pool, (struct avail){place, buffer, list[tensor]});
    list[tensor] = (int)e->pool.n - 1;
}

int avail_find(const struct emit *e, int head, struct placement place) {
    for (int i = head; i >= 0; i = e->pool.p[i].next)
        if (placement_equal(e->pool.p[i].place, place))
            return e->pool.p[i].buffer;
    return -1;
}

int emit_copy(struct emit *e, int src, int dst, int64_t elems) {
    struct instr *i = emit_instr(e, I_copy);
    i->in[0] = src;
    i->out[0] = dst;
    i->n[0] = i->n[1] = elems;
    i->copy = (struct copy){.rank = 1, .size = {elems}, .src = {1}, .dst = {1}};
    return dst;
}

int emit_add(struct emit *e, int a, int b, int64_t elems) {
    int y = emit_buffer(e, elems, MEM_temporaries);
    struct instr *i = emit_instr(e, I_add);
    i->in[0] = a;
    i->in[1] = b;
    i->out[0] = y;
    i->n[0] = elems;
    return y;
}

/* Local elements before and from a dim of the shape, under a placement. */
static void around(const struct emit *e, const struct shape *s, struct placement p, int dim,
                   int64_t *pre, int64_t *rest) {
    *pre = *rest = 1;
    bool found = false;
    for (int i = 0; i < s->rank; i++) {
        found |= s->dim[i] == dim;
        *(found ? rest : pre) *= placement_dim_size(e->mesh, &e->sizes, p, s->dim[i]);
    }
}

/* y[a][b][c] from x: sizes a, b, c; strides in x and y; the innermost runs are contiguous. */
static void emit_permute(struct emit *e, int x, int y, const int64_t size[3],
                         const int64_t src[2], const int64_t dst[2]) {
    struct instr *i = emit_instr(e, I_copy);
    i->in[0] = x;
    i->out[0] = y;
    i->n[0] = size[0] * size[1] * size[2];
    i->n[1] = size[2];
    i->copy = (struct copy){.rank = 3,
                            .size = {size[0], size[1], size[2]},
                            .src = {src[0], src[1], 1},
                            .dst = {dst[0], dst[1], 1}};
}

static void emit_collective(struct emit *e, enum opcode code, unsigned axes, int x, int y,
                            int64_t elems) {
    struct instr *i = emit_instr(e, code);
    i->axes = axes;
    i->in[0] = x;
    i->out[0] = y;
    i->n[0] = elems;
}

/* [g][pre][chunk] <-> [pre][g][chunk] */
static void emit_interleave(struct emit *e, int x, int y, int64_t g, int64_t pre,
                            int64_t chunk, bool gather) {
    const int64_t size[3] = {g, pre, chunk};
    const int64_t apart[2] = {pre * chunk, chunk}, woven[2] = {chunk, g * chunk};
    emit_permute(e, x, y, size, gather ? apart : woven, gather ? woven : apart);
}

static int64_t axis_size(const struct emit *e, const struct convert_step *step) {
    return mesh_group_size(e->mesh, step->axes);
}

static void step_all_gather(struct emit *e, const struct shape *s,
                            const struct convert_step *step, int x, int y,
                            int64_t n_after) {
    int64_t pre, rest, g = axis_size(e, step);
    around(e, s, step->before, step->from, &pre, &rest);
    if (pre == 1) {
        emit_collective(e, I_all_gather, step->axes, x, y, n_after);
        return;
    }
    int t = emit_buffer(e, n_after, MEM_temporaries);
    emit_collective(e, I_all_gather, step->axes, x, t, n_after);
    emit_interleave(e, t, y, g, pre, rest, true);
}

static void step_reduce_scatter(struct emit *e, const struct shape *s,
                                const struct convert_step *step, int x, int y,
                                int64_t n_before) {
    int64_t pre, rest, g = axis_size(e, step);
    around(e, s, step->after, step->to, &pre, &rest);
    if (pre > 1) {
        int t = emit_buffer(e, n_before, MEM_temporaries);
        emit_interleave(e, x, t, g, pre, rest, false);
        x = t;
    }
    emit_collective(e, I_reduce_scatter, step->axes, x, y, n_before);
}

static void step_all_to_all(struct emit *e, const struct shape *s,
                            const struct convert_step *step, int x, int y, int64_t n) {
    int64_t g = axis_size(e, step), pre, rest;
    /* The block that one peer gets: split on `to` as well, still split on `from`. */
    struct placement both = step->before;
    around(e, s, both, step->to, &pre, &rest);
    if (pre > 1) {
        int t = emit_buffer(e, n, MEM_temporaries);
        emit_interleave(e, x, t, g, pre, rest / g, false);
        x = t;
    }
    /* What arrives is g blocks; dim `from` is woven together of them. */
    int64_t pre2, rest2;
    around(e, s, step->after, step->from, &pre2, &rest2);
    int t = pre2 > 1 ? emit_buffer(e, n, MEM_temporaries) : y;
    emit_collective(e, I_all_to_all, step->axes, x, t, n);
    if (pre2 > 1)
        emit_interleave(e, t, y, g, pre2, rest2 / g, true);
}

static void step_slice(struct emit *e, const struct shape *s,
                       const struct convert_step *step, int x, int y, int64_t n_after) {
    int64_t pre, rest, g = axis_size(e, step);
    around(e, s, step->after, step->to, &pre, &rest);
    struct instr *i = emit_instr(e, I_copy);
    i->in[0] = x;
    i->out[0] = y;
    i->n[0] = n_after;
    i->n[1] = rest;
    i->axes = step->axes;
    i->copy = (struct copy){.rank = 2,
                            .size = {pre, rest},
                            .src = {g * rest, 1},
                            .dst = {rest, 1},
                            .src_step = rest};
}

static int emit_step(struct emit *e, const struct shape *s, const struct convert_step *step,
                     int x, int dest) {
    int64_t before = emit_elements(e, s, step->before),
            after = emit_elements(e, s, step->after);
    if (step->kind == CONVERT_all_reduce) {
        emit_collective(e, I_all_reduce, step->axes, x, x, before);
        return dest >= 0 ? emit_copy(e, x, dest, before) : x;
    }
    int y = dest >= 0 ? dest : emit_buffer(e, after, MEM_temporaries);
    switch (step->kind) {
    case CONVERT_all_gather: step_all_gather(e, s, step, x, y, after); break;
    case CONVERT_reduce_scatter: step_reduce_scatter(e, s, step, x, y, before); break;
    case CONVERT_all_to_all: step_all_to_all(e, s, step, x, y, after); break;
    case CONVERT_slice: step_slice(e, s, step, x, y, after); break;
    case CONVERT_all_reduce: break;
    }
    return y;
}

int emit_convert(struct emit *e, const struct shape *s, int buffer, struct placement from,
                 struct placement to, int dest) {
    struct convert_step steps[CONVERT_MAX_STEPS];
    int n = convert_path(e->mesh, s, &e->sizes, from, to, steps, NULL);
    if (n == 0 && dest >= 0)
        return emit_copy(e, buffer, dest, emit_elements(e, s, from));
    for (int i = 0; i < n; i++)
        buffer = emit_step(e, s, &steps[i], buffer, i == n - 1 ? dest : -1);
    return buffer;
}
