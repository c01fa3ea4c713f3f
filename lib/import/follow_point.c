/* What is done element by element: functions of one tensor, sums, products with weights and tables. */
#include "import/follow.h"

#include <math.h>
#include <string.h>

/* As of a polynomial that stands for the error function. */
enum { POINT_NODES_MOST = 2048 };

static const struct followed *root_of(const struct followed *x) {
    return x->form == FORM_POINT ? x->root : x;
}

static bool is_data(const struct followed *x) {
    return x->form == FORM_TENSOR || x->form == FORM_POINT || x->form == FORM_HALF ||
           x->form == FORM_SPAN;
}

/* A function of the one tensor among its operands, the others numbers; NULL if there are two. */
static const struct followed *extend(struct follow *t, const struct exported_node *n,
                                     const struct point *p) {
    const struct followed *base = NULL, *arg[3] = {NULL};
    int size = 1;
    double number;
    for (int i = 0; i < 3 && p->arg[i]; i++) {
        const struct followed *a = follow_unmixed(t, follow_arg(t, n, p->arg[i]));
        arg[i] = a;
        if (!a || (!is_data(a) && !follow_scalar(t, a, &number)))
            return NULL;
        if (!is_data(a))
            continue;
        if (base && root_of(a) != root_of(base))
            return NULL;
        base = base && base->form == FORM_POINT ? base : a;
        size += a->form == FORM_POINT ? a->size : 0;
    }
    if (!base || size > POINT_NODES_MOST)
        return NULL;
    struct followed *y = follow_new(t, FORM_POINT, base);
    y->of = base->form == FORM_POINT ? base->of : base;
    y->root = root_of(base);
    y->value = n->out[0];
    y->size = size;
    memcpy(y->arg, arg, sizeof arg);
    return y;
}

/* ---- two tensors ------------------------------------------------------------------------------------- */

const struct followed *follow_rename(struct follow *t, const struct followed *x,
                                     const struct followed *y) {
    struct axis dims = follow_dims(t, y);
    struct followed *z = follow_new(t, FORM_TENSOR, x);
    for (int i = 0; i < x->rank; i++) {
        struct axis a = x->axis[i], b = y->axis[i];
        axes_settle(&t->axes, &a);
        axes_settle(&t->axes, &b);
        for (int k = 0; k < b.n && k < a.n; k++)
            for (int d = 0; d < dims.n; d++)
                if (dims.atom[d] == b.atom[k]) {
                    dims.atom[d] = a.atom[k];
                    break;
                }
    }
    z->op = follow_op(t, OP_reshape, dims);
    follow_operand(t, z->op, y);
    return z;
}

/* Makes the axes of two tensors one; NULL where they cannot be. *y may become another. */
static bool agree(struct follow *t, const struct followed *x, const struct followed **y) {
    bool conflict = false;
    if (x->rank != (*y)->rank)
        return follow_refuse(t, "tensors of different ranks"), false;
    for (int i = 0; i < x->rank; i++) {
        struct axis a = x->axis[i], b = (*y)->axis[i];
        enum axes_answer answer = axes_unify(&t->axes, &a, &b);
        if (answer == AXES_DIFFER)
            return follow_refuse(t, "a tensor is stretched over another"), false;
        conflict |= answer == AXES_CONFLICT;
    }
    if (conflict)
        *y = follow_rename(t, x, *y);
    struct axis a = follow_dims(t, x), b = follow_dims(t, *y);
    const struct followed *turned =
        axes_same(&t->axes, &a, &b) ? *y : follow_lie(t, *y, &a);
    *y = turned;
    if (!turned)
        return follow_refuse(t, "tensors that lie with their dims in different orders"),
               false;
    return true;
}

static const struct followed *combine(struct follow *t, enum kind_id kind,
                                      const struct followed *a, const struct followed *b) {
    const struct followed *x = follow_whole(t, a), *y = x ? follow_whole(t, b) : NULL;
    if (!y || !follow_is_plain(t, x) || !follow_is_plain(t, y))
        return follow_refuse(t, "a tensor is stretched over another");
    if (!agree(t, x, &y))
        return NULL;
    int op = follow_op(t, (int)kind, follow_dims(t, x));
    follow_operand(t, op, x);
    follow_operand(t, op, y);
    return follow_tensor(t, op, x);
}

/* The product again, with a bias of what its weight adds; -1 where it is none. The one before is left out
 * where nothing else reads it. */
static int biased(struct follow *t, const struct followed *x, const struct axis *bias) {
    const struct found_op *was = &t->ops.p[x->op];
    struct axis dims = follow_dims(t, x), w = was->param[0].dims, added = {0};
    if (was->kind != OP_einsum || was->n_in != 1 || was->n_param != 1 || x->parts)
        return -1;
    axes_settle(&t->axes, &w);
    for (int i = 0; i < dims.n; i++)
        for (int k = 0; k < w.n; k++)
            if (dims.atom[i] == w.atom[k])
                added.atom[added.n++] = dims.atom[i];
    if (!axes_same(&t->axes, &added, bias))
        return -1;
    struct found_param weight = was->param[0];
    int in = was->in[0], op = follow_op(t, OP_einsum, dims);
    t->ops.p[op].in[0] = in;
    t->ops.p[op].n_in = t->ops.p[op].n_param = 1;
    t->ops.p[op].param[0] = weight;
    return op;
}

/* The dims of a parameter that has the last ones of x. */
static bool last_dims(struct follow *t, const struct followed *x, const struct followed *w,
                      struct axis *dims) {
    if (!x || w->rank > x->rank)
        return follow_refuse(t, "a parameter of more axes is added"), false;
    for (int i = 0; i < w->rank; i++) {
        struct axis p = w->axis[i], d = x->axis[x->rank - w->rank + i];
        if (axes_size(&t->axes, &p) == 1 && !dims->n)
            continue;
        if (axes_unify(&t->axes, &d, &p) != AXES_ONE || dims->n + p.n > AXIS_MOST)
            return follow_refuse(t, "a parameter that is not of its last dims is added"),
                   false;
        for (int k = 0; k < p.n; k++)
            dims->atom[dims->n++] = p.atom[k];
    }
    return true;
}

/* x plus a parameter that has its last dims. */
static const struct followed *add_bias(struct follow *t, const struct followed *a,
                                       const struct followed *w) {
    const struct followed *x = follow_whole(t, a);
    struct axis dims = {0};
    if (!last_dims(t, x, w, &dims))
        return NULL;
    int op = biased(t, x, &dims);
    if (op < 0) {
        op = follow_op(t, OP_bias, follow_dims(t, x));
        follow_operand(t, op, x);
    }
    follow_param(t, op, w, dims);
    return follow_tensor(t, op, x);
}

/* A constant of zeros alone, which changes nothing that it is added to. */
static bool is_zeros(struct follow *t, const struct followed *x) {
    enum { MOST = 1 << 22 };
    if (x->form != FORM_CONSTANT || x->value < 0 || !fold_is(&t->fold, x->value))
        return false;
    const struct exported_value *v = &t->p->values.p[x->value];
    int64_t n = 1, at[EXPORTED_MAX_RANK];
    for (int i = 0; i < v->rank; i++)
        n = v->size[i] > 0 && n <= MOST ? n * v->size[i] : MOST + 1;
    for (int64_t i = 0; i < n && n <= MOST; i++) {
        int64_t rest = i;
        for (int k = v->rank; k-- > 0; rest /= v->size[k])
            at[k] = rest % v->size[k];
        if (fold_at(&t->fold, x->value, at) != 0)
            return false;
    }
    return n <= MOST;
}

static const struct followed *add(struct follow *t, const struct exported_node *n,
                                  const struct followed *a, const struct followed *b) {
    double number;
    if (exported_number(n, "alpha", 1) != 1)
        return follow_refuse(t, "a sum with a factor");
    if (a->form == FORM_MEAN_SQUARE && follow_scalar(t, b, &number)) {
        struct followed *y = (struct followed *)follow_reaxed(t, a, a->rank, a->axis);
        y->number += number;
        return y;
    }
    if ((a->form == FORM_SCORES || a->form == FORM_PAIRED || is_data(a)) && is_zeros(t, b))
        return a;
    if (a->form == FORM_SCORES && b->form == FORM_PARAMETER)
        return follow_refuse(t,
                             "a parameter for each pair of positions is added to scores");
    if (a->form == FORM_SCORES && b->form == FORM_POSITIONS && a->table < 0 &&
        !a->positions) {
        struct followed *y = (struct followed *)follow_reaxed(t, a, a->rank, a->axis);
        y->positions = b;
        y->table = b->table;
        y->mask = b->mask;
        return y;
    }
    if ((a->form == FORM_SCORES || a->form == FORM_POSITIONS) && b->form == FORM_CONSTANT)
        return follow_mask(t, a, b, MASK_ADDED);
    if (b->form == FORM_PARAMETER && is_data(a))
        return add_bias(t, a, b);
    if (b->form == FORM_ROWS && is_data(a))
        return follow_add_rows(t, a, b);
    if (b->form == FORM_PARAMETER && follow_scalar(t, a, &number)) {
        struct followed *y = follow_new(t, FORM_OFFSET, b);
        y->param = b->param;
        y->number = number;
        return y;
    }
    if (is_data(a) && is_data(b))
        return combine(t, OP_add, a, b);
    return follow_refuse(t, "a sum that weft has no kind for");
}

/* ---- products ------------------------------------------------------------------------------------------ */

static const struct followed *multiply(struct follow *t, const struct followed *a,
                                       const struct followed *b) {
    double number;
    if (a->form == FORM_SCORES && follow_scalar(t, b, &number)) {
        struct followed *y = (struct followed *)follow_reaxed(t, a, a->rank, a->axis);
        if (a->cap > 0)
            y->cap *= number;
        else
            y->number *= number;
        return a->table < 0 ? y : follow_refuse(t, "scores are masked, then scaled");
    }
    if (a->form == FORM_PAIRED && follow_scalar(t, b, &number)) {
        struct followed *y = (struct followed *)follow_reaxed(t, a, a->rank, a->axis);
        y->number *= number;
        return y;
    }
    int gate = is_data(a) && is_data(b) ? follow_gate(t, a) : -1;
    if (gate >= 0)
        return combine(t, (enum kind_id)gate, a->of, b);
    return is_data(a) && b->form == FORM_PARAMETER
               ? follow_refuse(t, "a parameter is a factor of a tensor, outside of a norm")
               : NULL;
}

static bool is_stretched(struct follow *t, const struct followed *a,
                         const struct followed *b) {
    return a->rank > 1 && a->rank == b->rank &&
           axes_size(&t->axes, &a->axis[a->rank - 1]) == 1 &&
           axes_size(&t->axes, &b->axis[b->rank - 1]) > 1;
}

/* One number of a tensor [.., 1] for each row of another [.., h]. */
static const struct followed *weigh_rows(struct follow *t, const struct followed *by,
                                         const struct followed *rows) {
    const struct followed *x = follow_whole(t, by), *y = x ? follow_whole(t, rows) : NULL;
    if (!y || !follow_is_plain(t, x) || !follow_is_plain(t, y))
        return follow_refuse(t, "a tensor is stretched over another");
    for (int i = 0; i < x->rank - 1; i++) {
        struct axis a = x->axis[i], b = y->axis[i];
        if (axes_unify(&t->axes, &a, &b) != AXES_ONE)
            return follow_refuse(t, "a tensor is stretched over another");
    }
    struct axis dims = follow_dims(t, y), few = follow_dims(t, x);
    if (few.n >= dims.n ||
        memcmp(few.atom, dims.atom, sizeof *few.atom * (size_t)few.n) != 0)
        return follow_refuse(t, "tensors that lie with their dims in different orders");
    int op = follow_op(t, OP_einsum, dims);
    follow_operand(t, op, x);
    follow_operand(t, op, y);
    return follow_tensor(t, op, y);
}

/* Element by element. */
static const struct followed *product(struct follow *t, const struct followed *a,
                                      const struct followed *b) {
    const struct followed *y = multiply(t, a, b);
    y = y || t->why ? y : multiply(t, b, a);
    if (y || t->why)
        return y;
    if (is_data(a) && is_data(b) && (is_stretched(t, a, b) || is_stretched(t, b, a)))
        return is_stretched(t, a, b) ? weigh_rows(t, a, b) : weigh_rows(t, b, a);
    return is_data(a) && is_data(b) ? combine(t, OP_einsum, a, b)
                                    : follow_refuse(t, "a product of two tensors");
}

static const struct followed *divide(struct follow *t, const struct followed *a,
                                     const struct followed *b) {
    double number;
    if ((a->form != FORM_SCORES && a->form != FORM_PAIRED) || !follow_scalar(t, b, &number))
        return follow_refuse(t, "a division that weft has no kind for");
    struct followed inverse = {.form = FORM_CONSTANT, .value = -1, .number = 1 / number};
    return multiply(t, a, &inverse);
}

/* ---- scores ------------------------------------------------------------------------------------------ */

/* A mask of each sample stretches what is alike for all. */
static const struct followed *stretched(struct follow *t, const struct exported_node *n,
                                        const struct followed *x) {
    const struct exported_value *to = &t->p->values.p[n->out[0]];
    struct axis axis[EXPORTED_MAX_RANK];
    if (!x || x->rank != to->rank)
        return x;
    for (int i = 0; i < x->rank; i++)
        axis[i] = axes_size(&t->axes, &x->axis[i]) == 1 && to->size[i] > 1
                      ? axis_of(axes_new(&t->axes, to->size[i]))
                      : x->axis[i];
    return follow_reaxed(t, x, x->rank, axis);
}

/* Far enough below all scores that nothing is seen of it. */
static bool is_far(struct follow *t, const struct followed *x) {
    double number;
    return follow_scalar(t, x, &number) && number <= -1e4;
}

static const struct followed *choose(struct follow *t, const struct exported_node *n,
                                     const struct point *p) {
    const struct followed *v[3];
    for (int i = 0; i < 3; i++)
        if (!(v[i] = follow_arg(t, n, p->arg[i])))
            return follow_refuse(t, "its operand is missing");
    double number;
    if (p->id == POINT_FILL && v[0]->form == FORM_SCORES && v[1]->form == FORM_CONSTANT &&
        is_far(t, v[2]))
        return follow_mask(t, v[0], v[1], MASK_UNSEEN);
    if (p->id == POINT_WHERE && v[1]->form == FORM_POSITIONS &&
        v[0]->form == FORM_CONSTANT && is_far(t, v[2]))
        return stretched(t, n, follow_mask(t, v[1], v[0], MASK_SEEN));
    if (p->id == POINT_WHERE && v[1]->form == FORM_SCORES && v[0]->form == FORM_CONSTANT &&
        is_far(t, v[2]))
        return follow_mask(t, v[1], v[0], MASK_SEEN);
    if (p->id == POINT_WHERE && v[2]->form == FORM_SCORES && v[0]->form == FORM_CONSTANT &&
        is_far(t, v[1]))
        return follow_mask(t, v[2], v[0], MASK_UNSEEN);
    if (p->id == POINT_WHERE && v[0]->form == FORM_UNSEEN && v[2]->form == FORM_SHARES &&
        v[1]->form == FORM_CONSTANT && fold_is(&t->fold, v[1]->value)) {
        int64_t at[EXPORTED_MAX_RANK] = {0};
        number = fold_at(&t->fold, v[1]->value, at);
        return number == 0 ? v[2] : follow_refuse(t, "shares of attention are replaced");
    }
    const struct followed *y = extend(t, n, p);
    return y ? y : follow_refuse(t, "elements are chosen by data");
}

/* Where scores are minus infinity, in either sense: what reads it is a softmax of rows that may see
 * nothing. */
static const struct followed *unseen(struct follow *t, const struct followed *a,
                                     const struct followed *b) {
    if (a->form == FORM_UNSEEN)
        return a;
    if (a->form == FORM_SHARES && !b) /* of a row that sees nothing */
        return follow_new(t, FORM_UNSEEN, a);
    if (a->form != FORM_SCORES || (b && !is_far(t, b)))
        return NULL;
    return follow_new(t, FORM_UNSEEN, a);
}

/* ---- by target ----------------------------------------------------------------------------------------- */

static const struct followed *copy(struct follow *t, const struct exported_node *n,
                                   const struct followed *x) {
    double rate = exported_number(n, "p", 0);
    if (strcmp(n->target, "aten.dropout.default") != 0 || rate == 0 ||
        !exported_int(n, "train", 0))
        return x;
    if (x->form == FORM_SHARES) {
        json_t *note = json_string("what drops out of the shares of attention is left out");
        bool said = false;
        for (size_t i = 0; i < json_array_size(t->notes); i++)
            said |= json_equal(json_array_get(t->notes, i), note);
        return said ? json_decref(note) : (void)json_array_append_new(t->notes, note), x;
    }
    x = follow_whole(t, x);
    if (!x || !follow_is_plain(t, x))
        return NULL;
    int op = follow_op(t, OP_dropout, follow_dims(t, x));
    follow_operand(t, op, x);
    follow_attr(t, op, "rate", json_real(rate));
    return follow_tensor(t, op, x);
}

/* Rows of a table times a number: what is made of them should not begin before that. */
static bool is_scaled_table(struct follow *t, const struct followed *x) {
    const struct followed *of = x->of;
    double c = of->form == FORM_TENSOR && t->ops.p[of->op].kind == OP_embedding
                   ? follow_factor(t, x)
                   : 1;
    return !isnan(c) && c != 1;
}

/* Does a node make sums of a tensor's elements times constants, or more of what mixes already? */
static bool is_mixed(struct follow *t, enum point_id id, const struct followed *a,
                     const struct followed *b) {
    double number;
    bool any = a->form == FORM_MIXED || (b && b->form == FORM_MIXED);
    if (id == POINT_ADD || id == POINT_SUB)
        return any && (is_data(a) || a->form == FORM_MIXED) &&
               (is_data(b) || b->form == FORM_MIXED);
    if (id == POINT_NEG || id == POINT_COPY)
        return any;
    if (id != POINT_MUL && id != POINT_DIV)
        return false;
    const struct followed *c = a->form == FORM_CONSTANT ? a : b;
    const struct followed *x = c == a ? b : a;
    return c->form == FORM_CONSTANT && (x->form == FORM_MIXED || is_data(x)) &&
           (any || (c->value >= 0 && !follow_scalar(t, c, &number)));
}

/* An operand as the tensor that it is, if it is known: a norm is one unless its weight or bias comes now. */
static const struct followed *normed(struct follow *t, enum point_id id,
                                     const struct followed *x,
                                     const struct followed *other) {
    bool weight = other && (other->form == FORM_PARAMETER || other->form == FORM_OFFSET);
    if (x && ((x->form == FORM_NORMED && !(id == POINT_MUL && weight)) ||
              (x->form == FORM_SCALED && !(id == POINT_ADD && weight))))
        follow_whole(t, x);
    return follow_unmixed(t, x);
}

const struct followed *follow_point(struct follow *t, const struct exported_node *n,
                                    bool *known) {
    const struct point *p = point_find(n->target);
    *known = p;
    if (!p)
        return NULL;
    const struct followed *a = follow_arg(t, n, p->arg[0]),
                          *b = p->arg[1] ? follow_arg(t, n, p->arg[1]) : NULL, *y = NULL;
    if (!a || (p->arg[1] && !b))
        return follow_refuse(t, "its operand is missing");
    if (exported_arg(n, "rounding_mode"))
        return follow_refuse(t, "a division that rounds");
    if (p->id == POINT_COPY)
        return copy(t, n, follow_unmixed(t, a));
    a = normed(t, p->id, a, b);
    b = normed(t, p->id, b, a);
    if (!a || (p->arg[1] && !b))
        return NULL;
    if (is_mixed(t, p->id, a, b))
        return follow_mixed(t, n->out[0]);
    if (p->id == POINT_WHERE || p->id == POINT_FILL)
        return choose(t, n, p);
    if ((y = extend(t, n, p)))
        return is_scaled_table(t, y)                      ? follow_whole(t, y)
               : y->size == 1 && follow_factor(t, y) == 1 ? y->of
                                                          : y;
    if ((y = follow_rows(t, p->id, a, b)) || t->why)
        return y;
    if (a->form == FORM_SCORES && p->id == POINT_TANH && a->table < 0 && !a->positions) {
        struct followed *s = (struct followed *)follow_reaxed(t, a, a->rank, a->axis);
        s->cap = 1;
        return a->cap > 0 ? follow_refuse(t, "scores with two caps") : s;
    }
    switch (p->id) {
    case POINT_ADD: {
        const bool held =
            a->form == FORM_CONSTANT || a->form == FORM_PARAMETER || a->form == FORM_ROWS;
        return add(t, n, held ? b : a, held ? a : b);
    }
    case POINT_MUL: return product(t, a, b);
    case POINT_SUB: return follow_refuse(t, "a difference that weft has no kind for");
    case POINT_DIV: return divide(t, a, b);
    case POINT_EQ:
    case POINT_NOT:
    case POINT_ISNAN:
        y = unseen(t, a, b);
        return y ? y : follow_refuse(t, "data are compared");
    default: return follow_refuse(t, "a function that weft has no kind for");
    }
}
