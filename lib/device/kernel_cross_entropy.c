/* Cross-entropy over a vocabulary that may be split over ranks.
 *
 * One pass over the logits (Milakov and Gimelshein, Online normalizer calculation for
 * softmax, 2018): the row goes by in pieces that stay in the nearest cache; each piece
 * gives its maximum and its sum of exponentials, and the running sum is rescaled when a
 * larger maximum turns up. Piece sums are added in double: 50,000 terms in float lose
 * digits.
 *
 * Targets below 0, and the one that is to be ignored, do not count: their rows have no loss and no
 * gradient.
 */
#include "kernel_impl.h"
#include "kernel_type.h"
#include "kernel_vec.h"

#include <string.h>

enum { PIECE = 1024 }; /* floats of a row taken at a time: 4 KiB */

VEC float piece_max(int64_t n, const T *x) {
    vf a = v_set(-INFINITY), b = a;
    int64_t j = 0;
    for (; j + 2 * VL <= n; j += 2 * VL) {
        a = v_max(a, v_load(x + j));
        b = v_max(b, v_load(x + j + VL));
    }
    for (; j < n; j += VL)
        a = v_max(a, v_load_or(x + j, n - j < VL ? n - j : VL, -INFINITY));
    return v_top(v_max(a, b));
}

VEC float piece_sum_exp(int64_t n, const T *x, float max) {
    vf a = v_set(0), b = a;
    int64_t j = 0;
    for (; j + 2 * VL <= n; j += 2 * VL) {
        a += v_exp(v_load(x + j) - max);
        b += v_exp(v_load(x + j + VL) - max);
    }
    for (; j < n; j += VL) {
        int64_t lanes = n - j < VL ? n - j : VL;
        a += v_keep_or(v_exp(v_load_n(x + j, lanes) - max), lanes, 0);
    }
    return v_sum(a + b);
}

/* What is known of a row, or of one rank's part of it. */
struct row {
    float max;
    double sum; /* of exp(x - max) */
};

static struct row scan_row(int64_t n, const T *x) {
    struct row r = {-INFINITY, 0};
    for (int64_t j = 0; j < n; j += PIECE) {
        int64_t len = n - j < PIECE ? n - j : PIECE;
        float max = piece_max(len, x + j);
        if (max > r.max) {
            r.sum *= exp((double)r.max - max);
            r.max = max;
        }
        r.sum += piece_sum_exp(len, x + j, r.max);
    }
    return r;
}

static bool row_counts(const struct kernel_targets *target, int64_t i) {
    return target->id[i] >= 0 && target->id[i] != target->ignore;
}

/* The target's logit if it is among first..first+n-1, else 0. */
static float target_logit(int64_t n, const T *x, const struct kernel_targets *target,
                          int64_t i) {
    int64_t at = target->id[i] - target->first;
    return at >= 0 && at < n ? get(x + at) : 0;
}

static double sum_slices(const double *slice) {
    double total = 0;
    for (int s = 0; s < KERNEL_SLICES; s++)
        total += slice[s];
    return total;
}

/* The loss of row i, 0 where it does not count. */
static double row_loss(int64_t n, const T *logits, const struct kernel_targets *target,
                       int64_t i, float *lse) {
    *lse = 0;
    if (!row_counts(target, i))
        return 0;
    struct row r = scan_row(n, logits);
    double exact = r.max + log(r.sum);
    *lse = (float)exact;
    return exact - target_logit(n, logits, target, i);
}

double kernel_cross_entropy(int64_t rows, int64_t n, const T *logits,
                            const struct kernel_targets *target, float *lse) {
    double slice[KERNEL_SLICES];
    KERNEL_SPLIT(KERNEL_SLICES, 1, rows * n, {
        for (int64_t s = first; s < end; s++) {
            int64_t hi = kernel_cut(rows, 1, (int)s + 1, KERNEL_SLICES);
            slice[s] = 0;
            for (int64_t i = kernel_cut(rows, 1, (int)s, KERNEL_SLICES); i < hi; i++)
                slice[s] += row_loss(n, logits + i * n, target, i, &lse[i]);
        }
    });
    return sum_slices(slice);
}

/* A row that does not count has a sum of 0, which no other has: its largest term is 1. */
void kernel_cross_entropy_part(int64_t rows, int64_t n, const T *logits,
                               const struct kernel_targets *target, float *part) {
    KERNEL_SPLIT(rows, 1, rows * n, {
        for (int64_t i = first; i < end; i++) {
            bool counts = row_counts(target, i);
            const T *x = logits + i * n;
            struct row r = counts ? scan_row(n, x) : (struct row){0, 0};
            part[3 * i] = r.max;
            part[3 * i + 1] = (float)r.sum;
            part[3 * i + 2] = counts ? target_logit(n, x, target, i) : 0;
        }
    });
}

double kernel_cross_entropy_finish(int64_t rows, int64_t parts, const float *part,
                                   float *lse) {
    double loss = 0;
    for (int64_t i = 0; i < rows; i++) {
        double max = -INFINITY, sum = 0, target = 0;
        for (int64_t p = 0; p < parts; p++)
            max = fmax(max, part[3 * (p * rows + i)]);
        for (int64_t p = 0; p < parts; p++) {
            const float *q = part + 3 * (p * rows + i);
            sum += q[1] * exp(q[0] - max);
            target += q[2];
        }
        double exact = sum == 0 ? 0 : max + log(sum);
        lse[i] = (float)exact;
        loss += exact - target;
    }
    return loss;
}

static void softmax_row(int64_t n, const T *x, float lse, float scale, T *dx) {
    int64_t j = 0;
    for (; j + VL <= n; j += VL)
        v_store(dx + j, v_exp(v_load(x + j) - lse) * scale);
    if (j < n)
        v_store_n(dx + j, n - j, v_exp(v_load_n(x + j, n - j) - lse) * scale);
}

void kernel_cross_entropy_dx(int64_t rows, int64_t n, const T *logits,
                             const struct kernel_targets *target, const float *lse,
                             float scale, T *dlogits) {
    KERNEL_SPLIT(rows, 1, rows * n, {
        for (int64_t i = first; i < end; i++) {
            if (!row_counts(target, i)) {
                memset(dlogits + i * n, 0, (size_t)n * sizeof *dlogits);
                continue;
            }
            int64_t at = target->id[i] - target->first;
            bool here = at >= 0 && at < n;
            float x = here ? get(logits + i * n + at) : 0; /* dlogits may be logits */
            softmax_row(n, logits + i * n, lse[i], scale, dlogits + i * n);
            if (here) /* e^(x - lse) - 1 without cancelling */
                put(dlogits + i * n + at, expm1f(x - lse[i]) * scale);
        }
    });
}
