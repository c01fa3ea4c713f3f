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
    double factor, original, low, high, by_pair, gain, temper;
    const json_t *slower[2]; /* of short and of long sequences, pair by pair; or NULL */
};
static const char *const list_names[] = {"short_factor", "long_factor"};
static const char *const list_keys[] = {PREFIX "short", PREFIX "long"};

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

/* LongRoPE, which Phi-3's first configs call su. The sequence that it was made for counts, and not how
 * long those are that are trained on. */
static bool read_longrope(const json_t *rope, double length, double original,
                          struct rope *out) {
    const double factor = number(rope, "factor", length / original);
    const double gain = factor > 1 ? sqrt(1 + log(factor) / log(original)) : 1;
    out->factor = 1;
    out->original = original;
    out->gain = number(rope, "attention_factor", gain);
    for (int k = 0; k < 2; k++) {
        out->slower[k] = json_object_get(rope, list_names[k]);
        if (!json_array_size(out->slower[k]))
            return false;
        for (size_t i = 0; i < json_array_size(out->slower[k]); i++)
            if (!json_is_number(json_array_get(out->slower[k], i)))
                return false;
    }
    return original > 1 &&
           only(rope, " rope_type type factor attention_factor short_factor "
                      "long_factor original_max_position_embeddings ");
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
    if (!strcmp(type, "longrope") || !strcmp(type, "su"))
        return read_longrope(rope, length, out->original, out);
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
    out->temper = number(rope, "mscale_all_dim", 0);
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

/* The numbers of a list as fractions, so that two lists that say the same are equal. New reference. */
static json_t *fractions(const json_t *list) {
    json_t *out = json_array();
    for (size_t i = 0; i < json_array_size(list); i++)
        json_array_append_new(out, json_real(json_number_value(json_array_get(list, i))));
    return out;
}

void config_rope_flatten(json_t *config, const json_t *table) {
    static const struct rope plain = {.factor = 1, .low = 1, .high = 4, .gain = 1};
    struct rope r;
    in_older_form(config, table);
    const json_t *rope = json_object_get(config, "rope_scaling");
    const bool scales = json_object_get(table, PREFIX "factor");
    const bool lists = json_object_get(table, list_keys[0]);
    bool known = (!rope || json_is_null(rope) || json_is_object(rope)) &&
                 read_rope(config, rope, &r) && (lists || !r.slower[0]) &&
                 (scales || (r.factor == 1 && r.gain == 1));
    if (!known)
        r = plain; /* what stays in "rope_scaling" is refused */
    for (int k = 0; lists && k < 2; k++)
        json_object_set_new(config, list_keys[k], fractions(r.slower[k]));
    if (known)
        json_object_del(config, "rope_scaling");
    if (!scales)
        return;
    set(config, PREFIX "factor", r.factor);
    set(config, PREFIX "original", r.original);
    set(config, PREFIX "low", r.low);
    set(config, PREFIX "high", r.high);
    set(config, PREFIX "by_pair", r.by_pair);
    set(config, PREFIX "gain", r.gain);
    if (json_object_get(table, PREFIX "temper"))
        set(config, PREFIX "temper", r.temper);
}

void config_rope_nest(json_t *config) {
    if (!json_object_get(config, PREFIX "factor"))
        return;
    const struct rope r = {.factor = number(config, PREFIX "factor", 1),
                           .original = number(config, PREFIX "original", 0),
                           .low = number(config, PREFIX "low", 1),
                           .high = number(config, PREFIX "high", 4),
                           .by_pair = number(config, PREFIX "by_pair", 0),
                           .gain = number(config, PREFIX "gain", 1),
                           .temper = number(config, PREFIX "temper", 0)};
    const char *key;
    void *next;
    json_t *v, *rope = json_object();
    for (int k = 0; k < 2; k++)
        if (json_array_size(v = json_object_get(config, list_keys[k])))
            json_object_set(rope, list_names[k], v);
    const bool listed = json_object_size(rope) == 2;
    json_object_foreach_safe(config, next, key, v) {
        if (!strncmp(key, PREFIX, sizeof PREFIX - 1))
            json_object_del(config, key);
    }
    const bool longer = r.original > 0, yarn = r.by_pair != 0;
    json_object_set_new(rope, "rope_type",
                        json_string(listed   ? "longrope"
                                    : yarn   ? "yarn"
                                    : longer ? "llama3"
                                             : "linear"));
    if (listed) {
        set(rope, "original_max_position_embeddings", r.original);
        set(config, "original_max_position_embeddings", r.original);
    } else
        set(rope, "factor", r.factor);
    if (longer && !listed) {
        set(rope, "original_max_position_embeddings", r.original);
        set(rope, yarn ? "beta_slow" : "low_freq_factor", r.low);
        set(rope, yarn ? "beta_fast" : "high_freq_factor", r.high);
    }
    if (yarn || listed)
        set(rope, "attention_factor", r.gain);
    if (yarn &&
        r.temper != 0) { /* the first programs that read DeepSeek's configs know no other */
        set(rope, "mscale_all_dim", r.temper);
        if (r.gain == 1)
            set(rope, "mscale", r.temper);
    }
    const bool scaled = listed || r.factor != 1;
    json_object_set(config, "rope_scaling", scaled ? rope : json_null());
    json_decref(rope);
}
