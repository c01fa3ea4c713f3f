#include "cublaslt.h"

#include "common/half.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct fake_cublaslt fake_cublaslt;

/* Where the fake of the runtime is linked too, products wait for their turn on its streams. */
void fake_cuda_launch(cudaStream_t s, void (*run)(void *args), const void *args,
                      size_t bytes) __attribute__((weak));

struct desc {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    cublasOperation_t a, b;
    cublasLtEpilogue_t epilogue;
    cudaDataType_t bias_type;
    void *bias;
    int64_t aux_ld;
    void *aux;
};

struct fake_layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t ld;
    int32_t batch;
    int64_t step;
};

struct preference {
    uint64_t workspace;
    uint32_t align[4]; /* a, b, c, d */
    uint32_t sums;
};

/* What an algorithm promises of the product that it was made for. */
struct algorithm {
    uint64_t number;
    uint64_t workspace;
    uint32_t align[4];
    /* as they were when the heuristic was asked: NULL is as good as any */
    uint32_t align_bias, align_aux;
};

static uint32_t align_of(const void *p) {
    const uint64_t all = (uint64_t)(uintptr_t)p | 16;
    return (uint32_t)(all & -all);
}

static cublasStatus_t wrong(const char *what) {
    if (!fake_cublaslt.wrong)
        fake_cublaslt.wrong = what;
    return CUBLAS_STATUS_INVALID_VALUE;
}

/* ---- handles ------------------------------------------------------------------------------ */

size_t fake_cublasLtGetVersion(void) {
    return fake_cublaslt.version ? fake_cublaslt.version : FAKE_VERSION;
}

cublasStatus_t fake_cublasLtCreate(cublasLtHandle_t *h) {
    *h = calloc(1, 1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t fake_cublasLtDestroy(cublasLtHandle_t h) {
    free(h);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t fake_cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out,
                                             cublasComputeType_t compute,
                                             cudaDataType_t scale) {
    struct desc *d = calloc(1, sizeof *d);
    *d = (struct desc){.compute = compute,
                       .scale = scale,
                       .a = CUBLAS_OP_N,
                       .b = CUBLAS_OP_N,
                       .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    *out = (cublasLtMatmulDesc_t)d;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t fake_cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
    free(d);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t take(void *to, size_t room, const void *value, size_t size) {
    if (size != room)
        return wrong("an attribute of another size");
    memcpy(to, value, size);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t fake_cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                                   cublasLtMatmulDescAttributes_t what,
                                                   const void *value, size_t size) {
    struct desc *d = (struct desc *)desc;
    switch ((int)what) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return take(&d->a, sizeof d->a, value, size);
    case CUBLASLT_MATMUL_DESC_TRANSB: return take(&d->b, sizeof d->b, value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return take(&d->epilogue, sizeof d->epilogue, value, size);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return take(&d->bias_type, sizeof d->bias_type, value, size);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return take(&d->bias, sizeof d->bias, value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return take(&d->aux_ld, sizeof d->aux_ld, value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return take(&d->aux, sizeof d->aux, value, size);
    default: return wrong("an attribute of products that the fake does not know");
    }
}

cublasStatus_t fake_cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out,
                                               cudaDataType type, uint64_t rows,
                                               uint64_t columns, int64_t ld) {
    struct fake_layout *l = calloc(1, sizeof *l);
    *l = (struct fake_layout){type, rows, columns, ld, 1, 0};
    *out = (cublasLtMatrixLayout_t)l;
    return ld >= (int64_t)rows ? CUBLAS_STATUS_SUCCESS : wrong("a leading dimension");
}

cublasStatus_t fake_cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
    free(l);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t fake_cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                     cublasLtMatrixLayoutAttribute_t what,
                                                     const void *value, size_t size) {
    struct fake_layout *l = (struct fake_layout *)layout;
    switch ((int)what) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return take(&l->batch, sizeof l->batch, value, size);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return take(&l->step, sizeof l->step, value, size);
    default: return wrong("an attribute of matrices that the fake does not know");
    }
}

cublasStatus_t fake_cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    struct preference *p = calloc(1, sizeof *p);
    for (int i = 0; i < 4; i++)
        p->align[i] = 256;
    *out = (cublasLtMatmulPreference_t)p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t fake_cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
    free(p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
fake_cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                          cublasLtMatmulPreferenceAttributes_t what,
                                          const void *value, size_t size) {
    struct preference *p = (struct preference *)pref;
    if (fake_cublaslt.no_preference && what == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)
        return CUBLAS_STATUS_INVALID_VALUE;
    switch ((int)what) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return take(&p->workspace, sizeof p->workspace, value, size);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return take(&p->sums, sizeof p->sums, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return take(&p->align[0], sizeof *p->align, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return take(&p->align[1], sizeof *p->align, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return take(&p->align[2], sizeof *p->align, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return take(&p->align[3], sizeof *p->align, value, size);
    default: return wrong("an attribute of preferences that the fake does not know");
    }
}

/* ---- products ----------------------------------------------------------------------------- */

static int64_t size_of(cudaDataType_t type) {
    return type == CUDA_R_32F ? 4 : 2;
}

static float load(const void *p, cudaDataType_t type, int64_t i) {
    switch ((int)type) {
    case CUDA_R_16BF: return bf16_widen(((const uint16_t *)p)[i]);
    case CUDA_R_16F: return f16_widen(((const uint16_t *)p)[i]);
    default: return ((const float *)p)[i];
    }
}

static void store(void *p, cudaDataType_t type, int64_t i, float x) {
    switch ((int)type) {
    case CUDA_R_16BF: ((uint16_t *)p)[i] = bf16_narrow(x); break;
    case CUDA_R_16F: ((uint16_t *)p)[i] = f16_narrow(x); break;
    default: ((float *)p)[i] = x;
    }
}

/* ---- epilogues ---------------------------------------------------------------------------- */

static bool adds_bias(const struct desc *d) {
    return d->epilogue == CUBLASLT_EPILOGUE_BIAS ||
           d->epilogue == CUBLASLT_EPILOGUE_GELU_BIAS ||
           d->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

static bool sums(const struct desc *d) {
    return d->epilogue == CUBLASLT_EPILOGUE_BGRADA ||
           d->epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

static bool writes_aux(const struct desc *d) {
    return d->epilogue == CUBLASLT_EPILOGUE_GELU_AUX ||
           d->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

static bool has_aux(const struct desc *d) {
    return writes_aux(d) || d->epilogue == CUBLASLT_EPILOGUE_DGELU;
}

static bool is_more(const struct desc *d) {
    return d->epilogue != CUBLASLT_EPILOGUE_DEFAULT &&
           d->epilogue != CUBLASLT_EPILOGUE_BIAS;
}

/* The tanh form, as its authors write it (Hendrycks and Gimpel 2016). */
static double gelu(double x) {
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x) {
    const double c = sqrt(2 / acos(-1)), t = tanh(c * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}

/* cublasLt.h's rules for the bias, its gradient and aux; NULL: none is broken. */
static const char *broken(const struct desc *d, const struct algorithm *how,
                          const struct fake_layout *c) {
    if ((adds_bias(d) || sums(d)) && (!d->bias || d->bias_type != c->type))
        return "a bias of another type";
    if ((adds_bias(d) || sums(d)) && how->align_bias > align_of(d->bias))
        return "a bias that lies otherwise than when the heuristic was asked";
    if (!has_aux(d))
        return NULL;
    if (!d->aux || d->aux_ld % 8 || d->aux_ld < (int64_t)c->rows || c->batch > 1)
        return "an aux that does not fit";
    return how->align_aux > align_of(d->aux)
               ? "an aux that lies otherwise than when the heuristic was asked"
               : NULL;
}

/* Do the sizes of op(a), op(b) and d go together? */
static bool fits(const struct desc *d, const struct fake_layout *a,
                 const struct fake_layout *b, const struct fake_layout *c) {
    const bool ta = d->a == CUBLAS_OP_T, tb = d->b == CUBLAS_OP_T;
    const uint64_t m = ta ? a->columns : a->rows, k = ta ? a->rows : a->columns;
    const uint64_t n = tb ? b->rows : b->columns, kb = tb ? b->columns : b->rows;
    return m == c->rows && n == c->columns && k == kb && a->type == b->type &&
           a->batch == b->batch && b->batch == c->batch && d->scale == CUDA_R_32F &&
           (c->type == a->type || c->type == CUDA_R_32F);
}

cublasStatus_t
fake_cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t desc,
                                    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t e,
                                    cublasLtMatmulPreference_t pref, int most,
                                    cublasLtMatmulHeuristicResult_t out[], int *n) {
    const struct desc *d = (const struct desc *)desc;
    const struct preference *p = (const struct preference *)pref;
    (void)h;
    fake_cublaslt.heuristics++;
    if (!fits(d, (struct fake_layout *)a, (struct fake_layout *)b,
              (struct fake_layout *)e) ||
        c != e)
        return wrong("sizes that do not go together");
    *n = most < FAKE_ALGORITHMS + 1 ? most : FAKE_ALGORITHMS + 1;
    if ((d->epilogue == CUBLASLT_EPILOGUE_BIAS && fake_cublaslt.no_bias) ||
        (is_more(d) && fake_cublaslt.plain) || fake_cublaslt.none)
        return fake_cublaslt.no ? fake_cublaslt.no : CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < *n; i++) {
        struct algorithm algo = {.number = (uint64_t)i,
                                 .workspace = p->workspace / 2,
                                 .align_bias =
                                     adds_bias(d) || sums(d) ? align_of(d->bias) : 1,
                                 .align_aux = has_aux(d) ? align_of(d->aux) : 1};
        memcpy(algo.align, p->align, sizeof algo.align);
        memset(&out[i], 0, sizeof out[i]);
        out[i].workspaceSize = p->workspace / 2;
        memcpy(&out[i].algo, &algo, sizeof algo);
        if (i == FAKE_ALGORITHMS) /* the last entry is none, and says so */
            out[i].state = CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t fake_cublasLtMatmulAlgoCheck(
    cublasLtHandle_t h, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t e,
    const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result) {
    const struct desc *d = (const struct desc *)desc;
    struct algorithm how;
    (void)h;
    fake_cublaslt.checks++;
    memcpy(&how, algo, sizeof how);
    if (!fits(d, (struct fake_layout *)a, (struct fake_layout *)b,
              (struct fake_layout *)e) ||
        c != e)
        return wrong("sizes that do not go together");
    if (how.number >= FAKE_ALGORITHMS)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    result->workspaceSize = how.workspace;
    return CUBLAS_STATUS_SUCCESS;
}

static bool aligned(const void *p, const struct fake_layout *l, uint32_t to) {
    uint64_t all = (uint64_t)(uintptr_t)p | (uint64_t)(l->ld * size_of(l->type));
    if (l->batch > 1)
        all |= (uint64_t)(l->step * size_of(l->type));
    return to == 0 || all % to == 0;
}

/* Of the whole of a matrix, and of those behind it. */
static int64_t bytes_of(const struct fake_layout *l) {
    return size_of(l->type) * ((l->batch - 1) * l->step +
                               (int64_t)(l->columns - 1) * l->ld + (int64_t)l->rows);
}

static bool overlaps(const void *p, const struct fake_layout *a, const void *q,
                     const struct fake_layout *b) {
    return (const char *)p < (const char *)q + bytes_of(b) &&
           (const char *)q < (const char *)p + bytes_of(a);
}

static float dot(const struct desc *d, const struct fake_layout *a,
                 const struct fake_layout *b, const char *pa, const char *pb, int64_t i,
                 int64_t j) {
    const bool ta = d->a == CUBLAS_OP_T, tb = d->b == CUBLAS_OP_T;
    const int64_t k = (int64_t)(ta ? a->rows : a->columns);
    double sum = 0;
    for (int64_t l = 0; l < k; l++)
        sum += (double)load(pa, a->type, ta ? l + i * a->ld : i + l * a->ld) *
               (double)load(pb, b->type, tb ? j + l * b->ld : l + j * b->ld);
    return (float)sum;
}

/* A product that was taken, with all that it was given. */
struct call {
    struct desc d;
    struct fake_layout a, b, c;
    const char *pa, *pb;
    char *pd;
    float alpha, beta;
    void *workspace;
    size_t workspace_bytes;
};

static float finish(const struct call *k, float x, int64_t i, int64_t j) {
    const struct desc *d = &k->d;
    const int64_t at = i + j * d->aux_ld;
    if (adds_bias(d))
        x += load(d->bias, d->bias_type, i);
    if (writes_aux(d))
        store(d->aux, k->c.type, at, x);
    if (d->epilogue == CUBLASLT_EPILOGUE_DGELU)
        return (float)(x * gelu_slope(load(d->aux, k->c.type, at)));
    return d->epilogue & CUBLASLT_EPILOGUE_GELU ? (float)gelu(x) : x;
}

/* Sums over k: of op(a) by its rows, of op(b) by its columns. */
static void sum_operand(const struct call *k) {
    const struct desc *d = &k->d;
    const bool first = d->epilogue == CUBLASLT_EPILOGUE_BGRADA;
    const struct fake_layout *l = first ? &k->a : &k->b;
    const bool down = first ? d->a == CUBLAS_OP_T : d->b == CUBLAS_OP_N;
    const int64_t n = (int64_t)(first ? k->c.rows : k->c.columns);
    const int64_t depth = (int64_t)(down ? l->rows : l->columns);
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t j = 0; j < depth; j++)
            sum += (double)load(first ? k->pa : k->pb, l->type,
                                down ? j + i * l->ld : i + j * l->ld);
        store(d->bias, d->bias_type, i, (float)sum);
    }
}

static void compute(void *args) {
    const struct call *k = args;
    const struct fake_layout *a = &k->a, *b = &k->b, *c = &k->c;
    if (k->workspace_bytes)
        memset(k->workspace, 0xff, k->workspace_bytes < 4096 ? k->workspace_bytes : 4096);
    for (int64_t s = 0; s < c->batch; s++) {
        const char *ai = k->pa + s * a->step * size_of(a->type);
        const char *bi = k->pb + s * b->step * size_of(b->type);
        char *di = k->pd + s * c->step * size_of(c->type);
        for (int64_t j = 0; j < (int64_t)c->columns; j++)
            for (int64_t i = 0; i < (int64_t)c->rows; i++) {
                float x = k->alpha * dot(&k->d, a, b, ai, bi, i, j);
                if (k->beta != 0)
                    x += k->beta * load(di, c->type, i + j * c->ld);
                store(di, c->type, i + j * c->ld, finish(k, x, i, j));
            }
    }
    if (sums(&k->d))
        sum_operand(k);
}

cublasStatus_t fake_cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t desc,
                                   const void *alpha, const void *pa,
                                   cublasLtMatrixLayout_t la, const void *pb,
                                   cublasLtMatrixLayout_t lb, const void *beta,
                                   const void *pc, cublasLtMatrixLayout_t lc, void *pd,
                                   cublasLtMatrixLayout_t ld,
                                   const cublasLtMatmulAlgo_t *algo, void *workspace,
                                   size_t workspace_bytes, cudaStream_t stream) {
    const struct desc *d = (const struct desc *)desc;
    const struct fake_layout *a = (struct fake_layout *)la, *b = (struct fake_layout *)lb;
    const struct fake_layout *c = (struct fake_layout *)ld;
    struct algorithm how;
    (void)h;
    memcpy(&how, algo, sizeof how);
    if (how.number >= FAKE_ALGORITHMS)
        return wrong("an algorithm that the heuristic did not offer");
    if (!fits(d, a, b, c) || lc != ld || pc != pd)
        return wrong("a product of matrices that do not go together");
    if (!aligned(pa, a, how.align[0]) || !aligned(pb, b, how.align[1]) ||
        !aligned(pd, c, how.align[3]))
        return wrong("a promise about alignment");
    if (how.workspace > workspace_bytes || (how.workspace && !workspace))
        return wrong("less workspace than the heuristic was told of");
    if (broken(d, &how, c))
        return wrong(broken(d, &how, c));
    if (overlaps(pd, c, pa, a) || overlaps(pd, c, pb, b))
        return wrong("a result over an operand");
    if (fake_cublaslt.failing == (int)how.number + 1) {
        fake_cublaslt.left_error = true;
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    fake_cublaslt.runs[how.number]++;
    fake_cublaslt.epilogues += is_more(d);
    struct call call = {*d,
                        *a,
                        *b,
                        *c,
                        pa,
                        pb,
                        pd,
                        *(const float *)alpha,
                        *(const float *)beta,
                        workspace,
                        workspace_bytes};
    if (stream && fake_cuda_launch)
        fake_cuda_launch(stream, compute, &call, sizeof call);
    else
        compute(&call);
    return CUBLAS_STATUS_SUCCESS;
}
