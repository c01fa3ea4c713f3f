/* Words of a shell, as far as launch scripts go. */
#include "plan_shell.h"

#include "common/mem.h"
#include "model/expr.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { CUT = '\x1f' /* between the words that one may become */ };

struct shell {
    const char *s;
    json_t *vars;  /* name -> value, whose words are parted by CUT */
    json_t *words; /* of the statements; "" ends one */
};
typedef ARR(char) buffer;

static void put(buffer *b, const char *text) {
    for (; *text; text++)
        arr_push(b, *text);
}

static bool is_name(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

static const char *value_of(const struct shell *sh, const char *name) {
    return json_string_value(json_object_get(sh->vars, name));
}

/* ---- what stands behind a dollar --------------------------------------------------------------- */

static int lookup(void *ctx, const char *name, int64_t *out, struct err *err) {
    const char *v = value_of(ctx, name);
    char *end;
    *out = v ? strtoll(v, &end, 10) : 0;
    return v && end != v && !*end ? 0 : err_input(err, "%.64s: no number", name);
}

/* The bracket that closes what begins at s. */
static const char *closing(const char *s, char open, char close) {
    int depth = 0;
    for (; *s; s++) {
        depth += (*s == open) - (*s == close);
        if (*s == close && !depth)
            return s;
    }
    return NULL;
}

/* $((A * B)) is a number, $(command) is nothing. */
static int read_brackets(struct shell *sh, buffer *b, struct err *err) {
    const char *end = closing(sh->s, '(', ')');
    if (!end)
        return err_input(err, "$( without its bracket");
    if (sh->s[1] == '(') {
        char text[256], sum[32];
        size_t n = 0;
        for (const char *c = sh->s + 2; c < end - 1 && n + 1 < sizeof text; c++)
            if (!strchr("${}", *c))
                text[n++] = *c;
        text[n] = '\0';
        int64_t value;
        if (expr_eval(text, lookup, sh, &value, err) < 0)
            return err_prefix(err, "$((%.64s))", text);
        snprintf(sum, sizeof sum, "%lld", (long long)value);
        put(b, sum);
    }
    sh->s = end + 1;
    return 0;
}

/* A value; its blanks part words unless it is quoted. */
static void put_value(buffer *b, const char *value, bool quoted) {
    for (; *value; value++)
        arr_push(b, !quoted && isspace((unsigned char)*value) ? CUT : *value);
}

/* sh->s stands behind the dollar. */
static int read_dollar(struct shell *sh, buffer *b, bool quoted, struct err *err) {
    char name[128];
    size_t n = 0;
    if (*sh->s == '(')
        return read_brackets(sh, b, err);
    bool brace = *sh->s == '{';
    sh->s += brace;
    while (is_name(*sh->s) && n + 1 < sizeof name)
        name[n++] = *sh->s++;
    name[n] = '\0';
    const char *value = value_of(sh, name);
    if (brace) {
        const char *end = closing(sh->s - 1 - n, '{', '}');
        if (!end)
            return err_input(err, "${%.64s without its brace", name);
        if (!value && sh->s[0] == ':' && sh->s[1] == '-')
            for (const char *c = sh->s + 2; c < end; c++)
                arr_push(b, *c);
        sh->s = end + 1;
    } else if (!n && *sh->s) {
        sh->s++; /* $1, $@ and the like: nothing is known of them */
    }
    put_value(b, value ? value : "", quoted);
    return 0;
}

/* ---- words ------------------------------------------------------------------------------------- */

static int read_quoted(struct shell *sh, buffer *b, struct err *err) {
    char quote = *sh->s++;
    while (*sh->s && *sh->s != quote) {
        if (quote == '"' && *sh->s == '$') {
            sh->s++;
            if (read_dollar(sh, b, true, err) < 0)
                return -1;
            continue;
        }
        if (quote == '"' && *sh->s == '\\' && sh->s[1]) {
            sh->s++;
            if (*sh->s == '\n') {
                sh->s++;
                continue;
            }
        }
        arr_push(b, *sh->s++);
    }
    if (!*sh->s)
        return err_input(err, "a quote %c that is not closed", quote);
    sh->s++;
    return 0;
}

static bool ends_word(char c) {
    return !c || isspace((unsigned char)c) || strchr(";&|<>()", c);
}

/* One word at sh->s into b. */
static int read_word(struct shell *sh, buffer *b, struct err *err) {
    while (!ends_word(*sh->s)) {
        int rc = 0;
        if (*sh->s == '\\') {
            if (sh->s[1] && sh->s[1] != '\n')
                arr_push(b, sh->s[1]);
            sh->s += sh->s[1] ? 2 : 1;
        } else if (*sh->s == '\'' || *sh->s == '"') {
            rc = read_quoted(sh, b, err);
        } else if (*sh->s == '$') {
            sh->s++;
            rc = read_dollar(sh, b, false, err);
        } else {
            arr_push(b, *sh->s++);
        }
        if (rc < 0)
            return -1;
    }
    return 0;
}

/* Blanks, comments and lines that go on; ends at the end of a statement too where `lines` says so. */
static void skip_blanks(struct shell *sh, bool lines) {
    for (;;) {
        if (*sh->s == '\\' && sh->s[1] == '\n')
            sh->s += 2;
        else if (*sh->s == '#')
            sh->s += strcspn(sh->s, "\n");
        else if (isspace((unsigned char)*sh->s) && (lines || *sh->s != '\n'))
            sh->s++;
        else
            return;
    }
}

/* NAME= at s, and behind how many letters; 0: none. "+=" adds. */
static size_t assigns(const char *s) {
    size_t n = 0;
    while (is_name(s[n]))
        n++;
    return n && !isdigit((unsigned char)*s) &&
                   (s[n] == '=' || (s[n] == '+' && s[n + 1] == '='))
               ? n
               : 0;
}

static int read_assignment(struct shell *sh, size_t n, struct err *err) {
    char name[128];
    buffer b = {0};
    snprintf(name, sizeof name, "%.*s", (int)n, sh->s);
    bool adds = sh->s[n] == '+';
    sh->s += n + 1 + adds;
    int rc = 0;
    if (adds && value_of(sh, name)) {
        put(&b, value_of(sh, name));
        arr_push(&b, CUT);
    }
    if (*sh->s == '(') {
        sh->s++;
        for (skip_blanks(sh, true); rc == 0 && *sh->s && *sh->s != ')';
             skip_blanks(sh, true)) {
            const char *before = sh->s;
            rc = read_word(sh, &b, err);
            arr_push(&b, CUT);
            sh->s += sh->s == before;
        }
        if (rc == 0 && !*sh->s)
            rc = err_input(err, "%.64s=( without its bracket", name);
        sh->s += *sh->s == ')';
    } else {
        rc = read_word(sh, &b, err);
    }
    arr_push(&b, '\0');
    if (rc == 0)
        json_object_set_new(sh->vars, name, json_string(b.p));
    arr_release(&b);
    return rc;
}

/* Appends the words that one has become. */
static void add_words(json_t *words, char *text) {
    static const char cut[] = {CUT, '\0'};
    char *save = NULL;
    for (char *w = strtok_r(text, cut, &save); w; w = strtok_r(NULL, cut, &save))
        json_array_append_new(words, json_string(w));
}

static int read_statements(struct shell *sh, struct err *err) {
    bool begins = true;
    int rc = 0;
    for (skip_blanks(sh, false); *sh->s && rc == 0; skip_blanks(sh, false)) {
        size_t n = begins ? assigns(sh->s) : 0;
        if (n) {
            rc = read_assignment(sh, n, err);
            continue;
        }
        if (ends_word(*sh->s)) {
            json_array_append_new(sh->words, json_string(""));
            begins = true;
            sh->s++;
            continue;
        }
        buffer b = {0};
        rc = read_word(sh, &b, err);
        arr_push(&b, '\0');
        begins = !strcmp(b.p, "export") || !strcmp(b.p, "local") || !strcmp(b.p, "then") ||
                 !strcmp(b.p, "else");
        add_words(sh->words, b.p);
        arr_release(&b);
    }
    return rc;
}

/* ---- flags ---------------------------------------------------------------------------------------- */

static int add_flag(json_t *flags, const char *name, const char *value, struct err *err) {
    const char *before = json_string_value(json_object_get(flags, name));
    if (before && strcmp(before, value) != 0)
        return err_input(err, "--%.64s: given twice, as \"%.64s\" and \"%.64s\"", name,
                         before, value);
    json_object_set_new(flags, name, json_string(value));
    return 0;
}

/* "--name=a", or "--name a b". Returns how many words it took. */
static int read_flag(const json_t *words, size_t at, json_t *flags, struct err *err) {
    const char *word = json_string_value(json_array_get(words, at)) + 2;
    size_t n = strcspn(word, "="), next = at + 1;
    char *name = mem_strdup(word);
    buffer value = {0};
    name[n] = '\0';
    for (char *c = name; (c = strchr(c, '_'));)
        *c = '-';
    if (word[n])
        put(&value, word + n + 1);
    for (; !word[n] && next < json_array_size(words); next++) {
        const char *w = json_string_value(json_array_get(words, next));
        if (!*w || !strncmp(w, "--", 2) || strstr(w, ".py"))
            break;
        put(&value, value.n ? " " : "");
        put(&value, w);
    }
    arr_push(&value, '\0');
    int rc = add_flag(flags, name, value.p, err);
    arr_release(&value);
    free(name);
    return rc < 0 ? -1 : (int)(next - at);
}

json_t *plan_shell_flags(const char *text, struct err *err) {
    struct shell sh = {text, json_object(), json_array()};
    json_t *flags = json_object(), *v;
    const char *name;
    int rc = read_statements(&sh, err);
    for (size_t i = 0; rc >= 0 && i < json_array_size(sh.words);) {
        const char *w = json_string_value(json_array_get(sh.words, i));
        rc = !strncmp(w, "--", 2) && w[2] ? read_flag(sh.words, i, flags, err) : 1;
        i += rc > 0 ? (size_t)rc : 0;
    }
    json_object_foreach(sh.vars, name, v) {
        char key[160];
        snprintf(key, sizeof key, "$%s", name);
        json_object_set(flags, key, v);
    }
    json_decref(sh.vars);
    json_decref(sh.words);
    if (rc >= 0)
        return flags;
    json_decref(flags);
    return NULL;
}
