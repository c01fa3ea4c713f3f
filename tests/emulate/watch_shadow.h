/* watch_shadow.h - inside the watcher: what is known of each piece of memory that kernels use.
 *
 * Memory of a page is cut in grains of 16 bytes until an access is smaller or lies across: then into
 * as small ones as that needs, down to bytes. So a cell always was used as a whole.
 *
 * Intervals are numbered from 1 on over all kernels: one begins with each block and behind each
 * __syncthreads. Ticks count whatever else puts accesses in order.
 */
#ifndef WEFT_EMULATE_WATCH_SHADOW_H
#define WEFT_EMULATE_WATCH_SHADOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WATCH_NOBODY = 0xffff };

/* One access, or several of threads of a warp between two __syncwarp. */
struct watch_access {
    uint32_t interval; /* 0: none */
    uint32_t warp;     /* the tick of the warp's last __syncwarp */
    uint32_t tick;
    uint32_t place;  /* in the program, from its beginning */
    uint16_t thread; /* of the block */
    uint16_t other;  /* a second thread, or WATCH_NOBODY */
};

enum {
    CELL_GARBAGE = 1, /* nobody wrote it */
    CELL_COPY = 2,    /* the last write is a copy under way */
    CELL_ATOMIC = 4,  /* the last write is atomic */
    CELL_PRODUCT = 8, /* the last read is by a product of wgmma */
    CELL_CALM = 16    /* the reads that are known are all atomic */
};

struct watch_cell {
    struct watch_access write; /* the last one */
    struct watch_access read;  /* since then, by the warp that read last */
    /* Since then, by another warp between the same barriers, or by an earlier block of the kernel. */
    uint32_t more_interval, more_place;
    uint16_t more_thread;
    uint16_t flags;
};

/* The cells of so many bytes from p on, at most to the end of p's page; *cells: how many there are. Memory
 * that nobody used before was written by the host. Each cell lies within the bytes. */
struct watch_cell *watch_cells(uintptr_t p, size_t bytes, size_t *done, int *cells);
/* Forgets all. */
void watch_cells_forget(void);

#endif
