/* Curves: forms that never fall, fits that find what made the rows, device models in words and files. */
#include "common/mem.h"
#include "common/rng.h"
#include "cost/curve_fit.h"
#include "cost/device_model.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct chip chip = {.multiprocessors = 132,
                                 .flops = {67e12, 989e12, 989e12},
                                 .bandwidth = 3.35e12,
                                 .cache_bytes = 50e6,
                                 .cache_bandwidth = 5.5e12};

static double time_of(const struct curve *c, enum opcode code, union instr_n n) {
    struct instr_key k = instr_key(code, DTYPE_bf16, &n);
    struct curve_shape s = curve_shape(&k);
    return curve_us(&chip, c, &s);
}

static union instr_n linear(int64_t m, int64_t n, int64_t k) {
    return (union instr_n){.linear = {.m = m, .n = n, .k = k}};
}

static int64_t draw(struct rng *r, int64_t least, int64_t most) {
    return least + rng_below(r, most - least + 1);
}

/* ---- forms --------------------------------------------------------------------------- */

/* One number of a shape grows; so does the time, or it stays. */
static void test_never_falls(void) {
    struct rng r = {.seed = 20261125};
    int falls = 0, negative = 0;
    for (int i = 0; i < 20000; i++) {
        union instr_n a = linear(draw(&r, 1, 9000), draw(&r, 1, 9000), draw(&r, 1, 9000)),
                      b = a;
        b.v[i % 3] += draw(&r, 1, 3000);
        struct curve c = curve_default(CURVE_PRODUCT);
        double x = time_of(&c, I_linear, a), y = time_of(&c, I_linear, b);
        falls += y < x * (1 - 1e-9);
        negative += !(x > 0);
    }
    ok(!falls && !negative, "products: of 20,000 pairs no time falls (%d) nor is none (%d)",
       falls, negative);
    falls = 0;
    for (int i = 0; i < 20000; i++) {
        int64_t heads = draw(&r, 1, 64), seq = draw(&r, 1, 8192);
        union instr_n a = {.attention = {.batch = draw(&r, 1, 8),
                                         .heads = heads,
                                         .group = 1,
                                         .kv_heads = heads,
                                         .seq = seq,
                                         .kv_seq = seq,
                                         .dim = 64,
                                         .causal = i & 1}};
        union instr_n b = a;
        b.attention.seq = b.attention.kv_seq += draw(&r, 1, 500);
        struct curve c = curve_default(CURVE_ATTENTION);
        falls += time_of(&c, I_attention, b) < time_of(&c, I_attention, a) * (1 - 1e-9);
    }
    ok(!falls, "attention: a longer sequence never takes less (%d)", falls);
}

static void test_shapes(void) {
    struct curve c = curve_default(CURVE_PRODUCT);
    double large = time_of(&c, I_linear, linear(8192, 8192, 8192));
    double rate = 2.0 * 8192 * 8192 * 8192 / large / 1e6;
    ok(rate > 500 && rate < 989, "a large product reaches %.0f of 989 Tflop/s", rate);
    ok(time_of(&c, I_linear, linear(128, 128, 128)) < 10, "a small one is a launch");
    double one = time_of(&c, I_linear, linear(2048, 2048, 1024));
    ok(time_of(&c, I_linear, linear(16, 512, 16384)) < one,
       "a long inner dim is cut: few tiles do not wait for one multiprocessor");
    struct curve m = curve_default(CURVE_MOVE);
    double near = time_of(&m, I_add, (union instr_n){.add = {1 << 20}});
    double far = time_of(&m, I_add, (union instr_n){.add = {1 << 28}});
    ok(far > 256 * (near - m.p[0]), "beyond the cache a byte takes longer");
    struct instr_key k =
        instr_key(I_linear, DTYPE_bf16, &(union instr_n){.linear = {8, 8, 8, 0, 0}});
    struct curve_shape s = curve_shape(&k);
    struct chip old = chip;
    old.flops[DTYPE_bf16] = 0;
    ok(curve_us(&old, &c, &s) < 0, "a chip that does not compute in bf16 says so");
}

/* ---- fits ---------------------------------------------------------------------------- */

static void make_rows(const struct curve *truth, double noise, struct curve_row *rows,
                      int64_t n) {
    struct rng r = {.seed = 7};
    for (int64_t i = 0; i < n; i++) {
        union instr_n a =
            linear(128 * draw(&r, 1, 128), 64 * draw(&r, 1, 128), 64 * draw(&r, 1, 64));
        struct instr_key k = instr_key(I_linear, DTYPE_bf16, &a);
        rows[i].shape = curve_shape(&k);
        rows[i].us = curve_us(&chip, truth, &rows[i].shape) *
                     exp(noise * 3.46 * (rng_real(&r) - 0.5)); /* of this deviation */
    }
}

static double worst(const struct curve *a, const struct curve *b,
                    const struct curve_row *rows, int64_t n) {
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(log(curve_us(&chip, a, &rows[i].shape) /
                                   curve_us(&chip, b, &rows[i].shape))));
    return most;
}

static void test_fit(void) {
    static struct curve_row rows[300];
    struct curve truth = {.form = CURVE_PRODUCT, .p = {6, 0.6, 400, 60, 0.5, 0.9, 1, 1}};
    struct curve c = curve_default(CURVE_PRODUCT);
    make_rows(&truth, 0, rows, 300);
    double before = worst(&c, &truth, rows, 300);
    curve_fit(&chip, rows, 300, &c);
    ok(worst(&c, &truth, rows, 300) < 0.03 && before > 0.3,
       "exact rows: within %.3f of what made them, the guess within %.2f",
       worst(&c, &truth, rows, 300), before);
    make_rows(&truth, 0.1, rows, 300);
    for (int i = 0; i < 300; i += 20)
        rows[i].us *= 5; /* a machine that did something else */
    c = curve_default(CURVE_PRODUCT);
    curve_fit(&chip, rows, 300, &c);
    ok(worst(&c, &truth, rows, 300) < 0.15,
       "noise of 10 %%, and every 20th five times as long: %.3f",
       worst(&c, &truth, rows, 300));
    ok(c.within > 0.08 && c.within < 0.25, "it says how far off rows are: %.2f", c.within);
}

/* Another device's curve and a few rows. */
static void test_few(void) {
    static struct curve_row rows[200], some[6];
    struct curve truth = {.form = CURVE_PRODUCT, .p = {3, 0.5, 150, 20, 0.8, 0.5, 1, 1}};
    make_rows(&truth, 0, rows, 200);
    for (int i = 0; i < 6; i++)
        some[i] = rows[33 * i];
    struct curve c = curve_default(CURVE_PRODUCT);
    double before = worst(&c, &truth, rows, 200);
    curve_fit(&chip, some, 6, &c);
    ok(worst(&c, &truth, rows, 200) < before / 3,
       "six rows: within %.2f, %.2f without them", worst(&c, &truth, rows, 200), before);
}

/* The curve of a like device is held on to, that of an unlike one gives way. */
/* A library that takes a bad kernel wherever n is 3,072: a curve cannot say so, rows beside it do. */
static void test_near(void) {
    enum { N = 144 };
    static struct curve_row rows[N];
    struct curve truth = curve_default(CURVE_PRODUCT);
    double plain[N], near[N], far_off = 0, far_off_near = 0;
    for (int i = 0; i < N; i++) {
        int64_t n = i % 3 == 1 ? 3072 : i % 3 ? 8192 : 1024;
        struct instr_key k = instr_key(
            I_linear, DTYPE_bf16,
            &(union instr_n){
                .linear = {.m = 256 * (1 + i / 3 % 12), .n = n, .k = 512 << i / 36}});
        rows[i].shape = curve_shape(&k);
        rows[i].us = curve_us(&chip, &truth, &rows[i].shape) * (n == 3072 ? 1.5 : 1);
    }
    curve_held_out(&chip, rows, N, &truth, false, plain);
    curve_held_out(&chip, rows, N, &truth, true, near);
    for (int i = 0; i < N; i++) {
        far_off += fabs(plain[i]) / N;
        far_off_near += fabs(near[i]) / N;
    }
    ok(far_off > 0.1 && far_off_near < far_off / 2,
       "a kernel for some sizes: off by %.0f %% in the mean, with rows nearby by %.0f %%",
       100 * far_off, 100 * far_off_near);
    struct curve_near beside;
    curve_near_init(&beside, &chip, &truth, rows, N);
    struct instr_key k = instr_key(
        I_linear, DTYPE_bf16, &(union instr_n){.linear = {.m = 90, .n = 300000, .k = 64}});
    struct curve_shape far = curve_shape(&k), bad = rows[1].shape;
    ok(fabs(curve_near_factor(&beside, &far) - 1) < 0.01 &&
           curve_near_factor(&beside, &bad) > 1.3,
       "far from all rows the curve holds; at one, %.2f of it",
       curve_near_factor(&beside, &bad));
    curve_near_release(&beside);
}

static void test_prior(void) {
    static struct curve_row rows[40], far[40];
    struct curve truth = {.form = CURVE_PRODUCT,
                          .p = {4, 0.1, 100, 10, 0.3, 0.2, 0.2, 0.02}};
    struct curve like = {
        .form = CURVE_PRODUCT, .p = {3, 0.8, 150, 30, 0.9, 0.4, 1, 1}, .within = 0.1};
    struct curve c = like;
    make_rows(&truth, 0, far, 40);
    curve_fit(&chip, far, 40, &c);
    ok(worst(&c, &truth, far, 40) < 0.15 && worst(&like, &truth, far, 40) > 1,
       "a tenth of the peak, few units: within %.3f, %.2f before",
       worst(&c, &truth, far, 40), worst(&like, &truth, far, 40));
    truth = like;
    truth.p[1] = 0.75;
    make_rows(&truth, 0.05, rows, 40);
    c = like;
    curve_fit(&chip, rows, 3, &c);
    ok(worst(&c, &truth, rows, 40) < 0.1,
       "three rows of a like device, off by 5 %%, leave it as it is: %.3f",
       worst(&c, &truth, rows, 40));
}

/* ---- files --------------------------------------------------------------------------- */

static json_t *document(void) {
    struct device_model *m = device_model_plain("toy", &chip);
    json_t *doc = device_model_to_json(m);
    device_model_destroy(m);
    return doc;
}

static void refused(json_t *doc, const char *what, const char *text) {
    struct err err = {0};
    struct device_model *m = device_model_from_json(doc, &err);
    ok(!m && err.status == EXIT_INPUT && strstr(err.msg, text), "%s: %s", what, err.msg);
    device_model_destroy(m);
    json_decref(doc);
}

static json_t *changed(const char *object, const char *key, json_t *value) {
    json_t *doc = document(), *at = doc;
    if (*object)
        at = json_object_get(json_object_get(doc, "curves"), object);
    if (!at)
        at = json_object_get(doc, object);
    json_object_set_new(at, key, value);
    return doc;
}

static void test_files(void) {
    struct err err = {0};
    json_t *doc = document();
    struct device_model *m = device_model_from_json(doc, &err);
    json_t *again = m ? device_model_to_json(m) : NULL;
    ok(again && json_equal(doc, again), "a model is read as it was written %s", err.msg);
    json_decref(doc);
    json_decref(again);
    device_model_destroy(m);
    refused(changed("flops", "bf16", json_real(989)), "Tflop/s without their Tera",
            "per second");
    refused(changed("cache", "bandwidth", json_real(2e12)),
            "a cache slower than the memory", "less than the memory's");
    refused(changed("product", "fill", json_real(-3)), "a curve that would fall",
            "curves.product.fill");
    refused(changed("", "speed", json_real(1)), "an unknown key", "speed");
    json_t *odd = document();
    json_object_set(json_object_get(odd, "curves"), "linaer",
                    json_object_get(json_object_get(odd, "curves"), "product"));
    refused(odd, "an instruction that there is not", "linaer");
    odd = document();
    json_object_del(json_object_get(odd, "curves"), "attention");
    refused(odd, "a form without a curve", "attention");
}

static void test_shipped(void) {
    static const char *const names[] = {"h100", "h200",    "a100-80gb", "a100-40gb",
                                        "v100", "rtx4090", "rtx3090",   "h100-80gb"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct err err = {0};
        struct device_model *m = device_model_read(names[i], &err);
        ok(m && m->has_links && m->node, "%s: shipped, with links and a node %s", names[i],
           err.msg);
        device_model_destroy(m);
    }
    struct err err = {0};
    ok(!device_model_read("h101", &err) && err.status == EXIT_INPUT &&
           strstr(err.msg, "h100"),
       "another: %s", err.msg);
}

int main(void) {
    test_never_falls();
    test_shapes();
    test_fit();
    test_few();
    test_near();
    test_prior();
    test_files();
    test_shipped();
    return done_testing();
}
