/* weft-keep - keeps a training alive: weft-keep -n 4 -- weft-run --save ckpt -n 1000 plan.json
 *
 * One mpirun after the other, until all steps are done or nothing but a person can help. What happened stands in
 * a journal beside the checkpoints, so the supervisor itself may be killed, too. */
#define _GNU_SOURCE /* realpath */
#include "checkpoint/checkpoint.h"
#include "checkpoint/ckptdir.h"
#include "common/opt.h"
#include "common/progress.h"
#include "common/rng.h"
#include "keep.h"
#include "keep/copy.h"
#include "keep_agent.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { EXIT_STOPPED = 5, CRASHES = 2 };

static struct keep k = {
    .o = {.hang_s = 10, .retry_s = 10, .copy_every_s = 60, .attempts = 5, .peers = -1},
    .suspect = true};

static const struct opt options[] = {
    {'n', "ranks", OPT_INT, "N", "ranks at most (those of the plan)", &k.o.ranks},
    {'H', "hosts", OPT_LIST, "LIST", "HOST:RANKS,HOST:RANKS,... (this machine)",
     &k.o.hosts},
    {'C', "folder", OPT_STR, "DIR", "where the journal is (the folder of --save)",
     &k.o.folder},
    {0, "plans", OPT_LIST, "LIST", "plans for fewer ranks: THREE.json,TWO.json",
     &k.o.plans},
    {0, "retry", OPT_TIME, "TIME", "until a host that is left out is asked again (10s)",
     &k.o.retry_s},
    {0, "hang", OPT_TIME, "TIME", "the least silence that is a hang (10s)", &k.o.hang_s},
    {0, "attempts", OPT_INT, "N", "attempts in a row without a step that end it (5)",
     &k.o.attempts},
    {0, "copy-every", OPT_TIME, "TIME", "from memory to disk (1m)", &k.o.copy_every_s},
    {0, "no-search", OPT_FLAG, NULL, "no plans but those that are given", &k.o.no_search},
    {0, "peers", OPT_INT, "N",
     "hosts with a copy of each host's memory (1, where there are several)", &k.o.peers},
    {0, "disk-only", OPT_FLAG, NULL, "no checkpoints in memory", &k.o.disk_only},
    {0, "size", OPT_INT, "N", "tell the supervisor of --folder to go on with N ranks",
     &k.o.size},
    {0, "check", OPT_FLAG, NULL, "measure the hosts and the links between them, and stop",
     &k.o.check},
    {0, "checks", OPT_FLAG, NULL,
     "the same before the run and behind failures; bad hosts are left out", &k.o.checks},
    {0, "text", OPT_FLAG, NULL, "of --check: a table for people", &k.o.text},
    {0, "agent", OPT_FLAG, NULL, "watch the ranks of this host, for a supervisor",
     &k.o.agent},
    {0, "report", OPT_FLAG, NULL, "what the journal in --folder says, and stop",
     &k.o.report},
    {0}};

static const struct opt_tool tool = {
    "weft-keep", "[options] -- weft-run [options] PLAN",
    "Keep a training alive: start mpirun, watch it, start it again.", options};

/* ---- before the first attempt -------------------------------------------------------------- */

static int check_command(struct err *err) {
    if (k.n_command < 2)
        return err_usage(err, "expected -- and the command of weft-run behind it");
    if (!(k.save = keep_option(&k, "--save")) || !*k.save)
        return err_usage(err, "weft-run: expected --save DIR: without it nothing is kept");
    if (keep_option(&k, "--resume"))
        return err_usage(err, "weft-run: --resume would begin there every time; weft-keep "
                              "goes on from the newest checkpoint in --save");
    if (k.command[k.n_command - 1][0] == '-')
        return err_usage(err, "weft-run: expected the plan's file as the last word");
    return 0;
}

/* Until this process ends: nothing closes it. */
static int lock_folder(const char *folder, struct err *err) {
    char *path = ckpt_join(folder, ".keep.lock");
    const int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    int rc = 0;
    if (lock < 0)
        rc = err_system(err, "%s: %s", path, strerror(errno));
    else if (flock(lock, LOCK_EX | LOCK_NB) < 0)
        rc = err_system(err, "%s: another weft-keep is at work here", folder);
    free(path);
    return rc;
}

/* Two supervisors on one folder would start everything twice: on that of the journal, or on that of the checkpoints. */
static int lock_folders(struct err *err) {
    struct stat journal, save;
    if (ckpt_make_dirs(k.o.folder, err) < 0 || ckpt_make_dirs(k.save, err) < 0 ||
        lock_folder(k.o.folder, err) < 0)
        return -1;
    if (stat(k.o.folder, &journal) == 0 && stat(k.save, &save) == 0 &&
        journal.st_dev == save.st_dev && journal.st_ino == save.st_ino)
        return 0;
    return lock_folder(k.save, err);
}

static int open_journal(struct err *err) {
    char *path = ckpt_join(k.o.folder, "keep.db");
    k.journal = journal_open(path, err);
    free(path);
    return k.journal ? 0 : -1;
}

/* The identity of the run whose checkpoints are in the folder; "" where there are
 * none. */
static void find_run(const char *dir, char run[20]) {
    struct checkpoint *ck;
    *run = '\0';
    if (dir && checkpoint_is(dir) && checkpoint_open(&ck, dir, NULL) == 0) {
        snprintf(run, 20, "%016" PRIx64, checkpoint_info(ck)->run);
        checkpoint_close(ck);
    }
}

/* A journal is about one run: it must not tell of another's lost steps. */
static int check_run(struct err *err) {
    char run[20], was[20] = "";
    find_run(k.save, run);
    if (!*run && !k.apart)
        find_run(k.memory, run);
    int rc = *run ? journal_fact(k.journal, "run", run, was, sizeof was, err) : 0;
    if (rc <= 0)
        return rc;
    err_input(err, "%s/keep.db: is the journal of run %s, and %s holds run %s", k.o.folder,
              was, k.save, run);
    return err_hint(err, "another --folder gives this run a journal of its own");
}

/* In the memory of this machine, by a name that the next supervisor of the folder
 * finds. */
static int make_memory(struct err *err) {
    char path[PATH_MAX], name[64];
    if (!realpath(k.o.folder, path))
        return err_system(err, "%s: %s", k.o.folder, strerror(errno));
    snprintf(name, sizeof name, "/dev/shm/weft-keep-%ld-%016" PRIx64, (long)getuid(),
             hash_bytes(path, strlen(path), 0));
    k.shm = mem_strdup(name);
    k.beats = ckpt_join(name, "beats");
    if (k.apart)
        k.memory = ckpt_join(name, "host-%h/memory");
    else if (!k.o.disk_only && keep_one_machine(&k))
        k.memory = ckpt_join(name, "memory");
    return ckpt_make_dirs(name, err);
}

static void clear_mpi(void) {
    char *mpi = ckpt_join(k.shm, "mpi");
    ckpt_remove_dir(mpi, NULL);
    mkdir(mpi, 0700);
    free(mpi);
}

/* What a killed supervisor has left: its ranks, which should be dead, and the end of
 * its last attempt. */
static int take_up(struct err *err) {
    bool ended = false;
    struct beats *b = beats_open(k.beats);
    if (journal_last(k.journal, &k.attempt, &ended, err) < 0)
        return -1;
    if (b && !k.apart)
        beats_kill(b, 0, beats_ranks(b));
    int64_t none;
    if (journal_size(k.journal, &k.size_row, &none, err) < 0)
        return -1;
    int rc = 0;
    if (k.attempt && !ended) {
        int64_t step = b && beats_ranks(b) ? atomic_load(&beats_at(b, 0)->step) : 0;
        double s =
            b && beats_ranks(b) ? 1e-6 * (double)atomic_load(&beats_at(b, 0)->steps_us) : 0;
        note("weft-keep: attempt %lld ended with its supervisor, at step %lld",
             (long long)k.attempt, (long long)step);
        k.died_s = now_s();
        k.died_step = step;
        rc = journal_add(
            k.journal,
            &(struct event){EVENT_END, k.attempt, step, s, "supervisor: it was killed"},
            err);
    }
    beats_close(b);
    return rc;
}

static int prepare(struct err *err) {
    if (!k.o.folder)
        k.o.folder = k.save;
    if (keep_read_hosts(&k, err) < 0 || keep_probe_hosts(&k, true, err) < 0 ||
        keep_read_plans(&k, err) < 0)
        return -1;
    if (k.o.peers > 0 && !k.hosts.p[0].name)
        return err_usage(err, "--peers: expected --hosts beside it");
    k.apart = !k.o.disk_only && (k.o.peers > 0 || !keep_one_machine(&k));
    if (k.o.peers < 0)
        k.o.peers = 1;
    k.gpus = gpu_watch_create(NULL);
    k.wanted = k.o.ranks ? k.o.ranks : k.plans.p[0].ranks;
    if (lock_folders(err) < 0 || make_memory(err) < 0 || open_journal(err) < 0 ||
        check_run(err) < 0 || (k.apart && agents_start(&k, true, err) < 0))
        return -1;
    return keep_choose_plan(&k, keep_slots(&k), err) ? take_up(err) : -1;
}

/* ---- one attempt after the other ----------------------------------------------------------- */

static int add_event(enum event_kind kind, int64_t step, double value, const char *text,
                     struct err *err) {
    return journal_add(k.journal, &(struct event){kind, k.attempt, step, value, text}, err);
}

static int record_end(const struct outcome *o, struct err *err) {
    char text[700];
    snprintf(text, sizeof text, "%s: %s",
             o->resized ? "resized" : cause_word(o->verdict.cause), o->verdict.line);
    if (o->saves && add_event(EVENT_SAVES, o->saves, o->save_s, NULL, err) < 0)
        return -1;
    if (o->copies && add_event(EVENT_COPIES, o->copies, o->copy_s, NULL, err) < 0)
        return -1;
    return add_event(EVENT_END, o->step, o->steps_s, text, err);
}

static int start_attempt(const struct plan_file **plan, struct err *err) {
    if (k.apart && agents_start(&k, false, err) < 0)
        return -1;
    if (k.apart && k.o.checks && k.suspect)
        keep_check_hosts(&k);
    k.suspect = false;
    char text[512], *hosts = keep_host_list(&k);
    if (!(*plan = keep_choose_plan(&k, keep_slots(&k), err))) {
        free(hosts);
        return -1;
    }
    k.attempt++;
    snprintf(text, sizeof text, "%lld ranks, %.200s on %.200s", (long long)(*plan)->ranks,
             (*plan)->path, hosts ? hosts : "this machine");
    free(hosts);
    keep_assign(&k, (*plan)->ranks);
    if (k.apart)
        mirror_gather(&k);
    clear_mpi();
    return add_event(EVENT_START, 0, (double)(*plan)->ranks, text, err);
}

/* What the same step kills again is not chance: its samples are worth a look. */
static void note_crash(const struct outcome *o, int64_t *step, int *times) {
    *times = o->step == *step ? *times + 1 : 1;
    *step = o->step;
    if (*times < CRASHES || !o->batch)
        return;
    char text[300];
    snprintf(text, sizeof text,
             "crash %d in step %lld, whose samples are %lld to %lld of the training data",
             *times, 1 + (long long)o->step, (long long)o->sample,
             (long long)(o->sample + o->batch - 1));
    note("weft-keep: %s", text);
    add_event(EVENT_NOTE, o->step, *times, text, NULL);
}

/* At once behind progress, else after 1, 2, 4, ... seconds, and not at all where a
 * signal comes. */
static void back_off(int64_t idle) {
    double until = now_s() + (idle ? fmin(60, ldexp(1, (int)idle - 1)) : 0);
    while (now_s() < until && !keep_signals())
        usleep(20000);
}

/* Returns the status to end with, or -1 to go on. */
static int judge(const struct outcome *o, int64_t *idle, struct err *err) {
    const struct verdict *v = &o->verdict;
    if (v->cause == CAUSE_DONE)
        return EXIT_DONE;
    if (o->resized && v->cause == CAUSE_STOPPED && !keep_signals())
        return -1;
    if (v->cause == CAUSE_STOPPED)
        return EXIT_STOPPED;
    *idle = o->step > o->from ? 0 : *idle + 1;
    if (v->restarts && *idle < k.o.attempts)
        return -1;
    if (v->restarts)
        err_system(err, "%lld attempts in a row did not finish a step; the last: %s",
                   (long long)*idle, v->line);
    else if (v->cause == CAUSE_DIVERGED)
        err_no(err, "%s", v->line);
    else if (v->cause == CAUSE_USAGE)
        err_usage(err, "%s", v->line);
    else if (v->cause == CAUSE_INPUT)
        err_input(err, "%s", v->line);
    else
        err_system(err, "%s", v->line);
    return err ? err->status : EXIT_SYSTEM;
}

/* What fails since a person has stopped it is no failure. */
static int failed_or_stopped(struct err *err) {
    if (!keep_signals())
        return -1;
    *err = (struct err){0};
    return EXIT_STOPPED;
}

static int keep_going(struct err *err) {
    int64_t idle = 0, crash_step = -1;
    int crashes = 0;
    for (;;) {
        const struct plan_file *plan;
        struct outcome o;
        char was[20];
        if (start_attempt(&plan, err) < 0)
            return failed_or_stopped(err);
        if (keep_watch(&k, plan, &o, err) < 0 || record_end(&o, err) < 0)
            return -1;
        k.died_s = now_s();
        k.died_step = o.step;
        find_run(k.memory && !k.apart ? k.memory : k.save, was);
        if (*was)
            journal_fact(k.journal, "run", was, was, sizeof was, NULL);
        const enum cause cause = o.verdict.cause;
        if ((cause == CAUSE_MEMORY || cause == CAUSE_OOM) &&
            keep_fit(&k, plan, &o.verdict) == 0)
            o.verdict.restarts = true;
        int status = judge(&o, &idle, err);
        if (status >= 0)
            return status;
        if (o.resized) {
            keep_probe_hosts(&k, false, NULL);
            continue;
        }
        note("weft-keep: attempt %lld, step %lld: %s; starting again", (long long)k.attempt,
             (long long)o.step, o.verdict.line);
        if (o.verdict.cause == CAUSE_HOST || o.verdict.cause == CAUSE_LAUNCH) {
            keep_host_failed(&k, o.verdict.host);
            keep_probe_hosts(&k, false, NULL);
            k.suspect = true;
        } else if (o.verdict.cause != CAUSE_LAUNCHER) {
            k.suspect = true;
            note_crash(&o, &crash_step, &crashes);
        }
        back_off(idle);
        if (keep_signals())
            return EXIT_STOPPED;
    }
}

/* ---- the end ------------------------------------------------------------------------------- */

/* What several hosts have in memory goes to disk, if that is newer, and then from memory. Returns its step, 0 or
 * -1. */
static int64_t empty_hosts(struct err *err) {
    int64_t step = 0;
    int rc = 0;
    if (agents_whole(&k) > k.mirrored)
        k.mirrored = agents_whole(&k);
    for (int64_t copying = 0; rc == 0; step = copying ? copying : step) {
        rc = mirror_copy(&k, &copying, err);
        if (!copying)
            break;
        agents_hear(&k, 50);
    }
    for (int64_t i = 0; rc >= 0 && i < k.hosts.n; i++)
        agent_tell(&k.hosts.p[i], "remove");
    for (int i = 0, fd; rc >= 0 && i < 50 && agents_descriptors(&k, &fd, 1); i++)
        agents_hear(&k, 100);
    return rc < 0 ? -1 : step;
}

/* Memory that nobody will read any more goes, once the disk has what is in it. */
static int clean_up(struct err *err) {
    int64_t step = 0;
    double start = now_s();
    if (k.apart && (step = empty_hosts(err)) < 0)
        return err_hint(err, "the checkpoint is in %s of each host", k.memory);
    if (k.memory && !k.apart && (step = copy_newest(k.memory, k.save, 2, err)) < 0)
        return err_hint(err, "the checkpoint is in %s", k.memory);
    if (step > 0) {
        add_event(EVENT_COPY, step, now_s() - start, NULL, NULL);
        note("weft-keep: step %lld is in %s", (long long)step, k.save);
    }
    /* Daemons of other hosts may still be at their own end, and write there. */
    int rc = ckpt_remove_dir(k.shm, NULL);
    for (int i = 0; i < 40 && (rc < 0 || access(k.shm, F_OK) == 0); i++) {
        usleep(50000);
        rc = ckpt_remove_dir(k.shm, NULL);
    }
    return rc < 0 ? ckpt_remove_dir(k.shm, err) : 0;
}

static int ask_size(struct err *err) {
    if (!k.o.folder)
        return opt_missing("-C DIR", err);
    int rc = open_journal(err);
    if (rc == 0)
        rc = add_event(EVENT_SIZE, 0, (double)k.o.size, NULL, err);
    return rc;
}

/* The tools of the other hosts lie where ours does. */
static int check(const char *self, struct err *err) {
    char name[96], *words[] = {mem_strdup(self), NULL};
    snprintf(name, sizeof name, "/dev/shm/weft-keep-%ld-check-%ld", (long)getuid(),
             (long)getpid());
    k.shm = mem_strdup(name);
    if (k.n_command < 1) {
        k.command = words;
        k.n_command = 1;
    }
    keep_catch_signals();
    int rc = keep_read_hosts(&k, err);
    if (rc == 0 && k.hosts.p[0].name)
        rc = agents_start(&k, true, err);
    return rc < 0 ? -1 : keep_check(&k, err);
}

static int run(const char *self, struct err *err) {
    if (k.o.agent)
        return agent_run();
    if (k.o.check)
        return check(self, err);
    if (k.o.report && !k.o.folder)
        return opt_missing("-C DIR", err);
    if (k.o.report)
        return keep_report(&k.o, err);
    if (k.o.size)
        return ask_size(err);
    if (check_command(err) < 0)
        return -1;
    keep_catch_signals();
    if (prepare(err) < 0) {
        if (k.shm)
            rmdir(
                k.shm); /* if it is empty: what another run has left there is worth something */
        return failed_or_stopped(err);
    }
    int status = keep_going(err);
    struct err late = {0};
    if (clean_up(&late) < 0 && err->status)
        note("weft-keep: %s; %s", late.msg, late.hint);
    else if (late.status)
        *err = late;
    return err->status ? -1 : status;
}

int main(int argc, char **argv) {
    struct err err = {0};
    const char *self = argv[0];
    int own = 0;
    while (own < argc && strcmp(argv[own], "--") != 0)
        own++;
    k.command = argv + own + (own < argc);
    k.n_command = argc - own - (own < argc);
    int n = opt_parse(&tool, own, argv, &err);
    if (n > 0)
        err_usage(&err, "expected -- before the command, got \"%.60s\"", argv[0]);
    int status = n == 0 ? run(self, &err) : -1;
    agents_stop(&k);
    journal_close(k.journal);
    gpu_watch_destroy(k.gpus);
    return err.status ? err_report(&err, tool.name) : status;
}
