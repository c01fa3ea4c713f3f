/* From a plan that splits the sequence to the steps of the rank that plays its devices. The forward
 * segment is taken as the compiler emits it, before it lays out memory: what leads to the loss but
 * not to the logits is dropped, and gathers become copies into caches. */
#include "exec/decode_impl.h"

#include "common/mem.h"
#include "program/passes.h"

#include <stdlib.h>
#include <string.h>

/* ---- the plan ----------------------------------------------------------------------------- */

int decode_dim(const struct model *m, struct err *err) {
    for (int i = 0; i < m->n_tensors; i++) {
        const struct model_tensor *t = &m->tensors[i];
        if (t->producer < 0 &&
            (t->source == DATA_TOKEN || t->source == DATA_SHIFTED_TARGET))
            return t->shape.dim[1];
    }
    return err_input(err,
                     "model %s: no input is a sequence of tokens that is written from "
                     "left to right (\"token\" or \"shifted-target\")",
                     m->name);
}

static struct plan *make_plan(struct model *m, const struct decoder_options *o, int dim,
                              int64_t devices, struct err *err) {
    const int bounds[] = {0, m->n_ops};
    struct plan *p = plan_create(m, 1, bounds);
    struct stage *st = p->stages;
    st->mesh = (struct mesh){.n_axes = 1, .size = {(int)devices}, .name = {"position"}};
    for (int i = 0; i < st->n_ops; i++)
        st->layouts[i].dim[0] = (int8_t)layout_choose(&m->ops[i].space, &dim, 1);
    p->batch = p->micro_batch = o->batch;
    p->dtype = o->dtype;
    if (plan_check(p, err) == 0)
        return p;
    plan_destroy(p);
    return NULL;
}

/* ---- steps -------------------------------------------------------------------------------- */

static int add_buffer(struct decode_list *l, int64_t elems, enum dtype dtype) {
    arr_push(&l->buffers, (struct decode_buffer){
                              .elems = elems, .dtype = dtype, .param = -1, .cache = -1});
    return (int)l->buffers.n - 1;
}

static int add_cache(struct decode_list *l, int64_t elems, enum dtype dtype) {
    int b = add_buffer(l, elems, dtype);
    l->buffers.p[b].cache = l->n_caches++;
    return b;
}

static struct decode_step *add_step(struct decode_list *l, enum decode_kind kind,
                                    const struct instr *ins) {
    arr_push(&l->steps, (struct decode_step){.kind = kind, .ins = *ins});
    return &arr_last(&l->steps);
}

/* A copy of a device's part to its place, or a part of it. */
static void add_copy(struct decode_list *l, enum decode_kind kind, const struct instr *of,
                     int x, int y, struct decode_copy copy) {
    struct instr ins = instr_init(I_copy);
    ins.op = of->op;
    ins.dtype = l->buffers.p[x].dtype;
    ins.in.copy.x = x;
    ins.out.copy.y = y;
    ins.n.copy.inner = copy.size[2];
    ins.n.copy.elems = copy.size[0] * copy.size[1] * copy.size[2];
    struct decode_step *s = add_step(l, kind, &ins);
    s->copy = copy;
    s->copies = true;
}

/* Is it how the parts that were gathered into `apart` are woven together? */
static bool weaves(const struct instr *i, int apart, int64_t parts) {
    return i->code == I_copy && i->in.copy.x == apart && i->copy.rank == 3 &&
           i->copy.size[0] == parts;
}

/* The parts of all devices, woven together or not: [before][device][row]. Returns how many
 * instructions it takes. */
static int keep(struct decode_list *l, const struct instr *i, const struct instr *end) {
    const int64_t parts = i->n.all_gather.parts;
    const bool woven = i + 1 < end && weaves(i + 1, i->out.all_gather.y, parts);
    const int64_t before = woven ? i[1].copy.size[1] : 1;
    const int64_t row = i->n.all_gather.elems / parts / before;
    const int y = woven ? i[1].out.copy.y : i->out.all_gather.y;
    l->buffers.p[y].cache = l->n_caches++;
    add_copy(l, DECODE_KEEP, i, i->in.all_gather.x, y,
             (struct decode_copy){.size = {1, before, row},
                                  .src = {0, row, 1},
                                  .dst = {0, parts * row, 1},
                                  .dst_step = row});
    return woven ? 2 : 1;
}

/* Of n positions [b, n, 3, width] one of the three, as [b, of, width]. */
static struct decode_copy third(const struct attention_n *n, int64_t positions, int which,
                                int64_t of) {
    const int64_t width = n->heads * n->dim;
    return (struct decode_copy){.size = {n->batch, positions, width},
                                .src = {positions * 3 * width, 3 * width, 1},
                                .dst = {of * width, width, 1},
                                .src_offset = which * width,
                                .dst_step = of > positions ? positions * width : 0};
}

/* Where the documents of a device's own queries start, read once more, or -1. */
static int own_starts(struct decode_list *l, const struct instr *attention) {
    const int whole = attention->in.attention.starts;
    for (int64_t i = 0; i < l->steps.n && whole >= 0; i++) {
        if (l->steps.p[i].kind != DECODE_INPUT || l->steps.p[i].ins.out.input.y != whole)
            continue;
        struct instr input = l->steps.p[i].ins;
        input.out.input.y = add_buffer(l, l->buffers.p[whole].elems / l->devices,
                                       l->buffers.p[whole].dtype);
        add_step(l, DECODE_INPUT, &input);
        return input.out.input.y;
    }
    return whole;
}

/* Attention over queries, keys and values in one tensor needs all of it on every device, since
 * queries lie between the keys; here they are taken apart, and each device has its own queries.
 * The step that kept them all in one goes. */
static void unpack(struct decode_list *l, const struct instr *attention, int packed) {
    const struct attention_n n = attention->n.attention;
    const int64_t all = n.batch * n.seq * n.heads * n.dim, own = all / l->devices;
    const enum dtype dtype = l->buffers.p[packed].dtype;
    int k = l->n_caches - 1;
    struct instr gather = arr_last(&l->steps).ins;
    const int x = gather.in.copy.x;
    l->steps.n--;
    l->buffers.p[packed].cache = -1;
    l->n_caches = k;
    k = add_cache(l, all, dtype);
    const int v = add_cache(l, all, dtype), q = add_buffer(l, own, dtype);
    add_copy(l, DECODE_KEEP, attention, x, k, third(&n, l->positions, 1, n.seq));
    add_copy(l, DECODE_KEEP, attention, x, v, third(&n, l->positions, 2, n.seq));
    add_copy(l, DECODE_LAUNCH, attention, x, q, third(&n, l->positions, 0, l->positions));
    const int starts = own_starts(l, attention);
    struct decode_step *s = add_step(l, DECODE_LAUNCH, attention);
    s->at_rank = true;
    s->ins.in.attention.starts = starts;
    s->ins.n.attention.packed = 0;
    s->ins.n.attention.seq = l->positions;
    s->ins.in.attention.q = q;
    s->ins.in.attention.k = k;
    s->ins.in.attention.v = v;
}

/* Was the buffer just kept, by the last step? */
static bool just_kept(const struct decode_list *l, int buffer) {
    return l->steps.n && arr_last(&l->steps).kind == DECODE_KEEP &&
           arr_last(&l->steps).ins.out.copy.y == buffer;
}

/* The instruction that a device's slice of what it has whole is taken by. */
static bool is_slice(const struct instr *i) {
    return i->code == I_copy && i->axes && i->copy.src_step;
}

/* Takes in the instructions from i on. Returns how many, or -1. */
static int take(struct decode_list *l, const struct instr *i, const struct instr *end,
                struct err *err) {
    if (i->code == I_all_gather)
        return keep(l, i, end);
    if (i->code == I_input) {
        add_step(l, DECODE_INPUT, i);
        return 1;
    }
    if (i->code == I_attention && i->n.attention.packed &&
        just_kept(l, i->in.attention.q) && i + 1 < end && is_slice(i + 1) &&
        i[1].in.copy.x == i->out.attention.o) {
        unpack(l, i, i->in.attention.q);
        arr_last(&l->steps).ins.out.attention.o = i[1].out.copy.y;
        return 2;
    }
    if (opcode_key(i->code) == KEY_COMM || opcode_key(i->code) == KEY_P2P)
        return err_input(err, "%s: its positions are not computed one after the other (%s)",
                         i->op >= 0 ? l->plan->model->ops[i->op].name : "model",
                         opcode_name(i->code));
    add_step(l, DECODE_LAUNCH, i);
    return 1;
}

static int take_all(struct decode_list *l, struct err *err) {
    const struct stage_program *sp = l->g->stages;
    const struct span span = program_segment(sp, SEG_FORWARD);
    const struct instr *i = sp->instrs + span.first, *end = sp->instrs + span.end;
    for (int b = 0; b < sp->n_buffers; b++)
        add_buffer(l, sp->buffers[b].elems, sp->buffers[b].dtype);
    for (int p = 0; p < sp->n_params; p++)
        l->buffers.p[sp->params[p].buffer].param = p;
    for (int n; i < end; i += n) {
        if (i->code == I_cross_entropy)
            l->logits = i->in.cross_entropy.logits;
        if ((n = take(l, i, end, err)) < 0)
            return -1;
    }
    if (l->logits < 0)
        return err_input(err, "model %s: no cross-entropy says which are the logits",
                         l->plan->model->name);
    return 0;
}

/* ---- what is needed, and when ------------------------------------------------------------- */

/* Drops what leads neither to the logits nor, where `fills`, to the caches. */
static void prune(struct decode_list *l, bool fills) {
    bool *wanted = mem_array((size_t)l->buffers.n, sizeof *wanted);
    int64_t n = 0;
    if (!fills)
        wanted[l->logits] = true;
    for (int64_t i = l->steps.n - 1; i >= 0; i--) {
        struct decode_step *s = &l->steps.p[i];
        const struct instr_info *info = instr_info(s->ins.code);
        s->needed = fills && s->kind == DECODE_KEEP;
        for (int k = 0; k < info->n_out; k++)
            s->needed |= s->ins.out.v[k] >= 0 && wanted[s->ins.out.v[k]];
        for (int k = 0; s->needed && k < info->n_in; k++)
            if (s->ins.in.v[k] >= 0)
                wanted[s->ins.in.v[k]] = true;
    }
    for (int64_t i = 0; i < l->steps.n; i++)
        if (l->steps.p[i].needed)
            l->steps.p[n++] = l->steps.p[i];
    l->steps.n = n;
    free(wanted);
}

/* Caches in the order in which they are kept: the same in all programs of a model. */
static void number_caches(struct decode_list *l) {
    l->n_caches = 0;
    for (int64_t i = 0; i < l->steps.n; i++)
        if (l->steps.p[i].kind == DECODE_KEEP)
            l->buffers.p[l->steps.p[i].ins.out.copy.y].cache = l->n_caches++;
}

static bool follows_tokens(const struct decode_list *l, const struct decode_step *s) {
    const struct instr_info *info = instr_info(s->ins.code);
    bool stepped = s->kind == DECODE_KEEP || is_slice(&s->ins);
    if (s->kind == DECODE_INPUT) {
        enum data_source source = l->plan->model->tensors[s->ins.tensor].source;
        return source == DATA_TOKEN || source == DATA_SHIFTED_TARGET ||
               source == DATA_DOCUMENT_START || source == DATA_DOCUMENT_POSITION;
    }
    for (int k = 0; k < info->n_in; k++)
        stepped |= s->ins.in.v[k] >= 0 && l->buffers.p[s->ins.in.v[k]].stepped;
    return stepped;
}

/* Marks what depends on the tokens, and puts the rest in front: it is done once. */
static void part(struct decode_list *l) {
    struct decode_step *sorted = mem_array((size_t)l->steps.n + 1, sizeof *sorted);
    int64_t n = 0;
    for (int64_t i = 0; i < l->steps.n; i++) {
        struct decode_step *s = &l->steps.p[i];
        const struct instr_info *info = instr_info(s->ins.code);
        s->stepped = follows_tokens(l, s);
        for (int k = 0; k < info->n_out; k++)
            if (s->ins.out.v[k] >= 0)
                l->buffers.p[s->ins.out.v[k]].stepped |= s->stepped;
    }
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < l->steps.n; i++)
            if (l->steps.p[i].stepped == (pass == 1))
                sorted[n++] = l->steps.p[i];
    memcpy(l->steps.p, sorted, (size_t)n * sizeof *sorted);
    free(sorted);
}

/* ---- memory ------------------------------------------------------------------------------- */

struct hole {
    int64_t offset, bytes;
};
struct holes {
    ARR(struct hole) free;
};

/* From which step to which a buffer is alive. What is made once and read for every position stays. */
static void find_lives(struct decode_list *l) {
    for (int64_t b = 0; b < l->buffers.n; b++)
        l->buffers.p[b].first = l->buffers.p[b].last = -1;
    for (int64_t i = 0; i < l->steps.n; i++) {
        int touched[INSTR_MAX_BUFFERS], n = instr_buffers(&l->steps.p[i].ins, touched);
        for (int k = 0; k < n; k++) {
            struct decode_buffer *b = &l->buffers.p[touched[k]];
            b->first = b->last < 0 ? (int)i : b->first;
            b->last = l->steps.p[i].stepped && !b->stepped ? (int)l->steps.n : (int)i;
        }
    }
    if (l->logits >= 0)
        l->buffers.p[l->logits].last = (int)l->steps.n;
}

static bool in_scratch(const struct decode_buffer *b) {
    return b->param < 0 && b->cache < 0 && b->last >= 0;
}

/* The first hole that is large enough, or new memory. */
static int64_t find_place(struct decode_list *l, struct holes *h, int64_t bytes) {
    for (int64_t i = 0; i < h->free.n; i++) {
        struct hole *x = &h->free.p[i];
        if (x->bytes < bytes)
            continue;
        int64_t at = x->offset;
        x->offset += bytes;
        x->bytes -= bytes;
        return at;
    }
    int64_t at = l->scratch;
    l->scratch += bytes;
    return at;
}

/* Buffers take the place of those that nobody reads any more. */
static void place(struct decode_list *l) {
    struct holes holes = {.free = {0}};
    find_lives(l);
    for (int i = 0; i < (int)l->steps.n; i++) {
        int touched[INSTR_MAX_BUFFERS], n = instr_buffers(&l->steps.p[i].ins, touched);
        for (int k = 0; k < n; k++) {
            struct decode_buffer *b = &l->buffers.p[touched[k]];
            if (in_scratch(b) && b->first == i)
                b->offset =
                    find_place(l, &holes, memory_aligned(dtype_size(b->dtype) * b->elems));
        }
        for (int k = 0; k < n; k++) {
            const struct decode_buffer *b = &l->buffers.p[touched[k]];
            struct hole left = {b->offset, memory_aligned(dtype_size(b->dtype) * b->elems)};
            if (in_scratch(b) && b->last == i)
                arr_push(&holes.free, left);
        }
    }
    arr_release(&holes.free);
}

/* ---- all of it ---------------------------------------------------------------------------- */

/* Parameters that are split lie in rows, one device's behind the other's. */
static int check_params(const struct decode_list *l, struct err *err) {
    const struct stage_program *sp = l->g->stages;
    for (int p = 0; p < sp->n_params; p++)
        if (sp->params[p].place.at[0] > 0)
            return err_input(err, "%s: is split along a dim that is not its first",
                             l->plan->model->params[sp->params[p].param].name);
    return 0;
}

int decode_list_make(struct decode_list *l, struct model *m,
                     const struct decoder_options *o, int dim, int64_t positions,
                     bool fills, struct err *err) {
    *l = (struct decode_list){
        .logits = -1, .positions = positions, .devices = m->dims[dim].size / positions};
    if (!(l->plan = make_plan(m, o, dim, l->devices, err)) ||
        !(l->g = program_compile_until(l->plan, PASS_forward, err)) ||
        check_params(l, err) < 0 || take_all(l, err) < 0)
        return -1;
    l->x.g = l->g;
    prune(l, false);
    if (fills)
        prune(l, true);
    number_caches(l);
    part(l);
    l->logits = fills ? -1 : l->logits;
    place(l);
    return 0;
}

void decode_list_release(struct decode_list *l) {
    arr_release(&l->steps);
    arr_release(&l->buffers);
    program_destroy(l->g);
    plan_destroy(l->plan);
}
