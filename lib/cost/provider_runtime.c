/* Another provider's times, as the code of another framework takes them: see runtime.h. */
#include "cost/runtime.h"

#include "common/mem.h"

#include <stdlib.h>

struct running {
    struct cost_provider base;
    const struct runtime *r;
    struct cost_provider *times;
};

static void add(struct cost_time *sum, struct cost_time more) {
    if (more.from == COST_UNKNOWN) {
        *sum = more;
        return;
    }
    sum->us += more.us;
    sum->low_us += more.low_us;
    sum->high_us += more.high_us;
}

static struct cost_time ask(const struct running *p, int group, enum opcode code,
                            enum dtype dtype, union instr_n n) {
    struct instr_key k = instr_key(code, dtype, &n);
    return p->times->kind->op(p->times, &(struct op_question){group, &k});
}

/* The time of `elems` crossing memory `passes` times; to read and write them are two. */
static struct cost_time crossing(const struct running *p, int group, enum dtype dtype,
                                 double elems, double passes) {
    int64_t n = (int64_t)(elems * passes / 2);
    return ask(p, group, I_scale, dtype,
               (union instr_n){.scale = {.elems = n > 0 ? n : 1}});
}

static struct cost_time product(const struct running *p, int group, enum dtype dtype,
                                int64_t batch, int64_t m, int64_t n, int64_t k) {
    return ask(
        p, group, I_matmul, dtype,
        (union instr_n){.matmul = {.outer = 1, .inner = batch, .m = m, .n = n, .k = k}});
}

/* Scores are made, masked and turned into weights in one pass, dropped out in another that
 * writes a mask too, and multiplied with the values. Queries, keys and values are laid out
 * before that, the result after it. Under a causal mask nothing is left out. */
static struct cost_time unfused(const struct running *p, const struct op_question *q) {
    const struct attention_n *a = &q->key->n.attention;
    enum dtype t = q->key->dtype;
    bool back = q->key->code == I_attention_bwd || q->key->code == I_attention_more_bwd;
    int64_t batch = a->batch * a->heads;
    double scores = (double)batch * (double)a->seq * (double)a->kv_seq;
    double rows = (double)batch * (double)(a->seq + a->kv_seq) * (double)a->dim;
    struct cost_time out = product(p, q->group, t, batch, a->seq, a->kv_seq,
                                   a->dim); /* scores; backward, gradients of weights */
    add(&out, product(p, q->group, t, batch, a->seq, a->dim, a->kv_seq));
    if (back) {
        add(&out, product(p, q->group, t, batch, a->kv_seq, a->dim, a->seq));
        add(&out, product(p, q->group, t, batch, a->kv_seq, a->dim, a->seq));
    }
    add(&out, crossing(p, q->group, t, scores, back ? 3 : 2));
    add(&out, crossing(p, q->group, t, scores, 2.5));
    add(&out, crossing(p, q->group, t, rows, 4));
    return out;
}

static bool is_attention(enum opcode c) {
    return c == I_attention || c == I_attention_bwd || c == I_attention_more ||
           c == I_attention_more_bwd;
}

static struct cost_time running_op(const struct cost_provider *base,
                                   const struct op_question *q) {
    const struct running *p = (const struct running *)base;
    const struct runtime_op *op = &p->r->ops[q->key->code];
    struct cost_time t = p->r->unfused_attention && is_attention(q->key->code)
                             ? unfused(p, q)
                             : p->times->kind->op(p->times, q);
    if (t.from == COST_UNKNOWN)
        return t;
    if (op->passes > 0) {
        struct instr_work w;
        instr_work(q->key->code, &q->key->n, &w);
        /* Statistics are small, so for them the operand counts. */
        bool sums = instr_info(q->key->code)->out[0].flags & OPERAND_F32;
        double elems = (double)(sums ? w.in[0] : w.out[0]);
        add(&t, crossing(p, q->group, q->key->dtype, elems, op->passes));
    }
    t.issue_us = op->kernels * p->r->host_us;
    t.waits = op->waits;
    return t;
}

static struct cost_time running_collective(const struct cost_provider *base,
                                           const struct comm_question *q) {
    const struct running *p = (const struct running *)base;
    struct cost_time t = p->times->kind->collective(p->times, q);
    t.issue_us = p->r->ops[q->code].kernels * p->r->host_us;
    add(&t, (struct cost_time){.us = p->r->collective_us,
                               .low_us = p->r->collective_us,
                               .high_us = p->r->collective_us,
                               .from = COST_MODEL});
    return t;
}

/* The host waits for a message before it goes on. */
static struct cost_time running_message(const struct cost_provider *base,
                                        const struct comm_question *q) {
    const struct running *p = (const struct running *)base;
    struct cost_time t = p->times->kind->message(p->times, q);
    double us = p->r->message_us;
    add(&t, (struct cost_time){.us = us, .low_us = us, .high_us = us, .from = COST_MODEL});
    return t;
}

static void running_destroy(struct cost_provider *base) {
    struct running *p = (struct running *)base;
    provider_destroy(p->times);
    free(p);
}

static const struct provider_kind running_kind = {running_op, running_collective,
                                                  running_message, running_destroy};

struct cost_provider *provider_runtime(const struct runtime *r,
                                       struct cost_provider *base) {
    struct running *p = mem_alloc(sizeof *p);
    p->base = *base;
    p->base.kind = &running_kind;
    p->base.subadditive = false;
    p->r = r;
    p->times = base;
    return &p->base;
}
