/* keep.h - the parts of weft-keep. */
#ifndef WEFT_KEEP_H
#define WEFT_KEEP_H

#include "common/err.h"
#include "common/json.h"
#include "common/mem.h"
#include "keep/beat.h"
#include "keep/cause.h"
#include "keep/gpuwatch.h"
#include "keep/journal.h"
#include "keep/lines.h"
#include "keep/parts.h"

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
    int64_t
        peers; /* hosts that keep a copy of each host's checkpoints in memory; < 0 = not given */
    bool report, disk_only, no_search, agent, check, text, checks;
};

struct agent;

struct host {
    char *name;
    int64_t slots;
    int failures;
    bool out;
    bool doubted;         /* its ranks' gradients are not what their replicas' are */
    double ask_s, wait_s; /* of one that is out: when it is asked again; how long between */
    struct agent *agent;  /* NULL where none is, or all ranks are on one machine */
    int first, count;     /* its ranks in this attempt */
    double
        speed; /* of its ranks beside those with the same work, as measured; 0 = nobody knows */
};
/* Has it ranks in this attempt? */
static inline bool host_works(const struct host *h) {
    return !h->out && h->count;
}

/* What is ordered from agents, by what waits for it. */
enum order_kind { ORDER_GATHER, ORDER_MIRROR, ORDER_COPY, ORDER_CHECK, ORDER_KINDS };
struct orders {
    int pending[ORDER_KINDS];
    char failed[ORDER_KINDS][400]; /* the last one that failed; "" = none did */
};

struct plan_file {
    const char *path;
    int64_t ranks;
    int64_t
        made_for; /* ranks that there was room for when weft-search made it; 0 = it was given */
    uint64_t speeds; /* of the hosts that it was made for (keep_speeds); 0: all alike */
    bool too_large;  /* for the memory */
};

/* Who looks for a plan while ranks run (keep_planner.c). */
struct planner {
    pid_t pid; /* 0 = nobody does */
    int fd;    /* where the answer comes */
    int64_t ranks;
    uint64_t speeds; /* of the hosts, when it began */
};

struct keep {
    struct keep_options o;
    char **command; /* weft-run and its options, PLAN at the end */
    int n_command;
    const char *save;            /* of them */
    char *shm, *beats, *memory;  /* memory is NULL where checkpoints go to disk alone */
    ARR(struct host) hosts;      /* one without a name: this machine */
    ARR(struct plan_file) plans; /* the first is that of the command */
    bool suspect; /* a host may be what the last attempt died of, or nothing is known yet */
    bool apart;   /* every host has its own memory, and an agent */
    struct orders orders;
    struct parts parts; /* what agents have listed */
    struct beats *now;  /* of the attempt that runs; agents fill it */
    int64_t mirroring,
        mirrored; /* the step that is on its way to peers; the last that got there */
    int64_t
        gathered; /* the step that all hosts have whole, since the attempt began with it; 0 = none */
    char token[36];    /* of agents for each other */
    double rank_bytes; /* that there are for one, where a plan was too large; 0 = unknown */
    uint64_t no_plan_for; /* speeds for which none was found */
    struct planner planner;
    pid_t asker;   /* asks a host that is out; 0 = none does */
    int64_t asked; /* which */
    struct journal *journal;
    struct gpu_watch *gpus;  /* of this host; NULL where none can be watched */
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
/* How a command is run on a host: the remote shell's words and its name, n bytes. */
void keep_shell(const char *host, char *out, size_t n);
void keep_leave_out(struct keep *k, struct host *h, const char *why);
/* "weft-keep", of a tool beside weft-run; fresh. */
char *keep_tool(const struct keep *k, const char *name);
void keep_host_failed(struct keep *k, const char *name);
int64_t keep_slots(const struct keep *k);
/* "a:4,b:4" of those that are in, or NULL for this machine; fresh. */
char *keep_host_list(const struct keep *k);
/* Which ranks of so many mpirun puts on which host: each has as many as it takes, in turn. */
void keep_assign(struct keep *k, int64_t ranks);
/* Notes how fast a host is beside others; > 1 is slower. */
void keep_note_speed(struct keep *k, struct host *h, double ratio);
/* The host that has this one. */
const char *keep_host_of(struct keep *k, int64_t rank);
/* The same; NULL where none has it. */
struct host *keep_host_at(struct keep *k, int64_t rank);
/* Are all of them this machine, so that its memory is that of all ranks? */
bool keep_one_machine(const struct keep *k);

/* ---- keep_plans.c -------------------------------------------------------------------------- */

/* Asks weft-run how many ranks each plan has. */
int keep_read_plans(struct keep *k, struct err *err);
int keep_add_plan(struct keep *k, const struct plan_file *p, struct err *err);
/* The plan for this room, but for no more ranks than are wanted: the file for so many, else one that is made
 * now, else that for as many as possible. NULL with a message. */
const struct plan_file *keep_choose_plan(struct keep *k, int64_t ranks, struct err *err);
/* Runs a program and reads what it prints first; its exit status, or -1. */
int keep_ask(const char *const *argv, double seconds, char *out, size_t n);
/* fork(2); what it starts dies with this process, and so never holds the folder's lock longer. */
pid_t keep_fork(void);

/* ---- keep_planner.c ------------------------------------------------------------------------ */

struct planned {
    const struct plan_file *plan; /* NULL: there is none */
    double
        times; /* that a step takes with it, of what it takes with the plan of now; 0 = unknown */
};
/* What keep_choose_plan would take for this room, while ranks run: begins to look for it, behind the watch's back, or asks
 * how that goes. To be called often; true once it is known. `now` is the plan that runs, if what a step takes with both is
 * asked for, or NULL. */
bool planner_poll(struct keep *k, int64_t room, const struct plan_file *now,
                  struct planned *out);
/* Lets it be: nobody waits for the answer any more. */
void planner_stop(struct keep *k);

/* ---- keep_search.c ------------------------------------------------------------------------- */

/* Has weft-search make a plan for so many ranks at most, within two seconds, and adds it; with a path it begins with that
 * plan. Where measured speeds of hosts differ the plan is for them. Returns 0, or -1 with what it said. */
int keep_make_plan(struct keep *k, int64_t ranks, const char *from, struct err *err);
/* A hash of the measured speeds of the hosts that so many ranks stand on, in twentieths of the fastest; 0 where they are
 * alike, or not known. */
uint64_t keep_speeds(const struct keep *k, int64_t ranks);
/* What weft-predict says of a plan on these hosts; NULL where it says nothing. The caller's. */
json_t *keep_prediction(const struct keep *k, const struct plan_file *p);
/* How long weft-predict says that a step of a plan takes on these hosts, in us; 0 where it does not. */
double keep_predict(const struct keep *k, const struct plan_file *p);

/* ---- keep_fit.c ---------------------------------------------------------------------------- */

/* Behind an attempt that died for want of memory, as the verdict says: finds a smaller plan for as many ranks, has it taken
 * from now on in place of this one, and says what takes the memory and what is changed. 0, or -1 where there is none. */
int keep_fit(struct keep *k, const struct plan_file *plan, const struct verdict *v);

/* ---- keep_start.c -------------------------------------------------------------------------- */

/* The value of an option of weft-run's in the command; NULL = it is not given. Borrowed. */
const char *keep_option(const struct keep *k, const char *option);
/* One mpirun, as the leader of a group of processes; dies with the supervisor. */
pid_t keep_start(struct keep *k, const struct plan_file *plan, int out[2], struct err *err);

/* ---- keep_output.c ------------------------------------------------------------------------- */

enum { OUTPUT_TAIL = 8192 };
struct output {
    int fd[2]; /* of mpirun's standard output and error */
    struct lines metrics;
    bool spoke;             /* there were some */
    char tail[OUTPUT_TAIL]; /* of its errors */
    size_t n_tail;
    bool in_block; /* of lines between dashes, mpirun's */
};
/* Passes on what can be read of one of them; false where that is nothing, or the end. */
bool output_read(struct output *o, int which);
void output_read_all(struct output *o);

/* ---- keep_watch.c -------------------------------------------------------------------------- */

/* Runs an attempt to its end, whatever that is. Returns 0, or -1 where nothing could
 * be started. */
int keep_watch(struct keep *k, const struct plan_file *plan, struct outcome *out,
               struct err *err);

/* ---- keep_agents.c ------------------------------------------------------------------------- */

/* Starts agents where hosts that are in have none, and waits for them. Where one does not come the host is left out; or,
 * `must`, that is an error. */
int agents_start(struct keep *k, bool must, struct err *err);
/* Lets them go: their ranks die, and what is in memory stays. */
void agents_stop(struct keep *k);
/* Reads what they say, waiting so long for the first word. */
void agents_hear(struct keep *k, int milliseconds);
/* Descriptors to poll for what they say; at most n. Returns how many. */
int agents_descriptors(const struct keep *k, int *fds, int n);
/* Tells one, or all, a line. */
void agent_tell(struct host *h, const char *format, ...);
/* Orders work of one; it counts in k->orders until it is done. */
void agent_order(struct keep *k, struct host *h, enum order_kind kind, const char *format,
                 ...);
/* Waits until nothing of this kind is pending. Returns 0, or -1 with what failed. */
int agents_settle(struct keep *k, enum order_kind kind, struct err *err);
/* What it said of its last order; "" where that failed, for *failure. */
const char *agent_answer(const struct host *h, const char **failure);
bool agent_is_there(const struct host *h);
int agent_port(const struct host *h);
/* The newest step that the ranks of all hosts have in memory, 0 where they differ. */
int64_t agents_whole(const struct keep *k);
/* Gives hosts their ranks of the next attempt, and has its beats made. Returns 0 or -1. */
int agents_begin(struct keep *k, int64_t ranks, struct beats *now, struct err *err);
/* Has the ranks killed, and takes their last beats. */
void agents_end(struct keep *k);
/* An agent that is gone is started again, once; a host whose agent is silent while no step is done is lost: its name, or
 * NULL. stepped_s: when the last step was done. */
const char *agents_lost(struct keep *k, double stepped_s);

/* ---- keep_check.c -------------------------------------------------------------------------- */

/* weft-keep --check: measures all hosts and what is between them, and prints it. Returns the exit status, or -1. */
int keep_check(struct keep *k, struct err *err);
/* The same in a run: leaves out those that are bad. */
void keep_check_hosts(struct keep *k);

/* ---- keep_mirror.c ------------------------------------------------------------------------- */

/* Has every host that will have ranks, by the plan for so many, all files of the newest step that is whole in the
 * hosts' memories, if the disk has no newer one; says where that goes wrong. */
void mirror_gather(struct keep *k);
/* Sends what is new in memory to peers; to be called often. */
void mirror_step(struct keep *k);
/* The newest step in memory goes to disk, by all hosts: begins that, or goes on with it. Returns 1 when it has ended, 0
 * while it has not, or there is nothing to do, -1 when it has failed. */
int mirror_copy(struct keep *k, int64_t *copying, struct err *err);
/* The step of the newest checkpoint on disk; 0 = none. */
int64_t mirror_on_disk(const struct keep *k);

/* ---- keep_memory.c ------------------------------------------------------------------------- */

/* Processes that the kernel has killed for memory in this one's group (cgroups of both versions); 0 where it
 * does not say. */
int64_t keep_oom_kills(void);
/* Bytes that processes of this one's group may have together: the machine's, or the group's limit. */
double keep_memory_limit(void);

/* ---- keep_signals.c ------------------------------------------------------------------------ */

void keep_catch_signals(void);
/* How many of SIGINT, SIGTERM, SIGUSR1 and SIGHUP came; a SIGUSR1 behind another signal does not count. */
int keep_signals(void);

/* ---- keep_report.c ------------------------------------------------------------------------- */

int keep_report(const struct keep_options *o, struct err *err);

#endif
