/* idx.h - IDX files, the format of MNIST (private to lib/data).
 *
 * An IDX file is 0 0 TYPE DIMS, DIMS big-endian 32-bit sizes, then the values, row-major.
 * Only TYPE 8 (bytes) is read: images have 3 dims or more (number, rows, columns, ...),
 * labels have 1.
 *
 *     struct image_set set;
 *     if (image_set_open(&set, "train-images-idx3-ubyte", 784, 10, &err) < 0) ...
 *     set.images.values[i * set.images.item + pixel], set.labels.values[i]
 *     image_set_close(&set);
 */
#ifndef WEFT_IDX_H
#define WEFT_IDX_H

#include "common/err.h"
#include "data/filemap.h"

#include <stdint.h>

struct idx {
    const unsigned char *values; /* borrowed */
    int64_t items;               /* size of the first dim, > 0 */
    int64_t item;                /* values of one item: product of the other dims, > 0 */
    int dims;
};

/* Finds and checks the values in the bytes of a file that should hold `what` ("images" or
 * "labels") with min_dims..max_dims dims. Messages begin with the place in the file.
 * Returns 0 or -1 (EXIT_INPUT). */
int idx_parse(struct idx *idx, const unsigned char *bytes, int64_t size, const char *what,
              int min_dims, int max_dims, struct err *err);

/* Images with their labels. */
struct image_set {
    struct filemap image_map, label_map;
    struct idx images, labels; /* as many labels as images */
};

/* Opens IMAGES,LABELS or IMAGES (the other name follows by convention), checks that an
 * image has `pixels` values and all labels are below `classes`. Returns 0, or -1 closed.
 */
int image_set_open(struct image_set *set, const char *source, int64_t pixels,
                   int64_t classes, struct err *err);
void image_set_close(struct image_set *set); /* a zeroed one is fine */

#endif
