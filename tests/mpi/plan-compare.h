/* plan-compare.h - what the ranks of a plan hold, block by block, against the whole tensors of one rank.
 *
 *     struct watch w = {.x = x, .ref = &reference};
 *     check_params(&w, &x->chunks[0]); // w.worst_param
 */
#ifndef WEFT_TEST_PLAN_COMPARE_H
#define WEFT_TEST_PLAN_COMPARE_H

#include "exec/exec_impl.h"
#include "plan-reference.h"

#include <math.h>
#include <string.h>

struct watch {
    struct exec *x;
    struct reference *ref;
    bool store; /* the reference is being made */
    bool on_gpu;
    double
        flip; /* how far apart two values may be of which a step took other signs; 0: none may */
    double worst_grad, worst_param;
    bool last; /* the last step */
};

/* What a buffer holds, as f32; free it. */
static float *values_of(const struct watch *w, const struct exec_chunk *c, int id) {
    const struct buffer *b = &c->sp->buffers[id];
    int64_t bytes = b->elems * dtype_size(b->dtype);
    float *values = mem_array((size_t)b->elems, sizeof *values);
    void *held = exec_address(w->x, b->offset, 0);
    char *copy = w->on_gpu && !b->host ? mem_array((size_t)bytes + 1, 1) : NULL;
    if (copy && device_download(w->x->streams[STREAM_compute], copy, held, bytes, NULL) < 0)
        memset(copy, 0xff, (size_t)bytes); /* NaN */
    kernel_widen(b->elems, b->dtype, copy ? copy : held, values);
    free(copy);
    return values;
}

/* The mean square of the norms of all tensors. */
static double mean_square(const struct model *m, float *const *tensors) {
    double sum = 0;
    for (int p = 0; p < m->n_params; p++)
        for (int64_t i = 0; i < param_elems(m, p); i++)
            sum += (double)tensors[p][i] * tensors[p][i];
    return sum / m->n_params;
}

/* Where element i of the block stands in the whole tensor. */
static int64_t place_in_whole(const struct extents *x, const struct box *b, int64_t i) {
    int64_t at = 0, stride = 1;
    for (int d = x->rank - 1; d >= 0; d--) {
        at += (b->first[d] + i % b->size[d]) * stride;
        i /= b->size[d];
        stride *= x->size[d];
    }
    return at;
}

/* Lion takes the sign of what may be nothing but rounding, and steps the other way then: of a tensor in one
 * element of fifty, and one. */
static bool may_be_flipped(const struct watch *w, double apart, double largest, int64_t n,
                           int64_t *flipped) {
    return apart > 1e-4 * largest && apart <= w->flip && ++*flipped <= 1 + n / 50;
}

/* Largest difference of a block from the whole tensor, over the tensor's largest element; of 16
 * bits, norm over norm, that of all tensors on average where this one's is smaller; or copies the
 * block there. */
static double compare(struct watch *w, const struct exec_chunk *c, int param,
                      struct placement place, int buffer, float *const *tensors) {
    const struct program *g = w->x->g;
    const struct model *m = g->plan->model;
    struct extents x = model_extents(m, &m->params[param].shape, 1);
    struct box b = placement_box(c->sp->mesh, &x, place, c->rp.coord);
    int64_t n = 1, total = extents_count(&x), flipped = 0;
    for (int i = 0; i < x.rank; i++)
        n *= b.size[i];
    float *block = values_of(w, c, buffer), *whole = tensors[param];
    double largest = 1e-7, worst = 0, squares = 0, apart = 0;
    for (int64_t i = 0; i < total; i++) {
        largest = fmax(largest, fabs(whole[i]));
        squares += (double)whole[i] * whole[i];
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = place_in_whole(&x, &b, i);
        const double d = fabs((double)block[i] - whole[at]);
        apart += d * d;
        if (w->store)
            whole[at] = block[i];
        else if (tensors == w->ref->param && may_be_flipped(w, d, largest, n, &flipped))
            continue;
        else if (!(d <= worst * largest)) /* NaN counts */
            worst = d / largest;
    }
    free(block);
    if (w->store || g->plan->dtype == DTYPE_f32)
        return worst;
    return sqrt(apart / fmax(squares, mean_square(m, tensors)));
}

/* Softmax does not see what is the same for all keys: the gradient of their bias is zero, and what
 * comes out is the rounding of sums in one order or another. */
static bool ends_in(const struct model *m, int param, const char *end) {
    const char *found = strstr(m->params[param].name, end);
    return found && !found[strlen(end)];
}

static bool is_noise(const struct model *m, int param) {
    return ends_in(m, param, ".k.bias");
}

static void on_instr(void *ctx, const struct instr *i, struct action a, double start,
                     double end) {
    struct watch *w = ctx;
    const struct exec_chunk *c = exec_chunk_of(w->x, a.stage);
    (void)start, (void)end;
    if (w->last && i->code == I_sum_squares && !i->replicas &&
        !is_noise(w->x->g->plan->model, i->param)) {
        double d = compare(w, c, i->param, i->place, i->in.sum_squares.g, w->ref->grad);
        w->worst_grad = d > w->worst_grad || isnan(d) ? d : w->worst_grad;
    }
}

static void check_param(struct watch *w, const struct exec_chunk *c, int param,
                        struct placement place, int buffer) {
    const struct model *m = w->x->g->plan->model;
    if (w->flip > 0 && !w->store && (is_noise(m, param) || ends_in(m, param, ".qkv.bias")))
        return; /* every third number of which is noise, too */
    double d = compare(w, c, param, place, buffer, w->ref->param);
    w->worst_param = d > w->worst_param || isnan(d) ? d : w->worst_param;
}

/* And their masters, which are what one rank's file has where there are any. */
static void check_params(struct watch *w, const struct exec_chunk *c) {
    for (int i = 0; i < c->sp->n_params; i++) {
        const struct param_instance *p = &c->sp->params[i];
        check_param(w, c, p->param, p->place, p->buffer);
    }
    for (int i = 0; i < c->sp->n_states; i++) {
        const struct state_instance *s = &c->sp->states[i];
        if (s->which == STATE_MASTER)
            check_param(w, c, s->param, s->place, s->buffer);
    }
}

#endif
