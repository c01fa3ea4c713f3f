/* keep.h - the parts of weft-keep. */
#ifndef WEFT_KEEP_H
#define WEFT_KEEP_H

#include "common/err.h"
#include "common/mem.h"
#include "keep/beat.h"
#include "keep/cause.h"
#include "keep/gpuwatch.h"
#include "keep/journal.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct keep_options {
    int64_t ranks; /* 0 = as many as the plan, or the hosts, have */
    char *hosts;   /* "a:4,b:4", or NULL: this machine */
    char *plans;   /* "three.json,two.json": for fewer ranks; or NULL */
    const char *folder;
    double retry_s; /* between questions to a host that is left out, at first */
    double hang_s;  /* the least silence that is a hang */
    double copy_every_s;
    int64_t attempts; /* without a finished step, that end it */
    int64_t size;     /* > 0: ask the supervisor of the folder for so many ranks */
    bool report, disk_only, no_search;
};

struct host {
    char *name;
    int64_t slots;
    int failures;
    bool out;
    double ask_s, wait_s; /* of one that is out: when it is asked again; how long between */
};

struct plan_file {
    const char *path;
    int64_t ranks;
    int64_t
        made_for; /* ranks that there was room for when weft-search made it; 0 = it was given */
};

struct keep {
    struct keep_options o;
    char **command; /* weft-run and its options, PLAN at the end */
    int n_command;
    const char *save;            /* of them */
    char *shm, *beats, *memory;  /* memory is NULL where checkpoints go to disk alone */
    ARR(struct host) hosts;      /* one without a name: this machine */
    ARR(struct plan_file) plans; /* the first is that of the command */
    pid_t asker;                 /* asks a host that is out; 0 = none does */
    int64_t asked;               /* which */
    struct journal *journal;
    struct gpu_watch *gpus; /* of this host; NULL where none can be watched */
    int lock;
    int64_t attempt, wanted; /* ranks */
    int64_t size_row;        /* the last row that asked for a size */
    double died_s;           /* when the last attempt was found dead; 0 = none was */
    int64_t died_step;       /* and its last finished step */
};

/* What one attempt came to. */
struct outcome {
    struct verdict verdict;
    bool resized; /* it was stopped for another number of ranks */
    int64_t from, step, sample, batch, target;
    int64_t saves, copies;
    double steps_s, save_s, copy_s; /* save_s, copy_s: of one */
};

/* ---- keep_hosts.c -------------------------------------------------------------------------- */

int keep_read_hosts(struct keep *k, struct err *err);
/* Do they answer, with this version of weft? Those that do not are left out of `left`. */
int keep_probe_hosts(struct keep *k, bool must, struct err *err);
/* Asks hosts that are left out whether they answer again, one at a time and behind the watch's back; one that does
 * is in again. Returns whether one is. To be called often. */
bool keep_hosts_back(struct keep *k);
void keep_host_failed(struct keep *k, const char *name);
int64_t keep_slots(const struct keep *k);
/* "a:4,b:4" of those that are in, or NULL for this machine; fresh. */
char *keep_host_list(const struct keep *k);
/* The host that mpirun puts a rank on: each has as many as it takes, in turn. */
const char *keep_host_of(const struct keep *k, int64_t rank);
/* Are all of them this machine, so that its memory is that of all ranks? */
bool keep_one_machine(const struct keep *k);

/* ---- keep_plans.c -------------------------------------------------------------------------- */

/* Asks weft-run how many ranks each plan has. */
int keep_read_plans(struct keep *k, struct err *err);
int keep_add_plan(struct keep *k, const char *path, int64_t made_for, struct err *err);
/* The plan for this room, but for no more ranks than are wanted: the file for so many, else one that is made
 * now, else that for as many as possible. NULL with a message. */
const struct plan_file *keep_choose_plan(struct keep *k, int64_t ranks, struct err *err);
/* Runs a program and reads what it prints first; its exit status, or -1. */
int keep_ask(const char *const *argv, double seconds, char *out, size_t n);

/* ---- keep_search.c ------------------------------------------------------------------------- */

/* Has weft-search make a plan for so many ranks at most, within two seconds, and adds it. Returns 0, or -1 with
 * what it said. */
int keep_make_plan(struct keep *k, int64_t ranks, struct err *err);

/* ---- keep_start.c -------------------------------------------------------------------------- */

/* The value of an option of weft-run's in the command; NULL = it is not given. Borrowed. */
const char *keep_option(const struct keep *k, const char *option);
/* One mpirun, as the leader of a group of processes; dies with the supervisor. */
pid_t keep_start(struct keep *k, const struct plan_file *plan, int out[2], struct err *err);

/* ---- keep_watch.c -------------------------------------------------------------------------- */

/* Runs an attempt to its end, whatever that is. Returns 0, or -1 where nothing could
 * be started. */
int keep_watch(struct keep *k, const struct plan_file *plan, struct outcome *out,
               struct err *err);
/* Kills all that is left of an attempt, and waits until it is gone. */
void keep_kill_ranks(struct beats *b);

/* ---- keep_memory.c ------------------------------------------------------------------------- */

/* Processes that the kernel has killed for memory in this one's group (cgroups of both versions); 0 where it
 * does not say. */
int64_t keep_oom_kills(void);

/* ---- keep_signals.c ------------------------------------------------------------------------ */

void keep_catch_signals(void);
/* How many of SIGINT, SIGTERM, SIGUSR1 and SIGHUP came. */
int keep_signals(void);

/* ---- keep_report.c ------------------------------------------------------------------------- */

int keep_report(const struct keep_options *o, struct err *err);

#endif
