#include "data/filemap.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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

static int map_fd(struct filemap *map, int fd, const char *path, struct err *err) {
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_input(err, "%s: %s", path, strerror(errno));
    if (check_kind(&st, path, err) < 0)
        return -1;
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return err_system(err, "%s: cannot map %lld bytes: %s", path, (long long)st.st_size,
                          strerror(errno));
    *map = (struct filemap){.bytes = p, .size = st.st_size};
    return 0;
}

int filemap_open(struct filemap *map, const char *path, struct err *err) {
    *map = (struct filemap){0};
    /* A pipe without a writer would block open() for ever. */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return err_input(err, "%s: %s", path, strerror(errno));
    int bad = map_fd(map, fd, path, err);
    close(fd);
    if (bad)
        return -1;
    if (map->size >= 3 && !memcmp(map->bytes, "\x1f\x8b\x08", 3)) {
        filemap_close(map);
        err_input(err, "%s: is compressed with gzip", path);
        return err_hint(err, "gunzip it first");
    }
    return 0;
}

void filemap_close(struct filemap *map) {
    if (map->bytes)
        munmap((void *)map->bytes, (size_t)map->size);
    *map = (struct filemap){0};
}
