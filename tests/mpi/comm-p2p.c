/* comm-p2p.c - messages: order, all sizes, and progress while a rank waits elsewhere.
 *
 * usage: mpirun -n N comm-p2p [BYTES]    BYTES of the largest message, also above 2 GiB
 */
#include "common/progress.h"
#include "tap_ranks.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static void send_to(int peer, const void *buf, int64_t bytes, int tag,
                    struct comm_work *work) {
    struct err err = {0};
    must(comm_start_send(comm_world(comm), buf, bytes, DTYPE_u8, peer, tag, work, &err),
         &err);
}

static void recv_from(int peer, void *buf, int64_t bytes, int tag, struct comm_work *work) {
    struct err err = {0};
    must(comm_start_recv(comm_world(comm), buf, bytes, DTYPE_u8, peer, tag, work, &err),
         &err);
}

static void wait_for(struct comm_work *work) {
    struct err err = {0};
    must(comm_wait(work, &err), &err);
}

/* Every rank sends `bytes` to the next and gets as many from the one before. */
static int check_round(char *out, char *in, int64_t bytes, int tag) {
    int n = comm_size(comm), me = comm_rank(comm), left = (me + n - 1) % n;
    int64_t step = bytes > 1000000 ? 4099 : 1, good = 1;
    for (int64_t i = 0; i < bytes; i += step)
        out[i] = (char)(me * 31 + i % 127);
    if (bytes)
        out[bytes - 1] = (char)(me + 77);
    struct comm_work r = {0}, s = {0};
    recv_from(left, in, bytes, tag, &r);
    send_to((me + 1) % n, out, bytes, tag, &s);
    wait_for(&r);
    wait_for(&s);
    for (int64_t i = 0; i < bytes - 1; i += step)
        good &= in[i] == (char)(left * 31 + i % 127);
    return (int)good & (bytes == 0 || in[bytes - 1] == (char)(left + 77));
}

/* Many messages of one tag arrive in the order they were sent, of two tags in any order. */
static int check_order(void) {
    enum { MANY = 40 };
    struct comm_work s[2 * MANY] = {{0}}, r[2 * MANY] = {{0}};
    int out[2 * MANY], in[2 * MANY], good = 1;
    int n = comm_size(comm), me = comm_rank(comm);
    for (int i = 0; i < 2 * MANY; i++) {
        out[i] = me * 1000 + i;
        send_to((me + 1) % n, &out[i], sizeof *out, i % 2, &s[i]);
    }
    for (int i = 0; i < 2 * MANY; i++) /* all of tag 1 first */
        recv_from((me + n - 1) % n, &in[i], sizeof *in, i < MANY, &r[i]);
    for (int i = 0; i < 2 * MANY; i++) {
        wait_for(&r[i]);
        wait_for(&s[i]);
    }
    for (int i = 0; i < 2 * MANY; i++) {
        int sent = i < MANY ? 2 * i + 1 : 2 * (i - MANY);
        good &= in[i] == (me + n - 1) % n * 1000 + sent;
    }
    return good;
}

/* Rank 0 sends much to rank 1 and goes to a barrier, to which rank 1 comes only after it
 * has received everything: rank 0 must push the message while it waits in the barrier. */
static int check_progress(char *buf, int64_t bytes) {
    struct err err = {0};
    struct comm_work s = {0};
    if (comm_rank(comm) == 0)
        send_to(1, buf, bytes, 9, &s);
    if (comm_rank(comm) == 1)
        must(comm_recv(comm_world(comm), buf, bytes, DTYPE_u8, 0, 9, &err), &err);
    must(comm_barrier(comm_world(comm), &err), &err);
    wait_for(&s);
    return 1;
}

/* Those who wait for a rank that sleeps leave the cores to others: CPU time is a fraction.
 */
static int check_idle(void) {
    struct err err = {0};
    clock_t start = clock();
    if (comm_rank(comm) == 0)
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    must(comm_barrier(comm_world(comm), &err), &err);
    return (double)(clock() - start) / CLOCKS_PER_SEC < 0.15;
}

int main(int argc, char **argv) {
    struct err err = {0};
    int status = begin_job("comm-p2p", &argc, &argv, NULL);
    if (status)
        return status;
    int64_t most = argc > 1 ? atoll(argv[1]) : 16 << 20;
    int good = 1;
    char *out = malloc((size_t)most), *in = malloc((size_t)most);
    if (!out || !in)
        comm_abort(comm, EXIT_SYSTEM);
    for (int64_t bytes = 0; bytes < most; bytes = bytes * 5 + 3)
        good &= check_round(out, in, bytes, 3);
    ok_all(good & check_round(out, in, most, 4),
           "messages of all sizes, to oneself if alone");
    ok_all(check_order(), "messages of one tag stay in order");
    struct comm_work none = {0};
    ok_all(comm_wait(&none, NULL) == 0, "no work is done already");
    if (comm_size(comm) > 1) {
        ok_all(check_progress(out, most),
               "a message moves while its sender is in a barrier");
        ok_all(comm_nodes(comm) > 1 || check_idle(),
               "waiting long leaves the core to others");
    }
    int bad = comm_send(comm_world(comm), out, 4, DTYPE_u8, comm_size(comm) + 5, 0, &err);
    ok_all(bad < 0 && err.status == EXIT_SYSTEM && strstr(err.msg, "send: no rank"),
           "a rank that does not exist is an error value");
    free(out);
    free(in);
    return end_job();
}
