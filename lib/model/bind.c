/* Binding an op: the dims of its tensors take the places of its kind's patterns, and become its
 * iteration space. */
#include "model/bind.h"

#include <string.h>

enum { PRIME = 128, N_LETTERS = 2 * PRIME, ANY = -1 };

/* What each letter stands for so far. Large models bind thousands of ops, so what need not be set is
 * not. */
struct binding {
    const struct model_dim *dims;
    int8_t n[N_LETTERS];                 /* ANY = not known yet */
    int dim[N_LETTERS][TENSOR_MAX_RANK]; /* of known ones */
    int grouped[N_LETTERS];              /* the dim that counts groups of it, or ANY */
    int at[N_LETTERS];                   /* where its first dim stands in the space */
};

/* Its place in the binding; 0 for a number. */
static int letter_of(const struct pattern_dim *p) {
    return p->name ? p->name + (p->primed ? PRIME : 0) : 0;
}

/* One slot of the op: what is asked, what is there, where its map goes. */
struct slot {
    const struct kind_slot *kind;
    const struct shape *shape;
    struct axis_map *map;
};

static void put_dim(char *buf, size_t n, const char *name) {
    size_t used = strlen(buf);
    snprintf(buf + used, n - used, "%s%s", buf[used - 1] == '[' ? "" : ", ", name);
}

static const char *shape_text(const struct binding *b, const struct shape *s, char *buf,
                              size_t n) {
    snprintf(buf, n, "[");
    for (int i = 0; i < s->rank; i++)
        put_dim(buf, n, b->dims[s->dim[i]].name);
    snprintf(buf + strlen(buf), n - strlen(buf), "]");
    return buf;
}

/* The pattern with what is known in it: "[batch, seq, ..., *]". */
static const char *pattern_text(const struct binding *b, const struct kind_slot *k,
                                char *buf, size_t n) {
    snprintf(buf, n, "[");
    for (int i = 0; i < k->rank; i++) {
        const struct pattern_dim *p = &k->dim[i];
        char number[16];
        snprintf(number, sizeof number, "%d", p->size);
        int letter = letter_of(p), few = p->grouped ? b->grouped[letter] : ANY;
        if (!letter)
            put_dim(buf, n, number);
        else if (p->grouped)
            put_dim(buf, n, few == ANY ? "*" : b->dims[few].name);
        else if (b->n[letter] == ANY)
            put_dim(buf, n, p->group ? "..." : "*");
        else
            for (int d = 0; d < b->n[letter]; d++)
                put_dim(buf, n, b->dims[b->dim[letter][d]].name);
    }
    snprintf(buf + strlen(buf), n - strlen(buf), "]");
    return buf;
}

static int mismatch(const struct binding *b, const struct slot *s, struct err *err) {
    char want[512], got[512];
    return err_input(err, "%s: expected the dims %s, got %s", s->kind->name,
                     pattern_text(b, s->kind, want, sizeof want),
                     shape_text(b, s->shape, got, sizeof got));
}

/* Groups of the pattern whose length is not known; *fixed gets the rank of all else. */
static int open_groups(const struct binding *b, const struct kind_slot *k, int *fixed) {
    int open = 0;
    *fixed = 0;
    for (int i = 0; i < k->rank; i++) {
        const struct pattern_dim *p = &k->dim[i];
        if (p->group && b->n[letter_of(p)] == ANY)
            open++;
        else
            *fixed += p->group ? b->n[letter_of(p)] : 1;
    }
    return open;
}

static bool unknown(const struct binding *b, const struct pattern_dim *p) {
    return (p->grouped ? b->grouped[letter_of(p)] : b->n[letter_of(p)]) == ANY;
}

static void forget(struct binding *b, const struct pattern_dim *p) {
    if (p->grouped)
        b->grouped[letter_of(p)] = ANY;
    else
        b->n[letter_of(p)] = ANY;
}

/* The dim that counts groups of a letter takes this one, or is compared with it. */
static bool take_grouped(struct binding *b, int letter, int dim) {
    if (b->grouped[letter] == ANY)
        b->grouped[letter] = dim;
    return b->grouped[letter] == dim;
}

/* Takes `count` dims of the shape from `at` on for a letter, or compares them. */
static bool take(struct binding *b, int letter, const struct shape *s, int at, int count) {
    if (b->n[letter] == ANY) {
        b->n[letter] = (int8_t)count;
        memcpy(b->dim[letter], s->dim + at, sizeof *s->dim * (size_t)count);
        return true;
    }
    return b->n[letter] == count &&
           !memcmp(b->dim[letter], s->dim + at, sizeof *s->dim * (size_t)count);
}

/* One slot: letters that are known must agree, the others take what stands there. A group of unknown
 * length takes the dims that the rest of the pattern leaves. */
static int match(struct binding *b, const struct slot *s, struct err *err) {
    int fixed, open = open_groups(b, s->kind, &fixed), at = 0;
    int rest = s->shape->rank - fixed;
    if (rest < 0 || (!open && rest))
        return mismatch(b, s, err);
    bool taken
        [KIND_MAX_PATTERN]; /* from this slot: the message shows what was known before */
    for (int i = 0; i < s->kind->rank; i++) {
        const struct pattern_dim *p = &s->kind->dim[i];
        int letter = letter_of(p);
        taken[i] = unknown(b, p);
        int count = !p->group ? 1 : b->n[letter] != ANY ? b->n[letter] : rest;
        bool ok = p->grouped ? take_grouped(b, letter, s->shape->dim[at])
                  : letter   ? take(b, letter, s->shape, at, count)
                             : b->dims[s->shape->dim[at]].size == p->size;
        for (int j = 0; j <= i && !ok; j++)
            if (taken[j])
                forget(b, &s->kind->dim[j]);
        if (!ok)
            return mismatch(b, s, err);
        const struct model_dim *dim = &b->dims[s->shape->dim[at]];
        if (p->multiple && dim->size % p->multiple)
            return err_input(err, "%s: %.64s (%lld) is no multiple of %d", s->kind->name,
                             dim->name, (long long)dim->size, p->multiple);
        at += count;
    }
    return 0;
}

/* Slots with one group of unknown length at most, until none is left: [B.. P..] waits for a
 * weight[P..]. */
static int match_all(struct binding *b, const struct slot *slots, int n, struct err *err) {
    bool done[3 * KIND_MAX_SLOTS] = {false};
    for (int left = n; left > 0;) {
        int before = left;
        for (int i = 0; i < n; i++) {
            int fixed;
            if (done[i] || open_groups(b, slots[i].kind, &fixed) > 1)
                continue;
            if (match(b, &slots[i], err) < 0)
                return -1;
            done[i] = true;
            left--;
        }
        if (left == before)
            return err_input(err, "the dims do not determine each other");
    }
    return 0;
}

static int add_dim(const struct binding *b, struct op_space *s, int dim, enum role role,
                   struct err *err) {
    /* What no layout splits may have the name of another, which it means then. */
    if (role != ROLE_gathered && role != ROLE_whole && op_space_find(s, dim) >= 0)
        return err_input(err, "dim \"%.64s\" has two roles in this op", b->dims[dim].name);
    if (s->n == OP_MAX_SPACE)
        return err_input(err, "more than %d dims in one op", OP_MAX_SPACE);
    s->dim[s->n] = dim;
    s->alias[s->n] = -1;
    s->role[s->n++] = role;
    return 0;
}

/* The dim that slot dim d is in the space: a primed one is there under its own name, the
 * result's. */
static int add_letter(const struct binding *b, const struct kind *k, int letter, int dim,
                      struct op_space *space, struct err *err) {
    int primed = letter + PRIME;
    bool renamed = letter && b->n[primed] != ANY && b->dim[primed][0] != dim;
    int name = renamed ? b->dim[primed][0] : dim;
    if (renamed && op_space_find(space, dim) >= 0)
        return err_input(err, "dim \"%.64s\" has two roles in this op", b->dims[dim].name);
    if (add_dim(b, space, name, letter ? k->role[letter] : ROLE_whole, err) < 0)
        return -1;
    if (renamed)
        space->alias[space->n - 1] = dim;
    return 0;
}

/* The space in the order in which dims appear: operands, parameters, results. */
static int fill_space(struct binding *b, const struct kind *k, const struct slot *slots,
                      int n, struct op_space *space, struct err *err) {
    memset(b->at, ANY, sizeof b->at);
    for (int i = 0; i < n; i++) {
        int at = 0;
        for (int j = 0; j < slots[i].kind->rank; j++) {
            const struct pattern_dim *p = &slots[i].kind->dim[j];
            int letter = p->name, count = !letter || p->grouped ? 1 : b->n[letter_of(p)];
            bool known = p->grouped || (letter && b->at[letter] != ANY);
            b->at[letter] = known ? b->at[letter] : space->n;
            for (int d = 0; d < count && !known; d++)
                if (add_letter(b, k, letter, slots[i].shape->dim[at + d], space, err) < 0)
                    return -1;
            at += count;
        }
    }
    return 0;
}

/* An axis is the dim of the space that has its name: maps of kinds that rename nothing. */
static void fill_maps(const struct slot *slots, int n, const struct op_space *space) {
    for (int i = 0; i < n; i++) {
        memset(slots[i].map, -1, sizeof *slots[i].map);
        for (int a = 0; a < slots[i].shape->rank; a++)
            slots[i].map->axis[op_space_find(space, slots[i].shape->dim[a])] = (int8_t)a;
    }
}

/* No dim is larger than one that the kind says it is at most as large as. */
static int check_sizes(const struct binding *b, const struct kind *k, struct err *err) {
    for (int c = 0; c < PRIME; c++) {
        if (!k->at_most[c])
            continue;
        const struct model_dim *small = &b->dims[b->dim[c][0]],
                               *large = &b->dims[b->dim[(int)k->at_most[c]][0]];
        if (small->size > large->size)
            return err_input(err, "%.64s (%lld) is larger than %.64s (%lld)", small->name,
                             (long long)small->size, large->name, (long long)large->size);
    }
    return 0;
}

/* The window of halo dim k, and whether the result has as many places as it fits in. */
static int bind_window(const struct binding *b, const struct kind *k, int letter,
                       struct model_op *op, struct err *err) {
    struct op_space *s = &op->space;
    int at = op_space_find(s, b->dim[letter][0]), taps = k->window[letter];
    const struct model_dim *x = &b->dims[b->dim[letter][0]],
                           *y = &b->dims[b->dim[letter + PRIME][0]];
    int64_t stride = (int64_t)op->attr[ATTR_stride],
            padding = (int64_t)op->attr[ATTR_padding];
    s->window[at] = taps ? b->dims[b->dim[taps][0]].size : (int64_t)op->attr[ATTR_kernel];
    int64_t room = x->size + 2 * padding - s->window[at];
    if (padding >= s->window[at])
        return err_input(err, "padding: %lld is not less than the window of %lld",
                         (long long)padding, (long long)s->window[at]);
    if (room < 0)
        return err_input(err, "x: \"%.64s\" (%lld) is shorter than the window of %lld",
                         x->name, (long long)x->size, (long long)s->window[at]);
    if (y->size != room / stride + 1)
        return err_input(err,
                         "y: \"%.64s\" is %lld, expected %lld: windows of %lld at stride "
                         "%lld over \"%.64s\" (%lld), padded by %lld",
                         y->name, (long long)y->size, (long long)(room / stride + 1),
                         (long long)s->window[at], (long long)stride, x->name,
                         (long long)x->size, (long long)padding);
    return 0;
}

static int bind_windows(const struct binding *b, struct model_op *op, struct err *err) {
    const struct kind *k = kind_of(op->kind);
    for (int letter = 0; letter < PRIME; letter++)
        if (k->role[letter] == ROLE_halo && bind_window(b, k, letter, op, err) < 0)
            return -1;
    return 0;
}

/* What has groups of samples has them in its first dim. */
static int check_samples(const struct binding *b, const struct model_op *op,
                         struct err *err) {
    if (!kind_of(op->kind)->needs_attr[ATTR_group] || !b->dims[op->space.dim[0]].size)
        return 0;
    return err_input(err, "x: expected batch first, got \"%.64s\"",
                     b->dims[op->space.dim[0]].name);
}

/* The axis of a tensor that counts groups of dim k of the space, which it may be itself. */
static int map_grouped(const struct binding *b, const struct slot *s, int axis, int k,
                       struct op_space *space, struct err *err) {
    const struct model_dim *few = &b->dims[s->shape->dim[axis]];
    const struct model_dim *many = &b->dims[space->dim[k]];
    if (few->size <= 0 || many->size % few->size)
        return err_input(err, "%s: %.64s (%lld) does not divide %.64s (%lld)",
                         s->kind->name, few->name, (long long)few->size, many->name,
                         (long long)many->size);
    if (few != many)
        space->alias[k] = s->shape->dim[axis];
    s->map->grouped = (int8_t)k;
    s->map->groups = few->size;
    s->map->axis[k] = (int8_t)axis;
    return 0;
}

/* An axis is the dim of the space that its place in the pattern says. */
static int map_patterns(const struct binding *b, const struct slot *s,
                        struct op_space *space, struct err *err) {
    memset(s->map, -1, sizeof *s->map);
    for (int j = 0, at = 0; j < s->kind->rank; j++) {
        const struct pattern_dim *p = &s->kind->dim[j];
        int k = p->name ? b->at[(int)p->name] : op_space_find(space, s->shape->dim[at]);
        int count = !p->name || p->grouped ? 1 : b->n[letter_of(p)];
        if (p->grouped && map_grouped(b, s, at, k, space, err) < 0)
            return -1;
        for (int d = 0; d < count; d++)
            s->map->axis[k + d] = (int8_t)at++;
    }
    return 0;
}

static int bind_patterns(struct binding *b, const struct slot *slots, int n,
                         struct model_op *op, struct err *err) {
    if (match_all(b, slots, n, err) < 0 || check_sizes(b, kind_of(op->kind), err) < 0 ||
        fill_space(b, kind_of(op->kind), slots, n, &op->space, err) < 0)
        return -1;
    for (int i = 0; i < n; i++)
        if (map_patterns(b, &slots[i], &op->space, err) < 0)
            return -1;
    return bind_windows(b, op, err) < 0 ? -1 : check_samples(b, op, err);
}

/* ---- einsum: dims are told apart by where they stand ------------------------------------ */

static bool has(const struct shape *s, int dim) {
    for (int i = 0; s && i < s->rank; i++)
        if (s->dim[i] == dim)
            return true;
    return false;
}

/* The dims of s that stand in a (or not) and in b (or not), in order. */
static struct shape pick(const struct shape *s, const struct shape *a, bool in_a,
                         const struct shape *b, bool in_b) {
    struct shape out = {0};
    for (int i = 0; i < s->rank; i++)
        if (has(a, s->dim[i]) == in_a && has(b, s->dim[i]) == in_b)
            out.dim[out.rank++] = s->dim[i];
    return out;
}

static bool same_dims(const struct shape *a, const struct shape *b) {
    return a->rank == b->rank && !memcmp(a->dim, b->dim, sizeof *a->dim * (size_t)a->rank);
}

/* Do these dims stand side by side in s? */
static bool is_run(const struct shape *s, const struct shape *dims) {
    int at = 0;
    while (dims->rank && at < s->rank && s->dim[at] != dims->dim[0])
        at++;
    return at + dims->rank <= s->rank &&
           !memcmp(s->dim + at, dims->dim, sizeof *s->dim * (size_t)dims->rank);
}

/* Dims that a and b share and c lacks are one index of a matrix: they stand in both as one run in
 * one order. */
static int check_index(const struct shape *a, const char *a_name, const struct shape *b,
                       const char *b_name, const struct shape *c, struct err *err) {
    struct shape in_a = pick(a, b, true, c, false), in_b = pick(b, a, true, c, false);
    if (same_dims(&in_a, &in_b) && is_run(a, &in_a) && is_run(b, &in_b))
        return 0;
    return err_input(
        err,
        "%s: the dims that it shares with %s alone must stand side by side, in "
        "the same order in both",
        b_name, a_name);
}

static int position(const struct shape *s, int dim) {
    int i = 0;
    while (s->dim[i] != dim)
        i++;
    return i;
}

/* Runs of dims that stand in all three, neighbours in all of them. */
static int count_runs(const struct shape *x, const struct shape *w, const struct shape *y) {
    const struct shape *all[] = {x, w, y};
    struct shape counted = pick(x, w, true, y, true);
    int runs = counted.rank > 0;
    for (int i = 1; i < counted.rank; i++) {
        bool apart = false;
        for (int t = 0; t < 3; t++)
            apart |= position(all[t], counted.dim[i]) !=
                     position(all[t], counted.dim[i - 1]) + 1;
        runs += apart;
    }
    return runs;
}

/* Every dim stands in two or three of x, w and y; the matrices are not scattered, and no more than
 * two runs of dims count them off. */
static int check_products(const struct binding *b, const struct shape *x,
                          const struct shape *w, const char *w_name, const struct shape *y,
                          struct err *err) {
    const struct shape *all[] = {x, w, y};
    const char *const names[] = {"x", w_name, "y"};
    for (int t = 0; t < 3; t++) {
        const struct shape *s = all[t], *p = all[(t + 1) % 3], *q = all[(t + 2) % 3];
        for (int i = 0; i < s->rank; i++)
            if (!has(p, s->dim[i]) && !has(q, s->dim[i]))
                return err_input(err, "%s: \"%.64s\" appears in no other tensor of the op",
                                 names[t], b->dims[s->dim[i]].name);
        struct shape counted = pick(s, p, true, q, true), other = pick(p, s, true, q, true);
        if (!same_dims(&counted, &other))
            return err_input(err,
                             "%s: the dims that stand in all three must have one order",
                             names[(t + 1) % 3]);
        if (counted.rank && counted.rank < s->rank &&
            s->dim[s->rank - 1] == counted.dim[counted.rank - 1])
            return err_input(err, "%s: the last dim must not stand in all three", names[t]);
    }
    int runs = count_runs(x, w, y);
    if (runs > 2)
        return err_input(err,
                         "%s: the dims that stand in all three form %d runs, at most 2",
                         w_name, runs);
    if (check_index(x, "x", y, "y", w, err) < 0 ||
        check_index(w, w_name, y, "y", x, err) < 0)
        return -1;
    return check_index(x, "x", w, w_name, y, err);
}

/* A bias is added where the result is rows of what the weight adds: x[M.., K..] w[K.., N..] and
 * y[M.., N..]. */
static int check_bias(const struct shape *x, const struct shape *w, const struct shape *y,
                      const struct shape *bias, struct err *err) {
    struct shape m = pick(y, x, true, x, true), n = pick(y, x, false, x, false);
    if (pick(y, x, true, w, true).rank)
        return err_input(err, "bias: a weight that shares dims with both x and y has none");
    if (same_dims(bias, &n) && !memcmp(y->dim, m.dim, sizeof *m.dim * (size_t)m.rank) &&
        !memcmp(x->dim, m.dim, sizeof *m.dim * (size_t)m.rank))
        return 0;
    return err_input(err, "bias: expected the dims that the weight adds, at the end of y");
}

/* y[B, M, N] = sum over K of x[B, M, K] w[B, K, N], the dims of each in (almost) any order. */
static int bind_einsum(struct binding *b, const struct slot_shapes *shapes,
                       const struct slot *slots, int n, struct model_op *op,
                       struct err *err) {
    const struct shape *x = shapes->in[0], *y = shapes->out[0];
    const struct shape *w = shapes->in[1] ? shapes->in[1] : shapes->param[0];
    if (!w || (shapes->in[1] && shapes->param[0]))
        return err_input(err, "einsum takes either a second operand or a weight");
    if (check_products(b, x, w, shapes->in[1] ? "z" : "weight", y, err) < 0 ||
        (shapes->param[1] && check_bias(x, w, y, shapes->param[1], err) < 0))
        return -1;
    for (int i = 0; i < n; i++)
        for (int a = 0; a < slots[i].shape->rank; a++) {
            int d = slots[i].shape->dim[a];
            if (op_space_find(&op->space, d) < 0 &&
                add_dim(b, &op->space, d, has(y, d) ? ROLE_parallel : ROLE_contracted,
                        err) < 0)
                return -1;
        }
    fill_maps(slots, n, &op->space);
    return 0;
}

/* ---- reshape: runs of dims with the same number of elements ------------------------------ */

/* A run x[i..] that holds the elements of y[j..]: splitting its outer dims splits both alike. */
static int add_run(const struct binding *b, const struct slot *x, const struct slot *y,
                   int i, int j, struct op_space *space, struct err *err) {
    int dx = x->shape->dim[i], dy = y->shape->dim[j];
    if (add_dim(b, space, dy, ROLE_parallel, err) < 0)
        return -1;
    space->alias[space->n - 1] = dx == dy ? -1 : dx;
    x->map->axis[space->n - 1] = (int8_t)i;
    y->map->axis[space->n - 1] = (int8_t)j;
    return 0;
}

/* Size for comparison: batch is like no number. */
static int64_t known_size(const struct binding *b, int dim) {
    return b->dims[dim].size ? b->dims[dim].size : -1;
}

/* A dim of size 1 that the other side lacks belongs to no run. */
static bool is_extra(const struct binding *b, const struct shape *s, int i,
                     const struct shape *other, int j) {
    return i < s->rank && known_size(b, s->dim[i]) == 1 &&
           (j == other->rank || known_size(b, other->dim[j]) != 1);
}

/* Moves on, from dim i of x and dim j of y, behind the shortest runs of dims that hold equally many
 * elements. False if there are none. */
static bool skip_run(const struct binding *b, const struct shape *x, const struct shape *y,
                     int *i, int *j) {
    if (*i == x->rank || *j == y->rank)
        return false;
    int64_t nx = known_size(b, x->dim[(*i)++]), ny = known_size(b, y->dim[(*j)++]);
    while (nx != ny && nx > 0 && ny > 0) {
        bool more_x = nx < ny;
        if (more_x ? *i == x->rank : *j == y->rank)
            return false;
        if (more_x)
            nx *= known_size(b, x->dim[(*i)++]);
        else
            ny *= known_size(b, y->dim[(*j)++]);
    }
    return nx == ny;
}

/* Walks both shapes from run to run; the outermost dim of each may be split. */
static int bind_reshape(struct binding *b, const struct slot *x, const struct slot *y,
                        struct model_op *op, struct err *err) {
    memset(x->map, -1, sizeof *x->map);
    memset(y->map, -1, sizeof *y->map);
    for (int i = 0, j = 0; i < x->shape->rank || j < y->shape->rank;) {
        bool extra_x = is_extra(b, x->shape, i, y->shape, j);
        bool extra_y = is_extra(b, y->shape, j, x->shape, i);
        int first_x = i, first_y = j;
        i += extra_x;
        j += extra_y;
        if (extra_x || extra_y)
            continue;
        if (!skip_run(b, x->shape, y->shape, &i, &j))
            return err_input(err, "y: the dims do not hold the elements of the operand");
        if (add_run(b, x, y, first_x, first_y, &op->space, err) < 0)
            return -1;
    }
    return 0;
}

int model_bind(const struct model_dim *dims, const struct slot_shapes *shapes,
               struct model_op *op, struct err *err) {
    const struct kind *k = kind_of(op->kind);
    struct slot slots[3 * KIND_MAX_SLOTS];
    int n = 0;
    for (int i = 0; i < k->n_in; i++)
        if (shapes->in[i])
            slots[n++] = (struct slot){&k->in[i], shapes->in[i], &op->in_map[i]};
    for (int i = 0; i < k->n_param; i++)
        if (shapes->param[i])
            slots[n++] = (struct slot){&k->param[i], shapes->param[i], &op->param_map[i]};
    for (int i = 0; i < k->n_out; i++)
        slots[n++] = (struct slot){&k->out[i], shapes->out[i], &op->out_map[i]};
    struct binding b;
    b.dims = dims;
    memset(b.n, ANY, sizeof b.n);
    memset(b.grouped, ANY, sizeof b.grouped);
    op->space = (struct op_space){0};
    if (k->flags & KIND_BLEND)
        return bind_einsum(&b, shapes, slots, n, op, err);
    if (k->flags & KIND_FREE)
        return bind_reshape(&b, &slots[0], &slots[1], op, err);
    return bind_patterns(&b, slots, n, op, err);
}
