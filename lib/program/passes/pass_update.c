/* The update of a step: gradients are reduced, tied copies summed at the parameter's home, the
 * norm taken, the optimizer applied to each rank's share, and the new values passed on. */
#include "program/emit/params.h"
#include "program/emit/transfers.h"
#include "program/passes/pass.h"
#include "program/scalars.h"

#include <stdlib.h>

/* Where the optimizer works: in the home's placement, or in the rank's share of it. */
static struct placement update_place(const struct emit *e, const struct param_instance *p) {
    return param_share(e, p->param, p->place, ZERO_OPTIMIZER);
}

/* The sum of this stage's gradients of a parameter under `want`, or -1 if it has none. */
static int sum_gradients(struct emit *e, int param, struct placement want) {
    const struct shape *s = &e->m->params[param].shape;
    int total = -1;
    for (int64_t i = e->grad_of[param]; i >= 0 && i < e->grads.n; i++) {
        if (e->grads.p[i].param != param)
            continue;
        int g = grad_convert(e, param, e->grads.p[i].buffer, e->grads.p[i].place, want,
                             e->grads.p[i].data);
        total = total < 0 ? g : emit_add(e, total, g, emit_elements(e, s, want));
        if (!e->m->params[param].tied)
            break; /* used once, so there are no more */
    }
    return total;
}

/* Emits an instruction over a rank's elements of a parameter, its first number. */
static struct instr *param_instr(struct emit *e, enum opcode code, int param,
                                 struct placement place) {
    struct instr *i = emit_instr(e, code);
    i->param = param;
    i->place = place;
    i->n.v[0] = emit_elements(e, &e->m->params[param].shape, place);
    return i;
}

/* Emits one that reads a gradient; of a replica that trains apart, that of its own
 * samples. */
static struct instr *grad_instr(struct emit *e, enum opcode code, int param,
                                struct placement place) {
    struct instr *i = param_instr(e, code, param, place);
    const unsigned apart = param_apart(e, param);
    i->replicas = apart ? mesh_group_size(e->mesh, apart) : 0;
    return i;
}

static void send_param(struct emit *e, int param, bool gradient, int to,
                       struct placement place, int buffer) {
    struct instr *i = param_instr(e, I_send, param, place);
    i->in.send.x = buffer;
    i->transfer = transfer_find(e, -1, param, gradient, e->stage, to);
    if (i->transfer >= 0)
        e->transfers[i->transfer].from_place = place;
}

static int recv_param(struct emit *e, int param, bool gradient, int from,
                      struct placement place) {
    int buffer =
        emit_buffer(e, emit_elements(e, &e->m->params[param].shape, place),
                    gradient ? DTYPE_f32 : emit_param_dtype(e, param), MEM_temporaries);
    struct instr *i = param_instr(e, I_recv, param, place);
    i->out.recv.y = buffer;
    i->transfer = transfer_find(e, -1, param, gradient, from, e->stage);
    if (i->transfer >= 0)
        e->transfers[i->transfer].to_place = place;
    return buffer;
}

static int home_stage(const struct emit *e, int param) {
    return e->plan->stage_of[e->m->params[param].first_op];
}

/* The gradient of a home parameter, complete, under the placement of its update. */
static int finished_gradient(struct emit *e, const struct param_instance *p,
                             struct placement place) {
    int param = p->param, total = sum_gradients(e, param, place);
    for (int64_t i = 0; i < e->arrivals.n; i++) {
        const struct transfer *t = &e->transfers[e->arrivals.p[i].transfer];
        if (t->param == param && t->gradient) {
            /* added to the sum itself, so each message is gone before the next one comes */
            int g = recv_param(e, param, true, t->from, place);
            struct instr *add = param_instr(e, I_add, param, place);
            add->in.add.a = total;
            add->in.add.b = g;
            add->out.add.y = total;
        }
    }
    return total;
}

/* Sends the gradient of a copy to the parameter's home in another stage. */
static void send_away(struct emit *e, const struct param_instance *p) {
    struct extents sizes = emit_extents(e, &e->m->params[p->param].shape);
    const struct grad_instance *g = &e->grads.p[e->grad_of[p->param]];
    struct placement place = placement_resolve(e->mesh, &sizes, g->place);
    send_param(e, p->param, true, home_stage(e, p->param), place,
               sum_gradients(e, p->param, place));
}

/* A running statistic is no weight: it is not in the norm, and has no state. */
static bool is_running(const struct emit *e, int param) {
    return e->m->params[param].running;
}

/* Where replicas train apart, the norm is the root of the mean of their squared norms. */
static void count_norm(struct emit *e, int param, struct placement place, int gradient) {
    struct instr *i = grad_instr(e, I_sum_squares, param, place);
    i->in.sum_squares.g = gradient;
    i->axes = placement_axes(e->mesh, place, PLACE_REPLICATE);
}

static int state_new(struct emit *e, int param, int which, struct placement place) {
    int64_t n = emit_elements(e, &e->m->params[param].shape, place);
    int buffer = emit_buffer(e, n, DTYPE_f32, MEM_optimizer);
    arr_push(&e->states, (struct state_instance){param, which, place, buffer});
    return buffer;
}

/* Makes the matrices of a parameter's momentum orthogonal; returns them under the same
 * placement. Every rank that has a part of a matrix works out all of it. */
static int orthogonalize(struct emit *e, int param, struct placement place, int momentum) {
    const struct model_param *p = &e->m->params[param];
    const struct placement whole = placement_matrices(p, place);
    int u = emit_convert(e, &p->shape, momentum, place, whole, -1);
    const struct extents all = emit_extents(e, &p->shape);
    struct extents x = all;
    for (int i = 0; i < x.rank; i++)
        x.size[i] = placement_size(e->mesh, &all, whole, i);
    const struct matrix_sizes n = model_matrix_sizes(p, &x);
    union instr_n shape = {.orthogonalize = {n.outer, n.rows, n.inner, n.columns, 0}};
    struct instr_work w;
    instr_work(I_orthogonalize, &shape, &w);
    int o = emit_buffer(e, w.out[0], DTYPE_f32, MEM_temporaries);
    int scratch = emit_buffer(e, w.out[1], DTYPE_f32, MEM_temporaries);
    struct instr *i = param_instr(e, I_orthogonalize, param, whole);
    i->n = shape;
    i->in.orthogonalize.u = u;
    i->out.orthogonalize.o = o;
    i->out.orthogonalize.scratch = scratch;
    return emit_convert(e, &p->shape, o, whole, place, -1);
}

static void descend_matrices(struct emit *e, int param, struct placement place, int value,
                             int gradient) {
    int m = state_new(e, param, STATE_FIRST, place);
    int u = emit_buffer(e, e->buffers.p[m].elems, DTYPE_f32, MEM_temporaries);
    struct instr *i = grad_instr(e, I_momentum, param, place);
    i->in.momentum.g = gradient;
    i->out.momentum.u = u;
    i->out.momentum.m = m;
    int o = orthogonalize(e, param, place, u);
    i = param_instr(e, I_muon, param, place);
    i->in.muon.o = o;
    i->out.muon.p = value;
}

/* Emits the optimizer's instruction on a share of f32 numbers, with its state. */
static void descend(struct emit *e, int param, struct placement place, int value,
                    int gradient) {
    const enum optimizer by = optimizer_of(e->plan->optimizer, &e->m->params[param]);
    int states[2] = {-1, -1};
    if (by == OPTIMIZER_muon) {
        descend_matrices(e, param, place, value, gradient);
        return;
    }
    for (int k = 0; k < optimizer_states(by); k++)
        states[k] = state_new(e, param, k, place);
    if (by == OPTIMIZER_adamw) {
        struct instr *i = grad_instr(e, I_adamw, param, place);
        i->in.adamw.g = gradient;
        i->out.adamw.p = value;
        i->out.adamw.m = states[0];
        i->out.adamw.v = states[1];
    } else if (by == OPTIMIZER_lion) {
        struct instr *i = grad_instr(e, I_lion, param, place);
        i->in.lion.g = gradient;
        i->out.lion.p = value;
        i->out.lion.m = states[0];
    } else {
        struct instr *i = grad_instr(e, I_sgd, param, place);
        i->in.sgd.g = gradient;
        i->out.sgd.p = value;
        i->out.sgd.b = states[0];
    }
}

/* Updates the master, of which the parameter is the rounding (Micikevicius et al. 2018);
 * returns the rounded share. */
static int descend_master(struct emit *e, const struct param_instance *p,
                          struct placement place, int gradient) {
    int64_t n = emit_elements(e, &e->m->params[p->param].shape, place);
    int master = state_new(e, p->param, STATE_MASTER, place), value = p->buffer;
    if (!placement_equal(place, p->place))
        value = emit_buffer(e, n, e->plan->dtype, MEM_temporaries);
    descend(e, p->param, place, master, gradient);
    emit_cast(e, master, value, n);
    return value;
}

/* Where the parameter is held whole but updated in shares, the rank's share is cut out (or rounded from
 * its master), updated, and the whole gathered into the parameter. */
static void optimize(struct emit *e, const struct param_instance *p, struct placement place,
                     int gradient) {
    const struct shape *s = &e->m->params[p->param].shape;
    bool master = e->buffers.p[p->buffer].dtype != DTYPE_f32;
    int value = master ? descend_master(e, p, place, gradient)
                       : emit_convert(e, s, p->buffer, p->place, place, -1);
    if (is_running(e, p->param)) {
        struct instr *i = param_instr(e, I_running, p->param, place);
        i->in.running.s = gradient;
        i->out.running.p = value;
    } else if (!master) {
        descend(e, p->param, place, value, gradient);
    }
    if (value != p->buffer)
        emit_convert(e, s, value, place, p->place, p->buffer);
}

/* Sends new values to other instances of this stage, and to copies in other stages. */
static void publish(struct emit *e, const struct param_instance *p) {
    const struct shape *s = &e->m->params[p->param].shape;
    for (int64_t i = 0; i < e->params.n && e->m->params[p->param].tied; i++) {
        const struct param_instance *q = &e->params.p[i];
        if (q->param == p->param && !q->home)
            emit_convert(e, s, p->buffer, p->place, q->place, q->buffer);
    }
    for (int64_t i = 0; i < e->departures.n; i++) {
        const struct transfer *t = &e->transfers[e->departures.p[i]];
        if (t->param == p->param && !t->gradient)
            send_param(e, p->param, false, t->to, p->place, p->buffer);
    }
}

/* A copy takes the new value; further instances of the same stage are made from the first. */
static void receive_copy(struct emit *e, const struct param_instance *p) {
    const struct shape *s = &e->m->params[p->param].shape;
    int first = e->param_of[p->param];
    int value = e->params.p[first].buffer;
    if (&e->params.p[first] == p)
        emit_copy(e, recv_param(e, p->param, false, home_stage(e, p->param), p->place),
                  value, emit_elements(e, s, p->place));
    else
        emit_convert(e, s, value, e->params.p[first].place, p->place, p->buffer);
}

/* Parameter instances in the order of their parameters, which both ends of a transfer share. */
static int *instances_in_order(const struct emit *e) {
    int64_t n = e->params.n;
    int *order = mem_array((size_t)n, sizeof *order);
    for (int64_t i = 0; i < n; i++) {
        int64_t k = i;
        for (; k > 0 && e->params.p[order[k - 1]].param > e->params.p[i].param; k--)
            order[k] = order[k - 1];
        order[k] = (int)i;
    }
    return order;
}

/* The steps of an update, each for all instances of a stage before the next. The first
 * three are in the reduce segment, the others in the update. */
enum update_step { SEND_AWAY, FINISH, COUNT, OPTIMIZE, PUBLISH, RECEIVE };

/* gradient[] holds the finished gradients between FINISH and OPTIMIZE. */
static void update_instance(struct emit *e, enum update_step step, int64_t i,
                            int *gradient) {
    struct param_instance p = e->params.p[i];
    if (e->m->params[p.param].frozen)
        return;
    bool away = home_stage(e, p.param) != e->stage;
    e->param = p.param;
    if (step == SEND_AWAY && away && e->param_of[p.param] == i)
        send_away(e, &p);
    if (step == RECEIVE && away)
        receive_copy(e, &e->params.p[i]);
    if (!p.home)
        return;
    if (step == FINISH)
        gradient[i] = finished_gradient(e, &p, param_own(e, p.param, update_place(e, &p)));
    if (step == COUNT && !is_running(e, p.param))
        count_norm(e, p.param, param_own(e, p.param, update_place(e, &p)), gradient[i]);
    if (step == OPTIMIZE)
        optimize(e, &p, update_place(e, &p), gradient[i]);
    if (step == PUBLISH)
        publish(e, &e->params.p[i]);
}

static void emit_norm(struct emit *e) {
    emit_end_segment(e, SEG_REDUCE);
    struct instr *norm = emit_instr(e, I_norm);
    /* Doubles, two elements each: squared norm, loss and metrics; each rank's
     * suspicions. */
    const int64_t told =
        e->plan->aggregate == AGGREGATE_mean ? 0 : 2 + 2 * (int64_t)e->plan->devices;
    norm->n.norm.elems = 2 * (2 + METRIC_COUNT + told);
    norm->axes = (1u << e->mesh->n_axes) - 1;
    emit_end_segment(e, SEG_NORM);
}

/* All instances go through a step before any goes on to the next, in an order that is the
 * same in every stage, so messages of tied parameters match and never wait for each
 * other. */
void pass_update(struct emit *e) {
    e->seg = SEG_REDUCE;
    e->op = -1;
    int64_t n = e->params.n;
    int *gradient = mem_array((size_t)n, sizeof *gradient), *order = instances_in_order(e);
    for (int step = SEND_AWAY; step <= RECEIVE; step++) {
        for (int64_t i = 0; i < n; i++)
            update_instance(e, (enum update_step)step, order[i], gradient);
        e->param = -1;
        if (step == COUNT)
            emit_norm(e);
    }
    emit_end_segment(e, SEG_UPDATE);
    free(gradient);
    free(order);
}
