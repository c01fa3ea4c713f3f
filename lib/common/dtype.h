/* dtype.h - the types of the elements that buffers hold.
 *
 *     int64_t bytes = elems * dtype_size(DTYPE_bf16);
 */
#ifndef WEFT_DTYPE_H
#define WEFT_DTYPE_H

#include <stdint.h>

/* X(name, bytes of an element) */
#define DTYPES(X) X(f32, 4) X(bf16, 2) X(f16, 2) X(i32, 4) X(u8, 1)

enum dtype {
#define X(name, bytes) DTYPE_##name,
    DTYPES(X)
#undef X
        DTYPE_COUNT
};

const char *dtype_name(enum dtype dtype); /* "bf16" */
int64_t dtype_size(enum dtype dtype);     /* bytes of an element */

#endif
