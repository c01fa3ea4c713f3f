/* What does not fit on a device lives in the memory of its host.
 *
 * A plan names what of an op is kept there: its parameters, the state of their optimizer,
 * what its forward pass keeps for the backward pass (Rhu et al., vDNN, 2016; Ren et al.,
 * ZeRO-Offload, 2021). Such a buffer is spilled as a register allocator spills: it moves to
 * the host's arena, and each block that touches it has a copy on the device, reloaded
 * before its first use if that reads it, offloaded after its last one if any wrote. With
 * overlap, a reload starts a block ahead and an offload ends a block later. The pass comes
 * before the memory plan, to which the copies are temporaries. */
#include "program/passes/pass.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* One block's uses of a buffer that lives on the host. Unit: a block, an op outside of blocks, or,
 * at the step's end, a parameter. */
struct visit {
    int buffer, copy;
    int segment, unit;
    int first, last; /* instructions */
    bool reads;      /* the first use does */
    bool writes;     /* some use does */
    /* the earliest place where a copy may begin and the latest where it may end: another
     * visit in this segment has the buffer before and behind */
    int from, until;
};

/* An instruction to insert before another; several at one place by rank, then in order. */
enum { RANK_OFFLOAD, RANK_OFFLOADED, RANK_RELOAD, RANK_RELOADED };
struct insert {
    int before, rank, order;
    struct instr ins;
};

struct spill {
    struct emit *e;
    ARR(struct visit) visits;
    ARR(struct insert) inserts;
    int *current;   /* [buffers] visit, or -1 */
    int *seen;      /* [units] index in `units` */
    ARR(int) units; /* of the segment at hand: first instruction of each, in order */
};

/* ---- what lives on the host ---------------------------------------------------------------- */

static bool writes(const struct instr *ins, int buffer) {
    for (int k = 0; k < INSTR_MAX_OUT; k++)
        if (ins->out.v[k] == buffer)
            return true;
    return false;
}

static bool reads(const struct instr *ins, int buffer) {
    const struct instr_info *info = instr_info(ins->code);
    for (int k = 0; k < info->n_in; k++)
        if (ins->in.v[k] == buffer)
            return true;
    for (int k = 0; k < info->n_out; k++)
        if (ins->out.v[k] == buffer && info->out[k].flags & OPERAND_ADD)
            return true;
    return false;
}

/* Chooses values of offloaded ops that the forward pass leaves to a later segment. */
static void choose_activations(struct emit *e) {
    int *maker = mem_array((size_t)e->buffers.n, sizeof *maker);
    memset(maker, -1, sizeof *maker * (size_t)e->buffers.n);
    for (int i = 0; i < e->seg_first[SEG_REDUCE]; i++) {
        const struct instr *ins = &e->instrs.p[i];
        int b[INSTR_MAX_BUFFERS], n = instr_buffers(ins, b);
        for (int k = 0; k < n; k++) {
            struct buffer *x = &e->buffers.p[b[k]];
            if (i < e->seg_first[SEG_BACKWARD] && maker[b[k]] < 0 && writes(ins, b[k]))
                maker[b[k]] = ins->op;
            else if (i >= e->seg_first[SEG_BACKWARD] && maker[b[k]] >= 0 &&
                     x->mem == MEM_temporaries)
                x->host |=
                    (e->st->offload[e->op_index[maker[b[k]]]] & OFFLOAD_activations) != 0;
        }
    }
    free(maker);
}

static bool choose(struct emit *e) {
    for (int64_t i = 0; i < e->params.n; i++)
        e->buffers.p[e->params.p[i].buffer].host =
            e->offload[e->params.p[i].param] & OFFLOAD_parameters;
    for (int64_t i = 0; i < e->states.n; i++)
        e->buffers.p[e->states.p[i].buffer].host =
            e->offload[e->states.p[i].param] & OFFLOAD_optimizer;
    choose_activations(e);
    for (int64_t i = 0; i < e->buffers.n; i++)
        if (e->buffers.p[i].host)
            return true;
    return false;
}

/* ---- visits -------------------------------------------------------------------------------- */

static int unit_of(const struct emit *e, const struct instr *ins) {
    if (ins->op < 0)
        return e->m->n_blocks + e->m->n_ops + (ins->param < 0 ? 0 : ins->param);
    int block = e->m->ops[ins->op].block;
    return block < 0 ? e->m->n_blocks + ins->op : block;
}

/* Whether a use belongs to the visit. What the forward pass makes stays on the device as
 * long as that pass needs it. */
static bool goes_on(const struct spill *s, const struct visit *v, int segment, int unit) {
    return v->segment == segment &&
           (v->unit == unit ||
            (segment == SEG_FORWARD && s->e->buffers.p[v->buffer].mem == MEM_temporaries));
}

/* The visit that a use belongs to, made if the use is its first. */
static int visit_of(struct spill *s, int buffer, int segment, int i) {
    struct emit *e = s->e;
    const struct instr *ins = &e->instrs.p[i];
    int unit = unit_of(e, ins), now = s->current[buffer];
    if (now >= 0 && goes_on(s, &s->visits.p[now], segment, unit))
        return now;
    struct buffer like = e->buffers.p[buffer];
    int copy = emit_buffer(e, like.elems, like.dtype, MEM_temporaries);
    int from = e->seg_first[segment];
    if (now >= 0 && s->visits.p[now].segment == segment) {
        struct visit *before = &s->visits.p[now];
        from = before->writes ? i : before->first + 1;
        before->until = i;
    }
    arr_push(&s->visits, (struct visit){.buffer = buffer,
                                        .copy = copy,
                                        .segment = segment,
                                        .unit = unit,
                                        .first = i,
                                        .reads = reads(ins, buffer),
                                        .from = from,
                                        .until = e->seg_first[segment + 1]});
    return s->current[buffer] = (int)s->visits.n - 1;
}

static void rename_operand(struct instr *ins, int from, int to) {
    for (int k = 0; k < INSTR_MAX_IN; k++)
        if (ins->in.v[k] == from)
            ins->in.v[k] = to;
    for (int k = 0; k < INSTR_MAX_OUT; k++)
        if (ins->out.v[k] == from)
            ins->out.v[k] = to;
}

static void visit_all(struct spill *s) {
    struct emit *e = s->e;
    for (int i = 0; i < e->instrs.n; i++) {
        int segment = emit_segment(e, i);
        int b[INSTR_MAX_BUFFERS], n = instr_buffers(&e->instrs.p[i], b);
        for (int k = 0; k < n; k++) {
            if (!e->buffers.p[b[k]].host)
                continue;
            int now = visit_of(s, b[k], segment, i);
            struct visit *v = &s->visits.p[now];
            v->last = i;
            v->writes |= writes(&e->instrs.p[i], b[k]);
            rename_operand(&e->instrs.p[i], b[k], v->copy);
        }
    }
}

/* ---- copies -------------------------------------------------------------------------------- */

/* Where each unit of a segment begins. */
static void find_units(struct spill *s, int segment) {
    struct emit *e = s->e;
    int n = e->m->n_blocks + e->m->n_ops + e->m->n_params;
    memset(s->seen, -1, sizeof *s->seen * (size_t)(n + 1));
    s->units.n = 0;
    for (int i = e->seg_first[segment]; i < e->seg_first[segment + 1]; i++) {
        int unit = unit_of(e, &e->instrs.p[i]);
        if (s->seen[unit] < 0) {
            s->seen[unit] = (int)s->units.n;
            arr_push(&s->units, i);
        }
    }
}

/* The place as far into the unit before (by -1) or behind (by 1) as i is into its own, or
 * the segment's beginning or end. */
static int counterpart(const struct spill *s, const struct visit *v, int i, int by) {
    int unit = s->seen[v->unit], other = unit + by;
    if (other < 0)
        return s->units.p[0];
    if (other >= s->units.n)
        return INT_MAX;
    return s->units.p[other] + i - s->units.p[unit];
}

static void insert(struct spill *s, int before, int rank, const struct instr *ins) {
    arr_push(&s->inserts, (struct insert){before, rank, (int)s->inserts.n, *ins});
}

static struct instr copy_instr(struct emit *e, enum opcode code, const struct visit *v,
                               int user) {
    const struct instr *like = &e->instrs.p[user];
    struct instr i = instr_init(code);
    i.op = like->op;
    i.param = like->param;
    i.n.reload.elems = e->buffers.p[v->buffer].elems;
    i.in.v[0] = code == I_reload ? v->buffer : v->copy;
    i.out.v[0] = code == I_reload ? v->copy : v->buffer;
    return i;
}

static void reload(struct spill *s, const struct visit *v) {
    struct instr i = copy_instr(s->e, I_reload, v, v->first);
    int at = v->first;
    if (s->e->plan->overlap) {
        at = counterpart(s, v, v->first, -1);
        at = at > v->from ? at : v->from;
    }
    if (at < v->first) {
        struct instr wait = emit_start(s->e, &i);
        insert(s, v->first, RANK_RELOADED, &wait);
    }
    insert(s, at, RANK_RELOAD, &i);
}

static void offload(struct spill *s, const struct visit *v) {
    struct instr i = copy_instr(s->e, I_offload, v, v->last);
    int at = v->last + 1, end = at;
    if (s->e->plan->overlap) {
        end = counterpart(s, v, v->last, 1);
        end = end < v->until ? end : v->until;
    }
    if (end > at) {
        struct instr wait = emit_start(s->e, &i);
        insert(s, end, RANK_OFFLOADED, &wait);
    }
    insert(s, at, RANK_OFFLOAD, &i);
}

static int compare_inserts(const void *a, const void *b) {
    const struct insert *x = a, *y = b;
    if (x->before != y->before)
        return x->before < y->before ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* Writes the instructions again, with the copies between them. What goes before a segment's
 * first one belongs to that segment, unless it ends what the segment before began. */
static void write_all(struct spill *s) {
    struct emit *e = s->e;
    struct instr *old = e->instrs.p;
    int n = (int)e->instrs.n, segment = 0;
    int64_t next = 0;
    if (s->inserts.n)
        qsort(s->inserts.p, (size_t)s->inserts.n, sizeof *s->inserts.p, compare_inserts);
    memset(&e->instrs, 0, sizeof e->instrs);
    for (int i = 0; i <= n; i++) {
        for (; next < s->inserts.n && s->inserts.p[next].before == i &&
               s->inserts.p[next].rank < RANK_RELOAD;
             next++)
            arr_push(&e->instrs, s->inserts.p[next].ins);
        for (; segment <= SEG_COUNT && e->seg_first[segment] == i; segment++)
            e->seg_first[segment] = (int)e->instrs.n;
        for (; next < s->inserts.n && s->inserts.p[next].before == i; next++)
            arr_push(&e->instrs, s->inserts.p[next].ins);
        if (i < n)
            arr_push(&e->instrs, old[i]);
    }
    free(old);
}

void pass_offload(struct emit *e) {
    if (!choose(e))
        return;
    size_t buffers = (size_t)e->buffers.n,
           units = (size_t)(e->m->n_blocks + e->m->n_ops + e->m->n_params) + 1;
    struct spill s = {.e = e,
                      .current = mem_array(buffers, sizeof *s.current),
                      .seen = mem_array(units, sizeof *s.seen)};
    memset(s.current, -1, sizeof *s.current * buffers);
    visit_all(&s);
    for (int64_t i = 0; i < s.visits.n; i++) {
        const struct visit *v = &s.visits.p[i];
        if (!i || v[-1].segment != v->segment)
            find_units(&s, v->segment);
        if (v->reads)
            reload(&s, v);
        if (v->writes)
            offload(&s, v);
    }
    write_all(&s);
    arr_release(&s.visits);
    arr_release(&s.inserts);
    arr_release(&s.units);
    free(s.current);
    free(s.seen);
}
