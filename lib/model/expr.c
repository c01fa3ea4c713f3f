#include "model/expr.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Recursive descent: sum = product {+- product}, product = atom {*'/' atom}. The depth is
 * bounded so that "((((..." cannot exhaust the stack. */
struct parser {
    const char *text, *p;
    expr_lookup *lookup;
    void *ctx;
    int depth;
};

enum { MAX_DEPTH = 64 };

static int parse_sum(struct parser *s, int64_t *out, struct err *err);

static void skip_blanks(struct parser *s) {
    while (isspace((unsigned char)*s->p))
        s->p++;
}

static int syntax_error(const struct parser *s, struct err *err) {
    return err_input(err, "\"%.64s\": syntax error at character %d", s->text,
                     (int)(s->p - s->text) + 1);
}

static int parse_number(struct parser *s, int64_t *out, struct err *err) {
    int64_t v = 0;
    for (; isdigit((unsigned char)*s->p); s->p++)
        if (__builtin_mul_overflow(v, (int64_t)10, &v) ||
            __builtin_add_overflow(v, (int64_t)(*s->p - '0'), &v))
            return err_input(err, "\"%.64s\": number overflows 64 bits", s->text);
    *out = v;
    return 0;
}

/* a / b, rounded down or up; b > 0. */
static int64_t divide(int64_t a, int64_t b, bool up) {
    int64_t q = a / b, r = a % b;
    return q + (up && r > 0) - (!up && r < 0);
}

/* One of the functions, on two values. */
static int apply(struct parser *s, const char *name, int64_t a, int64_t b, int64_t *out,
                 struct err *err) {
    if (!strcmp(name, "min")) {
        *out = a < b ? a : b;
    } else if (!strcmp(name, "max")) {
        *out = a > b ? a : b;
    } else if (b <= 0) {
        return err_input(err, "\"%.64s\": %s by %lld", s->text, name, (long long)b);
    } else {
        *out = divide(a, b, name[0] == 'c');
    }
    return 0;
}

/* "min(a, b, ...)", from the bracket on. */
static int parse_call(struct parser *s, const char *name, int64_t *out, struct err *err) {
    bool any_number = !strcmp(name, "min") || !strcmp(name, "max");
    if (!any_number && strcmp(name, "floor") && strcmp(name, "ceil"))
        return err_input(err,
                         "\"%.64s\": no function \"%s\" (there are floor, ceil, min, max)",
                         s->text, name);
    if (++s->depth > MAX_DEPTH)
        return err_input(err, "\"%.64s\": nested too deeply", s->text);
    s->p++;
    if (parse_sum(s, out, err) < 0)
        return -1;
    int n = 1;
    for (skip_blanks(s); *s->p == ','; skip_blanks(s), n++) {
        int64_t b;
        s->p++;
        if (parse_sum(s, &b, err) < 0 || apply(s, name, *out, b, out, err) < 0)
            return -1;
    }
    if (*s->p != ')' || n < 2 || (n > 2 && !any_number))
        return syntax_error(s, err);
    s->p++;
    s->depth--;
    return 0;
}

/* A number, a sum in brackets, a call, or a name. */
static int parse_atom(struct parser *s, int64_t *out, struct err *err) {
    skip_blanks(s);
    if (isdigit((unsigned char)*s->p))
        return parse_number(s, out, err);
    if (*s->p == '(') {
        s->p++;
        if (++s->depth > MAX_DEPTH)
            return err_input(err, "\"%.64s\": nested too deeply", s->text);
        if (parse_sum(s, out, err) < 0)
            return -1;
        s->depth--;
        skip_blanks(s);
        if (*s->p != ')')
            return syntax_error(s, err);
        s->p++;
        return 0;
    }
    char name[64];
    size_t n = 0;
    while ((isalnum((unsigned char)*s->p) || *s->p == '_') && n < sizeof name - 1)
        name[n++] = *s->p++;
    name[n] = '\0';
    if (!n)
        return syntax_error(s, err);
    skip_blanks(s);
    if (*s->p == '(')
        return parse_call(s, name, out, err);
    return s->lookup(s->ctx, name, out, err);
}

static int parse_product(struct parser *s, int64_t *out, struct err *err) {
    if (parse_atom(s, out, err) < 0)
        return -1;
    for (skip_blanks(s); *s->p == '*' || *s->p == '/'; skip_blanks(s)) {
        char op = *s->p++;
        int64_t b;
        if (parse_atom(s, &b, err) < 0)
            return -1;
        if (op == '*') {
            if (__builtin_mul_overflow(*out, b, out))
                return err_input(err, "\"%.64s\": overflows 64 bits", s->text);
        } else if (b == 0 || *out % b) {
            return err_input(err, "\"%.64s\": %lld does not divide %lld", s->text,
                             (long long)b, (long long)*out);
        } else {
            *out /= b;
        }
    }
    return 0;
}

static int parse_sum(struct parser *s, int64_t *out, struct err *err) {
    if (parse_product(s, out, err) < 0)
        return -1;
    for (skip_blanks(s); *s->p == '+' || *s->p == '-'; skip_blanks(s)) {
        char op = *s->p++;
        int64_t b;
        if (parse_product(s, &b, err) < 0)
            return -1;
        if (op == '+' ? __builtin_add_overflow(*out, b, out)
                      : __builtin_sub_overflow(*out, b, out))
            return err_input(err, "\"%.64s\": overflows 64 bits", s->text);
    }
    return 0;
}

int expr_eval(const char *text, expr_lookup *lookup, void *ctx, int64_t *out,
              struct err *err) {
    struct parser s = {.text = text, .p = text, .lookup = lookup, .ctx = ctx};
    int64_t v = 0;
    if (parse_sum(&s, &v, err) < 0)
        return -1;
    skip_blanks(&s);
    if (*s.p)
        return syntax_error(&s, err);
    *out = v;
    return 0;
}
