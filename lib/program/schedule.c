/* Schedules as pure functions: the i-th action of a stage, so that millions of micro-batches
 * cost no memory. GPipe: all forwards, then all backwards (Huang et al. 2019). 1F1B: a stage
 * with k stages behind it runs k forwards ahead, then alternates (Narayanan et al. 2019). */
#include "program/program.h"

int64_t schedule_actions(int64_t micro_batches) {
    return 2 * micro_batches + 1;
}

int64_t schedule_in_flight(enum schedule schedule, int stage, int n_stages,
                           int64_t micro_batches) {
    int64_t behind = n_stages - stage;
    return schedule == SCHEDULE_gpipe || behind > micro_batches ? micro_batches : behind;
}

static struct action backward(int64_t index, int64_t m) {
    return (struct action){index == m - 1 ? SEG_LAST_BACKWARD : SEG_BACKWARD, index};
}

struct action schedule_action(enum schedule schedule, int stage, int n_stages,
                              int64_t micro_batches, int64_t i) {
    int64_t m = micro_batches;
    /* Forwards that run before the first backward. */
    int64_t ahead = schedule_in_flight(schedule, stage, n_stages, m);
    if (i >= 2 * m)
        return (struct action){SEG_UPDATE, -1};
    if (i < ahead)
        return (struct action){SEG_FORWARD, i};
    int64_t j = i - ahead; /* B0 F B1 F ... then the backwards that are left */
    if (j >= 2 * (m - ahead))
        return backward(i - m, m);
    return j % 2 ? (struct action){SEG_FORWARD, ahead + j / 2} : backward(j / 2, m);
}
