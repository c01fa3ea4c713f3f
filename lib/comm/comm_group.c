/* Groups: made from a list that all ranks of the job have.
 *
 * That the lists are equal is checked by a hash, so that a disagreement between ranks is an
 * error here and not a hang later. The places in the list number the groups of the job, which
 * is all that the members need to find each other.
 */
#include "comm/comm_impl.h"

#include "common/mem.h"
#include "common/rng.h"

#include <stdlib.h>
#include <string.h>

struct comm_group *group_new(struct comm *c, const struct comm_backend *backend, void *job,
                             const int *ranks, int n, int me) {
    struct comm_group *g = mem_alloc(sizeof *g);
    *g = (struct comm_group){
        .comm = c, .backend = backend, .id = c->next_id++, .n = n, .me = me, .job = job};
    g->ranks = mem_array((size_t)n, sizeof *g->ranks);
    memcpy(g->ranks, ranks, (size_t)n * sizeof *ranks);
    for (int p = 0; p < n; p++)
        g->crosses = g->crosses || c->node_of[ranks[p]] != c->node_of[ranks[0]];
    return g;
}

/* This rank's place in the set, -1 = none, or -2 with an error. seen[rank] holds the number
 * of the last set that had it. */
static int find_me(const struct comm *c, const struct comm_ranks *set, int number,
                   int *seen, struct err *err) {
    int me = -1;
    for (int i = 0; i < set->n; i++) {
        int r = set->ranks[i];
        if (r < 0 || r >= c->size) {
            err_system(err, "group: no rank %d in a job of %d", r, c->size);
            return -2;
        }
        if (seen[r] == number) {
            err_system(err, "group: rank %d is named twice", r);
            return -2;
        }
        seen[r] = number;
        if (r == c->rank)
            me = i;
    }
    return me;
}

/* All ranks compare what they were given with rank 0's. */
static int same_list(struct comm *c, const struct comm_ranks *sets, int n,
                     struct err *err) {
    uint64_t own = hash_bytes(&n, sizeof n, 0);
    for (int i = 0; i < n; i++) {
        own = hash_bytes(&sets[i].n, sizeof sets[i].n, own);
        own = hash_bytes(sets[i].ranks, (size_t)sets[i].n * sizeof *sets[i].ranks, own);
    }
    uint64_t *all = mem_array((size_t)c->size, sizeof *all);
    int rc = comm_all_gather(c->world_group, &own, all, sizeof own, DTYPE_u8, err);
    for (int r = 1; r < c->size && rc == 0; r++)
        if (all[r] != all[0])
            rc = err_system(err, "rank %d was given a different list of groups than rank 0",
                            r);
    free(all);
    return rc;
}

/* The groups of the list that this rank is in. */
static int make_groups(struct comm *c, const struct comm_ranks *sets, int n,
                       struct comm_group **groups, struct err *err) {
    int *seen = mem_array((size_t)c->size, sizeof *seen), me = -1;
    for (int i = 0; i < n && me != -2; i++) {
        me = find_me(c, &sets[i], i + 1, seen, err);
        if (me >= 0)
            groups[i] =
                group_new(c, c->options.backend, c->job, sets[i].ranks, sets[i].n, me);
        else
            c->next_id++;
    }
    free(seen);
    return me == -2 ? -1 : 0;
}

int comm_groups_create(struct comm *c, const struct comm_ranks *sets, int n,
                       struct comm_group **groups, struct err *err) {
    memset(groups, 0, (size_t)n * sizeof *groups);
    if (same_list(c, sets, n, err) == 0 && make_groups(c, sets, n, groups, err) == 0 &&
        c->options.backend->open_groups(c->job, groups, n, err) == 0)
        return 0;
    for (int i = 0; i < n; i++) {
        comm_group_destroy(groups[i]);
        groups[i] = NULL;
    }
    return -1;
}

void comm_group_destroy(struct comm_group *g) {
    if (!g)
        return;
    g->backend->close_group(g);
    free(g->ranks);
    free(g);
}

bool comm_on_streams(const struct comm_group *g) {
    return g->backend->streams;
}

int comm_group_rank(const struct comm_group *g) {
    return g->me;
}
