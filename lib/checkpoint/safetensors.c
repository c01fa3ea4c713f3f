#include "checkpoint/safetensors.h"

#include "common/json.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors is little-endian");

enum { ALIGN = 64 /* of the data in files that we write: a cache line */ };

static const struct {
    const char *name;
    int64_t bytes;
} dtypes[] = {
#define X(id, bytes) {#id, bytes},
    ST_DTYPES(X)
#undef X
};

const char *st_dtype_name(enum st_dtype dtype) {
    return dtypes[dtype].name;
}

/* Bytes of shape and type; -1 on overflow. */
static int64_t tensor_bytes(const struct st_tensor *t) {
    int64_t bytes = dtypes[t->dtype].bytes;
    for (int d = 0; d < t->dims; d++)
        if (__builtin_mul_overflow(bytes, t->shape[d], &bytes))
            return -1;
    return bytes;
}

/* ---- reading ----------------------------------------------------------------------- */

static int read_dtype(struct st_tensor *t, const json_t *obj, struct err *err) {
    const char *text = NULL;
    if (json_str(obj, "dtype", &text, err) < 0)
        return -1;
    for (int i = 0; i < ST_DTYPE_COUNT; i++)
        if (!strcmp(text, dtypes[i].name)) {
            t->dtype = (enum st_dtype)i;
            return 0;
        }
    return err_input(err, "dtype: unknown type \"%.16s\"", text);
}

/* Reads an array of `count` whole numbers >= 0 (count < 0: up to ST_DIMS). Returns their
 * number or -1. */
static int read_sizes(const json_t *obj, const char *key, int count, int64_t *out,
                      struct err *err) {
    json_t *array;
    if (json_array_member(obj, key, &array, err) < 0)
        return -1;
    size_t n = json_array_size(array);
    if (count >= 0 ? n != (size_t)count : n > ST_DIMS)
        return err_input(err, "%s: expected %s%d numbers, got %zu", key,
                         count >= 0 ? "" : "at most ", count >= 0 ? count : ST_DIMS, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(array, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return err_input(err, "%s[%zu]: expected a whole number >= 0", key, i);
        out[i] = json_integer_value(v);
    }
    return (int)n;
}

/* data_size: bytes behind the header; t->offset becomes relative to them. */
static int read_tensor(struct st_tensor *t, const json_t *obj, int64_t data_size,
                       struct err *err) {
    int64_t range[2] = {0};
    if (json_keys(obj, "dtype shape data_offsets", err) < 0 || read_dtype(t, obj, err) < 0)
        return -1;
    t->dims = read_sizes(obj, "shape", -1, t->shape, err);
    if (t->dims < 0 || read_sizes(obj, "data_offsets", 2, range, err) < 0)
        return -1;
    if (range[0] > range[1] || range[1] > data_size)
        return err_input(err,
                         "data_offsets: %lld..%lld is not inside the %lld bytes of data",
                         (long long)range[0], (long long)range[1], (long long)data_size);
    t->offset = range[0];
    t->bytes = tensor_bytes(t);
    if (t->bytes < 0)
        return err_input(err, "shape: the tensor is too large");
    if (t->bytes != range[1] - range[0])
        return err_input(err, "data_offsets: %lld bytes, the shape needs %lld",
                         (long long)(range[1] - range[0]), (long long)t->bytes);
    return 0;
}

static int check_metadata(const json_t *obj, struct err *err) {
    const char *key;
    json_t *v;
    if (!json_is_object(obj))
        return err_input(err, "__metadata__: expected an object");
    json_object_foreach((json_t *)obj, key, v) {
        if (!json_is_string(v))
            return err_input(err, "__metadata__: expected strings, got %s",
                             json_type_name(v));
    }
    return 0;
}

static int compare_offsets(const void *a, const void *b) {
    const struct st_tensor *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    /* Empty tensors come before the one that begins where they lie. */
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Sorts the tensors and checks that they tile the data. */
static int check_tiling(struct st_file *file, int64_t data_size, struct err *err) {
    qsort(file->tensor, (size_t)file->tensors, sizeof *file->tensor, compare_offsets);
    int64_t at = 0;
    for (int64_t i = 0; i < file->tensors; i++) {
        const struct st_tensor *t = &file->tensor[i];
        if (t->offset != at)
            return err_input(err, "tensor \"%.100s\": data_offsets: begins at %lld, %s",
                             t->name, (long long)t->offset,
                             t->offset < at ? "inside another tensor" : "behind a gap");
        at += t->bytes;
    }
    if (at != data_size)
        return err_input(err, "%lld bytes of data, the tensors have %lld",
                         (long long)data_size, (long long)at);
    return 0;
}

static int read_header(struct st_file *file, const json_t *root, int64_t data_begin,
                       struct err *err) {
    if (!json_is_object(root))
        return err_input(err, "header: expected an object");
    size_t n = json_object_size(root);
    int64_t data_size = file->size - data_begin;
    const char *key;
    json_t *v;
    file->tensor = arena_array(&file->arena, n, sizeof *file->tensor);
    json_object_foreach((json_t *)root, key, v) {
        if (!strcmp(key, "__metadata__")) {
            if (check_metadata(v, err) < 0)
                return -1;
            continue;
        }
        struct st_tensor *t = &file->tensor[file->tensors++];
        t->name = arena_strdup(&file->arena, key);
        if (read_tensor(t, v, data_size, err) < 0)
            return err_prefix(err, "tensor \"%.100s\"", key);
    }
    if (check_tiling(file, data_size, err) < 0)
        return -1;
    for (int64_t i = 0; i < file->tensors; i++)
        file->tensor[i].offset += data_begin;
    return 0;
}

int st_parse(struct st_file *file, const unsigned char *bytes, int64_t size,
             struct err *err) {
    *file = (struct st_file){.bytes = bytes, .size = size};
    uint64_t header;
    if (size < 8)
        return err_input(err, "%lld bytes, too short for a safetensors file",
                         (long long)size);
    memcpy(&header, bytes, sizeof header);
    if (header > ST_HEADER_MAX)
        return err_input(err,
                         "no safetensors file: byte 0: a header of %llu bytes, expected at "
                         "most %lld",
                         (unsigned long long)header, (long long)ST_HEADER_MAX);
    if ((int64_t)header > size - 8)
        return err_input(err,
                         "cut short, or no safetensors file: byte 0: a header of %llu "
                         "bytes, and %lld follow",
                         (unsigned long long)header, (long long)(size - 8));
    /* The format wants '{' here; JSON alone would allow blanks before it. */
    if (!header || bytes[8] != '{')
        return err_input(err,
                         "no safetensors file: byte 8: expected the '{' of the header");
    json_t *root = json_parse((const char *)bytes + 8, (size_t)header, "header", err);
    if (!root)
        return -1;
    int bad = read_header(file, root, 8 + (int64_t)header, err);
    json_decref(root);
    if (bad)
        st_close(file);
    return bad;
}

static const unsigned char *map(const char *path, int64_t *size, struct err *err) {
    struct stat st;
    void *p = NULL;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        err_input(err, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        err_input(err, "%s: expected a regular file", path);
    else if (st.st_size == 0)
        err_input(err, "%s: is empty", path);
    else if ((p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0)) ==
             MAP_FAILED) {
        err_system(err, "%s: cannot map: %s", path, strerror(errno));
        p = NULL;
    }
    if (fd >= 0)
        close(fd);
    if (p)
        *size = st.st_size;
    return p;
}

int st_open(struct st_file *file, const char *path, struct err *err) {
    *file = (struct st_file){0};
    int64_t size = 0;
    const unsigned char *bytes = map(path, &size, err);
    if (!bytes)
        return -1;
    if (st_parse(file, bytes, size, err) < 0) {
        munmap((void *)bytes, (size_t)size);
        return err_prefix(err, "%s", path);
    }
    file->mapped = 1;
    return 0;
}

void st_close(struct st_file *file) {
    if (file->mapped)
        munmap((void *)file->bytes, (size_t)file->size);
    arena_release(&file->arena);
    *file = (struct st_file){0};
}

/* ---- writing ----------------------------------------------------------------------- */

static int write_failed(const struct st_writer *w, struct err *err) {
    return err_system(err, "%s: cannot write: %s", w->path, strerror(errno));
}

static int put(struct st_writer *w, const void *data, int64_t bytes, struct err *err) {
    if (bytes && fwrite(data, 1, (size_t)bytes, w->f) != (size_t)bytes)
        return write_failed(w, err);
    xxh64_add(&w->hash, data, (size_t)bytes);
    w->written += bytes;
    return 0;
}

static json_t *int_array(const int64_t *v, int n) {
    json_t *array = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(array, json_integer(v[i]));
    return array;
}

/* The header; places the tensors (offsets relative to the data). NULL for a bad name. */
static char *header_text(struct st_tensor *tensor, int64_t n, const char *const *metadata,
                         int64_t *data_size) {
    json_t *root = json_object();
    int bad = 0;
    if (metadata) {
        json_t *meta = json_object();
        for (; *metadata; metadata += 2)
            bad |= json_object_set_new(meta, metadata[0], json_string(metadata[1]));
        json_object_set_new(root, "__metadata__", meta);
    }
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        struct st_tensor *t = &tensor[i];
        t->dtype = ST_F32;
        t->bytes = tensor_bytes(t);
        t->offset = at;
        bad |= t->bytes < 0 || __builtin_add_overflow(at, t->bytes, &at);
        int64_t range[2] = {t->offset, at};
        json_t *o = json_object();
        json_object_set_new(o, "dtype", json_string("F32"));
        json_object_set_new(o, "shape", int_array(t->shape, t->dims));
        json_object_set_new(o, "data_offsets", int_array(range, 2));
        bad |= json_object_get(root, t->name) != NULL;
        bad |= json_object_set_new(root, t->name, o);
    }
    *data_size = at;
    char *text = bad ? NULL : json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return text;
}

/* Everything before the data, in fresh memory, and its size; places the tensors in the file and adds up
 * their bytes. NULL on failure. */
static char *header_of(const char *path, struct st_tensor *tensor, int64_t n,
                       const char *const *metadata, int64_t *bytes, int64_t *data_bytes,
                       struct err *err) {
    char *text = header_text(tensor, n, metadata, data_bytes);
    if (!text) {
        err_system(err, "%s: a tensor's name or size cannot be written", path);
        return NULL;
    }
    int64_t size = (int64_t)strlen(text), pad = (ALIGN - (8 + size) % ALIGN) % ALIGN;
    uint64_t header = (uint64_t)(size + pad);
    char *all = NULL;
    if (header > ST_HEADER_MAX) {
        err_system(err, "%s: too many tensors for one file", path);
    } else {
        all = mem_alloc((size_t)header + 8);
        memcpy(all, &header, 8);
        memcpy(all + 8, text, (size_t)size);
        memset(all + 8 + size, ' ', (size_t)pad);
        *bytes = 8 + (int64_t)header;
    }
    free(text);
    for (int64_t i = 0; i < n && all; i++)
        tensor[i].offset += *bytes;
    return all;
}

static int put_header(struct st_writer *w, struct st_tensor *tensor, int64_t n,
                      const char *const *metadata, struct err *err) {
    int64_t bytes, data_bytes;
    char *header = header_of(w->path, tensor, n, metadata, &bytes, &data_bytes, err);
    int rc = header ? put(w, header, bytes, err) : -1;
    if (rc == 0)
        w->expected = bytes + data_bytes;
    free(header);
    return rc;
}

int st_create(struct st_writer *w, const char *path, struct st_tensor *tensor, int64_t n,
              const char *const *metadata, struct err *err) {
    *w = (struct st_writer){.path = mem_strdup(path)};
    xxh64_begin(&w->hash);
    w->f = fopen(path, "wb");
    if (!w->f) {
        write_failed(w, err);
        free(w->path);
        *w = (struct st_writer){0};
        return -1;
    }
    setvbuf(w->f, NULL, _IOFBF, 1 << 18);
    if (put_header(w, tensor, n, metadata, err) < 0) {
        st_abort(w);
        return -1;
    }
    return 0;
}

int st_append(struct st_writer *w, const void *data, int64_t bytes, struct err *err) {
    if (bytes > w->expected - w->written)
        return err_system(err, "%s: more data than the header says", w->path);
    return put(w, data, bytes, err);
}

int st_finish(struct st_writer *w, int64_t *bytes, uint64_t *hash, struct err *err) {
    int bad = 0;
    if (w->written != w->expected)
        bad = err_system(err, "%s: %lld bytes written, the header says %lld", w->path,
                         (long long)w->written, (long long)w->expected);
    else if (fflush(w->f) || fsync(fileno(w->f)))
        bad = write_failed(w, err);
    *bytes = w->written;
    *hash = xxh64_end(&w->hash);
    if (bad) {
        st_abort(w);
        return -1;
    }
    if (fclose(w->f)) {
        bad = write_failed(w, err);
        unlink(w->path);
    }
    free(w->path);
    *w = (struct st_writer){0};
    return bad;
}

void st_abort(struct st_writer *w) {
    if (!w->f)
        return;
    fclose(w->f);
    unlink(w->path);
    free(w->path);
    *w = (struct st_writer){0};
}

int st_write(const char *path, const struct st_source *src, const struct bulk_way *way,
             struct bulk_done *out, struct err *err) {
    int64_t bytes, data_bytes;
    char *header =
        header_of(path, src->tensor, src->n, src->metadata, &bytes, &data_bytes, err);
    if (!header)
        return -1;
    struct bulk_part *parts = mem_array((size_t)src->n + 1, sizeof *parts);
    parts[0] = (struct bulk_part){.data = header, .bytes = bytes};
    for (int64_t i = 0; i < src->n; i++)
        parts[i + 1] = (struct bulk_part){src->data[i], src->tensor[i].bytes, true,
                                          src->dtype ? src->dtype[i] : DTYPE_f32};
    int rc = bulk_write(path, parts, src->n + 1, way, out, err);
    free(parts);
    free(header);
    return rc;
}
