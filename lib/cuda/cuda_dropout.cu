/* Dropout with the CPU's numbers (device/kernel_box.h): what an element draws follows from the seed,
 * the step, the op and its index in the whole tensor alone. The seed, the step and where the
 * micro-batch begins stand in the scalars. */
#include "cuda/cuda_block.h"

#include "device/kernel_box.h"

struct dropout {
    struct box_rows rows;
    float rate;
    int op;
    int64_t per_sample; /* index in the whole tensor from a sample to the next; 0: none */
};

/* Vectors do not cross the end of a row. */
template <typename T>
CUDA_KERNEL void dropout(struct dropout d, int64_t n, int64_t head,
                         const struct scalars *now, const T *x, T *y) {
    const float rate = now->evaluating ? 0 : d.rate, scale = dropout_scale(rate);
    const int32_t bound = dropout_bound(rate);
    const uint64_t stream = dropout_stream(now->step, d.op);
    const uint64_t key = rng_mix(now->seed ^ rng_mix(stream)) +
                         (uint64_t)(now->first_sample * d.per_sample) * RNG_STEP;
    each<T>(n, head, grid_thread(), grid_threads(), [&](int64_t j, auto lanes) {
        enum { L = decltype(lanes)::N };
        const int64_t row = d.rows.rank ? quotient(j, d.rows.inner) : 0;
        const uint64_t index =
            box_row_index(&d.rows, row) + (uint64_t)(j - row * d.rows.inner);
        float v[L];
        load(x + j, lanes, v);
#pragma unroll
        for (int i = 0; i < L; i++) {
            const uint64_t bits = rng_mix(key + (index + (uint64_t)i) * RNG_STEP);
            v[i] = (int32_t)(bits >> 40) >= bound ? v[i] * scale : 0;
        }
        store(y + j, lanes, v);
    });
}

/* Batch dims of the box that go on with the micro-batches: each begins first_sample further on. */
static int64_t per_sample(const struct device_args *a) {
    int64_t step = 1, all = 0;
    for (int d = a->box.rank - 1; d >= 0; d--) {
        all += a->batch_dims >> d & 1 ? step : 0;
        step *= a->box.whole[d];
    }
    return all;
}

CUDA_FUNCTION(dropout) {
    const struct dropout d = {box_rows(&c->args->box), c->args->rate, c->args->op,
                              per_sample(c->args)};
    const bool vectors = aligned(in->x, out->y);
    if (n->elems > 0)
        CUDA_TYPED(c->args->dtype, T, {
            const bool fit =
                vectors && (d.rows.outer == 1 || d.rows.inner % vector_of<T>::N == 0);
            CUDA_LAUNCH(dropout<T>, blocks_of(n->elems, BLOCK * vector_of<T>::N), BLOCK, 0,
                        c->stream, d, n->elems, fit ? 0 : n->elems, c->args->scalars,
                        (const T *)in->x, (T *)out->y);
        });
    return 0;
}
