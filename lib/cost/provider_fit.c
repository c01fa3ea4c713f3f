/* Curves through the rows of a profile as a provider: they answer for instructions that the
 * table has only other rows of.
 *
 * A curve is fitted when it is first asked for, so a profile that holds all rows costs
 * nothing. It begins with the curve of the cluster's device model or, where there is none,
 * with a guess from the cluster's datasheet, and then needs as many rows as its form has
 * parameters. */
#include "cost/provider.h"

#include "common/mem.h"
#include "cost/device_fit.h"
#include "cost/link_fit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum state { NOT_YET, FITTED, TOO_FEW };

struct fitted_group {
    struct device_fit rows;
    struct device_model *model; /* that curves begin with; it stays as it is */
    /* only where state is FITTED */
    /* within: corrected by rows nearby */
    struct curve curves[OPCODE_COUNT][CLUSTER_DTYPES];
    struct curve_near near[OPCODE_COUNT][CLUSTER_DTYPES];
    bool known; /* the cluster names a model of this device */
    struct link_fit *links;
    /* Threads share a provider; one that finds a curve not fitted yet takes the lock. */
    pthread_mutex_t lock;
    atomic_int state[OPCODE_COUNT][CLUSTER_DTYPES];
};

struct fits {
    struct cost_provider base;
    int n;
    struct fitted_group *groups[CLUSTER_MAX_GROUPS];
};

/* A guess at a chip of which at most a datasheet is known; fitted curves make up for it. */
static struct chip chip_of(const struct cluster_group *g) {
    struct chip c = {.multiprocessors = cluster_kind_is_gpu(g->device) ? 100 : 1,
                     .bandwidth = g->bandwidth > 0 ? g->bandwidth : 1e11};
    double flops = g->flops[DTYPE_f32] > 0 ? g->flops[DTYPE_f32] : 1e12;
    for (int t = 0; t < CLUSTER_DTYPES; t++)
        c.flops[t] = g->flops[t] > 0 ? g->flops[t] : flops;
    c.cache_bytes = cluster_kind_is_gpu(g->device) ? 40e6 : 1e6;
    c.cache_bandwidth = 2 * c.bandwidth;
    return c;
}

static struct fitted_group *group_create(const struct profile_times *t,
                                         const struct cluster *c, int group,
                                         struct err *err) {
    const struct cluster_group *g = &c->groups[group];
    struct fitted_group *out = mem_alloc(sizeof *out);
    struct chip chip = chip_of(g);
    pthread_mutex_init(&out->lock, NULL);
    out->known = *g->model;
    out->model = out->known ? device_model_read(g->model, err)
                            : device_model_plain(profile_times_device(t), &chip);
    if (out->model)
        device_fit_init(&out->rows, t);
    if (out->model)
        out->links =
            link_fit_create(t, c, out->model->has_links ? out->model->links : NULL);
    return out;
}

static void group_destroy(struct fitted_group *g) {
    if (!g)
        return;
    device_fit_release(&g->rows);
    link_fit_destroy(g->links);
    for (int i = 0; i < OPCODE_COUNT * CLUSTER_DTYPES; i++)
        curve_near_release(&g->near[i / CLUSTER_DTYPES][i % CLUSTER_DTYPES]);
    device_model_destroy(g->model);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

/* How far off a curve corrected by rows nearby is, judged by at most MOST of its rows. */
static double bound_near(const struct chip *chip, const struct device_rows *r,
                         const struct curve *prior) {
    enum { MOST = 1000 };
    int64_t step = (r->list.n + MOST - 1) / MOST, n = 0;
    struct curve_row *rows = mem_array((size_t)r->list.n, sizeof *rows);
    double *off = mem_array((size_t)r->list.n, sizeof *off);
    for (int64_t i = 0; i < r->list.n; i += step)
        rows[n++] = r->list.p[i];
    curve_held_out(chip, rows, n, prior, true, off);
    double bound = curve_bound(off, n);
    free(rows);
    free(off);
    return bound;
}

/* Lets rows nearby correct the curve. With few rows there is no telling how far off it then
 * is, so its bound stays. */
static void add_near(struct fitted_group *g, enum opcode code, enum dtype dtype,
                     const struct curve *prior) {
    const struct device_rows *r = device_fit_rows(&g->rows, code, dtype);
    struct curve *c = &g->curves[code][dtype];
    const struct chip *chip = &g->model->chip;
    curve_near_init(&g->near[code][dtype], chip, c, r->list.p, r->list.n);
    if (r->list.n < 2 * curve_least_rows(c->form))
        return;
    double within = bound_near(chip, r, prior);
    c->within = within < c->within ? within : c->within;
}

static enum state fit_now(struct fitted_group *g, enum opcode code, enum dtype dtype) {
    int64_t least = g->known ? 1 : curve_least_rows(curve_form_of(code));
    bool enough = device_fit_rows(&g->rows, code, dtype)->list.n >= least;
    struct device_curve c;
    if (!enough || !device_fit_op(&g->rows, g->model, code, dtype, &c))
        return TOO_FEW;
    g->curves[code][dtype] = c.curve;
    add_near(g, code, dtype, &device_model_curve(g->model, code, dtype)->curve);
    return FITTED;
}

static bool fit_once(struct fitted_group *g, enum opcode code, enum dtype dtype) {
    atomic_int *state = &g->state[code][dtype];
    if (atomic_load_explicit(state, memory_order_acquire) == NOT_YET) {
        pthread_mutex_lock(&g->lock);
        if (*state == NOT_YET)
            atomic_store_explicit(state, fit_now(g, code, dtype), memory_order_release);
        pthread_mutex_unlock(&g->lock);
    }
    return *state == FITTED;
}

static struct cost_time fits_op(const struct cost_provider *p,
                                const struct op_question *q) {
    const struct fits *f = (const struct fits *)p;
    struct fitted_group *g = f->groups[q->group < f->n ? q->group : 0];
    const struct instr_key *k = q->key;
    if ((int)k->dtype >= (int)CLUSTER_DTYPES || opcode_is_move(k->code) ||
        !fit_once(g, k->code, k->dtype))
        return (struct cost_time){0};
    const struct curve *c = &g->curves[k->code][k->dtype];
    struct curve_shape s = curve_shape(k);
    double us = curve_us(&g->model->chip, c, &s) *
                curve_near_factor(&g->near[k->code][k->dtype], &s);
    return (struct cost_time){.us = us,
                              .low_us = us / (1 + c->within),
                              .high_us = us * (1 + c->within),
                              .from = COST_FITTED};
}

static struct cost_time fits_comm(const struct cost_provider *p,
                                  const struct comm_question *q) {
    const struct fits *f = (const struct fits *)p;
    const struct fitted_group *g = f->groups[q->group < f->n ? q->group : 0];
    struct link_time t =
        link_fit_time(g->links, q->code, q->size, q->stride, q->bytes, &q->link);
    if (t.us < 0)
        return (struct cost_time){0};
    return (struct cost_time){.us = t.us,
                              .low_us = t.us / (1 + t.within),
                              .high_us = t.us * (1 + t.within),
                              .overlap = t.overlap,
                              .from = COST_FITTED};
}

static void fits_destroy(struct cost_provider *p) {
    struct fits *f = (struct fits *)p;
    for (int i = 0; i < f->n; i++)
        group_destroy(f->groups[i]);
    free(f);
}

static const struct provider_kind fits_kind = {fits_op, fits_comm, fits_comm, fits_destroy};

struct cost_provider *provider_fit(struct profile_times *const *times, int n,
                                   const struct cluster *c, struct err *err) {
    struct fits *f = mem_alloc(sizeof *f);
    f->base.kind = &fits_kind;
    for (; f->n < n; f->n++) {
        f->groups[f->n] = group_create(times[f->n], c, f->n, err);
        if (!f->groups[f->n]->model) {
            group_destroy(f->groups[f->n]);
            fits_destroy(&f->base);
            return NULL;
        }
    }
    return &f->base;
}
