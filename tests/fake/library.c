/* Stands in for lib/cuda/cuda_library.c: the functions of libraries are those of the fakes that a test is
 * linked with. */
#include "cuda/cuda_library.h"
#include "fake/nccl.h"
#include "products/cublaslt.h"

#ifdef WEFT_FAKE_DNN /* there are headers of cuDNN */
#include "products/cudnn.h"
#else
#define DNN_LIBRARY(X)
#endif

#include <string.h>

#define MAY_LACK(name) extern __typeof__(name) fake_##name __attribute__((weak));
NCCL_FUNCTIONS(MAY_LACK)
PRODUCT_LIBRARY(MAY_LACK)
DNN_LIBRARY(MAY_LACK)

struct function {
    const char *name;
    void (*p)(void);
};

#define ENTRY(name) {#name, (void (*)(void))fake_##name},
static const struct function functions[] = {NCCL_FUNCTIONS(ENTRY) PRODUCT_LIBRARY(ENTRY)
                                                DNN_LIBRARY(ENTRY)};

int cuda_library_open(const char *file, const char *const *names, void *table,
                      struct err *err) {
    for (int i = 0; names[i]; i++) {
        int64_t k = 0, n = (int64_t)(sizeof functions / sizeof *functions);
        while (k < n && strcmp(functions[k].name, names[i]) != 0)
            k++;
        if (k == n || !functions[k].p)
            return err_system(err, "%s: the fake has no %s", file, names[i]);
        memcpy((char *)table + (size_t)i * sizeof functions[k].p, &functions[k].p,
               sizeof functions[k].p);
    }
    return 0;
}
