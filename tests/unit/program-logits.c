/* Logits in pieces: which losses are cut, what is kept then, what is left out while evaluating. */
#include "program.h"

#include <string.h>

static int count(const struct stage_program *sp, enum segment segment, enum opcode code) {
    int n = 0;
    FOR_SEGMENT(sp, segment, i)
    n += i->code == code;
    return n;
}

/* Losses of a piece, over all stages; the gradients of losses in forward passes, in backward ones. */
struct counts {
    int losses, early, late;
};

static struct counts counts_of(const struct program *g) {
    struct counts c = {0, 0, 0};
    for (int s = 0; s < g->n_stages; s++) {
        const struct stage_program *sp = &g->stages[s];
        c.losses += count(sp, SEG_FORWARD, I_cross_entropy) +
                    count(sp, SEG_FORWARD, I_cross_entropy_finish);
        c.early += count(sp, SEG_FORWARD, I_cross_entropy_dx);
        c.late += count(sp, SEG_BACKWARD, I_cross_entropy_dx);
    }
    return c;
}

#define PLAN(model, set, keys, stage)                                                      \
    "{'format': 'weft-plan/1', 'model': '" model "', 'set': '" set "', 'batch': 8, " keys  \
    " 'stages': [{" stage "}]}"
#define GPT "layers=2,hidden=64,heads=4,seq=64,vocab=512"

/* ---- which are cut ------------------------------------------------------------------------- */

static const struct {
    const char *about, *plan;
    int losses; /* pieces of all of them */
    bool cut;
} cases[] = {
    {"one piece", PLAN("gpt:nano", GPT, "'logits': 1,", ""), 1, false},
    {"four pieces", PLAN("gpt:nano", GPT, "'logits': 4,", ""), 4, true},
    {"rows that they do not divide", PLAN("gpt:nano", GPT, "'logits': 3,", ""), 3, true},
    {"no more than begin where buffers may", PLAN("gpt:nano", GPT, "'logits': 100,", ""),
     32, true},
    {"micro-batches", PLAN("gpt:nano", GPT, "'logits': 4, 'micro_batch': 2,", ""), 4, true},
    {"in 16 bits", PLAN("gpt:nano", GPT, "'logits': 4, 'dtype': 'bf16',", ""), 4, true},
    {"a split vocabulary",
     PLAN("gpt:nano", GPT, "'logits': 4,", "'mesh': 'tp:2', 'layout': {'tp': 'vocab'}"), 4,
     true},
    {"a sum over hidden before the loss",
     PLAN("gpt:nano", GPT, "'logits': 4,", "'mesh': 'tp:2', 'layout': {'tp': 'hidden'}"), 1,
     false},
    {"sequence parallelism",
     PLAN("gpt:nano", GPT, "'logits': 4,",
          "'mesh': 'tp:2', 'layout': {'tp': ['vocab', 'heads', 'ffn', 'seq']}, "
          "'regather': true"),
     4, true},
    {"gradients that are shared out",
     PLAN("gpt:nano", GPT, "'logits': 4,",
          "'mesh': 'dp:2', 'layout': {'dp': 'batch'}, 'zero': 2"),
     4, true},
    {"parameters that are shared out",
     PLAN("gpt:nano", GPT, "'logits': 4, 'overlap': true,",
          "'mesh': 'dp:2', 'layout': {'dp': 'batch'}, 'zero': 3"),
     4, true},
    {"a head that is recomputed",
     PLAN("gpt:nano", GPT, "'logits': 4,", "'recompute': ['head', 'ln']"), 4, true},
    {"the optimizer on the host",
     PLAN("gpt:nano", GPT, "'logits': 4,", "'offload': ['optimizer']"), 4, true},
    {"activations on the host",
     PLAN("gpt:nano", GPT, "'logits': 4,", "'offload': ['activations']"), 1, false},
    {"a soft cap", PLAN("./tests/models/capped.json", "", "'logits': 2,", ""), 2, true},
    {"T5, whose head is that of its decoder", PLAN("t5:nano", "", "'logits': 4,", ""), 4,
     true},
    {"experts", PLAN("moe:nano", "", "'logits': 4,", ""), 4, true},
    {"four losses of few rows", PLAN("./tests/models/tasks.json", "", "'logits': 2,", ""),
     4, false},
    {"adapters, with the head frozen",
     PLAN("./tests/models/adapters.json", "", "'logits': 2,", ""), 2, true},
    {"an interleaved pipeline",
     "{'format': 'weft-plan/1', 'model': 'gpt:nano', 'set': 'layers=2,seq=64,hidden=96', "
     "'batch': 8, 'micro_batch': 2, 'schedule': 'interleaved', 'logits': 2, 'stages': "
     "[{'ops': ['wte', 'wpe'], 'group': 0}, {'ops': 'layer.0', 'group': 1}, "
     "{'ops': 'layer.1', 'group': 0}, {'group': 1}]}",
     2, true},
    {"weight gradients that are late",
     "{'format': 'weft-plan/1', 'model': 'gpt:nano', 'set': 'layers=2,seq=64,hidden=96', "
     "'batch': 8, 'micro_batch': 2, 'schedule': 'zero-bubble', 'logits': 2, 'stages': "
     "[{'ops': ['wte', 'wpe', 'layer.0']}, {}]}",
     2, true},
    {"a head in another stage than its loss",
     "{'format': 'weft-plan/1', 'model': 'gpt:nano', 'set': 'layers=2,seq=64,hidden=96', "
     "'batch': 8, 'logits': 2, 'stages': [{}, {'ops': 'loss'}]}",
     1, false},
    {"a stage that has the head and its loss alone",
     "{'format': 'weft-plan/1', 'model': 'gpt:nano', 'set': 'layers=2,seq=64,hidden=96', "
     "'batch': 8, 'logits': 2, 'stages': [{}, {'ops': ['head', 'loss']}]}",
     2, true},
};

static void test_cases(void) {
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct compiled c = compile(cases[k].plan);
        struct counts n = counts_of(c.g);
        ok(n.losses == cases[k].losses && (cases[k].cut ? n.early == n.losses && !n.late
                                                        : !n.early && n.late == n.losses),
           "%s: %d of %d, gradients of %d early and %d late", cases[k].about, n.losses,
           cases[k].losses, n.early, n.late);
        compiled_release(&c);
    }
}

/* ---- memory ------------------------------------------------------------------------------- */

/* Rows, words, width of what the head reads: in f32. */
enum { ROWS = 8 * 64, WORDS = 512, WIDTH = 64 };

static void test_memory(void) {
    struct compiled whole = compile(PLAN("gpt:nano", GPT, "", ""));
    struct compiled cut = compile(PLAN("gpt:nano", GPT, "'logits': 8,", ""));
    const struct stage_program *a = &whole.g->stages[0], *b = &cut.g->stages[0];
    /* Logits, targets and normalizers are not kept; of the head's operand its gradient is, not it. */
    const int64_t gone = 4 * ((int64_t)ROWS * WORDS + ROWS + ROWS);
    ok(a->own[MEM_activations] - b->own[MEM_activations] == gone,
       "kept are %lld bytes less: logits, targets and normalizers of all rows",
       (long long)(a->own[MEM_activations] - b->own[MEM_activations]));
    int64_t piece = 0;
    FOR_SEGMENT(b, SEG_FORWARD, i)
    if (i->code == I_cross_entropy)
        piece = b->buffers[i->in.cross_entropy.logits].elems;
    ok(piece == (int64_t)ROWS / 8 * WORDS, "an eighth of the logits is there at a time");
    ok(a->own[MEM_gradients] == b->own[MEM_gradients] &&
           a->own[MEM_temporaries] >= b->own[MEM_temporaries],
       "nothing else takes more");
    compiled_release(&whole);
    compiled_release(&cut);
}

/* Pieces lie one behind the other in what they are of, and cover it. */
static void test_parts(void) {
    struct compiled c = compile(PLAN("gpt:nano", GPT, "'logits': 3,", ""));
    const struct stage_program *sp = &c.g->stages[0];
    int64_t next = 0, rows = 0;
    int whole = -1;
    bool good = true;
    FOR_SEGMENT(sp, SEG_FORWARD, i) {
        if (i->code != I_linear_dx)
            continue;
        const struct buffer *b = &sp->buffers[i->out.linear_dx.dx];
        good &= b->part_of && b->first == next && b->elems == i->n.linear_dx.m * WIDTH &&
                b->offset == sp->buffers[b->part_of - 1].offset + 4 * b->first;
        whole = b->part_of - 1;
        next += b->elems;
        rows += i->n.linear_dx.m;
    }
    ok(good && rows == ROWS && whole >= 0 && sp->buffers[whole].elems == next,
       "gradients of pieces are parts of one buffer, and all of it");
    compiled_release(&c);
}

/* ---- evaluating ---------------------------------------------------------------------------- */

/* What is left out then writes nothing that the rest reads, and is all that touches gradients. */
static void test_trains(void) {
    struct compiled c =
        compile(PLAN("gpt:nano", GPT, "'logits': 4, 'overlap': true,",
                     "'mesh': 'dp:2', 'layout': {'dp': 'batch'}, 'zero': 2"));
    const struct stage_program *sp = &c.g->stages[0];
    bool *made = mem_array((size_t)sp->n_buffers, sizeof *made);
    int left_out = 0, wrong = 0, touched = 0;
    FOR_SEGMENT(sp, SEG_FORWARD, i) {
        int b[INSTR_MAX_BUFFERS], n = instr_buffers(i, b);
        left_out += i->trains;
        for (int k = 0; k < n && !i->trains; k++)
            touched += sp->buffers[b[k]].mem == MEM_gradients;
        for (int k = 0; k < INSTR_MAX_IN; k++)
            wrong += !i->trains && i->in.v[k] >= 0 && made[i->in.v[k]];
        for (int k = 0; k < INSTR_MAX_OUT; k++)
            if (i->out.v[k] >= 0)
                made[i->out.v[k]] = i->trains;
    }
    ok(left_out > 0 && !wrong && !touched,
       "%d instructions are left out while evaluating; the others need none of them",
       left_out);
    FOR_SEGMENT(sp, SEG_BACKWARD, i)
    wrong += i->trains;
    ok(!wrong, "in backward passes none says so");
    free(made);
    compiled_release(&c);
}

/* A gradient that forward passes alone add to is reduced from the beginning of the last backward on. */
static void test_overlap(void) {
    struct compiled c = compile(
        PLAN("gpt:nano", GPT ",tied=0", "'logits': 4, 'overlap': true, 'micro_batch': 4,",
             "'mesh': 'dp:2 tp:2', 'layout': {'dp': 'batch', 'tp': ['vocab', 'seq']}"));
    const struct stage_program *sp = &c.g->stages[0];
    struct span last = program_segment(sp, SEG_LAST_BACKWARD);
    const struct instr *first = &sp->instrs[last.first];
    ok(first->code == I_all_reduce && first->work >= 0 &&
           first->n.all_reduce.elems == WORDS / 2 * WIDTH,
       "the head's gradient is summed beside all of the last backward pass");
    compiled_release(&c);
}

int main(void) {
    test_cases();
    test_memory();
    test_parts();
    test_trains();
    test_overlap();
    return done_testing();
}
