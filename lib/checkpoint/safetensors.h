/* safetensors.h - files of named tensors in the safetensors format.
 *
 *     8 bytes   size of the header, little-endian
 *     header    JSON: {NAME: {"dtype", "shape", "data_offsets": [begin, end]}, ...} with
 *               "__metadata__": {TEXT: TEXT} optional; may end in blanks
 *     data      the tensors, row-major, little-endian, without holes
 *
 * The reader trusts nothing: an opened header has only tensors that lie inside the file,
 * do not overlap and leave no hole, with unique names and sizes that fit shape and type.
 * Writers copy no tensor, and write F32: one in a stream, the other (st_write) all at once, by several
 * threads.
 *
 *     struct st_tensor t[] = {{.name = "w", .dtype = ST_F32, .dims = 2, .shape = {4, 8}}};
 *     if (st_create(&w, "a.safetensors", t, 1, NULL, &err) < 0 ||      // offsets now in t
 *         st_append(&w, data, 4 * 8 * sizeof(float), &err) < 0 ||
 *         st_finish(&w, &bytes, &hash, &err) < 0) ...
 *
 *     if (st_open(&file, "a.safetensors", &err) < 0) ...
 *     memcpy(out, file.bytes + file.tensor[0].offset, file.tensor[0].bytes);
 *     st_close(&file);
 */
#ifndef WEFT_SAFETENSORS_H
#define WEFT_SAFETENSORS_H

#include "checkpoint/bulk.h"
#include "checkpoint/xxh64.h"
#include "common/err.h"
#include "common/mem.h"

#include <stdint.h>
#include <stdio.h>

#define ST_DIMS       8                        /* dims of a tensor at most */
#define ST_HEADER_MAX (INT64_C(100) * 1000000) /* bytes of JSON; limit of the format */

/* Types of the format: name, bytes of an element. */
#define ST_DTYPES(X)                                                                       \
    X(F64, 8)                                                                              \
    X(F32, 4)                                                                              \
    X(F16, 2)                                                                              \
    X(BF16, 2)                                                                             \
    X(F8_E4M3, 1)                                                                          \
    X(F8_E5M2, 1)                                                                          \
    X(I64, 8)                                                                              \
    X(I32, 4)                                                                              \
    X(I16, 2)                                                                              \
    X(I8, 1)                                                                               \
    X(U64, 8)                                                                              \
    X(U32, 4)                                                                              \
    X(U16, 2)                                                                              \
    X(U8, 1)                                                                               \
    X(BOOL, 1)

enum st_dtype {
#define X(id, bytes) ST_##id,
    ST_DTYPES(X)
#undef X
        ST_DTYPE_COUNT
};

/* "BF16" */
const char *st_dtype_name(enum st_dtype dtype);

struct st_tensor {
    const char *name;
    enum st_dtype dtype;
    int dims;               /* 0..ST_DIMS; 0 is a scalar */
    int64_t shape[ST_DIMS]; /* >= 0 */
    int64_t offset;         /* of the first byte, from the start of the file */
    int64_t bytes;          /* 0 for an empty tensor */
};

/* ---- reading ----------------------------------------------------------------------- */

struct st_file {
    const unsigned char *bytes; /* the whole file, mapped or borrowed */
    int64_t size;
    struct st_tensor *tensor; /* ordered by offset */
    int64_t tensors;
    struct arena arena; /* holds names and arrays */
    int mapped;         /* st_close unmaps bytes */
};

/* Maps and checks a file. Messages name it. Returns 0, or -1 (EXIT_INPUT) closed. */
int st_open(struct st_file *file, const char *path, struct err *err);

/* The same on bytes in memory, which are borrowed until st_close. Messages begin with the
 * place in the file. */
int st_parse(struct st_file *file, const unsigned char *bytes, int64_t size,
             struct err *err);
void st_close(struct st_file *file);

/* ---- writing ----------------------------------------------------------------------- */

struct st_writer {
    FILE *f;
    char *path;
    struct xxh64 hash; /* of what was written */
    int64_t written;   /* bytes so far, header included */
    int64_t expected;  /* bytes of the whole file */
};

/* Creates (or empties) a file for n F32 tensors, computes their offset and bytes, and
 * writes the header. metadata is NULL or pairs of key and value, ended by NULL. Names are
 * unique. Returns 0, or -1 (EXIT_SYSTEM) with the writer closed. */
int st_create(struct st_writer *w, const char *path, struct st_tensor *tensor, int64_t n,
              const char *const *metadata, struct err *err);

/* Appends data: the tensors' bytes, in their order, in pieces of any size. Returns 0, or
 * -1 with the writer still open. */
int st_append(struct st_writer *w, const void *data, int64_t bytes, struct err *err);

/* Syncs the file to the disk and closes it. *bytes and *hash describe the whole file.
 * Fails when tensors are incomplete. Returns 0 or -1; the writer is closed either way. */
int st_finish(struct st_writer *w, int64_t *bytes, uint64_t *hash, struct err *err);

/* Closes the writer and removes the file. Does nothing on a closed writer. */
void st_abort(struct st_writer *w);

/* What is written at once: tensors whose offset and bytes it computes, and the data of each. */
struct st_source {
    struct st_tensor *tensor; /* [n] */
    const void *const *data;  /* [n] floats, or numbers of 16 bits that become floats: */
    const enum dtype *dtype;  /* [n] NULL: all are floats */
    int64_t n;
    const char *const *metadata; /* as st_create has it */
};

/* Writes and syncs a whole file: the bytes that st_create, st_append and st_finish would give it. Returns
 * 0, or -1 (EXIT_SYSTEM) without a file. */
int st_write(const char *path, const struct st_source *src, const struct bulk_way *way,
             struct bulk_done *out, struct err *err);

#endif
