/* dtype.h - the types of the elements that buffers hold.
 *
 *     int64_t bytes = elems * dtype_size(DTYPE_bf16);
 */
#ifndef WEFT_DTYPE_H
#define WEFT_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

/* X(name, bytes of an element) */
#define DTYPES(X) X(f32, 4) X(bf16, 2) X(f16, 2) X(i32, 4) X(u8, 1) X(u16, 2)

enum dtype {
#define X(name, bytes) DTYPE_##name,
    DTYPES(X)
#undef X
        DTYPE_COUNT
};

const char *dtype_name(enum dtype dtype); /* "bf16" */
int dtype_find(const char *name);         /* -1 if unknown */
int64_t dtype_size(enum dtype dtype);     /* bytes of an element */
/* Is it a float of 16 bits? */
static inline bool dtype_is_half(enum dtype dtype) {
    return dtype == DTYPE_bf16 || dtype == DTYPE_f16;
}

#endif
