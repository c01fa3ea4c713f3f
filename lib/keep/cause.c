#include "keep/cause.h"

#include "common/err.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum {
    LOST_DAEMON = 205, /* Open MPI 4: a daemon of another host has gone */
    LAST_SIGNAL =
        64, /* what is above is mpirun's own, as 255 where a host cannot be reached */
};

static const struct {
    const char *word;
    bool restarts;
} causes[] = {
#define X(id, word, restarts, text) {word, restarts},
    CAUSES(X)
#undef X
};

const char *cause_word(enum cause c) {
    return causes[c].word;
}

bool cause_daemon_failed(const char *said) {
    return strstr(said, "ess_base_std_orted"); /* the file in which Open MPI 4's gives up */
}

static struct verdict verdict(enum cause c) {
    return (struct verdict){.cause = c, .restarts = causes[c].restarts};
}

static bool says(const struct ending *e, const char *text) {
    return strstr(e->message, text) || strstr(e->said, text);
}

/* The name behind "  HNP daemon   : [[1,0],0] on node A" and "  Remote daemon:
 * [[1,0],1] on node B". */
static void find_host(const char *said, char *host, size_t n) {
    const char *at = strstr(said, "Remote daemon:");
    at = at ? strstr(at, " on node ") : NULL;
    size_t length = at ? strcspn(at + 9, " \r\n") : 0;
    snprintf(host, n, "%.*s", (int)(length < n ? length : n - 1), at ? at + 9 : "");
}

/* What a rank chose to end with says most. */
static struct verdict judge_status(const struct ending *e) {
    enum cause c = CAUSE_SYSTEM;
    switch (e->ranks_status) {
    case EXIT_NO: c = CAUSE_DIVERGED; break;
    case EXIT_USAGE: c = CAUSE_USAGE; break;
    case EXIT_INPUT: c = CAUSE_INPUT; break;
    default:
        if (says(e, "No space left on device") || says(e, "Disk quota exceeded"))
            c = CAUSE_DISK;
        else if (strstr(e->message, "one rank needs") ||
                 strstr(e->message, "out of memory: "))
            c = CAUSE_MEMORY;
    }
    struct verdict v = verdict(c);
    snprintf(v.line, sizeof v.line, "%.400s", *e->message ? e->message : "no message");
    return v;
}

static struct verdict judge_signal(const struct ending *e, int sig) {
    struct verdict v = verdict(e->oom_kills && sig == 9 ? CAUSE_OOM : CAUSE_SIGNAL);
    snprintf(v.line, sizeof v.line, "a rank was killed by signal %d (%s)%s", sig,
             strsignal(sig), v.cause == CAUSE_OOM ? ", since memory was full" : "");
    return v;
}

static struct verdict judge_host(const struct ending *e) {
    struct verdict v = verdict(CAUSE_HOST);
    if (e->lost)
        snprintf(v.host, sizeof v.host, "%.120s", e->lost);
    else
        find_host(e->said, v.host, sizeof v.host);
    snprintf(v.line, sizeof v.line, "host %s was lost", *v.host ? v.host : "(unknown)");
    return v;
}

static struct verdict judge_unstarted(const struct ending *e) {
    struct verdict v = verdict(CAUSE_LAUNCH);
    snprintf(v.line, sizeof v.line, "mpirun started no rank: a daemon of it %s",
             cause_daemon_failed(e->said) ? "could not begin on its host"
                                          : "does not answer");
    return v;
}

static struct verdict judge_done(const struct ending *e) {
    struct verdict v = verdict(e->steps_left ? CAUSE_STOPPED : CAUSE_DONE);
    snprintf(v.line, sizeof v.line, "%s",
             e->steps_left ? "stopped by a signal, and saved" : "done");
    return v;
}

/* On SIGTERM mpirun kills its ranks, ends with status 1, and says nothing: somebody wanted that. */
static bool was_told_to_end(const struct ending *e, int code) {
    return code == 1 && e->begun && e->ranks_status < 0 && !strstr(e->said, "mpirun") &&
           !strstr(e->said, "ORTE");
}

/* A GPU's error shows as whatever it did to a rank: that the driver told of one says more. */
static struct verdict judge_gpu(const struct ending *e) {
    struct verdict v = verdict(CAUSE_GPU);
    snprintf(v.line, sizeof v.line, "%.300s%s%.150s", e->gpu, *e->message ? ": " : "",
             e->message);
    return v;
}

struct verdict cause_judge(const struct ending *e) {
    const int code = WIFEXITED(e->wait) ? WEXITSTATUS(e->wait) : -1;
    if (e->lost)
        return judge_host(e);
    if (e->hung) {
        struct verdict v = verdict(CAUSE_HANG);
        snprintf(v.line, sizeof v.line, "no progress: %.400s",
                 *e->stuck ? e->stuck : "all ranks wait");
        return v;
    }
    if (e->unstarted)
        return judge_unstarted(e);
    if (code == 0 && e->all_ended)
        return judge_done(e);
    if (e->gpu && *e->gpu && (e->ranks_status < 0 || e->ranks_status == EXIT_SYSTEM))
        return judge_gpu(e);
    if (e->ranks_status > 0)
        return judge_status(e);
    if (code == LOST_DAEMON || strstr(e->said, "has lost communication"))
        return judge_host(e);
    if (code > 128 && code <= 128 + LAST_SIGNAL)
        return judge_signal(e, code - 128);
    if (was_told_to_end(e, code)) {
        struct verdict v = verdict(CAUSE_STOPPED);
        snprintf(v.line, sizeof v.line, "mpirun was told to end");
        return v;
    }
    if (WIFSIGNALED(e->wait)) {
        struct verdict v = verdict(CAUSE_LAUNCHER);
        snprintf(v.line, sizeof v.line, "mpirun was killed by signal %d (%s)",
                 WTERMSIG(e->wait), strsignal(WTERMSIG(e->wait)));
        return v;
    }
    struct verdict v = verdict(CAUSE_LAUNCH);
    const char *line = strstr(e->said, "mpirun");
    snprintf(v.line, sizeof v.line, "mpirun ended with status %d: %.*s", code,
             line ? (int)strcspn(line, "\r\n") : 0, line ? line : "");
    return v;
}
