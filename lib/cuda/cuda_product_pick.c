/* Which of the library's algorithms computes a product.
 *
 * What is known from before comes first (cuda_product_known.c). Else the heuristic sorts what
 * fits by an estimate. Where the device tunes, the first of its choices are tried
 * (cuda_fastest.h). Where nothing may be measured the first choice is taken, which is the same
 * each time. */
#include "cuda/cuda_product_impl.h"

#include "cuda/cuda_check.h"
#include "cuda/cuda_fastest.h"

enum { CHOICES = 12 };

struct choices {
    cublasLtMatmulHeuristicResult_t of[CHOICES];
    int n;
};

static cublasStatus_t prefer(const struct cuda_products *p, cublasLtMatmulPreference_t pref,
                             cublasLtMatmulPreferenceAttributes_t what, const void *value,
                             size_t size) {
    return p->lt.cublasLtMatmulPreferenceSetAttribute(pref, what, value, size);
}

/* Where k is cut, parts are summed in floats: not in the 16 bits of the result. */
static cublasStatus_t describe(const struct cuda_products *p, const struct product_key *key,
                               int64_t workspace_bytes, cublasLtMatmulPreference_t pref) {
    const uint64_t most = (uint64_t)workspace_bytes;
    const uint32_t sums = key->p.type_y == DTYPE_f32
                              ? CUBLASLT_REDUCTION_SCHEME_MASK
                              : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint32_t a = (uint32_t)key->align_b, b = (uint32_t)key->align_a;
    const uint32_t y = (uint32_t)key->align_y;
    const struct {
        cublasLtMatmulPreferenceAttributes_t what;
        const void *value;
        size_t size;
    } wishes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &sums, sizeof sums},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a, sizeof a},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b, sizeof b},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &y, sizeof y},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &y, sizeof y},
    };
    cublasStatus_t rc = CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes && rc == CUBLAS_STATUS_SUCCESS;
         i++)
        rc = prefer(p, pref, wishes[i].what, wishes[i].value, wishes[i].size);
    return rc;
}

/* Of what the heuristic wrote down, each says for itself whether it can be used. */
static void keep_usable(struct choices *all, int64_t workspace_bytes) {
    const int n = all->n;
    all->n = 0;
    for (int i = 0; i < n; i++)
        if (all->of[i].state == CUBLAS_STATUS_SUCCESS &&
            all->of[i].workspaceSize <= (size_t)workspace_bytes)
            all->of[all->n++] = all->of[i];
}

/* Asks the heuristic. None is no failure: an epilogue may not go with a type. Of those the library may also
 * say that a value is wrong; but a product alone it must take, and whatever is set one at a time. */
static cublasStatus_t ask(const struct cuda_products *p, const struct product_entry *e,
                          cublasLtMatmulPreference_t pref, struct choices *out) {
    const cublasStatus_t rc = p->lt.cublasLtMatmulAlgoGetHeuristic(
        p->handle, e->desc, e->a, e->b, e->y, e->y, pref, CHOICES, out->of, &out->n);
    if (rc == CUBLAS_STATUS_NOT_SUPPORTED ||
        (rc == CUBLAS_STATUS_INVALID_VALUE && e->key.p.epilogue != PRODUCT_PLAIN)) {
        out->n = 0;
        return CUBLAS_STATUS_SUCCESS;
    }
    return rc;
}

static int list(const struct cuda_products *p, const struct product_entry *e,
                const struct cuda_operands *o, int64_t workspace_bytes, struct choices *out,
                struct err *err) {
    cublasLtMatmulPreference_t pref = NULL;
    cublasStatus_t rc = p->lt.cublasLtMatmulPreferenceCreate(&pref);
    out->n = 0;
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = describe(p, &e->key, workspace_bytes, pref);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = product_point(p, e, o);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = ask(p, e, pref, out);
    if (pref)
        p->lt.cublasLtMatmulPreferenceDestroy(pref);
    keep_usable(out, workspace_bytes);
    return cuda_check_cublas(rc, "choosing an algorithm", err);
}

/* What is needed to run one of them. */
struct trial {
    const struct cuda_products *p;
    const struct product_entry *e;
    const struct choices *all;
    const struct cuda_operands *o;
    void *workspace;
    int64_t workspace_bytes;
    cudaStream_t stream;
};

static bool run_choice(void *arg, int i) {
    const struct trial *t = arg;
    return product_run(t->p, t->e, &t->all->of[i].algo, t->o, t->workspace,
                       t->workspace_bytes, t->stream) == CUBLAS_STATUS_SUCCESS;
}

static int nothing(struct product_entry *e, struct err *err) {
    const struct cuda_product *p = &e->key.p;
    e->none = true;
    if (p->epilogue != PRODUCT_PLAIN)
        return 1;
    return err_system(
        err, "cuBLASLt has no algorithm for a product %lld x %lld x %lld of %s",
        (long long)p->m, (long long)p->n, (long long)p->k, dtype_name(p->type));
}

int product_choose(struct cuda_products *p, struct product_entry *e,
                   const struct cuda_operands *o, void *workspace, int64_t workspace_bytes,
                   cudaStream_t stream, struct err *err) {
    struct choices all;
    int best = 0;
    e->us = 0;
    if (list(p, e, o, workspace_bytes, &all, err) < 0)
        return -1;
    if (!all.n)
        return nothing(e, err);
    struct trial t = {.p = p,
                      .e = e,
                      .all = &all,
                      .o = o,
                      .workspace = workspace,
                      .workspace_bytes = workspace_bytes,
                      .stream = stream};
    const struct cuda_contest contest = {all.n, run_choice, &t, stream};
    if (p->tunes && all.n > 1 && cuda_fastest(&contest, &best, &e->us, err) < 0)
        return -1;
    e->algo = all.of[best].algo;
    e->workspace_bytes = (int64_t)all.of[best].workspaceSize;
    e->known = true;
    return 0;
}

int product_pick(struct cuda_products *p, struct product_entry *e,
                 const struct cuda_operands *o, void *workspace, int64_t workspace_bytes,
                 cudaStream_t stream, struct err *err) {
    if (e->none)
        return nothing(e, err);
    if (product_known(p, e, o, workspace_bytes))
        return e->none;
    const int rc = product_choose(p, e, o, workspace, workspace_bytes, stream, err);
    return rc || e->us == 0 ? rc : product_found(p, e, err);
}
