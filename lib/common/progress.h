/* progress.h - progress of long work on stderr, and the interrupt flag.
 *
 * On a terminal one line is redrawn; elsewhere a plain line appears every few seconds. Data
 * never goes through here. The level is the one global of the program besides const tables.
 *
 *     struct progress pr;
 *     progress_start(&pr, "profiling", total);
 *     for (...) progress_step(&pr, done, "matmul 1024x1024");   // time left is worked out
 *     progress_end(&pr);
 */
#ifndef WEFT_PROGRESS_H
#define WEFT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

enum progress_level { PROGRESS_QUIET, PROGRESS_NORMAL, PROGRESS_VERBOSE };

void progress_set_level(enum progress_level level);

struct progress {
    const char *what;    /* borrowed */
    int64_t total;       /* 0 = unknown */
    double start_s;      /* when it began */
    double last_print_s; /* when the last line was drawn */
    bool tty, drawn;
};

void progress_start(struct progress *p, const char *what, int64_t total);
/* `done` of total; detail may be NULL. Prints at most a few times a second. */
void progress_step(struct progress *p, int64_t done, const char *detail);
/* A line of its own in place of that. Where it is no terminal, only at -v. */
void progress_show(struct progress *p, const char *line);
void progress_end(struct progress *p);

/* One line on stderr at -v (note_verbose) or unless -q (note). */
void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void note_verbose(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Monotonic seconds. */
double now_s(void);

/* Catch SIGINT, SIGTERM, SIGUSR1, and SIGHUP unless nohup(1) has it ignored: the first sets the
 * flag, a second of its kind kills the process, but for SIGUSR1, which schedulers, launchers and supervisors may all send:
 * any number of them is one request. (mpirun answers the first two by killing its ranks a second later; SIGUSR1 it passes
 * on to all of them, and waits.) */
void interrupt_catch(void);
/* Only SIGUSR1, for a program that takes long to start: the request is heeded as soon as there is something to save, in
 * place of killing the process. */
void interrupt_catch_requests(void);
bool interrupted(void);

#endif
