/* Fuzzes the reader of token files (libFuzzer): as 16-bit and 32-bit tokens and as text. Accepted tokens
 * lie inside the file, and the search for ids beyond the vocabulary, which the first byte chooses,
 * finds the first.
 *
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined -Ilib tests/fuzz/fuzz-bin.c \
 *         lib/common/[a-z]*.c lib/data/[a-z]*.c -ljansson -lm -o fuzz-bin */
#include "data/tokens.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Byte by byte, the lowest first. */
static int64_t id_at(const uint8_t *ids, int64_t i, int width) {
    int64_t id = 0;
    for (int b = width - 1; b >= 0; b--)
        id = id << 8 | ids[width * i + b];
    return id;
}

static void parse(const uint8_t *bytes, size_t size, enum token_name name, int64_t vocab) {
    struct err err = {0};
    struct token_view v;
    if (token_view_parse(&v, bytes, (int64_t)size, name,
                         (struct token_vocab){.size = vocab, .less = ""}, &err) < 0) {
        if (err.status != EXIT_INPUT || !err.msg[0])
            abort();
        return;
    }
    if (v.tokens < 0 || v.offset + v.tokens * v.width > (int64_t)size)
        abort();
    if (v.width == 1)
        return;
    const uint8_t *ids = bytes + v.offset;
    int64_t first = token_find_beyond(ids, v.tokens, v.width, vocab), i = 0;
    while (i < v.tokens && id_at(ids, i, v.width) < vocab)
        i++;
    if (first != i)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    static const int64_t vocabs[] = {1, 200, 256, 50257, 65535, 65536, 128000};
    if (!size)
        return 0;
    int64_t vocab = vocabs[bytes[0] % 7];
    for (int name = TOKEN_TEXT; name <= TOKEN_M32; name++)
        parse(bytes + 1, size - 1, (enum token_name)name, vocab);
    return 0;
}
