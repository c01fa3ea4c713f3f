/* comm-fail.c - a job in which something goes wrong; tests/mpi/run.sh looks at how it ends.
 *
 * usage: mpirun -n N comm-fail late|fail|die all_reduce|recv [TIMEOUT]
 *
 * Every rank does two rounds of the operation. Before the second one the last rank sleeps for
 * a minute (late), fails with a message of its own (fail) or is killed (die).
 */
#include "comm/comm.h"
#include "waited.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int all_reduce(struct comm *comm, struct err *err) {
    static float x[5000];
    return waited_all_reduce(comm_world(comm), x, 5000, DTYPE_f32, err);
}

/* Everybody else gets a message from the last rank. */
static int recv_all(struct comm *comm, struct err *err) {
    int n = comm_size(comm), me = comm_rank(comm), rc = 0;
    char byte = 1;
    for (int r = 0; r < n - 1 && me == n - 1 && rc == 0; r++)
        rc = comm_send(comm_world(comm), &byte, 1, DTYPE_u8, r, 5, err);
    return me == n - 1 ? rc
                       : comm_recv(comm_world(comm), &byte, 1, DTYPE_u8, n - 1, 5, err);
}

static int go_wrong(const char *how, struct err *err) {
    if (!strcmp(how, "fail"))
        return err_input(err, "the disk is on fire");
    if (!strcmp(how, "die"))
        raise(SIGKILL);
    nanosleep(&(struct timespec){.tv_sec = 60}, NULL);
    return 0;
}

int main(int argc, char **argv) {
    struct err err = {0};
    struct comm_options options = COMM_OPTIONS_DEFAULT;
    options.timeout_s = argc > 3 ? atof(argv[3]) : 60;
    struct comm *comm = comm_create(&argc, &argv, &options, &err);
    if (!comm)
        return err_report(&err, "comm-fail");
    int (*run)(struct comm *, struct err *) =
        argc > 2 && !strcmp(argv[2], "recv") ? recv_all : all_reduce;
    int rc = run(comm, &err);
    if (rc == 0 && comm_rank(comm) == comm_size(comm) - 1)
        rc = go_wrong(argv[1], &err);
    if (rc == 0)
        rc = run(comm, &err);
    if (rc == 0) {
        comm_destroy(comm);
        return EXIT_DONE;
    }
    printf("rank %d ends: %s\n", comm_rank(comm), err.msg);
    fflush(stdout);
    if (comm_fail(comm, &err))
        err_report(&err, "comm-fail");
    comm_abort(comm, err.status);
}
