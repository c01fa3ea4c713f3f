/* Union-find, where classes may be split into parts. */
#include "import/axes.h"

#include <stdlib.h>
#include <string.h>

void axes_release(struct axes *x) {
    for (int64_t i = 0; i < x->atoms.n; i++)
        arr_release(&x->atoms.p[i].apart);
    arr_release(&x->atoms);
    arr_release(&x->sets);
}

int axes_new(struct axes *x, int64_t size) {
    int a = (int)x->atoms.n;
    arr_push(&x->atoms, (struct atom){.parent = a, .size = size, .outer = -1, .inner = -1});
    return a;
}

int axes_class(const struct axes *x, int atom) {
    struct atom *p = x->atoms.p;
    while (p[atom].parent != atom) {
        p[atom].parent = p[p[atom].parent].parent;
        atom = p[atom].parent;
    }
    return atom;
}

static int settle_atom(const struct axes *x, int atom, struct axis *out) {
    /* Parts are split again as deep as their sizes have factors, at most 40 times. */
    atom = axes_class(x, atom);
    const struct atom *a = &x->atoms.p[atom];
    if (a->outer >= 0)
        return settle_atom(x, a->outer, out) < 0 ? -1 : settle_atom(x, a->inner, out);
    if (out->n == AXIS_MOST)
        return -1;
    out->atom[out->n++] = atom;
    return 0;
}

int axes_settle(const struct axes *x, struct axis *a) {
    struct axis out = {0};
    for (int i = 0; i < a->n; i++)
        if (settle_atom(x, a->atom[i], &out) < 0)
            return -1;
    *a = out;
    return 0;
}

int64_t axes_size(const struct axes *x, const struct axis *a) {
    int64_t n = 1;
    for (int i = 0; i < a->n; i++)
        n *= x->atoms.p[axes_class(x, a->atom[i])].size;
    return n;
}

bool axes_same(const struct axes *x, const struct axis *a, const struct axis *b) {
    struct axis p = *a, q = *b;
    if (axes_settle(x, &p) < 0 || axes_settle(x, &q) < 0 || p.n != q.n)
        return false;
    return !memcmp(p.atom, q.atom, sizeof *p.atom * (size_t)p.n);
}

/* Splits a class into an outer part of `size` and the rest. Its parts stay apart from what it did. */
static void split_class(struct axes *x, int class, int64_t size) {
    int outer = axes_new(x, size);
    int inner = axes_new(x, x->atoms.p[class].size / size);
    struct atom *a = &x->atoms.p[class];
    a->outer = outer;
    a->inner = inner;
    for (int64_t i = 0; i < a->apart.n; i++) {
        arr_push(&x->atoms.p[outer].apart, a->apart.p[i]);
        arr_push(&x->atoms.p[inner].apart, a->apart.p[i]);
    }
}

/* The first atom of a is split, and a is settled again. */
static int split_at(struct axes *x, struct axis *a, int i, int64_t size) {
    int64_t has = x->atoms.p[a->atom[i]].size;
    if (has % size)
        return -1;
    split_class(x, a->atom[i], size);
    return axes_settle(x, a);
}

int axes_split(struct axes *x, struct axis *a, int64_t size) {
    if (axes_settle(x, a) < 0)
        return -1;
    int64_t n = 1;
    for (int i = 0; n < size; i++) {
        if (i == a->n)
            return -1;
        int64_t has = x->atoms.p[a->atom[i]].size, wants = size / n;
        if (size % n || (has > wants && split_at(x, a, i, wants) < 0))
            return -1;
        n *= x->atoms.p[a->atom[i]].size;
        if (n == size)
            return i + 1;
    }
    return n == size ? 0 : -1;
}

static bool in_set(const struct axes *x, int set, int class) {
    const struct apart *s = &x->sets.p[set];
    for (int i = 0; i < s->n; i++) {
        struct axis one = axis_of(s->atom[i]);
        if (axes_settle(x, &one) < 0)
            continue;
        for (int k = 0; k < one.n; k++)
            if (one.atom[k] == class)
                return true;
    }
    return false;
}

/* The class in fewer sets knows whether the other is in one of them. */
static bool must_differ(const struct axes *x, int a, int b) {
    const struct atom *p = x->atoms.p;
    int few = p[a].apart.n <= p[b].apart.n ? a : b;
    for (int64_t i = 0; i < p[few].apart.n; i++)
        if (in_set(x, p[few].apart.p[i], few == a ? b : a))
            return true;
    return false;
}

static bool join(struct axes *x, int a, int b) {
    if (must_differ(x, a, b))
        return false;
    int keep = x->atoms.p[a].apart.n >= x->atoms.p[b].apart.n ? a : b,
        drop = keep == a ? b : a;
    x->atoms.p[drop].parent = keep;
    for (int64_t i = 0; i < x->atoms.p[drop].apart.n; i++)
        arr_push(&x->atoms.p[keep].apart, x->atoms.p[drop].apart.p[i]);
    return true;
}

enum axes_answer axes_unify(struct axes *x, struct axis *a, struct axis *b) {
    enum axes_answer answer = AXES_ONE;
    if (axes_settle(x, a) < 0 || axes_settle(x, b) < 0 ||
        axes_size(x, a) != axes_size(x, b))
        return AXES_DIFFER;
    for (int i = 0; i < a->n && i < b->n; i++) {
        int64_t na = x->atoms.p[a->atom[i]].size, nb = x->atoms.p[b->atom[i]].size;
        if ((na > nb && split_at(x, a, i, nb) < 0) ||
            (nb > na && split_at(x, b, i, na) < 0))
            return AXES_DIFFER;
        if (a->atom[i] != b->atom[i] && !join(x, a->atom[i], b->atom[i]))
            answer = AXES_CONFLICT;
        if (axes_settle(x, a) < 0 || axes_settle(x, b) < 0)
            return AXES_DIFFER;
    }
    return a->n == b->n ? answer : AXES_DIFFER;
}

void axes_apart(struct axes *x, const int *atom, int n) {
    struct apart s = {0};
    for (int i = 0; i < n && i < AXES_APART_MOST; i++)
        s.atom[s.n++] = atom[i];
    int set = (int)x->sets.n;
    arr_push(&x->sets, s);
    for (int i = 0; i < s.n; i++)
        arr_push(&x->atoms.p[axes_class(x, s.atom[i])].apart, set);
}
