/* Rotary positions: every pair turns by its position times its frequency.
 *
 * A sine takes as long as twenty of the products that use it, so sines are made once per position
 * for all samples and heads, and most of them from the position before: (cos, sin) of p + 1 is that
 * of p turned by the frequency, in double. Every 64th position, counted in the whole sequence,
 * begins anew, so a position's numbers do not depend on where a rank's part begins. */
#include "kernel_impl.h"
#include "kernel_type.h"
#include "kernel_vec.h"

#include <assert.h>
#include <string.h>

enum { MAX_PAIRS = 512, ANEW = 64 };

/* The angles of one position. */
struct turn {
    double cos[MAX_PAIRS], sin[MAX_PAIRS];
    double step_cos[MAX_PAIRS], step_sin[MAX_PAIRS]; /* from one position to the next */
    double frequency[MAX_PAIRS];
    float c[MAX_PAIRS + VL], s[MAX_PAIRS + VL];
};

static void set_position(struct turn *t, int64_t pairs, int64_t position) {
    for (int64_t i = 0; i < pairs; i++) {
        t->cos[i] = cos((double)position * t->frequency[i]);
        t->sin[i] = sin((double)position * t->frequency[i]);
    }
}

static void next_position(struct turn *t, int64_t pairs) {
    for (int64_t i = 0; i < pairs; i++) {
        double c = t->cos[i] * t->step_cos[i] - t->sin[i] * t->step_sin[i];
        t->sin[i] = t->sin[i] * t->step_cos[i] + t->cos[i] * t->step_sin[i];
        t->cos[i] = c;
    }
}

/* One head of one sample: (a, b) becomes (a c - b s, b c + a s). The rest of its dims stay. */
VEC void turn_head(const struct turn *t, int64_t pairs, int64_t dim, const T *x, T *y) {
    for (int64_t i = 0; i < pairs; i += VL) {
        const int64_t lanes = pairs - i < VL ? pairs - i : VL;
        const vf a = v_load_n(x + i, lanes), b = v_load_n(x + pairs + i, lanes);
        const vf c = v_load(t->c + i), s = v_load(t->s + i);
        v_store_n(y + i, lanes, v_fma(a, c, -(b * s)));
        v_store_n(y + pairs + i, lanes, v_fma(b, c, a * s));
    }
    if (2 * pairs < dim && x != y)
        memcpy(y + 2 * pairs, x + 2 * pairs, (size_t)(dim - 2 * pairs) * sizeof *y);
}

/* Positions first..end-1 of all samples. */
static void turn_range(const struct kernel_rotary *r, int64_t first, int64_t end,
                       const T *x, T *y) {
    const int64_t dim = r->dim, pairs = r->angles.turned / 2;
    const double gain = (double)r->angles.gain, sign = r->back ? -gain : gain;
    struct turn t;
    for (int64_t i = 0; i < pairs; i++) {
        t.frequency[i] = rotary_frequency(&r->angles, i);
        t.step_cos[i] = cos(t.frequency[i]);
        t.step_sin[i] = sin(t.frequency[i]);
    }
    for (int64_t i = pairs; i < pairs + VL; i++)
        t.c[i] = t.s[i] = 0;
    for (int64_t p = first / ANEW * ANEW; p < end; p++) {
        if (p % ANEW == 0)
            set_position(&t, pairs, p);
        else
            next_position(&t, pairs);
        if (p < first)
            continue;
        for (int64_t i = 0; i < pairs; i++) {
            t.c[i] = (float)(gain * t.cos[i]);
            t.s[i] = (float)(sign * t.sin[i]);
        }
        for (int64_t b = 0; b < r->batch; b++) {
            const int64_t at = (b * r->seq + p - r->origin) * r->heads * dim;
            for (int64_t h = 0; h < r->heads; h++)
                turn_head(&t, pairs, dim, x + at + h * dim, y + at + h * dim);
        }
    }
}

void kernel_rotary(const struct kernel_rotary *r, const T *x, T *y) {
    assert(r->angles.turned <= r->dim && r->dim <= 2 * MAX_PAIRS &&
           "pairs of a head that fit the table");
    KERNEL_SPLIT(r->seq, 1, r->batch * r->seq * r->heads * r->dim,
                 turn_range(r, r->origin + first, r->origin + end, x, y));
}
