/* kernel-bench - speed of every kernel on the shapes of a small GPT, of GPT-2 124M, and of ResNets.
 *
 *     kernel-bench [-t THREADS] [-s SECONDS] [--cpu] [--turns] [gemm] [attention] [rows] [conv]
 *
 * Each line is the best of the repetitions that fit the time, because other work on the
 * machine only ever adds. Products, attention and convolutions are given in GFLOP/s (of a causal block
 * only the pairs that are computed count), the rest in GB/s of what must be read and
 * written. Each part is measured with floats and with bf16, which is compared. With --turns it waits for
 * a line of stdin after each: scripts/bench-kernels.py then measures the same in PyTorch.
 */
#include "common/opt.h"
#include "common/progress.h"
#include "device/cpu.h"
#include "device/kernel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct {
    int64_t threads;
    double seconds;
    bool cpu, turns;
} o = {.threads = 1, .seconds = 0.3};

static float *e, *f,
    *g; /* of floats whatever the type; e and f large enough for every shape */
static const float *wide;
static int32_t *id;
enum { FLOATS = 2048 * 50304, SMALL = 1 << 20, ROWS = 8192 };

static double clock_s(void) {
    struct timespec t;
    clock_gettime(o.cpu ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Best seconds of one run of CALL. */
#define BEST(best, CALL)                                                                   \
    do {                                                                                   \
        const double until = now_s() + o.seconds;                                          \
        best = INFINITY;                                                                   \
        CALL;                                                                              \
        do {                                                                               \
            const double start = clock_s();                                                \
            CALL;                                                                          \
            const double took = clock_s() - start;                                         \
            best = took < best ? took : best;                                              \
        } while (now_s() < until);                                                         \
    } while (0)

/* The seconds of the lines of floats, which those of bf16 are compared with in the same order. */
static struct {
    double seconds[200];
    int n, at;
    bool compares;
} lines;

static void line(const char *what, double count, double s, const char *unit) {
    printf("%-44s %10.1f us %8.1f %s", what, s * 1e6, count / s * 1e-9, unit);
    if (lines.compares)
        printf("  bf16, %.2f x as fast", lines.seconds[lines.at++] / s);
    else
        lines.seconds[lines.n++] = s;
    printf("\n");
    fflush(stdout);
    if (o.turns)
        for (int c = getchar(); c != '\n' && c != EOF;)
            c = getchar();
}

static void flops(const char *what, double count, double s) {
    line(what, count, s, "GFLOP/s");
}

static void bytes(const char *what, double count, double s) {
    line(what, count, s, "GB/s");
}

#undef T /* of kernel_type.h */
#undef TYPE
#undef TYPED
#define T           float
#define TYPE        DTYPE_f32
#define TYPED(name) name
#define NAME        "f32"
#include "kernel-shapes.h"
#undef T
#undef TYPE
#undef TYPED
#undef NAME
#define T           bf16
#define TYPE        DTYPE_bf16
#define TYPED(name) name##_bf16
#define NAME        "bf16"
#include "kernel-shapes.h"

static float *make(int64_t n) {
    float *x = aligned_alloc(64, (size_t)n * sizeof *x);
    if (!x)
        exit(EXIT_SYSTEM);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)((i * 7919) % 1009 - 504) * 0.002f;
    return x;
}

static bf16 *rounded(int64_t n, const float *x) {
    bf16 *y = aligned_alloc(64, (size_t)n * sizeof *y);
    if (!y)
        exit(EXIT_SYSTEM);
    kernel_narrow(n, DTYPE_bf16, x, y);
    return y;
}

static void run_part(void (*run)(void), void (*run_bf16)(void)) {
    lines.n = lines.at = 0;
    lines.compares = false;
    run();
    lines.compares = true;
    run_bf16();
}

int main(int argc, char **argv) {
    static const struct opt options[] = {
        {'t', "threads", OPT_INT, "N", "threads to use (1)", &o.threads},
        {'s', "seconds", OPT_TIME, "TIME", "time for each line (0.3 s)", &o.seconds},
        {0, "cpu", OPT_FLAG, NULL, "processor time of the calling thread", &o.cpu},
        {0, "turns", OPT_FLAG, NULL, "wait for a line of stdin after each", &o.turns},
        {0}};
    static const struct opt_tool tool = {"kernel-bench",
                                         "[options] [gemm] [attention] [rows] [conv]",
                                         "Measures the kernels.", options};
    struct err err = {0};
    int n = opt_parse(&tool, argc, argv, &err);
    if (n < 0 || kernel_init((int)o.threads, &err) < 0)
        return err_report(&err, tool.name);
    operands.a = make(FLOATS), operands.b = make(FLOATS), operands.c = make(FLOATS);
    operands.d = make(SMALL), e = make(FLOATS), f = make(FLOATS), g = make(SMALL);
    wide = operands.a;
    operands_bf16.a = rounded(FLOATS, operands.a);
    operands_bf16.b = rounded(FLOATS, operands.b);
    operands_bf16.c = rounded(FLOATS, operands.c);
    operands_bf16.d = rounded(SMALL, operands.d);
    id = calloc(ROWS, sizeof *id);
    for (int i = 0; i < ROWS; i++)
        id[i] = i * 37 % 1024;
    printf("# %s, %d thread%s\n", kernel_gemm_library(), (int)o.threads,
           o.threads > 1 ? "s" : "");
    static const struct {
        const char *name;
        void (*run)(void), (*run_bf16)(void);
    } part[] = {{"gemm", gemm, gemm_bf16},
                {"attention", attention, attention_bf16},
                {"rows", rows, rows_bf16},
                {"conv", conv, conv_bf16}};
    for (int p = 0; p < 4; p++) {
        bool wanted = n == 0;
        for (int i = 0; i < n; i++)
            wanted |= !strcmp(argv[i], part[p].name);
        if (wanted)
            run_part(part[p].run, part[p].run_bf16);
    }
    kernel_release();
    free(operands.a), free(operands.b), free(operands.c), free(operands.d);
    free(operands_bf16.a), free(operands_bf16.b), free(operands_bf16.c);
    free(operands_bf16.d), free(e), free(f), free(g), free(id);
    return 0;
}
