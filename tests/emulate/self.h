/* self.h - kernels of self.cu, which try the emulator. */
#ifndef WEFT_EMULATE_SELF_H
#define WEFT_EMULATE_SELF_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* x[0..n-1] turned round by n threads, with barriers or without. */
void self_reverse(bool waits, int n, int *x);

/* What a thread gets from the others of its warp: lane 5's number, that of lane ^ 3, of lane + 4, of
 * lane - 4, of lane + 4 within its half; who has a number divisible by 3; whether any is 40, and all
 * are below 32. */
struct self_lane {
    int from, other, below, above, half;
    unsigned votes;
    int any, all;
};
void self_exchange(struct self_lane *to, unsigned threads);

/* Each thread of 3 x 2 x 4 blocks of 5 x 2 x 3 counts itself, and adds its number in the block. */
void self_places(int *count, unsigned long long *sum);

/* y = twice the sum of x plus its maximum, in every thread; 0 where shared memory is not NaN at first. */
void self_sums(const float *x, unsigned threads, float *y);

/* Ends the program. */
enum self_wrong {
    SELF_ELSEWHERE, /* threads wait at different barriers */
    SELF_ENDED,     /* one ends while others wait */
    SELF_LANES,     /* half of a warp votes */
    SELF_MASK,      /* a mask of some lanes */
    SELF_THREADS,   /* of a block: too many */
    SELF_GRID,      /* no blocks */
    SELF_SHARED,    /* more than need not be asked for */
    SELF_COUNT
};
void self_wrong(enum self_wrong what);

#ifdef __cplusplus
}
#endif

#endif
