/* Joining and leaving the job.
 *
 * Nodes are what MPI calls shared-memory domains, numbered by their lowest rank. MPI errors
 * come back as values; a rank that dies takes the job with it (mpirun sees to that).
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* cpu_set_t */
#endif
#include "comm/comm_impl.h"

#include "common/mem.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int comm_check(int rc, const char *what, struct err *err) {
    if (rc == MPI_SUCCESS)
        return 0;
    char text[MPI_MAX_ERROR_STRING];
    int n = 0;
    if (MPI_Error_string(rc, text, &n) != MPI_SUCCESS)
        return err_system(err, "%s: MPI error %d", what, rc);
    return err_system(err, "%s: %.*s", what, n, text);
}

static int start_mpi(struct comm *c, int *argc, char ***argv, struct err *err) {
    int started = 0, level;
    MPI_Initialized(&started);
    c->finalize = !started;
    if (!started && comm_check(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &level),
                               "MPI_Init", err) < 0)
        return -1;
    /* Duplicates inherit the handler, so no later call aborts the job by itself. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (comm_check(MPI_Comm_dup(MPI_COMM_WORLD, &c->world), "MPI_Comm_dup", err) < 0 ||
        comm_check(MPI_Comm_dup(MPI_COMM_WORLD, &c->p2p), "MPI_Comm_dup", err) < 0)
        return -1;
    MPI_Comm_rank(c->world, &c->rank);
    MPI_Comm_size(c->world, &c->size);
    return 0;
}

/* Numbers the nodes by their lowest rank; node_of and node_rank_of are the same everywhere.
 */
static int find_nodes(struct comm *c, struct err *err) {
    int rc = MPI_Comm_split_type(c->world, MPI_COMM_TYPE_SHARED, c->rank, MPI_INFO_NULL,
                                 &c->node_comm);
    if (comm_check(rc, "MPI_Comm_split_type", err) < 0)
        return -1;
    MPI_Comm_rank(c->node_comm, &c->node_rank);
    MPI_Comm_size(c->node_comm, &c->node_size);
    int first = c->rank;
    rc = MPI_Bcast(&first, 1, MPI_INT, 0, c->node_comm);
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

/* Cores that the node's ranks may use between them: mpirun may bind each to its own. */
static int node_cores(struct comm *c) {
    cpu_set_t mine, all;
    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof mine, &mine) < 0 ||
        MPI_Allreduce(&mine, &all, (int)sizeof mine, MPI_BYTE, MPI_BOR, c->node_comm) !=
            MPI_SUCCESS)
        return 1;
    return CPU_COUNT(&all);
}

static void choose_waiting(struct comm *c) {
    c->crowded = c->node_size > node_cores(c);
    c->spins = c->crowded ? 10 : 400;
    c->yields = c->crowded ? 200 : 2000;
}

struct comm *comm_create(int *argc, char ***argv, struct err *err) {
    struct comm *c = mem_alloc(sizeof *c);
    if (start_mpi(c, argc, argv, err) < 0) {
        free(c);
        return NULL;
    }
    c->node_of = mem_array((size_t)c->size, sizeof *c->node_of);
    c->node_rank_of = mem_array((size_t)c->size, sizeof *c->node_rank_of);
    int *all = mem_array((size_t)c->size, sizeof *all);
    for (int r = 0; r < c->size; r++)
        all[r] = r;
    bool ok = find_nodes(c, err) == 0;
    if (ok)
        choose_waiting(c);
    ok = ok &&
         shared_create(c, (int64_t)(COMM_LANES * sizeof(struct lane)), &c->lanes, err) == 0;
    c->world_group = ok ? comm_group_create(c, all, c->size, err) : NULL;
    free(all);
    if (c->world_group)
        return c;
    comm_destroy(c);
    return NULL;
}

void comm_destroy(struct comm *c) {
    if (!c)
        return;
    comm_group_destroy(c->world_group);
    for (int i = 0; i < c->arenas; i++)
        shared_release(c, &c->arena[i]);
    shared_release(c, &c->lanes);
    for (struct comm_request *q = c->free_requests, *next; q; q = next) {
        next = q->next;
        free(q);
    }
    if (c->node_comm)
        MPI_Comm_free(&c->node_comm);
    MPI_Comm_free(&c->p2p);
    MPI_Comm_free(&c->world);
    if (c->finalize)
        MPI_Finalize();
    free(c->node_of);
    free(c->node_rank_of);
    free(c);
}

void comm_abort(struct comm *comm, int status) {
    (void)comm;
    MPI_Abort(MPI_COMM_WORLD, status);
    _exit(status);
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
