/* Writing. The order of things on the disk is what makes a checkpoint complete or absent:
 * files, index and temporary directory are synced before the rename, DIR after it, and
 * only then are older checkpoints touched. */
#include "checkpoint/checkpoint.h"

#include "checkpoint/ckptdir.h"
#include "checkpoint/ckptindex.h"
#include "checkpoint/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool has_whole(const struct ckpt_entries *e, int64_t step) {
    for (int64_t i = 0; i < e->n; i++)
        if (e->p[i].state == CKPT_WHOLE && e->p[i].step == step)
            return true;
    return false;
}

/* Cleans up one leftover of a killed writer. */
static int clean_entry(const char *dir, const struct ckpt_entries *all,
                       const struct ckpt_entry *e, struct err *err) {
    if (e->state == CKPT_WHOLE)
        return 0;
    char *path = ckpt_dir_path(dir, e->state, e->step);
    int bad;
    if (e->state == CKPT_OLD && !has_whole(all, e->step)) {
        char *whole = ckpt_dir_path(dir, CKPT_WHOLE, e->step);
        bad = ckpt_rename(path, whole, err);
        free(whole);
    } else {
        bad = ckpt_remove_dir(path, err);
    }
    free(path);
    return bad;
}

/* ---- prepare ----------------------------------------------------------------------- */

/* Holds for the process, and ends with it even when it is killed. */
static int lock_dir(const char *dir, struct err *err) {
    char *path = ckpt_join(dir, ".lock");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET}, holder = whole;
    if (fd < 0) {
        err_system(err, "%s: cannot write: %s", path, strerror(errno));
    } else if (fcntl(fd, F_SETLK, &whole) < 0) {
        if (errno != EACCES && errno != EAGAIN)
            err_system(err, "%s: cannot lock: %s", path, strerror(errno));
        else if (fcntl(fd, F_GETLK, &holder) == 0 && holder.l_type != F_UNLCK)
            err_system(err, "%s: another run is writing here (process %ld)", dir,
                       (long)holder.l_pid);
        else
            err_system(err, "%s: another run is writing here", dir);
        close(fd);
        fd = -1;
    }
    free(path);
    return fd;
}

void checkpoint_unlock(int lock) {
    if (lock >= 0)
        close(lock);
}

/* What a run writes takes the place of older steps, which must be its own. */
int checkpoint_check_run(const char *dir, uint64_t run, int64_t step, struct err *err) {
    struct checkpoint *newest = NULL;
    int64_t before = INT64_MAX;
    char *path;
    int found = checkpoint_older(dir, before, &path, &before, err);
    /* A run that goes on has chosen a whole one; what is damaged is no reason to stop it. */
    while (run && found > 0 && checkpoint_open(&newest, path, NULL) < 0) {
        free(path);
        found = checkpoint_older(dir, before, &path, &before, err);
    }
    if (found <= 0)
        return found;
    int rc = newest ? 0 : checkpoint_open(&newest, path, err);
    if (rc == 0) {
        const struct checkpoint_info *info = checkpoint_info(newest);
        if (info->run != run) {
            rc = err_input(err, "%s: was written by another run", path);
            err_hint(err,
                     run ? "save into another folder"
                         : "save into another folder, or continue it with --resume %s",
                     dir);
        } else if (info->step > step) {
            rc = err_input(err, "%s: is later than step %lld, from which the run continues",
                           path, (long long)step);
            err_hint(err, "save into another folder, or remove the later steps");
        }
    }
    checkpoint_close(newest);
    free(path);
    return rc;
}

int checkpoint_lock(const char *dir, struct err *err) {
    if (ckpt_make_dirs(dir, err) < 0)
        return -1;
    if (access(dir, W_OK | X_OK) < 0)
        return err_system(err, "%s: cannot write: %s", dir, strerror(errno));
    return lock_dir(dir, err);
}

/* ---- begin ------------------------------------------------------------------------- */

int checkpoint_begin(const char *dir, int64_t step, struct err *err) {
    struct ckpt_entries e;
    if (step < 0)
        return err_input(err, "step: expected a number >= 0, got %lld", (long long)step);
    if (ckpt_make_dirs(dir, err) < 0 || ckpt_scan(&e, dir, err) < 0)
        return -1;
    int bad = 0;
    for (int64_t i = 0; !bad && i < e.n; i++)
        bad = clean_entry(dir, &e, &e.p[i], err);
    arr_release(&e);
    if (bad)
        return -1;
    char *temp = ckpt_dir_path(dir, CKPT_TEMP, step);
    if (mkdir(temp, 0777) < 0)
        bad = err_system(err, "%s: cannot make the directory: %s", temp, strerror(errno));
    free(temp);
    return bad;
}

/* ---- a rank's file ----------------------------------------------------------------- */

static int check_pieces(const struct checkpoint_piece *pieces, int64_t n, struct err *err) {
    int64_t count;
    for (int64_t i = 0; i < n; i++) {
        if (!ckpt_name_good(pieces[i].name))
            return err_input(err, "\"%.100s\" cannot name a tensor in a checkpoint",
                             pieces[i].name);
        if (ckpt_box_check(&pieces[i].box, &count, err) < 0)
            return err_prefix(err, "%s", pieces[i].name);
    }
    return 0;
}

/* Writes the pieces to a file; offsets[i] and *done describe it. */
static int write_file(const char *path, int64_t step, const struct checkpoint_share *share,
                      int64_t *offsets, struct bulk_done *done, struct err *err) {
    struct arena arena = {0};
    int64_t n = share->n;
    struct st_tensor *t = arena_array(&arena, (size_t)n, sizeof *t);
    const void **data = arena_array(&arena, (size_t)n, sizeof *data);
    enum dtype *dtype = arena_array(&arena, (size_t)n, sizeof *dtype);
    for (int64_t i = 0; i < n; i++) {
        const struct checkpoint_piece *p = &share->pieces[i];
        t[i].name = ckpt_slice_name(&arena, p->kind, p->name, &p->box);
        t[i].dims = p->box.dims;
        memcpy(t[i].shape, p->box.size, sizeof p->box.size);
        data[i] = p->data;
        dtype[i] = p->dtype;
    }
    const char *metadata[] = {"format", CKPT_FORMAT, "step",
                              arena_printf(&arena, "%lld", (long long)step), NULL};
    struct st_source src = {t, data, dtype, n, metadata};
    int rc = st_write(path, &src, &share->way, done, err);
    for (int64_t i = 0; i < n; i++)
        offsets[i] = t[i].offset;
    arena_release(&arena);
    return rc;
}

int checkpoint_write(const char *dir, int64_t step, const struct checkpoint_share *share,
                     struct checkpoint_report *out, struct err *err) {
    *out = (struct checkpoint_report){.finite = true};
    if (check_pieces(share->pieces, share->n, err) < 0)
        return -1;
    if (share->n == 0) {
        out->text = mem_strdup("");
        return 0;
    }
    char name[40];
    snprintf(name, sizeof name, "rank-%04d.safetensors", share->rank);
    char *temp = ckpt_dir_path(dir, CKPT_TEMP, step), *path = ckpt_join(temp, name);
    struct stat st;
    int bad = 0;
    if (stat(temp, &st) < 0) {
        bad = err_system(err, "%s: %s", temp, strerror(errno));
        err_hint(err, "checkpoints need a directory that all ranks see");
    }
    struct bulk_done done = {0};
    int64_t *offsets = mem_array((size_t)share->n, sizeof *offsets);
    bad = bad || write_file(path, step, share, offsets, &done, err) < 0;
    struct ckpt_file file = {name, done.bytes, done.hash};
    if (!bad)
        *out = (struct checkpoint_report){
            ckpt_report_text(step, &file, share->pieces, offsets, share->n), done.finite,
            done.bytes};
    free(offsets);
    free(path);
    free(temp);
    return bad ? -1 : 0;
}

int checkpoint_abandon(const char *dir, int64_t step, struct err *err) {
    char *temp = ckpt_dir_path(dir, CKPT_TEMP, step);
    int rc = ckpt_remove_dir(temp, err);
    free(temp);
    return rc;
}

/* ---- commit ------------------------------------------------------------------------ */

static int collect(struct ckpt_index *ix, int64_t step, char *const *reports, int64_t n,
                   struct err *err) {
    for (int64_t i = 0; i < n; i++)
        if (reports[i] && *reports[i] &&
            ckpt_index_add_report(ix, step, reports[i], err) < 0)
            return err_prefix(err, "report of rank %lld", (long long)i);
    if (!ix->pieces.n)
        return err_input(err, "checkpoint: no rank has a piece of a tensor");
    return ckpt_index_check(ix, err) < 0 ? err_prefix(err, "checkpoint") : 0;
}

/* Each file is seen from here with the size that its writer told; those of other hosts, which lie apart, not at
 * all. */
static int check_files(const struct ckpt_index *ix, const char *temp, bool apart,
                       struct err *err) {
    for (int64_t i = 0; i < ix->files.n; i++) {
        const struct ckpt_file *f = &ix->files.p[i];
        struct stat st;
        char *path = ckpt_join(temp, f->name);
        int bad = 0;
        if (stat(path, &st) < 0)
            bad = apart ? 0 : err_system(err, "%s: %s", path, strerror(errno));
        else if (st.st_size != f->bytes)
            bad = err_system(err, "%s: %lld bytes, but its rank wrote %lld", path,
                             (long long)st.st_size, (long long)f->bytes);
        free(path);
        if (bad)
            return err_hint(err, "checkpoints need a directory that all ranks see");
    }
    return 0;
}

static int write_index(const struct ckpt_index *ix, const struct checkpoint_info *info,
                       const char *temp, struct err *err) {
    json_t *doc = ckpt_index_json(ix, info);
    char *path = ckpt_join(temp, "index.json");
    int bad = json_write_file(doc, path, err);
    free(path);
    json_decref(doc);
    return bad < 0 ? -1 : ckpt_sync_dir(temp, err);
}

/* Gives the temporary its final name, moving a former checkpoint of this step away. */
static int publish(const char *dir, int64_t step, const char *temp, struct err *err) {
    char *whole = ckpt_dir_path(dir, CKPT_WHOLE, step);
    char *old = ckpt_dir_path(dir, CKPT_OLD, step);
    struct stat st;
    int bad = 0;
    if (lstat(whole, &st) == 0)
        bad = ckpt_rename(whole, old, err);
    bad = bad || ckpt_rename(temp, whole, err) < 0 || ckpt_remove_dir(old, err) < 0;
    free(whole);
    free(old);
    return bad ? -1 : 0;
}

int checkpoint_commit(const char *dir, const struct checkpoint_info *info,
                      char *const *reports, int64_t n, bool apart, int64_t keep,
                      struct err *err) {
    struct ckpt_index ix = {0};
    char *temp = ckpt_dir_path(dir, CKPT_TEMP, info->step);
    int bad = collect(&ix, info->step, reports, n, err) < 0 ||
              check_files(&ix, temp, apart, err) < 0 ||
              write_index(&ix, info, temp, err) < 0 ||
              publish(dir, info->step, temp, err) < 0;
    free(temp);
    ckpt_index_release(&ix);
    return bad ? -1 : ckpt_keep_last(dir, info->step, keep, err);
}

int checkpoint_publish(const char *dir, int64_t step, int64_t keep, struct err *err) {
    char *temp = ckpt_dir_path(dir, CKPT_TEMP, step);
    int rc = publish(dir, step, temp, err);
    free(temp);
    return rc < 0 ? -1 : ckpt_keep_last(dir, step, keep, err);
}
