/* tap_ranks.h - TAP of a job: a check holds if it holds on every rank, and rank 0 says so.
 *
 *     int status = begin_job("comm-p2p", &argc, &argv, NULL);
 *     if (status)
 *         return status;
 *     ok_all(sum == 6, "the sum of %d ranks", 3);
 *     return end_job();
 */
#ifndef WEFT_TEST_TAP_RANKS_H
#define WEFT_TEST_TAP_RANKS_H

#include "comm/comm.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

static struct comm *comm; /* of the job; NULL once it is ended */
static int job_rank;
static const char *test_name; /* for messages */
static int tap_count, tap_failed;

/* The job ends with this error where rc is negative. */
__attribute__((unused)) static void must(int rc, const struct err *err) {
    if (rc >= 0)
        return;
    if (comm_fail(comm, err))
        err_report(err, test_name);
    comm_abort(comm, err->status);
}

/* 0, or the status to exit with. */
__attribute__((unused)) static int begin_job(const char *name, int *argc, char ***argv,
                                             const struct comm_options *o) {
    struct err err = {0};
    test_name = name;
    comm = comm_create(argc, argv, o, &err);
    if (!comm)
        return err_report(&err, name);
    job_rank = comm_rank(comm);
    return 0;
}

static void tap_line(bool good, const char *fmt, va_list ap) {
    printf("%sok %d - ", good ? "" : "not ", tap_count);
    vprintf(fmt, ap);
    putchar('\n');
}

/* Of what every rank sees for itself: one that sees it fail says so, too. */
__attribute__((format(printf, 2, 3), unused)) static void ok_here(bool good,
                                                                  const char *fmt, ...) {
    va_list ap;
    tap_count++;
    tap_failed += !good;
    va_start(ap, fmt);
    if (job_rank == 0 || !good)
        tap_line(good, fmt, ap);
    va_end(ap);
    fflush(stdout);
}

/* One line for the whole job. */
__attribute__((format(printf, 2, 3), unused)) static void ok_all(bool good, const char *fmt,
                                                                 ...) {
    struct err err = {0};
    double bad = !good;
    va_list ap;
    must(comm_max_double(comm_world(comm), &bad, 1, &err), &err);
    tap_count++;
    tap_failed += bad > 0;
    va_start(ap, fmt);
    if (job_rank == 0)
        tap_line(bad == 0, fmt, ap);
    va_end(ap);
    if (!good)
        printf("# rank %d is among those that failed\n", job_rank);
    fflush(stdout);
}

/* Ends the job, if the test has not; returns the status to exit with. */
__attribute__((unused)) static int end_job(void) {
    comm_destroy(comm);
    comm = NULL;
    if (job_rank == 0)
        printf("1..%d\n", tap_count);
    return tap_failed ? EXIT_NO : EXIT_DONE;
}

#endif
