/* cuBLASLt itself, without a GPU: it gives no handle and so lists no algorithms, but it takes or refuses each
 * attribute of what it is told. So the descriptions that lib/cuda makes of products, of every type and
 * with every epilogue, have attributes that the library knows, in sizes that it wants. Which products
 * it has algorithms for, only a GPU tells. Where the library is missing this says so. */
#include "../unit/tap.h"
#include "cuda/cuda_product_impl.h"
#include "runtime.h"

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)

static const char *const names[] = {CUDA_LIBRARY_NAMES(PRODUCT_LIBRARY) NULL};
static struct cuda_products products;
static __typeof__(products.lt) library;

/* Of one product: attributes that were set, those that were refused, and how often it came as far as
 * asking for algorithms. */
static int set, refused, asked;

static double runtime_ms(void) {
    return 0;
}

static bool runtime_left_error(void) {
    return false;
}

static cublasStatus_t count(cublasStatus_t rc) {
    set++;
    refused += rc != CUBLAS_STATUS_SUCCESS;
    return rc;
}

static cublasStatus_t set_of_product(cublasLtMatmulDesc_t d,
                                     cublasLtMatmulDescAttributes_t what, const void *value,
                                     size_t size) {
    return count(library.cublasLtMatmulDescSetAttribute(d, what, value, size));
}

static cublasStatus_t set_of_matrix(cublasLtMatrixLayout_t l,
                                    cublasLtMatrixLayoutAttribute_t what, const void *value,
                                    size_t size) {
    return count(library.cublasLtMatrixLayoutSetAttribute(l, what, value, size));
}

static cublasStatus_t set_of_preference(cublasLtMatmulPreference_t p,
                                        cublasLtMatmulPreferenceAttributes_t what,
                                        const void *value, size_t size) {
    return count(library.cublasLtMatmulPreferenceSetAttribute(p, what, value, size));
}

static cublasStatus_t ask(cublasLtHandle_t h, cublasLtMatmulDesc_t d,
                          cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                          cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t y,
                          cublasLtMatmulPreference_t p, int most,
                          cublasLtMatmulHeuristicResult_t *out, int *n) {
    asked++;
    return library.cublasLtMatmulAlgoGetHeuristic(h, d, a, b, c, y, p, most, out, n);
}

static const char *const epilogues[] = {
    "plain",      "bias",      "sums of a",       "sums of b",   "gelu",
    "gelu, bias", "gelu, aux", "gelu, aux, bias", "gelu's slope"};

/* Without a handle it ends where algorithms are asked for, after all was told. */
static void test_product(enum dtype type, enum cuda_epilogue epilogue, int batch,
                         bool tf32) {
    struct cuda_device dev = {.products = &products};
    struct err err = {0};
    struct cuda_call c = {.dev = &dev, .err = &err};
    const bool adds = epilogue == PRODUCT_SUMS_A || epilogue == PRODUCT_SUMS_B;
    const struct cuda_product p = {.type = type,
                                   .type_y = adds ? DTYPE_f32 : type,
                                   .ta = adds,
                                   .add = adds,
                                   .epilogue = epilogue,
                                   .m = 48,
                                   .n = 64,
                                   .k = 32,
                                   .lda = adds ? 48 : 32,
                                   .ldb = 64,
                                   .ldy = 64,
                                   .batch = batch,
                                   .step_a = 48 * 32,
                                   .step_b = 32 * 64,
                                   .step_y = 48 * 64};
    void *const at = (void *)(uintptr_t)4096;
    const struct cuda_operands o = {at, at, at, at, at, false};
    products.tf32 = tf32;
    set = refused = asked = 0;
    const int rc = cuda_product(&c, &p, &o, at, 32 << 20);
    ok(rc != 0 && asked == 1 && refused == 0 && set > 7,
       "%s%s, %s%s: %d attributes, %d refused", dtype_name(type), tf32 ? " by TF32" : "",
       epilogues[epilogue], batch > 1 ? ", a batch" : "", set, refused);
}

int main(void) {
    static const enum dtype types[] = {DTYPE_f32, DTYPE_bf16, DTYPE_f16};
    struct err err = {0};
    if (cuda_library_open("libcublasLt.so." TEXT(CUBLAS_VER_MAJOR), names, &library, &err) <
        0) {
        printf("1..0 # SKIP %s\n", err.msg);
        return 0;
    }
    products.lt = library;
    products.lt.cublasLtMatmulDescSetAttribute = set_of_product;
    products.lt.cublasLtMatrixLayoutSetAttribute = set_of_matrix;
    products.lt.cublasLtMatmulPreferenceSetAttribute = set_of_preference;
    products.lt.cublasLtMatmulAlgoGetHeuristic = ask;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (int e = PRODUCT_PLAIN; e <= PRODUCT_DGELU; e++)
            test_product(types[t], (enum cuda_epilogue)e, 1, false);
        test_product(types[t], PRODUCT_PLAIN, 12, false);
    }
    test_product(DTYPE_f32, PRODUCT_BIAS, 1, true);
    const uint64_t wide = 1;
    cublasLtMatmulDesc_t d = NULL;
    library.cublasLtMatmulDescCreate(&d, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    ok(library.cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_EPILOGUE, &wide,
                                              sizeof wide) != CUBLAS_STATUS_SUCCESS,
       "an attribute of another size is refused");
    library.cublasLtMatmulDescDestroy(d);
    return done_testing();
}
