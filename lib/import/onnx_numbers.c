/* The numbers of tensors of ONNX: in the model's file as bytes or as lists, or in a file beside it. */
#include "common/half.h"
#include "import/onnx.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How a type's numbers lie as bytes, and in which list of the message else. */
static const struct number_type {
    int type, bytes, field;
    enum wire_type wire;
} number_types[] = {
    {1, 4, 4, WIRE_FIXED32}, {2, 1, 5, WIRE_VARINT},    {3, 1, 5, WIRE_VARINT},
    {6, 4, 5, WIRE_VARINT},  {7, 8, 7, WIRE_VARINT},    {9, 1, 5, WIRE_VARINT},
    {10, 2, 5, WIRE_VARINT}, {11, 8, 10, WIRE_FIXED64}, {16, 2, 5, WIRE_VARINT}};

static double number_of(int type, uint64_t v) {
    double d;
    switch (type) {
    case 1: return half_float((uint32_t)v);
    case 3: return (int8_t)v;
    case 6: return (int32_t)v;
    case 7: return (double)(int64_t)v;
    case 10: return f16_widen((uint16_t)v);
    case 11: memcpy(&d, &v, sizeof d); return d;
    case 16: return bf16_widen((uint16_t)v);
    default: return (double)v;
    }
}

/* A file beside the model's: no path that leads elsewhere. */
static int open_beside(const char *folder, const char *name, struct err *err) {
    char path[PATH_MAX];
    if (!folder || !*name || strchr(name, '/') || !strcmp(name, ".."))
        return err_input(err, "its numbers lie in \"%.64s\", which is no file beside it",
                         name);
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return err_input(err, "%.64s: name too long", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 ? fd : err_input(err, "%.64s: %s", name, strerror(errno));
}

/* Bytes of the numbers, from the tensor's byte `first` on. */
static int read_beside(const struct onnx_tensor *t, const char *folder, int64_t first,
                       uint8_t *out, size_t size, struct err *err) {
    int fd = open_beside(folder, t->file, err);
    size_t done = 0;
    if (fd < 0)
        return -1;
    while (done < size && t->offset >= 0 && t->offset <= INT64_MAX - first) {
        ssize_t got =
            pread(fd, out + done, size - done, (off_t)(t->offset + first) + (off_t)done);
        if (got <= 0)
            break;
        done += (size_t)got;
    }
    close(fd);
    return done == size ? 0
                        : err_input(err, "%.64s: it ends before the numbers of %.64s",
                                    t->file, t->shape.name);
}

static int listed_numbers(const struct onnx_tensor *t, const struct number_type *type,
                          int64_t first, int64_t n, double *out, struct err *err) {
    struct wire in = t->message;
    struct wire_field f;
    int64_t have = 0;
    while (wire_next(&in, &f, NULL) > 0) {
        uint8_t one[10];
        uint64_t v;
        if (f.number != type->field)
            continue;
        struct wire rest = wire_numbers(&f, one);
        for (; have < first + n && rest.at < rest.end && wire_number(&rest, type->wire, &v);
             have++)
            if (have >= first)
                out[have - first] = number_of(type->type, v);
    }
    return have == first + n ? 0
                             : err_input(err, "%.64s: expected %lld numbers", t->shape.name,
                                         (long long)onnx_elements(&t->shape));
}

int onnx_part(const struct onnx_tensor *t, const char *folder, int64_t first, int64_t n,
              double *out, struct err *err) {
    const struct number_type *type = number_types,
                             *end = type + sizeof number_types / sizeof *type;
    const int64_t all = onnx_elements(&t->shape);
    while (type < end && type->type != t->shape.type)
        type++;
    if (type == end)
        return err_input(err, "%.64s: numbers of the type %d are not read", t->shape.name,
                         t->shape.type);
    if (!t->file && !t->raw.at)
        return listed_numbers(t, type, first, n, out, err);
    const size_t size = (size_t)(n * type->bytes);
    const int64_t from = first * type->bytes;
    uint8_t *own = t->file ? mem_alloc(size + 1) : NULL;
    int rc = 0;
    if (t->file)
        rc = read_beside(t, folder, from, own, size, err);
    else if (t->raw.end - t->raw.at != all * type->bytes)
        rc = err_input(err, "%.64s: expected %lld numbers", t->shape.name, (long long)all);
    const uint8_t *at = t->file ? own : t->raw.at + (rc == 0 ? from : 0);
    for (int64_t i = 0; i < n && rc == 0; i++) {
        uint64_t v = 0;
        for (int b = 0; b < type->bytes; b++)
            v |= (uint64_t)at[i * type->bytes + b] << (8 * b);
        out[i] = number_of(type->type, v);
    }
    free(own);
    return rc;
}

int onnx_numbers(const struct onnx_tensor *t, const char *folder, double *out,
                 struct err *err) {
    return onnx_part(t, folder, 0, onnx_elements(&t->shape), out, err);
}
