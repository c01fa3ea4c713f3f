/* Memory under another runtime: what it keeps that weft does not, and what its allocator
 * shares.
 *
 * weft's arena has a place for every micro-batch that a chunk of an interleaved schedule
 * may hold. PyTorch's allocator gives what one chunk's backward has freed to the next
 * chunk's forward, so a device needs what all its chunks hold at the worst moment, not the
 * sum of what each may hold. */
#include "cost/runtime.h"

#include "common/mem.h"

#include <stdlib.h>

/* Weights of attention before and after dropout, and its mask. */
static int64_t score_bytes(const struct instr *i) {
    const struct attention_n *a = &i->n.attention;
    return a->batch * a->heads * a->seq * a->kv_seq * (2 * dtype_size(i->dtype) + 1);
}

static bool recomputed(const struct stage *st, int op) {
    for (int k = 0; k < st->n_ops; k++)
        if (st->ops[k] == op)
            return st->recompute[k];
    return false;
}

/* What the runtime keeps of an instruction for the backward pass that weft does not. */
static int64_t kept_bytes(const struct runtime *r, const struct instr *i) {
    if (i->code == I_attention || i->code == I_attention_more)
        return r->unfused_attention ? score_bytes(i) : 0;
    return i->code == I_dropout && r->kept_masks ? i->n.dropout.elems : 0;
}

/* What is kept in one stage for a micro-batch. *passing is raised to the most that one op
 * needs while it is recomputed. */
static int64_t kept_of(const struct runtime *r, const struct plan *plan,
                       const struct stage_program *sp, int64_t *passing) {
    struct span forward = program_segment(sp, SEG_FORWARD);
    int64_t kept = 0;
    for (int k = forward.first; k < forward.end; k++) {
        const struct instr *i = &sp->instrs[k];
        int64_t bytes = kept_bytes(r, i);
        if (bytes && !recomputed(&plan->stages[sp->stage], i->op))
            kept += bytes;
        else if (bytes > *passing)
            *passing = bytes;
    }
    return kept;
}

/* What a chunk has run of each kind of segment so far. */
struct chunk {
    const struct stage_program *sp;
    int64_t kept, forwards, backwards, weights;
};

static int64_t held_bytes(const struct chunk *c) {
    const struct pool_slots *s = c->sp->slots;
    return (c->forwards - c->backwards) * (s[POOL_FORWARD_BACKWARD].bytes + c->kept) +
           (c->forwards - c->weights) * s[POOL_FORWARD_WEIGHTS].bytes +
           (c->backwards - c->weights) * s[POOL_BACKWARD_WEIGHTS].bytes;
}

/* What all chunks' places take in the arena; with `kept`, what the runtime keeps too. */
static int64_t placed_bytes(const struct chunk *c, int n, bool kept) {
    int64_t bytes = 0;
    for (int k = 0; k < n; k++) {
        for (int p = 0; p < POOL_COUNT; p++)
            bytes += c[k].sp->slots[p].n * c[k].sp->slots[p].bytes;
        bytes += kept ? c[k].kept * c[k].sp->in_flight : 0;
    }
    return bytes;
}

/* The most that is held at once. What a segment needs is there from its beginning to its
 * end. */
static int64_t most_held(const struct plan *plan, int group, struct chunk *c, int n) {
    struct group_schedule s = schedule_of_group(plan, group, schedule_enough(plan));
    int64_t most = 0;
    if (s.ahead == s.n_chunks * s.micro_batches && s.delay < 0)
        return INT64_MAX; /* all forwards come first, so all micro-batches are held */
    for (int64_t i = 0; i < schedule_actions(&s); i++) {
        struct action a = schedule_action(&s, i);
        bool backward = a.segment == SEG_BACKWARD || a.segment == SEG_LAST_BACKWARD;
        bool weights = a.segment == SEG_WEIGHTS || a.segment == SEG_LAST_WEIGHTS;
        int k = 0;
        while (k < n && c[k].sp->stage != a.stage)
            k++;
        if (k == n)
            continue;
        c[k].forwards += a.segment == SEG_FORWARD;
        int64_t held = 0;
        for (int j = 0; j < n; j++)
            held += held_bytes(&c[j]);
        if (backward && s.delay >= 0)
            held += c[k].sp->slots[POOL_BACKWARD_WEIGHTS].bytes;
        most = held > most ? held : most;
        c[k].backwards += backward;
        c[k].weights += s.delay < 0 ? backward : weights;
    }
    return most;
}

int64_t runtime_bytes(const struct runtime *r, const struct program *g, int stage) {
    int group = g->plan->stages[stage].group, n = 0;
    struct chunk *chunks = mem_array((size_t)g->n_stages, sizeof *chunks);
    int64_t passing = 0;
    for (int k = 0; k < g->n_stages; k++)
        if (g->plan->stages[k].group == group) {
            const struct stage_program *sp = &g->stages[k];
            chunks[n++] = (struct chunk){sp, kept_of(r, g->plan, sp, &passing), 0, 0, 0};
        }
    int64_t arena = placed_bytes(chunks, n, false), all = placed_bytes(chunks, n, true);
    int64_t held = n > 1 ? most_held(g->plan, group, chunks, n) : all;
    free(chunks);
    held = held < all ? held : all;
    return r->fixed_bytes + passing + held - arena;
}
