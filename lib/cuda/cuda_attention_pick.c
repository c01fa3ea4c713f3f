/* Who does attention: cuDNN (cuda_dnn.h) or weft's own kernels.
 *
 * As for convolutions (cuda_conv_pick.c) that is decided when a shape is first seen: what a profile knows
 * comes first; where the device tunes, the plans of cuDNN and weft's kernels are timed and the fastest is kept,
 * in the table `algorithm` under the problem "attention" or "attention_bwd". Where nothing may be timed, and
 * where the same bits are wanted each time, which cuDNN's backward pass does not promise, it is weft's. So it
 * is where a shape is first seen in a capture. */
#include "cuda/cuda_attention_library.h"
#include "cuda/cuda_check.h"
#include "cuda/cuda_choices.h"
#include "cuda/cuda_dnn.h"
#include "cuda/cuda_fastest.h"
#include "cuda/cuda_workspace_attention.h"

#include "common/hashtable.h"
#include "common/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIED = 6 /* plans of cuDNN for a shape */, OWN = -1 };

struct key {
    int64_t backward, dtype, batch, heads, kv_heads, q_len, kv_len, dim, causal, q_seq,
        kv_seq, o_seq, q_batch, kv_batch, o_batch;
};

struct entry {
    struct key key;
    struct dnn_plans plans;
    int way;   /* that it is done: a plan, or OWN */
    double us; /* where it was measured; else 0 */
};

struct picker {
    struct cuda_attentions others; /* first: what the device knows of it */
    struct dnn *
        dnn; /* NULL before the first attention that it might do, and where it is missing */
    bool missing, asked, tunes;
    struct cuda_choices *choices; /* NULL, or what is known; borrowed */
    struct hashtable seen;
    ARR(struct entry *) entries;
};

static struct picker *picker_of(struct cuda_attentions *p) {
    return (struct picker *)(void *)p;
}

/* ---- what was seen ------------------------------------------------------------------------ */

static bool same(const void *entries, int64_t i, const void *key) {
    struct entry *const *all = entries;
    return !memcmp(&all[i]->key, key, sizeof(struct key));
}

static struct key key_of(const struct cuda_call *c, const struct kernel_attention *t,
                         bool backward) {
    return (struct key){backward,  c->args->dtype, t->batch,   t->heads,    t->kv_heads,
                        t->q_len,  t->kv_len,      t->dim,     t->causal,   t->q_seq,
                        t->kv_seq, t->o_seq,       t->q_batch, t->kv_batch, t->o_batch};
}

static struct entry *find(const struct picker *p, const struct key *key) {
    const int64_t i =
        hashtable_find(&p->seen, hash_bytes(key, sizeof *key, 0), same, p->entries.p, key);
    return i < 0 ? NULL : p->entries.p[i];
}

static struct entry *keep(struct picker *p, const struct key *key) {
    struct entry *e = mem_alloc(sizeof *e);
    *e = (struct entry){.key = *key, .way = OWN};
    hashtable_put(&p->seen, hash_bytes(key, sizeof *key, 0), same, p->entries.p, key);
    arr_push(&p->entries, e);
    return e;
}

/* ---- running ------------------------------------------------------------------------------ */

static struct cuda_workspace_attention parts_of(const struct kernel_attention *t,
                                                bool backward) {
    return cuda_workspace_attention(t->batch, t->heads, t->q_len, t->buckets, backward);
}

/* Is it something that cuDNN does too, with the workspace that is there? */
static bool fits(const struct cuda_call *c, const struct attention_job *job,
                 bool backward) {
    const struct kernel_attention *t = &job->t;
    const struct attention_n n = {.batch = t->batch,
                                  .heads = t->heads,
                                  .group = t->group,
                                  .kv_heads = t->kv_heads,
                                  .seq = t->q_len,
                                  .kv_seq = t->kv_len,
                                  .dim = t->dim,
                                  .causal = t->causal,
                                  .buckets = t->buckets,
                                  .lengths = t->lengths != NULL,
                                  .window = t->window,
                                  .capped = t->cap > 0,
                                  .sloped = t->slope.by != 0,
                                  .value = t->value == t->dim ? 0 : t->value,
                                  .starts = t->starts != NULL};
    const int64_t library = cuda_workspace_attention_library(&n, c->args->dtype, backward);
    return library >= 0 && !t->more && !t->first && !t->first_key && !t->first_head &&
           c->workspace_bytes >= library && cuda_attention_in_chunks(job);
}

static struct dnn_attention wish_of(const struct cuda_call *c,
                                    const struct kernel_attention *t, bool backward) {
    return (struct dnn_attention){.backward = backward,
                                  .t = *t,
                                  .type = c->args->dtype,
                                  .deterministic = c->dev->deterministic,
                                  .workspace_bytes = cuda_workspace_attention_plan(
                                      t->batch, t->heads, t->kv_heads, t->kv_len, t->dim)};
}

/* 0 or -1. */
static int run_plan(const struct picker *p, const struct entry *e, int plan,
                    struct cuda_call *c, const struct attention_job *job) {
    const struct kernel_attention *t = &job->t;
    const bool backward = e->key.backward;
    const struct dnn_attention wish = wish_of(c, t, backward);
    char *at = (char *)c->workspace + parts_of(t, backward).total;
    const int64_t sums =
        backward ? cuda_workspace_attention_sums(t->batch, t->heads, t->q_len, t->dim) : 0;
    const struct dnn_attention_operands o = {.q = job->q,
                                             .k = job->k,
                                             .v = job->v,
                                             .o = job->o,
                                             .lse = job->lse,
                                             .dout = job->dout,
                                             .dq = job->dq,
                                             .dk = job->dk,
                                             .dv = job->dv,
                                             .delta = job->delta,
                                             .sums = (float *)(void *)at};
    return dnn_attention_run(p->dnn, &wish, &e->plans, plan, &o, at + sums, c->stream,
                             c->err);
}

/* As run(), once it is settled. */
static int run_settled(const struct picker *p, const struct entry *e, struct cuda_call *c,
                       const struct attention_job *job) {
    return e->way == OWN ? 1 : run_plan(p, e, e->way, c, job);
}

/* ---- what a profile knows ------------------------------------------------------------------ */

static const char cudnn[] = "cudnn ";

static struct library_algorithm name_of(const struct picker *p, const struct key *k) {
    const int64_t numbers[] = {k->batch, k->heads,  k->kv_heads, k->q_len, k->kv_len,
                               k->dim,   k->causal, k->q_seq,    k->kv_seq};
    const char *type = dtype_name((enum dtype)k->dtype);
    struct library_algorithm name = {.library = dnn_version(p->dnn)};
    snprintf(name.problem, sizeof name.problem, "attention%s", k->backward ? "_bwd" : "");
    cuda_choices_join(numbers, sizeof numbers / sizeof *numbers, name.shape,
                      sizeof name.shape);
    snprintf(name.dtype, sizeof name.dtype, "%s", type);
    snprintf(name.dtype_y, sizeof name.dtype_y, "%s", type);
    return name;
}

/* Settles it as p->choices know it, if it can be done so here. */
static bool is_known(const struct picker *p, struct entry *e, const struct cuda_call *c,
                     const struct kernel_attention *t) {
    if (!p->choices)
        return false;
    const struct dnn_attention wish = wish_of(c, t, e->key.backward);
    const struct library_algorithm name = name_of(p, &e->key);
    const struct library_algorithm *known =
        cuda_choices_find(p->choices, CUDA_CUDNN, &name);
    if (!known)
        return false;
    int taken = !strcmp(known->algorithm, "own");
    e->way = OWN;
    if (!strncmp(known->algorithm, cudnn, sizeof cudnn - 1) && p->dnn) {
        taken = dnn_attention_named(p->dnn, &wish, known->algorithm + sizeof cudnn - 1,
                                    &e->plans);
        e->way = taken == 1 ? 0 : OWN;
    }
    if (taken >= 0)
        cuda_choices_count(p->choices, CUDA_CUDNN, taken == 1);
    e->us = known->least_us;
    return taken == 1;
}

/* Tells how it was settled by trying. Returns 0 or -1. */
static int tell(const struct picker *p, struct entry *e, const struct cuda_call *c) {
    struct library_algorithm found = name_of(p, &e->key);
    char plan[sizeof found.algorithm - 16];
    if (e->way >= 0 && !dnn_plan_name(p->dnn, &e->plans, e->way, plan, sizeof plan))
        return 0; /* it has no name to be kept by */
    if (e->way >= 0)
        snprintf(found.algorithm, sizeof found.algorithm, "%s%s", cudnn, plan);
    else
        snprintf(found.algorithm, sizeof found.algorithm, "own");
    found.workspace_bytes = e->way >= 0 ? e->plans.of[e->way].workspace_bytes : 0;
    found.least_us = isfinite(e->us) ? e->us : 0;
    return cuda_choices_tell(p->choices, &found, c->err);
}

/* ---- choosing ----------------------------------------------------------------------------- */

struct trial {
    const struct picker *p;
    const struct entry *e;
    const struct cuda_call *c;
    const struct attention_job *job;
    bool own; /* weft's kernels compete, as the last way */
};

/* What fails leaves no error behind for the next. */
static bool run_way(void *arg, int i) {
    const struct trial *t = arg;
    struct cuda_call quiet = *t->c;
    quiet.err = NULL;
    const bool good =
        (i == t->e->plans.n ? cuda_attention_own(&quiet, t->job, t->e->key.backward)
                            : run_plan(t->p, t->e, i, &quiet, t->job)) == 0;
    if (!good)
        (void)cudaGetLastError();
    return good;
}

/* Tries them, and then does it, as run(). */
static int take_fastest(const struct picker *p, struct entry *e, struct cuda_call *c,
                        const struct attention_job *job) {
    struct trial t = {p, e, c, job, !p->asked};
    const struct cuda_contest contest = {e->plans.n + t.own, run_way, &t, c->stream};
    int best = 0;
    if (contest.n && cuda_fastest(&contest, &best, &e->us, c->err) < 0)
        return -1;
    e->way = contest.n && e->us < (double)INFINITY && best < e->plans.n ? best : OWN;
    return run_settled(p, e, c, job);
}

/* The first plan that works, which does it, as run(): where cuDNN is asked for and nothing may be timed. */
static int take_first(const struct picker *p, struct entry *e, struct cuda_call *c,
                      const struct attention_job *job) {
    struct trial t = {p, e, c, job, false};
    for (int i = 0; i < e->plans.n; i++)
        if (run_way(&t, i)) {
            e->way = i;
            return 0;
        }
    return 1;
}

/* Settles it and does it, as run(). */
static int pick(struct picker *p, struct entry *e, struct cuda_call *c,
                const struct attention_job *job) {
    const bool backward = e->key.backward;
    const bool tries = p->tunes && !c->dev->deterministic;
    if (!p->asked && is_known(p, e, c, &job->t)) {
        struct cuda_call quiet = *c;
        quiet.err = NULL;
        const int rc = run_settled(p, e, &quiet, job);
        if (rc >= 0)
            return rc;
        (void)cudaGetLastError(); /* the failure is not the next call's */
        cuda_choices_failed(p->choices, CUDA_CUDNN);
    }
    dnn_forget(p->dnn, &e->plans);
    e->way = OWN;
    if (!p->dnn || (!tries && !p->asked))
        return 1;
    const struct dnn_attention wish = wish_of(c, &job->t, backward);
    dnn_attention_plan(p->dnn, &wish, TRIED, &e->plans);
    const int rc = tries ? take_fastest(p, e, c, job) : take_first(p, e, c, job);
    if (p->asked && rc == 1)
        return err_system(c->err, "cuDNN: no plan for this attention runs");
    return p->asked || rc < 0 || tell(p, e, c) == 0 ? rc : -1;
}

/* ---- what the device calls ---------------------------------------------------------------- */

/* The library is looked for once; -1 where it was asked for by name and is missing. */
static int open_library(struct picker *p, struct err *err) {
    struct err why = {0};
    if (p->dnn || p->missing)
        return 0;
    p->dnn = dnn_open(&why);
    p->missing = !p->dnn;
    return p->missing && p->asked ? err_system(err, "%s", why.msg) : 0;
}

static int run(struct cuda_call *c, const struct attention_job *job, bool backward) {
    struct picker *p = picker_of(c->dev->attentions);
    if (!fits(c, job, backward))
        return 1;
    const struct key key = key_of(c, &job->t, backward);
    struct entry *e = find(p, &key);
    if (e)
        return run_settled(p, e, c, job);
    if (cuda_is_captured(c->stream) || (!p->asked && !p->choices && !p->tunes))
        return 1;
    return open_library(p, c->err) < 0 ? -1 : pick(p, keep(p, &key), c, job);
}

struct cuda_attentions *cuda_attentions_create(bool asked, bool tunes) {
    struct picker *p = mem_alloc(sizeof *p);
    *p = (struct picker){.others = {run}, .asked = asked, .tunes = tunes};
    return &p->others;
}

void cuda_attentions_destroy(struct cuda_attentions *others) {
    struct picker *p = others ? picker_of(others) : NULL;
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

void cuda_attentions_know(struct cuda_attentions *others, struct cuda_choices *choices) {
    if (others)
        picker_of(others)->choices = choices;
}

void cuda_attentions_tune(struct cuda_attentions *others, bool tunes) {
    if (others)
        picker_of(others)->tunes = tunes;
}
