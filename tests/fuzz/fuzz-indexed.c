/* Fuzzes the reader of indexes of token sequences (libFuzzer): what is accepted fills the file.
 *
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined -Ilib tests/fuzz/fuzz-indexed.c \
 *         lib/common/[a-z]*.c lib/data/[a-z]*.c -ljansson -lm -o fuzz-indexed */
#include "data/indexed.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    struct err err = {0};
    struct indexed_view v;
    if (indexed_parse(&v, bytes, (int64_t)size, &err) < 0) {
        if (err.status != EXIT_INPUT || !err.msg[0])
            abort();
        return 0;
    }
    if (v.items < 1 || (v.width != 1 && v.width != 2 && v.width != 4))
        abort();
    if (INDEXED_HEADER + 12 * v.items > (int64_t)size)
        abort();
    return 0;
}
