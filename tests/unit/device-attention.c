/* Attention against the formula in double: forward, and backward by its own derivation. */
#include "device.h"

struct data {
    struct kernel_attention t;
    int64_t q_n, kv_n, o_n; /* floats of the tensors, gaps included */
    float *q, *k, *v, *dout, *o, *lse, *dq, *dk, *dv;
};

struct reference {
    double *o, *lse, *dq, *dk, *dv;
};

static struct data make(int64_t batch, int64_t heads, int64_t q_len, int64_t kv_len,
                        int64_t dim, bool causal) {
    const int64_t q_seq = 3 * heads * dim, kv_seq = 2 * heads * dim + 5,
                  o_seq = heads * dim;
    struct data d = {.t = {batch, heads, q_len, kv_len, dim, q_len * q_seq + 7, q_seq,
                           kv_len * kv_seq, kv_seq, q_len * o_seq, o_seq, causal,
                           1.0f / sqrtf((float)dim)}};
    d.q_n = batch * d.t.q_batch, d.kv_n = batch * d.t.kv_batch, d.o_n = batch * d.t.o_batch;
    d.q = noise(d.q_n, 1.5f, 1);
    d.k = noise(d.kv_n, 1.5f, 2);
    d.v = noise(d.kv_n, 1, 3);
    d.dout = noise(d.o_n, 1, 4);
    d.o = noise(d.o_n, 0, 5);
    d.lse = floats(batch * heads * q_len);
    d.dq = noise(d.q_n, 0, 6);
    d.dk = noise(d.kv_n, 0, 7);
    d.dv = noise(d.kv_n, 0, 8);
    return d;
}

static void release(struct data *d) {
    float *all[] = {d->q, d->k, d->v, d->dout, d->o, d->lse, d->dq, d->dk, d->dv};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static double dot(int64_t n, const float *a, const float *b) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

/* One query of one head: probabilities, output, and its share of the gradients. */
static void reference_query(const struct data *d, const struct reference *r, int64_t b,
                            int64_t h, int64_t i, double *p) {
    const struct kernel_attention *t = &d->t;
    const int64_t seen = t->causal ? i + 1 : t->kv_len;
    const int64_t at = b * t->q_batch + i * t->q_seq + h * t->dim;
    const int64_t out = b * t->o_batch + i * t->o_seq + h * t->dim;
    const int64_t kv = b * t->kv_batch + h * t->dim;
    double max = -INFINITY, sum = 0, mean = 0;
    for (int64_t j = 0; j < seen; j++) {
        p[j] = t->scale * dot(t->dim, d->q + at, d->k + kv + j * t->kv_seq);
        max = fmax(max, p[j]);
    }
    for (int64_t j = 0; j < seen; j++)
        sum += p[j] = exp(p[j] - max);
    r->lse[(b * t->heads + h) * t->q_len + i] = max + log(sum);
    for (int64_t j = 0; j < seen; j++) {
        p[j] /= sum;
        for (int64_t e = 0; e < t->dim; e++) {
            r->o[out + e] += p[j] * d->v[kv + j * t->kv_seq + e];
            r->dv[kv + j * t->kv_seq + e] += p[j] * d->dout[out + e];
        }
        mean += p[j] * dot(t->dim, d->dout + out, d->v + kv + j * t->kv_seq);
    }
    for (int64_t j = 0; j < seen; j++) {
        const int64_t key = kv + j * t->kv_seq;
        double ds = t->scale * p[j] * (dot(t->dim, d->dout + out, d->v + key) - mean);
        for (int64_t e = 0; e < t->dim; e++) {
            r->dq[at + e] += ds * d->k[key + e];
            r->dk[key + e] += ds * d->q[at + e];
        }
    }
}

static void check(int64_t batch, int64_t heads, int64_t q_len, int64_t kv_len, int64_t dim,
                  bool causal) {
    struct data d = make(batch, heads, q_len, kv_len, dim, causal);
    const int64_t rows = batch * heads * q_len;
    struct reference r = {doubles(d.o_n), doubles(rows), doubles(d.q_n), doubles(d.kv_n),
                          doubles(d.kv_n)};
    double *p = doubles(kv_len);
    char what[64];
    for (int64_t b = 0; b < batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < q_len; i++)
                reference_query(&d, &r, b, h, i, p);
    kernel_attention(&d.t, d.q, d.k, d.v, d.o, d.lse);
    kernel_attention_bwd(&d.t, d.q, d.k, d.v, d.o, d.lse, d.dout, d.dq, d.dk, d.dv);
    snprintf(what, sizeof what, "%dx%d heads, %dx%d, dim %d%s", (int)batch, (int)heads,
             (int)q_len, (int)kv_len, (int)dim, causal ? ", causal" : "");
    double e[] = {nmse(d.o_n, d.o, r.o), nmse(rows, d.lse, r.lse), nmse(d.q_n, d.dq, r.dq),
                  nmse(d.kv_n, d.dk, r.dk), nmse(d.kv_n, d.dv, r.dv)};
    int good = 1;
    for (int i = 0; i < 5; i++)
        good &= e[i] <= 2e-11;
    ok(good, "%s: o %.0e lse %.0e dq %.0e dk %.0e dv %.0e", what, e[0], e[1], e[2], e[3],
       e[4]);
    free(r.o), free(r.lse), free(r.dq), free(r.dk), free(r.dv), free(p);
    release(&d);
}

static void test_shapes(void) {
    for (int causal = 0; causal <= 1; causal++) {
        check(1, 1, 1, 1, 1, causal);
        check(1, 1, 7, 7, 5, causal);
        check(2, 3, 33, 33, 16, causal);
        check(1, 2, 95, 95, 24, causal);
        check(2, 2, 128, 128, 64, causal);
        check(1, 1, 130, 130, 80, causal);
        check(3, 1, 257, 257, 40, causal);
        check(1, 1, 600, 600, 32, causal);
    }
    check(1, 2, 3, 200, 64, false);
    check(1, 2, 200, 3, 64, false);
    check(1, 1, 40, 97, 200, false);
    check(1, 1, 9, 9, 1024, true);
    check(1, 1, 270, 270, 512, true);
    check(1, 2, 150, 300, 528, false);
}

/* More keys than the scratch packs at once, more queries than one task. */
static void test_long(void) {
    check(1, 1, 2, 3000, 300, false);
    check(1, 1, 2500, 2500, 130, true);
}

/* Scores far apart must not overflow; the running maximum grows from block to block. */
static void test_large_scores(void) {
    struct data d = make(1, 1, 300, 300, 16, true);
    for (int64_t i = 0; i < d.q_n; i++)
        d.q[i] = 30;
    for (int64_t j = 0; j < 300; j++)
        for (int64_t e = 0; e < 16; e++)
            d.k[j * d.t.kv_seq + e] = (float)j * 0.05f;
    kernel_attention(&d.t, d.q, d.k, d.v, d.o, d.lse);
    int good = 1;
    for (int64_t i = 0; i < d.o_n; i++)
        good &= isfinite(d.o[i]);
    ok(good, "scores up to 1800: finite output");
    double last = 0, sum = 0;
    for (int64_t j = 0; j < 300; j++) {
        double p = exp(4.0 * 30 * 0.05 * (double)(j - 299));
        sum += p;
        last += p * d.v[j * d.t.kv_seq];
    }
    ok(fabs(d.o[299 * d.t.o_seq] - last / sum) < 1e-4, "the last query: %g, expected %g",
       d.o[299 * d.t.o_seq], last / sum);
    release(&d);
}

/* The same bits again, and whatever the threads. */
static void test_repeat(void) {
    struct data a = make(1, 2, 333, 333, 48, true), b = make(1, 2, 333, 333, 48, true);
    const int64_t rows = 2 * 333;
    for (int run = 0; run < 3; run++) {
        struct data *d = run ? &b : &a;
        kernel_init(run == 2 ? 3 : 1,
                    NULL); /* 3 threads for 2 heads: keys are shared out */
        kernel_attention(&d->t, d->q, d->k, d->v, d->o, d->lse);
        kernel_attention_bwd(&d->t, d->q, d->k, d->v, d->o, d->lse, d->dout, d->dq, d->dk,
                             d->dv);
        if (run)
            ok(same(a.o_n, a.o, b.o) && same(rows, a.lse, b.lse) &&
                   same(a.q_n, a.dq, b.dq) && same(a.kv_n, a.dk, b.dk) &&
                   same(a.kv_n, a.dv, b.dv),
               run == 1 ? "repeated: the same bits" : "three threads: the same bits");
    }
    release(&a);
    release(&b);
}

int main(void) {
    with_threads(test_shapes);
    with_threads(test_long);
    with_threads(test_large_scores);
    test_repeat();
    return done_testing();
}
