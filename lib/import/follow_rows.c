/* What is computed of rows, the last axis, where it is spelled out: means and variances and the norms
 * of them, softmax and its logarithm. A table says what becomes of two forms of one tensor. */
#include "import/follow.h"

#include <math.h>
#include <string.h>

/* ---- sums and maxima ------------------------------------------------------------------------------- */

bool follow_is_row(const struct followed *x) {
    switch (x->form) {
    case FORM_MEAN_SQUARE:
    case FORM_INVERSE_ROOT:
    case FORM_SUM:
    case FORM_SQUARE_SUM:
    case FORM_MEAN:
    case FORM_MEAN_SQUARED:
    case FORM_ROOT:
    case FORM_MAX:
    case FORM_EXP_SUM:
    case FORM_LOG_SUM:
    case FORM_PICKED: return true;
    default: return false;
    }
}

static bool is_tensor(const struct followed *x) {
    return x->form == FORM_TENSOR || x->form == FORM_POINT || x->form == FORM_SCORES ||
           x->form == FORM_HALF || x->form == FORM_SPAN;
}

/* What is left of x without its last axis. */
static struct followed *row_of(struct follow *t, enum followed_form form,
                               const struct followed *x, const struct followed *of) {
    struct followed *y = follow_new(t, form, x);
    y->of = of;
    y->rank--;
    return y;
}

/* Over the axes that are not of size 1: of what was picked, all. */
static const struct followed *sum_picked(struct follow *t, const struct followed *x,
                                         unsigned over) {
    for (int i = 0; i < x->rank; i++)
        if (!(over >> i & 1) && axes_size(&t->axes, &x->axis[i]) != 1)
            return follow_refuse(t, "a sum of losses that is none of all of them");
    struct followed *y = (struct followed *)follow_reaxed(t, x, x->rank, x->axis);
    y->rank = 0;
    y->over = 1;
    return y;
}

static const struct followed *sum(struct follow *t, const struct followed *x,
                                  unsigned over) {
    bool last = x->rank && over == 1u << (x->rank - 1);
    struct followed *y;
    if (x->form == FORM_PICKED)
        return sum_picked(t, x, over);
    if (last && x->form == FORM_EXPS)
        return row_of(t, FORM_EXP_SUM, x, x->of);
    if (last && x->form == FORM_SPREAD) {
        y = row_of(t, FORM_SQUARE_SUM, x, x->of);
        y->centered = true;
        return y;
    }
    if (last && follow_is_square(t, x))
        return row_of(t, FORM_SQUARE_SUM, x, x->of);
    if (x->form != FORM_TENSOR && x->form != FORM_POINT)
        return follow_refuse(t, "a sum of what is no tensor");
    y = follow_new(t, FORM_SUM, NULL);
    y->of = x;
    y->over = over;
    for (int i = 0; i < x->rank; i++)
        if (!(over >> i & 1))
            y->axis[y->rank++] = x->axis[i];
    return y;
}

/* The logarithm of the share of the class that an input says, or what it is made of: less that of the
 * sum. */
static const struct followed *pick(struct follow *t, const struct exported_node *n) {
    const struct followed *x = follow_arg(t, n, "self"), *index = follow_arg(t, n, "index");
    if (!x || !index || (x->form != FORM_LOG_SHARES && x->form != FORM_SHIFTED) ||
        x->rank != index->rank || exported_int(n, "dim", -1) != x->rank - 1)
        return follow_refuse(t, "elements are chosen by data");
    struct followed *y = follow_new(t, FORM_PICKED, index);
    y->of = x->of;
    y->half = x->form == FORM_SHIFTED;
    y->with = follow_index(t, index, axes_size(&t->axes, &x->axis[x->rank - 1]));
    y->number = 1;
    return y->with && t->ops.p[y->with->op].kind == FOUND_INPUT
               ? y
               : follow_refuse(t, "a loss whose targets are no input as it is");
}

const struct followed *follow_reduce(struct follow *t, const struct exported_node *n,
                                     bool *known) {
    bool adds = !strcmp(n->target, "aten.sum.dim_IntList"),
         picks = !strcmp(n->target, "aten.gather.default");
    int64_t dim[EXPORTED_MAX_RANK];
    unsigned over = 0;
    *known = adds || picks || !strcmp(n->target, "aten.amax.default");
    if (!*known)
        return NULL;
    if (picks)
        return pick(t, n);
    const struct followed *x = follow_arg(t, n, "self");
    int count = exported_ints(n, "dim", dim, EXPORTED_MAX_RANK);
    if (!x || count < 1)
        return follow_refuse(t, "a sum or maximum over all dims");
    for (int i = 0; i < count; i++) {
        int64_t d = dim[i] < 0 ? dim[i] + x->rank : dim[i];
        if (d < 0 || d >= x->rank)
            return follow_refuse(t, "a sum over a dim that its operand lacks");
        over |= 1u << d;
    }
    const struct followed *y = adds ? sum(t, x, over)
                               : is_tensor(x) && over == 1u << (x->rank - 1)
                                   ? row_of(t, FORM_MAX, x, x)
                                   : follow_refuse(t, "a maximum outside of softmax");
    if (!y || !exported_int(n, "keepdim", 0) || y->rank == x->rank)
        return y;
    struct axis axis[EXPORTED_MAX_RANK] = {{0}};
    for (int i = 0, k = 0; i < x->rank; i++)
        if (!(over >> i & 1))
            axis[i] = y->axis[k++];
    return follow_reaxed(t, y, x->rank, axis);
}

/* ---- means ----------------------------------------------------------------------------------------- */

/* A sum times 1 / the number of what was summed. */
static const struct followed *mean_of(struct follow *t, const struct followed *x,
                                      double by) {
    const struct followed *of = x->of;
    double n = 1;
    if (x->form == FORM_SQUARE_SUM) {
        n = (double)axes_size(&t->axes, &of->axis[of->rank - 1]);
    } else {
        for (int i = 0; i < of->rank; i++)
            n *= x->over >> i & 1 ? (double)axes_size(&t->axes, &of->axis[i]) : 1;
    }
    if (!(fabs(by * n - 1) < 1e-6))
        return follow_refuse(t, "a sum of a row times a number that makes no mean of it");
    if (x->form == FORM_SUM && x->over != 1u << (of->rank - 1))
        return follow_mean(t, of, x->over, false);
    struct followed *y = (struct followed *)follow_reaxed(t, x, x->rank, x->axis);
    y->form = x->form == FORM_SUM ? FORM_MEAN : FORM_MEAN_SQUARE;
    y->number = 0;
    return y;
}

/* What was picked is counted in the end: its number says of how many it is the mean. */
static const struct followed *times(struct follow *t, const struct followed *x, double by) {
    if (x->form != FORM_PICKED)
        return mean_of(t, x, by);
    struct followed *y = (struct followed *)follow_reaxed(t, x, x->rank, x->axis);
    y->number *= by;
    return y;
}

/* ---- norms ------------------------------------------------------------------------------------------ */

/* x->of normed, by weight and bias, which may be NULL. */
static const struct followed *norm(struct follow *t, const struct followed *x,
                                   const struct followed *weight,
                                   const struct followed *bias) {
    const struct followed *of = follow_whole(t, x->of);
    if (!of || !follow_is_plain(t, of))
        return follow_refuse(t, "a norm of what was stretched");
    int op = follow_op(t, x->centered ? OP_layernorm : OP_rmsnorm, follow_dims(t, of));
    follow_operand(t, op, of);
    if (!follow_norm_params(t, op, of, weight, bias))
        return NULL;
    follow_attr(t, op, "eps", json_real(x->number));
    return follow_tensor(t, op, of);
}

/* A centered tensor waits for the bias. */
static const struct followed *scaled(struct follow *t, const struct followed *x,
                                     const struct followed *w) {
    if (!x->centered)
        return norm(t, x, w, NULL);
    struct followed *y = follow_new(t, FORM_SCALED, x->of);
    y->of = x->of;
    y->with = w;
    y->number = x->number;
    y->centered = true;
    return y;
}

const struct followed *follow_normed(struct follow *t, const struct followed *x) {
    return norm(t, x, x->form == FORM_SCALED ? x->with : NULL, NULL);
}

/* ---- by table --------------------------------------------------------------------------------------- */

enum operand { NONE = -1, TENSOR = -2, PARAMETER = -3 };

static const struct row_rule {
    enum point_id id;
    int a, b; /* a form, or one of the above */
    enum followed_form to;
} rules[] = {
    {POINT_SUB, TENSOR, FORM_MEAN, FORM_CENTERED},
    {POINT_MUL, FORM_CENTERED, FORM_CENTERED, FORM_SPREAD},
    {POINT_SQUARE, FORM_CENTERED, NONE, FORM_SPREAD},
    {POINT_MUL, FORM_MEAN, FORM_MEAN, FORM_MEAN_SQUARED},
    {POINT_SQUARE, FORM_MEAN, NONE, FORM_MEAN_SQUARED},
    {POINT_SUB, FORM_MEAN_SQUARE, FORM_MEAN_SQUARED, FORM_MEAN_SQUARE},
    {POINT_SQRT, FORM_MEAN_SQUARE, NONE, FORM_ROOT},
    {POINT_RSQRT, FORM_MEAN_SQUARE, NONE, FORM_INVERSE_ROOT},
    {POINT_RECIPROCAL, FORM_ROOT, NONE, FORM_INVERSE_ROOT},
    {POINT_DIV, FORM_CENTERED, FORM_ROOT, FORM_NORMED},
    {POINT_DIV, TENSOR, FORM_ROOT, FORM_NORMED},
    {POINT_MUL, FORM_CENTERED, FORM_INVERSE_ROOT, FORM_NORMED},
    {POINT_MUL, TENSOR, FORM_INVERSE_ROOT, FORM_NORMED},
    {POINT_MUL, FORM_INVERSE_ROOT, PARAMETER, FORM_GAIN},
    {POINT_SUB, TENSOR, FORM_MAX, FORM_SHIFTED},
    {POINT_EXP, FORM_SHIFTED, NONE, FORM_EXPS},
    {POINT_LOG, FORM_EXP_SUM, NONE, FORM_LOG_SUM},
    {POINT_SUB, FORM_SHIFTED, FORM_LOG_SUM, FORM_LOG_SHARES},
    {POINT_DIV, FORM_EXPS, FORM_EXP_SUM, FORM_SHARES},
};

/* A parameter, or one plus a number. */
static bool is_weight(const struct followed *x) {
    return x->form == FORM_PARAMETER || x->form == FORM_OFFSET;
}

static bool matches(int want, const struct followed *x) {
    switch (want) {
    case NONE: return !x;
    case TENSOR: return x && is_tensor(x);
    case PARAMETER: return x && is_weight(x);
    default: return x && (int)x->form == want;
    }
}

static const struct followed *subject(const struct followed *x) {
    return is_tensor(x) ? x : x->of;
}

/* Has x, where it is of rows, the axes of the tensor that its rows are of, but for the last? */
static bool fits(struct follow *t, const struct followed *x) {
    const struct followed *of = x->of;
    if (!follow_is_row(x))
        return true;
    bool last = x->rank == of->rank;
    if (!last || axes_size(&t->axes, &x->axis[x->rank - 1]) != 1)
        return false;
    for (int i = 0; i < x->rank - 1; i++)
        if (!axes_same(&t->axes, &x->axis[i], &of->axis[i]))
            return false;
    return true;
}

static const struct followed *become(struct follow *t, const struct row_rule *r,
                                     const struct followed *a, const struct followed *b) {
    bool both = b && r->b != PARAMETER;
    if (both && subject(a) != subject(b))
        return follow_refuse(t, "rows of two tensors");
    if (both && !follow_is_row(a) && !fits(t, b))
        return follow_refuse(t, "a tensor is stretched over another");
    if (r->to == FORM_SHARES && a->of->form != FORM_SCORES)
        return follow_refuse(t, "a softmax outside of attention");
    struct followed *y = (struct followed *)follow_reaxed(t, a, a->rank, a->axis);
    const struct followed *rows =
        b && (b->form == FORM_ROOT || b->form == FORM_INVERSE_ROOT) ? b : a;
    y->form = r->to;
    y->of = subject(a);
    y->number = rows->form == FORM_CENTERED ? 0 : rows->number;
    y->centered = rows->centered;
    if (r->to == FORM_MEAN_SQUARE) {
        y->centered = true;
    } else if (r->to == FORM_GAIN) {
        y->with = b;
        y->rank = y->of->rank;
        memcpy(y->axis, y->of->axis, sizeof y->axis);
    } else if (r->to == FORM_NORMED && rows->centered != (a->form == FORM_CENTERED)) {
        return follow_refuse(t, "a norm whose mean is taken away once");
    }
    return y;
}

/* log(sum) - x[class] */
static const struct followed *less_picked(struct follow *t, const struct followed *sum,
                                          const struct followed *x) {
    bool same = sum->of == x->of && x->half && x->number == 1 && sum->rank == x->rank;
    for (int i = 0; same && i < x->rank; i++)
        same = axes_size(&t->axes, &sum->axis[i]) == axes_size(&t->axes, &x->axis[i]);
    if (!same)
        return follow_refuse(t, "a loss that is no cross-entropy");
    struct followed *y = (struct followed *)follow_reaxed(t, x, x->rank, x->axis);
    y->half = 0;
    y->number = -1;
    return y;
}

/* One of two is a number or a parameter, in either order. */
static const struct followed *with_other(struct follow *t, enum point_id id,
                                         const struct followed *a,
                                         const struct followed *b) {
    double number;
    bool counted =
        a->form == FORM_SUM || a->form == FORM_SQUARE_SUM || a->form == FORM_PICKED;
    if (counted && (id == POINT_MUL || id == POINT_DIV) && follow_scalar(t, b, &number))
        return times(t, a, id == POINT_MUL ? number : 1 / number);
    if (id == POINT_MUL && b->form == FORM_GAIN && subject(a) == b->of &&
        (a->form == FORM_CENTERED || is_tensor(a)) &&
        b->centered == (a->form == FORM_CENTERED))
        return scaled(t, b, b->with);
    if (id == POINT_MUL && a->form == FORM_NORMED && is_weight(b))
        return scaled(t, a, b);
    if (id == POINT_ADD && a->form == FORM_SCALED && b->form == FORM_PARAMETER)
        return norm(t, a, a->with, b);
    if (id == POINT_MAXIMUM && a->form == FORM_MEAN_SQUARE &&
        follow_scalar(t, b, &number) && number == 0)
        return a;
    if (id == POINT_POW && follow_scalar(t, b, &number) && number == 2)
        return follow_rows(t, POINT_SQUARE, a, NULL);
    if (id == POINT_POW && follow_scalar(t, b, &number) && number == -0.5)
        return follow_rows(t, POINT_RSQRT, a, NULL);
    return NULL;
}

const struct followed *follow_rows(struct follow *t, enum point_id id,
                                   const struct followed *a, const struct followed *b) {
    const struct followed *y = NULL;
    bool turns = b && (id == POINT_MUL || id == POINT_ADD || id == POINT_MAXIMUM);
    if (a->form == FORM_PICKED && id == POINT_NEG)
        return times(t, a, -1);
    if (id == POINT_SUB && a->form == FORM_LOG_SUM && b->form == FORM_PICKED)
        return less_picked(t, a, b);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const struct row_rule *r = &rules[i];
        if (r->id != id)
            continue;
        if (matches(r->a, a) && matches(r->b, b))
            return become(t, r, a, b);
        if (turns && matches(r->a, b) && matches(r->b, a))
            return become(t, r, b, a);
    }
    if (b && (y = with_other(t, id, a, b)))
        return y;
    return turns && !t->why ? with_other(t, id, b, a) : NULL;
}
