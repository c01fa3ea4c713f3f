/* The central directory of a zip archive, and what it says of each entry. */
#include "import/archive.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    CENTRAL_BYTES = 46,
    LOCAL_BYTES = 30,
    COMMENT_MOST = 65535,
    MOST_ENTRIES = 1 << 20,
};

static uint64_t le(const uint8_t *p, int bytes) {
    uint64_t v = 0;
    for (int i = bytes; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

static bool begins(const uint8_t *p, const char *magic) {
    return !memcmp(p, magic, 4);
}

struct directory {
    uint64_t at, bytes, entries;
};

/* In archives of more than 4 GiB the end says so by numbers of all ones, and a second end stands
 * before it. */
static int read_end64(const struct archive *a, int64_t end, struct directory *d,
                      struct err *err) {
    const uint8_t *locator = a->bytes + end - LOCATOR_BYTES;
    if (end < LOCATOR_BYTES || !begins(locator, "PK\6\7"))
        return err_input(err, "damaged: the end of a large archive is missing");
    uint64_t at = le(locator + 8, 8);
    if (at > (uint64_t)end || (uint64_t)end - at < END64_BYTES ||
        !begins(a->bytes + at, "PK\6\6"))
        return err_input(err, "damaged: the end of a large archive is not where it says");
    const uint8_t *p = a->bytes + at;
    *d = (struct directory){le(p + 48, 8), le(p + 40, 8), le(p + 32, 8)};
    return 0;
}

static int find_directory(const struct archive *a, struct directory *d, struct err *err) {
    int64_t end = a->size - END_BYTES,
            least = end - COMMENT_MOST > 0 ? end - COMMENT_MOST : 0;
    while (end >= least && !begins(a->bytes + end, "PK\5\6"))
        end--;
    if (end < least)
        return err_input(
            err, "expected a zip archive, whose end is missing: damaged or cut off");
    const uint8_t *p = a->bytes + end;
    *d = (struct directory){le(p + 16, 4), le(p + 12, 4), le(p + 10, 2)};
    if ((d->at == UINT32_MAX || d->bytes == UINT32_MAX || d->entries == UINT16_MAX) &&
        read_end64(a, end, d, err) < 0)
        return -1;
    if (d->at > (uint64_t)end || d->bytes > (uint64_t)end - d->at)
        return err_input(err, "damaged: the directory lies beyond the end");
    if (d->entries > MOST_ENTRIES)
        return err_input(err, "expected at most %d entries, got %llu", MOST_ENTRIES,
                         (unsigned long long)d->entries);
    return 0;
}

/* The numbers that did not fit into 32 bits, in the order in which they stand in the extra field. */
static int read_extra64(const uint8_t *p, uint64_t n, uint64_t *const wanted[3],
                        const char *name, struct err *err) {
    for (; n >= 4; n -= 4 + le(p + 2, 2), p += 4 + le(p + 2, 2)) {
        uint64_t bytes = le(p + 2, 2), at = 0;
        if (bytes > n - 4)
            break;
        if (le(p, 2) != 1)
            continue;
        for (int i = 0; i < 3; i++)
            if (*wanted[i] == UINT32_MAX) {
                if (bytes - at < 8)
                    break;
                *wanted[i] = le(p + 4 + at, 8);
                at += 8;
            }
        return 0;
    }
    return err_input(err, "%.64s: damaged: its size is missing", name);
}

/* Where the bytes of an entry begin: behind a header of its own. */
static int find_bytes(const struct archive *a, uint64_t header, uint64_t packed,
                      struct archive_entry *e, struct err *err) {
    uint64_t size = (uint64_t)a->size;
    if (header > size || size - header < LOCAL_BYTES ||
        !begins(a->bytes + header, "PK\3\4"))
        return err_input(err, "%.64s: damaged: no entry is where the directory says",
                         e->name);
    const uint8_t *p = a->bytes + header;
    uint64_t at = header + LOCAL_BYTES + le(p + 26, 2) + le(p + 28, 2);
    if (at > size || packed > size - at)
        return err_input(err, "%.64s: damaged: it reaches beyond the end", e->name);
    e->bytes = a->bytes + at;
    return 0;
}

/* One record of the directory, of at most n bytes; *used gets how many. */
static int read_entry(struct archive *a, const uint8_t *p, uint64_t n, uint64_t *used,
                      struct err *err) {
    if (n < CENTRAL_BYTES || !begins(p, "PK\1\2"))
        return err_input(err, "damaged: the directory ends after %lld entries",
                         (long long)a->entries.n);
    uint64_t name = le(p + 28, 2), extra = le(p + 30, 2);
    *used = CENTRAL_BYTES + name + extra + le(p + 32, 2);
    if (*used > n)
        return err_input(err, "damaged: the directory ends after %lld entries",
                         (long long)a->entries.n);
    char *text = arena_alloc(&a->arena, name + 1);
    memcpy(text, p + CENTRAL_BYTES, name);
    const char *folder = strchr(text, '/');
    uint64_t packed = le(p + 20, 4), size = le(p + 24, 4), header = le(p + 42, 4);
    uint64_t *const wanted[] = {&size, &packed, &header};
    struct archive_entry e = {.name = folder ? folder + 1 : text,
                              .crc = (uint32_t)le(p + 16, 4)};
    if ((packed == UINT32_MAX || size == UINT32_MAX || header == UINT32_MAX) &&
        read_extra64(p + CENTRAL_BYTES + name, extra, wanted, e.name, err) < 0)
        return -1;
    e.stored = le(p + 10, 2) == 0 && !(le(p + 8, 2) & 1) && packed == size;
    e.size = (int64_t)size;
    if (find_bytes(a, header, packed, &e, err) < 0)
        return -1;
    arr_push(&a->entries, e);
    return 0;
}

static int read_directory(struct archive *a, struct err *err) {
    struct directory d = {0};
    if (find_directory(a, &d, err) < 0)
        return -1;
    const uint8_t *p = a->bytes + d.at;
    for (uint64_t i = 0, used = 0; i < d.entries; i++, p += used, d.bytes -= used)
        if (read_entry(a, p, d.bytes, &used, err) < 0)
            return -1;
    return 0;
}

int archive_parse(struct archive *a, const void *bytes, int64_t size, struct err *err) {
    *a = (struct archive){.bytes = bytes, .size = size};
    if (read_directory(a, err) == 0)
        return 0;
    archive_close(a);
    return -1;
}

int archive_open(struct archive *a, const char *path, struct err *err) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        err_system(err, "cannot be read");
        if (fd >= 0)
            close(fd);
        return -1;
    }
    void *bytes = S_ISREG(st.st_mode) && st.st_size > 0
                      ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0)
                      : MAP_FAILED;
    close(fd);
    if (bytes == MAP_FAILED)
        return err_input(err, "expected a zip archive");
    *a = (struct archive){.bytes = bytes, .size = st.st_size, .mapped = true};
    if (read_directory(a, err) == 0)
        return 0;
    archive_close(a);
    return -1;
}

void archive_close(struct archive *a) {
    if (a->mapped)
        munmap((void *)(uintptr_t)a->bytes, (size_t)a->size);
    arena_release(&a->arena);
    arr_release(&a->entries);
    *a = (struct archive){0};
}

bool archive_is(const char *path) {
    char begin[4] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool is =
        fd >= 0 && read(fd, begin, 4) == 4 && begins((const uint8_t *)begin, "PK\3\4");
    if (fd >= 0)
        close(fd);
    return is;
}

const struct archive_entry *archive_find(const struct archive *a, const char *name) {
    for (int64_t i = 0; i < a->entries.n; i++)
        if (!strcmp(a->entries.p[i].name, name))
            return &a->entries.p[i];
    return NULL;
}

const struct archive_entry *archive_match(const struct archive *a, const char *begin,
                                          const char *end) {
    const struct archive_entry *found = NULL;
    size_t nb = strlen(begin), ne = strlen(end);
    for (int64_t i = 0; i < a->entries.n; i++) {
        const char *name = a->entries.p[i].name;
        size_t n = strlen(name);
        if (n < nb + ne || strncmp(name, begin, nb) != 0 || strcmp(name + n - ne, end) != 0)
            continue;
        if (found)
            return NULL;
        found = &a->entries.p[i];
    }
    return found;
}

/* CRC-32 as in zip (reflected, 0xEDB88320), four bits at a time. */
static uint32_t crc32_of(const uint8_t *p, int64_t n) {
    uint32_t table[16], crc = UINT32_MAX;
    for (uint32_t i = 0; i < 16; i++) {
        table[i] = i;
        for (int bit = 0; bit < 4; bit++)
            table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xEDB88320u : 0);
    }
    for (int64_t i = 0; i < n; i++) {
        crc ^= p[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

int archive_check(const struct archive_entry *e, struct err *err) {
    if (!e->stored) {
        err_input(err, "%.64s: it is compressed; expected it stored, as torch writes it",
                  e->name);
        return err_hint(err, "unpack the archive, then: zip -0 -r FILE.pt2 FOLDER");
    }
    if (crc32_of(e->bytes, e->size) != e->crc)
        return err_input(err, "%.64s: damaged: its checksum is another", e->name);
    return 0;
}
