/* Products and tables: their dims are numbered, so nothing about them has to be found out. */
#include "import/translate.h"

#include <string.h>

static const struct exported_value *value_at(const struct translate *t, int value) {
    return &t->p->values.p[value];
}

/* ---- products ------------------------------------------------------------------------------------------ */

/* An operand of a product, by what becomes of its dims. */
struct side {
    const struct made *x;
    int value;
    struct hlo_list batch, sums;
    int64_t rest[HLO_MAX_RANK];
    int n_rest;
};

static bool has(const struct hlo_list *list, int64_t d) {
    for (int i = 0; i < list->n; i++)
        if (list->p[i] == d)
            return true;
    return false;
}

static bool side_of(struct translate *t, const struct made *x, struct hlo_list batch,
                    struct hlo_list sums, struct side *s) {
    *s = (struct side){.x = x, .batch = batch, .sums = sums};
    int rank = x->shape->rank;
    unsigned seen = 0;
    for (int i = 0; i < batch.n + sums.n; i++) {
        int64_t d = i < batch.n ? batch.p[i] : sums.p[i - batch.n];
        if (d < 0 || d >= rank || seen >> d & 1)
            return false;
        seen |= 1u << d;
    }
    for (int d = 0; d < rank; d++)
        if (!has(&batch, d) && !has(&sums, d))
            s->rest[s->n_rest++] = d;
    s->value = translate_full(t, x);
    return true;
}

static int64_t product_of(const struct side *s, const int64_t *dims, int n) {
    int64_t all = 1;
    for (int i = 0; i < n; i++)
        all *= s->x->shape->size[dims[i]];
    return all;
}

/* The side with its dims in the order batch, then sums and rest, either first. Sums are one dim, the
 * rest too where it is merged. */
static int laid(struct translate *t, const struct side *s, bool sums_first, bool merged) {
    int64_t order[HLO_MAX_RANK], size[HLO_MAX_RANK];
    int n = 0, rank = 0;
    for (int i = 0; i < s->batch.n; i++) {
        size[rank++] = s->x->shape->size[s->batch.p[i]];
        order[n++] = s->batch.p[i];
    }
    for (int part = 0; part < 2; part++) {
        bool sums = (part == 0) == sums_first;
        const int64_t *dims = sums ? s->sums.p : s->rest;
        int count = sums ? s->sums.n : s->n_rest;
        for (int i = 0; i < count; i++)
            order[n++] = dims[i];
        if (sums || merged)
            size[rank++] = product_of(s, dims, count);
        for (int i = 0; i < count && !sums && !merged; i++)
            size[rank++] = s->x->shape->size[dims[i]];
    }
    int value = translate_permute(t, s->x, s->value, order);
    return translate_view(t, s->x, value, rank, size);
}

static int multiply(struct translate *t, int a, int b, int type) {
    const struct exported_value *x = value_at(t, a), *y = value_at(t, b);
    int64_t size[HLO_MAX_RANK + 1];
    memcpy(size, x->size, sizeof x->size);
    size[x->rank - 1] = y->size[y->rank - 1];
    struct translate_args args = {0};
    translate_tensor(&args, "self", a);
    translate_tensor(&args, "other", b);
    return translate_node(t, "aten.matmul.default", &args, x->rank, size, type, false);
}

/* Rows of a product of two tensors: the largest dim of those that are not summed. */
static int rows_at(const struct side *s) {
    int at = 0;
    for (int i = 1; i < s->n_rest; i++)
        if (s->x->shape->size[s->rest[i]] >= s->x->shape->size[s->rest[at]])
            at = i;
    return at;
}

/* The side with its rows, if it has any, behind the rest, and what is summed last. */
static int with_rows(struct translate *t, struct side *s, int rows) {
    int64_t row = s->n_rest ? s->rest[rows] : 0, size[HLO_MAX_RANK];
    struct side moved = *s;
    if (s->n_rest) {
        memmove(moved.rest + rows, moved.rest + rows + 1,
                sizeof row * (size_t)(s->n_rest - rows - 1));
        moved.rest[s->n_rest - 1] = row;
        return laid(t, &moved, false, false);
    }
    int value = laid(t, s, false, false);
    for (int i = 0; i < s->batch.n + 1; i++)
        size[i < s->batch.n ? i : i + 1] = value_at(t, value)->size[i];
    size[s->batch.n] = 1;
    return translate_view(t, s->x, value, s->batch.n + 2, size);
}

/* [batch.., sums, columns], alike for all of `others`. */
static int with_columns(struct translate *t, const struct side *s, const int64_t *others,
                        int n) {
    int value = laid(t, s, true, true), at = s->batch.n;
    int64_t thin[HLO_MAX_RANK], size[HLO_MAX_RANK];
    if (!n)
        return value;
    for (int i = 0; i < at + n + 2; i++) {
        const struct exported_value *v = value_at(t, value);
        thin[i] = i < at ? v->size[i] : i < at + n ? 1 : v->size[i - n];
        size[i] = i < at || i >= at + n ? thin[i] : others[i - at];
    }
    value = translate_view(t, s->x, value, at + n + 2, thin);
    struct translate_args args = {0};
    translate_tensor(&args, "self", value);
    return translate_node(t, "aten.expand.default",
                          translate_ints(&args, "size", size, at + n + 2), at + n + 2, size,
                          11, s->x->constant);
}

/* Products of two tensors, [batch.., rest of a, rest of b]. Scores of attention stand first; what they
 * have besides rows, as heads in groups, is a batch for which the other side is alike. */
static int combine(struct translate *t, struct side *a, struct side *b,
                   const struct made *like, const struct hlo_shape *shape) {
    bool swap = b->x->scores && !a->x->scores;
    struct side *left = swap ? b : a, *right = swap ? a : b;
    int rows = rows_at(left), n = left->batch.n, rank = 0;
    int others = left->n_rest ? left->n_rest - 1 : 0;
    int64_t size[HLO_MAX_RANK], order[HLO_MAX_RANK], kinds[HLO_MAX_RANK];
    int x = with_rows(t, left, rows);
    memcpy(kinds, value_at(t, x)->size + n, sizeof *kinds * (size_t)others);
    int y = multiply(t, x, with_columns(t, right, kinds, others), shape->type);
    for (; rank < n + left->n_rest; rank++)
        size[rank] = value_at(t, y)->size[rank];
    for (int i = 0; i < right->n_rest; i++)
        size[rank++] = right->x->shape->size[right->rest[i]];
    y = translate_view(t, like, y, rank, size);
    for (int i = 0; i < rank; i++) {
        int k = i - n, in_left = swap ? k - right->n_rest : k;
        bool is_left = k >= 0 && in_left >= 0 && in_left < left->n_rest;
        order[i] = k < 0      ? i
                   : !is_left ? n + left->n_rest + (swap ? k : k - left->n_rest)
                              : n + (in_left == rows  ? others
                                     : in_left > rows ? in_left - 1
                                                      : in_left);
    }
    return translate_permute(t, like, y, order);
}

/* x [rest.., sums] and a weight [sums, rest]: the dims of x stay apart. */
static int weigh(struct translate *t, const struct side *x, const struct side *w,
                 const struct made *like, int type) {
    int y = multiply(t, laid(t, x, false, false), laid(t, w, true, true), type);
    int64_t size[2 * HLO_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < x->n_rest; i++)
        size[rank++] = x->x->shape->size[x->rest[i]];
    for (int i = 0; i < w->n_rest; i++)
        size[rank++] = w->x->shape->size[w->rest[i]];
    return translate_view(t, like, y, rank, size);
}

/* Sums in the order in which they lie in the first; what is summed with what stays so. */
static void sort_sums(const struct hlo_list *first, const struct hlo_list *second) {
    for (int i = 1; i < first->n; i++)
        for (int k = i; k > 0 && first->p[k] < first->p[k - 1]; k--) {
            int64_t a = first->p[k], b = second->p[k];
            first->p[k] = first->p[k - 1];
            second->p[k] = second->p[k - 1];
            first->p[k - 1] = a;
            second->p[k - 1] = b;
        }
}

bool translate_dot(struct translate *t, const struct hlo_instruction *x,
                   const struct made *const *in, struct made *out) {
    struct side a, b;
    const struct hlo_list *dot = x->dot;
    int rank = x->shape.rank;
    if (dot[DOT_LHS_BATCH].n != dot[DOT_RHS_BATCH].n ||
        dot[DOT_LHS_SUMS].n != dot[DOT_RHS_SUMS].n || !dot[DOT_LHS_SUMS].n ||
        !side_of(t, in[0], dot[DOT_LHS_BATCH], dot[DOT_LHS_SUMS], &a) ||
        !side_of(t, in[1], dot[DOT_RHS_BATCH], dot[DOT_RHS_SUMS], &b) ||
        a.batch.n + a.n_rest + b.n_rest != rank)
        return false;
    sort_sums(in[0]->weight ? &b.sums : &a.sums, in[0]->weight ? &a.sums : &b.sums);
    for (int i = 0; i < a.batch.n; i++)
        if (in[0]->shape->size[a.batch.p[i]] != in[1]->shape->size[b.batch.p[i]])
            return false;
    if (product_of(&a, a.sums.p, a.sums.n) != product_of(&b, b.sums.p, b.sums.n))
        return false;
    if (in[1]->weight && !in[0]->weight && !a.batch.n) {
        out->value = weigh(t, &a, &b, out, x->shape.type);
    } else if (in[0]->weight && !in[1]->weight && !a.batch.n) {
        int64_t order[HLO_MAX_RANK];
        int y = weigh(t, &b, &a, out, x->shape.type);
        for (int i = 0; i < rank; i++)
            order[i] = i < a.n_rest ? b.n_rest + i : i - a.n_rest;
        out->value = translate_permute(t, out, y, order);
    } else {
        int most = a.batch.n + a.n_rest + b.n_rest + 2;
        if (most > HLO_MAX_RANK)
            return false;
        out->scores = !in[0]->scores && !in[1]->scores;
        out->value = combine(t, &a, &b, out, &x->shape);
    }
    return true;
}

/* ---- tables -------------------------------------------------------------------------------------------- */

/* The numbers of rows: without the dim, of size 1, that holds them. */
static int rows_of(struct translate *t, const struct made *ids, int64_t vector, int rank,
                   const int64_t *size) {
    const struct hlo_shape *s = ids->shape;
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= size[i];
    if (n != hlo_elements(s) || (vector < s->rank && (vector < 0 || s->size[vector] != 1)))
        return -1;
    return translate_view(t, ids, translate_full(t, ids), rank, size);
}

static bool one(const struct hlo_list *list, int64_t v) {
    return list->n == 1 && list->p[0] == v;
}

/* Whole rows of a table, by their numbers; the dim that counts the rows of each, 1, may stay. */
static bool embedding(struct translate *t, const struct hlo_instruction *x,
                      const struct made *const *in, struct made *out) {
    const struct hlo_list *g = x->gather, *offset = &g[GATHER_OFFSET];
    const struct made *ids = g[GATHER_MAP].n == 1 ? in[1] : in[1]->rows;
    int64_t vector = g[GATHER_VECTOR].n ? g[GATHER_VECTOR].p[0] : 0, size[HLO_MAX_RANK];
    int stays = g[GATHER_COLLAPSED].n == 0, rank = x->shape.rank - 1 - stays;
    if (in[0]->shape->rank != 2 || offset->n != 1 + stays || rank < 0 || !ids ||
        offset->p[0] != rank || offset->p[stays] != rank + stays ||
        (!stays && !one(&g[GATHER_COLLAPSED], 0)) || !g[GATHER_MAP].n ||
        g[GATHER_MAP].p[0] != 0 || x->gather_sizes.n != 2 || x->gather_sizes.p[0] != 1 ||
        x->gather_sizes.p[1] != in[0]->shape->size[1])
        return false;
    memcpy(size, x->shape.size, sizeof size);
    size[rank] = in[0]->shape->size[1];
    int rows = rows_of(t, ids, vector, rank, size);
    if (rows < 0)
        return false;
    struct translate_args args = {0};
    translate_tensor(&args, "weight", translate_full(t, in[0]));
    int y = translate_node(t, "aten.embedding.default",
                           translate_tensor(&args, "indices", rows), rank + 1, size,
                           x->shape.type, false);
    out->value = translate_view(t, out, y, x->shape.rank, x->shape.size);
    return true;
}

/* One element of each row, as of the target's class: all dims but the last are alike. */
static bool choice(struct translate *t, const struct hlo_instruction *x,
                   const struct made *const *in, struct made *out) {
    const struct hlo_list *g = x->gather;
    int last = in[0]->shape->rank - 1;
    int64_t vector = g[GATHER_VECTOR].n ? g[GATHER_VECTOR].p[0] : 0;
    if (last < 1 || g[GATHER_OFFSET].n || g[GATHER_BATCH].n != last ||
        g[GATHER_IDS_BATCH].n != last || !one(&g[GATHER_COLLAPSED], last) ||
        !one(&g[GATHER_MAP], last))
        return false;
    for (int i = 0; i < last; i++)
        if (g[GATHER_BATCH].p[i] != i || g[GATHER_IDS_BATCH].p[i] != i)
            return false;
    int rows = rows_of(t, in[1], vector, x->shape.rank, x->shape.size);
    if (rows < 0 || x->shape.rank != last + 1)
        return false;
    struct translate_args args = {0};
    translate_tensor(&args, "self", translate_full(t, in[0]));
    translate_int(&args, "dim", last);
    out->value =
        translate_node(t, "aten.gather.default", translate_tensor(&args, "index", rows),
                       x->shape.rank, x->shape.size, x->shape.type, false);
    return true;
}

bool translate_gather(struct translate *t, const struct hlo_instruction *x,
                      const struct made *const *in, struct made *out) {
    return embedding(t, x, in, out) || choice(t, x, in, out);
}
