/* Tokens to the slots of experts, and back.
 *
 * A slot is position * all experts + expert. The taken positions of an expert in a group are the
 * first ones, so no two tokens write to one row, and what is left empty is known from their
 * number. Threads share out the tokens, then the experts whose empty rows they clear. */
#include "device/cpu.h"
#include "kernel_impl.h"
#include "kernel_type.h"
#include "kernel_vec.h"

#include <string.h>

/* The local experts' rows [experts, groups, capacity, width]. */
struct slots {
    struct dispatch_n n;
    int64_t first; /* expert */
    const int32_t *slot;
};

/* dispatch, combine and their gradients have the same numbers. */
#define SLOTS_OF(n, in, a)                                                                 \
    (struct slots) {                                                                       \
        {(n)->groups,  (n)->tokens,   (n)->choices, (n)->total,                            \
         (n)->experts, (n)->capacity, (n)->width,   0},                                    \
            (a)->first, (in)->slots                                                        \
    }

/* The row of a choice of token i, or -1: it was dropped, or its expert is another rank's. */
static int64_t row_of(const struct slots *s, int64_t i, int64_t choice) {
    const struct dispatch_n *n = &s->n;
    int64_t slot = s->slot[i * n->choices + choice];
    int64_t expert = slot % n->total - s->first, position = slot / n->total;
    if (expert < 0 || expert >= n->experts || position >= n->capacity)
        return -1;
    return (expert * n->groups + i / n->tokens) * n->capacity + position;
}

/* Zeros in the empty rows of experts lo..hi-1; taken has room for a number of each. */
static void clear_empty(const struct slots *s, int64_t lo, int64_t hi, int32_t *taken,
                        T *rows) {
    const struct dispatch_n *n = &s->n;
    const int64_t each = n->tokens * n->choices;
    for (int64_t g = 0; g < n->groups; g++) {
        memset(taken, 0, (size_t)(hi - lo) * sizeof *taken);
        for (int64_t k = 0; k < each; k++) {
            int64_t expert = s->slot[g * each + k] % n->total - s->first;
            if (expert >= lo && expert < hi)
                taken[expert - lo]++;
        }
        for (int64_t e = lo; e < hi; e++) {
            int64_t empty = n->capacity - taken[e - lo];
            T *end = rows + (e * n->groups + g + 1) * n->capacity * n->width;
            if (empty > 0)
                memset(end - empty * n->width, 0, (size_t)(empty * n->width) * sizeof *end);
        }
    }
}

static int64_t work_of(const struct slots *s) {
    return s->n.experts * s->n.groups * s->n.capacity * s->n.width;
}

static void clear_all(const struct slots *s, T *rows) {
    KERNEL_SPLIT(s->n.experts, 1, work_of(s),
                 clear_empty(s, first, end, (int32_t *)kernel_scratch(thread), rows));
}

/* y = gate x */
static void scale_row(int64_t n, float gate, const T *x, T *y) {
    for (int64_t j = 0; j < n; j += VL) {
        int64_t lanes = n - j < VL ? n - j : VL;
        v_store_n(y + j, lanes, v_fma(v_set(gate), v_load_n(x + j, lanes), v_set(0)));
    }
}

static float row_product(int64_t n, const T *x, const T *y) {
    vf sum = v_set(0);
    for (int64_t j = 0; j < n; j += VL) {
        int64_t lanes = n - j < VL ? n - j : VL;
        sum = v_fma(v_load_n(x + j, lanes), v_load_n(y + j, lanes), sum);
    }
    return v_sum(sum);
}

/* The sum of token i's rows of x, times the gates if there are any. It is added up in f32 and rounded
 * once, whatever type the rows have. */
static void gather_row(const struct slots *s, int64_t i, const T *x, const T *gates, T *y) {
    const int64_t k = s->n.choices, width = s->n.width;
    for (int64_t j = 0; j < width; j += VL) {
        const int64_t lanes = width - j < VL ? width - j : VL;
        vf sum = v_set(0);
        for (int64_t c = 0; c < k; c++) {
            const int64_t row = row_of(s, i, c);
            const float gate = gates ? get(gates + i * k + c) : 1;
            if (row >= 0)
                sum = v_fma(v_set(gate), v_load_n(x + row * width + j, lanes), sum);
        }
        v_store_n(y + j, lanes, sum);
    }
}

static void gather(const struct slots *s, int64_t lo, int64_t hi, const T *x,
                   const T *gates, T *y) {
    for (int64_t i = lo; i < hi; i++)
        gather_row(s, i, x, gates, y + i * s->n.width);
}

CPU_FUNCTION(dispatch) {
    const struct slots s = SLOTS_OF(n, in, a);
    const T *x = in->x;
    T *y = out->y;
    KERNEL_SPLIT(n->groups * n->tokens, 1, work_of(&s), {
        for (int64_t i = first; i < end; i++)
            for (int64_t c = 0; c < s.n.choices; c++) {
                int64_t row = row_of(&s, i, c), width = s.n.width;
                if (row >= 0)
                    memcpy(y + row * width, x + i * width, (size_t)width * sizeof *y);
            }
    });
    clear_all(&s, y);
}

CPU_FUNCTION(dispatch_dx) {
    const struct slots s = SLOTS_OF(n, in, a);
    KERNEL_SPLIT(n->groups * n->tokens, 1, work_of(&s),
                 gather(&s, first, end, in->dy, NULL, out->dx));
}

CPU_FUNCTION(combine) {
    const struct slots s = SLOTS_OF(n, in, a);
    KERNEL_SPLIT(n->groups * n->tokens, 1, work_of(&s),
                 gather(&s, first, end, in->x, in->gates, out->y));
}

CPU_FUNCTION(combine_bwd) {
    const struct slots s = SLOTS_OF(n, in, a);
    const T *x = in->x, *gates = in->gates, *dy = in->dy;
    T *dx = out->dx, *dgates = out->dgates;
    KERNEL_SPLIT(n->groups * n->tokens, 1, work_of(&s), {
        const int64_t k = s.n.choices, width = s.n.width;
        for (int64_t i = first * k; i < end * k; i++) {
            int64_t row = row_of(&s, i / k, i % k);
            const T *d = dy + i / k * width;
            put(dgates + i, row < 0 ? 0 : row_product(width, x + row * width, d));
            if (row >= 0)
                scale_row(width, get(gates + i), d, dx + row * width);
        }
    });
    clear_all(&s, dx);
}

/* A pass over whole numbers, not worth a second thread. */
CPU_FUNCTION(dropped) {
    const int32_t *slots = in->slots;
    int64_t count = 0;
    (void)out;
    for (int64_t i = 0; i < n->elems; i++)
        count += slots[i] >= n->limit;
    if (a->counts)
        a->scalars->metrics[METRIC_dropped] += (double)count * a->weight;
}
