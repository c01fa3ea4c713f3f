/* Dropout and initial parameters: the numbers of common/rng.h, whatever the blocks. */
#include "device.h"

enum { SEED = 17, STREAM = 5 };

/* Calls `f` for each block of a 3-dimensional tensor cut into pieces of at most `cut`. */
typedef void block_fn(const struct kernel_box *box, const float *x, float *y);

static void dropout(const struct kernel_box *box, const float *x, float *y) {
    kernel_dropout(box, 0.3f, SEED, STREAM, x, y);
}
static void normal(const struct kernel_box *box, const float *x, float *y) {
    (void)x;
    kernel_normal(box, 0.02f, SEED, STREAM, y);
}

/* The part of the whole tensor that a box holds: out of it, or back into it. */
static void move(const struct kernel_box *b, float *whole, float *block, bool back) {
    int64_t n = 0;
    for (int64_t i = 0; i < b->size[0]; i++)
        for (int64_t j = 0; j < b->size[1]; j++)
            for (int64_t k = 0; k < b->size[2]; k++, n++) {
                float *at =
                    whole +
                    ((i + b->first[0]) * b->whole[1] + j + b->first[1]) * b->whole[2] + k +
                    b->first[2];
                if (back)
                    *at = block[n];
                else
                    block[n] = *at;
            }
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static void in_blocks(block_fn *f, const int64_t whole[3], const int64_t cut[3], float *x,
                      float *y) {
    const int64_t all = whole[0] * whole[1] * whole[2];
    float *in = floats(all), *out = floats(all);
    for (int64_t i = 0; i < whole[0]; i += cut[0])
        for (int64_t j = 0; j < whole[1]; j += cut[1])
            for (int64_t k = 0; k < whole[2]; k += cut[2]) {
                struct kernel_box box = {.rank = 3,
                                         .size = {least(cut[0], whole[0] - i),
                                                  least(cut[1], whole[1] - j),
                                                  least(cut[2], whole[2] - k)},
                                         .first = {i, j, k},
                                         .whole = {whole[0], whole[1], whole[2]}};
                move(&box, x, in, false);
                f(&box, in, out);
                move(&box, y, out, true);
            }
    free(in), free(out);
}

static void check(const int64_t whole[3]) {
    const int64_t all = whole[0] * whole[1] * whole[2];
    const int64_t cuts[][3] = {
        {whole[0], whole[1], whole[2]}, {1, whole[1], whole[2]}, {2, 3, whole[2]},
        {whole[0], whole[1], 5},        {2, whole[1], 7},        {1, 1, 1}};
    float *x = noise(all, 1, 1), *drop = floats(all), *init = floats(all), *y = floats(all);
    for (int64_t i = 0; i < all; i++) {
        drop[i] = rng_uniform(SEED, STREAM, (uint64_t)i) >= 0.3f ? x[i] * (1.0f / 0.7f) : 0;
        init[i] = 0.02f * rng_normal(SEED, STREAM, (uint64_t)i);
    }
    int dropped = 1, drawn = 1;
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        in_blocks(dropout, whole, cuts[c], x, y);
        for (int64_t i = 0; i < all; i++)
            dropped &= y[i] == drop[i];
        in_blocks(normal, whole, cuts[c], x, y);
        drawn &= same(all, y, init);
    }
    ok(dropped, "dropout of %dx%dx%d: the same in any blocks", (int)whole[0], (int)whole[1],
       (int)whole[2]);
    ok(drawn, "initial values: the same in any blocks");
    free(x), free(drop), free(init), free(y);
}

static void test_blocks(void) {
    check((int64_t[]){4, 6, 50});
    check((int64_t[]){3, 5, 7});
    check((int64_t[]){1, 1, 1});
    check((int64_t[]){5, 70, 64});
}

static void test_rates(void) {
    enum { N = 200000 };
    static const float rate[] = {0, 0.1f, 0.5f, 0.9f, 1};
    struct kernel_box box = {.rank = 1, .size = {N}, .whole = {N}};
    float *x = floats(N), *y = floats(N), *z = floats(N);
    for (int i = 0; i < N; i++)
        x[i] = 1;
    for (int r = 0; r < 5; r++) {
        const double p = rate[r];
        int64_t zeros = 0;
        double sum = 0;
        kernel_dropout(&box, rate[r], SEED, 9, x, y);
        kernel_dropout(&box, rate[r], SEED, 9, x, z);
        for (int i = 0; i < N; i++) {
            zeros += y[i] == 0;
            sum += y[i];
        }
        ok(fabs((double)zeros / N - p) < 0.005 && (p == 1 || fabs(sum / N - 1) < 0.02) &&
               same(N, y, z),
           "rate %g: %.4f dropped, mean %.4f", p, (double)zeros / N, sum / N);
    }
    kernel_normal(&box, 2, SEED, 9, y);
    ok(fabs(kernel_sum_squares(N, y) / N - 4) < 0.05, "deviation 2: mean square %.3f",
       kernel_sum_squares(N, y) / N);
    free(x), free(y), free(z);
}

/* Numbers are drawn 8 at a time, and must have the bits of the one function of common/rng.h: also the
 * few that lie so near the middle of two floats, or so near zero, that they are drawn by it. */
static void test_bits(void) {
    enum { N = 1 << 20 };
    struct kernel_box box = {.rank = 1, .size = {N}, .whole = {3 * (int64_t)N}};
    float *y = floats(N);
    for (uint64_t stream = 0; stream < 3; stream++) {
        int64_t wrong = 0;
        box.first[0] = (int64_t)stream * N;
        kernel_normal(&box, 1, SEED + stream, stream, y);
        for (int64_t i = 0; i < N; i++) {
            float one = rng_normal(SEED + stream, stream, (uint64_t)(box.first[0] + i));
            wrong += memcmp(&one, &y[i], sizeof one) != 0;
        }
        ok(wrong == 0, "stream %d: %d of %d numbers have other bits", (int)stream,
           (int)wrong, N);
    }
    free(y);
}

int main(void) {
    test_bits();
    with_threads(test_blocks);
    with_threads(test_rates);
    return done_testing();
}
