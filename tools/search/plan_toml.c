/* A subset of TOML 1.0, read line by line. */
#include "plan_toml.h"

#include "common/mem.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef ARR(char) letters;

struct toml {
    const char *s;
    int line;
    char table[256]; /* "training." */
    json_t *flat;
    struct err *err;
};

static int refuse(const struct toml *t, const char *what) {
    return err_input(t->err, "line %d: %s", t->line, what);
}

/* Blanks and comments, and in arrays ends of lines. */
static void skip(struct toml *t, bool lines) {
    for (;; t->s++) {
        if (*t->s == '#')
            t->s += strcspn(t->s, "\n");
        if (*t->s == '\n' && lines)
            t->line++;
        else if (!*t->s || *t->s == '\n' || !isspace((unsigned char)*t->s))
            return;
    }
}

/* "a" or 'a', on one line; of escapes those of one letter. */
static int read_string(struct toml *t, letters *out) {
    char quote = *t->s++;
    if (t->s[0] == quote && t->s[1] == quote)
        return refuse(t, "strings of several lines are not read");
    for (; *t->s && *t->s != '\n' && *t->s != quote; t->s++) {
        bool escape = quote == '"' && *t->s == '\\';
        static const char letter[] = "\"\\bfnrt", meaning[] = "\"\\\b\f\n\r\t";
        const char *at = escape && t->s[1] ? strchr(letter, t->s[1]) : NULL;
        if (escape && !at)
            return refuse(t, "an escape that is not read");
        arr_push(out, escape ? meaning[at - letter] : *t->s);
        t->s += escape;
    }
    if (*t->s != quote)
        return refuse(t, "a string that is not closed");
    t->s++;
    return 0;
}

/* A key: bare or quoted words between dots. */
static int read_key(struct toml *t, letters *out) {
    for (;;) {
        skip(t, false);
        int64_t n = out->n;
        if (*t->s == '"' || *t->s == '\'') {
            if (read_string(t, out) < 0)
                return -1;
        }
        while (isalnum((unsigned char)*t->s) || *t->s == '_' || *t->s == '-')
            arr_push(out, *t->s++);
        if (out->n == n)
            return refuse(t, "expected a key");
        skip(t, false);
        if (*t->s != '.')
            return 0;
        arr_push(out, *t->s++);
    }
}

static json_t *read_value(struct toml *t, int depth);

static json_t *read_array(struct toml *t, int depth) {
    json_t *list = json_array();
    t->s++;
    for (skip(t, true); *t->s != ']'; skip(t, true)) {
        json_t *v = depth < 8 ? read_value(t, depth + 1) : NULL;
        if (!v) {
            json_decref(list);
            return NULL;
        }
        json_array_append_new(list, v);
        skip(t, true);
        if (*t->s == ',')
            t->s++;
        else if (*t->s != ']') {
            refuse(t, "expected a comma or ]");
            json_decref(list);
            return NULL;
        }
    }
    t->s++;
    return list;
}

/* A number or a truth as its text, without the underscores between digits. */
static int read_word(struct toml *t, letters *out) {
    const char *begin = t->s;
    for (; isalnum((unsigned char)*t->s) || (*t->s && strchr("+-._", *t->s)); t->s++)
        if (*t->s != '_')
            arr_push(out, *t->s);
    bool truth = !strncmp(begin, "true", 4) || !strncmp(begin, "false", 5);
    return t->s > begin && (truth || strchr("+-.0123456789in", *begin))
               ? 0
               : refuse(t, "expected a number, a string, true, false or an array");
}

static json_t *read_value(struct toml *t, int depth) {
    letters text = {0};
    if (*t->s == '[')
        return read_array(t, depth);
    bool quoted = *t->s == '"' || *t->s == '\'';
    int rc = quoted ? read_string(t, &text) : read_word(t, &text);
    arr_push(&text, '\0');
    json_t *v = rc == 0 ? json_string(text.p) : NULL;
    if (rc == 0 && !v)
        refuse(t, "a string that is not UTF-8");
    arr_release(&text);
    return v;
}

/* "[training]" or "seq_len = 8192". */
static int read_statement(struct toml *t) {
    letters key = {0};
    bool table = *t->s == '[';
    t->s += table;
    int rc = *t->s == '[' ? refuse(t, "arrays of tables are not read") : read_key(t, &key);
    arr_push(&key, '\0');
    char name[512];
    snprintf(name, sizeof name, "%s%s", table ? "" : t->table, key.p);
    arr_release(&key);
    if (rc < 0)
        return -1;
    if (*t->s++ != (table ? ']' : '='))
        return refuse(t, table ? "expected ]" : "expected =");
    if (table) {
        snprintf(t->table, sizeof t->table, "%.254s.", name);
    } else {
        skip(t, false);
        json_t *v = json_object_get(t->flat, name) ? NULL : read_value(t, 0);
        if (!v)
            return json_object_get(t->flat, name) ? refuse(t, "a key that was there before")
                                                  : -1;
        json_object_set_new(t->flat, name, v);
    }
    skip(t, false);
    return *t->s && *t->s != '\n' ? refuse(t, "expected the end of the line") : 0;
}

json_t *plan_toml_read(const char *text, struct err *err) {
    struct toml t = {.s = text, .line = 1, .flat = json_object(), .err = err};
    for (skip(&t, true); *t.s; skip(&t, true))
        if (read_statement(&t) < 0) {
            json_decref(t.flat);
            return NULL;
        }
    return t.flat;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void flatten(json_t *flat, const char *prefix, const json_t *doc) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)doc, key, v) {
        char name[512];
        snprintf(name, sizeof name, "%s%s%s", prefix, *prefix ? "." : "", key);
        if (json_is_object(v)) {
            flatten(flat, name, v);
        } else if (json_is_string(v) || json_is_array(v)) {
            json_object_set(flat, name, v);
        } else {
            char *text = json_dumps(v, JSON_ENCODE_ANY);
            json_object_set_new(flat, name, json_string(text));
            free(text);
        }
    }
}

json_t *plan_json_flat(const json_t *doc) {
    json_t *flat = json_object();
    flatten(flat, "", doc);
    return flat;
}
