/* Elements of constants, from those of what they are made of. */
#include "import/fold.h"

#include "import/point.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DENSE_MOST = 1 << 16, DEPTH_MOST = 64, LIST_MOST = 64 };
static const double work_most = 1e9;

typedef const struct exported_value *value_ref;

static value_ref value_of(const struct fold *f, int v) {
    return &f->p->values.p[v];
}

static int64_t elements(value_ref v) {
    int64_t n = 1;
    for (int i = 0; i < v->rank; i++)
        n *= v->size[i];
    return n;
}

static int64_t flat(value_ref v, const int64_t *at) {
    int64_t n = 0;
    for (int i = 0; i < v->rank; i++)
        n = n * v->size[i] + at[i];
    return n;
}

static void unflatten(value_ref v, int64_t n, int64_t *at) {
    for (int i = v->rank; i-- > 0; n /= v->size[i] ? v->size[i] : 1)
        at[i] = v->size[i] ? n % v->size[i] : 0;
}

/* The place in an operand that is stretched to the rank and sizes of the result. */
static void stretch(value_ref from, value_ref to, const int64_t *at, int64_t *out) {
    for (int i = 0; i < from->rank; i++) {
        int k = i + to->rank - from->rank;
        out[i] = k < 0 || from->size[i] == 1 ? 0 : at[k];
    }
}

static int axis_of_arg(const struct fold *f, const struct exported_node *n,
                       const char *name, int rank, int missing) {
    int64_t d = exported_int(f->p, n, name, missing);
    return d >= -rank && d < rank ? (int)(d < 0 ? d + rank : d) : -1;
}

/* ---- made of nothing --------------------------------------------------------------------- */

static const struct {
    const char *target;
    int value; /* 0, 1; 2 = the argument fill_value; 3 = a range; 4 = the argument s; 5 = unknown */
} makers[] = {{"aten.arange.default", 3},
              {"aten.arange.start", 3},
              {"aten.arange.start_step", 3},
              {"aten.full.default", 2},
              {"aten.full_like.default", 2},
              {"aten.new_full.default", 2},
              {"aten.zeros.default", 0},
              {"aten.zeros_like.default", 0},
              {"aten.new_zeros.default", 0},
              {"aten.ones.default", 1},
              {"aten.ones_like.default", 1},
              {"aten.new_ones.default", 1},
              {"aten.scalar_tensor.default", 4},
              {"aten.empty_like.default", 5},
              {"aten.empty_permuted.default", 5},
              {"aten.empty.memory_format", 5},
              {NULL, 0}};

static int maker_of(const char *target) {
    for (int i = 0; makers[i].target; i++)
        if (!strcmp(makers[i].target, target))
            return makers[i].value;
    return -1;
}

static double make(const struct fold *f, const struct exported_node *n, int how,
                   const int64_t *at) {
    switch (how) {
    case 2: return exported_number(f->p, n, "fill_value", (double)NAN);
    case 3:
        return exported_number(f->p, n, "start", 0) +
               (double)at[0] * exported_number(f->p, n, "step", 1);
    case 4: return exported_number(f->p, n, "s", (double)NAN);
    case 5: return (double)NAN;
    default: return how;
    }
}

/* ---- views: another place of the operand ----------------------------------------------------- */

static const char *const flat_views[] = {"aten.view.default",
                                         "aten.reshape.default",
                                         "aten._unsafe_view.default",
                                         "aten.unsqueeze.default",
                                         "aten.squeeze.dim",
                                         "aten.squeeze.default",
                                         "aten.flatten.using_ints",
                                         "aten.squeeze.dims",
                                         "aten.unflatten.int",
                                         "aten.expand_as.default_1",
                                         NULL};

static bool is_flat(const char *target) {
    for (int i = 0; flat_views[i]; i++)
        if (!strcmp(flat_views[i], target))
            return true;
    return false;
}

static bool turn(const struct fold *f, const struct exported_node *n, value_ref x,
                 const int64_t *at, int64_t *out) {
    int64_t order[EXPORTED_MAX_RANK];
    if (!strcmp(n->target, "aten.permute.default")) {
        if (exported_ints(f->p, n, "dims", order, EXPORTED_MAX_RANK) != x->rank)
            return false;
    } else {
        bool t = !strcmp(n->target, "aten.t.default") ||
                 !strcmp(n->target, "aten.numpy_T.default");
        int a = t ? 0 : axis_of_arg(f, n, "dim0", x->rank, 0);
        int b = t ? x->rank - 1 : axis_of_arg(f, n, "dim1", x->rank, 0);
        if (a < 0 || b < 0)
            return false;
        for (int i = 0; i < x->rank; i++)
            order[i] = i == a ? b : i == b ? a : i;
    }
    for (int i = 0; i < x->rank; i++) {
        int64_t d = order[i] < 0 ? order[i] + x->rank : order[i];
        if (d < 0 || d >= x->rank)
            return false;
        out[d] = at[i];
    }
    return true;
}

static bool cut(const struct fold *f, const struct exported_node *n, value_ref x,
                const int64_t *at, int64_t *out) {
    bool one = !strcmp(n->target, "aten.select.int");
    int d = axis_of_arg(f, n, "dim", x->rank, 0);
    if (d < 0)
        return false;
    int64_t from = exported_int(f->p, n, one ? "index" : "start", 0);
    if (from < 0)
        from += x->size[d];
    for (int i = 0, k = 0; i < x->rank; i++)
        out[i] = i != d ? at[k++]
                 : one  ? from
                        : from + at[k++] * exported_int(f->p, n, "step", 1);
    return true;
}

/* Element `at` of a view; false where it is none of those. */
static bool place(const struct fold *f, const struct exported_node *n, value_ref x,
                  value_ref y, const int64_t *at, int64_t *out) {
    const char *t = n->target + 5;
    if (is_flat(n->target))
        return unflatten(x, flat(y, at), out), true;
    if (!strcmp(t, "expand.default") || !strcmp(t, "expand_as.default"))
        return stretch(x, y, at, out), true;
    if (!strcmp(t, "permute.default") || !strcmp(t, "transpose.int") ||
        !strcmp(t, "t.default"))
        return turn(f, n, x, at, out);
    if (!strcmp(t, "slice.Tensor") || !strcmp(t, "select.int"))
        return cut(f, n, x, at, out);
    return false;
}

/* ---- what reads several elements ------------------------------------------------------------- */

static double join(const struct fold *f, const struct exported_node *n, value_ref y,
                   const int64_t *at) {
    int list[LIST_MOST], count = exported_tensors(f->p, n, "tensors", list, LIST_MOST);
    int d = axis_of_arg(f, n, "dim", y->rank, 0);
    int64_t from[EXPORTED_MAX_RANK];
    memcpy(from, at, sizeof *from * (size_t)y->rank);
    for (int i = 0; i < count && d >= 0; i++) {
        value_ref x = value_of(f, list[i]);
        if (x->rank != y->rank)
            break;
        if (from[d] < x->size[d])
            return fold_at(f, list[i], from);
        from[d] -= x->size[d];
    }
    return (double)NAN;
}

/* An index that a tensor of indexes says: those below zero count from the end. -1: it says none. */
static int64_t index_at(const struct fold *f, int ids, const int64_t *at, int64_t size) {
    double i = fold_at(f, ids, at);
    return i >= 0 && i < (double)size    ? (int64_t)i
           : i < 0 && i >= -(double)size ? (int64_t)i + size
                                         : -1;
}

/* x[i, j, ...] with tensors of places. */
static double look_up(const struct fold *f, const struct exported_node *n, value_ref y,
                      const int64_t *at) {
    int list[EXPORTED_MAX_RANK], x = exported_tensor(f->p, n, "self");
    int count = exported_tensors(f->p, n, "indices", list, EXPORTED_MAX_RANK), wide = 0;
    int64_t from[EXPORTED_MAX_RANK], in[EXPORTED_MAX_RANK];
    if (x < 0 || count < 0 || count > value_of(f, x)->rank)
        return (double)NAN;
    for (int i = 0; i < count; i++) {
        if (list[i] < 0)
            return (double)NAN;
        if (value_of(f, list[i])->rank > wide)
            wide = value_of(f, list[i])->rank;
    }
    int rest = value_of(f, x)->rank - count;
    if (wide + rest != y->rank)
        return (double)NAN;
    struct exported_value places = {.rank = wide};
    for (int i = 0; i < count; i++) {
        stretch(value_of(f, list[i]), &places, at, in);
        from[i] = index_at(f, list[i], in, value_of(f, x)->size[i]);
    }
    memcpy(from + count, at + wide, sizeof *from * (size_t)rest);
    return fold_at(f, x, from);
}

/* Elements along one axis, each by an index of its own. */
static double gather(const struct fold *f, const struct exported_node *n, int x,
                     const int64_t *at) {
    value_ref v = value_of(f, x);
    int d = axis_of_arg(f, n, "dim", v->rank, 0), ids = exported_tensor(f->p, n, "index");
    int64_t from[EXPORTED_MAX_RANK] = {0};
    if (d < 0 || ids < 0 || value_of(f, ids)->rank != v->rank)
        return (double)NAN;
    memcpy(from, at, sizeof *from * (size_t)v->rank);
    from[d] = index_at(f, ids, at, v->size[d]);
    return fold_at(f, x, from);
}

static double running_sum(const struct fold *f, const struct exported_node *n, int x,
                          const int64_t *at) {
    int rank = value_of(f, x)->rank, d = axis_of_arg(f, n, "dim", rank, 0);
    int64_t from[EXPORTED_MAX_RANK];
    double sum = 0;
    memcpy(from, at, sizeof *from * (size_t)rank);
    if (d < 0)
        return rank ? (double)NAN : fold_at(f, x, at);
    for (from[d] = 0; from[d] <= at[d]; from[d]++)
        sum += fold_at(f, x, from);
    return sum;
}

static double difference(const struct fold *f, const struct exported_node *n, int x,
                         const int64_t *at) {
    int before = exported_tensor(f->p, n, "prepend");
    int rank = value_of(f, x)->rank, d = axis_of_arg(f, n, "dim", rank, -1);
    int64_t from[EXPORTED_MAX_RANK];
    if (d < 0 || exported_int(f->p, n, "n", 1) != 1)
        return (double)NAN;
    memcpy(from, at, sizeof *from * (size_t)rank);
    int64_t first = before >= 0 ? value_of(f, before)->size[d] : 0;
    double v[2];
    for (int i = 0; i < 2; i++) {
        int64_t k = at[d] + i;
        from[d] = k < first ? k : k - first;
        v[i] = fold_at(f, k < first ? before : x, from);
    }
    return v[1] - v[0];
}

static double triangle(const struct fold *f, const struct exported_node *n, int x,
                       const int64_t *at, bool lower) {
    int rank = value_of(f, x)->rank;
    int64_t diagonal = exported_int(f->p, n, "diagonal", 0);
    if (rank < 2)
        return (double)NAN;
    int64_t over = at[rank - 1] - at[rank - 2];
    return (lower ? over <= diagonal : over >= diagonal) ? fold_at(f, x, at) : 0;
}

/* ---- one element ----------------------------------------------------------------------------- */

static double apply(const struct fold *f, const struct exported_node *n,
                    const struct point *point, value_ref y, const int64_t *at) {
    double v[3] = {0};
    int64_t in[EXPORTED_MAX_RANK];
    for (int i = 0; i < 3 && point->arg[i]; i++) {
        int x = exported_tensor(f->p, n, point->arg[i]);
        v[i] = exported_number(f->p, n, point->arg[i], (double)NAN);
        if (x >= 0) {
            stretch(value_of(f, x), y, at, in);
            v[i] = fold_at(f, x, in);
        }
    }
    double out = point_apply(point->id, v);
    const char *how = json_string_value(exported_arg(n, "rounding_mode"));
    out = !how ? out : !strcmp(how, "floor") ? floor(out) : trunc(out);
    return point->id == POINT_COPY && y->integer ? y->truth ? out != 0 : trunc(out) : out;
}

static double compute(const struct fold *f, int value, const int64_t *at) {
    value_ref y = value_of(f, value);
    const struct exported_node *n = &f->p->nodes[y->node];
    const char *t = n->target + 5;
    int64_t in[EXPORTED_MAX_RANK];
    if (f->values[value].maker >= 0)
        return make(f, n, f->values[value].maker, at);
    if (f->values[value].point)
        return apply(f, n, f->values[value].point, y, at);
    int x = exported_tensor(f->p, n, "self");
    if (!strcmp(t, "cat.default"))
        return join(f, n, y, at);
    if (!strcmp(t, "index.Tensor"))
        return look_up(f, n, y, at);
    if (x < 0)
        return (double)NAN;
    if (!strcmp(t, "gather.default"))
        return gather(f, n, x, at);
    if (!strcmp(t, "cumsum.default"))
        return running_sum(f, n, x, at);
    if (!strcmp(t, "diff.default"))
        return difference(f, n, x, at);
    if (!strcmp(t, "tril.default") || !strcmp(t, "triu.default"))
        return triangle(f, n, x, at, t[3] == 'l');
    return place(f, n, value_of(f, x), y, at, in) ? fold_at(f, x, in) : (double)NAN;
}

double fold_at(const struct fold *f, int value, const int64_t *at) {
    value_ref v = value_of(f, value);
    for (int i = 0; i < v->rank; i++)
        if (at[i] < 0 || at[i] >= v->size[i])
            return (double)NAN;
    const struct folded *c = &f->values[value];
    return !c->constant ? (double)NAN
           : c->dense   ? c->dense[flat(v, at)]
                        : compute(f, value, at);
}

/* ---- whole values ------------------------------------------------------------------------------ */

static void settle(struct fold *f, int value) {
    value_ref v = value_of(f, value);
    struct folded *c = &f->values[value];
    int64_t n = elements(v), at[EXPORTED_MAX_RANK];
    if (n > DENSE_MOST)
        return;
    double *dense = arena_array(&f->arena, (size_t)n + 1, sizeof *dense);
    for (int64_t i = 0; i < n; i++) {
        unflatten(v, i, at);
        dense[i] = fold_at(f, value, at);
    }
    f->work += (double)n * (c->depth + 1);
    c->dense = dense;
    c->depth = 0;
}

bool fold_is(struct fold *f, int value) {
    if (f->p->values.n >= f->room) { /* while a program is made, there come more */
        int64_t room = f->p->values.n + 1 + f->room;
        struct folded *values = arena_array(&f->arena, (size_t)room, sizeof *values);
        if (f->room)
            memcpy(values, f->values, (size_t)f->room * sizeof *values);
        f->values = values;
        f->room = room;
    }
    if (value < 0)
        return false;
    value_ref v = value_of(f, value);
    struct folded *c = &f->values[value];
    int64_t n = elements(v);
    if (!c->constant && v->role == EXPORTED_BUFFER && n <= DENSE_MOST * 16) {
        double *dense = arena_array(&f->arena, (size_t)n + 1, sizeof *dense);
        c->constant = exported_buffer(f->p, value, dense, NULL) == 0;
        c->dense = dense;
    }
    return c->constant;
}

/* Do we know how to compute it, from operands that are constant? */
static bool known(const struct exported_node *n) {
    static const char *const others[] = {
        "aten.cat.default",    "aten.index.Tensor",      "aten.cumsum.default",
        "aten.diff.default",   "aten.tril.default",      "aten.triu.default",
        "aten.expand.default", "aten.expand_as.default", "aten.permute.default",
        "aten.transpose.int",  "aten.t.default",         "aten.slice.Tensor",
        "aten.select.int",     "aten.gather.default",    NULL};
    for (int i = 0; others[i]; i++)
        if (!strcmp(others[i], n->target))
            return true;
    return point_find(n->target) || is_flat(n->target);
}

/* Of bits of whole numbers it knows nothing, nor of sums with a factor, nor of long running sums. */
static bool plain(const struct fold *f, const struct exported_node *n) {
    value_ref y = value_of(f, n->out[0]);
    if (exported_number(f->p, n, "alpha", 1) != 1 ||
        (!strcmp(n->target, "aten.cumsum.default") && elements(y) > DENSE_MOST / 4))
        return false;
    return !strstr(n->target, "bitwise") || y->truth;
}

bool fold_node(struct fold *f, int node) {
    const struct exported_node *n = &f->p->nodes[node];
    fold_is(f, -1);
    if (n->n_out != 1 || !value_of(f, n->out[0])->tensor || f->work > work_most)
        return false;
    const json_t *input;
    size_t i;
    int depth = 0, list[LIST_MOST];
    bool maker = maker_of(n->target) >= 0, constant = maker || (known(n) && plain(f, n));
    json_array_foreach(n->inputs, i, input) {
        const char *name = json_string_value(json_object_get(input, "name"));
        int v = name ? exported_tensor(f->p, n, name) : -1;
        int count = name ? exported_tensors(f->p, n, name, list, LIST_MOST) : -1;
        const json_t *arg = json_object_get(input, "arg");
        if (v >= 0)
            list[0] = v, count = 1;
        else if (count < 0 && (json_object_get(arg, "as_tensors") ||
                               json_object_get(arg, "as_optional_tensors")))
            constant &= maker;
        for (int k = 0; k < count && constant && !maker; k++) {
            constant = list[k] >= 0 && fold_is(f, list[k]);
            if (constant && f->values[list[k]].depth > depth)
                depth = f->values[list[k]].depth;
        }
    }
    if (!constant || depth >= DEPTH_MOST)
        return false;
    f->values[n->out[0]] = (struct folded){.constant = true,
                                           .depth = depth + 1,
                                           .point = point_find(n->target),
                                           .maker = maker_of(n->target)};
    settle(f, n->out[0]);
    return true;
}

bool fold_scalar(struct fold *f, int value, double *out) {
    int64_t at[EXPORTED_MAX_RANK] = {0};
    if (!fold_is(f, value) || elements(value_of(f, value)) != 1)
        return false;
    *out = fold_at(f, value, at);
    return true;
}

void fold_release(struct fold *f) {
    arena_release(&f->arena);
}
