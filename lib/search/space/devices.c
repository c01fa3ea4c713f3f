/* Devices (see devices.h). */
#include "search/space/devices.h"

#include "program/beside.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory ---------------------------------------------------------------------------- */

int64_t search_memory(const struct search_problem *p, int first, int n) {
    int64_t most = p->memory_bytes;
    if (!most)
        return 0;
    if (p->memory_of_kinds) {
        int64_t kind = cluster_memory(&p->cluster, first, n);
        most = kind && kind < most ? kind : most;
    }
    return most;
}

int64_t space_stage_memory(const struct space *sp, const struct plan *plan, int k) {
    const struct stage *st = &plan->stages[k];
    return search_memory(&sp->p, st->first_rank, mesh_devices(&st->mesh));
}

/* memory_bytes limits the arena alone. What a kind of device has must also hold what its
 * ranks take beside the arena. */
int64_t space_stage_lacks(const struct space *sp, const struct program *g, int k) {
    const struct search_problem *p = &sp->p;
    const struct stage *st = &g->plan->stages[k];
    int64_t lacks = g->stages[k].arena_bytes - space_stage_memory(sp, g->plan, k);
    int64_t kind = cluster_memory(&p->cluster, st->first_rank, mesh_devices(&st->mesh));
    if (!p->memory_of_kinds || !p->beside || !kind)
        return lacks;
    const struct workspace_site at = {g, k, &p->cluster, 1};
    int64_t all = g->stages[k].arena_bytes + beside_arena(&at, p->beside) - kind;
    return all > lacks ? all : lacks;
}

/* ---- classes --------------------------------------------------------------------------- */

static bool same_links(const struct cluster_group *a, const struct cluster_group *b) {
    bool same = a->n_links == b->n_links;
    for (int i = 0; same && i < a->n_links; i++) {
        const struct cluster_link *x = &a->links[i], *y = &b->links[i];
        same = x->size == y->size && x->bandwidth == y->bandwidth && x->lanes == y->lanes &&
               x->latency_us == y->latency_us;
    }
    return same;
}

static bool same_flops(const struct cluster_group *a, const struct cluster_group *b) {
    bool same = true;
    for (int t = 0; t < CLUSTER_DTYPES; t++)
        same &= a->flops[t] == b->flops[t];
    return same;
}

static bool alike(const struct cluster_group *a, const struct cluster_group *b) {
    return a->devices == b->devices && !strcmp(a->device, b->device) &&
           a->memory_bytes == b->memory_bytes && same_flops(a, b) &&
           a->bandwidth == b->bandwidth && a->latency_us == b->latency_us &&
           a->speed == b->speed && same_links(a, b);
}

bool devices_may_be(const struct search_problem *p, int n) {
    for (int g = 0; g < p->cluster.n_groups; g++)
        if (p->cluster.groups[g].first_rank == n)
            return true;
    return p->devices % n == 0;
}

int space_device_classes(const struct space *sp, struct device_class *out) {
    const struct cluster *c = &sp->p.cluster;
    int n = 0;
    for (int g = 0; g < c->n_groups && c->groups[g].first_rank < sp->p.devices; g++) {
        int end =
            (int)(c->groups[g].first_rank + c->groups[g].nodes * c->groups[g].devices);
        end = end < sp->p.devices ? end : sp->p.devices;
        if (g && alike(&c->groups[g - 1], &c->groups[g]))
            out[n - 1].end = end;
        else
            out[n++] = (struct device_class){(int)c->groups[g].first_rank, end};
    }
    return n;
}

/* Returns whether a link between nodes is faster than one inside a node. Then neighbours in
 * the pipeline may be better on different nodes. */
static bool faster_between(const struct space *sp) {
    const struct cluster *c = &sp->p.cluster;
    double inside = 0, between = 0;
    for (int g = 0; g < c->n_groups; g++)
        for (int i = 0; i < c->groups[g].n_links; i++) {
            double b = c->groups[g].links[i].bandwidth;
            inside = c->groups[g].devices > 1 && (inside <= 0 || b < inside) ? b : inside;
        }
    for (int i = 0; i < c->n_links; i++)
        between = c->links[i].bandwidth > between ? c->links[i].bandwidth : between;
    return inside > 0 && between > inside &&
           cluster_node_of(c, sp->p.devices - 1) != cluster_node_of(c, 0);
}

bool space_has_places(const struct space *sp) {
    struct device_class classes[CLUSTER_MAX_GROUPS];
    return sp->p.devices > 1 &&
           (space_device_classes(sp, classes) > 1 || faster_between(sp));
}

/* ---- places ---------------------------------------------------------------------------- */

static bool usual_order(const struct candidate *c) {
    for (int g = 1; g < c->n_groups; g++)
        if (c->stages[g].place < c->stages[g - 1].place)
            return false;
    return true;
}

/* Returns whether group a is on lower ranks than group b. */
static bool below(const struct candidate *c, int a, int b) {
    int x = c->stages[a].place, y = c->stages[b].place;
    return x < y || (x == y && a < b);
}

int candidate_rank(const struct candidate *c, int k) {
    int group = k % c->n_groups, rank = 0;
    for (int g = 0; g < c->n_groups; g++)
        rank += below(c, g, group) ? c->stages[g].devices : 0;
    return rank;
}

void candidate_order(const struct candidate *c, int *order) {
    for (int g = 0; g < c->n_groups; g++) {
        int at = g;
        while (at > 0 && below(c, g, order[at - 1])) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = g;
    }
}

/* All stages of a group have its first rank. */
void candidate_ranks(const struct candidate *c, int *rank) {
    int next = 0;
    if (usual_order(c)) {
        for (int g = 0; g < c->n_groups; g++) {
            rank[g] = next;
            next += c->stages[g].devices;
        }
    } else {
        int *order = mem_array((size_t)c->n_groups, sizeof *order);
        candidate_order(c, order);
        for (int i = 0; i < c->n_groups; i++) {
            rank[order[i]] = next;
            next += c->stages[order[i]].devices;
        }
        free(order);
    }
    for (int k = c->n_groups; k < c->n_stages; k++)
        rank[k] = rank[k - c->n_groups];
}

void candidate_place(struct candidate *c, const int *order) {
    bool usual = true;
    for (int i = 0; i < c->n_groups; i++)
        usual &= order[i] == i;
    for (int i = 0; i < c->n_groups; i++)
        for (int k = order[i]; k < c->n_stages; k += c->n_groups)
            c->stages[k].place = usual ? 0 : i;
}

void candidate_swap(struct candidate *c, int a, int b) {
    int *order = mem_array((size_t)c->n_groups, sizeof *order);
    candidate_order(c, order);
    for (int i = 0; i < c->n_groups; i++)
        order[i] = order[i] == a ? b : order[i] == b ? a : order[i];
    candidate_place(c, order);
    free(order);
}

/* Returns the next node behind `at` that has this many devices left, or -1. */
static int next_node(const int *left, int n, int at, int devices) {
    for (int i = 1; i <= n; i++)
        if (left[(at + i) % n] >= devices)
            return (at + i) % n;
    return -1;
}

/* Deals greedily: each group goes to the next node with enough devices left. */
bool candidate_deal(const struct space *sp, struct candidate *c) {
    const struct cluster *cl = &sp->p.cluster;
    int nodes = (int)cluster_node_of(cl, sp->p.devices - 1) + 1, n = 0;
    int *left = mem_array((size_t)nodes, sizeof *left);
    int *node = mem_array((size_t)c->n_groups, sizeof *node);
    int *order = mem_array((size_t)c->n_groups, sizeof *order);
    bool found = nodes > 1 && c->n_groups > 1;
    for (int r = 0; r < sp->p.devices; r++)
        left[cluster_node_of(cl, r)]++;
    for (int g = 0; g < c->n_groups && found; g++) {
        int before = g ? node[g - 1] : nodes - 1;
        node[g] = next_node(left, nodes, before, c->stages[g].devices);
        found = node[g] >= 0;
        if (found)
            left[node[g]] -= c->stages[g].devices;
    }
    for (int i = 0; i < nodes && found; i++)
        for (int g = 0; g < c->n_groups; g++)
            if (node[g] == i)
                order[n++] = g;
    if (found)
        candidate_place(c, order);
    free(left);
    free(node);
    free(order);
    return found;
}

/* ---- alike ----------------------------------------------------------------------------- */

/* Every device is named by the units around it, and the units of a level by the order
 * in which the pipeline first reaches them: the kind of a unit counts, not its number. */
uint64_t space_place_hash(const struct space *sp, const struct candidate *c) {
    const struct cluster *cl = &sp->p.cluster;
    int *rank = mem_array((size_t)c->n_stages, sizeof *rank);
    int *met = mem_array((size_t)(cluster_devices(cl) + 1) * CLUSTER_LEVELS, sizeof *met);
    int n_met = 0;
    uint64_t h = 1;
    candidate_ranks(c, rank);
    for (int g = 0; g < c->n_groups; g++)
        for (int r = rank[g]; r < rank[g] + c->stages[g].devices; r++) {
            struct cluster_unit u;
            h = memo_mix(h, (uint64_t)(cluster_group_of(cl, r) - cl->groups));
            for (int k = 0; cluster_unit(cl, r, k, &u); k++) {
                int *name = &met[u.first * CLUSTER_LEVELS + u.level];
                *name = *name ? *name : ++n_met;
                h = memo_mix(h, (uint64_t)*name);
            }
        }
    free(met);
    free(rank);
    return h;
}

struct shortage space_shortage(const struct space *sp, const struct candidate *c, int stage,
                               int64_t bytes) {
    const struct search_stage *st = &c->stages[stage];
    return (struct shortage){bytes,
                             search_memory(&sp->p, candidate_rank(c, stage), st->devices),
                             stage, st->first, st->end};
}
