/* profile-comm.h - what weft-profile-comm measures, and how.
 *
 * A case is a set of groups: g ranks with stride s, all disjoint groups at the same time,
 * as along one axis of a mesh. A row is one collective of a case at one size; it is one row
 * of the database. Every rank has the same list of rows and walks it in step with the
 * others.
 */
#ifndef WEFT_PROFILE_COMM_H
#define WEFT_PROFILE_COMM_H

#include "comm/comm.h"
#include "common/err.h"
#include "common/mem.h"
#include "cost/profile.h"

#include <stdbool.h>
#include <stdint.h>

/* X(name): the name in the database. */
#define COLLECTIVES(X) X(all_reduce) X(all_gather) X(reduce_scatter) X(all_to_all) X(p2p)

enum collective {
#define X(name) COLLECTIVE_##name,
    COLLECTIVES(X)
#undef X
        COLLECTIVE_COUNT
};

extern const char *const collective_names[COLLECTIVE_COUNT];

struct row {
    enum collective collective;
    int g, s;
    int groups;    /* of them at the same time */
    bool cross;    /* some group has members on two nodes */
    int64_t bytes; /* of the larger side */
    bool have;     /* in the database already */
};

struct rows {
    struct row *p;
    int64_t n, cap;
};

struct limits {
    int64_t min_bytes, max_bytes;
    bool all_sizes; /* also groups that do not divide the job */
    double row_s;   /* time spent on a row at most */
    double error;   /* relative error of the median that is good enough */
};

struct bench {
    struct comm *comm;
    struct comm_group *group; /* NULL: this rank is in none of the groups now */
    int g, s;                 /* what group is */
    float *in, *out;          /* max_bytes each, readable by node peers, or the GPU's */
    struct bench_gpu *gpu;    /* NULL: on the host */
    struct limits limits;
};

struct measured {
    double median_us, spread;
    int64_t repeats;
    bool stop; /* somebody was interrupted: nothing was measured */
};

/* All rows of a job, case by case. */
void rows_list(const struct comm *comm, const struct limits *limits, struct rows *rows);

/* Makes the group of this rank for the case of `row`, if it is not there already. */
int bench_enter(struct bench *b, const struct row *row, struct err *err);
void bench_leave(struct bench *b);

/* Starts the collective of a row, or its message one way, on this rank's group (which there
 * must be). */
int bench_start(struct bench *b, const struct row *row, struct comm_work *work,
                struct err *err);

/* Runs it once and waits for it (a message: there and back); nothing where there is no group. */
int bench_run(struct bench *b, const struct row *row, struct err *err);

/* Seconds that `burst` calls of run(arg) take on the slowest rank, each; *stop when
 * somebody was interrupted. The same values on all ranks. */
int bench_time(struct bench *b, int (*run)(void *arg, struct err *err), void *arg,
               int burst, double *took_s, bool *stop, struct err *err);

/* Measures a row until its median is precise enough. */
int bench_measure(struct bench *b, const struct row *row, struct measured *out,
                  struct err *err);

/* ---- profile-comm-gpu.c: between GPUs ---------------------------------------------------------- */

/* Opens this rank's GPU with room bytes for each of in and out; by all ranks. bench_close_gpu either
 * way. */
int bench_open_gpu(struct bench *b, int64_t room, struct err *err);
void bench_close_gpu(struct bench *b);
/* Starts the row's work on the stream of works; what is given to that behind the join goes behind the
 * work. */
int bench_gpu_work(struct bench *b, const struct row *row, struct comm_work *work,
                   struct err *err);
int bench_gpu_join(struct bench *b, struct comm_work *work, struct err *err);
/* The same with n matrix products beside. */
int bench_gpu_products(struct bench *b, int64_t n, struct err *err);
int bench_gpu_join_products(struct bench *b, struct err *err);
/* The GPU's time between two places of the stream of works. */
int bench_gpu_begin(struct bench *b, struct err *err);
int bench_gpu_end(struct bench *b, double *took_s, struct err *err);

/* ---- profile-comm-overlap.c -------------------------------------------------------------------- */

/* The fraction of the row's time that hides behind computation between its start and its wait.
 * -1 for "interrupted". */
int bench_overlap(struct bench *b, const struct row *row, double *fraction,
                  struct err *err);

#endif
