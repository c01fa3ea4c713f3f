/* Elements of constants, from those of what they are made of. */
#include "import/fold.h"

#include "import/point.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DENSE_MOST = 1 << 16, DEPTH_MOST = 64, LIST_MOST = 64, PRODUCT_MOST = 16 };
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

static double make(const struct exported_node *n, int how, const int64_t *at) {
    switch (how) {
    case 2: return exported_number(n, "fill_value", (double)NAN);
    case 3:
        return exported_number(n, "start", 0) +
               (double)at[0] * exported_number(n, "step", 1);
    case 4: return exported_number(n, "s", (double)NAN);
    case 5: return (double)NAN;
    default: return how;
    }
}

/* ---- what reads several elements ------------------------------------------------------------- */

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
    int list[EXPORTED_MAX_RANK], x = exported_tensor(n, "self");
    int count = exported_tensors(n, "indices", list, EXPORTED_MAX_RANK), wide = 0;
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
        fold_stretch(value_of(f, list[i]), &places, at, in);
        from[i] = index_at(f, list[i], in, value_of(f, x)->size[i]);
    }
    memcpy(from + count, at + wide, sizeof *from * (size_t)rest);
    return fold_at(f, x, from);
}

/* Elements along one axis, each by an index of its own. */
static double gather(const struct fold *f, const struct exported_node *n, int x,
                     const int64_t *at) {
    value_ref v = value_of(f, x);
    int d = exported_axis(n, "dim", v->rank, 0), ids = exported_tensor(n, "index");
    int64_t from[EXPORTED_MAX_RANK] = {0};
    if (d < 0 || ids < 0 || value_of(f, ids)->rank != v->rank)
        return (double)NAN;
    memcpy(from, at, sizeof *from * (size_t)v->rank);
    from[d] = index_at(f, ids, at, v->size[d]);
    return fold_at(f, x, from);
}

static double running_sum(const struct fold *f, const struct exported_node *n, int x,
                          const int64_t *at) {
    int rank = value_of(f, x)->rank, d = exported_axis(n, "dim", rank, 0);
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
    int before = exported_tensor(n, "prepend");
    int rank = value_of(f, x)->rank, d = exported_axis(n, "dim", rank, -1);
    int64_t from[EXPORTED_MAX_RANK];
    if (d < 0 || exported_int(n, "n", 1) != 1)
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
    int64_t diagonal = exported_int(n, "diagonal", 0);
    if (rank < 2)
        return (double)NAN;
    int64_t over = at[rank - 1] - at[rank - 2];
    return (lower ? over <= diagonal : over >= diagonal) ? fold_at(f, x, at) : 0;
}

/* Rows times columns, as angles of positions times frequencies. */
static const char *second_of(const char *target) {
    static const char *const products[][2] = {{"aten.matmul.default", "other"},
                                              {"aten.bmm.default", "mat2"},
                                              {"aten.mm.default", "mat2"},
                                              {"aten.outer.default", "vec2"}};
    for (int i = 0; i < 4; i++)
        if (!strcmp(products[i][0], target))
            return products[i][1];
    return NULL;
}

static double product(const struct fold *f, const struct exported_node *n, value_ref y,
                      const int64_t *at) {
    int a = exported_tensor(n, "self"), b = exported_tensor(n, second_of(n->target));
    if (a < 0 || b < 0)
        return (double)NAN;
    value_ref v = value_of(f, a), w = value_of(f, b);
    int64_t in[EXPORTED_MAX_RANK], other[EXPORTED_MAX_RANK];
    double sum = 0;
    if (y->rank == 2 && v->rank == 1 && w->rank == 1)
        return fold_at(f, a, at) * fold_at(f, b, at + 1);
    if (v->rank < 2 || w->rank < 2 || v->rank > y->rank || w->rank > y->rank ||
        v->size[v->rank - 1] > PRODUCT_MOST)
        return (double)NAN;
    fold_stretch(v, y, at, in);
    fold_stretch(w, y, at, other);
    in[v->rank - 2] = at[y->rank - 2];
    other[w->rank - 1] = at[y->rank - 1];
    for (int64_t k = 0; k < v->size[v->rank - 1]; k++) {
        in[v->rank - 1] = other[w->rank - 2] = k;
        sum += fold_at(f, a, in) * fold_at(f, b, other);
    }
    return sum;
}

/* ---- complex numbers ------------------------------------------------------------------------- */

/* Of those it knows what moves them and what makes them. */
static bool is_polar(const char *target) {
    return !strcmp(target, "aten.polar.default");
}

static double polar(const struct fold *f, const struct exported_node *n, value_ref y,
                    const int64_t *at, bool imaginary) {
    int a = exported_tensor(n, "abs"), b = exported_tensor(n, "angle");
    int64_t in[EXPORTED_MAX_RANK], other[EXPORTED_MAX_RANK];
    if (a < 0 || b < 0)
        return (double)NAN;
    fold_stretch(value_of(f, a), y, at, in);
    fold_stretch(value_of(f, b), y, at, other);
    double angle = fold_at(f, b, other);
    return fold_at(f, a, in) * (imaginary ? sin(angle) : cos(angle));
}

double fold_imaginary(const struct fold *f, int value, const int64_t *at) {
    value_ref v = value_of(f, value);
    const struct folded *c = &f->values[value];
    int from;
    int64_t in[EXPORTED_MAX_RANK];
    if (!v->complex)
        return 0;
    if (!c->constant)
        return (double)NAN;
    if (c->imaginary)
        return c->imaginary[fold_flat(v, at)];
    const struct exported_node *n = v->node >= 0 ? &f->p->nodes[v->node] : NULL;
    if (!n)
        return (double)NAN;
    if (is_polar(n->target))
        return polar(f, n, v, at, true);
    if (c->point && c->point->id == POINT_COPY)
        return fold_imaginary(f, exported_tensor(n, c->point->arg[0]), at);
    return fold_moved(f->p, value, at, &from, in) ? fold_imaginary(f, from, in)
                                                  : (double)NAN;
}

static double part_of(const struct fold *f, int x, const int64_t *at) {
    return at[value_of(f, x)->rank] ? fold_imaginary(f, x, at) : fold_at(f, x, at);
}

/* Is nothing complex computed with? Its parts may be seen as real numbers. */
static bool is_real(const struct fold *f, const struct exported_node *n) {
    const struct point *p = point_find(n->target);
    int x = exported_tensor(n, p && p->arg[0] ? p->arg[0] : "self"),
        other = p && p->arg[1] ? exported_tensor(n, p->arg[1]) : -1;
    bool result = value_of(f, n->out[0])->complex,
         operand = (x >= 0 && value_of(f, x)->complex) ||
                   (other >= 0 && value_of(f, other)->complex);
    if (!strcmp(n->target, "aten.view_as_real.default") || is_polar(n->target))
        return true;
    return result == operand &&
           (!operand || fold_is_move(n->target) || (p && p->id == POINT_COPY));
}

/* ---- one element ----------------------------------------------------------------------------- */

static double apply(const struct fold *f, const struct exported_node *n,
                    const struct point *point, value_ref y, const int64_t *at) {
    double v[3] = {0};
    int64_t in[EXPORTED_MAX_RANK];
    for (int i = 0; i < 3 && point->arg[i]; i++) {
        int x = exported_tensor(n, point->arg[i]);
        v[i] = exported_number(n, point->arg[i], (double)NAN);
        if (x >= 0) {
            fold_stretch(value_of(f, x), y, at, in);
            v[i] = fold_at(f, x, in);
        }
    }
    double out = point_apply(point->id, v);
    const char *how = exported_text(n, "rounding_mode");
    out = !how ? out : !strcmp(how, "floor") ? floor(out) : trunc(out);
    return point->id == POINT_COPY && y->integer ? y->truth ? out != 0 : trunc(out) : out;
}

static double compute(const struct fold *f, int value, const int64_t *at) {
    value_ref y = value_of(f, value);
    const struct exported_node *n = &f->p->nodes[y->node];
    const char *t = n->target + 5;
    int64_t in[EXPORTED_MAX_RANK];
    if (f->values[value].maker >= 0)
        return make(n, f->values[value].maker, at);
    if (f->values[value].point)
        return apply(f, n, f->values[value].point, y, at);
    int x = exported_tensor(n, "self");
    int moved;
    if (fold_is_move(n->target))
        return fold_moved(f->p, value, at, &moved, in) ? fold_at(f, moved, in)
                                                       : (double)NAN;
    if (!strcmp(t, "index.Tensor"))
        return look_up(f, n, y, at);
    if (second_of(n->target))
        return product(f, n, y, at);
    if (is_polar(n->target))
        return polar(f, n, y, at, false);
    if (x < 0)
        return (double)NAN;
    if (!strcmp(t, "view_as_real.default"))
        return part_of(f, x, at);
    if (!strcmp(t, "gather.default"))
        return gather(f, n, x, at);
    if (!strcmp(t, "cumsum.default"))
        return running_sum(f, n, x, at);
    if (!strcmp(t, "diff.default"))
        return difference(f, n, x, at);
    if (!strcmp(t, "tril.default") || !strcmp(t, "triu.default"))
        return triangle(f, n, x, at, t[3] == 'l');
    return (double)NAN;
}

double fold_at(const struct fold *f, int value, const int64_t *at) {
    value_ref v = value_of(f, value);
    for (int i = 0; i < v->rank; i++)
        if (at[i] < 0 || at[i] >= v->size[i])
            return (double)NAN;
    const struct folded *c = &f->values[value];
    return !c->constant ? (double)NAN
           : c->dense   ? c->dense[fold_flat(v, at)]
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
    double *imaginary =
        v->complex ? arena_array(&f->arena, (size_t)n + 1, sizeof *dense) : NULL;
    for (int64_t i = 0; i < n; i++) {
        fold_unflatten(v, i, at);
        dense[i] = fold_at(f, value, at);
        if (imaginary)
            imaginary[i] = fold_imaginary(f, value, at);
    }
    c->imaginary = imaginary;
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
    if (!c->constant && !c->changed && v->role == EXPORTED_BUFFER && n <= DENSE_MOST * 16) {
        double *dense = arena_array(&f->arena, 2 * (size_t)n + 1, sizeof *dense);
        c->constant = exported_buffer(f->p, value, dense, NULL) == 0;
        c->dense = dense;
        for (int64_t i = 0; i < n && v->complex; i++) {
            if (i == 0)
                c->imaginary = arena_array(&f->arena, (size_t)n, sizeof *dense);
            c->imaginary[i] = dense[2 * i + 1];
            dense[i] = dense[2 * i];
        }
    }
    return c->constant;
}

/* Do we know how to compute it, from operands that are constant? */
static bool known(const struct exported_node *n) {
    static const char *const others[] = {
        "aten.index.Tensor",  "aten.cumsum.default",       "aten.diff.default",
        "aten.tril.default",  "aten.triu.default",         "aten.gather.default",
        "aten.polar.default", "aten.view_as_real.default", NULL};
    for (int i = 0; others[i]; i++)
        if (!strcmp(others[i], n->target))
            return true;
    return point_find(n->target) || fold_is_move(n->target) || second_of(n->target);
}

/* Of bits of whole numbers it knows nothing, nor of sums with a factor, nor of long running sums. */
static bool plain(const struct fold *f, const struct exported_node *n) {
    value_ref y = value_of(f, n->out[0]);
    if (exported_number(n, "alpha", 1) != 1 ||
        (!strcmp(n->target, "aten.cumsum.default") && elements(y) > DENSE_MOST / 4))
        return false;
    return is_real(f, n) && (!strstr(n->target, "bitwise") || y->truth);
}

/* Are all operands constant? *depth: the deepest of them. */
static bool operands_are(struct fold *f, const struct exported_node *n, int *depth) {
    for (int i = 0; i < n->n_args; i++) {
        const int *list;
        int count = exported_values(&n->args[i], &list);
        if (count > LIST_MOST)
            return false;
        for (int k = 0; k < count; k++) {
            if (list[k] < 0 || !fold_is(f, list[k]))
                return false;
            if (f->values[list[k]].depth > *depth)
                *depth = f->values[list[k]].depth;
        }
    }
    return true;
}

bool fold_node(struct fold *f, int node) {
    const struct exported_node *n = &f->p->nodes[node];
    fold_is(f, -1);
    if (n->n_out < 1 || (n->n_out > 1 && !fold_is_move(n->target)) ||
        !value_of(f, n->out[0])->tensor || f->work > work_most)
        return false;
    int depth = 0, maker = maker_of(n->target);
    if (maker < 0 && (!known(n) || !plain(f, n) || !operands_are(f, n, &depth)))
        return false;
    if (depth >= DEPTH_MOST)
        return false;
    for (int k = 0; k < n->n_out; k++) {
        f->values[n->out[k]] = (struct folded){.constant = true,
                                               .depth = depth + 1,
                                               .point = point_find(n->target),
                                               .maker = maker};
        settle(f, n->out[k]);
    }
    return true;
}

void fold_change(struct fold *f, int value, int other) {
    const bool known = other >= 0 && f->values[other].dense;
    f->values[value] = known ? f->values[other] : (struct folded){.changed = true};
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
