/* Norms, means, rotary positions, softmax and losses. */
#include "import/follow.h"

#include <math.h>
#include <string.h>

/* ---- norms ------------------------------------------------------------------------------------------ */

static bool weight_of(struct follow *t, int op, const struct followed *x,
                      const struct followed *w) {
    struct axis last = x->axis[x->rank - 1], p = w ? w->axis[0] : last;
    if (!w || w->form != FORM_PARAMETER || w->rank != 1)
        return follow_refuse(t, "a norm that lacks a weight or a bias of one dim"), false;
    if (axes_unify(&t->axes, &last, &p) != AXES_ONE)
        return follow_refuse(t, "a norm whose weight is of another dim"), false;
    follow_param(t, op, w, p);
    return true;
}

static const struct followed *norm(struct follow *t, const struct exported_node *n,
                                   enum kind_id kind, double eps) {
    int64_t shape[2];
    const struct followed *x = follow_arg(t, n, "input");
    if (!x || exported_ints(t->p, n, "normalized_shape", shape, 2) != 1)
        return follow_refuse(t, "a norm over several dims");
    x = follow_whole(t, x);
    if (!x || !follow_is_plain(t, x) || !x->rank)
        return NULL;
    int op = follow_op(t, (int)kind, follow_dims(t, x));
    follow_operand(t, op, x);
    if (!weight_of(t, op, x, follow_arg(t, n, "weight")) ||
        (kind == OP_layernorm && !weight_of(t, op, x, follow_arg(t, n, "bias"))))
        return NULL;
    follow_attr(t, op, "eps", json_real(exported_number(t->p, n, "eps", eps)));
    return follow_tensor(t, op, x);
}

static const struct followed *layer_norm(struct follow *t, const struct exported_node *n) {
    return norm(t, n, OP_layernorm, 1e-5);
}

static const struct followed *rms_norm(struct follow *t, const struct exported_node *n) {
    return norm(t, n, OP_rmsnorm, 1.1920928955078125e-07);
}

/* Over all places of an image, or all positions: what is left is [batch, channels]. */
static const struct followed *pool(struct follow *t, const struct followed *a,
                                   unsigned over, bool keep) {
    const struct followed *x = follow_whole(t, a);
    if (!x || !follow_is_plain(t, x))
        return NULL;
    struct followed *y = follow_new(t, FORM_TENSOR, NULL);
    struct axis dims = {0}, all = follow_dims(t, x);
    for (int i = 0; i < x->rank; i++)
        if (!(over >> i & 1))
            y->axis[y->rank++] = x->axis[i];
        else if (keep)
            y->rank++;
    if (x->rank - __builtin_popcount(over) != 2 || all.n < 3)
        return follow_refuse(t, "a mean that does not leave batch and one dim");
    dims.atom[dims.n++] = all.atom[0];
    dims.atom[dims.n++] = all.atom[all.n - 1];
    y->op = follow_op(t, OP_avgpool, dims);
    follow_operand(t, y->op, x);
    return follow_is_plain(t, y)
               ? y
               : follow_refuse(t,
                               "a mean over a dim that lies before or behind the others");
}

const struct followed *follow_mean(struct follow *t, const struct followed *x,
                                   unsigned over, bool keep) {
    if (over != 1u << (x->rank - 1) || !follow_is_square(t, x))
        return x->form == FORM_TENSOR || x->form == FORM_POINT
                   ? pool(t, x, over, keep)
                   : follow_refuse(t, "a mean of what is no tensor");
    struct followed *y = follow_new(t, FORM_MEAN_SQUARE, x);
    y->of = x->of;
    y->rank -= !keep;
    if (keep)
        y->axis[y->rank - 1] = (struct axis){0};
    return y;
}

static const struct followed *mean(struct follow *t, const struct exported_node *n) {
    int64_t dim[EXPORTED_MAX_RANK];
    const struct followed *x = follow_arg(t, n, "self");
    int count = exported_ints(t->p, n, "dim", dim, EXPORTED_MAX_RANK);
    unsigned over = 0;
    if (!x || count < 1)
        return follow_refuse(t, "a mean over all dims");
    for (int i = 0; i < count; i++) {
        int64_t d = dim[i] < 0 ? dim[i] + x->rank : dim[i];
        if (d < 0 || d >= x->rank)
            return follow_refuse(t, "a mean over a dim that its operand lacks");
        over |= 1u << d;
    }
    return follow_mean(t, x, over, exported_int(t->p, n, "keepdim", 0));
}

/* ---- rotary positions ---------------------------------------------------------------------------- */

/* The table at a position and an index of the last dim; it is stretched over all other axes. */
static double table_at(struct follow *t, int table, int position_axis, int rank, int64_t p,
                       int64_t i) {
    const struct exported_value *v = &t->p->values.p[table];
    int64_t at[EXPORTED_MAX_RANK] = {0};
    int k = position_axis - (rank - v->rank);
    if (k >= 0)
        at[k] = v->size[k] == 1 ? 0 : p;
    at[v->rank - 1] = i % v->size[v->rank - 1];
    return fold_at(&t->fold, table, at);
}

/* The axis along which a table of angles changes, besides the last; -1: none, or several. */
static int position_axis(struct follow *t, int table, int rank) {
    const struct exported_value *v = &t->p->values.p[table];
    int axis = -1;
    for (int i = 0; i < v->rank - 1; i++)
        if (v->size[i] != 1) {
            if (axis >= 0)
                return -1;
            axis = i + rank - v->rank;
        }
    return axis;
}

/* Are these the cosines and sines of position times base^(-2i/d)? The base, or 0. */
static double base_of(struct follow *t, const struct followed *a, const struct followed *b,
                      int axis, int64_t positions, int64_t d) {
    double turn[2] = {0}, base = 0;
    for (int64_t i = 0; i < d; i++) {
        int64_t pair = i % (d / 2);
        turn[0] = atan2(table_at(t, b->table, axis, a->rank, 1, i),
                        table_at(t, a->table, axis, a->rank, 1, i));
        if (pair == 1)
            base = pow(turn[0], -(double)d / 2);
        else if (pair == 0)
            base = d == 2 ? 10000 : base;
        double want = pair && base > 0 ? pow(base, -2 * (double)pair / (double)d) : 1;
        if (!(fabs(turn[0] - want) <= 1e-5 * want))
            return 0;
        for (int64_t p = 0; p < positions; p += p < 4 ? 1 : 1 + positions / 16)
            if (!(fabs(cos((double)p * turn[0]) -
                       table_at(t, a->table, axis, a->rank, p, i)) < 2e-3) ||
                !(fabs(sin((double)p * turn[0]) -
                       table_at(t, b->table, axis, a->rank, p, i)) < 2e-3))
                return 0;
    }
    return base;
}

/* To a number that people write, which angles in f32 are as near to. */
static double rounded(double base) {
    double unit = pow(10, floor(log10(base)) - 3), near = round(base / unit) * unit;
    return fabs(near - base) < 1e-4 * base ? near : base;
}

/* Is an atom a part of another, so that no weight has it beside its neighbours? */
static bool is_range(const struct follow *t, int atom) {
    for (int64_t i = 0; i < t->ranges.n; i++)
        if (t->ranges.p[i].as >= 0 && axes_class(&t->axes, t->ranges.p[i].as) == atom)
            return true;
    return false;
}

/* x with the heads of all groups as one dim, where they are cut out of a product of more; `order` is how its
 * axes lie. */
static const struct followed *grouped(struct follow *t, const struct followed *x, int d,
                                      const int *order) {
    struct axis heads = x->axis[d], dims = {0};
    bool cut = false;
    axes_settle(&t->axes, &heads);
    for (int i = 0; i < heads.n; i++)
        cut |= is_range(t, heads.atom[i]);
    if (!cut || heads.n < 2)
        return x;
    struct followed *y = follow_tensor(t, x->op, x);
    y->axis[d] = axis_of(axes_new(&t->axes, axes_size(&t->axes, &heads)));
    for (int i = 0; i < x->rank; i++)
        for (int k = 0; k < y->axis[order[i]].n && dims.n < AXIS_MOST; k++)
            dims.atom[dims.n++] = y->axis[order[i]].atom[k];
    y->op = follow_op(t, OP_reshape, dims);
    follow_operand(t, y->op, x);
    return y;
}

/* Heads that are repeated for several of queries turn as the one that they repeat: x without them, whose atoms
 * are put into *lost. */
static const struct followed *unrepeated(struct follow *t, const struct followed *x, int d,
                                         struct axis *lost) {
    struct axis dims = follow_dims(t, x), axis[EXPORTED_MAX_RANK], *heads = &axis[d];
    memcpy(axis, x->axis, sizeof axis);
    if (axes_settle(&t->axes, heads) < 0)
        return NULL;
    int kept = heads->n;
    for (bool has = false; kept > 0 && !has; kept -= !has)
        for (int i = 0; i < dims.n; i++)
            has |= dims.atom[i] == heads->atom[kept - 1];
    for (int i = kept; i < heads->n; i++)
        lost->atom[lost->n++] = heads->atom[i];
    heads->n = kept;
    return lost->n ? follow_reaxed(t, x, x->rank, axis) : x;
}

const struct followed *follow_rotary(struct follow *t, const struct followed *a,
                                     const struct followed *b) {
    int axis = position_axis(t, a->table, a->rank);
    if (a->half || !b->half || a->of != b->of || a->rank != 4 || (axis != 1 && axis != 2))
        return follow_refuse(t,
                             "a sum of products with tables, other than rotary positions");
    int order[] = {0, axis, 3 - axis, 3};
    struct axis lost = {0};
    const struct followed *x = follow_whole(t, a->of);
    x = x ? unrepeated(t, x, 3 - axis, &lost) : NULL;
    if (!x || !follow_is_plain(t, x) || !(x = follow_arrange(t, x, order, 4)))
        return NULL;
    x = grouped(t, x, 3 - axis, order);
    int64_t positions = axes_size(&t->axes, &x->axis[axis]),
            d = axes_size(&t->axes, &x->axis[3]);
    const struct exported_value *v = &t->p->values.p[a->table],
                                *w = &t->p->values.p[b->table];
    bool known = fold_is(&t->fold, a->table) && fold_is(&t->fold, b->table);
    double base = 0;
    int64_t angles = v->rank ? v->size[v->rank - 1] : 0; /* of both halves, or of one */
    if (known && v->rank == w->rank && v->rank >= 2 && positions > 1 && d % 2 == 0 &&
        (angles == d || angles == d / 2) && w->size[w->rank - 1] == angles)
        base = base_of(t, a, b, axis, positions, d);
    if (!(base >= 1))
        return follow_refuse(t, "rotary positions whose angles are not position times "
                                "base^(-2i/d)");
    int op = follow_op(t, OP_rotary, follow_dims(t, x));
    follow_operand(t, op, x);
    follow_attr(t, op, "base", json_real(rounded(base)));
    struct followed *y = follow_tensor(t, op, x);
    struct axis *heads = &y->axis[3 - axis];
    for (int i = 0; i < lost.n && heads->n < AXIS_MOST; i++)
        heads->atom[heads->n++] = lost.atom[i];
    return y;
}

/* x1 cos - x2 sin, or x2 cos + x1 sin: the first half has the sign of what is taken away. */
const struct followed *follow_rotated(struct follow *t, const struct followed *a,
                                      const struct followed *b, bool sum) {
    const struct followed *p = a->of, *q = b->of;
    if (p->form != FORM_HALF || q->form != FORM_HALF || p->of != q->of ||
        p->half != (int)sum || q->half != (int)!sum)
        return follow_refuse(t,
                             "a sum of products with tables, other than rotary positions");
    struct followed *y = follow_new(t, FORM_ROTATED, a);
    y->of = p->of;
    y->half = sum;
    y->with = b;
    y->table = a->table;
    return y;
}

const struct followed *follow_rotated_both(struct follow *t, const struct followed *a,
                                           const struct followed *b) {
    if (a->half || !b->half || a->of != b->of || a->table != b->table ||
        a->with->table != b->with->table)
        return follow_refuse(t, "halves of rotary positions that do not match");
    struct followed *cosine = follow_new(t, FORM_ANGLED, a->of),
                    *sine = follow_new(t, FORM_ANGLED, a->of);
    cosine->of = sine->of = a->of;
    cosine->table = a->table;
    sine->table = a->with->table;
    sine->half = 1;
    return follow_rotary(t, cosine, sine);
}

/* ---- softmax and losses ------------------------------------------------------------------------- */

static const struct followed *softmax(struct follow *t, const struct exported_node *n) {
    const struct followed *x = follow_arg(t, n, "self");
    bool tensor = x && (x->form == FORM_TENSOR || x->form == FORM_POINT);
    if (!x || (x->form != FORM_SCORES && !tensor))
        return follow_refuse(t, "a softmax outside of attention");
    int64_t d = exported_int(t->p, n, "dim", -1);
    if (d != -1 && d != x->rank - 1)
        return follow_refuse(t, "a softmax over queries");
    struct followed *y = follow_new(t, tensor ? FORM_CHANCES : FORM_SHARES, x);
    y->of = x;
    return y;
}

static const struct followed *any(struct follow *t, const struct exported_node *n) {
    const struct followed *x = follow_arg(t, n, "self");
    if (!x || x->form != FORM_UNSEEN)
        return follow_refuse(t, "data are compared");
    struct followed *y = follow_new(t, FORM_UNSEEN, x);
    y->axis[y->rank - 1] = (struct axis){0};
    return y;
}

/* The mean over all targets, which are an input as it is. */
static const struct followed *loss(struct follow *t, const struct exported_node *n) {
    const struct followed *x = follow_arg(t, n, "self"), *y = follow_arg(t, n, "target");
    if (!x || !y || exported_int(t->p, n, "reduction", 1) != 1 ||
        exported_arg(n, "weight") || exported_number(t->p, n, "label_smoothing", 0) != 0)
        return follow_refuse(t, "a loss with weights or smoothing, or that is no mean");
    x = follow_whole(t, x);
    y = y->form == FORM_TENSOR ? y : NULL;
    if (!x || !y || t->ops.p[y->op].kind != FOUND_INPUT || !follow_is_plain(t, x) ||
        !follow_is_plain(t, y) || x->rank != y->rank + 1)
        return follow_refuse(t, "a loss whose targets are no input as it is");
    for (int i = 0; i < y->rank; i++) {
        struct axis a = x->axis[i], b = y->axis[i];
        if (axes_unify(&t->axes, &a, &b) != AXES_ONE)
            return follow_refuse(t, "a loss whose targets have other dims than the logits");
    }
    int op = follow_op(t, OP_cross_entropy, (struct axis){0});
    follow_operand(t, op, x);
    follow_operand(t, op, y);
    t->loss = op;
    struct followed like = {.rank = 0};
    return follow_tensor(t, op, &like);
}

/* softmax(q k) v in one. */
static const struct followed *attention(struct follow *t, const struct exported_node *n) {
    const struct followed *q = follow_arg(t, n, "query"), *k = follow_arg(t, n, "key"),
                          *v = follow_arg(t, n, "value"),
                          *mask = follow_arg(t, n, "attn_mask");
    if (!q || !k || !v || q->rank < 3 || k->rank != q->rank || v->rank != q->rank)
        return follow_refuse(t, "attention of what are no heads");
    const struct followed *positions = mask && mask->form == FORM_POSITIONS ? mask : NULL;
    if (mask && !positions && (mask->form != FORM_CONSTANT || mask->value < 0))
        return follow_refuse(t, "attention whose mask follows from data");
    struct axis axis[EXPORTED_MAX_RANK];
    memcpy(axis, k->axis, sizeof axis);
    axis[k->rank - 1] = k->axis[k->rank - 2];
    axis[k->rank - 2] = k->axis[k->rank - 1];
    int64_t d = axes_size(&t->axes, &q->axis[q->rank - 1]);
    struct followed *s = follow_new(t, FORM_SCORES, q), *shares;
    s->number = exported_number(t->p, n, "scale", 1 / sqrt((double)d));
    s->of = follow_unscaled(t, q, &s->number);
    s->cap = exported_number(t->p, n, "softcap", 0); /* an argument of ONNX */
    s->number /= s->cap > 0 ? s->cap : 1;
    s->with = follow_reaxed(t, k, k->rank, axis);
    s->axis[q->rank - 1] = axis[k->rank - 1];
    s->positions = positions;
    s->table = positions ? positions->table : mask ? mask->value : -1;
    s->mask = positions                                   ? positions->mask
              : mask && t->p->values.p[mask->value].truth ? MASK_SEEN
                                                          : MASK_ADDED;
    shares = follow_new(t, FORM_SHARES, s);
    shares->of = s;
    return follow_attend(t, shares, v, exported_int(t->p, n, "is_causal", 0));
}

const struct followed *follow_layer(struct follow *t, const struct exported_node *n,
                                    bool *known) {
    static const struct {
        const char *target;
        const struct followed *(*rule)(struct follow *, const struct exported_node *);
    } rules[] = {
        {"aten.layer_norm.default", layer_norm},
        {"aten.native_layer_norm.default", layer_norm},
        {"aten.rms_norm.default", rms_norm},
        {"aten._fused_rms_norm.default", rms_norm},
        {"aten.mean.dim", mean},
        {"aten.softmax.int", softmax},
        {"aten._softmax.default", softmax},
        {"aten._safe_softmax.default", softmax},
        {"aten.any.dim", any},
        {"aten.cross_entropy_loss.default", loss},
        {"aten.scaled_dot_product_attention.default", attention},
        {"aten._scaled_dot_product_flash_attention_for_cpu.default", attention},
    };
    *known = true;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (!strcmp(rules[i].target, n->target))
            return rules[i].rule(t, n);
    *known = false;
    return NULL;
}
