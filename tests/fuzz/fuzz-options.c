/* Fuzzes the parser of command lines (libFuzzer): each line of the input is one argument. */
#include "common/mem.h"
#include "common/opt.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static struct {
    bool flag;
    const char *text;
    int64_t count, bytes;
    double real, seconds;
    char *list;
} o;

static const struct opt options[] = {{'f', "flag", OPT_FLAG, NULL, "a flag", &o.flag},
                                     {'s', "text", OPT_STR, "TEXT", "a text", &o.text},
                                     {'n', "count", OPT_INT, "N", "a number", &o.count},
                                     {0, "bytes", OPT_BYTES, "BYTES", "a size", &o.bytes},
                                     {0, "real", OPT_REAL, "X", "a real number", &o.real},
                                     {0, "seconds", OPT_TIME, "TIME", "a time", &o.seconds},
                                     {'l', "list", OPT_LIST, "TEXT", "many", &o.list},
                                     {0}};
static const struct opt_tool tool = {"fuzz", "[options]", "Fuzzed.", options};

/* Help and version end the process. */
static bool ends_process(const char *a) {
    return !strcmp(a, "--help") || !strcmp(a, "--version") ||
           (a[0] == '-' && a[1] != '-' && strchr(a, 'h'));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    char name[] = "fuzz", *text = malloc(size + 1), *argv[66] = {name};
    int argc = 1;
    memcpy(text, bytes, size);
    text[size] = '\0';
    bool skip = false;
    for (char *p = text; p && argc < 65; p = p ? strchr(p, '\n') : NULL) {
        if (p != text)
            *p++ = '\0';
        argv[argc++] = p;
    }
    for (int i = 1; i < argc; i++)
        skip |= ends_process(argv[i]);
    struct err err = {0};
    if (!skip) {
        memset(&o, 0, sizeof o);
        int n = opt_parse(&tool, argc, argv, &err);
        if (n >= argc ||
            (n < 0 && (err.status != EXIT_USAGE || !err.msg[0] || !err.hint[0])))
            abort();
        if (o.count < 0 || o.bytes < 0 || !isfinite(o.real) || !(o.seconds >= 0) ||
            !isfinite(o.seconds))
            abort();
        free(o.list);
    }
    free(text);
    return 0;
}
