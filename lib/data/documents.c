/* Documents that follow each other in a sequence of tokens, each but the last ended by one token. */
#include "data/data.h"

void documents_mark(const int32_t *tokens, int64_t at, int64_t count, int32_t end,
                    int64_t *open, int32_t *starts) {
    for (int64_t i = 0; i < count; i++) {
        if (starts)
            starts[i] = (int32_t)*open;
        if (tokens[i] == end)
            *open = at + i + 1;
    }
}

int data_documents(const struct data *data, enum data_split split, int64_t sample,
                   int64_t first, int64_t count, int32_t end, int32_t *starts,
                   struct err *err) {
    enum { PIECE = 4096 };
    int32_t tokens[PIECE];
    int64_t open = 0;
    for (int64_t at = 0, n; at < first + count; at += n) {
        const int64_t left = at < first ? first - at : first + count - at;
        n = left < PIECE ? left : PIECE;
        if (data_tokens(data, split, sample, at, n, tokens, NULL, err) < 0)
            return -1;
        documents_mark(tokens, at, n, end, &open, at < first ? NULL : starts + at - first);
    }
    return 0;
}
