/* Fuzzes the reader of token files (libFuzzer): as 16-bit tokens and as text. Accepted tokens
 * are below the vocabulary, which the first byte chooses.
 *
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined -Ilib tests/fuzz/fuzz-bin.c \
 *         lib/common/[a-z]*.c lib/data/[a-z]*.c -ljansson -lm -o fuzz-bin */
#include "data/tokens.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void parse(const uint8_t *bytes, size_t size, bool binary, int64_t vocab) {
    struct err err = {0};
    struct token_view v;
    if (token_view_parse(&v, bytes, (int64_t)size, binary, vocab, &err) < 0) {
        if (err.status != EXIT_INPUT || !err.msg[0])
            abort();
        return;
    }
    if (v.tokens < 0 || v.bytes + v.tokens * v.width > bytes + size)
        abort();
    int32_t *out = malloc((size_t)v.tokens * sizeof *out + 1);
    token_view_read(&v, 0, v.tokens, out);
    for (int64_t i = 0; i < v.tokens; i++)
        if (out[i] < 0 || out[i] >= vocab)
            abort();
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    static const int64_t vocabs[] = {1, 200, 256, 50257, 65535, 65536, 128000};
    if (!size)
        return 0;
    int64_t vocab = vocabs[bytes[0] % 7];
    parse(bytes + 1, size - 1, true, vocab);
    parse(bytes + 1, size - 1, false, vocab);
    return 0;
}
