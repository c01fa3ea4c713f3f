/* Attention, from scores and values. */
#include "import/follow.h"

#include <math.h>
#include <string.h>

enum { ROWS_MOST = 256 };

/* ---- relative positions -------------------------------------------------------------------------- */

/* The bucket of a key `ahead` positions before the query's, as in T5
 * (transformers, T5Attention._relative_position_bucket). */
static int64_t bucket_of(int64_t ahead, int64_t buckets, int64_t distance, bool causal) {
    int64_t first = 0, by = ahead < 0 ? -ahead : ahead;
    if (causal) {
        by = ahead > 0 ? 0 : -ahead;
    } else {
        buckets /= 2;
        first = ahead > 0 ? buckets : 0;
    }
    int64_t near = buckets / 2;
    if (by < near)
        return first + by;
    double far = log((double)by / (double)near) / log((double)distance / (double)near);
    int64_t bucket = near + (int64_t)(far * (double)(buckets - near));
    return first + (bucket < buckets - 1 ? bucket : buckets - 1);
}

/* Is each of these rows that of its distance? Of many queries some are looked at. */
static bool are_buckets(struct follow *t, int ids, int64_t buckets, int64_t distance,
                        bool causal) {
    const struct exported_value *v = &t->p->values.p[ids];
    int64_t step = 1 + v->size[0] / ROWS_MOST;
    for (int64_t i = 0; i < v->size[0]; i += step)
        for (int64_t j = 0; j < v->size[1]; j++)
            if (fold_at(&t->fold, ids, (const int64_t[]){i, j}) !=
                (double)bucket_of(j - i, buckets, distance, causal))
                return false;
    return true;
}

/* Gives attention the parameter that is added to its scores by distance. */
static bool add_positions(struct follow *t, int op, const struct followed *s, bool causal) {
    const struct followed *w = s->positions;
    if (!w)
        return true;
    const struct followed_param *p = &t->params.p[w->param];
    struct axis heads = p->axis[1], of_weight = p->axis[0],
                of_op = axis_of(t->ops.p[op].dims.atom[2]);
    int64_t buckets = axes_size(&t->axes, &of_weight), distance = 128;
    if (buckets < 4 || buckets % 4 || buckets > 256 ||
        axes_unify(&t->axes, &heads, &of_op) != AXES_ONE || heads.n != 1 ||
        of_weight.n != 1)
        return follow_refuse(t, "positions that are none of heads"), false;
    if (!are_buckets(t, w->value, buckets, distance, causal))
        for (distance = buckets / 2 + 1; distance <= 1024; distance++)
            if (are_buckets(t, w->value, buckets, distance, causal))
                break;
    if (distance > 1024)
        return follow_refuse(t, "scores that positions change otherwise than in T5"), false;
    of_weight.atom[of_weight.n++] = heads.atom[0];
    follow_param(t, op, w, of_weight);
    if (distance != 128)
        follow_attr(t, op, "distance", json_integer(distance));
    return true;
}

/* ---- operands ---------------------------------------------------------------------------------------- */

/* [.., s, d] as [batch, heads, s, d]: what counts samples and heads is in any number of axes. */
static const struct followed *by_heads(struct follow *t, const struct followed *x) {
    struct axis lead = {0}, axis[4] = {{0}};
    for (int i = 0; i < x->rank - 2; i++) {
        struct axis a = x->axis[i];
        if (axes_settle(&t->axes, &a) < 0 || lead.n + a.n > AXIS_MOST)
            return follow_refuse(t, "attention of too many dims");
        for (int k = 0; k < a.n; k++)
            lead.atom[lead.n++] = a.atom[k];
    }
    if (!lead.n)
        return follow_refuse(t, "attention without samples");
    axis[0] = axis_of(lead.atom[0]);
    axis[1].n = lead.n - 1;
    memcpy(axis[1].atom, lead.atom + 1, sizeof *lead.atom * (size_t)axis[1].n);
    axis[2] = x->axis[x->rank - 2];
    axis[3] = x->axis[x->rank - 1];
    return follow_reaxed(t, x, 4, axis);
}

/* Keys that are repeated for several heads of queries have an atom that their tensor lacks, the
 * innermost of heads: without it. */
static const struct followed *unrepeated(struct follow *t, const struct followed *x) {
    struct axis dims = follow_dims(t, x), heads = x->axis[1];
    if (axes_settle(&t->axes, &heads) < 0)
        return NULL;
    bool lacks = heads.n > 0;
    for (int i = 0; i < dims.n; i++)
        lacks &= heads.n && dims.atom[i] != heads.atom[heads.n - 1];
    if (!lacks)
        return x;
    struct axis axis[4];
    memcpy(axis, x->axis, sizeof axis);
    heads.n--;
    axis[1] = heads;
    return follow_reaxed(t, x, 4, axis);
}

/* One part of three of a product, which lies as [batch, seq, 3, heads, d]; its op, or -1. */
static int packed_part(struct follow *t, const struct followed *x, int index) {
    if (x->form != FORM_TENSOR || x->parts != 1 || x->index[0] != index || x->as[0] >= 0)
        return -1;
    int part = axes_class(&t->axes, x->part[0]);
    struct axis dims = follow_dims(t, x), want = {0};
    const int order[] = {0, 2, -1, 1, 3};
    for (int i = 0; i < 5; i++) {
        struct axis a = order[i] < 0 ? axis_of(part) : x->axis[order[i]];
        if (axes_settle(&t->axes, &a) < 0 || a.n != 1)
            return -1;
        want.atom[want.n++] = a.atom[0];
    }
    return t->axes.atoms.p[part].size == 3 && axes_same(&t->axes, &dims, &want) ? x->op
                                                                                : -1;
}

static bool is_packed(struct follow *t, const struct followed *const x[3]) {
    int op = packed_part(t, x[0], 0);
    return op >= 0 && packed_part(t, x[1], 1) == op && packed_part(t, x[2], 2) == op;
}

static bool one(struct follow *t, struct axis a, struct axis b) {
    return axes_unify(&t->axes, &a, &b) == AXES_ONE;
}

/* A single head may have a dim or none. */
static bool one_head(struct follow *t, struct axis a, struct axis b) {
    return (axes_size(&t->axes, &a) == 1 && axes_size(&t->axes, &b) == 1) || one(t, a, b);
}

/* Samples, sizes of heads, and the sequence of keys are one; heads too unless they are grouped. */
static bool agree(struct follow *t, const struct followed *const x[3]) {
    const struct followed *q = x[0], *k = x[1], *v = x[2];
    return one(t, q->axis[0], k->axis[0]) && one(t, q->axis[0], v->axis[0]) &&
           one(t, q->axis[3], k->axis[3]) && one(t, k->axis[3], v->axis[3]) &&
           one(t, k->axis[2], v->axis[2]) && one_head(t, k->axis[1], v->axis[1]) &&
           (axes_size(&t->axes, &q->axis[1]) != axes_size(&t->axes, &k->axis[1]) ||
            one_head(t, q->axis[1], k->axis[1]));
}

static const struct followed *in_own_order(struct follow *t, const struct followed *x) {
    struct followed *y = (struct followed *)follow_reaxed(t, x, x->rank, x->axis);
    y->form = FORM_TENSOR;
    return y;
}

const struct followed *follow_plain_order(struct follow *t, const struct followed **k,
                                          const struct followed *q, double *scale) {
    if ((q->form == FORM_PAIRED) != ((*k)->form == FORM_PAIRED))
        return follow_refuse(t, "neighbours turn in queries or in keys alone");
    if (q->form != FORM_PAIRED)
        return q;
    *scale *= q->number * (*k)->number;
    *k = in_own_order(t, *k);
    return in_own_order(t, q);
}

static bool prepare(struct follow *t, const struct followed *x[3]) {
    static const int order[] = {0, 2, 1, 3};
    for (int i = 0; i < 3; i++) {
        const struct followed *y = follow_whole(t, x[i]);
        if (y && i)
            y = unrepeated(t, y);
        if (!y || !follow_is_plain(t, y))
            return follow_refuse(t, "attention of what was stretched"), false;
        x[i] = y;
    }
    if (!agree(t, x))
        return follow_refuse(t, "attention whose queries, keys and values do not match"),
               false;
    for (int i = 0; i < 3; i++)
        if (!(x[i] = follow_arrange(t, x[i], order, 4)))
            return false;
    return one(t, x[1]->axis[1], x[2]->axis[1]);
}

/* ---- the op ------------------------------------------------------------------------------------------ */

static int attention_op(struct follow *t, const struct followed *x[3]) {
    static const int order[] = {0, 2, 1, 3};
    bool packed = is_packed(t, x);
    struct axis dims = {0};
    if (!packed && !prepare(t, x))
        return -1;
    for (int i = 0; i < 4; i++) {
        struct axis a = x[0]->axis[order[i]];
        if (axes_settle(&t->axes, &a) < 0 || dims.n + a.n > AXIS_MOST)
            return follow_refuse(t, "attention of too many dims"), -1;
        for (int k = 0; k < a.n; k++)
            dims.atom[dims.n++] = a.atom[k];
    }
    int op = follow_op(t, packed ? OP_attention_packed : OP_attention, dims);
    for (int i = 0; i < (packed ? 1 : 3); i++)
        follow_operand(t, op, x[i]);
    return op;
}

const struct followed *follow_attend(struct follow *t, const struct followed *shares,
                                     const struct followed *v, bool causal) {
    const struct followed *s = shares->of, *k = s->with;
    struct axis axis[EXPORTED_MAX_RANK];
    memcpy(axis, k->axis, sizeof axis);
    axis[k->rank - 1] = k->axis[k->rank - 2];
    axis[k->rank - 2] = k->axis[k->rank - 1];
    const struct followed *x[] = {by_heads(t, s->of),
                                  by_heads(t, follow_reaxed(t, k, k->rank, axis)),
                                  by_heads(t, v)};
    if (!axes_same(&t->axes, &shares->axis[shares->rank - 2],
                   &s->of->axis[s->of->rank - 2]))
        return follow_refuse(t, "scores of attention are turned or cut");
    if (!x[0] || !x[1] || !x[2])
        return NULL;
    int64_t window;
    struct alibi slope;
    int masked = follow_masked(t, s, axes_size(&t->axes, &x[0]->axis[1]), &window, &slope);
    if (masked < 0)
        return follow_refuse(t, "attention whose mask is neither causal, with a window or "
                                "without, nor of all: padding or a bias");
    int64_t d = axes_size(&t->axes, &x[0]->axis[3]);
    int op = attention_op(t, x);
    if (op < 0)
        return NULL;
    if (!add_positions(t, op, s, masked || causal))
        return NULL;
    if (masked || causal)
        follow_attr(t, op, "causal", json_true());
    if (window)
        follow_attr(t, op, "window", json_integer(window));
    const double scale = s->cap > 0 ? s->number * s->cap : s->number;
    if (fabs(scale * sqrt((double)d) - 1) > 1e-6)
        follow_attr(t, op, "scale", json_real(scale));
    if (s->cap > 0)
        follow_attr(t, op, "softcap", json_real(s->cap));
    if (slope.by != 0)
        follow_attr(t, op, "slope", json_real((double)slope.by));
    if (slope.by != 0 && slope.rounded)
        follow_attr(t, op, "rounded", json_true());
    /* In the axes of the shares, the last of them those of the values. */
    struct followed *y = follow_tensor(t, op, shares);
    y->axis[y->rank - 1] = v->axis[v->rank - 1];
    if (!follow_is_plain(t, y)) {
        y->rank = 4;
        memcpy(y->axis, x[0]->axis, sizeof *y->axis * 4);
    }
    return y;
}
