/* A model of ONNX from node to node. */
#include "import/translate_onnx.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBERS_MOST = 1 << 20 };

/* ---- tensors of the file -------------------------------------------------------------------------- */

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
static void find_weights(struct onnx_reading *r) {
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

/* Is a tensor the same for each of several samples, as an exporter that folds makes it? */
static bool is_repeated(const struct onnx_reading *r, const struct onnx_tensor *t) {
    int64_t n = onnx_elements(&t->shape), each = n / (t->shape.rank ? t->shape.size[0] : 1);
    if (t->shape.rank < 3 || t->shape.size[0] < 2 || n < 1 || n > NUMBERS_MOST ||
        !json_is_true(json_object_get(r->weights, t->shape.name)))
        return false;
    double *v = mem_array((size_t)n, sizeof *v);
    bool same = onnx_numbers(t, r->folder, v, NULL) == 0;
    for (int64_t i = each; i < n && same; i++)
        same = v[i] == v[i - each];
    free(v);
    return same;
}

/* The first of it, as often as there are samples. */
static int repeat(struct onnx_reading *r, int value) {
    struct exported_value v = *onnx_value(r, value);
    int64_t samples = v.size[0];
    json_t *args = translate_tensor(&r->t, json_array(), "self", value);
    translate_int(translate_int(args, "dim", 0), "start", 0);
    v.size[0] = 1;
    int one = onnx_emit(r, "aten.slice.Tensor", translate_int(args, "end", 1), v.rank,
                        v.size, 11);
    v.size[0] = samples;
    args = translate_tensor(&r->t, json_array(), "self", one);
    int all = onnx_emit(r, "aten.expand.default",
                        translate_ints(args, "size", v.size, v.rank), v.rank, v.size, 11);
    arr_push(&r->repeats, ((struct onnx_repeat){all, one}));
    return all;
}

/* A parameter, or numbers; those of large tables are not looked at. */
static int add_tensor(struct onnx_reading *r, const struct onnx_tensor *t) {
    const char *name = arena_strdup(&r->t.p->arena, t->shape.name);
    bool weight = json_object_get(r->weights, name);
    int value = translate_value(&r->t, weight ? EXPORTED_PARAMETER : EXPORTED_BUFFER, name,
                                t->shape.rank, t->shape.size, onnx_type_of(t->shape.type));
    int64_t n = onnx_elements(&t->shape);
    if (weight && is_repeated(r, t))
        return repeat(r, value);
    if (weight || n > NUMBERS_MOST)
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

/* ---- all of it ------------------------------------------------------------------------------------ */

static int add_inputs(struct onnx_reading *r, struct err *err) {
    r->at = (struct hlo_instruction){
        .name = "", .opcode = "initializer", .op_name = "", .direction = "", .custom = ""};
    r->t.at = &r->at;
    for (int64_t i = 0; i < r->g.tensors.n; i++) {
        const struct onnx_tensor *t = &r->g.tensors.p[i];
        if (json_object_get(r->of, t->shape.name))
            return err_input(err, "%.64s: there are two tensors of this name",
                             t->shape.name);
        int value = add_tensor(r, t);
        if (value < 0)
            return -1;
        json_object_set_new(r->of, t->shape.name, json_integer(value));
    }
    for (int64_t i = 0; i < r->g.inputs.n; i++) {
        const struct onnx_shape *s = &r->g.inputs.p[i];
        if (json_object_get(r->of, s->name))
            continue;
        if (s->rank < 0 || s->dynamic) {
            err_input(err, "%.64s: size \"%.40s\" is dynamic", s->name,
                      s->dynamic ? s->dynamic : "of every axis");
            return err_hint(err, "export with sizes that are fixed: those of an example");
        }
        const char *name = arena_strdup(&r->t.p->arena, s->name);
        int value = translate_value(&r->t, EXPORTED_INPUT, name, s->rank, s->size,
                                    onnx_type_of(s->type));
        json_object_set_new(r->of, s->name, json_integer(value));
    }
    return 0;
}

/* The modules around a node as a path of them, whose numbers begin new parts: layers_0 has none. */
static void look_at(struct onnx_reading *r, const struct onnx_node *n) {
    struct arena *a = &r->g.arena;
    r->scope = n->scope;
    char *path = arena_printf(a, "%s/%s", n->scope, n->op);
    for (char *c = path; *c; c++)
        if (*c == '.' && !(c[1] >= '0' && c[1] <= '9'))
            *c = '/';
    r->at = (struct hlo_instruction){.name = *n->name   ? n->name
                                             : n->out.n ? n->out.p[0]
                                                        : n->op,
                                     .opcode = n->op,
                                     .op_name = *n->scope ? path : "",
                                     .direction = "",
                                     .custom = ""};
    r->t.at = &r->at;
}

/* What is not known is refused later, with all else of its kind, where the file says which shape it has. */
static int unknown(struct onnx_reading *r, const struct onnx_node *n, struct err *err) {
    json_t *args = json_array();
    for (int64_t i = 0; i < n->in.n && i < 16; i++) {
        int x = onnx_in(r, n, (int)i);
        if (x >= 0)
            translate_tensor(&r->t, args, arena_printf(&r->t.p->arena, "in%d", (int)i), x);
    }
    const struct onnx_shape *s = NULL;
    for (int64_t i = 0; i < r->g.shapes.n && n->out.n; i++)
        if (!strcmp(r->g.shapes.p[i].name, n->out.p[0]) && r->g.shapes.p[i].rank >= 0)
            s = &r->g.shapes.p[i];
    if (!s) {
        json_decref(args);
        return err_input(err, "%.64s: no op does what this does: %.48s", r->at.name, n->op);
    }
    return onnx_emit(r, arena_printf(&r->t.p->arena, "onnx.%s", n->op), args, s->rank,
                     s->size, onnx_type_of(s->type));
}

static int read_node(struct onnx_reading *r, const struct onnx_node *n, struct err *err) {
    json_t *list = NULL;
    look_at(r, n);
    for (int64_t i = 0; i < n->in.n; i++)
        if (*n->in.p[i] && !json_object_get(r->of, n->in.p[i]))
            return err_input(err, "%.64s: \"%.64s\" is made by nothing before it",
                             r->at.name, n->in.p[i]);
    if (r->t.nodes.n > ONNX_MAX_NODES || r->t.p->values.n > 4 * ONNX_MAX_NODES)
        return err_input(err, "graph: expected at most %d nodes", ONNX_MAX_NODES);
    int value = *n->domain && strcmp(n->domain, "ai.onnx") != 0 ? -1 : onnx_op(r, n, &list);
    if (r->failed)
        return -1;
    if (value < 0 && !list && (value = unknown(r, n, err)) < 0)
        return -1;
    bool spread = list && n->out.n > 1;
    for (int64_t i = 0; i < n->out.n; i++) {
        json_t *v = spread ? json_incref(json_array_get(list, (size_t)i))
                    : list ? json_incref(list)
                           : json_integer(value);
        if (json_object_get(r->of, n->out.p[i]) && *n->out.p[i]) {
            json_decref(v);
            json_decref(list);
            return err_input(err, "%.64s: \"%.64s\" is made by two", r->at.name,
                             n->out.p[i]);
        }
        json_object_set_new(r->of, n->out.p[i], v ? v : json_integer(-1));
        if (!spread)
            break;
    }
    json_decref(list);
    return 0;
}

static int read_model(struct onnx_reading *r, struct err *err) {
    find_weights(r);
    if (add_inputs(r, err) < 0)
        return -1;
    for (int64_t i = 0; i < r->g.nodes.n; i++)
        if (read_node(r, &r->g.nodes.p[i], err) < 0)
            return err_prefix(err, "graph");
    for (int64_t i = 0; i < r->g.outputs.n; i++) {
        const json_t *v = json_object_get(r->of, r->g.outputs.p[i]);
        if (json_is_integer(v) && json_integer_value(v) >= 0)
            arr_push(&r->t.p->outputs, (int)json_integer_value(v));
    }
    return r->t.p->outputs.n ? 0
                             : err_input(err, "graph: expected an output that is a tensor");
}

int translate_onnx(struct exported *p, const void *bytes, int64_t size, const char *folder,
                   struct err *err) {
    struct onnx_reading r = {.t = {.p = p, .turn = -1, .seen = json_object()},
                             .fold = {.p = p},
                             .folder = folder,
                             .of = json_object(),
                             .weights = json_object(),
                             .used = json_object(),
                             .err = err};
    *p = (struct exported){
        .root = json_array(), .value_of = json_object(), .about = "From a model of ONNX."};
    int rc = onnx_parse(&r.g, bytes, size, err) < 0 ? -1 : read_model(&r, err);
    p->n_nodes = (int)r.t.nodes.n;
    p->nodes = arena_array(&p->arena, (size_t)r.t.nodes.n + 1, sizeof *p->nodes);
    if (r.t.nodes.n)
        memcpy(p->nodes, r.t.nodes.p, (size_t)r.t.nodes.n * sizeof *p->nodes);
    fold_release(&r.fold);
    arr_release(&r.t.nodes);
    arr_release(&r.repeats);
    json_decref(r.t.seen);
    json_decref(r.of);
    json_decref(r.weights);
    json_decref(r.used);
    onnx_close(&r.g);
    return rc;
}
