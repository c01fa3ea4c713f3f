/* Joining and leaving the job.
 *
 * Nodes are what MPI calls shared-memory domains, numbered by their lowest rank. MPI errors
 * come back as values; a rank that dies takes the job with it (mpirun sees to that).
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* cpu_set_t */
#endif
#include "comm/comm_impl.h"

#include "comm/comm_workspace.h"
#include "common/mem.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* MPI is called by two threads, but never by both at a time (see comm_engine.c): that is the
 * level SERIALIZED, at which MPI takes no locks of its own. */
static int start_mpi(struct comm *c, int *argc, char ***argv, struct err *err) {
    int started = 0, level = MPI_THREAD_SINGLE;
    MPI_Initialized(&started);
    c->finalize = !started;
    if (!started && comm_check(MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &level),
                               "MPI_Init", err) < 0)
        return -1;
    if (started)
        MPI_Query_thread(&level);
    c->threads = level >= MPI_THREAD_SERIALIZED;
    /* Duplicates inherit the handler, so no later call aborts the job by itself. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm *const own[] = {&c->world, &c->p2p, &c->alarms};
    for (int i = 0; i < 3; i++)
        if (comm_check(MPI_Comm_dup(MPI_COMM_WORLD, own[i]), "MPI_Comm_dup", err) < 0)
            return -1;
    MPI_Comm_rank(c->world, &c->rank);
    MPI_Comm_size(c->world, &c->size);
    return 0;
}

/* Cores that the node's ranks may use between them: mpirun may bind each to its own. */
static int node_cores(MPI_Comm node) {
    cpu_set_t mine, all;
    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof mine, &mine) < 0 ||
        MPI_Allreduce(&mine, &all, (int)sizeof mine, MPI_BYTE, MPI_BOR, node) !=
            MPI_SUCCESS)
        return 1;
    return CPU_COUNT(&all);
}

static void choose_waiting(struct comm *c, MPI_Comm node) {
    c->crowded = c->node_size > node_cores(node);
    c->spins = c->crowded ? 10 : 400;
    c->yields = c->crowded ? 200 : 2000;
}

/* Numbers the nodes by their lowest rank; node_of and node_rank_of are the same everywhere.
 */
static int number_nodes(struct comm *c, MPI_Comm node, struct err *err) {
    MPI_Comm_rank(node, &c->node_rank);
    MPI_Comm_size(node, &c->node_size);
    c->node_of = mem_array((size_t)c->size, sizeof *c->node_of);
    c->node_rank_of = mem_array((size_t)c->size, sizeof *c->node_rank_of);
    int first = c->rank;
    int rc = MPI_Bcast(&first, 1, MPI_INT, 0, node);
    if (rc == MPI_SUCCESS)
        rc = MPI_Allgather(&first, 1, MPI_INT, c->node_of, 1, MPI_INT, c->world);
    if (rc == MPI_SUCCESS)
        rc =
            MPI_Allgather(&c->node_rank, 1, MPI_INT, c->node_rank_of, 1, MPI_INT, c->world);
    if (comm_check(rc, "finding the nodes", err) < 0)
        return -1;
    for (int r = 0; r < c->size; r++) /* node_of[r] <= r still holds a first rank */
        c->node_of[r] = c->node_of[r] == r ? c->nodes++ : c->node_of[c->node_of[r]];
    c->node = c->node_of[c->rank];
    return 0;
}

/* This and starting MPI are the only waits without a time-out: all ranks come here at once. */
static int find_nodes(struct comm *c, struct err *err) {
    MPI_Comm node;
    int rc =
        MPI_Comm_split_type(c->world, MPI_COMM_TYPE_SHARED, c->rank, MPI_INFO_NULL, &node);
    if (comm_check(rc, "MPI_Comm_split_type", err) < 0)
        return -1;
    rc = number_nodes(c, node, err);
    choose_waiting(c, node);
    MPI_Comm_free(&node);
    return rc;
}

_Static_assert(sizeof(struct desk) <= COMM_WORKSPACE_DESK, "what is planned for lanes");

static struct comm_group *make_world(struct comm *c, struct err *err) {
    int *all = mem_array((size_t)c->size, sizeof *all);
    for (int r = 0; r < c->size; r++)
        all[r] = r;
    struct comm_group *g =
        group_new(c, &comm_backend_mpi, c->engine, all, c->size, c->rank);
    free(all);
    if (g->backend->open_groups(c->engine, &g, 1, err) == 0)
        return g;
    comm_group_destroy(g);
    return NULL;
}

/* The first world group meets by messages; it is what the node's memory is shared with, and
 * then the second one meets there. */
static int meet(struct comm *c, struct err *err) {
    c->world_group = make_world(c, err);
    if (!c->world_group ||
        shared_create(c, (int64_t)sizeof(struct desk), &c->desks, err) < 0)
        return -1;
    struct comm_group *early = c->world_group;
    struct comm_group *late = make_world(c, err);
    c->world_group = late ? late : early;
    if (late)
        comm_group_destroy(early);
    struct desk *first = (void *)(c->desks.peer ? c->desks.peer[0] : c->desks.own);
    c->alarm = &first->alarm;
    return late ? 0 : -1;
}

static int open_backend(struct comm *c, struct err *err) {
    if (!c->options.backend)
        c->options.backend = &comm_backend_mpi;
    if (c->options.backend == &comm_backend_mpi)
        c->job = c->engine;
    else
        c->job = c->options.backend->open(c, c->options.backend_arg, err);
    return c->job ? 0 : -1;
}

int comm_use(struct comm *c, const struct comm_backend *backend, void *arg,
             struct err *err) {
    c->options.backend = backend;
    c->options.backend_arg = arg;
    return open_backend(c, err);
}

/* The alarm is heard before anything else is opened, for any of it may fail on one rank only. */
struct comm *comm_create(int *argc, char ***argv, const struct comm_options *options,
                         struct err *err) {
    struct comm *c = mem_alloc(sizeof *c);
    c->options = options ? *options : (struct comm_options)COMM_OPTIONS_DEFAULT;
    c->alarm = &c->early;
    c->mail_req = MPI_REQUEST_NULL;
    if (start_mpi(c, argc, argv, err) < 0) {
        free(c);
        return NULL;
    }
    if (find_nodes(c, err) == 0) {
        alarm_listen(c);
        c->engine = comm_backend_mpi.open(c, NULL, err);
        if (c->engine && meet(c, err) == 0 && open_backend(c, err) == 0)
            return c;
    }
    comm_destroy(c);
    return NULL;
}

/* In the reverse order of comm_create. What a backend still has open goes before the world
 * group that it may use. */
void comm_destroy(struct comm *c) {
    if (!c)
        return;
    if (c->job && c->job != c->engine)
        c->options.backend->close(c->job);
    comm_group_destroy(c->world_group);
    if (c->engine)
        comm_backend_mpi.close(c->engine);
    alarm_deaf(c);
    for (int i = 0; i < c->arenas; i++)
        shared_release(c, &c->arena[i]);
    shared_release(c, &c->desks);
    MPI_Comm_free(&c->alarms);
    MPI_Comm_free(&c->p2p);
    MPI_Comm_free(&c->world);
    if (c->finalize)
        MPI_Finalize();
    free(c->node_of);
    free(c->node_rank_of);
    free(c);
}

float *comm_alloc(struct comm *c, int64_t bytes, struct err *err) {
    if (c->arenas == COMM_ARENAS) {
        err_system(err, "comm_alloc: more than %d arenas", COMM_ARENAS);
        return NULL;
    }
    if (shared_create(c, bytes, &c->arena[c->arenas], err) < 0)
        return NULL;
    return (float *)(void *)c->arena[c->arenas++].own;
}

int comm_rank(const struct comm *c) {
    return c->rank;
}

int comm_size(const struct comm *c) {
    return c->size;
}

int comm_node(const struct comm *c) {
    return c->node;
}

int comm_nodes(const struct comm *c) {
    return c->nodes;
}

int comm_node_rank(const struct comm *c) {
    return c->node_rank;
}

int comm_node_size(const struct comm *c) {
    return c->node_size;
}

int comm_node_of(const struct comm *c, int rank) {
    return c->node_of[rank];
}

struct comm_group *comm_world(struct comm *c) {
    return c->world_group;
}
