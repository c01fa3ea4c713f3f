#include "common/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int err_vset(struct err *err, int status, const char *fmt, va_list ap) {
    if (err) {
        err->status = status;
        err->shared = false;
        err->hint[0] = '\0';
        vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    }
    return -1;
}

#define DEFINE_ERR(name, status)                                                           \
    int name(struct err *err, const char *fmt, ...) {                                      \
        va_list ap;                                                                        \
        va_start(ap, fmt);                                                                 \
        int rc = err_vset(err, status, fmt, ap);                                           \
        va_end(ap);                                                                        \
        return rc;                                                                         \
    }

DEFINE_ERR(err_no, EXIT_NO)
DEFINE_ERR(err_usage, EXIT_USAGE)
DEFINE_ERR(err_input, EXIT_INPUT)
DEFINE_ERR(err_system, EXIT_SYSTEM)

static int err_vprepend(struct err *err, const char *joint, const char *fmt, va_list ap) {
    if (!err)
        return -1;
    char old[sizeof err->msg];
    memcpy(old, err->msg, sizeof old);
    int n = vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    size_t used = n < 0 ? 0 : (size_t)n;
    if (used > sizeof err->msg - 1)
        used = sizeof err->msg - 1;
    size_t room = sizeof err->msg - used;
    /* What does not fit is cut at the end: the place matters more than the tail. */
    if ((size_t)snprintf(err->msg + used, room, "%s", joint) < room) {
        used += strlen(joint);
        size_t rest = strnlen(old, sizeof err->msg - used - 1);
        memcpy(err->msg + used, old, rest);
        err->msg[used + rest] = '\0';
    }
    return -1;
}

int err_prefix(struct err *err, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    err_vprepend(err, ": ", fmt, ap);
    va_end(ap);
    return -1;
}

int err_at(struct err *err, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    err_vprepend(err, ".", fmt, ap);
    va_end(ap);
    return -1;
}

int err_hint(struct err *err, const char *fmt, ...) {
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(err->hint, sizeof err->hint, fmt, ap);
        va_end(ap);
    }
    return -1;
}

void err_list(char *list, size_t size, const char *name) {
    size_t n = strlen(list);
    if (n + 1 + strlen(name) < size)
        snprintf(list + n, size - n, " %s", name);
}

/* Names from files are quoted as they are, and may hold anything but a NUL. */
static void put_line(const char *before, const char *text) {
    char line[sizeof((struct err *)0)->msg];
    size_t n = 0;
    for (; text[n] && n < sizeof line - 1; n++)
        line[n] = (char)((unsigned char)text[n] < ' ' || text[n] == 0x7f ? '?' : text[n]);
    line[n] = '\0';
    fprintf(stderr, "%s: %s\n", before, line);
}

int err_report(const struct err *err, const char *tool) {
    char before[64];
    snprintf(before, sizeof before, "%s: error", tool);
    fflush(stdout);
    put_line(before, err->msg);
    if (err->hint[0])
        put_line("hint", err->hint);
    return err->status ? err->status : EXIT_SYSTEM;
}
