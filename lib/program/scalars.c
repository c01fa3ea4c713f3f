/* Metrics of a step beside its loss. */
#include "program/scalars.h"

static const struct {
    const char *name;
    enum kind_id kind;
} metrics[] = {
#define X(id, kind) {#id, kind},
    METRICS(X)
#undef X
};

const char *metric_name(enum metric i) {
    return metrics[i].name;
}

int metric_ops(const struct model *m, enum metric i) {
    int n = 0;
    for (int k = 0; k < m->n_ops; k++)
        n += m->ops[k].kind == metrics[i].kind;
    return n;
}
