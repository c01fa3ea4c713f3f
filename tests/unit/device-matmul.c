/* Products of matrices by strides, against sums in double: every order of rows and columns, counts
 * between them, rows and columns of one element. */
#include "device.h"

#include "device/cpu.h"

enum { OUTER, INNER, ROW, COLUMN, INDICES };

/* A tensor whose four indices stand in some order, outermost first. */
struct tensor {
    int64_t size[INDICES];
    struct matrix m;
    int64_t n;
    float *x;
};

static struct tensor tensor_of(const int64_t size[INDICES], const int order[INDICES],
                               uint64_t stream) {
    struct tensor t = {.n = 1};
    int64_t *strides[INDICES] = {&t.m.outer, &t.m.inner, &t.m.row, &t.m.column};
    memcpy(t.size, size, sizeof t.size);
    for (int i = INDICES - 1; i >= 0; i--) {
        *strides[order[i]] = t.n;
        t.n *= size[order[i]];
    }
    t.x = noise(t.n, 1, stream);
    return t;
}

static int64_t at(const struct tensor *t, int64_t o, int64_t i, int64_t r, int64_t c) {
    return o * t->m.outer + i * t->m.inner + r * t->m.row + c * t->m.column;
}

/* The largest difference from the sums, y being written or added to. */
static double error_of(const struct tensor *a, const struct tensor *b,
                       const struct tensor *y, const float *before) {
    double worst = 0;
    for (int64_t o = 0; o < a->size[OUTER]; o++)
        for (int64_t i = 0; i < a->size[INNER]; i++)
            for (int64_t r = 0; r < a->size[ROW]; r++)
                for (int64_t c = 0; c < b->size[COLUMN]; c++) {
                    double sum = before ? before[at(y, o, i, r, c)] : 0;
                    for (int64_t k = 0; k < a->size[COLUMN]; k++)
                        sum += (double)a->x[at(a, o, i, r, k)] * b->x[at(b, o, i, k, c)];
                    worst = fmax(worst, fabs(sum - y->x[at(y, o, i, r, c)]));
                }
    return worst;
}

/* m, n, k, outer, inner; the orders by number. */
static double check(const int64_t s[5], const int *a_order, const int *b_order,
                    const int *y_order) {
    int64_t a_size[] = {s[3], s[4], s[0], s[2]}, b_size[] = {s[3], s[4], s[2], s[1]};
    int64_t y_size[] = {s[3], s[4], s[0], s[1]};
    struct tensor a = tensor_of(a_size, a_order, 1), b = tensor_of(b_size, b_order, 2);
    struct tensor y = tensor_of(y_size, y_order, 3);
    float *before = copy(y.n, y.x);
    struct matrices m = {a.m, b.m, y.m};
    struct device_args args = {.matrices = &m};
    union instr_n n = {
        .matmul = {.m = s[0], .n = s[1], .k = s[2], .outer = s[3], .inner = s[4]}};
    union instr_src src = {.matmul = {.a = a.x, .b = b.x}};
    union instr_dst dst = {.matmul = {.y = y.x}};
    cpu_exec(I_matmul_dw, &n, &src, &dst, &args);
    double worst = error_of(&a, &b, &y, before);
    cpu_exec(I_matmul, &n, &src, &dst, &args);
    worst = fmax(worst, error_of(&a, &b, &y, NULL));
    free(a.x), free(b.x), free(y.x), free(before);
    return worst;
}

static void all(void) {
    static const int orders[][INDICES] = {{OUTER, INNER, ROW, COLUMN},
                                          {OUTER, INNER, COLUMN, ROW},
                                          {OUTER, ROW, INNER, COLUMN},
                                          {ROW, OUTER, INNER, COLUMN},
                                          {COLUMN, OUTER, INNER, ROW}};
    static const int64_t sizes[][5] = {{5, 7, 3, 2, 3}, {1, 6, 4, 2, 2}, {6, 1, 4, 1, 3},
                                       {4, 3, 1, 2, 1}, {1, 1, 5, 2, 2}, {33, 17, 64, 1, 2},
                                       {1, 1, 1, 3, 2}, {8, 8, 8, 1, 1}};
    enum { ORDERS = sizeof orders / sizeof *orders, SIZES = sizeof sizes / sizeof *sizes };
    for (int s = 0; s < SIZES; s++) {
        double worst = 0;
        for (int i = 0; i < ORDERS * ORDERS * ORDERS; i++)
            worst =
                fmax(worst, check(sizes[s], orders[i % ORDERS], orders[i / ORDERS % ORDERS],
                                  orders[i / ORDERS / ORDERS]));
        ok(worst < 1e-4, "%d products %d x %d x %d in %d orders: within %.0e",
           (int)(sizes[s][3] * sizes[s][4]), (int)sizes[s][0], (int)sizes[s][1],
           (int)sizes[s][2], ORDERS * ORDERS * ORDERS, worst);
    }
}

int main(void) {
    with_threads(all);
    return done_testing();
}
