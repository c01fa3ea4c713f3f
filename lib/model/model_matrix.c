/* Which weights are matrices, for optimizers that step a matrix as a whole (Muon).
 *
 * It is the weight of a product (einsum) that something is summed over and that gives something new: the dims
 * that only its operand has are the rows, those that only its result has are the columns, joined where there
 * are several (heads and what a head has). Dims that both have (experts) count matrices, and so does a dim
 * that has a number in the pattern of who reads it: queries, keys and values that lie in one weight are three.
 * No matrices are tables of embeddings, the weight whose product a loss reads, what convolves or is added, and
 * weights of which the dims of rows or columns do not stand side by side. */
#include "model/read.h"

#include <stdlib.h>
#include <string.h>

enum part { COUNT, ROWS, COLUMNS, NEITHER };

static bool has(const struct axis_map *map, int n, int k) {
    for (int i = 0; i < n; i++)
        if (map[i].axis[k] >= 0)
            return true;
    return false;
}

/* Marks the dims that stand where a pattern has a number: behind a group they are counted from the end. */
static void mark_numbers(const struct kind_slot *slot, const struct shape *s, bool *marks) {
    bool behind = false;
    for (int k = 0; k < slot->rank; k++) {
        const struct pattern_dim *d = &slot->dim[k];
        const int at = behind ? s->rank - slot->rank + k : k;
        behind |= d->group;
        if (!d->name && at >= 0 && at < s->rank)
            marks[s->dim[at]] = true;
    }
}

/* By dim: does it count what lies in one tensor? */
static bool *packed_dims(const struct model *m) {
    bool *marks = mem_array((size_t)m->n_dims, sizeof *marks);
    for (int i = 0; i < m->n_ops; i++)
        for (int k = 0; k < m->ops[i].n_in; k++)
            mark_numbers(&kind_of(m->ops[i].kind)->in[k],
                         &m->tensors[m->ops[i].in[k]].shape, marks);
    return marks;
}

/* What an axis of the op's first parameter is. */
static enum part part_of(const struct model *m, const struct model_op *op, int axis,
                         const bool *packed) {
    for (int k = 0; k < op->space.n; k++) {
        if (op->param_map[0].axis[k] != axis)
            continue;
        const bool in = has(op->in_map, op->n_in, k), out = has(op->out_map, op->n_out, k);
        const int dim = m->params[op->param[0]].shape.dim[axis];
        return (in && out) || packed[dim] ? COUNT : in ? ROWS : out ? COLUMNS : NEITHER;
    }
    return NEITHER;
}

/* How many axes from `at` on are of this part. */
static int run_of(const enum part *parts, int n, int at, enum part part) {
    const int first = at;
    while (at < n && parts[at] == part)
        at++;
    return at - first;
}

/* The matrices of the op's first parameter; false where it has none. Rows and columns are those that lie so:
 * a transpose has the same step, transposed. */
static bool matrices_of(const struct model *m, const struct model_op *op,
                        const bool *packed, struct model_matrices *out) {
    const struct shape *s = &m->params[op->param[0]].shape;
    enum part parts[TENSOR_MAX_RANK];
    for (int i = 0; i < s->rank; i++)
        parts[i] = part_of(m, op, i, packed);
    const int rows = run_of(parts, s->rank, 0, COUNT);
    const enum part first = rows < s->rank ? parts[rows] : NEITHER;
    const int between = rows + run_of(parts, s->rank, rows, first);
    const int columns = between + run_of(parts, s->rank, between, COUNT);
    const int end =
        columns + run_of(parts, s->rank, columns, first == ROWS ? COLUMNS : ROWS);
    *out = (struct model_matrices){(int8_t)rows, (int8_t)between, (int8_t)columns};
    return first != NEITHER && columns < end && end == s->rank;
}

/* Is a matrix more than one row and one column? */
static bool is_plane(const struct model *m, const struct model_param *p) {
    const struct extents x = model_extents(m, &p->shape, 1);
    const struct matrix_sizes n = model_matrix_sizes(p, &x);
    return n.rows > 1 && n.columns > 1;
}

/* All uses of a parameter must see the same matrices in it, or it has none. */
static void add_use(struct model *m, int i, int slot, const bool *packed) {
    const struct model_op *op = &m->ops[i];
    struct model_param *p = &m->params[op->param[slot]];
    struct model_matrices found;
    const bool good = slot == 0 && op_is(op, KIND_BLEND) && op->n_in == 1 &&
                      matrices_of(m, op, packed, &found);
    if (p->first_op == i) {
        p->matrix = good;
        p->matrices = good ? found : (struct model_matrices){0};
        p->matrix = good && is_plane(m, p);
    } else {
        p->matrix &= good && !memcmp(&found, &p->matrices, sizeof found);
    }
}

/* The weight whose product a loss reads, perhaps by way of ops without weights, maps to words or classes. */
static void drop_head(struct model *m, const struct model_op *loss) {
    int op = m->tensors[loss->in[0]].producer;
    while (op >= 0 && !op_is(&m->ops[op], KIND_BLEND))
        op = m->ops[op].n_in ? m->tensors[m->ops[op].in[0]].producer : -1;
    if (op >= 0 && m->ops[op].n_param && m->ops[op].param[0] >= 0)
        m->params[m->ops[op].param[0]].matrix = false;
}

struct matrix_sizes model_matrix_sizes(const struct model_param *p,
                                       const struct extents *x) {
    struct matrix_sizes n = {1, 1, 1, 1};
    for (int i = 0; i < x->rank; i++)
        *(i < p->matrices.rows      ? &n.outer
          : i < p->matrices.between ? &n.rows
          : i < p->matrices.columns ? &n.inner
                                    : &n.columns) *= x->size[i];
    return n;
}

void model_find_matrices(struct model *m) {
    bool *packed = packed_dims(m);
    for (int i = 0; i < m->n_ops; i++)
        for (int k = 0; k < m->ops[i].n_param; k++)
            if (m->ops[i].param[k] >= 0)
                add_use(m, i, k, packed);
    for (int i = 0; i < m->n_ops; i++)
        if (op_is(&m->ops[i], KIND_LOSS))
            drop_head(m, &m->ops[i]);
    free(packed);
}
