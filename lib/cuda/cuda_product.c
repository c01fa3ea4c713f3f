/* Products by cuBLASLt: descriptions, made once per product and kept. */
#include "cuda/cuda_product_impl.h"

#include "cuda/cuda_check.h"

#include "common/mem.h"
#include "common/rng.h"

#include <stdlib.h>
#include <string.h>

enum { LARGEST_ALIGNMENT = 16 }; /* bytes; no kernel asks for more */

#define TEXT_OF(x)      #x
#define TEXT(x)         TEXT_OF(x)
#define LIBRARY_VERSION TEXT(CUBLAS_VER_MAJOR)

static const char *const names[] = {CUDA_LIBRARY_NAMES(PRODUCT_LIBRARY) NULL};

struct cuda_products *cuda_products_create(const struct cuda_device *dev, bool tunes,
                                           struct err *err) {
    struct cuda_products *p = mem_alloc(sizeof *p);
    p->fixed = dev->deterministic;
    p->tunes = tunes && !p->fixed;
    p->tf32 = dev->tf32;
    if (cuda_library_open("libcublasLt.so." LIBRARY_VERSION, names, &p->lt, err) < 0 ||
        cuda_check_cublas(p->lt.cublasLtCreate(&p->handle), "opening the library", err) <
            0) {
        free(p);
        return NULL;
    }
    p->version = (int64_t)p->lt.cublasLtGetVersion();
    return p;
}

static void release_entry(const struct cuda_products *p, struct product_entry *e) {
    if (e->desc)
        p->lt.cublasLtMatmulDescDestroy(e->desc);
    if (e->a)
        p->lt.cublasLtMatrixLayoutDestroy(e->a);
    if (e->b)
        p->lt.cublasLtMatrixLayoutDestroy(e->b);
    if (e->y)
        p->lt.cublasLtMatrixLayoutDestroy(e->y);
    free(e);
}

void cuda_products_destroy(struct cuda_products *p) {
    if (!p)
        return;
    for (int64_t i = 0; i < p->n; i++)
        release_entry(p, p->entries[i]);
    free(p->entries);
    free(p->slots);
    p->lt.cublasLtDestroy(p->handle);
    free(p);
}

void cuda_products_know(struct cuda_products *p, struct cuda_choices *choices) {
    p->choices = choices;
}

void cuda_products_tune(struct cuda_products *p, bool tunes) {
    p->tunes = tunes && !p->fixed;
}

/* ---- descriptions ------------------------------------------------------------------------- */

static cudaDataType_t library_type(enum dtype type) {
    return type == DTYPE_bf16 ? CUDA_R_16BF : type == DTYPE_f16 ? CUDA_R_16F : CUDA_R_32F;
}

/* Which of the library's operands is summed: they are exchanged. */
static cublasLtEpilogue_t library_epilogue(enum cuda_epilogue e) {
    switch (e) {
    case PRODUCT_BIAS: return CUBLASLT_EPILOGUE_BIAS;
    case PRODUCT_SUMS_A: return CUBLASLT_EPILOGUE_BGRADB;
    case PRODUCT_SUMS_B: return CUBLASLT_EPILOGUE_BGRADA;
    case PRODUCT_GELU: return CUBLASLT_EPILOGUE_GELU;
    case PRODUCT_GELU_BIAS: return CUBLASLT_EPILOGUE_GELU_BIAS;
    case PRODUCT_GELU_AUX: return CUBLASLT_EPILOGUE_GELU_AUX;
    case PRODUCT_GELU_AUX_BIAS: return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case PRODUCT_DGELU: return CUBLASLT_EPILOGUE_DGELU;
    default: return CUBLASLT_EPILOGUE_DEFAULT;
    }
}

static cublasStatus_t set(const struct cuda_products *p, cublasLtMatmulDesc_t d,
                          cublasLtMatmulDescAttributes_t what, const void *value,
                          size_t size) {
    return p->lt.cublasLtMatmulDescSetAttribute(d, what, value, size);
}

static cublasStatus_t describe_product(const struct cuda_products *lib,
                                       const struct product_key *key,
                                       cublasLtMatmulDesc_t *out) {
    const struct cuda_product *p = &key->p;
    const cublasOperation_t a = p->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t b = p->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t epilogue = library_epilogue(p->epilogue);
    const cudaDataType_t vector = library_type(p->type_y);
    cublasStatus_t rc = lib->lt.cublasLtMatmulDescCreate(
        out, key->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = set(lib, *out, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = set(lib, *out, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b);
    if (p->epilogue == PRODUCT_PLAIN)
        return rc;
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = set(lib, *out, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (rc == CUBLAS_STATUS_SUCCESS && product_has_vector(p->epilogue))
        rc = set(lib, *out, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &vector, sizeof vector);
    if (rc == CUBLAS_STATUS_SUCCESS && product_has_aux(p->epilogue))
        rc = set(lib, *out, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->ldy, sizeof p->ldy);
    return rc;
}

/* A row-major matrix of so many rows and columns, as the library sees it. */
static cublasStatus_t describe_matrix(const struct cuda_products *p, enum dtype type,
                                      int64_t rows, int64_t columns, int64_t ld,
                                      int64_t batch, int64_t step,
                                      cublasLtMatrixLayout_t *out) {
    const int32_t count = (int32_t)batch;
    cublasStatus_t rc = p->lt.cublasLtMatrixLayoutCreate(
        out, library_type(type), (uint64_t)columns, (uint64_t)rows, ld);
    if (rc == CUBLAS_STATUS_SUCCESS && batch > 1)
        rc = p->lt.cublasLtMatrixLayoutSetAttribute(
            *out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
    if (rc == CUBLAS_STATUS_SUCCESS && batch > 1)
        rc = p->lt.cublasLtMatrixLayoutSetAttribute(
            *out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step);
    return rc;
}

static cublasStatus_t describe(const struct cuda_products *lib, struct product_entry *e) {
    const struct cuda_product *p = &e->key.p;
    cublasStatus_t rc = describe_product(lib, &e->key, &e->desc);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = describe_matrix(lib, p->type, p->tb ? p->n : p->k, p->tb ? p->k : p->n, p->ldb,
                             p->batch, p->step_b, &e->a);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = describe_matrix(lib, p->type, p->ta ? p->k : p->m, p->ta ? p->m : p->k, p->lda,
                             p->batch, p->step_a, &e->b);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc =
            describe_matrix(lib, p->type_y, p->m, p->n, p->ldy, p->batch, p->step_y, &e->y);
    return rc;
}

/* ---- what was seen ------------------------------------------------------------------------ */

static bool same(const struct product_key *a, const struct product_key *b) {
    const struct cuda_product *p = &a->p, *q = &b->p;
    return p->type == q->type && p->type_y == q->type_y && p->ta == q->ta &&
           p->tb == q->tb && p->add == q->add && p->epilogue == q->epilogue &&
           p->m == q->m && p->n == q->n && p->k == q->k && p->lda == q->lda &&
           p->ldb == q->ldb && p->ldy == q->ldy && p->batch == q->batch &&
           p->step_a == q->step_a && p->step_b == q->step_b && p->step_y == q->step_y &&
           a->align_a == b->align_a && a->align_b == b->align_b &&
           a->align_y == b->align_y && a->align_vector == b->align_vector &&
           a->align_aux == b->align_aux && a->tf32 == b->tf32;
}

static uint64_t hash_of(const struct product_key *k) {
    const struct cuda_product *p = &k->p;
    const int64_t numbers[] = {p->type,     p->type_y,   p->ta,      p->tb,
                               p->add,      p->epilogue, p->m,       p->n,
                               p->k,        p->lda,      p->ldb,     p->ldy,
                               p->batch,    p->step_a,   p->step_b,  p->step_y,
                               k->align_a,  k->align_b,  k->align_y, k->align_vector,
                               k->align_aux};
    return hash_bytes(numbers, sizeof numbers, 0);
}

static int64_t *slot_of(const struct cuda_products *p, const struct product_key *key) {
    int64_t at = (int64_t)(hash_of(key) & (uint64_t)(p->n_slots - 1));
    while (p->slots[at] && !same(&p->entries[p->slots[at] - 1]->key, key))
        at = (at + 1) & (p->n_slots - 1);
    return &p->slots[at];
}

/* At most half full. */
static void make_room(struct cuda_products *p) {
    if (2 * (p->n + 1) <= p->n_slots)
        return;
    p->n_slots = p->n_slots ? 2 * p->n_slots : 64;
    free(p->slots);
    p->slots = mem_array((size_t)p->n_slots, sizeof *p->slots);
    for (int64_t i = 0; i < p->n; i++)
        *slot_of(p, &p->entries[i]->key) = i + 1;
}

static struct product_entry *entry_of(struct cuda_products *p,
                                      const struct product_key *key, struct err *err) {
    make_room(p);
    int64_t *slot = slot_of(p, key);
    if (*slot)
        return p->entries[*slot - 1];
    struct product_entry *e = mem_alloc(sizeof *e);
    e->key = *key;
    if (cuda_check_cublas(describe(p, e), "describing a product", err) < 0) {
        release_entry(p, e);
        return NULL;
    }
    if (p->n == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 32;
        p->entries = mem_grow(p->entries, (size_t)p->cap, sizeof *p->entries);
    }
    p->entries[p->n++] = e;
    *slot = p->n;
    return e;
}

/* Of the address and of every row and matrix behind it. */
static int alignment(const void *p, int64_t step_bytes, int64_t row_bytes) {
    uint64_t all = (uint64_t)(uintptr_t)p | (uint64_t)step_bytes | (uint64_t)row_bytes |
                   LARGEST_ALIGNMENT;
    return (int)(all & -all);
}

/* Steps of a lone matrix say nothing, and are not looked at. */
static struct product_key key_of(const struct cuda_products *p,
                                 const struct cuda_product *q,
                                 const struct cuda_operands *o) {
    struct product_key key = {.p = *q, .tf32 = p->tf32 && q->type == DTYPE_f32};
    if (q->batch == 1)
        key.p.step_a = key.p.step_b = key.p.step_y = 0;
    int64_t size = dtype_size(q->type), size_y = dtype_size(q->type_y);
    key.align_a = alignment(o->a, key.p.step_a * size, q->lda * size);
    key.align_b = alignment(o->b, key.p.step_b * size, q->ldb * size);
    key.align_y = alignment(o->y, key.p.step_y * size_y, q->ldy * size_y);
    if (product_has_vector(q->epilogue))
        key.align_vector = alignment(o->vector, 0, 0);
    if (product_has_aux(q->epilogue))
        key.align_aux = alignment(o->aux, 0, q->ldy * size_y);
    return key;
}

struct product_entry *product_entry(struct cuda_products *p, const struct cuda_product *q,
                                    const struct cuda_operands *o, struct err *err) {
    const struct product_key key = key_of(p, q, o);
    return entry_of(p, &key, err);
}

/* ---- running ------------------------------------------------------------------------------ */

cublasStatus_t product_point(const struct cuda_products *p, const struct product_entry *e,
                             const struct cuda_operands *o) {
    cublasStatus_t rc = CUBLAS_STATUS_SUCCESS;
    if (product_has_vector(e->key.p.epilogue))
        rc = set(p, e->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &o->vector,
                 sizeof o->vector);
    if (rc == CUBLAS_STATUS_SUCCESS && product_has_aux(e->key.p.epilogue))
        rc = set(p, e->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &o->aux,
                 sizeof o->aux);
    return rc;
}

cublasStatus_t product_run(const struct cuda_products *p, const struct product_entry *e,
                           const cublasLtMatmulAlgo_t *algo, const struct cuda_operands *o,
                           void *workspace, int64_t workspace_bytes, cudaStream_t stream) {
    const float one = 1, beta = e->key.p.add && !o->fresh ? 1 : 0;
    cublasStatus_t rc = product_point(p, e, o);
    if (rc != CUBLAS_STATUS_SUCCESS)
        return rc;
    return p->lt.cublasLtMatmul(p->handle, e->desc, &one, o->b, e->a, o->a, e->b, &beta,
                                o->y, e->y, o->y, e->y, algo, workspace,
                                (size_t)workspace_bytes, stream);
}

int cuda_product(struct cuda_call *c, const struct cuda_product *q,
                 const struct cuda_operands *o, void *workspace, int64_t workspace_bytes) {
    struct cuda_products *p = c->dev->products;
    if (!q->m || !q->n || !q->k || !q->batch)
        return err_system(c->err, "a product of no elements");
    struct product_entry *e = product_entry(p, q, o, c->err);
    if (!e)
        return -1;
    for (;;) {
        int rc = e->known
                     ? 0
                     : product_pick(p, e, o, workspace, workspace_bytes, c->stream, c->err);
        if (rc)
            return rc;
        cublasStatus_t status =
            product_run(p, e, &e->algo, o, workspace, workspace_bytes, c->stream);
        if (status == CUBLAS_STATUS_SUCCESS || !e->before)
            return cuda_check_cublas(status, "a product", c->err);
        product_refuse(p, e);
    }
}
