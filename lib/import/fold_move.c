/* What moves elements and computes nothing: views, parts and what is joined. */
#include "import/fold.h"

#include <string.h>

enum { JOINED_MOST = 64 };

typedef const struct exported_value *value_ref;

int64_t fold_flat(value_ref v, const int64_t *at) {
    int64_t n = 0;
    for (int i = 0; i < v->rank; i++)
        n = n * v->size[i] + at[i];
    return n;
}

void fold_unflatten(value_ref v, int64_t n, int64_t *at) {
    for (int i = v->rank; i-- > 0; n /= v->size[i] ? v->size[i] : 1)
        at[i] = v->size[i] ? n % v->size[i] : 0;
}

void fold_stretch(value_ref from, value_ref to, const int64_t *at, int64_t *out) {
    for (int i = 0; i < from->rank; i++) {
        int k = i + to->rank - from->rank;
        out[i] = k < 0 || from->size[i] == 1 ? 0 : at[k];
    }
}

/* ---- of one operand -------------------------------------------------------------------------- */

struct move {
    const struct exported *p;
    const struct exported_node *n;
    value_ref x, y; /* operand and result */
    int part;       /* which of its results */
};

static bool turn(const struct move *m, const int64_t *at, int64_t *out) {
    int64_t order[EXPORTED_MAX_RANK];
    int rank = m->x->rank;
    if (!strcmp(m->n->target, "aten.permute.default")) {
        if (exported_ints(m->n, "dims", order, EXPORTED_MAX_RANK) != rank)
            return false;
    } else {
        bool two = !strcmp(m->n->target, "aten.t.default") ||
                   !strcmp(m->n->target, "aten.numpy_T.default");
        int a = two ? 0 : exported_axis(m->n, "dim0", rank, 0);
        int b = two ? rank - 1 : exported_axis(m->n, "dim1", rank, 0);
        if (a < 0 || b < 0)
            return false;
        for (int i = 0; i < rank; i++)
            order[i] = i == a ? b : i == b ? a : i;
    }
    for (int i = 0; i < rank; i++) {
        int64_t d = order[i] < 0 ? order[i] + rank : order[i];
        if (d < 0 || d >= rank)
            return false;
        out[d] = at[i];
    }
    return true;
}

/* From an index on, along one axis; `gone`: that axis is not in the result. */
static bool cut(const struct move *m, const int64_t *at, int64_t *out, int64_t from,
                int64_t step, bool gone) {
    int d = exported_axis(m->n, "dim", m->x->rank, 0);
    if (d < 0)
        return false;
    if (from < 0)
        from += m->x->size[d];
    for (int i = 0, k = 0; i < m->x->rank; i++)
        out[i] = i != d ? at[k++] : gone ? from : from + at[k++] * step;
    return true;
}

static bool slice(const struct move *m, const int64_t *at, int64_t *out) {
    return cut(m, at, out, exported_int(m->n, "start", 0), exported_int(m->n, "step", 1),
               false);
}

static bool pick(const struct move *m, const int64_t *at, int64_t *out) {
    return cut(m, at, out, exported_int(m->n, "index", 0), 1, true);
}

static bool unbind(const struct move *m, const int64_t *at, int64_t *out) {
    return cut(m, at, out, m->part, 1, true);
}

/* Parts lie behind each other. */
static bool split(const struct move *m, const int64_t *at, int64_t *out) {
    int d = exported_axis(m->n, "dim", m->x->rank, 0);
    int64_t from = 0;
    for (int i = 0; d >= 0 && i < m->part; i++) {
        value_ref before = &m->p->values.p[m->n->out[i]];
        from += d < before->rank ? before->size[d] : 0;
    }
    return cut(m, at, out, from, 1, false);
}

static bool reshape(const struct move *m, const int64_t *at, int64_t *out) {
    fold_unflatten(m->x, fold_flat(m->y, at), out);
    return true;
}

static bool expand(const struct move *m, const int64_t *at, int64_t *out) {
    fold_stretch(m->x, m->y, at, out);
    return true;
}

/* Each element several times, one behind the other. */
static bool repeat_each(const struct move *m, const int64_t *at, int64_t *out) {
    int64_t times = exported_int(m->n, "repeats", 0);
    int d = exported_axis(m->n, "dim", m->x->rank, 0);
    if (d < 0 || times < 1 || !exported_arg(m->n, "dim") || m->x->rank != m->y->rank)
        return false;
    memcpy(out, at, sizeof *out * (size_t)m->x->rank);
    out[d] /= times;
    return true;
}

/* All of it several times. */
static bool repeat_all(const struct move *m, const int64_t *at, int64_t *out) {
    int more = m->y->rank - m->x->rank;
    for (int i = 0; i < m->x->rank; i++) {
        if (more < 0 || m->x->size[i] < 1)
            return false;
        out[i] = at[i + more] % m->x->size[i];
    }
    return true;
}

static const struct {
    const char *target;
    bool (*place)(const struct move *m, const int64_t *at, int64_t *out);
} moves[] = {
    {"view.default", reshape},
    {"reshape.default", reshape},
    {"_unsafe_view.default", reshape},
    {"unsqueeze.default", reshape},
    {"squeeze.dim", reshape},
    {"squeeze.dims", reshape},
    {"squeeze.default", reshape},
    {"flatten.using_ints", reshape},
    {"unflatten.int", reshape},
    {"expand.default", expand},
    {"expand_as.default", expand},
    {"permute.default", turn},
    {"transpose.int", turn},
    {"t.default", turn},
    {"slice.Tensor", slice},
    {"select.int", pick},
    {"unbind.int", unbind},
    {"split.Tensor", split},
    {"chunk.default", split},
    {"split_with_sizes.default", split},
    {"repeat_interleave.self_int", repeat_each},
    {"repeat.default", repeat_all},
};
enum { MOVES = sizeof moves / sizeof *moves };

static int find_move(const char *target) {
    for (int i = 0; i < MOVES && !strncmp(target, "aten.", 5); i++)
        if (!strcmp(moves[i].target, target + 5))
            return i;
    return -1;
}

/* ---- of several ------------------------------------------------------------------------------ */

static bool is_stack(const char *target) {
    return !strcmp(target, "aten.stack.default");
}

/* Of those that lie behind each other along an axis, or that are each one index of it. */
static bool joined(const struct exported *p, const struct exported_node *n,
                   const int64_t *at, int *value, int64_t *from) {
    value_ref y = &p->values.p[n->out[0]];
    int list[JOINED_MOST], count = exported_tensors(n, "tensors", list, JOINED_MOST);
    int d = exported_axis(n, "dim", y->rank, 0);
    if (d < 0)
        return false;
    if (is_stack(n->target)) {
        if (at[d] >= count)
            return false;
        *value = list[at[d]];
        for (int i = 0, k = 0; i < y->rank; i++)
            if (i != d)
                from[k++] = at[i];
        return *value >= 0 && p->values.p[*value].rank == y->rank - 1;
    }
    memcpy(from, at, sizeof *from * (size_t)y->rank);
    for (int i = 0; i < count; i++) {
        value_ref x = list[i] >= 0 ? &p->values.p[list[i]] : NULL;
        if (!x || x->rank != y->rank)
            return false;
        *value = list[i];
        if (from[d] < x->size[d])
            return true;
        from[d] -= x->size[d];
    }
    return false;
}

bool fold_is_move(const char *target) {
    return find_move(target) >= 0 || is_stack(target) ||
           !strcmp(target, "aten.cat.default");
}

bool fold_moved(const struct exported *p, int result, const int64_t *at, int *value,
                int64_t *from) {
    value_ref y = &p->values.p[result];
    const struct exported_node *n = y->node >= 0 ? &p->nodes[y->node] : NULL;
    if (!n || !fold_is_move(n->target))
        return false;
    int i = find_move(n->target), x = exported_tensor(n, "self");
    if (i < 0)
        return joined(p, n, at, value, from);
    if (x < 0)
        return false;
    struct move m = {p, n, &p->values.p[x], y, 0};
    while (m.part < n->n_out && n->out[m.part] != result)
        m.part++;
    *value = x;
    return moves[i].place(&m, at, from);
}
