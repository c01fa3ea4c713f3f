/* Gradients of gamma and beta (kernel_norm.h): each thread its own sums, added in the order of the threads. */
#include "kernel_norm.h"

#include <string.h>

static void add(int64_t n, const float *x, float *sum) {
    for (int64_t j = 0; j < n; j++)
        sum[j] += x[j];
}

void norm_gradients(int64_t rows, int64_t n, int64_t unit, norm_share *share,
                    const void *arg, float *dgamma, float *dbeta) {
    const int64_t count = dbeta ? 2 * n : n;
    const bool fits = count * (int64_t)sizeof(float) <= KERNEL_SCRATCH_BYTES;
    const int threads = fits ? kernel_share(rows * n) : 1;
    if (threads == 1) {
        share(arg, 0, rows, dgamma, dbeta);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        const int thread = omp_get_thread_num(), parts = omp_get_num_threads();
        float *own = kernel_scratch(thread);
        memset(own, 0, (size_t)count * sizeof *own);
        share(arg, kernel_cut(rows, unit, thread, parts),
              kernel_cut(rows, unit, thread + 1, parts), own, dbeta ? own + n : NULL);
    }
    for (int t = 0; t < threads; t++) {
        add(n, kernel_scratch(t), dgamma);
        if (dbeta)
            add(n, kernel_scratch(t) + n, dbeta);
    }
}
