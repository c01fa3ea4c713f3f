/* How much of a device's memory plans may fill by estimate, and what NCCL takes of that for
 * a plan's communicators. Those of a compiled plan are counted by program/beside.h. */
#include "search/evaluate/score_impl.h"
#include "search/space/devices.h"

/* Returns what is reserved on the device of a rank; NULL where communicators are not
 * counted. */
static const struct reserve *reserve_at(const struct evaluate *ev, int rank) {
    const struct search_problem *p = &ev->space->p;
    if (!p->memory_of_kinds || !p->beside || p->devices < 2)
        return NULL;
    const struct cluster_group *g = cluster_group_of(&p->cluster, rank);
    return g->memory_bytes && reserve_fixed(&g->reserve) ? &g->reserve : NULL;
}

int64_t eval_room(const struct evaluate *ev, int rank, int devices) {
    int64_t memory = search_memory(&ev->space->p, rank, devices);
    const struct reserve *r = reserve_at(ev, rank);
    if (!memory)
        return 0;
    return memory - ev->reserve_bytes - (r ? r->bytes[RESERVE_collectives] : 0);
}

int64_t eval_stage_room(const struct evaluate *ev, int rank, int devices) {
    int64_t room = eval_room(ev, rank, devices);
    return room - room / 64;
}

double work_communicators(const struct evaluate *ev, const struct work *w, int k) {
    const struct reserve *r = reserve_at(ev, w->rank[k]);
    if (!r)
        return 0;
    int64_t groups = 0;
    for (uint64_t left = w->sums[k]->groups; left; left &= left - 1) {
        int size = mesh_group_size(&w->prefixes[k]->mesh, (unsigned)__builtin_ctzll(left));
        groups += size > 1 && size < ev->space->p.devices;
    }
    return (double)groups * (double)r->bytes[RESERVE_collectives] +
           w->messages[k] * (double)r->bytes[RESERVE_messages];
}
