/* Queries of a compiled program: names, one rank of it, places in its memory. */
#include "program/program.h"

const char *memory_class_name(enum memory_class c) {
    static const char *const names[] = {
#define X(id) #id,
        MEMORY_CLASSES(X)
#undef X
    };
    return names[c];
}

const char *segment_name(enum segment s) {
    static const char *const names[] = {
#define X(id, name, letter) name,
        SEGMENTS(X)
#undef X
    };
    return names[s];
}

char segment_letter(enum segment s) {
    static const char letters[] = {
#define X(id, name, letter) letter,
        SEGMENTS(X)
#undef X
    };
    return letters[s];
}

enum {
    ALIGN_BYTES = 64 /* a cache line, and what vector instructions like */
};

int64_t memory_aligned(int64_t bytes) {
    return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

int64_t buffer_bytes(const struct buffer *b) {
    return memory_aligned(dtype_size(b->dtype) * b->elems);
}

int64_t program_loss_terms(const struct program *g, int op) {
    const struct model *m = g->plan->model;
    const struct shape *targets = &m->tensors[op_targets(&m->ops[op])].shape;
    struct extents x = model_extents(m, targets, g->plan->batch);
    return extents_count(&x);
}

/* ---- one rank ---------------------------------------------------------------------------- */

/* Groups have consecutive ranks, in order. */
int program_group_of_rank(const struct program *g, int rank) {
    const struct plan *p = g->plan;
    int lo = 0, hi = p->n_groups;
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        if (p->stages[p->chunks[p->first_chunk[mid]]].first_rank <= rank)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

struct rank_program program_for_rank(const struct program *g, int stage, int rank) {
    struct rank_program r = {.g = g, .sp = &g->stages[stage], .rank = rank, .stage = stage};
    mesh_coords(r.sp->mesh, rank - g->plan->stages[stage].first_rank, r.coord);
    return r;
}

struct span program_segment(const struct stage_program *sp, enum segment s) {
    bool last = s == SEG_LAST_BACKWARD || s == SEG_LAST_WEIGHTS;
    if (last && sp->seg[s] == sp->seg[s + 1])
        s--;
    return (struct span){sp->seg[s], sp->seg[s + 1]};
}

int64_t buffer_offset(const struct stage_program *sp, int buffer, int64_t index) {
    const struct buffer *b = &sp->buffers[buffer];
    if (b->mem != MEM_activations)
        return b->offset;
    const struct pool_slots *s = &sp->slots[b->part];
    return b->offset + index % s->n * (b->host ? s->host_bytes : s->bytes);
}

bool rank_is_first(const struct rank_program *r, unsigned axes) {
    for (int a = 0; a < r->sp->mesh->n_axes; a++)
        if ((axes >> a & 1) && r->coord[a])
            return false;
    return true;
}
