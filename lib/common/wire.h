/* wire.h - messages of protocol buffers, as they lie in a file: fields that are numbered.
 *
 * No schema is compiled: who reads knows the numbers that it needs and passes over the rest, so a
 * message is read in one walk over its bytes, which are borrowed, and nothing is allocated. Every
 * length is checked against what holds it. Format: the encoding of protocol buffers,
 * https://protobuf.dev/programming-guides/encoding/.
 *
 *     struct wire in = {bytes, bytes + size};
 *     struct wire_field f;
 *     int got;
 *     while ((got = wire_next(&in, &f, &err)) > 0)
 *         if (f.number == 1 && f.type == WIRE_BYTES)
 *             printf("%.*s\n", (int)(f.bytes.end - f.bytes.at), (const char *)f.bytes.at);
 *     if (got < 0) ...
 */
#ifndef WEFT_WIRE_H
#define WEFT_WIRE_H

#include "common/err.h"
#include "common/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- reading ----------------------------------------------------------------------------------- */

/* What is left of a message. */
struct wire {
    const uint8_t *at, *end;
};

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

struct wire_field {
    int number;
    enum wire_type type;
    uint64_t value;    /* of all types but bytes */
    struct wire bytes; /* of bytes: a text, a message, or packed numbers */
};

/* The next field: 1, 0 at the end, -1 where the bytes are no message. */
int wire_next(struct wire *in, struct wire_field *f, struct err *err);
/* Numbers of a field that may be repeated: it has one, or many that are packed. True as long as
 * *rest, which begins as wire_numbers(f), has another one of this type. */
bool wire_number(struct wire *rest, enum wire_type type, uint64_t *value);
struct wire wire_numbers(const struct wire_field *f, uint8_t one[10]);

/* ---- writing ------------------------------------------------------------------------------------- */

/* Bytes that grow; arr_release() it. */
struct wire_out {
    uint8_t *p;
    int64_t n, cap;
};

/* A number without its field: what stands before a message in a stream of them. */
void wire_put_size(struct wire_out *out, uint64_t size);
/* The same in so many bytes, the lowest first. */
void wire_put_little(struct wire_out *out, uint64_t v, int bytes);
void wire_put_uint(struct wire_out *out, int number, uint64_t value);
/* The bits of a double, and of a float. */
void wire_put_fixed64(struct wire_out *out, int number, uint64_t bits);
void wire_put_fixed32(struct wire_out *out, int number, uint64_t bits);
void wire_put_bytes(struct wire_out *out, int number, const void *bytes, size_t size);
void wire_put_text(struct wire_out *out, int number, const char *text);
/* Packed. */
void wire_put_uints(struct wire_out *out, int number, const int64_t *values, int64_t n);

#endif
