/* Replicas that train apart, and when they come together (program/passes/pass_average.c).
 *
 * The schedule has the action at the end of every step; it is taken in one of average_every, counted
 * over the whole training, so that a resumed run meets when the first one would have. Whoever wants one
 * model asks for the mean of all besides. */
#include "exec/exec_impl.h"

#include "data/shuffle.h"

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

/* Of a random order the first two meet, the next two, and so on. */
int exec_partner(uint64_t seed, int64_t step, int n, int me) {
    const uint64_t key = rng_bits(seed, 0x70616972 /* "pair" */, 0), epoch = (uint64_t)step;
    int64_t at = 0;
    while (shuffle_at(key, epoch, n, at) != me)
        at++;
    const int64_t other = at ^ 1;
    return other < n ? (int)shuffle_at(key, epoch, n, other) : me;
}
