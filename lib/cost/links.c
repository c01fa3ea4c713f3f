/* Hops are counted per level and per unit that they leave. The ranks of a unit are
 * consecutive, so its first rank identifies it, and the members of a group inside it are a
 * run of the sorted group. */
#include "cost/links.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

struct count {
    const struct cluster *c;
    int64_t first, n; /* ranks that are looked at */
    int typical;      /* members of each group to count */
    int64_t *flows;   /* [CLUSTER_LEVELS * n] ring hops out of a unit, by its first rank */
    /* [CLUSTER_LEVELS * n] shares of ranks' bytes that leave it, all-to-all */
    double *leaving;
};

/* The level that holds both ends, and the unit of the level below around `a`. */
static struct cluster_unit find_hop(const struct cluster *c, int64_t a, int64_t b,
                                    int64_t *below_first, int64_t *below_end) {
    struct cluster_unit u = {.first = a, .end = a + 1};
    for (int k = 0; b < u.first || b >= u.end; k++) {
        *below_first = u.first;
        *below_end = u.end;
        if (!cluster_unit(c, a, k, &u))
            return (struct cluster_unit){0};
    }
    return u;
}

static int64_t slot_of(const struct count *t, int level, int64_t unit_first) {
    int64_t at = unit_first > t->first ? unit_first - t->first : 0;
    return level * t->n + at;
}

/* What one flow gets of a link: its share, but never more than the lanes that it can use. Out of
 * a single device a ring takes a lane to every other member; out of a larger unit every member
 * has a lane of its own. */
static double share(const struct cluster_link *l, int64_t flows, int64_t lanes) {
    double whole = l->bandwidth / (double)flows;
    double most = l->bandwidth / (double)l->lanes * (double)lanes;
    return whole < most ? whole : most;
}

/* ---- cubes -------------------------------------------------------------------------- */

/* The hybrid cube mesh of nodes of eight V100 (NVIDIA's white paper on the DGX-1,
 * WP-08437): two quads. A device has one lane to each of two others in its quad, two to the
 * third, and two to one device of the other quad. */
enum { QUAD = 4 };

/* How many rings of one lane each the k members of a group in such a node can run at once;
 * `near` of them are in its first quad. A ring runs both ways, except between two. */
static int64_t cube_rings(int64_t k, int64_t near) {
    bool one_quad = near == 0 || near == k;
    if (k <= 2)
        return 1;
    return k == 2 * QUAD ? 6 : k == QUAD && one_quad ? 4 : 2;
}

/* Members of a group that have no lane to this rank send by way of the host, which two
 * devices share. That bounds the pace. */
static double cube_pace(const struct cluster *c, const int *group, int n, int64_t rank,
                        const struct cluster_unit *u, double pace) {
    int64_t me = rank - u->first, strangers = 0;
    for (int i = 0; i < n; i++) {
        int64_t other = group[i] - u->first;
        if (group[i] >= u->first && group[i] < u->end)
            strangers += me / QUAD != other / QUAD && me % QUAD != other % QUAD;
    }
    double host = cluster_group_of(c, rank)->host_bandwidth / 2 * (n - 1);
    return strangers && host > 0 && host < pace * (double)strangers
               ? host / (double)strangers
               : pace;
}

static void slower(struct link_class *out, const struct cluster_unit *u, int64_t flows,
                   double bandwidth) {
    /* Where the cluster states no speeds, the outermost level counts. */
    bool worse = !out->level || bandwidth <= 0 || bandwidth < out->bandwidth;
    if (out->level && out->bandwidth <= 0 && bandwidth > 0)
        worse = false;
    if (worse) {
        out->level = u->link->level;
        out->flows = flows;
        out->bandwidth = bandwidth;
    }
    out->cross |= u->cross;
    if (u->link->latency_us > out->latency_us)
        out->latency_us = u->link->latency_us;
}

/* Members of a sorted group that are below this rank. */
static int64_t members_below(const int *group, int n, int64_t rank) {
    int64_t lo = 0, hi = n;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        *(group[mid] < rank ? &lo : &hi) = group[mid] < rank ? mid + 1 : mid;
    }
    return lo;
}

static int64_t members_in(const int *group, int n, int64_t first, int64_t end) {
    return members_below(group, n, end) - members_below(group, n, first);
}

/* Lanes of a ring's hop out of a unit of the level below, first .. end - 1. */
static int64_t lanes_of(const int *group, int n, const struct cluster_unit *u,
                        int64_t first, int64_t end) {
    if (u->link->cube)
        return cube_rings(members_in(group, n, u->first, u->end),
                          members_in(group, n, u->first, u->first + QUAD));
    return end - first > 1 ? members_in(group, n, first, end) : n - 1;
}

static void count_group(struct count *t, const int *group, int n) {
    for (int i = 0; i < t->typical; i++) {
        int64_t rank = group[i], first = rank, end = rank + 1;
        struct cluster_unit u = find_hop(t->c, rank, group[(i + 1) % n], &first, &end);
        t->flows[slot_of(t, u.level, first)]++;
        int64_t inside = 1, below = rank;
        for (int k = 0; inside < n && cluster_unit(t->c, rank, k, &u); k++) {
            int64_t more = members_in(group, n, u.first, u.end);
            t->leaving[slot_of(t, u.level, below)] += (double)(more - inside) / n;
            inside = more;
            below = u.first;
        }
    }
}

static void slower_partner(double pace, struct link_class *out) {
    if (pace > 0 && (out->partners <= 0 || pace < out->partners))
        out->partners = pace;
}

/* In an all-to-all a rank sends its (n-1)/n of the bytes at the pace of the fullest link
 * and, over a link of lanes, no faster than with one lane to each of the others. */
static void read_pairs(const struct count *t, const int *group, int n, int64_t rank,
                       struct link_class *out) {
    struct cluster_unit u;
    int64_t below = rank, inside = 1;
    for (int k = 0; inside < n && cluster_unit(t->c, rank, k, &u); k++) {
        int64_t more = members_in(group, n, u.first, u.end), peers = more - inside;
        double part = t->leaving[slot_of(t, u.level, below)];
        double lane = u.link->bandwidth / (double)u.link->lanes;
        double pace = part > 0 ? u.link->bandwidth * (n - 1) / n / part : 0;
        /* As many flows leave on average, and one flow takes at most one lane. */
        slower_partner(peers ? lane : 0, out);
        slower_partner(peers ? pace : 0, out);
        if (k == 0 && peers && lane * (n - 1) < pace)
            pace = lane * (n - 1);
        if (u.link->cube)
            pace = cube_pace(t->c, group, n, rank, &u, pace);
        if (pace > 0 && (out->pairs <= 0 || pace < out->pairs))
            out->pairs = pace;
        below = u.first;
        inside = more;
    }
}

static int64_t nodes_of(const struct cluster *c, const int *group, int n) {
    int64_t nodes = 1;
    for (int i = 1; i < n; i++)
        nodes += cluster_node_of(c, group[i]) != cluster_node_of(c, group[i - 1]);
    return nodes;
}

static void read_group(const struct count *t, const int *group, int n,
                       struct link_class *out) {
    for (int i = 0; i < t->typical; i++) {
        int64_t rank = group[i], first = rank, end = rank + 1;
        struct cluster_unit u = find_hop(t->c, rank, group[(i + 1) % n], &first, &end);
        int64_t flows = t->flows[slot_of(t, u.level, first)];
        int64_t lanes = lanes_of(group, n, &u, first, end);
        slower(out, &u, flows, share(u.link, flows, lanes));
        read_pairs(t, group, n, rank, out);
    }
}

/* Steps through the coordinates on all other axes; false after the last. */
static bool next_leader(const struct mesh *mesh, unsigned axes, int coord[MESH_MAX_AXES]) {
    for (int a = mesh->n_axes - 1; a >= 0; a--) {
        if (axes >> a & 1)
            continue;
        if (++coord[a] < mesh->size[a])
            return true;
        coord[a] = 0;
    }
    return false;
}

/* Axes along which a step leads from whole units to like ones, so that everything
 * repeats. */
static unsigned repeating_axes(const struct cluster *c, const struct mesh *mesh,
                               int64_t first_rank) {
    const struct cluster_group *g = cluster_group_of(c, first_rank);
    int64_t end = first_rank + mesh_devices(mesh), step = 1;
    struct cluster_unit u;
    unsigned out = 0;
    if (end > g->first_rank + g->nodes * g->devices)
        return 0;
    for (int a = mesh->n_axes - 1; a >= 0; step *= mesh->size[a--]) {
        bool whole = true;
        for (int k = 0; whole && cluster_unit(c, first_rank, k, &u) && end > u.end; k++)
            whole = first_rank == u.first && step % (u.end - u.first) == 0;
        out |= (unsigned)whole << a;
    }
    return out;
}

/* How many members at the front of a group stand for all: where its outermost axis repeats,
 * turning the ring along that axis changes nothing. */
static int typical_members(const struct mesh *mesh, unsigned axes, unsigned repeating) {
    int n = mesh_group_size(mesh, axes), a = 0;
    while (!(axes >> a & 1))
        a++;
    return repeating >> a & 1 ? n / mesh->size[a] : n;
}

/* Counts the flows that leave each unit in a first pass over the groups, and finds what
 * that leaves each flow in a second. */
struct link_class links_of_group(const struct cluster *c, const struct mesh *mesh,
                                 int64_t first_rank, unsigned axes) {
    int devices = mesh_devices(mesh), n = mesh_group_size(mesh, axes);
    struct link_class out = {0};
    if (n <= 1)
        return out;
    struct count t = {.c = c, .first = first_rank, .n = devices};
    size_t slots = (size_t)devices * CLUSTER_LEVELS;
    t.flows = mem_array(slots, sizeof *t.flows);
    t.leaving = mem_array(slots, sizeof *t.leaving);
    int *group = mem_array((size_t)n, sizeof *group);
    unsigned repeating = repeating_axes(c, mesh, first_rank);
    t.typical = typical_members(mesh, axes, repeating);
    for (int pass = 0; pass < 2; pass++) {
        int coord[MESH_MAX_AXES] = {0};
        do {
            mesh_group(mesh, axes, mesh_rank(mesh, coord), group);
            for (int i = 0; i < n; i++)
                group[i] += (int)first_rank;
            if (pass == 0)
                count_group(&t, group, n);
            else
                read_group(&t, group, n, &out);
            out.nodes = out.nodes ? out.nodes : nodes_of(c, group, n);
        } while (next_leader(mesh, axes | repeating, coord));
    }
    free(group);
    free(t.flows);
    free(t.leaving);
    return out;
}

struct link_class links_of_ranks(const struct cluster *c, int64_t first, int64_t n) {
    struct mesh mesh = {.n_axes = 1, .size = {(int)n}};
    return links_of_group(c, &mesh, first, 1);
}

struct link_class links_of_message(const struct cluster *c, int64_t sender,
                                   int64_t receiver, int64_t n) {
    struct link_class out = {0};
    int64_t first = receiver, end = receiver + 1;
    if (sender == receiver)
        return out;
    struct cluster_unit u = find_hop(c, receiver, sender, &first, &end);
    /* Receivers in the same unit share its link. */
    int64_t flows = (end < receiver + n ? end : receiver + n) - receiver;
    slower(&out, &u, flows, share(u.link, flows, 1));
    out.pairs = out.bandwidth;
    out.nodes = 1 + out.cross;
    return out;
}
