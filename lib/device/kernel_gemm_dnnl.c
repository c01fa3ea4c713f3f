/* The matrix product through oneDNN.
 *
 * dnnl_sgemm takes row-major matrices with any strides and creates nothing per call. For bf16 the
 * library has only primitives, which take a millisecond to create: they are kept by shape. Their
 * scratch is the room that all of oneDNN shares. The numbers behind the choice are in
 * doc/kernels.md.
 *
 * The library copies blocks of B into the order that its instructions read, again for every block of rows.
 * Where there are many rows, B is brought into that order once before.
 */
#include "kernel_impl.h"

#ifdef WEFT_GEMM_dnnl

#include "common/mem.h"
#include "kernel_dnnl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a primitive is made for. */
struct product_shape {
    int64_t m, n, k, lda, ldb, ldc;
    bool ta, tb, add, bias;
    bool packs; /* B into the library's order first */
    enum dtype type_c;
};
struct product {
    struct product_shape shape;
    dnnl_primitive_t primitive;
    dnnl_memory_t a, b, c, bias, scratch;
    dnnl_primitive_t pack; /* or NULL */
    dnnl_memory_t packed;
    int64_t scratch_bytes, packed_bytes; /* multiples of 64 */
};

static struct {
    ARR(struct product) made;
    bool has_bf16, has_tiles;
} state;

/* Without the instructions the library takes three times as long for bf16 as for floats. */
void kernel_blas_init(int threads) {
    (void)threads; /* oneDNN asks OpenMP */
    state.has_bf16 = kernel_dnnl_has(dnnl_cpu_isa_avx512_core_bf16);
    state.has_tiles = kernel_dnnl_has(dnnl_cpu_isa_avx512_core_amx);
}

void kernel_blas_release(void) {
    for (int64_t i = 0; i < state.made.n; i++) {
        struct product *p = &state.made.p[i];
        dnnl_memory_t memory[] = {p->a, p->b, p->c, p->bias, p->scratch, p->packed};
        dnnl_primitive_destroy(p->primitive);
        if (p->pack)
            dnnl_primitive_destroy(p->pack);
        for (int j = 0; j < 6; j++)
            dnnl_memory_destroy(memory[j]);
    }
    arr_release(&state.made);
    kernel_dnnl_release();
    memset(&state, 0, sizeof state);
}

const char *kernel_blas_name(void) {
    static char name[32];
    const dnnl_version_t *v = dnnl_version();
    snprintf(name, sizeof name, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    return name;
}

static void sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a,
                  int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                  int64_t ldc) {
    must(dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, 1.0f, a, lda, b, ldb, beta, c,
                    ldc));
}

/* The gradient of a matrix: a long sum, over the rows of both operands, into a result that caches
 * hold. In pieces of PIECE rows it is 1 to 5 % faster than at once; a larger result loses more by
 * being read and written for every piece. */
enum { PIECE = 512, RESULT_ELEMENTS = 1 << 20 };

void kernel_blas_gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a,
                      int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                      int64_t ldc) {
    if (ta && !tb && m * n <= RESULT_ELEMENTS)
        for (; k >= 2 * PIECE; k -= PIECE, a += PIECE * lda, b += PIECE * ldb, beta = 1)
            sgemm(ta, tb, m, n, PIECE, a, lda, b, ldb, beta, c, ldc);
    sgemm(ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc);
}

/* ---- bf16 ----------------------------------------------------------------------------------- */

static dnnl_memory_desc_t matrix(enum dtype type, bool transposed, int64_t rows,
                                 int64_t columns, int64_t ld) {
    dnnl_memory_desc_t m;
    const dnnl_dims_t size = {rows, columns};
    const dnnl_dims_t stride = {transposed ? 1 : ld, transposed ? ld : 1};
    must(dnnl_memory_desc_init_by_strides(
        &m, 2, size, type == DTYPE_f32 ? dnnl_f32 : dnnl_bf16, stride));
    return m;
}

static dnnl_primitive_desc_t describe(const struct product_shape *s,
                                      const dnnl_memory_desc_t *a,
                                      const dnnl_memory_desc_t *b,
                                      const dnnl_memory_desc_t *bias,
                                      const dnnl_memory_desc_t *c) {
    dnnl_matmul_desc_t desc;
    dnnl_primitive_attr_t attr = kernel_dnnl_attributes(s->add);
    dnnl_primitive_desc_t pd;
    dnnl_memory_desc_t any;
    const dnnl_dims_t size = {s->k, s->n};
    must(dnnl_memory_desc_init_by_tag(&any, 2, size, dnnl_bf16, dnnl_format_tag_any));
    must(dnnl_matmul_desc_init(&desc, a, s->packs ? &any : b, s->bias ? bias : NULL, c));
    must(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
    must(dnnl_primitive_desc_create(&pd, &desc, attr, kernel_dnnl_engine(), NULL));
    must(dnnl_primitive_attr_destroy(attr));
    return pd;
}

static struct product make(const struct product_shape *s) {
    const dnnl_memory_desc_t a = matrix(DTYPE_bf16, s->ta, s->m, s->k, s->lda);
    const dnnl_memory_desc_t b = matrix(DTYPE_bf16, s->tb, s->k, s->n, s->ldb);
    const dnnl_memory_desc_t c = matrix(s->type_c, false, s->m, s->n, s->ldc);
    const dnnl_memory_desc_t bias = matrix(DTYPE_bf16, false, 1, s->n, s->n);
    dnnl_primitive_desc_t pd = describe(s, &a, &b, &bias, &c);
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    const dnnl_memory_desc_t *packed =
        dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    struct product p = {.shape = *s,
                        .a = kernel_dnnl_memory(&a),
                        .b = kernel_dnnl_memory(&b),
                        .c = kernel_dnnl_memory(&c),
                        .bias = kernel_dnnl_memory(&bias),
                        .scratch = kernel_dnnl_memory(scratch),
                        .pack = s->packs ? kernel_dnnl_reorder(&b, packed, false) : NULL,
                        .packed = kernel_dnnl_memory(packed),
                        .scratch_bytes = kernel_dnnl_bytes(scratch),
                        .packed_bytes = s->packs ? kernel_dnnl_bytes(packed) : 0};
    must(dnnl_primitive_create(&p.primitive, pd));
    must(dnnl_primitive_desc_destroy(pd));
    return p;
}

static bool same_shape(const struct product_shape *a, const struct product_shape *b) {
    return a->m == b->m && a->n == b->n && a->k == b->k && a->lda == b->lda &&
           a->ldb == b->ldb && a->ldc == b->ldc && a->ta == b->ta && a->tb == b->tb &&
           a->add == b->add && a->bias == b->bias && a->packs == b->packs &&
           a->type_c == b->type_c;
}

static const struct product *find(const struct product_shape *s) {
    for (int64_t i = 0; i < state.made.n; i++)
        if (same_shape(&state.made.p[i].shape, s))
            return &state.made.p[i];
    arr_push(&state.made, make(s));
    return &state.made.p[state.made.n - 1];
}

bool kernel_blas_tiles(void) {
    return state.has_tiles;
}

static void multiply(const struct product_shape *s, const void *a, const void *b,
                     const void *bias, void *c) {
    const struct product *p = find(s);
    char *room = kernel_dnnl_room(p->scratch_bytes + p->packed_bytes);
    kernel_dnnl_place(p->a, a);
    kernel_dnnl_place(p->b, b);
    kernel_dnnl_place(p->c, c);
    kernel_dnnl_place(p->scratch, room);
    if (p->pack) {
        kernel_dnnl_place(p->packed, room + p->scratch_bytes);
        kernel_dnnl_run_reorder(p->pack, p->b, p->packed);
    }
    if (bias)
        kernel_dnnl_place(p->bias, bias);
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, p->a},
                                    {DNNL_ARG_WEIGHTS, p->pack ? p->packed : p->b},
                                    {DNNL_ARG_DST, p->c},
                                    {DNNL_ARG_SCRATCHPAD, p->scratch},
                                    {DNNL_ARG_BIAS, p->bias}};
    kernel_dnnl_run(p->primitive, bias ? 5 : 4, args);
}

/* Rows from which on packing pays, and bytes of the largest B for which it does: one that lies transposed
 * is copied faster anyway. The buffer is in every rank's memory. */
enum { PACK_ROWS = 512, PACK_BYTES = 8 << 20, PACK_BYTES_TURNED = 4 << 20 };

/* The gradient of a vocabulary's operand: a sum as long as the vocabulary, whose B is too large to be packed.
 * Pieces of it are, and their products are added as floats in scratch, for as many rows as fit there. */
enum { LONG_COLUMNS = 1024, LONG_ROWS = 1024, LONG_PIECE_BYTES = 2 << 20 };

static void long_sum(int64_t m, int64_t n, int64_t k, const bf16 *a, int64_t lda,
                     const bf16 *b, int64_t ldb, bf16 *c, int64_t ldc) {
    const int64_t most = KERNEL_SCRATCH_BYTES / (int64_t)sizeof(float) / n;
    const int64_t piece = (LONG_PIECE_BYTES / 2 / n) & ~(int64_t)31;
    float *sum = kernel_scratch(0);
    for (int64_t i = 0; i < m; i += most) {
        const int64_t rows = m - i < most ? m - i : most;
        for (int64_t l = 0; l < k; l += piece) {
            const int64_t part = k - l < piece ? k - l : piece;
            const struct product_shape s = {.m = rows,
                                            .n = n,
                                            .k = part,
                                            .lda = lda,
                                            .ldb = ldb,
                                            .ldc = n,
                                            .add = l > 0,
                                            .packs = true,
                                            .type_c = DTYPE_f32};
            multiply(&s, a + i * lda + l, b + l * ldb, NULL, sum);
        }
        for (int64_t r = 0; r < rows; r++)
            kernel_narrow(n, DTYPE_bf16, sum + r * n, c + (i + r) * ldc);
    }
}

bool kernel_blas_half(enum dtype type, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                      const void *a, int64_t lda, const void *b, int64_t ldb, float beta,
                      const void *bias, enum dtype type_c, void *c, int64_t ldc) {
    if (type != DTYPE_bf16 || !state.has_bf16)
        return false;
    if (!ta && !tb && !bias && beta == 0 && type_c == DTYPE_bf16 && n <= LONG_COLUMNS &&
        m >= LONG_ROWS && 2 * n * k > PACK_BYTES) {
        long_sum(m, n, k, a, lda, b, ldb, c, ldc);
        return true;
    }
    const bool packs =
        !ta && m >= PACK_ROWS && 2 * n * k <= (tb ? PACK_BYTES_TURNED : PACK_BYTES);
    multiply(&(struct product_shape){m, n, k, lda, ldb, ldc, ta, tb, beta != 0,
                                     bias != NULL, packs, type_c},
             a, b, bias, c);
    return true;
}

#endif
