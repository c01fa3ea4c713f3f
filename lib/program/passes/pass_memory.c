/* The memory plan: which bytes of the arena each buffer has.
 *
 * What outlives its segment before the step's end is an activation and has a place for each
 * micro-batch in flight; the rest is temporary and shares one region, by best fit in the
 * order of time. No activation outlives the last micro-batch, so temporaries of the step's
 * end begin where activations do: shares of gradients under ZeRO, or rounded gradients,
 * take no memory of their own. The predictor and the executor read the numbers that are
 * worked out here. */
#include "program/passes/heap.h"
#include "program/passes/pass.h"
#include "program/scalars.h"

#include <string.h>

/* The segments of the step's end count as one: what is reduced waits for the update. */
static void classify_one(const struct emit *e, struct buffer *b, struct life life) {
    int first = emit_segment(e, life.first), last = emit_segment(e, life.last);
    bool kept = first != last && first < SEG_REDUCE;
    b->mem = kept ? MEM_activations : MEM_temporaries;
    if (!kept)
        b->part = first >= SEG_REDUCE;
    else if (first == SEG_FORWARD)
        b->part = last == SEG_BACKWARD ? POOL_FORWARD_BACKWARD : POOL_FORWARD_WEIGHTS;
    else
        b->part = POOL_BACKWARD_WEIGHTS;
}

static void classify(struct emit *e) {
    for (int64_t i = 0; i < e->buffers.n; i++) {
        struct buffer *b = &e->buffers.p[i];
        if (b->mem == MEM_temporaries && !b->part_of && e->lives.p[i].first >= 0)
            classify_one(e, b, e->lives.p[i]);
    }
}

/* Places the activations of one pool in a slot; returns the slot's bytes. */
static int64_t lay_out_slot(struct emit *e, unsigned pool, bool host, int64_t at) {
    int64_t start = at;
    for (int64_t i = 0; i < e->buffers.n; i++) {
        struct buffer *b = &e->buffers.p[i];
        if (b->mem != MEM_activations || b->part != pool || b->host != host)
            continue;
        b->offset = at;
        at += buffer_bytes(b);
    }
    return at - start;
}

/* Places activations pool by pool, all slots of one before the next. */
static int64_t lay_out_slots(struct emit *e, int64_t at) {
    struct stage_program *out = e->out;
    int64_t start = at;
    out->in_flight = 1;
    for (unsigned p = 0; p < POOL_COUNT; p++) {
        out->slots[p].n = e->slots[p];
        out->slots[p].bytes = lay_out_slot(e, p, false, at);
        out->in_flight = e->slots[p] > out->in_flight ? e->slots[p] : out->in_flight;
        at += e->slots[p] * out->slots[p].bytes;
    }
    return at - start;
}

/* Places activations on the host in the same order, behind what stays there as long as the
 * program runs. Temporaries are never there. */
static void lay_out_host(struct emit *e) {
    struct stage_program *out = e->out;
    for (unsigned p = 0; p < POOL_COUNT; p++) {
        int64_t bytes = lay_out_slot(e, p, true, HOST_ARENA + out->own_host);
        out->slots[p].host_bytes = bytes;
        out->own_host += out->slots[p].n * bytes;
    }
    out->host_bytes = out->own_host;
}

/* Places parts where the whole is. */
static void place_parts(struct emit *e) {
    for (int64_t i = 0; i < e->buffers.n; i++) {
        struct buffer *b = &e->buffers.p[i];
        if (!b->part_of)
            continue;
        const struct buffer *whole = &e->buffers.p[b->part_of - 1];
        b->mem = whole->mem;
        b->part = whole->part;
        b->offset = whole->offset + b->first * dtype_size(b->dtype);
    }
}

/* Places the temporaries that begin or end at instruction i. Empty buffers never occur: every
 * shard has at least one element. */
static void place_at(struct emit *e, struct heap *h, int at) {
    const struct instr *ins = &e->instrs.p[at];
    struct buffer *bufs = e->buffers.p;
    for (int k = 0; k < INSTR_MAX_OUT; k++) {
        int b = buffer_whole(bufs, ins->out.v[k]);
        if (b >= 0 && bufs[b].mem == MEM_temporaries && e->lives.p[b].first == at)
            bufs[b].offset = heap_take(h, buffer_bytes(&bufs[b]));
    }
    int b[INSTR_MAX_BUFFERS], n = instr_buffers(ins, b);
    for (int k = 0; k < n; k++) {
        int whole = buffer_whole(bufs, b[k]);
        if (bufs[whole].mem == MEM_temporaries && e->lives.p[whole].last == at)
            heap_give(h, bufs[whole].offset, buffer_bytes(&bufs[whole]));
    }
}

/* Segments of a micro-batch share the bytes of temporaries, since a rank is in one of them
 * at a time. Those of the step's end count as one, since temporaries outlive the norm. The
 * former begin at `at`, behind the activations, the latter where these do. */
static void lay_out_temporaries(struct emit *e, int64_t at) {
    struct stage_program *out = e->out;
    for (int s = 0; s < SEG_COUNT; s++) {
        struct heap h = {0};
        int end = s < SEG_REDUCE ? s + 1 : SEG_COUNT;
        for (int i = e->seg_first[s]; i < e->seg_first[end]; i++)
            place_at(e, &h, i);
        int64_t *top = &out->temporaries[s >= SEG_REDUCE];
        *top = h.top > *top ? h.top : *top;
        heap_release(&h);
        s = end - 1;
    }
    const int64_t kept = out->own[MEM_activations], beyond = out->temporaries[1] - kept;
    for (int64_t i = 0; i < e->buffers.n; i++)
        if (e->buffers.p[i].mem == MEM_temporaries)
            e->buffers.p[i].offset += e->buffers.p[i].part ? at - kept : at;
    out->own[MEM_temporaries] = out->temporaries[0] > beyond ? out->temporaries[0] : beyond;
}

/* Order of the arena: parameters, gradients, optimizer, slots of activations, temporaries,
 * scalars, as if the stage were alone on its group; if it is not, link.c moves them. */
void pass_memory(struct emit *e) {
    struct stage_program *out = e->out;
    int64_t *own = out->own;
    int64_t at = own[MEM_parameters] + own[MEM_gradients] + own[MEM_optimizer];
    classify(e);
    at += own[MEM_activations] = lay_out_slots(e, at);
    lay_out_temporaries(e, at);
    lay_out_host(e);
    place_parts(e);
    out->scalars = at + own[MEM_temporaries];
    out->per_target = out->scalars + memory_aligned(sizeof(struct scalars));
    out->suspects = out->per_target + memory_aligned((int64_t)sizeof(double) * e->n_losses);
    own[MEM_buffers] = out->suspects - out->scalars +
                       memory_aligned((int64_t)sizeof(int64_t) * out->n_suspects);
    out->arena_bytes = out->scalars + own[MEM_buffers];
    memcpy(out->bytes, own, sizeof out->bytes);
}
