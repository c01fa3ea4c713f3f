#include "model/config_rope.h"

#include <math.h>
#include <string.h>

#define PREFIX "rope_scaling."

static double number(const json_t *rope, const char *key, double absent) {
    const json_t *v = json_object_get(rope, key);
    return json_is_number(v) ? json_number_value(v) : absent;
}

static const char *type_of(const json_t *rope) {
    const char *type = json_string_value(json_object_get(rope, "rope_type"));
    if (!type)
        type = json_string_value(json_object_get(rope, "type"));
    return type ? type : "default";
}

/* The older form of "rope_parameters": its base and its share are keys of the config, for which some
 * families have names of their own. Where layers with a window have their own, that is a base alone. */
static void in_older_form(json_t *config, const json_t *table) {
    static const char *const moved[] = {"rope_theta", "partial_rotary_factor"};
    static const char *const own[] = {"rotary_emb_base", "rotary_pct"};
    json_t *rope = json_object_get(config, "rope_parameters"), *v;
    if (!json_is_object(rope))
        return;
    const json_t *local = json_object_get(rope, "sliding_attention");
    if (local) {
        if (strcmp(type_of(local), "default") || !json_object_get(rope, "full_attention"))
            return;
        json_object_set(config, "rope_local_base_freq",
                        json_object_get(local, "rope_theta"));
        rope = json_object_get(rope, "full_attention");
    }
    rope = json_copy(rope);
    for (int i = 0; i < 2; i++) {
        if ((v = json_object_get(rope, moved[i])))
            json_object_set(config, json_object_get(table, own[i]) ? own[i] : moved[i], v);
        json_object_del(rope, moved[i]);
    }
    json_object_set_new(config, "rope_scaling", rope);
    json_object_del(config, "rope_parameters");
}

/* Are the members of an object among these? */
static bool only(const json_t *rope, const char *known) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)rope, key, v) {
        char word[80];
        snprintf(word, sizeof word, " %.70s ", key);
        if (!strstr(known, word) && !json_is_null(v))
            return false;
    }
    return true;
}

struct rope {
    double factor, original, low, high, by_pair, gain;
};

/* What YaRN multiplies the turned with, if nothing else is said. */
static double yarn_gain(const json_t *rope, double factor) {
    double share = number(rope, "mscale", 0), all = number(rope, "mscale_all_dim", 0);
    double gain = 0.1 * log(factor) + 1;
    if (factor <= 1)
        gain = 1;
    else if (share != 0 && all != 0)
        gain = (0.1 * share * log(factor) + 1) / (0.1 * all * log(factor) + 1);
    return number(rope, "attention_factor", gain);
}

/* Returns whether the type and all members are known. */
static bool read_rope(const json_t *config, const json_t *rope, struct rope *out) {
    const char *type = type_of(rope);
    double length = number(config, "max_position_embeddings", 0);
    double original = number(config, "original_max_position_embeddings", length);
    *out = (struct rope){.factor = 1, .low = 1, .high = 4, .gain = 1};
    if (!strcmp(type, "default"))
        return only(rope, " rope_type type ");
    out->factor = number(rope, "factor", 1);
    if (!strcmp(type, "linear"))
        return only(rope, " rope_type type factor ");
    out->original = number(rope, "original_max_position_embeddings", original);
    if (!strcmp(type, "llama3")) {
        out->low = number(rope, "low_freq_factor", 1);
        out->high = number(rope, "high_freq_factor", 4);
        return only(rope, " rope_type type factor original_max_position_embeddings "
                          "low_freq_factor high_freq_factor ");
    }
    out->low = number(rope, "beta_slow", 1);
    out->high = number(rope, "beta_fast", 32);
    out->by_pair = 1;
    out->gain = yarn_gain(rope, out->factor);
    return !strcmp(type, "yarn") &&
           only(rope, " rope_type type factor original_max_position_embeddings beta_slow "
                      "beta_fast attention_factor mscale mscale_all_dim ");
}

/* Whole numbers as such, so that they are written as they were read. */
static void set(json_t *o, const char *key, double v) {
    json_object_set_new(o, key,
                        v == floor(v) && fabs(v) < 1e15 ? json_integer((json_int_t)v)
                                                        : json_real(v));
}

void config_rope_flatten(json_t *config, const json_t *table) {
    static const struct rope plain = {.factor = 1, .low = 1, .high = 4, .gain = 1};
    struct rope r;
    in_older_form(config, table);
    const json_t *rope = json_object_get(config, "rope_scaling");
    const bool scales = json_object_get(table, PREFIX "factor");
    bool known = (!rope || json_is_null(rope) || json_is_object(rope)) &&
                 read_rope(config, rope, &r) && (scales || (r.factor == 1 && r.gain == 1));
    if (known)
        json_object_del(config, "rope_scaling");
    else
        r = plain; /* what stays in "rope_scaling" is refused */
    if (!scales)
        return;
    set(config, PREFIX "factor", r.factor);
    set(config, PREFIX "original", r.original);
    set(config, PREFIX "low", r.low);
    set(config, PREFIX "high", r.high);
    set(config, PREFIX "by_pair", r.by_pair);
    set(config, PREFIX "gain", r.gain);
}

void config_rope_nest(json_t *config) {
    if (!json_object_get(config, PREFIX "factor"))
        return;
    const struct rope r = {
        number(config, PREFIX "factor", 1),  number(config, PREFIX "original", 0),
        number(config, PREFIX "low", 1),     number(config, PREFIX "high", 4),
        number(config, PREFIX "by_pair", 0), number(config, PREFIX "gain", 1)};
    const char *key;
    void *next;
    json_t *v, *rope = json_object();
    json_object_foreach_safe(config, next, key, v) {
        if (!strncmp(key, PREFIX, sizeof PREFIX - 1))
            json_object_del(config, key);
    }
    const bool longer = r.original > 0, yarn = r.by_pair != 0;
    json_object_set_new(rope, "rope_type",
                        json_string(yarn     ? "yarn"
                                    : longer ? "llama3"
                                             : "linear"));
    set(rope, "factor", r.factor);
    if (longer) {
        set(rope, "original_max_position_embeddings", r.original);
        set(rope, yarn ? "beta_slow" : "low_freq_factor", r.low);
        set(rope, yarn ? "beta_fast" : "high_freq_factor", r.high);
    }
    if (yarn)
        set(rope, "attention_factor", r.gain);
    const bool scaled = r.factor != 1;
    json_object_set(config, "rope_scaling", scaled ? rope : json_null());
    json_decref(rope);
}
