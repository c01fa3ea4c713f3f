/* A value as the result of an op: functions are recognised, parts of a product become products of
 * their own. */
#include "import/follow.h"

#include <string.h>

static void drop(struct axis *a, int atom) {
    int n = 0;
    for (int i = 0; i < a->n; i++)
        if (a->atom[i] != atom)
            a->atom[n++] = a->atom[i];
    a->n = n;
}

static bool holds(const struct axis *a, int atom) {
    for (int i = 0; i < a->n; i++)
        if (a->atom[i] == atom)
            return true;
    return false;
}

/* The op that computes this part of another's result, if there is one by now. */
static int known_part(struct follow *t, int whole, int atom, int index) {
    for (int k = t->ops.p[whole].next_part; k >= 0; k = t->ops.p[k].next_part) {
        const struct found_param *p = &t->ops.p[k].param[0];
        if (axes_class(&t->axes, p->part) == atom && p->index == index)
            return k;
    }
    return -1;
}

/* A product whose weight has `atom` among what it adds, for one index of it. */
static int part_op(struct follow *t, int whole, int atom, int index) {
    struct found_op op = t->ops.p[whole];
    axes_settle(&t->axes, &op.dims);
    drop(&op.dims, atom);
    op.attrs = json_incref(op.attrs);
    for (int i = 0; i < op.n_param; i++) {
        struct found_param *p = &op.param[i];
        axes_settle(&t->axes, &p->dims);
        drop(&p->dims, atom);
        p->part = atom;
        p->index = index;
    }
    op.part_of = whole;
    int number = (int)t->ops.n;
    t->ops.p[whole].next_part = number;
    arr_push(&t->ops, op);
    return number;
}

static int take_part(struct follow *t, int whole, int atom, int index) {
    const struct found_op *op = &t->ops.p[whole];
    struct axis w = op->n_param ? op->param[0].dims : (struct axis){0}, y = op->dims;
    axes_settle(&t->axes, &w);
    axes_settle(&t->axes, &y);
    atom = axes_class(&t->axes, atom);
    if (op->kind != OP_einsum || op->param[0].part >= 0 || !holds(&w, atom) ||
        !holds(&y, atom)) {
        follow_refuse(t, "a part of what is no product with a weight");
        return -1;
    }
    int known = known_part(t, whole, atom, index);
    return known >= 0 ? known : part_op(t, whole, atom, index);
}

static const struct followed *without_parts(struct follow *t, const struct followed *x) {
    struct followed *y = follow_tensor(t, x->op, x);
    for (int i = 0; i < x->parts; i++)
        if ((y->op = take_part(t, y->op, x->part[i], x->index[i])) < 0)
            return NULL;
    return y;
}

static const struct followed *make_whole(struct follow *t, const struct followed *x) {
    switch (x->form) {
    case FORM_TENSOR: return x->parts ? without_parts(t, x) : x;
    case FORM_POINT: return follow_recognise(t, x);
    case FORM_HALF: x = follow_half(t, x); return x ? without_parts(t, x) : NULL;
    case FORM_CONSTANT:
        return follow_refuse(t, "numbers that the program holds are used as a tensor");
    case FORM_PARAMETER: return follow_refuse(t, "a parameter is used as a tensor");
    case FORM_MEAN_SQUARE:
    case FORM_INVERSE_ROOT:
        return follow_refuse(t, "a mean over the last dim, outside of a norm");
    case FORM_NORMED: return follow_refuse(t, "a norm without a weight");
    case FORM_TURNED:
    case FORM_ANGLED:
        return follow_refuse(t, "a product with a table, or halves exchanged, outside of "
                                "rotary positions");
    case FORM_SCORES:
        return follow_refuse(t, "a product of two tensors, outside of attention");
    case FORM_SHARES:
    case FORM_UNSEEN: return follow_refuse(t, "a softmax outside of attention");
    }
    return NULL;
}

const struct followed *follow_whole(struct follow *t, const struct followed *x) {
    if (x->whole)
        return x->whole;
    const struct followed *y = make_whole(t, x);
    ((struct followed *)x)->whole = y;
    return y;
}
