/* A model of ONNX from node to node. */
#include "import/translate_onnx.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- all of it ------------------------------------------------------------------------------------ */

/* Each tensor has a name of its own. */
static int check_names(const struct onnx_reading *r, struct err *err) {
    json_t *seen = json_object();
    int rc = 0;
    for (int64_t i = 0; i < r->g.tensors.n && rc == 0; i++) {
        const char *name = r->g.tensors.p[i].shape.name;
        if (json_object_get(seen, name))
            rc = err_input(err, "%.64s: there are two tensors of this name", name);
        json_object_set_new(seen, name, json_true());
    }
    json_decref(seen);
    return rc;
}

static int add_inputs(struct onnx_reading *r, struct err *err) {
    r->at = (struct hlo_instruction){
        .name = "", .opcode = "initializer", .op_name = "", .direction = "", .custom = ""};
    r->t.at = &r->at;
    if (check_names(r, err) < 0)
        return -1;
    for (int64_t i = 0; i < r->g.tensors.n; i++)
        if (onnx_tensor_value(r, &r->g.tensors.p[i]) < 0)
            return -1;
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
    const char *op = *n->domain ? arena_printf(a, "%s.%s", n->domain, n->op) : n->op;
    r->at = (struct hlo_instruction){.name = *n->name   ? n->name
                                             : n->out.n ? n->out.p[0]
                                                        : n->op,
                                     .opcode = op,
                                     .op_name = *n->scope ? path : "",
                                     .direction = "",
                                     .custom = ""};
    r->t.at = &r->at;
}

/* What is not known is refused later, with all else of its kind, where it makes one tensor and the file says which
 * shape that has. */
static int unknown(struct onnx_reading *r, const struct onnx_node *n, struct err *err) {
    struct translate_args args = {0};
    for (int64_t i = 0; i < n->in.n && i < TRANSLATE_MOST_ARGS; i++) {
        int x = onnx_in(r, n, (int)i);
        if (x >= 0)
            translate_tensor(&args, arena_printf(&r->t.p->arena, "in%d", (int)i), x);
    }
    const struct onnx_shape *s = NULL;
    for (int64_t i = 0; i < r->g.shapes.n && n->out.n; i++)
        if (!strcmp(r->g.shapes.p[i].name, n->out.p[0]) && r->g.shapes.p[i].rank >= 0)
            s = &r->g.shapes.p[i];
    if (!s || (n->out.n > 1 && *n->out.p[1]))
        return err_input(err, "%.64s: no op does what this does: %.80s", r->at.name,
                         r->at.opcode);
    return onnx_emit(r, arena_printf(&r->t.p->arena, "onnx.%s", n->op), &args, s->rank,
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
    onnx_find_weights(r);
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
                   const char *weights, struct err *err) {
    struct onnx_reading r = {.t = {.p = p, .turn = -1},
                             .fold = {.p = p},
                             .folder = folder,
                             .of = json_object(),
                             .weights = json_object(),
                             .tables = json_object(),
                             .used = json_object(),
                             .err = err};
    *p = (struct exported){.notes = json_array(), .about = "From a model of ONNX."};
    int rc = onnx_parse(&r.g, bytes, size, err) < 0 ? -1 : read_model(&r, err);
    if (rc == 0 && weights)
        rc = onnx_write_weights(&r, weights, err);
    translate_end(&r.t);
    fold_release(&r.fold);
    arr_release(&r.repeats);
    arr_release(&r.sources);
    json_decref(r.of);
    json_decref(r.weights);
    json_decref(r.tables);
    json_decref(r.used);
    onnx_close(&r.g);
    return rc;
}
