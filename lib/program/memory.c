/* The memory plan: which bytes of the arena each buffer has.
 *
 * Liveness first: a value lives from the instruction that writes it to the last that touches
 * it. An instruction may write over an operand that dies there, where its table entry says OVER.
 * What outlives its segment before the end of the step is an activation and has a place per
 * micro-batch in flight; the rest is temporary and shares one region, by best fit in the order of
 * time. The predictor and the executor read the numbers that are worked out here. */
#include "program/emit.h"

#include <stdlib.h>
#include <string.h>

enum {
    ALIGN_BYTES = 64,
    /* Reductions that overlap the backward pass are this large at least, if gradients allow: small
     * ones pay latency, large ones begin late. PyTorch's default (Li et al. 2020). */
    BUCKET_BYTES = 25 << 20,
};

int64_t memory_aligned(int64_t bytes) {
    return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

int64_t buffer_bytes(const struct buffer *b) {
    return memory_aligned(dtype_size(b->dtype) * b->elems);
}

static bool planned(enum memory_class mem) {
    return mem == MEM_temporaries || mem == MEM_activations;
}

static void touch(struct buffer *b, int at) {
    if (b->first < 0)
        b->first = at;
    b->last = at;
}

static void find_lifetimes(struct emit *e) {
    for (int64_t i = 0; i < e->instrs.n; i++) {
        int b[INSTR_MAX_BUFFERS], n = instr_buffers(&e->instrs.p[i], b);
        for (int k = 0; k < n; k++)
            touch(&e->buffers.p[b[k]], (int)i);
    }
}

static int root(int *parent, int b) {
    while (parent[b] != b)
        b = parent[b] = parent[parent[b]];
    return b;
}

/* Lets results take the place of operands that die; parent[] says into which buffer each went. Returns
 * whether any did. */
static bool share_in_place(struct emit *e, int *parent) {
    struct buffer *bufs = e->buffers.p;
    bool any = false;
    for (int64_t i = 0; i < e->instrs.n; i++) {
        struct instr *ins = &e->instrs.p[i];
        const struct instr_info *info = instr_info(ins->code);
        for (int k = 0; k < info->n_in; k++) {
            if (!(info->in[k].flags & OPERAND_OVER) || ins->in.v[k] < 0)
                continue;
            int out = root(parent, ins->out.v[0]), in = root(parent, ins->in.v[k]);
            if (in == out || !planned(bufs[in].mem) || !planned(bufs[out].mem) ||
                bufs[in].last != i || bufs[out].first != i ||
                bufs[in].elems != bufs[out].elems ||
                dtype_size(bufs[in].dtype) != dtype_size(bufs[out].dtype))
                continue;
            parent[out] = in;
            bufs[in].last = bufs[out].last;
            any = true;
            break;
        }
    }
    return any;
}

/* Offsets one after the other for a fixed class. */
static int64_t lay_out(struct emit *e, enum memory_class mem, bool host, const int *order,
                       int64_t n, int64_t at) {
    int64_t start = at;
    for (int64_t i = 0; i < n; i++) {
        struct buffer *b = &e->buffers.p[order ? order[i] : (int)i];
        if (b->mem != mem || b->host != host)
            continue;
        b->offset = at;
        at += buffer_bytes(b);
    }
    return at - start;
}

/* A region in use up to `end`, but for holes: free bytes between live blocks, by offset, none next to
 * another or to the end. There are few of them even where thousands of blocks live. */
struct hole {
    int64_t offset, bytes;
};
struct heap {
    ARR(struct hole) holes;
    int64_t end, top; /* now, and at most so far */
};

static void heap_remove(struct heap *h, int64_t i) {
    memmove(h->holes.p + i, h->holes.p + i + 1,
            sizeof *h->holes.p * (size_t)(h->holes.n - 1 - i));
    h->holes.n--;
}

/* Best fit: the first of the smallest holes that hold the bytes, else the end. */
static int64_t heap_take(struct heap *h, int64_t bytes) {
    int64_t best = -1, at = h->end;
    for (int64_t i = 0; i < h->holes.n; i++)
        if (h->holes.p[i].bytes >= bytes &&
            (best < 0 || h->holes.p[i].bytes < h->holes.p[best].bytes))
            best = i;
    if (best < 0) {
        h->end += bytes;
        h->top = h->end > h->top ? h->end : h->top;
        return at;
    }
    struct hole *hole = &h->holes.p[best];
    at = hole->offset;
    hole->offset += bytes;
    hole->bytes -= bytes;
    if (!hole->bytes)
        heap_remove(h, best);
    return at;
}

/* The first hole behind the offset. */
static int64_t heap_hole_behind(const struct heap *h, int64_t offset) {
    int64_t lo = 0, hi = h->holes.n;
    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (h->holes.p[mid].offset < offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* What is free on either side joins it; at the end of the region, that moves. */
static void heap_give(struct heap *h, int64_t offset, int64_t bytes) {
    int64_t i = heap_hole_behind(h, offset);
    struct hole *p = h->holes.p, *before = i ? &p[i - 1] : NULL;
    if (before && before->offset + before->bytes == offset) {
        offset = before->offset;
        bytes += before->bytes;
        heap_remove(h, --i);
    }
    if (i < h->holes.n && offset + bytes == p[i].offset) {
        bytes += p[i].bytes;
        heap_remove(h, i);
    }
    if (offset + bytes == h->end) {
        h->end = offset;
        return;
    }
    arr_push(&h->holes, (struct hole){0, 0});
    memmove(h->holes.p + i + 1, h->holes.p + i,
            sizeof *h->holes.p * (size_t)(h->holes.n - 1 - i));
    h->holes.p[i] = (struct hole){offset, bytes};
}

/* Places the temporaries that begin or end at instruction i. Empty buffers never occur: every
 * shard has at least one element. */
static void place_at(struct emit *e, struct heap *h, int at) {
    const struct instr *ins = &e->instrs.p[at];
    struct buffer *bufs = e->buffers.p;
    for (int k = 0; k < INSTR_MAX_OUT; k++) {
        struct buffer *b = ins->out.v[k] >= 0 ? &bufs[ins->out.v[k]] : NULL;
        if (b && b->mem == MEM_temporaries && b->first == at)
            b->offset = heap_take(h, buffer_bytes(b));
    }
    int b[INSTR_MAX_BUFFERS], n = instr_buffers(ins, b);
    for (int k = 0; k < n; k++)
        if (bufs[b[k]].mem == MEM_temporaries && bufs[b[k]].last == at)
            heap_give(h, bufs[b[k]].offset, buffer_bytes(&bufs[b[k]]));
}

/* Is it about a running statistic, which is f32 under every plan? */
static bool is_statistic(const struct emit *e, const struct instr *ins) {
    return ins->param >= 0 && e->m->params[ins->param].running;
}

/* Consecutive all-reduces of gradients that lie side by side become one. */
static void merge_gradient_reductions(struct emit *e) {
    int64_t kept = e->seg_first[SEG_REDUCE], end = e->seg_first[SEG_NORM];
    for (int64_t i = kept; i < end; i++) {
        struct instr *ins = &e->instrs.p[i];
        struct instr *last =
            kept > e->seg_first[SEG_REDUCE] ? &e->instrs.p[kept - 1] : NULL;
        if (last && last->code == I_all_reduce && ins->code == I_all_reduce &&
            last->axes == ins->axes) {
            struct buffer a = e->buffers.p[last->in.all_reduce.x];
            struct buffer b = e->buffers.p[ins->in.all_reduce.x];
            bool full = e->plan->overlap && b.offset - a.offset >= BUCKET_BYTES;
            bool alike = e->plan->reduce == DTYPE_f32 ||
                         is_statistic(e, last) == is_statistic(e, ins);
            if (a.mem == MEM_gradients && b.mem == MEM_gradients && !full && alike &&
                b.offset == a.offset + buffer_bytes(&a)) {
                a.elems = (b.offset - a.offset) / dtype_size(a.dtype) + b.elems;
                arr_push(&e->buffers, a);
                last->in.all_reduce.x = last->out.all_reduce.y = (int)e->buffers.n - 1;
                last->n.all_reduce.elems = a.elems;
                continue;
            }
        }
        if (kept++ < i)
            e->instrs.p[kept - 1] = *ins;
    }
    int64_t gone = end - kept;
    for (int64_t i = end; i < e->instrs.n && gone; i++)
        e->instrs.p[i - gone] = e->instrs.p[i];
    e->instrs.n -= gone;
    for (int s = SEG_NORM; s <= SEG_COUNT; s++)
        e->seg_first[s] -= (int)gone;
}

/* Where the plan sums gradients in 16 bits, an all-reduce of theirs is one of their rounding. */
static void round_gradient_reductions(struct emit *e) {
    int first = e->seg_first[SEG_REDUCE], n = (int)e->instrs.n - first, rounded = 0;
    struct instr *old = mem_array((size_t)n, sizeof *old);
    memcpy(old, e->instrs.p + first, sizeof *old * (size_t)n);
    e->instrs.n = first;
    for (int i = 0; i < n; i++) {
        struct instr ins = old[i];
        int64_t elems = ins.n.v[0];
        int sum = ins.in.v[0];
        e->param = ins.param;
        if (first + i >= e->seg_first[SEG_NORM] || ins.code != I_all_reduce ||
            e->buffers.p[sum].dtype != DTYPE_f32 || is_statistic(e, &ins)) {
            arr_push(&e->instrs, ins);
            continue;
        }
        ins.in.v[0] = ins.out.v[0] =
            emit_buffer(e, elems, e->plan->reduce, MEM_temporaries);
        emit_cast(e, sum, ins.in.v[0], elems);
        arr_push(&e->instrs, ins);
        emit_cast(e, ins.in.v[0], sum, elems);
        rounded++;
    }
    for (int s = SEG_NORM; s <= SEG_COUNT; s++)
        e->seg_first[s] += 2 * rounded;
    free(old);
}

/* Those that are cleared are one buffer to the instruction that does it, the update's last. */
static void fill_gradients(struct emit *e, int64_t offset) {
    struct instr *last = &e->instrs.p[e->instrs.n - 1];
    int64_t bytes = 0;
    for (int64_t g = 0; g < e->grads.n; g++)
        if (e->grads.p[g].cleared)
            bytes += buffer_bytes(&e->buffers.p[e->grads.p[g].buffer]);
    if (last->code != I_fill)
        return;
    struct buffer all = {.elems = bytes / dtype_size(DTYPE_f32),
                         .dtype = DTYPE_f32,
                         .mem = MEM_gradients,
                         .offset = offset,
                         .first = -1,
                         .last = -1};
    arr_push(&e->buffers, all);
    last->n.fill.elems = all.elems;
    last->out.fill.y = (int)e->buffers.n - 1;
}

struct buffer_order {
    ARR(int) list;
};

/* In the order in which the update reduces them. */
static void list_gradients(const struct emit *e, bool cleared, struct buffer_order *out) {
    for (int64_t i = 0; i < e->params.n; i++)
        for (int64_t g = e->grad_of[e->params.p[i].param]; g >= 0 && g < e->grads.n; g++) {
            if (e->grads.p[g].instance == i && e->grads.p[g].cleared == cleared)
                arr_push(&out->list, e->grads.p[g].buffer);
            if (!e->m->params[e->params.p[i].param].tied)
                break;
        }
}

/* Those that are cleared stand before the others. */
static int *gradient_order(const struct emit *e, int64_t *n) {
    struct buffer_order order = {{0}};
    list_gradients(e, true, &order);
    list_gradients(e, false, &order);
    *n = order.list.n;
    return order.list.p;
}

static void rename_buffers(struct emit *e, int *parent) {
    for (int64_t i = 0; i < e->instrs.n; i++) {
        struct instr *ins = &e->instrs.p[i];
        for (int k = 0; k < INSTR_MAX_IN; k++)
            if (ins->in.v[k] >= 0)
                ins->in.v[k] = root(parent, ins->in.v[k]);
        for (int k = 0; k < INSTR_MAX_OUT; k++)
            if (ins->out.v[k] >= 0)
                ins->out.v[k] = root(parent, ins->out.v[k]);
    }
}

/* The end of the step is one in this: what is reduced waits there for the update. */
static void classify_one(const struct emit *e, struct buffer *b) {
    int first = emit_segment(e, b->first), last = emit_segment(e, b->last);
    bool kept = first != last && first < SEG_REDUCE;
    b->mem = kept ? MEM_activations : MEM_temporaries;
    if (!kept)
        b->part = first >= SEG_REDUCE;
    else if (first == SEG_FORWARD)
        b->part = last == SEG_BACKWARD ? POOL_FORWARD_BACKWARD : POOL_FORWARD_WEIGHTS;
    else
        b->part = POOL_BACKWARD_WEIGHTS;
}

static void classify(struct emit *e) {
    for (int64_t i = 0; i < e->buffers.n; i++) {
        struct buffer *b = &e->buffers.p[i];
        if (planned(b->mem) && b->first >= 0)
            classify_one(e, b);
    }
}

/* Those of one pool in one slot; returns its bytes. */
static int64_t lay_out_slot(struct emit *e, unsigned pool, bool host, int64_t at) {
    int64_t start = at;
    for (int64_t i = 0; i < e->buffers.n; i++) {
        struct buffer *b = &e->buffers.p[i];
        if (b->mem != MEM_activations || b->part != pool || b->host != host)
            continue;
        b->offset = at;
        at += buffer_bytes(b);
    }
    return at - start;
}

/* Pool by pool, all slots of one before the next. */
static int64_t lay_out_slots(struct emit *e, struct stage_program *out,
                             const int64_t slots[POOL_COUNT], int64_t at) {
    int64_t start = at;
    out->in_flight = 1;
    for (unsigned p = 0; p < POOL_COUNT; p++) {
        out->slots[p].n = slots[p];
        out->slots[p].bytes = lay_out_slot(e, p, false, at);
        out->in_flight = slots[p] > out->in_flight ? slots[p] : out->in_flight;
        at += slots[p] * out->slots[p].bytes;
    }
    return at - start;
}

/* The same order in the host's arena, where there are no temporaries. */
static int64_t lay_out_host(struct emit *e, struct stage_program *out) {
    int64_t at = HOST_ARENA;
    at += lay_out(e, MEM_parameters, true, NULL, e->buffers.n, at);
    at += lay_out(e, MEM_optimizer, true, NULL, e->buffers.n, at);
    for (unsigned p = 0; p < POOL_COUNT; p++) {
        out->slots[p].host_bytes = lay_out_slot(e, p, true, at);
        at += out->slots[p].n * out->slots[p].host_bytes;
    }
    return at - HOST_ARENA;
}

/* Segments of a micro-batch share the bytes of temporaries, since a rank is in one of them at a
 * time; those of the step's end are one, for the norm stands between them. */
static void lay_out_temporaries(struct emit *e, struct stage_program *out, int64_t at) {
    for (int s = 0; s < SEG_COUNT; s++) {
        struct heap h = {0};
        int end = s < SEG_REDUCE ? s + 1 : SEG_COUNT;
        for (int i = e->seg_first[s]; i < e->seg_first[end]; i++)
            place_at(e, &h, i);
        int64_t *top = &out->temporaries[s >= SEG_REDUCE];
        *top = h.top > *top ? h.top : *top;
        arr_release(&h.holes);
        s = end - 1;
    }
    for (int64_t i = 0; i < e->buffers.n; i++)
        if (e->buffers.p[i].mem == MEM_temporaries)
            e->buffers.p[i].offset += at;
    out->own[MEM_temporaries] = out->temporaries[0] > out->temporaries[1]
                                    ? out->temporaries[0]
                                    : out->temporaries[1];
}

/* What stands where as long as the program runs, from the beginning of the arena on. */
static int64_t lay_out_permanent(struct emit *e, int64_t own[MEM_COUNT]) {
    int64_t n_order, at = 0;
    int *order = gradient_order(e, &n_order);
    at += own[MEM_parameters] = lay_out(e, MEM_parameters, false, NULL, e->buffers.n, at);
    at += own[MEM_gradients] = lay_out(e, MEM_gradients, false, order, n_order, at);
    at += own[MEM_optimizer] = lay_out(e, MEM_optimizer, false, NULL, e->buffers.n, at);
    free(order);
    return at;
}

/* Order of the arena: parameters, gradients, optimizer, slots of activations, temporaries, as if
 * the stage were alone on its group; compile.c moves what is not. */
void pass_memory(struct emit *e, struct stage_program *out,
                 const int64_t slots[POOL_COUNT]) {
    int64_t *own = out->own, at = lay_out_permanent(e, own);
    merge_gradient_reductions(e);
    if (e->plan->reduce != DTYPE_f32)
        round_gradient_reductions(e);
    int *parent = mem_array((size_t)e->buffers.n, sizeof *parent);
    for (int64_t i = 0; i < e->buffers.n; i++)
        parent[i] = (int)i;
    find_lifetimes(e);
    bool merged = share_in_place(e, parent);
    for (int64_t i = 0; i < e->buffers.n && merged; i++)
        if (parent[i] != i)
            e->buffers.p[i].mem = MEM_COUNT; /* merged away */
    if (merged)
        rename_buffers(e, parent);
    free(parent);
    classify(e);

    at += own[MEM_activations] = lay_out_slots(e, out, slots, at);
    lay_out_temporaries(e, out, at);
    out->scalars = at + own[MEM_temporaries];
    out->per_target = out->scalars + memory_aligned(sizeof(struct scalars));
    own[MEM_buffers] = out->per_target - out->scalars +
                       memory_aligned((int64_t)sizeof(double) * e->n_losses);
    out->arena_bytes = out->scalars + own[MEM_buffers];
    memcpy(out->bytes, own, sizeof out->bytes);
    out->own_host = out->host_bytes = lay_out_host(e, out);
    fill_gradients(e, own[MEM_parameters]);
}
