/* Times of a device from another one's rows and a few of its own: what is told is believed,
 * what is like it follows, the rest stays, the bounds hold four of five, and what is chosen
 * tells more than what is drawn. */
#include "common/rng.h"
#include "cost/likeness.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { PRODUCTS = 60, SUMS = 20, ALL = PRODUCTS + SUMS };

static struct instr_key product(int i) {
    union instr_n n = {
        .linear = {.m = 256 << (i % 6), .n = 256 << (i / 6 % 5), .k = 512 << (i / 30)}};
    return instr_key(I_linear, DTYPE_bf16, &n);
}

static struct instr_key sum(int i) {
    union instr_n n = {.add = {.elems = (int64_t)256 << i}};
    return instr_key(I_add, DTYPE_bf16, &n);
}

static struct instr_key key_of(int i) {
    return i < PRODUCTS ? product(i) : sum(i - PRODUCTS);
}

/* Of a device whose kernels are all alike, to the digit. */
static double like_us(const struct instr_key *key) {
    struct curve_shape s = curve_shape(key);
    return 2 + 1e6 * fmax(s.flops / 500e12, s.bytes / 3e12);
}

static double normal(struct rng *r) {
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += rng_real(r);
    return sum;
}

/* Its products take a quarter longer, its sums a third less; each is off by three percent
 * besides. */
static double true_us(int i, struct rng *r) {
    struct instr_key key = key_of(i);
    return like_us(&key) * (i < PRODUCTS ? 1.25 : 0.67) * exp(0.03 * normal(r));
}

static struct profile_times *like_rows(const char *path) {
    struct err err = {0};
    unlink(path);
    struct profile *p = profile_open(path, true, &err);
    profile_begin(p, &err);
    for (int i = 0; i < ALL; i++) {
        struct instr_key key = key_of(i);
        char shape[128];
        struct profile_op row = {
            .device = "toy",
            .instr = opcode_name(key.code),
            .shape = instr_shape_format(key.code, &key.n, shape, sizeof shape),
            .dtype = dtype_name(key.dtype),
            .median_us = like_us(&key),
            .repeats = 1,
            .source = "measured"};
        profile_put_op(p, &row, &err);
    }
    profile_commit(p, &err);
    struct profile_times *t = profile_load(p, NULL, &err);
    profile_close(p);
    if (!t)
        printf("Bail out! %s\n", err.msg);
    return t;
}

/* Knows of all instructions, of products as needed a hundred times. */
static struct likeness *knows(const struct profile_times *t, const struct device_model *m) {
    struct likeness *l = likeness_create(t, m, NULL);
    for (int i = 0; i < ALL; i++) {
        struct instr_key key = key_of(i);
        likeness_add(l, &key, i < PRODUCTS ? 100 : 1);
    }
    return l;
}

/* How far off the times of the rows that were not told are, in the mean; inside: how many
 * the bounds hold. */
static double off_by(const struct likeness *l, const double *truth, int *inside, int *of) {
    double off = 0;
    *inside = *of = 0;
    for (int i = 0; i < ALL; i++) {
        struct likely t = likeness_time(l, i);
        if (likeness_told(l, i))
            continue;
        off += fabs(t.us / truth[i] - 1);
        *inside += fabs(truth[i] / t.us - 1) <= 2 * t.spread;
        ++*of;
    }
    return off / *of;
}

static void test_told(const struct profile_times *t, const struct device_model *m,
                      const double *truth) {
    struct likeness *l = knows(t, m);
    struct instr_key key = product(7);
    int inside, of;
    ok(likeness_count(l) == ALL && likeness_find(l, &key) == 7,
       "%d instructions, each found by its key", ALL);
    likeness_update(l);
    struct likely a = likeness_time(l, 7);
    ok(fabs(a.us / like_us(&key) - 1) < 1e-9 && a.spread > 0.3,
       "nothing told, it takes what the like device does, and nobody knows how near that is: %.0f %%",
       100 * a.spread);
    likeness_tell(l, 7, truth[7]);
    likeness_update(l);
    a = likeness_time(l, 7);
    ok(fabs(a.us / truth[7] - 1) < 1e-9 && a.spread == 0, "what is told is believed");
    double near = likeness_time(l, 8).us / truth[8],
           far = likeness_time(l, PRODUCTS + 5).spread;
    ok(fabs(near - 1) < 0.1 && far > 0.1,
       "a like product follows (%.2f of its time), a sum is as unknown as before (%.0f %%)",
       near, 100 * far);
    for (int i = 0; i < ALL; i += 9)
        likeness_tell(l, i, truth[i]);
    likeness_update(l);
    double off = off_by(l, truth, &inside, &of);
    ok(off < 0.07, "one of nine told, the others are off by %.1f %%", 100 * off);
    ok(inside > 0.65 * of && inside < of,
       "%d of %d lie within bounds that are meant for four of five", inside, of);
    likeness_destroy(l);
}

/* Of one instruction out of sorts the others hear little. */
static void test_odd(const struct profile_times *t, const struct device_model *m,
                     const double *truth) {
    struct likeness *l = knows(t, m);
    for (int i = 0; i < PRODUCTS; i += 5)
        likeness_tell(l, i, truth[i] * (i == 10 ? 4 : 1));
    likeness_update(l);
    double worst = 0;
    for (int i = 0; i < PRODUCTS; i++)
        if (!likeness_told(l, i))
            worst = fmax(worst, fabs(likeness_time(l, i).us / truth[i] - 1));
    ok(worst < 0.35,
       "one product of twelve takes four times as long: the others are off by %.0f %% at most",
       100 * worst);
    likeness_destroy(l);
}

/* Error of the sum that the plans ask for, after these were told. */
static double sum_off(const struct profile_times *t, const struct device_model *m,
                      const double *truth, const int64_t *told, int64_t n) {
    struct likeness *l = knows(t, m);
    double sum = 0, real = 0;
    for (int64_t i = 0; i < n; i++)
        likeness_tell(l, told[i], truth[told[i]]);
    likeness_update(l);
    for (int i = 0; i < ALL; i++) {
        double uses = i < PRODUCTS ? 100 : 1;
        sum += uses * likeness_time(l, i).us;
        real += uses * truth[i];
    }
    likeness_destroy(l);
    return fabs(sum / real - 1);
}

static void test_chosen(const struct profile_times *t, const struct device_model *m,
                        const double *truth) {
    enum { K = 3, DRAWS = 20 };
    struct likeness *l = knows(t, m);
    struct rng r = {.seed = 7};
    int64_t chosen[K + 1], drawn[K];
    int products = 0, better = 0;
    likeness_bar(l, 3);
    ok(likeness_choose(l, K, chosen) == K, "%d are chosen", K);
    for (int i = 0; i < K; i++)
        products += chosen[i] < PRODUCTS && chosen[i] != 3;
    ok(products == K,
       "all of them products, which are needed most, and none that cannot be measured");
    double off = sum_off(t, m, truth, chosen, K);
    for (int d = 0; d < DRAWS; d++) {
        for (int i = 0; i < K; i++)
            drawn[i] = rng_below(&r, ALL);
        better += off <= sum_off(t, m, truth, drawn, K);
    }
    ok(off < 0.03 && better >= DRAWS * 3 / 4,
       "the step is then off by %.1f %%, less than after %d of %d draws", 100 * off, better,
       DRAWS);
    int64_t again[K];
    for (int i = 0; i < K; i++)
        likeness_tell(l, chosen[i], truth[chosen[i]]);
    ok(likeness_choose(l, K, again) == K && again[0] != chosen[0] &&
           again[0] != chosen[1] && again[0] != chosen[2],
       "what was told is not chosen again");
    likeness_destroy(l);
}

/* Two datasheets say what memory twice as fast is worth. */
static void test_sheets(const struct profile_times *t, const struct device_model *m) {
    struct chip fast = m->chip;
    fast.bandwidth *= 2;
    fast.cache_bandwidth *= 2;
    struct likeness *l = likeness_create(t, m, &fast);
    struct instr_key large = sum(SUMS - 1), dense = product(29);
    likeness_add(l, &large, 1);
    likeness_add(l, &dense, 1);
    likeness_update(l);
    double a = likeness_time(l, 0).us / like_us(&large),
           b = likeness_time(l, 1).us / like_us(&dense);
    ok(a < 0.75 && b > 0.85 && b <= 1.01,
       "twice the bandwidth: a sum takes %.2f of its time, a product %.2f", a, b);
    likeness_destroy(l);
}

int main(void) {
    char path[] = "/tmp/weft-likeness-XXXXXX";
    struct rng r = {.seed = 20261125};
    double truth[ALL];
    close(mkstemp(path));
    struct profile_times *t = like_rows(path);
    struct device_model *m = device_model_read("h100", NULL);
    for (int i = 0; i < ALL; i++)
        truth[i] = true_us(i, &r);
    test_told(t, m, truth);
    test_odd(t, m, truth);
    test_chosen(t, m, truth);
    test_sheets(t, m);
    device_model_destroy(m);
    profile_times_destroy(t);
    unlink(path);
    return done_testing();
}
