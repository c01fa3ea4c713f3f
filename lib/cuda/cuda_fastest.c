#include "cuda/cuda_fastest.h"

#include "cuda/cuda_check.h"

#include <math.h>

enum { ROUNDS = 4, RUNS = 3 };

/* A slower one must be so by more than this, or the order in which they come stands; one that is
 * slower by so much in one round will not be the fastest in another; and from this time on one
 * run says enough. */
static const double NOISE = 0.01, BEHIND = 1.25, LONG_US = 500;

struct stopwatch {
    cudaEvent_t begin, end;
};

/* Microseconds of one of `runs`; infinite where it fails. What that leaves behind as CUDA's last
 * error is not the instruction's. */
static int time_one(const struct cuda_contest *t, const struct stopwatch *w, int way,
                    int runs, double *us, struct err *err) {
    float ms = 0;
    if (cuda_check(cudaEventRecord(w->begin, t->stream), "timing", err) < 0)
        return -1;
    for (int i = 0; i < runs; i++)
        if (!t->run(t->arg, way)) {
            (void)cudaGetLastError();
            *us = (double)INFINITY;
            return 0;
        }
    if (cuda_check(cudaEventRecord(w->end, t->stream), "timing", err) < 0 ||
        cuda_check(cudaEventSynchronize(w->end), "timing", err) < 0 ||
        cuda_check(cudaEventElapsedTime(&ms, w->begin, w->end), "timing", err) < 0)
        return -1;
    *us = 1e3 * (double)ms / runs;
    return 0;
}

/* The ways that are still in question, and their least times so far. */
struct standing {
    bool out[CUDA_WAYS];
    double least[CUDA_WAYS];
};

static double least_of(const struct standing *s, int n) {
    double least = (double)INFINITY;
    for (int i = 0; i < n; i++)
        least = s->out[i] ? least : fmin(least, s->least[i]);
    return least;
}

/* Runs each so often; who fails is out. */
static int one_round(const struct cuda_contest *t, const struct stopwatch *w, int runs,
                     struct standing *s, struct err *err) {
    for (int i = 0; i < t->n; i++) {
        double us;
        if (s->out[i])
            continue;
        if (time_one(t, w, i, runs, &us, err) < 0)
            return -1;
        s->out[i] = !isfinite(us);
        s->least[i] = fmin(s->least[i], us);
    }
    return 0;
}

static void forget(struct standing *s, int n) {
    for (int i = 0; i < n; i++)
        s->least[i] = (double)INFINITY;
}

static int compete(const struct cuda_contest *t, const struct stopwatch *w, int *best,
                   double *us, struct err *err) {
    struct standing s = {0};
    forget(&s, t->n);
    if (one_round(t, w, 1, &s, err) < 0)
        return -1;
    const int runs = least_of(&s, t->n) > LONG_US ? 1 : RUNS;
    forget(&s, t->n);
    for (int round = 1; round < ROUNDS; round++) {
        if (one_round(t, w, runs, &s, err) < 0)
            return -1;
        const double least = least_of(&s, t->n);
        for (int i = 0; i < t->n; i++)
            s.out[i] |= s.least[i] > BEHIND * least;
    }
    *best = 0;
    for (int i = 1; i < t->n; i++)
        if (s.least[i] < (1 - NOISE) * s.least[*best])
            *best = i;
    *us = s.least[*best];
    return 0;
}

int cuda_fastest(const struct cuda_contest *t, int *best, double *us, struct err *err) {
    struct stopwatch w = {NULL, NULL};
    int rc = cuda_check(cudaEventCreate(&w.begin), "making an event", err);
    if (rc == 0)
        rc = cuda_check(cudaEventCreate(&w.end), "making an event", err);
    if (rc == 0)
        rc = compete(t, &w, best, us, err);
    if (w.begin)
        cudaEventDestroy(w.begin);
    if (w.end)
        cudaEventDestroy(w.end);
    return rc;
}
