/* Clusters: who stands where. Reading and writing them is cluster_read.c. */
#include "plan/cluster.h"

#include <ctype.h>
#include <string.h>

struct cluster cluster_single_node(int64_t devices) {
    struct cluster c = {.n_groups = 1};
    c.groups[0] = (struct cluster_group){.nodes = 1, .devices = devices, .n_links = 1};
    c.groups[0].links[0] = (struct cluster_link){"node", .size = devices, .lanes = 1};
    return c;
}

/* NVIDIA's names are two letters at most and a number; users may name theirs "gpu". */
bool cluster_kind_is_gpu(const char *kind) {
    size_t letters = 0;
    while (isalpha((unsigned char)kind[letters]))
        letters++;
    return !strncmp(kind, "gpu", 3) ||
           (letters <= 2 && isdigit((unsigned char)kind[letters]));
}

int64_t cluster_nodes(const struct cluster *c) {
    const struct cluster_group *last = &c->groups[c->n_groups - 1];
    return last->first_node + last->nodes;
}

int64_t cluster_devices(const struct cluster *c) {
    const struct cluster_group *last = &c->groups[c->n_groups - 1];
    return last->first_rank + last->nodes * last->devices;
}

const struct cluster_group *cluster_group_of(const struct cluster *c, int64_t rank) {
    int g = c->n_groups - 1;
    while (g > 0 && c->groups[g].first_rank > rank)
        g--;
    return &c->groups[g];
}

int64_t cluster_node_of(const struct cluster *c, int64_t rank) {
    const struct cluster_group *g = cluster_group_of(c, rank);
    return g->first_node + (rank - g->first_rank) / g->devices;
}

/* The first rank of a node; of one beyond the last, the number of ranks. */
static int64_t first_rank_of(const struct cluster *c, int64_t node) {
    int i = c->n_groups - 1;
    while (i > 0 && c->groups[i].first_node > node)
        i--;
    const struct cluster_group *g = &c->groups[i];
    int64_t at = node - g->first_node;
    return g->first_rank + (at < g->nodes ? at : g->nodes) * g->devices;
}

/* ---- devices ----------------------------------------------------------------------- */

/* Is one of ranks first .. first + n - 1 in the group? */
static bool touches(const struct cluster_group *g, int64_t first, int64_t n) {
    return g->first_rank < first + n && g->first_rank + g->nodes * g->devices > first;
}

/* Never 0 where memory is said, since that would mean that it is not. */
static int64_t usable(const struct cluster_group *g) {
    int64_t left = g->memory_bytes - reserve_fixed(&g->reserve);
    return g->memory_bytes && left < 1 ? 1 : left;
}

int64_t cluster_memory(const struct cluster *c, int64_t first, int64_t n) {
    int64_t least = 0;
    for (int i = 0; i < c->n_groups; i++) {
        const struct cluster_group *g = &c->groups[i];
        if (touches(g, first, n) && g->memory_bytes && (!least || usable(g) < least))
            least = usable(g);
    }
    return least;
}

int64_t cluster_most_memory(const struct cluster *c, int64_t first, int64_t n) {
    int64_t most = 0;
    for (int i = 0; i < c->n_groups; i++) {
        const struct cluster_group *g = &c->groups[i];
        if (touches(g, first, n) && g->memory_bytes && usable(g) > most)
            most = usable(g);
    }
    return most;
}

double cluster_flops(const struct cluster *c, enum dtype type, int64_t first, int64_t n) {
    double sum = 0;
    for (int i = 0; i < c->n_groups; i++) {
        const struct cluster_group *g = &c->groups[i];
        int64_t lo = g->first_rank, hi = lo + g->nodes * g->devices;
        lo = lo > first ? lo : first;
        hi = hi < first + n ? hi : first + n;
        if (lo < hi && g->flops[type] <= 0)
            return 0;
        sum += lo < hi ? (double)(hi - lo) * g->flops[type] : 0;
    }
    return sum;
}

/* ---- levels ------------------------------------------------------------------------ */

/* Levels inside a node are counted first, then those between nodes, whose units are runs of nodes. */
bool cluster_unit(const struct cluster *c, int64_t rank, int k, struct cluster_unit *out) {
    const struct cluster_group *g = cluster_group_of(c, rank);
    if (k < g->n_links) {
        int64_t node = (rank - g->first_rank) / g->devices;
        int64_t start = g->first_rank + node * g->devices, size = g->links[k].size;
        *out = (struct cluster_unit){.link = &g->links[k], .level = k};
        out->first = start + (rank - start) / size * size;
        out->end = out->first + size;
        return true;
    }
    k -= g->n_links;
    if (k >= c->n_links)
        return false;
    int64_t node = cluster_node_of(c, rank), size = c->links[k].size;
    *out = (struct cluster_unit){
        .link = &c->links[k], .level = CLUSTER_MAX_LEVELS + k, .cross = true};
    out->first = first_rank_of(c, node / size * size);
    out->end = first_rank_of(c, node / size * size + size);
    return true;
}

/* What lies around the smallest unit that holds them all does not matter, nor in which of the
 * equal units of the level below they begin: only where in it. */
int64_t cluster_alias(const struct cluster *c, int64_t first, int64_t n) {
    const struct cluster_group *g = cluster_group_of(c, first);
    struct cluster_unit u;
    int64_t below = 1;
    if (first + n > g->first_rank + g->nodes * g->devices)
        return first;
    for (int k = 0; cluster_unit(c, first, k, &u) && first + n > u.end; k++)
        below = u.cross ? u.link->size * g->devices : u.link->size;
    int64_t nodes = below / g->devices;
    bool even = nodes <= 1 || g->first_node % nodes == 0;
    return even ? g->first_rank + (first - g->first_rank) % below : first;
}
