/* The compiler's driver: stages one by one, then the transfers between them. */
#include "program/emit.h"

#include <stdlib.h>
#include <string.h>

/* The first reader of each tensor in the stage, and what the first op says of each parameter. */
static void survey_ops(struct emit *e) {
    const struct model *m = e->m;
    for (int i = e->st->n_ops - 1; i >= 0; i--) {
        const struct model_op *op = &m->ops[e->st->ops[i]];
        e->op_index[e->st->ops[i]] = i;
        for (int k = 0; k < op->n_in; k++)
            e->first_use[op->in[k]] = e->st->ops[i];
        for (int k = 0; k < op->n_param; k++)
            if (op->param[k] >= 0) {
                e->zero[op->param[k]] = e->st->zero[i];
                e->offload[op->param[k]] = e->st->offload[i];
            }
    }
}

static void survey_transfers(struct emit *e) {
    for (int i = 0; i < e->n_transfers; i++) {
        if (e->transfers[i].to == e->stage)
            arr_push(&e->arrivals, (struct arrival){.transfer = i});
        if (e->transfers[i].from == e->stage)
            arr_push(&e->departures, i);
    }
}

/* So many ints of the room, which starts with -1 everywhere. */
static int *carve(int **room, int64_t n) {
    int *p = *room;
    *room += n;
    return p;
}

/* The tables are one allocation, and that of the stage before where it is large enough. */
static void make_tables(struct emit *e) {
    int64_t tensors = e->m->n_tensors, params = e->m->n_params, ops = e->st->n_ops;
    int64_t gathered = (int64_t)2 * KIND_MAX_SLOTS * ops;
    size_t n = (size_t)(4 * tensors + 2 * params + e->m->n_ops + 2 * ops + gathered);
    size_t bytes = n * sizeof *e->tables + 2 * (size_t)params;
    if (bytes > e->room) {
        free(e->tables);
        e->tables = mem_grow(NULL, bytes, 1);
        e->room = bytes;
    }
    int *at = e->tables;
    memset(at, -1, n * sizeof *at);
    e->forward = carve(&at, tensors);
    e->backward = carve(&at, tensors);
    e->gradient = carve(&at, tensors);
    e->first_use = carve(&at, tensors);
    e->param_of = carve(&at, params);
    e->grad_of = carve(&at, params);
    e->op_index = carve(&at, e->m->n_ops);
    e->aux = carve(&at, 2 * ops);
    e->gathered = carve(&at, gathered);
    e->zero = memset(at, 0, 2 * (size_t)params);
    e->offload = e->zero + params;
}

static void reserve(struct emit *e) {
    enum { INSTRS = 64, BUFFERS = 64 };
    if (!e->instrs.cap)
        e->instrs.p = mem_grow(NULL, e->instrs.cap = INSTRS, sizeof *e->instrs.p);
    if (!e->buffers.cap)
        e->buffers.p = mem_grow(NULL, e->buffers.cap = BUFFERS, sizeof *e->buffers.p);
}

/* Another stage, in the room of the one before. */
static void emit_begin(struct emit *e, const struct plan *plan, int stage,
                       struct transfer_list *transfers) {
    struct emit was = *e;
    *e = (struct emit){.plan = plan,
                       .m = plan->model,
                       .st = &plan->stages[stage],
                       .mesh = &plan->stages[stage].mesh,
                       .stage = stage,
                       .n_losses = model_losses(plan->model),
                       .op = -1,
                       .param = -1,
                       .transfers = transfers->all.p,
                       .n_transfers = (int)transfers->all.n,
                       .tables = was.tables,
                       .room = was.room};
#define KEEP(list) e->list = was.list, e->list.n = 0
    KEEP(instrs), KEEP(buffers), KEEP(params), KEEP(grads), KEEP(states), KEEP(pool);
    KEEP(whole_gradients), KEEP(arrivals), KEEP(departures);
#undef KEEP
    make_tables(e);
    reserve(e);
    survey_ops(e);
    survey_transfers(e);
}

/* What is not handed out. */
static void emit_release(struct emit *e) {
    arr_release(&e->pool);
    arr_release(&e->arrivals);
    arr_release(&e->departures);
    arr_release(&e->whole_gradients);
    free(e->tables);
}

/* What was made, in the room where it is. */
static void finish(struct emit *e, struct stage_program *out) {
    out->n_works = e->n_works;
    out->instrs = e->instrs.p;
    out->n_instrs = (int)e->instrs.n;
    memcpy(out->seg, e->seg_first, sizeof out->seg);
    out->buffers = e->buffers.p;
    out->n_buffers = (int)e->buffers.n;
    out->params = e->params.p;
    out->n_params = (int)e->params.n;
    out->grads = e->grads.p;
    out->n_grads = (int)e->grads.n;
    out->states = e->states.p;
    out->n_states = (int)e->states.n;
}

/* From now on it is the stage program's. */
static void give_away(struct emit *e) {
#define GIVE(list) e->list.p = NULL, e->list.n = e->list.cap = 0
    GIVE(instrs), GIVE(buffers), GIVE(params), GIVE(grads), GIVE(states);
#undef GIVE
}

/* The passes over one stage, in order. */
static void compile_stage(struct emit *e, const struct plan *plan, int stage,
                          struct transfer_list *transfers, const int64_t slots[POOL_COUNT],
                          struct stage_program *out) {
    emit_begin(e, plan, stage, transfers);
    pass_forward(e);
    e->seg_first[SEG_BACKWARD] = (int)e->instrs.n;
    pass_backward(e);
    e->seg_first[SEG_LAST_BACKWARD] = e->seg_first[SEG_WEIGHTS] = (int)e->instrs.n;
    if (slots[POOL_BACKWARD_WEIGHTS])
        pass_split(e);
    if (plan->overlap)
        pass_ahead(e);
    e->seg_first[SEG_LAST_WEIGHTS] = (int)e->instrs.n;
    pass_update(e);
    pass_offload(e);
    *out = (struct stage_program){.stage = stage, .mesh = e->mesh};
    pass_fresh(e);
    pass_memory(e, out, slots);
    if (plan->overlap)
        pass_overlap(e);
    pass_types(e);
    finish(e, out);
}

void stage_program_release(struct stage_program *sp) {
    free(sp->instrs);
    free(sp->buffers);
    free(sp->params);
    free(sp->grads);
    free(sp->states);
    *sp = (struct stage_program){0};
}

struct workshop {
    struct emit emit;
    struct transfer_list transfers;
};

/* The transfers that touch one stage are cheap to list, and what the other end does with them
 * does not change this stage's instructions. */
void stage_compile(struct compile_room *room, const struct plan *plan, int stage,
                   bool apart, struct stage_program *out) {
    const int64_t slots[POOL_COUNT] = {1, 1, apart};
    if (!room->shop)
        room->shop = mem_alloc(sizeof *room->shop);
    transfers_list(plan, &room->shop->transfers);
    compile_stage(&room->shop->emit, plan, stage, &room->shop->transfers, slots, out);
}

void compile_room_release(struct compile_room *room) {
    struct workshop *shop = room->shop;
    if (shop) {
        arr_release(&shop->transfers.all);
        arr_release(&shop->emit.instrs);
        arr_release(&shop->emit.buffers);
        arr_release(&shop->emit.params);
        arr_release(&shop->emit.grads);
        arr_release(&shop->emit.states);
        emit_release(&shop->emit);
    }
    free(shop);
    room->shop = NULL;
}

/* ---- the arenas of groups ------------------------------------------------------------------- */

/* Moves the buffers of a class from where they stand in the stage alone. */
static void move_buffers(struct stage_program *sp, enum memory_class mem, int part,
                         int64_t by) {
    for (int i = 0; i < sp->n_buffers; i++)
        if (sp->buffers[i].mem == mem && !sp->buffers[i].host &&
            (part < 0 || sp->buffers[i].part == part))
            sp->buffers[i].offset += by;
}

static void place_on_host(struct program *g, const int *chunk, const int *end) {
    int64_t at = 0;
    for (const int *c = chunk; c < end; c++) {
        struct stage_program *sp = &g->stages[*c];
        for (int i = 0; i < sp->n_buffers; i++)
            sp->buffers[i].offset += sp->buffers[i].host ? at : 0;
        at += sp->own_host;
    }
    for (const int *c = chunk; c < end; c++)
        g->stages[*c].host_bytes = at;
}

/* Chunks share an arena: class by class, one chunk behind the other. Temporaries of micro-batches
 * have the same bytes in all of them, since one computes at a time; those of the step's end live
 * from a chunk's reduce over the others' to its update. */
static void place_chunks(struct program *g, const int *chunk, const int *end) {
    place_on_host(g, chunk, end);
    int64_t bytes[MEM_COUNT] = {0}, at = 0, updates = 0;
    for (int m = 0; m < MEM_temporaries; m++)
        for (const int *c = chunk; c < end; c++) {
            struct stage_program *sp = &g->stages[*c];
            int64_t alone = 0;
            for (int k = 0; k < m; k++)
                alone += sp->own[k];
            move_buffers(sp, (enum memory_class)m, -1, at - alone);
            at += sp->own[m];
            bytes[m] += sp->own[m];
        }
    for (const int *c = chunk; c < end; c++) {
        struct stage_program *sp = &g->stages[*c];
        int64_t alone = sp->scalars - sp->own[MEM_temporaries];
        move_buffers(sp, MEM_temporaries, 0, at - alone);
        move_buffers(sp, MEM_temporaries, 1, at + updates - alone);
        updates += sp->temporaries[1];
        if (bytes[MEM_temporaries] < sp->temporaries[0])
            bytes[MEM_temporaries] = sp->temporaries[0];
    }
    if (bytes[MEM_temporaries] < updates)
        bytes[MEM_temporaries] = updates;
    bytes[MEM_buffers] = g->stages[*chunk].own[MEM_buffers];
    for (const int *c = chunk; c < end; c++) {
        struct stage_program *sp = &g->stages[*c];
        memcpy(sp->bytes, bytes, sizeof bytes);
        sp->scalars = at + bytes[MEM_temporaries];
        sp->per_target = sp->scalars + memory_aligned(sizeof(struct scalars));
        sp->arena_bytes = sp->scalars + bytes[MEM_buffers];
    }
}

static void place_groups(struct program *g) {
    const struct plan *p = g->plan;
    for (int k = 0; k < p->n_groups; k++)
        if (p->first_chunk[k + 1] - p->first_chunk[k] > 1)
            place_chunks(g, p->chunks + p->first_chunk[k],
                         p->chunks + p->first_chunk[k + 1]);
}

/* Room at the end of the arena of the stage's group; returns where. */
static int64_t take_staging(struct program *g, int stage, enum dtype dtype, int64_t elems) {
    const struct plan *p = g->plan;
    int group = p->stages[stage].group;
    int64_t at = g->stages[stage].arena_bytes;
    int64_t bytes = memory_aligned(dtype_size(dtype) * elems);
    for (int i = p->first_chunk[group]; i < p->first_chunk[group + 1]; i++) {
        g->stages[p->chunks[i]].bytes[MEM_buffers] += bytes;
        g->stages[p->chunks[i]].arena_bytes += bytes;
    }
    return at;
}

/* Both ends of every transfer: its pieces, then its staging, at the end of either arena. */
void transfers_place(struct program *g) {
    transfers_depth(g);
    for (int i = 0; i < g->n_transfers; i++) {
        struct transfer *t = &g->transfers[i];
        transfer_link(g, t);
        t->send_offset = take_staging(g, t->from, t->dtype, t->depth * t->send_staging);
        t->recv_offset = take_staging(g, t->to, t->dtype, t->recv_staging);
    }
}

static int check_sizes(const struct program *g, struct err *err) {
    for (int s = 0; s < g->n_stages; s++)
        for (int c = 0; c < MEM_COUNT; c++)
            if (g->stages[s].bytes[c] < 0 || g->stages[s].bytes[c] > (int64_t)1 << 56)
                return err_input(err, "stages[%d]: the memory of one device overflows", s);
    return 0;
}

struct program *program_compile(const struct plan *plan, struct err *err) {
    struct program *g = mem_alloc(sizeof *g);
    g->plan = plan;
    g->n_stages = plan->n_stages;
    g->stages = mem_array((size_t)g->n_stages, sizeof *g->stages);
    struct transfer_list transfers = {0};
    struct emit e = {0};
    transfers_list(plan, &transfers);
    g->transfers = transfers.all.p;
    g->n_transfers = (int)transfers.all.n;
    for (int s = 0; s < g->n_stages; s++) {
        int64_t slots[POOL_COUNT];
        schedule_slots(plan, s, slots);
        compile_stage(&e, plan, s, &transfers, slots, &g->stages[s]);
        give_away(&e);
    }
    emit_release(&e);
    place_groups(g);
    transfers_place(g);
    if (check_sizes(g, err) < 0) {
        program_destroy(g);
        return NULL;
    }
    return g;
}

void program_destroy(struct program *g) {
    if (!g)
        return;
    for (int s = 0; s < g->n_stages; s++)
        stage_program_release(&g->stages[s]);
    free(g->stages);
    free(g->transfers);
    free(g);
}

int64_t program_loss_terms(const struct program *g, int op) {
    const struct model *m = g->plan->model;
    const struct shape *targets = &m->tensors[op_targets(&m->ops[op])].shape;
    struct extents x = model_extents(m, targets, g->plan->batch);
    return extents_count(&x);
}

static const struct {
    const char *name;
    enum kind_id kind;
} metrics[] = {
#define X(id, kind) {#id, kind},
    METRICS(X)
#undef X
};

const char *metric_name(enum metric i) {
    return metrics[i].name;
}

int metric_ops(const struct model *m, enum metric i) {
    int n = 0;
    for (int k = 0; k < m->n_ops; k++)
        n += m->ops[k].kind == metrics[i].kind;
    return n;
}

/* ---- one rank ---------------------------------------------------------------------------- */

/* Groups have their ranks one after the other. */
int program_group_of_rank(const struct program *g, int rank) {
    const struct plan *p = g->plan;
    int lo = 0, hi = p->n_groups;
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        if (p->stages[p->chunks[p->first_chunk[mid]]].first_rank <= rank)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

struct rank_program program_for_rank(const struct program *g, int stage, int rank) {
    struct rank_program r = {.g = g, .sp = &g->stages[stage], .rank = rank, .stage = stage};
    mesh_coords(r.sp->mesh, rank - g->plan->stages[stage].first_rank, r.coord);
    return r;
}

struct span program_segment(const struct stage_program *sp, enum segment s) {
    bool last = s == SEG_LAST_BACKWARD || s == SEG_LAST_WEIGHTS;
    if (last && sp->seg[s] == sp->seg[s + 1])
        s--;
    return (struct span){sp->seg[s], sp->seg[s + 1]};
}

int64_t buffer_offset(const struct stage_program *sp, int buffer, int64_t index) {
    const struct buffer *b = &sp->buffers[buffer];
    if (b->mem != MEM_activations)
        return b->offset;
    const struct pool_slots *s = &sp->slots[b->part];
    return b->offset + index % s->n * (b->host ? s->host_bytes : s->bytes);
}

bool rank_is_first(const struct rank_program *r, unsigned axes) {
    for (int a = 0; a < r->sp->mesh->n_axes; a++)
        if ((axes >> a & 1) && r->coord[a])
            return false;
    return true;
}
