/* Values and ops, as they are made. */
#include "import/follow.h"

#include <math.h>
#include <string.h>

const struct followed *follow_refuse(struct follow *t, const char *why) {
    if (!t->why)
        t->why = why;
    return NULL;
}

struct followed *follow_new(struct follow *t, enum followed_form form,
                            const struct followed *like) {
    struct followed *v = arena_alloc(&t->arena, sizeof *v);
    *v = (struct followed){
        .form = form, .op = -1, .param = -1, .value = -1, .table = -1, .added = -1};
    if (like) {
        v->rank = like->rank;
        memcpy(v->axis, like->axis, sizeof v->axis);
    }
    return v;
}

/* The function is that of the view: what it is of is seen under the same axes. */
const struct followed *follow_reaxed(struct follow *t, const struct followed *x, int rank,
                                     const struct axis *axis) {
    struct followed *y = arena_alloc(&t->arena, sizeof *y);
    *y = *x;
    y->whole = NULL;
    y->rank = rank;
    memcpy(y->axis, axis, sizeof *axis * (size_t)rank);
    if (x->form == FORM_POINT)
        y->of = follow_reaxed(t, x->of, rank, axis);
    return y;
}

bool follow_scalar(struct follow *t, const struct followed *x, double *out) {
    if (!x || x->form != FORM_CONSTANT)
        return false;
    if (x->value >= 0)
        return fold_scalar(&t->fold, x->value, out);
    *out = x->number;
    return true;
}

const struct followed *follow_arg(struct follow *t, const struct exported_node *n,
                                  const char *name) {
    int v = exported_tensor(n, name);
    if (v >= 0)
        return t->values[v];
    if (!exported_arg(n, name))
        return NULL;
    double number = exported_number(n, name, (double)NAN);
    if (isnan(number))
        return NULL;
    struct followed *x = follow_new(t, FORM_CONSTANT, NULL);
    x->number = number;
    return x;
}

/* ---- ops ------------------------------------------------------------------------------------- */

int follow_op(struct follow *t, int kind, struct axis dims) {
    struct found_op op = {.kind = kind,
                          .node = t->node,
                          .dims = dims,
                          .value = -1,
                          .part_of = -1,
                          .next_part = -1,
                          .run = -1};
    op.path = t->node >= 0 ? t->p->nodes[t->node].path : "";
    axes_settle(&t->axes, &op.dims);
    axes_apart(&t->axes, op.dims.atom, op.dims.n);
    arr_push(&t->ops, op);
    return (int)t->ops.n - 1;
}

void follow_operand(struct follow *t, int op, const struct followed *x) {
    struct found_op *o = &t->ops.p[op];
    if (o->n_in < FOUND_MOST_IN)
        o->in[o->n_in++] = x->op;
}

void follow_param(struct follow *t, int op, const struct followed *w, struct axis dims) {
    struct found_op *o = &t->ops.p[op];
    axes_settle(&t->axes, &dims);
    axes_apart(&t->axes, dims.atom, dims.n);
    o->param[o->n_param++] = (struct found_param){w->param, dims, -1, 0, -1};
}

/* A parameter that the program lacks and the kind of the op needs: it stays as it begins, frozen. */
static void fixed_param(struct follow *t, int op, struct axis dims) {
    struct followed_param p = {.value = -1, .rank = 1, .axis = {dims}};
    struct followed w = {.param = (int)t->params.n};
    arr_push(&t->params, p);
    follow_param(t, op, &w, dims);
}

void follow_attr(struct follow *t, int op, const char *name, json_t *v) {
    struct found_op *o = &t->ops.p[op];
    if (!o->attrs)
        o->attrs = json_object();
    json_object_set_new(o->attrs, name, v);
}

/* x[.., h] and a weight or bias of h, which may have axes of size 1 before it. */
static bool give_row(struct follow *t, int op, const struct followed *x,
                     const struct followed *w) {
    struct axis last = x->axis[x->rank - 1], p = w->axis[w->rank ? w->rank - 1 : 0];
    for (int i = 0; i < w->rank - 1; i++)
        if (axes_size(&t->axes, &w->axis[i]) != 1)
            return follow_refuse(t, "a norm whose weight or bias has several axes"), false;
    if (!w->rank || axes_unify(&t->axes, &last, &p) != AXES_ONE)
        return follow_refuse(t, "a norm whose weight or bias is of another dim"), false;
    follow_param(t, op, w, p);
    return true;
}

bool follow_norm_params(struct follow *t, int op, const struct followed *x,
                        const struct followed *weight, const struct followed *bias) {
    const bool offset = weight && weight->form == FORM_OFFSET;
    if (weight && weight->form != FORM_PARAMETER && !offset)
        return follow_refuse(t, "a norm whose weight is no parameter"), false;
    if (bias && bias->form != FORM_PARAMETER)
        return follow_refuse(t, "a norm whose bias is no parameter"), false;
    if (!weight)
        fixed_param(t, op, x->axis[x->rank - 1]);
    if ((weight && !give_row(t, op, x, weight)) || (bias && !give_row(t, op, x, bias)))
        return false;
    if (offset)
        follow_attr(t, op, "offset", json_real(weight->number));
    return true;
}

struct followed *follow_tensor(struct follow *t, int op, const struct followed *like) {
    struct followed *v = follow_new(t, FORM_TENSOR, like);
    v->op = op;
    return v;
}

struct axis follow_dims(struct follow *t, const struct followed *x) {
    struct axis dims = t->ops.p[x->op].dims;
    axes_settle(&t->axes, &dims);
    return dims;
}

static bool holds(const struct axis *a, int atom) {
    for (int i = 0; i < a->n; i++)
        if (a->atom[i] == atom)
            return true;
    return false;
}

bool follow_is_plain(struct follow *t, const struct followed *x) {
    struct axis dims = follow_dims(t, x);
    int n = 0;
    for (int i = 0; i < x->rank; i++) {
        struct axis a = x->axis[i];
        if (axes_settle(&t->axes, &a) < 0)
            return false;
        for (int k = 0; k < a.n; k++, n++)
            if (!holds(&dims, a.atom[k]))
                return false;
    }
    return n == dims.n;
}

const struct followed *follow_arrange(struct follow *t, const struct followed *x,
                                      const int *order, int n) {
    struct axis want = {0}, without = {0}, dims = follow_dims(t, x);
    struct followed *v = follow_tensor(t, x->op, x);
    for (int i = 0; i < n; i++) {
        struct axis *a = &v->axis[order[i]];
        if (axes_settle(&t->axes, a) < 0 || want.n + a->n + 1 > AXIS_MOST)
            return follow_refuse(t, "a tensor of too many dims");
        for (int k = 0; k < a->n; k++)
            without.atom[without.n++] = want.atom[want.n++] = a->atom[k];
        if (!a->n) {
            *a = axis_of(axes_new(&t->axes, 1));
            want.atom[want.n++] = a->atom[0];
        }
    }
    if (!axes_same(&t->axes, &without, &dims))
        return follow_refuse(t, "its operand lies with its dims in another order");
    if (want.n == without.n)
        return x;
    int op = follow_op(t, OP_reshape, want);
    follow_operand(t, op, x);
    v->op = op;
    return v;
}

const struct followed *follow_merged(struct follow *t, const struct followed *x) {
    struct axis dims = follow_dims(t, x), last = x->axis[x->rank - 1], want = dims;
    struct followed *y = follow_tensor(t, x->op, x);
    if (axes_settle(&t->axes, &last) < 0 || last.n < 2 || last.n > dims.n)
        return x;
    want.n = dims.n - last.n;
    for (int i = 0; i < last.n; i++)
        if (dims.atom[want.n + i] != last.atom[i])
            return follow_refuse(t, "its operand lies with its dims in another order");
    y->axis[x->rank - 1] = axis_of(axes_new(&t->axes, axes_size(&t->axes, &last)));
    want.atom[want.n++] = y->axis[x->rank - 1].atom[0];
    y->op = follow_op(t, OP_reshape, want);
    follow_operand(t, y->op, x);
    return y;
}
