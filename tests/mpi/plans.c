/* A layout never changes the result: random legal plans against one rank.
 *
 *   plans reference DIR              one rank: losses, last gradients and parameters of each case
 *   mpirun -n N plans check DIR SEED COUNT...  COUNT random plans for N ranks against them,
 *                                              for each SEED; what they have between them
 *                                              is added to DIR/coverage
 *   plans coverage DIR/coverage                that as a table; fails if anything is in none
 *
 * With check-gpu every rank computes on a GPU, which they may share, and works between
 * them go by way of their hosts; every other plan is replayed from CUDA graphs, of which gradients are
 * not seen.
 *
 * Runs in the root of the tree. A case is a model (GPT, MLP, those of tests/models, with ties,
 * dropout, several repeats and losses) and an optimizer; a plan is drawn from (SEED, number, N):
 * groups and stages on them, meshes, a layout for every op, what goes round in a ring, recompute,
 * ZeRO, micro-batches, schedule. Every rank checks what it holds. Losses must agree to 1e-5, gradients
 * and parameters to 1e-4 of the largest element of their tensor; the bytes touched must be those
 * planned.
 *
 * Plans of 16 bits are compared with one rank in the same type. With u = 2^-8 (bf16) or 2^-11
 * (fp16), the rounding of one number, every place where a plan cuts a sum rounds by u: losses may
 * differ by 8 u, parameters by 16 u of their norm. A unit whose sum is that near to the kink of its
 * relu changes sides, as does a token between two experts: about u of them do, so gradients differ
 * by the root of that; 6 roots are allowed, 16 where batch norm over a few samples multiplies it.
 * The loss scale begins so low that no gradient is too large under one plan alone. One rank's losses
 * in 16 bits may differ by 16 u from those in fp32. */
#include "../unit/tap.h"

#include "common/mem.h"
#include "common/rng.h"
#include "coverage.h"
#include "cuda/cuda.h"
#include "cuda/cuda_workspace.h"
#include "nccl/nccl.h"
#include "plan-cases.h"
#include "plan-compare.h"
#include "plan-draw.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = DRAWN_BATCH, ARENA_BYTES = 48 << 20, TYPES = 3, SCALE = 64 };

/* What all plans of a run have. */
struct job {
    struct comm *comm;
    float *arena; /* on the host */
    const char *dir;
    bool on_gpu;
};

/* ---- running a plan ------------------------------------------------------------------ */

static struct data *open_data(const struct model *m, struct err *err) {
    struct data *data = NULL;
    struct data_spec spec = {.source = "synthetic", .validation = 0.1, .seed = 7};
    return exec_data_spec(m, &spec, err) < 0 || data_open(&data, &spec, err) < 0 ? NULL
                                                                                 : data;
}

struct outcome {
    double loss_error, grad_error, param_error;
    int64_t bytes, planned;
};

static void note_error(double got, double want, double unit, struct outcome *out) {
    double e = got == want ? 0 : fabs(got - want) / unit;
    out->loss_error = !(e <= out->loss_error) ? e : out->loss_error;
}

/* Errors are relative, but for the share of choices that were dropped: that is a count of choices, and
 * one that goes the other way, since two experts are as good but for rounding, is one of all of them,
 * however few are dropped. */
static void note_errors(const struct exec_metrics *m, const struct reference *ref, int step,
                        struct outcome *out) {
    note_error(m->loss, ref->loss[step], fabs(ref->loss[step]), out);
    for (int k = 0; k < METRIC_COUNT; k++)
        note_error(m->more[k], ref->more[step][k],
                   k == METRIC_dropped ? 1 : fabs(ref->more[step][k]), out);
}

/* What a plan is trained with, whatever it is. */
static struct exec_options train_options(const struct job *job, const struct plan *plan) {
    struct exec_options o = exec_defaults();
    if (!job->on_gpu) {
        o.arena = job->arena;
        o.arena_bytes = ARENA_BYTES;
    }
    o.warmup = 2;
    o.lr = plan->optimizer == OPTIMIZER_sgd    ? 0.05
           : plan->optimizer == OPTIMIZER_lion ? 1e-4
                                               : 1e-3;
    /* Noise in gradients that are zero in exact arithmetic must not be normalized. */
    o.eps = 1e-4;
    o.clip = plan->optimizer == OPTIMIZER_sgd ? 0 : 0.5;
    return o;
}

/* All steps; each is compared with the reference, or becomes it. */
static int train(struct watch *w, struct outcome *out, struct err *err) {
    struct reference *ref = w->ref;
    int rc = exec_init(w->x, err);
    w->x->loss_scale /= SCALE;
    for (int s = 0; s < STEPS && rc == 0; s++) {
        struct exec_metrics m;
        w->last = s == STEPS - 1;
        rc = exec_step(w->x, &m, err);
        if (w->store) {
            ref->loss[s] = m.loss;
            ref->norm[s] = m.grad_norm;
            memcpy(ref->more[s], m.more, sizeof m.more);
        } else if (rc == 0) {
            note_errors(&m, ref, s, out);
        }
    }
    if (rc == 0)
        rc = exec_drain(w->x, err); /* what goes to the host's memory is there then */
    for (int k = 0; k < w->x->n_chunks; k++)
        check_params(w, &w->x->chunks[k]);
    return rc;
}

/* Bytes that were touched, and those that were planned; of a GPU, what CUDA was asked for, workspaces
 * too, which are planned as well. */
static void note_bytes(const struct watch *w, const struct cuda_report *gpu,
                       struct outcome *out) {
    const struct stage_program *sp = w->x->chunks->sp;
    out->bytes = w->x->high_water + w->x->host_high_water;
    out->planned = sp->arena_bytes + sp->host_bytes;
    if (w->on_gpu) {
        out->bytes += gpu->own_bytes;
        out->planned += sp->arena_bytes + cuda_workspace_of(w->x->g, sp->stage);
    }
}

/* Trains under the plan; w says with what it is compared. Gradients are only seen where it is watched. */
static int run_plan(const struct job *job, struct plan *plan, struct watch w, bool watched,
                    struct outcome *out, struct err *err) {
    struct program *g = program_compile(plan, err);
    if (!g || program_validate(g, err) < 0)
        return -1;
    struct data *data = open_data(plan->model, err);
    struct exec_options o = train_options(job, plan);
    o.on_instr = watched ? on_instr : NULL;
    o.on_instr_ctx = &w;
    struct cuda_report report = {0};
    struct cuda_backend cuda =
        cuda_backend(&(struct cuda_options){.program = g,
                                            .rank = comm_rank(job->comm),
                                            .deterministic = true,
                                            .report = &report});
    if (job->on_gpu)
        o.device = &cuda.backend;
    int rc = -1;
    w.on_gpu = job->on_gpu;
    w.flip = plan->optimizer == OPTIMIZER_lion ? 2 * o.lr * STEPS : 0;
    *out = (struct outcome){0};
    if (data && (w.x = exec_create(g, job->comm, data, &o, err))) {
        rc = train(&w, out, err);
        note_bytes(&w, &report, out);
    }
    out->grad_error = w.worst_grad;
    out->param_error = w.worst_param;
    exec_destroy(w.x);
    data_close(data);
    program_destroy(g);
    return rc;
}

/* ---- plans as text ---------------------------------------------------------------------- */

/* Written and read again a plan is the same plan. */
static bool survives_text(struct plan *p, struct err *err) {
    json_t *doc = plan_to_json(p);
    struct plan *q = plan_from_json(doc, err);
    bool same = q && q->n_stages == p->n_stages && q->micro_batch == p->micro_batch &&
                q->schedule == p->schedule && q->optimizer == p->optimizer &&
                q->dtype == p->dtype && q->reduce == p->reduce &&
                q->overlap == p->overlap && q->n_groups == p->n_groups &&
                q->average == p->average;
    for (int s = 0; same && s < p->n_stages; s++) {
        const struct stage *a = &p->stages[s], *b = &q->stages[s];
        same =
            a->n_ops == b->n_ops && a->group == b->group &&
            !memcmp(a->ops, b->ops, sizeof *a->ops * (size_t)a->n_ops) &&
            !memcmp(a->layouts, b->layouts, sizeof *a->layouts * (size_t)a->n_ops) &&
            !memcmp(a->recompute, b->recompute, sizeof *a->recompute * (size_t)a->n_ops) &&
            !memcmp(a->zero, b->zero, sizeof *a->zero * (size_t)a->n_ops);
    }
    plan_destroy(q);
    json_decref(doc);
    return same;
}

static void print_plan(const struct plan *p) {
    json_t *doc = plan_to_json(p);
    printf("# ");
    json_write_line(doc, stdout);
    json_decref(doc);
}

/* ---- the two commands ---------------------------------------------------------------- */

/* The rounding of one number, to nearest. */
static double unit(enum dtype dtype) {
    return dtype == DTYPE_bf16 ? 0x1p-8 : dtype == DTYPE_f16 ? 0x1p-11 : 0x1p-24;
}

/* Are losses near those of the same case in fp32, which come first? */
static int check_coarsely(const struct plan *p, const struct reference *r,
                          double fp32[STEPS], struct err *err) {
    for (int s = 0; s < STEPS; s++) {
        if (p->dtype == DTYPE_f32)
            fp32[s] = r->loss[s];
        double off = fabs(r->loss[s] - fp32[s]) / fp32[s];
        if (!(off <= 16 * unit(p->dtype)))
            return err_input(err, "%s %s in %s: loss %g, in fp32 %g", p->model->name,
                             p->model->set, plan_dtype_name(p->dtype), r->loss[s], fp32[s]);
    }
    return 0;
}

static int make_reference(const struct job *job, int c, enum dtype dtype,
                          double fp32[STEPS], struct err *err) {
    struct model *m = load_case(c, err);
    if (!m)
        return -1;
    int bounds[2] = {0, m->n_ops};
    struct plan *p = plan_create(m, 1, bounds);
    p->batch = p->micro_batch = BATCH;
    p->optimizer = case_optimizer(c);
    p->dtype = dtype;
    struct reference r = reference_new(m);
    struct outcome o;
    if (plan_check(p, err) < 0 ||
        run_plan(job, p, (struct watch){.ref = &r, .store = true}, true, &o, err) < 0 ||
        check_coarsely(p, &r, fp32, err) < 0 ||
        reference_file(&r, p, job->dir, c, true, err) < 0)
        return -1;
    reference_release(&r, m);
    plan_destroy(p);
    model_destroy(m);
    return 0;
}

static int make_references(const struct job *job, struct err *err) {
    double fp32[STEPS];
    for (int i = 0; i < CASES * TYPES; i++)
        if (make_reference(job, i / TYPES, (enum dtype)(i % TYPES), fp32, err) < 0)
            return -1;
    return 0;
}

struct limits {
    double loss, grad, param;
};

static struct limits limits_of(const struct plan *p) {
    if (p->dtype == DTYPE_f32)
        return (struct limits){1e-5, 1e-4, 1e-4};
    bool batchnorm = false;
    for (int i = 0; i < p->model->n_ops; i++)
        batchnorm |= p->model->ops[i].kind == OP_batchnorm;
    double u = unit(p->dtype);
    return (struct limits){8 * u, (batchnorm ? 16 : 6) * sqrt(u), 16 * u};
}

static void report(struct comm *comm, struct plan *p, uint64_t seed, int64_t k,
                   struct outcome *o, struct coverage *cover) {
    double worst[4] = {o->loss_error, o->grad_error, o->param_error,
                       o->bytes != o->planned};
    for (int i = 0; i < 4; i++)
        if (isnan(worst[i]))
            worst[i] = INFINITY;
    comm_max_double(comm_world(comm), worst, 4, NULL);
    coverage_add(cover, p);
    coverage_worst(cover, p->dtype, worst);
    if (comm_rank(comm))
        return;
    struct limits most = limits_of(p);
    bool good = worst[0] <= most.loss && worst[1] <= most.grad && worst[2] <= most.param &&
                worst[3] == 0;
    ok(good,
       "plan %llu.%lld: %d ranks, %d stages, %s, %s %s: loss %.1e gradients %.1e parameters "
       "%.1e, memory %s",
       (unsigned long long)seed, (long long)k, p->devices, p->n_stages,
       plan_dtype_name(p->dtype), p->model->name, p->model->set, worst[0], worst[1],
       worst[2], worst[3] == 0 ? "as planned" : "NOT as planned");
    if (!good)
        print_plan(p);
}

/* Plan number k of a seed. */
static int check_plan(const struct job *job, uint64_t seed, int64_t k,
                      struct coverage *cover, struct err *err) {
    const int n = comm_size(job->comm);
    struct rng r = {rng_bits(seed, (uint64_t)n, (uint64_t)k), 0};
    /* Few plans on each number of ranks have all cases between them. */
    int c = (int)((seed + 5 * (uint64_t)n + (uint64_t)k) % CASES);
    struct model *m = load_case(c, err);
    struct plan *p = m ? draw_plan(&r, m, case_optimizer(c), n) : NULL;
    if (p)
        draw_types(seed, k, n, p);
    if (!p || plan_check(p, err) < 0)
        return -1;
    bool text = survives_text(p, err);
    if (!text && comm_rank(job->comm) == 0) {
        ok(0, "plan %llu.%lld: the same after writing and reading: %s",
           (unsigned long long)seed, (long long)k, err->msg);
        print_plan(p);
    }
    struct reference ref = reference_new(m);
    struct outcome o;
    if (reference_file(&ref, p, job->dir, c, false, err) < 0)
        return -1;
    if (run_plan(job, p, (struct watch){.ref = &ref}, !job->on_gpu || k % 2 == 0, &o, err) <
        0) {
        print_plan(p);
        return -1;
    }
    report(job->comm, p, seed, k, &o, cover);
    reference_release(&ref, m);
    plan_destroy(p);
    model_destroy(m);
    return 0;
}

static int make_coverage(struct coverage *cover, struct err *err) {
    *cover = coverage_rows();
    for (int c = 0; c < CASES; c++) {
        struct model *m = load_case(c, err);
        if (!m)
            return -1;
        coverage_of_model(cover, m);
        model_destroy(m);
    }
    return 0;
}

/* What the plans of all runs in a folder have, and that nothing is in none. */
static int print_coverage(const char *path) {
    struct coverage cover;
    struct err err = {0};
    if (make_coverage(&cover, &err) < 0) {
        printf("Bail out! %s\n", err.msg);
        return 1;
    }
    coverage_load(&cover, path);
    coverage_print(&cover);
    for (int i = 0; i < cover.n; i++)
        if (cover.rows[i].plans == 0)
            ok(0, "coverage: a plan of %s: %s", cover.rows[i].group, cover.rows[i].name);
    ok(cover.plans > 0, "%lld plans have all of %d properties", (long long)cover.plans,
       cover.n);
    return done_testing();
}

/* argv[3] and on: seeds, each with how many plans are drawn from it. */
static int run_checks(const struct job *job, int argc, char **argv, struct err *err) {
    struct coverage cover;
    char path[512];
    if (make_coverage(&cover, err) < 0)
        return -1;
    snprintf(path, sizeof path, "%s/coverage", job->dir);
    for (int i = 3; i + 1 < argc; i += 2)
        for (int64_t k = 0; k < atoll(argv[i + 1]); k++)
            if (check_plan(job, strtoull(argv[i], NULL, 10), k, &cover, err) < 0)
                return -1;
    if (comm_rank(job->comm))
        return 0;
    coverage_load(&cover, path);
    return coverage_save(&cover, path) ? 0 : err_system(err, "%s: cannot write", path);
}

int main(int argc, char **argv) {
    struct err err = {0};
    if (argc == 3 && !strcmp(argv[1], "coverage"))
        return print_coverage(argv[2]);
    bool making = argc == 3 && !strcmp(argv[1], "reference");
    bool on_gpu = argc > 1 && !strcmp(argv[1], "check-gpu");
    if (!making && (argc < 5 || argc % 2 == 0 || (strcmp(argv[1], "check") && !on_gpu))) {
        fprintf(stderr,
                "usage: plans reference DIR | plans check|check-gpu DIR SEED COUNT... | "
                "plans coverage FILE\n");
        return 2;
    }
    struct comm *comm = comm_create(NULL, NULL, NULL, &err);
    bool ready = comm && (!on_gpu || nccl_use(comm, NULL, &err) == 0);
    struct job job = {comm, ready ? comm_alloc(comm, ARENA_BYTES, &err) : NULL, argv[2],
                      on_gpu};
    int rc = !job.arena ? -1
             : making   ? make_references(&job, &err)
                        : run_checks(&job, argc, argv, &err);
    if (rc < 0) {
        printf("Bail out! %s\n", err.msg);
        fflush(stdout);
        if (comm)
            comm_abort(comm, 1);
        return 1;
    }
    int status = 0;
    if (comm_rank(comm) == 0)
        status = making ? 0 : done_testing();
    comm_destroy(comm);
    return status;
}
