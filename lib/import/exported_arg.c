/* Arguments of nodes. */
#include "import/exported.h"

#include <string.h>

const struct exported_arg *exported_arg(const struct exported_node *n, const char *name) {
    for (int i = 0; i < n->n_args; i++)
        if (!strcmp(n->args[i].name, name))
            return n->args[i].kind == EXPORTED_NONE ? NULL : &n->args[i];
    return NULL;
}

int exported_values(const struct exported_arg *arg, const int **values) {
    bool one = arg->kind == EXPORTED_TENSOR;
    *values = one ? &arg->value : arg->values;
    return one ? 1 : arg->kind == EXPORTED_TENSORS ? arg->n : 0;
}

int exported_tensor(const struct exported_node *n, const char *name) {
    const struct exported_arg *arg = exported_arg(n, name);
    return arg && arg->kind == EXPORTED_TENSOR ? arg->value : -1;
}

int exported_tensors(const struct exported_node *n, const char *name, int *out, int most) {
    const struct exported_arg *arg = exported_arg(n, name);
    if (!arg || arg->kind != EXPORTED_TENSORS || arg->n > most)
        return -1;
    for (int i = 0; i < arg->n; i++)
        out[i] = arg->values[i];
    return arg->n;
}

int exported_ints(const struct exported_node *n, const char *name, int64_t *out, int most) {
    const struct exported_arg *arg = exported_arg(n, name);
    if (!arg || arg->kind != EXPORTED_INTS || arg->n > most)
        return -1;
    for (int i = 0; i < arg->n; i++)
        out[i] = arg->ints[i];
    return arg->n;
}

double exported_number(const struct exported_node *n, const char *name, double missing) {
    const struct exported_arg *arg = exported_arg(n, name);
    if (arg && arg->kind == EXPORTED_NUMBER)
        return arg->number;
    return arg && arg->kind == EXPORTED_INT ? (double)arg->whole : missing;
}

int64_t exported_int(const struct exported_node *n, const char *name, int64_t missing) {
    const struct exported_arg *arg = exported_arg(n, name);
    return arg && arg->kind == EXPORTED_INT ? arg->whole : missing;
}

int exported_axis(const struct exported_node *n, const char *name, int rank, int missing) {
    int64_t d = exported_int(n, name, missing);
    return d >= -rank && d < rank ? (int)(d < 0 ? d + rank : d) : -1;
}

const char *exported_text(const struct exported_node *n, const char *name) {
    const struct exported_arg *arg = exported_arg(n, name);
    return arg && arg->kind == EXPORTED_TEXT ? arg->text : NULL;
}
