/* stset.h - tensors that other programs wrote: one safetensors file, or several with an index.
 *
 *     PATH.safetensors
 *     DIR/model.safetensors
 *     DIR/model.safetensors.index.json     {"weight_map": {TENSOR: FILE, ...}, ...}
 *
 * Files are mapped, so that a tensor of which nobody asks costs nothing. A view says where the
 * elements of a dense array lie in a tensor: permuted, merged with others, or a part of it.
 *
 *     if (st_set_open(&set, "gpt2/", &err) < 0) ...
 *     const struct st_entry *e = st_set_find(&set, "wte.weight");        // NULL: not there
 *     struct st_view all = {.dims = 2, .size = {4, 8}, .stride = {1, 4}}; // transposed
 *     st_view_get(e, &all, out);
 *     st_set_close(&set);
 */
#ifndef WEFT_STSET_H
#define WEFT_STSET_H

#include "checkpoint/safetensors.h"
#include "common/json.h"

#include <stdbool.h>

struct st_entry {
    const struct st_tensor *tensor;
    const struct st_file *file;
    const char *path; /* of the file, for messages */
};

struct st_set {
    struct arena arena;
    int64_t files, entries;
    struct st_file *file;
    struct st_entry *entry; /* ordered by name; each name once */
};

/* Opens a file, an index, or a folder that holds one of them. Wrong content is EXIT_INPUT and
 * names the file and the tensor. Returns 0, or -1 with nothing open. */
int st_set_open(struct st_set *set, const char *path, struct err *err);
void st_set_close(struct st_set *set);
/* A tensor by its name, or NULL. */
const struct st_entry *st_set_find(const struct st_set *set, const char *name);
/* Of names, types, shapes and places, not of the values: equal means the same headers. */
uint64_t st_set_hash(const struct st_set *set);

/* The names of the files of an index, each once, in an array of the arena; their number, or -1.
 * They lie in the folder of the index. */
int64_t st_index_files(struct arena *arena, const json_t *index, const char ***files,
                       struct err *err);

/* Element i[] of a dense array is element base + sum of stride[d] * i[d] of the tensor. */
struct st_view {
    int dims;
    int64_t size[ST_DIMS], stride[ST_DIMS], base;
};
/* Can values of this type be read as fp32 without loss? F32, F16, BF16. */
bool st_widens(enum st_dtype dtype);
/* Reads a view of a tensor that widens; out is dense. The view lies inside the tensor. */
void st_view_get(const struct st_entry *e, const struct st_view *v, float *out);
/* Writes one, into a tensor in memory. */
void st_view_put(float *tensor, const struct st_view *v, const float *in);

#endif
