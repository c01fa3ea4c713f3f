#include "common/file.h"

#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *shown_name(const char *path) {
    return strcmp(path, "-") ? path : "standard input";
}

/* Grows as it reads: a pipe does not say how much comes. */
char *file_read(const char *path, size_t max_bytes, size_t *size, struct err *err) {
    if (!max_bytes)
        max_bytes = (size_t)1 << 30;
    FILE *f = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    if (!f) {
        err_input(err, "%s: %s", path, strerror(errno));
        return NULL;
    }
    size_t cap = 1 << 14, n = 0;
    char *buf = mem_alloc(cap);
    for (size_t got; (got = fread(buf + n, 1, cap - n - 1, f)) > 0;) {
        n += got;
        if (n > max_bytes)
            break;
        if (cap - n < 2)
            buf = mem_grow(buf, cap *= 2, 1);
    }
    int failed = ferror(f), code = errno;
    if (f != stdin)
        fclose(f);
    if (failed || n > max_bytes) {
        free(buf);
        if (failed)
            err_input(err, "%s: %s", shown_name(path), strerror(code));
        else
            err_input(err, "%s: larger than %zu bytes", shown_name(path), max_bytes);
        return NULL;
    }
    buf[n] = '\0';
    if (size)
        *size = n;
    return buf;
}

/* Where symbolic links lead: what replaces a file must not replace the link to it. A link that leads
 * to nothing names the file that is to be made. free() it. */
static char *follow_links(const char *path) {
    enum { MOST_LINKS = 40 }; /* as many as Linux follows */
    char *name = mem_strdup(path);
    struct stat st;
    for (int i = 0; i < MOST_LINKS && lstat(name, &st) == 0 && S_ISLNK(st.st_mode); i++) {
        char to[PATH_MAX];
        ssize_t n = readlink(name, to, sizeof to - 1);
        if (n < 0)
            break;
        to[n] = '\0';
        const char *slash = to[0] == '/' ? NULL : strrchr(name, '/');
        size_t folder = slash ? (size_t)(slash - name) + 1 : 0;
        char *next = mem_alloc(folder + (size_t)n + 1);
        memcpy(next, name, folder);
        memcpy(next + folder, to, (size_t)n);
        free(name);
        name = next;
    }
    return name;
}

/* What replaces a file needs leave to write into its folder, not into the file. */
int file_out_check(const char *path, struct err *err) {
    if (!strcmp(path, "-"))
        return 0;
    char *folder = follow_links(path), *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0'; /* "/x" stands in "/" */
    struct stat st;
    int bad = access(slash ? folder : ".", W_OK | X_OK) < 0;
    int code = errno;
    if (!bad && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        bad = 1;
        code = EISDIR;
    }
    free(folder);
    return bad ? err_system(err, "%s: cannot write: %s", path, strerror(code)) : 0;
}

/* A fresh file of this name, which nobody else has made, with the permissions of the file that it is
 * to replace (mode 0: none). */
static FILE *fresh_file(const char *name, mode_t mode) {
    unlink(name); /* what a process of this number left behind */
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode ? 0600 : 0666);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "wb");
    /* Not all file systems have permissions: those that do not lose none. */
    if (f && mode && fchmod(fd, mode & 0777) < 0)
        errno = 0;
    return f;
}

int file_out_open(struct file_out *out, const char *path, struct err *err) {
    *out = (struct file_out){0};
    if (!strcmp(path, "-")) {
        out->f = stdout;
        return 0;
    }
    struct stat st;
    bool there = stat(path, &st) == 0;
    out->path = follow_links(path);
    /* A device or a pipe is written to, never replaced. */
    if (!there || S_ISREG(st.st_mode)) {
        size_t n = strlen(out->path) + 32;
        out->temp = mem_alloc(n);
        snprintf(out->temp, n, "%s.tmp.%ld", out->path, (long)getpid());
        out->f = fresh_file(out->temp, there ? st.st_mode : 0);
    } else {
        out->f = fopen(out->path, "wb");
    }
    if (!out->f) {
        int code = errno;
        file_out_abort(out);
        return err_system(err, "%s: cannot write: %s", path, strerror(code));
    }
    return 0;
}

int file_stdout_check(struct err *err) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    /* An earlier write failed: its reason is gone. */
    return err_system(err, "standard output: %s", errno ? strerror(errno) : "cannot write");
}

/* The data is on the disk before the name is, so that a crash leaves the old file or the new
 * one. */
int file_out_close(struct file_out *out, struct err *err) {
    if (!out->path)
        return file_stdout_check(err);
    int bad = fflush(out->f) || ferror(out->f) || (out->temp && fsync(fileno(out->f)));
    int code = errno;
    bad |= fclose(out->f);
    out->f = NULL;
    if (!bad && out->temp && rename(out->temp, out->path)) {
        bad = 1;
        code = errno;
    }
    if (bad)
        err_system(err, "%s: cannot write: %s", out->path, strerror(code));
    if (bad && out->temp)
        unlink(out->temp);
    free(out->path);
    free(out->temp);
    *out = (struct file_out){0};
    return bad ? -1 : 0;
}

void file_out_abort(struct file_out *out) {
    if (out->path && out->f) {
        fclose(out->f);
        if (out->temp)
            unlink(out->temp);
    }
    free(out->path);
    free(out->temp);
    *out = (struct file_out){0};
}
