/* What "tensor parallel" and the like mean for a model follows from its graph, as for the search: no
 * dim has a meaning by its name. */
#include "words.h"

#include <stdlib.h>

int plan_outer_block(const struct model *m, int op) {
    int b = m->ops[op].block;
    while (b >= 0 && m->blocks[b].parent >= 0)
        b = m->blocks[b].parent;
    return b;
}

static void mark_shape(const struct shape *s, bool *marked) {
    for (int i = 0; i < s->rank; i++)
        marked[s->dim[i]] = true;
}

/* Dims of tensors that leave a block; where there are none, of the first result. */
static void mark_passing(const struct model *m, bool *passing) {
    if (!m->n_blocks)
        mark_shape(&m->tensors[m->ops[0].out[0]].shape, passing);
    for (int i = 0; i < m->n_ops; i++)
        for (int k = 0; k < m->ops[i].n_in; k++) {
            const struct model_tensor *t = &m->tensors[m->ops[i].in[k]];
            int from = t->producer < 0 ? -1 : plan_outer_block(m, t->producer);
            if (from >= 0 && from != plan_outer_block(m, i))
                mark_shape(&t->shape, passing);
        }
}

bool plan_is_product(const struct model_op *op) {
    for (int k = 0; k < op->space.n && op->n_param > 0 && op->param[0] >= 0; k++)
        if (op->space.role[k] == ROLE_contracted && op->in_map[0].axis[k] >= 0 &&
            op->param_map[0].axis[k] >= 0)
            return true;
    return false;
}

/* A dim that operand, weight and result of a product share counts products off. Others, as routing,
 * may need all of it. */
static void mark_counting(const struct model *m, bool *counting) {
    for (int i = 0; i < m->n_ops; i++) {
        const struct model_op *op = &m->ops[i];
        if (!plan_is_product(op))
            continue;
        for (int k = 0; k < op->space.n; k++)
            if (op->in_map[0].axis[k] >= 0 && op->param_map[0].axis[k] >= 0 &&
                op->space.role[k] != ROLE_whole && op->out_map[0].axis[k] >= 0)
                counting[op->space.dim[k]] = true;
    }
}

/* Some op has the dim, and each that has it may be split on it. */
static void mark_splittable(const struct model *m, bool *splittable) {
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < m->n_ops; i++) {
            const struct op_space *s = &m->ops[i].space;
            for (int k = 0; k < s->n; k++)
                if ((s->role[k] == ROLE_whole) == pass)
                    splittable[s->dim[k]] = !pass;
        }
}

void plan_dims_find(const struct model *m, struct plan_dims *d) {
    size_t n = (size_t)m->n_dims;
    bool *passing = mem_array(n, 1), *counting = mem_array(n, 1);
    bool *splittable = mem_array(n, 1), *data = mem_array(n, 1), *held = mem_array(n, 1);
    *d = (struct plan_dims){0};
    d->inner = mem_array(n, sizeof *d->inner);
    d->sequence = mem_array(n, sizeof *d->sequence);
    d->experts = mem_array(n, sizeof *d->experts);
    mark_passing(m, passing);
    mark_counting(m, counting);
    mark_splittable(m, splittable);
    for (int t = 0; t < m->n_tensors; t++)
        if (m->tensors[t].producer < 0)
            mark_shape(&m->tensors[t].shape, data);
    for (int i = 0; i < m->n_params; i++)
        mark_shape(&m->params[i].shape, held);
    for (int k = 0; k < m->n_dims; k++) {
        if (k == m->batch || m->dims[k].size == 1)
            continue;
        if (passing[k] && data[k])
            d->sequence[d->n_sequence++] = k;
        else if (counting[k])
            d->experts[d->n_experts++] = k;
        else if (!passing[k] && !data[k] && splittable[k] && held[k])
            d->inner[d->n_inner++] = k;
    }
    free(passing);
    free(counting);
    free(splittable);
    free(data);
    free(held);
}

void plan_dims_release(struct plan_dims *d) {
    free(d->inner);
    free(d->sequence);
    free(d->experts);
}

bool plan_dims_has(const int *dims, int n, int dim) {
    for (int i = 0; i < n; i++)
        if (dims[i] == dim)
            return true;
    return false;
}
