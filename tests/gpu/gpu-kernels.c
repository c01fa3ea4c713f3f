/* gpu-kernels [SEEDS [OPCODE]] - every instruction on a GPU does what it does on the CPU: on
 * random shapes, in 32 and in 16 bits, launched and replayed from a graph, and with a result
 * in the place of an operand. Operands stay as they are. Norms also with the sums of residuals. Where there is
 * no GPU it says so.
 *
 * What is compared is rounded to the type of the instruction on both sides: 1e-5 for f32,
 * 2e-2 for bf16 and 4e-3 for f16, of a number and the root of the mean square of its tensor. */
#include "../unit/tap.h"
#include "cuda/cuda_workspace.h"
#include "given.h"

static const enum dtype types[] = {DTYPE_f32, DTYPE_bf16, DTYPE_f16};
static struct given_at at;

static int on_gpu(struct trial *t, bool records, struct err *err) {
    struct cuda_given g;
    int rc = given_up(&at, t, -1, &g, err);
    if (rc == 0)
        rc = records ? given_replay(at.stream, &g, 1, err)
                     : given_launch(at.stream, &g, err);
    if (rc == 0)
        rc = given_down(&at, t, -1, &g, err);
    given_release(&at, t, -1, &g);
    return rc;
}

static bool same_operands(const struct trial *a, const struct trial *b) {
    bool same = true;
    for (int k = 0; k < a->info->n_in; k++)
        same &= k == b->over || !a->work.in[k] ||
                !memcmp(a->in[k], b->in[k], (size_t)trial_in_bytes(a, k));
    return same;
}

/* NULL, or what is wrong. */
static const char *judge(struct trial *want, struct trial *got, int over, bool records,
                         double most, double *apart, struct err *err) {
    trial_results(want, -1);
    trial_results(got, over);
    trial_on_cpu(want);
    if (on_gpu(got, records, err) < 0)
        return err->msg;
    *apart = trial_distance(got, want);
    if (!(*apart <= most))
        return over < 0 ? "is not what the CPU computes" : "is not right in place";
    return same_operands(want, got) ? NULL : "changes operands";
}

/* One seed: launched, replayed, and in the place of each operand that allows it. Launched
 * first, for libraries choose before streams are captured. */
static const char *try_seed(enum opcode code, enum dtype dtype, uint64_t seed, double most,
                            double *worst, char *name, size_t size, struct err *err) {
    const struct instr_info *info = instr_info(code);
    const char *wrong = NULL;
    for (int way = 0; way < info->n_in + 2 && !wrong; way++) {
        const int over = way - 2;
        const bool records = way == 1;
        struct trial want, got;
        double apart = 0;
        if (over >= 0 && !(info->in[over].flags & OPERAND_OVER))
            continue;
        trial_begin(&want, code, dtype, seed);
        trial_begin(&got, code, dtype, seed);
        trial_name(&want, name, size);
        if (over < 0 || want.work.in[over])
            wrong = judge(&want, &got, over < 0 ? -1 : over, records, most, &apart, err);
        *worst = fmax(*worst, apart);
        trial_end(&want);
        trial_end(&got);
    }
    return wrong;
}

static double bound(enum dtype dtype) {
    return dtype == DTYPE_f32 ? 1e-5 : dtype == DTYPE_bf16 ? 2e-2 : 4e-3;
}

static void test_opcode(enum opcode code, enum dtype dtype, int seeds, const char *by) {
    const double most = bound(dtype);
    double worst = 0;
    char name[256] = "", bad[1500] = "";
    const char *wrong = NULL;
    for (int seed = 1; seed <= seeds && !wrong; seed++) {
        struct err err = {0};
        wrong =
            try_seed(code, dtype, (uint64_t)seed, most, &worst, name, sizeof name, &err);
        if (wrong)
            snprintf(bad, sizeof bad, "; seed %d, %s: %s", seed, name, wrong);
    }
    ok(!wrong, "%s %s%s: at most %.1e apart%s", opcode_name(code), dtype_name(dtype), by,
       worst, bad);
}

static bool is_convolution(enum opcode code) {
    return code == I_conv2d || code == I_conv2d_dx || code == I_conv2d_dw;
}

/* ---- pairs -------------------------------------------------------------------------------- */

/* The sum of a residual in one kernel with the norm behind it, or with the gradient of one before it: beside the
 * CPU's, and recorded with something between the two it is two kernels of the same bits. NULL, or what is wrong. */
static const char *try_residual(enum opcode norm, enum dtype dtype, uint64_t seed,
                                double *worst, struct err *err) {
    struct trial_pair want, one, apart;
    const char *wrong = NULL;
    trial_pair_residual(&want, norm, dtype, seed);
    trial_pair_residual(&one, norm, dtype, seed);
    trial_pair_residual(&apart, norm, dtype, seed);
    trial_pair_on_cpu(&want);
    const int rc = given_pair(&at, &one, seed % 2 ? GIVEN_PAIR : GIVEN_CAPTURED, err);
    if (rc < 0 || given_pair(&at, &apart, GIVEN_APART, err) < 0)
        wrong = err->msg;
    else if (seed % 2 && rc == 0)
        wrong = "is not one kernel";
    else if (trial_pair_distance(&one, &apart) != 0)
        wrong = "has other bits than the two one by one";
    *worst = fmax(*worst, trial_pair_distance(&one, &want));
    trial_pair_end(&want), trial_pair_end(&one), trial_pair_end(&apart);
    return wrong;
}

static void test_residual(enum opcode norm, enum dtype dtype, int seeds) {
    double worst = 0;
    const char *wrong = NULL;
    struct err err = {0};
    for (int seed = 1; seed <= seeds && !wrong; seed++)
        wrong = try_residual(norm, dtype, (uint64_t)seed, &worst, &err);
    ok(!wrong && worst <= bound(dtype), "%s %s with a sum: at most %.1e apart %s",
       opcode_name(norm), dtype_name(dtype), worst, wrong ? wrong : "");
}

static void test_residuals(int seeds, const char *name) {
    static const enum opcode norms[] = {I_layernorm, I_rmsnorm, I_layernorm_bwd,
                                        I_rmsnorm_bwd};
    for (size_t k = 0; k < sizeof norms / sizeof *norms; k++)
        for (size_t i = 0; i < sizeof types / sizeof *types; i++)
            if (strstr(opcode_name(norms[k]), name))
                test_residual(norms[k], types[i], seeds);
}

/* ---- all of them -------------------------------------------------------------------------- */

/* All instructions with weft's own kernels for convolutions, or these alone by cuDNN. */
static void test_device(int seeds, const char *name, bool cudnn) {
    struct err err = {0};
    struct cuda_backend cuda = cuda_backend(&(struct cuda_options){
        .workspace_bytes = 256 << 20, .convolution = cudnn ? "cudnn" : "own"});
    at.dev = device_create(&cuda.backend, 0, 2, &err);
    at.stream = at.dev ? device_stream_create(at.dev, &err) : NULL;
    ok(at.stream != NULL, "a GPU %s", err.msg);
    for (int c = 0; c < OPCODE_COUNT && at.stream; c++) {
        const enum opcode code = (enum opcode)c;
        if (!opcode_computes(code) || (cudnn && !is_convolution(code)) ||
            !strstr(opcode_name(code), name))
            continue;
        for (size_t i = 0; i < sizeof types / sizeof *types; i++)
            test_opcode(code, types[i], seeds, cudnn ? " by cuDNN" : "");
    }
    if (at.stream && !cudnn)
        test_residuals(seeds, name);
    device_stream_destroy(at.stream);
    device_destroy(at.dev);
}

int main(int argc, char **argv) {
    struct err err = {0};
    int seeds = argc > 1 ? atoi(argv[1]) : 10;
    const char *name = argc > 2 ? argv[2] : "";
    int gpus = cuda_count(&err);
    if (gpus <= 0) {
        printf("1..0 # SKIP no GPU: %s\n", gpus < 0 ? err.msg : "none is to be seen");
        return 0;
    }
    if (kernel_init(2, &err) < 0)
        return 4;
    test_device(seeds, name, false);
    test_device(seeds, name, true);
    kernel_release();
    return done_testing();
}
