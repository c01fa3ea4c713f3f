/* copy.h - checkpoints from memory to disk, behind the back of the ranks that write them.
 *
 *     int64_t step = copy_newest("/dev/shm/weft-keep-1/memory", "ckpt", 2, &err);
 *
 * The ranks keep two steps in memory and remove older ones at any moment: what is copied is pinned first, by
 * hard links to its files. On disk it has a name that readers do not see until all of it is
 * there.
 */
#ifndef WEFT_COPY_H
#define WEFT_COPY_H

#include "common/err.h"

#include <stdint.h>

/* Copies the newest whole checkpoint of folder `from` into `to`, unless it is there,
 * and keeps the last `keep` of those in `to`. Returns its step, 0 where there is
 * nothing newer than in `to`, or -1. */
int64_t copy_newest(const char *from, const char *to, int64_t keep, struct err *err);

#endif
