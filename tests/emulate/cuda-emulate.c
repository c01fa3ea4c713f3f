/* The emulator does what a GPU does with barriers, shuffles, votes, blocks and shared memory, in either order
 * of the threads; a barrier that is missing shows; and what a kernel may not do ends the program. */
#define _GNU_SOURCE
#include "../unit/tap.h"
#include "emulate.h"
#include "self.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#pragma weak self_reverse

static bool reversed(bool waits, int n, int downwards) {
    int x[256];
    bool right = true;
    emu_order(downwards);
    for (int i = 0; i < n; i++)
        x[i] = 100 + i;
    self_reverse(waits, n, x);
    for (int i = 0; i < n; i++)
        right &= x[i] == 100 + n - 1 - i;
    return right;
}

static void test_warps(int downwards) {
    enum { N = 64 };
    struct self_lane got[N];
    bool shuffles = true, votes = true;
    emu_order(downwards);
    self_exchange(got, N);
    for (int i = 0; i < N; i++) {
        const int lane = i % 32, first = i - lane;
        unsigned bits = 0;
        for (int k = 0; k < 32; k++)
            bits |= (unsigned)((first + k) % 3 == 0) << k;
        shuffles &= got[i].from == first + 5 && got[i].other == (i ^ 3);
        shuffles &= got[i].below == (lane < 28 ? i + 4 : i);
        shuffles &= got[i].above == (lane >= 4 ? i - 4 : i);
        shuffles &= got[i].half == (lane % 16 < 12 ? i + 4 : i);
        votes &= got[i].votes == bits && got[i].any == (i >= 32) && got[i].all == (i < 32);
    }
    ok(shuffles, "shuffles (%s)", downwards ? "down" : "up");
    ok(votes, "votes (%s)", downwards ? "down" : "up");
}

static void test_places(void) {
    enum { BLOCKS = 3 * 2 * 4, THREADS = 5 * 2 * 3 };
    int count[BLOCKS * THREADS] = {0};
    unsigned long long sum = 0;
    bool once = true;
    self_places(count, &sum);
    for (int i = 0; i < BLOCKS * THREADS; i++)
        once &= count[i] == 1;
    ok(once, "every thread of every block runs once");
    ok(sum == BLOCKS * (THREADS * (THREADS - 1) / 2), "they add up to %llu", sum);
}

static void test_sums(unsigned threads) {
    float x[1024], y[1024], want = 0, top = -INFINITY;
    bool right = true;
    for (unsigned i = 0; i < threads; i++) {
        x[i] = (float)((i * 37) % 101) - 50;
        want += 2 * x[i];
        top = fmaxf(top, x[i]);
    }
    self_sums(x, threads, y);
    for (unsigned i = 0; i < threads; i++)
        right &= y[i] == want + top;
    ok(right, "sums and the maximum over %u threads, in every one of them", threads);
}

/* It says so, and dies. */
static void test_wrong(enum self_wrong what, const char *message) {
    int tube[2];
    char said[512] = "";
    if (pipe(tube) < 0)
        abort();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(tube[1], STDERR_FILENO);
        self_wrong(what);
        _exit(0);
    }
    close(tube[1]);
    ssize_t n = read(tube[0], said, sizeof said - 1);
    close(tube[0]);
    int status = 0;
    waitpid(child, &status, 0);
    ok(n > 0 && strstr(said, message) && !(WIFEXITED(status) && WEXITSTATUS(status) == 0),
       "refused: %s", message);
}

int main(void) {
    if (!self_reverse) {
        printf("1..0 # SKIP no compiler of C++\n");
        return 0;
    }
    for (int downwards = 0; downwards < 2; downwards++) {
        ok(reversed(true, 256, downwards), "a barrier (%s)", downwards ? "down" : "up");
        ok(!reversed(false, 256, downwards), "without it the result is wrong (%s)",
           downwards ? "down" : "up");
        test_warps(downwards);
    }
    test_places();
    test_sums(32);
    test_sums(96);
    test_sums(1024);
    test_wrong(SELF_ELSEWHERE, "different barriers");
    test_wrong(SELF_ENDED, "others that have ended");
    test_wrong(SELF_LANES, "wait for others");
    test_wrong(SELF_MASK, "only all lanes");
    test_wrong(SELF_THREADS, "a block of no threads, or of more");
    test_wrong(SELF_GRID, "a grid of no blocks");
    test_wrong(SELF_SHARED, "more shared memory");
    return done_testing();
}
