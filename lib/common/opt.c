#include "common/opt.h"

#include "common/mem.h"
#include "common/progress.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads a non-negative number with one of the suffixes in `units` (each a factor of `base`
 * above the one before; none = 1). */
static int parse_scaled(const char *text, const char *units, int64_t base, int64_t *out) {
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || errno || !isfinite(value) || value < 0)
        return -1;
    double factor = 1;
    if (*end) {
        const char *unit = strchr(units, *end);
        if (!unit)
            return -1;
        for (const char *u = units; u <= unit; u++)
            factor *= (double)base;
        end++;
        if (base == 1024 && !strcmp(end, "iB"))
            end += 2;
        else if (base == 1024 && *end == 'B')
            end++;
    }
    value *= factor;
    if (*end || value >= 9.2e18 || value != floor(value))
        return -1;
    *out = (int64_t)value;
    return 0;
}

int opt_parse_int(const char *text, int64_t *out) {
    return parse_scaled(text, "KMG", 1000, out);
}

int opt_parse_bytes(const char *text, int64_t *out) {
    return parse_scaled(text, "KMGT", 1024, out);
}

int opt_parse_time(const char *text, double *out) {
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"m", 60}, {"h", 3600}};
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || errno || !isfinite(value) || value < 0)
        return -1;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (!strcmp(end, units[i].unit)) {
            *out = value * units[i].seconds;
            return 0;
        }
    }
    return -1;
}

static int set_value(const struct opt *o, const char *arg, struct err *err) {
    switch (o->type) {
    case OPT_FLAG: *(bool *)o->value = true; return 0;
    case OPT_STR: *(const char **)o->value = arg; return 0;
    case OPT_INT:
        if (opt_parse_int(arg, o->value) < 0)
            return err_usage(err, "--%s: expected a whole number, got \"%s\"", o->name,
                             arg);
        return 0;
    case OPT_BYTES:
        if (opt_parse_bytes(arg, o->value) < 0)
            return err_usage(err, "--%s: expected bytes such as 28G, got \"%s\"", o->name,
                             arg);
        return 0;
    case OPT_REAL: {
        char *end;
        double value = strtod(arg, &end);
        if (end == arg || *end || !isfinite(value))
            return err_usage(err, "--%s: expected a number, got \"%s\"", o->name, arg);
        *(double *)o->value = value;
        return 0;
    }
    case OPT_TIME:
        if (opt_parse_time(arg, o->value) < 0)
            return err_usage(err, "--%s: expected a time such as 500ms or 2m, got \"%s\"",
                             o->name, arg);
        return 0;
    case OPT_LIST: {
        struct opt_list *list = o->value;
        arr_push(list, arg);
        return 0;
    }
    }
    return 0;
}

static void print_option(char letter, const char *name, const char *arg, const char *help) {
    char left[64];
    snprintf(left, sizeof left, "%c%c%s--%s%s%s", letter ? '-' : ' ', letter ? letter : ' ',
             letter ? ", " : "  ", name, arg ? " " : "", arg ? arg : "");
    printf("  %-30s %s\n", left, help);
}

static void print_help(const struct opt_tool *tool) {
    printf("usage: %s %s\n\n%s\n\n", tool->name, tool->usage, tool->about);
    for (const struct opt *o = tool->options; o->name; o++)
        print_option(o->letter, o->name, o->arg, o->help);
    print_option('q', "quiet", NULL, "no progress on stderr");
    print_option('v', "verbose", NULL, "more on stderr");
    print_option('h', "help", NULL, "print this help");
    print_option(0, "version", NULL, "print the version");
}

static int usage_error(const struct opt_tool *tool, struct err *err) {
    if (err && !err->hint[0])
        err_hint(err, "%s -h lists the options", tool->name);
    return -1;
}

/* Options that every tool has. Returns true when `name` (or `letter`) was one of them. */
static bool common_option(const struct opt_tool *tool, char letter, const char *name) {
    if (letter == 'h' || (name && !strcmp(name, "help"))) {
        print_help(tool);
        exit(EXIT_DONE);
    }
    if (name && !strcmp(name, "version")) {
        printf("%s (weft) %s\n", tool->name, WEFT_VERSION);
        exit(EXIT_DONE);
    }
    if (letter == 'q' || (name && !strcmp(name, "quiet"))) {
        progress_set_level(PROGRESS_QUIET);
        return true;
    }
    if (letter == 'v' || (name && !strcmp(name, "verbose"))) {
        progress_set_level(PROGRESS_VERBOSE);
        return true;
    }
    return false;
}

static const struct opt *find_option(const struct opt_tool *tool, char letter,
                                     const char *name, size_t len) {
    for (const struct opt *o = tool->options; o->name; o++)
        if (letter ? o->letter == letter
                   : strlen(o->name) == len && !strncmp(o->name, name, len))
            return o;
    return NULL;
}

static int parse_long(const struct opt_tool *tool, int *i, int argc, char **argv,
                      struct err *err) {
    const char *name = argv[*i] + 2;
    size_t len = strcspn(name, "=");
    const struct opt *o = find_option(tool, 0, name, len);
    if (!o && !name[len] && common_option(tool, 0, name))
        return 0;
    if (!o)
        return err_usage(err, "unknown option --%.*s", (int)len, name);
    if (o->type == OPT_FLAG) {
        if (name[len])
            return err_usage(err, "--%s takes no argument", o->name);
        return set_value(o, NULL, err);
    }
    if (name[len])
        return set_value(o, name + len + 1, err);
    if (*i + 1 >= argc)
        return err_usage(err, "--%s: expected an argument %s", o->name, o->arg);
    return set_value(o, argv[++*i], err);
}

static int parse_letters(const struct opt_tool *tool, int *i, int argc, char **argv,
                         struct err *err) {
    for (const char *c = argv[*i] + 1; *c; c++) {
        const struct opt *o = find_option(tool, *c, NULL, 0);
        if (!o && common_option(tool, *c, NULL))
            continue;
        if (!o)
            return err_usage(err, "unknown option -%c", *c);
        if (o->type == OPT_FLAG) {
            set_value(o, NULL, err);
            continue;
        }
        if (c[1])
            return set_value(o, c + 1, err);
        if (*i + 1 >= argc)
            return err_usage(err, "-%c: expected an argument %s", *c, o->arg);
        return set_value(o, argv[++*i], err);
    }
    return 0;
}

int opt_parse(const struct opt_tool *tool, int argc, char **argv, struct err *err) {
    int n = 0;
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (!strcmp(a, "--")) {
            while (++i < argc)
                argv[n++] = argv[i];
            break;
        }
        int rc = 0;
        if (a[0] == '-' && a[1] == '-')
            rc = parse_long(tool, &i, argc, argv, err);
        else if (a[0] == '-' && a[1])
            rc = parse_letters(tool, &i, argc, argv, err);
        else
            argv[n++] = argv[i];
        if (rc < 0)
            return usage_error(tool, err);
    }
    return n;
}
