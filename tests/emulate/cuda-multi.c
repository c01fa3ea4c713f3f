/* The update of many tensors in one launch (cuda_multi.h), by the emulator, is what the CPU makes of them one
 * by one: lists of random sizes, some longer than a launch holds, tensors that lie anywhere, that come
 * twice, that are rounded at once, later or not at all. In cuda-multi-watched no access is a race (watch.h). */
#include "../unit/tap.h"
#include "common/mem.h"
#include "common/rng.h"
#include "cuda/cuda_multi.h"
#include "cuda/cuda_workspace.h"
#include "device/cpu.h"
#include "emulate.h"
#include "watch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#pragma weak cuda_multi_take
#pragma weak cuda_multi_give

enum { TENSORS = 150, LARGEST = 5000, ROOM = TENSORS * (LARGEST + 16) };

/* What the updates read and write. */
struct state {
    float *g, *p, *m, *v;
    uint16_t *rounded;
    struct scalars now;
    int64_t at[TENSORS], n[TENSORS];
};

static void state_init(struct state *s, uint64_t seed) {
    struct rng rng = {.seed = seed};
    float **all[] = {&s->g, &s->p, &s->m, &s->v};
    *s = (struct state){.rounded = mem_array(ROOM, sizeof *s->rounded),
                        .now = {.updates = 3, .lr = 0.01f, .grad_scale = 0.5f}};
    for (size_t k = 0; k < 4; k++) {
        *all[k] = mem_array(ROOM, sizeof **all[k]);
        for (int64_t i = 0; i < ROOM; i++)
            (*all[k])[i] = (float)rng_normal(seed + k, 1, (uint64_t)i);
    }
    int64_t end = 0;
    for (int i = 0; i < TENSORS; i++) {
        const bool large = rng_below(&rng, 8) == 0, odd = rng_below(&rng, 3) == 0;
        for (s->n[i] = 0; !s->n[i];)
            s->n[i] = rng_below(&rng, large ? LARGEST : 20);
        s->at[i] = odd ? end + rng_below(&rng, 8) : (end + 7) / 8 * 8;
        end = s->at[i] + s->n[i];
        for (int64_t k = 0; k < s->n[i]; k++)
            s->v[s->at[i] + k] = fabsf(s->v[s->at[i] + k]);
    }
}

static void state_release(struct state *s) {
    free(s->g), free(s->p), free(s->m), free(s->v), free(s->rounded);
}

/* Gives instructions to both sides, or to one. */
struct giver {
    struct state *s;
    struct cuda_multi *together; /* NULL: the CPU */
    struct cuda_call call;
    int taken, failed;
};

static void give(struct giver *to, enum opcode code, int tensor, enum dtype dtype) {
    struct state *s = to->s;
    const int64_t at = s->at[tensor];
    const struct device_args args = {.dtype = dtype,
                                     .scalars = &s->now,
                                     .counts = tensor % 11 != 0,
                                     .beta1 = 0.9f,
                                     .beta2 = 0.95f,
                                     .opt_eps = 1e-8f,
                                     .decay = tensor % 2 ? 0.1f : 0};
    union instr_n n = {.adamw = {.elems = s->n[tensor]}}; /* of all three */
    union instr_src in = {{s->g + at}};
    union instr_dst out = {{s->p + at, s->m + at, s->v + at}};
    if (code == I_narrow) {
        in = (union instr_src){.narrow = {.x = s->p + at}};
        out = (union instr_dst){.narrow = {.y = s->rounded + at}};
    }
    to->call.args = &args;
    if (!to->together) {
        cpu_exec(code, &n, &in, &out, &args);
        return;
    }
    const int rc = cuda_multi_take(to->together, &to->call, code, &n, &in, &out);
    to->taken += rc > 0;
    to->failed += rc < 0;
}

/* A step as programs have it: squares, then steps, most of them rounded right behind. */
static void give_step(struct giver *to, uint64_t seed, enum dtype dtype) {
    struct rng rng = {.seed = seed};
    for (int i = 0; i < TENSORS; i++)
        give(to, I_sum_squares, i, DTYPE_f32);
    for (int i = 0; i < TENSORS; i++) {
        const int64_t kind = rng_below(&rng, 8);
        give(to, I_adamw, i, DTYPE_f32);
        if (kind == 0 && i > 0)
            give(to, I_adamw, i - 1, DTYPE_f32);
        if (kind > 1)
            give(to, I_narrow, i, dtype);
    }
    for (int i = 0; i < TENSORS; i++)
        give(to, I_narrow, i, dtype);
}

static double apart(const float *a, const float *b) {
    double far = 0;
    for (int64_t i = 0; i < ROOM; i++)
        far = fmax(far, fabs((double)a[i] - b[i]) / (1e-2 + fabs((double)b[i])));
    return far;
}

static int64_t different(const struct state *s, enum dtype dtype) {
    int64_t bad = 0;
    for (int t = 0; t < TENSORS; t++)
        for (int64_t i = s->at[t]; i < s->at[t] + s->n[t]; i++) {
            uint16_t want;
            kernel_narrow(1, dtype, s->p + i, &want);
            bad += want != s->rounded[i];
        }
    return bad;
}

static void test_step(uint64_t seed, enum dtype dtype) {
    const int64_t workspace_bytes = CUDA_WORKSPACE_SUMS * (int64_t)sizeof(double);
    void *workspace = mem_array(CUDA_WORKSPACE_SUMS, sizeof(double));
    struct state cpu, gpu;
    struct cuda_device dev = {.arch = 80};
    struct cuda_multi together = {.count = 0};
    struct err err = {0};
    state_init(&cpu, seed);
    state_init(&gpu, seed);
    struct giver one = {.s = &cpu};
    struct giver two = {.s = &gpu,
                        .together = &together,
                        .call = {.dev = &dev,
                                 .workspace = workspace,
                                 .workspace_bytes = workspace_bytes,
                                 .err = &err}};
    const int64_t before = emu_launches();
    emu_buffer("the workspace", workspace, workspace_bytes, true);
    emu_buffer("rounded", gpu.rounded, ROOM * (int64_t)sizeof *gpu.rounded, true);
    give_step(&one, seed, dtype);
    give_step(&two, seed, dtype);
    two.failed += cuda_multi_give(&together, &two.call) < 0;
    const double far =
        fmax(apart(gpu.p, cpu.p), fmax(apart(gpu.m, cpu.m), apart(gpu.v, cpu.v)));
    const double norm = fabs(gpu.now.norm_squared / cpu.now.norm_squared - 1);
    ok(two.failed == 0 && far < 1e-5, "%s: steps are at most %.1e apart %s",
       dtype_name(dtype), far, err.msg);
    ok(norm < 1e-12, "%s: the norm's square is %.1e apart", dtype_name(dtype), norm);
    ok(different(&gpu, dtype) == 0, "%s: all is rounded", dtype_name(dtype));
    ok(emu_launches() - before < two.taken / 3, "%s: %d instructions in %lld launches",
       dtype_name(dtype), two.taken, (long long)(emu_launches() - before));
    if (emu_watched())
        ok(emu_findings() == 0, "%s: memory is used as it may be", dtype_name(dtype));
    emu_forget();
    free(workspace);
    state_release(&cpu);
    state_release(&gpu);
}

/* What is of another sort is not taken, and comes behind what was. */
static void test_other(void) {
    struct state s;
    struct cuda_device dev = {.arch = 80};
    struct cuda_multi together = {.count = 0};
    struct err err = {0};
    state_init(&s, 1);
    struct giver to = {.s = &s, .together = &together, .call = {.dev = &dev, .err = &err}};
    const float before = s.p[s.at[0]];
    give(&to, I_adamw, 0, DTYPE_f32);
    ok(s.p[s.at[0]] == before && to.taken == 1, "a step waits for others");
    give(&to, I_fill, 0, DTYPE_f32);
    ok(s.p[s.at[0]] != before && to.taken == 1 && to.failed == 0,
       "and stands before what is of another sort %s", err.msg);
    state_release(&s);
}

int main(void) {
    struct err err = {0};
    if (kernel_init(1, &err) < 0)
        return 4;
    if (!cuda_multi_take) {
        printf("1..0 # SKIP the kernels are not there: no compiler of C++\n");
        return 0;
    }
    test_step(1, DTYPE_bf16);
    test_step(2, DTYPE_f16);
    test_other();
    kernel_release();
    return done_testing();
}
