/* From node to node of an exported program. */
#include "import/follow.h"

#include <string.h>

/* ---- inputs ----------------------------------------------------------------------------------- */

static struct axis new_axis(struct follow *t, int64_t size) {
    struct axis a = {0};
    return size == 1 ? a : axis_of(axes_new(&t->axes, size));
}

static struct followed *new_tensor(struct follow *t, int kind,
                                   const struct exported_value *v) {
    struct followed like = {.rank = v->rank};
    struct axis dims = {0};
    for (int i = 0; i < v->rank; i++) {
        like.axis[i] = new_axis(t, v->size[i]);
        if (like.axis[i].n)
            dims.atom[dims.n++] = like.axis[i].atom[0];
    }
    return follow_tensor(t, follow_op(t, kind, dims), &like);
}

/* Images lie with their channels last. */
static const struct followed *add_input(struct follow *t, int value) {
    const struct exported_value *v = &t->p->values.p[value];
    struct followed *x = new_tensor(t, FOUND_INPUT, v);
    struct found_op *op = &t->ops.p[x->op];
    if (v->rank == 4 && !v->integer) {
        static const int order[] = {0, 2, 3, 1};
        op->dims.n = 0;
        for (int i = 0; i < 4; i++)
            if (x->axis[order[i]].n)
                op->dims.atom[op->dims.n++] = x->axis[order[i]].atom[0];
    }
    op->value = value;
    return x;
}

static const struct followed *add_parameter(struct follow *t, int value) {
    const struct exported_value *v = &t->p->values.p[value];
    int known = v->tie >= 0 ? t->param_of[v->tie] : -1;
    if (known < 0) {
        struct followed_param p = {.value = value, .rank = v->rank};
        for (int i = 0; i < v->rank; i++)
            p.axis[i] = new_axis(t, v->size[i]);
        p.rows = v->rank ? v->size[0] : 1;
        known = (int)t->params.n;
        arr_push(&t->params, p);
    }
    t->param_of[value] = known;
    struct followed *w = follow_new(t, FORM_PARAMETER, NULL);
    w->param = known;
    w->rank = v->rank;
    memcpy(w->axis, t->params.p[known].axis, sizeof w->axis);
    return w;
}

static const struct followed *add_constant(struct follow *t, int value) {
    struct followed *c = follow_new(t, FORM_CONSTANT, NULL);
    c->value = value;
    c->rank = t->p->values.p[value].rank;
    return c;
}

static void add_given(struct follow *t) {
    for (int v = 0; v < t->p->values.n; v++) {
        const struct exported_value *x = &t->p->values.p[v];
        t->param_of[v] = -1;
        if (x->role == EXPORTED_INPUT)
            t->values[v] = add_input(t, v);
        else if (x->role == EXPORTED_PARAMETER)
            t->values[v] = add_parameter(t, v);
        else if (x->role == EXPORTED_BUFFER)
            t->values[v] = add_constant(t, v);
    }
}

/* ---- nodes ------------------------------------------------------------------------------------ */

/* Does the value have the sizes that the program says? Damaged files do not. */
static bool has_sizes(struct follow *t, const struct followed *x, int value) {
    const struct exported_value *v = &t->p->values.p[value];
    if (x->form == FORM_CONSTANT)
        return true;
    if (x->rank != v->rank)
        return false;
    for (int i = 0; i < x->rank; i++)
        if (axes_size(&t->axes, &x->axis[i]) != v->size[i] &&
            !follow_is_sent(t, &x->axis[i]))
            return false;
    return true;
}

/* The results are tensors of which nothing is known, so that what follows is seen too. */
static void refuse_node(struct follow *t, const struct exported_node *n) {
    struct axis none = {0};
    int op = follow_op(t, FOUND_REFUSED, none);
    bool follows = false;
    for (int i = 0; i < n->n_args; i++) {
        const int *list;
        int count = exported_values(&n->args[i], &list);
        for (int k = 0; k < count; k++) {
            const struct followed *x = list[k] >= 0 ? t->values[list[k]] : NULL;
            if (x && x->form == FORM_CONSTANT && x->value >= 0 &&
                t->p->values.p[x->value].role == EXPORTED_BUFFER &&
                !fold_is(&t->fold, x->value))
                t->why = "it reads a buffer whose numbers are not in the archive";
            for (; x && x->form != FORM_TENSOR; x = x->of)
                ;
            follows |= x && t->ops.p[x->op].kind == FOUND_REFUSED;
            if (x)
                follow_operand(t, op, x);
        }
    }
    /* What is wrong with the operands of an op that is known may follow from an op that is not. */
    t->ops.p[op].why = !t->why ? "weft has no op for it" : follows ? NULL : t->why;
    for (int k = 0; k < n->n_out; k++) {
        if (!t->p->values.p[n->out[k]].tensor)
            continue;
        struct followed *y = new_tensor(t, FOUND_REFUSED, &t->p->values.p[n->out[k]]);
        struct followed from = {.op = op};
        t->ops.p[y->op].why = NULL;
        follow_operand(t, y->op, &from);
        t->values[n->out[k]] = y;
    }
}

/* Checks of what the program was exported with, and sizes. */
static bool is_guard(const char *target) {
    static const char *const guards[] = {"aten._assert", "aten.sym_", "_operator",
                                         "aten._shape_as_tensor", NULL};
    for (int i = 0; guards[i]; i++)
        if (!strncmp(target, guards[i], strlen(guards[i])))
            return true;
    return false;
}

static bool is_in_place(const char *target) {
    const char *dot = strrchr(target, '.');
    return dot && dot > target + 2 && dot[-1] == '_' && dot[-2] != '_';
}

static bool constant_node(struct follow *t, const struct exported_node *n) {
    if (!fold_node(&t->fold, t->node))
        return false;
    for (int k = 0; k < n->n_out; k++)
        t->values[n->out[k]] = add_constant(t, n->out[k]);
    return true;
}

/* What is changed in place is the result from then on. What it was a view of has changed too: nothing is known of
 * that. */
static void change(struct follow *t, const struct exported_node *n) {
    int self = exported_tensor(n, "self");
    if (self < 0 || !is_in_place(n->target))
        return;
    t->values[self] = t->values[n->out[0]];
    if (t->values[self]->form == FORM_CONSTANT)
        fold_change(&t->fold, self, n->out[0]);
    for (int v = self, node; (node = t->p->values.p[v].node) >= 0;) {
        const struct exported_node *m = &t->p->nodes[node];
        v = fold_is_move(m->target) ? exported_tensor(m, "self") : -1;
        if (v < 0)
            break;
        fold_change(&t->fold, v, -1);
        t->values[v] = new_tensor(t, FOUND_REFUSED, &t->p->values.p[v]);
        t->ops.p[t->values[v]->op].why = "a part of it is changed in place";
    }
}

static void follow_node(struct follow *t, const struct exported_node *n) {
    static const struct followed *(*const rules[])(struct follow *,
                                                   const struct exported_node *, bool *) = {
        follow_experts, follow_view,   follow_point,
        follow_product, follow_reduce, follow_layer};
    t->why = NULL;
    if (constant_node(t, n)) {
        change(t, n);
        return;
    }
    if (!n->n_out || is_guard(n->target))
        return;
    const struct followed *y = NULL;
    bool known = false;
    for (int i = 0; i < 6 && !known; i++)
        y = rules[i](t, n, &known);
    for (int k = 0; k < n->n_out && y; k++) {
        const struct followed *x = k ? t->values[n->out[k]] : y;
        if (x && !has_sizes(t, x, n->out[k]))
            y = follow_refuse(t, "its result has other sizes than the file says");
    }
    if (y)
        t->values[n->out[0]] = y;
    else
        refuse_node(t, n);
    if (t->values[n->out[0]])
        change(t, n);
}

void follow_release(struct follow *t) {
    for (int64_t i = 0; i < t->ops.n; i++)
        json_decref(t->ops.p[i].attrs);
    arr_release(&t->ops);
    arr_release(&t->params);
    arr_release(&t->ranges);
    arr_release(&t->capacities);
    axes_release(&t->axes);
    fold_release(&t->fold);
    json_decref(t->notes);
    arena_release(&t->arena);
}

static const struct followed *make(struct follow *t, const struct followed *x) {
    if (x->form != FORM_MIXED)
        return follow_normed(t, x);
    const struct followed *y = follow_rotary(t, x->value);
    return y && y->form == FORM_TENSOR
               ? y
               : follow_refuse(t, "a product with a table, or elements in another order, "
                                  "outside of rotary positions");
}

void follow_run(struct follow *t) {
    size_t n = (size_t)t->p->values.n + 1;
    t->fold.p = t->p;
    t->values = arena_array(&t->arena, n, sizeof *t->values);
    t->param_of = arena_array(&t->arena, n, sizeof *t->param_of);
    t->notes = t->p->notes ? json_copy(t->p->notes) : json_array();
    t->make = make;
    t->loss = t->masked.table = -1;
    t->node = -1;
    add_given(t);
    for (t->node = 0; t->node < t->p->n_nodes; t->node++)
        follow_node(t, &t->p->nodes[t->node]);
    t->node = -1;
}
