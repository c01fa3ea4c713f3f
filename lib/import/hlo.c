/* The fields of a module. */
#include "import/hlo.h"

#include "common/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t most_elements = (int64_t)1 << 40;

/* ---- fields by table ------------------------------------------------------------------------------ */

enum field_kind { TEXT, WHOLE, LIST, SHAPE, METADATA, SLICE, LISTS, LITERAL };

struct field {
    int number;
    enum field_kind kind;
    size_t at; /* in the struct */
    int count; /* LISTS: of message fields 1, 2, ... */
};

#define AT(member) offsetof(struct hlo_instruction, member)
static const struct field instruction_fields[] = {
    {1, TEXT, AT(name), 0},
    {2, TEXT, AT(opcode), 0},
    {3, SHAPE, AT(shape), 0},
    {7, METADATA, AT(op_name), 0},
    {8, LITERAL, AT(literal), 0},
    {9, WHOLE, AT(number), 0},
    {13, WHOLE, AT(index), 0},
    {14, LIST, AT(dimensions), 0},
    {17, SLICE, AT(slices), 0},
    {20, LIST, AT(slice_sizes), 0},
    {28, TEXT, AT(custom), 0},
    {30, LISTS, AT(dot), DOT_LISTS},
    {33, LISTS, AT(gather), GATHER_LISTS},
    {34, LIST, AT(gather_sizes), 0},
    {35, WHOLE, AT(id), 0},
    {36, LIST, AT(operands), 0},
    {38, LIST, AT(called), 0},
    {63, TEXT, AT(direction), 0},
};
#undef AT

static int read_text(struct hlo *h, const struct wire_field *f, const char **out,
                     struct err *err) {
    size_t n = (size_t)(f->bytes.end - f->bytes.at);
    if (f->type != WIRE_BYTES || (n && memchr(f->bytes.at, 0, n)))
        return err_input(err, "field %d: expected a text", f->number);
    char *text = arena_alloc(&h->arena, n + 1);
    if (n)
        memcpy(text, f->bytes.at, n);
    for (char *c = text; *c; c++)
        if (*c > 0 && *c < ' ')
            *c = '_';
    *out = text;
    return 0;
}

static int64_t room_of(int64_t n) {
    int64_t room = n > 0;
    while (room < n)
        room *= 2;
    return room;
}

/* A list of n numbers has room for as many as the next power of two. */
static void add_room(struct hlo *h, struct hlo_list *list, int64_t more) {
    if (list->n + more <= room_of(list->n))
        return;
    int64_t *p = arena_array(&h->arena, (size_t)room_of(list->n + more), sizeof *p);
    if (list->n)
        memcpy(p, list->p, (size_t)list->n * sizeof *p);
    list->p = p;
}

static int read_list(struct hlo *h, const struct wire_field *f, struct hlo_list *out,
                     struct err *err) {
    uint8_t one[10];
    uint64_t v;
    struct wire rest = wire_numbers(f, one);
    if (f->type != WIRE_BYTES && f->type != WIRE_VARINT)
        return err_input(err, "field %d: expected whole numbers", f->number);
    add_room(h, out, rest.end - rest.at);
    while (rest.at < rest.end) {
        if (!wire_number(&rest, WIRE_VARINT, &v))
            return err_input(err, "field %d: expected whole numbers", f->number);
        out->p[out->n++] = (int64_t)v;
    }
    return 0;
}

static int read_lists(struct hlo *h, struct wire in, struct hlo_list *out, int count,
                      struct err *err) {
    struct wire_field f;
    int got;
    while ((got = wire_next(&in, &f, err)) > 0)
        if (f.number <= count && read_list(h, &f, &out[f.number - 1], err) < 0)
            return -1;
    return got;
}

static int read_shape(struct hlo *h, struct wire in, struct hlo_shape *s, struct err *err) {
    struct wire_field f;
    struct hlo_list dims = {0};
    int got;
    while ((got = wire_next(&in, &f, err)) > 0) {
        if (f.number == 2)
            s->type = (int)(f.value & 0xff);
        s->n_parts += f.number == 4;
        if (f.number == 3 && read_list(h, &f, &dims, err) < 0)
            return -1;
    }
    if (got < 0 || dims.n > HLO_MAX_RANK)
        return got < 0 ? -1
                       : err_input(err, "shape: expected at most %d sizes", HLO_MAX_RANK);
    s->rank = dims.n;
    int64_t all = 1;
    for (int i = 0; i < dims.n; i++) {
        if (dims.p[i] < 0 || dims.p[i] > most_elements / all)
            return err_input(err, "shape: a size of %lld elements", (long long)dims.p[i]);
        all *= dims.p[i] ? dims.p[i] : 1;
        s->size[i] = dims.p[i];
    }
    return 0;
}

/* One text of a message. */
static int read_metadata(struct hlo *h, struct wire in, const char **op_name,
                         struct err *err) {
    struct wire_field f;
    int got;
    while ((got = wire_next(&in, &f, err)) > 0)
        if (f.number == 2 && read_text(h, &f, op_name, err) < 0)
            return -1;
    return got;
}

static int read_slice(struct hlo *h, struct wire in, struct hlo_list *out,
                      struct err *err) {
    struct hlo_list part[3] = {{0}};
    if (read_lists(h, in, part, 3, err) < 0)
        return -1;
    if (out->n >= 3 * HLO_MAX_RANK)
        return err_input(err, "slice_dimensions: expected at most %d", HLO_MAX_RANK);
    add_room(h, out, 3);
    for (int i = 0; i < 3; i++)
        out->p[out->n++] = part[i].n ? part[i].p[0] : 0;
    return 0;
}

static int read_field(struct hlo *h, const struct field *d, const struct wire_field *f,
                      void *base, struct err *err) {
    void *at = (char *)base + d->at;
    bool message = d->kind >= SHAPE;
    if (message && f->type != WIRE_BYTES)
        return err_input(err, "field %d: expected a message", f->number);
    switch (d->kind) {
    case TEXT: return read_text(h, f, at, err);
    case WHOLE: *(int64_t *)at = (int64_t)f->value; return 0;
    case LIST: return read_list(h, f, at, err);
    case SHAPE: return read_shape(h, f->bytes, at, err);
    case METADATA: return read_metadata(h, f->bytes, at, err);
    case SLICE: return read_slice(h, f->bytes, at, err);
    case LISTS: return read_lists(h, f->bytes, at, d->count, err);
    case LITERAL: *(struct wire *)at = f->bytes; return 0;
    }
    return 0;
}

/* Most fields have low numbers, and there are few. */
static const struct field *find_field(int number) {
    for (size_t i = 0; i < sizeof instruction_fields / sizeof *instruction_fields; i++)
        if (instruction_fields[i].number == number)
            return &instruction_fields[i];
    return NULL;
}

static int read_instruction(struct hlo *h, struct wire in, struct hlo_instruction *x,
                            struct err *err) {
    struct wire_field f;
    int got;
    *x = (struct hlo_instruction){
        .name = "", .opcode = "", .op_name = "", .direction = "", .custom = ""};
    while ((got = wire_next(&in, &f, err)) > 0) {
        const struct field *d = find_field(f.number);
        if (d && read_field(h, d, &f, x, err) < 0)
            return err_at(err, "%.64s", x->name);
    }
    return got < 0 ? err_at(err, "%.64s", x->name) : 0;
}

/* ---- who is who ------------------------------------------------------------------------------------- */

struct by_id {
    int64_t id;
    int place;
};

static int compare_ids(const void *p, const void *q) {
    const struct by_id *a = p, *b = q;
    return (a->id > b->id) - (a->id < b->id);
}

/* Puts places for ids; all of them stand before `before`. */
static int resolve(struct hlo_list *list, const struct by_id *ids, int n, int before,
                   const char *what, struct err *err) {
    for (int i = 0; i < list->n; i++) {
        struct by_id key = {list->p[i], 0};
        const struct by_id *found = bsearch(&key, ids, (size_t)n, sizeof *ids, compare_ids);
        if (!found || found->place >= before)
            return err_input(err, "%s %d: there is none of the number %lld before it", what,
                             i, (long long)list->p[i]);
        list->p[i] = found->place;
    }
    return 0;
}

static int check_ids(struct by_id *ids, int n, struct err *err) {
    qsort(ids, (size_t)n, sizeof *ids, compare_ids);
    for (int i = 1; i < n; i++)
        if (ids[i].id == ids[i - 1].id)
            return err_input(err, "there are two of the number %lld", (long long)ids[i].id);
    return 0;
}

static int resolve_operands(struct hlo_computation *c, struct err *err) {
    struct by_id *ids = mem_array((size_t)c->n + 1, sizeof *ids);
    for (int i = 0; i < c->n; i++)
        ids[i] = (struct by_id){c->instructions[i].id, i};
    int rc = check_ids(ids, c->n, err);
    for (int i = 0; i < c->n && rc == 0; i++) {
        struct hlo_instruction *x = &c->instructions[i];
        if (resolve(&x->operands, ids, c->n, i, "operand", err) < 0)
            rc = err_at(err, "%.64s", x->name);
    }
    struct hlo_list root = {1, &(int64_t){c->root_id}};
    if (rc == 0 && (rc = resolve(&root, ids, c->n, c->n, "root", err)) == 0)
        c->root = (int)root.p[0];
    free(ids);
    return rc;
}

/* ---- the module --------------------------------------------------------------------------------------- */

static int count_fields(struct wire in, int number, struct err *err) {
    struct wire_field f;
    int got, n = 0;
    while ((got = wire_next(&in, &f, err)) > 0)
        n += f.number == number && f.type == WIRE_BYTES;
    return got < 0 ? -1 : n;
}

static int read_computation(struct hlo *h, struct wire in, struct hlo_computation *c,
                            struct err *err) {
    struct wire_field f;
    int got, most = count_fields(in, 2, err), n = 0;
    c->name = "";
    if (most < 0 || most > HLO_MAX_INSTRUCTIONS)
        return most < 0 ? -1
                        : err_input(err, "expected at most %d instructions",
                                    HLO_MAX_INSTRUCTIONS);
    c->instructions = arena_array(&h->arena, (size_t)most + 1, sizeof *c->instructions);
    while ((got = wire_next(&in, &f, err)) > 0) {
        if (f.number == 1 && read_text(h, &f, &c->name, err) < 0)
            return -1;
        if (f.number == 2 && f.type == WIRE_BYTES &&
            read_instruction(h, f.bytes, &c->instructions[n++], err) < 0)
            return err_at(err, "%.64s", c->name);
        if (f.number == 5)
            c->id = (int64_t)f.value;
        if (f.number == 6)
            c->root_id = (int64_t)f.value;
    }
    c->n = n;
    return got < 0 || resolve_operands(c, err) < 0 ? err_at(err, "%.64s", c->name) : 0;
}

/* Ids of the computations before each, in order: callees stand before their callers. */
static int resolve_computations(struct hlo *h, int64_t entry_id, struct err *err) {
    struct by_id *ids = mem_array((size_t)h->n + 1, sizeof *ids);
    int rc = 0;
    for (int i = 0; i < h->n; i++)
        ids[i] = (struct by_id){h->computations[i].id, i};
    rc = check_ids(ids, h->n, err);
    for (int i = 0; i < h->n && rc == 0; i++) {
        struct hlo_computation *c = &h->computations[i];
        for (int k = 0; k < c->n && rc == 0; k++)
            if (resolve(&c->instructions[k].called, ids, h->n, i, "computation", err) < 0)
                rc = err_at(err, "%.64s.%.64s", c->name, c->instructions[k].name);
    }
    struct hlo_list entry = {1, &entry_id};
    if (rc == 0 && (rc = resolve(&entry, ids, h->n, h->n, "entry", err)) == 0)
        h->entry = (int)entry.p[0];
    free(ids);
    return rc;
}

static int read_module(struct hlo *h, struct wire in, struct err *err) {
    struct wire_field f;
    int64_t entry_id = 0;
    int got, most = count_fields(in, 3, err), n = 0;
    h->name = "model";
    if (most <= 0 || most > HLO_MAX_INSTRUCTIONS)
        return most < 0 ? -1 : err_input(err, "expected the computations of an HLO module");
    h->computations = arena_array(&h->arena, (size_t)most, sizeof *h->computations);
    while ((got = wire_next(&in, &f, err)) > 0) {
        if (f.number == 1 && read_text(h, &f, &h->name, err) < 0)
            return -1;
        if (f.number == 6)
            entry_id = (int64_t)f.value;
        if (f.number == 3 && f.type == WIRE_BYTES &&
            read_computation(h, f.bytes, &h->computations[n++], err) < 0)
            return -1;
    }
    h->n = n;
    return got < 0 ? -1 : resolve_computations(h, entry_id, err);
}

/* HloProto has the module as its first field, a module its name. */
static struct wire module_of(struct wire in) {
    struct wire whole = in, inner;
    struct wire_field f;
    if (wire_next(&in, &f, NULL) <= 0 || f.number != 1 || f.type != WIRE_BYTES)
        return whole;
    inner = f.bytes;
    struct wire_field g;
    return count_fields(f.bytes, 3, NULL) > 0 && wire_next(&inner, &g, NULL) > 0 &&
                   g.number == 1 && g.type == WIRE_BYTES
               ? f.bytes
               : whole;
}

int hlo_parse(struct hlo *h, const void *bytes, int64_t size, struct err *err) {
    *h = (struct hlo){0};
    struct wire in = {bytes, (const uint8_t *)bytes + size};
    return read_module(h, module_of(in), err);
}

void hlo_close(struct hlo *h) {
    arena_release(&h->arena);
    *h = (struct hlo){0};
}

/* ---- constants ------------------------------------------------------------------------------------------- */

int64_t hlo_elements(const struct hlo_shape *s) {
    int64_t n = 1;
    for (int i = 0; i < s->rank; i++)
        n *= s->size[i];
    return n;
}

/* Where a type's numbers lie in LiteralProto, and how. */
static const struct literal_type {
    int type, number;
    enum wire_type wire; /* WIRE_BYTES: as bytes, this many each */
    int bytes;
} literal_types[] = {
    {1, 2, WIRE_VARINT, 0},   {2, 15, WIRE_BYTES, 1},  {4, 4, WIRE_VARINT, 0},
    {5, 5, WIRE_VARINT, 0},   {6, 3, WIRE_BYTES, 1},   {8, 6, WIRE_VARINT, 0},
    {9, 7, WIRE_VARINT, 0},   {10, 11, WIRE_BYTES, 2}, {11, 8, WIRE_FIXED32, 0},
    {12, 9, WIRE_FIXED64, 0}, {16, 13, WIRE_BYTES, 2}};

/* The shortest decimal that is this number in f32: 1e-05, not what is next to it in f64. */
static double shortest(float f) {
    char text[32];
    for (int digits = 6; digits < 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)f);
        if (strtof(text, NULL) == f)
            return strtod(text, NULL);
    }
    return f;
}

static double number_of(int type, uint64_t v) {
    double d;
    switch (type) {
    case 2: return (int8_t)v;
    case 4: return (int32_t)v;
    case 5: return (double)(int64_t)v;
    case 10: return f16_widen((uint16_t)v);
    case 11: return half_float((uint32_t)v);
    case 12: memcpy(&d, &v, sizeof d); return d;
    case 16: return bf16_widen((uint16_t)v);
    default: return (double)v;
    }
}

static bool next_number(struct wire *rest, const struct literal_type *t, uint64_t *v) {
    if (t->wire != WIRE_BYTES)
        return wire_number(rest, t->wire, v);
    if (rest->end - rest->at < t->bytes)
        return false;
    *v = 0;
    for (int i = 0; i < t->bytes; i++)
        *v |= (uint64_t)*rest->at++ << (8 * i);
    return true;
}

const double *hlo_literal(struct hlo *h, const struct hlo_instruction *x) {
    const struct literal_type *t = literal_types,
                              *end = t + sizeof literal_types / sizeof *t;
    int64_t n = hlo_elements(&x->shape), have = 0;
    while (t < end && t->type != x->shape.type)
        t++;
    /* Each number takes a byte or more. */
    if (t == end || n < 1 || !x->literal.at || n > x->literal.end - x->literal.at)
        return NULL;
    double *out = arena_array(&h->arena, (size_t)n, sizeof *out);
    struct wire in = x->literal;
    struct wire_field f;
    while (wire_next(&in, &f, NULL) > 0) {
        uint8_t one[10];
        uint64_t v;
        if (f.number != t->number)
            continue;
        struct wire rest = wire_numbers(&f, one);
        while (have < n && rest.at < rest.end && next_number(&rest, t, &v))
            out[have++] = number_of(t->type, v);
    }
    if (n == 1 && x->shape.type == 11 && isfinite(out[0]))
        out[0] = shortest((float)out[0]);
    return have == n ? out : NULL;
}
