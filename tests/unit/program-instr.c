/* The table of instructions: what it says of itself, and that programs keep to it. */
#include "program-random.h"

#include <math.h>

/* ---- the table ------------------------------------------------------------------------------- */

static bool distinct(const char *const *names, int n) {
    for (int a = 0; a < n; a++)
        for (int b = 0; b < a; b++)
            if (!strcmp(names[a], names[b]))
                return false;
    return true;
}

/* Operands and results are named, all differently; flags stand where they mean something. */
static bool operands_good(const struct instr_info *info) {
    const char *names[INSTR_MAX_IN + INSTR_MAX_OUT];
    bool good = info->n_in <= INSTR_MAX_IN && info->n_out <= INSTR_MAX_OUT;
    int n = 0;
    for (int k = 0; good && k < info->n_in; k++) {
        names[n++] = info->in[k].name;
        bool over = info->in[k].flags & OPERAND_OVER;
        unsigned types = info->in[k].flags ^ info->out[0].flags; /* where they differ */
        good &= !(info->in[k].flags & OPERAND_ADD) &&
                (!over || (info->n_out && !(types & OPERAND_F32)));
    }
    for (int k = 0; good && k < info->n_out; k++) {
        names[n++] = info->out[k].name;
        const unsigned flags = info->out[k].flags;
        good &= !(flags & ~(unsigned)(OPERAND_ADD | OPERAND_FRESH | OPERAND_OLD |
                                      OPERAND_F32 | OPERAND_SLOTS | OPERAND_HOST)) &&
                (!(flags & OPERAND_FRESH) || (flags & OPERAND_ADD));
    }
    return good && distinct(names, n);
}

static void test_table(void) {
    for (int c = 0; c < OPCODE_COUNT; c++) {
        const struct instr_info *info = instr_info((enum opcode)c);
        ok(opcode_find(info->name) == c && info->about && info->about[0] &&
               info->n_shape <= INSTR_MAX_SHAPE && distinct(info->shape, info->n_shape) &&
               operands_good(info) && opcode_key((enum opcode)c) == info->key &&
               (info->key != KEY_CURVE || !strcmp(info->shape[0], "elems")),
           "%s: found by its name; numbers and operands named and counted", info->name);
    }
    ok(opcode_find("") == -1 && opcode_find("Linear") == -1, "no other names");
}

static void test_init(void) {
    struct instr i = instr_init(I_linear);
    bool empty = i.code == I_linear && i.op == -1 && i.tensor == -1 && i.param == -1 &&
                 i.transfer == -1 && i.work == -1 && !i.axes;
    for (int k = 0; k < INSTR_MAX_IN; k++)
        empty &= i.in.v[k] == -1;
    for (int k = 0; k < INSTR_MAX_OUT; k++)
        empty &= i.out.v[k] == -1;
    ok(empty, "a new instruction is about nothing");
    i.n.linear.m = 2048, i.n.linear.n = 1536, i.n.linear.k = 384, i.n.linear.bias = 1;
    char key[64];
    ok(!strcmp(instr_shape_format(I_linear, &i.n, key, sizeof key), "2048,1536,384,0,1"),
       "its key is its numbers in order: %s", key);
    ok(!strcmp(instr_shape_format(I_linear, &i.n, key, 8), "2048,15") && strlen(key) == 7,
       "a short buffer cuts it: %s", key);
}

/* ---- work --------------------------------------------------------------------------------- */

/* For some shapes: nothing is negative, and what may be written over has the result's size. */
static void test_work(void) {
    for (int c = 0; c < OPCODE_COUNT; c++) {
        const struct instr_info *info = instr_info((enum opcode)c);
        bool good = true;
        for (int64_t v = 1; v <= 6; v++) {
            union instr_n n = {{0}};
            struct instr_work w;
            for (int k = 0; k < info->n_shape; k++)
                n.v[k] = v * (k + 1); /* collectives: parts divide elems only sometimes */
            instr_work((enum opcode)c, &n, &w);
            double f32 = instr_bytes(&w, DTYPE_f32), bf16 = instr_bytes(&w, DTYPE_bf16);
            good &= isfinite(w.flops) && w.flops >= 0 && isfinite(f32) && bf16 >= 0 &&
                    bf16 <= f32 && 2 * bf16 >= f32;
            for (int k = 0; k < info->n_in; k++)
                good &= w.in[k] >= 0 && w.below[k] >= 0 &&
                        (w.below[k] > 0) ==
                            ((info->in[k].flags & (OPERAND_IDS | OPERAND_SLOTS)) != 0) &&
                        (!(info->in[k].flags & OPERAND_OVER) || w.in[k] == w.out[0]);
            for (int k = 0; k < info->n_out; k++)
                good &= w.out[k] >= 0;
            for (int k = info->n_in; k <= INSTR_MAX_IN; k++)
                good &= w.in[k] == 0;
        }
        ok(good, "%s: its work", info->name);
    }
}

static struct instr_work work_of(enum opcode code, union instr_n n) {
    struct instr_work w;
    instr_work(code, &n, &w);
    return w;
}

static void test_known_work(void) {
    union instr_n n = {.linear = {.m = 3, .n = 5, .k = 7, .bias = 1}};
    struct instr_work w = work_of(I_linear, n);
    ok(w.flops == 210 && w.in[0] == 21 && w.in[1] == 35 && w.in[2] == 5 && w.out[0] == 15 &&
           instr_bytes(&w, DTYPE_f32) == 4 * 76 && instr_bytes(&w, DTYPE_bf16) == 2 * 76,
       "linear: 2mnk operations, every operand once");
    union instr_n last = {
        .attention = {1, 1, 1, 1, .seq = 8, .kv_seq = 8, .dim = 5, .causal = 1}};
    char text[64];
    ok(work_of(I_attention, last).flops == 4 * 5 * 36 &&
           !strcmp(instr_shape_format(I_attention, &last, text, sizeof text),
                   "1,1,1,1,8,8,5,1,0,0,0"),
       "causal attention: 1 + 2 .. + 8 keys are seen; options that are 0 are not written");
    last.attention.window = 3;
    ok(work_of(I_attention, last).flops == 4 * 5 * (1 + 2 + 6 * 3) &&
           !strcmp(instr_shape_format(I_attention, &last, text, sizeof text),
                   "1,1,1,1,8,8,5,1,0,0,0,3"),
       "under a window: the last 3 at most");
    last.attention.seq = 4; /* the last ones */
    ok(work_of(I_attention, last).flops == 4 * 5 * 4 * 3, "of later queries: 3 each");
    last.attention.window = 0, last.attention.starts = 1;
    ok(work_of(I_attention, last).in[4] == 4 &&
           !strcmp(instr_shape_format(I_attention, &last, text, sizeof text),
                   "1,1,1,1,4,8,5,1,0,0,0,0,0,1") &&
           (instr_info(I_attention)->in[4].flags & OPERAND_STARTS),
       "where documents start: a number for each query");
    const unsigned flags[] = {instr_info(I_attention)->in[3].flags,
                              instr_info(I_attention_more_bwd)->in[3].flags,
                              instr_info(I_embedding)->in[0].flags};
    ok((flags[0] & OPERAND_COUNTS) && (flags[1] & OPERAND_COUNTS) &&
           !(flags[2] & OPERAND_COUNTS),
       "lengths are of how much there is, and timed at the most; ids are not");
    n.linear.bias = 0;
    ok(work_of(I_linear, n).in[2] == 0, "linear without a bias has no third operand");
    union instr_n dw = {.linear_dw = {.m = 3, .n = 5, .k = 7}};
    w = work_of(I_linear_dw, dw);
    ok(w.flops == 210 && w.out[0] == 35 && w.out[1] == 0 &&
           instr_bytes(&w, DTYPE_f32) == 4 * (21 + 15 + 2 * 35) &&
           instr_bytes(&w, DTYPE_bf16) == 2 * (21 + 15) + 4 * 2 * 35,
       "linear_dw: what it adds to, f32 in any type, crosses memory twice");
    union instr_n a = {
        .attention = {
            .batch = 2, .heads = 3, .kv_heads = 3, .seq = 4, .kv_seq = 4, .dim = 5}};
    double full = work_of(I_attention, a).flops;
    a.attention.causal = 1;
    ok(full == 4.0 * 2 * 3 * 5 * 4 * 4 && work_of(I_attention, a).flops == full * 2.5 / 4,
       "attention: causal does (seq + 1) / 2 of seq");
    a.attention.kv_seq = 12;
    ok(work_of(I_attention, a).flops == full * 10.5 / 4,
       "causal, the last 4 queries of 12: all keys but half of the last");
    union instr_n e = {.embedding = {.rows = 8, .vocab = 100, .width = 4}};
    w = work_of(I_embedding, e);
    ok(w.below[0] == 100 && w.in[1] == 400 && instr_bytes(&w, DTYPE_f32) == 4 * (8 + 64) &&
           w.flops == 0,
       "embedding: the table is read where the ids say, not as a whole");
    union instr_n g = {.all_gather = {.elems = 12, .parts = 4}};
    ok(work_of(I_all_gather, g).in[0] == 3 && work_of(I_all_gather, g).out[0] == 12 &&
           work_of(I_reduce_scatter, g).in[0] == 12 &&
           work_of(I_reduce_scatter, g).out[0] == 3,
       "collectives: elems are those of the larger side");
    union instr_n s = {.adamw = {.elems = 10}};
    w = work_of(I_adamw, s);
    ok(instr_bytes(&w, DTYPE_bf16) == 4 * (10 + 2 * 30),
       "adamw: reads g, and p, m, v in and out");
}

/* The products that it is made of do all of its arithmetic, and nothing else is made of parts. */
static void test_parts(void) {
    const union instr_n n[] = {{.orthogonalize = {2, 40, 3, 16, 0}},
                               {.orthogonalize = {1, 16, 1, 40, 0}}};
    struct instr_part parts[INSTR_MAX_PARTS];
    for (int i = 0; i < 2; i++) {
        const struct instr_key key = instr_key(I_orthogonalize, DTYPE_f32, &n[i]);
        const struct instr_work all = work_of(I_orthogonalize, n[i]);
        const int count = instr_parts(&key, parts);
        double flops = 0;
        for (int k = 0; k < count; k++)
            if (parts[k].key.code == I_linear)
                flops += parts[k].times * work_of(I_linear, parts[k].key.n).flops;
        ok(count > 0 && flops == all.flops && all.out[1] == 640 + 2 * 16 * 16,
           "orthogonalize: its products do its %g operations", all.flops);
    }
    int others = 0;
    for (int c = 0; c < OPCODE_COUNT; c++) {
        const struct instr_key key = instr_key((enum opcode)c, DTYPE_f32, &n[0]);
        others +=
            (instr_parts(&key, parts) > 0) != (opcode_key((enum opcode)c) == KEY_PARTS);
    }
    ok(others == 0, "what is timed by its parts has some, and nothing else");
}

/* ---- programs --------------------------------------------------------------------------------- */

/* Operands that are there although the table says that they have no element, or the reverse, or
 * whose buffer has another size; a copy may read a part of a larger one. */
static int count_lies(const struct stage_program *sp) {
    int found = 0;
    for (const struct instr *i = sp->instrs; i < sp->instrs + sp->n_instrs; i++) {
        struct instr_work w;
        int before = found;
        instr_work(i->code, &i->n, &w);
        for (int k = 0; k < INSTR_MAX_IN; k++) {
            int64_t elems = i->in.v[k] >= 0 ? sp->buffers[i->in.v[k]].elems : 0;
            found += i->code == I_copy ? elems < w.in[k] : elems != w.in[k];
        }
        for (int k = 0; k < INSTR_MAX_OUT; k++)
            found += (i->out.v[k] >= 0 ? sp->buffers[i->out.v[k]].elems : 0) != w.out[k];
        char key[64];
        if (found > before)
            printf("# %s %s\n", opcode_name(i->code),
                   instr_shape_format(i->code, &i->n, key, sizeof key));
    }
    return found;
}

static void test_programs(void) {
    int seen[OPCODE_COUNT] = {0}, lies = 0, plans = 0;
    for (uint64_t k = 0; k < 120; k++) {
        struct compiled c = random_program(6, k);
        for (int s = 0; c.g && s < c.g->n_stages; s++) {
            const struct stage_program *sp = &c.g->stages[s];
            lies += count_lies(sp);
            for (int i = 0; i < sp->n_instrs; i++)
                seen[sp->instrs[i].code]++;
        }
        plans += c.g != NULL;
        compiled_release(&c);
    }
    ok(plans == 120 && !lies, "in %d programs all operands are those of the table (%d not)",
       plans, lies);
    for (int c = 0; c < OPCODE_COUNT; c++)
        ok(seen[c] > 0, "%s is emitted", opcode_name((enum opcode)c));
}

static void test_keys(void) {
    const union instr_n add = {.v = {64, 7}}, more = {.v = {65}};
    struct instr_key a = instr_key(I_add, DTYPE_f32, &add),
                     b = instr_key(I_add, DTYPE_f32, &more);
    struct instr_key same = {I_add, DTYPE_f32, {.add = {.elems = 64}}},
                     other = {I_gelu, DTYPE_f32, same.n};
    ok(instr_key_equal(&a, &same) && instr_key_hash(&a) == instr_key_hash(&same) &&
           !instr_key_compare(&a, &same),
       "a key holds the numbers of its opcode and nothing else");
    ok(!instr_key_equal(&a, &b) && instr_key_compare(&a, &b) < 0 &&
           instr_key_compare(&b, &a) > 0,
       "keys with other numbers differ, the smaller is first");
    ok(!instr_key_equal(&same, &other) &&
           (instr_key_compare(&same, &other) < 0) == (I_add < I_gelu),
       "the opcode counts first");
}

int main(void) {
    test_keys();
    test_table();
    test_init();
    test_work();
    test_known_work();
    test_parts();
    test_programs();
    return done_testing();
}
