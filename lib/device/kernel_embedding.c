/* Embedding: rows of a table by number, and the sum of gradients back into them.
 *
 * Backward shares out the columns, not the rows: each thread adds every row's gradient in
 * order to its own columns, so repeated numbers need no locks and give the same bits.
 */
#include "kernel_impl.h"
#include "kernel_type.h"
#include "kernel_vec.h"

#include <string.h>

static void gather_rows(int64_t rows, int64_t vocab, int64_t n, const int32_t *id,
                        int64_t first_id, const T *table, T *out) {
    for (int64_t i = 0; i < rows; i++) {
        int64_t at = id[i] - first_id;
        if (at >= 0 && at < vocab)
            memcpy(out + i * n, table + at * n, (size_t)n * sizeof *out);
        else
            memset(out + i * n, 0, (size_t)n * sizeof *out);
    }
}

void kernel_embedding(int64_t rows, int64_t vocab, int64_t n, const int32_t *id,
                      int64_t first_id, const T *table, T *out) {
    KERNEL_SPLIT(
        rows, 1, rows * n,
        gather_rows(end - first, vocab, n, id + first, first_id, table, out + first * n));
}

/* The first `columns` of n that a row has. */
static void scatter_columns(int64_t rows, int64_t vocab, int64_t n, int64_t columns,
                            const int32_t *id, int64_t first_id, const T *dout,
                            float *dtable) {
    for (int64_t i = 0; i < rows; i++) {
        int64_t at = id[i] - first_id;
        if (at < 0 || at >= vocab)
            continue;
        float *dst = dtable + at * n;
        const T *src = dout + i * n;
        for (int64_t j = 0; j < columns; j++)
            dst[j] += get(src + j);
    }
}

void kernel_embedding_dw(int64_t rows, int64_t vocab, int64_t n, const int32_t *id,
                         int64_t first_id, const T *dout, float *dtable) {
    KERNEL_SPLIT(n, 16, rows * n,
                 scatter_columns(rows, vocab, n, end - first, id, first_id, dout + first,
                                 dtable + first));
}
