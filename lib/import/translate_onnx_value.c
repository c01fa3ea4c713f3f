/* Values of a model of ONNX, and nodes that make them. */
#include "import/translate_onnx.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct exported_value *onnx_value(const struct onnx_reading *r, int value) {
    return &r->t.p->values.p[value];
}

int onnx_type(const struct onnx_reading *r, int value) {
    const struct exported_value *v = onnx_value(r, value);
    return v->truth ? 1 : v->integer ? 5 : 11;
}

int onnx_type_of(int type) {
    static const int types[] = {11, 11, 6, 2, 7, 3, 4, 5, 11, 1, 10, 12, 8, 9, 11, 11, 16};
    return type >= 0 && type < 17 ? types[type] : 11;
}

/* ---- values and nodes ----------------------------------------------------------------------------- */

static int64_t elements(const struct exported_value *v) {
    int64_t n = 1;
    for (int i = 0; i < v->rank; i++)
        n *= v->size[i];
    return n;
}

int onnx_known(struct onnx_reading *r, int value, int64_t *out, int most) {
    int64_t at[EXPORTED_MAX_RANK] = {0};
    if (value < 0 || !fold_is(&r->fold, value) || onnx_value(r, value)->rank > 1)
        return -1;
    int64_t n = elements(onnx_value(r, value));
    if (n > most)
        return -1;
    for (at[0] = 0; at[0] < n; at[0]++) {
        double v = fold_at(&r->fold, value, at); /* ends beyond all are as far as 2^62 */
        out[at[0]] = v > 0x1p62 ? INT64_C(1) << 62 : v > -0x1p62 ? (int64_t)v : -INT64_MAX;
        if (isnan(v))
            return -1;
    }
    return (int)n;
}

/* Do all tensors among the arguments follow from neither data nor parameters? */
static bool is_constant(struct onnx_reading *r, const struct translate_args *args) {
    for (int i = 0; i < args->n; i++) {
        const int *values;
        int n = exported_values(&args->arg[i], &values);
        for (int k = 0; k < n; k++)
            if (!fold_is(&r->fold, values[k]))
                return false;
    }
    return true;
}

int onnx_emit(struct onnx_reading *r, const char *target, const struct translate_args *args,
              int rank, const int64_t *size, int type) {
    int64_t before = r->t.nodes.n;
    int value = translate_node(&r->t, target, args, rank, size, type, is_constant(r, args));
    r->t.p->nodes = r->t.nodes.p;
    r->t.p->n_nodes = (int)r->t.nodes.n;
    if (r->t.nodes.n > before)
        fold_node(&r->fold, (int)before);
    return value;
}

int onnx_constant(struct onnx_reading *r, int rank, const int64_t *size, int type,
                  const double *numbers) {
    int value = translate_value(&r->t, EXPORTED_BUFFER, NULL, rank, size, type);
    int64_t n = elements(onnx_value(r, value));
    double *own = arena_array(&r->t.p->arena, (size_t)n + 1, sizeof *own);
    if (n)
        memcpy(own, numbers, (size_t)n * sizeof *own);
    r->t.p->values.p[value].numbers = own;
    return value;
}

int onnx_view(struct onnx_reading *r, int x, int rank, const int64_t *size) {
    const struct exported_value *v = onnx_value(r, x);
    if (v->rank == rank && !memcmp(v->size, size, sizeof *size * (size_t)rank))
        return x;
    struct translate_args args = {0};
    translate_tensor(&args, "self", x);
    return onnx_emit(r, "aten.view.default", translate_ints(&args, "size", size, rank),
                     rank, size, onnx_type(r, x));
}

/* ---- inputs of nodes ------------------------------------------------------------------------------ */

int onnx_thin(const struct onnx_reading *r, int value) {
    for (int64_t i = 0; i < r->repeats.n; i++)
        if (r->repeats.p[i].all == value)
            return r->repeats.p[i].one;
    return value;
}

static struct onnx_source *source_of(struct onnx_reading *r, int value) {
    for (int64_t i = 0; i < r->sources.n; i++)
        if (r->sources.p[i].value == value)
            return &r->sources.p[i];
    return NULL;
}

/* A name that no parameter has. */
static const char *own_name(struct onnx_reading *r, const char *want) {
    const char *name = want;
    for (int i = 2; json_object_get(r->used, name) || json_object_get(r->weights, name);
         i++)
        name = arena_printf(&r->t.p->arena, "%s_%d", want, i);
    json_object_set_new(r->used, name, json_true());
    return name;
}

/* Exporters keep equal biases and weights of norms once, as those of a model that was not trained are: they are
 * parameters of their own for each node. */
static int own_use(struct onnx_reading *r, int value) {
    const struct exported_value *v = onnx_value(r, value);
    const struct onnx_source *source = source_of(r, value);
    if (v->role != EXPORTED_PARAMETER || v->rank > 1 || !source)
        return value;
    struct exported_value like = *v;
    const struct onnx_tensor *tensor = source->tensor;
    json_t *seen = json_object_get(r->used, like.name);
    if (!seen) {
        json_object_set_new(r->used, like.name, json_true());
        return value;
    }
    const char *last = strrchr(like.path, '.'), *scope = r->scope;
    const char *path =
        *scope && last ? arena_printf(&r->t.p->arena, "%s%s", scope, last) : like.path;
    int own = translate_value(&r->t, EXPORTED_PARAMETER, own_name(r, path), like.rank,
                              like.size, 11);
    arr_push(&r->sources, ((struct onnx_source){own, tensor, false}));
    return own;
}

int onnx_in(struct onnx_reading *r, const struct onnx_node *n, int i) {
    if (i >= n->in.n || !*n->in.p[i])
        return -1;
    const json_t *v = json_object_get(r->of, n->in.p[i]);
    if (!json_is_integer(v))
        return -1;
    int value = own_use(r, (int)json_integer_value(v));
    struct onnx_source *source = source_of(r, onnx_thin(r, value));
    if (source)
        source->read = true;
    return value;
}
