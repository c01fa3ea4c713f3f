/* What instr.def says, as tables and functions. */
#include "program/instr.h"

#include "common/rng.h"
#include "model/seen.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct instr_info infos[OPCODE_COUNT] = {
#define OPCODE(id, how, text) [I_##id] = {.name = #id, .about = (text), .key = KEY_##how},
#include "program/instr.def"
};

enum {
    OVER = OPERAND_OVER,
    ADD = OPERAND_ADD | OPERAND_OLD,
    OLD = OPERAND_OLD,
    F32 = OPERAND_F32,
    WHOLE = OPERAND_SLOTS,
    HOST = OPERAND_HOST,
    FRESH = OPERAND_FRESH
};

/* Lists numbers and operands in the order of instr.def. */
static void fill_infos(void) {
    struct instr_info *info = NULL;
#define OPCODE(id, key, about) info = &infos[I_##id];
#define N(name)                info->shape[info->n_shape++] = #name;
#define OPTION(name)                                                                       \
    N(name)                                                                                \
    info->n_options++;
#define IN(label, elems, bits) info->in[info->n_in++] = (struct operand_info){#label, bits};
#define IDS(label, elems, below)                                                           \
    info->in[info->n_in++] = (struct operand_info){#label, OPERAND_IDS};
#define COUNTS(label, elems, below)                                                        \
    info->in[info->n_in++] = (struct operand_info){#label, OPERAND_IDS | OPERAND_COUNTS};
#define STARTS(label, elems, below, each)                                                  \
    info->in[info->n_in++] = (struct operand_info){#label, OPERAND_IDS | OPERAND_STARTS};
#define SLOTS(label, elems, below)                                                         \
    info->in[info->n_in++] = (struct operand_info){#label, OPERAND_SLOTS};
#define OUT(label, elems, bits)                                                            \
    info->out[info->n_out++] = (struct operand_info){#label, bits};
#include "program/instr.def"
}

const struct instr_info *instr_info(enum opcode code) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_infos);
    return &infos[code];
}

bool operand_typed(const struct operand_info *o) {
    return !(o->flags & (OPERAND_F32 | OPERAND_IDS | OPERAND_SLOTS));
}

enum dtype operand_dtype(const struct operand_info *o, enum dtype dtype) {
    if (o->flags & (OPERAND_IDS | OPERAND_SLOTS))
        return DTYPE_i32;
    return o->flags & OPERAND_F32 ? DTYPE_f32 : dtype;
}

const char *opcode_name(enum opcode code) {
    return infos[code].name;
}

enum key_kind opcode_key(enum opcode code) {
    return infos[code].key;
}

int opcode_find(const char *name) {
    for (int i = 0; i < OPCODE_COUNT; i++)
        if (!strcmp(infos[i].name, name))
            return i;
    return -1;
}

bool opcode_computes(enum opcode code) {
    const enum key_kind key = infos[code].key;
    return key == KEY_SHAPE || key == KEY_CURVE || key == KEY_PARTS;
}

bool opcode_is_collective(enum opcode code) {
    return infos[code].key == KEY_COMM && code != I_norm;
}

bool opcode_moves(enum opcode code) {
    return opcode_is_collective(code) || opcode_key(code) == KEY_P2P || code == I_input ||
           code == I_copy || code == I_fill || code == I_wait || opcode_is_move(code);
}

bool opcode_is_move(enum opcode code) {
    return code == I_offload || code == I_reload;
}

struct instr instr_init(enum opcode code) {
    struct instr i = {.code = code,
                      .op = -1,
                      .tensor = -1,
                      .param = -1,
                      .transfer = -1,
                      .work = -1,
                      .place = placement_replicate()};
    memset(&i.in, -1, sizeof i.in);
    memset(&i.out, -1, sizeof i.out);
    return i;
}

static struct matrix dense(int64_t rows, int64_t columns, int64_t inner) {
    return (struct matrix){.outer = inner * rows * columns,
                           .inner = rows * columns,
                           .row = columns,
                           .column = 1};
}

struct matrices matrices_dense(const struct matmul_n *n) {
    return (struct matrices){.a = dense(n->m, n->k, n->inner),
                             .b = dense(n->k, n->n, n->inner),
                             .y = dense(n->m, n->n, n->inner)};
}

/* ---- work: one function per opcode, the formulas of the table its body ------------------------ */

/* Operands cross memory once, twice where added to, unless the table says otherwise. */
static void finish(enum opcode code, struct instr_work *w, bool said) {
    const struct instr_info *info = instr_info(code);
    for (int k = 0; k < info->n_in && !said; k++)
        *(operand_typed(&info->in[k]) ? &w->typed : &w->fixed) += (double)w->in[k];
    for (int k = 0; k < info->n_out && !said; k++)
        *(operand_typed(&info->out[k]) ? &w->typed : &w->fixed) +=
            (double)w->out[k] * (info->out[k].flags & OPERAND_ADD ? 2 : 1);
    if (w->flops < 0)
        w->flops = (double)w->out[0];
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

#define OPCODE(id, key, about)                                                             \
    static void work_##id(const union instr_n *shape, struct instr_work *w) {              \
        const enum opcode code_ = I_##id;                                                  \
        const int64_t *next = shape->v;                                                    \
        int in_ = 0, out_ = 0;                                                             \
        bool said_ = false;                                                                \
        (void)next, (void)in_, (void)out_;                                                 \
        w->flops = -1;
#define N(name)                                                                            \
    const int64_t name = *next++;                                                          \
    (void)(name);
#define IN(name, elems, bits) w->in[in_++] = (elems);
#define IDS(name, elems, bound)                                                            \
    w->below[in_] = (bound);                                                               \
    w->in[in_++] = (elems);
#define STARTS(name, elems, bound, length)                                                 \
    w->each[in_] = (length);                                                               \
    IDS(name, elems, bound)
#define SLOTS(name, elems, bound) IDS(name, elems, bound)
#define OUT(name, elems, bits)    w->out[out_++] = (elems);
#define FLOPS(count)              w->flops = (double)(count);
#define TOUCHED(of_type, of_four)                                                          \
    w->typed = (double)(of_type);                                                          \
    w->fixed = (double)(of_four);                                                          \
    said_ = true;
#define END(id)                                                                            \
    finish(code_, w, said_);                                                               \
    }
#include "program/instr.def"

void instr_work(enum opcode code, const union instr_n *n, struct instr_work *out) {
    static void (*const work[])(const union instr_n *, struct instr_work *) = {
#define OPCODE(id, key, about) [I_##id] = work_##id,
#include "program/instr.def"
    };
    *out = (struct instr_work){0};
    work[code](n, out);
}

double instr_bytes(const struct instr_work *w, enum dtype dtype) {
    return (double)dtype_size(dtype) * w->typed + (double)dtype_size(DTYPE_f32) * w->fixed;
}

/* ---- keys ------------------------------------------------------------------------------------ */

struct instr_key instr_key(enum opcode code, enum dtype dtype, const union instr_n *n) {
    struct instr_key k = {.code = code, .dtype = dtype == DTYPE_i32 ? DTYPE_f32 : dtype};
    memcpy(&k.n, n, sizeof *n->v * (size_t)instr_info(code)->n_shape);
    return k;
}

bool instr_key_equal(const struct instr_key *a, const struct instr_key *b) {
    return a->code == b->code && a->dtype == b->dtype &&
           !memcmp(a->n.v, b->n.v, sizeof a->n.v);
}

uint64_t instr_key_hash(const struct instr_key *k) {
    size_t numbers = (size_t)instr_info(k->code)->n_shape;
    uint64_t seed = (uint64_t)k->code * DTYPE_COUNT + (uint64_t)k->dtype;
    /* The type is mixed first, or it would look like one more number. */
    return hash_bytes(&k->n, sizeof *k->n.v * numbers, rng_mix(seed));
}

int instr_key_compare(const struct instr_key *a, const struct instr_key *b) {
    if (a->code != b->code)
        return a->code < b->code ? -1 : 1;
    if (a->dtype != b->dtype)
        return a->dtype < b->dtype ? -1 : 1;
    for (int i = 0; i < INSTR_MAX_SHAPE; i++)
        if (a->n.v[i] != b->n.v[i])
            return a->n.v[i] < b->n.v[i] ? -1 : 1;
    return 0;
}

char *instr_name_format(enum opcode code, enum dtype dtype, char *buf, size_t size) {
    bool half = dtype_is_half(dtype);
    snprintf(buf, size, "%s%s%s", opcode_name(code), half ? "." : "",
             half ? dtype_name(dtype) : "");
    return buf;
}

int instr_shape_written(enum opcode code, const union instr_n *n) {
    const struct instr_info *info = instr_info(code);
    int k = info->n_shape;
    while (k > info->n_shape - info->n_options && !n->v[k - 1])
        k--;
    return k;
}

char *instr_shape_format(enum opcode code, const union instr_n *n, char *buf, size_t size) {
    size_t used = 0;
    buf[0] = '\0';
    for (int k = 0; k < instr_shape_written(code, n) && used < size; k++)
        used += (size_t)snprintf(buf + used, size - used, "%s%lld", k ? "," : "",
                                 (long long)n->v[k]);
    return buf;
}

static struct instr_part product(int64_t m, int64_t n, int64_t k, int64_t times) {
    const union instr_n shape = {.linear = {.m = m, .n = n, .k = k}};
    return (struct instr_part){instr_key(I_linear, DTYPE_f32, &shape), (double)times};
}

static struct instr_part pass(enum opcode code, int64_t elems, int64_t inner,
                              int64_t times) {
    const union instr_n shape = {.v = {elems, inner}};
    return (struct instr_part){instr_key(code, DTYPE_f32, &shape), (double)times};
}

/* A Newton-Schulz step is the product of a matrix and its transpose, the square of that, a
 * sum of both, and its product with the matrix. Before the first step the matrix is copied,
 * its norm is taken, and it is scaled. */
int instr_parts(const struct instr_key *k, struct instr_part out[INSTR_MAX_PARTS]) {
    const struct orthogonalize_n *n = &k->n.orthogonalize;
    const int64_t all = n->rows * n->columns, side = least(n->rows, n->columns);
    const int64_t matrices = n->outer * n->inner, steps = NEWTON_SCHULZ_STEPS * matrices;
    if (k->code != I_orthogonalize)
        return 0;
    out[0] = pass(I_copy, all, n->columns, matrices);
    out[1] = pass(I_sum_squares, all, 0, matrices);
    out[2] = product(side, side, n->rows + n->columns - side, steps);
    out[3] = product(side, side, side, steps);
    out[4] = pass(I_add, side * side, 0, steps);
    out[5] = product(n->rows, n->columns, side, steps);
    return 6;
}
