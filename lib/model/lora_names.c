/* PEFT stores an adapter of the module "model.layers.0.self_attn.q_proj" as two tensors,
 * "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight" [rank, inputs] and "... .lora_B.weight"
 * [outputs, rank], whatever way round the weight of the module lies. */
#include "model/lora_names.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 600 };

void lora_names_begin(struct lora_names *n, const json_t *section) {
    *n = (struct lora_names){.tensors = json_object_get(section, "tensors"),
                             .adapter = json_object(),
                             .targets = json_array()};
}

static const json_t *weight_dims(const json_t *op) {
    return json_object_get(json_object_get(op, "weight"), "dims");
}

/* Are all words of the text dims of this op's weight? */
static bool words_are_of(const char *text, const json_t *op) {
    const json_t *dims = weight_dims(op);
    for (const char *word = text; *word;) {
        size_t size = strcspn(word, " ");
        bool found = false;
        for (size_t i = 0; i < json_array_size(dims); i++) {
            const char *dim = json_string_value(json_array_get(dims, i));
            found |= strlen(dim) == size && !strncmp(dim, word, size);
        }
        if (!found)
            return false;
        word += size + strspn(word + size, " ");
    }
    return true;
}

/* What PEFT knows of a weight: the module, and its dims as two. */
struct module {
    char name[NAME];
    const char *in, *out;
};

/* False where it is no tensor [outputs, inputs] or [inputs, outputs] by itself. */
static bool find_module(struct lora_names *n, const char *path, const json_t *op,
                        const json_t *a, const json_t *b, struct module *to) {
    static const char end[] = ".weight";
    char key[NAME];
    snprintf(key, sizeof key, "%s%s", path, end);
    const json_t *entry = json_object_get(n->tensors, key);
    const json_t *dims = json_object_get(entry, "dims");
    const char *name = json_string_value(entry ? json_object_get(entry, "name") : NULL);
    name = json_is_string(entry) ? json_string_value(entry) : name;
    dims = dims ? dims : weight_dims(op);
    size_t size = name ? strlen(name) : 0, tail = sizeof end - 1;
    if (size <= tail || strcmp(name + size - tail, end) != 0 || strchr(name, '{') ||
        json_array_size(dims) != 2)
        return false;
    snprintf(to->name, sizeof to->name, "%.*s", (int)(size - tail), name);
    const char *first = json_string_value(json_array_get(dims, 0));
    const char *second = json_string_value(json_array_get(dims, 1));
    bool turned = words_are_of(first, a);
    to->in = turned ? first : second;
    to->out = turned ? second : first;
    n->turned += turned;
    return words_are_of(to->in, a) && words_are_of(to->out, b);
}

static void add_tensor(struct lora_names *n, const char *path, const char *op,
                       const char *module, const char *tensor, json_t *dims) {
    char key[NAME], name[2 * NAME];
    snprintf(key, sizeof key, "%s%s.weight", path, op);
    snprintf(name, sizeof name, "base_model.model.%s.%s.weight", module, tensor);
    json_object_set_new(n->adapter, key, json_pack("{ss so}", "name", name, "dims", dims));
}

/* Under its own name. */
static void add_own(struct lora_names *n, const char *path, const char *op) {
    char key[NAME];
    snprintf(key, sizeof key, "%s%s.weight", path, op);
    json_object_set_new(n->adapter, key, json_string(key));
}

void lora_names_add(struct lora_names *n, const char *path, const json_t *op,
                    const json_t *a, const json_t *b) {
    struct module module;
    n->added++;
    if (!find_module(n, path, op, a, b, &module)) {
        n->unnamed = true;
        add_own(n, path, LORA_A);
        add_own(n, path, LORA_B);
        return;
    }
    add_tensor(n, path, LORA_A, module.name, "lora_A",
               json_pack("[ss]", LORA_RANK, module.in));
    add_tensor(n, path, LORA_B, module.name, "lora_B",
               json_pack("[ss]", module.out, LORA_RANK));
    const char *star = strrchr(module.name, '*'); /* behind it, what all layers have */
    json_array_append_new(n->targets, json_string(star ? star + 2 : module.name));
}

void lora_names_end(struct lora_names *n, json_t *doc) {
    json_t *section = json_object_get(doc, "weights");
    if (!section && n->added)
        json_object_set_new(doc, "weights", section = json_object());
    if (n->added)
        json_object_set(section, "adapter", n->adapter);
    /* One flag says for all how weights lie. */
    if (n->added && !n->unnamed && (!n->turned || n->turned == n->added))
        json_object_set_new(section, "adapter_config",
                            json_pack("{ss ss ss sO sf ss sb sb sn}", "peft_type", "LORA",
                                      "r", "=" LORA_RANK, "lora_alpha", "=" LORA_ALPHA,
                                      "target_modules", n->targets, "lora_dropout", 0.0,
                                      "bias", "none", "fan_in_fan_out", n->turned > 0,
                                      "inference_mode", 1, "base_model_name_or_path"));
    json_decref(n->adapter);
    json_decref(n->targets);
}
