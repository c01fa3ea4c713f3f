/* The rules over gradients of replicas (device/kernel_aggregate.c, which says what they are): a block has
 * as many columns of all rows as a block there, its threads one column after another.
 *
 * A column is not sorted: the rank of each of its numbers is counted, which needs no memory; replicas
 * are few. */
#include "cuda/cuda_block.h"

struct rule {
    int rule, parts, faulty;
    int64_t n, most; /* columns; of a block */
};

/* Where a row stands to the location, in shared memory: [3][parts] doubles. */
struct standing {
    double *distance, *weight, *order;
};

CUDA_DEVICE bool is_finite(float x) {
    return fabsf(x) <= 3.402823466e38f;
}

CUDA_DEVICE bool is_dropped(const struct rule &r, const struct standing &s, int row) {
    return r.rule == KERNEL_FAIR && s.distance[row] == (double)INFINITY;
}

/* Does x of row i stand before y of row j? */
CUDA_DEVICE bool before(float x, int i, float y, int j) {
    return x < y || (x == y && i < j);
}

/* The location of the column at x. */
template <typename T>
CUDA_DEVICE float locate(const struct rule &r, const struct standing &s, const T *x) {
    int good = 0;
    for (int i = 0; i < r.parts; i++)
        good += !is_dropped(r, s, i) && is_finite(get(x + i * r.n));
    const int cut = r.faulty - (r.parts - good);
    if (cut < 0)
        return NAN;
    const int from = r.rule == KERNEL_TRIMMED ? cut : (good - 1) / 2;
    const int to = r.rule == KERNEL_TRIMMED ? good - 1 - cut : good / 2;
    const float share = 1.0f / (float)(to - from + 1);
    float sum = 0;
    for (int i = 0; i < r.parts; i++) {
        const float v = get(x + i * r.n);
        if (is_dropped(r, s, i) || !is_finite(v))
            continue;
        int rank = 0;
        for (int j = 0; j < r.parts && rank <= to; j++) {
            const float other = get(x + j * r.n);
            rank += !is_dropped(r, s, j) && is_finite(other) && before(other, j, v, i);
        }
        if (rank >= from && rank <= to)
            sum += share * v;
    }
    return sum;
}

/* Distances of all rows from y; where y is not known, from 0. */
template <typename T>
CUDA_DEVICE void measure(const struct rule &r, const struct standing &s, int64_t columns,
                         const T *x, const T *y) {
    for (int i = 0; i < r.parts; i++) {
        double sum = 0;
        for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
            const float at = get(y + c);
            const double d = (double)(get(x + i * r.n + c) - (at == at ? at : 0));
            sum += d * d;
        }
        sum = sqrt(block_sum(sum));
        if (threadIdx.x == 0)
            s.distance[i] = sum <= 1.7e308 ? sum : (double)INFINITY;
    }
    __syncthreads();
}

/* By one thread: the rows that are finite, and the distances in order. */
CUDA_DEVICE int put_in_order(const struct rule &r, const struct standing &s) {
    int good = 0;
    for (int i = 0; i < r.parts; i++) {
        int k = i;
        good += s.distance[i] < (double)INFINITY;
        for (; k > 0 && s.order[k - 1] > s.distance[i]; k--)
            s.order[k] = s.order[k - 1];
        s.order[k] = s.distance[i];
    }
    return good;
}

CUDA_DEVICE double middle(const double *order, int n) {
    return n ? 0.5 * (order[(n - 1) / 2] + order[n / 2]) : 0;
}

/* By one thread. The first weight is negative where the rows agree: then the location stays. */
CUDA_DEVICE void weigh(const struct rule &r, const struct standing &s) {
    const int good = put_in_order(r, s);
    const double sigma = middle(s.order, good);
    const double most = s.order[r.parts - r.faulty - 1];
    double sum = 0;
    for (int i = 0; i < r.parts; i++) {
        s.weight[i] = s.distance[i] <= most ? 1 / (1 + s.distance[i] / sigma) : 0;
        sum += s.weight[i];
    }
    for (int i = 0; i < r.parts; i++)
        s.weight[i] /= sum;
    if (sigma == 0)
        s.weight[0] = -1;
}

/* Rows that are not finite are infinitely far; returns how many. */
template <typename T>
CUDA_DEVICE int drop(const struct rule &r, const struct standing &s, int64_t columns,
                     const T *x) {
    int dropped = 0;
    for (int i = 0; i < r.parts; i++) {
        int bad = 0;
        for (int64_t c = threadIdx.x; c < columns; c += blockDim.x)
            bad |= !is_finite(get(x + i * r.n + c));
        bad = block_sum(bad) > 0;
        dropped += bad;
        if (threadIdx.x == 0)
            s.distance[i] = bad ? (double)INFINITY : 0;
    }
    __syncthreads();
    return dropped;
}

template <typename T>
CUDA_DEVICE void reweigh(const struct rule &r, const struct standing &s, int64_t columns,
                         const T *x, T *y) {
    for (int k = 0; k < KERNEL_REWEIGHTINGS; k++) {
        measure(r, s, columns, x, y);
        if (threadIdx.x == 0)
            weigh(r, s);
        __syncthreads();
        if (s.weight[0] < 0)
            return;
        for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
            float sum = 0;
            for (int i = 0; i < r.parts; i++)
                if (s.weight[i] > 0)
                    sum += (float)s.weight[i] * get(x + i * r.n + c);
            put(y + c, sum);
        }
        __syncthreads();
    }
}

template <typename T>
CUDA_KERNEL void aggregate(struct rule r, const T *x, T *y, unsigned long long *suspects) {
    CUDA_DYNAMIC(double, room);
    const struct standing s = {room, room + r.parts, room + 2 * r.parts};
    const int64_t first = blockIdx.x * r.most;
    const int64_t columns = r.n - first < r.most ? r.n - first : r.most;
    x += first, y += first;
    int dropped = 0;
    if (r.rule == KERNEL_FAIR)
        dropped = drop(r, s, columns, x);
    for (int64_t c = threadIdx.x; c < columns; c += blockDim.x)
        put(y + c, locate(r, s, x + c));
    if (r.rule == KERNEL_FAIR && dropped <= r.faulty)
        reweigh(r, s, columns, x, y);
    else if (r.rule != KERNEL_FAIR && suspects)
        measure(r, s, columns, x, y);
    if (suspects && threadIdx.x == 0) {
        const double far = KERNEL_FAR * middle(s.order, put_in_order(r, s));
        for (int i = 0; i < r.parts; i++)
            if (s.distance[i] > far)
                atomicAdd(&suspects[i], (unsigned long long)columns);
        atomicAdd(&suspects[r.parts], (unsigned long long)columns);
    }
    for (int64_t c = threadIdx.x; c < columns; c += blockDim.x)
        put(y + c, (float)r.parts * get(y + c));
}

static int launch(struct cuda_call *c, enum kernel_aggregate rule, int64_t elems,
                  int64_t parts, const void *x, void *y) {
    const struct rule r = {(int)rule, (int)parts, c->args->faulty, elems / parts,
                           kernel_aggregate_columns((int)parts)};
    if (r.n > 0)
        CUDA_TYPED(c->args->dtype, T,
                   CUDA_LAUNCH(aggregate<T>, blocks_of(r.n, r.most), BLOCK,
                               3 * sizeof(double) * (size_t)parts, c->stream, r,
                               (const T *)x, (T *)y,
                               (unsigned long long *)c->args->suspects));
    return 0;
}

#define CUDA_RULE(id, rule)                                                                \
    CUDA_FUNCTION(id) {                                                                    \
        return launch(c, rule, n->elems, n->parts, in->x, out->y);                         \
    }
CUDA_RULE(median, KERNEL_MEDIAN)
CUDA_RULE(trimmed, KERNEL_TRIMMED)
CUDA_RULE(fair, KERNEL_FAIR)
