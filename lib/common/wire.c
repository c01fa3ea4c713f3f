/* Fields and numbers of protocol buffers. */
#include "common/wire.h"

#include <stdlib.h>
#include <string.h>

/* ---- reading ----------------------------------------------------------------------------------- */

static bool get_varint(struct wire *in, uint64_t *value) {
    uint64_t v = 0;
    for (int shift = 0; shift < 64 && in->at < in->end; shift += 7) {
        uint8_t byte = *in->at++;
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return *value = v, true;
    }
    return false;
}

static bool get_fixed(struct wire *in, int bytes, uint64_t *value) {
    if (in->end - in->at < bytes)
        return false;
    *value = 0;
    for (int i = 0; i < bytes; i++)
        *value |= (uint64_t)*in->at++ << (8 * i);
    return true;
}

bool wire_number(struct wire *rest, enum wire_type type, uint64_t *value) {
    switch (type) {
    case WIRE_VARINT: return get_varint(rest, value);
    case WIRE_FIXED64: return get_fixed(rest, 8, value);
    case WIRE_FIXED32: return get_fixed(rest, 4, value);
    case WIRE_BYTES: break;
    }
    return false;
}

static bool get_bytes(struct wire *in, struct wire *bytes) {
    uint64_t size;
    if (!get_varint(in, &size) || size > (uint64_t)(in->end - in->at))
        return false;
    *bytes = (struct wire){in->at, in->at + size};
    in->at += size;
    return true;
}

int wire_next(struct wire *in, struct wire_field *f, struct err *err) {
    uint64_t tag;
    *f = (struct wire_field){0};
    if (in->at == in->end)
        return 0;
    if (!get_varint(in, &tag) || tag >> 3 == 0 || tag >> 3 >= 1 << 29)
        return err_input(err, "expected the number of a field of a protobuf message");
    f->number = (int)(tag >> 3);
    f->type = (enum wire_type)(tag & 7);
    if (f->type == WIRE_BYTES ? get_bytes(in, &f->bytes)
                              : wire_number(in, f->type, &f->value))
        return 1;
    return err_input(err, "field %d: it is cut off, or of a type that no protobuf has",
                     f->number);
}

struct wire wire_numbers(const struct wire_field *f, uint8_t one[10]) {
    if (f->type == WIRE_BYTES)
        return f->bytes;
    int n = 0, fixed = f->type == WIRE_FIXED64 ? 8 : f->type == WIRE_FIXED32 ? 4 : 0;
    uint64_t v = f->value;
    for (; n < fixed; n++, v >>= 8)
        one[n] = (uint8_t)v;
    for (; !fixed && (n == 0 || v); n++, v >>= 7)
        one[n] = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
    return (struct wire){one, one + n};
}

/* ---- writing ------------------------------------------------------------------------------------- */

void wire_put_size(struct wire_out *out, uint64_t size) {
    for (; size > 0x7f; size >>= 7)
        arr_push(out, (uint8_t)(size | 0x80));
    arr_push(out, (uint8_t)size);
}

void wire_put_little(struct wire_out *out, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++)
        arr_push(out, (uint8_t)(v >> 8 * i));
}

static void put_tag(struct wire_out *out, int number, enum wire_type type) {
    wire_put_size(out, (uint64_t)number << 3 | type);
}

void wire_put_uint(struct wire_out *out, int number, uint64_t value) {
    put_tag(out, number, WIRE_VARINT);
    wire_put_size(out, value);
}

void wire_put_fixed64(struct wire_out *out, int number, uint64_t bits) {
    put_tag(out, number, WIRE_FIXED64);
    wire_put_little(out, bits, 8);
}

void wire_put_fixed32(struct wire_out *out, int number, uint64_t bits) {
    put_tag(out, number, WIRE_FIXED32);
    wire_put_little(out, bits, 4);
}

void wire_put_bytes(struct wire_out *out, int number, const void *bytes, size_t size) {
    put_tag(out, number, WIRE_BYTES);
    wire_put_size(out, size);
    for (size_t i = 0; i < size; i++)
        arr_push(out, ((const uint8_t *)bytes)[i]);
}

void wire_put_text(struct wire_out *out, int number, const char *text) {
    wire_put_bytes(out, number, text, strlen(text));
}

void wire_put_uints(struct wire_out *out, int number, const int64_t *values, int64_t n) {
    struct wire_out packed = {0};
    for (int64_t i = 0; i < n; i++)
        wire_put_size(&packed, (uint64_t)values[i]);
    wire_put_bytes(out, number, packed.p, (size_t)packed.n);
    arr_release(&packed);
}
