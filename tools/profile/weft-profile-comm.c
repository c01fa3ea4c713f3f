/* weft-profile-comm - measures collectives and messages, into the profile database.
 *
 *     mpirun -n 4 weft-profile-comm -p profile.db
 *
 * Rank 0 owns the database: it tells the others which rows are there already, and writes a
 * row as soon as it is measured. So the tool may be stopped at any time and started again.
 */
#include "device_kind.h"
#include "profile-comm.h"

#include "common/file.h"
#include "common/opt.h"
#include "common/progress.h"
#include "common/text.h"
#include "exec/exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct options {
    const char *path, *device;
    int64_t threads;
    bool dry_run;
    struct limits limits;
};

struct tool {
    struct options o;
    struct comm *comm;
    char device[64];
    struct profile *profile; /* rank 0 only */
    struct rows rows;
    struct bench bench;
    struct progress progress;
    int64_t todo, done;
    bool gpu; /* --device says so */
};

static int parse(struct options *o, int argc, char **argv, struct err *err) {
    const struct opt options[] = {
        {'p', "profile", OPT_STR, "FILE", "the profile database, created if missing",
         &o->path},
        {0, "min-bytes", OPT_BYTES, "BYTES", "smallest size (1K)", &o->limits.min_bytes},
        {0, "max-bytes", OPT_BYTES, "BYTES", "largest size (64M)", &o->limits.max_bytes},
        {0, "all-sizes", OPT_FLAG, NULL, "also groups that do not divide the job",
         &o->limits.all_sizes},
        {0, "time", OPT_TIME, "TIME", "longest time spent on one row (500ms)",
         &o->limits.row_s},
        {0, "error", OPT_REAL, "FRACTION", "error of the median that is good enough (0.02)",
         &o->limits.error},
        {0, "threads", OPT_INT, "N",
         "threads that a rank computes with (its share of cores)", &o->threads},
        {0, "device", OPT_STR, "KIND",
         "name of the device kind (cpu-1t); cuda, cuda:NAME: between GPUs", &o->device},
        {0, "dry-run", OPT_FLAG, NULL, "only list what would be measured", &o->dry_run},
        {0},
    };
    const struct opt_tool tool = {
        "weft-profile-comm", "-p FILE [options]",
        "Measure the collectives of an MPI job: mpirun -n N weft-profile-comm -p FILE.",
        options};
    int n = opt_parse(&tool, argc, argv, err);
    if (n < 0)
        return -1;
    if (n > 0)
        return opt_no_operand(argv[0], err);
    if (!o->path)
        return opt_missing("-p FILE", err);
    if (o->limits.min_bytes < 4 || o->limits.max_bytes < o->limits.min_bytes)
        return err_usage(err, "expected 4 <= --min-bytes <= --max-bytes");
    if (o->limits.max_bytes > (int64_t)1 << 40)
        return err_usage(err, "--max-bytes: at most 1T");
    return device_kind_check(o->device, err);
}

/* "cuda" is named after rank 0's GPU, on all ranks. */
static int name_gpu(struct tool *t, struct err *err) {
    int rc = device_kind_of_gpu(t->o.device, comm_node_rank(t->comm), false, t->device,
                                sizeof t->device, err);
    if (exec_agree(t->comm, rc, err) < 0)
        return -1;
    return comm_broadcast(comm_world(t->comm), t->device, sizeof t->device, 0, err);
}

static void name_device(struct tool *t) {
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN), ranks = comm_node_size(t->comm);
    int threads = (int)t->o.threads;
    if (!threads)
        threads = cores / ranks > 0 ? cores / ranks : 1;
    if (t->o.device)
        snprintf(t->device, sizeof t->device, "%s", t->o.device);
    else
        profile_device_kind(threads, ranks, cores, t->device, sizeof t->device);
}

static struct profile_comm key_of(const struct tool *t, const struct row *r) {
    return (struct profile_comm){.device = t->device,
                                 .collective = collective_names[r->collective],
                                 .group_size = r->g,
                                 .stride = r->s,
                                 .groups = r->groups,
                                 .link = r->cross ? "cross" : "node",
                                 .bytes = r->bytes,
                                 .source = "measured"};
}

/* Rank 0 alone: opens the database and marks the rows it has. */
static int mark_known(struct tool *t, struct err *err) {
    if (t->o.dry_run && access(t->o.path, F_OK) != 0)
        return 0;
    t->profile = profile_open(t->o.path, !t->o.dry_run, err);
    if (!t->profile)
        return -1;
    for (int64_t i = 0; i < t->rows.n; i++) {
        struct profile_comm key = key_of(t, &t->rows.p[i]);
        t->rows.p[i].have = profile_has_comm(t->profile, &key);
    }
    return 0;
}

/* A failure of one rank in the midst of the others' communication ends the job. */
static void must(struct tool *t, int rc, const struct err *err) {
    if (rc < 0)
        comm_abort(t->comm, err_report(err, "weft-profile-comm"));
}

/* Whether rank 0's own step went well, as all ranks then know: they fail with its status.
 */
static int agree(struct tool *t, int rc, struct err *err) {
    double status = rc < 0 ? err->status : 0;
    must(t, comm_max_double(comm_world(t->comm), &status, 1, err), err);
    if (status > 0)
        err->status = (int)status;
    return status > 0 ? -1 : 0;
}

static int share_known(struct tool *t, struct err *err) {
    bool root = comm_rank(t->comm) == 0;
    if (agree(t, root ? mark_known(t, err) : 0, err) < 0)
        return -1;
    int64_t bytes = t->rows.n * (int64_t)sizeof *t->rows.p;
    must(t, comm_broadcast(comm_world(t->comm), t->rows.p, bytes, 0, err), err);
    for (int64_t i = 0; i < t->rows.n; i++)
        t->todo += !t->rows.p[i].have;
    return 0;
}

/* One line a row on stdout, and what it would cost. */
static void list_rows(const struct tool *t) {
    printf("# device %s: collective, group size, stride, groups, link, bytes, state\n",
           t->device);
    for (int64_t i = 0; i < t->rows.n; i++) {
        const struct row *r = &t->rows.p[i];
        printf("%s\t%d\t%d\t%d\t%s\t%lld\t%s\n", collective_names[r->collective], r->g,
               r->s, r->groups, r->cross ? "cross" : "node", (long long)r->bytes,
               r->have ? "known" : "to measure");
    }
    printf("# %lld of %lld rows to measure, %.0f s at most, about %.0f s\n",
           (long long)t->todo, (long long)t->rows.n, (double)t->todo * t->o.limits.row_s,
           (double)t->todo * t->o.limits.row_s / 5);
}

static int put_overlap(struct tool *t, const struct row *r, double fraction,
                       struct err *err) {
    struct profile_overlap row = {.device = t->device,
                                  .collective = collective_names[r->collective],
                                  .link = r->cross ? "cross" : "node",
                                  .fraction = fraction};
    return t->profile ? profile_put_overlap(t->profile, &row, err) : 0;
}

static int put_row(struct tool *t, const struct row *r, const struct measured *m,
                   struct err *err) {
    struct profile_comm row = key_of(t, r);
    row.median_us = m->median_us;
    row.spread = m->spread;
    row.repeats = m->repeats;
    return t->profile ? profile_put_comm(t->profile, &row, err) : 0;
}

static void show_progress(struct tool *t, const struct row *r) {
    if (comm_rank(t->comm) != 0)
        return;
    char detail[80];
    snprintf(detail, sizeof detail, "%s %d ranks stride %d, %lld bytes",
             collective_names[r->collective], r->g, r->s, (long long)r->bytes);
    progress_step(&t->progress, t->done, detail);
}

/* The row by which the overlap of a collective over a link is measured: some megabytes, the
 * first case that has the link. NULL when none of its rows is to be measured. */
static const struct row *overlap_row(const struct tool *t, int collective, bool cross) {
    const struct row *best = NULL;
    bool wanted = false;
    for (int64_t i = 0; i < t->rows.n; i++) {
        const struct row *r = &t->rows.p[i];
        if ((int)r->collective != collective || r->cross != cross)
            continue;
        wanted = wanted || !r->have;
        if (!best || (r->g == best->g && r->s == best->s && r->bytes <= 4 << 20))
            best = r;
    }
    return wanted ? best : NULL;
}

/* First the overlaps: as long as a row of a collective is missing they are made (again), so
 * a run that was stopped here does not leave them out. */
static int measure_overlaps(struct tool *t, bool *stop, struct err *err) {
    for (int k = 0; k < 2 * COLLECTIVE_COUNT && !*stop; k++) {
        const struct row *r = overlap_row(t, k / 2, k % 2);
        double fraction;
        if (!r)
            continue;
        show_progress(t, r);
        must(t, bench_enter(&t->bench, r, err), err);
        must(t, bench_overlap(&t->bench, r, &fraction, err), err);
        *stop = fraction < 0;
        if (!*stop && agree(t, put_overlap(t, r, fraction, err), err) < 0)
            return -1;
    }
    return 0;
}

static int measure_rows(struct tool *t, bool *stop, struct err *err) {
    for (int64_t i = 0; i < t->rows.n && !*stop; i++) {
        const struct row *r = &t->rows.p[i];
        struct measured m;
        if (r->have)
            continue;
        show_progress(t, r);
        must(t, bench_enter(&t->bench, r, err), err);
        must(t, bench_measure(&t->bench, r, &m, err), err);
        *stop = m.stop;
        if (!*stop && agree(t, put_row(t, r, &m, err), err) < 0)
            return -1;
        t->done += !*stop;
    }
    return 0;
}

static int open_host(struct bench *b, int64_t room, struct err *err) {
    float *mem = comm_alloc(b->comm, 2 * room, err);
    if (!mem)
        return -1;
    memset(mem, 0, (size_t)(2 * room)); /* sums of sums stay zero, whatever the repeats */
    b->in = mem;
    b->out = mem + room / 4;
    return 0;
}

static int measure(struct tool *t, struct err *err) {
    bool stop = false, root = comm_rank(t->comm) == 0;
    int64_t room = (t->o.limits.max_bytes + 4 * comm_size(t->comm) + 63) / 64 * 64;
    t->bench = (struct bench){.comm = t->comm, .limits = t->o.limits};
    if (t->gpu ? exec_agree(t->comm, bench_open_gpu(&t->bench, room, err), err) < 0
               : open_host(&t->bench, room, err) < 0)
        return -1;
    interrupt_catch();
    if (root)
        progress_start(&t->progress, "profiling", t->todo);
    int rc = measure_overlaps(t, &stop, err);
    if (rc == 0)
        rc = measure_rows(t, &stop, err);
    if (root)
        progress_end(&t->progress);
    if (rc < 0)
        return -1;
    bench_leave(&t->bench);
    bench_close_gpu(&t->bench);
    if (root)
        note("%lld rows measured, %lld were known", (long long)t->done,
             (long long)(t->rows.n - t->todo));
    return stop ? err_system(err, "interrupted; what was measured is kept") : 0;
}

static int run(struct tool *t, struct err *err) {
    if (comm_size(t->comm) < 2) {
        err_usage(err, "one rank alone has nothing to communicate with");
        char *path = text_shell_word(t->o.path);
        err_hint(err, "mpirun -n N weft-profile-comm -p %s", path);
        free(path);
        return -1;
    }
    t->gpu = device_kind_is_gpu(t->o.device);
    if (!t->gpu)
        name_device(t);
    else if (name_gpu(t, err) < 0)
        return -1;
    rows_list(t->comm, &t->o.limits, &t->rows);
    if (share_known(t, err) < 0)
        return -1;
    if (t->o.dry_run) {
        int rc = 0;
        if (comm_rank(t->comm) == 0) {
            list_rows(t);
            rc = file_stdout_check(err);
        }
        return agree(t, rc, err);
    }
    return t->todo > 0 ? measure(t, err) : 0;
}

int main(int argc, char **argv) {
    struct err err = {0};
    struct tool t = {.o.limits = {1 << 10, 64 << 20, false, 0.5, 0.02}};
    int rc = parse(&t.o, argc, argv, &err);
    struct err mpi = {0};
    t.comm = comm_create(&argc, &argv, NULL, &mpi);
    if (!t.comm)
        return err_report(&mpi, "weft-profile-comm");
    if (rc == 0)
        rc = run(&t, &err);
    int status = rc < 0 ? err.status : EXIT_DONE;
    if (rc < 0 && comm_rank(t.comm) == 0) /* all fail together: one of them says why */
        err_report(&err, "weft-profile-comm");
    if (t.profile)
        profile_close(t.profile);
    arr_release(&t.rows);
    comm_destroy(t.comm);
    return status;
}
