/* The watcher (watch.h) finds each kind of fault in a kernel that has it, in either order of the threads,
 * says where, and finds nothing in the same kernel without it. It counts transactions as GPUs do. */
#include "../unit/tap.h"
#include "emulate.h"
#include "faults.h"
#include "watch.h"

#include <string.h>

/* What is said of each. */
static const char *const rules[FAULTS] = {
    [NO_SYNCTHREADS] = "no __syncthreads between",
    [LATE_WRITE] = "no __syncthreads between",
    [NO_SYNCWARP] = "no __syncwarp between",
    [TWO_BLOCKS] = "blocks are in no order",
    [BLOCK_READS] = "blocks are in no order",
    [PLAIN_READ] = "no __syncthreads between",
    [NO_WAIT] = "the copy was not waited for",
    [NO_BARRIER] = "no __syncthreads between",
    [EARLY_COPY] = "no __syncthreads between",
    [CHANGED_SOURCE] = "a copy from there was not waited for",
    [NO_PRODUCT_WAIT] = "the product was not waited for",
    [NO_PUBLISH] = "not published to products",
    [SHARED_GARBAGE] = "which nobody wrote",
    [GLOBAL_GARBAGE] = "which nobody wrote",
};
static const char *const names[FAULTS] = {
    [NO_SYNCTHREADS] = "another warp's write is read",
    [LATE_WRITE] = "written while another warp reads",
    [NO_SYNCWARP] = "another lane's write is read",
    [TWO_BLOCKS] = "two blocks write",
    [BLOCK_READS] = "another block's write is read",
    [PLAIN_READ] = "a count is read while others count",
    [NO_WAIT] = "a thread reads its own copy",
    [NO_BARRIER] = "a thread reads another's copy",
    [EARLY_COPY] = "a copy to what others read",
    [CHANGED_SOURCE] = "a copy from what others write",
    [NO_PRODUCT_WAIT] = "written while a product reads",
    [NO_PUBLISH] = "a product of what was just written",
    [SHARED_GARBAGE] = "garbage in shared memory",
    [GLOBAL_GARBAGE] = "garbage in a buffer",
};

/* How many findings there are; `said` is the first one with the rule. */
static int run(enum fault fault, bool right, char *said, size_t size) {
    int x[FAULT_NUMBERS] = {0}, y[FAULT_NUMBERS] = {0}, findings = 0;
    emu_buffer("x", x, sizeof x, false);
    emu_buffer("y", y, sizeof y, true);
    fault_run(fault, right, x, y);
    *said = 0;
    for (const char *f; (f = emu_finding()); findings++)
        if (!*said && strstr(f, rules[fault]))
            snprintf(said, size, "%s", f);
    emu_forget();
    return findings;
}

static void test_fault(enum fault fault, int downwards) {
    char said[512];
    emu_order(downwards);
    const int none = run(fault, true, said, sizeof said);
    ok(none == 0, "right: %s %s", names[fault], said);
    run(fault, false, said, sizeof said);
    ok(strstr(said, "faults.cu:") != NULL, "%s: %s", names[fault], said);
}

/* A line says which kernel, threads, buffer and lines. */
static void test_words(void) {
    char said[512];
    emu_order(0);
    run(BLOCK_READS, false, said, sizeof said);
    ok(strstr(said, "blocks_read: block (1,0,0) thread 0 ") && strstr(said, " x + ") &&
           strstr(said, "block (0,0,0) thread 0 ") && !strstr(said, "??"),
       "kernel, threads, buffer and lines are named");
}

/* A request for 32 numbers so far apart: sectors of global memory, and words of a bank of shared memory. */
static void test_strides(int stride, int sectors, int words) {
    static const char *const kinds[] = {"global", "shared"};
    _Alignas(128) int x[FAULT_NUMBERS] = {0};
    struct emu_traffic place[8];
    emu_traffic(true);
    strides_run(stride, x);
    emu_traffic(false);
    const int n = emu_traffic_places(place, 8);
    ok(n == 2, "stride %d: two places use memory", stride);
    for (int i = 0; i < n; i++) {
        const bool shared = place[i].shared;
        ok(place[i].requests == 1 && place[i].moved == (shared ? words : sectors) &&
               place[i].least == (shared ? 1 : 4),
           "stride %d: %lld transactions of %s memory for %lld", stride,
           (long long)place[i].moved, kinds[shared], (long long)place[i].least);
    }
    emu_forget();
}

int main(void) {
    test_words();
    test_strides(1, 4, 1);
    test_strides(2, 8, 2);
    test_strides(4, 16, 4);
    for (int downwards = 0; downwards < 2; downwards++)
        for (int fault = 0; fault < FAULTS; fault++)
            test_fault(fault, downwards);
    return done_testing();
}
