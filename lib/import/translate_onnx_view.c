/* Views of ONNX, its parts, and what it looks up by index, in ATen's words. */
#include "import/translate_onnx.h"

#include <stdlib.h>
#include <string.h>

typedef struct onnx_reading reading;
typedef const struct onnx_node *node_ref;
typedef const struct exported_value *value_ref;

struct translate_args *onnx_with(struct translate_args *args, const char *name, int value) {
    return value < 0 ? args : translate_tensor(args, name, value);
}

int onnx_axis(int64_t d, int rank) {
    return d >= -rank && d < rank ? (int)(d < 0 ? d + rank : d) : -1;
}

/* ---- views ---------------------------------------------------------------------------------------- */

static int reshape(reading *r, node_ref n) {
    int64_t want[EXPORTED_MAX_RANK], size[EXPORTED_MAX_RANK], all = 1, known = 1;
    int x = onnx_in(r, n, 0);
    int rank = x < 0 ? -1 : onnx_known(r, onnx_in(r, n, 1), want, EXPORTED_MAX_RANK);
    int open = -1;
    if (rank < 0)
        return -1;
    value_ref v = onnx_value(r, x);
    for (int i = 0; i < v->rank; i++)
        all *= v->size[i];
    for (int i = 0; i < rank; i++) {
        bool same = want[i] == 0 && !onnx_int(n, "allowzero", 0);
        if (want[i] < -1 || (same && i >= v->rank) || (want[i] == -1 && open >= 0))
            return -1;
        open = want[i] == -1 ? i : open;
        size[i] = same ? v->size[i] : want[i];
        if (want[i] != -1 && size[i] && known > (INT64_C(1) << 50) / size[i])
            return -1;
        known *= want[i] == -1 ? 1 : size[i];
    }
    if (open >= 0)
        size[open] = known ? all / known : 0;
    if (open >= 0 ? !known || all % known : known != all)
        return -1;
    return onnx_view(r, x, rank, size);
}

int onnx_axes(reading *r, node_ref n, int input, int64_t *out) {
    const struct onnx_attr *a = onnx_attr(n, "axes");
    if (onnx_in(r, n, input) >= 0)
        return onnx_known(r, onnx_in(r, n, input), out, EXPORTED_MAX_RANK);
    if (!a || a->wholes.n > EXPORTED_MAX_RANK)
        return a ? -1 : 0;
    for (int64_t i = 0; i < a->wholes.n; i++)
        out[i] = a->wholes.p[i];
    return (int)a->wholes.n;
}

static int unsqueeze(reading *r, node_ref n) {
    int64_t axes[EXPORTED_MAX_RANK], size[EXPORTED_MAX_RANK];
    int x = onnx_in(r, n, 0), count = onnx_axes(r, n, 1, axes);
    if (x < 0 || count < 1 || onnx_value(r, x)->rank + count > EXPORTED_MAX_RANK)
        return -1;
    value_ref v = onnx_value(r, x);
    int rank = v->rank + count;
    unsigned one = 0;
    for (int i = 0; i < count; i++) {
        int d = onnx_axis(axes[i], rank);
        if (d < 0 || one >> d & 1)
            return -1;
        one |= 1u << d;
    }
    for (int i = 0, k = 0; i < rank; i++)
        size[i] = one >> i & 1 ? 1 : v->size[k++];
    return onnx_view(r, x, rank, size);
}

static int squeeze(reading *r, node_ref n) {
    int64_t axes[EXPORTED_MAX_RANK], size[EXPORTED_MAX_RANK];
    int x = onnx_in(r, n, 0), count = onnx_axes(r, n, 1, axes), rank = 0;
    if (x < 0 || count < 0)
        return -1;
    value_ref v = onnx_value(r, x);
    unsigned gone = 0;
    for (int i = 0; i < count; i++) {
        int d = onnx_axis(axes[i], v->rank);
        if (d < 0 || v->size[d] != 1)
            return -1;
        gone |= 1u << d;
    }
    for (int i = 0; i < v->rank; i++)
        if (!(gone >> i & 1) && (count || v->size[i] != 1))
            size[rank++] = v->size[i];
    return onnx_view(r, x, rank, size);
}

static int flatten(reading *r, node_ref n) {
    int x = onnx_in(r, n, 0);
    int64_t size[2] = {1, 1}, axis = onnx_int(n, "axis", 1);
    if (x < 0)
        return -1;
    value_ref v = onnx_value(r, x);
    axis = axis < 0 ? axis + v->rank : axis;
    for (int i = 0; i < v->rank; i++)
        size[i >= axis] *= v->size[i];
    return onnx_view(r, x, 2, size);
}

int onnx_permute(reading *r, int x, const int64_t *order) {
    value_ref v = onnx_value(r, x);
    int64_t size[EXPORTED_MAX_RANK];
    int rank = v->rank;
    unsigned seen = 0;
    for (int i = 0; i < rank; i++) {
        if (order[i] < 0 || order[i] >= rank || seen >> order[i] & 1)
            return -1;
        seen |= 1u << order[i];
        size[i] = v->size[order[i]];
    }
    struct translate_args args = {0};
    onnx_with(&args, "self", x);
    return onnx_emit(r, "aten.permute.default", translate_ints(&args, "dims", order, rank),
                     rank, size, onnx_type(r, x));
}

static int transpose(reading *r, node_ref n) {
    const struct onnx_attr *perm = onnx_attr(n, "perm");
    int64_t order[EXPORTED_MAX_RANK];
    int x = onnx_in(r, n, 0);
    if (x < 0 || (perm && perm->wholes.n != onnx_value(r, x)->rank))
        return -1;
    for (int i = 0; i < onnx_value(r, x)->rank; i++)
        order[i] = perm ? perm->wholes.p[i] : onnx_value(r, x)->rank - 1 - i;
    return onnx_permute(r, x, order);
}

static int expanded(reading *r, int x, int rank, const int64_t *size) {
    struct translate_args args = {0};
    onnx_with(&args, "self", x);
    return onnx_emit(r, "aten.expand.default", translate_ints(&args, "size", size, rank),
                     rank, size, onnx_type(r, x));
}

/* All of it, so many times along each axis. */
static int tile(reading *r, node_ref n) {
    int64_t times[EXPORTED_MAX_RANK], size[EXPORTED_MAX_RANK];
    int x = onnx_in(r, n, 0);
    int rank = x < 0 ? -1 : onnx_value(r, x)->rank;
    if (rank < 0 || onnx_known(r, onnx_in(r, n, 1), times, EXPORTED_MAX_RANK) != rank)
        return -1;
    for (int i = 0; i < rank; i++) {
        if (times[i] < 1 || times[i] > INT32_MAX || onnx_value(r, x)->size[i] > INT32_MAX)
            return -1;
        size[i] = times[i] * onnx_value(r, x)->size[i];
    }
    struct translate_args args = {0};
    onnx_with(&args, "self", x);
    return onnx_emit(r, "aten.repeat.default",
                     translate_ints(&args, "repeats", times, rank), rank, size,
                     onnx_type(r, x));
}

static int expand(reading *r, node_ref n) {
    int64_t size[EXPORTED_MAX_RANK];
    int x = onnx_in(r, n, 0);
    int rank = x < 0 ? -1 : onnx_known(r, onnx_in(r, n, 1), size, EXPORTED_MAX_RANK);
    if (rank < 0)
        return -1;
    value_ref v = onnx_value(r, x);
    int more = v->rank > rank ? v->rank - rank : 0;
    memmove(size + more, size, sizeof *size * (size_t)rank);
    rank += more;
    for (int i = 0; i < rank; i++) {
        int k = i - (rank - v->rank);
        int64_t has = k < 0 ? 1 : v->size[k];
        size[i] = i < more || size[i] == 1 ? has : size[i];
        if (size[i] < 0 || (has != 1 && has != size[i]))
            return -1;
    }
    return expanded(r, x, rank, size);
}

/* ---- parts ---------------------------------------------------------------------------------------- */

static int cut(reading *r, int x, int d, int64_t from, int64_t to, int64_t step) {
    value_ref v = onnx_value(r, x);
    int64_t size[EXPORTED_MAX_RANK], all = v->size[d];
    memcpy(size, v->size, sizeof size);
    from = from < 0 ? from + all : from > all ? all : from;
    to = to < 0 ? to + all : to > all ? all : to;
    from = from < 0 ? 0 : from;
    if (step < 1)
        return -1;
    size[d] = to > from ? (to - from + step - 1) / step : 0;
    if (size[d] == all)
        return x;
    struct translate_args args = {0};
    onnx_with(&args, "self", x);
    translate_int(&args, "dim", d);
    translate_int(&args, "start", from);
    translate_int(&args, "end", to);
    translate_int(&args, "step", step);
    return onnx_emit(r, "aten.slice.Tensor", &args, v->rank, size, onnx_type(r, x));
}

static int slice(reading *r, node_ref n) {
    int64_t list[4][EXPORTED_MAX_RANK];
    int x = onnx_in(r, n, 0), count[4];
    for (int i = 0; i < 4; i++)
        count[i] = onnx_known(r, onnx_in(r, n, i + 1), list[i], EXPORTED_MAX_RANK);
    if (x < 0 || count[0] < 1 || count[1] != count[0])
        return -1;
    for (int i = 0; i < count[0] && x >= 0; i++) {
        int d = onnx_axis(count[2] == count[0] ? list[2][i] : i, onnx_value(r, x)->rank);
        if (d < 0)
            return -1;
        x = cut(r, x, d, list[0][i], list[1][i], count[3] == count[0] ? list[3][i] : 1);
    }
    return x;
}

/* Parts one behind the other; their sizes are said, or they are equal. */
static int split(reading *r, node_ref n, json_t **out) {
    enum { MOST = 64 };
    int64_t size[MOST], from = 0;
    int x = onnx_in(r, n, 0),
        d = x < 0 ? -1 : onnx_axis(onnx_int(n, "axis", 0), onnx_value(r, x)->rank);
    bool sequence = !strcmp(n->op, "SplitToSequence");
    if (d < 0)
        return -1;
    int64_t all = onnx_value(r, x)->size[d], parts = sequence ? 0 : n->out.n;
    int known = onnx_known(r, onnx_in(r, n, 1), size, MOST);
    if (sequence && known == 1 && onnx_value(r, onnx_in(r, n, 1))->rank == 0) {
        parts = size[0] > 0 ? (all + size[0] - 1) / size[0] : 0;
        known = -1;
    }
    parts = known > 0 ? known : parts;
    if (parts < 1 || parts > MOST)
        return -1;
    int64_t each = (all + parts - 1) / parts;
    *out = json_array();
    for (int i = 0; i < parts; i++) {
        int64_t to = from + (known > 0 ? size[i] : each);
        int y = to < from ? -1 : cut(r, x, d, from, to, 1);
        json_array_append_new(*out, json_integer(y));
        from = to;
    }
    return -1;
}

static int sequence_at(reading *r, node_ref n) {
    int64_t i;
    const json_t *list = n->in.n == 2 ? json_object_get(r->of, n->in.p[0]) : NULL, *v;
    if (onnx_known(r, onnx_in(r, n, 1), &i, 1) != 1 || !json_is_array(list))
        return -1;
    v = json_array_get(list, (size_t)(i < 0 ? i + (int64_t)json_array_size(list) : i));
    return json_is_integer(v) ? (int)json_integer_value(v) : -1;
}

static int concat(reading *r, node_ref n) {
    enum { MOST = 64 };
    int list[MOST], d = -1;
    int64_t size[EXPORTED_MAX_RANK];
    for (int64_t i = 0; i < n->in.n; i++) {
        if (i == MOST || (list[i] = onnx_in(r, n, (int)i)) < 0)
            return -1;
        value_ref v = onnx_value(r, list[i]), first = onnx_value(r, list[0]);
        d = onnx_axis(onnx_int(n, "axis", 0), first->rank);
        if (v->rank != first->rank || d < 0)
            return -1;
        int64_t before = i ? size[d] : 0;
        memcpy(size, i ? size : v->size, sizeof size);
        size[d] = before + v->size[d];
    }
    if (d < 0)
        return -1;
    struct translate_args args = {0};
    translate_tensors(&args, "tensors", list, (int)n->in.n);
    return onnx_emit(r, "aten.cat.default", translate_int(&args, "dim", d),
                     onnx_value(r, list[0])->rank, size, onnx_type(r, list[0]));
}

/* ---- by index ------------------------------------------------------------------------------------- */

/* One index of an axis. */
static int pick(reading *r, int x, int d, int64_t i) {
    value_ref v = onnx_value(r, x);
    int64_t size[EXPORTED_MAX_RANK];
    for (int k = 0; k < v->rank - 1; k++)
        size[k] = v->size[k < d ? k : k + 1];
    struct translate_args args = {0};
    onnx_with(&args, "self", x);
    translate_int(&args, "dim", d);
    translate_int(&args, "index", i);
    return onnx_emit(r, "aten.select.int", &args, v->rank - 1, size, onnx_type(r, x));
}

/* x at places of its first axes. */
static int look_up(reading *r, int x, const int *at, int n) {
    value_ref v = onnx_value(r, x), places = onnx_value(r, at[0]);
    int64_t size[EXPORTED_MAX_RANK];
    int rank = places->rank + v->rank - n;
    if (rank > EXPORTED_MAX_RANK || n > v->rank)
        return -1;
    memcpy(size, places->size, sizeof *size * (size_t)places->rank);
    for (int i = n; i < v->rank; i++)
        size[places->rank + i - n] = v->size[i];
    struct translate_args args = {0};
    onnx_with(&args, "self", x);
    return onnx_emit(r, "aten.index.Tensor", translate_tensors(&args, "indices", at, n),
                     rank, size, onnx_type(r, x));
}

/* The tensor that x is with its axes in another order; -1: it is none. */
static int turned(const reading *r, int x, int64_t *order) {
    value_ref v = onnx_value(r, x);
    const struct exported_node *made = v->node < 0 ? NULL : &r->t.p->nodes[v->node];
    if (!made || strcmp(made->target, "aten.permute.default") != 0 ||
        exported_ints(made, "dims", order, EXPORTED_MAX_RANK) != v->rank)
        return -1;
    return exported_tensor(made, "self");
}

/* Where known indexes of an axis of `all` begin that follow each other; -1: they do not. */
static int64_t begin_of(reading *r, int at, int64_t all) {
    value_ref v = onnx_value(r, at);
    int64_t n = 1, first = -1, place[EXPORTED_MAX_RANK];
    for (int i = 0; i < v->rank; i++)
        n *= v->size[i];
    if (n < 1 || n > all || !fold_is(&r->fold, at))
        return -1;
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i;
        for (int k = v->rank; k-- > 0; rest /= v->size[k])
            place[k] = rest % v->size[k];
        double k = fold_at(&r->fold, at, place);
        k += k < 0 ? (double)all : 0;
        if (i == 0)
            first = k >= 0 && k + (double)n <= (double)all ? (int64_t)k : -1;
        if (first < 0 || k != (double)(first + i))
            return -1;
    }
    return first;
}

/* Known indexes that follow each other are a part of x, or of what x is when its axes are turned back, since parts
 * of one tensor are cut out of that one; -1: they do not. The part has the axes of the indexes, of which the last is
 * left out where it counts axes, in place of axis d. */
static int part(reading *r, int x, int d, int at, bool counted) {
    int64_t order[EXPORTED_MAX_RANK], size[EXPORTED_MAX_RANK];
    const struct exported_value v = *onnx_value(r, x), places = *onnx_value(r, at);
    const int axes = places.rank - counted, of = turned(r, x, order);
    int64_t n = 1, from = begin_of(r, at, v.size[d]);
    if (from < 0 || v.rank - 1 + axes > EXPORTED_MAX_RANK)
        return -1;
    for (int i = 0; i < axes; i++)
        n *= places.size[i];
    int y = of < 0 ? cut(r, x, d, from, from + n, 1)
                   : onnx_permute(r, cut(r, of, (int)order[d], from, from + n, 1), order);
    memcpy(size, v.size, sizeof *size * (size_t)d);
    memcpy(size + d, places.size, sizeof *size * (size_t)axes);
    memcpy(size + d + axes, v.size + d + 1, sizeof *size * (size_t)(v.rank - d - 1));
    return y < 0 ? -1 : onnx_view(r, y, v.rank - 1 + axes, size);
}

static int gather(reading *r, node_ref n) {
    int x = onnx_in(r, n, 0), at = onnx_in(r, n, 1);
    int64_t one, size[EXPORTED_MAX_RANK];
    if (x < 0 || at < 0)
        return -1;
    int d = onnx_axis(onnx_int(n, "axis", 0), onnx_value(r, x)->rank);
    if (d < 0)
        return -1;
    if (onnx_value(r, at)->rank == 0 && onnx_known(r, at, &one, 1) == 1)
        return pick(r, x, d, one);
    value_ref v = onnx_value(r, x), ids = onnx_value(r, at);
    if (d || v->role != EXPORTED_PARAMETER || v->rank != 2) {
        int y = fold_is(&r->fold, x) ? -1 : part(r, x, d, at, false);
        return y >= 0 ? y : d ? -1 : look_up(r, x, &at, 1);
    }
    if (ids->rank == EXPORTED_MAX_RANK)
        return -1;
    memcpy(size, ids->size, sizeof size);
    size[ids->rank] = v->size[1];
    struct translate_args args = {0};
    onnx_with(onnx_with(&args, "weight", x), "indices", at);
    return onnx_emit(r, "aten.embedding.default", &args, ids->rank + 1, size, 11);
}

/* Places [.., n] of the first n axes. */
static int gather_nd(reading *r, node_ref n) {
    int x = onnx_in(r, n, 0), at = onnx_in(r, n, 1), list[EXPORTED_MAX_RANK];
    if (x < 0 || at < 0 || onnx_int(n, "batch_dims", 0) || onnx_value(r, at)->rank < 1)
        return -1;
    int rank = onnx_value(r, at)->rank;
    int64_t count = onnx_value(r, at)->size[rank - 1];
    if (count < 1 || count > onnx_value(r, x)->rank)
        return -1;
    int y = count == 1 && !fold_is(&r->fold, x) ? part(r, x, 0, at, true) : -1;
    if (y >= 0)
        return y;
    for (int i = 0; i < count; i++)
        list[i] = pick(r, at, rank - 1, i);
    return look_up(r, x, list, (int)count);
}

static int gather_elements(reading *r, node_ref n) {
    int x = onnx_in(r, n, 0), at = onnx_in(r, n, 1);
    if (x < 0 || at < 0)
        return -1;
    value_ref v = onnx_value(r, at);
    struct translate_args args = {0};
    onnx_with(&args, "self", x);
    translate_int(&args, "dim", onnx_int(n, "axis", 0));
    return onnx_emit(r, "aten.gather.default", onnx_with(&args, "index", at), v->rank,
                     v->size, onnx_type(r, x));
}

/* ---- by op ---------------------------------------------------------------------------------------- */

bool onnx_view_op(reading *r, node_ref n, int *value, json_t **list) {
    static const struct {
        const char *op;
        int (*rule)(reading *, node_ref);
    } rules[] = {{"Reshape", reshape},
                 {"Unsqueeze", unsqueeze},
                 {"Squeeze", squeeze},
                 {"Flatten", flatten},
                 {"Transpose", transpose},
                 {"Expand", expand},
                 {"Tile", tile},
                 {"Slice", slice},
                 {"SequenceAt", sequence_at},
                 {"Concat", concat},
                 {"Gather", gather},
                 {"GatherND", gather_nd},
                 {"GatherElements", gather_elements}};
    *value = -1;
    if (!strcmp(n->op, "Split") || !strcmp(n->op, "SplitToSequence"))
        return *value = split(r, n, list), true;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (!strcmp(rules[i].op, n->op))
            return *value = rules[i].rule(r, n), true;
    return false;
}
