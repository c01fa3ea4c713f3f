#include "common/dtype.h"

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

int64_t dtype_size(enum dtype dtype) {
    return types[dtype].bytes;
}
