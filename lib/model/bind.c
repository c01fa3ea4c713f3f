/* Binding an op: the dims of its tensors take the places of its kind's patterns, and become its
 * iteration space. */
#include "model/bind.h"

#include <string.h>

enum { N_LETTERS = 128, ANY = -1 };

/* What each letter stands for so far. */
struct binding {
    const struct model_dim *dims;
    int n[N_LETTERS]; /* ANY = not known yet */
    int dim[N_LETTERS][TENSOR_MAX_RANK];
};

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
        if (!p->name)
            put_dim(buf, n, number);
        else if (b->n[(int)p->name] == ANY)
            put_dim(buf, n, p->group ? "..." : "*");
        else
            for (int d = 0; d < b->n[(int)p->name]; d++)
                put_dim(buf, n, b->dims[b->dim[(int)p->name][d]].name);
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
        if (p->group && b->n[(int)p->name] == ANY)
            open++;
        else
            *fixed += p->group ? b->n[(int)p->name] : 1;
    }
    return open;
}

/* Takes `count` dims of the shape from `at` on for a letter, or compares them. */
static bool take(struct binding *b, int letter, const struct shape *s, int at, int count) {
    if (b->n[letter] == ANY) {
        b->n[letter] = count;
        memcpy(b->dim[letter], s->dim + at, sizeof *s->dim * (size_t)count);
        return true;
    }
    return b->n[letter] == count &&
           !memcmp(b->dim[letter], s->dim + at, sizeof *s->dim * (size_t)count);
}

static int match(struct binding *b, const struct slot *s, struct err *err) {
    int fixed, open = open_groups(b, s->kind, &fixed), at = 0;
    int rest = s->shape->rank - fixed;
    if (rest < 0 || (!open && rest))
        return mismatch(b, s, err);
    struct binding known = *b; /* what the message shows */
    for (int i = 0; i < s->kind->rank; i++) {
        const struct pattern_dim *p = &s->kind->dim[i];
        int letter = p->name;
        int count = !p->group ? 1 : b->n[letter] != ANY ? b->n[letter] : rest;
        bool ok = letter ? take(b, letter, s->shape, at, count)
                         : b->dims[s->shape->dim[at]].size == p->size;
        if (!ok)
            return mismatch(&known, s, err);
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
    if (op_space_find(s, dim) >= 0)
        return err_input(err, "dim \"%.64s\" plays two parts in this op",
                         b->dims[dim].name);
    if (s->n == OP_MAX_SPACE)
        return err_input(err, "more than %d dims in one op", OP_MAX_SPACE);
    s->dim[s->n] = dim;
    s->alias[s->n] = -1;
    s->role[s->n++] = role;
    return 0;
}

/* The space in the order in which dims appear: operands, parameters, results. */
static int fill_space(const struct binding *b, const struct kind *k,
                      const struct slot *slots, int n, struct op_space *space,
                      struct err *err) {
    bool seen[N_LETTERS] = {false};
    for (int i = 0; i < n; i++) {
        int at = 0;
        for (int j = 0; j < slots[i].kind->rank; j++) {
            int letter = slots[i].kind->dim[j].name;
            int count = letter ? b->n[letter] : 1;
            for (int d = 0; d < count && !(letter && seen[letter]); d++)
                if (add_dim(b, space, slots[i].shape->dim[at + d],
                            letter ? k->role[letter] : ROLE_whole, err) < 0)
                    return -1;
            seen[letter] = true;
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

static int bind_patterns(struct binding *b, const struct slot *slots, int n,
                         struct model_op *op, struct err *err) {
    if (match_all(b, slots, n, err) < 0 ||
        fill_space(b, kind_of(op->kind), slots, n, &op->space, err) < 0)
        return -1;
    fill_maps(slots, n, &op->space);
    return 0;
}

/* ---- einsum: dims are told apart by where they stand ------------------------------------ */

static bool has(const struct shape *s, int dim) {
    for (int i = 0; s && i < s->rank; i++)
        if (s->dim[i] == dim)
            return true;
    return false;
}

/* Is `list` a's dims that stand in (or out of) `in`, in order, then b's? */
static bool is_concat(const struct shape *list, const struct shape *a,
                      const struct shape *b) {
    if (list->rank != a->rank + b->rank)
        return false;
    return !memcmp(list->dim, a->dim, sizeof *a->dim * (size_t)a->rank) &&
           !memcmp(list->dim + a->rank, b->dim, sizeof *b->dim * (size_t)b->rank);
}

static struct shape pick(const struct shape *s, const struct shape *other, bool present) {
    struct shape out = {0};
    for (int i = 0; i < s->rank; i++)
        if (has(other, s->dim[i]) == present)
            out.dim[out.rank++] = s->dim[i];
    return out;
}

/* x[M.., K..] W[K.., N..] (or W[N.., K..]) = y[M.., N..]: one matrix product. */
static int bind_einsum(struct binding *b, const struct slot_shapes *shapes,
                       const struct slot *slots, int n, struct model_op *op,
                       struct err *err) {
    const struct shape *x = shapes->in[0], *w = shapes->param[0], *y = shapes->out[0];
    struct shape m = pick(x, y, true), k = pick(x, y, false), fresh = pick(y, x, false);
    if (!is_concat(x, &m, &k))
        return err_input(err, "x: the dims of the operand must be those shared with the "
                              "result, then those summed over");
    if (!is_concat(y, &m, &fresh))
        return err_input(err, "y: the dims of the result must be those shared with the "
                              "operand, then those of the weight");
    if (!is_concat(w, &k, &fresh) && !is_concat(w, &fresh, &k))
        return err_input(err, "weight: expected the summed dims then the new ones, or the "
                              "reverse");
    if (shapes->param[1] && memcmp(shapes->param[1], &fresh, sizeof fresh))
        return err_input(err, "bias: expected the dims that the weight adds");
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

static int bind_reshape(struct binding *b, const struct slot *x, const struct slot *y,
                        struct model_op *op, struct err *err) {
    memset(x->map, -1, sizeof *x->map);
    memset(y->map, -1, sizeof *y->map);
    int i = 0, j = 0;
    while (i < x->shape->rank && j < y->shape->rank) {
        if (add_run(b, x, y, i, j, &op->space, err) < 0)
            return -1;
        int64_t nx = known_size(b, x->shape->dim[i++]);
        int64_t ny = known_size(b, y->shape->dim[j++]);
        while (nx != ny && nx > 0 && ny > 0) {
            bool more_x = nx < ny;
            if (more_x ? i == x->shape->rank : j == y->shape->rank)
                break;
            if (more_x)
                nx *= known_size(b, x->shape->dim[i++]);
            else
                ny *= known_size(b, y->shape->dim[j++]);
        }
        if (nx != ny)
            return err_input(err, "y: the dims do not hold the elements of the operand");
    }
    if (i < x->shape->rank || j < y->shape->rank)
        return err_input(err, "y: the dims do not hold the elements of the operand");
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
    struct binding b = {.dims = dims};
    for (int c = 0; c < N_LETTERS; c++)
        b.n[c] = ANY;
    op->space = (struct op_space){0};
    if (k->flags & KIND_BLEND)
        return bind_einsum(&b, shapes, slots, n, op, err);
    if (k->flags & KIND_FREE)
        return bind_reshape(&b, &slots[0], &slots[1], op, err);
    return bind_patterns(&b, slots, n, op, err);
}
