/* Fuzzes the reader of IDX files (libFuzzer): as images and as labels.
 *
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined -Ilib tests/fuzz/fuzz-idx.c \
 *         lib/common/[a-z]*.c lib/data/[a-z]*.c -ljansson -lm -o fuzz-idx */
#include "data/idx.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void parse(const uint8_t *bytes, size_t size, const char *what, int lo, int hi) {
    struct err err = {0};
    struct idx x;
    if (idx_parse(&x, bytes, (int64_t)size, what, lo, hi, &err) < 0) {
        if (err.status != EXIT_INPUT || !err.msg[0])
            abort();
        return;
    }
    if (x.dims < lo || x.dims > hi || x.items < 1 || x.item < 1)
        abort();
    if (x.offset + x.items * x.item != (int64_t)size)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    parse(bytes, size, "images", 3, 8);
    parse(bytes, size, "labels", 1, 1);
    return 0;
}
