/* Attention against the formula in double: forward, and backward by its own derivation. */
#include "device.h"

struct data {
    struct kernel_attention t;
    int parts, own;                       /* of the keys: how many, and which comes first */
    int64_t q_n, kv_n, v_n, o_n, table_n; /* floats of the tensors, gaps included */
    float *q, *k, *v, *dout, *o, *lse, *dq, *dk, *dv, *table, *dtable;
};

struct reference {
    double *o, *lse, *dq, *dk, *dv, *dtable;
};

/* What a test says; the rest follows. */
struct form {
    int64_t batch, heads, q_len, kv_len, dim;
    bool causal;
    int64_t kv_heads, group, first_head, first, buckets;
    int distance;
    const int32_t *lengths;
    int parts, own; /* keys come in so many parts, this one first; 0: all at once */
    int64_t window;
    float cap;
    int64_t document; /* mean length of the documents of a sequence; 0: it is one */
    int64_t value;    /* columns of a head of values; 0: as many as of keys */
    struct alibi slope;
};

/* Where the documents of the queries start: of some the sample begins with the rest, some have one token. */
static int32_t *make_starts(const struct form *x) {
    int32_t *starts = calloc((size_t)(x->batch * x->q_len), sizeof *starts);
    for (int64_t b = 0; b < x->batch; b++) {
        int32_t start = 0;
        for (int64_t i = 0; i < x->first + x->q_len; i++) {
            const uint64_t draw = rng_bits(11, (uint64_t)b, (uint64_t)i);
            if (draw % (uint64_t)x->document == 0 || i % 97 < 2)
                start = (int32_t)i;
            if (i >= x->first)
                starts[b * x->q_len + i - x->first] = start;
        }
    }
    return starts;
}

static struct data make_form(const struct form *x) {
    const int64_t value = x->value ? x->value : x->dim;
    const int64_t q_seq = 3 * x->heads * x->dim, kv_seq = 2 * x->kv_heads * x->dim + 5,
                  v_seq = 2 * x->kv_heads * value + 5, o_seq = x->heads * value;
    struct data d = {.t = {.batch = x->batch,
                           .heads = x->heads,
                           .q_len = x->q_len,
                           .kv_len = x->kv_len,
                           .dim = x->dim,
                           .value = value,
                           .kv_heads = x->kv_heads,
                           .group = x->group,
                           .first_head = x->first_head,
                           .q_batch = x->q_len * q_seq + 7,
                           .q_seq = q_seq,
                           .kv_batch = x->kv_len * kv_seq,
                           .kv_seq = kv_seq,
                           .v_batch = x->kv_len * v_seq,
                           .v_seq = v_seq,
                           .o_batch = x->q_len * o_seq,
                           .o_seq = o_seq,
                           .first = x->first,
                           .causal = x->causal,
                           .lengths = x->lengths,
                           .scale = 1.0f / sqrtf((float)x->dim),
                           .buckets = x->buckets,
                           .distance = x->distance,
                           .window = x->window,
                           .starts = x->document ? make_starts(x) : NULL,
                           .cap = x->cap,
                           .slope = x->slope},
                     .parts = x->parts ? x->parts : 1,
                     .own = x->own};
    d.q_n = x->batch * d.t.q_batch, d.kv_n = x->batch * d.t.kv_batch;
    d.v_n = x->batch * d.t.v_batch;
    d.o_n = x->batch * d.t.o_batch, d.table_n = x->buckets * x->heads;
    d.q = noise(d.q_n, 1.5f, 1);
    d.k = noise(d.kv_n, 1.5f, 2);
    d.v = noise(d.v_n, 1, 3);
    d.dout = noise(d.o_n, 1, 4);
    d.o = noise(d.o_n, 0, 5);
    d.lse = floats(x->batch * x->heads * x->q_len);
    d.dq = noise(d.q_n, 0, 6);
    d.dk = noise(d.kv_n, 0, 7);
    d.dv = noise(d.v_n, 0, 8);
    d.table = noise(d.table_n, 1, 9);
    d.dtable = noise(d.table_n, 0, 10);
    d.t.positions = x->buckets ? d.table : NULL;
    return d;
}

static struct data make(int64_t batch, int64_t heads, int64_t q_len, int64_t kv_len,
                        int64_t dim, bool causal) {
    return make_form(&(struct form){batch, heads, q_len, kv_len, dim, causal,
                                    .kv_heads = heads, .group = 1});
}

/* Attention over the keys that come after so many others; where they begin. */
static struct kernel_attention step_of(const struct data *d, int step, int64_t *at,
                                       int64_t *v_at) {
    struct kernel_attention t = d->t;
    t.kv_len /= d->parts;
    t.first_key = (d->own - step + d->parts) % d->parts * t.kv_len;
    t.first -= t.first_key;
    t.more = step > 0;
    *at = t.first_key * t.kv_seq;
    *v_at = t.first_key * t.v_seq;
    return t;
}

static void forward(const struct data *d) {
    for (int step = 0; step < d->parts; step++) {
        int64_t at, v_at;
        struct kernel_attention t = step_of(d, step, &at, &v_at);
        kernel_attention(&t, d->q, d->k + at, d->v + v_at, d->o, d->lse);
    }
}

static void backward(const struct data *d) {
    for (int step = 0; step < d->parts; step++) {
        int64_t at, v_at;
        struct kernel_attention t = step_of(d, step, &at, &v_at);
        kernel_attention_bwd(&t, &(struct kernel_attention_bwd){
                                     d->q, d->k + at, d->v + v_at, d->o, d->lse, d->dout,
                                     d->dq, d->dk + at, d->dv + v_at, d->dtable});
    }
}

static void release(struct data *d) {
    float *all[] = {d->q,  d->k,  d->v,  d->dout,  d->o,     d->lse,
                    d->dq, d->dk, d->dv, d->table, d->dtable};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    free((void *)(uintptr_t)d->t.starts);
}

static double dot(int64_t n, const float *a, const float *b) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

/* The bucket of a distance, as T5 says it: half of the buckets for keys behind the query where such
 * are seen; half of these for each distance alone, the others by the logarithm. */
static int64_t bucket(const struct kernel_attention *t, int64_t behind) {
    int64_t buckets = t->buckets, first = 0, n = -behind;
    if (!t->causal) {
        buckets /= 2;
        first = behind > 0 ? buckets : 0;
        n = llabs(behind);
    }
    n = n < 0 ? 0 : n;
    int64_t exact = buckets / 2;
    if (n < exact)
        return first + n;
    double far = log((double)n / (double)exact) / log((double)t->distance / (double)exact);
    int64_t b = exact + (int64_t)(far * (double)(buckets - exact) + 1e-6);
    return first + (b < buckets ? b : buckets - 1);
}

/* What is added to the score of key j: a place in the table, or NULL. */
static const float *position(const struct data *d, int64_t h, int64_t i, int64_t j) {
    if (!d->t.positions)
        return NULL;
    return d->table + bucket(&d->t, j - (d->t.first + i)) * d->t.heads + h;
}

/* How much a score under its cap grows with what it was. */
static double slope(const struct kernel_attention *t, double product) {
    const double x = cosh(t->scale * product / t->cap);
    return 1 / (x * x);
}

/* ALiBi's slope of a head, as BLOOM's authors compute it: of 2^n heads the first is also the ratio. */
static double falls(const struct kernel_attention *t, int64_t h) {
    const double below = exp2(floor(log2(t->slope.heads > 0 ? t->slope.heads : 1)));
    const double base = exp2(-exp2(-(log2(below) - 3))),
                 more = exp2(-exp2(-(log2(2 * below) - 3)));
    const double head = (double)(t->slope.first + h);
    return head < below ? pow(base, head + 1) : pow(more, 1 + 2 * (head - below));
}

/* To the nearest of the numbers with 8 bits, of two the one whose last bit is 0. */
static double to_bf16(double x) {
    int power;
    const double part = frexp(x, &power);
    return ldexp(nearbyint(ldexp(part, 8)), power - 8);
}

/* What the score of a key gets that is so far behind its query, at this position of the sequence. */
static double added(const struct kernel_attention *t, int64_t h, int64_t i, int64_t j) {
    const double slope = falls(t, h), by = (double)t->slope.by;
    const double key = (double)(t->first_key + j),
                 query = (double)(t->first_key + t->first + i);
    if (!t->slope.rounded)
        return by * slope * (key - query);
    return by * (to_bf16(to_bf16(slope) * to_bf16(key)) -
                 to_bf16(to_bf16(slope) * to_bf16(query)));
}

/* One query of one head: probabilities, output, and its share of the gradients. */
static void reference_query(const struct data *d, const struct reference *r, int64_t b,
                            int64_t h, int64_t i, double *p) {
    const struct kernel_attention *t = &d->t;
    const int64_t most = t->lengths ? t->lengths[b] : t->kv_len;
    const int64_t seen = t->causal && t->first + i + 1 < most ? t->first + i + 1 : most;
    const int64_t at = b * t->q_batch + i * t->q_seq + h * t->dim;
    const int64_t out = b * t->o_batch + i * t->o_seq + h * t->value;
    const int64_t kv = b * t->kv_batch + (t->first_head + h) / t->group * t->dim;
    const int64_t vs = b * t->v_batch + (t->first_head + h) / t->group * t->value;
    const int64_t behind = t->first + i + 1 - t->window;
    const int64_t start = t->starts ? t->starts[b * t->q_len + i] : 0;
    const int64_t from = t->window && behind > start ? behind : start;
    double max = -INFINITY, sum = 0, mean = 0;
    for (int64_t j = from; j < seen; j++) {
        const float *more = position(d, h, i, j);
        p[j] = t->scale * dot(t->dim, d->q + at, d->k + kv + j * t->kv_seq);
        if (t->cap > 0)
            p[j] = t->cap * tanh(p[j] / t->cap);
        p[j] += more ? *more : 0;
        p[j] += added(t, h, i, j);
        max = fmax(max, p[j]);
    }
    for (int64_t j = from; j < seen; j++)
        sum += p[j] = exp(p[j] - max);
    r->lse[(b * t->heads + h) * t->q_len + i] = sum > 0 ? max + log(sum) : -INFINITY;
    for (int64_t j = from; j < seen; j++) {
        p[j] /= sum;
        for (int64_t e = 0; e < t->value; e++) {
            r->o[out + e] += p[j] * d->v[vs + j * t->v_seq + e];
            r->dv[vs + j * t->v_seq + e] += p[j] * d->dout[out + e];
        }
        mean += p[j] * dot(t->value, d->dout + out, d->v + vs + j * t->v_seq);
    }
    for (int64_t j = from; j < seen; j++) {
        const int64_t key = kv + j * t->kv_seq;
        const float *more = position(d, h, i, j);
        const double dp = dot(t->value, d->dout + out, d->v + vs + j * t->v_seq);
        double ds = p[j] * (dp - mean);
        if (more)
            r->dtable[more - d->table] += ds;
        if (t->cap > 0)
            ds *= slope(t, dot(t->dim, d->q + at, d->k + key));
        for (int64_t e = 0; e < t->dim; e++) {
            r->dq[at + e] += t->scale * ds * d->k[key + e];
            r->dk[key + e] += t->scale * ds * d->q[at + e];
        }
    }
}

static void check_form(const struct form *x) {
    struct data d = make_form(x);
    const int64_t rows = x->batch * x->heads * x->q_len;
    struct reference r = {doubles(d.o_n),  doubles(rows),  doubles(d.q_n),
                          doubles(d.kv_n), doubles(d.v_n), doubles(d.table_n)};
    double *p = doubles(x->kv_len);
    char what[160];
    for (int64_t b = 0; b < x->batch; b++)
        for (int64_t h = 0; h < x->heads; h++)
            for (int64_t i = 0; i < x->q_len; i++)
                reference_query(&d, &r, b, h, i, p);
    forward(&d);
    backward(&d);
    snprintf(what, sizeof what,
             "%dx%d/%d heads from %d, %d from %d x %d in %d from %d, dim %d%s, %d buckets, "
             "window %d, cap %g, documents of %d",
             (int)x->batch, (int)x->heads, (int)x->kv_heads, (int)x->first_head,
             (int)x->q_len, (int)x->first, (int)x->kv_len, d.parts, d.own, (int)x->dim,
             x->causal ? ", causal" : "", (int)x->buckets, (int)x->window, (double)x->cap,
             (int)x->document);
    for (int64_t i = 0; i < rows; i++) /* what sees nothing agrees */
        if (isinf(r.lse[i]) && d.lse[i] == (float)r.lse[i])
            r.lse[i] = d.lse[i] = 0;
    double e[] = {nmse(d.o_n, d.o, r.o),   nmse(rows, d.lse, r.lse),
                  nmse(d.q_n, d.dq, r.dq), nmse(d.kv_n, d.dk, r.dk),
                  nmse(d.v_n, d.dv, r.dv), nmse(d.table_n, d.dtable, r.dtable)};
    int good = 1;
    for (int i = 0; i < 6; i++)
        good &= e[i] <= 2e-11;
    ok(good, "%s: o %.0e lse %.0e dq %.0e dk %.0e dv %.0e dpositions %.0e", what, e[0],
       e[1], e[2], e[3], e[4], e[5]);
    free(r.o), free(r.lse), free(r.dq), free(r.dk), free(r.dv), free(r.dtable), free(p);
    release(&d);
}

static void check(int64_t batch, int64_t heads, int64_t q_len, int64_t kv_len, int64_t dim,
                  bool causal) {
    check_form(&(struct form){batch, heads, q_len, kv_len, dim, causal, .kv_heads = heads,
                              .group = 1});
}

/* Heads of queries that share heads of keys, all of them or those of one rank. */
static void test_groups(void) {
    for (int causal = 0; causal <= 1; causal++) {
        check_form(&(struct form){2, 6, 40, 40, 16, causal, .kv_heads = 2, .group = 3});
        check_form(&(struct form){1, 4, 130, 130, 32, causal, .kv_heads = 1, .group = 4});
        check_form(&(struct form){2, 4, 33, 33, 24, causal, .kv_heads = 4, .group = 3,
                                  .first_head = 4});
        check_form(&(struct form){1, 2, 300, 300, 8, causal, .kv_heads = 2, .group = 4,
                                  .first_head = 6});
    }
}

/* Queries that are a part of a sequence: its beginning, middle and end. */
static void test_parts(void) {
    for (int64_t first = 0; first < 300; first += 100)
        check_form(&(struct form){2, 2, 100, 300, 16, true, .kv_heads = 2, .group = 1,
                                  .first = first});
    check_form(
        &(struct form){1, 4, 7, 600, 16, true, .kv_heads = 2, .group = 2, .first = 250});
    check_form(&(struct form){1, 1, 500, 2500, 130, true, .kv_heads = 1, .group = 1,
                              .first = 1500});
}

/* Keys part by part, as they go round among ranks: each rank has seen all in the end. Under a mask
 * some see nothing in a step, and with lengths nothing in the first. */
static void test_rounds(void) {
    const int32_t lengths[] = {1, 300, 257, 40};
    for (int own = 0; own < 3; own++) {
        for (int causal = 0; causal <= 1; causal++) {
            check_form(&(struct form){2, 2, 100, 300, 16, causal, .kv_heads = 2, .group = 1,
                                      .first = 100 * own, .parts = 3, .own = own});
            check_form(&(struct form){1, 4, 7, 21, 24, causal, .kv_heads = 2, .group = 2,
                                      .first = 7 * own, .parts = 3, .own = own});
            check_form(&(struct form){4, 2, 100, 300, 16, causal, .kv_heads = 1, .group = 2,
                                      .lengths = lengths, .first = 100 * own, .parts = 3,
                                      .own = own});
            check_form(&(struct form){2, 2, 100, 300, 16, causal, .kv_heads = 2, .group = 1,
                                      .buckets = 32, .distance = 128, .first = 100 * own,
                                      .parts = 3, .own = own});
        }
        check_form(&(struct form){4, 1, 40, 300, 16, false, .kv_heads = 1, .group = 1,
                                  .buckets = 8, .distance = 20, .lengths = lengths,
                                  .first = 40 * own, .parts = 3, .own = own});
    }
    /* a mask under which a rank sees nothing of its own keys */
    check_form(&(struct form){1, 2, 100, 800, 16, true, .kv_heads = 2, .group = 1,
                              .first = 100, .parts = 2, .own = 1});
    check_form(&(struct form){1, 1, 500, 3000, 130, true, .kv_heads = 1, .group = 1,
                              .first = 500, .parts = 2, .own = 0});
}

/* Samples of which only the first keys are seen. */
static void test_lengths(void) {
    const int32_t lengths[] = {1, 300, 257, 40};
    for (int causal = 0; causal <= 1; causal++)
        check_form(&(struct form){4, 2, 300, 300, 16, causal, .kv_heads = 1, .group = 2,
                                  .lengths = lengths});
    check_form(&(struct form){4, 1, 40, 300, 16, false, .kv_heads = 1, .group = 1,
                              .buckets = 8, .distance = 20, .lengths = lengths});
}

/* Learned numbers by distance, in all places of a table of queries and keys. */
static void test_positions(void) {
    for (int causal = 0; causal <= 1; causal++) {
        check_form(&(struct form){3, 2, 40, 40, 16, causal, .kv_heads = 2, .group = 1,
                                  .buckets = 32, .distance = 128});
        check_form(&(struct form){2, 4, 300, 300, 8, causal, .kv_heads = 2, .group = 2,
                                  .buckets = 8, .distance = 20});
        check_form(&(struct form){1, 2, 130, 390, 16, causal, .kv_heads = 2, .group = 1,
                                  .first = 130, .buckets = 32, .distance = 128});
    }
    check_form(&(struct form){2, 2, 90, 300, 16, false, .kv_heads = 2, .group = 1,
                              .buckets = 16, .distance = 1024});
    check_form(&(struct form){1, 1, 9, 200, 1024, false, .kv_heads = 1, .group = 1,
                              .buckets = 16, .distance = 64});
}

/* Queries that see the last keys only: fewer and more than a block's, from a part of the sequence,
 * by parts that a query sees nothing of, with caps, and behind the length of a sample nothing. */
static void test_windows(void) {
    static const int64_t windows[] = {2, 7, 64, 97, 256, 299, 300, 4000};
    const int32_t lengths[] = {1, 300, 257, 40};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        const int64_t w = windows[i];
        check_form(&(struct form){2, 4, 300, 300, 16, true, .kv_heads = 2, .group = 2,
                                  .window = w, .cap = i % 2 ? 0.8f : 0});
        check_form(&(struct form){1, 2, 100, 300, 24, true, .kv_heads = 2, .group = 1,
                                  .first = 150, .window = w});
        for (int own = 0; own < 3; own++)
            check_form(&(struct form){2, 2, 100, 300, 16, true, .kv_heads = 2, .group = 1,
                                      .first = 100 * own, .parts = 3, .own = own,
                                      .window = w, .cap = i % 2 ? 2 : 0});
    }
    check_form(&(struct form){4, 2, 300, 300, 16, true, .kv_heads = 1, .group = 2,
                              .lengths = lengths, .window = 262});
    check_form(&(struct form){2, 2, 200, 200, 16, true, .kv_heads = 2, .group = 1,
                              .buckets = 32, .distance = 128, .window = 30});
    if (is_of_today(0, 2))
        check_form(&(struct form){1, 1, 2500, 2500, 130, true, .kv_heads = 1, .group = 1,
                                  .window = 1500});
    check_form(&(struct form){1, 1, 270, 270, 530, true, .kv_heads = 1, .group = 1,
                              .window = 20, .cap = 1});
    check_form(
        &(struct form){1, 2, 90, 70, 20, false, .kv_heads = 2, .group = 1, .cap = 1});
}

/* Documents in a sequence: shorter and longer than blocks, from a part of the sequence, by parts that many
 * queries see nothing of; with a window, with positions, and with heads that keys are shared by. */
static void test_documents(void) {
    static const int64_t documents[] = {3, 8, 40, 200, 1000};
    for (size_t i = 0; i < sizeof documents / sizeof *documents; i++) {
        const int64_t n = documents[i];
        check_form(&(struct form){3, 4, 300, 300, 16, true, .kv_heads = 2, .group = 2,
                                  .document = n, .cap = i % 2 ? 0.8f : 0});
        check_form(&(struct form){2, 2, 100, 300, 24, true, .kv_heads = 2, .group = 1,
                                  .first = 150, .document = n});
        for (int own = 0; own < 3; own++)
            check_form(&(struct form){2, 2, 100, 300, 16, true, .kv_heads = 2, .group = 1,
                                      .first = 100 * own, .parts = 3, .own = own,
                                      .document = n, .window = i % 2 ? 30 : 0});
        check_form(&(struct form){3, 2, 200, 200, 16, true, .kv_heads = 2, .group = 1,
                                  .buckets = 32, .distance = 128, .document = n});
        check_form(&(struct form){2, 2, 700, 700, 40, true, .kv_heads = 1, .group = 2,
                                  .document = n, .window = 60});
    }
    check_form(&(struct form){1, 1, 2500, 2500, 130, true, .kv_heads = 1, .group = 1,
                              .document = 1500});
    check_form(&(struct form){1, 1, 270, 270, 530, true, .kv_heads = 1, .group = 1,
                              .document = 90, .cap = 1});
}

/* Heads of values narrower and wider than those of keys, and scores that fall with the distance. */
static void test_values_and_slopes(void) {
    static const int64_t values[] = {1, 16, 33, 128, 200, 520};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        check_form(&(struct form){2, 4, 130, 130, 48, true, .kv_heads = 2, .group = 2,
                                  .value = values[i]});
        check_form(&(struct form){1, 3, 97, 97, 192, i % 2, .kv_heads = 3, .group = 1,
                                  .value = values[i], .slope = {1, 4, 12}});
    }
    for (int own = 0; own < 3; own++)
        check_form(&(struct form){2, 2, 100, 300, 24, true, .kv_heads = 1, .group = 2,
                                  .first = 100 * own, .parts = 3, .own = own, .value = 40,
                                  .slope = {1, 1, 16}});
    check_form(&(struct form){1, 2, 300, 300, 24, true, .kv_heads = 2, .group = 1,
                              .window = 70, .cap = 2, .slope = {0.125f, 6, 8}});
    check_form(&(struct form){1, 2, 300, 300, 24, true, .kv_heads = 2, .group = 1,
                              .document = 60, .value = 8, .slope = {1, 0, 2}});
    check_form(&(struct form){1, 2, 700, 700, 24, true, .kv_heads = 2, .group = 1,
                              .slope = {0.125f, 1, 12, .rounded = true}});
    check_form(&(struct form){1, 2, 300, 300, 24, true, .kv_heads = 2, .group = 1,
                              .window = 40, .slope = {0.5f, 9, 12, .rounded = true}});
    for (int own = 0; own < 3; own++)
        check_form(&(struct form){1, 2, 300, 900, 24, true, .kv_heads = 1, .group = 2,
                                  .first = 300 * own, .parts = 3, .own = own,
                                  .slope = {0.25f, 6, 12, .rounded = true}});
}

/* What the gradients are those of. */
static double loss(const struct data *d) {
    const struct kernel_attention *t = &d->t;
    struct reference r = {doubles(d->o_n), doubles(t->batch * t->heads * t->q_len),
                          doubles(d->q_n), doubles(d->kv_n),
                          doubles(d->v_n), doubles(d->table_n)};
    double *p = doubles(t->kv_len), sum = 0;
    for (int64_t b = 0; b < t->batch; b++)
        for (int64_t h = 0; h < t->heads; h++)
            for (int64_t i = 0; i < t->q_len; i++)
                reference_query(d, &r, b, h, i, p);
    for (int64_t i = 0; i < d->o_n; i++)
        sum += r.o[i] * d->dout[i];
    free(r.o), free(r.lse), free(r.dq), free(r.dk), free(r.dv), free(r.dtable), free(p);
    return sum;
}

static void difference(const struct data *d, int64_t n, float *x, double *dx) {
    for (int64_t i = 0; i < n; i++) {
        const float here = x[i], above = here + 1e-3f, below = here - 1e-3f;
        x[i] = above;
        double up = loss(d);
        x[i] = below;
        dx[i] = (up - loss(d)) / ((double)above - below);
        x[i] = here;
    }
}

/* The gradients by central differences, with all that attention has. */
static void check_differences(const struct form *x) {
    struct data d = make_form(x);
    double *dq = doubles(d.q_n), *dk = doubles(d.kv_n), *dv = doubles(d.v_n);
    double *dtable = doubles(d.table_n);
    difference(&d, d.q_n, d.q, dq);
    difference(&d, d.kv_n, d.k, dk);
    difference(&d, d.v_n, d.v, dv);
    difference(&d, d.table_n, d.table, dtable);
    forward(&d);
    backward(&d);
    double e[] = {nmse(d.q_n, d.dq, dq), nmse(d.kv_n, d.dk, dk), nmse(d.v_n, d.dv, dv),
                  nmse(d.table_n, d.dtable, dtable)};
    ok(e[0] < 1e-10 && e[1] < 1e-10 && e[2] < 1e-10 && e[3] < 1e-10,
       "by central differences: dq %.0e dk %.0e dv %.0e dpositions %.0e", e[0], e[1], e[2],
       e[3]);
    free(dq), free(dk), free(dv), free(dtable);
    release(&d);
}

static void test_differences(void) {
    const int32_t lengths[] = {5, 2};
    check_differences(&(struct form){2, 3, 4, 5, 3, false, .kv_heads = 2, .group = 2,
                                     .first_head = 1, .first = 1, .buckets = 8,
                                     .distance = 4, .lengths = lengths});
    check_differences(&(struct form){1, 4, 3, 6, 2, true, .kv_heads = 2, .group = 2,
                                     .first = 2, .buckets = 4, .distance = 4});
    check_differences(&(struct form){2, 4, 3, 6, 2, true, .kv_heads = 2, .group = 2,
                                     .first = 3, .buckets = 4, .distance = 4,
                                     .lengths = lengths, .parts = 3, .own = 1});
    check_differences(&(struct form){1, 4, 6, 6, 2, true, .kv_heads = 2, .group = 2,
                                     .window = 3, .cap = 1.5f});
    check_differences(&(struct form){2, 4, 7, 7, 2, true, .kv_heads = 2, .group = 2,
                                     .document = 3, .buckets = 4, .distance = 4});
    check_differences(&(struct form){2, 2, 3, 9, 2, true, .kv_heads = 1, .group = 2,
                                     .first = 3, .document = 3, .parts = 3, .own = 1});
    check_differences(&(struct form){2, 4, 5, 5, 3, true, .kv_heads = 2, .group = 2,
                                     .value = 2, .slope = {1, 2, 6}});
    check_differences(&(struct form){1, 2, 3, 9, 2, true, .kv_heads = 1, .group = 2,
                                     .first = 3, .parts = 3, .own = 1, .value = 5,
                                     .slope = {0.5f, 0, 2}, .cap = 1.5f});
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
    if (is_of_today(1, 2))
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
    forward(&d);
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
static void check_repeat(const struct form *x) {
    struct data a = make_form(x), b = make_form(x);
    const int64_t rows = x->batch * x->heads * x->q_len;
    for (int run = 0; run < 3; run++) {
        struct data *d = run ? &b : &a;
        kernel_init(run == 2 ? 3 : 1, NULL); /* 3 threads for 2 heads of keys */
        memset(d->dtable, 0, (size_t)d->table_n * sizeof *d->dtable);
        forward(d);
        backward(d);
        if (run)
            ok(same(a.o_n, a.o, b.o) && same(rows, a.lse, b.lse) &&
                   same(a.q_n, a.dq, b.dq) && same(a.kv_n, a.dk, b.dk) &&
                   same(a.v_n, a.dv, b.dv) && same(a.table_n, a.dtable, b.dtable),
               run == 1 ? "repeated: the same bits" : "three threads: the same bits");
    }
    release(&a);
    release(&b);
}

static void test_repeat(void) {
    check_repeat(&(struct form){1, 2, 333, 333, 48, true, .kv_heads = 2, .group = 1});
    check_repeat(
        &(struct form){1, 4, 200, 333, 48, true, .kv_heads = 2, .group = 2, .first = 100});
    check_repeat(&(struct form){2, 2, 333, 333, 48, false, .kv_heads = 2, .group = 1,
                                .buckets = 32, .distance = 128});
    check_repeat(&(struct form){1, 4, 111, 333, 48, true, .kv_heads = 2, .group = 2,
                                .first = 111, .parts = 3, .own = 1});
    check_repeat(&(struct form){1, 4, 333, 333, 48, true, .kv_heads = 2, .group = 2,
                                .window = 100, .cap = 3});
    check_repeat(&(struct form){1, 4, 333, 333, 48, true, .kv_heads = 2, .group = 2,
                                .document = 100});
}

int main(void) {
    with_threads(test_shapes);
    with_threads(test_groups);
    with_threads(test_parts);
    with_threads(test_rounds);
    with_threads(test_positions);
    with_threads(test_lengths);
    with_threads(test_windows);
    with_threads(test_documents);
    with_threads(test_values_and_slopes);
    with_threads(test_differences);
    with_threads(test_long);
    with_threads(test_large_scores);
    test_repeat();
    return done_testing();
}
