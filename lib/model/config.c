/* A config.json against the table that a family's model has of it. */
#include "model/config.h"

#include "model/config_experts.h"
#include "model/config_layers.h"
#include "model/config_rope.h"
#include "model/weights.h"

#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

bool config_is(const json_t *doc) {
    return json_is_string(json_object_get(doc, "model_type")) &&
           !json_object_get(doc, "format");
}

static bool matches(const char *key, const char *const *patterns) {
    for (; *patterns; patterns++)
        if (!fnmatch(*patterns, key, 0))
            return true;
    return false;
}

/* What transformers writes into configs of all families and what says nothing of the maths of
 * training: ids of tokens, types of numbers, what generation and inference do. */
static const char *const unread[] = {"architectures",
                                     "auto_map",
                                     "*token_id",
                                     "*token_ids",
                                     "transformers_version",
                                     "torch_dtype",
                                     "dtype",
                                     "use_cache",
                                     "cache_implementation",
                                     "initializer_range",
                                     "initializer_factor",
                                     "_*",
                                     "pretraining_tp",
                                     "output_*",
                                     "return_dict*",
                                     "gradient_checkpointing",
                                     "model_type",
                                     "use_return_dict",
                                     "torchscript",
                                     "num_hidden_layers_total",
                                     "summary_*",
                                     "task_specific_params",
                                     "id2label",
                                     "label2id",
                                     "reorder_and_upcast_attn",
                                     "use_bfloat16",
                                     "chunk_size_feed_forward",
                                     "tokenizer_class",
                                     "model_max_length",
                                     "prefix",
                                     "problem_type",
                                     "finetuning_task",
                                     "is_decoder",
                                     "max_length",
                                     "min_length",
                                     "do_sample",
                                     "num_beams",
                                     "temperature",
                                     "top_k",
                                     "top_p",
                                     "repetition_penalty",
                                     "language",
                                     "license",
                                     "unsloth_*",
                                     NULL};

static bool is_unread(const char *key, const json_t *section) {
    if (matches(key, unread))
        return true;
    const json_t *list = json_object_get(section, "unread");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!fnmatch(json_string_value(json_array_get(list, i)), key, 0))
            return true;
    return false;
}

/* Drops out in training alone: what is not said of it in the model is left to the user. */
static bool is_dropout(const char *key) {
    return !fnmatch("*drop*", key, 0);
}

/* How one trains, and not what is computed: of no concern where weights are read. */
static bool is_training(const char *key) {
    static const char *const patterns[] = {"*aux_loss_coef", "output_router_logits", NULL};
    return is_dropout(key) || matches(key, patterns);
}

/* How long sequences may be: a model may be trained on shorter ones. */
static bool is_length(const char *key) {
    static const char *const patterns[] = {"max_position_embeddings", "n_positions",
                                           "n_ctx", NULL};
    return matches(key, patterns);
}

/* Other forms of keys in the one that tables have: rope_parameters, layer_types, names of classes instead
 * of their number, other names of keys than the family's table has. */
static json_t *in_older_form(const json_t *config, const json_t *section) {
    static const char *const names[][2] = {{"num_local_experts", "num_experts"},
                                           {"n_embed", "hidden_size"},
                                           {"num_attention_heads", "n_head"},
                                           {"num_hidden_layers", "n_layer"}};
    const json_t *table = json_object_get(section, "config");
    json_t *c = json_copy((json_t *)config), *v;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (json_object_get(table, names[i][1]) && !json_object_get(table, names[i][0]) &&
            (v = json_object_get(c, names[i][0]))) {
            if (!json_object_get(c, names[i][1]))
                json_object_set(c, names[i][1], v);
            json_object_del(c, names[i][0]);
        }
    config_rope_flatten(c, table);
    config_layers_flatten(c, table);
    config_experts_flatten(c, table);
    if (json_is_object(v = json_object_get(c, "id2label")) &&
        json_object_get(table, "num_labels"))
        json_object_set_new(c, "num_labels", json_integer((json_int_t)json_object_size(v)));
    /* T5's result is scaled where its embedding is tied, which newer configs say apart. */
    if (json_is_boolean(v = json_object_get(c, "scale_decoder_outputs"))) {
        json_object_set(c, "tie_word_embeddings", v);
        json_object_del(c, "scale_decoder_outputs");
    }
    return c;
}

/* A value for a message, short. */
static char *text_of(const json_t *v, char *buf, size_t n) {
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS);
    snprintf(buf, n, "%.*s%s", (int)n - 5, text ? text : "?",
             text && strlen(text) > n - 5 ? "..." : "");
    free(text);
    return buf;
}

static bool same(const json_t *a, const json_t *b) {
    return json_is_number(a) && json_is_number(b)
               ? json_number_value(a) == json_number_value(b) /* as it was written */
               : json_equal(a, b);
}

static int differs(const char *key, const json_t *want, const json_t *got,
                   const char *family, struct err *err) {
    char a[96], b[96];
    return err_input(err, "%.64s: expected %s, as %s has it, got %s", key,
                     text_of(want, a, sizeof a), family, text_of(got, b, sizeof b));
}

/* null, false, 0, nothing at all: what a config says of what is not so. */
static bool is_off(const json_t *v) {
    return json_is_null(v) || json_is_false(v) ||
           (json_is_number(v) && json_number_value(v) == 0) ||
           (json_is_array(v) && !json_array_size(v)) ||
           (json_is_object(v) && !json_object_size(v)) ||
           (json_is_string(v) && !json_string_length(v));
}

/* Every key that the table lacks is known to mean nothing here, or off. */
static int check_rest(const json_t *section, const json_t *config, const char *family,
                      struct err *err) {
    const json_t *table = json_object_get(section, "config");
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)config, key, v) {
        if (json_object_get(table, key) || is_off(v) || is_unread(key, section) ||
            is_dropout(key))
            continue;
        char value[96];
        return err_input(err, "%.64s: %s: the family %s cannot express it", key,
                         text_of(v, value, sizeof value), family);
    }
    return 0;
}

/* ---- a model from a config ----------------------------------------------------------------------- */

static bool reads(const json_t *doc, const char *type) {
    const json_t *section = json_object_get(doc, "weights");
    const char *own = json_string_value(
        json_object_get(json_object_get(section, "config"), "model_type"));
    const json_t *also = json_object_get(section, "reads");
    bool found = own && !strcmp(own, type);
    for (size_t i = 0; i < json_array_size(also); i++)
        found |= !strcmp(json_string_value(json_array_get(also, i)), type);
    return found;
}

/* What the config says of a key, or transformers where it does not; NULL: neither. */
static const json_t *said(const json_t *section, const json_t *config, const char *key) {
    const json_t *v = json_object_get(config, key);
    if (!v || json_is_null(v))
        v = json_object_get(json_object_get(section, "absent"), key);
    return v;
}

/* A value of a table that stands for itself, rather than for a size or a rate. */
static bool is_literal(const json_t *table) {
    const char *text = json_string_value(table);
    return !text || !*text || !strchr("=?~", *text);
}

/* Is all that a family's models have in common so in the config? */
static bool fits(const json_t *doc, const json_t *config) {
    const json_t *section = json_object_get(doc, "weights"), *v;
    const char *key;
    json_t *table;
    json_object_foreach(json_object_get(section, "config"), key, table) {
        if (is_literal(table) && !is_unread(key, section) &&
            (v = said(section, config, key)) && !same(table, v) && !is_dropout(key))
            return false;
    }
    return true;
}

/* The shipped model of this model_type that the config fits, or the first one; new reference. */
static json_t *find_family(const char *type, const json_t *config, struct err *err) {
    char names[2048] = "", types[1024] = "", file[128], path[PATH_MAX], *save = NULL;
    json_t *first = NULL;
    share_list("models", names, sizeof names);
    for (char *n = strtok_r(names, " ", &save); n; n = strtok_r(NULL, " ", &save)) {
        snprintf(file, sizeof file, "%s.json", n);
        if (share_path("models", file, path, sizeof path, err) < 0)
            return NULL;
        json_t *doc = json_read(path, err);
        if (doc && reads(doc, type) && !fits(doc, config) && !first)
            first = json_incref(doc);
        else if (!doc || (reads(doc, type) && fits(doc, config))) {
            json_decref(first);
            return doc;
        }
        const char *own = json_string_value(json_object_get(
            json_object_get(json_object_get(doc, "weights"), "config"), "model_type"));
        if (own && !strstr(types, own))
            err_list(types, sizeof types, own);
        json_decref(doc);
    }
    if (first)
        return first;
    err_input(err, "model_type: \"%.64s\" is no family that is known (there are:%s)", type,
              types);
    err_hint(
        err,
        "scripts/export-pt2.py writes the model as a program, which weft-import takes: "
        "weft-import ./model.pt2");
    return NULL;
}

/* Puts a value where the family has a size or a rate of this name; twice only if both are one. */
static int put(json_t *doc, json_t *done, const char *name, const char *key, json_t *v,
               struct err *err) {
    json_t *sizes = json_object_get(doc, "sizes"), *rates = json_object_get(doc, "rates");
    json_t *where = json_object_get(sizes, name) ? sizes : rates;
    const json_t *before = json_object_get(done, name);
    int rc = 0;
    if (before && !same(before, v))
        rc = differs(key, before, v, "another key", err);
    else if (where == sizes ? !json_is_integer(v) && !json_is_string(v)
             : json_is_array(json_object_get(where, name)) ? !json_is_array(v)
                                                           : !json_is_number(v))
        rc = err_input(err, "%.64s: expected a %snumber, got %s", key,
                       where == sizes ? "whole " : "", json_type_name(v));
    if (rc == 0) {
        json_object_set(done, name, v);
        json_object_set(where, name, v);
    }
    json_decref(v);
    return rc;
}

/* "=layers", "?tied" or "~window", which is 0 where the key is null, is set; anything else is as the family has it. */
static int read_key(json_t *doc, json_t *done, const json_t *section, const json_t *config,
                    const char *key, const json_t *table, struct err *err) {
    const char *text = json_string_value(table), *name = text ? text + 1 : NULL;
    const json_t *v = said(section, config, key);
    json_t *sizes = json_object_get(doc, "sizes"), *rates = json_object_get(doc, "rates");
    if (is_unread(key, section))
        return 0;
    if (is_literal(table))
        return !v || same(table, v) || is_dropout(key)
                   ? 0
                   : differs(key, table, v, "the family", err);
    const json_t *own = json_object_get(sizes, name);
    if (!own && !json_object_get(rates, name))
        return 0; /* it follows from others */
    if (*text == '~' &&
        (!v || json_is_null(v) || json_is_null(json_object_get(config, key))))
        return put(doc, done, name, key, json_integer(0), err);
    if (!v)
        return json_is_string(own) || is_dropout(key)
                   ? 0
                   : err_input(err, "%.64s: missing, and needed for the model", key);
    if (*text == '?' && !json_is_boolean(v))
        return err_input(err, "%.64s: expected true or false, got %s", key,
                         json_type_name(v));
    const char *expression = json_string_value(v);
    json_t *value = *text == '?'                       ? json_integer(json_is_true(v))
                    : expression && *expression == '=' ? json_string(expression + 1)
                                                       : json_deep_copy(v);
    return put(doc, done, name, key, value, err);
}

static int read_table(json_t *doc, const json_t *config, struct err *err) {
    const json_t *section = json_object_get(doc, "weights");
    const char *key, *family = json_string_value(json_object_get(doc, "name"));
    json_t *v, *done = json_object();
    int rc = 0;
    json_object_foreach(json_object_get(section, "config"), key, v) {
        rc = read_key(doc, done, section, config, key, v, err);
        if (rc < 0)
            break;
    }
    json_decref(done);
    return rc < 0 ? -1 : check_rest(section, config, family, err);
}

json_t *config_to_model(const json_t *config, struct err *err) {
    const char *type = json_string_value(json_object_get(config, "model_type"));
    json_t *doc = find_family(type, config, err);
    if (!doc)
        return NULL;
    json_t *older = in_older_form(config, json_object_get(doc, "weights"));
    int rc = read_table(doc, older, err);
    json_decref(older);
    if (rc < 0) {
        json_decref(doc);
        return NULL;
    }
    json_object_del(doc, "presets");
    json_object_del(doc, "default");
    json_object_set_new(doc, "about",
                        json_sprintf("From a config.json of model_type %s.", type));
    return doc;
}

/* ---- a config beside weights ---------------------------------------------------------------------- */

static int compare(const json_t *section, const json_t *own, const json_t *absent,
                   const json_t *config, const char *family, struct err *err) {
    const char *key;
    json_t *want;
    json_object_foreach((json_t *)own, key, want) {
        const json_t *got = json_object_get(config, key);
        if (json_is_null(got) && json_is_null(want))
            continue;
        if (!got || json_is_null(got))
            got = json_object_get(absent, key);
        if (!got || is_unread(key, section) || is_training(key) || is_length(key))
            continue;
        if (!same(want, got))
            return differs(key, want, got, "the model", err);
    }
    return check_rest(section, config, family, err);
}

int config_check(struct model *m, const json_t *config, struct err *err) {
    const json_t *section = json_object_get(m->doc, "weights");
    const char *type = json_string_value(json_object_get(config, "model_type"));
    struct err mine = {0};
    json_t *own = weights_config(m, &mine);
    if (mine.status && err)
        *err = mine;
    if (!own)
        return mine.status ? -1 : 0;
    int rc = -1;
    json_t *absent = weights_absent(m, err);
    json_t *older = absent ? in_older_form(config, section) : NULL;
    json_t *mine_older = in_older_form(own, section);
    if (older && type && !reads(m->doc, type))
        err_input(err, "model_type: expected that of %s, got \"%.64s\"", m->name, type);
    else if (older)
        rc = compare(section, mine_older, absent, older, m->name, err);
    json_decref(mine_older);
    json_decref(older);
    json_decref(absent);
    json_decref(own);
    return rc;
}
