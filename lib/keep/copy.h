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

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Copies the newest whole checkpoint of folder `from` into `to`, unless it is there,
 * and keeps the last `keep` of those in `to`. Returns its step, 0 where there is
 * nothing newer than in `to`, or -1. */
int64_t copy_newest(const char *from, const char *to, int64_t keep, struct err *err);

/* Where the files of a step lie in the memories of several hosts: each host copies those that are its own, in any order,
 * between the beginning and the end on one of them. All see `to`. Return 0 or -1; what has failed has changed nothing
 * but a folder that the next beginning removes. */
int copy_begin(const char *to, struct err *err);
int copy_share(const char *from, int64_t step, const char *to,
               bool (*mine)(const void *ctx, const char *name), const void *ctx,
               struct err *err);
int copy_end(const char *to, int64_t step, int64_t keep, struct err *err);

/* Writes all n bytes. Returns 0, or -1 with errno. */
int copy_bytes(int fd, const char *p, ssize_t n);

#endif
