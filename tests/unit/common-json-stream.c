/* Documents read piece by piece: the same values as from a tree, at every width of the window's
 * pieces; what json_read refuses is refused, with its line and column. */
#include "common/json_stream.h"
#include "common/mem.h"
#include "common/rng.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The next value, built by walking rather than by the library. */
static json_t *walk(struct json_stream *s, struct err *err) {
    struct json_number x;
    char key[64];
    int type = json_stream_type(s, err), more;
    json_t *v = NULL;
    switch (type) {
    case JSON_INTEGER:
        if (json_stream_number(s, &x, err) == 0)
            v = x.whole ? json_integer(x.whole_value) : json_real(x.real);
        return v;
    case JSON_ARRAY:
    case JSON_OBJECT:
        v = type == JSON_ARRAY ? json_array() : json_object();
        more = json_stream_enter(s, type == JSON_ARRAY ? '[' : '{', err);
        while (more >= 0 &&
               (more = type == JSON_ARRAY ? json_stream_item(s, err)
                                          : json_stream_key(s, key, sizeof key, err)) > 0) {
            json_t *item = walk(s, err);
            if (!item || (type == JSON_ARRAY ? json_array_append_new(v, item)
                                             : json_object_set_new(v, key, item)) < 0)
                more = -1;
        }
        if (more < 0) {
            json_decref(v);
            v = NULL;
        }
        return v;
    default: return type < 0 ? NULL : json_stream_tree(s, err);
    }
}

/* A random value. */
static json_t *grow(struct rng *r, int depth) {
    char text[32];
    int64_t n = rng_below(r, 5), what = rng_below(r, depth > 4 ? 6 : 8);
    json_t *v;
    switch (what) {
    case 0: return json_integer((int64_t)rng_next(r));
    case 1: return json_integer(rng_below(r, 1000) - 500);
    case 2: return json_real((rng_real(r) - 0.5) * 1e9);
    case 3: return json_real(rng_real(r) * 1e-200);
    case 4:
        snprintf(text, sizeof text, "a \"\\\n\t%d] }", (int)n);
        return json_string(text);
    case 5: return n < 2 ? json_true() : n < 4 ? json_false() : json_null();
    case 6:
        v = json_array();
        for (; n > 0; n--)
            json_array_append_new(v, grow(r, depth + 1));
        return v;
    default:
        v = json_object();
        for (; n > 0; n--) {
            snprintf(text, sizeof text, "k\"%d", (int)n);
            json_object_set_new(v, text, grow(r, depth + 1));
        }
        return v;
    }
}

/* A pipe into which a child writes the text in pieces. */
static int trickle(const char *text, size_t size, size_t piece, int *child) {
    int ends[2];
    if (pipe(ends) < 0)
        return -1;
    *child = fork();
    if (*child == 0) {
        close(ends[0]);
        for (size_t at = 0; at < size; at += piece)
            if (write(ends[1], text + at, size - at < piece ? size - at : piece) < 0)
                _exit(1);
        _exit(0);
    }
    close(ends[1]);
    return ends[0];
}

static void random_documents(void) {
    int wrong = 0, count = 2000;
    for (int n = 0; n < count && !wrong; n++) {
        struct rng r = {(uint64_t)n, 0};
        struct json_stream s;
        struct err err = {0};
        json_t *want = json_array();
        for (int i = 0; i < 5; i++)
            json_array_append_new(want, grow(&r, 0));
        char *text = json_dumps(want, n % 2 ? JSON_INDENT(2) : JSON_COMPACT);
        json_stream_text(&s, text, strlen(text), "text");
        json_t *got = walk(&s, &err);
        wrong = !got || !json_equal(got, want) || json_stream_end(&s, &err) < 0;
        json_stream_close(&s);
        json_stream_text(&s, text, strlen(text), "text");
        wrong |= json_stream_skip(&s, &err) < 0 || json_stream_end(&s, &err) < 0;
        json_stream_close(&s);
        if (wrong)
            printf("# %d: %s: %s\n", n, err.msg, text);
        free(text);
        json_decref(got);
        json_decref(want);
    }
    ok(!wrong, "%d random documents come out as they went in", count);
}

/* Tokens lie across the pieces in which a pipe hands them over. */
static void pieces(void) {
    static const char text[] = "{\"key\": [12345, -1.5e3, \"a\\\"b\", true, null, {}],\n"
                               " \"other\": {\"deep\": [[[]]]}, \"n\": 123456789012}";
    json_t *want = json_loads(text, 0, NULL);
    int wrong = 0;
    for (size_t piece = 1; piece <= 20; piece++) {
        int child = -1;
        struct err err = {0};
        struct json_stream s;
        json_stream_text(&s, "", 0, "pipe");
        s.fd = trickle(text, sizeof text - 1, piece, &child);
        s.eof = false;
        json_t *got = walk(&s, &err);
        wrong += !got || !json_equal(got, want) || json_stream_end(&s, &err) < 0;
        json_stream_close(&s);
        waitpid(child, NULL, 0);
        json_decref(got);
    }
    ok(!wrong, "a document in pieces of 1 to 20 bytes");
    json_decref(want);
}

static void refused(const char *text, const char *message) {
    struct json_stream s;
    struct err err = {0};
    json_stream_text(&s, text, strlen(text), "doc");
    json_t *v = walk(&s, &err);
    bool bad = !v || json_stream_end(&s, &err) < 0;
    ok(bad && s.failed && err.status == EXIT_INPUT && !strcmp(err.msg, message), "%s%s%s",
       message, strcmp(err.msg, message) ? " - but got: " : "",
       strcmp(err.msg, message) ? err.msg : "");
    json_decref(v);
    json_stream_close(&s);
}

int main(void) {
    random_documents();
    pieces();
    refused("", "doc:1:1: expected a value, got the end of the text");
    refused("[1,\n 2", "doc:2:3: expected ',' or ']', got the end of the text");
    refused("[1 2]", "doc:1:4: expected ',' or ']', got '2'");
    refused("[1,]", "doc:1:4: expected a value, got ']'");
    refused("{\"a\" 1}", "doc:1:6: expected ':', got '1'");
    refused("{\"a\": 1,}", "doc:1:9: expected a key, got '}'");
    refused("{1: 2}", "doc:1:2: expected a key, got '1'");
    refused("[01]", "doc:1:2: expected a number");
    refused("[1.]", "doc:1:2: expected a number");
    refused("[-]", "doc:1:2: expected a number");
    refused("[1e999]", "doc:1:2: this number is too large");
    refused("[99999999999999999999]", "doc:1:2: this number is too large");
    refused("[tru]", "doc:1:2: expected a value");
    refused("[\"a]", "doc:1:5: expected '\"', got the end of the text");
    refused("[1]\n\n x", "doc:3:2: expected the end of the text, got 'x'");
    refused("\xEF\xBB\xBF[1]",
            "doc: begins with a byte-order mark: expected UTF-8 without one");
    refused("\xFF\xFE[", "doc: is UTF-16 or UTF-32: expected UTF-8");
    struct json_stream s;
    struct err err = {0};
    ok(json_stream_open(&s, "/nonexistent/file", &err) < 0 && err.status == EXIT_INPUT,
       "%s", err.msg);
    json_stream_close(&s);
    return done_testing();
}
