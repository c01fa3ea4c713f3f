#include "keep/straggler.h"

#include "common/mem.h"
#include "common/stats.h"

#include <stdlib.h>

struct straggler {
    int ranks;
    int64_t step;  /* that the work below was read behind; -1 = none was */
    int64_t *work; /* [ranks] us */
    double *
        last; /* [ranks] us of work in the last STRAGGLER_STEPS steps; 0 = not so many were done */
    double *peers; /* [ranks] room */
};

struct straggler *straggler_create(int ranks) {
    struct straggler *s = mem_alloc(sizeof *s);
    *s = (struct straggler){.ranks = ranks,
                            .step = -1,
                            .work = mem_array((size_t)ranks, sizeof *s->work),
                            .last = mem_array((size_t)ranks, sizeof *s->last),
                            .peers = mem_array((size_t)ranks, sizeof *s->peers)};
    return s;
}

void straggler_destroy(struct straggler *s) {
    if (!s)
        return;
    free(s->work);
    free(s->last);
    free(s->peers);
    free(s);
}

static double work_of(const struct straggler *s, struct beats *b, int r) {
    return (double)(atomic_load(&beats_at(b, r)->work_us) - s->work[r]);
}

/* The median of the others of its group; 0 where it has none. */
static double usual(const struct straggler *s, struct beats *b, int rank) {
    const long long group = atomic_load(&beats_at(b, rank)->group);
    int n = 0;
    for (int r = 0; r < s->ranks; r++)
        if (r != rank && atomic_load(&beats_at(b, r)->group) == group)
            s->peers[n++] = work_of(s, b, r);
    return n ? stats_median(s->peers, n) : 0;
}

static void remember(struct straggler *s, struct beats *b, int64_t step) {
    s->step = step;
    for (int r = 0; r < s->ranks; r++)
        s->work[r] = atomic_load(&beats_at(b, r)->work_us);
}

int straggler_look(struct straggler *s, struct beats *b, double *ratio) {
    const int64_t step = atomic_load(&beats_at(b, 0)->step);
    int slowest = -1;
    if (s->step >= 0 && step < s->step + STRAGGLER_STEPS)
        return -1;
    *ratio = STRAGGLER_RATIO;
    for (int r = 0; s->step >= 0 && r < s->ranks; r++) {
        double other = usual(s, b, r);
        double times = other > 0 ? work_of(s, b, r) / other : 0;
        if (times >= *ratio) {
            *ratio = times;
            slowest = r;
        }
    }
    for (int r = 0; s->step >= 0 && r < s->ranks; r++)
        s->last[r] = work_of(s, b, r);
    remember(s, b, step);
    return slowest;
}

double straggler_ratio(struct straggler *s, struct beats *b, int rank) {
    const long long group = atomic_load(&beats_at(b, rank)->group);
    int n = 0;
    for (int r = 0; r < s->ranks; r++)
        if (atomic_load(&beats_at(b, r)->group) == group)
            s->peers[n++] = s->last[r];
    const double median = stats_median(s->peers, n);
    return n > 1 && median > 0 ? s->last[rank] / median : 0;
}
