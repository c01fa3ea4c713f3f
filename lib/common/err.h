/* err.h - how weft reports an error: a value, with a place and an exit status.
 *
 * A function that can fail takes `struct err *err` last (NULL when the caller does not care)
 * and returns -1 or NULL. Callers prefix the context they know, so that main prints
 *
 *     weft-search: error: plan.json: stages[2].mesh: 3 devices do not divide batch 8
 *
 * Libraries never print and never exit; only main does (err_report).
 *
 *     if (devices <= 0)
 *         return err_input(err, "devices: expected a positive number, got %d", devices);
 *     if (plan_read(&plan, path, err) < 0)
 *         return err_prefix(err, "%s", path);
 */
#ifndef WEFT_ERR_H
#define WEFT_ERR_H

#include <stdbool.h>
#include <stddef.h>

/* Exit statuses, the same in every man page. */
enum {
    EXIT_DONE = 0,   /* done */
    EXIT_NO = 1,     /* a valid "no": no feasible plan, a check that failed */
    EXIT_USAGE = 2,  /* the command line is wrong */
    EXIT_INPUT = 3,  /* an input file is wrong */
    EXIT_SYSTEM = 4, /* I/O, memory, MPI or device failure */
};

struct err {
    int status;     /* exit status that this error asks for; 0 = no error yet */
    bool shared;    /* every rank of the job holds this error: one of them reports it */
    char msg[1024]; /* one line: place and what was expected */
    char
        hint[1536]; /* the remedy where it is known, else ""; may be a command with paths */
};

#define ERR_PRINTF(a, b) __attribute__((format(printf, a, b)))

/* Each sets the message and the exit status and returns -1. err may be NULL. */
int err_no(struct err *err, const char *fmt, ...) ERR_PRINTF(2, 3);
int err_usage(struct err *err, const char *fmt, ...) ERR_PRINTF(2, 3);
int err_input(struct err *err, const char *fmt, ...) ERR_PRINTF(2, 3);
int err_system(struct err *err, const char *fmt, ...) ERR_PRINTF(2, 3);

/* Puts "context: " before the message. Returns -1. */
int err_prefix(struct err *err, const char *fmt, ...) ERR_PRINTF(2, 3);

/* Puts "place." before the message, for messages that begin with a key: called with
 * "stages[%d]" it turns "mesh: 3 devices" into "stages[2].mesh: 3 devices". Returns -1. */
int err_at(struct err *err, const char *fmt, ...) ERR_PRINTF(2, 3);

/* Sets the hint line. Returns -1. */
int err_hint(struct err *err, const char *fmt, ...) ERR_PRINTF(2, 3);

/* For messages that list what there is: puts " NAME" behind `list`, if there is room. */
void err_list(char *list, size_t size, const char *name);

/* Prints "TOOL: error: MSG" and "hint: HINT" on stderr, each as one line whatever a quoted
 * name holds, and returns the exit status. */
int err_report(const struct err *err, const char *tool);

#endif
