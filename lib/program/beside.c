/* Communicators are counted as lib/nccl makes them: one for the whole job, which also
 * serves groups that are the whole job, one for every other group along axes, and one for
 * every partner, direction and transfer of messages. */
#include "program/beside.h"

#include <stdlib.h>

static int64_t groups_of(const struct program *g, const struct stage_program *sp) {
    bool seen[1 << MESH_MAX_AXES] = {false};
    int64_t n = 0;
    for (int i = 0; i < sp->n_instrs; i++) {
        const struct instr *ins = &sp->instrs[i];
        if (!opcode_is_collective(ins->code) || seen[ins->axes])
            continue;
        seen[ins->axes] = true;
        int size = mesh_group_size(sp->mesh, ins->axes);
        n += size > 1 && size < g->plan->devices;
    }
    return n;
}

/* How many other ranks a rank sends to, or receives from, in a transfer: each has one
 * piece, and a communicator for it. */
static int64_t partners(const struct program *g, const struct transfer *t, int rank,
                        bool sends) {
    struct piece *pieces = NULL;
    int n = transfer_pieces(g, t, rank, sends, &pieces);
    int64_t others = 0;
    for (int i = 0; i < n; i++)
        others += pieces[i].src != pieces[i].dst;
    free(pieces);
    return others;
}

static int64_t messages_of(const struct program *g, int group, int rank) {
    int64_t n = 0;
    for (int i = 0; i < g->n_transfers; i++) {
        const struct transfer *t = &g->transfers[i];
        if (g->plan->stages[t->from].group == group)
            n += partners(g, t, rank, true);
        if (g->plan->stages[t->to].group == group)
            n += partners(g, t, rank, false);
    }
    return n;
}

/* The first and the last rank have as many partners as any where boxes divide each other,
 * and one or two fewer elsewhere. */
struct communicators program_communicators(const struct program *g, int stage) {
    const struct plan *p = g->plan;
    const struct stage *st = &p->stages[stage];
    struct communicators out = {.collectives = p->devices > 1};
    for (int i = p->first_chunk[st->group]; i < p->first_chunk[st->group + 1]; i++)
        out.collectives += groups_of(g, &g->stages[p->chunks[i]]);
    int64_t first = messages_of(g, st->group, st->first_rank);
    int64_t last = messages_of(g, st->group, st->first_rank + mesh_devices(&st->mesh) - 1);
    out.messages = first > last ? first : last;
    return out;
}

static const struct reserve *reserve_at(const struct workspace_site *at) {
    int rank = at->program->plan->stages[at->stage].first_rank;
    return &cluster_group_of(at->cluster, rank)->reserve;
}

int64_t beside_communicators(const struct workspace_site *at) {
    const struct reserve *r = reserve_at(at);
    if (!r->bytes[RESERVE_collectives] && !r->bytes[RESERVE_messages])
        return 0;
    struct communicators n = program_communicators(at->program, at->stage);
    return n.collectives * r->bytes[RESERVE_collectives] +
           n.messages * r->bytes[RESERVE_messages];
}

int64_t beside_arena(const struct workspace_site *at, workspace_query *const *asked) {
    if (!reserve_fixed(reserve_at(at)))
        return 0;
    return workspace_total(at, asked) + beside_communicators(at);
}
