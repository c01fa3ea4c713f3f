/* Cross-entropy and embedding against double, whole and with the vocabulary split. */
#include "device.h"

struct data {
    int64_t rows, n;
    float *x;
    int32_t *target, ignore;
    double loss, *lse, *dx; /* expected, scale 1 */
};

/* Some rows do not count: what stands in them does not matter. */
static bool counts(struct data *d, int64_t i) {
    if (i % 5 == 4)
        d->target[i] = -1;
    else if (i % 7 == 6)
        d->target[i] = d->ignore;
    for (int64_t j = 0; j < d->n && d->target[i] == -1; j++)
        d->x[i * d->n + j] = NAN;
    return d->target[i] >= 0 && d->target[i] != d->ignore;
}

static struct data make(int64_t rows, int64_t n, float std) {
    struct data d = {rows,
                     n,
                     noise(rows * n, std, 1),
                     malloc((size_t)rows * sizeof(int32_t)),
                     n > 2 ? (int32_t)n / 2 : -1,
                     0,
                     doubles(rows),
                     doubles(rows * n)};
    struct rng rng = {3, 0};
    for (int64_t i = 0; i < rows; i++) {
        const float *x = d.x + i * n;
        double max = -INFINITY, sum = 0;
        d.target[i] = (int32_t)rng_below(&rng, n);
        d.lse[i] = 0;
        if (!counts(&d, i))
            continue;
        for (int64_t j = 0; j < n; j++)
            max = fmax(max, x[j]);
        for (int64_t j = 0; j < n; j++)
            sum += exp(x[j] - max);
        d.lse[i] = max + log(sum);
        d.loss += d.lse[i] - x[d.target[i]];
        for (int64_t j = 0; j < n; j++)
            d.dx[i * n + j] = exp(x[j] - d.lse[i]) - (j == d.target[i]);
    }
    return d;
}

static void release(struct data *d) {
    free(d->x), free(d->target), free(d->lse), free(d->dx);
}

static void check(int64_t rows, int64_t n, float std) {
    struct data d = make(rows, n, std);
    float *lse = floats(rows), *dx = copy(rows * n, d.x);
    const struct kernel_targets target = {d.target, d.ignore, 0};
    double loss = kernel_cross_entropy(rows, n, d.x, &target, lse);
    kernel_cross_entropy_dx(rows, n, dx, &target, lse, 1.0f, dx);
    double wrong = fabs(loss - d.loss) / (fabs(d.loss) + 1e-3),
           e = nmse(rows * n, dx, d.dx);
    ok(wrong < 1e-6 && nmse(rows, lse, d.lse) < 1e-13 && (n == 1 || e < 1e-11),
       "%dx%d, deviation %g: loss %.9g, relative error %.0e; gradient %.0e", (int)rows,
       (int)n, std, loss, wrong, e);
    free(lse), free(dx);
    release(&d);
}

static void check_split(int64_t rows, int64_t n, int64_t parts, float std) {
    struct data d = make(rows, n, std);
    const int64_t w = n / parts;
    float *part = floats(3 * rows * parts), *lse = floats(rows), *dx = floats(rows * n);
    float *block = floats(rows * w);
    for (int64_t p = 0; p < parts; p++) {
        for (int64_t i = 0; i < rows; i++)
            memcpy(block + i * w, d.x + i * n + p * w, (size_t)w * sizeof *block);
        const struct kernel_targets target = {d.target, d.ignore, p * w};
        kernel_cross_entropy_part(rows, w, block, &target, part + 3 * rows * p);
    }
    double loss = kernel_cross_entropy_finish(rows, parts, part, lse);
    for (int64_t p = 0; p < parts; p++) {
        for (int64_t i = 0; i < rows; i++)
            memcpy(block + i * w, d.x + i * n + p * w, (size_t)w * sizeof *block);
        const struct kernel_targets target = {d.target, d.ignore, p * w};
        kernel_cross_entropy_dx(rows, w, block, &target, lse, 0.5f, block);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < w; j++)
                dx[i * n + p * w + j] = 2 * block[i * w + j];
    }
    double wrong = fabs(loss - d.loss) / fabs(d.loss), e = nmse(rows * n, dx, d.dx);
    ok(wrong < 1e-6 && e < 1e-11,
       "%dx%d in %d parts, deviation %g: relative error %.0e, gradient %.0e", (int)rows,
       (int)n, (int)parts, std, wrong, e);
    free(part), free(lse), free(dx), free(block);
    release(&d);
}

static void test_cross_entropy(void) {
    check(1, 1, 1);
    check(1, 2, 1);
    check(3, 17, 1);
    check(100, 1024, 2);
    check(65, 1030, 30);
    check(9, 50257, 3);
    check(2, 4096, 300);
    check_split(5, 8, 2, 1);
    check_split(64, 1023, 3, 5);
    check_split(7, 50240, 4, 100);
}

/* Numbers above, below, inside and repeated. */
static void test_embedding(void) {
    enum { ROWS = 500, VOCAB = 37, N = 45, FIRST = 11 };
    int32_t id[ROWS];
    struct rng rng = {5, 0};
    for (int i = 0; i < ROWS; i++)
        id[i] = (int32_t)rng_below(&rng, 60);
    float *table = noise(VOCAB * N, 1, 1), *dout = noise(ROWS * N, 1, 2);
    float *dtable0 = noise(VOCAB * N, 1, 3), *dtable = copy(VOCAB * N, dtable0);
    float *out = floats(ROWS * N);
    double *want = doubles(VOCAB * N);
    int exact = 1;
    kernel_embedding(ROWS, VOCAB, N, id, FIRST, table, out);
    kernel_embedding_dw(ROWS, VOCAB, N, id, FIRST, dout, dtable);
    for (int64_t i = 0; i < VOCAB * N; i++)
        want[i] = dtable0[i];
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t j = 0; j < N; j++) {
            const int64_t at = id[i] - FIRST;
            const bool here = at >= 0 && at < VOCAB;
            exact &= out[i * N + j] == (here ? table[at * N + j] : 0);
            if (here)
                want[at * N + j] += dout[i * N + j];
        }
    ok(exact, "embedding: rows of the table, zeros for numbers outside");
    close_to(VOCAB * N, dtable, want, TIGHT, "embedding backward");
    free(table), free(dout), free(dtable0), free(dtable), free(out), free(want);
}

/* The loss must not depend on the threads. */
static void test_threads(void) {
    struct data d = make(333, 1000, 3);
    float *lse = floats(333);
    double loss[2];
    for (int t = 0; t < 2; t++) {
        kernel_init(1 + 2 * t, NULL);
        loss[t] = kernel_cross_entropy(
            333, 1000, d.x, &(struct kernel_targets){d.target, d.ignore, 0}, lse);
    }
    ok(loss[0] == loss[1], "1 and 3 threads: the same loss");
    free(lse);
    release(&d);
}

int main(void) {
    with_threads(test_cross_entropy);
    with_threads(test_embedding);
    test_threads();
    return done_testing();
}
