/* idx.h - IDX files, the format of MNIST (private to lib/data).
 *
 * An IDX file is 0 0 TYPE DIMS, DIMS big-endian 32-bit sizes, then the values, row-major.
 * Only TYPE 8 (bytes) is read: images have 3 dims or more (number, rows, columns, ...),
 * labels have 1.
 *
 *     struct image_set set;
 *     if (image_set_open(&set, "train-images-idx3-ubyte", 784, 10, &err) < 0) ...
 *     if (image_set_read(&set, i, 0, 784, bytes, &label, &err) < 0) ...
 *     image_set_close(&set);
 */
#ifndef WEFT_IDX_H
#define WEFT_IDX_H

#include "common/err.h"
#include "data/datafile.h"

#include <stdint.h>

enum { IDX_MAX_DIMS = 8, IDX_MAX_HEADER = 4 + 4 * IDX_MAX_DIMS /* bytes */ };

struct idx {
    int64_t offset; /* of the first value, bytes */
    int64_t items;  /* size of the first dim, > 0 */
    int64_t item;   /* values of one item: product of the other dims, > 0 */
    int dims;
    int64_t size[IDX_MAX_DIMS]; /* of all dims */
};

/* Finds the values in a file of `size` bytes that begins with `head` (IDX_MAX_HEADER bytes, or all
 * of a smaller file) and should hold `what` ("images" or "labels") with min_dims..max_dims dims.
 * Messages begin with the place in the file. Returns 0 or -1 (EXIT_INPUT). */
int idx_parse(struct idx *idx, const unsigned char *head, int64_t size, const char *what,
              int min_dims, int max_dims, struct err *err);

/* Images with their labels. */
struct image_set {
    struct datafile image_file, label_file;
    struct idx images, labels; /* as many labels as images */
    int64_t classes;           /* all labels are below */
};

/* Opens IMAGES,LABELS or IMAGES (the other name follows by convention), checks that an
 * image has `pixels` values and all labels are below `classes`. Returns 0, or -1 closed.
 */
int image_set_open(struct image_set *set, const char *source, int64_t pixels,
                   int64_t classes, struct err *err);
void image_set_close(struct image_set *set); /* a zeroed one is fine */

/* Bytes [first, first+count) of an image, or bytes NULL; its label, or NULL. Returns 0, or -1 (EXIT_SYSTEM) where a file cannot be read any more or was changed. */
int image_set_read(const struct image_set *set, int64_t item, int64_t first, int64_t count,
                   unsigned char *bytes, int32_t *label, struct err *err);

/* Adds to *hash what the files hold, as datafile_hash. Returns 0 or -1. */
int image_set_hash(const struct image_set *set, uint64_t *hash, struct err *err);

#endif
