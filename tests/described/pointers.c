#include "pointers.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Of the library of C++. */
char *__cxa_demangle(const char *mangled, char *buffer, size_t *length, int *status);

/* Where the parentheses of the arguments open: the last ones of the name. */
static const char *arguments(const char *name) {
    int depth = 0;
    for (const char *p = name + strlen(name); p-- > name;) {
        depth += *p == ')';
        if (*p == '(' && --depth == 0)
            return p;
    }
    return NULL;
}

static bool opens(char c) {
    return c == '(' || c == '<' || c == '{';
}

static bool closes(char c) {
    return c == ')' || c == '>' || c == '}';
}

/* The end of the argument that begins here: a comma, or the parenthesis that closes. */
static const char *end_of(const char *p) {
    int depth = 0;
    for (; *p && (depth > 0 || (*p != ',' && *p != ')')); p++)
        depth += opens(*p) - closes(*p);
    return p;
}

static int is_pointer(const char *name, int64_t i) {
    const char *p = arguments(name);
    for (; p && i > 0; i--) {
        p = end_of(p + 1);
        if (*p != ',')
            return -1;
    }
    if (!p || p[1] == ')')
        return -1;
    return end_of(p + 1)[-1] == '*';
}

int pointer_argument(const char *mangled, int64_t i) {
    int status = 0;
    char *name = __cxa_demangle(mangled, NULL, NULL, &status);
    const int is = name ? is_pointer(name, i) : -1;
    free(name);
    return is;
}
