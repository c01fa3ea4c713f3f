#include "data/cifar.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int check_labels(const struct datafile *f, int64_t classes, struct err *err) {
    for (int64_t at = 0; at < f->size; at += CIFAR_RECORD) {
        unsigned char label;
        if (datafile_read(f, at, 1, &label, err) < 0)
            return -1;
        if (label >= classes)
            return err_input(err,
                             "%s: byte %lld: label %d of image %lld, expected labels below "
                             "the model's %lld classes",
                             f->path, (long long)at, label, (long long)(at / CIFAR_RECORD),
                             (long long)classes);
    }
    return 0;
}

static int add_file(struct cifar_set *set, const char *path, struct err *err) {
    set->shard = mem_grow(set->shard, (size_t)set->shards + 1, sizeof *set->shard);
    struct cifar_shard *s = &set->shard[set->shards++];
    *s = (struct cifar_shard){.begin = set->items};
    if (datafile_open(&s->file, path, err) < 0)
        return -1;
    if (s->file.size % CIFAR_RECORD)
        return err_input(err,
                         "%s: %lld bytes, expected a multiple of %d (images of CIFAR-10)",
                         path, (long long)s->file.size, CIFAR_RECORD);
    set->items += s->file.size / CIFAR_RECORD;
    return check_labels(&s->file, set->classes, err);
}

int cifar_open(struct cifar_set *set, const char *source, int64_t classes,
               struct err *err) {
    *set = (struct cifar_set){.classes = classes};
    struct stat st;
    char *list = mem_strdup(source);
    int rc = 0;
    for (char *path = list, *next; path && rc == 0; path = next) {
        next = stat(source, &st) == 0 ? NULL : strchr(path, ',');
        if (next)
            *next++ = '\0';
        rc = *path ? add_file(set, path, err)
                   : err_input(err, "an empty file name in the list of data files");
    }
    free(list);
    if (rc < 0)
        cifar_close(set);
    return rc;
}

void cifar_close(struct cifar_set *set) {
    for (int64_t i = 0; i < set->shards; i++)
        datafile_close(&set->shard[i].file);
    free(set->shard);
    *set = (struct cifar_set){0};
}

int cifar_read(const struct cifar_set *set, int64_t item, int64_t first, int64_t count,
               unsigned char *bytes, int32_t *label, struct err *err) {
    unsigned char record[CIFAR_RECORD];
    int64_t i = set->shards - 1;
    while (set->shard[i].begin > item)
        i--;
    const struct datafile *f = &set->shard[i].file;
    int64_t at = (item - set->shard[i].begin) * CIFAR_RECORD;
    if (datafile_read(f, at, bytes ? CIFAR_RECORD : 1, record, err) < 0)
        return -1;
    if (record[0] >= set->classes)
        return err_system(err,
                          "%s: changed while in use: byte %lld: label %d, expected "
                          "labels below %lld",
                          f->path, (long long)at, record[0], (long long)set->classes);
    if (label)
        *label = record[0];
    int64_t pixel = first / CIFAR_CHANNELS, channel = first % CIFAR_CHANNELS;
    for (int64_t k = 0; bytes && k < count; k++) {
        bytes[k] = record[1 + channel * CIFAR_PIXELS + pixel];
        channel = channel + 1 < CIFAR_CHANNELS ? channel + 1 : 0;
        pixel += channel == 0;
    }
    return 0;
}

int cifar_hash(const struct cifar_set *set, uint64_t *hash, struct err *err) {
    for (int64_t i = 0; i < set->shards; i++)
        if (datafile_hash(&set->shard[i].file, hash, err) < 0)
            return -1;
    return 0;
}
