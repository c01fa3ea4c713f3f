/* Attention on GPUs, run by the emulator, against the CPU's in floats: all that the instructions can
 * say, on shapes that do not fill blocks. Operands are rounded to the type first, so what is left is
 * the kernels' own error. Threads and blocks in the opposite order give the same bits. In
 * cuda-attention-watched no access is a race, and nothing is read that was not written (watch.h); of every
 * sort of form one. */
#include "../unit/tap.h"
#include "common/rng.h"
#include "cuda/cuda_impl.h"
#include "cuda/cuda_workspace_attention.h"
#include "device/attention.h"
#include "emulate.h"
#include "watch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Weak: without a compiler of C++ they are not there. */
__attribute__((weak)) CUDA_FUNCTION(attention);
__attribute__((weak)) CUDA_FUNCTION(attention_bwd);
__attribute__((weak)) CUDA_FUNCTION(attention_more);
__attribute__((weak)) CUDA_FUNCTION(attention_more_bwd);

/* What a test says. With parts keys come in so many, part `own` first, as in a ring of ranks. */
struct form {
    int batch, heads, group, kv_heads, seq, kv_seq, dim;
    bool causal, packed;
    int buckets, distance;
    int first, first_head, parts, own;
    const int32_t *lengths;
    int window;
    float cap;
    int document; /* mean length of the documents of a sequence; 0: it is one */
};

enum tensor { Q, K, V, DO, O, DQ, DK, DV, TENSORS };
static const char *const tensor_names[] = {"q", "k", "v", "do", "o", "dq", "dk", "dv"};

struct data {
    struct form x;
    enum dtype dtype;
    int64_t size[TENSORS], rows, numbers;
    void *at[TENSORS];       /* of the type */
    float *lse, *dpositions; /* [batch, heads, seq]; [buckets, heads] */
    void *positions;         /* [buckets, heads] of the type */
    int32_t *starts;         /* [batch, seq] of the queries' documents, or NULL */
};

static uint64_t random_state;

static float noise(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(random_state >> 32) * 0x1p-31f;
}

static void *checked(void *p) {
    if (!p)
        abort();
    return p;
}

static void *bytes_of(int64_t n) {
    return checked(aligned_alloc(256, (size_t)(n + 255) / 256 * 256 + 256));
}

/* n numbers of the type, the same for every type but for rounding. */
static void *typed_noise(const struct data *d, int64_t n, float scale) {
    float *x = bytes_of(4 * n), *y = bytes_of(4 * n);
    for (int64_t i = 0; i < n; i++)
        x[i] = scale * noise();
    kernel_narrow(n, DTYPE_bf16, x, y); /* the coarsest: all types have these numbers */
    kernel_widen(n, DTYPE_bf16, y, x);
    kernel_narrow(n, d->dtype, x, y);
    free(x);
    return y;
}

/* Where the documents of the queries start: some have a token alone. */
static int32_t *make_starts(const struct form *x) {
    int32_t *starts = bytes_of((int64_t)x->batch * x->seq * 4);
    for (int b = 0; b < x->batch; b++)
        for (int i = 0, start = 0; i < x->first + x->seq; i++) {
            if (rng_bits(11, (uint64_t)b, (uint64_t)i) % (uint64_t)x->document == 0 ||
                i % 61 < 2)
                start = i;
            if (i >= x->first)
                starts[b * x->seq + i - x->first] = start;
        }
    return starts;
}

static struct data make(const struct form *x, enum dtype dtype) {
    struct data d = {.x = *x, .dtype = dtype};
    const int64_t q = (int64_t)x->batch * x->seq * x->heads * x->dim;
    const int64_t kv = (int64_t)x->batch * x->kv_seq * x->kv_heads * x->dim;
    for (int i = 0; i < TENSORS; i++)
        d.size[i] = i == K || i == V || i == DK || i == DV ? kv : q;
    if (x->packed)
        d.size[Q] = d.size[DQ] = 3 * q, d.size[K] = d.size[V] = d.size[DK] = d.size[DV] = 0;
    d.rows = (int64_t)x->batch * x->heads * x->seq;
    d.numbers = (int64_t)x->buckets * x->heads;
    random_state = 7;
    for (int i = 0; i < TENSORS; i++)
        d.at[i] = typed_noise(&d, d.size[i], i == Q || i == K ? 2 : 1);
    d.lse = typed_noise(&(struct data){.dtype = DTYPE_f32}, d.rows, 1);
    d.dpositions = typed_noise(&(struct data){.dtype = DTYPE_f32}, d.numbers, 1);
    d.positions = typed_noise(&d, d.numbers, 2);
    d.starts = x->document ? make_starts(x) : NULL;
    return d;
}

static void release(struct data *d) {
    for (int i = 0; i < TENSORS; i++)
        free(d->at[i]);
    free(d->lse), free(d->dpositions), free(d->positions), free(d->starts);
}

/* ---- one step: the keys of a part, which lie behind those of the parts before ------------------- */

struct step {
    struct device_args args;
    int64_t kv_seq;
    char *k, *v, *dk, *dv;
    int32_t *lengths;
    const void *positions;
};

/* Tensors of a part are copied out and back, for the instruction has them dense. */
static void part_copy(const struct data *d, int tensor, int part, char *dense, bool back) {
    const struct form *x = &d->x;
    const int64_t row = (int64_t)x->kv_heads * x->dim * dtype_size(d->dtype);
    const int64_t keys = x->kv_seq / x->parts;
    for (int64_t b = 0; b < x->batch && d->size[tensor]; b++) {
        char *whole = (char *)d->at[tensor] + (b * x->kv_seq + part * keys) * row;
        char *own = dense + b * keys * row;
        memcpy(back ? whole : own, back ? own : whole, (size_t)(keys * row));
    }
}

static struct step begin(const struct data *d, int part) {
    const struct form *x = &d->x;
    const int64_t keys = x->kv_seq / x->parts;
    struct step s = {.args = {.dtype = d->dtype,
                              .first = x->first,
                              .first_key = part * keys,
                              .first_head = x->first_head,
                              .distance = x->distance,
                              .cap = x->cap,
                              .scale = 1.0f / sqrtf((float)x->dim)},
                     .kv_seq = keys,
                     .lengths = (int32_t *)(uintptr_t)x->lengths,
                     .positions = x->buckets ? d->positions : NULL};
    char **dense[] = {&s.k, &s.v, &s.dk, &s.dv};
    const int tensor[] = {K, V, DK, DV};
    for (int i = 0; i < 4; i++) {
        *dense[i] = bytes_of(4 * d->size[tensor[i]]);
        part_copy(d, tensor[i], part, *dense[i], false);
    }
    return s;
}

static void end(const struct data *d, int part, struct step *s) {
    part_copy(d, DK, part, s->dk, true);
    part_copy(d, DV, part, s->dv, true);
    free(s->k), free(s->v), free(s->dk), free(s->dv);
}

static struct attention_n numbers_of(const struct form *x, int64_t keys) {
    return (struct attention_n){.batch = x->batch,
                                .heads = x->heads,
                                .group = x->group,
                                .kv_heads = x->kv_heads,
                                .seq = x->seq,
                                .kv_seq = keys,
                                .dim = x->dim,
                                .causal = x->causal,
                                .buckets = x->buckets,
                                .packed = x->packed,
                                .lengths = x->lengths != NULL,
                                .window = x->window,
                                .capped = x->cap > 0,
                                .starts = x->document > 0};
}

static struct attention_more_n more_of(const struct attention_n *n) {
    return (struct attention_more_n){.batch = n->batch,
                                     .heads = n->heads,
                                     .group = n->group,
                                     .kv_heads = n->kv_heads,
                                     .seq = n->seq,
                                     .kv_seq = n->kv_seq,
                                     .dim = n->dim,
                                     .causal = n->causal,
                                     .buckets = n->buckets,
                                     .lengths = n->lengths,
                                     .window = n->window,
                                     .capped = n->capped,
                                     .starts = n->starts};
}

/* ---- on the CPU, in floats ---------------------------------------------------------------------- */

static void on_cpu(const struct data *d, int part, bool more, bool backward) {
    struct step s = begin(d, part);
    const struct attention_n n = numbers_of(&d->x, s.kv_seq);
    struct kernel_attention t =
        attention_of(&n, s.lengths, d->starts, s.positions, &s.args);
    float *q = d->at[Q], *k = (float *)s.k, *v = (float *)s.v, *dq = d->at[DQ];
    float *dk = (float *)s.dk, *dv = (float *)s.dv;
    const int64_t width = n.heads * n.dim;
    t.more = more;
    if (n.packed)
        k = q + width, v = k + width, dk = dq + width, dv = dk + width;
    if (!backward)
        kernel_attention(&t, q, k, v, d->at[O], d->lse);
    else
        kernel_attention_bwd(&t, &(struct kernel_attention_bwd){q, k, v, d->at[O], d->lse,
                                                                d->at[DO], dq, dk, dv,
                                                                d->dpositions});
    end(d, part, &s);
}

/* ---- on the GPU, by the instructions ------------------------------------------------------------ */

static const char *which; /* cuda_device.attention */
static bool tf32;         /* cuda_device.tf32 */

static int launch(struct cuda_call *c, const struct data *d, const struct step *s,
                  bool more, bool backward) {
    const union instr_n n = {.attention = numbers_of(&d->x, s->kv_seq)};
    const union instr_n m = {.attention_more = more_of(&n.attention)};
    void *table = d->x.buckets ? d->positions : NULL;
    float *slopes = d->x.buckets ? d->dpositions : NULL;
    int32_t *starts = d->starts;
    if (!more && !backward)
        return cuda_attention(
            c, &n.attention,
            &(struct attention_src){d->at[Q], s->k, s->v, s->lengths, starts, table, NULL},
            &(struct attention_dst){d->at[O], d->lse, NULL});
    if (!more)
        return cuda_attention_bwd(
            c, &n.attention_bwd,
            &(struct attention_bwd_src){d->at[Q], s->k, s->v, s->lengths, starts, table,
                                        d->at[O], d->lse, d->at[DO], NULL},
            &(struct attention_bwd_dst){d->at[DQ], s->dk, s->dv, slopes, NULL});
    if (!backward)
        return cuda_attention_more(c, &m.attention_more,
                                   &(struct attention_more_src){d->at[Q], s->k, s->v,
                                                                s->lengths, starts, table,
                                                                NULL},
                                   &(struct attention_more_dst){d->at[O], d->lse, NULL});
    return cuda_attention_more_bwd(
        c, &m.attention_more_bwd,
        &(struct attention_more_bwd_src){d->at[Q], s->k, s->v, s->lengths, starts, table,
                                         d->at[O], d->lse, d->at[DO], NULL},
        &(struct attention_more_bwd_dst){d->at[DQ], s->dk, s->dv, slopes, NULL});
}

/* What the first part writes is garbage before, but for the slopes, which are added to. */
static void name_buffers(const struct data *d, const struct step *s, bool more,
                         bool backward, const struct cuda_call *c) {
    const int64_t each = dtype_size(d->dtype), part = each / d->x.parts;
    const bool first = !more;
    emu_buffer("the workspace", c->workspace, c->workspace_bytes, true);
    emu_buffer("q", d->at[Q], d->size[Q] * each, false);
    emu_buffer("k", s->k, d->size[K] * part, false);
    emu_buffer("v", s->v, d->size[V] * part, false);
    emu_buffer("do", d->at[DO], d->size[DO] * each, false);
    emu_buffer("o", d->at[O], d->size[O] * each, first && !backward);
    emu_buffer("lse", d->lse, d->rows * 4, first && !backward);
    emu_buffer("dq", d->at[DQ], d->size[DQ] * each, first && backward);
    emu_buffer("dk", s->dk, d->size[DK] * part, first && backward);
    emu_buffer("dv", s->dv, d->size[DV] * part, first && backward);
}

static void on_gpu(const struct data *d, int part, bool more, bool backward) {
    struct cuda_device dev = {
        .arch = 90, .shared_bytes = 227 << 10, .tf32 = tf32, .attention = which};
    struct step s = begin(d, part);
    struct err err = {0};
    const int64_t bytes =
        cuda_workspace_attention(d->x.batch, d->x.heads, d->x.seq, d->x.buckets, backward)
            .total;
    struct cuda_call c = {.dev = &dev,
                          .args = &s.args,
                          .workspace = bytes_of(bytes),
                          .workspace_bytes = bytes,
                          .err = &err};
    memset(c.workspace, 0xff, (size_t)bytes); /* NaN */
    name_buffers(d, &s, more, backward, &c);
    if (launch(&c, d, &s, more, backward) < 0)
        printf("# %s\n", err.msg);
    emu_forget();
    free(c.workspace);
    end(d, part, &s);
}

/* ---- comparing ------------------------------------------------------------------------------------ */

static void run(const struct data *d, bool backward,
                void (*attend)(const struct data *d, int part, bool more, bool backward)) {
    for (int step = 0; step < d->x.parts; step++)
        attend(d, (d->x.own - step + d->x.parts) % d->x.parts, step > 0, backward);
}

/* The largest difference, as a part of the largest number; NaN is as far as can be. */
static double distance(int64_t n, enum dtype dtype, const void *x, const float *want) {
    float *got = bytes_of(4 * n);
    double most = 0, apart = 0;
    kernel_widen(n, dtype, x, got);
    for (int64_t i = 0; i < n; i++) {
        if (isinf(want[i]) && got[i] == want[i])
            continue; /* queries that see nothing */
        const double e = fabs((double)got[i] - want[i]);
        most = fmax(most, fabs(want[i]));
        apart = e <= apart ? apart : e == e ? e : INFINITY;
    }
    free(got);
    return apart > 0 ? apart / (most > 0 ? most : 1) : 0;
}

static bool same(const struct data *a, const struct data *b) {
    bool same = !memcmp(a->lse, b->lse, (size_t)a->rows * 4) &&
                !memcmp(a->dpositions, b->dpositions, (size_t)a->numbers * 4);
    for (int i = 0; i < TENSORS; i++)
        same &= !memcmp(a->at[i], b->at[i], (size_t)(a->size[i] * dtype_size(a->dtype)));
    return same;
}

static void describe(const struct form *x, char *to, size_t size) {
    snprintf(
        to, size,
        "%d x %d/%d heads from %d, %d from %d x %d in %d from %d, dim %d%s%s%s%s%s%s%s",
        x->batch, x->heads, x->group, x->first_head, x->seq, x->first, x->kv_seq, x->parts,
        x->own, x->dim, x->causal ? ", causal" : "", x->packed ? ", packed" : "",
        x->lengths ? ", lengths" : "", x->buckets ? ", positions" : "",
        x->window ? ", window" : "", x->cap > 0 ? ", cap" : "",
        x->document ? ", documents" : "");
}

/* How far the results of a pass are; `bad` says which are too far. */
static double judge(const struct data *got, const struct data *want, bool backward,
                    double most, char *bad, size_t size) {
    double worst = distance(want->rows, DTYPE_f32, got->lse, want->lse);
    if (!(worst <= most))
        snprintf(bad, size, "; lse is %.1e off", worst);
    for (int i = backward ? DQ : O; i <= (backward ? DV : O); i++) {
        const double e = distance(want->size[i], got->dtype, got->at[i], want->at[i]);
        worst = fmax(worst, e);
        if (!(e <= most))
            snprintf(bad, size, "; %s is %.1e off", tensor_names[i], e);
    }
    const double slopes =
        distance(want->numbers, DTYPE_f32, got->dpositions, want->dpositions);
    if (!(slopes <= most))
        snprintf(bad, size, "; dpositions are %.1e off", slopes);
    return fmax(worst, slopes);
}

/* Backward both begin with the kernel's o and lse: what was rounded there is judged once. */
static void check(const struct form *x, enum dtype dtype) {
    /* TF32 has as many bits as f16. */
    const double most = dtype == DTYPE_bf16          ? 2e-2
                        : dtype == DTYPE_f16 || tf32 ? 2e-3
                                                     : 1e-5;
    struct data want = make(x, DTYPE_f32), got = make(x, dtype), again = make(x, dtype);
    char what[200], bad[200] = "";
    double worst = 0;
    for (int backward = 0; backward < 2; backward++) {
        run(&want, backward, on_cpu);
        emu_order(0);
        run(&got, backward, on_gpu);
        emu_order(1);
        if (!emu_watched())
            run(&again, backward, on_gpu);
        worst = fmax(worst, judge(&got, &want, backward, most, bad, sizeof bad));
        kernel_widen(got.size[O], dtype, got.at[O], want.at[O]);
        memcpy(want.lse, got.lse, (size_t)got.rows * sizeof *got.lse);
    }
    if (emu_findings() > 0)
        snprintf(bad, sizeof bad, "; uses memory as it may not");
    if (!emu_watched() && !same(&got, &again))
        snprintf(bad, sizeof bad, "; depends on the order of threads");
    describe(x, what, sizeof what);
    ok(!*bad, "%s %s %s: %.1e%s", dtype_name(dtype), what,
       tf32    ? "TF32"
       : which ? which
               : "",
       worst, bad);
    release(&want), release(&got), release(&again);
}

static const int32_t lengths[] = {40, 1, 130};

static const struct form forms[] = {
    {2, 2, 1, 2, 70, 70, 64, .causal = true, .parts = 1},
    {1, 3, 1, 3, 150, 150, 64, .causal = true, .packed = true, .parts = 1},
    {1, 1, 1, 1, 33, 100, 40, .parts = 1},
    {1, 2, 1, 2, 131, 97, 128, .causal = true, .first = 20, .parts = 1},
    {1, 2, 2, 1, 65, 130, 96, .parts = 1},
    {1, 1, 1, 1, 70, 70, 256, .causal = true, .parts = 1},
    {1, 1, 1, 1, 40, 50, 200, .parts = 1},
    {1, 2, 1, 2, 30, 30, 20, .causal = true,
     .parts = 1}, /* rows that do not lie on 16 bytes */
    {1, 1, 1, 1, 20, 70, 300, .causal = true,
     .parts = 1}, /* wider than tensor cores take */
    {2, 4, 3, 4, 33, 33, 32, .causal = true, .first_head = 4, .parts = 1},
    {1, 2, 4, 2, 70, 70, 64, .first_head = 6, .parts = 1},
    {3, 2, 1, 2, 50, 130, 64, .lengths = lengths, .parts = 1},
    {3, 2, 2, 1, 130, 130, 64, .causal = true, .lengths = lengths, .parts = 1},
    {2, 2, 1, 2, 70, 70, 64, .causal = true, .buckets = 32, .distance = 128, .parts = 1},
    {2, 2, 1, 2, 150, 150, 32, .buckets = 8, .distance = 20, .parts = 1},
    {1, 2, 1, 2, 70, 70, 128, .buckets = 16, .distance = 1024, .parts = 1},
    {1, 1, 1, 1, 40, 70, 256, .causal = true, .buckets = 8, .distance = 20, .first = 30,
     .parts = 1},
    {3, 1, 1, 1, 40, 130, 64, .buckets = 8, .distance = 20, .lengths = lengths, .parts = 1},
    {1, 2, 1, 2, 43, 129, 64, .causal = true, .first = 0, .parts = 3, .own = 0},
    {1, 2, 1, 2, 43, 129, 64, .causal = true, .first = 43, .parts = 3, .own = 1},
    {1, 2, 2, 1, 43, 129, 128, .first = 86, .parts = 3, .own = 2},
    {3, 1, 1, 1, 50, 150, 64, .lengths = lengths, .first = 50, .parts = 3, .own = 1},
    {1, 2, 1, 2, 50, 100, 64, .causal = true, .buckets = 32, .distance = 128, .first = 50,
     .parts = 2, .own = 1},
    /* a mask under which nothing is seen of the first part */
    {1, 1, 1, 1, 50, 140, 64, .causal = true, .first = 10, .parts = 2, .own = 1},
    {1, 1, 1, 1, 1, 2, 64, .causal = true, .first = 1, .parts = 1},
    /* windows smaller and larger than blocks; parts of which nothing is seen; behind lengths */
    {1, 2, 2, 1, 150, 150, 64, .causal = true, .parts = 1, .window = 20},
    {1, 2, 1, 2, 60, 210, 64, .causal = true, .first = 140, .parts = 1, .window = 70,
     .cap = 0.5f},
    {1, 2, 1, 2, 43, 129, 64, .causal = true, .first = 86, .parts = 3, .own = 2,
     .window = 30, .cap = 0.5f},
    {3, 1, 1, 1, 130, 130, 32, .causal = true, .lengths = lengths, .parts = 1,
     .window = 64},
    {2, 2, 1, 2, 70, 70, 64, .causal = true, .buckets = 32, .distance = 128, .parts = 1,
     .window = 33},
    {1, 2, 1, 2, 40, 90, 64, .parts = 1, .cap = 0.3f},
    {1, 2, 1, 2, 70, 70, 64, .causal = true, .packed = true, .parts = 1, .window = 40},
    {1, 2, 1, 2, 60, 210, 64, .causal = true, .first = 140, .parts = 1, .window = 70},
    {1, 2, 1, 2, 43, 129, 64, .causal = true, .first = 86, .parts = 3, .own = 2,
     .window = 30},
    /* documents shorter and longer than blocks; parts of which some queries see nothing */
    {3, 2, 1, 2, 200, 200, 64, .causal = true, .packed = true, .parts = 1, .document = 20},
    {2, 2, 2, 1, 300, 300, 64, .causal = true, .parts = 1, .document = 150},
    {1, 2, 1, 2, 170, 170, 128, .causal = true, .parts = 1, .document = 60, .window = 50},
    {2, 1, 1, 1, 43, 129, 64, .causal = true, .first = 86, .parts = 3, .own = 2,
     .document = 25},
    {2, 1, 1, 1, 60, 180, 64, .causal = true, .first = 60, .parts = 3, .own = 1,
     .document = 100},
    {1, 2, 1, 2, 80, 240, 96, .causal = true, .first = 160, .parts = 1, .document = 50},
    {2, 2, 1, 2, 90, 90, 64, .causal = true, .buckets = 32, .distance = 128, .parts = 1,
     .document = 30},
    {1, 2, 1, 2, 140, 140, 256, .causal = true, .parts = 1, .document = 40},
    {1, 2, 1, 2, 140, 140, 20, .causal = true, .parts = 1, .document = 40, .cap = 0.5f},
};

static const char *only; /* the form that was asked for, or NULL */

/* Watched or under sanitizers, which is slow, fewer; f16 goes through the templates of bf16. */
static bool tried(size_t form, enum dtype dtype) {
    if (only)
        return atoi(only) == (int)form;
    const bool slow = emu_watched() || SANITIZED;
    return is_of_today((int64_t)form, slow ? 10 : 4) &&
           (!slow || dtype != DTYPE_f16 || getenv("WEFT_LONG"));
}

/* Caps are the plain kernels'. */
static bool on_tensor_cores(const struct form *x) {
    return x->cap <= 0;
}

/* All forms, or the one that is named. */
int main(int argc, char **argv) {
    static const enum dtype types[] = {DTYPE_bf16, DTYPE_f32, DTYPE_f16};
    struct err err = {0};
    only = argc > 1 ? argv[1] : NULL;
    if (!cuda_attention) {
        printf("1..0 # SKIP the kernels are not there: no compiler of C++\n");
        return 0;
    }
    if (kernel_init(1, &err) < 0)
        return 4;
    which = "mma";
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        for (size_t k = 0; k < sizeof types / sizeof *types; k++)
            if (tried(i, types[k]))
                check(forms + i, types[k]);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (on_tensor_cores(&forms[i]) && forms[i].dim <= 128 && forms[i].dim % 8 == 0 &&
            tried(i, DTYPE_bf16)) {
            which = NULL; /* by wgmma */
            check(forms + i, DTYPE_bf16);
            if (i % 3 == 0 && tried(i, DTYPE_f16)) /* the same templates */
                check(forms + i, DTYPE_f16);
            which = "wgmma-128";
            check(forms + i, DTYPE_bf16);
        }
    which = NULL, tf32 = true;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (on_tensor_cores(&forms[i]) && forms[i].dim <= 128 && forms[i].dim % 8 == 0 &&
            tried(i, DTYPE_f32))
            check(forms + i, DTYPE_f32);
    which = "plain", tf32 = false;
    check(forms, DTYPE_bf16);
    if (tried(0, DTYPE_f16))
        check(forms, DTYPE_f16);
    check(forms + 13, DTYPE_bf16);
    kernel_release();
    return done_testing();
}
