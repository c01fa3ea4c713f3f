/* The MPI backend: collectives in shared memory and by MPI messages.
 *
 * All groups use the same MPI communicators; the group's id, in the tags, keeps them apart.
 * So making a group costs no talk of its members beyond one barrier of the job, at which all
 * lanes have been taken and can be found.
 */
#include "comm/comm_impl.h"

#include "common/mem.h"

#include <stdlib.h>

static struct mpi_group *part_new(struct comm *c, const int *ranks, int n, int me, int id,
                                  int64_t key) {
    struct mpi_group *m = mem_alloc(sizeof *m);
    *m = (struct mpi_group){
        .comm = c, .ranks = ranks, .n = n, .me = me, .id = id, .key = key, .slot = -1};
    m->step = collective_begin;
    m->lane = mem_array((size_t)n, sizeof *m->lane);
    m->base = mem_array((size_t)n, sizeof *m->base);
    m->src = mem_array((size_t)n, sizeof *m->src);
    m->dst = mem_array((size_t)(2 * n), sizeof *m->dst);
    return m;
}

static void part_free(struct mpi_group *m) {
    if (!m)
        return;
    part_free(m->local);
    lane_release(m);
    free(m->lane);
    free(m->base);
    free(m->src);
    free(m->dst);
    free(m->stage);
    free(m->req);
    free(m);
}

/* Whether some node has two of the members. */
static bool shares_node(const struct comm_group *g) {
    const int *node_of = g->comm->node_of;
    int *seen = mem_array((size_t)g->comm->nodes, sizeof *seen);
    bool twice = false;
    for (int p = 0; p < g->n; p++)
        twice = twice || seen[node_of[g->ranks[p]]]++;
    free(seen);
    return twice;
}

/* How many members each node has, when all have as many and in blocks, or 0. */
static int members_a_node(const struct comm_group *g) {
    const int *node_of = g->comm->node_of;
    int *last = mem_array((size_t)g->comm->nodes, sizeof *last), m = 0;
    while (m < g->n && node_of[g->ranks[m]] == node_of[g->ranks[0]])
        m++;
    bool blocks = g->n % m == 0;
    for (int p = 0; p < g->n; p++) {
        int *of = &last[node_of[g->ranks[p]]]; /* 1 + the block that this node has */
        blocks = blocks && (p % m == 0 ? *of == 0 : *of == 1 + p / m);
        *of = 1 + p / m;
    }
    free(last);
    return blocks ? m : 0;
}

static struct mpi_group *part_of(struct comm_group *g) {
    struct comm *c = g->comm;
    int64_t key = 2 * (int64_t)g->id + 1;
    struct mpi_group *m = part_new(c, g->ranks, g->n, g->me, g->id, key);
    m->several = g->crosses && shares_node(g);
    int local = m->several ? members_a_node(g) : 0;
    if (local > 1)
        m->local = part_new(c, g->ranks + g->me / local * local, local, g->me % local,
                            g->id, key + 1);
    return m;
}

static void *open_mpi(struct comm *c, void *arg, struct err *err) {
    (void)arg;
    (void)err;
    return engine_create(c);
}

static void close_mpi(void *job) {
    engine_destroy(job);
}

/* The part of the group that meets in shared memory, if there is one. */
static struct mpi_group *meeting_part(const struct comm_group *g) {
    struct mpi_group *m = g->state;
    return g->crosses ? m->local : m;
}

/* All ranks take their lanes, meet, and only then look for those of the others. */
static int open_groups(void *job, struct comm_group **groups, int n, struct err *err) {
    struct comm *c = engine_comm(job);
    for (int i = 0; i < n; i++) {
        if (!groups[i])
            continue;
        groups[i]->state = part_of(groups[i]);
        engine_room(job, 1);
        if (groups[i]->n > 1 && meeting_part(groups[i]))
            lane_take(meeting_part(groups[i]));
    }
    if (c->world_group && comm_barrier(c->world_group, err) < 0)
        return -1;
    for (int i = 0; i < n; i++)
        if (groups[i] && groups[i]->n > 1 && meeting_part(groups[i]))
            lane_find(meeting_part(groups[i]));
    return 0;
}

static void close_group(struct comm_group *g) {
    if (!g->state)
        return;
    engine_drop_group(g->job, g->state);
    part_free(g->state);
}

const struct comm_backend comm_backend_mpi = {.name = "mpi",
                                              .open = open_mpi,
                                              .close = close_mpi,
                                              .open_groups = open_groups,
                                              .close_group = close_group,
                                              .start = engine_start,
                                              .wait = engine_wait};
