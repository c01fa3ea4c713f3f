/* A value as the result of an op: functions are recognised, parts of a product become products of
 * their own. */
#include "import/follow.h"

#include <math.h>
#include <string.h>

/* A part in place of the atom that it is of; -1: nothing. */
static void replace(struct axis *a, int atom, int as) {
    int n = 0;
    for (int i = 0; i < a->n; i++)
        if (a->atom[i] != atom)
            a->atom[n++] = a->atom[i];
        else if (as >= 0)
            a->atom[n++] = as;
    a->n = n;
}

static bool holds(const struct axis *a, int atom) {
    for (int i = 0; i < a->n; i++)
        if (a->atom[i] == atom)
            return true;
    return false;
}

/* Is the part that an op has this one? */
static bool is_part(const struct follow *t, const struct found_param *p, int atom,
                    int index, int as) {
    return axes_class(&t->axes, p->part) == atom && p->index == index &&
           (p->as < 0 ? as < 0
                      : as >= 0 && axes_same(&t->axes, &(struct axis){1, {p->as}},
                                             &(struct axis){1, {as}}));
}

/* The op that computes this part of another's result, if there is one by now. */
static int known_part(struct follow *t, int whole, int atom, int index, int as) {
    for (int k = t->ops.p[whole].next_part; k >= 0; k = t->ops.p[k].next_part)
        if (is_part(t, &t->ops.p[k].param[0], atom, index, as))
            return k;
    return -1;
}

/* A product whose weight has `atom` among what it adds, for a part of it. */
static int part_op(struct follow *t, int whole, int atom, int index, int as) {
    struct found_op op = t->ops.p[whole];
    axes_settle(&t->axes, &op.dims);
    replace(&op.dims, atom, as);
    op.attrs = json_incref(op.attrs);
    for (int i = 0; i < op.n_param; i++) {
        struct found_param *p = &op.param[i];
        axes_settle(&t->axes, &p->dims);
        replace(&p->dims, atom, as);
        p->part = atom;
        p->index = index;
        p->as = as;
    }
    op.part_of = whole;
    int number = (int)t->ops.n;
    t->ops.p[whole].next_part = number;
    arr_push(&t->ops, op);
    axes_apart(&t->axes, op.dims.atom, op.dims.n);
    return number;
}

static int take_part(struct follow *t, int whole, int atom, int index, int as) {
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
    int known = known_part(t, whole, atom, index, as);
    return known >= 0 ? known : part_op(t, whole, atom, index, as);
}

static const struct followed *without_parts(struct follow *t, const struct followed *x) {
    struct followed *y = follow_tensor(t, x->op, x);
    for (int i = 0; i < x->parts; i++)
        if ((y->op = take_part(t, y->op, x->part[i], x->index[i], x->as[i])) < 0)
            return NULL;
    return y;
}

/* The outermost atom of an axis is left to a part of it, whose atom is `as`, or which is one index. */
static const struct followed *with_part(struct follow *t, const struct followed *x, int d,
                                        const struct axis *a, int index, int as) {
    struct axis axis[EXPORTED_MAX_RANK];
    memcpy(axis, x->axis, sizeof axis);
    axis[d] = *a;
    replace(&axis[d], a->atom[0], as);
    struct followed *y = (struct followed *)follow_reaxed(t, x, x->rank, axis);
    y->part[y->parts] = a->atom[0];
    y->index[y->parts] = index;
    y->as[y->parts++] = as;
    return y;
}

const struct followed *follow_take(struct follow *t, const struct followed *x, int d,
                                   int64_t parts, int64_t index) {
    struct axis a = x->axis[d];
    if (x->form != FORM_TENSOR || x->parts == 2)
        return follow_refuse(t, "a part of what is no tensor of a product");
    if (axes_split(&t->axes, &a, parts) != 1)
        return follow_refuse(t, "a part that is cut across its dims");
    return with_part(t, x, d, &a, (int)index, -1);
}

/* The atom of these indexes of another. */
static int range_atom(struct follow *t, int atom, int64_t from, int64_t count) {
    for (int64_t i = 0; i < t->ranges.n; i++) {
        const struct followed_range *r = &t->ranges.p[i];
        if (axes_class(&t->axes, r->atom) == atom && r->from == from && r->count == count)
            return r->as;
    }
    int as = count == 1 ? -1 : axes_new(&t->axes, count);
    arr_push(&t->ranges, (struct followed_range){atom, (int)from, (int)count, as});
    return as;
}

const struct followed *follow_range(struct follow *t, const struct followed *x, int d,
                                    int64_t from, int64_t size) {
    struct axis a = x->axis[d];
    if (x->form != FORM_TENSOR || x->parts == 2)
        return follow_refuse(t, "a part of what is no tensor of a product");
    if (axes_settle(&t->axes, &a) < 0 || !a.n)
        return follow_refuse(t, "a part that is cut across its dims");
    int64_t each = axes_size(&t->axes, &a) / t->axes.atoms.p[a.atom[0]].size;
    if (from % each || size % each || from > INT32_MAX)
        return follow_refuse(t, "a part that is cut across its dims");
    int as = range_atom(t, a.atom[0], from / each, size / each);
    return with_part(t, x, d, &a, (int)(from / each), as);
}

/* What it is a part of may be such a part too. */
static const struct followed *part_of(struct follow *t, const struct followed *x) {
    const struct followed *of = x->of;
    if (of->form == FORM_HALF || of->form == FORM_SPAN)
        of = part_of(t, of);
    return !of ? NULL
           : x->form == FORM_HALF
               ? follow_take(t, of, x->rank - 1, 2, x->half)
               : follow_range(t, of, x->rank - 1, (int64_t)x->number,
                              axes_size(&t->axes, &x->axis[x->rank - 1]));
}

const struct followed *follow_half(struct follow *t, const struct followed *x) {
    return part_of(t, x);
}

static const struct followed *tensor_of(struct follow *t, const struct followed *x) {
    if (x->form == FORM_HALF || x->form == FORM_SPAN)
        x = part_of(t, x);
    return !x || x->form != FORM_TENSOR
               ? follow_refuse(t, "a function of what is no tensor")
           : x->parts ? without_parts(t, x)
                      : x;
}

/* ---- functions of one tensor ---------------------------------------------------------------------- */

static enum point_id point_of(const struct exported_node *n) {
    const struct point *p = point_find(n->target);
    const char *how = exported_text(n, "approximate");
    return p->id == POINT_GELU && how && !strcmp(how, "tanh") ? POINT_GELU_TANH : p->id;
}

static double evaluate(struct follow *t, const struct followed *f,
                       const struct followed *root, double x) {
    double v[3] = {0};
    if (f == root || f->form != FORM_POINT)
        return x;
    const struct exported_node *n = &t->p->nodes[t->p->values.p[f->value].node];
    const struct point *p = point_find(n->target);
    for (int i = 0; i < 3 && p->arg[i]; i++) {
        const struct followed *a = f->arg[i];
        if (!a)
            v[i] = exported_number(n, p->arg[i], (double)NAN);
        else if (!follow_scalar(t, a, &v[i]))
            v[i] = evaluate(t, a, root, x);
    }
    return point_apply(point_of(n), v);
}

static const double samples[] = {-4.1, -2.3, -1.1, -0.4, -0.05, 0.07, 0.5, 0.9, 1.7, 3.3};
enum { SAMPLES = sizeof samples / sizeof *samples };

static bool is_function(struct follow *t, const struct followed *f,
                        double (*want)(double x, double c), double c) {
    for (int i = 0; i < SAMPLES; i++) {
        double w = want(samples[i], c), got = evaluate(t, f, f->root, samples[i]);
        if (!(fabs(got - w) <= 1e-6 * (1 + fabs(w))))
            return false;
    }
    return true;
}

static double square(double x, double c) {
    (void)c;
    return x * x;
}
static double times(double x, double c) {
    return c * x;
}
static double relu_squared(double x, double c) {
    (void)c;
    return x > 0 ? x * x : 0;
}
static double named(double x, double id) {
    return point_apply((enum point_id)id, (const double[]){x, 0, 0});
}

double follow_factor(struct follow *t, const struct followed *x) {
    if (x->form != FORM_POINT)
        return (double)NAN;
    double c = evaluate(t, x, x->root, 1);
    return is_function(t, x, times, c) ? c : (double)NAN;
}

const struct followed *follow_unscaled(struct follow *t, const struct followed *x,
                                       double *scale) {
    double c = x->form == FORM_POINT ? follow_factor(t, x) : (double)NAN;
    if (isnan(c))
        return x;
    *scale *= c;
    return x->of;
}

bool follow_is_square(struct follow *t, const struct followed *x) {
    return x->form == FORM_POINT && is_function(t, x, square, 0);
}

int follow_gate(struct follow *t, const struct followed *x) {
    return x->form != FORM_POINT                       ? -1
           : is_function(t, x, named, POINT_SILU)      ? OP_swiglu
           : is_function(t, x, named, POINT_GELU_TANH) ? OP_geglu
                                                       : -1;
}

const struct followed *follow_index(struct follow *t, const struct followed *x,
                                    int64_t rows) {
    const double some[] = {0, 1, (double)(rows / 2), (double)(rows - 1)};
    if (x->form != FORM_POINT)
        return follow_whole(t, x);
    for (int i = 0; i < 4; i++)
        if (some[i] < (double)rows && evaluate(t, x, x->root, some[i]) != some[i])
            return follow_refuse(t, "a function of numbers of rows");
    return tensor_of(t, x->of);
}

/* c as the root of a fraction of whole numbers, with as small a denominator as f32 has use for. */
static bool as_root(double c, int64_t *root, int64_t *fan) {
    const double by = c * c;
    double before[2] = {0, 1}, now[2] = {1, 0}, rest = by; /* of a continued fraction */
    if (!(c > 0) || by > 0x1p40 || by < 0x1p-40)
        return false;
    for (int i = 0; i < 40; i++) {
        double whole = floor(rest);
        for (int k = 0; k < 2; k++) {
            double next = whole * now[k] + before[k];
            before[k] = now[k];
            now[k] = next;
        }
        if (now[0] > 0x1p52 || now[1] > 0x1p52)
            return false;
        if (fabs(now[0] / now[1] - by) <= 1e-9 * by)
            break;
        rest = 1 / (rest - whole);
    }
    *root = llround(now[0]);
    *fan = llround(now[1]);
    return *root > 0 && fabs(now[0] / now[1] - by) <= 1e-9 * by;
}

/* c x */
static int scale_op(struct follow *t, double c, struct axis dims) {
    int64_t root, fan;
    if (!as_root(c, &root, &fan)) {
        follow_refuse(t, "times a number that is not positive, or far from 1");
        return -1;
    }
    int op = follow_op(t, OP_scale, dims);
    if (root != 1)
        follow_attr(t, op, "root", json_integer(root));
    if (fan != 1)
        follow_attr(t, op, "fan", json_integer(fan));
    return op;
}

static double capped(double x, double cap) {
    return cap * tanh(x / cap);
}

/* What it never reaches, where it is a soft cap; else 0. */
static double cap_of(struct follow *t, const struct followed *x) {
    double cap = evaluate(t, x, x->root, 1e30);
    cap = fabs(cap - round(cap)) < 1e-5 * fabs(cap) ? round(cap) : cap;
    return isfinite(cap) && cap > 0 && is_function(t, x, capped, cap) ? cap : 0;
}

static int function_op(struct follow *t, const struct followed *x, struct axis dims) {
    static const struct {
        enum point_id point;
        enum kind_id kind;
    } kinds[] = {{POINT_GELU_TANH, OP_gelu}, {POINT_GELU, OP_gelu_erf},
                 {POINT_RELU, OP_relu},      {POINT_SILU, OP_silu},
                 {POINT_TANH, OP_tanh},      {POINT_SIGMOID, OP_sigmoid}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (is_function(t, x, named, kinds[i].point))
            return follow_op(t, (int)kinds[i].kind, dims);
    if (is_function(t, x, relu_squared, 0))
        return follow_op(t, OP_relu2, dims);
    double c = follow_factor(t, x);
    if (!isnan(c))
        return scale_op(t, c, dims);
    double cap = cap_of(t, x);
    if (cap > 0) {
        int op = follow_op(t, OP_softcap, dims);
        follow_attr(t, op, "cap", json_real(cap));
        return op;
    }
    follow_refuse(t, "a function that weft has no kind for");
    return -1;
}

static const struct followed *recognise(struct follow *t, const struct followed *x) {
    const struct followed *of = tensor_of(t, x->of);
    if (!of || !follow_is_plain(t, of))
        return follow_refuse(t, "a function of what was stretched");
    if (is_function(t, x, times, 1))
        return of;
    int op = function_op(t, x, follow_dims(t, of));
    if (op < 0)
        return NULL;
    follow_operand(t, op, of);
    return follow_tensor(t, op, x);
}

/* The cross-entropy that picked logarithms are, where they are the mean of all of them. */
static const struct followed *picked(struct follow *t, const struct followed *x) {
    double n = 1;
    for (int i = 0; i < x->with->rank; i++)
        n *= (double)axes_size(&t->axes, &x->with->axis[i]);
    const struct followed *logits = follow_whole(t, x->of), *y = x->with;
    if (!logits || !x->over || x->half || !(fabs(x->number * n + 1) < 1e-6) ||
        !follow_is_plain(t, logits) || !follow_is_plain(t, y))
        return follow_refuse(t, "a loss that is no mean of cross-entropies");
    for (int i = 0; i < logits->rank - 1; i++) {
        struct axis a = logits->axis[i], b = y->axis[i];
        if (axes_unify(&t->axes, &a, &b) != AXES_ONE)
            return follow_refuse(t, "a loss whose targets have other dims than the logits");
    }
    int op = follow_op(t, OP_cross_entropy, (struct axis){0});
    follow_operand(t, op, logits);
    follow_operand(t, op, y);
    t->loss = op;
    struct followed like = {.rank = 0};
    return follow_tensor(t, op, &like);
}

/* ---- any value ---------------------------------------------------------------------------- */

static const struct followed *make_whole(struct follow *t, const struct followed *x) {
    switch (x->form) {
    case FORM_TENSOR:
    case FORM_HALF:
    case FORM_SPAN: return tensor_of(t, x);
    case FORM_POINT: return recognise(t, x);
    case FORM_CONSTANT:
        return follow_refuse(t, "numbers that the program holds are used as a tensor");
    case FORM_ROWS:
    case FORM_OFFSET:
    case FORM_PARAMETER: return follow_refuse(t, "a parameter is used as a tensor");
    case FORM_MEAN_SQUARE:
    case FORM_INVERSE_ROOT:
        return follow_refuse(t, "a mean over the last dim, outside of a norm");
    case FORM_MIXED:
    case FORM_NORMED:
    case FORM_SCALED: return t->make(t, x);
    case FORM_PAIRED:
        return follow_refuse(t, "rotary positions of neighbours, outside of attention");
    case FORM_SCORES:
        return follow_refuse(t, "a product of two tensors, outside of attention");
    case FORM_PICKED: return picked(t, x);
    case FORM_SUM:
    case FORM_SQUARE_SUM:
    case FORM_MEAN:
    case FORM_MEAN_SQUARED:
    case FORM_CENTERED:
    case FORM_SPREAD:
    case FORM_ROOT:
    case FORM_GAIN:
    case FORM_MAX:
    case FORM_SHIFTED:
    case FORM_EXPS:
    case FORM_EXP_SUM:
    case FORM_LOG_SUM:
    case FORM_LOG_SHARES:
        return follow_refuse(t, "a sum, mean or maximum, outside of norms and softmax");
    case FORM_SHARES:
    case FORM_POSITIONS:
    case FORM_UNSEEN:
    case FORM_CHANCES:
        return follow_refuse(t, "a softmax, or positions, outside of attention");
    case FORM_ROUTED:
        return follow_refuse(t, "a choice of the largest, outside of a mixture of experts");
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
