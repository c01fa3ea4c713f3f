/* Replicas that train apart, and when they come together (program/passes/pass_average.c).
 *
 * The schedule has the action at the end of every step; it is taken in one of average_every, counted
 * over the whole training, so that a resumed run meets when the first one would have. Whoever wants one
 * model asks for the mean of all besides. */
#include "exec/exec_impl.h"

#include "common/rng.h"

static bool is_due(const struct exec *x) {
    const struct plan *p = x->g->plan;
    return p->average != AVERAGE_none && (x->step + 1) % p->average_every == 0;
}

bool exec_is_taken(const struct exec *x, struct action a) {
    return a.segment < SEG_PAIR || is_due(x);
}

void exec_note_apart(struct exec *x) {
    const struct plan *p = x->g->plan;
    x->apart |= p->average != AVERAGE_none && !x->skipping;
    x->apart &= !(is_due(x) && p->average == AVERAGE_all);
}

int exec_average(struct exec *x, struct err *err) {
    int rc = 0;
    for (int i = 0; i < x->n_chunks && x->apart && rc == 0; i++)
        rc = exec_run(x, (struct action){SEG_AVERAGE, x->chunks[i].rp.stage, -1}, err);
    x->apart &= rc < 0;
    return rc;
}

/* A random order (Fisher and Yates), of which the first two meet, the next two, and so on. */
int exec_partner(uint64_t seed, int64_t step, int n, int me, int *room) {
    enum { STREAM = 0x70616972 }; /* of its own among those of the seed */
    int at = 0;
    for (int i = 0; i < n; i++) {
        struct rng r = {rng_bits(seed, STREAM, (uint64_t)step), (uint64_t)i};
        const int k = (int)rng_below(&r, i + 1);
        room[i] = room[k];
        room[k] = i;
    }
    while (room[at] != me)
        at++;
    const int other = at % 2 ? at - 1 : at + 1;
    return other < n ? room[other] : me;
}
