/* Groups: members, their lanes, their communicator.
 *
 * Only the members take part in making one, so nothing here is agreed upon by the whole
 * job: each member takes any free lane of its own and tells the others which.
 */
#include "comm/comm_impl.h"

#include "common/mem.h"
#include "common/rng.h"

#include <stdlib.h>
#include <string.h>

static int make_mpi_comm(struct comm_group *g, struct err *err) {
    MPI_Group world, members;
    MPI_Comm_group(g->comm->world, &world);
    int rc = MPI_Group_incl(world, g->n, g->ranks, &members);
    if (rc == MPI_SUCCESS) {
        /* Groups that overlap may be under construction at once: keep their messages apart.
         */
        uint64_t h = hash_bytes(g->ranks, (size_t)g->n * sizeof *g->ranks, 0);
        rc = MPI_Comm_create_group(g->comm->world, members, (int)(h & 0x3fff), &g->mpi);
        MPI_Group_free(&members);
    }
    MPI_Group_free(&world);
    return comm_check(rc, "making a group", err);
}

/* Whether all members share a node, and whether any node has two. */
static bool on_one_node(struct comm_group *g) {
    const int *node_of = g->comm->node_of;
    int *seen = mem_array((size_t)g->comm->nodes, sizeof *seen);
    bool one = true, twice = false;
    for (int p = 0; p < g->n; p++) {
        one = one && node_of[g->ranks[p]] == node_of[g->ranks[0]];
        twice = twice || seen[node_of[g->ranks[p]]]++;
    }
    free(seen);
    g->several = !one && twice;
    return one;
}

static int take_lane(struct comm *c) {
    for (int i = 0; i < COMM_LANES; i++)
        if (!c->lane_used[i]) {
            c->lane_used[i] = true;
            return i;
        }
    return -1;
}

static struct lane *lane_at(struct comm *c, int rank, int slot) {
    return (struct lane *)(void *)c->lanes.peer[c->node_rank_of[rank]] + slot;
}

/* Everyone takes a lane and tells which; without one of each member the group uses MPI. */
static int meet(struct comm_group *g, struct err *err) {
    struct comm *c = g->comm;
    g->slot = c->lanes.peer ? take_lane(c) : -1;
    int32_t own[2] = {g->slot, 0};
    if (g->slot >= 0)
        own[1] = (int32_t)atomic_load(&lane_at(c, c->rank, g->slot)->seq);
    int32_t *all = mem_array((size_t)g->n, sizeof own);
    int rc = MPI_Allgather(own, 2, MPI_INT32_T, all, 2, MPI_INT32_T, g->mpi);
    g->direct = rc == MPI_SUCCESS;
    for (int p = 0; p < g->n; p++)
        g->direct = g->direct && all[2 * p] >= 0;
    for (int p = 0; g->direct && p < g->n; p++) {
        g->lane[p] = lane_at(c, g->ranks[p], all[2 * p]);
        g->base[p] = (uint32_t)all[2 * p + 1];
    }
    free(all);
    return comm_check(rc, "making a group", err);
}

static int check_ranks(struct comm *c, const int *ranks, int n, int *me, struct err *err) {
    *me = -1;
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= c->size)
            return err_system(err, "group: no rank %d in a job of %d", ranks[i], c->size);
        for (int j = 0; j < i; j++)
            if (ranks[j] == ranks[i])
                return err_system(err, "group: rank %d stands there twice", ranks[i]);
        if (ranks[i] == c->rank)
            *me = i;
    }
    return *me < 0 ? err_system(err, "group: rank %d is not a member", c->rank) : 0;
}

/* The group of the members on this node, when all nodes have as many and in blocks. */
static int make_local(struct comm_group *g, struct err *err) {
    const int *node_of = g->comm->node_of;
    int m = 0;
    while (m < g->n && node_of[g->ranks[m]] == node_of[g->ranks[0]])
        m++;
    if (!g->several || m == 1 || g->n % m)
        return 0;
    for (int p = 0; p < g->n; p++)
        for (int q = 0; q < p; q++)
            if ((node_of[g->ranks[p]] == node_of[g->ranks[q]]) != (p / m == q / m))
                return 0;
    g->local = comm_group_create(g->comm, g->ranks + g->me / m * m, m, err);
    return g->local ? 0 : -1;
}

struct comm_group *comm_group_create(struct comm *comm, const int *ranks, int n,
                                     struct err *err) {
    int me;
    if (check_ranks(comm, ranks, n, &me, err) < 0)
        return NULL;
    struct comm_group *g = mem_alloc(sizeof *g);
    *g = (struct comm_group){
        .comm = comm, .mpi = MPI_COMM_NULL, .n = n, .me = me, .slot = -1};
    g->ranks = mem_array((size_t)n, sizeof *g->ranks);
    g->lane = mem_array((size_t)n, sizeof *g->lane);
    g->base = mem_array((size_t)n, sizeof *g->base);
    g->src = mem_array((size_t)n, sizeof *g->src);
    g->dst = mem_array((size_t)n, sizeof *g->dst);
    memcpy(g->ranks, ranks, (size_t)n * sizeof *ranks);
    if (n == 1)
        return g;
    if (make_mpi_comm(g, err) == 0 &&
        (on_one_node(g) ? meet(g, err) : make_local(g, err)) == 0)
        return g;
    comm_group_destroy(g);
    return NULL;
}

void comm_group_destroy(struct comm_group *g) {
    if (!g)
        return;
    comm_group_destroy(g->local);
    if (g->direct)
        lane_sync(g); /* nobody reads the lane any more: it may serve another group */
    if (g->slot >= 0)
        g->comm->lane_used[g->slot] = false;
    if (g->mpi != MPI_COMM_NULL)
        MPI_Comm_free(&g->mpi);
    free(g->ranks);
    free(g->lane);
    free(g->base);
    free(g->src);
    free(g->dst);
    free(g->stage);
    free(g->req);
    free(g);
}

int comm_group_size(const struct comm_group *g) {
    return g->n;
}

int comm_group_rank(const struct comm_group *g) {
    return g->me;
}
