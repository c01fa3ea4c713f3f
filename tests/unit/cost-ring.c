/* Keys and values that go round: in which order, in how much memory, at what cost, and that the
 * validator sees what is wrong there. */
#include "program.h"

#include "cost/simulate.h"

#include <math.h>

/* One layer of Llama on a ring of devices; what is wanted of keys and values: sent round, gathered, or
 * gathered again. */
static struct compiled compile_on(int devices, const char *how) {
    char text[512];
    snprintf(text, sizeof text,
             "{'format': 'weft-plan/1', 'model': 'llama:nano', 'batch': 2,"
             " 'set': 'layers=1,hidden=32,heads=8,kv_heads=4,ffn=32,vocab=32,seq=256',"
             " 'stages': [{'mesh': 'cp:%d', 'layout': {'cp': 'seq'}%s}]}",
             devices, how);
    return compile(text);
}
#define RING ", 'ring': true"

/* Elements of the keys and the values of that layer. */
enum { KEYS = 2 * 256 * 32 / 2, FLOAT_BYTES = 4 };

/* ---- the order ---------------------------------------------------------------------------- */

static int count(const struct stage_program *sp, enum segment segment, enum opcode code) {
    int n = 0;
    FOR_SEGMENT(sp, segment, i) n += i->code == code;
    return n;
}

/* Is each step computed while what it reads goes on, and waited for behind it? */
static bool overlaps(const struct stage_program *sp, enum segment segment) {
    int going = 0, steps = 0, bare = 0;
    FOR_SEGMENT(sp, segment, i) {
        going += (i->code == I_shift) - (i->code == I_wait);
        bool computes = i->code == I_attention || i->code == I_attention_more ||
                        i->code == I_attention_bwd || i->code == I_attention_more_bwd;
        steps += computes;
        bare += computes && going == 0;
    }
    /* The last step of the forward pass has nothing to send; backward it has sums. */
    return steps == 4 && bare == (segment == SEG_FORWARD) && going == 0;
}

static void test_order(void) {
    struct compiled c = compile_on(4, RING);
    const struct stage_program *sp = c.g->stages;
    ok(count(sp, SEG_FORWARD, I_attention) == 1 &&
           count(sp, SEG_FORWARD, I_attention_more) == 3 &&
           count(sp, SEG_FORWARD, I_shift) == 2 * 3 &&
           count(sp, SEG_FORWARD, I_all_gather) == 0,
       "forward: own keys and three times those of others, nothing is gathered");
    ok(count(sp, SEG_BACKWARD, I_attention_bwd) == 1 &&
           count(sp, SEG_BACKWARD, I_attention_more_bwd) == 3 &&
           count(sp, SEG_BACKWARD, I_shift) == 2 * 3 + 2 * 4 &&
           count(sp, SEG_BACKWARD, I_reduce_scatter) == 0,
       "backward: keys once more, their gradients one step farther, home");
    ok(overlaps(sp, SEG_FORWARD) && overlaps(sp, SEG_BACKWARD),
       "what a step reads is under way while it computes");
    compiled_release(&c);
    c = compile_on(1, RING);
    ok(count(c.g->stages, SEG_FORWARD, I_shift) == 0, "one device sends nothing");
    compiled_release(&c);
}

/* ---- memory ---------------------------------------------------------------------------- */

/* Does an instruction from this one on, up to the end, touch the buffer? */
static bool is_touched(const struct stage_program *sp, int buffer, int at, int end) {
    for (; at < end; at++) {
        int b[INSTR_MAX_BUFFERS], n = instr_buffers(&sp->instrs[at], b);
        for (int k = 0; k < n; k++)
            if (b[k] == buffer)
                return true;
    }
    return false;
}

/* The most elements of what came from others that are there at once in the forward pass. */
static int64_t most_from_others(const struct stage_program *sp) {
    struct span s = program_segment(sp, SEG_FORWARD);
    int64_t most = 0;
    for (int at = s.first; at < s.end; at++) {
        int64_t now = 0;
        for (int i = s.first; i <= at; i++) {
            int b = sp->instrs[i].out.shift.y;
            if (sp->instrs[i].code == I_shift && is_touched(sp, b, at, s.end))
                now += sp->buffers[b].elems;
        }
        most = now > most ? now : most;
    }
    return most;
}

/* Gathered, they are kept whole for the backward pass; going round, a share of them. */
static void test_memory(void) {
    for (int devices = 2; devices <= 8; devices *= 2) {
        struct compiled ring = compile_on(devices, RING), whole = compile_on(devices, "");
        struct compiled again = compile_on(devices, ", 'regather': true");
        int64_t kept = whole.g->stages->bytes[MEM_activations] -
                       ring.g->stages->bytes[MEM_activations];
        int64_t all = 2 * (int64_t)KEYS * FLOAT_BYTES;
        ok(kept == all - all / devices,
           "%d devices: of %lld bytes of keys and values a share of 1/%d is kept, %lld are not",
           devices, (long long)all, devices, (long long)kept);
        ok(most_from_others(ring.g->stages) == (devices == 2 ? 1 : 2) * 2 * KEYS / devices,
           "and no more than two parts of others are there at once");
        ok(ring.g->stages->arena_bytes < again.g->stages->arena_bytes ||
               devices == 2, /* two parts are all of them */
           "%lld bytes in all, gathered again %lld", (long long)ring.g->stages->arena_bytes,
           (long long)again.g->stages->arena_bytes);
        compiled_release(&ring);
        compiled_release(&whole);
        compiled_release(&again);
    }
}

/* ---- cost ------------------------------------------------------------------------------ */

/* A step of attention takes 100 us, a message so long, and as much of it hides as is said. */
struct invented {
    struct cost_provider base;
    double message_us, overlap;
};

static struct cost_time op_us(const struct cost_provider *p, const struct op_question *q) {
    (void)p;
    bool attends = q->key->code == I_attention || q->key->code == I_attention_more ||
                   q->key->code == I_attention_bwd || q->key->code == I_attention_more_bwd;
    return (struct cost_time){.us = attends ? 100 : 0, .from = COST_MEASURED};
}

static struct cost_time nothing(const struct cost_provider *p,
                                const struct comm_question *q) {
    (void)p, (void)q;
    return (struct cost_time){.from = COST_MEASURED};
}

static struct cost_time message_us(const struct cost_provider *p,
                                   const struct comm_question *q) {
    const struct invented *x = (const struct invented *)p;
    bool part = q->size == 2 && q->bytes == (int64_t)KEYS / 4 * FLOAT_BYTES;
    return (struct cost_time){
        .us = part ? x->message_us : NAN, .overlap = x->overlap, .from = COST_MEASURED};
}

static double step_us(double message, double overlap) {
    static const struct provider_kind kind = {op_us, nothing, message_us, NULL};
    struct invented provider = {{.kind = &kind}, message, overlap};
    struct compiled c = compile_on(4, RING);
    struct cluster cluster = cluster_single_node(4);
    struct simulation sim;
    struct cost cost;
    struct err err = {0};
    cost_init(&cost, &provider.base, &cluster);
    double us = NAN;
    if (simulate_program(c.g, &cost, NULL, &sim, &err) == 0) {
        us = sim.time_us;
        simulation_release(&sim);
    }
    cost_release(&cost);
    compiled_release(&c);
    return us;
}

/* Eight steps of attention; 6 messages forward and 14 backward, the last two of which only the end
 * waits for. */
static void test_cost(void) {
    double bare = step_us(0, 1), hidden = step_us(10, 1), open = step_us(10, 0);
    ok(fabs(bare - 800) < 1e-6, "eight steps of attention: %g us", bare);
    ok(fabs(hidden - 820) < 1e-6, "messages hide behind them but for the way home: %g us",
       hidden);
    ok(fabs(open - 1000) < 1e-6, "where nothing hides, all twenty count: %g us", open);
    /* forward three times two messages and a step; backward all messages, one behind the other */
    double slow = step_us(80, 1);
    ok(fabs(slow - (3 * 160 + 100 + 14 * 80)) < 1e-6,
       "what takes longer than a step is waited for: %g us", slow);
}

/* ---- faults ---------------------------------------------------------------------------- */

static struct instr *find(struct stage_program *sp, enum opcode code, int n) {
    struct span s = program_segment(sp, SEG_FORWARD);
    for (int i = s.first; i < s.end; i++)
        if (sp->instrs[i].code == code && n-- == 0)
            return &sp->instrs[i];
    printf("Bail out! no %s\n", opcode_name(code));
    exit(1);
}

static void refused(struct compiled *c, const char *damage, const char *want) {
    struct err err = {0};
    int rc = program_validate(c->g, &err);
    ok(rc < 0 && strstr(err.msg, want), "%s: %s", damage, rc < 0 ? err.msg : "not seen");
    compiled_release(c);
}

static void test_faults(void) {
    struct compiled c = compile_on(4, RING);
    struct instr *more = find(c.g->stages, I_attention_more, 0);
    more->in.attention_more.k = find(c.g->stages, I_shift, 2)->out.shift.y;
    refused(&c, "keys read before they came",
            "attention_more: k of micro-batch 0 is not written");
    c = compile_on(4, RING);
    int keys = find(c.g->stages, I_shift, 0)->in.shift.x;
    int values = find(c.g->stages, I_shift, 1)->out.shift.y;
    c.g->stages->buffers[values].offset = c.g->stages->buffers[keys].offset;
    refused(&c, "values on keys that are under way",
            "shift: y of micro-batch 0 overwrites what is under way");
    c = compile_on(4, RING);
    struct instr *wait = find(c.g->stages, I_wait, 0);
    *wait = instr_init(I_sum_squares);
    refused(&c, "keys not waited for", "is not written");
    c = compile_on(4, RING);
    struct instr *start = find(c.g->stages, I_shift, 0);
    *start = instr_init(I_sum_squares);
    refused(&c, "keys not sent", "was not started");
}

int main(void) {
    test_order();
    test_memory();
    test_cost();
    test_faults();
    return done_testing();
}
