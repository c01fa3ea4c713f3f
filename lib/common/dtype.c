#include "common/dtype.h"

#include <string.h>

static const struct {
    const char *name;
    int64_t bytes;
} types[DTYPE_COUNT] = {
#define X(name, bytes) {#name, bytes},
    DTYPES(X)
#undef X
};

const char *dtype_name(enum dtype dtype) {
    return types[dtype].name;
}

int dtype_find(const char *name) {
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (!strcmp(types[i].name, name))
            return i;
    return -1;
}

int64_t dtype_size(enum dtype dtype) {
    return types[dtype].bytes;
}
