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

static void sgemm(const struct kernel_product *p) {
    must(dnnl_sgemm(p->a.turned ? 'T' : 'N', p->b.turned ? 'T' : 'N', p->m, p->n, p->k,
                    1.0f, p->a.p, p->a.ld, p->b.p, p->b.ld, p->beta, p->c, p->ldc));
}

/* The gradient of a matrix: a long sum, over the rows of both operands, into a result that caches
 * hold. In pieces of PIECE rows it is 1 to 5 % faster than at once; a larger result loses more by
 * being read and written for every piece. */
enum { PIECE = 512, RESULT_ELEMENTS = 1 << 20 };

void kernel_blas_gemm(const struct kernel_product *p) {
    struct kernel_product rest = *p, piece = *p;
    const float *a = p->a.p, *b = p->b.p;
    piece.k = PIECE;
    if (p->a.turned && !p->b.turned && p->m * p->n <= RESULT_ELEMENTS)
        for (; rest.k >= 2 * PIECE; rest.k -= PIECE) {
            piece.a.p = a, piece.b.p = b, piece.beta = rest.beta;
            sgemm(&piece);
            a += PIECE * p->a.ld, b += PIECE * p->b.ld, rest.beta = 1;
        }
    rest.a.p = a, rest.b.p = b;
    sgemm(&rest);
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

static void long_sum(const struct kernel_product *p) {
    const int64_t n = p->n, most = KERNEL_SCRATCH_BYTES / (int64_t)sizeof(float) / n;
    const int64_t piece = (LONG_PIECE_BYTES / 2 / n) & ~(int64_t)31;
    const bf16 *a = p->a.p, *b = p->b.p;
    bf16 *c = p->c;
    float *sum = kernel_scratch(0);
    for (int64_t i = 0; i < p->m; i += most) {
        const int64_t rows = p->m - i < most ? p->m - i : most;
        for (int64_t l = 0; l < p->k; l += piece) {
            const int64_t part = p->k - l < piece ? p->k - l : piece;
            const struct product_shape s = {.m = rows,
                                            .n = n,
                                            .k = part,
                                            .lda = p->a.ld,
                                            .ldb = p->b.ld,
                                            .ldc = n,
                                            .add = l > 0,
                                            .packs = true,
                                            .type_c = DTYPE_f32};
            multiply(&s, a + i * p->a.ld + l, b + l * p->b.ld, NULL, sum);
        }
        for (int64_t r = 0; r < rows; r++)
            kernel_narrow(n, DTYPE_bf16, sum + r * n, c + (i + r) * p->ldc);
    }
}

bool kernel_blas_half(const struct kernel_product *p) {
    if (p->type != DTYPE_bf16 || !state.has_bf16)
        return false;
    const bool plain = !p->a.turned && !p->b.turned && !p->bias && p->beta == 0;
    const int64_t bytes = 2 * p->n * p->k; /* of B */
    if (plain && p->type_c == DTYPE_bf16 && p->n <= LONG_COLUMNS && p->m >= LONG_ROWS &&
        bytes > PACK_BYTES) {
        long_sum(p);
        return true;
    }
    const bool packs = !p->a.turned && p->m >= PACK_ROWS &&
                       bytes <= (p->b.turned ? PACK_BYTES_TURNED : PACK_BYTES);
    multiply(&(struct product_shape){.m = p->m,
                                     .n = p->n,
                                     .k = p->k,
                                     .lda = p->a.ld,
                                     .ldb = p->b.ld,
                                     .ldc = p->ldc,
                                     .ta = p->a.turned,
                                     .tb = p->b.turned,
                                     .add = p->beta != 0,
                                     .bias = p->bias != NULL,
                                     .packs = packs,
                                     .type_c = p->type_c},
             p->a.p, p->b.p, p->bias, p->c);
    return true;
}

#endif
