/* Fuzzes the reader of model files (libFuzzer). The first line is the preset and the overrides
 * ("nano layers=2"), the rest the document. What is accepted must be a graph: every op follows
 * its operands, every size is positive, and counting its parameters and products is sane. */
#include "model/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check_shape(const struct model *m, const struct shape *s) {
    if (s->rank < 0 || s->rank > MODEL_MAX_RANK)
        abort();
    for (int i = 0; i < s->rank; i++)
        if (s->dim[i] < 0 || s->dim[i] >= m->n_dims ||
            (s->dim[i] != m->batch && m->dims[s->dim[i]].size < 1))
            abort();
}

static void check_model(const struct model *m) {
    for (int i = 0; i < m->n_tensors; i++)
        check_shape(m, &m->tensors[i].shape);
    for (int i = 0; i < m->n_params; i++)
        check_shape(m, &m->params[i].shape);
    for (int i = 0; i < m->n_ops; i++) {
        const struct model_op *op = &m->ops[i];
        if (m->tensors[op->out].producer != i || (op->splittable & ~op->domain) ||
            (op->crossed & ~op->domain) || (op->contracted & ~op->domain))
            abort();
        for (int k = 0; k < op->n_in; k++)
            if (m->tensors[op->in[k]].producer >= i)
                abort();
        for (int k = 0; k < op->n_param; k++)
            if (op->param[k] < 0 || op->param[k] >= m->n_params)
                abort();
    }
    if (m->loss != m->n_ops - 1 || model_param_count(m) < 0 ||
        !isfinite(model_forward_flops(m, 1)))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    char line[256] = "", *set;
    const uint8_t *end = size ? memchr(bytes, '\n', size) : NULL;
    if (!end || (size_t)(end - bytes) >= sizeof line)
        return 0;
    memcpy(line, bytes, (size_t)(end - bytes));
    set = strchr(line, ' ');
    if (set)
        *set++ = '\0';
    size -= (size_t)(end + 1 - bytes);
    struct err err = {0};
    json_t *doc = json_parse((const char *)end + 1, size, "model", &err);
    struct model *m = doc ? model_from_json(doc, line, set, &err) : NULL;
    if (m)
        check_model(m);
    else if (err.status != EXIT_INPUT || !err.msg[0])
        abort();
    model_destroy(m);
    json_decref(doc);
    return 0;
}
