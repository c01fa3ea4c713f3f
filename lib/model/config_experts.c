#include "model/config_experts.h"

#include <string.h>

#define METHOD "topk_method"

static const char *const names[] = {"greedy", "group_limited_greedy"};

void config_experts_flatten(json_t *config, const json_t *table) {
    const char *wanted = json_string_value(json_object_get(table, METHOD));
    const char *name = json_string_value(json_object_get(config, METHOD));
    for (int k = 0; wanted && *wanted == '?' && name && k < 2; k++)
        if (!strcmp(name, names[k])) {
            json_object_set_new(config, METHOD, json_boolean(k));
            return;
        }
}

void config_experts_nest(json_t *config) {
    const json_t *grouped = json_object_get(config, METHOD);
    if (json_is_boolean(grouped))
        json_object_set_new(config, METHOD, json_string(names[json_is_true(grouped)]));
}
