/* Writers killed with SIGKILL at random moments, 50 times: one process, three "ranks" that meet at
 * barriers as under MPI, and two of them whose files are written by four threads each, in several pieces.
 * What was committed must be found whole afterwards. */
#include "checkpoint/checkpoint.h"
#include "common/progress.h"
#include "common/rng.h"
#include "tap.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KILLS = 50, RANKS_MAX = 3, COLS = 64, KEEP = 2, REPORT_MAX = 2000 };
enum { FEW_ROWS = 96, MANY_ROWS = 96 << 10 /* 24 MiB */ };

/* What the processes share; survives the killed ones. */
struct shared {
    atomic_int waiting, round;        /* barrier */
    _Atomic int64_t begun, committed; /* steps */
    char report[RANKS_MAX][REPORT_MAX];
};

static char top[64] = "/tmp/weft-kill-XXXXXX";
static char dir[80];
static struct shared *sh;
static int rows, threads;
static float data[MANY_ROWS * COLS];

static float value_at(int64_t step, int64_t i) {
    return (float)(step * 7 + i);
}

static void nap_us(long us) {
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static void barrier(int ranks) {
    int round = atomic_load(&sh->round);
    if (atomic_fetch_add(&sh->waiting, 1) == ranks - 1) {
        atomic_store(&sh->waiting, 0);
        atomic_fetch_add(&sh->round, 1);
    }
    while (atomic_load(&sh->round) == round)
        nap_us(50);
}

/* Rows of rank r. */
static struct checkpoint_box rows_of(int rank, int ranks) {
    int64_t begin = rows * rank / ranks, end = rows * (rank + 1) / ranks;
    return (struct checkpoint_box){
        .dims = 2, .shape = {rows, COLS}, .first = {begin}, .size = {end - begin, COLS}};
}

static void write_step(int64_t step, int rank, int ranks) {
    struct err err = {0};
    struct checkpoint_box box = rows_of(rank, ranks);
    for (int64_t i = 0; i < box.size[0] * COLS; i++)
        data[i] = value_at(step, box.first[0] * COLS + i);
    struct checkpoint_piece piece = {CHECKPOINT_PARAM, "w", box, data, DTYPE_f32};
    struct checkpoint_share share = {rank, &piece, 1, {.threads = threads}};
    struct checkpoint_report report;
    char *reports[RANKS_MAX];
    if (rank == 0) {
        atomic_store(&sh->begun, step);
        if (checkpoint_begin(dir, step, &err) < 0)
            _exit(1);
    }
    barrier(ranks);
    if (checkpoint_write(dir, step, &share, &report, &err) < 0)
        _exit(1);
    strcpy(sh->report[rank], report.text);
    free(report.text);
    barrier(ranks);
    for (int r = 0; r < ranks; r++)
        reports[r] = sh->report[r];
    struct checkpoint_info info = {.step = step, .sample = step, .model = "m"};
    if (rank == 0 && checkpoint_commit(dir, &info, reports, ranks, false, KEEP, &err) < 0)
        _exit(1);
    if (rank == 0)
        atomic_store(&sh->committed, step);
    barrier(ranks);
}

/* Every third step is written twice: replacing has its own moments to die in. */
static void run_writer(int64_t step, int rank, int ranks) {
    for (;; step++) {
        write_step(step, rank, ranks);
        if (step % 3 == 0)
            write_step(step, rank, ranks);
    }
}

static void kill_at_random(int64_t step, int ranks, long most_us, struct rng *rng) {
    pid_t child[RANKS_MAX];
    atomic_store(&sh->waiting, 0);
    for (int r = 0; r < ranks; r++) {
        child[r] = fork();
        if (child[r] == 0)
            run_writer(step, r, ranks);
    }
    nap_us(500 + (long)rng_below(rng, most_us));
    /* mpirun kills all when one is gone; here they go one after the other. */
    for (int r = 0; r < ranks; r++) {
        kill(child[(r + (int)(step % ranks)) % ranks], SIGKILL);
        nap_us((long)rng_below(rng, 300));
    }
    for (int r = 0; r < ranks; r++)
        waitpid(child[r], &(int){0}, 0);
}

/* The newest checkpoint, or -1 if it is not whole; 0 when there is none. */
static int64_t check_latest(void) {
    struct err err = {0};
    struct checkpoint *ck;
    char *path;
    if (checkpoint_latest(dir, &path, &err) == 0)
        return 0;
    free(path);
    if (checkpoint_open(&ck, dir, &err) < 0 ||
        checkpoint_verify(ck, 0, 1, &(struct bulk_way){.threads = 2}, &err) < 0) {
        printf("# %s\n", err.msg);
        return -1;
    }
    struct checkpoint_box box = rows_of(0, 1);
    int64_t step = checkpoint_info(ck)->step;
    int bad = checkpoint_read(ck, CHECKPOINT_PARAM, "w", &box, data, &err) < 0 ||
              checkpoint_info(ck)->sample != step;
    for (int64_t i = 0; !bad && i < rows * COLS; i++)
        bad = data[i] != value_at(step, i);
    checkpoint_close(ck);
    return bad ? -1 : step;
}

/* Moments of so many us at most, in which several steps are written. */
static void test_kills(int ranks, long most_us) {
    struct rng rng = {.seed = 11 + (uint64_t)ranks};
    int bad = 0, during = 0;
    double start = now_s();
    snprintf(dir, sizeof dir, "%s/%d-%d", top, ranks, threads);
    memset((void *)sh, 0, sizeof *sh);
    int64_t next = 1;
    for (int i = 0; i < KILLS; i++) {
        kill_at_random(next, ranks, most_us, &rng);
        int64_t found = check_latest(), committed = atomic_load(&sh->committed);
        int64_t begun = atomic_load(&sh->begun);
        /* The rename may have come just before the death of who would have said so. */
        if (found < committed || found > begun) {
            printf("# kill %d: found %lld, committed %lld, begun %lld\n", i,
                   (long long)found, (long long)committed, (long long)begun);
            bad++;
        }
        during += begun > committed;
        next = found + 1;
    }
    ok(!bad && next > 1,
       "%d writers of %d threads killed %d times (%d in the midst), up to step %lld, in %.1f s",
       ranks, threads, KILLS, during, (long long)next - 1, now_s() - start);
}

int main(void) {
    if (!mkdtemp(top))
        return 4;
    char path[100];
    snprintf(path, sizeof path, "%s/shared", top);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *sh) < 0)
        return 4;
    sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (sh == MAP_FAILED)
        return 4;
    rows = FEW_ROWS;
    threads = 1;
    test_kills(1, 40000);
    test_kills(3, 40000);
    rows = MANY_ROWS;
    threads = 4;
    test_kills(2, 250000);
    snprintf(path, sizeof path, "rm -rf %s", top);
    return system(path) ? 1 : done_testing();
}
