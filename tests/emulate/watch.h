/* watch.h - every access of a kernel to memory, held against what CUDA promises: racecheck and initcheck
 * of compute-sanitizer on the CPU, exact, and in global memory too.
 *
 * The emulated kernels are compiled once more with -fsanitize=thread: the compiler then calls a function
 * before each access (__tsan_read4 ...). Those are watch_access.c's, not the sanitizer's, and only in
 * programs that are linked with them; in all others emu_finding() says NULL and emu_watched() false.
 *
 * Two accesses to the same byte, one of them a write and not both atomic (or volatile, which to a GPU is
 * the same), are a race unless
 *   - a thread makes both, or
 *   - they are of one block, and a __syncthreads is between them, or
 *   - they are of one warp, and a __syncwarp is between them (shuffles, votes and products order nothing), or
 *   - they are of two kernels of the stream. Blocks of a kernel are never in order.
 * What a copy of cp.async writes nobody may touch before the thread has waited for it, and others not
 * before a barrier behind that; nor may its source change. The same holds of what a product of wgmma reads;
 * what it reads must have been published to it (fence.proxy.async) by the thread that wrote it.
 * A kernel may read of shared memory what its block wrote, and of a buffer that is garbage what
 * anybody wrote since.
 *
 *     emu_buffer("workspace", p, bytes, true);
 *     ... launch kernels ...
 *     ok(emu_findings() == 0, "no race");
 *     emu_forget();
 */
#ifndef WEFT_EMULATE_WATCH_H
#define WEFT_EMULATE_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Names memory that kernels use; garbage: nobody has written to it yet. Does nothing where nobody
 * watches. */
void emu_buffer(const char *name, const void *p, int64_t bytes, bool garbage);
/* All buffers, what was written where, and findings that were told: before memory is freed, or used anew by
 * the host. */
void emu_forget(void);
bool emu_watched(void);
/* The oldest finding that was not yet told, in one line; NULL: none. The same at the same two places of
 * a kernel is told once until emu_forget(). Valid until the next call. */
const char *emu_finding(void);
/* Prints those that are left, in a line "# ..." each. How many. */
int emu_findings(void);

/* ---- transactions (watch_traffic.h) --------------------------------------------------------- */

/* A place of a kernel that uses memory. */
struct emu_traffic {
    const char *kernel;
    uint32_t place;   /* emu_place() names it */
    bool shared;      /* its transactions are of shared memory; else sectors of 32 bytes */
    int64_t requests; /* of warps */
    int64_t moved, least; /* transactions; how few hold what lanes asked for */
};
/* Begins to count, from nothing, or stops. Does nothing where nobody watches. */
void emu_traffic(bool on);
/* All places, at most `most`, in no order. How many. */
int emu_traffic_places(struct emu_traffic *to, int most);
/* "cuda_block.h:75 < cuda_norm.cu:12": the line, and where it was inlined into another file. */
void emu_place(uint32_t place, char *to, size_t size);

#endif
