/* json_stream.c - a window moves over the text; tokens are taken from it.
 *
 * The window ends in a 0 byte, so that loops over digits and blanks need no other end. A mark
 * keeps what was taken since: a string is walked through under a mark, and if it has escapes or
 * other letters than ASCII, the text between goes to the library.
 */
#include "common/json_stream.h"

#include "common/mem.h"
#include "common/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK      (1 << 18) /* bytes asked for at once */
#define LONGEST    1024      /* characters of a number */
#define MOST_DEPTH 1000      /* of values within each other */
#define NO_MARK    SIZE_MAX

enum { FAILED = -1, AT_END = 256 }; /* beside the characters that peek gives */

void json_stream_text(struct json_stream *s, const char *text, size_t size,
                      const char *name) {
    *s = (struct json_stream){
        .name = name, .mark = NO_MARK, .fd = -1, .eof = true, .end = size, .cap = size + 1};
    s->buf = mem_alloc(s->cap);
    memcpy(s->buf, text, size);
}

int json_stream_open(struct json_stream *s, const char *path, struct err *err) {
    bool file = strcmp(path, "-") != 0;
    json_stream_text(s, "", 0, file ? path : "standard input");
    s->fd = file ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
    s->eof = s->failed = s->fd < 0;
    return s->failed ? err_input(err, "%s: %s", path, strerror(errno)) : 0;
}

void json_stream_close(struct json_stream *s) {
    if (s->fd > STDIN_FILENO)
        close(s->fd);
    free(s->buf);
    *s = (struct json_stream){.fd = -1, .eof = true};
}

/* ---- the window -------------------------------------------------------------------------- */

/* Moves the counts of lines and columns over the first n bytes of the window. */
static void count_lines(const struct json_stream *s, size_t n, int64_t *lines,
                        int64_t *column) {
    const char *from = s->buf, *to = s->buf + n, *feed;
    while ((feed = memchr(from, '\n', (size_t)(to - from)))) {
        ++*lines;
        *column = 0;
        from = feed + 1;
    }
    *column += to - from;
}

static int fail(struct json_stream *s, struct err *err, const char *text) {
    int64_t lines = s->lines, column = s->column;
    count_lines(s, s->at, &lines, &column);
    s->failed = true;
    const char *encoding =
        s->buf ? json_other_encoding(s->buf + s->at, s->end - s->at) : NULL;
    if (encoding)
        return err_input(err, "%s: %s", s->name, encoding);
    return err_input(err, "%s:%lld:%lld: %s", s->name, (long long)lines + 1,
                     (long long)column + 1, text);
}

static int stopped(struct json_stream *s, struct err *err) {
    s->failed = true;
    return err_no(err, "%s: %s before all of it was read", s->name,
                  interrupted() ? "interrupted" : "the time budget ended");
}

/* Gets more text, dropping what was taken. Returns how many bytes came, 0 at the end. */
static int64_t refill(struct json_stream *s, struct err *err) {
    size_t keep = s->mark < s->at ? s->mark : s->at;
    if (s->eof)
        return 0;
    count_lines(s, keep, &s->lines, &s->column);
    s->at -= keep;
    s->end -= keep;
    s->mark -= s->mark == NO_MARK ? 0 : keep;
    memmove(s->buf, s->buf + keep, s->end);
    if (s->cap - s->end <= CHUNK)
        s->buf = mem_grow(s->buf, s->cap = 2 * s->cap + CHUNK, 1);
    for (;;) {
        if (interrupted() || (s->deadline_s > 0 && now_s() > s->deadline_s))
            return stopped(s, err);
        ssize_t n = read(s->fd, s->buf + s->end, CHUNK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            s->failed = true;
            return err_input(err, "%s: %s", s->name, strerror(errno));
        }
        s->eof = n == 0;
        s->end += (size_t)n;
        s->buf[s->end] = '\0';
        return n;
    }
}

/* Until n bytes are in the window, or the text ends. */
static int ensure(struct json_stream *s, size_t n, struct err *err) {
    while (s->end - s->at < n && !s->eof)
        if (refill(s, err) < 0)
            return -1;
    return 0;
}

/* The next character that is not blank, still to be taken. */
static int peek(struct json_stream *s, struct err *err) {
    for (;;) {
        char c = s->buf ? s->buf[s->at] : '\0';
        while (c == ' ' || c == '\n' || c == '\t' || c == '\r')
            c = s->buf[++s->at];
        if (s->at < s->end)
            return (unsigned char)c;
        int64_t n = refill(s, err);
        if (n <= 0)
            return n < 0 ? FAILED : AT_END;
    }
}

static int unexpected(struct json_stream *s, int c, const char *want, struct err *err) {
    char text[128];
    if (c == FAILED)
        return -1;
    if (c == AT_END)
        snprintf(text, sizeof text, "expected %s, got the end of the text", want);
    else
        snprintf(text, sizeof text,
                 c < 33 || c > 126 ? "expected %s, got byte %d" : "expected %s, got '%c'",
                 want, c);
    return fail(s, err, text);
}

/* ---- values -------------------------------------------------------------------------- */

int json_stream_type(struct json_stream *s, struct err *err) {
    int c = peek(s, err);
    switch (c) {
    case '{': return JSON_OBJECT;
    case '[': return JSON_ARRAY;
    case '"': return JSON_STRING;
    case 't': return JSON_TRUE;
    case 'f': return JSON_FALSE;
    case 'n': return JSON_NULL;
    default:
        return c == '-' || (c >= '0' && c <= '9') ? JSON_INTEGER
                                                  : unexpected(s, c, "a value", err);
    }
}

const char *json_stream_type_name(int type) {
    switch (type) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    case JSON_NULL: return "null";
    default: return "nothing";
    }
}

int json_stream_enter(struct json_stream *s, char open, struct err *err) {
    int c = peek(s, err);
    if (c != open)
        return unexpected(s, c, open == '[' ? "'['" : "'{'", err);
    s->at++;
    s->fresh = true;
    return 0;
}

/* Comma or end: what stands between the items of a container. */
static int next(struct json_stream *s, char close, struct err *err) {
    int c = peek(s, err);
    if (c == close) {
        s->at++;
        s->fresh = false;
        return 0;
    }
    if (s->fresh) {
        s->fresh = false;
        return c == FAILED ? -1 : 1;
    }
    if (c != ',')
        return unexpected(s, c, close == ']' ? "',' or ']'" : "',' or '}'", err);
    s->at++;
    return 1;
}

int json_stream_item(struct json_stream *s, struct err *err) {
    return next(s, ']', err);
}

/* Walks through a string. *plain: what stands between the quotes is the string. */
static int take_string(struct json_stream *s, bool *plain, struct err *err) {
    int c = peek(s, err);
    if (c != '"')
        return unexpected(s, c, "a string", err);
    *plain = true;
    for (s->at++;; s->at++) {
        if (s->at == s->end) {
            int64_t n = refill(s, err);
            if (n <= 0)
                return unexpected(s, n < 0 ? FAILED : AT_END, "'\"'", err);
        }
        c = (unsigned char)s->buf[s->at];
        if (c == '"')
            break;
        if (c < 32)
            return unexpected(s, c, "a printable character", err);
        *plain &= c != '\\' && c < 128;
        if (c == '\\') {
            if (ensure(s, 2, err) < 0)
                return -1;
            s->at += s->at + 1 < s->end;
        }
    }
    s->at++;
    return 0;
}

/* The next value, a string, as the library has it. */
static json_t *string(struct json_stream *s, struct err *err) {
    bool plain;
    json_error_t je;
    json_t *v = NULL;
    if (peek(s, err) == FAILED)
        return NULL;
    s->mark = s->at;
    if (take_string(s, &plain, err) == 0) {
        const char *from = s->buf + s->mark;
        size_t n = s->at - s->mark;
        v = plain ? json_stringn_nocheck(from + 1, n - 2)
                  : json_loadb(from, n, JSON_DECODE_ANY, &je);
        if (!v) {
            s->at = s->mark;
            fail(s, err, je.text);
        }
    }
    s->mark = NO_MARK;
    return v;
}

/* The next key (the caller owns it) and the colon behind it: 1; 0: there is none. */
static int take_key(struct json_stream *s, json_t **key, struct err *err) {
    int more = next(s, '}', err);
    if (more <= 0)
        return more;
    int c = peek(s, err);
    if (c != '"')
        return unexpected(s, c, "a key", err);
    *key = string(s, err);
    if (!*key)
        return -1;
    c = peek(s, err);
    if (c == ':') {
        s->at++;
        return 1;
    }
    json_decref(*key);
    return unexpected(s, c, "':'", err);
}

int json_stream_key(struct json_stream *s, char *key, size_t size, struct err *err) {
    json_t *text;
    int more = take_key(s, &text, err);
    if (more > 0) {
        snprintf(key, size, "%s", json_string_value(text));
        json_decref(text);
    }
    return more;
}

static const char *digits(const char *p) {
    while (*p >= '0' && *p <= '9')
        p++;
    return p;
}

/* The end of the fraction and exponent at p; NULL if they are wrong. */
static const char *fraction(const char *p) {
    if (*p == '.') {
        const char *from = ++p;
        if ((p = digits(p)) == from)
            return NULL;
    }
    if (*p == 'e' || *p == 'E') {
        p += p[1] == '+' || p[1] == '-' ? 2 : 1;
        const char *from = p;
        if ((p = digits(p)) == from)
            return NULL;
    }
    return p;
}

int json_stream_number(struct json_stream *s, struct json_number *x, struct err *err) {
    int c = peek(s, err);
    if (c != '-' && (c < '0' || c > '9'))
        return unexpected(s, c, "a number", err);
    if (ensure(s, LONGEST, err) < 0)
        return -1;
    const char *from = s->buf + s->at, *first = from + (c == '-'), *p = first;
    int64_t sum = 0;
    for (; *p >= '0' && *p <= '9' && p < first + 18; p++)
        sum = 10 * sum + (*p - '0');
    if (p == first || (*first == '0' && p > first + 1))
        return fail(s, err, "expected a number");
    bool many = *p >= '0' && *p <= '9';
    p = digits(p);
    x->whole = *p != '.' && *p != 'e' && *p != 'E';
    p = x->whole ? p : fraction(p);
    if (!p || p - from >= LONGEST)
        return fail(s, err, p ? "this number is too long" : "expected a number");
    errno = 0;
    x->whole_value = !x->whole ? 0 : many ? strtoll(from, NULL, 10) : c == '-' ? -sum : sum;
    x->real = x->whole ? (double)x->whole_value : strtod(from, NULL);
    if ((errno == ERANGE && x->whole) || !isfinite(x->real))
        return fail(s, err, "this number is too large");
    s->at += (size_t)(p - from);
    return 0;
}

static int take_word(struct json_stream *s, const char *word, struct err *err) {
    size_t n = strlen(word);
    if (ensure(s, n, err) < 0)
        return -1;
    if (s->end - s->at < n || memcmp(s->buf + s->at, word, n) != 0)
        return fail(s, err, "expected a value");
    s->at += n;
    return 0;
}

/* ---- whole values -------------------------------------------------------------------------- */

static int too_deep(struct json_stream *s, struct err *err) {
    return fail(s, err, "too many values within each other");
}

static int skip(struct json_stream *s, int depth, struct err *err);

static int skip_container(struct json_stream *s, char open, int depth, struct err *err) {
    char key[2];
    if (depth > MOST_DEPTH)
        return too_deep(s, err);
    int more = json_stream_enter(s, open, err);
    while (more >= 0 && (more = open == '[' ? json_stream_item(s, err)
                                            : json_stream_key(s, key, sizeof key, err)) > 0)
        more = skip(s, depth + 1, err);
    return more;
}

static int skip(struct json_stream *s, int depth, struct err *err) {
    struct json_number x;
    bool plain;
    switch (json_stream_type(s, err)) {
    case JSON_OBJECT: return skip_container(s, '{', depth, err);
    case JSON_ARRAY: return skip_container(s, '[', depth, err);
    case JSON_STRING: return take_string(s, &plain, err);
    case JSON_INTEGER: return json_stream_number(s, &x, err);
    case JSON_TRUE: return take_word(s, "true", err);
    case JSON_FALSE: return take_word(s, "false", err);
    case JSON_NULL: return take_word(s, "null", err);
    default: return -1;
    }
}

static json_t *tree(struct json_stream *s, int depth, struct err *err);

static int tree_items(struct json_stream *s, json_t *array, int depth, struct err *err) {
    int more = depth > MOST_DEPTH ? too_deep(s, err) : json_stream_enter(s, '[', err);
    while (more >= 0 && (more = json_stream_item(s, err)) > 0) {
        json_t *item = tree(s, depth + 1, err);
        if (!item || json_array_append_new(array, item) < 0)
            return -1;
    }
    return more;
}

static int duplicate(struct json_stream *s, const char *key, struct err *err) {
    char text[128];
    snprintf(text, sizeof text, "duplicate key \"%.80s\"", key);
    return fail(s, err, text);
}

static int tree_members(struct json_stream *s, json_t *object, int depth, struct err *err) {
    json_t *key;
    int more = depth > MOST_DEPTH ? too_deep(s, err) : json_stream_enter(s, '{', err);
    while (more >= 0 && (more = take_key(s, &key, err)) > 0) {
        if (json_object_get(object, json_string_value(key)))
            more = duplicate(s, json_string_value(key), err);
        json_t *value = more < 0 ? NULL : tree(s, depth + 1, err);
        if (!value || json_object_set_new(object, json_string_value(key), value) < 0)
            more = -1;
        json_decref(key);
    }
    return more;
}

static json_t *tree_of_container(struct json_stream *s, bool array, int depth,
                                 struct err *err) {
    json_t *v = array ? json_array() : json_object();
    if ((array ? tree_items : tree_members)(s, v, depth, err) == 0)
        return v;
    json_decref(v);
    return NULL;
}

static json_t *tree(struct json_stream *s, int depth, struct err *err) {
    struct json_number x;
    int type = json_stream_type(s, err);
    switch (type) {
    case JSON_OBJECT:
    case JSON_ARRAY: return tree_of_container(s, type == JSON_ARRAY, depth, err);
    case JSON_STRING: return string(s, err);
    case JSON_INTEGER:
        if (json_stream_number(s, &x, err) < 0)
            return NULL;
        return x.whole ? json_integer(x.whole_value) : json_real(x.real);
    case JSON_TRUE: return take_word(s, "true", err) < 0 ? NULL : json_true();
    case JSON_FALSE: return take_word(s, "false", err) < 0 ? NULL : json_false();
    case JSON_NULL: return take_word(s, "null", err) < 0 ? NULL : json_null();
    default: return NULL;
    }
}

json_t *json_stream_tree(struct json_stream *s, struct err *err) {
    return tree(s, 0, err);
}

int json_stream_skip(struct json_stream *s, struct err *err) {
    return skip(s, 0, err);
}

int json_stream_end(struct json_stream *s, struct err *err) {
    int c = peek(s, err);
    return c == AT_END ? 0 : unexpected(s, c, "the end of the text", err);
}
