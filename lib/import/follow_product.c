/* Products: with weights, of queries and keys, of shares and values; convolutions; tables. */
#include "import/follow.h"

#include <string.h>

/* ---- with a weight ------------------------------------------------------------------------------- */

static bool holds(const struct axis *a, int atom) {
    for (int i = 0; i < a->n; i++)
        if (a->atom[i] == atom)
            return true;
    return false;
}

/* The dims of x less those that are summed, then those that the weight adds. */
static bool result_dims(struct follow *t, const struct followed *x, const struct axis *k,
                        const struct axis *n, struct axis *out) {
    struct axis dims = follow_dims(t, x);
    for (int i = 0; i < dims.n; i++)
        if (!holds(k, dims.atom[i]))
            out->atom[out->n++] = dims.atom[i];
    if (out->n + n->n > AXIS_MOST)
        return false;
    for (int i = 0; i < n->n; i++)
        out->atom[out->n++] = n->atom[i];
    return true;
}

static bool bias_of(struct follow *t, int op, const struct followed *bias,
                    struct axis dims) {
    if (!bias)
        return true;
    struct axis b = bias->axis[0];
    if (bias->form != FORM_PARAMETER || bias->rank != 1 ||
        axes_unify(&t->axes, &b, &dims) != AXES_ONE)
        return follow_refuse(t, "a bias that is no parameter of its result's last dim"),
               false;
    follow_param(t, op, bias, b);
    return true;
}

/* x [.., k] of which k lies elsewhere than last: with it there. */
static const struct followed *summed_last(struct follow *t, const struct followed *x) {
    struct axis want = {0}, dims = follow_dims(t, x), k = x->axis[x->rank - 1];
    if (axes_settle(&t->axes, &k) < 0)
        return x;
    bool last = k.n <= dims.n;
    for (int i = 0; i < k.n && last; i++)
        last = dims.atom[dims.n - k.n + i] == k.atom[i];
    for (int i = 0; i < x->rank && !last; i++) {
        struct axis a = x->axis[i];
        if (axes_settle(&t->axes, &a) < 0 || want.n + a.n > AXIS_MOST)
            return x;
        for (int j = 0; j < a.n; j++)
            want.atom[want.n++] = a.atom[j];
    }
    const struct followed *y = last ? NULL : follow_lie(t, x, &want);
    return y ? y : x;
}

/* x[.., k] with the weight w, whose axis `sums` is k. */
static const struct followed *weigh(struct follow *t, const struct followed *a,
                                    const struct followed *w, int sums,
                                    const struct followed *bias) {
    const struct followed *x = follow_whole(t, a);
    if (!x || !follow_is_plain(t, x) || w->rank != 2 || !x->rank)
        return follow_refuse(t, "a product of what was stretched");
    x = summed_last(t, x);
    struct axis k = x->axis[x->rank - 1], wk = w->axis[sums], n = w->axis[1 - sums];
    enum axes_answer answer = axes_unify(&t->axes, &k, &wk);
    if (answer == AXES_CONFLICT) { /* a weight that is tied: its dims have names already */
        struct followed *like = follow_tensor(t, x->op, x);
        like->axis[x->rank - 1] = wk;
        x = follow_rename(t, like, x);
        k = wk;
    }
    if (answer == AXES_DIFFER || axes_settle(&t->axes, &n) < 0)
        return follow_refuse(t, "a weight whose dims are not those of its operand");
    struct axis dims = {0}, of_weight = wk;
    if (!result_dims(t, x, &k, &n, &dims) || of_weight.n + n.n > AXIS_MOST)
        return follow_refuse(t, "a product of too many dims");
    for (int i = 0; i < n.n; i++)
        of_weight.atom[of_weight.n++] = n.atom[i];
    int op = follow_op(t, OP_einsum, dims);
    follow_operand(t, op, x);
    follow_param(t, op, w, of_weight);
    if (!bias_of(t, op, bias, n))
        return NULL;
    struct followed *y = follow_tensor(t, op, x);
    y->axis[x->rank - 1] = n;
    return y;
}

/* ---- of two tensors --------------------------------------------------------------------------------- */

/* Queries [.., s, d] with keys [.., d, t]. */
static const struct followed *score(struct follow *t, const struct followed *q,
                                    const struct followed *k) {
    double scale = 1;
    if (!(q = follow_plain_order(t, &k, q, &scale)))
        return NULL;
    struct followed *y = follow_new(t, FORM_SCORES, q);
    y->number = scale;
    y->of = follow_unscaled(t, q, &y->number);
    y->with = follow_unscaled(t, k, &y->number);
    struct axis d = q->axis[q->rank - 1], e = k->axis[k->rank - 2];
    if (axes_unify(&t->axes, &d, &e) == AXES_DIFFER)
        return follow_refuse(t, "a product of tensors whose dims do not match");
    y->axis[q->rank - 1] = k->axis[k->rank - 1];
    return y;
}

static bool is_data(const struct followed *x) {
    return x->form == FORM_TENSOR || x->form == FORM_POINT || x->form == FORM_HALF ||
           x->form == FORM_SPAN;
}

/* A weight [k, n] that was repeated for every sample, as it was before. */
static const struct followed *once(struct follow *t, const struct followed *w) {
    const struct followed_param *p = &t->params.p[w->param];
    if (p->rank != 2 || w->rank < 2)
        return w;
    for (int i = 0; i < w->rank - 2; i++) {
        struct axis lead = w->axis[i];
        axes_settle(&t->axes, &lead);
        for (int k = 0; k < 2; k++) {
            struct axis own = p->axis[k];
            axes_settle(&t->axes, &own);
            for (int j = 0; j < lead.n; j++)
                if (holds(&own, lead.atom[j]))
                    return w;
        }
    }
    return follow_reaxed(t, w, 2, w->axis + w->rank - 2);
}

static bool may_score(const struct followed *x) {
    return is_data(x) || x->form == FORM_PAIRED;
}

static const struct followed *product(struct follow *t, const struct followed *a,
                                      const struct followed *b) {
    if (a->form == FORM_NORMED || a->form == FORM_SCALED)
        follow_whole(t, a);
    a = follow_unmixed(t, a);
    b = follow_unmixed(t, b);
    if (b->form == FORM_PARAMETER)
        b = once(t, b);
    if (a->form == FORM_SHARES && is_data(b))
        return follow_attend(t, a, b, false);
    if (is_data(a) && b->form == FORM_PARAMETER && b->rank == 2)
        return weigh(t, a, b, 0, NULL);
    if (may_score(a) && may_score(b) && a->rank == b->rank && a->rank >= 3)
        return score(t, a, b);
    return follow_refuse(t, "a product of what are neither tensors nor weights");
}

/* ---- convolution -------------------------------------------------------------------------------------- */

static bool alike(const struct exported_node *n, const char *name, int64_t missing,
                  int64_t *out) {
    int64_t v[2];
    int count = exported_ints(n, name, v, 2);
    *out = count > 0 ? v[0] : missing;
    return count <= 0 || count == 1 || (count == 2 && v[0] == v[1]);
}

/* x [b, c, h, w], which lies with its channels last, and w [k, c, r, s] give [b, k, h', w']. */
static const struct followed *convolved(struct follow *t, const struct followed *x,
                                        const struct followed *w,
                                        const struct followed *bias, const int64_t *size,
                                        int64_t stride, int64_t padding) {
    struct followed *y = follow_new(t, FORM_TENSOR, x);
    struct axis dims = x->axis[0], of_weight = {0}, one[4];
    for (int i = 0; i < 4; i++)
        one[i] = w->axis[i].n ? w->axis[i] : axis_of(axes_new(&t->axes, 1));
    for (int i = 2; i < 4; i++) {
        y->axis[i] = axis_of(axes_new(&t->axes, size[i]));
        dims.atom[dims.n++] = y->axis[i].atom[0];
        of_weight.atom[of_weight.n++] = one[i].atom[0];
    }
    y->axis[1] = one[0];
    dims.atom[dims.n++] = one[0].atom[0];
    of_weight.atom[of_weight.n++] = x->axis[1].atom[0];
    of_weight.atom[of_weight.n++] = one[0].atom[0];
    y->op = follow_op(t, OP_conv2d, dims);
    follow_operand(t, y->op, x);
    follow_param(t, y->op, w, of_weight);
    follow_attr(t, y->op, "stride", json_integer(stride));
    follow_attr(t, y->op, "padding", json_integer(padding));
    if (!bias)
        return y;
    int op = follow_op(t, OP_bias, dims);
    follow_operand(t, op, y);
    return bias_of(t, op, bias, one[0]) ? follow_tensor(t, op, y) : NULL;
}

static const struct followed *convolve(struct follow *t, const struct exported_node *n,
                                       const struct followed *a, const struct followed *w,
                                       const struct followed *bias) {
    static const int order[] = {0, 2, 3, 1};
    const struct exported_value *v = &t->p->values.p[n->out[0]];
    int64_t stride, padding, dilation;
    const struct followed *x = follow_whole(t, a);
    if (!x || x->rank != 4 || w->rank != 4 || v->rank != 4 ||
        !(x = follow_arrange(t, x, order, 4)))
        return follow_refuse(t, "a convolution that is none of images");
    if (!alike(n, "stride", 1, &stride) || !alike(n, "padding", 0, &padding) ||
        !alike(n, "dilation", 1, &dilation) || dilation != 1 ||
        exported_int(n, "groups", 1) != 1 || exported_int(n, "transposed", 0))
        return follow_refuse(t, "a convolution with groups, dilation, or of two strides");
    struct axis c = x->axis[1], wc = w->axis[1];
    if (axes_unify(&t->axes, &c, &wc) != AXES_ONE)
        return follow_refuse(t, "a convolution whose channels do not match");
    return convolved(t, x, w, bias, v->size, stride, padding);
}

/* ---- tables -------------------------------------------------------------------------------------- */

/* Rows 0, 1, 2, ... of a table, as of learned positions: those rows, for all samples alike. */
static const struct followed *first_rows(struct follow *t, const struct followed *w,
                                         const struct followed *ids) {
    const struct exported_value *v = &t->p->values.p[ids->value];
    int64_t rows = v->rank ? v->size[v->rank - 1] : 0, at[EXPORTED_MAX_RANK] = {0};
    struct followed_param *p = &t->params.p[w->param];
    for (int i = 0; i < v->rank - 1; i++)
        if (v->size[i] != 1)
            return follow_refuse(t, "rows of a table that the program chooses");
    for (int64_t i = 0; i < rows; i++) {
        at[v->rank - 1] = i;
        if (fold_at(&t->fold, ids->value, at) != (double)i)
            return follow_refuse(t,
                                 "rows of a table that are not the first ones, in order");
    }
    int64_t all = axes_size(&t->axes, &p->axis[0]);
    if (rows < 2 || (p->rows != rows && p->rows != all))
        return follow_refuse(t, "rows of a table that the program chooses");
    if (rows != all)
        p->axis[0] = axis_of(axes_new(&t->axes, rows));
    p->rows = rows;
    struct followed *y = follow_new(t, FORM_PARAMETER, NULL);
    y->param = w->param;
    y->rank = 2;
    y->axis[0] = p->axis[0];
    y->axis[1] = p->axis[1];
    return y;
}

/* A row for each pair of a query and a key, as of relative positions. */
static const struct followed *by_position(struct follow *t, const struct followed *w,
                                          const struct followed *ids) {
    const struct exported_value *v = &t->p->values.p[ids->value];
    struct followed *y = follow_new(t, FORM_POSITIONS, NULL);
    y->param = w->param;
    y->value = ids->value;
    y->rank = 3;
    for (int i = 0; i < 2; i++)
        y->axis[i] = axis_of(axes_new(&t->axes, v->size[i]));
    y->axis[2] = w->axis[1];
    return y;
}

static const struct followed *embed(struct follow *t, const struct exported_node *n) {
    const struct followed *w = follow_arg(t, n, "weight"),
                          *ids = follow_arg(t, n, "indices");
    if (!w || !ids || w->form != FORM_PARAMETER || w->rank != 2)
        return follow_refuse(t, "a table that is no parameter");
    if (ids->form == FORM_CONSTANT && ids->value >= 0 && fold_is(&t->fold, ids->value)) {
        const struct exported_value *v = &t->p->values.p[ids->value];
        const struct followed *rows = follow_table_rows(t, w, ids->value, n->out[0]);
        if (rows)
            return rows;
        if (v->rank == 2 && v->size[0] > 1 && v->size[1] > 1)
            return by_position(t, w, ids);
        const struct followed *y = first_rows(t, w, ids);
        struct axis axis[EXPORTED_MAX_RANK] = {{0}};
        int more = t->p->values.p[n->out[0]].rank - 2;
        if (!y || more < 0)
            return NULL;
        axis[more] = y->axis[0];
        axis[more + 1] = y->axis[1];
        return follow_reaxed(t, y, more + 2, axis);
    }
    const struct followed *x = follow_index(t, ids, axes_size(&t->axes, &w->axis[0]));
    if (!x || t->ops.p[x->op].kind != FOUND_INPUT || !follow_is_plain(t, x))
        return follow_refuse(t, "rows of a table by what is no input");
    struct axis dims = follow_dims(t, x), of_weight = w->axis[0], width = w->axis[1];
    axes_settle(&t->axes, &width);
    axes_settle(&t->axes, &of_weight);
    if (dims.n + width.n > AXIS_MOST || of_weight.n + width.n > AXIS_MOST ||
        x->rank == EXPORTED_MAX_RANK)
        return follow_refuse(t, "a tensor of too many dims");
    for (int i = 0; i < width.n; i++) {
        dims.atom[dims.n++] = width.atom[i];
        of_weight.atom[of_weight.n++] = width.atom[i];
    }
    int op = follow_op(t, OP_embedding, dims);
    follow_operand(t, op, x);
    follow_param(t, op, w, of_weight);
    struct followed *y = follow_tensor(t, op, x);
    y->axis[y->rank++] = width;
    return y;
}

/* beta self + alpha times scores */
static const struct followed *scaled(struct follow *t, const struct exported_node *n,
                                     const struct followed *scores) {
    const struct followed *self = follow_arg(t, n, "self");
    const double beta = exported_number(n, "beta", 1);
    if (!scores || scores->form != FORM_SCORES || !self || self->form != FORM_CONSTANT ||
        (beta != 1 && beta != 0))
        return follow_refuse(t, "products that are added to others");
    struct followed *y =
        (struct followed *)follow_reaxed(t, scores, scores->rank, scores->axis);
    y->number *= exported_number(n, "alpha", 1);
    return beta == 0 ? y : follow_mask(t, y, self, MASK_ADDED);
}

/* ---- by target ------------------------------------------------------------------------------------ */

enum product_form { LINEAR, ADDED, PLAIN, SCALED, CONVOLUTION, TABLE };

const struct followed *follow_product(struct follow *t, const struct exported_node *n,
                                      bool *known) {
    static const struct {
        const char *target;
        enum product_form form;
        const char *x, *w;
    } targets[] = {{"aten.linear.default", LINEAR, "input", "weight"},
                   {"aten.addmm.default", ADDED, "mat1", "mat2"},
                   {"aten.mm.default", PLAIN, "self", "mat2"},
                   {"aten.bmm.default", PLAIN, "self", "mat2"},
                   {"aten.matmul.default", PLAIN, "self", "other"},
                   {"aten.baddbmm.default", SCALED, "batch1", "batch2"},
                   {"aten.conv2d.default", CONVOLUTION, "input", "weight"},
                   {"aten.convolution.default", CONVOLUTION, "input", "weight"},
                   {"aten.embedding.default", TABLE, "weight", "indices"}};
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        if (strcmp(targets[i].target, n->target) != 0)
            continue;
        *known = true;
        const struct followed *x = follow_arg(t, n, targets[i].x),
                              *w = follow_arg(t, n, targets[i].w),
                              *bias = follow_arg(t, n, "bias");
        if (!x || !w)
            return follow_refuse(t, "its operand is missing");
        if (targets[i].form == TABLE)
            return embed(t, n);
        if (targets[i].form == PLAIN)
            return product(t, x, w);
        if (targets[i].form == SCALED)
            return scaled(t, n, product(t, x, w));
        if (x->form == FORM_NORMED || x->form == FORM_SCALED)
            follow_whole(t, x);
        x = follow_unmixed(t, x);
        if (w->form != FORM_PARAMETER || !is_data(x))
            return follow_refuse(t, "a product whose weight is no parameter");
        if (targets[i].form == CONVOLUTION)
            return convolve(t, n, x, w, bias);
        if (targets[i].form == ADDED)
            return weigh(t, x, w, 0, follow_arg(t, n, "self"));
        return weigh(t, x, w, 1, bias);
    }
    *known = false;
    return NULL;
}
