/* Replaces sums over replicas of which the plan does not trust all.
 *
 * A guarded sum becomes up to three instructions: every rank gets what all of them have for
 * its share of the numbers and takes the plan's rule over these rows, and the shares of an
 * all-reduce are gathered again: as many bytes on the wire as a ring's. A long all-reduce
 * goes in pieces, so that rows take little memory.
 *
 * A scatter that is started and waited for later (pass_prefetch.c) has its rule after the
 * wait. */
#include "program/passes/pass.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* Rows of one piece: long enough that no link notices, as in pass_bucket.c. */
    PIECE_BYTES = 25 << 20,
};

/* Rows under way, which are started in place of the scatter with this number. */
struct rows {
    struct instr scatter;
    int buffer; /* -1: none with this number */
};

struct guard {
    struct emit *e;
    struct rows *started; /* [n_works] */
    /* by axes: 1 + where suspicions over these are; 0: none yet */
    int64_t slot[1 << MESH_MAX_AXES];
};

static enum opcode rule_of(const struct plan *p) {
    return p->aggregate == AGGREGATE_median    ? I_median
           : p->aggregate == AGGREGATE_trimmed ? I_trimmed
                                               : I_fair;
}

static int64_t slot_of(struct guard *a, unsigned axes) {
    if (!a->slot[axes]) {
        a->slot[axes] = 1 + a->e->out->n_suspects;
        a->e->out->n_suspects += mesh_group_size(a->e->mesh, axes) + 1;
    }
    return a->slot[axes] - 1;
}

static int rows_new(struct emit *e, int64_t elems, int like) {
    return emit_buffer(e, elems, e->buffers.p[like].dtype, MEM_temporaries);
}

/* y = the rule over rows, which hold `elems` numbers in all. */
static void locate(struct guard *a, unsigned axes, int rows, int y, int64_t elems) {
    struct instr *i = emit_instr(a->e, rule_of(a->e->plan));
    i->axes = axes;
    i->in.median.x = rows;
    i->out.median.y = y;
    i->n.median.elems = elems;
    i->n.median.parts = mesh_group_size(a->e->mesh, axes);
    i->slot = slot_of(a, axes);
}

/* What is sent of x: its rounded numbers, where the plan sums in 16 bits. */
static int sent_of(struct emit *e, int x, int64_t n) {
    if (e->plan->reduce == DTYPE_f32 || e->buffers.p[x].dtype != DTYPE_f32)
        return x;
    int sent = emit_buffer(e, n, e->plan->reduce, MEM_temporaries);
    emit_cast(e, x, sent, n);
    return sent;
}

/* Replaces x[0 .. n) with the result. A length that the ranks do not divide is small, so
 * every rank gets all its rows and takes the rule over them for itself. */
static void reduce(struct guard *a, unsigned axes, int x, int64_t n) {
    struct emit *e = a->e;
    const int64_t parts = mesh_group_size(e->mesh, axes);
    const int sent = sent_of(e, x, n);
    if (n % parts) {
        int rows = rows_new(e, n * parts, sent);
        emit_collective(e, I_all_gather, axes, sent, rows, n * parts);
        locate(a, axes, rows, sent, n * parts);
    } else {
        int rows = rows_new(e, n, sent), own = rows_new(e, n / parts, sent);
        emit_collective(e, I_all_to_all, axes, sent, rows, n);
        locate(a, axes, rows, own, n);
        emit_collective(e, I_all_gather, axes, own, sent, n);
    }
    if (sent != x)
        emit_cast(e, sent, x, n);
}

/* A buffer for a part of another that has its place already. */
static int part_of(struct emit *e, int x, int64_t first, int64_t n) {
    struct buffer part = e->buffers.p[x];
    part.offset += first * dtype_size(part.dtype);
    part.elems = n;
    arr_push(&e->buffers, part);
    return (int)e->buffers.n - 1;
}

static int64_t least_common(int64_t a, int64_t b) {
    int64_t x = a, y = b;
    while (y) {
        const int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

/* Reduces in pieces that begin where buffers may, and then what is left over beyond even
 * shares. A buffer that has no place yet is one piece. */
static void reduce_all(struct guard *a, const struct instr *ins) {
    struct emit *e = a->e;
    const int x = ins->in.all_reduce.x;
    const int64_t n = ins->n.all_reduce.elems, size = dtype_size(e->buffers.p[x].dtype);
    const int64_t unit = least_common(memory_aligned(1) / size, ins->n.all_reduce.parts);
    const int64_t piece = PIECE_BYTES / size / unit * unit;
    if (e->buffers.p[x].mem != MEM_gradients) {
        reduce(a, ins->axes, x, n);
        return;
    }
    for (int64_t first = 0, most; first < n; first += most) {
        const int64_t left = n - first, even = left < unit ? left : left / unit * unit;
        most = even < piece ? even : piece;
        reduce(a, ins->axes, part_of(e, x, first, most), most);
    }
}

/* Gets the rows, not the scattered sum. If that is only started, the rule follows its
 * wait. */
static void scatter(struct guard *a, struct instr ins) {
    const int64_t n = ins.n.reduce_scatter.elems;
    const int y = ins.out.reduce_scatter.y,
              rows = rows_new(a->e, n, ins.in.reduce_scatter.x);
    if (ins.work >= 0)
        a->started[ins.work] = (struct rows){ins, rows};
    ins.code = I_all_to_all;
    ins.out.all_to_all.y = rows;
    arr_push(&a->e->instrs, ins);
    if (ins.work < 0)
        locate(a, ins.axes, rows, y, n);
}

static void finish_scatter(struct guard *a, struct instr wait) {
    const struct rows *r = &a->started[wait.work];
    wait.out.wait.y = r->buffer;
    wait.n.wait.result = r->scatter.n.reduce_scatter.elems;
    arr_push(&a->e->instrs, wait);
    locate(a, wait.axes, r->buffer, r->scatter.out.reduce_scatter.y, wait.n.wait.result);
}

static void rewrite(struct guard *a, struct instr ins) {
    a->e->op = ins.op;
    a->e->param = ins.param;
    a->e->trains = ins.trains;
    if (ins.guarded && ins.code == I_all_reduce)
        reduce_all(a, &ins);
    else if (ins.guarded)
        scatter(a, ins);
    else if (ins.code == I_wait && a->started[ins.work].buffer >= 0)
        finish_scatter(a, ins);
    else
        arr_push(&a->e->instrs, ins);
}

void pass_aggregate(struct emit *e) {
    struct guard a = {.e = e};
    struct instr *old = e->instrs.p;
    int first[SEG_COUNT + 1];
    memcpy(first, e->seg_first, sizeof first);
    memset(&e->instrs, 0, sizeof e->instrs);
    a.started = mem_array((size_t)e->n_works, sizeof *a.started);
    for (int w = 0; w < e->n_works; w++)
        a.started[w].buffer = -1;
    for (int s = 0; s < SEG_COUNT; s++) {
        for (int i = first[s]; i < first[s + 1]; i++)
            rewrite(&a, old[i]);
        emit_end_segment(e, (enum segment)s);
    }
    e->op = e->param = -1;
    e->trains = false;
    free(a.started);
    free(old);
}
