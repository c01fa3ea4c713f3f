/* Stands in for lib/cuda/cuda_library.c: the functions of libraries are the fakes'. */
#include "cuda/cuda_library.h"
#include "fake/nccl.h"

#include <string.h>

struct function {
    const char *name;
    void (*p)(void);
};

#define ENTRY(name) {#name, (void (*)(void))fake_##name},
static const struct function functions[] = {NCCL_FUNCTIONS(ENTRY)};

int cuda_library_open(const char *file, const char *const *names, void *table,
                      struct err *err) {
    for (int i = 0; names[i]; i++) {
        int64_t k = 0, n = (int64_t)(sizeof functions / sizeof *functions);
        while (k < n && strcmp(functions[k].name, names[i]) != 0)
            k++;
        if (k == n)
            return err_system(err, "%s: the fake has no %s", file, names[i]);
        memcpy((char *)table + (size_t)i * sizeof functions[k].p, &functions[k].p,
               sizeof functions[k].p);
    }
    return 0;
}
