/* The other ranks of the node: processes that run what the bench runs, all the time.
 *
 * A rank in a job shares memory bandwidth and the outer cache with its neighbours, and
 * where there are more ranks than cores, the cores as well; a time that was taken alone is
 * too good. Siblings are told what to do by a page that they share with the bench: a number
 * that grows with every order. They look at it between two runs, and leave when the bench
 * is gone. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "profile-op.h"

#include "common/mem.h"
#include "device/kernel.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct board {
    _Atomic int64_t order; /* grows by one for each */
    _Atomic int64_t ready; /* siblings that have the order's operands filled */
    _Atomic int failed;
    struct instr_key key; /* code OPCODE_COUNT: rest */
};

struct ranks {
    int n;
    pid_t *pids;
    struct board *board;
};

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

/* A sibling's life. */
static void serve(struct board *board, int threads, int64_t budget, const struct cold *cold,
                  pid_t bench_pid) {
    struct bench b = {.budget = budget, .cold = cold};
    int64_t seen = 0;
    bool rest = true;
    signal(SIGINT, SIG_IGN); /* the terminal sends it to all: the bench decides */
    if (bench_open(&b, threads, NULL) < 0)
        atomic_store(&board->failed, 1);
    while (getppid() == bench_pid) {
        int64_t order = atomic_load(&board->order);
        if (order != seen) {
            struct instr_key key = board->key;
            seen = order;
            rest = key.code == OPCODE_COUNT;
            if (!rest && bench_prepare(&b, &key, NULL) < 0)
                atomic_store(&board->failed, 1);
            atomic_fetch_add(&board->ready, 1);
        }
        if (!rest && b.memory)
            (void)bench_run(&b, NULL);
        else
            nap();
    }
    _exit(0);
}

struct ranks *ranks_start(int n, int threads, int64_t budget, const struct cold *cold,
                          struct err *err) {
    struct ranks *r = mem_alloc(sizeof *r);
    r->board = mmap(NULL, sizeof *r->board, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (r->board == MAP_FAILED) {
        free(r);
        err_system(err, "cannot map a shared page: %s", strerror(errno));
        return NULL;
    }
    r->board->key.code = OPCODE_COUNT;
    r->pids = mem_array((size_t)n + 1, sizeof *r->pids);
    pid_t self = getpid();
    for (; r->n < n; r->n++) {
        pid_t pid = fork();
        if (pid == 0)
            serve(r->board, threads, budget, cold, self);
        if (pid < 0) {
            err_system(err, "cannot start rank %d: %s", r->n + 1, strerror(errno));
            ranks_stop(r);
            return NULL;
        }
        r->pids[r->n] = pid;
    }
    return r;
}

int ranks_run(struct ranks *r, const struct instr_key *key, struct err *err) {
    if (!r->n)
        return 0;
    /* Siblings copy the key when they see the order; the last one has been seen by all. */
    atomic_store(&r->board->ready, 0);
    r->board->key = key ? *key : (struct instr_key){.code = OPCODE_COUNT};
    atomic_fetch_add(&r->board->order, 1);
    while (atomic_load(&r->board->ready) < r->n) {
        int status;
        pid_t dead = waitpid(-1, &status, WNOHANG);
        if (dead > 0 || atomic_load(&r->board->failed))
            return err_system(err, "another rank has ended (out of memory?)");
        nap();
    }
    return 0;
}

void ranks_stop(struct ranks *r) {
    if (!r)
        return;
    for (int i = 0; i < r->n; i++)
        kill(r->pids[i], SIGKILL);
    for (int i = 0; i < r->n; i++)
        waitpid(r->pids[i], NULL, 0);
    munmap(r->board, sizeof *r->board);
    free(r->pids);
    free(r);
}
