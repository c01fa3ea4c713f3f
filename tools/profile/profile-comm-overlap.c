/* What hides behind computation, measured as the executor works.
 *
 * Three times in turn: computation alone (c), communication alone (m), both (b), where
 * "both" starts, computes, then waits. The computation lasts longer than the communication,
 * so (c + m - b) / m is the part hidden. Where nothing moves a started work while its rank
 * computes that is near 0; where a thread does, it competes for the cores with the
 * computation. So it is measured rather than known.
 */
#include "profile-comm.h"

#include "common/stats.h"

#include <math.h>

enum { TRIPLES = 11 };

struct work {
    struct bench *b;
    const struct row *row;
    int64_t rounds; /* of computation */
    float x[1024];
};

/* Stays in the first-level cache: it takes time and no memory bandwidth. On a GPU, matrix products. */
static int compute(void *arg, struct err *err) {
    struct work *w = arg;
    if (w->b->gpu)
        return bench_gpu_products(w->b, w->rounds, err) < 0
                   ? -1
                   : bench_gpu_join_products(w->b, err);
    for (int64_t k = 0; k < w->rounds; k++)
        for (int i = 0; i < 1024; i++)
            w->x[i] = w->x[i] * 0.999f + 0.001f;
    return 0;
}

/* The same on a GPU, where the products are on a stream of their own. */
static int transfer_on_gpu(struct work *w, bool hide, struct err *err) {
    struct comm_work work = {0};
    if ((w->b->group && bench_gpu_work(w->b, w->row, &work, err) < 0) ||
        (hide && bench_gpu_products(w->b, w->rounds, err) < 0) ||
        (w->b->group && bench_gpu_join(w->b, &work, err) < 0))
        return -1;
    return hide ? bench_gpu_join_products(w->b, err) : 0;
}

/* Communicates with compute() between the start and the wait if `hide`. */
static int transfer(struct work *w, bool hide, struct err *err) {
    struct comm_work work = {0};
    if (w->b->gpu)
        return transfer_on_gpu(w, hide, err);
    if (w->b->group && bench_start(w->b, w->row, &work, err) < 0)
        return -1;
    if (hide)
        compute(w, err);
    return comm_wait(&work, err);
}

static int communicate(void *arg, struct err *err) {
    return transfer(arg, false, err);
}

static int both(void *arg, struct err *err) {
    return transfer(arg, true, err);
}

/* Chooses the rounds so that computing takes twice as long as communicating. */
static int calibrate(struct work *w, bool *stop, struct err *err) {
    double m, c;
    int64_t tried = w->b->gpu ? 4 : 1000;
    w->rounds = tried;
    if (bench_time(w->b, communicate, w, 1, &m, stop, err) < 0 ||
        bench_time(w->b, communicate, w, 3, &m, stop, err) < 0 ||
        bench_time(w->b, compute, w, 3, &c, stop, err) < 0)
        return -1;
    w->rounds = (int64_t)fmin(1e9, 1 + (double)tried * 2 * m / fmax(c, 1e-9));
    return 0;
}

int bench_overlap(struct bench *b, const struct row *row, double *fraction,
                  struct err *err) {
    struct work w = {.b = b, .row = row};
    double hidden[TRIPLES], c, m, t;
    bool stop = false;
    if (calibrate(&w, &stop, err) < 0)
        return -1;
    for (int i = 0; i < TRIPLES && !stop; i++) {
        if (bench_time(b, compute, &w, 1, &c, &stop, err) < 0 ||
            bench_time(b, communicate, &w, 1, &m, &stop, err) < 0 ||
            bench_time(b, both, &w, 1, &t, &stop, err) < 0)
            return -1;
        hidden[i] = (c + m - t) / fmax(m, 1e-9);
    }
    *fraction = stop ? -1 : fmin(1, fmax(0, stats_quantile(hidden, TRIPLES, 0.25)));
    return 0;
}
