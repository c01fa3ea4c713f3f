/* The deduplicated model: the same model with at most three instances of each repeat.
 *
 * An op that is left out is represented by the corresponding op of the second
 * instance. The last instance reads from the second what it read from the one before it. */
#include "search/graph/structure.h"

#include <stdlib.h>
#include <string.h>

enum { KEPT_INSTANCES = 3 };

/* Returns the op of the whole model that represents this one. */
static int stand_in(const struct structure *s, int op) {
    if (s->repeat_of[op] < 0)
        return op;
    const struct repeat *r = &s->repeats[s->repeat_of[op]];
    int j = structure_instance(s, op);
    if (r->count <= KEPT_INSTANCES || j == 0 || j == r->count - 1)
        return op;
    return op - (j - 1) * r->period;
}

/* Returns how many instances an op is behind the op that represents it. */
static int left_out(const struct structure *s, int op) {
    if (s->repeat_of[op] < 0 || s->repeats[s->repeat_of[op]].count <= KEPT_INSTANCES)
        return 0;
    int j = structure_instance(s, op);
    return j > 0 && j < s->repeats[s->repeat_of[op]].count - 1 ? j - 1 : 0;
}

/* Returns the first op of its node: all instances of a repeat share their nodes. */
static int node_op(const struct structure *s, int op) {
    if (s->repeat_of[op] < 0)
        return op;
    return op - structure_instance(s, op) * s->repeats[s->repeat_of[op]].period;
}

/* Numbers the ops of the deduplicated model, and its nodes. */
static void number_ops(const struct model *m, const struct structure *s, struct dedup *x) {
    int n = 0;
    x->of = mem_array(2 * ((size_t)m->n_ops + 1), sizeof *x->of);
    x->left_out = x->of + m->n_ops + 1;
    x->from = mem_array((size_t)m->n_ops, sizeof *x->from);
    x->node_of = mem_array((size_t)m->n_ops, sizeof *x->node_of);
    for (int i = 0; i < m->n_ops; i++) {
        int stands = stand_in(s, i), node = node_op(s, i);
        x->left_out[i] = left_out(s, i);
        if (stands == i) {
            x->from[n] = i;
            x->node_of[n] = node == i ? x->n_nodes++ : x->node_of[x->of[node]];
            x->of[i] = n++;
        } else {
            x->of[i] = x->of[stands];
        }
    }
    x->of[m->n_ops] = x->model->n_ops = n;
}

/* Returns the number that a tensor has in the deduplicated model; data: [tensors] those of
 * the model's inputs. */
static int tensor_in(const struct model *m, const struct dedup *x, const int *data,
                     int tensor) {
    int producer = m->tensors[tensor].producer, k = 0;
    if (producer < 0)
        return data[tensor];
    while (m->ops[producer].out[k] != tensor)
        k++;
    return x->model->ops[x->of[producer]].out[k];
}

static int copy_tensor(const struct model *m, struct dedup *x, int tensor, int producer) {
    struct model_tensor *t = &x->model->tensors[x->model->n_tensors];
    *t = m->tensors[tensor];
    t->producer = producer;
    return x->model->n_tensors++;
}

static int copy_param(const struct model *m, struct dedup *x, int op, int k) {
    const struct model_op *o = &m->ops[op];
    int p = o->param[k], home = p < 0 ? -1 : m->params[p].first_op;
    if (p < 0)
        return -1;
    if (home == op) {
        x->model->params[x->model->n_params] = m->params[p];
        x->model->params[x->model->n_params].first_op = x->of[op];
        return x->model->n_params++;
    }
    int slot = 0;
    while (m->ops[home].param[slot] != p)
        slot++;
    return x->model->ops[x->of[home]].param[slot];
}

static void copy_op(const struct model *m, struct dedup *x, const int *data, int i) {
    const struct model_op *from = &m->ops[x->from[i]];
    struct model_op *o = &x->model->ops[i];
    *o = *from;
    o->in = mem_array((size_t)(o->n_in + o->n_param + o->n_out) + 1, sizeof *o->in);
    o->param = o->in + o->n_in;
    o->out = o->param + o->n_param;
    for (int k = 0; k < o->n_in; k++)
        o->in[k] = tensor_in(m, x, data, from->in[k]);
    for (int k = 0; k < o->n_param; k++)
        o->param[k] = copy_param(m, x, x->from[i], k);
    for (int k = 0; k < o->n_out; k++)
        o->out[k] = copy_tensor(m, x, from->out[k], i);
}

/* Copies what is kept of the model; names and dims are shared with the whole one. */
void dedup_make(const struct model *m, const struct structure *s, struct dedup *x) {
    *x = (struct dedup){.model = mem_alloc(sizeof *x->model)};
    struct model *e = x->model;
    *e = *m;
    e->arena = (struct arena){0};
    e->n_tensors = e->n_params = 0;
    number_ops(m, s, x);
    e->ops = mem_array((size_t)e->n_ops, sizeof *e->ops);
    e->tensors = mem_array((size_t)m->n_tensors, sizeof *e->tensors);
    e->params = mem_array((size_t)m->n_params + 1, sizeof *e->params);
    int *data = mem_array((size_t)m->n_tensors, sizeof *data);
    for (int t = 0; t < m->n_tensors; t++)
        if (m->tensors[t].producer < 0)
            data[t] = copy_tensor(m, x, t, -1);
    for (int i = 0; i < e->n_ops; i++)
        copy_op(m, x, data, i);
    free(data);
}

void dedup_release(struct dedup *x) {
    if (x->model) {
        for (int i = 0; i < x->model->n_ops; i++)
            free(x->model->ops[i].in);
        free(x->model->ops);
        free(x->model->tensors);
        free(x->model->params);
    }
    free(x->model);
    free(x->of);
    free(x->from);
    free(x->node_of);
    *x = (struct dedup){0};
}
