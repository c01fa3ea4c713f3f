/* What constants make of the elements of one tensor: sums of these, times numbers that the program holds.
 * Such a value waits; each element of it is traced back to the tensor, in however many nodes it was
 * written. */
#include "import/follow.h"

#include <math.h>
#include <string.h>

enum { OPEN_MOST = 16, DEPTH_MOST = 48 };

/* ---- which nodes mix ---------------------------------------------------------------------------- */

/* As real numbers of which the last axis has two, or the other way round. */
static bool is_as_real(const char *target) {
    return !strcmp(target, "aten.view_as_real.default");
}

static bool is_as_complex(const char *target) {
    return !strcmp(target, "aten.view_as_complex.default");
}

bool follow_is_paired(const char *target) {
    return is_as_real(target) || is_as_complex(target);
}

static bool is_sum(const struct point *p) {
    return p && (p->id == POINT_ADD || p->id == POINT_SUB);
}

static bool is_product(const struct point *p) {
    return p && (p->id == POINT_MUL || p->id == POINT_DIV);
}

static bool is_constant(const struct follow *t, int value) {
    return value >= 0 && t->values[value] && t->values[value]->form == FORM_CONSTANT;
}

/* The values that a node mixes, those that are no constants; -1 where it does something else. */
static int mixes(const struct follow *t, const struct exported_node *n,
                 int out[OPEN_MOST]) {
    const struct point *p = point_find(n->target);
    int list[OPEN_MOST], count = 0, kept = 0;
    if (!strcmp(n->target, "aten.cat.default") ||
        !strcmp(n->target, "aten.stack.default")) {
        count = exported_tensors(n, "tensors", list, OPEN_MOST);
    } else if (fold_is_move(n->target) || follow_is_paired(n->target)) {
        list[count++] = exported_tensor(n, "self");
    } else if (p && (p->id == POINT_NEG || p->id == POINT_COPY)) {
        list[count++] = exported_tensor(n, p->arg[0]);
    } else if ((is_sum(p) || is_product(p)) && exported_number(n, "alpha", 1) == 1 &&
               !exported_arg(n, "rounding_mode")) {
        for (int i = 0; i < 2; i++)
            list[count++] = exported_tensor(n, p->arg[i]);
    }
    for (int i = 0; i < count; i++)
        if (list[i] >= 0 && !is_constant(t, list[i]))
            out[kept++] = list[i];
    if (is_sum(p) && kept != 2)
        return -1;
    return count > 0 && kept && (!is_product(p) || kept == 1) ? kept : -1;
}

static bool is_root(const struct followed *x) {
    return x && (x->form == FORM_TENSOR || x->form == FORM_HALF || x->form == FORM_SPAN ||
                 x->form == FORM_POINT || x->form == FORM_NORMED);
}

/* Adds values to those that are open, each once. */
static int open_also(int *open, int n, const int *more, int count) {
    for (int i = 0; i < count; i++) {
        bool has = false;
        for (int k = 0; k < n; k++)
            has |= open[k] == more[i];
        if (!has && n < OPEN_MOST)
            open[n++] = more[i];
    }
    return n;
}

/* Values stand in the order of their making: the last one that is open cannot be what the others are made
 * of, so it is replaced by what it is made of, until one is left. */
int follow_mixed_root(const struct follow *t, int value) {
    int open[OPEN_MOST] = {value}, n = 1, more[OPEN_MOST];
    for (int steps = 0; steps < 256 && n < OPEN_MOST; steps++) {
        int last = 0;
        for (int i = 1; i < n; i++)
            last = open[i] > open[last] ? i : last;
        int v = open[last], node = t->p->values.p[v].node;
        if (n == 1 && v != value && is_root(t->values[v]))
            return v;
        int count = node >= 0 ? mixes(t, &t->p->nodes[node], more) : -1;
        if (count < 0)
            return -1;
        open[last] = open[--n];
        n = open_also(open, n, more, count);
    }
    return -1;
}

/* ---- one element ------------------------------------------------------------------------------------ */

struct trace {
    struct follow *t;
    int root;
    struct follow_mix *mix;
};

static bool trace(struct trace *r, int value, const int64_t *at, int part, double by,
                  int depth);

static bool add_term(struct trace *r, const int64_t *at, double by) {
    struct follow_mix *m = r->mix;
    const int rank = r->t->p->values.p[r->root].rank;
    for (int i = 0; i < m->n; i++)
        if (!memcmp(m->at[i], at, sizeof *at * (size_t)rank)) {
            m->by[i] += by;
            return true;
        }
    if (m->n == MIX_TERMS)
        return false;
    memcpy(m->at[m->n], at, sizeof *at * (size_t)rank);
    m->by[m->n++] = by;
    return true;
}

/* An operand of a function of two, where it is stretched over the result. */
static void place_of(const struct trace *r, int operand, int result, const int64_t *at,
                     int64_t *out) {
    fold_stretch(&r->t->p->values.p[operand], &r->t->p->values.p[result], at, out);
}

/* A tensor times a constant, both of which may be complex. */
static bool trace_product(struct trace *r, const struct exported_node *n, int value,
                          const int64_t *at, int part, double by, int depth) {
    const struct point *p = point_find(n->target);
    struct follow *t = r->t;
    int a = exported_tensor(n, p->arg[0]), b = exported_tensor(n, p->arg[1]);
    int64_t in[EXPORTED_MAX_RANK], other[EXPORTED_MAX_RANK];
    if (a < 0 || (is_constant(t, a) && (p->id == POINT_DIV || b < 0)))
        return false;
    int x = is_constant(t, a) ? b : a, c = x == a ? b : a;
    double re = exported_number(n, p->arg[1], (double)NAN), im = 0;
    place_of(r, x, value, at, in);
    if (c >= 0) {
        if (!fold_is(&t->fold, c)) /* which reads its numbers, where they are in the file */
            return false;
        place_of(r, c, value, at, other);
        re = fold_at(&t->fold, c, other);
        im = fold_imaginary(&t->fold, c, other);
    }
    if (p->id == POINT_DIV && im == 0)
        return trace(r, x, in, part, by / re, depth);
    if (p->id == POINT_DIV || isnan(re) || isnan(im))
        return false;
    if (!t->p->values.p[x].complex)
        return im == 0 && trace(r, x, in, part, by * re, depth);
    const bool real = c < 0 || !t->p->values.p[c].complex;
    return trace(r, x, in, part, by * re, depth) &&
           (real || trace(r, x, in, !part, by * (part ? im : -im), depth));
}

static bool trace_point(struct trace *r, const struct exported_node *n, int value,
                        const int64_t *at, int part, double by, int depth) {
    const struct point *p = point_find(n->target);
    int64_t in[EXPORTED_MAX_RANK];
    if (is_product(p))
        return trace_product(r, n, value, at, part, by, depth);
    for (int i = 0; i < (is_sum(p) ? 2 : 1); i++) {
        int x = exported_tensor(n, p->arg[i]);
        double sign = p->id == POINT_NEG || (p->id == POINT_SUB && i) ? -1 : 1;
        if (x < 0)
            return false;
        place_of(r, x, value, at, in);
        if (!trace(r, x, in, part, sign * by, depth))
            return false;
    }
    return true;
}

/* `part`: 1 of the imaginary part of a complex value. */
static bool trace(struct trace *r, int value, const int64_t *at, int part, double by,
                  int depth) {
    const struct exported *p = r->t->p;
    const struct exported_value *v = &p->values.p[value];
    int64_t in[EXPORTED_MAX_RANK + 1];
    int from, more[OPEN_MOST];
    if (value == r->root)
        return part == 0 && add_term(r, at, by);
    const struct exported_node *n = v->node >= 0 ? &p->nodes[v->node] : NULL;
    if (!n || depth == 0 || isnan(by) || mixes(r->t, n, more) < 0)
        return false;
    if (fold_moved(p, value, at, &from, in))
        return trace(r, from, in, part, by, depth - 1);
    if (!follow_is_paired(n->target))
        return !fold_is_move(n->target) &&
               trace_point(r, n, value, at, part, by, depth - 1);
    from = exported_tensor(n, "self");
    memcpy(in, at, sizeof *in * (size_t)v->rank);
    if (is_as_real(n->target))
        return v->rank > 0 && trace(r, from, in, at[v->rank - 1] != 0, by, depth - 1);
    if (v->rank >= EXPORTED_MAX_RANK)
        return false;
    in[v->rank] = part;
    return trace(r, from, in, 0, by, depth - 1);
}

bool follow_mix_at(struct follow *t, int value, int root, const int64_t *at,
                   struct follow_mix *out) {
    struct trace r = {t, root, out};
    out->n = 0;
    return trace(&r, value, at, 0, 1, DEPTH_MOST);
}

/* ---- values that wait -------------------------------------------------------------------------------- */

const struct followed *follow_mixed(struct follow *t, int result) {
    const struct exported_value *v = &t->p->values.p[result];
    struct followed *y = follow_new(t, FORM_MIXED, NULL);
    y->value = result;
    y->rank = v->rank;
    for (int i = 0; i < v->rank; i++)
        y->axis[i] =
            v->size[i] == 1 ? (struct axis){0} : axis_of(axes_new(&t->axes, v->size[i]));
    return y;
}
