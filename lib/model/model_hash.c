/* The identity of a model: everything that decides what is computed. */
#include "common/rng.h"
#include "model/read.h"

#include <string.h>

static uint64_t add_int(uint64_t h, int64_t v) {
    return hash_bytes(&v, sizeof v, h);
}

static uint64_t add_text(uint64_t h, const char *s) {
    return hash_bytes(s, strlen(s) + 1, h);
}

static uint64_t add_real(uint64_t h, double v) {
    return hash_bytes(&v, sizeof v, h);
}

static uint64_t add_shape(const struct model *m, uint64_t h, const struct shape *s) {
    h = add_int(h, s->rank);
    for (int i = 0; i < s->rank; i++)
        h = add_int(add_text(h, m->dims[s->dim[i]].name), m->dims[s->dim[i]].size);
    return h;
}

static uint64_t add_op(const struct model *m, uint64_t h, const struct model_op *op) {
    h = add_text(add_text(h, kind_of(op->kind)->name), op->name);
    for (int k = 0; k < op->n_in; k++)
        h = add_int(h, op->in[k]);
    for (int k = 0; k < op->n_param; k++)
        h = add_int(h, op->param[k]);
    for (int k = 0; k < op->n_out; k++)
        h = add_shape(m, h, &m->tensors[op->out[k]].shape);
    /* What ops may say since is left out where they do not, so that older models keep their hash. */
    for (int a = 0; a < ATTR_COUNT; a++)
        if (a <= ATTR_fan || op->attr[a] != kind_of(op->kind)->attr[a])
            h = add_real(a <= ATTR_fan ? h : add_int(h, a), op->attr[a]);
    for (int i = 0; op->slower && i < (int)op->attr[ATTR_short]; i++)
        h = add_real(h, op->slower[i]);
    return h;
}

/* Only what decides the numbers and the names of parameters: no names of tensors, no sizes that no dim
 * has. */
uint64_t model_hash(const struct model *m) {
    uint64_t h = 0;
    for (int i = 0; i < m->n_tensors; i++) {
        const struct model_tensor *t = &m->tensors[i];
        if (t->producer >= 0)
            continue;
        h = add_shape(m, add_int(h, t->source), &t->shape);
        if (t->source == DATA_DOCUMENT_START || t->source == DATA_DOCUMENT_POSITION)
            h = add_int(h, t->end);
    }
    for (int i = 0; i < m->n_params; i++) {
        const struct model_param *p = &m->params[i];
        h = add_shape(m, add_text(h, p->name), &p->shape);
        h = add_int(add_real(add_int(h, p->init), p->std), p->decay);
        if (p->frozen)
            h = add_text(h, "frozen");
    }
    for (int i = 0; i < m->n_ops; i++)
        h = add_op(m, h, &m->ops[i]);
    return h;
}
