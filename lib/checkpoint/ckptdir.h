/* ckptdir.h - the directories of checkpoints (of lib/checkpoint and its tools).
 *
 * Inside DIR, N being the step with at least 8 digits:
 *     step-N        a checkpoint, whole
 *     .tmp-step-N   being written, or being removed
 *     .old-step-N   the former step-N for the moment in which it is replaced; when a writer
 *                   dies in that moment this still is the checkpoint of step N
 *
 *     struct ckpt_entries e;
 *     if (ckpt_scan(&e, dir, &err) < 0) ...
 *     for (int64_t i = 0; i < e.n; i++) use(e.p[i].state, e.p[i].step);
 *     arr_release(&e);
 */
#ifndef WEFT_CKPTDIR_H
#define WEFT_CKPTDIR_H

#include "common/err.h"
#include "common/mem.h"

#include <stdint.h>

enum ckpt_state { CKPT_WHOLE, CKPT_TEMP, CKPT_OLD };

struct ckpt_entry {
    enum ckpt_state state;
    int64_t step;
};
struct ckpt_entries {
    struct ckpt_entry *p;
    int64_t n, cap;
};

/* DIR/step-N in the given state; fresh. */
char *ckpt_dir_path(const char *dir, enum ckpt_state state, int64_t step);

/* DIR/name; fresh. */
char *ckpt_join(const char *dir, const char *name);

/* What lies in DIR, ordered by step, then state. A missing DIR has nothing. Returns 0 or
 * -1. */
int ckpt_scan(struct ckpt_entries *e, const char *dir, struct err *err);

/* Makes a directory and those above it. Returns 0 or -1. */
int ckpt_make_dirs(const char *path, struct err *err);

/* Removes a file, a link, or a directory with all that is in it; what is missing, or goes meanwhile, is fine. Returns
 * 0 or -1. */
int ckpt_remove_dir(const char *path, struct err *err);

/* Renames, and writes the directory that holds the name to the disk. Returns 0 or -1. */
int ckpt_rename(const char *from, const char *to, struct err *err);
int ckpt_sync_dir(const char *path, struct err *err);

/* Removes all whole checkpoints up to this step but the last `keep`; 0 = keeps all; < 0 = removes
 * all but this step.
 * Returns 0 or -1. */
int ckpt_keep_last(const char *dir, int64_t step, int64_t keep, struct err *err);

#endif
