/* Who does a convolution: cuDNN (cuda_dnn.h), cuBLASLt or weft's own kernels.
 *
 * That is decided when a shape is first seen. What a profile knows comes first (cuda_conv_known.c). Where the
 * device tunes, the candidates are timed and the fastest is kept: plans of cuDNN, the product of matrices
 * that a convolution of one tap is, and weft's kernels. Where nothing may be timed the first of these that
 * works is taken. Tuning comes before streams are captured (cuda_tune.c). A shape that is first seen in a
 * capture is weft's, since the library may load and compile as it plans.
 *
 * Filters are transposed into the stream's workspace before cuDNN reads them, their gradients after it has
 * written them; the rest of what cuda_workspace_instr() says is the library's.
 *
 * Gradients of filters are wanted in floats. For operands of 16 bits cuDNN may have no engine that gives
 * them so (9.19 lists none for Hopper). Then those that round the sums once to 16 bits, as PyTorch's do,
 * compete where they can be timed, and are left out where they cannot. */
#include "cuda/cuda_check.h"
#include "cuda/cuda_choices.h"
#include "cuda/cuda_conv_impl.h"
#include "cuda/cuda_fastest.h"

#include "common/rng.h"
#include "cuda/cuda_workspace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIED = 12 /* plans of cuDNN for a shape */ };

static struct conv_picker *picker_of(struct cuda_convolutions *p) {
    return (struct conv_picker *)(void *)p;
}

/* ---- what was seen ------------------------------------------------------------------------ */

static bool same(const void *entries, int64_t i, const void *key) {
    struct conv_entry *const *all = entries;
    return !memcmp(&all[i]->key, key, sizeof(struct conv_key));
}

static struct conv_key key_of(const struct cuda_call *c, const struct convolution *v) {
    return (struct conv_key){v->pass, c->args->dtype, v->s};
}

static struct conv_entry *find(const struct conv_picker *p, const struct conv_key *key) {
    const int64_t i =
        hashtable_find(&p->seen, hash_bytes(key, sizeof *key, 0), same, p->entries.p, key);
    return i < 0 ? NULL : p->entries.p[i];
}

static void keep(struct conv_picker *p, struct conv_entry *e) {
    hashtable_put(&p->seen, hash_bytes(&e->key, sizeof e->key, 0), same, p->entries.p,
                  &e->key);
    arr_push(&p->entries, e);
}

/* ---- running ------------------------------------------------------------------------------ */

/* Bytes of the turned filter, at the beginning of the workspace. */
static int64_t turned_bytes(const struct conv_key *k) {
    const struct kernel_conv *s = &k->s;
    const enum dtype type = k->pass == KERNEL_WEIGHTS ? DTYPE_f32 : (enum dtype)k->dtype;
    return cuda_workspace_turned(s->kh * s->kw * s->cin * s->cout, dtype_size(type));
}

/* 0 or -1. */
static int run_plan(struct conv_picker *p, const struct conv_entry *e, int plan,
                    struct cuda_call *c, const struct convolution *v) {
    const struct kernel_conv *s = &v->s;
    const int64_t rows = s->kh * s->kw * s->cin;
    char *filter = c->workspace;
    void *a = (void *)(uintptr_t)v->from[0], *b = (void *)(uintptr_t)v->from[1];
    struct dnn_operands o = {.x = a, .w = filter, .y = v->to};
    const bool mirrors = conv_mirrors(&e->key, c);
    if (v->pass == KERNEL_DATA && !mirrors)
        o.x = v->to, o.y = a;
    if (v->pass == KERNEL_WEIGHTS)
        o.y = b;
    else if (mirrors)
        cuda_turn_taps(c, s->kh * s->kw, s->cin, s->cout, b, (float *)(void *)filter);
    else
        cuda_turn(c, rows, s->cout, (int)dtype_size(c->args->dtype), b, filter);
    if (dnn_run(p->dnn, &e->plans, plan, &o, filter + turned_bytes(&e->key), c->stream,
                c->err) < 0)
        return -1;
    if (v->pass == KERNEL_WEIGHTS)
        cuda_turn_add(c, s->cout, rows, e->type_to, filter, v->to);
    return 0;
}

static int run_product(struct cuda_call *c, const struct convolution *v) {
    const struct kernel_conv *s = &v->s;
    const union instr_n n = {
        .linear = {.m = s->batch * s->oh * s->ow, .n = s->cout, .k = s->cin}};
    union instr_src src = {{NULL}};
    src.v[0] = (void *)(uintptr_t)v->from[0], src.v[1] = (void *)(uintptr_t)v->from[1];
    const union instr_dst dst = {.v = {v->to}};
    switch (v->pass) {
    case KERNEL_FORWARD: return cuda_linear(c, &n.linear, &src.linear, &dst.linear);
    case KERNEL_DATA:
        return cuda_linear_dx(c, &n.linear_dx, &src.linear_dx, &dst.linear_dx);
    default: return cuda_linear_dw(c, &n.linear_dw, &src.linear_dw, &dst.linear_dw);
    }
}

/* As run(), once it is settled. */
static int run_settled(struct conv_picker *p, const struct conv_entry *e,
                       struct cuda_call *c, const struct convolution *v) {
    if (e->way == CONV_OWN)
        return 1;
    if (e->way == CONV_PRODUCT)
        return run_product(c, v);
    return run_plan(p, e, e->way, c, v);
}

/* ---- choosing ----------------------------------------------------------------------------- */

struct trial {
    struct conv_picker *p;
    const struct conv_entry *e;
    struct cuda_call *c;
    const struct convolution *v;
    int ways[DNN_PLANS + 2], n; /* in the order in which they are expected to be fast */
};

static struct trial ways_of(struct conv_picker *p, const struct conv_entry *e,
                            struct cuda_call *c, const struct convolution *v) {
    struct trial t = {.p = p, .e = e, .c = c, .v = v};
    for (int i = 0; i < e->plans.n; i++)
        t.ways[t.n++] = i;
    if (!p->asked && conv_is_product(&v->s))
        t.ways[t.n++] = CONV_PRODUCT;
    if (!p->asked || !t.n)
        t.ways[t.n++] = CONV_OWN;
    return t;
}

/* What fails leaves no error behind for the next. */
static bool run_way(void *arg, int i) {
    const struct trial *t = arg;
    struct cuda_call quiet = *t->c;
    bool good;
    quiet.err = NULL;
    switch (t->ways[i]) {
    case CONV_OWN: good = cuda_convolution_own(&quiet, t->v) == 0; break;
    case CONV_PRODUCT: good = run_product(&quiet, t->v) == 0; break;
    default: good = run_plan(t->p, t->e, t->ways[i], &quiet, t->v) == 0;
    }
    if (!good)
        (void)cudaGetLastError();
    return good;
}

/* Tries them, and then does it, as run(). */
static int take_fastest(struct trial *t, struct conv_entry *e) {
    const struct cuda_contest contest = {t->n, run_way, t, t->c->stream};
    int best = 0;
    if (t->n > 1 && cuda_fastest(&contest, &best, &e->us, t->c->err) < 0)
        return -1;
    e->way = e->us < (double)INFINITY ? t->ways[best] : CONV_OWN;
    return run_settled(t->p, e, t->c, t->v);
}

/* The first that works, which does it, as run(). */
static int take_first(struct trial *t, struct conv_entry *e) {
    int i = 0;
    while (i < t->n && t->ways[i] != CONV_OWN && !run_way(t, i))
        i++;
    e->way = i < t->n ? t->ways[i] : CONV_OWN;
    return e->way == CONV_OWN;
}

/* cuDNN's plans for it; rounds: sums of filters' gradients may be rounded to 16 bits where they must. */
static void make_plans(const struct conv_picker *p, struct conv_entry *e,
                       const struct cuda_call *c, int most, bool rounds) {
    struct dnn_wish wish = conv_wish(e, c);
    if (dnn_plan(p->dnn, &wish, most, &e->plans) == 0 && rounds &&
        wish.type_to != wish.type) {
        wish.type_to = wish.type;
        dnn_plan(p->dnn, &wish, most, &e->plans);
    }
    e->type_to = wish.type_to;
}

/* What was found before and runs: as run(); -1 where there is no such way. */
static int take_known(struct conv_picker *p, struct conv_entry *e, struct cuda_call *c,
                      const struct convolution *v) {
    struct cuda_call quiet = *c;
    quiet.err = NULL;
    if (p->asked || !conv_known(p, e, c))
        return -1;
    const int rc = run_settled(p, e, &quiet, v);
    if (rc >= 0)
        return rc;
    (void)cudaGetLastError(); /* the failure is not the next call's */
    cuda_choices_failed(p->choices, CUDA_CUDNN);
    dnn_forget(p->dnn, &e->plans);
    return -1;
}

/* Settles it and does it, as run(). */
static int pick(struct conv_picker *p, struct conv_entry *e, struct cuda_call *c,
                const struct convolution *v) {
    const bool tries = p->tunes && !c->dev->deterministic;
    const int known = take_known(p, e, c, v);
    if (known >= 0)
        return known;
    if (p->dnn)
        make_plans(p, e, c, tries ? TRIED : 1, tries || p->asked);
    struct trial t = ways_of(p, e, c, v);
    const int rc = tries ? take_fastest(&t, e) : take_first(&t, e);
    if (p->asked && e->plans.n && e->way == CONV_OWN)
        return err_system(c->err, "cuDNN: what it plans for this convolution does not run");
    return tries && !p->asked && rc >= 0 && conv_found(p, e, c) < 0 ? -1 : rc;
}

/* ---- what the device calls ---------------------------------------------------------------- */

/* The library is looked for once; -1 where it was asked for by name and is missing. */
static int open_library(struct conv_picker *p, struct err *err) {
    struct err why = {0};
    if (p->dnn || p->missing)
        return 0;
    p->dnn = dnn_open(&why);
    p->missing = !p->dnn;
    if (p->missing)
        snprintf(p->lacks, p->lacks_size, "%s", why.msg);
    return p->missing && p->asked ? err_system(err, "%s", why.msg) : 0;
}

/* Of windows that are as cuDNN counts them, and addresses as plans are promised. */
static bool fits(const struct convolution *v) {
    const struct kernel_conv *s = &v->s;
    const uintptr_t all = (uintptr_t)v->from[0] | (uintptr_t)v->from[1] | (uintptr_t)v->to;
    return all % 16 == 0 && s->oh == (s->ih + 2 * s->ph - s->kh) / s->stride + 1 &&
           s->ow == (s->iw + 2 * s->pw - s->kw) / s->stride + 1;
}

static int run(struct cuda_call *c, const struct convolution *v) {
    struct conv_picker *p = picker_of(c->dev->convolutions);
    const struct conv_key key = key_of(c, v);
    struct conv_entry *e = find(p, &key);
    if (!fits(v))
        return 1;
    if (e)
        return run_settled(p, e, c, v);
    if (cuda_is_captured(c->stream))
        return 1;
    if (open_library(p, c->err) < 0)
        return -1;
    e = mem_alloc(sizeof *e);
    e->key = key;
    keep(p, e);
    return pick(p, e, c, v);
}

struct cuda_convolutions *cuda_convolutions_create(bool asked, bool tunes, char *lacks,
                                                   size_t size) {
    struct conv_picker *p = mem_alloc(sizeof *p);
    *p = (struct conv_picker){.others = {run},
                              .asked = asked,
                              .tunes = tunes,
                              .lacks = lacks,
                              .lacks_size = size};
    return &p->others;
}

void cuda_convolutions_destroy(struct cuda_convolutions *others) {
    struct conv_picker *p = others ? picker_of(others) : NULL;
    if (!p)
        return;
    for (int64_t i = 0; i < p->entries.n; i++) {
        dnn_forget(p->dnn, &p->entries.p[i]->plans);
        free(p->entries.p[i]);
    }
    arr_release(&p->entries);
    hashtable_release(&p->seen);
    dnn_close(p->dnn);
    free(p);
}

void cuda_convolutions_know(struct cuda_convolutions *others,
                            struct cuda_choices *choices) {
    if (others)
        picker_of(others)->choices = choices;
}

void cuda_convolutions_tune(struct cuda_convolutions *others, bool tunes) {
    if (others)
        picker_of(others)->tunes = tunes;
}
