/* Algorithms of products that a profile knows: their names, and whether this library still has them.
 *
 * cublasLt.h says how an algorithm may be kept: as the words of its descriptor, for the same version of the
 * library. Rebuilt from its attributes it would lack those that the header does not name. So the version is
 * part of the key, and the library is asked before an algorithm is taken. */
#include "cuda/cuda_product_impl.h"

#include "cuda/cuda_choices.h"

#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t) };

/* In the place of an algorithm: the product without its epilogue is faster, and passes behind it. */
static const char apart[] = "apart";

/* What is asked for, in words: all of the key. */
static struct library_algorithm name_of(const struct product_key *key, int64_t version) {
    const struct cuda_product *p = &key->p;
    const int64_t numbers[] = {p->m,          p->n,         p->k,
                               p->ta,         p->tb,        p->add,
                               p->epilogue,   p->lda,       p->ldb,
                               p->ldy,        p->batch,     p->step_a,
                               p->step_b,     p->step_y,    key->align_a,
                               key->align_b,  key->align_y, key->align_vector,
                               key->align_aux};
    const int n = (int)(sizeof numbers / sizeof *numbers) - !product_has_aux(p->epilogue);
    struct library_algorithm name = {.problem = "product", .library = version};
    cuda_choices_join(numbers, n, name.shape, sizeof name.shape);
    snprintf(name.dtype, sizeof name.dtype, "%s", key->tf32 ? "tf32" : dtype_name(p->type));
    snprintf(name.dtype_y, sizeof name.dtype_y, "%s", dtype_name(p->type_y));
    return name;
}

static void format_words(const cublasLtMatmulAlgo_t *algo, char *buf, size_t size) {
    size_t at = 0;
    for (int i = 0; i < WORDS && at < size; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%" PRIx64, i ? "," : "",
                               algo->data[i]);
}

static bool parse_words(const char *text, cublasLtMatmulAlgo_t *algo) {
    for (int i = 0; i < WORDS; i++) {
        char *end;
        algo->data[i] = strtoull(text, &end, 16);
        if (end == text || *end != (i + 1 < WORDS ? ',' : '\0'))
            return false;
        text = end + 1;
    }
    return true;
}

static bool takes(const struct cuda_products *p, struct product_entry *e,
                  const struct cuda_operands *o, const struct library_algorithm *known,
                  int64_t workspace_bytes) {
    cublasLtMatmulHeuristicResult_t result = {0};
    cublasLtMatmulAlgo_t algo;
    if (product_has_rival(e->key.p.epilogue) && !strcmp(known->algorithm, apart))
        return e->none = true;
    if (!parse_words(known->algorithm, &algo) ||
        product_point(p, e, o) != CUBLAS_STATUS_SUCCESS ||
        p->lt.cublasLtMatmulAlgoCheck(p->handle, e->desc, e->a, e->b, e->y, e->y, &algo,
                                      &result) != CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > (size_t)workspace_bytes)
        return false;
    e->algo = algo;
    e->us = known->least_us;
    return e->known = e->before = true;
}

bool product_known(const struct cuda_products *p, struct product_entry *e,
                   const struct cuda_operands *o, int64_t workspace_bytes) {
    if (!p->choices || e->refused)
        return false;
    const struct library_algorithm name = name_of(&e->key, p->version);
    const struct library_algorithm *known =
        cuda_choices_find(p->choices, CUDA_CUBLASLT, &name);
    if (!known)
        return false;
    const bool taken = takes(p, e, o, known, workspace_bytes);
    cuda_choices_count(p->choices, CUDA_CUBLASLT, taken);
    return taken;
}

void product_refuse(const struct cuda_products *p, struct product_entry *e) {
    (void)cudaGetLastError(); /* the failure is not the next call's */
    cuda_choices_failed(p->choices, CUDA_CUBLASLT);
    e->known = e->before = false;
    e->refused = true;
}

int product_found(const struct cuda_products *p, const struct product_entry *e,
                  struct err *err) {
    struct library_algorithm found = name_of(&e->key, p->version);
    if (e->none)
        snprintf(found.algorithm, sizeof found.algorithm, "%s", apart);
    else
        format_words(&e->algo, found.algorithm, sizeof found.algorithm);
    found.workspace_bytes = e->none ? 0 : e->workspace_bytes;
    found.least_us = e->us;
    return cuda_choices_tell(p->choices, &found, err);
}
