/* Views: the same elements under other axes. */
#include "import/follow.h"

#include <string.h>

enum { PARTS_MOST = 64, JOINED_MOST = 16 };

/* ---- sizes: view, reshape ---------------------------------------------------------------------- */

/* A norm is over one dim. What is seen as several after it, as heads are whose norm is of all, is a tensor of its
 * own. */
static const struct followed *behind_norm(struct follow *t, const struct followed *x,
                                          int rank, const int64_t *size) {
    const int kind = x->form == FORM_TENSOR ? t->ops.p[x->op].kind : FOUND_INPUT;
    struct axis last = x->axis[x->rank ? x->rank - 1 : 0], dims;
    if ((kind != OP_rmsnorm && kind != OP_layernorm) || !rank || x->rank < 1 ||
        axes_settle(&t->axes, &last) < 0 || last.n != 1)
        return x;
    int64_t all = axes_size(&t->axes, &last), inner = size[rank - 1];
    dims = follow_dims(t, x);
    if (inner < 2 || inner >= all || all % inner || dims.n >= AXIS_MOST ||
        dims.atom[dims.n - 1] != last.atom[0])
        return x;
    struct followed *y = follow_tensor(t, x->op, x);
    struct axis *parts = &y->axis[x->rank - 1];
    parts->n = 2;
    dims.atom[dims.n - 1] = parts->atom[0] = axes_new(&t->axes, all / inner);
    dims.atom[dims.n++] = parts->atom[1] = axes_new(&t->axes, inner);
    y->op = follow_op(t, OP_reshape, dims);
    follow_operand(t, y->op, x);
    return y;
}

/* Deals the atoms of all axes, in their order, out to axes of these sizes. */
static const struct followed *resize(struct follow *t, const struct followed *x, int rank,
                                     const int64_t *size) {
    x = behind_norm(t, x, rank, size);
    struct axis all = {0}, axis[EXPORTED_MAX_RANK] = {{0}};
    for (int i = 0; i < x->rank; i++) {
        struct axis a = x->axis[i];
        if (axes_settle(&t->axes, &a) < 0 || all.n + a.n > AXIS_MOST)
            return follow_refuse(t, "a tensor of too many dims");
        for (int k = 0; k < a.n; k++)
            all.atom[all.n++] = a.atom[k];
    }
    for (int i = 0; i < rank; i++) {
        int n = size[i] > 0 ? axes_split(&t->axes, &all, size[i]) : -1;
        if (size[i] == 1 && all.n && t->axes.atoms.p[all.atom[0]].size == 1)
            n = 1; /* a single head stays one of its own */
        while (n > 0 && i < rank - 2 && size[i] > 1 && size[i + 1] > 1 && n < all.n &&
               t->axes.atoms.p[all.atom[n]].size == 1)
            n++; /* or it is counted with samples, where more than its elements follow */
        if (n < 0)
            return follow_refuse(t, "its sizes cut across those of its operand");
        axis[i].n = n;
        memcpy(axis[i].atom, all.atom, sizeof *all.atom * (size_t)n);
        all.n -= n;
        memmove(all.atom, all.atom + n, sizeof *all.atom * (size_t)all.n);
    }
    /* What is left has size 1. */
    for (int k = 0; k < all.n; k++) {
        struct axis *last = &axis[rank ? rank - 1 : 0];
        if (t->axes.atoms.p[all.atom[k]].size != 1 || !rank || last->n == AXIS_MOST)
            return follow_refuse(t, "its sizes are not those of its operand");
        last->atom[last->n++] = all.atom[k];
    }
    return follow_reaxed(t, x, rank, axis);
}

static bool is_resize(const char *target) {
    static const char *const targets[] = {
        "aten.view.default",         "aten.reshape.default",
        "aten._unsafe_view.default", "aten.squeeze.default",
        "aten.squeeze.dim",          "aten.squeeze.dims",
        "aten.flatten.using_ints",   "aten.unflatten.int",
        "aten.unsqueeze.default",    NULL};
    for (int i = 0; targets[i]; i++)
        if (!strcmp(targets[i], target))
            return true;
    return false;
}

/* ---- orders and stretches ------------------------------------------------------------------------ */

static const struct followed *turn(struct follow *t, const struct exported_node *n,
                                   const struct followed *x) {
    struct axis axis[EXPORTED_MAX_RANK];
    int64_t order[EXPORTED_MAX_RANK];
    if (!strcmp(n->target, "aten.permute.default")) {
        if (exported_ints(n, "dims", order, EXPORTED_MAX_RANK) != x->rank)
            return follow_refuse(t, "the order of its axes is not known");
    } else {
        bool two = !strcmp(n->target, "aten.t.default") ||
                   !strcmp(n->target, "aten.numpy_T.default");
        if (two && x->rank > 2)
            return follow_refuse(t, "the order of all its axes is turned");
        int a = two ? 0 : exported_axis(n, "dim0", x->rank, 0);
        int b = two ? x->rank - 1 : exported_axis(n, "dim1", x->rank, 0);
        for (int i = 0; i < x->rank; i++)
            order[i] = i == a ? b : i == b ? a : i;
    }
    unsigned seen = 0;
    for (int i = 0; i < x->rank; i++) {
        int64_t d = order[i] < 0 ? order[i] + x->rank : order[i];
        if (d < 0 || d >= x->rank || seen >> d & 1)
            return follow_refuse(t, "the order of its axes is none");
        seen |= 1u << d;
        axis[i] = x->axis[d];
    }
    return follow_reaxed(t, x, x->rank, axis);
}

/* What is repeated has an atom that the tensor lacks. */
static const struct followed *stretch(struct follow *t, const struct exported_node *n,
                                      const struct followed *x) {
    const struct exported_value *to = &t->p->values.p[n->out[0]];
    struct axis axis[EXPORTED_MAX_RANK];
    int more = to->rank - x->rank;
    if (more < 0)
        return follow_refuse(t, "it has fewer axes than its operand");
    for (int i = 0; i < to->rank; i++) {
        axis[i] = i < more ? (struct axis){0} : x->axis[i - more];
        if (axes_size(&t->axes, &axis[i]) == 1 && to->size[i] > 1)
            axis[i] = axis_of(axes_new(&t->axes, to->size[i]));
    }
    return follow_reaxed(t, x, to->rank, axis);
}

/* ---- parts ----------------------------------------------------------------------------------------- */

/* Elements from `from` on: all, the first rows of a parameter, or one of several parts, which are of equal
 * sizes or not. Parts of the last axis may be those of rotary positions, and wait. */
static const struct followed *cut(struct follow *t, const struct followed *x, int d,
                                  int64_t from, int64_t size, bool equal) {
    int64_t all = axes_size(&t->axes, &x->axis[d]);
    if (from == 0 && size == all)
        return x;
    if (size == 0 && from == all)
        return follow_new(t, FORM_CONSTANT,
                          NULL); /* of no elements: joined, it adds nothing */
    if (size < 1 || from < 0 || from > all - size)
        return follow_refuse(t, "a part of nothing");
    if (x->form == FORM_PARAMETER && d == 0 && from == 0) {
        struct axis axis[EXPORTED_MAX_RANK];
        memcpy(axis, x->axis, sizeof axis);
        struct followed_param *p = &t->params.p[x->param];
        if (p->rows != all && p->rows != size)
            return follow_refuse(t, "rows of a parameter whose other rows are used too");
        if (p->rows == all)
            p->axis[0] = size == 1 ? (struct axis){0} : axis_of(axes_new(&t->axes, size));
        p->rows = size;
        axis[0] = p->axis[0];
        return follow_reaxed(t, x, x->rank, axis);
    }
    if (d == x->rank - 1 && (!equal || size * 2 == all)) {
        bool half = equal && (from == 0 || from == size);
        struct followed *y = follow_new(t, half ? FORM_HALF : FORM_SPAN, x);
        y->axis[d] = axis_of(axes_new(&t->axes, size));
        y->of = x;
        y->half = from > 0;
        y->number = (double)from;
        return y;
    }
    if (x->form == FORM_HALF || x->form == FORM_SPAN)
        x = follow_half(t, x);
    if (!x)
        return NULL;
    if (!equal)
        return follow_range(t, x, d, from, size);
    if (all % size || from % size)
        return follow_range(t, x, d, from, size);
    return follow_take(t, x, d, all / size, from / size);
}

/* Where a slice, or one index that is picked, begins and how long it is, along an axis of `all`. */
static bool reach_of(struct follow *t, const struct exported_node *n, int64_t all,
                     int64_t *from, int64_t *size) {
    int list[EXPORTED_MAX_RANK], one = -1;
    double at = 0;
    *from = exported_int(n, "start", 0);
    int64_t to = exported_int(n, "end", INT64_MAX);
    if (!strcmp(n->target, "aten.index.Tensor")) {
        int count = exported_tensors(n, "indices", list, EXPORTED_MAX_RANK);
        for (int i = 0; i < count; i++)
            one = list[i] >= 0 ? list[i] : one;
        if (one < 0 || !fold_scalar(&t->fold, one, &at))
            return false;
        *from = (int64_t)at;
        to = *from == -1 ? INT64_MAX : *from + 1;
    }
    *from = *from < 0 ? *from + all : *from;
    to = to < 0 ? to + all : to > all ? all : to;
    *size = to - *from;
    return true;
}

/* The axis that a slice or an index is of; -1: none or several. */
static int axis_cut(const struct exported_node *n, int rank) {
    int list[EXPORTED_MAX_RANK], d = -1;
    if (strcmp(n->target, "aten.index.Tensor") != 0)
        return exported_axis(n, "dim", rank, 0);
    int count = exported_tensors(n, "indices", list, EXPORTED_MAX_RANK);
    for (int i = 0; i < count; i++)
        if (list[i] >= 0)
            d = d >= 0 || i >= rank ? rank : i;
    return d < rank ? d : -1;
}

/* Are all parts that are taken of this tensor along the axis as large as the one that the node takes? The
 * others stand not far from it. */
static bool all_equal(struct follow *t, const struct exported_node *n, int rank, int d,
                      int64_t all, int64_t size) {
    enum { FAR = 24 };
    int self = exported_tensor(n, "self");
    for (int i = t->node > FAR ? t->node - FAR : 0; i < t->p->n_nodes && i < t->node + FAR;
         i++) {
        const struct exported_node *m = &t->p->nodes[i];
        if ((strcmp(m->target, "aten.slice.Tensor") != 0 &&
             strcmp(m->target, "aten.index.Tensor") != 0) ||
            exported_tensor(m, "self") != self || axis_cut(m, rank) != d)
            continue;
        const struct exported_value *v = &t->p->values.p[m->out[0]];
        int64_t other = v->rank == rank ? v->size[d] : 0;
        if (other > 0 && other < all && other != size)
            return false;
    }
    return true;
}

static const struct followed *slice(struct follow *t, const struct exported_node *n,
                                    const struct followed *x) {
    int d = axis_cut(n, x->rank);
    int64_t from, size, all = d < 0 ? 0 : axes_size(&t->axes, &x->axis[d]);
    if (d == x->rank - 1 && exported_int(n, "step", 1) > 1)
        return follow_mixed(t, n->out[0]);
    if (d < 0 || exported_int(n, "step", 1) != 1)
        return follow_refuse(t, "a slice with a step, or of several axes");
    if (!reach_of(t, n, all, &from, &size))
        return follow_refuse(t, "indexes that are no number");
    return cut(t, x, d, from, size, all_equal(t, n, x->rank, d, all, size));
}

static const struct followed *select_one(struct follow *t, const struct exported_node *n,
                                         const struct followed *x) {
    int d = exported_axis(n, "dim", x->rank, 0);
    if (d < 0)
        return follow_refuse(t, "an axis that its operand lacks");
    int64_t all = axes_size(&t->axes, &x->axis[d]), i = exported_int(n, "index", 0);
    const struct followed *y = all > 1 ? follow_select(t, x, d, i < 0 ? i + all : i) : x;
    if (y && all > 1)
        return y;
    if (all > 1)
        y = follow_take(t, x, d, all, i < 0 ? i + all : i);
    if (!y)
        return NULL;
    struct axis axis[EXPORTED_MAX_RANK];
    for (int k = 0; k < y->rank - 1; k++)
        axis[k] = y->axis[k < d ? k : k + 1];
    return follow_reaxed(t, y, y->rank - 1, axis);
}

/* Several results, whose sizes the file says. */
static const struct followed *split(struct follow *t, const struct exported_node *n,
                                    const struct followed *x) {
    bool one = !strcmp(n->target, "aten.unbind.int");
    int d = exported_axis(n, "dim", x->rank, 0);
    int64_t from = 0;
    bool equal = true;
    if (d < 0 || n->n_out > PARTS_MOST)
        return follow_refuse(t, "it makes too many parts");
    for (int i = 0; i < n->n_out && !one; i++) {
        const struct exported_value *v = &t->p->values.p[n->out[i]],
                                    *w = &t->p->values.p[n->out[0]];
        equal &= d < v->rank && d < w->rank && v->size[d] == w->size[d];
    }
    for (int i = 0; i < n->n_out; i++) {
        const struct exported_value *v = &t->p->values.p[n->out[i]];
        int64_t size = one ? 1 : d < v->rank ? v->size[d] : 0;
        const struct followed *y = one && n->n_out > 1 ? follow_take(t, x, d, n->n_out, i)
                                                       : cut(t, x, d, from, size, equal);
        if (!y)
            return NULL;
        if (one) {
            struct axis axis[EXPORTED_MAX_RANK];
            for (int k = 0; k < y->rank - 1; k++)
                axis[k] = y->axis[k < d ? k : k + 1];
            y = follow_reaxed(t, y, y->rank - 1, axis);
        }
        t->values[n->out[i]] = y;
        from += size;
    }
    return t->values[n->out[0]];
}

/* Parts of heads behind each other. */
static const struct followed *join_heads(struct follow *t,
                                         const struct followed *const v[2]) {
    const struct followed *x[2];
    for (int i = 0; i < 2; i++) {
        x[i] = follow_unmixed(t, v[i]);
        if (x[i]->form != FORM_PAIRED && !(x[i] = follow_whole(t, x[i])))
            return NULL;
    }
    return follow_join(t, x[0], x[1]);
}

static bool may_mix(const struct followed *x) {
    return x->form == FORM_TENSOR || x->form == FORM_POINT || x->form == FORM_HALF ||
           x->form == FORM_SPAN || x->form == FORM_MIXED || x->form == FORM_NORMED;
}

/* Rows in front of positions; parts of one tensor in another order, times constants; parts of heads. */
static const struct followed *join(struct follow *t, const struct exported_node *n) {
    const struct exported_value *to = &t->p->values.p[n->out[0]];
    int list[JOINED_MOST], count = exported_tensors(n, "tensors", list, JOINED_MOST);
    const struct followed *v[2] = {NULL};
    bool stack = !strcmp(n->target, "aten.stack.default"), mixes = count > 1;
    for (int i = 0; i < count; i++) {
        const struct exported_value *x = list[i] >= 0 ? &t->p->values.p[list[i]] : NULL;
        if (!x || !t->values[list[i]])
            return NULL;
        if (count == 2 && i == 1 && x->rank && x->size[x->rank - 1] == 0)
            return t->values[list[0]];
        mixes &= may_mix(t->values[list[i]]);
        if (i < 2)
            v[i] = t->values[list[i]];
    }
    bool last = exported_axis(n, "dim", to->rank, 0) == to->rank - 1;
    if (mixes && last && follow_mixed_root(t, n->out[0]) >= 0)
        return follow_mixed(t, n->out[0]);
    if (count != 2 || stack)
        return NULL;
    if (v[0]->form == FORM_PARAMETER && v[0]->rank == 3 && v[1]->rank == 3 &&
        exported_axis(n, "dim", 3, 0) == 1)
        return follow_prepend(t, v[0], v[1]);
    return last && to->rank == 4 ? join_heads(t, v) : NULL;
}

/* What is still a tensor, or waits for one, under any axes. */
static const struct followed *before(struct follow *t, const struct exported_node *n) {
    const struct followed *x = follow_unmixed(t, follow_arg(t, n, "self"));
    const bool cuts = !strncmp(n->target, "aten.slice.", 11) ||
                      !strncmp(n->target, "aten.split", 10) ||
                      !strncmp(n->target, "aten.chunk.", 11);
    if (!x)
        return follow_refuse(t, "its operand is missing");
    switch (x->form) {
    case FORM_TENSOR:
    case FORM_PARAMETER:
    case FORM_SCORES:
    case FORM_SHARES:
    case FORM_UNSEEN:
    case FORM_ROUTED:
    case FORM_PAIRED:
    case FORM_MIXED:
    case FORM_POSITIONS: return x;
    case FORM_HALF:
    case FORM_SPAN: return cuts ? x : follow_half(t, x);
    case FORM_CONSTANT: return follow_refuse(t, "its numbers are not known");
    default:
        if (follow_is_row(x))
            return x;
        return x->form == FORM_POINT && x->of->form == FORM_TENSOR ? x : follow_whole(t, x);
    }
}

/* Scores keep their last two axes; those without a mask may have others before the last one for a
 * while. */
static const struct followed *after(struct follow *t, const struct followed *x,
                                    const struct followed *y) {
    bool scores =
        x->form == FORM_SCORES || x->form == FORM_SHARES || x->form == FORM_UNSEEN;
    bool bare = x->form == FORM_SCORES && x->table < 0 && !x->positions;
    if (y && x->form == FORM_PAIRED &&
        (!y->rank || !axes_same(&t->axes, &x->axis[x->rank - 1], &y->axis[y->rank - 1])) &&
        !(y->rank > 1 && axes_same(&t->axes, &x->axis[x->rank - 1], &y->axis[y->rank - 2])))
        return follow_refuse(t, "rotary positions of neighbours, outside of attention");
    for (int i = 1; y && scores && i <= (bare ? 1 : 2); i++)
        if (y->rank < 3 ||
            !axes_same(&t->axes, &x->axis[x->rank - i], &y->axis[y->rank - i]))
            return follow_refuse(t, "scores of attention are turned or cut");
    return y;
}

/* A view of what mixes does so too, with all its results. */
static const struct followed *mixed_parts(struct follow *t, const struct exported_node *n) {
    for (int i = 1; i < n->n_out; i++)
        t->values[n->out[i]] = follow_mixed(t, n->out[i]);
    return follow_mixed(t, n->out[0]);
}

const struct followed *follow_view(struct follow *t, const struct exported_node *n,
                                   bool *known) {
    static const struct {
        const char *target;
        const struct followed *(*rule)(struct follow *, const struct exported_node *,
                                       const struct followed *);
    } rules[] = {
        {"aten.permute.default", turn},
        {"aten.transpose.int", turn},
        {"aten.t.default", turn},
        {"aten.numpy_T.default", turn},
        {"aten.expand.default", stretch},
        {"aten.expand_as.default", stretch},
        {"aten.broadcast_to.default", stretch},
        {"aten.slice.Tensor", slice},
        {"aten.index.Tensor", slice},
        {"aten.select.int", select_one},
        {"aten.split.Tensor", split},
        {"aten.chunk.default", split},
        {"aten.split_with_sizes.default", split},
        {"aten.unbind.int", split},
    };
    const struct followed *x;
    const struct exported_value *to = &t->p->values.p[n->out[0]];
    *known = true;
    if (!strcmp(n->target, "aten.cat.default") || !strcmp(n->target, "aten.stack.default"))
        return join(t, n);
    if (follow_is_paired(n->target))
        return follow_mixed(t, n->out[0]);
    if (is_resize(n->target)) {
        x = before(t, n);
        if (x && x->form == FORM_MIXED)
            return follow_mixed(t, n->out[0]);
        return x ? after(t, x, resize(t, x, to->rank, to->size)) : NULL;
    }
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (!strcmp(rules[i].target, n->target)) {
            x = before(t, n);
            if (x && x->form == FORM_MIXED)
                return mixed_parts(t, n);
            return x ? after(t, x, rules[i].rule(t, n, x)) : NULL;
        }
    *known = false;
    return NULL;
}
