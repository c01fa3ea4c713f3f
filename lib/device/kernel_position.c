#include "kernel_position.h"
#include "kernel_vec.h"

#include <math.h>

/* Numbers for `buckets` distances 0, 1, 2, ...: the first half exactly, then by their logarithm. In
 * floats, as T5 has them: a distance on the border of two buckets must fall into the same one. */
static int64_t bucket_of(int64_t n, int64_t buckets, int distance) {
    const int64_t exact = buckets / 2;
    if (n < exact || exact < 1 || distance <= exact)
        return n < buckets ? n : buckets - 1;
    const float far = logf((float)n / (float)exact) /
                      (float)log((double)distance / (double)exact) *
                      (float)(buckets - exact);
    const int64_t bucket = exact + (int64_t)far;
    return bucket < buckets ? bucket : buckets - 1;
}

/* A full view has half of its buckets for keys behind the query, a causal one sees none there. */
void position_init(struct positions *p, const struct kernel_attention *t) {
    const int64_t half = t->causal ? t->buckets : t->buckets / 2;
    p->heads = t->heads;
    p->distance = t->distance < POSITION_MOST ? t->distance : POSITION_MOST;
    for (int d = -p->distance; d <= p->distance; d++) {
        int64_t first = d > 0 && !t->causal ? half : 0;
        int64_t apart = d > 0 ? (t->causal ? 0 : d) : -d;
        int64_t bucket = first + bucket_of(apart, half, p->distance);
        p->bucket[d + p->distance] =
            (uint16_t)(bucket < t->buckets ? bucket : t->buckets - 1);
    }
}

void position_near(const struct positions *p, enum dtype type, const void *table,
                   int64_t head, float factor, float *near) {
    const float *floats = table;
    const bf16 *halves = table;
    const f16 *others = table;
    for (int i = 0; i <= 2 * p->distance; i++) {
        const int64_t at = p->bucket[i] * p->heads + head;
        near[i] = factor * (type == DTYPE_bf16  ? get(halves + at)
                            : type == DTYPE_f16 ? get(others + at)
                                                : floats[at]);
    }
}

/* Place of a distance in near. */
static int64_t place(const struct positions *p, int64_t distance) {
    int64_t i = distance + p->distance;
    return i < 0 ? 0 : i > 2 * p->distance ? 2 * p->distance : i;
}

void position_diagonal(const struct positions *p, const float *near, int64_t first,
                       int64_t step, int64_t n, float *diagonal) {
    for (int64_t i = 0; i < n; i++)
        diagonal[i] = near[place(p, first + step * i)];
    for (int64_t i = n; i < n + 16; i++)
        diagonal[i] = 0;
}

void position_collect(const struct positions *p, const float *diagonal, int64_t first,
                      int64_t step, int64_t n, float *near) {
    for (int64_t i = 0; i < n; i++)
        near[place(p, first + step * i)] += diagonal[i];
}

void position_gather(const struct positions *p, const float *near, int64_t head,
                     float *table) {
    for (int i = 0; i <= 2 * p->distance; i++)
        table[p->bucket[i] * p->heads + head] += near[i];
}
