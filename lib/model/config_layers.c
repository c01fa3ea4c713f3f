#include "model/config_layers.h"

#include <stdbool.h>
#include <string.h>

#define PATTERN "sliding_window_pattern"
#define FULL    "max_window_layers"
#define SWITCH  "use_sliding_window"
#define TURNED  "no_rope_layers"
#define EVERY   "no_rope_layer_interval"

static json_int_t whole(const json_t *o, const char *key) {
    return json_integer_value(json_object_get(o, key));
}

/* Is layer i without a window where each `pattern`th is; where the first `full` are? */
static bool by_pattern(json_int_t i, json_int_t pattern) {
    return (i + 1) % pattern == 0;
}
static bool by_number(json_int_t i, json_int_t full) {
    return i < full;
}

/* The number by which all layers are as the list has them; -1: there is none. */
static json_int_t number_of(const json_t *layers, bool is_full(json_int_t, json_int_t),
                            json_int_t least) {
    const json_int_t n = (json_int_t)json_array_size(layers);
    for (json_int_t number = least; number <= n + 1; number++) {
        json_int_t i = 0;
        for (; i < n; i++) {
            const char *type = json_string_value(json_array_get(layers, (size_t)i));
            const char *want = is_full(i, number) ? "full_attention" : "sliding_attention";
            if (!type || strcmp(type, want) != 0)
                break;
        }
        if (i == n)
            return number;
    }
    return -1;
}

static bool all_full(const json_t *layers) {
    return json_is_array(layers) && number_of(layers, by_pattern, 1) == 1;
}

/* The list becomes the number of this key. */
static void take(json_t *config, const char *key, bool is_full(json_int_t, json_int_t),
                 json_int_t least) {
    const json_t *layers = json_object_get(config, "layer_types");
    const json_int_t number =
        json_is_array(layers) ? number_of(layers, is_full, least) : -1;
    if (number < 0)
        return;
    json_object_set_new(config, key, json_integer(number));
    json_object_del(config, "layer_types");
}

/* Which layers have positions, as a list of 1 and 0, becomes the number by which every so many have none. */
static void take_turned(json_t *config) {
    const json_t *list = json_object_get(config, TURNED);
    const json_int_t n = (json_int_t)json_array_size(list);
    for (json_int_t every = 1; n && every <= n + 1; every++) {
        json_int_t i = 0;
        while (i < n &&
               json_integer_value(json_array_get(list, (size_t)i)) == !by_pattern(i, every))
            i++;
        if (i < n)
            continue;
        json_object_set_new(config, EVERY, json_integer(every));
        json_object_del(config, TURNED);
        return;
    }
}

void config_layers_flatten(json_t *config, const json_t *table) {
    if (json_object_get(table, EVERY))
        take_turned(config);
    const json_int_t layers = whole(config, "num_hidden_layers");
    if (json_object_get(table, PATTERN)) {
        take(config, PATTERN, by_pattern, 1);
        if (whole(config, PATTERN) > layers + 1)
            json_object_set_new(config, PATTERN, json_integer(layers + 1));
    } else if (json_object_get(table, FULL)) {
        if (!json_is_true(json_object_get(config, SWITCH)) &&
            (!json_object_get(config, "layer_types") ||
             all_full(json_object_get(config, "layer_types")))) {
            json_object_del(config, "layer_types");
            json_object_del(config, "sliding_window");
            json_object_del(config, FULL);
        } else
            take(config, FULL, by_number, 0);
    } else if (all_full(json_object_get(config, "layer_types")))
        json_object_del(config, "layer_types");
}

void config_layers_nest(json_t *config) {
    const bool pattern = json_object_get(config, PATTERN);
    const bool number = json_is_true(json_object_get(config, SWITCH));
    if (!pattern && !number)
        return;
    json_t *list = json_array();
    for (json_int_t i = 0; i < whole(config, "num_hidden_layers"); i++) {
        bool full = pattern ? by_pattern(i, whole(config, PATTERN))
                            : by_number(i, whole(config, FULL));
        json_array_append_new(list,
                              json_string(full ? "full_attention" : "sliding_attention"));
    }
    json_object_set_new(config, "layer_types", list);
}
