/* journal.h - what a supervised run went through: SQLite, one row an event.
 *
 *     struct journal *j = journal_open("ckpt/keep.db", &err);
 *     journal_add(j, &(struct event){.attempt = 1, .kind = EVENT_START, .text = "4 ranks"}, &err);
 *     struct account a;
 *     journal_account(j, &a, &err);       // attempts, lost steps, goodput
 *
 * A row is on disk when journal_add returns, so a supervisor that is killed finds out what it did.
 */
#ifndef WEFT_JOURNAL_H
#define WEFT_JOURNAL_H

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* id, word, what step, value and text are */
#define EVENTS(X)                                                                                 \
    X(START, "start", "an attempt: text has its ranks and hosts")                                 \
    X(FIRST, "first",                                                                             \
      "its first step is done: step, value = seconds since the start, or since the death before") \
    X(END, "end",                                                                                 \
      "step = last one done, value = seconds in steps, text = cause: sentence")                   \
    X(LOST, "lost", "step = where the next attempt began, value = steps lost")                    \
    X(COPY, "copy", "a checkpoint went from memory to disk: step, value = seconds")               \
    X(SAVES, "saves", "step = how many on disk, value = seconds of one")                          \
    X(COPIES, "copies", "step = how many in memory, value = seconds of one")                      \
    X(HOST, "host", "text = a host that is left out, or taken in")                                \
    X(SPEED, "speed", "value = how fast a host is beside its peers, text = its name")             \
    X(SIZE, "size", "value = ranks that are asked for from now on")                               \
    X(NOTE, "note", "text")

enum event_kind {
#define X(id, word, text) EVENT_##id,
    EVENTS(X)
#undef X
        EVENT_KIND_COUNT
};

struct event {
    enum event_kind kind;
    int64_t attempt, step;
    double value;
    const char *text; /* NULL = "" */
};

struct journal;

/* Opens or makes it. NULL on failure. */
struct journal *journal_open(const char *path, struct err *err);
void journal_close(struct journal *j); /* NULL is fine */
int journal_add(struct journal *j, const struct event *e, struct err *err);

/* A fact about the run; the first one stays. Returns 1 if it was there with another
 * value, 0 or -1; `was` gets that (n bytes). */
int journal_fact(struct journal *j, const char *name, const char *value, char *was,
                 size_t n, struct err *err);

/* The last attempt's number, and whether it has ended; 0 where there is none. */
int journal_last(struct journal *j, int64_t *attempt, bool *ended, struct err *err);
/* The number of ranks that the last row of this kind asks for, behind row *seen; 0 =
 * none. Moves *seen. */
int journal_size(struct journal *j, int64_t *seen, int64_t *ranks, struct err *err);

/* Sums over the journal. */
struct account {
    int64_t attempts, failures, lost, steps; /* steps: the last one done */
    double wall_s;                           /* from the first start to the last row */
    double steps_s;                          /* in steps, those that were lost too; */
    double lost_s;                           /* in those */
    double
        save_s; /* of one checkpoint, on disk or in memory, the more frequent; 0 = none */
    int64_t saves;
    double recover_s; /* mean from a death to the next finished step */
};
int journal_account(struct journal *j, struct account *a, struct err *err);
/* Causes with their numbers, each on a line behind `indent`. */
int journal_print_causes(struct journal *j, FILE *f, struct err *err);
/* How long a step took on each number of ranks, those included that were lost; likewise. */
int journal_print_sizes(struct journal *j, FILE *f, struct err *err);

#endif
