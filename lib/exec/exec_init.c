/* Initial parameters: a function of the seed and the global index alone. */
#include "exec/exec_impl.h"

#include <math.h>

/* A box inside the whole tensor, by whose indices random numbers are drawn. */
struct kernel_box exec_whole_box(const struct exec *x, const struct shape *s,
                                 const struct box *b) {
    struct kernel_box box = {.rank = s->rank};
    for (int i = 0; i < s->rank; i++) {
        box.size[i] = b->size[i];
        box.first[i] = b->first[i];
        /* The batch is indexed over the whole step, not over one micro-batch. */
        box.whole[i] = s->dim[i] == x->g->plan->model->batch
                           ? x->g->plan->batch
                           : model_dim_size(x->g->plan->model, s->dim[i], 0);
    }
    return box;
}

/* Fills rows first..first+n-1 of the block in host memory. */
static void init_rows(const struct exec *x, int param, const struct kernel_box *box,
                      int64_t first, int64_t n, float *out) {
    const struct model_param *mp = &x->g->plan->model->params[param];
    struct kernel_box part = *box;
    int64_t elems = 1;
    part.first[0] += first;
    part.size[0] = n;
    for (int d = 0; d < part.rank; d++)
        elems *= part.size[d];
    if (mp->init == INIT_UNIFORM)
        kernel_uniform(&part, (float)(mp->std * sqrt(3)), x->opt.seed, (uint64_t)param,
                       out);
    else if (mp->init == INIT_NORMAL)
        kernel_normal(&part, (float)mp->std, x->opt.seed, (uint64_t)param, out);
    else
        kernel_fill(elems, mp->init == INIT_ONES ? 1.0f : 0.0f, out);
}

/* So many numbers from `first` on go from the host into the buffer. */
static int put(struct exec *x, const struct buffer *b, int64_t first, int64_t n,
               struct err *err) {
    char *to = (char *)exec_address(x, b->offset, 0) + dtype_size(b->dtype) * first;
    if (!b->host)
        return exec_upload(x, to, b->dtype, x->host, n, err);
    kernel_narrow(n, b->dtype, (float *)x->host, to);
    return 0;
}

/* Made on the host, for every bit must be the same on all devices, as many rows at a time as the
 * room there holds; into both buffers (the second -1: there is one). */
static int init_param(struct exec *x, const struct exec_chunk *c, int param,
                      struct placement place, const int buffers[2], struct err *err) {
    const struct shape *s = &x->g->plan->model->params[param].shape;
    const struct buffer *all = c->sp->buffers;
    struct box held = exec_box(c, s, place);
    struct kernel_box box = exec_whole_box(x, s, &held);
    int64_t rows = box.size[0], elems = all[buffers[0]].elems / rows;
    int64_t most = x->host_bytes / (dtype_size(DTYPE_f32) * elems);
    for (int64_t first = 0; first < rows; first += most) {
        int64_t n = rows - first < most ? rows - first : most;
        init_rows(x, param, &box, first, n, (float *)x->host);
        for (int i = 0; i < 2 && buffers[i] >= 0; i++)
            if (put(x, &all[buffers[i]], first * elems, n * elems, err) < 0)
                return -1;
        if (x->opt.progress)
            atomic_fetch_add(&x->opt.progress->done, dtype_size(DTYPE_f32) * n * elems);
    }
    return 0;
}

/* Has the master the same elements as the parameter that it is of? Then numbers are drawn once for both. */
static bool lies_beside(const struct param_instance *p, const struct state_instance *s) {
    return s->which == STATE_MASTER && p->home && s->param == p->param &&
           placement_equal(s->place, p->place);
}

static int master_beside(const struct stage_program *sp, const struct param_instance *p) {
    for (int i = 0; i < sp->n_states; i++)
        if (lies_beside(p, &sp->states[i]))
            return sp->states[i].buffer;
    return -1;
}

static bool is_alone(const struct stage_program *sp, const struct state_instance *s) {
    for (int i = 0; i < sp->n_params; i++)
        if (lies_beside(&sp->params[i], s))
            return false;
    return true;
}

static int init_chunk(struct exec *x, const struct exec_chunk *c, struct err *err) {
    for (int i = 0; i < c->sp->n_params; i++) {
        const struct param_instance *p = &c->sp->params[i];
        const int buffers[] = {p->buffer, master_beside(c->sp, p)};
        if (init_param(x, c, p->param, p->place, buffers, err) < 0)
            return -1;
    }
    for (int i = 0; i < c->sp->n_states; i++) {
        const struct state_instance *s = &c->sp->states[i];
        const int buffers[] = {s->buffer, -1};
        if (s->which == STATE_MASTER && is_alone(c->sp, s) &&
            init_param(x, c, s->param, s->place, buffers, err) < 0)
            return -1;
    }
    return 0;
}

static int64_t bytes_of(const struct stage_program *sp) {
    int64_t n = 0;
    for (int i = 0; i < sp->n_params; i++)
        n += sp->buffers[sp->params[i].buffer].elems;
    for (int i = 0; i < sp->n_states; i++)
        if (sp->states[i].which == STATE_MASTER && is_alone(sp, &sp->states[i]))
            n += sp->buffers[sp->states[i].buffer].elems;
    return dtype_size(DTYPE_f32) * n;
}

/* The same numbers under every plan: each element is drawn by its index in the whole tensor. */
int exec_init(struct exec *x, struct err *err) {
    int64_t bytes = 0;
    for (int k = 0; k < x->n_chunks; k++)
        bytes += bytes_of(x->chunks[k].sp);
    exec_progress(x, bytes);
    x->step = x->sample = x->missing = 0;
    for (const struct exec_chunk *c = x->chunks; c < x->chunks + x->n_chunks; c++)
        if (init_chunk(x, c, err) < 0)
            return -1;
    return 0;
}
