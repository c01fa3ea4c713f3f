/* opt.h - one option table per tool parses, checks and prints the help.
 *
 *     static const struct opt options[] = {
 *         {'m', "model", OPT_STR, "MODEL", "model: gpt:1.3B or a file", &o.model},
 *         {0, "devices", OPT_INT, "N", "number of devices", &o.devices},
 *         {0, "dry-run", OPT_FLAG, NULL, "only list", &o.dry_run},
 *         {0}};
 *     static const struct opt_tool tool = {"weft-search", "[options] -m MODEL",
 *                                          "Find the best plan.", options};
 *     int n = opt_parse(&tool, argc, argv, &err);   // operands are argv[0..n-1] afterwards
 *
 * -h/--help and --version print on stdout and exit (0, or 4 where that cannot be written).
 * -q/--quiet and -v/--verbose are understood by every tool and set the level of progress
 * (progress.h). Long names may be given as --name=value or --name value, but an OPT_WORD,
 * whose value may be left out, only as the first. OPT_LIST options may repeat: "--set a=1 --set b=2" is "--set a=1,b=2".
 */
#ifndef WEFT_OPT_H
#define WEFT_OPT_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEFT_VERSION "0.1.0"

enum opt_type {
    OPT_FLAG,  /* bool *              */
    OPT_STR,   /* const char **       */
    OPT_WORD,  /* const char **: as --name=WORD, or "" as --name alone */
    OPT_INT,   /* int64_t *, 0 .. 2^63-1, exact; K M G suffixes are 1000s */
    OPT_SEED,  /* struct opt_seed *, 0 .. 2^64-1, exact */
    OPT_BYTES, /* int64_t *, 28G 12000M 1048576; suffixes K M G T are powers of 1024 */
    OPT_REAL,  /* double *, finite, decimal */
    OPT_TIME,  /* double *, seconds; suffixes ms s m h */
    OPT_LIST,  /* char **, NULL before: all that is given, joined by commas; free() it */
};

struct opt_seed {
    uint64_t value;
    bool given;
};

struct opt {
    char letter;      /* 0 = none */
    const char *name; /* long name, full words */
    enum opt_type type;
    const char *arg;  /* name of the argument in the help, NULL for flags */
    const char *help; /* one line */
    void *value;
};

struct opt_tool {
    const char *name;          /* weft-search */
    const char *usage;         /* what follows the name in the synopsis */
    const char *about;         /* one sentence */
    const struct opt *options; /* ends with {0} */
};

/* Parses argv; moves the operands to argv[0..n-1] and returns n, or -1 with a usage error. */
int opt_parse(const struct opt_tool *tool, int argc, char **argv, struct err *err);

/* The value of an option as text in buf; "not given" for an absent flag, NULL, a negative whole
 * number, NAN, a seed that is not given. Returns buf. */
char *opt_format(const struct opt *o, char *buf, size_t n);

/* Usage errors that every tool words alike; -1. `option` as in "-p FILE". */
int opt_missing(const char *option, struct err *err);
int opt_no_operand(const char *operand, struct err *err);

/* Parses one number as OPT_INT, OPT_BYTES or OPT_TIME does. Returns 0 or a negative number. */
int opt_parse_int(const char *text, int64_t *out);
int opt_parse_bytes(const char *text, int64_t *out);
int opt_parse_time(const char *text, double *out);

#endif
