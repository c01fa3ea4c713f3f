/* Rotary positions: pairs of a head's dims that turn by angles which grow with the position. */
#include "import/follow.h"

#include <math.h>
#include <string.h>

enum {
    LEAD = 3,
    PAIRS_MOST = 256
}; /* samples, positions and heads, then the dims of a head */

struct turns {
    int value, root;                /* of the program: what has turned, and of what */
    int64_t d;                      /* of a head */
    int64_t from, size;             /* those of them that turn */
    bool neighbours;                /* pairs are (2i, 2i + 1), not (i, i + size/2) */
    int axis;                       /* that counts positions */
    double gain, angle[PAIRS_MOST]; /* from one position to the next, by pair */
};

/* ---- what it is ------------------------------------------------------------------------------------ */

struct row {
    double self,
        other;       /* what an element of the result has of its own, and of its partner */
    int64_t partner; /* or -1 */
};

/* The place of an element of the root along its dims behind the leading ones, which may be several; -1: of other
 * leading ones. */
static int64_t place_in_head(const struct exported_value *v, const int64_t *at,
                             const int64_t *lead) {
    int64_t place = 0;
    for (int i = 0; i < v->rank; i++)
        if (i < LEAD && at[i] != lead[i])
            return -1;
        else if (i >= LEAD)
            place = place * v->size[i] + at[i];
    return place;
}

static bool row_at(struct follow *t, const struct turns *r, const int64_t *lead, int64_t i,
                   struct row *out) {
    const struct exported_value *v = &t->p->values.p[r->root];
    int64_t at[EXPORTED_MAX_RANK] = {lead[0], lead[1], lead[2], i};
    struct follow_mix mix;
    *out = (struct row){.partner = -1};
    if (!follow_mix_at(t, r->value, r->root, at, &mix))
        return false;
    for (int k = 0; k < mix.n; k++) {
        int64_t place = place_in_head(v, mix.at[k], lead);
        if (place < 0 || (place != i && out->partner >= 0))
            return false;
        *(place == i ? &out->self : &out->other) = mix.by[k];
        if (place != i)
            out->partner = place;
    }
    return true;
}

static bool has_heads(struct follow *t, struct turns *r) {
    const struct exported_value *y = &t->p->values.p[r->value],
                                *x = &t->p->values.p[r->root];
    int64_t rest = 1;
    if (y->rank != LEAD + 1 || x->rank <= LEAD)
        return false;
    r->d = y->size[LEAD];
    for (int i = 0; i < x->rank; i++)
        if (i < LEAD && x->size[i] != y->size[i])
            return false;
        else if (i >= LEAD)
            rest *= x->size[i];
    return rest == r->d && r->d >= 2;
}

/* Which of them turn, and in which pairs. */
static bool find_pairs(struct follow *t, struct turns *r) {
    const int64_t first[LEAD] = {0};
    int64_t step = 0;
    r->from = -1;
    for (int64_t i = 0; i < r->d; i++) {
        struct row row;
        if (!row_at(t, r, first, i, &row))
            return false;
        if (row.partner < 0 && row.self != 1)
            return false;
        if (row.partner < 0)
            continue;
        if (r->from < 0) {
            r->from = i;
            step = row.partner - i;
        }
        if (i != r->from + r->size++ || step < 1)
            return false;
        int64_t k = i - r->from, partner = k / step % 2 ? i - step : i + step;
        if (row.partner != partner)
            return false;
    }
    r->neighbours = step == 1 && r->size > 2;
    return r->size >= 2 && r->size / 2 <= PAIRS_MOST &&
           (step == 1 || (r->size % 2 == 0 && step == r->size / 2)) && r->size % 2 == 0;
}

static int64_t first_of_pair(const struct turns *r, int64_t k) {
    return r->from + (r->neighbours ? 2 * k : k);
}

/* Is pair k turned by this angle, both of it? */
static bool is_turned(struct follow *t, const struct turns *r, const int64_t *lead,
                      int64_t k, double angle) {
    int64_t i = first_of_pair(r, k), j = r->neighbours ? i + 1 : i + r->size / 2;
    const double near = 2e-3 * r->gain, c = r->gain * cos(angle), s = r->gain * sin(angle);
    struct row a, b;
    return row_at(t, r, lead, i, &a) && row_at(t, r, lead, j, &b) &&
           fabs(a.self - c) < near && fabs(b.self - c) < near && fabs(a.other + s) < near &&
           fabs(b.other - s) < near;
}

/* The angles from position 0 to 1 along an axis; false where nothing turns. */
static bool find_angles(struct follow *t, struct turns *r, int axis) {
    int64_t lead[LEAD] = {0};
    struct row row;
    bool any = false;
    if (!row_at(t, r, lead, r->from, &row) || !(row.self > 0))
        return false;
    r->gain = row.self;
    r->axis = axis;
    lead[axis] = 1;
    for (int64_t k = 0; k < r->size / 2; k++) {
        if (!row_at(t, r, lead, first_of_pair(r, k), &row))
            return false;
        r->angle[k] = atan2(-row.other, row.self);
        any |= fabs(r->angle[k]) > 1e-9;
    }
    return any;
}

/* Do they turn so at all positions, for all samples and heads alike? Of many positions some are looked at. */
static bool turns_evenly(struct follow *t, const struct turns *r) {
    const int64_t *size = t->p->values.p[r->value].size;
    int64_t positions = size[r->axis], last[LEAD] = {size[0] - 1, size[1] - 1, size[2] - 1};
    for (int64_t k = 0; k < r->size / 2; k++) {
        for (int64_t p = 0; p < positions; p += p < 4 ? 1 : 1 + positions / 16) {
            int64_t lead[LEAD] = {0};
            lead[r->axis] = p;
            if (!is_turned(t, r, lead, k, (double)p * r->angle[k]))
                return false;
        }
        last[r->axis] = 1;
        if (!is_turned(t, r, last, k, r->angle[k]))
            return false;
    }
    return true;
}

static bool find_turns(struct follow *t, int value, struct turns *r) {
    *r = (struct turns){.value = value, .root = follow_mixed_root(t, value)};
    if (r->root < 0 || !has_heads(t, r) || !find_pairs(t, r))
        return false;
    for (int axis = 1; axis < LEAD; axis++)
        if (t->p->values.p[value].size[axis] > 1 && find_angles(t, r, axis))
            return turns_evenly(t, r);
    return false;
}

/* ---- its angles in words ------------------------------------------------------------------------- */

/* To a number that people write, which angles in f32 are as near to. */
static double rounded(double base) {
    double unit = pow(10, floor(log10(base)) - 3), near = round(base / unit) * unit;
    return fabs(near - base) < 1e-4 * base ? near : base;
}

/* The base of angles that are a power series, or 0. */
static double base_of(const struct turns *r) {
    int64_t pairs = r->size / 2;
    double base = pairs > 1 ? pow(r->angle[1] / r->angle[0], -(double)pairs) : 10000;
    for (int64_t k = 0; k < pairs; k++) {
        double want = r->angle[0] * pow(base, -(double)k / (double)pairs);
        if (!(fabs(r->angle[k] - want) <= 1e-5 * want))
            return 0;
    }
    return base >= 1 && base < 1e12 ? base : 0;
}

/* How many times slower each pair turns than with a base, which the slowest two of them say: any angles. */
static void say_list(struct follow *t, int op, const struct turns *r) {
    int64_t pairs = r->size / 2;
    double base = 10000;
    if (pairs > 1 && r->angle[pairs - 1] > 0 && r->angle[pairs - 2] > r->angle[pairs - 1])
        base = rounded(pow(r->angle[pairs - 2] / r->angle[pairs - 1], (double)pairs));
    if (!(base >= 1) || !(base < 1e12))
        base = 10000;
    json_t *list = json_array();
    for (int64_t k = 0; k < pairs; k++) {
        double plain = pow(base, -(double)k / (double)pairs);
        double slower = r->angle[k] != 0 ? plain / r->angle[k] : 1e30;
        json_array_append_new(
            list, json_real(fabs(fabs(slower) - 1) < 1e-6 ? copysign(1, slower) : slower));
    }
    follow_attr(t, op, "base", json_real(base));
    follow_attr(t, op, "short", json_incref(list));
    follow_attr(t, op, "long", list);
}

static void say_angles(struct follow *t, int op, const struct turns *r, int64_t d) {
    double base = base_of(r), share = (double)r->size / (double)d;
    if ((int64_t)(share * (double)d) < r->size)
        share = ((double)r->size + 0.5) / (double)d;
    if (base > 0)
        follow_attr(t, op, "base", json_real(rounded(base)));
    else
        say_list(t, op, r);
    if (base > 0 && fabs(r->angle[0] - 1) > 1e-6)
        follow_attr(t, op, "factor", json_real(rounded(1 / r->angle[0])));
    if (r->size < d)
        follow_attr(t, op, "share", json_real(share));
    if (fabs(r->gain - 1) > 1e-6)
        follow_attr(t, op, "gain", json_real(r->gain));
}

/* ---- the op ---------------------------------------------------------------------------------------- */

/* Is an atom a part of another, so that no weight has it beside its neighbours? */
static bool is_range(const struct follow *t, int atom) {
    for (int64_t i = 0; i < t->ranges.n; i++)
        if (t->ranges.p[i].as >= 0 && axes_class(&t->axes, t->ranges.p[i].as) == atom)
            return true;
    return false;
}

/* x with the heads of all groups as one dim, where they are cut out of a product of more; `order` is how its
 * axes lie. */
static const struct followed *grouped(struct follow *t, const struct followed *x, int d,
                                      const int *order) {
    struct axis heads = x->axis[d], dims = {0};
    bool cut = false;
    axes_settle(&t->axes, &heads);
    for (int i = 0; i < heads.n; i++)
        cut |= is_range(t, heads.atom[i]);
    if (!cut || heads.n < 2)
        return x;
    struct followed *y = follow_tensor(t, x->op, x);
    y->axis[d] = axis_of(axes_new(&t->axes, axes_size(&t->axes, &heads)));
    for (int i = 0; i < x->rank; i++)
        for (int k = 0; k < y->axis[order[i]].n && dims.n < AXIS_MOST; k++)
            dims.atom[dims.n++] = y->axis[order[i]].atom[k];
    y->op = follow_op(t, OP_reshape, dims);
    follow_operand(t, y->op, x);
    return y;
}

/* Heads that are repeated for several of queries turn as the one that they repeat: x without them, whose atoms
 * are put into *lost. */
static const struct followed *unrepeated(struct follow *t, const struct followed *x, int d,
                                         struct axis *lost) {
    struct axis dims = follow_dims(t, x), axis[EXPORTED_MAX_RANK], *heads = &axis[d];
    memcpy(axis, x->axis, sizeof axis);
    if (axes_settle(&t->axes, heads) < 0)
        return NULL;
    int kept = heads->n;
    for (bool has = false; kept > 0 && !has; kept -= !has)
        for (int i = 0; i < dims.n; i++)
            has |= dims.atom[i] == heads->atom[kept - 1];
    for (int i = kept; i < heads->n; i++)
        lost->atom[lost->n++] = heads->atom[i];
    heads->n = kept;
    return lost->n ? follow_reaxed(t, x, x->rank, axis) : x;
}

/* x, whose last dim is of neighbours, with the first of all pairs in front of the second ones: [.., 2, pairs] as
 * one dim. */
static const struct followed *by_halves(struct follow *t, const struct followed *x) {
    struct axis a = x->axis[LEAD], want = follow_dims(t, x);
    int64_t pairs = axes_size(&t->axes, &a) / 2;
    if (axes_split(&t->axes, &a, pairs) != 1 || a.n != 2)
        return follow_refuse(t, "neighbours that turn, of several dims");
    want = follow_dims(t, x);
    want.atom[want.n - 2] = a.atom[1];
    want.atom[want.n - 1] = a.atom[0];
    const struct followed *y = follow_lie(t, x, &want);
    if (!y)
        return follow_refuse(t, "neighbours that turn, of dims in another order");
    struct followed *z = follow_tensor(t, y->op, x);
    z->axis[LEAD] = axis_of(axes_new(&t->axes, 2 * pairs));
    want.n -= 1;
    want.atom[want.n - 1] = z->axis[LEAD].atom[0];
    z->op = follow_op(t, OP_reshape, want);
    follow_operand(t, z->op, y);
    return z;
}

/* All dims of x, or the first ones; what has neighbours for pairs is another form. */
static const struct followed *turned(struct follow *t, const struct turns *r,
                                     const struct followed *whole) {
    int order[] = {0, r->axis, 3 - r->axis, 3};
    struct axis lost = {0};
    const struct followed *x = unrepeated(t, whole, 3 - r->axis, &lost);
    if (!x || !follow_is_plain(t, x) || !(x = follow_arrange(t, x, order, 4)))
        return NULL;
    x = grouped(t, x, 3 - r->axis, order);
    if (r->neighbours && !(x = by_halves(t, x)))
        return NULL;
    int op = follow_op(t, OP_rotary, follow_dims(t, x));
    follow_operand(t, op, x);
    say_angles(t, op, r, axes_size(&t->axes, &x->axis[LEAD]));
    struct followed *y = follow_tensor(t, op, x);
    if (r->neighbours) {
        y->form = FORM_PAIRED;
        y->number = 1;
    }
    struct axis *heads = &y->axis[3 - r->axis];
    for (int i = 0; i < lost.n && heads->n < AXIS_MOST; i++)
        heads->atom[heads->n++] = lost.atom[i];
    return y;
}

/* What turns is a part of its own, and joined with what lies before and behind it. */
static const struct followed *turned_part(struct follow *t, const struct turns *r,
                                          const struct followed *x) {
    const int64_t from[] = {0, r->from, r->from + r->size},
                  size[] = {r->from, r->size, r->d - r->from - r->size};
    const struct followed *all = NULL;
    for (int i = 0; i < 3; i++) {
        if (!size[i])
            continue;
        const struct followed *part = follow_range(t, x, LEAD, from[i], size[i]);
        part = part ? follow_whole(t, part) : NULL;
        part = part && i == 1 ? turned(t, r, part) : part;
        if (!part)
            return NULL;
        all = all ? follow_join(t, all, part) : part;
        if (!all)
            return NULL;
    }
    return all;
}

const struct followed *follow_rotary(struct follow *t, int value) {
    struct turns r;
    struct axis axis[LEAD + 1];
    if (!find_turns(t, value, &r))
        return NULL;
    const struct followed *x = follow_whole(t, t->values[r.root]);
    if (!x)
        return NULL;
    memcpy(axis, x->axis, sizeof axis);
    for (int i = LEAD + 1; i < x->rank; i++)
        for (int k = 0; k < x->axis[i].n && axis[LEAD].n < AXIS_MOST; k++)
            axis[LEAD].atom[axis[LEAD].n++] = x->axis[i].atom[k];
    x = follow_reaxed(t, x, LEAD + 1, axis);
    return r.from == 0 && (!r.neighbours || r.size == r.d) ? turned(t, &r, x)
                                                           : turned_part(t, &r, x);
}

const struct followed *follow_unmixed(struct follow *t, const struct followed *x) {
    const char *why = t->why;
    if (x && x->whole && (x->form == FORM_NORMED || x->form == FORM_SCALED))
        return x->whole;
    if (!x || x->form != FORM_MIXED)
        return x;
    if (!x->whole)
        ((struct followed *)x)->whole = follow_rotary(t, x->value);
    t->why = why;
    return x->whole ? x->whole : x;
}

/* ---- parts of heads behind each other -------------------------------------------------------------- */

/* x as [batch, seq, heads, d] in whichever order its axes say that; d one dim of its own. */
static const struct followed *as_heads(struct follow *t, const struct followed *x,
                                       int seq) {
    const int order[] = {0, seq, 3 - seq, 3};
    struct axis last = x->axis[LEAD];
    x = follow_is_plain(t, x) ? follow_arrange(t, x, order, 4) : NULL;
    if (!x || axes_settle(&t->axes, &last) < 0)
        return NULL;
    return last.n == 1 ? x : follow_merged(t, x);
}

/* The axis of positions, which lies before that of heads: 1 or 2. */
static int position_axis(struct follow *t, const struct followed *x) {
    struct axis a = x->axis[1], dims = follow_dims(t, x);
    axes_settle(&t->axes, &a);
    return a.n && dims.n > 1 && dims.atom[1] == a.atom[0] ? 1 : 2;
}

const struct followed *follow_join(struct follow *t, const struct followed *a,
                                   const struct followed *b) {
    struct axis lost = {0}, none = {0};
    const bool scaled = (a->form == FORM_PAIRED && a->number != 1) ||
                        (b->form == FORM_PAIRED && b->number != 1);
    if (a->rank != LEAD + 1 || b->rank != LEAD + 1 || scaled)
        return follow_refuse(t, "parts that are joined, other than of heads");
    int seq = position_axis(t, a);
    const struct followed *x = unrepeated(t, a, 3 - seq, &none),
                          *z = unrepeated(t, b, 3 - seq, &lost);
    x = x && !none.n ? as_heads(t, x, seq) : NULL;
    z = x && z ? as_heads(t, z, seq) : NULL;
    if (!z)
        return follow_refuse(t, "parts that are joined, other than of heads");
    for (int i = 0; i < LEAD; i++) {
        struct axis p = x->axis[i], q = z->axis[i];
        bool fewer = i == 3 - seq && lost.n;
        if (!fewer && axes_unify(&t->axes, &p, &q) != AXES_ONE)
            return follow_refuse(t, "parts of different heads are joined");
    }
    struct followed *y = follow_tensor(t, -1, x);
    struct axis dims = follow_dims(t, x);
    y->axis[LEAD] = axis_of(axes_new(&t->axes, axes_size(&t->axes, &x->axis[LEAD]) +
                                                   axes_size(&t->axes, &z->axis[LEAD])));
    dims.atom[dims.n - 1] = y->axis[LEAD].atom[0];
    y->op = follow_op(t, OP_join, dims);
    follow_operand(t, y->op, x);
    follow_operand(t, y->op, z);
    if (a->form == FORM_PAIRED || b->form == FORM_PAIRED) {
        y->form = FORM_PAIRED;
        y->number = 1;
    }
    return y;
}
