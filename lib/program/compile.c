/* The compiler's driver: stages one by one through the passes, then the transfers between them. */
#include "program/emit/transfers.h"
#include "program/link.h"
#include "program/lower/lower.h"
#include "program/passes/pass.h"

#include <stdlib.h>
#include <string.h>

/* Replicas of a parameter train apart only along axes that all its ops agree on. Those of
 * running statistics never do, as these are sums over all samples. */
static void survey_apart(struct emit *e, int param, int i) {
    const struct model_param *p = &e->m->params[param];
    const int axes = p->frozen || p->running ? 0 : (int)plan_apart_axes(e->plan, e->st, i);
    e->apart[param] = e->apart[param] < 0 || e->apart[param] == axes ? axes : 0;
}

/* The first reader of each tensor in the stage, and what each parameter's first op says. */
static void survey_ops(struct emit *e) {
    const struct model *m = e->m;
    for (int i = e->st->n_ops - 1; i >= 0; i--) {
        const struct model_op *op = &m->ops[e->st->ops[i]];
        e->op_index[e->st->ops[i]] = i;
        e->offloads |= e->st->offload[i] != 0;
        for (int k = 0; k < op->n_in; k++)
            e->first_use[op->in[k]] = e->st->ops[i];
        for (int k = 0; k < op->n_param; k++)
            if (op->param[k] >= 0) {
                e->zero[op->param[k]] = e->st->zero[i];
                e->offload[op->param[k]] = e->st->offload[i];
                survey_apart(e, op->param[k], i);
            }
    }
}

static void survey_transfers(struct emit *e) {
    for (int i = 0; i < e->n_transfers; i++) {
        /* The gradients of a parameter with copies in other stages are summed at every
         * step. */
        if (e->transfers[i].param >= 0)
            e->apart[e->transfers[i].param] = 0;
        if (e->transfers[i].to == e->stage)
            arr_push(&e->arrivals, (struct arrival){.transfer = i});
        if (e->transfers[i].from == e->stage)
            arr_push(&e->departures, i);
    }
}

/* Takes n ints of the tables, which start as -1 everywhere. */
static int *carve(int **tables, int64_t n) {
    int *p = *tables;
    *tables += n;
    return p;
}

/* The tables are one allocation: that of the stage before, if it is large enough. */
static void make_tables(struct emit *e) {
    int64_t tensors = e->m->n_tensors, params = e->m->n_params, ops = e->st->n_ops;
    int64_t gathered = (int64_t)2 * KIND_MAX_SLOTS * ops;
    size_t n = (size_t)(4 * tensors + 3 * params + e->m->n_ops + 3 * ops + gathered);
    size_t bytes = n * sizeof *e->tables + 2 * (size_t)params;
    if (bytes > e->tables_bytes) {
        free(e->tables);
        e->tables = mem_grow(NULL, bytes, 1);
        e->tables_bytes = bytes;
    }
    int *at = e->tables;
    memset(at, -1, n * sizeof *at);
    e->forward = carve(&at, tensors);
    e->backward = carve(&at, tensors);
    e->gradient = carve(&at, tensors);
    e->first_use = carve(&at, tensors);
    e->param_of = carve(&at, params);
    e->grad_of = carve(&at, params);
    e->apart = carve(&at, params);
    e->op_index = carve(&at, e->m->n_ops);
    e->saved = carve(&at, 2 * ops);
    e->early = carve(&at, ops);
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

/* Begins another stage in the memory of the one before. */
static void emit_begin(struct emit *e, const struct plan *plan, int stage,
                       struct transfer_list *transfers, const int64_t slots[POOL_COUNT]) {
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
                       .lower = lower_forward,
                       .tables = was.tables,
                       .tables_bytes = was.tables_bytes};
#define KEEP(list) e->list = was.list, e->list.n = 0
    KEEP(instrs), KEEP(buffers), KEEP(params), KEEP(grads), KEEP(states), KEEP(avails);
    KEEP(lives), KEEP(whole_gradients), KEEP(arrivals), KEEP(departures);
#undef KEEP
    memcpy(e->slots, slots, sizeof e->slots);
    make_tables(e);
    reserve(e);
    survey_ops(e);
    survey_transfers(e);
}

/* Frees what is not handed out. */
static void emit_release(struct emit *e) {
    arr_release(&e->avails);
    arr_release(&e->lives);
    arr_release(&e->arrivals);
    arr_release(&e->departures);
    arr_release(&e->whole_gradients);
    free(e->tables);
}

/* The type of an instruction: that of an operand for which the table leaves it open, or
 * f32. */
static enum dtype type_of(const struct emit *e, const struct instr *ins) {
    const struct instr_info *info = instr_info(ins->code);
    for (int k = 0; k < info->n_in; k++)
        if (ins->in.v[k] >= 0 && operand_typed(&info->in[k]))
            return e->buffers.p[ins->in.v[k]].dtype;
    for (int k = 0; k < info->n_out; k++)
        if (ins->out.v[k] >= 0 && operand_typed(&info->out[k]))
            return e->buffers.p[ins->out.v[k]].dtype;
    return DTYPE_f32;
}

/* Gives instructions their types, and hands out the lists without copying them. */
static void finish(struct emit *e) {
    struct stage_program *out = e->out;
    for (int64_t i = 0; i < e->instrs.n; i++)
        e->instrs.p[i].dtype = type_of(e, &e->instrs.p[i]);
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

/* Leaves the lists to the stage program. */
static void give_away(struct emit *e) {
#define GIVE(list) e->list.p = NULL, e->list.n = e->list.cap = 0
    GIVE(instrs), GIVE(buffers), GIVE(params), GIVE(grads), GIVE(states);
#undef GIVE
}

static void run_passes(struct emit *e, enum pass last) {
    for (enum pass pass = 0; pass <= last; pass++)
        switch (pass) {
#define X(name, when, about)                                                               \
    case PASS_##name:                                                                      \
        if (when)                                                                          \
            pass_##name(e);                                                                \
        break;
            PASSES(X)
#undef X
        case PASS_COUNT: break;
        }
}

static void compile_stage(struct emit *e, const struct plan *plan, int stage,
                          struct transfer_list *transfers, const int64_t slots[POOL_COUNT],
                          enum pass last, struct stage_program *out) {
    *out = (struct stage_program){.stage = stage, .mesh = &plan->stages[stage].mesh};
    emit_begin(e, plan, stage, transfers, slots);
    e->out = out;
    run_passes(e, last);
    finish(e);
}

void stage_program_release(struct stage_program *sp) {
    free(sp->instrs);
    free(sp->buffers);
    free(sp->params);
    free(sp->grads);
    free(sp->states);
    *sp = (struct stage_program){0};
}

struct compiler {
    struct emit emit;
    struct transfer_list transfers;
};

/* The transfers that touch one stage are cheap to list, and what the other end does with them
 * does not change this stage's instructions. */
void stage_compile(struct compile_scratch *scratch, const struct plan *plan, int stage,
                   bool apart, struct stage_program *out) {
    const int64_t slots[POOL_COUNT] = {1, 1, apart};
    if (!scratch->compiler)
        scratch->compiler = mem_alloc(sizeof *scratch->compiler);
    struct compiler *c = scratch->compiler;
    transfers_list(plan, &c->transfers);
    compile_stage(&c->emit, plan, stage, &c->transfers, slots, PASS_COUNT - 1, out);
}

void compile_scratch_release(struct compile_scratch *scratch) {
    struct compiler *c = scratch->compiler;
    if (c) {
        arr_release(&c->transfers.all);
        arr_release(&c->emit.instrs);
        arr_release(&c->emit.buffers);
        arr_release(&c->emit.params);
        arr_release(&c->emit.grads);
        arr_release(&c->emit.states);
        emit_release(&c->emit);
    }
    free(c);
    scratch->compiler = NULL;
}

static int check_sizes(const struct program *g, struct err *err) {
    for (int s = 0; s < g->n_stages; s++)
        for (int c = 0; c < MEM_COUNT; c++)
            if (g->stages[s].bytes[c] < 0 || g->stages[s].bytes[c] > (int64_t)1 << 56)
                return err_input(err, "stages[%d]: the memory of one device overflows", s);
    return 0;
}

static void compile_stages(struct program *g, enum pass last) {
    struct transfer_list transfers = {0};
    struct emit e = {0};
    transfers_list(g->plan, &transfers);
    g->transfers = transfers.all.p;
    g->n_transfers = (int)transfers.all.n;
    for (int s = 0; s < g->n_stages; s++) {
        int64_t slots[POOL_COUNT];
        schedule_slots(g->plan, s, slots);
        compile_stage(&e, g->plan, s, &transfers, slots, last, &g->stages[s]);
        give_away(&e);
    }
    emit_release(&e);
}

struct program *program_compile_until(const struct plan *plan, enum pass last,
                                      struct err *err) {
    struct program *g = mem_alloc(sizeof *g);
    g->plan = plan;
    g->n_stages = plan->n_stages;
    g->stages = mem_array((size_t)g->n_stages, sizeof *g->stages);
    compile_stages(g, last);
    if (last >= PASS_memory) {
        arenas_place(g);
        transfers_place(g);
    }
    if (check_sizes(g, err) < 0) {
        program_destroy(g);
        return NULL;
    }
    return g;
}

struct program *program_compile(const struct plan *plan, struct err *err) {
    return program_compile_until(plan, PASS_COUNT - 1, err);
}

static const struct {
    const char *name, *about;
} passes[] = {
#define X(name, when, about) {#name, about},
    PASSES(X)
#undef X
};

const char *pass_name(enum pass pass) {
    return passes[pass].name;
}

const char *pass_about(enum pass pass) {
    return passes[pass].about;
}

int pass_find(const char *name) {
    for (int i = 0; i < PASS_COUNT; i++)
        if (!strcmp(passes[i].name, name))
            return i;
    return -1;
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
