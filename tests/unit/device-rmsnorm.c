/* RMS norm: values in double, gradients by central differences, split rows against whole ones. */
#include "device.h"

#include "device/cpu.h"

static const double eps = 1e-5;

static float offset; /* added to the weight */

static double value(int64_t n, const double *x, const double *gamma, int64_t j) {
    double squares = 0;
    for (int64_t k = 0; k < n; k++)
        squares += x[k] * x[k];
    return (gamma[j] + offset) * x[j] / sqrt(squares / (double)n + eps);
}

/* The loss whose gradient is dy: sum of y dy over a row. */
static double loss(int64_t n, const double *x, const double *gamma, const float *dy) {
    double sum = 0;
    for (int64_t j = 0; j < n; j++)
        sum += value(n, x, gamma, j) * dy[j];
    return sum;
}

struct test {
    int64_t rows, n;
    float *x, *gamma, *dy, *y, *stat, *dx, *dgamma;
};

static struct test make(int64_t rows, int64_t n) {
    return (struct test){rows,
                         n,
                         noise(rows * n, 2, 1),
                         noise(n, 1, 2),
                         noise(rows * n, 1, 3),
                         floats(rows * n),
                         floats(rows),
                         floats(rows * n),
                         noise(n, 1, 4)};
}

static void drop(struct test *t) {
    free(t->x), free(t->gamma), free(t->dy), free(t->y);
    free(t->stat), free(t->dx), free(t->dgamma);
}

static void run_whole(struct test *t) {
    struct device_args args = {.eps = (float)eps, .offset = offset};
    union instr_n n = {.rmsnorm = {.rows = t->rows, .n = t->n, .total = t->n}};
    union instr_src in = {.rmsnorm = {.x = t->x, .gamma = t->gamma}};
    union instr_dst out = {.rmsnorm = {.y = t->y, .stat = t->stat}};
    cpu_exec(I_rmsnorm, &n, &in, &out, &args);
    in.rmsnorm_bwd = (struct rmsnorm_bwd_src){
        .x = t->x, .gamma = t->gamma, .stat = t->stat, .dy = t->dy};
    out.rmsnorm_bwd = (struct rmsnorm_bwd_dst){t->dx, t->dgamma, NULL};
    cpu_exec(I_rmsnorm_bwd, &n, &in, &out, &args);
}

/* Row i by central differences, and the gradient of gamma over all rows. */
static void check(int64_t rows, int64_t n) {
    struct test t = make(rows, n);
    float *before = copy(n, t.dgamma);
    double *x = doubles(n), *gamma = doubles(n), *y = doubles(rows * n),
           *dx = doubles(rows * n), *dgamma = doubles(n);
    const double h = 1e-5;
    run_whole(&t);
    for (int64_t j = 0; j < n; j++) {
        gamma[j] = t.gamma[j];
        dgamma[j] = before[j];
    }
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < n; j++)
            x[j] = t.x[i * n + j];
        for (int64_t j = 0; j < n; j++) {
            double *where[] = {&x[j], &gamma[j]}, slope[2];
            y[i * n + j] = value(n, x, gamma, j);
            for (int k = 0; k < 2; k++) {
                double at = *where[k];
                *where[k] = at + h;
                slope[k] = loss(n, x, gamma, t.dy + i * n);
                *where[k] = at - h;
                slope[k] = (slope[k] - loss(n, x, gamma, t.dy + i * n)) / (2 * h);
                *where[k] = at;
            }
            dx[i * n + j] = slope[0];
            dgamma[j] += slope[1];
        }
    }
    double e = nmse(rows * n, t.y, y), f = nmse(rows * n, t.dx, dx);
    double g = nmse(n, t.dgamma, dgamma);
    ok(e < 1e-12 && f < 1e-9 && g < 1e-9, "rmsnorm %d x %d: y %.0e dx %.0e dgamma %.0e",
       (int)rows, (int)n, e, f, g);
    drop(&t);
    free(before), free(x), free(gamma), free(y), free(dx), free(dgamma);
}

/* Columns at..at+n-1 of every row as a tensor of their own. */
static float *columns(const float *x, int64_t rows, int64_t all, int64_t at, int64_t n) {
    float *part = floats(rows * n);
    for (int64_t i = 0; i < rows; i++)
        memcpy(part + i * n, x + i * all + at, sizeof *part * (size_t)n);
    return part;
}

static void check_split(int64_t rows, int64_t n, int64_t parts) {
    struct test t = make(rows, n * parts);
    float *squares = floats(rows), *sums = floats(rows), *part = floats(rows);
    struct device_args args = {.eps = (float)eps, .offset = offset};
    union instr_n shape = {.rmsnorm = {.rows = rows, .n = n, .total = n * parts}};
    double worst = 0;
    run_whole(&t);
    kernel_fill(rows, 0, squares), kernel_fill(rows, 0, sums);
    for (int64_t p = 0; p < parts; p++) {
        float *x = columns(t.x, rows, n * parts, p * n, n);
        float *dy = columns(t.dy, rows, n * parts, p * n, n);
        union instr_src in = {.rmsnorm_squares = {.x = x}};
        union instr_dst out = {.rmsnorm_squares = {.squares = part}};
        cpu_exec(I_rmsnorm_squares, &shape, &in, &out, &args);
        kernel_add(rows, squares, part, squares);
        in.rmsnorm_bwd_sums = (struct rmsnorm_bwd_sums_src){x, t.gamma + p * n, dy, NULL};
        out.rmsnorm_bwd_sums = (struct rmsnorm_bwd_sums_dst){part, NULL};
        cpu_exec(I_rmsnorm_bwd_sums, &shape, &in, &out, &args);
        kernel_add(rows, sums, part, sums);
        free(x), free(dy);
    }
    for (int64_t p = 0; p < parts; p++) {
        float *x = columns(t.x, rows, n * parts, p * n, n);
        float *dy = columns(t.dy, rows, n * parts, p * n, n);
        float *y = floats(rows * n), *dgamma = noise(n * parts, 1, 4);
        float *y_want = columns(t.y, rows, n * parts, p * n, n);
        float *dx_want = columns(t.dx, rows, n * parts, p * n, n);
        union instr_src in = {.rmsnorm = {x, t.gamma + p * n, squares, NULL}};
        union instr_dst out = {.rmsnorm = {y, part, NULL}};
        cpu_exec(I_rmsnorm, &shape, &in, &out, &args);
        for (int64_t i = 0; i < rows * n; i++)
            worst = fmax(worst, fabs(y[i] - y_want[i]));
        in.rmsnorm_bwd = (struct rmsnorm_bwd_src){x, t.gamma + p * n, part, dy, sums, NULL};
        out.rmsnorm_bwd = (struct rmsnorm_bwd_dst){dy, dgamma + p * n, NULL};
        cpu_exec(I_rmsnorm_bwd, &shape, &in, &out, &args);
        for (int64_t i = 0; i < rows * n; i++)
            worst = fmax(worst, fabs(dy[i] - dx_want[i]));
        for (int64_t j = p * n; j < (p + 1) * n; j++)
            worst = fmax(worst, fabs(dgamma[j] - t.dgamma[j]) / 10);
        free(x), free(dy), free(y), free(dgamma), free(y_want), free(dx_want);
    }
    ok(worst < 1e-5, "rmsnorm %d x %d over %d ranks: as whole, to %.0e", (int)rows,
       (int)(n * parts), (int)parts, worst);
    drop(&t);
    free(squares), free(sums), free(part);
}

static void all(void) {
    check(1, 2);
    check(3, 7);
    check(5, 16);
    check(4, 33);
    check(2, 200);
    offset = 1;
    check(3, 37);
    check_split(3, 21, 2);
    offset = 0;
    check_split(5, 16, 2);
    check_split(300, 33, 4);
    check_split(7, 1, 8);
}

int main(void) {
    with_threads(all);
    return done_testing();
}
