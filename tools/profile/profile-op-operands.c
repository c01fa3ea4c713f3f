/* Where an instruction's operands lie, and what is in them.
 *
 * First come the operands that the instruction before has just made, then the sets of old ones. The host
 * fills little: numbers come in a pattern, of which the device makes as much as there is room, by copies
 * that double what is there. */
#include "profile-op.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

enum { PATTERN = 1 << 14 /* numbers */, WORD = 4 /* bytes of a copied element */ };

static int64_t operand_bytes(const struct operand_info *o, enum dtype dtype,
                             int64_t elems) {
    return memory_aligned(dtype_size(operand_dtype(o, dtype)) * elems);
}

int64_t operands_bytes(const struct instr_key *key, const struct instr_work *w,
                       unsigned mask, bool old) {
    const struct instr_info *info = instr_info(key->code);
    int64_t bytes = 0;
    for (int i = 0; i < info->n_in; i++, mask >>= 1)
        if ((mask & 1) == old)
            bytes += operand_bytes(&info->in[i], key->dtype, w->in[i]);
    for (int i = 0; i < info->n_out; i++, mask >>= 1)
        if ((mask & 1) == old)
            bytes += operand_bytes(&info->out[i], key->dtype, w->out[i]);
    return bytes;
}

/* Takes the operand's place from what is left of the old or of the other ones. */
static void *take(const struct bench *b, const struct operand_info *o, int64_t elems,
                  char **at) {
    char *p = *at;
    *at += operand_bytes(o, b->key.dtype, elems);
    return elems ? p : NULL;
}

/* All operands of an instruction, from the two places on. */
static void take_all(const struct bench *b, const struct instr_info *info,
                     const struct instr_work *w, unsigned mask, char *fresh, char *old,
                     union instr_src *in, union instr_dst *out) {
    for (int i = 0; i < info->n_in; i++, mask >>= 1)
        in->v[i] = take(b, &info->in[i], w->in[i], mask & 1 ? &old : &fresh);
    for (int i = 0; i < info->n_out; i++, mask >>= 1)
        out->v[i] = take(b, &info->out[i], w->out[i], mask & 1 ? &old : &fresh);
}

void operands_at(const struct bench *b, int set, union instr_src *in,
                 union instr_dst *out) {
    const struct instr_work *w = &b->work;
    char *fresh = b->memory;
    char *old = b->memory + operands_bytes(&b->key, w, b->old, false) +
                set * operands_bytes(&b->key, w, b->old, true);
    take_all(b, b->info, w, b->old, fresh, old, in, out);
}

/* ---- what is launched behind --------------------------------------------------------------- */

/* Which operand of it is the result before, and is that overwritten? */
static int between(enum opcode behind) {
    return behind == I_gelu_dx || behind == I_add; /* the second of both */
}

static bool is_in_place(enum opcode behind) {
    return behind == I_gelu_dx || behind == I_add;
}

static struct instr_work beside(const struct instr_key *behind) {
    struct instr_work w;
    instr_work(behind->code, &behind->n, &w);
    w.in[between(behind->code)] = 0;
    if (is_in_place(behind->code))
        w.out[0] = 0;
    return w;
}

int64_t operands_beside_bytes(const struct instr_key *behind, bool old) {
    const struct instr_work w = beside(behind);
    return operands_bytes(behind, &w, cold_operands(NULL, behind), old);
}

void operands_behind(const struct bench *b, int set, const struct cuda_given *before,
                     struct cuda_given *out) {
    const struct instr_key *key = &b->behind;
    const struct instr_info *info = instr_info(key->code);
    const struct instr_work w = beside(key);
    const unsigned mask = cold_operands(NULL, key);
    char *fresh = b->beside,
         *old = fresh + operands_bytes(key, &w, mask, false) +
                set % b->beside_sets * operands_bytes(key, &w, mask, true);
    *out = (struct cuda_given){.code = key->code, .n = key->n, .args = before->args};
    take_all(b, info, &w, mask, fresh, old, &out->in, &out->out);
    out->in.v[between(key->code)] = before->out.v[0];
    if (is_in_place(key->code))
        out->out.v[0] = before->out.v[0];
}

/* ---- filling ------------------------------------------------------------------------------ */

/* `words` stays what it is until the device has come to the copy. */
static int copy(struct bench *b, const char *from, char *to, const int64_t *words,
                struct err *err) {
    static const int64_t step = 1;
    const union instr_n n = {.copy = {.elems = *words, .inner = *words}};
    const union instr_src in = {.copy = {.x = (void *)from}};
    const union instr_dst out = {.copy = {.y = to}};
    const struct device_args args = {.dtype = DTYPE_f32, .copy = {1, words, &step, &step}};
    return device_launch(b->stream, I_copy, &n, &in, &out, &args, err);
}

/* What stands at the beginning of a place, again and again up to its end. */
static int repeat(struct bench *b, char *place, int64_t have, int64_t bytes,
                  struct err *err) {
    int64_t words[64];
    int rc = 0;
    for (int i = 0; have && have < bytes && rc == 0; have *= 2, i++) {
        words[i] = (bytes - have < have ? bytes - have : have) / WORD;
        rc = copy(b, place, place + have, &words[i], err);
    }
    return rc == 0 ? device_synchronize(b->stream, err) : rc;
}

/* Positive numbers below one: good for any operand, and no result of them is denormal. */
static int fill_numbers(struct bench *b, char *to, int64_t bytes, enum dtype dtype,
                        struct err *err) {
    static float pattern[PATTERN], narrow[PATTERN];
    uint32_t state = 12345;
    for (int i = 0; i < PATTERN && pattern[PATTERN - 1] == 0; i++) {
        state = state * 1664525u + 1013904223u;
        pattern[i] = 0.05f + 0.9f * (float)(state >> 8) * 0x1p-24f;
    }
    kernel_narrow(PATTERN, dtype, pattern, narrow);
    int64_t have = PATTERN * dtype_size(dtype);
    have = have < bytes ? have : bytes;
    if (!bytes)
        return 0;
    if (device_upload(b->stream, to, narrow, have, err) < 0)
        return -1;
    return repeat(b, to, have, bytes, err);
}

/* Where the document of query i starts. */
static int64_t start_of(const struct bench *b, int operand, int64_t i) {
    const int64_t each = b->work.each[operand], seq = b->key.n.attention.seq;
    const int64_t position = bench_first_query(&b->key) + i % seq;
    return each ? position / each * each : 0;
}

/* Tokens by chance; of experts' slots all are loaded alike, for how long routed tokens take depends on
 * where they go; of lengths all are whole, as spans that are cut to fit make them; documents are as long as the
 * shape says, or all of a sequence is one. */
static int fill_whole(struct bench *b, int operand, char *to, struct err *err) {
    const unsigned flags = b->info->in[operand].flags;
    const int64_t n = b->work.in[operand], below = b->work.below[operand];
    int32_t *ids = mem_array((size_t)n + 1, sizeof *ids);
    uint32_t state = 54321;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        ids[i] = (int32_t)(flags & OPERAND_COUNTS   ? below - 1
                           : flags & OPERAND_STARTS ? start_of(b, operand, i)
                           : flags & OPERAND_SLOTS
                               ? i % below
                               : (int64_t)((uint64_t)state * (uint64_t)below >> 32));
    }
    int rc = device_upload(b->stream, to, ids, n * (int64_t)sizeof *ids, err);
    free(ids);
    return rc;
}

static int fill_in(struct bench *b, int i, char *to, struct err *err) {
    const struct operand_info *o = &b->info->in[i];
    const int64_t elems = b->work.in[i];
    if (elems && o->flags & (OPERAND_IDS | OPERAND_SLOTS))
        return fill_whole(b, i, to, err);
    return fill_numbers(b, to, operand_bytes(o, b->key.dtype, elems),
                        operand_dtype(o, b->key.dtype), err);
}

/* Whole numbers are only written: there it may be anything. */
static int fill_out(struct bench *b, int i, char *to, struct err *err) {
    const struct operand_info *o = &b->info->out[i];
    return fill_numbers(b, to, operand_bytes(o, b->key.dtype, b->work.out[i]),
                        operand_typed(o) ? b->key.dtype : DTYPE_f32, err);
}

int operands_fill(struct bench *b, struct err *err) {
    const struct instr_work *w = &b->work;
    const int64_t fresh = operands_bytes(&b->key, w, b->old, false);
    const int64_t old = operands_bytes(&b->key, w, b->old, true);
    union instr_src in;
    union instr_dst out;
    int rc = 0;
    operands_at(b, 0, &in, &out);
    for (int i = 0; i < b->info->n_in && rc == 0; i++)
        rc = fill_in(b, i, in.v[i], err);
    for (int i = 0; i < b->info->n_out && rc == 0; i++)
        rc = fill_out(b, i, out.v[i], err);
    if (rc == 0)
        rc = repeat(b, b->memory + fresh, old, b->sets * old, err);
    return rc;
}
