/* The document that tells another program what the model is, with sizes and rates put in as the reader
 * of the model has them. */
#include "model/weights.h"

#include "model/config_experts.h"
#include "model/config_layers.h"
#include "model/config_rope.h"
#include "model/read.h"

#include <string.h>

/* "=layers" is a rate or an expression over sizes, "?tied" whether one is not 0, "~window" one that is
 * null where it is 0; anything else is itself. New reference. */
static json_t *fill_value(struct reader *r, const json_t *v, struct err *err) {
    const char *text = json_string_value(v);
    if (!text || !text[0] || !strchr("=?~", text[0]))
        return json_deep_copy(v);
    const json_t *rate = json_object_get(r->rates, text + 1);
    if (rate && strchr("=~", text[0]))
        return text[0] == '~' && json_number_value(rate) == 0 ? json_null()
                                                              : json_deep_copy(rate);
    json_t *expression = json_string(text + 1);
    int64_t value = 0;
    int rc = read_int(r, expression, "", &value, err);
    json_decref(expression);
    if (rc == 0 && text[0] == '~' && value == 0)
        return json_null();
    return rc < 0 ? NULL : text[0] == '?' ? json_boolean(value != 0) : json_integer(value);
}

/* A member of the section "weights" filled in; NULL without an error where there is none. */
static json_t *fill(struct model *m, const char *member, struct err *err) {
    const json_t *table = json_object_get(json_object_get(m->doc, "weights"), member);
    if (!table)
        return NULL;
    struct reader r = {.m = m,
                       .sizes = json_copy(json_object_get(m->doc, "sizes")),
                       .rates = json_object(),
                       .dims = json_object_get(m->doc, "dims")};
    json_object_update(r.rates, json_object_get(m->doc, "rates"));
    const char *set = m->set;
    json_t *out = json_object(), *v;
    const char *key;
    int rc = read_preset(&r, m->doc, m->preset, err) < 0 || read_set(&r, set, err) < 0;
    json_object_foreach((json_t *)table, key, v) {
        json_t *filled = rc ? NULL : fill_value(&r, v, err);
        rc = !filled ? -1 : json_object_set_new(out, key, filled);
        if (rc < 0) {
            err_prefix(err, "model %s: weights.%s.%.64s", m->name, member, key);
            break;
        }
    }
    json_decref(r.sizes);
    json_decref(r.rates);
    if (rc == 0)
        return out;
    json_decref(out);
    return NULL;
}

json_t *weights_config(struct model *m, struct err *err) {
    json_t *config = fill(m, "config", err);
    if (config) {
        config_rope_nest(config);
        config_layers_nest(config);
        config_experts_nest(config);
    }
    return config;
}

json_t *weights_adapter_config(struct model *m, struct err *err) {
    return fill(m, "adapter_config", err);
}

json_t *weights_absent(struct model *m, struct err *err) {
    return json_object_get(json_object_get(m->doc, "weights"), "absent")
               ? fill(m, "absent", err)
               : json_object();
}
