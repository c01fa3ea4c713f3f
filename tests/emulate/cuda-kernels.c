/* Every CUDA kernel, run by the emulator (emulate.h), does what the CPU's kernel of the same
 * instruction does: on random shapes, most of them odd, in 32 and in 16 bits, and convolutions in TF32. Blocks and threads in
 * the opposite order give the same bits, and so does a result in the place of an operand; operands
 * stay as they are, and no more of the workspace is taken than is planned. In cuda-kernels-watched no access
 * is a race, and nothing is read that was not written (watch.h); of fewer shapes. */
#include "../unit/tap.h"
#include "../unit/trial_call.h"
#include "cuda/cuda_compute.h"
#include "device/cpu.h"
#include "emulate.h"
#include "watch.h"

static bool tf32; /* products of floats may be rounded */

/* What is added to begins with numbers; all else that is written is garbage. */
static void name_buffers(const struct trial *t, int over, const void *workspace,
                         int64_t workspace_bytes) {
    emu_buffer("the workspace", workspace, workspace_bytes, true);
    for (int k = 0; k < t->info->n_in; k++)
        emu_buffer(t->info->in[k].name, t->in[k], trial_in_bytes(t, k), false);
    for (int k = over >= 0; k < t->info->n_out; k++)
        emu_buffer(t->info->out[k].name, t->out[k], trial_out_bytes(t, k),
                   !trial_adds(t, &t->info->out[k]));
}

static int emulate(struct trial *t, int over, struct err *err) {
    static struct cuda_device dev = {
        .arch = 80, .processors = 4, .shared_bytes = 160 << 10};
    dev.tf32 = tf32;
    struct cuda_call c = trial_call(&dev, t, err);
    if (c.workspace)
        memset(c.workspace, 0xff, (size_t)c.workspace_bytes); /* NaN */
    trial_results(t, over);
    name_buffers(t, over, c.workspace, c.workspace_bytes);
    const struct cuda_given g = trial_given(t);
    int status = cuda_compute(&c, g.code, &g.n, &g.in, &g.out);
    emu_forget();
    free(c.workspace);
    return status;
}

static bool same_results(const struct trial *a, const struct trial *b) {
    bool same = !memcmp(&a->now, &b->now, sizeof a->now);
    for (int k = 0; k < a->info->n_out; k++)
        same &=
            !a->work.out[k] || !memcmp(a->out[k], b->out[k], (size_t)trial_out_bytes(a, k));
    return same;
}

static bool same_operands(const struct trial *a, const struct trial *b) {
    bool same = true;
    for (int k = 0; k < a->info->n_in; k++)
        same &= k == b->over || !a->work.in[k] ||
                !memcmp(a->in[k], b->in[k], (size_t)trial_in_bytes(a, k));
    return same;
}

/* What is wrong with this one, or NULL. */
static const char *judge(enum opcode code, enum dtype dtype, uint64_t seed, double most,
                         double *apart, char *name, size_t size) {
    struct trial want, got, again;
    struct err err = {0};
    const char *wrong = NULL;
    trial_begin(&want, code, dtype, seed);
    trial_begin(&got, code, dtype, seed);
    trial_name(&want, name, size);
    trial_results(&want, -1);
    trial_on_cpu(&want);
    emu_order(0);
    if (emulate(&got, -1, &err) < 0)
        wrong = "fails";
    *apart = wrong ? INFINITY : trial_distance(&got, &want);
    if (*apart > most)
        wrong = "is not what the CPU computes";
    else if (!same_operands(&want, &got))
        wrong = "changes operands";
    for (int over = -1; over < want.info->n_in && !wrong; over++) {
        if (over >= 0 &&
            (!(want.info->in[over].flags & OPERAND_OVER) || !want.work.in[over]))
            continue;
        trial_begin(&again, code, dtype, seed);
        emu_order(1);
        if (emulate(&again, over, &err) < 0 || !same_results(&got, &again))
            wrong = over < 0 ? "depends on the order of threads" : "is not right in place";
        trial_end(&again);
    }
    trial_end(&want);
    trial_end(&got);
    return emu_findings() > 0 && !wrong ? "uses memory as it may not" : wrong;
}

/* Tensor cores take 16 bits, so what stands between two products is rounded, too: of attention the
 * probabilities, of its gradient also those of the scores. bf16 has three bits less than f16. */
static double tolerance(enum opcode code, enum dtype dtype) {
    const bool attention = !strncmp(opcode_name(code), "attention", 9);
    const double half = code == I_attention_bwd ? 4e-3 : attention ? 2.5e-3 : 2e-3;
    if (dtype == DTYPE_bf16)
        return attention ? 8 * half : 1e-2;
    return dtype == DTYPE_f16 || tf32 ? half : 1e-5;
}

/* Of an opcode the first seed, which TF32 shows on, and of the seven others some each day. */
static bool tried(enum opcode code, int seed) {
    return seed == 0 || is_of_today((int64_t)code + seed, emu_watched() ? 16 : 4);
}

static void test_opcode(enum opcode code, enum dtype dtype) {
    const double most = tolerance(code, dtype);
    double worst = 0, apart = 0;
    char name[256] = "", bad[512] = "";
    const char *wrong = NULL;
    for (int seed = 0; seed < 8 && !wrong; seed++) {
        if (!tried(code, seed))
            continue;
        wrong = judge(code, dtype, (uint64_t)seed, most, &apart, name, sizeof name);
        worst = fmax(worst, apart);
        if (wrong)
            snprintf(bad, sizeof bad, "; seed %d, %s, %s", seed, name, wrong);
    }
    if (tf32 && !wrong && worst < 1e-5) /* as it is of floats that nobody rounds */
        wrong = "", snprintf(bad, sizeof bad, "; it is not computed in TF32");
    ok(!wrong, "%s %s: at most %.1e apart%s", opcode_name(code),
       tf32 ? "TF32" : dtype_name(dtype), worst, bad);
}

static bool is_there(enum opcode code) {
    return cuda_compute(NULL, code, NULL, NULL, NULL) == 0;
}

int main(int argc, char **argv) {
    static const enum dtype types[] = {DTYPE_f32, DTYPE_bf16, DTYPE_f16};
    struct err err = {0};
    if (kernel_init(1, &err) < 0)
        return 4;
    if (!is_there(I_gelu)) {
        printf("1..0 # SKIP the kernels are not there: no compiler of C++\n");
        return 0;
    }
    for (int c = 0; c < OPCODE_COUNT; c++) {
        if (argc > 1 && !strstr(opcode_name(c), argv[1]))
            continue;
        for (size_t i = 0; i < sizeof types / sizeof *types && is_there(c); i++)
            test_opcode(c, types[i]);
        tf32 = c == I_conv2d || c == I_conv2d_dx || c == I_conv2d_dw;
        if (tf32 && is_there(c))
            test_opcode(c, DTYPE_f32);
        tf32 = false;
    }
    printf("# %lld launches\n", (long long)emu_launches());
    kernel_release();
    return done_testing();
}
