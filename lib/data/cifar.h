/* cifar.h - the binary files of CIFAR-10 (private to lib/data).
 *
 * A file is records of 3073 bytes: the label, then 32x32 red, green and blue values, each row by row.
 * Images are read with their channels last, as all images are: rows, columns, channels.
 *
 *     struct cifar_set set;
 *     if (cifar_open(&set, "data_batch_1.bin,data_batch_2.bin", 10, &err) < 0) ...
 *     if (cifar_read(&set, i, 0, CIFAR_VALUES, bytes, &label, &err) < 0) ...
 *     cifar_close(&set);
 */
#ifndef WEFT_CIFAR_H
#define WEFT_CIFAR_H

#include "common/err.h"
#include "data/datafile.h"

#include <stdint.h>

enum {
    CIFAR_SIDE = 32,
    CIFAR_CHANNELS = 3,
    CIFAR_PIXELS = CIFAR_SIDE * CIFAR_SIDE,
    CIFAR_VALUES = CIFAR_PIXELS * CIFAR_CHANNELS,
    CIFAR_RECORD = 1 + CIFAR_VALUES, /* bytes */
};

struct cifar_shard {
    struct datafile file;
    int64_t begin; /* number of its first image in the set */
};
struct cifar_set {
    struct cifar_shard *shard; /* owned */
    int64_t shards, items;     /* files; images of all of them */
    int64_t classes;           /* all labels are below */
};

/* Opens FILE or FILE,FILE,... and checks all labels. Returns 0, or -1 closed. */
int cifar_open(struct cifar_set *set, const char *source, int64_t classes, struct err *err);
void cifar_close(struct cifar_set *set); /* a zeroed one is fine */

/* Bytes [first, first+count) of an image, as rows, columns, channels, or bytes NULL; its label, or NULL. Returns 0, or -1 (EXIT_SYSTEM) where a file cannot be read any more or was changed. */
int cifar_read(const struct cifar_set *set, int64_t item, int64_t first, int64_t count,
               unsigned char *bytes, int32_t *label, struct err *err);

/* Adds to *hash what the files hold, as datafile_hash. Returns 0 or -1. */
int cifar_hash(const struct cifar_set *set, uint64_t *hash, struct err *err);

#endif
