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
#include "exec/exec_impl.h"
#include "nccl/nccl.h"
#include "plan-draw.h"
#include "program/workspace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 5, BATCH = DRAWN_BATCH, ARENA_BYTES = 48 << 20, TYPES = 3, SCALE = 64 };

#define MODELS "./tests/models/"
static const struct {
    const char *model, *set;
} cases[] = {
    {"gpt:nano", "layers=2,hidden=48,heads=12,seq=24,vocab=48,tied=1"},
    {MODELS "encdec.json", ""},
    {"gpt:nano", "layers=2,hidden=48,heads=12,seq=24,vocab=48,tied=0"},
    {MODELS "nested.json", ""},
    {"gpt:nano", "layers=3,hidden=48,heads=6,seq=12,vocab=96,tied=1,dropout=0.1"},
    {MODELS "patches.json", ""},
    {"gpt:nano", "layers=1,hidden=96,heads=24,seq=24,vocab=48,tied=1"},
    {"mlp:mnist", "pixels=48,hidden=96,inner=48,classes=24,layers=2"},
    {"gpt:nano", "layers=4,hidden=24,heads=6,seq=8,vocab=24,tied=0,dropout=0.2"},
    {MODELS "encdec.json", "encoders=1,decoders=3,ffn=96,vocab=24,dropout=0.1"},
    {"gpt:nano", "layers=2,hidden=48,heads=8,seq=6,vocab=192,tied=1"},
    {MODELS "nested.json", "narrow=24,heads=12,seq=24,dropout=0.1"},
    {"mlp:mnist", "pixels=24,hidden=48,inner=192,classes=12,layers=4,dropout=0.1"},
    {MODELS "patches.json", "rows=4,columns=24,hidden=96,groups=24,layers=3"},
    {"mlp:mnist", "pixels=96,hidden=24,inner=24,classes=48,layers=1"},
    {MODELS "products.json", ""},
    {"gpt:nano", "layers=2,hidden=36,heads=12,seq=24,vocab=72,tied=1"},
    /* targets that do not count: some samples' more than others' */
    {MODELS "pairs.json", ""},
    {MODELS "pairs.json", "layers=1,target_seq=24,ffn=96,vocab=96,skip=1"},
    {MODELS "experts.json", ""},
    {"moe:nano", "layers=2,hidden=48,heads=6,seq=12,vocab=48,experts=4,slack=80"},
    {"moe:nano", "layers=4,hidden=24,heads=4,seq=8,vocab=24,experts=12,group=2,tied=0"},
    {MODELS "windows.json", ""},
    {"wide-resnet:nano", "image=12,base=4,classes=12,group=6"},
    {MODELS "windows.json", "rows=12,columns=24,channels=12,taps=5,b=12"},
    {MODELS "attend.json", "seq=12,other=24,heads=12,kv_heads=6,hidden=24,vocab=48"},
    {"llama:nano", "layers=2,hidden=48,heads=12,kv_heads=4,ffn=96,seq=24,vocab=48"},
    {"t5:nano",
     "layers=2,hidden=24,heads=6,kv=4,ffn=48,seq=24,target_seq=12,vocab=48,buckets=8"},
    {"gpt-qkv:nano", "layers=2,hidden=48,heads=6,kv_heads=3,seq=24,vocab=48,tied=1"},
    {"transformer:nano", "layers=2,hidden=24,heads=6,kv=4,ffn=48,seq=24,vocab=48"},
    {"llama:nano", "layers=2,hidden=48,heads=12,kv_heads=2,ffn=96,seq=12,vocab=48,tied=1"},
    {"t5:nano",
     "layers=2,hidden=24,heads=4,kv=6,ffn=48,seq=12,target_seq=24,vocab=24,dropout=0.1"},
    {"mixtral:nano",
     "layers=2,hidden=48,heads=12,kv_heads=4,ffn=48,seq=12,vocab=48,experts=6"},
    {"mixtral:nano",
     "layers=3,hidden=24,heads=4,kv_heads=2,ffn=24,seq=8,vocab=24,experts=12,"
     "top=3,group=2,slack=100,tied=1"},
    {MODELS "block.json", "layers=2,seq=24,hidden=24,heads=12,ffn=48,vocab=48,tied=1"},
    {MODELS "switch.json", "seq=12,hidden=24,ffn=48,vocab=24,experts=6"},
    {MODELS "convnet.json", "height=12,width=24,channels=6,hidden=12,out=24,classes=12"},
    /* branches beside each other, of which stages have some of each */
    {MODELS "towers.json", "wides=2,narrows=3,dropout=0.1"},
    {MODELS "tasks.json", ""},
};
enum { CASES = sizeof cases / sizeof *cases };

static struct model *load_case(int c, struct err *err) {
    return model_load(cases[c].model, cases[c].set, err);
}

static enum optimizer case_optimizer(int c) {
    return c % 3 == 1 ? OPTIMIZER_sgd : OPTIMIZER_adamw;
}

/* ---- what one rank finds ------------------------------------------------------------- */

struct reference {
    double loss[STEPS], norm[STEPS], more[STEPS][METRIC_COUNT];
    float **grad, **param; /* whole tensors, by parameter */
};

static int64_t param_elems(const struct model *m, int p) {
    struct extents x = model_extents(m, &m->params[p].shape, 1);
    return extents_count(&x);
}

static void reference_path(char *buf, size_t n, const char *dir, int c, enum dtype dtype) {
    snprintf(buf, n, "%s/case-%d-%s", dir, c, dtype_name(dtype));
}

static void reference_io(struct reference *r, const struct model *m, FILE *f, bool write) {
    size_t bad = 0;
#define IO(p, size, count)                                                                 \
    bad += (write ? fwrite(p, size, count, f) : fread(p, size, count, f)) != (count)
    IO(r->loss, sizeof *r->loss, (size_t)STEPS);
    IO(r->norm, sizeof *r->norm, (size_t)STEPS);
    IO(r->more, sizeof *r->more, (size_t)STEPS);
    for (int p = 0; p < m->n_params; p++) {
        size_t n = (size_t)param_elems(m, p);
        IO(r->grad[p], sizeof(float), n);
        IO(r->param[p], sizeof(float), n);
    }
    if (bad) {
        printf("Bail out! cannot read or write the reference\n");
        exit(1);
    }
}

static struct reference reference_new(const struct model *m) {
    struct reference r = {.grad = mem_array((size_t)m->n_params, sizeof *r.grad),
                          .param = mem_array((size_t)m->n_params, sizeof *r.param)};
    for (int p = 0; p < m->n_params; p++) {
        r.grad[p] = mem_array((size_t)param_elems(m, p), sizeof(float));
        r.param[p] = mem_array((size_t)param_elems(m, p), sizeof(float));
    }
    return r;
}

static void reference_release(struct reference *r, const struct model *m) {
    for (int p = 0; p < m->n_params; p++) {
        free(r->grad[p]);
        free(r->param[p]);
    }
    free(r->grad);
    free(r->param);
}

static bool on_gpu;

/* ---- comparing blocks ---------------------------------------------------------------- */

struct watch {
    struct exec *x;
    struct reference *ref;
    bool store; /* the reference is being made */
    double worst_grad, worst_param;
    bool last; /* the last step */
};

/* What a buffer holds, as f32; free it. */
static float *values_of(const struct exec *x, const struct exec_chunk *c, int id) {
    const struct buffer *b = &c->sp->buffers[id];
    int64_t bytes = b->elems * dtype_size(b->dtype);
    float *values = mem_array((size_t)b->elems, sizeof *values);
    void *held = exec_address((struct exec *)x, b->offset, 0);
    char *copy = on_gpu && !b->host ? mem_array((size_t)bytes + 1, 1) : NULL;
    if (copy && device_download(x->streams[STREAM_compute], copy, held, bytes, NULL) < 0)
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

/* Largest difference of a block from the whole tensor, over the tensor's largest element; of 16
 * bits, norm over norm, that of all tensors on average where this one's is smaller; or copies the
 * block there. */
static double compare(struct watch *w, const struct exec_chunk *c, int param,
                      struct placement place, int buffer, float *const *tensors) {
    const struct program *g = w->x->g;
    const struct model *m = g->plan->model;
    struct extents x = model_extents(m, &m->params[param].shape, 1);
    struct box b = placement_box(c->sp->mesh, &x, place, c->rp.coord);
    int64_t n = 1, total = extents_count(&x);
    for (int i = 0; i < x.rank; i++)
        n *= b.size[i];
    float *block = values_of(w->x, c, buffer), *whole = tensors[param];
    double largest = 1e-7, worst = 0, squares = 0, apart = 0;
    for (int64_t i = 0; i < total; i++) {
        largest = fmax(largest, fabs(whole[i]));
        squares += (double)whole[i] * whole[i];
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0, rest = i, stride = 1;
        for (int d = x.rank - 1; d >= 0; d--) {
            at += (b.first[d] + rest % b.size[d]) * stride;
            rest /= b.size[d];
            stride *= x.size[d];
        }
        apart += pow((double)block[i] - whole[at], 2);
        if (w->store)
            whole[at] = block[i];
        else if (!(fabs((double)block[i] - whole[at]) <= worst * largest)) /* NaN counts */
            worst = fabs((double)block[i] - whole[at]) / largest;
    }
    free(block);
    if (w->store || g->plan->dtype == DTYPE_f32)
        return worst;
    return sqrt(apart / fmax(squares, mean_square(m, tensors)));
}

/* Softmax does not see what is the same for all keys: the gradient of their bias is zero, and what
 * comes out is the rounding of sums in one order or another. */
static bool is_noise(const struct model *m, int param) {
    const char *end = strstr(m->params[param].name, ".k.bias");
    return end && !end[strlen(".k.bias")];
}

static void on_instr(void *ctx, const struct instr *i, struct action a, double start,
                     double end) {
    struct watch *w = ctx;
    const struct exec_chunk *c = exec_chunk_of(w->x, a.stage);
    (void)start, (void)end;
    if (w->last && i->code == I_sum_squares && !is_noise(w->x->g->plan->model, i->param)) {
        double d = compare(w, c, i->param, i->place, i->in.sum_squares.g, w->ref->grad);
        w->worst_grad = d > w->worst_grad || isnan(d) ? d : w->worst_grad;
    }
}

static void check_param(struct watch *w, const struct exec_chunk *c, int param,
                        struct placement place, int buffer) {
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

static int run_plan(struct plan *plan, struct comm *comm, float *arena,
                    struct reference *ref, bool store, bool watched, struct outcome *out,
                    struct err *err) {
    struct program *g = program_compile(plan, err);
    if (!g || program_validate(g, err) < 0)
        return -1;
    struct data *data = open_data(plan->model, err);
    struct watch w = {.ref = ref, .store = store};
    struct exec_options o = exec_defaults();
    if (!on_gpu) {
        o.arena = arena;
        o.arena_bytes = ARENA_BYTES;
    }
    o.warmup = 2;
    o.lr = plan->optimizer == OPTIMIZER_sgd ? 0.05 : 1e-3;
    /* Noise in gradients that are zero in exact arithmetic must not be normalized. */
    o.eps = 1e-4;
    o.clip = 0.5;
    o.on_instr = watched ? on_instr : NULL;
    o.on_instr_ctx = &w;
    struct cuda_report report = {0};
    struct cuda_backend cuda = cuda_backend(&(struct cuda_options){
        .program = g, .rank = comm_rank(comm), .deterministic = true, .report = &report});
    if (on_gpu)
        o.device = &cuda.backend;
    int rc = -1;
    *out = (struct outcome){0};
    if (data && (w.x = exec_create(g, comm, data, &o, err))) {
        rc = exec_init(w.x, err);
        w.x->loss_scale /= SCALE;
        for (int s = 0; s < STEPS && rc == 0; s++) {
            struct exec_metrics m;
            w.last = s == STEPS - 1;
            rc = exec_step(w.x, &m, err);
            if (store) {
                ref->loss[s] = m.loss;
                ref->norm[s] = m.grad_norm;
                memcpy(ref->more[s], m.more, sizeof m.more);
            } else if (rc == 0) {
                note_errors(&m, ref, s, out);
            }
        }
        if (rc == 0)
            rc = exec_drain(w.x, err); /* what goes to the host's memory is there then */
        for (int k = 0; k < w.x->n_chunks; k++)
            check_params(&w, &w.x->chunks[k]);
        out->bytes = w.x->high_water + w.x->host_high_water;
        out->planned = w.x->chunks->sp->arena_bytes + w.x->chunks->sp->host_bytes;
        if (on_gpu) { /* what CUDA was asked for, workspaces too, which are planned as well */
            out->bytes += report.own_bytes;
            out->planned +=
                w.x->chunks->sp->arena_bytes + workspace_gpu_of(g, w.x->chunks->sp->stage);
        }
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
                q->overlap == p->overlap && q->n_groups == p->n_groups;
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

static int make_references(struct comm *comm, float *arena, const char *dir,
                           struct err *err) {
    double fp32[STEPS];
    for (int i = 0; i < CASES * TYPES; i++) {
        int c = i / TYPES;
        struct model *m = load_case(c, err);
        if (!m)
            return -1;
        int bounds[2] = {0, m->n_ops};
        struct plan *p = plan_create(m, 1, bounds);
        p->batch = p->micro_batch = BATCH;
        p->optimizer = case_optimizer(c);
        p->dtype = (enum dtype)(i % TYPES);
        struct reference r = reference_new(m);
        struct outcome o;
        char path[512];
        if (plan_check(p, err) < 0 ||
            run_plan(p, comm, arena, &r, true, true, &o, err) < 0 ||
            check_coarsely(p, &r, fp32, err) < 0)
            return -1;
        reference_path(path, sizeof path, dir, c, p->dtype);
        FILE *f = fopen(path, "wb");
        if (!f)
            return err_system(err, "%s: cannot write", path);
        reference_io(&r, m, f, true);
        fclose(f);
        reference_release(&r, m);
        plan_destroy(p);
        model_destroy(m);
    }
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

static int check_plans(struct comm *comm, float *arena, const char *dir, uint64_t seed,
                       int64_t count, struct coverage *cover, struct err *err) {
    int n = comm_size(comm);
    for (int64_t k = 0; k < count; k++) {
        struct rng r = {rng_bits(seed, (uint64_t)n, (uint64_t)k), 0};
        /* Few plans on each number of ranks have all cases between them. */
        int c = (int)((seed + 5 * (uint64_t)n + (uint64_t)k) % CASES);
        struct model *m = load_case(c, err);
        struct plan *p = m ? draw_plan(&r, m, case_optimizer(c), n) : NULL;
        if (p)
            draw_types(seed, k, p);
        if (!p || plan_check(p, err) < 0)
            return -1;
        bool text = survives_text(p, err);
        if (!text && comm_rank(comm) == 0) {
            ok(0, "plan %llu.%lld: the same after writing and reading: %s",
               (unsigned long long)seed, (long long)k, err->msg);
            print_plan(p);
        }
        struct reference ref = reference_new(m);
        struct outcome o;
        char path[512];
        reference_path(path, sizeof path, dir, c, p->dtype);
        FILE *f = fopen(path, "rb");
        if (!f)
            return err_system(err, "%s: cannot read", path);
        reference_io(&ref, m, f, false);
        fclose(f);
        if (run_plan(p, comm, arena, &ref, false, !on_gpu || k % 2 == 0, &o, err) < 0) {
            print_plan(p);
            return -1;
        }
        report(comm, p, seed, k, &o, cover);
        reference_release(&ref, m);
        plan_destroy(p);
        model_destroy(m);
    }
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

static int run_checks(struct comm *comm, float *arena, int argc, char **argv,
                      struct err *err) {
    struct coverage cover;
    char path[512];
    if (make_coverage(&cover, err) < 0)
        return -1;
    snprintf(path, sizeof path, "%s/coverage", argv[2]);
    for (int i = 3; i + 1 < argc; i += 2)
        if (check_plans(comm, arena, argv[2], strtoull(argv[i], NULL, 10),
                        atoll(argv[i + 1]), &cover, err) < 0)
            return -1;
    if (comm_rank(comm))
        return 0;
    coverage_load(&cover, path);
    return coverage_save(&cover, path) ? 0 : err_system(err, "%s: cannot write", path);
}

int main(int argc, char **argv) {
    struct err err = {0};
    if (argc == 3 && !strcmp(argv[1], "coverage"))
        return print_coverage(argv[2]);
    bool making = argc == 3 && !strcmp(argv[1], "reference");
    on_gpu = argc > 1 && !strcmp(argv[1], "check-gpu");
    if (!making && (argc < 5 || argc % 2 == 0 || (strcmp(argv[1], "check") && !on_gpu))) {
        fprintf(stderr,
                "usage: plans reference DIR | plans check|check-gpu DIR SEED COUNT... | "
                "plans coverage FILE\n");
        return 2;
    }
    struct comm *comm = comm_create(NULL, NULL, NULL, &err);
    bool ready = comm && (!on_gpu || nccl_use(comm, NULL, &err) == 0);
    float *arena = ready ? comm_alloc(comm, ARENA_BYTES, &err) : NULL;
    int rc = arena ? 0 : -1;
    if (arena && making)
        rc = make_references(comm, arena, argv[2], &err);
    if (arena && !making)
        rc = run_checks(comm, arena, argc, argv, &err);
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
