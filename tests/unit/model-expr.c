/* Arithmetic over named sizes: values, rounding, and what is refused. */
#include "model/expr.h"
#include "tap.h"

#include <string.h>

/* h = 6, w = 7, big = 2^62; `loop` cannot be told. */
static int lookup(void *ctx, const char *name, int64_t *out, struct err *err) {
    (void)ctx;
    if (!strcmp(name, "h"))
        *out = 6;
    else if (!strcmp(name, "w"))
        *out = 7;
    else if (!strcmp(name, "big"))
        *out = (int64_t)1 << 62;
    else
        return err_input(err, "size \"%s\" is not defined", name);
    return 0;
}

static void is(const char *text, int64_t want) {
    struct err err = {0};
    int64_t got = -12345;
    int rc = expr_eval(text, lookup, NULL, &got, &err);
    ok(rc == 0 && got == want, "%s is %lld, got %lld %s", text, (long long)want,
       (long long)got, err.msg);
}

static void refuses(const char *text, const char *message) {
    struct err err = {0};
    int64_t got = -12345;
    int rc = expr_eval(text, lookup, NULL, &got, &err);
    ok(rc < 0 && got == -12345 && !strcmp(err.msg, message) && err.status == EXIT_INPUT,
       "refuses %.40s: %s", text, rc < 0 ? err.msg : "it is accepted");
}

static void test_values(void) {
    is("7", 7);
    is(" 4 * h ", 24);
    is("h+2*w-3", 17);
    is("(h+2)*w", 56);
    is("h-w-1", -2);
    is("4*h/8", 3);
    is("big-1+big", INT64_MAX);
}

/* Rounding goes down and up, not towards zero. */
static void test_rounding(void) {
    is("floor(7, 2)", 3);
    is("ceil(7, 2)", 4);
    is("floor(6, 2)", 3);
    is("ceil(6, 2)", 3);
    is("floor(h-w, 2)", -1);
    is("ceil(h-w, 2)", 0);
    is("floor(0-7, 7)", -1);
    is("ceil(w*h+1, w-1)", 8);
    is("floor(ceil(w, 2) * 5, 3)", 6);
    is("min(h, w)", 6);
    is("max(h, w)", 7);
    is("max(1, 9, h, w)", 9);
    is("min(4*h, 3, w) * 2", 6);
    is("max(0-1, 0-2)", -1);
}

static void test_refused(void) {
    refuses("", "\"\": syntax error at character 1");
    refuses("4*", "\"4*\": syntax error at character 3");
    refuses("(h", "\"(h\": syntax error at character 3");
    refuses("h w", "\"h w\": syntax error at character 3");
    refuses("h%2", "\"h%2\": syntax error at character 2");
    refuses("-h", "\"-h\": syntax error at character 1");
    refuses("depth", "size \"depth\" is not defined");
    refuses("w/2", "\"w/2\": 2 does not divide 7");
    refuses("h/0", "\"h/0\": 0 does not divide 6");
    refuses("99999999999999999999", "\"99999999999999999999\": number overflows 64 bits");
    refuses("big*2", "\"big*2\": overflows 64 bits");
    refuses("big+big", "\"big+big\": overflows 64 bits");
    refuses("0-big-big-1", "\"0-big-big-1\": overflows 64 bits");
    refuses("floor(7)", "\"floor(7)\": syntax error at character 8");
    refuses("floor(7, 2, 1)", "\"floor(7, 2, 1)\": syntax error at character 14");
    refuses("ceil(7, 0)", "\"ceil(7, 0)\": ceil by 0");
    refuses("floor(7, h-w)", "\"floor(7, h-w)\": floor by -1");
    refuses("min()", "\"min()\": syntax error at character 5");
    refuses("min(h)", "\"min(h)\": syntax error at character 6");
    refuses("max(h, w", "\"max(h, w\": syntax error at character 9");
    refuses("sqrt(h)",
            "\"sqrt(h)\": no function \"sqrt\" (there are floor, ceil, min, max)");
}

/* The depth is bounded, whichever way it is reached. */
static void test_depth(void) {
    char text[1024] = "";
    for (int i = 0; i < 40; i++)
        strcat(text, "(");
    strcat(text, "h");
    for (int i = 0; i < 40; i++)
        strcat(text, ")");
    is(text, 6);
    memset(text, '(', 1000);
    struct err err = {0};
    int64_t got;
    ok(expr_eval(text, lookup, NULL, &got, &err) < 0 && strstr(err.msg, "too deeply"),
       "1000 brackets: %.90s", err.msg);
    text[0] = '\0';
    for (int i = 0; i < 100; i++)
        strcat(text, "max(1,");
    err = (struct err){0};
    ok(expr_eval(text, lookup, NULL, &got, &err) < 0 && strstr(err.msg, "too deeply"),
       "100 functions: %.90s", err.msg);
}

int main(void) {
    test_values();
    test_rounding();
    test_refused();
    test_depth();
    return done_testing();
}
