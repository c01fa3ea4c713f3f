/* Tensors of a model of ONNX: which are parameters, by who reads them, and which are copies of others. */
#include "import/translate_onnx.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBERS_MOST = 1 << 20 };

static bool is_real(const struct onnx_tensor *t) {
    int type = onnx_type_of(t->shape.type);
    return type == 11 || type == 10 || type == 12 || type == 16;
}

/* Which tensor is this one, turned, cast or under other sizes at most? */
static bool passes(const char *op) {
    static const char *const ops[] = {"Identity", "Transpose", "Reshape",
                                      "Cast",     "Unsqueeze", "Squeeze",
                                      "Flatten",  "Expand",    NULL};
    for (int i = 0; ops[i]; i++)
        if (!strcmp(ops[i], op))
            return true;
    return false;
}

/* More than one element along several axes. */
static bool is_wide(const struct onnx_shape *s) {
    int n = 0;
    for (int i = 0; i < s->rank; i++)
        n += s->size[i] > 1;
    return n > 1;
}

/* Numbers that are 0 or far below: what is added to scores so that nothing is seen. */
static bool is_mask(const struct onnx_reading *r, const struct onnx_tensor *t) {
    int64_t n = onnx_elements(&t->shape);
    if (n > NUMBERS_MOST || n < 1 || !is_wide(&t->shape))
        return false;
    double *v = mem_array((size_t)n, sizeof *v);
    bool mask = onnx_numbers(t, r->folder, v, NULL) == 0;
    for (int64_t i = 0; i < n && mask; i++)
        mask = v[i] == 0 || v[i] <= -1e4;
    free(v);
    return mask;
}

/* Does a node read operand k, a tensor of the file, as a parameter? `data`: another one follows from data. */
static bool reads_weight(const struct onnx_reading *r, const struct onnx_node *n, int k,
                         const struct onnx_tensor *t, bool data) {
    static const char *const norms[] = {"LayerNormalization", "RMSNormalization",
                                        "BatchNormalization", "GroupNormalization"};
    for (int i = 0; i < 4; i++)
        if (!strcmp(n->op, norms[i]))
            return k > 0;
    if (!strcmp(n->op, "Gather"))
        return k == 0 && t->shape.rank == 2;
    if (!strcmp(n->op, "MatMul") || !strcmp(n->op, "Gemm") || !strcmp(n->op, "Conv") ||
        !strcmp(n->op, "Concat"))
        return data;
    if (onnx_elements(&t->shape) == 1)
        return false;
    if (!strcmp(n->op, "Add") || !strcmp(n->op, "Sub"))
        return data && !is_mask(r, t);
    return (!strcmp(n->op, "Mul") || !strcmp(n->op, "Div")) && data && !is_wide(&t->shape);
}

/* May what it reads be stretched over samples? */
static bool is_for_samples(const struct onnx_node *n) {
    return !strcmp(n->op, "Add") || !strcmp(n->op, "Sub") || !strcmp(n->op, "Concat");
}

/* Names of values -> the tensor that they are; of data. */
void onnx_find_weights(struct onnx_reading *r) {
    json_t *root = json_object(), *data = json_object();
    for (int64_t i = 0; i < r->g.tensors.n; i++)
        if (is_real(&r->g.tensors.p[i]))
            json_object_set_new(root, r->g.tensors.p[i].shape.name, json_integer(i));
    for (int64_t i = 0; i < r->g.inputs.n; i++)
        if (!json_object_get(root, r->g.inputs.p[i].name))
            json_object_set_new(data, r->g.inputs.p[i].name, json_true());
    for (int64_t i = 0; i < r->g.nodes.n; i++) {
        const struct onnx_node *n = &r->g.nodes.p[i];
        bool follows = false;
        for (int64_t k = 0; k < n->in.n; k++)
            follows |= json_object_get(data, n->in.p[k]) != NULL;
        for (int64_t k = 0; k < n->in.n; k++) {
            json_t *of = json_object_get(root, n->in.p[k]);
            const struct onnx_tensor *t =
                of ? &r->g.tensors.p[json_integer_value(of)] : NULL;
            if (!t)
                continue;
            if (!strcmp(n->op, "Gather") && k == 0 && follows)
                json_object_set_new(r->tables, t->shape.name, json_true());
            bool offset = !strcmp(n->op, "Add") && !follows && t->shape.rank == 1;
            if (((k == 0 && passes(n->op)) || offset) && n->out.n)
                json_object_set(root, n->out.p[0], of);
            else if (reads_weight(r, n, (int)k, t, follows))
                json_object_set_new(r->weights, t->shape.name,
                                    json_boolean(is_for_samples(n)));
        }
        for (int64_t k = 0; k < n->out.n && follows && strcmp(n->op, "Shape") != 0; k++)
            json_object_set_new(data, n->out.p[k], json_true());
    }
    json_decref(root);
    json_decref(data);
}

/* How often a tensor is there along its first axes: once for each of several samples, as an exporter that folds makes
 * it, and perhaps for each position too. All but its last axis at most; what is the same number everywhere says
 * nothing of positions. Returns how many axes. */
static int repeated_axes(const struct onnx_reading *r, const struct onnx_tensor *t) {
    const int64_t n = onnx_elements(&t->shape);
    const int rank = t->shape.rank;
    int axes = 0;
    if (rank < 3 || t->shape.size[0] < 2 || n < 1 || n > NUMBERS_MOST ||
        !json_is_true(json_object_get(r->weights, t->shape.name)))
        return 0;
    double *v = mem_array((size_t)n, sizeof *v);
    bool same = onnx_numbers(t, r->folder, v, NULL) == 0, one = true;
    int64_t each = n;
    for (int64_t i = 1; i < n && same && one; i++)
        one = v[i] == v[0];
    for (int d = 0; d < rank - 1 && same; d++) {
        each /= t->shape.size[d];
        for (int64_t i = each; i < n && same; i++)
            same = v[i] == v[i - each];
        axes += same && (d == 0 || !one);
    }
    free(v);
    return axes;
}

/* A parameter of these sizes, which is the first elements of the tensor. */
static int parameter(struct onnx_reading *r, const struct onnx_tensor *t, const char *name,
                     int rank, const int64_t *size) {
    int value = translate_value(&r->t, EXPORTED_PARAMETER, name, rank, size, 11);
    arr_push(&r->sources, ((struct onnx_source){value, t, false}));
    return value;
}

/* A parameter of which the file has copies: one of them, stretched. */
static int repeat(struct onnx_reading *r, const struct onnx_tensor *t, const char *name,
                  int axes) {
    int64_t size[ONNX_MAX_RANK];
    memcpy(size, t->shape.size, sizeof size);
    for (int d = 0; d < axes; d++)
        size[d] = 1;
    int one = parameter(r, t, name, t->shape.rank, size);
    struct translate_args args = {0};
    translate_tensor(&args, "self", one);
    translate_ints(&args, "size", t->shape.size, t->shape.rank);
    int all = onnx_emit(r, "aten.expand.default", &args, t->shape.rank, t->shape.size, 11);
    arr_push(&r->repeats, ((struct onnx_repeat){all, one}));
    json_array_append_new(r->t.p->notes,
                          json_sprintf("%.128s is there for each sample: --weights writes "
                                       "what it is of one",
                                       name));
    return all;
}

/* Is a matrix b another one turned? So many of its elements are compared. */
static bool is_turned(const struct onnx_reading *r, const struct onnx_tensor *a,
                      const struct onnx_tensor *b) {
    enum { LOOKED_AT = 4096 };
    const int64_t rows = a->shape.size[0], columns = a->shape.size[1], n = rows * columns,
                  step = 1 + n / LOOKED_AT;
    double x, y, first = (double)NAN;
    bool differ = false;
    for (int64_t i = 0; i < n; i += step) {
        if (onnx_part(a, r->folder, i, 1, &x, NULL) < 0 ||
            onnx_part(b, r->folder, i % columns * rows + i / columns, 1, &y, NULL) < 0 ||
            x != y)
            return false;
        differ |= x != first && i > 0;
        first = i ? first : x;
    }
    return differ;
}

/* The table of an embedding whose turned copy this is: where both were one, an exporter that folds makes two of it.
 * NULL: it is none. */
static const struct onnx_tensor *table_of(const struct onnx_reading *r,
                                          const struct onnx_tensor *t) {
    for (int64_t i = 0; i < r->g.tensors.n; i++) {
        const struct onnx_tensor *table = &r->g.tensors.p[i];
        if (json_object_get(r->tables, table->shape.name) && table->shape.rank == 2 &&
            table->shape.type == t->shape.type &&
            table->shape.size[0] == t->shape.size[1] &&
            table->shape.size[1] == t->shape.size[0] && is_turned(r, table, t))
            return table;
    }
    return NULL;
}

/* The table turned. It may stand behind its copy, so it is made here where it is not there. */
static int turned_table(struct onnx_reading *r, const struct onnx_tensor *table) {
    static const int64_t order[] = {1, 0};
    int value = onnx_tensor_value(r, table);
    return value < 0 ? -1 : onnx_permute(r, value, order);
}

/* Without the file that numbers lie in, a model is one still, but copies are not seen to be ones. */
static void look_beside(struct onnx_reading *r, const struct onnx_tensor *t) {
    struct err err = {0};
    double first;
    if (r->lacks || !t->file || !r->folder || onnx_elements(&t->shape) < 1 ||
        onnx_part(t, r->folder, 0, 1, &first, &err) == 0)
        return;
    r->lacks = true;
    json_array_append_new(
        r->t.p->notes,
        json_sprintf("%.200s: which parameters are copies of others is not seen", err.msg));
}

static int add_parameter(struct onnx_reading *r, const struct onnx_tensor *t,
                         const char *name) {
    const bool is_table = json_object_get(r->tables, name);
    const struct onnx_tensor *table =
        t->shape.rank == 2 && !is_table ? table_of(r, t) : NULL;
    const int axes = repeated_axes(r, t);
    look_beside(r, t);
    if (table)
        return turned_table(r, table);
    if (axes)
        return repeat(r, t, name, axes);
    return parameter(r, t, name, t->shape.rank, t->shape.size);
}

/* A parameter, or numbers; those of large tables are not looked at. */
int onnx_tensor_value(struct onnx_reading *r, const struct onnx_tensor *t) {
    const char *name = arena_strdup(&r->t.p->arena, t->shape.name);
    const json_t *known = json_object_get(r->of, name);
    if (known)
        return (int)json_integer_value(known);
    if (json_object_get(r->weights, name)) {
        int value = add_parameter(r, t, name);
        json_object_set_new(r->of, name, json_integer(value));
        return value;
    }
    int value = translate_value(&r->t, EXPORTED_BUFFER, name, t->shape.rank, t->shape.size,
                                onnx_type_of(t->shape.type));
    json_object_set_new(r->of, name, json_integer(value));
    int64_t n = onnx_elements(&t->shape);
    if (n > NUMBERS_MOST)
        return value;
    double *v = arena_array(&r->t.p->arena, (size_t)n + 1, sizeof *v);
    bool there = t->file || t->raw.at;
    if (onnx_numbers(t, r->folder, v, there ? r->err : NULL) < 0) {
        r->failed = there; /* else it matters only if somebody asks for them */
        return there ? -1 : value;
    }
    r->t.p->values.p[value].numbers = v;
    return value;
}
