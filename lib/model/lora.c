/* Adapters in the list of ops; lora_names.c says what PEFT calls them. */
#include "model/lora.h"

#include "model/lora_names.h"
#include "model/model.h"
#include "model/pattern.h"

#include <stdlib.h>
#include <string.h>

enum { PATTERNS = 64, PATH = 600 };

struct adding {
    json_t *doc;
    const struct model *m; /* without adapters */
    const struct lora *spec;
    struct pattern on[PATTERNS];
    bool used[PATTERNS];
    int n_on;
    json_t *frozen; /* the list of the document */
    struct lora_names names;
};

/* ---- which ops ------------------------------------------------------------------------------ */

/* A product of one operand with a weight of which no dim is both the operand's and the result's: experts
 * have one that is. */
static bool may_adapt(const struct model_op *op) {
    if (op->kind != OP_einsum || op->n_in != 1 || op->param[0] < 0)
        return false;
    for (int k = 0; k < op->space.n; k++)
        if (op->in_map[0].axis[k] >= 0 && op->out_map[0].axis[k] >= 0 &&
            op->param_map[0].axis[k] >= 0)
            return false;
    return true;
}

static bool is_wanted(struct adding *a, const struct model_op *op) {
    bool wanted = !a->spec->on && op->block >= 0;
    if (!may_adapt(op))
        return false;
    for (int i = 0; i < a->n_on; i++)
        if (pattern_covers(&a->on[i], op->name))
            wanted = a->used[i] = true;
    return wanted;
}

/* Does the op of the file get one? `path` is the pattern of its instances. -1: with an error. */
static int wanted(struct adding *a, const char *path, struct err *err) {
    struct pattern of = {.text = path};
    int instances = 0, n = 0;
    for (int i = 0; i < a->m->n_ops; i++) {
        const struct model_op *op = &a->m->ops[i];
        if (!pattern_covers(&of, op->name))
            continue;
        instances++;
        n += is_wanted(a, op);
    }
    if (n && n < instances)
        return err_input(err, "expected all instances of %s or none, got %d of %d", path, n,
                         instances);
    return n > 0;
}

/* ---- the ops -------------------------------------------------------------------------------- */

static bool has(const json_t *names, const json_t *name) {
    for (size_t i = 0; i < json_array_size(names); i++)
        if (json_equal(json_array_get(names, i), name))
            return true;
    return false;
}

/* The dims of `of` that `other` has, or lacks. */
static json_t *dims_of(const json_t *of, const json_t *other, bool shared) {
    json_t *out = json_array(), *v;
    size_t i;
    json_array_foreach((json_t *)of, i, v) {
        if (has(other, v) == shared)
            json_array_append(out, v);
    }
    return out;
}

static json_t *with_rank(json_t *dims, bool in_front) {
    json_t *rank = json_string(LORA_RANK);
    if (in_front)
        json_array_insert_new(dims, 0, rank);
    else
        json_array_append_new(dims, rank);
    return dims;
}

/* "hidden*kv": an expression of the product of some dims. */
static json_t *product(const json_t *doc, const json_t *dims) {
    char text[512] = "";
    for (size_t i = 0; i < json_array_size(dims); i++) {
        const char *name = json_string_value(json_array_get(dims, i));
        const json_t *size = json_object_get(json_object_get(doc, "dims"), name);
        size_t n = strlen(text);
        if (json_is_integer(size))
            snprintf(text + n, sizeof text - n, "%s%lld", i ? "*" : "",
                     (long long)json_integer_value(size));
        else
            snprintf(text + n, sizeof text - n, "%s(%s)", i ? "*" : "",
                     size ? json_string_value(size) : name);
    }
    return json_string(text);
}

static json_t *name_of(const char *name, const char *end) {
    char text[256];
    snprintf(text, sizeof text, "%s%s", name, end);
    return json_string(text);
}

/* Uniform up to 1 over the root of the number of inputs, as PyTorch begins a linear map and PEFT A. */
static json_t *down(const struct adding *a, const json_t *op, const char *name) {
    const json_t *dims = json_object_get(op, "dims");
    json_t *weight = json_object_get(json_object_get(op, "weight"), "dims");
    json_t *summed = dims_of(weight, dims, false);
    json_t *fan = product(a->doc, summed);
    return json_pack(
        "{so ss sO so so s{so so sf sb}}", "name", name_of(name, LORA_A), "kind", "einsum",
        "in", json_object_get(op, "in"), "out", name_of(name, "_lora"), "dims",
        with_rank(dims_of(dims, weight, false), false), "weight", "dims",
        with_rank(summed, false), "fan", fan, "std", 0.57735026918962576, "uniform", 1);
}

static json_t *scaled(const json_t *op, const char *name) {
    json_t *weight = json_object_get(json_object_get(op, "weight"), "dims");
    return json_pack("{so ss s[o] so so ss ss}", "name", name_of(name, "_lora_scale"),
                     "kind", "scale", "in", name_of(name, "_lora"), "out",
                     name_of(name, "_lora"), "dims",
                     with_rank(dims_of(json_object_get(op, "dims"), weight, false), false),
                     "fan", LORA_RANK "*" LORA_RANK, "root", LORA_ALPHA "*" LORA_ALPHA);
}

static json_t *up(const json_t *op, const char *name) {
    json_t *dims = json_object_get(op, "dims");
    json_t *weight = json_object_get(json_object_get(op, "weight"), "dims");
    return json_pack("{so ss s[o] so sO s{so si}}", "name", name_of(name, LORA_B), "kind",
                     "einsum", "in", name_of(name, "_lora"), "out", name_of(name, "_lora"),
                     "dims", dims, "weight", "dims",
                     with_rank(dims_of(dims, weight, true), true), "std", 0);
}

static json_t *sum(const json_t *op, const char *name) {
    return json_pack("{so ss s[Oo] sO sO}", "name", name_of(name, "_lora_sum"), "kind",
                     "add", "in", json_object_get(op, "out"), name_of(name, "_lora"), "out",
                     json_object_get(op, "out"), "dims", json_object_get(op, "dims"));
}

/* Appends the op to the list with its adapter in front of it, whose operand its result may take the name
 * of, and the sum behind it. */
static void adapt(struct adding *a, json_t *list, json_t *op, const char *path) {
    const char *name = json_string_value(json_object_get(op, "name"));
    json_t *a_op = down(a, op, name), *b_op = up(op, name);
    static const char *const ends[] = {LORA_A, LORA_B};
    for (int k = 0; k < 2; k++)
        json_array_append_new(a->frozen, json_sprintf("!%s%s", path, ends[k]));
    lora_names_add(&a->names, path, op, a_op, b_op);
    json_array_append_new(list, a_op);
    json_array_append_new(list, scaled(op, name));
    json_array_append_new(list, b_op);
    json_array_append(list, op);
    json_array_append_new(list, sum(op, name));
}

/* Writes the ops of a list, and of the blocks in it, anew. */
static int walk(struct adding *a, json_t *list, const char *prefix, struct err *err) {
    json_t *before = json_copy(list), *op;
    size_t i;
    int rc = 0;
    json_array_clear(list);
    json_array_foreach(before, i, op) {
        json_t *inner = json_object_get(op, "ops");
        char path[PATH];
        snprintf(path, sizeof path, "%s%s%s", prefix,
                 json_string_value(json_object_get(op, "name")), inner ? ".*." : "");
        rc = inner ? walk(a, inner, path, err) : wanted(a, path, err);
        if (rc < 0)
            break;
        if (rc)
            adapt(a, list, op, path);
        else
            json_array_append(list, op);
    }
    json_decref(before);
    return rc < 0 ? -1 : 0;
}

/* ---- the document ---------------------------------------------------------------------------- */

static int read_patterns(struct adding *a, char *text, struct err *err) {
    char *save;
    for (char *p = strtok_r(text, " ", &save); p; p = strtok_r(NULL, " ", &save)) {
        if (a->n_on == PATTERNS)
            return err_input(err, "more than %d patterns", PATTERNS);
        if (!pattern_valid(p))
            return err_input(err, "\"%.64s\" is no pattern such as layer.*.q", p);
        a->on[a->n_on++].text = p;
    }
    return 0;
}

static int add_sizes(const struct adding *a, struct err *err) {
    json_t *sizes = json_object_get(a->doc, "sizes");
    if (json_object_get(sizes, LORA_RANK) || json_object_get(sizes, LORA_ALPHA))
        return err_input(err, "the model has a size \"" LORA_RANK "\" already");
    json_object_set_new(sizes, LORA_RANK, json_integer(a->spec->rank));
    json_object_set_new(sizes, LORA_ALPHA, json_integer(a->spec->alpha));
    return 0;
}

static int add_all(struct adding *a, struct err *err) {
    json_array_append_new(a->frozen, json_string("*"));
    if (add_sizes(a, err) < 0 || walk(a, json_object_get(a->doc, "ops"), "", err) < 0)
        return -1;
    for (int i = 0; i < a->n_on; i++)
        if (!a->used[i])
            return err_input(err, "\"%.64s\" covers no product with a weight",
                             a->on[i].text);
    if (!a->names.added)
        return err_input(err, "the model has no product with a weight in a block");
    return 0;
}

int lora_add(json_t *doc, const char *set, const struct lora *spec, struct err *err) {
    struct model *m = model_from_json(doc, NULL, set, err);
    if (!m)
        return -1;
    struct adding a = {.doc = doc, .m = m, .spec = spec};
    lora_names_begin(&a.names, json_object_get(doc, "weights"));
    char *patterns = mem_strdup(spec->on ? spec->on : "");
    a.frozen = json_object_get(doc, "frozen");
    if (!a.frozen)
        json_object_set_new(doc, "frozen", a.frozen = json_array());
    int rc = read_patterns(&a, patterns, err);
    if (rc == 0)
        rc = add_all(&a, err);
    lora_names_end(&a.names, doc);
    free(patterns);
    model_destroy(m);
    return rc < 0 ? err_prefix(err, "lora") : 0;
}
