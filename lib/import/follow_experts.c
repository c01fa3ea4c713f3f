/* Mixtures of experts, as programs spell them out: the largest shares of a softmax choose experts, rows are sorted
 * by these and multiplied by the matrix of each, and what comes back is weighted and added. */
#include "import/follow.h"

#include <math.h>
#include <string.h>

/* What one softmax chooses; all values that follow from it point here. */
struct routing {
    const struct followed *logits;
    int64_t choices;
    int top, capacity; /* atoms */
    int route, slots;  /* ops, -1 until rows are sent */
};

static const struct followed *routed(struct follow *t, const struct followed *like,
                                     struct routing *r, enum routed_step step) {
    struct followed *y = follow_new(t, FORM_ROUTED, like);
    y->routing = r;
    y->step = step;
    return y;
}

static bool is_step(const struct followed *x, enum routed_step step) {
    return x && x->form == FORM_ROUTED && x->step == step;
}

bool follow_is_sent(struct follow *t, const struct axis *a) {
    struct axis s = *a;
    axes_settle(&t->axes, &s);
    for (int i = 0; i < s.n; i++)
        for (int64_t k = 0; k < t->capacities.n; k++)
            if (axes_class(&t->axes, t->capacities.p[k]) == s.atom[i])
                return true;
    return false;
}

/* ---- the choice ------------------------------------------------------------------------------------ */

/* The largest shares of each row, and whose they are. */
static const struct followed *choose(struct follow *t, const struct exported_node *n) {
    const struct followed *x = follow_arg(t, n, "self");
    int64_t k = exported_int(n, "k", 0);
    if (!x || x->form != FORM_CHANCES || n->n_out != 2 || k < 1 || k > 1 << 16 ||
        !exported_int(n, "largest", 1))
        return follow_refuse(t, "the largest of what is no softmax of a product");
    const struct followed *logits = follow_whole(t, x->of);
    int64_t d = exported_int(n, "dim", -1);
    if (!logits || !follow_is_plain(t, logits) || follow_dims(t, logits).n < 3 ||
        (d != -1 && d != x->rank - 1))
        return follow_refuse(t, "a choice that is none for each position");
    struct routing *r = arena_alloc(&t->arena, sizeof *r);
    *r = (struct routing){logits, k, axes_new(&t->axes, k), -1, -1, -1};
    struct followed like = {.rank = x->rank};
    memcpy(like.axis, x->axis, sizeof like.axis);
    like.axis[like.rank - 1] = axis_of(r->top);
    t->values[n->out[1]] = routed(t, &like, r, ROUTED_CHOICE);
    return routed(t, &like, r, ROUTED_GATES);
}

/* Choices of all positions by their experts: sorted, and where each was. */
static const struct followed *sort(struct follow *t, const struct exported_node *n) {
    const struct followed *x = follow_arg(t, n, "self");
    bool places = !strcmp(n->target, "aten.argsort.default") ||
                  !strcmp(n->target, "aten.argsort.stable");
    if (!is_step(x, ROUTED_CHOICE) || x->rank != 1 || exported_int(n, "descending", 0))
        return follow_refuse(t, "data are sorted");
    const struct followed *order = routed(t, x, x->routing, ROUTED_ORDER);
    if (places)
        return order;
    if (n->n_out > 1)
        t->values[n->out[1]] = order;
    return routed(t, x, x->routing, ROUTED_SORTED);
}

/* Where each choice went: the places 0, 1, .. put where the order says. */
static const struct followed *put(struct follow *t, const struct exported_node *n) {
    int list[2], count = exported_tensors(n, "indices", list, 2);
    int values = exported_tensor(n, "values");
    const struct followed *x = count == 1 && list[0] >= 0 ? t->values[list[0]] : NULL;
    if (!is_step(x, ROUTED_ORDER) || values < 0 || !fold_is(&t->fold, values) ||
        t->p->values.p[values].rank != 1)
        return follow_refuse(t, "elements are put where data say");
    int64_t rows = t->p->values.p[values].size[0], step = 1 + rows / 256;
    for (int64_t i = 0; i < rows; i += step)
        if (fold_at(&t->fold, values, &i) != (double)i)
            return follow_refuse(t, "elements are put where data say");
    return routed(t, x, x->routing, ROUTED_BACK);
}

/* How many choices fell on each expert, and the sums of that. */
static const struct followed *count(struct follow *t, const struct exported_node *n,
                                    const struct followed *x) {
    struct followed like = {.rank = 1};
    const struct followed *logits = x->routing->logits;
    like.axis[0] = logits->axis[logits->rank - 1];
    int64_t experts = axes_size(&t->axes, &like.axis[0]);
    if (is_step(x, ROUTED_SORTED) && exported_int(n, "bins", 100) == experts &&
        exported_number(n, "min", 0) == 0 &&
        exported_number(n, "max", 0) == (double)(experts - 1))
        return routed(t, &like, x->routing, ROUTED_COUNTS);
    return follow_refuse(t, "a histogram that is none of all experts");
}

/* ---- rows sent, multiplied, and brought back ------------------------------------------------------- */

/* The op that chooses, and what stands for its second result. */
static bool make_route(struct follow *t, struct routing *r) {
    struct axis dims = follow_dims(t, r->logits);
    if (r->route >= 0)
        return true;
    int64_t rows = t->axes.atoms.p[dims.atom[dims.n - 2]].size;
    r->capacity = axes_new(&t->axes, rows);
    arr_push(&t->capacities, r->capacity);
    dims.atom[dims.n - 1] = r->top;
    r->route = follow_op(t, OP_route, dims);
    follow_operand(t, r->route, r->logits);
    r->slots = follow_op(t, FOUND_SECOND, dims);
    follow_operand(t, r->slots, &(struct followed){.op = r->route});
    return true;
}

/* The rows of tokens, sorted by experts: each has room for all of a sample's. */
static const struct followed *send(struct follow *t, const struct followed *a,
                                   struct routing *r) {
    const struct followed *x = follow_whole(t, a);
    struct axis dims = x ? follow_dims(t, x) : (struct axis){0},
                of = follow_dims(t, r->logits), out = {0};
    if (!x || !follow_is_plain(t, x) || x->rank != 2 || dims.n != of.n || dims.n < 3 ||
        memcmp(dims.atom, of.atom, sizeof *dims.atom * (size_t)(dims.n - 1)) != 0)
        return follow_refuse(t, "rows that are none of what chose experts");
    make_route(t, r);
    out.atom[out.n++] = of.atom[of.n - 1];
    for (int i = 0; i < dims.n - 2; i++)
        out.atom[out.n++] = dims.atom[i];
    out.atom[out.n++] = r->capacity;
    struct followed *y = follow_tensor(t, -1, x);
    y->axis[0] = out;
    out.atom[out.n++] = dims.atom[dims.n - 1];
    y->op = follow_op(t, OP_dispatch, out);
    follow_operand(t, y->op, x);
    follow_operand(t, y->op, &(struct followed){.op = r->slots});
    return y;
}

/* x [rows, k] with w [experts, k, n], where rows end as the sums of counts say. */
static const struct followed *multiply(struct follow *t, const struct exported_node *n) {
    bool own = !strcmp(n->target, "aten._grouped_mm.default");
    const struct followed *a = follow_arg(t, n, own ? "self" : "input"),
                          *w = follow_arg(t, n, own ? "mat2" : "weight"),
                          *ends = follow_arg(t, n, "offs");
    const struct followed *x = a ? follow_whole(t, a) : NULL;
    if (!x || !w || !is_step(ends, ROUTED_ENDS) || w->form != FORM_PARAMETER ||
        w->rank != 3 || x->rank != 2 || !follow_is_sent(t, &x->axis[0]) ||
        !follow_is_plain(t, x))
        return follow_refuse(t, "a product with several matrices that is none of experts");
    struct axis e = w->axis[0], k = w->axis[1], m = w->axis[2], last = x->axis[1];
    struct axis dims = follow_dims(t, x), experts = axis_of(dims.atom[0]);
    if (axes_unify(&t->axes, &experts, &e) != AXES_ONE ||
        axes_unify(&t->axes, &last, &k) != AXES_ONE || axes_settle(&t->axes, &m) < 0 ||
        dims.n - last.n + m.n > AXIS_MOST || e.n + k.n + m.n > AXIS_MOST)
        return follow_refuse(t, "matrices of experts whose dims are not those of the rows");
    dims = follow_dims(t, x);
    dims.n -= last.n;
    struct axis of_weight = e;
    for (int i = 0; i < k.n; i++)
        of_weight.atom[of_weight.n++] = k.atom[i];
    for (int i = 0; i < m.n; i++)
        dims.atom[dims.n++] = of_weight.atom[of_weight.n++] = m.atom[i];
    int op = follow_op(t, OP_einsum, dims);
    follow_operand(t, op, x);
    follow_param(t, op, w, of_weight);
    struct followed *y = follow_tensor(t, op, x);
    y->axis[1] = m;
    return y;
}

/* What experts gave, times the shares of those that were chosen. */
static const struct followed *weigh(struct follow *t, const struct followed *x,
                                    const struct followed *gates) {
    const struct followed *whole = follow_whole(t, x);
    if (!whole || whole->rank != 2 || !follow_is_sent(t, &whole->axis[0]))
        return follow_refuse(t, "shares of a choice times what no experts gave");
    struct followed *y =
        (struct followed *)routed(t, whole, gates->routing, ROUTED_WEIGHED);
    y->of = whole;
    y->half = gates->half;
    return y;
}

/* In the order of tokens again: [tokens choices, hidden]. */
static const struct followed *bring_back(struct follow *t, const struct followed *x) {
    struct followed *y = (struct followed *)routed(t, x, x->routing, ROUTED_BROUGHT);
    const struct followed *logits = x->routing->logits;
    y->of = x->of;
    y->half = x->half;
    y->axis[0].n = 0;
    for (int i = 0; i < logits->rank - 1; i++) {
        struct axis a = logits->axis[i];
        axes_settle(&t->axes, &a);
        for (int k = 0; k < a.n && y->axis[0].n < AXIS_MOST - 1; k++)
            y->axis[0].atom[y->axis[0].n++] = a.atom[k];
    }
    y->axis[0].atom[y->axis[0].n++] = x->routing->top;
    return y;
}

/* The sum over choices. */
static const struct followed *combine(struct follow *t, const struct exported_node *n,
                                      const struct followed *x) {
    struct routing *r = x->routing;
    int64_t dim[2];
    struct axis top = axis_of(r->top), dims = follow_dims(t, r->logits);
    if (x->rank != 3 || exported_ints(n, "dim", dim, 2) != 1 ||
        (dim[0] != 1 && dim[0] != -2) || exported_int(n, "keepdim", 0) ||
        !axes_same(&t->axes, &x->axis[1], &top) || r->route < 0)
        return follow_refuse(t, "a sum that is none over the choices of a token");
    struct axis all = follow_dims(t, x->of);
    dims.atom[dims.n - 1] = all.atom[all.n - 1];
    struct followed *y = follow_tensor(t, follow_op(t, OP_combine, dims), x);
    follow_operand(t, y->op, x->of);
    follow_operand(t, y->op, &(struct followed){.op = r->route});
    follow_operand(t, y->op, &(struct followed){.op = r->slots});
    if (x->half)
        follow_attr(t, r->route, "normalize", json_integer(1));
    y->rank = 2;
    y->axis[1] = x->axis[2];
    return y;
}

/* ---- by target ------------------------------------------------------------------------------------- */

/* Shares of the choices of a token over their sum. */
static const struct followed *normalize(struct follow *t, const struct followed *a,
                                        const struct followed *b) {
    if (!is_step(b, ROUTED_SUM) || a->routing != b->routing || a->half || b->half)
        return follow_refuse(t, "shares of a choice over what is not their sum");
    struct followed *y = (struct followed *)follow_reaxed(t, a, a->rank, a->axis);
    y->half = 1;
    return y;
}

static const struct followed *add_up(struct follow *t, const struct exported_node *n,
                                     const struct followed *x) {
    int64_t dim[2];
    if (is_step(x, ROUTED_BROUGHT))
        return combine(t, n, x);
    if (!is_step(x, ROUTED_GATES) || exported_ints(n, "dim", dim, 2) != 1 ||
        (dim[0] != -1 && dim[0] != x->rank - 1) || !exported_int(n, "keepdim", 0))
        return follow_refuse(t, "a sum of what was chosen");
    struct followed *y = (struct followed *)routed(t, x, x->routing, ROUTED_SUM);
    y->half = x->half;
    y->axis[y->rank - 1] = (struct axis){0};
    return y;
}

/* x at places: rows of tokens, shares in the sorted order, or results in the order of tokens. */
static const struct followed *look_up(struct follow *t, const struct followed *x,
                                      const struct followed *at) {
    if (x->form != FORM_ROUTED && is_step(at, ROUTED_SENDER))
        return send(t, x, at->routing);
    if (is_step(x, ROUTED_GATES) && is_step(at, ROUTED_ORDER) && x->rank == 1 &&
        x->routing == at->routing) {
        struct followed *y = (struct followed *)follow_reaxed(t, x, x->rank, x->axis);
        y->step = ROUTED_SORTED_GATES;
        return y;
    }
    if (is_step(x, ROUTED_WEIGHED) && is_step(at, ROUTED_BACK) && x->routing == at->routing)
        return bring_back(t, x);
    return follow_refuse(t, "elements are chosen by data");
}

/* Of two operands one is routed. */
static const struct followed *of_two(struct follow *t, const struct point *p,
                                     const struct followed *a, const struct followed *b,
                                     bool floors) {
    double number;
    if (p->id == POINT_DIV && is_step(a, ROUTED_GATES))
        return normalize(t, a, b);
    if (is_step(a, ROUTED_ORDER) && follow_scalar(t, b, &number) &&
        (p->id == POINT_FLOOR_DIV || floors) && number == (double)a->routing->choices)
        return routed(t, a, a->routing, ROUTED_SENDER);
    if (p->id == POINT_MUL && is_step(b, ROUTED_SORTED_GATES))
        return weigh(t, a, b);
    if (p->id == POINT_MUL && is_step(a, ROUTED_SORTED_GATES))
        return weigh(t, b, a);
    return follow_refuse(t, "what was chosen is computed with");
}

static const struct followed *of_routed(struct follow *t, const struct exported_node *n,
                                        const struct followed *x, bool *known) {
    const struct point *p = point_find(n->target);
    if (p && p->id == POINT_COPY)
        return x;
    if (!strcmp(n->target, "aten.sum.dim_IntList"))
        return add_up(t, n, x);
    if (!strcmp(n->target, "aten.histc.default"))
        return count(t, n, x);
    if (!strcmp(n->target, "aten.cumsum.default"))
        return is_step(x, ROUTED_COUNTS) ? routed(t, x, x->routing, ROUTED_ENDS)
                                         : follow_refuse(t, "a running sum of data");
    const struct followed *b = p && p->arg[1] ? follow_arg(t, n, p->arg[1]) : NULL;
    const char *how = exported_text(n, "rounding_mode");
    if (b)
        return of_two(t, p, x, b, how && !strcmp(how, "floor"));
    *known = false;
    return NULL;
}

const struct followed *follow_experts(struct follow *t, const struct exported_node *n,
                                      bool *known) {
    const struct followed *x = follow_arg(t, n, "self"), *other = follow_arg(t, n, "other");
    int list[2];
    *known = true;
    if (!strcmp(n->target, "aten.topk.default"))
        return choose(t, n);
    if (!strncmp(n->target, "aten.sort.", 10) || !strncmp(n->target, "aten.argsort.", 13))
        return sort(t, n);
    if (!strncmp(n->target, "aten.index_put", 14))
        return put(t, n);
    if (!strcmp(n->target, "aten._grouped_mm.default") ||
        !strcmp(n->target, "transformers.grouped_mm_fallback.default"))
        return multiply(t, n);
    if (!strcmp(n->target, "aten.index.Tensor") &&
        exported_tensors(n, "indices", list, 2) == 1 && list[0] >= 0 && x) {
        const struct followed *at = t->values[list[0]];
        if (x->form == FORM_ROUTED || (at && at->form == FORM_ROUTED))
            return look_up(t, x, at);
    }
    if (x && x->form == FORM_ROUTED)
        return of_routed(t, n, x, known);
    const struct point *p = point_find(n->target);
    if (x && p && other && other->form == FORM_ROUTED)
        return of_two(t, p, x, other, false);
    *known = false;
    return NULL;
}
