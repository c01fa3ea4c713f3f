/* Elements of 16 bits: rounding, products and attention beside those of floats with the same
 * numbers. What single instructions do in 16 bits is in device-instr.c. */
#include "device.h"
#include "device/kernel_impl.h"

/* n numbers that bf16 holds, normal times std, as floats and as they are. */
struct numbers {
    float *wide;
    bf16 *half;
};
static struct numbers numbers(int64_t n, float std, uint64_t stream) {
    struct numbers x = {noise(n, std, stream), malloc((size_t)(n + 1) * sizeof(bf16))};
    kernel_narrow(n, DTYPE_bf16, x.wide, x.half);
    kernel_widen(n, DTYPE_bf16, x.half, x.wide);
    return x;
}
static void release(struct numbers x) {
    free(x.wide), free(x.half);
}

/* The root of the mean square error of bf16 numbers, beside that of `want`. */
static double error_of(int64_t n, const bf16 *got, const float *want) {
    float *x = floats(n);
    double apart = 0, all = 0;
    kernel_widen(n, DTYPE_bf16, got, x);
    for (int64_t i = 0; i < n; i++) {
        apart += ((double)x[i] - want[i]) * ((double)x[i] - want[i]);
        all += (double)want[i] * want[i];
    }
    free(x);
    return sqrt(apart / (all > 0 ? all : 1));
}

/* ---- conversions --------------------------------------------------------------------------- */

/* Every number of 16 bits survives the way to a float and back; a NaN stays one. */
static void test_all_numbers(enum dtype dtype) {
    enum { ALL = 1 << 16 };
    uint16_t *bits = malloc(ALL * sizeof *bits), *back = malloc(ALL * sizeof *back);
    float *x = floats(ALL);
    int wrong = 0;
    for (int i = 0; i < ALL; i++)
        bits[i] = (uint16_t)i;
    kernel_widen(ALL, dtype, bits, x);
    kernel_narrow(ALL, dtype, x, back);
    for (int i = 0; i < ALL; i++) {
        const int exponent = dtype == DTYPE_bf16 ? 0x7f80 : 0x7c00;
        const bool nan = (i & 0x7fff) > exponent;
        const bool tiny = dtype == DTYPE_bf16 && !(i & exponent) && !(back[i] & 0x7fff);
        float again;
        kernel_widen(1, dtype, &back[i], &again);
        wrong += nan ? !isnan(x[i]) || !isnan(again) : back[i] != bits[i] && !tiny;
    }
    ok(wrong == 0, "%s: all numbers to 32 bits and back (%d wrong)", dtype_name(dtype),
       wrong);
    free(bits), free(back), free(x);
}

/* To nearest, and halfway to even: between two neighbours at each of their quarters. */
static void test_rounding(enum dtype dtype) {
    const double step = dtype == DTYPE_bf16 ? 0x1p-7 : 0x1p-10;
    int wrong = 0;
    for (int i = 0; i < 4 * 64; i++) {
        const double x = 1 + i * step / 4;
        const int below = i / 4, part = i % 4;
        const int want = part < 2 ? below : part > 2 ? below + 1 : below + below % 2;
        for (int sign = -1; sign <= 1; sign += 2) {
            float from = (float)(sign * x), to;
            uint16_t bits;
            kernel_narrow(1, dtype, &from, &bits);
            kernel_widen(1, dtype, &bits, &to);
            wrong += to != (float)(sign * (1 + want * step));
        }
    }
    float far[3] = {3.4e38f, -INFINITY, 1e9f}, back[3];
    uint16_t bits[3];
    kernel_narrow(3, dtype, far, bits);
    kernel_widen(3, dtype, bits, back);
    ok(wrong == 0 && isinf(back[0]) && back[1] == -INFINITY &&
           (isinf(back[2]) || dtype == DTYPE_bf16),
       "%s: to nearest, ties to even, too large is infinite (%d wrong)", dtype_name(dtype),
       wrong);
}

/* ---- products ------------------------------------------------------------------------------ */

/* In bf16, and to floats that are added to; rows lie three elements farther apart than needed. */
static void check_product(bool ta, bool tb, int64_t m, int64_t n, int64_t k) {
    const int64_t lda = (ta ? m : k) + 3, ldb = (tb ? k : n) + 3, ldc = n + 3;
    struct numbers a = numbers((ta ? k : m) * lda, 1, 1),
                   b = numbers((tb ? n : k) * ldb, 1, 2), c = numbers(m * ldc, 1, 3);
    float *want = copy(m * ldc, c.wide), *got = copy(m * ldc, c.wide);
    struct kernel_product p = {.m = m,
                               .n = n,
                               .k = k,
                               .a = {a.wide, lda, ta},
                               .b = {b.wide, ldb, tb},
                               .beta = 1,
                               .c = want,
                               .ldc = ldc};
    kernel_product(&p);
    p.type = DTYPE_bf16;
    p.a.p = a.half, p.b.p = b.half, p.c = got;
    kernel_product(&p);
    p.type_c = DTYPE_bf16, p.c = c.half;
    kernel_product(&p);
    double apart = 0, all = 0;
    for (int64_t i = 0; i < m * ldc; i++) {
        apart += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        all += (double)want[i] * want[i];
    }
    const double rounded = error_of(m * ldc, c.half, want);
    ok(sqrt(apart / all) < 1e-6 && rounded < 0x1p-8,
       "product %s%s %dx%dx%d: off by %.0e in floats, %.0e rounded", ta ? "T" : "N",
       tb ? "T" : "N", (int)m, (int)n, (int)k, sqrt(apart / all), rounded);
    release(a), release(b), release(c);
    free(want), free(got);
}

/* A sum too long for B to be put in order at once, in two blocks of rows. */
static void test_long_sum(void) {
    enum { M = 1100, N = 1000, K = 4300 };
    struct numbers a = numbers(M * K, 1, 1), b = numbers(K * N, 1, 2);
    struct numbers c = numbers(M * N, 1, 3);
    struct kernel_product p = {.m = M,
                               .n = N,
                               .k = K,
                               .a = {a.wide, K, false},
                               .b = {b.wide, N, false},
                               .c = c.wide,
                               .ldc = N};
    kernel_product(&p);
    p.type = p.type_c = DTYPE_bf16;
    p.a.p = a.half, p.b.p = b.half, p.c = c.half;
    kernel_product(&p);
    const double e = error_of(M * N, c.half, c.wide);
    ok(e < 0x1p-8, "product %dx%dx%d: off by %.4f", M, N, K, e);
    release(a), release(b), release(c);
}

static void test_products(void) {
    static const int64_t shapes[][3] = {{1, 1, 1},        {5, 7, 3},   {33, 130, 65},
                                        {300, 270, 1100}, {64, 1, 48}, {1, 96, 31},
                                        {600, 97, 130}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int t = 0; t < 4; t++)
            check_product(t & 1, t & 2, shapes[i][0], shapes[i][1], shapes[i][2]);
}

/* With a bias, which products of few and of many rows add. */
static void check_linear(bool wt, int64_t m, int64_t n, int64_t k) {
    struct numbers x = numbers(m * k, 1, 1), w = numbers(k * n, 1, 2);
    struct numbers bias = numbers(n, 10, 3), y = numbers(m * n, 1, 4);
    kernel_linear(m, n, k, x.wide, w.wide, wt, bias.wide, y.wide);
    kernel_linear_bf16(m, n, k, x.half, w.half, wt, bias.half, y.half);
    const double e = error_of(m * n, y.half, y.wide);
    ok(e < 0x1p-8, "linear%s %dx%dx%d with a bias: off by %.4f", wt ? ", turned" : "",
       (int)m, (int)n, (int)k, e);
    release(x), release(w), release(bias), release(y);
}

static void test_linear(void) {
    for (int wt = 0; wt < 2; wt++) {
        check_linear(wt, 5, 7, 3);
        check_linear(wt, 600, 97, 130);
        check_linear(wt, 512, 64, 32);
    }
}

/* ---- convolutions -------------------------------------------------------------------------- */

static void check_convolution(struct kernel_conv s) {
    const int64_t nx = s.batch * s.ih * s.iw * s.cin, ny = s.batch * s.oh * s.ow * s.cout;
    const int64_t nw = s.kh * s.kw * s.cin * s.cout;
    struct numbers x = numbers(nx, 1, 1), w = numbers(nw, 1, 2), dy = numbers(ny, 1, 3);
    struct numbers y = numbers(ny, 1, 4), dx = numbers(nx, 1, 5);
    float *dw = noise(nw, 1, 6), *dw_half = copy(nw, dw);
    double apart = 0, all = 0;
    kernel_conv(&s, x.wide, w.wide, y.wide);
    kernel_conv_dx(&s, dy.wide, w.wide, dx.wide);
    kernel_conv_dw(&s, x.wide, dy.wide, dw);
    kernel_conv_bf16(&s, x.half, w.half, y.half);
    kernel_conv_dx_bf16(&s, dy.half, w.half, dx.half);
    kernel_conv_dw_bf16(&s, x.half, dy.half, dw_half);
    for (int64_t i = 0; i < nw; i++) {
        apart += ((double)dw[i] - dw_half[i]) * ((double)dw[i] - dw_half[i]);
        all += (double)dw[i] * dw[i];
    }
    const double e[] = {error_of(ny, y.half, y.wide), error_of(nx, dx.half, dx.wide),
                        sqrt(apart / all)};
    ok(e[0] < 0x1p-8 && e[1] < 0x1p-8 && e[2] < 1e-6,
       "convolution %d x %dx%d, %d to %d, %dx%d / %d: y %.4f, dx %.4f, dw %.0e",
       (int)s.batch, (int)s.ih, (int)s.iw, (int)s.cin, (int)s.cout, (int)s.kh, (int)s.kw,
       (int)s.stride, e[0], e[1], e[2]);
    release(x), release(w), release(dy), release(y), release(dx);
    free(dw), free(dw_half);
}

/* Of one tap, with few channels and many places, and with many and few; others. */
static void test_convolutions(void) {
    check_convolution((struct kernel_conv){3, 14, 14, 64, 14, 14, 96, 1, 1, 1, 0, 0});
    check_convolution((struct kernel_conv){2, 5, 7, 8, 5, 7, 70, 1, 1, 1, 0, 0});
    check_convolution((struct kernel_conv){1, 3, 3, 200, 3, 3, 64, 1, 1, 1, 0, 0});
    check_convolution((struct kernel_conv){2, 8, 8, 64, 4, 4, 64, 1, 1, 2, 0, 0});
    check_convolution((struct kernel_conv){2, 6, 6, 64, 8, 8, 64, 1, 1, 1, 1, 1});
    check_convolution((struct kernel_conv){2, 8, 8, 16, 8, 8, 32, 3, 3, 1, 1, 1});
}

/* ---- attention ----------------------------------------------------------------------------- */

struct sizes {
    int64_t batch, kv_heads, group, q_len, kv_len, dim, first;
    bool causal, lengths;
    int document; /* its length; 0: the sequence is one */
};

/* With so many buckets of relative positions, or 0; what they add is near `bias`. */
static void check_positions(struct sizes s, int64_t buckets, int distance, float bias) {
    const int64_t heads = s.kv_heads * s.group, width = heads * s.dim;
    const int64_t kv_width = s.kv_heads * s.dim, nq = s.batch * s.q_len * width;
    const int64_t nk = s.batch * s.kv_len * kv_width, rows = s.batch * heads * s.q_len;
    const int32_t lengths[4] = {(int32_t)s.kv_len, 1, 37, (int32_t)s.kv_len};
    const int64_t np = buckets * heads;
    int32_t *starts = calloc((size_t)(s.batch * s.q_len), sizeof *starts);
    for (int64_t i = 0; i < s.batch * s.q_len && s.document; i++)
        starts[i] = (int32_t)((s.first + i % s.q_len) / s.document * s.document);
    struct numbers table = numbers(np, 1, 9);
    for (int64_t i = 0; i < np; i++)
        table.wide[i] += bias;
    kernel_narrow(np, DTYPE_bf16, table.wide, table.half);
    kernel_widen(np, DTYPE_bf16, table.half, table.wide);
    struct kernel_attention t = {.batch = s.batch,
                                 .heads = heads,
                                 .q_len = s.q_len,
                                 .kv_len = s.kv_len,
                                 .dim = s.dim,
                                 .value = s.dim,
                                 .kv_heads = s.kv_heads,
                                 .group = s.group,
                                 .q_batch = s.q_len * width,
                                 .q_seq = width,
                                 .kv_batch = s.kv_len * kv_width,
                                 .kv_seq = kv_width,
                                 .v_batch = s.kv_len * kv_width,
                                 .v_seq = kv_width,
                                 .o_batch = s.q_len * width,
                                 .o_seq = width,
                                 .first = s.first,
                                 .causal = s.causal,
                                 .scale = 1.0f / sqrtf((float)s.dim),
                                 .lengths = s.lengths ? lengths : NULL,
                                 .starts = s.document ? starts : NULL,
                                 .positions = buckets ? table.wide : NULL,
                                 .buckets = buckets,
                                 .distance = distance};
    struct numbers q = numbers(nq, 1, 1), k = numbers(nk, 1, 2), v = numbers(nk, 1, 3);
    struct numbers dy = numbers(nq, 1, 4), o = numbers(nq, 1, 5), dq = numbers(nq, 1, 6);
    struct numbers dk = numbers(nk, 1, 7), dv = numbers(nk, 1, 8);
    float *lse = floats(rows), *lse_half = floats(rows);
    float *dtable = noise(np, 0, 0), *dtable_half = noise(np, 0, 0);
    double apart = 0, off = 0, all = 1e-30;
    kernel_attention(&t, q.wide, k.wide, v.wide, o.wide, lse);
    kernel_attention_bwd(&t, &(struct kernel_attention_bwd){q.wide, k.wide, v.wide, o.wide,
                                                            lse, dy.wide, dq.wide, dk.wide,
                                                            dv.wide, dtable});
    t.positions = buckets ? table.half : NULL;
    kernel_attention_bf16(&t, q.half, k.half, v.half, o.half, lse_half);
    kernel_attention_bwd_bf16(&t, &(struct kernel_attention_bwd){
                                      q.half, k.half, v.half, o.half, lse_half, dy.half,
                                      dq.half, dk.half, dv.half, dtable_half});
    for (int64_t i = 0; i < rows; i++)
        apart = fmax(apart, fabs((double)lse[i] - lse_half[i]));
    for (int64_t i = 0; i < np; i++) {
        off += ((double)dtable[i] - dtable_half[i]) * ((double)dtable[i] - dtable_half[i]);
        all += (double)dtable[i] * dtable[i];
    }
    off = sqrt(off / all);
    const double e[4] = {error_of(nq, o.half, o.wide), error_of(nq, dq.half, dq.wide),
                         error_of(nk, dk.half, dk.wide), error_of(nk, dv.half, dv.wide)};
    ok(apart < 1e-4 && e[0] < 0x1p-8 && e[1] < 0x1p-7 && e[2] < 0x1p-7 && e[3] < 0x1p-7 &&
           off < 0x1p-7,
       "attention of %d queries and %d keys, %d x %d heads of %d%s%s, %d buckets: lse off by "
       "%.0e, o %.4f, dq %.4f, dk %.4f, dv %.4f, dpositions %.4f",
       (int)s.q_len, (int)s.kv_len, (int)s.kv_heads, (int)s.group, (int)s.dim,
       s.causal ? ", causal" : "",
       s.document  ? ", documents"
       : s.lengths ? ", lengths"
                   : "",
       (int)buckets, apart, e[0], e[1], e[2], e[3], off);
    release(q), release(k), release(v), release(dy), release(o), release(dq), release(dk);
    release(dv), release(table);
    free(lse), free(lse_half), free(dtable), free(dtable_half), free(starts);
}

static void check_attention(struct sizes s) {
    check_positions(s, 0, 0, 0);
}

/* Blocks that are full and not, several of queries and keys, heads that share keys, queries that
 * are a part of the sequence; heads too wide or too many keys for the products of pairs. */
static void test_attention(void) {
    check_attention((struct sizes){2, 2, 1, 77, 77, 40, 0, true, false, 0});
    check_attention((struct sizes){2, 2, 1, 300, 300, 64, 0, true, false, 0});
    check_attention((struct sizes){2, 1, 3, 130, 70, 72, 0, false, false, 0});
    check_attention((struct sizes){1, 2, 2, 65, 321, 20, 256, true, false, 0});
    check_attention((struct sizes){4, 2, 1, 33, 290, 64, 0, false, true, 0});
    check_attention((struct sizes){1, 1, 1, 1, 1, 8, 0, true, false, 0});
    check_attention((struct sizes){1, 2, 1, 40, 400, 600, 0, false, false, 0});
    check_attention((struct sizes){1, 2, 1, 96, 5000, 64, 0, false, false, 0});
    check_attention((struct sizes){2, 2, 1, 300, 300, 64, 0, true, false, 70});
    check_attention((struct sizes){2, 1, 2, 65, 321, 24, 256, true, false, 30});
}

/* Relative positions, which need not be small: causal and full, parts of a sequence, samples of
 * which only the first keys are seen. */
static void test_positions(void) {
    check_positions((struct sizes){2, 2, 1, 300, 300, 64, 0, true, false, 0}, 32, 128, 0);
    check_positions((struct sizes){3, 1, 2, 77, 77, 40, 0, false, false, 0}, 8, 20, 0);
    check_positions((struct sizes){1, 2, 2, 65, 321, 20, 256, true, false, 0}, 16, 1024, 0);
    check_positions((struct sizes){4, 2, 1, 33, 290, 64, 0, false, true, 0}, 32, 128, 0);
    check_positions((struct sizes){1, 2, 1, 70, 90, 16, 0, false, false, 0}, 32, 40, 120);
}

int main(void) {
    test_all_numbers(DTYPE_bf16);
    test_all_numbers(DTYPE_f16);
    test_rounding(DTYPE_bf16);
    test_rounding(DTYPE_f16);
    with_threads(test_products);
    with_threads(test_linear);
    with_threads(test_long_sum);
    with_threads(test_convolutions);
    with_threads(test_attention);
    with_threads(test_positions);
    return done_testing();
}
