/* partition_watch.c - when a search stops: steps, time, and interrupts. */
#include "solve/partition/partition_core.h"

#include "common/progress.h"

#include <math.h>

bool partition_watch_over(const struct partition_watch *w) {
    return interrupted() || (w->all_steps && w->steps >= w->all_steps) ||
           (isfinite(w->end_s) && now_s() >= w->end_s);
}

bool partition_watch_stop(struct partition_watch *w) {
    w->steps++;
    if (!w->stopped && w->steps >= w->max_steps)
        w->stopped = true;
    /* Looking at the clock costs as much as many steps. */
    if (!w->stopped && (w->steps & 0xff) == 0)
        w->stopped = partition_watch_over(w);
    return w->stopped;
}

bool partition_watch_stop_now(struct partition_watch *w) {
    w->stopped = w->stopped || partition_watch_over(w);
    return w->stopped;
}
