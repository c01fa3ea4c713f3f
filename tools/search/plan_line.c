/* Settings of a job, as text, numbers and words. */
#include "plan_line.h"

#include "common/opt.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

const char *line_peek(const struct line *l, const char *name) {
    return json_string_value(json_object_get(l->flags, name));
}

bool line_flag(struct line *l, const char *name) {
    return json_object_del(l->flags, name) == 0;
}

/* The text lives on in the object, under another name. */
const char *line_text(struct line *l, const char *name, const char *otherwise) {
    json_t *v = json_object_get(l->flags, name);
    if (!v)
        return otherwise;
    char key[96];
    snprintf(key, sizeof key, " %s", name); /* which no flag is called */
    json_object_set(l->flags, key, v);
    json_object_del(l->flags, name);
    return line_peek(l, key);
}

bool line_truth(struct line *l, const char *name, bool otherwise) {
    const char *text = line_text(l, name, otherwise ? "true" : "false");
    return !strcmp(text, "true");
}

int line_int(struct line *l, const char *name, int64_t otherwise, int64_t *out) {
    const char *text = line_text(l, name, NULL);
    *out = otherwise;
    if (!text)
        return otherwise < 0 ? err_input(l->err, "%s%s: missing, and needed", l->dash, name)
                             : 0;
    if (opt_parse_int(text, out) < 0 || *out < 1 || *out > (int64_t)1 << 40)
        return err_input(l->err, "%s%s: expected a number from 1, got \"%.64s\"", l->dash,
                         name, text);
    return 0;
}

int line_real(struct line *l, const char *name, double otherwise, double *out) {
    const char *text = line_text(l, name, NULL);
    char *end = NULL;
    *out = text ? strtod(text, &end) : otherwise;
    return !text || (end != text && !*end && *out >= 0 && *out < 1e15)
               ? 0
               : err_input(l->err, "%s%s: expected a number, got \"%.64s\"", l->dash, name,
                           text);
}

/* One of some words; the number of it. */
int line_word(struct line *l, const char *name, const char *const *words) {
    const char *text = line_text(l, name, words[0]);
    for (int i = 0; words[i]; i++)
        if (!strcmp(text, words[i]))
            return i;
    err_input(l->err, "%s%s: \"%.64s\" cannot be expressed here", l->dash, name, text);
    return -1;
}

static bool is_unread(const struct line *l, const char *name) {
    char *patterns = mem_strdup(l->unread), *save = NULL;
    bool found = *name == '$' || *name == ' '; /* a variable; what has been read */
    for (char *p = strtok_r(patterns, " ", &save); p && !found;
         p = strtok_r(NULL, " ", &save))
        found = !fnmatch(p, name, 0);
    free(patterns);
    return found;
}

int line_check_rest(struct line *l) {
    const char *name;
    json_t *v;
    json_object_foreach(l->flags, name, v) {
        if (!is_unread(l, name))
            return err_input(l->err, "%s%.64s %.64s: this is not understood", l->dash, name,
                             json_is_string(v) ? json_string_value(v) : "[...]");
    }
    return 0;
}
