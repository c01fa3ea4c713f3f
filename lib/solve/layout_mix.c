/* layout_mix.c - the jobs of a batch: one mixture and some swings. */
#include "solve/layout_mix.h"

#include <stdlib.h>
#include <string.h>

#define EASE 4 /* the mixture takes about as long as a swing or two */

void layout_mix_begin(struct layout_mix *m, const struct layout_whole *w, uint64_t seed,
                      int swings, double deadline_s) {
    m->w = w;
    m->given = 0;
    for (int s = 0; s < LAYOUT_MIX_SWINGS; s++) {
        m->start[s] = m->added[s];
        m->added[s] = NULL;
        m->swing[s] = (struct layout_swing){.core = w->c,
                                            .seed = rng_bits(seed, (uint64_t)s, 0),
                                            .swings = s < swings,
                                            .deadline_s = deadline_s,
                                            .from = m->start[s] ? m->start[s] : w->x};
    }
    m->n_added = 0;
    m->kernel = (struct layout_kernel){.deadline_s = deadline_s};
}

/* The best of what the present choice and the ends can be put together to. */
static void run_mixture(struct layout_mix *m) {
    struct layout_kernel *k = &m->kernel;
    if (m->n_ends == 0)
        return;
    double deadline_s = k->deadline_s;
    layout_kernel_mix(k, m->w, m->end, m->n_ends);
    k->deadline_s = deadline_s;
    k->ease = EASE;
    layout_kernel_run(k);
    if (!k->found)
        return;
    int n = m->w->c->n_vars;
    m->mixed = mem_array((size_t)n + 1, sizeof *m->mixed);
    for (int i = 0; i < n; i++)
        m->mixed[i] = k->y[i];
}

void layout_mix_run(struct layout_mix *m, int job) {
    if (job == 0)
        run_mixture(m);
    else if (m->swing[job - 1].swings > 0)
        layout_swing_run(&m->swing[job - 1]);
}

bool layout_mix_add(struct layout_mix *m, int *x) {
    if (m->n_added == LAYOUT_MIX_SWINGS)
        return false;
    m->added[m->n_added++] = x;
    return true;
}

const int *layout_mix_next(struct layout_mix *m) {
    for (; m->given < LAYOUT_MIX_JOBS; m->given++) {
        const int *x = m->given == 0 ? m->mixed : m->swing[m->given - 1].x;
        if (x) {
            m->given++;
            return x;
        }
    }
    return NULL;
}

void layout_mix_end(struct layout_mix *m) {
    for (int s = 0; s < m->n_ends; s++)
        free(m->end[s]);
    m->n_ends = 0;
    for (int s = 0; s < LAYOUT_MIX_SWINGS; s++) {
        if (m->swing[s].end)
            m->end[m->n_ends++] = m->swing[s].end;
        free(m->swing[s].x);
        free(m->start[s]);
        m->swing[s].x = m->swing[s].end = m->start[s] = NULL;
    }
    free(m->mixed);
    m->mixed = NULL;
    layout_kernel_release(&m->kernel);
}

void layout_mix_release(struct layout_mix *m) {
    layout_mix_end(m);
    for (int s = 0; s < m->n_ends; s++)
        free(m->end[s]);
    for (int s = 0; s < m->n_added; s++)
        free(m->added[s]);
    *m = (struct layout_mix){0};
}
