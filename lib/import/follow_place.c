/* Along positions: rows of tables that are added to them, rows in front of them, one of them. */
#include "import/follow.h"

#include <string.h>

enum { IDS_MOST = 1 << 22 };

/* ---- rows ------------------------------------------------------------------------------------ */

/* The id at place i of all, in their order. */
static double id_at(struct follow *t, int ids, int64_t i) {
    const struct exported_value *v = &t->p->values.p[ids];
    int64_t at[EXPORTED_MAX_RANK] = {0};
    for (int k = v->rank; k-- > 0; i /= v->size[k])
        at[k] = i % v->size[k];
    return fold_at(&t->fold, ids, at);
}

/* Are the ids of each row first, first + step, ..? */
static bool are_steps(struct follow *t, int ids, int64_t all, int64_t positions,
                      double first, int step) {
    for (int64_t i = 0; i < all; i++)
        if (id_at(t, ids, i) != first + step * (double)(i % positions))
            return false;
    return true;
}

const struct followed *follow_table_rows(struct follow *t, const struct followed *w,
                                         int ids, int result) {
    const struct exported_value *v = &t->p->values.p[ids], *to = &t->p->values.p[result];
    int64_t all = 1;
    for (int i = 0; i < v->rank; i++)
        all *= v->size[i] > 0 && all < IDS_MOST ? v->size[i] : 0;
    if (!v->rank || all < 2 || all > IDS_MOST || v->size[v->rank - 1] < 2)
        return NULL;
    const int64_t positions = v->size[v->rank - 1];
    const double first = id_at(t, ids, 0);
    const int step = id_at(t, ids, 1) != first;
    const bool whole = step && first == 0 && all == positions; /* a bias may do */
    if (whole || !(first >= 0) || !are_steps(t, ids, all, positions, first, step))
        return NULL;
    struct followed *y = follow_new(t, FORM_ROWS, NULL);
    y->param = w->param;
    y->number = first;
    y->half = step;
    y->rank = to->rank;
    for (int i = 0; i < to->rank; i++)
        y->axis[i] = axis_of(axes_new(&t->axes, to->size[i]));
    return y;
}

/* Is x [.., s, h], with s and h one dim each, which lie last? */
static bool ends_with_positions(struct follow *t, const struct followed *x, int d) {
    struct axis dims = follow_dims(t, x), s = x->axis[d], h = x->axis[x->rank - 1];
    return d == x->rank - 2 && follow_is_plain(t, x) && axes_settle(&t->axes, &s) == 0 &&
           axes_settle(&t->axes, &h) == 0 && s.n == 1 && h.n == 1 && dims.n >= 2 &&
           dims.atom[dims.n - 2] == s.atom[0] && dims.atom[dims.n - 1] == h.atom[0];
}

/* A parameter's dims, of which the second is the last one of x. */
static bool table_dims(struct follow *t, const struct followed *x, int param, int rows,
                       struct axis *out) {
    const struct followed_param *p = &t->params.p[param];
    struct axis h = x->axis[x->rank - 1], width = p->axis[rows + 1];
    *out = p->axis[rows];
    if (axes_unify(&t->axes, &h, &width) != AXES_ONE || width.n != 1 ||
        axes_settle(&t->axes, out) < 0 || out->n != 1)
        return false;
    out->atom[out->n++] = width.atom[0];
    return true;
}

const struct followed *follow_add_rows(struct follow *t, const struct followed *a,
                                       const struct followed *rows) {
    const struct followed *x = follow_whole(t, a);
    struct axis dims;
    if (!x || x->rank != rows->rank || x->rank < 2 ||
        !ends_with_positions(t, x, x->rank - 2) || !table_dims(t, x, rows->param, 0, &dims))
        return follow_refuse(t, "rows of a table, added to what are no positions");
    const struct followed w = {.param = rows->param};
    int op = follow_op(t, OP_rows, follow_dims(t, x));
    follow_operand(t, op, x);
    follow_param(t, op, &w, dims);
    follow_attr(t, op, "start", json_integer((json_int_t)rows->number));
    follow_attr(t, op, "step", json_integer(rows->half));
    return follow_tensor(t, op, x);
}

/* ---- in front, and one ------------------------------------------------------------------------ */

/* x [b, s, h], whose positions may be of several dims, with them as one. */
static const struct followed *flat(struct follow *t, const struct followed *x) {
    struct axis want = x->axis[0], s = x->axis[1];
    if (axes_settle(&t->axes, &want) < 0 || axes_settle(&t->axes, &s) < 0 || want.n != 1 ||
        !follow_is_plain(t, x))
        return NULL;
    if (s.n == 1)
        return x;
    struct axis h = x->axis[2], lies = want, dims = follow_dims(t, x);
    axes_settle(&t->axes, &h);
    struct followed *y = follow_tensor(t, x->op, x);
    y->axis[1] = axis_of(axes_new(&t->axes, axes_size(&t->axes, &s)));
    want.atom[want.n++] = y->axis[1].atom[0];
    for (int i = 0; i < s.n && lies.n < AXIS_MOST - 1; i++)
        lies.atom[lies.n++] = s.atom[i];
    for (int i = 0; i < h.n && lies.n < AXIS_MOST; i++)
        want.atom[want.n++] = lies.atom[lies.n++] = h.atom[i];
    if (!axes_same(&t->axes, &lies, &dims))
        return NULL;
    int op = follow_op(t, OP_reshape, want);
    follow_operand(t, op, x);
    y->op = op;
    return y;
}

const struct followed *follow_prepend(struct follow *t, const struct followed *w,
                                      const struct followed *a) {
    const struct followed *x = follow_whole(t, a);
    struct followed_param *p = &t->params.p[w->param];
    if (!x || p->rank != 3 || axes_size(&t->axes, &p->axis[0]) != 1 || !(x = flat(t, x)) ||
        !ends_with_positions(t, x, 1))
        return follow_refuse(t, "a parameter is joined to what are no positions");
    if (!p->axis[1].n)
        p->axis[1] = axis_of(axes_new(&t->axes, 1));
    struct axis table, dims = follow_dims(t, x);
    if (!table_dims(t, x, w->param, 1, &table))
        return follow_refuse(t, "a parameter of another width is joined to positions");
    struct followed *y = follow_tensor(t, x->op, x);
    y->axis[1] = axis_of(axes_new(&t->axes, axes_size(&t->axes, &p->axis[1]) +
                                                axes_size(&t->axes, &x->axis[1])));
    dims.atom[dims.n - 2] = y->axis[1].atom[0];
    y->op = follow_op(t, OP_prepend, dims);
    follow_operand(t, y->op, x);
    follow_param(t, y->op, w, table);
    return y;
}

const struct followed *follow_select(struct follow *t, const struct followed *a, int d,
                                     int64_t index) {
    if ((a->form != FORM_TENSOR && a->form != FORM_POINT) || a->parts || d != a->rank - 2)
        return NULL;
    const struct found_op *made = a->form == FORM_TENSOR ? &t->ops.p[a->op] : NULL;
    struct axis s = a->axis[d];
    axes_settle(&t->axes, &s);
    for (int i = 0; made && made->kind == OP_einsum && i < made->n_param; i++) {
        struct axis w = made->param[i].dims; /* a part of a product is one of its own */
        axes_settle(&t->axes, &w);
        for (int k = 0; k < w.n; k++)
            if (s.n && w.atom[k] == s.atom[0])
                return NULL;
    }
    const struct followed *x = follow_whole(t, a);
    if (!x || !ends_with_positions(t, x, d))
        return NULL;
    struct axis dims = follow_dims(t, x);
    dims.atom[dims.n - 2] = dims.atom[dims.n - 1];
    dims.n--;
    int op = follow_op(t, OP_select, dims);
    follow_operand(t, op, x);
    follow_attr(t, op, "at", json_integer(index));
    struct followed *y = follow_tensor(t, op, x);
    y->axis[d] = x->axis[x->rank - 1];
    y->rank--;
    return y;
}

/* ---- orders ------------------------------------------------------------------------------------ */

const struct followed *follow_lie(struct follow *t, const struct followed *x,
                                  const struct axis *want) {
    struct axis dims = follow_dims(t, x), lies = *want;
    if (axes_settle(&t->axes, &lies) < 0 || lies.n != dims.n || lies.n < 2)
        return NULL;
    const int last = lies.atom[lies.n - 1];
    lies.atom[lies.n - 1] = lies.atom[lies.n - 2];
    lies.atom[lies.n - 2] = last;
    if (!axes_same(&t->axes, &lies, &dims))
        return NULL;
    int op = follow_op(t, OP_transpose, *want);
    follow_operand(t, op, x);
    return follow_tensor(t, op, x);
}
