/* The graph of an exported program. */
#include "import/exported.h"

#include "common/half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEMA_MAJOR = 8, MOST_JSON = 1 << 30, TYPE_TRUTH = 12 };
static const int64_t most_size = (int64_t)1 << 40;

static json_t *entry_json(const struct archive_entry *e, struct err *err) {
    if (archive_check(e, err) < 0)
        return NULL;
    if (e->size > MOST_JSON) {
        err_input(err, "%.64s: expected at most %d bytes of JSON", e->name, MOST_JSON);
        return NULL;
    }
    return json_parse((const char *)e->bytes, (size_t)e->size, e->name, err);
}

/* ---- values ----------------------------------------------------------------------------- */

static int find_value(const struct exported *p, const char *name) {
    const json_t *v = name ? json_object_get(p->value_of, name) : NULL;
    return v ? (int)json_integer_value(v) : -1;
}

/* A size or another number that may be symbolic: then that of the example is its hint. */
static int read_size(const struct exported *p, const json_t *v, int64_t *out) {
    const json_t *sym = json_object_get(v, "as_int"), *hint;
    if (json_is_integer(v) || json_is_integer(sym)) {
        *out = json_integer_value(sym ? sym : v);
        return 0;
    }
    const char *name = json_string_value(json_object_get(v, "as_name"));
    if (name) {
        const json_t *graph =
            json_object_get(json_object_get(p->root, "graph_module"), "graph");
        v = json_object_get(json_object_get(graph, "sym_int_values"), name);
        if (json_is_integer(sym = json_object_get(v, "as_int"))) {
            *out = json_integer_value(sym);
            return 0;
        }
    }
    hint = json_object_get(json_object_get(v, "as_expr"), "hint");
    if (json_is_object(hint))
        hint = json_object_get(hint, "as_int");
    if (!json_is_integer(hint))
        return -1;
    *out = json_integer_value(hint);
    return 0;
}

static const json_t *graph_of(const struct exported *p) {
    return json_object_get(json_object_get(p->root, "graph_module"), "graph");
}

/* ScalarType of torch._export.serde.schema. */
static bool is_integer(int64_t type) {
    return (type >= 1 && type <= 5) || type == TYPE_TRUTH || type >= 28;
}

static bool is_complex(int64_t type) {
    return type >= 9 && type <= 11;
}

static int read_shape(struct exported *p, struct exported_value *v, struct err *err) {
    const json_t *meta =
        json_object_get(json_object_get(graph_of(p), "tensor_values"), v->name);
    const json_t *sizes = json_object_get(meta, "sizes");
    if (!meta)
        return 0;
    if (!json_is_array(sizes) || json_array_size(sizes) > EXPORTED_MAX_RANK)
        return err_input(err, "tensor_values.%.64s: expected at most %d sizes", v->name,
                         EXPORTED_MAX_RANK);
    v->tensor = true;
    v->integer = is_integer(json_integer_value(json_object_get(meta, "dtype")));
    v->truth = json_integer_value(json_object_get(meta, "dtype")) == TYPE_TRUTH;
    v->complex = is_complex(json_integer_value(json_object_get(meta, "dtype")));
    v->rank = (int)json_array_size(sizes);
    int64_t all = 1;
    for (int i = 0; i < v->rank; i++) {
        if (read_size(p, json_array_get(sizes, (size_t)i), &v->size[i]) < 0) {
            err_input(err,
                      "tensor_values.%.64s: size %d is dynamic, and the file does not "
                      "say what it was in the example",
                      v->name, i);
            return err_hint(err, "export without dynamic_shapes");
        }
        if (v->size[i] < 0 || v->size[i] > most_size ||
            (v->size[i] && all > most_size / v->size[i]))
            return err_input(err, "tensor_values.%.64s: a size of %lld elements", v->name,
                             (long long)v->size[i]);
        all *= v->size[i] ? v->size[i] : 1;
    }
    return 0;
}

static int add_value(struct exported *p, const char *name, enum exported_role role,
                     int node, const char *path, struct err *err) {
    if (!name)
        return err_input(err, "expected a name");
    if (find_value(p, name) >= 0)
        return err_input(err, "%.64s: there are two values of this name", name);
    struct exported_value v = {
        .name = name, .role = role, .node = node, .path = path, .tie = -1};
    if (read_shape(p, &v, err) < 0)
        return -1;
    json_object_set_new(p->value_of, name, json_integer(p->values.n));
    arr_push(&p->values, v);
    return (int)p->values.n - 1;
}

/* ---- inputs ------------------------------------------------------------------------------- */

static const struct {
    const char *kind, *path;
    enum exported_role role;
} kinds[] = {{"user_input", NULL, EXPORTED_INPUT},
             {"parameter", "parameter_name", EXPORTED_PARAMETER},
             {"buffer", "buffer_name", EXPORTED_BUFFER},
             {"tensor_constant", "tensor_constant_name", EXPORTED_BUFFER}};

static int read_input(struct exported *p, const json_t *spec, struct err *err) {
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const json_t *s = json_object_get(spec, kinds[k].kind);
        if (!s)
            continue;
        const json_t *arg = json_object_get(s, "arg");
        const json_t *inner = json_object_get(arg, "as_tensor");
        const char *name = json_string_value(json_object_get(inner ? inner : arg, "name"));
        if (!name && kinds[k].role == EXPORTED_INPUT)
            return 0; /* a number or none, which the graph holds as it is */
        const char *path =
            kinds[k].path ? json_string_value(json_object_get(s, kinds[k].path)) : name;
        if (!path)
            return err_input(err, "expected \"%s\"", kinds[k].path);
        int v = add_value(p, name, kinds[k].role, -1, path, err);
        if (v < 0)
            return -1;
        return p->values.p[v].tensor ? 0 : err_input(err, "%.64s: it has no shape", name);
    }
    return 0; /* custom objects, tokens: what reads them is refused */
}

static int read_inputs(struct exported *p, struct err *err) {
    const json_t *signature =
                     json_object_get(json_object_get(p->root, "graph_module"), "signature"),
                 *specs = json_object_get(signature, "input_specs"), *spec;
    size_t i;
    if (!json_is_array(specs))
        return err_input(err, "graph_module.signature.input_specs: expected an array");
    json_array_foreach(specs, i, spec) {
        if (read_input(p, spec, err) < 0)
            return err_at(err, "graph_module.signature.input_specs[%zu]", i);
    }
    return 0;
}

/* Parameters of one storage: the archive's list of weights says which file each is in. */
static int read_ties(struct exported *p, struct err *err) {
    const struct archive_entry *e =
        archive_match(&p->archive, "data/weights/", "_weights_config.json");
    if (!e)
        return 0;
    json_t *doc = entry_json(e, err), *first = json_object();
    int rc = doc ? 0 : -1;
    for (int64_t i = 0; doc && i < p->values.n; i++) {
        struct exported_value *v = &p->values.p[i];
        const json_t *c = json_object_get(json_object_get(doc, "config"), v->path);
        const char *file = json_string_value(json_object_get(c, "path_name"));
        if (v->role != EXPORTED_PARAMETER || !file)
            continue;
        const json_t *f = json_object_get(first, file);
        if (!f)
            json_object_set_new(first, file, json_integer(i));
        const struct exported_value *w = f ? &p->values.p[json_integer_value(f)] : v;
        if (f && v->rank == w->rank &&
            !memcmp(v->size, w->size, sizeof *v->size * (size_t)v->rank))
            v->tie = (int)json_integer_value(f);
    }
    json_decref(first);
    json_decref(doc);
    return rc;
}

/* ---- nodes -------------------------------------------------------------------------------------- */

/* "L__self__layers.0,layers.0,my.Layer;..." : the innermost module's path. */
static const char *module_path(struct exported *p, const json_t *node) {
    const char *stack = json_string_value(
        json_object_get(json_object_get(node, "metadata"), "nn_module_stack"));
    if (!stack)
        return "";
    const char *last = strrchr(stack, ';'), *from = strchr(last ? last : stack, ',');
    const char *to = from ? strchr(from + 1, ',') : NULL;
    return to ? arena_printf(&p->arena, "%.*s", (int)(to - from - 1), from + 1) : "";
}

static int add_outputs(struct exported *p, struct exported_node *n, int number,
                       const json_t *outputs, struct err *err) {
    const json_t *v, *each;
    size_t i, k;
    ARR(int) list = {0};
    int made = 0;
    json_array_foreach(outputs, i, v) {
        const json_t *one = json_object_get(v, "as_tensor"),
                     *many = json_object_get(v, "as_tensors");
        if (one && made >= 0) {
            made = add_value(p, json_string_value(json_object_get(one, "name")),
                             EXPORTED_RESULT, number, n->path, err);
            arr_push(&list, made);
        }
        json_array_foreach(many, k, each) {
            if (made >= 0)
                made = add_value(p, json_string_value(json_object_get(each, "name")),
                                 EXPORTED_RESULT, number, n->path, err);
            arr_push(&list, made);
        }
    }
    n->n_out = (int)list.n;
    n->out = arena_array(&p->arena, (size_t)list.n + 1, sizeof *n->out);
    if (list.n)
        memcpy(n->out, list.p, sizeof *list.p * (size_t)list.n);
    arr_release(&list);
    return made < 0 ? -1 : 0;
}

/* The value of {"name": ...}; one that nothing before it makes is refused. */
static int read_tensor(const struct exported *p, const json_t *v, struct err *err) {
    const char *name = json_string_value(json_object_get(v, "name"));
    int value = find_value(p, name);
    if (value >= 0)
        return value;
    return err_input(err, "inputs: \"%.64s\" is made by nothing before it",
                     name ? name : "?");
}

static int read_tensors(struct exported *p, struct exported_arg *arg, const json_t *list,
                        bool optional, struct err *err) {
    int *values = arena_array(&p->arena, json_array_size(list) + 1, sizeof *values);
    const json_t *v;
    size_t i;
    arg->kind = EXPORTED_TENSORS;
    arg->n = (int)json_array_size(list);
    arg->values = values;
    json_array_foreach(list, i, v) {
        const json_t *one = optional ? json_object_get(v, "as_tensor") : v;
        values[i] = -1;
        if (one && (values[i] = read_tensor(p, one, err)) < 0)
            return -1;
    }
    return 0;
}

static void read_ints(struct exported *p, struct exported_arg *arg, const json_t *list) {
    int64_t *ints = arena_array(&p->arena, json_array_size(list) + 1, sizeof *ints);
    const json_t *v;
    size_t i;
    arg->kind = EXPORTED_INTS;
    arg->n = (int)json_array_size(list);
    arg->ints = ints;
    json_array_foreach(list, i, v) {
        if (read_size(p, v, &ints[i]) < 0)
            arg->kind = EXPORTED_OTHER;
    }
}

static double float_of(const json_t *v) {
    const char *text = json_string_value(v);
    return !text                        ? json_real_value(v)
           : !strcmp(text, "-Infinity") ? -INFINITY
           : !strcmp(text, "Infinity")  ? INFINITY
                                        : (double)NAN;
}

/* `wrapped` says of which kind it is: {"as_int": 3}. */
static int read_arg(struct exported *p, struct exported_arg *arg, const json_t *wrapped,
                    struct err *err) {
    const char *key;
    json_t *v = NULL;
    json_object_foreach((json_t *)wrapped, key, v) break;
    if (!v || !strcmp(key, "as_none"))
        return 0;
    if (!strcmp(key, "as_optional_tensor"))
        return read_arg(p, arg, v, err);
    if (!strcmp(key, "as_tensors") || !strcmp(key, "as_optional_tensors"))
        return read_tensors(p, arg, v, *(key + 3) == 'o', err);
    arg->kind = EXPORTED_OTHER;
    if (!strcmp(key, "as_tensor")) {
        arg->kind = EXPORTED_TENSOR;
        arg->value = read_tensor(p, v, err);
        return arg->value < 0 ? -1 : 0;
    }
    if (json_is_array(v)) {
        read_ints(p, arg, v);
    } else if (!strcmp(key, "as_float")) {
        arg->kind = EXPORTED_NUMBER;
        arg->number = float_of(v);
    } else if (json_is_string(v)) {
        arg->kind = EXPORTED_TEXT;
        arg->text = json_string_value(v);
    } else if (json_is_boolean(v)) {
        arg->kind = EXPORTED_INT;
        arg->whole = json_is_true(v);
    } else if (read_size(p, v, &arg->whole) == 0) {
        arg->kind = EXPORTED_INT;
    }
    return 0;
}

static int read_args(struct exported *p, struct exported_node *n, const json_t *inputs,
                     struct err *err) {
    struct exported_arg *args =
        arena_array(&p->arena, json_array_size(inputs) + 1, sizeof *args);
    const json_t *input;
    size_t i;
    n->n_args = (int)json_array_size(inputs);
    n->args = args;
    json_array_foreach(inputs, i, input) {
        const char *name = json_string_value(json_object_get(input, "name"));
        args[i].name = name ? name : "";
        if (read_arg(p, &args[i], json_object_get(input, "arg"), err) < 0)
            return -1;
    }
    return 0;
}

static int read_node(struct exported *p, int number, const json_t *node, struct err *err) {
    struct exported_node *n = &p->nodes[number];
    const char *target;
    if (json_str(node, "target", &target, err) < 0)
        return -1;
    if (!strncmp(target, "torch.ops.", 10))
        target += 10;
    n->target = target;
    n->path = module_path(p, node);
    if (read_args(p, n, json_object_get(node, "inputs"), err) < 0)
        return -1;
    return add_outputs(p, n, number, json_object_get(node, "outputs"), err);
}

static int read_nodes(struct exported *p, struct err *err) {
    const json_t *nodes = json_object_get(graph_of(p), "nodes"), *node;
    size_t i;
    if (!json_is_array(nodes) || json_array_size(nodes) > EXPORTED_MAX_NODES)
        return err_input(err, "graph_module.graph.nodes: expected an array of at most %d",
                         EXPORTED_MAX_NODES);
    p->n_nodes = (int)json_array_size(nodes);
    p->nodes = arena_array(&p->arena, (size_t)p->n_nodes + 1, sizeof *p->nodes);
    json_array_foreach(nodes, i, node) {
        if (read_node(p, (int)i, node, err) < 0)
            return err_at(err, "graph_module.graph.nodes[%zu]", i);
    }
    return 0;
}

static int read_outputs(struct exported *p, struct err *err) {
    const json_t *signature =
        json_object_get(json_object_get(p->root, "graph_module"), "signature");
    const json_t *spec;
    size_t i;
    json_array_foreach(json_object_get(signature, "output_specs"), i, spec) {
        const json_t *s = json_object_get(spec, "user_output");
        if (!s)
            s = json_object_get(spec, "loss_output");
        const json_t *arg = json_object_get(s, "arg"),
                     *inner = json_object_get(arg, "as_tensor");
        const char *name = json_string_value(json_object_get(inner ? inner : arg, "name"));
        int v = find_value(p, name);
        if (v >= 0)
            arr_push(&p->outputs, v);
    }
    return p->outputs.n ? 0
                        : err_input(err, "graph_module.signature.output_specs: expected "
                                         "an output that is a tensor");
}

/* ---- the file ------------------------------------------------------------------------------------ */

static const struct archive_entry *find_program(const struct archive *a) {
    const struct archive_entry *e = archive_find(a, "models/model.json");
    if (!e)
        e = archive_match(a, "models/", ".json");
    return e ? e : archive_find(a, "serialized_exported_program.json");
}

static int check_schema(const json_t *root, struct err *err) {
    const json_t *v = json_object_get(root, "schema_version"),
                 *major = json_object_get(v, "major");
    if (!json_is_integer(major))
        return err_input(err, "schema_version.major: expected a whole number");
    if (json_integer_value(major) == SCHEMA_MAJOR)
        return 0;
    err_input(err, "schema_version.major: expected %d, got %lld", SCHEMA_MAJOR,
              (long long)json_integer_value(major));
    return err_hint(err, "export it again with a PyTorch of 2.6 to 2.15");
}

static int read_root(struct exported *p, struct err *err) {
    p->value_of = json_object();
    if (!p->root)
        return -1;
    return check_schema(p->root, err) < 0 || read_inputs(p, err) < 0 ||
                   read_nodes(p, err) < 0 || read_outputs(p, err) < 0
               ? -1
               : 0;
}

static int read_program(struct exported *p, struct err *err) {
    const struct archive_entry *e = find_program(&p->archive);
    if (!e)
        return err_input(err, "expected models/NAME.json in it, as torch.export.save "
                              "writes it, for one model");
    p->root = entry_json(e, err);
    if (!p->root)
        return -1;
    if (read_root(p, err) < 0)
        return err_prefix(err, "%.64s", e->name);
    return read_ties(p, err);
}

int exported_open(struct exported *p, const char *path, struct err *err) {
    *p = (struct exported){0};
    return archive_open(&p->archive, path, err) < 0 ? -1 : read_program(p, err);
}

int exported_parse(struct exported *p, const void *bytes, int64_t size, struct err *err) {
    *p = (struct exported){0};
    if (size && *(const char *)bytes != 'P') {
        p->root = json_parse(bytes, (size_t)size, "program", err);
        return read_root(p, err);
    }
    return archive_parse(&p->archive, bytes, size, err) < 0 ? -1 : read_program(p, err);
}

void exported_close(struct exported *p) {
    archive_close(&p->archive);
    json_decref(p->notes);
    json_decref(p->root);
    json_decref(p->value_of);
    arr_release(&p->values);
    arr_release(&p->outputs);
    arena_release(&p->arena);
    *p = (struct exported){0};
}

/* ---- buffers ------------------------------------------------------------------------------------- */

/* The entry that holds a tensor, by the lists of weights and of constants. */
static const struct archive_entry *find_tensor(const struct exported *p, const char *path,
                                               int64_t *type, struct err *err) {
    static const char *const lists[][2] = {{"data/constants/", "_constants_config.json"},
                                           {"data/weights/", "_weights_config.json"}};
    const struct archive_entry *found = NULL;
    for (int i = 0; i < 2 && !found; i++) {
        const struct archive_entry *e =
            archive_match(&p->archive, lists[i][0], lists[i][1]);
        json_t *doc = e ? entry_json(e, err) : NULL;
        const json_t *c = json_object_get(json_object_get(doc, "config"), path);
        const char *file = json_string_value(json_object_get(c, "path_name"));
        const json_t *meta = json_object_get(c, "tensor_meta");
        const json_t *offset = json_object_get(meta, "storage_offset");
        char name[256];
        if (file && !json_is_true(json_object_get(c, "use_pickle")) &&
            json_integer_value(json_object_get(offset, "as_int")) == 0) {
            snprintf(name, sizeof name, "%s%s", lists[i][0], file);
            found = archive_find(&p->archive, name);
            *type = json_integer_value(json_object_get(meta, "dtype"));
        }
        json_decref(doc);
    }
    return found;
}

static double element(const uint8_t *at, int64_t type) {
    float f;
    double d;
    int64_t whole;
    int32_t less;
    uint16_t half;
    switch (type) {
    case 4: memcpy(&less, at, 4); return less;
    case 5: memcpy(&whole, at, 8); return (double)whole;
    case 6:
    case 13: memcpy(&half, at, 2); return type == 6 ? f16_widen(half) : bf16_widen(half);
    case 7:
    case 10: memcpy(&f, at, 4); return f;
    case 8:
    case 11: memcpy(&d, at, 8); return d;
    default: return *at;
    }
}

int exported_buffer(const struct exported *p, int value, double *out, struct err *err) {
    static const int bytes[] = {0, 1, 0, 0, 4, 8, 2, 4, 8, 0, 4, 8, 1, 2};
    const struct exported_value *v = &p->values.p[value];
    int64_t type = 0, n = 1;
    for (int i = 0; i < v->rank; i++)
        n *= v->size[i];
    if (v->numbers) {
        memcpy(out, v->numbers, (size_t)n * sizeof *out);
        return 0;
    }
    n *= v->complex ? 2 : 1;
    const struct archive_entry *e = find_tensor(p, v->path, &type, err);
    if (!e)
        return err_input(err, "%.128s: its numbers are not in the archive", v->path);
    int each = type > 0 && type <= 13 ? bytes[type] : 0;
    if (!each || e->size / each != n || is_complex(type) != v->complex ||
        archive_check(e, err) < 0)
        return err_input(err, "%.128s: expected %lld numbers or truth values", v->path,
                         (long long)n);
    for (int64_t i = 0; i < n; i++)
        out[i] = element(e->bytes + i * each, type);
    return 0;
}
