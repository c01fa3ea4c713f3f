/* Attention of GPUs, asked of a library that is not there (cudnn.h): its graph is run operation by operation, and
 * what comes out is what the CPU computes. Who does it is as cuda_attention_pick.c says. Weft's own kernels are
 * the CPU's here; those of GPUs are tried in tests/emulate. Whether the library knows the graph as one of fused
 * attention is asked in cuda-engines. */
#include "../unit/tap.h"
#include "common/half.h"
#include "common/rng.h"
#include "cuda/cuda.h"
#include "cuda/cuda_attention_library.h"
#include "cuda/cuda_workspace_attention.h"
#include "cudnn.h"
#include "device/cpu.h"
#include "runtime.h"

#include <math.h>

#define ENTRY(name) {#name, (void (*)(void))fake_##name},
static const struct {
    const char *name;
    void (*p)(void);
} functions[] = {DNN_LIBRARY(ENTRY)};

static struct {
    bool missing, captured;
    int looked_for;
    int own;       /* runs of weft's own kernels */
    double own_ms; /* that one takes */
} world;

int cuda_library_open(const char *file, const char *const *names, void *table,
                      struct err *err) {
    world.looked_for++;
    if (world.missing)
        return err_system(err, "%s: cannot be opened", file);
    for (size_t i = 0; names[i]; i++)
        memcpy((char *)table + i * sizeof functions[i].p, &functions[i].p,
               sizeof functions[i].p);
    return 0;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status) {
    (void)s;
    *status = world.captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

static double runtime_ms(void) {
    return fake_cudnn_ms() + world.own_ms * world.own;
}

static bool runtime_left_error(void) {
    return false;
}

/* ---- an instruction ------------------------------------------------------------------------- */

enum tensor { Q, K, V, DY, O, LSE, DQ, DK, DV, TENSORS };
static const char *const names[] = {"q", "k", "v", "dy", "o", "lse", "dq", "dk", "dv"};

struct job {
    struct attention_n n;
    enum dtype type;
    void *at[TENSORS];
};

static int64_t elements(const struct attention_n *n, int i) {
    const int64_t q = n->batch * n->seq * n->heads * n->dim;
    switch (i) {
    case Q:
    case DQ: return q * (n->packed ? 3 : 1);
    case O:
    case DY: return q;
    case LSE: return n->batch * n->seq * n->heads;
    default: return n->packed ? 0 : n->batch * n->kv_seq * n->kv_heads * n->dim;
    }
}

static enum dtype type_of(const struct job *j, int i) {
    return i == LSE ? DTYPE_f32 : j->type;
}

static void begin(struct job *j, const struct attention_n *n, enum dtype type) {
    *j = (struct job){.n = *n, .type = type};
    for (int i = 0; i < TENSORS; i++) {
        const int64_t count = elements(n, i);
        if (!count)
            continue;
        j->at[i] = aligned_alloc(64, (size_t)(count * 4 + 63) / 64 * 64);
        float *wide = calloc((size_t)count, sizeof *wide);
        for (int64_t k = 0; k < count && i <= DY; k++)
            wide[k] = rng_normal(1, (uint64_t)i, (uint64_t)k);
        kernel_narrow(count, type_of(j, i), wide, j->at[i]);
        free(wide);
    }
}

static void end(struct job *j) {
    for (int i = 0; i < TENSORS; i++)
        free(j->at[i]);
}

static struct device_args args_of(const struct job *j) {
    return (struct device_args){.dtype = j->type, .scale = 0.3f};
}

/* Documents that all begin where their sequence does. */
static int32_t *starts_of(const struct job *j) {
    static int32_t zeros[64];
    return j->n.starts ? zeros : NULL;
}

static void on_cpu(struct job *j, bool backward) {
    const struct device_args args = args_of(j);
    union instr_n n = {.attention = j->n};
    const union instr_src forth = {.attention = {.q = j->at[Q],
                                                 .k = j->at[K],
                                                 .v = j->at[V],
                                                 .starts = starts_of(j)}},
                          back = {.attention_bwd = {.q = j->at[Q],
                                                    .k = j->at[K],
                                                    .v = j->at[V],
                                                    .starts = starts_of(j),
                                                    .o = j->at[O],
                                                    .lse = j->at[LSE],
                                                    .dy = j->at[DY]}};
    const union instr_dst done = {.attention = {.o = j->at[O], .lse = j->at[LSE]}},
                          slopes = {.attention_bwd = {
                                        .dq = j->at[DQ], .dk = j->at[DK], .dv = j->at[DV]}};
    cpu_exec(backward ? I_attention_bwd : I_attention, &n, backward ? &back : &forth,
             backward ? &slopes : &done, &args);
}

/* Of the job that is under way. */
static struct job *now;

int cuda_attention_own(struct cuda_call *c, const struct attention_job *job,
                       bool backward) {
    (void)c, (void)job;
    world.own++;
    on_cpu(now, backward);
    return 0;
}

bool cuda_attention_in_chunks(const struct attention_job *job) {
    return (uintptr_t)job->q % 16 == 0;
}

static struct cuda_device dev;
static cudaStream_t stream = (cudaStream_t)&dev; /* any address */

/* As cuda_attention.c does it, with exactly the workspace that is planned. */
static int on_gpu(struct job *j, bool backward, struct err *err) {
    const struct device_args args = args_of(j);
    const union instr_n n = {.attention = j->n};
    const int64_t bytes =
        cuda_workspace_instr(backward ? I_attention_bwd : I_attention, &n, j->type);
    const int64_t width = j->n.packed ? j->n.heads * j->n.dim : 0;
    char *q = j->at[Q], *dq = j->at[DQ];
    struct cuda_call c = {&dev,  stream, &args, aligned_alloc(256, (size_t)bytes + 256),
                          bytes, err};
    const struct attention_job job = {
        .t = attention_of(&j->n, NULL, starts_of(j), NULL, &args),
        .q = q,
        .k = width ? q + 2 * width : j->at[K],
        .v = width ? q + 4 * width : j->at[V],
        .o = j->at[O],
        .lse = j->at[LSE],
        .dout = j->at[DY],
        .dq = dq,
        .dk = width ? dq + 2 * width : j->at[DK],
        .dv = width ? dq + 4 * width : j->at[DV],
        .delta = c.workspace};
    now = j;
    int rc = dev.attentions->run(&c, &job, backward);
    if (rc == 1)
        rc = cuda_attention_own(&c, &job, backward);
    free(c.workspace);
    return rc;
}

static void device(bool asked, bool tunes, bool deterministic) {
    world.own = world.looked_for = 0;
    world.own_ms = 100;
    world.missing = world.captured = false;
    fake_cudnn = (struct fake_cudnn){.live = fake_cudnn.live};
    dev = (struct cuda_device){.arch = 90, .deterministic = deterministic};
    dev.attentions = cuda_attentions_create(asked, tunes);
}

static int runs(void) {
    int n = 0;
    for (int i = 0; i < FAKE_ENGINES; i++)
        n += fake_cudnn.runs[i];
    return n;
}

/* ---- values --------------------------------------------------------------------------------- */

/* The largest difference, as a part of the largest number. */
static double apart(const struct job *a, const struct job *b, int i) {
    const int64_t n = elements(&a->n, i);
    float *x = malloc((size_t)n * sizeof *x), *y = malloc((size_t)n * sizeof *y);
    double far = 0, most = 0;
    kernel_widen(n, type_of(a, i), a->at[i], x);
    kernel_widen(n, type_of(b, i), b->at[i], y);
    for (int64_t k = 0; k < n; k++) {
        far = fmax(far, fabs((double)x[k] - y[k]));
        most = fmax(most, fabs((double)y[k]));
        if (x[k] != x[k])
            far = (double)INFINITY;
    }
    free(x);
    free(y);
    return far / most;
}

static void test_values(const struct attention_n *n, enum dtype type, bool backward,
                        double most) {
    struct job want, got;
    struct err err = {0};
    double far = 0;
    int worst = O;
    begin(&want, n, type);
    begin(&got, n, type);
    on_cpu(&want, false);
    on_cpu(&got, false);
    device(true, false, false);
    if (backward)
        on_cpu(&want, true);
    const int rc = on_gpu(&got, backward, &err);
    for (int i = backward ? DQ : O; i <= (backward ? DV : LSE); i++)
        if (elements(n, i) && apart(&got, &want, i) > far)
            far = apart(&got, &want, worst = i);
    ok(rc == 0 && far <= most && runs() > 0 && !world.own && !fake_cudnn.wrong &&
           fake_cudnn.stream == stream,
       "%s%s, %d x %d/%d heads of %d, %d queries, %d keys%s%s: %s %.1e apart %s%s",
       dtype_name(type), backward ? " backward" : "", (int)n->batch, (int)n->heads,
       (int)n->kv_heads, (int)n->dim, (int)n->seq, (int)n->kv_seq,
       n->causal ? ", causal" : "", n->packed ? ", packed" : "", names[worst], far, err.msg,
       fake_cudnn.wrong ? fake_cudnn.wrong : "");
    cuda_attentions_destroy(dev.attentions);
    end(&want);
    end(&got);
}

static const struct attention_n packed = {.batch = 2,
                                          .heads = 3,
                                          .group = 1,
                                          .kv_heads = 3,
                                          .seq = 20,
                                          .kv_seq = 20,
                                          .dim = 16,
                                          .causal = 1,
                                          .packed = 1};
static const struct attention_n grouped = {.batch = 2,
                                           .heads = 4,
                                           .group = 2,
                                           .kv_heads = 2,
                                           .seq = 24,
                                           .kv_seq = 24,
                                           .dim = 8,
                                           .causal = 1};
static const struct attention_n cross = {
    .batch = 3, .heads = 2, .group = 1, .kv_heads = 2, .seq = 8, .kv_seq = 40, .dim = 24};
static const struct attention_n long_packed = {.batch = 1,
                                               .heads = 1,
                                               .group = 1,
                                               .kv_heads = 1,
                                               .seq = 1024,
                                               .kv_seq = 1024,
                                               .dim = 8,
                                               .causal = 1,
                                               .packed = 1};
static const struct attention_n long_grouped = {
    .batch = 1, .heads = 2, .group = 2, .kv_heads = 1, .seq = 40, .kv_seq = 1024, .dim = 8};

/* ---- choices -------------------------------------------------------------------------------- */

static struct library_algorithm heard;
static int n_heard;

static int hear(void *arg, const struct library_algorithm *found, struct err *err) {
    (void)arg, (void)err;
    heard = *found;
    n_heard++;
    return 0;
}

/* Runs it three times; how often by cuDNN and by weft's kernels after the first. */
struct who {
    int library, own, rc;
};
static struct who settle(const struct attention_n *n, enum dtype type, bool backward) {
    struct job j;
    struct err err = {0};
    struct who w = {0};
    begin(&j, n, type);
    on_cpu(&j, false);
    w.rc = on_gpu(&j, backward, &err);
    w.library = -runs(), w.own = -world.own;
    for (int i = 0; i < 2; i++)
        w.rc |= on_gpu(&j, backward, &err);
    w.library += runs(), w.own += world.own;
    end(&j);
    return w;
}

static void test_choice(const char *name, bool tunes, bool deterministic, double own_ms,
                        bool library) {
    struct cuda_choices c = {.found = hear};
    device(false, tunes, deterministic);
    world.own_ms = own_ms;
    n_heard = 0;
    cuda_attentions_know(dev.attentions, &c);
    const struct who w = settle(&packed, DTYPE_bf16, false);
    ok(w.rc == 0 && w.library == 2 * library && w.own == 2 * !library &&
           !fake_cudnn.wrong && n_heard == (tunes && !deterministic) &&
           (!n_heard ||
            !strncmp(heard.algorithm, library ? "cudnn 108 " : "own", library ? 10 : 4)),
       "%s: %s does it%s%s", name, library ? "cuDNN" : "weft", n_heard ? ", kept as " : "",
       n_heard ? heard.algorithm : "");
    cuda_attentions_destroy(dev.attentions);
}

/* What a profile knows is done so, unless it does not suit. */
static void test_known(const char *algorithm, bool deterministic, bool library, int taken,
                       int refused) {
    struct library_algorithm known;
    struct cuda_choices c = {.found = hear, .known = &known, .n_known = 1};
    device(false, true, false);
    c.n_known = 0;
    cuda_attentions_know(dev.attentions, &c);
    settle(&packed, DTYPE_bf16, false); /* its name */
    cuda_attentions_destroy(dev.attentions);
    known = heard;
    snprintf(known.algorithm, sizeof known.algorithm, "%s", algorithm);
    c = (struct cuda_choices){.known = &known, .n_known = 1};
    device(false, false, deterministic);
    cuda_attentions_know(dev.attentions, &c);
    const struct who w = settle(&packed, DTYPE_bf16, false);
    ok(w.rc == 0 && w.library == 2 * library && w.own == 2 * !library &&
           c.of[CUDA_CUDNN].taken == taken && c.of[CUDA_CUDNN].refused == refused,
       "known as \"%s\"%s: %s does it, %d taken, %d refused", algorithm,
       deterministic ? ", the same bits wanted" : "", library ? "cuDNN" : "weft",
       (int)c.of[CUDA_CUDNN].taken, (int)c.of[CUDA_CUDNN].refused);
    cuda_attentions_destroy(dev.attentions);
}

/* Weft's kernels do what cuDNN is not asked for. */
static void test_own(const char *name, const struct attention_n *n, enum dtype type,
                     bool backward) {
    device(false, true, false);
    const struct who w = settle(n, type, backward);
    ok(w.rc == 0 && !runs() && !world.looked_for && w.own == 2, "%s: weft does it", name);
    cuda_attentions_destroy(dev.attentions);
}

static void test_without(void) {
    device(false, true, false);
    world.captured = true;
    struct who w = settle(&packed, DTYPE_bf16, false);
    ok(w.own == 2 && !world.looked_for, "seen first in a capture: weft does it");
    cuda_attentions_destroy(dev.attentions);
    device(false, true, false);
    world.missing = true;
    w = settle(&packed, DTYPE_bf16, false);
    ok(w.rc == 0 && w.own == 2 && world.looked_for == 1,
       "no library: it is looked for once");
    cuda_attentions_destroy(dev.attentions);
    device(true, false, false);
    world.missing = true;
    w = settle(&packed, DTYPE_bf16, false);
    ok(w.rc == -1, "no library, where it was asked for: an error");
    cuda_attentions_destroy(dev.attentions);
    device(false, true, false);
    fake_cudnn.only_failing = true;
    w = settle(&packed, DTYPE_bf16, false);
    ok(w.rc == 0 && w.own == 2 && w.library == 0, "an engine that fails is tried once");
    cuda_attentions_destroy(dev.attentions);
}

int main(void) {
    struct err err = {0};
    if (kernel_init(1, &err) < 0)
        printf("Bail out! %s\n", err.msg);
    test_values(&packed, DTYPE_bf16, false, 1e-2);
    test_values(&packed, DTYPE_f16, false, 2e-3);
    test_values(&grouped, DTYPE_bf16, false, 1e-2);
    test_values(&cross, DTYPE_f16, false, 2e-3);
    test_values(&long_packed, DTYPE_bf16, true, 2e-2);
    test_values(&long_grouped, DTYPE_f16, true, 4e-3);
    test_choice("untried", false, false, 100, false);
    test_choice("tried", true, false, 100, true);
    test_choice("tried, weft's kernels are faster", true, false, 0.05, false);
    test_choice("the same bits wanted", true, true, 100, false);
    char name[128];
    snprintf(name, sizeof name, "cudnn 101 %d=8", (int)CUDNN_KNOB_TYPE_TILE_SIZE);
    test_known("own", false, false, 1, 0);
    test_known(name, false, true, 1, 0);
    test_known(name, true, false, 0, 0); /* adds in any order */
    test_known("cudnn 77", false, false, 0, 1);
    struct attention_n n = packed;
    n.dim = 136;
    test_own("heads of 136 columns", &n, DTYPE_bf16, false);
    test_own("floats", &packed, DTYPE_f32, false);
    test_own("few keys, backward", &packed, DTYPE_bf16, true);
    n = packed, n.packed = 0, n.seq = 8;
    test_own("a causal mask over more keys than queries", &n, DTYPE_bf16, false);
    n = packed, n.starts = 1;
    test_own("documents", &n, DTYPE_bf16, false);
    test_without();
    ok(fake_cudnn.live == 0, "all descriptions are destroyed, %d are left",
       fake_cudnn.live);
    return done_testing();
}
