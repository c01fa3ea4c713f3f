/* layout_mix.c - the jobs of a batch: one mixture and some swings. */
#include "solve/layout/layout_mix.h"

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
    m->deadline_s = deadline_s;
}

/* Combines m->mixed with the ends from..from+n-1 and keeps the best combination in
 * m->mixed. Returns whether the search for it was complete. */
static bool mix_some(struct layout_mix *m, int from, int n, bool *found) {
    const int *x[LAYOUT_MIX_SWINGS + 1] = {m->mixed};
    for (int s = 0; s < n; s++)
        x[s + 1] = m->end[from + s];
    struct layout_kernel k;
    layout_kernel_mix(&k, m->w, x, n + 1);
    k.upper = m->value;
    k.ease = EASE;
    k.deadline_s = m->deadline_s;
    layout_kernel_run(&k);
    for (int i = 0; k.found && i < m->w->c->n_vars; i++)
        m->mixed[i] = k.y[i];
    m->value = k.found ? k.value : m->value;
    *found = k.found;
    bool done = k.done || !k.live;
    layout_kernel_release(&k);
    return done;
}

/* Combines all ends, as many at once as the search can handle. */
static void run_mixture(struct layout_mix *m) {
    if (m->n_ends == 0)
        return;
    size_t n = (size_t)m->w->c->n_vars;
    m->mixed = mem_array(n + 1, sizeof *m->mixed);
    memcpy(m->mixed, m->w->x, n * sizeof *m->mixed);
    m->value = m->w->value;
    m->width = m->width ? m->width : 1;
    for (int at = 0; at < m->n_ends && !layout_time_up(m->deadline_s);) {
        int some = m->n_ends - at < m->width ? m->n_ends - at : m->width;
        bool found, done = mix_some(m, at, some, &found);
        m->width = done    ? m->width + (m->width < LAYOUT_MIX_SWINGS)
                   : found ? m->width - (m->width > 1)
                           : (some + 1) / 2;
        if (done || found || some == 1)
            at += some;
    }
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
}

void layout_mix_release(struct layout_mix *m) {
    layout_mix_end(m);
    for (int s = 0; s < m->n_ends; s++)
        free(m->end[s]);
    for (int s = 0; s < m->n_added; s++)
        free(m->added[s]);
    *m = (struct layout_mix){0};
}
