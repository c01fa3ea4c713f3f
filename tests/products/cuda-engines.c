/* cuDNN itself, without a GPU: told what a GPU is, it lists engines for it and plans, though
 * it cannot run them. So each description that lib/cuda makes is one that the library takes,
 * and there are engines for convolutions as models have them that fit into the workspace.
 * Where the library is missing it says so. */
#include "../unit/tap.h"
#include "cuda/cuda_dnn_impl.h"
#include "cuda/cuda_workspace.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[] = {CUDA_LIBRARY_NAMES(DNN_LIBRARY) NULL};

/* What both have in common, as cuDNN writes it down. */
#define GPU                                                                                 \
    "{\"cudaDeviceId\": 0, \"deviceName\": \"GPU\", \"deviceVer\": %d, \"driverVer\": "     \
    "13000, \"isTccDriver\": 0, \"l2CacheSize\": %d, \"maxBlockSize\": [1024, 1024, 64], "  \
    "\"maxCtasPerSM\": 32, \"maxGridSize\": [2147483647, 65535, 65535], "                   \
    "\"maxRegistersPerSM\": 65536, \"maxSharedMemoryPerBlock\": 49152, "                    \
    "\"maxSharedMemoryPerBlockOptin\": %d, \"maxThreadsPerBlock\": 1024, "                  \
    "\"maxThreadsPerSM\": 2048, \"memClockRateKHz\": %d, \"multiProcessorCount\": %d, "     \
    "\"pciDeviceId\": 0, \"regsPerBlock\": 65536, \"reservedSharedMemoryPerBlock\": 1024, " \
    "\"smClockRateKHz\": %d, \"supportCoopLaunch\": 1, \"totalGlobalMem\": 85000000000, "   \
    "\"warpSize\": 32}"

static const struct gpu {
    const char *name;
    int version, cache, shared, memory_khz, processors, khz;
} gpus[] = {{"H100", 900, 50 << 20, 232448, 2619000, 132, 1980000},
            {"A100", 800, 40 << 20, 166912, 1593000, 108, 1410000}};

/* The library for this GPU, without a handle, which would need one. */
static cudnnStatus_t describe(struct dnn *d, const struct gpu *g) {
    char text[2048];
    const int n = snprintf(text, sizeof text, GPU, g->version, g->cache, g->shared,
                           g->memory_khz, g->processors, g->khz);
    cudnnStatus_t rc = d->lib.cudnnBackendCreateDescriptor(
        CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d->device);
    if (rc == CUDNN_STATUS_SUCCESS)
        rc = d->lib.cudnnBackendSetAttribute(
            d->device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, n, text);
    return rc == CUDNN_STATUS_SUCCESS ? d->lib.cudnnBackendFinalize(d->device) : rc;
}

/* The first layer, a bottleneck's three, a stride, and windows of a rank that has a part of
 * the height. */
static const struct kernel_conv shapes[] = {
    {64, 224, 224, 3, 112, 112, 64, 7, 7, 2, 3, 3},
    {64, 56, 56, 256, 56, 56, 64, 1, 1, 1, 0, 0},
    {64, 56, 56, 64, 56, 56, 64, 3, 3, 1, 1, 1},
    {64, 56, 56, 64, 56, 56, 256, 1, 1, 1, 0, 0},
    {64, 56, 56, 128, 28, 28, 128, 3, 3, 2, 1, 1},
    {64, 16, 56, 64, 14, 56, 64, 3, 3, 1, 0, 1},
};

static const char *const passes[] = {"y", "dx", "dw"};

/* Its name makes a plan of the same name and workspace. */
static bool is_made_again(const struct dnn *d, const struct dnn_wish *wish,
                          struct dnn_plans *plans, int i) {
    char name[128], other[128];
    struct dnn_plans again = {.n = 0};
    bool same = dnn_plan_name(d, plans, i, name, sizeof name) &&
                dnn_plan_named(d, wish, name, &again) == 1 &&
                dnn_plan_name(d, &again, 0, other, sizeof other) && !strcmp(name, other) &&
                again.of[0].workspace_bytes == plans->of[i].workspace_bytes;
    if (!same)
        printf("# plan %d is called \"%s\"\n", i, name);
    dnn_forget(d, &again);
    return same;
}

static void test_shape(const struct dnn *d, const char *gpu, const struct kernel_conv *s,
                       enum dtype type, enum kernel_pass pass) {
    int n[2] = {0},
        again = 0; /* plans, deterministic ones; those that their names bring back */
    for (int k = 0; k < 2; k++) {
        const struct dnn_wish wish = {.pass = pass,
                                      .s = *s,
                                      .type = type,
                                      .type_to = type,
                                      .deterministic = k == 1,
                                      .workspace_bytes = CUDA_WORKSPACE_CONVOLUTION};
        struct dnn_plans plans = {.n = 0};
        n[k] = dnn_plan(d, &wish, DNN_PLANS, &plans);
        for (int i = 0; i < n[k]; i++)
            again += is_made_again(d, &wish, &plans, i);
        dnn_forget(d, &plans);
    }
    ok(n[0] > 0 && n[1] > 0,
       "%s %s %s of %lldx%lldx%lld -> %lld, %lld taps: %d plans, %d deterministic", gpu,
       dtype_name(type), passes[pass], (long long)s->ih, (long long)s->iw,
       (long long)s->cin, (long long)s->cout, (long long)s->kh, n[0], n[1]);
    ok(again == n[0] + n[1], "%d of them come back by their names", again);
}

/* Numbers of the engines of the first plans, and the most parts into which one of them divides its sums. */
static int engines_of(const struct dnn *d, struct dnn_plans *plans, int n, long *parts) {
    long number[DNN_PLANS];
    int different = 0;
    *parts = 1;
    for (int i = 0; i < n; i++) {
        char name[128] = "";
        dnn_plan_name(d, plans, i, name, sizeof name);
        number[i] = strtol(name, NULL, 10);
        const char *split = strstr(name, " 0="); /* CUDNN_KNOB_TYPE_SPLIT_K */
        const long into = split ? strtol(split + 3, NULL, 10) : 1;
        *parts = into > *parts ? into : *parts;
        bool seen = false;
        for (int k = 0; k < i; k++)
            seen |= number[k] == number[i];
        different += !seen;
    }
    return different;
}

/* A gradient of weights with few channels has few sums, each of many places: fast are engines that divide the
 * places among all processors, and they stand behind many that do not. */
static void test_turns(const struct dnn *d, const char *gpu) {
    enum { FIRST = 4 };
    const struct dnn_wish wish = {.pass = KERNEL_WEIGHTS,
                                  .s = shapes[2],
                                  .type = DTYPE_f16,
                                  .type_to = DTYPE_f16,
                                  .workspace_bytes = CUDA_WORKSPACE_CONVOLUTION};
    struct dnn_plans plans = {.n = 0};
    long parts = 1;
    const int n = dnn_plan(d, &wish, DNN_PLANS, &plans);
    const int different = engines_of(d, &plans, n < FIRST ? n : FIRST, &parts);
    ok(n >= FIRST && different >= 3 && parts >= 16,
       "%s: of the first %d of %d plans %d are of different engines, and one divides each "
       "sum into %ld parts",
       gpu, FIRST, n, different, parts);
    dnn_forget(d, &plans);
}

/* Gradients of images in floats have only the engine for all cases, number 0; as forward passes, which is how they are
 * asked for (cuda_conv_known.c), they have others. */
static void test_mirrored(const struct dnn *d, const char *gpu) {
    const struct kernel_conv *s = &shapes[2];
    bool other[2] = {false};
    for (int k = 0; k < 2; k++) {
        const struct dnn_wish wish = {
            .pass = k ? KERNEL_FORWARD : KERNEL_DATA,
            .s = *s, /* as many channels on both sides, and padding */
            .type = DTYPE_f32,
            .type_to = DTYPE_f32,
            .workspace_bytes = CUDA_WORKSPACE_CONVOLUTION};
        struct dnn_plans plans = {.n = 0};
        const int n = dnn_plan(d, &wish, DNN_PLANS, &plans);
        for (int i = 0; i < n; i++) {
            char name[128] = "";
            dnn_plan_name(d, &plans, i, name, sizeof name);
            other[k] |= strtol(name, NULL, 10) != 0;
        }
        dnn_forget(d, &plans);
    }
    ok(!other[0] && other[1],
       "%s: of floats forward passes alone have an engine of their own", gpu);
}

/* ---- attention --------------------------------------------------------------------------- */

static const struct head {
    int64_t batch, heads, kv_heads, seq, dim;
    bool causal, packed;
} attentions[] = {
    {8, 12, 12, 1024, 64, true, true},
    {2, 16, 16, 8192, 128, true, true},
    {2, 32, 8, 4096, 128, true, false},
    {8, 16, 16, 512, 64, false, false},
};

static struct kernel_attention attention_of(const struct head *h) {
    const int64_t q = h->heads * h->dim * (h->packed ? 3 : 1);
    const int64_t kv = h->packed ? q : h->kv_heads * h->dim, o = h->heads * h->dim;
    return (struct kernel_attention){.batch = h->batch,
                                     .heads = h->heads,
                                     .kv_heads = h->kv_heads,
                                     .group = h->heads / h->kv_heads,
                                     .q_len = h->seq,
                                     .kv_len = h->seq,
                                     .dim = h->dim,
                                     .value = h->dim,
                                     .q_batch = h->seq * q,
                                     .q_seq = q,
                                     .kv_batch = h->seq * kv,
                                     .kv_seq = kv,
                                     .v_batch = h->seq * kv,
                                     .v_seq = kv,
                                     .o_batch = h->seq * o,
                                     .o_seq = o,
                                     .causal = h->causal,
                                     .scale = 0.125f};
}

/* Would this engine, with this kernel, compute the graph? Without NVIDIA's driver, by which it is compiled, the
 * library says of one that would that this alone is missing. */
static bool would(const struct dnn *d, cudnnBackendDescriptor_t graph, int64_t number,
                  int64_t kernel, struct dnn_plans *parts) {
    const cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_KERNEL_CFG;
    struct dnn_descriptor s = dnn_descriptor(d, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    dnn_set_part(&s, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
    dnn_set(&s, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &number);
    dnn_set_part(&s, CUDNN_ATTR_ENGINE_DEVICEPROP, d->device);
    struct dnn_descriptor k = dnn_descriptor(d, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    dnn_set(&k, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
    dnn_set(&k, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &kernel);
    struct dnn_descriptor c = dnn_descriptor(d, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    dnn_set_part(&c, CUDNN_ATTR_ENGINECFG_ENGINE, dnn_finish(&s, parts));
    dnn_set_part(&c, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, dnn_finish(&k, parts));
    dnn_finish(&c, parts);
    const cudnnStatus_t rc = s.rc == CUDNN_STATUS_SUCCESS ? c.rc : s.rc;
    return rc == CUDNN_STATUS_SUCCESS ||
           rc == CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING;
}

/* An engine of fused attention, with any of its kernels. */
static bool takes(const struct dnn *d, cudnnBackendDescriptor_t graph, int64_t number) {
    enum { KERNELS = 36 };
    struct dnn_plans parts = {.n = 0};
    bool any = false;
    for (int64_t kernel = -1; graph && kernel < KERNELS && !any; kernel++)
        any = would(d, graph, number, kernel, &parts);
    dnn_forget(d, &parts);
    return any;
}

/* Engine 1 does forward passes, 7 backward ones: each takes its own pattern of operations, and not the other's. */
enum { FORWARD_ENGINE = 1, BACKWARD_ENGINE = 7 };

static void test_attention(const struct dnn *d, const char *gpu, const struct head *h,
                           enum dtype type, bool backward) {
    const struct dnn_attention wish = {
        .backward = backward, .t = attention_of(h), .type = type};
    struct dnn_plans plans = {.n = 0};
    const cudnnBackendDescriptor_t graph = dnn_attention_graph(d, &wish, &plans);
    const bool as[] = {takes(d, graph, FORWARD_ENGINE), takes(d, graph, BACKWARD_ENGINE)};
    ok(as[backward] && !as[!backward],
       "%s attention%s %s, %lld x %lld/%lld heads of %lld, %lld long%s: the pattern is known%s",
       gpu, backward ? "_bwd" : "", dtype_name(type), (long long)h->batch,
       (long long)h->heads, (long long)h->kv_heads, (long long)h->dim, (long long)h->seq,
       h->causal ? ", causal" : "", as[!backward] ? " as the other pass" : "");
    dnn_forget(d, &plans);
}

int main(void) {
    struct err err = {0};
    struct dnn d = {.handle = NULL};
    if (cuda_library_open("libcudnn.so.9", names, &d.lib, &err) < 0) {
        printf("1..0 # SKIP %s\n", err.msg);
        return 0;
    }
    for (size_t g = 0; g < sizeof gpus / sizeof *gpus; g++) {
        if (describe(&d, &gpus[g]) != CUDNN_STATUS_SUCCESS) {
            printf("1..0 # SKIP this cuDNN plans for no GPU that is not there\n");
            return 0;
        }
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            for (int pass = KERNEL_FORWARD; pass <= KERNEL_WEIGHTS; pass++) {
                test_shape(&d, gpus[g].name, shapes + i, DTYPE_f32, (enum kernel_pass)pass);
                test_shape(&d, gpus[g].name, shapes + i, DTYPE_bf16,
                           (enum kernel_pass)pass);
            }
        test_turns(&d, gpus[g].name);
        test_mirrored(&d, gpus[g].name);
        for (size_t i = 0; i < sizeof attentions / sizeof *attentions; i++)
            for (int backward = 0; backward < 2; backward++) {
                test_attention(&d, gpus[g].name, attentions + i, DTYPE_bf16, backward);
                test_attention(&d, gpus[g].name, attentions + i, DTYPE_f16, backward);
            }
        d.lib.cudnnBackendDestroyDescriptor(d.device);
        d.device = NULL;
    }
    return done_testing();
}
