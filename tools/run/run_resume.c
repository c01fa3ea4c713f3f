/* Which checkpoint a run goes on from. With --auto-resume rank 0 looks, in the folder
 * of --save and in that of --memory, for the newest that is whole, and tells the
 * others: what is damaged or unfinished is named and passed over, for an older step is
 * worth more than none. */
#include "run.h"

#include "checkpoint/ckptdir.h"
#include "common/progress.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *folder_of(const struct run_options *o, int folder) {
    return folder == RUN_DISK ? o->save : o->memory_here;
}

/* Steps whose writer did not come to their index. */
static void note_unfinished(const char *dir) {
    struct ckpt_entries e;
    if (!dir || ckpt_scan(&e, dir, NULL) < 0)
        return;
    for (int64_t i = 0; i < e.n; i++) {
        char *path = ckpt_dir_path(dir, e.p[i].state, e.p[i].step);
        char *index = ckpt_join(path, "index.json");
        if (e.p[i].state == CKPT_WHOLE && access(index, F_OK) < 0)
            note("weft-run: %s: has no index.json: it is passed over", path);
        free(index);
        free(path);
    }
    arr_release(&e);
}

/* The newest of a folder that opens, before s->before of it; *path is NULL if there is
 * none. */
static int newest_of(const struct run_options *o, struct run_search *s, int folder,
                     char **path, int64_t *step, struct err *err) {
    const char *dir = folder_of(o, folder);
    *path = NULL;
    while (dir) {
        struct err why = {0};
        struct checkpoint *ck;
        int found = checkpoint_older(dir, s->before[folder], path, step, err);
        if (found <= 0)
            return found;
        if (checkpoint_open(&ck, *path, &why) == 0) {
            checkpoint_close(ck);
            return 0;
        }
        note("weft-run: %s; looking for an older checkpoint", why.msg);
        s->before[folder] = *step;
        free(*path);
    }
    return 0;
}

/* The later of both folders'; of the same step that in memory. */
static int pick(const struct run_options *o, struct run_search *s, char **path,
                struct err *err) {
    char *found[RUN_FOLDERS] = {0};
    int64_t step[RUN_FOLDERS] = {0};
    int rc = 0;
    for (int f = 0; f < RUN_FOLDERS && rc == 0; f++)
        rc = newest_of(o, s, f, &found[f], &step[f], err);
    const bool memory =
        found[RUN_MEMORY] && (!found[RUN_DISK] || step[RUN_MEMORY] >= step[RUN_DISK]);
    s->folder = memory ? RUN_MEMORY : RUN_DISK;
    s->step = step[s->folder];
    *path = found[s->folder];
    free(found[memory ? RUN_DISK : RUN_MEMORY]);
    return rc;
}

/* Rank 0's choice on all ranks: the same step in their own folder, which on another host may have another name. NULL
 * where there is none; fresh. */
static int tell_path(struct comm *comm, const struct run_options *o, int folder,
                     char **path, struct err *err) {
    char name[64] = "";
    if (*path)
        snprintf(name, sizeof name, "%s", strrchr(*path, '/') + 1);
    int64_t where = folder;
    if (comm_broadcast(comm_world(comm), &where, sizeof where, 0, err) < 0 ||
        comm_broadcast(comm_world(comm), name, sizeof name, 0, err) < 0)
        return -1;
    if (*name && !*path)
        *path = ckpt_join(folder_of(o, (int)where), name);
    return 0;
}

static int open_newest(struct comm *comm, const struct run_options *o, struct run_search *s,
                       struct checkpoint **ck, struct err *err) {
    char *path = NULL;
    int rc = comm_rank(comm) == 0 ? pick(o, s, &path, err) : 0;
    *ck = NULL;
    if ((rc = exec_agree(comm, rc, err)) == 0)
        rc = tell_path(comm, o, s->folder, &path, err);
    if (rc == 0 && path)
        rc = exec_agree(comm, checkpoint_open(ck, path, err), err);
    free(path);
    return rc;
}

int run_open_newest(struct comm *comm, const struct run_options *o, struct run_search *s,
                    struct checkpoint **ck, struct err *err) {
    for (int f = 0; f < RUN_FOLDERS; f++) {
        s->before[f] = INT64_MAX;
        if (comm_rank(comm) == 0)
            note_unfinished(folder_of(o, f));
    }
    return open_newest(comm, o, s, ck, err);
}

int run_open_older(struct comm *comm, const struct run_options *o, struct run_search *s,
                   struct checkpoint **ck, struct err *err) {
    struct checkpoint *older;
    s->before[s->folder] = s->step;
    if (open_newest(comm, o, s, &older, err) < 0)
        return -1;
    checkpoint_close(*ck);
    *ck = older;
    return older != NULL;
}

void run_note_unfinished(const struct run_options *o) {
    note_unfinished(o->resume);
}
