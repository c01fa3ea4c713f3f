/* watch.h - the progress of a search on stderr (progress.h): "1.3 s, hops: best
 * 512.3 ms, bound 498.1 ms, gap 2.8 %". Members of auto report from their threads.
 *
 *     struct watch w;
 *     watch_begin(&w);
 *     watch_plan(&w, "hops", time_us);
 * watch_poll(&w); // often: prints when it is due
 *     watch_end(&w);
 */
#ifndef WEFT_WATCH_H
#define WEFT_WATCH_H

#include "common/progress.h"

#include <pthread.h>
#include <stdatomic.h>

struct watch {
    pthread_mutex_t lock;
    struct progress line;
    atomic_llong next_us; /* microseconds since the start at which to print again */
    double best_us;       /* simulated; 0 = none yet */
    double bound_us;      /* 0 = not known yet */
    const char *member;   /* the member of auto that found the best; NULL = not told */
};

void watch_begin(struct watch *w);
void watch_end(struct watch *w);

/* Note that a plan was simulated or a bound was proven, and print what is known when that
 * is due. May be called from any thread; w may be NULL. */
void watch_plan(struct watch *w, const char *member, double time_us);
void watch_bound(struct watch *w, double us);
void watch_poll(struct watch *w);

#endif
