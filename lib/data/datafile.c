#define _XOPEN_SOURCE 700 /* pread */
#include "data/datafile.h"

#include "common/mem.h"
#include "common/rng.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SAMPLES = 256 }; /* chunks that the hash of a large file takes: 16 MiB in all */

static int check_kind(const struct stat *st, const char *path, struct err *err) {
    if (S_ISDIR(st->st_mode)) {
        err_input(err, "%s: is a directory, expected a file", path);
        return err_hint(err, "several files are given as FILE,FILE,...");
    }
    if (!S_ISREG(st->st_mode))
        return err_input(err, "%s: expected a regular file", path);
    if (st->st_size == 0)
        return err_input(err, "%s: is empty", path);
    return 0;
}

/* Finds out early what would be read as nonsense. */
static int check_open(struct datafile *file, struct err *err) {
    struct stat st;
    unsigned char head[3];
    if (fstat(file->fd, &st) < 0)
        return err_input(err, "%s: %s", file->path, strerror(errno));
    if (check_kind(&st, file->path, err) < 0)
        return -1;
    file->size = st.st_size;
    if (file->size < (int64_t)sizeof head)
        return 0;
    if (datafile_read(file, 0, sizeof head, head, err) < 0)
        return -1;
    if (memcmp(head, "\x1f\x8b\x08", sizeof head) != 0)
        return 0;
    err_input(err, "%s: is compressed with gzip", file->path);
    return err_hint(err, "gunzip it first");
}

int datafile_open(struct datafile *file, const char *path, struct err *err) {
    *file = (struct datafile){0};
    /* A pipe without a writer would block open() forever. */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return err_input(err, "%s: %s", path, strerror(errno));
    *file = (struct datafile){.path = mem_strdup(path), .fd = fd};
    if (check_open(file, err) < 0) {
        datafile_close(file);
        return -1;
    }
    return 0;
}

void datafile_close(struct datafile *file) {
    if (file->path)
        close(file->fd);
    free(file->path);
    *file = (struct datafile){0};
}

int datafile_read(const struct datafile *file, int64_t at, int64_t n, void *out,
                  struct err *err) {
    for (char *p = out; n > 0;) {
        ssize_t got = pread(file->fd, p, (size_t)n, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_system(err, "%s: byte %lld: %s", file->path, (long long)at,
                              strerror(errno));
        if (got == 0)
            return err_system(err,
                              "%s: nothing at byte %lld; it had %lld when it was opened",
                              file->path, (long long)at, (long long)file->size);
        p += got;
        at += got;
        n -= got;
    }
    return 0;
}

/* The size and at most SAMPLES chunks, evenly spread: large files are not read whole. */
int datafile_hash(const struct datafile *file, uint64_t *hash, struct err *err) {
    static const int64_t chunk = DATAFILE_CHUNK;
    int64_t chunks = (file->size + chunk - 1) / chunk;
    int64_t taken = chunks < SAMPLES ? chunks : SAMPLES;
    unsigned char *bytes = mem_alloc(DATAFILE_CHUNK);
    uint64_t h = hash_bytes(&file->size, sizeof file->size, *hash);
    int rc = 0;
    for (int64_t i = 0; i < taken && rc == 0; i++) { /* the first and the last are in */
        int64_t at = (taken == 1 ? 0 : i * (chunks - 1) / (taken - 1)) * chunk;
        int64_t n = file->size - at < chunk ? file->size - at : chunk;
        rc = datafile_read(file, at, n, bytes, err);
        h = hash_bytes(bytes, (size_t)n, h);
    }
    free(bytes);
    *hash = h;
    return rc;
}
