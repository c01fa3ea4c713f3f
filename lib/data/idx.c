#include "data/idx.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { IDX_BYTES = 8 /* type code of unsigned bytes */, CHUNK = 4096 };

static int64_t load_be32(const unsigned char *p) {
    return (int64_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
}

/* Two zeros, the type of the values, the number of dims. */
static int parse_magic(const unsigned char *bytes, int64_t size, const char *what,
                       int min_dims, int max_dims, struct err *err) {
    if (size < 4)
        return err_input(err, "%lld bytes, too short for an IDX file", (long long)size);
    if (bytes[0] || bytes[1])
        return err_input(err,
                         "byte 0: expected the magic number of an IDX file of %s "
                         "(0x%08x), got 0x%02x%02x%02x%02x",
                         what, IDX_BYTES << 8 | min_dims, bytes[0], bytes[1], bytes[2],
                         bytes[3]);
    if (bytes[2] != IDX_BYTES)
        return err_input(err, "byte 2: expected values of type 8 (bytes), got type %d",
                         bytes[2]);
    if (bytes[3] < min_dims || bytes[3] > max_dims)
        return err_input(err, "byte 3: %d dims, expected an IDX file of %s (%d%s)",
                         bytes[3], what, min_dims, max_dims > min_dims ? " or more" : "");
    return 0;
}

/* The header is believed only if it adds up to the size of the file. */
int idx_parse(struct idx *idx, const unsigned char *head, int64_t size, const char *what,
              int min_dims, int max_dims, struct err *err) {
    if (max_dims > IDX_MAX_DIMS)
        max_dims = IDX_MAX_DIMS;
    if (parse_magic(head, size, what, min_dims, max_dims, err) < 0)
        return -1;
    int dims = head[3];
    int64_t header = 4 + 4 * dims, total = 1;
    if (size < header)
        return err_input(err, "%lld bytes, but the header alone takes %lld",
                         (long long)size, (long long)header);
    for (int d = 0; d < dims; d++) {
        int64_t n = idx->size[d] = load_be32(head + 4 + 4 * d);
        if (n == 0)
            return err_input(err, "byte %d: size 0 of dim %d, expected %s", 4 + 4 * d, d,
                             what);
        if (__builtin_mul_overflow(total, n, &total))
            return err_input(err, "byte %d: the sizes of the dims overflow", 4 + 4 * d);
    }
    if (size - header != total)
        return err_input(err, "%s: the header says %lld bytes of %s, the file holds %lld",
                         size - header < total ? "truncated" : "too long", (long long)total,
                         what, (long long)(size - header));
    idx->offset = header;
    idx->items = idx->size[0];
    idx->item = total / idx->items;
    idx->dims = dims;
    return 0;
}

/* Replaces the last `from` in the name by `to` (not longer). */
static int replace_last(char *name, const char *from, const char *to) {
    char *found = NULL;
    for (char *p = name; (p = strstr(p, from)); p++)
        found = p;
    if (!found)
        return -1;
    memcpy(found, to, strlen(to));
    return 0;
}

/* "train-images-idx3-ubyte" to "train-labels-idx1-ubyte"; NULL when it is not such a
 * name. */
static char *labels_by_convention(const char *images) {
    char *path = mem_strdup(images);
    char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (replace_last(name, "images", "labels") < 0) {
        free(path);
        return NULL;
    }
    char dims[] = "idx0";
    for (dims[3] = '3'; dims[3] < '9'; dims[3]++)
        if (replace_last(name, dims, "idx1") == 0)
            break;
    return path;
}

/* Splits a source into its two paths, both fresh. */
static int split_source(const char *source, char **images, char **labels, struct err *err) {
    struct stat st;
    const char *comma = strchr(source, ',');
    *images = mem_strdup(source);
    if (comma && stat(source, &st) != 0) {
        (*images)[comma - source] = '\0';
        *labels = mem_strdup(comma + 1);
        return 0;
    }
    *labels = labels_by_convention(source);
    if (*labels)
        return 0;
    free(*images);
    err_input(err, "%s: the name of the labels file does not follow from this name",
              source);
    err_hint(err, "give both: IMAGES,LABELS");
    return -1;
}

static int open_idx(struct datafile *file, struct idx *idx, const char *path,
                    const char *what, int min_dims, int max_dims, struct err *err) {
    unsigned char head[IDX_MAX_HEADER];
    if (datafile_open(file, path, err) < 0)
        return -1;
    int64_t n = file->size < IDX_MAX_HEADER ? file->size : IDX_MAX_HEADER;
    if (datafile_read(file, 0, n, head, err) < 0)
        return -1;
    if (idx_parse(idx, head, file->size, what, min_dims, max_dims, err) < 0)
        return err_prefix(err, "%s", path);
    return 0;
}

static int open_images(struct image_set *set, const char *path, int64_t pixels,
                       struct err *err) {
    if (open_idx(&set->image_file, &set->images, path, "images", 3, IDX_MAX_DIMS, err) < 0)
        return -1;
    if (set->images.item != pixels)
        return err_input(err, "%s: images of %lld values, the model reads %lld", path,
                         (long long)set->images.item, (long long)pixels);
    return 0;
}

/* All of them are looked at once, a chunk at a time. */
static int check_labels(const struct image_set *set, const char *path, struct err *err) {
    const struct idx *labels = &set->labels;
    unsigned char chunk[CHUNK];
    if (labels->items != set->images.items)
        return err_input(err, "%s: %lld labels for %lld images", path,
                         (long long)labels->items, (long long)set->images.items);
    for (int64_t at = 0, n; at < labels->items; at += n) {
        n = labels->items - at < CHUNK ? labels->items - at : CHUNK;
        if (datafile_read(&set->label_file, labels->offset + at, n, chunk, err) < 0)
            return -1;
        for (int64_t i = 0; i < n; i++)
            if (chunk[i] >= set->classes)
                return err_input(
                    err,
                    "%s: byte %lld: label %d of image %lld, expected labels below "
                    "the model's %lld classes",
                    path, (long long)(labels->offset + at + i), chunk[i],
                    (long long)(at + i), (long long)set->classes);
    }
    return 0;
}

static int open_labels(struct image_set *set, const char *path, struct err *err) {
    if (open_idx(&set->label_file, &set->labels, path, "labels", 1, 1, err) < 0)
        return -1;
    return check_labels(set, path, err);
}

int image_set_open(struct image_set *set, const char *source, int64_t pixels,
                   int64_t classes, struct err *err) {
    *set = (struct image_set){.classes = classes};
    char *images, *labels;
    if (split_source(source, &images, &labels, err) < 0)
        return -1;
    int bad =
        open_images(set, images, pixels, err) < 0 || open_labels(set, labels, err) < 0;
    free(images);
    free(labels);
    if (bad)
        image_set_close(set);
    return bad ? -1 : 0;
}

void image_set_close(struct image_set *set) {
    datafile_close(&set->image_file);
    datafile_close(&set->label_file);
    *set = (struct image_set){0};
}

static int read_label(const struct image_set *set, int64_t item, int32_t *label,
                      struct err *err) {
    unsigned char byte;
    int64_t at = set->labels.offset + item;
    if (datafile_read(&set->label_file, at, 1, &byte, err) < 0)
        return -1;
    if (byte >= set->classes)
        return err_system(err,
                          "%s: changed while in use: byte %lld: label %d, "
                          "expected labels below %lld",
                          set->label_file.path, (long long)at, byte,
                          (long long)set->classes);
    *label = byte;
    return 0;
}

int image_set_read(const struct image_set *set, int64_t item, int64_t first, int64_t count,
                   unsigned char *bytes, int32_t *label, struct err *err) {
    int64_t begin = set->images.offset + item * set->images.item + first;
    if (label && read_label(set, item, label, err) < 0)
        return -1;
    return bytes ? datafile_read(&set->image_file, begin, count, bytes, err) : 0;
}

int image_set_hash(const struct image_set *set, uint64_t *hash, struct err *err) {
    return datafile_hash(&set->image_file, hash, err) < 0 ||
                   datafile_hash(&set->label_file, hash, err) < 0
               ? -1
               : 0;
}
