#include "common/opt.h"

#include "common/file.h"
#include "common/json.h"
#include "common/mem.h"
#include "common/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOT_A_NUMBER = -1, TOO_LARGE = -2 };

/* A decimal number as digits and a power of ten: "1.5e3" is 15 and 2. Hexadecimal and the like are
 * refused. */
struct decimal {
    uint64_t digits;
    int power;
};

/* Digits, one point and a power of ten, without rounding: value = digits * 10^power. *end is
 * behind them. */
static int parse_decimal(const char *text, const char **end, struct decimal *out) {
    const char *p = text;
    bool any = false, point = false, large = false;
    *out = (struct decimal){0};
    for (;; p++) {
        if (*p == '.' && !point) {
            point = true;
        } else if (*p >= '0' && *p <= '9') {
            any = true;
            large |=
                __builtin_mul_overflow(out->digits, 10, &out->digits) ||
                __builtin_add_overflow(out->digits, (uint64_t)(*p - '0'), &out->digits);
            out->power -= point;
        } else {
            break;
        }
    }
    if (any && (*p == 'e' || *p == 'E')) {
        char *behind;
        long power = strtol(p + 1, &behind, 10);
        if (behind == p + 1 || power < -400 || power > 400)
            return NOT_A_NUMBER;
        out->power += (int)power;
        p = behind;
    }
    *end = p;
    return !any ? NOT_A_NUMBER : large ? TOO_LARGE : 0;
}

/* Exactly digits * 10^power * factor, where that is a whole number. */
static int scale(struct decimal d, uint64_t factor, uint64_t *out) {
    uint64_t v = d.digits;
    if (v == 0)
        d.power = 0;
    for (; d.power < 0 && v % 10 == 0; d.power++)
        v /= 10;
    if (__builtin_mul_overflow(v, factor, &v))
        return TOO_LARGE;
    for (; d.power > 0; d.power--)
        if (__builtin_mul_overflow(v, 10, &v))
            return TOO_LARGE;
    for (; d.power < 0; d.power++, v /= 10)
        if (v % 10)
            return NOT_A_NUMBER;
    *out = v;
    return 0;
}

/* Reads a whole number with one of the suffixes in `units` (each a factor of `base` above the one
 * before; none = 1), at most max. Returns 0, NOT_A_NUMBER or TOO_LARGE. */
static int parse_scaled(const char *text, const char *units, uint64_t base, uint64_t max,
                        uint64_t *out) {
    struct decimal d;
    const char *end;
    uint64_t factor = 1, value = 0;
    int rc = parse_decimal(text, &end, &d);
    if (rc == NOT_A_NUMBER)
        return rc;
    if (*end) {
        const char *unit = strchr(units, *end);
        if (!unit)
            return NOT_A_NUMBER;
        for (const char *u = units; u <= unit; u++)
            factor *= base;
        end++;
        if (base == 1024 && !strcmp(end, "iB"))
            end += 2;
        else if (base == 1024 && *end == 'B')
            end++;
    }
    if (*end)
        return NOT_A_NUMBER;
    if (rc == 0)
        rc = scale(d, factor, &value);
    if (rc == 0 && value > max)
        rc = TOO_LARGE;
    if (rc == 0)
        *out = value;
    return rc;
}

int opt_parse_int(const char *text, int64_t *out) {
    uint64_t v;
    int rc = parse_scaled(text, "KMG", 1000, INT64_MAX, &v);
    if (rc == 0)
        *out = (int64_t)v;
    return rc;
}

int opt_parse_bytes(const char *text, int64_t *out) {
    uint64_t v;
    int rc = parse_scaled(text, "KMGT", 1024, INT64_MAX, &v);
    if (rc == 0)
        *out = (int64_t)v;
    return rc;
}

/* A finite real number, in decimal. */
static int parse_real(const char *text, char **end, double *out) {
    const char *p = text + (*text == '-' || *text == '+');
    if ((*p != '.' && (*p < '0' || *p > '9')) ||
        (p[0] == '0' && (p[1] == 'x' || p[1] == 'X')))
        return -1;
    *out = strtod(text, end);
    return isfinite(*out) ? 0 : -1;
}

/* Without a unit it is seconds. */
int opt_parse_time(const char *text, double *out) {
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"m", 60}, {"h", 3600}};
    char *end;
    double value;
    if (parse_real(text, &end, &value) < 0 || value < 0)
        return -1;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (!strcmp(end, units[i].unit)) {
            *out = value * units[i].seconds;
            return 0;
        }
    }
    return -1;
}

static int refuse(const struct opt *o, int rc, const char *want, const char *max,
                  const char *arg, struct err *err) {
    if (rc == TOO_LARGE)
        return err_usage(err, "--%s: expected at most %s, got \"%s\"", o->name, max, arg);
    return err_usage(err, "--%s: expected %s, got \"%s\"", o->name, want, arg);
}

static int set_seed(const struct opt *o, const char *arg, struct err *err) {
    struct opt_seed *seed = o->value;
    int rc = parse_scaled(arg, "KMG", 1000, UINT64_MAX, &seed->value);
    seed->given = rc == 0;
    return rc < 0 ? refuse(o, rc, "a whole number", "18446744073709551615", arg, err) : 0;
}

int opt_missing(const char *option, struct err *err) {
    return err_usage(err, "missing option %s", option);
}

int opt_no_operand(const char *operand, struct err *err) {
    return err_usage(err, "unexpected operand \"%s\"", operand);
}

static int add_to_list(const struct opt *o, const char *arg, struct err *err) {
    char **list = o->value, *before = *list;
    if (!*arg)
        return refuse(o, NOT_A_NUMBER, o->arg, NULL, arg, err);
    size_t n = (before ? strlen(before) + 1 : 0) + strlen(arg) + 1;
    *list = mem_alloc(n);
    snprintf(*list, n, "%s%s%s", before ? before : "", before ? "," : "", arg);
    free(before);
    return 0;
}

/* Stores what was given; arg is NULL for a flag, and for a word that was left out. */
static int set_value(const struct opt *o, const char *arg, struct err *err) {
    switch (o->type) {
    case OPT_FLAG: *(bool *)o->value = true; return 0;
    case OPT_STR:
        *(const char **)o->value = arg;
        return *arg ? 0 : refuse(o, NOT_A_NUMBER, o->arg, NULL, arg, err);
    case OPT_WORD:
        *(const char **)o->value = arg ? arg : "";
        return !arg || *arg ? 0 : refuse(o, NOT_A_NUMBER, o->arg, NULL, arg, err);
    case OPT_INT: {
        int rc = opt_parse_int(arg, o->value);
        return rc < 0 ? refuse(o, rc, "a whole number", "9223372036854775807", arg, err)
                      : 0;
    }
    case OPT_SEED: return set_seed(o, arg, err);
    case OPT_BYTES: {
        int rc = opt_parse_bytes(arg, o->value);
        return rc < 0 ? refuse(o, rc, "bytes such as 28G", "2^63-1 bytes", arg, err) : 0;
    }
    case OPT_REAL: {
        char *end;
        double value;
        if (parse_real(arg, &end, &value) < 0 || *end)
            return refuse(o, NOT_A_NUMBER, "a number", NULL, arg, err);
        *(double *)o->value = value;
        return 0;
    }
    case OPT_TIME:
        if (opt_parse_time(arg, o->value) < 0)
            return refuse(o, NOT_A_NUMBER, "a time such as 500ms or 2m", NULL, arg, err);
        return 0;
    case OPT_LIST: return add_to_list(o, arg, err);
    }
    return 0;
}

char *opt_format(const struct opt *o, char *buf, size_t n) {
    const struct opt_seed *seed = o->value;
    char real[32];
    bool given = true;
    switch (o->type) {
    case OPT_FLAG: given = *(const bool *)o->value; break;
    case OPT_STR:
    case OPT_WORD:
    case OPT_LIST: given = *(const char **)o->value; break;
    case OPT_INT:
    case OPT_BYTES: given = *(const int64_t *)o->value >= 0; break;
    case OPT_SEED: given = seed->given; break;
    case OPT_REAL:
    case OPT_TIME: given = !isnan(*(const double *)o->value); break;
    }
    if (!given)
        snprintf(buf, n, "not given");
    else if (o->type == OPT_STR || o->type == OPT_WORD || o->type == OPT_LIST)
        snprintf(buf, n, "%s", *(const char **)o->value);
    else if (o->type == OPT_INT || o->type == OPT_BYTES)
        snprintf(buf, n, "%" PRId64, *(const int64_t *)o->value);
    else if (o->type == OPT_SEED)
        snprintf(buf, n, "%" PRIu64, seed->value);
    else if (o->type == OPT_REAL || o->type == OPT_TIME)
        snprintf(buf, n, "%s", json_format_real(*(const double *)o->value, real));
    else
        snprintf(buf, n, "given");
    return buf;
}

/* The argument of a word may be left out: "--name[=WORD]". */
static void print_option(const struct opt *o) {
    char left[64];
    const bool word = o->type == OPT_WORD;
    snprintf(left, sizeof left, "%c%c%s--%s%s%s%s", o->letter ? '-' : ' ',
             o->letter ? o->letter : ' ', o->letter ? ", " : "  ", o->name,
             o->arg && word ? "[="
             : o->arg       ? " "
                            : "",
             o->arg ? o->arg : "", word ? "]" : "");
    printf("  %-30s %s\n", left, o->help);
}

static void print_help(const struct opt_tool *tool) {
    printf("usage: %s %s\n\n%s\n\n", tool->name, tool->usage, tool->about);
    for (const struct opt *o = tool->options; o->name; o++)
        print_option(o);
    print_option(
        &(struct opt){'q', "quiet", OPT_FLAG, NULL, "no progress on stderr", NULL});
    print_option(&(struct opt){'v', "verbose", OPT_FLAG, NULL, "more on stderr", NULL});
    print_option(&(struct opt){'h', "help", OPT_FLAG, NULL, "print this help", NULL});
    print_option(&(struct opt){0, "version", OPT_FLAG, NULL, "print the version", NULL});
}

static int usage_error(const struct opt_tool *tool, struct err *err) {
    if (err && !err->hint[0])
        err_hint(err, "%s -h lists the options", tool->name);
    return -1;
}

/* Ends the program after help or version, which somebody wanted to read. */
static void end_printing(const struct opt_tool *tool) {
    struct err err = {0};
    exit(file_stdout_check(&err) < 0 ? err_report(&err, tool->name) : EXIT_DONE);
}

/* Options that every tool has. Returns true when `name` (or `letter`) was one of them. */
static bool common_option(const struct opt_tool *tool, char letter, const char *name) {
    if (letter == 'h' || (name && !strcmp(name, "help"))) {
        print_help(tool);
        end_printing(tool);
    }
    if (name && !strcmp(name, "version")) {
        printf("%s (weft) %s\n", tool->name, WEFT_VERSION);
        end_printing(tool);
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

/* "--name", "--name=value" or "--name value". */
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
    if (o->type == OPT_WORD && !name[len])
        return set_value(o, NULL, err);
    if (name[len])
        return set_value(o, name + len + 1, err);
    if (*i + 1 >= argc)
        return err_usage(err, "--%s: expected an argument %s", o->name, o->arg);
    return set_value(o, argv[++*i], err);
}

/* "-q", several flags in one as "-qv", and "-o FILE" or "-oFILE". */
static int parse_letters(const struct opt_tool *tool, int *i, int argc, char **argv,
                         struct err *err) {
    for (const char *c = argv[*i] + 1; *c; c++) {
        const struct opt *o = find_option(tool, *c, NULL, 0);
        if (!o && common_option(tool, *c, NULL))
            continue;
        if (!o)
            return err_usage(err, "unknown option -%c", *c);
        if (o->type == OPT_FLAG || o->type == OPT_WORD) {
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

/* A standard stream that is closed would lend its number to the next file that is opened, and what
 * is printed would land there. The other direction of /dev/null takes the place: reading or
 * writing it fails as on a closed one. */
static void hold_streams(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", fd ? O_RDONLY : O_WRONLY);
}

int opt_parse(const struct opt_tool *tool, int argc, char **argv, struct err *err) {
    hold_streams();
    signal(SIGXFSZ, SIG_IGN); /* a file beyond a limit is an error, not a death */
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
    for (int i = 0; i < n; i++)
        if (!*argv[i]) {
            err_usage(err, "an operand is empty");
            return usage_error(tool, err);
        }
    return n;
}
