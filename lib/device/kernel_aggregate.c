/* What a plan takes for the sum of replicas' gradients, where it does not trust all of them.
 *
 * Rows of x are contributions of the ranks to the coordinates that this rank owns. A location of the
 * rows is taken and multiplied by their number, so that rows which agree give their sum:
 *
 * - median: of each coordinate.
 * - trimmed: of each coordinate the mean of what is left without the b smallest and the b largest
 *   (Yin et al., Byzantine-Robust Distributed Learning, ICML 2018).
 * - fair: rows are weighted as wholes, by 1 / (1 + s / sigma), s the distance of a row from the
 *   location and sigma the median of the distances, and the b farthest are left out: the "Fair"
 *   M-estimator by reweighting (Holland and Welsch, Robust regression, 1977), begun at the median.
 *
 * A coordinate (under fair, a row) that is not finite is dropped and counts as one of the b; where
 * more than b are, nothing is known, and the result is not a number. All is done in blocks of
 * columns that stay in a thread's cache; distances are those of a block.
 *
 * A row that is not finite, or 3 times as far from the location as the median of all, is suspected of
 * the columns of the block. */
#include "device/cpu.h"
#include "kernel_impl.h"
#include "kernel_type.h"
#include "kernel_vec.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Of the columns that are sorted at once: the innermost cache. */
enum { SORTED_BYTES = 32 << 10 };

/* A block of columns: rows x, n elements apart, of which `columns` are here. */
struct block {
    enum kernel_aggregate rule;
    int parts, faulty;
    int64_t n, columns;
    const T *x;
    T *y;
    float *sorted; /* [parts][SORTED_BYTES / parts], scratch */
    double
        *distance;  /* [parts]: of rows from the location; infinite where one is dropped */
    double *weight; /* [parts] */
    double *order;  /* [parts], scratch */
};

/* ---- coordinates -------------------------------------------------------------------------- */

static void exchange(int w, float *restrict a, float *restrict b) {
    for (int i = 0; i < w; i++) {
        const float lo = a[i] < b[i] ? a[i] : b[i], hi = a[i] < b[i] ? b[i] : a[i];
        a[i] = lo;
        b[i] = hi;
    }
}

/* Sorts every column of v[parts][w]: Batcher's merge exchange (Knuth 5.2.2, algorithm M). */
static void sort_columns(int parts, int w, float *v) {
    int top = 1;
    while (top < parts)
        top *= 2;
    for (int p = top / 2; p > 0; p /= 2)
        for (int q = top / 2, r = 0, d = p;; d = q - p, q /= 2, r = p) {
            for (int i = 0; i + d < parts; i++)
                if ((i & p) == r)
                    exchange(w, v + (int64_t)i * w, v + (int64_t)(i + d) * w);
            if (q == p)
                break;
        }
}

/* The location of a sorted column, w floats from number to number, the last `bad` infinite. */
static float locate(const struct block *b, const float *v, int w, int bad) {
    const int m = b->parts - bad, cut = b->faulty - bad;
    if (cut < 0)
        return NAN;
    if (b->rule != KERNEL_TRIMMED)
        return 0.5f * v[(int64_t)((m - 1) / 2) * w] + 0.5f * v[(int64_t)(m / 2) * w];
    double sum = 0;
    for (int i = cut; i < m - cut; i++)
        sum += (double)v[(int64_t)i * w];
    return (float)(sum / (m - 2 * cut));
}

/* The same of w columns whose numbers are all finite, in the place of the first row. */
static void locate_finite(const struct block *b, float *restrict v, int w) {
    const int m = b->parts, cut = b->rule == KERNEL_TRIMMED ? b->faulty : (m - 1) / 2;
    const float share = 1.0f / (float)(m - 2 * cut);
    for (int c = 0; c < w; c++)
        v[c] = share * v[(int64_t)cut * w + c];
    for (int i = cut + 1; i < m - cut; i++)
        for (int c = 0; c < w; c++)
            v[c] += share * v[(int64_t)i * w + c];
}

/* y[first .. first + w) = the locations of these columns. Rows that are dropped (fair) are left out of
 * all of them. */
static void locate_columns(const struct block *b, int64_t first, int w) {
    int bad[SORTED_BYTES / sizeof(float)], any = 0;
    memset(bad, 0, sizeof *bad * (size_t)w);
    for (int i = 0; i < b->parts; i++) {
        const T *x = b->x + i * b->n + first;
        float *restrict v = b->sorted + (int64_t)i * w;
        const bool dropped = b->rule == KERNEL_FAIR && isinf(b->distance[i]);
        for (int c = 0; c < w; c++) {
            const float g = get(x + c);
            const bool good = !dropped && fabsf(g) <= FLT_MAX;
            v[c] = good ? g : INFINITY;
            bad[c] += !good;
            any |= !good;
        }
    }
    sort_columns(b->parts, w, b->sorted);
    if (!any)
        locate_finite(b, b->sorted, w);
    for (int c = 0; c < w; c++)
        put(b->y + first + c, any ? locate(b, b->sorted + c, w, bad[c]) : b->sorted[c]);
}

static void locate_all(const struct block *b) {
    const int most = (int)(SORTED_BYTES / sizeof(float)) / b->parts;
    const int w = most < 1 ? 1 : most;
    for (int64_t c = 0; c < b->columns; c += w)
        locate_columns(b, c, b->columns - c < w ? (int)(b->columns - c) : w);
}

/* ---- rows --------------------------------------------------------------------------------- */

/* Where nothing is known of y, numbers that are finite are not blamed for it. */
static inline float apart(float x, float y) {
    return y == y ? x - y : x;
}

/* The distance of a row from y: infinite, or not a number, where the row is. Squares of
 * single precision would lose small numbers. */
static double distance(const struct block *b, int row) {
    enum { LANES = 32 };
    const T *restrict x = b->x + row * b->n, *restrict y = b->y;
    const int64_t even = b->columns / LANES * LANES;
    double sum[LANES] = {0}, total = 0;
    for (int64_t c = 0; c < even; c += LANES)
        for (int l = 0; l < LANES; l++) {
            const double d = (double)apart(get(x + c + l), get(y + c + l));
            sum[l] += d * d;
        }
    for (int64_t c = even; c < b->columns; c++) {
        const double d = (double)apart(get(x + c), get(y + c));
        total += d * d;
    }
    for (int l = 0; l < LANES; l++)
        total += sum[l];
    return sqrt(total);
}

static void measure(const struct block *b) {
    for (int i = 0; i < b->parts; i++) {
        const double d = distance(b, i);
        b->distance[i] = isfinite(d) ? d : INFINITY;
    }
}

/* Ascending, in b->order: few numbers that are nearly in order from pass to pass. */
static const double *in_order(const struct block *b) {
    for (int i = 0; i < b->parts; i++) {
        int k = i;
        for (; k > 0 && b->order[k - 1] > b->distance[i]; k--)
            b->order[k] = b->order[k - 1];
        b->order[k] = b->distance[i];
    }
    return b->order;
}

/* Rows that are finite, which are the first of them in order. */
static int count_finite(const struct block *b) {
    int m = 0;
    for (int i = 0; i < b->parts; i++)
        m += !isinf(b->distance[i]);
    return m;
}

static double median_of(const double *order, int m) {
    return m ? 0.5 * (order[(m - 1) / 2] + order[m / 2]) : 0;
}

/* Weights that sum to 1; returns false where the rows agree, so that the location stays. */
static bool weigh(const struct block *b) {
    const int m = count_finite(b), cut = b->faulty - (b->parts - m);
    const double *order = in_order(b), sigma = median_of(order, m);
    double sum = 0;
    if (sigma == 0)
        return false;
    /* Of equally far rows none is left out rather than any one: the order of the ranks says nothing. */
    const double most = order[m - cut - 1];
    for (int i = 0; i < b->parts; i++) {
        b->weight[i] = b->distance[i] <= most ? 1 / (1 + b->distance[i] / sigma) : 0;
        sum += b->weight[i];
    }
    for (int i = 0; i < b->parts; i++)
        b->weight[i] /= sum;
    return true;
}

/* y = the rows by their weights. A row without weight may hold anything. */
static void combine(const struct block *b) {
    enum { WIDE = 512 };
    float sum[WIDE];
    for (int64_t first = 0; first < b->columns; first += WIDE) {
        const int w = b->columns - first < WIDE ? (int)(b->columns - first) : WIDE;
        memset(sum, 0, sizeof sum);
        for (int i = 0; i < b->parts; i++) {
            const float weight = (float)b->weight[i];
            const T *x = b->x + i * b->n + first;
            if (weight == 0)
                continue;
            for (int c = 0; c < w; c++)
                sum[c] += weight * get(x + c);
        }
        for (int c = 0; c < w; c++)
            put(b->y + first + c, sum[c]);
    }
}

/* Rows with anything that is not finite are infinitely far. */
static void drop_rows(const struct block *b) {
    for (int i = 0; i < b->parts; i++) {
        const T *x = b->x + i * b->n;
        int bad = 0;
        for (int64_t c = 0; c < b->columns; c++)
            bad |= !(fabsf(get(x + c)) <= FLT_MAX);
        b->distance[i] = bad ? INFINITY : 0;
    }
}

/* Leaves the distances that the last weights are made of. */
static void locate_rows(const struct block *b) {
    drop_rows(b);
    locate_all(b);
    if (b->parts - count_finite(b) > b->faulty)
        return;
    for (int k = 0; k < KERNEL_REWEIGHTINGS; k++) {
        measure(b);
        if (!weigh(b))
            return;
        combine(b);
    }
}

/* Sums of whole numbers: in whatever order threads add them, they are the same. */
static void suspect(const struct block *b, int64_t *suspects) {
    const double most = KERNEL_FAR * median_of(in_order(b), count_finite(b));
    for (int i = 0; i < b->parts; i++)
        if (b->distance[i] > most) {
#pragma omp atomic
            suspects[i] += b->columns;
        }
#pragma omp atomic
    suspects[b->parts] += b->columns;
}

static void aggregate_block(const struct block *b, int64_t *suspects) {
    if (b->rule == KERNEL_FAIR)
        locate_rows(b);
    else
        locate_all(b);
    if (suspects && b->rule != KERNEL_FAIR)
        measure(b);
    if (suspects)
        suspect(b, suspects);
    for (int64_t c = 0; c < b->columns; c++)
        put(b->y + c, (float)b->parts * get(b->y + c));
}

void kernel_aggregate(enum kernel_aggregate rule, int64_t n, int parts, int faulty,
                      const T *x, T *y, int64_t *suspects) {
    const int64_t most = kernel_aggregate_columns(parts);
    KERNEL_SPLIT(n, most, n * parts, {
        double *row = (double *)(void *)kernel_scratch(thread);
        for (int64_t c = first; c < end; c += most) {
            const struct block b = {.rule = rule,
                                    .parts = parts,
                                    .faulty = faulty,
                                    .n = n,
                                    .columns = end - c < most ? end - c : most,
                                    .x = x + c,
                                    .y = y + c,
                                    .distance = row,
                                    .weight = row + parts,
                                    .order = row + 2 * parts,
                                    .sorted = (float *)(void *)(row + 3 * parts)};
            aggregate_block(&b, suspects);
        }
    });
}

#define CPU_RULE(id, rule)                                                                 \
    CPU_FUNCTION(id) {                                                                     \
        kernel_aggregate(rule, n->elems / n->parts, (int)n->parts, a->faulty, in->x,       \
                         out->y, a->suspects);                                             \
    }
CPU_RULE(median, KERNEL_MEDIAN)
CPU_RULE(trimmed, KERNEL_TRIMMED)
CPU_RULE(fair, KERNEL_FAIR)
