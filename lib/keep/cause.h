/* cause.h - why an attempt ended, and what follows from that.
 *
 * Everything that is known of an ending goes in; out comes one cause, a sentence, and whether
 * starting again can mend it. A pure function: nothing is read or done.
 *
 *     struct ending e = {.wait = 3 << 8, .ranks_status = 3, .message = "plan.json: ..."};
 *     struct verdict v = cause_judge(&e);      // v.cause == CAUSE_INPUT, !v.restarts
 */
#ifndef WEFT_CAUSE_H
#define WEFT_CAUSE_H

#include <stdbool.h>
#include <stdint.h>

/* id, word in the journal, whether a restart can mend it, what it means (for the
 * manual) */
#define CAUSES(X)                                                                          \
    X(DONE, "done", false, "all steps are done")                                           \
    X(STOPPED, "stopped", false, "a signal asked the ranks to save and end")               \
    X(SIGNAL, "signal", true, "a signal killed a rank")                                    \
    X(LAUNCHER, "launcher", true, "a signal killed mpirun")                                \
    X(HANG, "hang", true, "no rank finished anything for too long")                        \
    X(HOST, "host", true, "a host was lost")                                               \
    X(LAUNCH, "launch", true, "mpirun could not start the ranks")                          \
    X(OOM, "oom", true, "the kernel killed a rank, since memory was full")                 \
    X(GPU, "gpu", true, "the driver told of a GPU's error (Xid, ECC)")                     \
    X(SYSTEM, "system", true, "a rank ended with status 4")                                \
    X(DISK, "disk", false, "the disk is full")                                             \
    X(MEMORY, "memory", false, "the plan needs more memory than there is")                 \
    X(DIVERGED, "diverged", false, "steps or parameters are not finite")                   \
    X(USAGE, "usage", false, "the command line of weft-run is wrong")                      \
    X(INPUT, "input", false, "plan, model, data or checkpoint are wrong")

enum cause {
#define X(id, word, restarts, text) CAUSE_##id,
    CAUSES(X)
#undef X
        CAUSE_COUNT
};

struct ending {
    int wait;            /* of mpirun, as waitpid has it */
    bool hung;           /* the supervisor killed it, since nothing moved */
    bool unstarted;      /* the supervisor killed it, since no rank began */
    bool asked;          /* the supervisor was asked to stop */
    int ranks_status;    /* the highest exit status that a rank chose; -1 = none did */
    bool begun;          /* the ranks were at work */
    bool all_ended;      /* every rank ended by itself, with status 0 */
    bool steps_left;     /* fewer steps are done than were to be */
    const char *message; /* of the rank that chose it, or "" */
    const char *said;    /* the end of standard error */
    int64_t oom_kills;   /* of this host's group of processes, since the start */
    const char *gpu;     /* what the driver said of this host's GPUs; NULL or "" */
    const char *lost;    /* a host whose agent the supervisor has lost; or NULL */
    const char *stuck;   /* of a hang: which rank, and how; or "" */
};

struct verdict {
    enum cause cause;
    bool restarts;
    char line[512]; /* one sentence */
    char host[128]; /* that was lost, or "" */
};

const char *cause_word(enum cause c);

/* Does standard error say that a daemon of mpirun could not begin on its host? */
bool cause_daemon_failed(const char *said);

struct verdict cause_judge(const struct ending *e);

#endif
