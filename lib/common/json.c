#include "common/json.h"

#include "common/file.h"
#include "common/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *json_other_encoding(const char *text, size_t size) {
    if (size >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3))
        return "begins with a byte-order mark: expected UTF-8 without one";
    if (size >= 2 && (!memcmp(text, "\xFF\xFE", 2) || !memcmp(text, "\xFE\xFF", 2) ||
                      !text[0] != !text[1]))
        return "is UTF-16 or UTF-32: expected UTF-8";
    return memchr(text, 0, size) ? "holds a byte of zero: expected text in UTF-8" : NULL;
}

/* Where a key is given twice, the library has read up to its end, and does not say which it is. */
static void not_read(const char *text, size_t size, const json_error_t *je, int line,
                     const char *name, struct err *err) {
    size_t end = (size_t)je->position;
    const char *encoding = json_other_encoding(text, size);
    if (encoding) {
        err_input(err, "%s: %s", name, encoding);
        return;
    }
    if (strncmp(je->text, "duplicate", 9) != 0 || end > size || end < 2) {
        static const char option[] = " without JSON_ALLOW_NUL"; /* the library's own */
        const char *at = strstr(je->text, option);
        int cut = at ? (int)(at - je->text) : 0;
        err_input(err, "%s:%d:%d: %.*s%s%s", name, line, je->column, cut, je->text,
                  je->text + (at ? cut + (int)sizeof option - 1 : 0),
                  strncmp(je->text, "unable to decode", 16) ? "" : ": expected UTF-8");
        return;
    }
    size_t begin = end - 1; /* the quote behind the key */
    while (begin > 0 && text[begin - 1] != '"')
        begin--;
    err_input(err, "%s:%d:%d: duplicate key \"%.*s\"", name, line, je->column,
              (int)(end - 1 - begin < 100 ? end - 1 - begin : 100), text + begin);
}

static size_t blanks(const char *text, size_t size) {
    size_t n = 0;
    while (n < size && text[n] && strchr(" \t\r\n", text[n]))
        n++;
    return n;
}

json_t *json_parse(const char *text, size_t size, const char *name, struct err *err) {
    json_error_t je;
    if (blanks(text, size) == size) {
        err_input(err, "%s: expected JSON, got nothing", name);
        return NULL;
    }
    json_t *v = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
    if (!v)
        not_read(text, size, &je, je.line, name, err);
    return v;
}

static void skip(const char **text, size_t *size, size_t n, int *line) {
    for (; n > 0; n--, ++*text, --*size)
        *line += **text == '\n';
}

json_t *json_parse_next(const char **text, size_t *size, int *line, const char *name,
                        struct err *err) {
    json_error_t je;
    skip(text, size, blanks(*text, *size), line);
    if (!*size)
        return NULL;
    json_t *v =
        json_loadb(*text, *size, JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK, &je);
    if (!v) {
        not_read(*text, *size, &je, *line + je.line, name, err);
        return NULL;
    }
    skip(text, size, (size_t)je.position, line);
    skip(text, size, blanks(*text, *size), line);
    return v;
}

json_t *json_read(const char *path, struct err *err) {
    size_t size;
    char *text = file_read(path, 0, &size, err);
    if (!text)
        return NULL;
    json_t *v = json_parse(text, size, strcmp(path, "-") ? path : "standard input", err);
    free(text);
    return v;
}

const char *json_type_name(const json_t *v) {
    if (!v)
        return "nothing";
    switch (json_typeof(v)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "a whole number";
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    case JSON_NULL: return "null";
    }
    return "?";
}

static bool listed(const char *list, const char *word) {
    size_t n = strlen(word);
    for (const char *p = list; n && (p = strstr(p, word)); p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || !p[n]))
            return true;
    return false;
}

int json_keys(const json_t *obj, const char *allowed, struct err *err) {
    if (!json_is_object(obj))
        return err_input(err, "expected an object, got %s", json_type_name(obj));
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)obj, key, v) {
        if (!listed(allowed, key))
            /* Begins with the key, as all messages do, so that err_at makes a place of it. */
            return err_input(err, "%.64s: unknown key \"%.64s\" (expected: %s)", key, key,
                             allowed);
    }
    return 0;
}

int json_format(const json_t *obj, const char *want, struct err *err) {
    const char *got = "";
    if (json_str(obj, "format", &got, err) < 0)
        return -1;
    if (strcmp(got, want))
        return err_input(err, "format: expected \"%s\", got \"%.64s\"", want, got);
    return 0;
}

static int wrong_type(const char *key, const char *want, const json_t *v, struct err *err) {
    if (!v)
        return err_input(err, "%s: missing (expected %s)", key, want);
    char text[32];
    return err_input(err, "%s: expected %s, got %s", key, want,
                     json_is_real(v) ? json_format_real(json_real_value(v), text)
                                     : json_type_name(v));
}

/* Reads a number without a fraction, however it is written: 80e9 bytes are as whole as
 * 80000000000. Beyond 2^53 a real number no longer says which whole one is meant. */
static bool read_whole(const json_t *v, int64_t *out) {
    double x = json_is_real(v) ? json_real_value(v) : 0;
    if (!json_is_number(v) || x != floor(x) || fabs(x) > 0x1p53)
        return false;
    *out = json_is_integer(v) ? json_integer_value(v) : (int64_t)x;
    return true;
}

int json_int(const json_t *obj, const char *key, int64_t lo, int64_t hi, int64_t *out,
             struct err *err) {
    const json_t *v = json_object_get(obj, key);
    int64_t x;
    if (!read_whole(v, &x))
        return wrong_type(key, "a whole number", v, err);
    if (x < lo || x > hi)
        return err_input(err, "%s: %lld is not in %lld..%lld", key, (long long)x,
                         (long long)lo, (long long)hi);
    *out = x;
    return 0;
}

int json_num(const json_t *obj, const char *key, double lo, double hi, double *out,
             struct err *err) {
    const json_t *v = json_object_get(obj, key);
    if (!json_is_number(v))
        return wrong_type(key, "a number", v, err);
    double x = json_number_value(v);
    if (!isfinite(x) || x < lo || x > hi)
        return err_input(err, "%s: %g is not in %g..%g", key, x, lo, hi);
    *out = x;
    return 0;
}

int json_str(const json_t *obj, const char *key, const char **out, struct err *err) {
    const json_t *v = json_object_get(obj, key);
    if (!json_is_string(v))
        return wrong_type(key, "a string", v, err);
    *out = json_string_value(v);
    return 0;
}

int json_object_member(const json_t *obj, const char *key, json_t **out, struct err *err) {
    json_t *v = json_object_get(obj, key);
    if (!json_is_object(v))
        return wrong_type(key, "an object", v, err);
    *out = v;
    return 0;
}

int json_array_member(const json_t *obj, const char *key, json_t **out, struct err *err) {
    json_t *v = json_object_get(obj, key);
    if (!json_is_array(v))
        return wrong_type(key, "an array", v, err);
    *out = v;
    return 0;
}

int json_opt_int(const json_t *obj, const char *key, int64_t lo, int64_t hi, int64_t *out,
                 struct err *err) {
    return json_object_get(obj, key) ? json_int(obj, key, lo, hi, out, err) : 0;
}

int json_opt_num(const json_t *obj, const char *key, double lo, double hi, double *out,
                 struct err *err) {
    return json_object_get(obj, key) ? json_num(obj, key, lo, hi, out, err) : 0;
}

int json_opt_str(const json_t *obj, const char *key, const char **out, struct err *err) {
    return json_object_get(obj, key) ? json_str(obj, key, out, err) : 0;
}

int json_opt_bool(const json_t *obj, const char *key, bool *out, struct err *err) {
    const json_t *v = json_object_get(obj, key);
    if (!v)
        return 0;
    if (!json_is_boolean(v))
        return wrong_type(key, "true or false", v, err);
    *out = json_is_true(v);
    return 0;
}

char *json_format_real(double x, char buf[32]) {
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(buf, 32, "%.*g", digits, x);
        if (strtod(buf, NULL) == x)
            break;
    }
    if (!strpbrk(buf, ".en"))
        strcat(buf, ".0"); /* stays a real number when read back */
    return buf;
}

/* A growing text: values are first written flat, and laid out in lines where too long. */
struct text {
    char *p;
    int64_t n, cap;
};

static void put(struct text *t, const char *s, size_t n) {
    if (t->n + (int64_t)n > t->cap) {
        t->cap = 2 * t->cap + (int64_t)n + 64;
        t->p = mem_grow(t->p, (size_t)t->cap, 1);
    }
    memcpy(t->p + t->n, s, n);
    t->n += (int64_t)n;
}

static void puts_(struct text *t, const char *s) {
    put(t, s, strlen(s));
}

static void put_scalar(struct text *t, const json_t *v) {
    char buf[32];
    if (json_is_real(v)) {
        puts_(t, json_format_real(json_real_value(v), buf));
        return;
    }
    char *s = json_dumps(v, JSON_ENCODE_ANY);
    puts_(t, s ? s : "null");
    free(s);
}

static void put_string(struct text *t, const char *s) {
    json_t *v = json_string_nocheck(s);
    put_scalar(t, v);
    json_decref(v);
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static const char **sorted_keys(const json_t *obj, size_t n) {
    const char **keys = mem_array(n, sizeof *keys);
    const char *key;
    json_t *v;
    size_t i = 0;
    json_object_foreach((json_t *)obj, key, v) {
        keys[i++] = key;
    }
    if (n)
        qsort((void *)keys, n, sizeof *keys, by_name);
    return keys;
}

static void put_value(struct text *t, const json_t *v, int indent);

static void new_line(struct text *t, int indent) {
    puts_(t, "\n");
    for (int i = 0; i < indent; i++)
        puts_(t, "  ");
}

static bool all_scalars(const json_t *v) {
    const char *key;
    json_t *e;
    size_t i;
    if (json_is_array(v)) {
        json_array_foreach(v, i, e) {
            if (json_is_array(e) || json_is_object(e))
                return false;
        }
    } else {
        json_object_foreach((json_t *)v, key, e) {
            if (json_is_array(e) || json_is_object(e))
                return false;
        }
    }
    return true;
}

/* Writes a container; indent < 0 puts it on one line. */
static void put_container(struct text *t, const json_t *v, int indent) {
    bool object = json_is_object(v), flat = indent < 0;
    size_t n = object ? json_object_size(v) : json_array_size(v);
    const char **keys = object ? sorted_keys(v, n) : NULL;
    puts_(t, object ? "{" : "[");
    for (size_t i = 0; i < n; i++) {
        if (i)
            puts_(t, flat ? ", " : ",");
        if (!flat)
            new_line(t, indent + 1);
        if (object) {
            put_string(t, keys[i]);
            puts_(t, ": ");
        }
        put_value(t, object ? json_object_get(v, keys[i]) : json_array_get(v, i),
                  flat ? -1 : indent + 1);
    }
    if (n && !flat)
        new_line(t, indent);
    puts_(t, object ? "}" : "]");
    free((void *)keys);
}

static void put_value(struct text *t, const json_t *v, int indent) {
    if (!json_is_object(v) && !json_is_array(v)) {
        put_scalar(t, v);
        return;
    }
    if (indent >= 0 && all_scalars(v)) {
        int64_t start = t->n;
        put_container(t, v, -1);
        if (t->n - start + 2 * indent <= 80)
            return;
        t->n = start;
    }
    put_container(t, v, indent);
}

static void write_text(const json_t *v, FILE *f, int indent) {
    struct text t = {0};
    put_value(&t, v, indent);
    puts_(&t, "\n");
    fwrite(t.p, 1, (size_t)t.n, f);
    free(t.p);
}

void json_write(const json_t *v, FILE *f) {
    write_text(v, f, 0);
}

void json_write_line(const json_t *v, FILE *f) {
    write_text(v, f, -1);
}

int json_write_file(const json_t *v, const char *path, struct err *err) {
    struct file_out out;
    if (file_out_open(&out, path, err) < 0)
        return -1;
    json_write(v, out.f);
    return file_out_close(&out, err);
}
