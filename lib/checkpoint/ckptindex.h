/* ckptindex.h - the index of a checkpoint in memory (private to lib/checkpoint).
 *
 * The writer builds it from the ranks' reports, the reader from index.json; both run the
 * same check: every piece lies inside its file and its tensor, and the pieces of a tensor
 * cover each of its elements exactly once.
 *
 *     struct ckpt_index ix = {0};
 *     if (ckpt_index_add_report(&ix, step, text, &err) < 0 ||
 *         ckpt_index_check(&ix, &err) < 0) ...
 *     json_t *doc = ckpt_index_json(&ix, &info);
 *     ckpt_index_release(&ix);
 */
#ifndef WEFT_CKPTINDEX_H
#define WEFT_CKPTINDEX_H

#include "checkpoint/checkpoint.h"
#include "common/json.h"
#include "common/mem.h"

#include <stdbool.h>
#include <stdint.h>

#define CKPT_FORMAT "weft-checkpoint/2"

struct ckpt_file {
    const char *name; /* no path: "rank-0003.safetensors" */
    int64_t bytes;
    uint64_t hash; /* XXH64 of the whole file */
};

struct ckpt_piece {
    enum checkpoint_kind kind;
    const char *name;
    struct checkpoint_box box;
    int64_t file;   /* index in files */
    int64_t offset; /* byte in the file of its first element */
};

/* Pieces [begin, begin+count) make up one tensor. */
struct ckpt_tensor {
    enum checkpoint_kind kind;
    const char *name;
    struct checkpoint_box box; /* the whole tensor */
    int64_t begin, count;
};

struct ckpt_index {
    struct arena arena; /* holds all names */
    ARR(struct ckpt_file) files;
    ARR(struct ckpt_piece) pieces;   /* ordered by kind, name, first[] after the check */
    ARR(struct ckpt_tensor) tensors; /* ordered by kind, name; made by the check */
};

/* Text for a rank's report: file (bytes, hash) and its pieces with their offsets. Fresh.
 * */
char *ckpt_report_text(int64_t step, const struct ckpt_file *file,
                       const struct checkpoint_piece *pieces, const int64_t *offsets,
                       int64_t n);

/* Adds what a report tells. Returns 0 or -1. */
int ckpt_index_add_report(struct ckpt_index *ix, int64_t step, const char *text,
                          struct err *err);

/* Sorts the pieces, finds the tensors, checks bounds and coverage. Returns 0 or -1. */
int ckpt_index_check(struct ckpt_index *ix, struct err *err);

/* The document of a checked index, with its checksum; the caller owns the reference. */
json_t *ckpt_index_json(const struct ckpt_index *ix, const struct checkpoint_info *info);

/* Reads a document into an empty index and checks it; the texts of info lie in the index's
 * arena. Messages begin with the key. Returns 0 or -1 (call release either way). */
int ckpt_index_read(struct ckpt_index *ix, struct checkpoint_info *info, const json_t *doc,
                    struct err *err);
void ckpt_index_release(struct ckpt_index *ix);

/* A tensor by kind and name, or NULL. */
const struct ckpt_tensor *ckpt_index_find(const struct ckpt_index *ix,
                                          enum checkpoint_kind kind, const char *name);

/* Whether a box is well formed and inside its tensor; its elements through *count. */
int ckpt_box_check(const struct checkpoint_box *box, int64_t *count, struct err *err);

/* The elements that two boxes of one tensor share: false when there are none. */
bool ckpt_box_meet(const struct checkpoint_box *a, const struct checkpoint_box *b,
                   struct checkpoint_box *both);

/* Whether a name may stand in a checkpoint: 1..200 of [A-Za-z0-9._-]. */
bool ckpt_name_good(const char *name);

/* "param/wte.weight[0:512,0:64]", without brackets for a whole tensor; in arena. */
char *ckpt_slice_name(struct arena *arena, enum checkpoint_kind kind, const char *name,
                      const struct checkpoint_box *box);

#endif
