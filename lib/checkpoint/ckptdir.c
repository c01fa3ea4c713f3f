#include "checkpoint/ckptdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const prefixes[] = {
    [CKPT_WHOLE] = "step-",
    [CKPT_TEMP] = ".tmp-step-",
    [CKPT_OLD] = ".old-step-",
};

char *ckpt_dir_path(const char *dir, enum ckpt_state state, int64_t step) {
    size_t n = strlen(dir) + 48;
    char *path = mem_alloc(n);
    snprintf(path, n, "%s/%s%08lld", dir, prefixes[state], (long long)step);
    return path;
}

char *ckpt_join(const char *dir, const char *name) {
    size_t n = strlen(dir) + strlen(name) + 2;
    char *path = mem_alloc(n);
    snprintf(path, n, "%s/%s", dir, name);
    return path;
}

/* Reads a name; a foreign one is refused: it must be just what ckpt_dir_path makes. */
static int parse_name(const char *name, struct ckpt_entry *e) {
    for (int s = CKPT_WHOLE; s <= CKPT_OLD; s++) {
        size_t n = strlen(prefixes[s]);
        const char *digits = name + n;
        if (strncmp(name, prefixes[s], n) || strlen(digits) < 8 || strlen(digits) > 18 ||
            strspn(digits, "0123456789") != strlen(digits))
            continue;
        if (digits[0] == '0' && strlen(digits) > 8)
            continue;
        *e = (struct ckpt_entry){(enum ckpt_state)s, strtoll(digits, NULL, 10)};
        return 1;
    }
    return 0;
}

static int compare_entries(const void *a, const void *b) {
    const struct ckpt_entry *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return (int)x->state - (int)y->state;
}

int ckpt_scan(struct ckpt_entries *e, const char *dir, struct err *err) {
    *e = (struct ckpt_entries){0};
    DIR *d = opendir(dir);
    if (!d && errno == ENOENT)
        return 0;
    if (!d)
        return err_input(err, "%s: %s", dir, strerror(errno));
    struct ckpt_entry entry;
    for (struct dirent *de; (de = readdir(d));)
        if (parse_name(de->d_name, &entry))
            arr_push(e, entry);
    closedir(d);
    if (e->n)
        qsort(e->p, (size_t)e->n, sizeof *e->p, compare_entries);
    return 0;
}

int ckpt_make_dirs(const char *path, struct err *err) {
    char *copy = mem_strdup(path);
    int bad = 0;
    for (char *p = copy + 1; !bad; p++) {
        if (*p && *p != '/')
            continue;
        char c = *p;
        *p = '\0';
        bad = mkdir(copy, 0777) < 0 && errno != EEXIST;
        *p = c;
        if (!c)
            break;
    }
    struct stat st;
    if (!bad && stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) {
        bad = 1;
        errno = ENOTDIR;
    }
    if (bad)
        err_system(err, "%s: cannot make the directory: %s", path, strerror(errno));
    free(copy);
    return bad ? -1 : 0;
}

static int remove_failed(const char *path, struct err *err) {
    return err_system(err, "%s: cannot remove: %s", path, strerror(errno));
}

static int remove_content(const char *path, struct err *err) {
    DIR *d = opendir(path);
    if (!d)
        return remove_failed(path, err);
    int bad = 0;
    for (struct dirent *de; !bad && (de = readdir(d));) {
        if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
            continue;
        char *file = ckpt_join(path, de->d_name);
        bad = ckpt_remove_dir(file, err) < 0;
        free(file);
    }
    closedir(d);
    return bad;
}

int ckpt_remove_dir(const char *path, struct err *err) {
    struct stat st;
    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : remove_failed(path, err);
    if (!S_ISDIR(st.st_mode)) /* a link is removed, never followed */
        return unlink(path) < 0 && errno != ENOENT ? remove_failed(path, err) : 0;
    if (remove_content(path, err) < 0)
        return -1;
    return rmdir(path) < 0 && errno != ENOENT ? remove_failed(path, err) : 0;
}

int ckpt_sync_dir(const char *path, struct err *err) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* Some network file systems cannot sync a directory (EINVAL): rename has to do. */
    int bad = fd < 0 || (fsync(fd) < 0 && errno != EINVAL);
    if (bad)
        err_system(err, "%s: cannot sync: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return bad ? -1 : 0;
}

int ckpt_rename(const char *from, const char *to, struct err *err) {
    if (rename(from, to) < 0)
        return err_system(err, "%s: cannot rename to %s: %s", from, to, strerror(errno));
    char *parent = mem_strdup(to);
    char *slash = strrchr(parent, '/');
    if (slash)
        *slash = '\0';
    int bad = ckpt_sync_dir(slash ? (*parent ? parent : "/") : ".", err);
    free(parent);
    return bad;
}

/* Removes a checkpoint in one step as far as readers see. */
static int retire(const char *dir, int64_t step, struct err *err) {
    char *whole = ckpt_dir_path(dir, CKPT_WHOLE, step);
    char *temp = ckpt_dir_path(dir, CKPT_TEMP, step);
    int bad = ckpt_rename(whole, temp, err) < 0 || ckpt_remove_dir(temp, err) < 0;
    free(whole);
    free(temp);
    return bad ? -1 : 0;
}

int ckpt_keep_last(const char *dir, int64_t step, int64_t keep, struct err *err) {
    struct ckpt_entries e;
    if (keep == 0)
        return 0;
    if (ckpt_scan(&e, dir, err) < 0)
        return -1;
    int bad = 0;
    int64_t kept = 0;
    for (int64_t i = e.n - 1; !bad && i >= 0; i--)
        if (e.p[i].state == CKPT_WHOLE &&
            (keep < 0 ? e.p[i].step != step : e.p[i].step <= step && kept++ >= keep))
            bad = retire(dir, e.p[i].step, err);
    arr_release(&e);
    return bad;
}
