/* Initial parameters: a function of the seed and the global index alone. */
#include "exec/exec_impl.h"

#include <string.h>

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
static void init_rows(const struct exec *x, const struct param_instance *p,
                      const struct kernel_box *box, int64_t first, int64_t n, float *out) {
    const struct model_param *mp = &x->g->plan->model->params[p->param];
    struct kernel_box part = *box;
    int64_t elems = 1;
    part.first[0] += first;
    part.size[0] = n;
    for (int d = 0; d < part.rank; d++)
        elems *= part.size[d];
    if (mp->init == INIT_NORMAL)
        kernel_normal(&part, (float)mp->std, x->opt.seed, (uint64_t)p->param, out);
    else
        kernel_fill(elems, mp->init == INIT_ONES ? 1.0f : 0.0f, out);
}

/* Made on the host, for every bit must be the same on all devices, as many rows at a time as the
 * room there holds. */
static int init_param(struct exec *x, const struct exec_chunk *c,
                      const struct param_instance *p, struct err *err) {
    const struct shape *s = &x->g->plan->model->params[p->param].shape;
    const struct buffer *b = &c->sp->buffers[p->buffer];
    struct box held = exec_box(c, s, p->place);
    struct kernel_box box = exec_whole_box(x, s, &held);
    int64_t rows = box.size[0], bytes = dtype_size(b->dtype) * b->elems / rows;
    int64_t most = x->host_bytes / bytes;
    for (int64_t first = 0; first < rows; first += most) {
        int64_t n = rows - first < most ? rows - first : most;
        init_rows(x, p, &box, first, n, (float *)x->host);
        char *to = (char *)exec_address(x, b->offset, 0) + first * bytes;
        if (b->host)
            memcpy(to, x->host, (size_t)(n * bytes));
        else if (device_upload(x->streams[STREAM_compute], to, x->host, n * bytes, err) < 0)
            return -1;
    }
    return 0;
}

/* The same numbers under every plan: each element is drawn by its index in the whole tensor. */
int exec_init(struct exec *x, struct err *err) {
    x->step = x->sample = 0;
    for (const struct exec_chunk *c = x->chunks; c < x->chunks + x->n_chunks; c++)
        for (int i = 0; i < c->sp->n_params; i++)
            if (init_param(x, c, &c->sp->params[i], err) < 0)
                return -1;
    return 0;
}
