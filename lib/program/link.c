/* Places the stages of a device group in one arena, and the staging of transfers. */
#include "program/link.h"

#include "program/scalars.h"

#include <string.h>

/* Moves the buffers of a class from their place in an arena of the stage alone. */
static void move_buffers(struct stage_program *sp, enum memory_class mem, int part,
                         int64_t by) {
    for (int i = 0; i < sp->n_buffers; i++)
        if (sp->buffers[i].mem == mem && !sp->buffers[i].host &&
            (part < 0 || sp->buffers[i].part == part))
            sp->buffers[i].offset += by;
}

static void place_on_host(struct program *g, const int *chunk, const int *end) {
    int64_t at = 0;
    for (const int *c = chunk; c < end; c++) {
        struct stage_program *sp = &g->stages[*c];
        for (int i = 0; i < sp->n_buffers; i++)
            sp->buffers[i].offset += sp->buffers[i].host ? at : 0;
        at += sp->own_host;
    }
    for (const int *c = chunk; c < end; c++)
        g->stages[*c].host_bytes = at;
}

/* All chunks share the scalars; each has its own suspicions. Returns the bytes of all. */
static int64_t place_scalars(struct program *g, const int *chunk, const int *end,
                             int64_t at) {
    const struct stage_program *first = &g->stages[*chunk];
    const int64_t per_target = first->per_target - first->scalars;
    int64_t bytes = first->suspects - first->scalars;
    for (const int *c = chunk; c < end; c++) {
        struct stage_program *sp = &g->stages[*c];
        sp->scalars = at;
        sp->per_target = at + per_target;
        sp->suspects = at + bytes;
        bytes += memory_aligned((int64_t)sizeof(int64_t) * sp->n_suspects);
    }
    return bytes;
}

/* Chunks share an arena, class by class, one chunk after the other. Temporaries of
 * micro-batches have the same bytes in all chunks, since only one computes at a time. Those
 * of the step's end take the place of activations, and each chunk has its own: they live
 * from its reduce, across the others', to its update. */
static void place_chunks(struct program *g, const int *chunk, const int *end) {
    place_on_host(g, chunk, end);
    int64_t bytes[MEM_COUNT] = {0}, at = 0, updates = 0, kept;
    for (int m = 0; m < MEM_temporaries; m++)
        for (const int *c = chunk; c < end; c++) {
            struct stage_program *sp = &g->stages[*c];
            int64_t alone = 0;
            for (int k = 0; k < m; k++)
                alone += sp->own[k];
            move_buffers(sp, (enum memory_class)m, -1, at - alone);
            at += sp->own[m];
            bytes[m] += sp->own[m];
        }
    kept = bytes[MEM_activations];
    for (const int *c = chunk; c < end; c++) {
        struct stage_program *sp = &g->stages[*c];
        int64_t alone = sp->scalars - sp->own[MEM_temporaries];
        int64_t alone_kept = alone - sp->own[MEM_activations];
        move_buffers(sp, MEM_temporaries, 0, at - alone);
        move_buffers(sp, MEM_temporaries, 1, at - kept + updates - alone_kept);
        updates += sp->temporaries[1];
        if (bytes[MEM_temporaries] < sp->temporaries[0])
            bytes[MEM_temporaries] = sp->temporaries[0];
    }
    if (bytes[MEM_temporaries] < updates - kept)
        bytes[MEM_temporaries] = updates - kept;
    at += bytes[MEM_temporaries];
    bytes[MEM_buffers] = place_scalars(g, chunk, end, at);
    for (const int *c = chunk; c < end; c++) {
        struct stage_program *sp = &g->stages[*c];
        memcpy(sp->bytes, bytes, sizeof bytes);
        sp->arena_bytes = at + bytes[MEM_buffers];
    }
}

void arenas_place(struct program *g) {
    const struct plan *p = g->plan;
    for (int k = 0; k < p->n_groups; k++)
        if (p->first_chunk[k + 1] - p->first_chunk[k] > 1)
            place_chunks(g, p->chunks + p->first_chunk[k],
                         p->chunks + p->first_chunk[k + 1]);
}

/* Takes bytes at the end of the arena of the stage's group; returns where. */
static int64_t take_staging(struct program *g, int stage, enum dtype dtype, int64_t elems) {
    const struct plan *p = g->plan;
    int group = p->stages[stage].group;
    int64_t at = g->stages[stage].arena_bytes;
    int64_t bytes = memory_aligned(dtype_size(dtype) * elems);
    for (int i = p->first_chunk[group]; i < p->first_chunk[group + 1]; i++) {
        g->stages[p->chunks[i]].bytes[MEM_buffers] += bytes;
        g->stages[p->chunks[i]].arena_bytes += bytes;
    }
    return at;
}

void transfers_place(struct program *g) {
    transfers_depth(g);
    for (int i = 0; i < g->n_transfers; i++) {
        struct transfer *t = &g->transfers[i];
        transfer_link(g, t);
        t->send_offset = take_staging(g, t->from, t->dtype, t->depth * t->send_staging);
        t->recv_offset = take_staging(g, t->to, t->dtype, t->recv_staging);
    }
}
