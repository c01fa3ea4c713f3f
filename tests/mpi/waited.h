/* waited.h - collectives that are waited for at once, for tests and measurements.
 *
 *     if (waited_all_reduce(comm_world(comm), x, n, DTYPE_f32, &err) < 0) ...
 */
#ifndef WEFT_TEST_WAITED_H
#define WEFT_TEST_WAITED_H

#include "comm/comm.h"

static inline int waited_all_reduce(struct comm_group *g, void *buf, int64_t count,
                                    enum dtype dtype, struct err *err) {
    struct comm_work w = {.progress = COMM_PROGRESS_OFF};
    int rc = comm_start_all_reduce(g, buf, count, dtype, &w, err);
    return rc < 0 ? -1 : comm_wait(&w, err);
}

static inline int waited_reduce_scatter(struct comm_group *g, void *in, void *out,
                                        int64_t count, enum dtype dtype, struct err *err) {
    struct comm_work w = {.progress = COMM_PROGRESS_OFF};
    int rc = comm_start_reduce_scatter(g, in, out, count, dtype, &w, err);
    return rc < 0 ? -1 : comm_wait(&w, err);
}

static inline int waited_all_to_all(struct comm_group *g, const void *in, void *out,
                                    int64_t count, enum dtype dtype, struct err *err) {
    struct comm_work w = {.progress = COMM_PROGRESS_OFF};
    int rc = comm_start_all_to_all(g, in, out, count, dtype, &w, err);
    return rc < 0 ? -1 : comm_wait(&w, err);
}

#endif
