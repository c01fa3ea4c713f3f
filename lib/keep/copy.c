#include "keep/copy.h"

#include "checkpoint/checkpoint.h"
#include "checkpoint/ckptdir.h"
#include "common/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int failed(const char *path, struct err *err) {
    return err_system(err, "%s: %s", path, strerror(errno));
}

int copy_bytes(int fd, const char *p, ssize_t n) {
    for (ssize_t k; n > 0; p += k, n -= k)
        if ((k = write(fd, p, (size_t)n)) < 0)
            return -1;
    return 0;
}

static int copy_all(int in, int out) {
    enum { BLOCK = 1 << 20 };
    char *block = mem_alloc(BLOCK);
    ssize_t n;
    int rc = 0;
    while (rc == 0 && (n = read(in, block, BLOCK)) > 0)
        rc = copy_bytes(out, block, n);
    free(block);
    return rc < 0 || n < 0 || fsync(out) < 0 ? -1 : 0;
}

static int copy_file(const char *from, const char *to, struct err *err) {
    int in = open(from, O_RDONLY | O_CLOEXEC);
    if (in < 0)
        return failed(from, err);
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int rc = out < 0 || copy_all(in, out) < 0 ? failed(to, err) : 0;
    close(in);
    if (out >= 0 && close(out) < 0 && rc == 0)
        rc = failed(to, err);
    return rc;
}

static int link_file(const char *from, const char *to, struct err *err) {
    return link(from, to) < 0 ? failed(from, err) : 0;
}

/* A fresh folder with what `each` makes of every file of another. */
static int each_file(const char *from, const char *to,
                     int (*each)(const char *, const char *, struct err *),
                     struct err *err) {
    int rc = ckpt_remove_dir(to, err);
    DIR *d = rc == 0 ? opendir(from) : NULL;
    if (rc == 0 && (!d || mkdir(to, 0777) < 0))
        rc = failed(d ? to : from, err);
    for (struct dirent *e; rc == 0 && (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        char *a = ckpt_join(from, e->d_name), *b = ckpt_join(to, e->d_name);
        rc = each(a, b, err);
        free(a);
        free(b);
    }
    if (d)
        closedir(d);
    return rc;
}

/* Gives what was copied its name, unless the ranks have written that step there
 * themselves. */
static int publish(const char *temp, const char *dir, int64_t step, struct err *err) {
    char *whole = ckpt_dir_path(dir, CKPT_WHOLE, step);
    int rc = ckpt_sync_dir(temp, err);
    if (rc == 0 && access(whole, F_OK) == 0)
        rc = ckpt_remove_dir(temp, err);
    else if (rc == 0)
        rc = ckpt_rename(temp, whole, err);
    free(whole);
    return rc;
}

static char *temp_of(const char *to) {
    return ckpt_join(to, ".copy-step");
}

int copy_end(const char *to, int64_t step, int64_t keep, struct err *err) {
    struct checkpoint *ck;
    char *temp = temp_of(to);
    /* Only what is whole: a folder that vanished while it was linked lacks files. */
    int rc = checkpoint_open(&ck, temp, err);
    if (rc == 0) {
        checkpoint_close(ck);
        rc = publish(temp, to, step, err);
    }
    if (rc < 0)
        ckpt_remove_dir(temp, NULL);
    free(temp);
    return rc < 0 ? -1 : ckpt_keep_last(to, INT64_MAX, keep, err);
}

static int copy_pinned(const char *pinned, const char *to, int64_t step, int64_t keep,
                       struct err *err) {
    char *temp = temp_of(to);
    int rc = each_file(pinned, temp, copy_file, err);
    if (rc < 0)
        ckpt_remove_dir(temp, NULL);
    free(temp);
    return rc < 0 ? -1 : copy_end(to, step, keep, err);
}

/* ---- of several hosts ---------------------------------------------------------------------- */

int copy_begin(const char *to, struct err *err) {
    char *temp = temp_of(to);
    int rc = ckpt_remove_dir(temp, err);
    if (rc == 0)
        rc = ckpt_make_dirs(temp, err);
    free(temp);
    return rc;
}

static int copy_mine(const char *pinned, const char *temp,
                     bool (*mine)(const void *ctx, const char *name), const void *ctx,
                     struct err *err) {
    DIR *d = opendir(pinned);
    int rc = d ? 0 : failed(pinned, err);
    for (struct dirent *e; rc == 0 && (e = readdir(d));) {
        if (e->d_name[0] == '.' || !mine(ctx, e->d_name))
            continue;
        char *a = ckpt_join(pinned, e->d_name), *b = ckpt_join(temp, e->d_name);
        rc = copy_file(a, b, err);
        free(a);
        free(b);
    }
    if (d)
        closedir(d);
    return rc;
}

int copy_share(const char *from, int64_t step, const char *to,
               bool (*mine)(const void *ctx, const char *name), const void *ctx,
               struct err *err) {
    char *path = ckpt_dir_path(from, CKPT_WHOLE, step), *temp = temp_of(to);
    char *pinned = ckpt_join(from, ".pinned");
    int rc = each_file(path, pinned, link_file, err);
    if (rc == 0)
        rc = copy_mine(pinned, temp, mine, ctx, err);
    ckpt_remove_dir(pinned, NULL);
    free(path);
    free(temp);
    free(pinned);
    return rc;
}

int64_t copy_newest(const char *from, const char *to, int64_t keep, struct err *err) {
    char *path = NULL, *there = NULL, *pinned = ckpt_join(from, ".pinned");
    int64_t step = 0, last = 0;
    int rc = checkpoint_older(from, INT64_MAX, &path, &step, err);
    if (rc > 0 && checkpoint_older(to, INT64_MAX, &there, &last, err) < 0)
        rc = -1;
    if (rc > 0 && step > last) {
        rc = ckpt_make_dirs(to, err);
        if (rc == 0)
            rc = each_file(path, pinned, link_file, err);
        if (rc == 0)
            rc = copy_pinned(pinned, to, step, keep, err);
        ckpt_remove_dir(pinned, NULL);
    } else {
        step = 0;
    }
    free(path);
    free(there);
    free(pinned);
    return rc < 0 ? -1 : step;
}
