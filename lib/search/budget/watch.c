#include "search/budget/watch.h"

#include "common/text.h"

#include <math.h>
#include <stdio.h>

static const double EVERY_S = 0.1;

void watch_begin(struct watch *w) {
    *w = (struct watch){.lock = PTHREAD_MUTEX_INITIALIZER};
    progress_start(&w->line, "search", 0);
    w->next_us = (long long)(EVERY_S * 1e6);
}

void watch_end(struct watch *w) {
    progress_end(&w->line);
    pthread_mutex_destroy(&w->lock);
}

void watch_plan(struct watch *w, const char *member, double time_us) {
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    if (w->best_us <= 0 || time_us < w->best_us) {
        w->best_us = time_us;
        w->member = member;
    }
    pthread_mutex_unlock(&w->lock);
}

void watch_bound(struct watch *w, double us) {
    if (!w || !isfinite(us))
        return;
    pthread_mutex_lock(&w->lock);
    w->bound_us = fmax(w->bound_us, us);
    pthread_mutex_unlock(&w->lock);
}

/* Prints "1.3 s" and what is known so far. */
static void print(struct watch *w, double elapsed_s) {
    char text[160];
    size_t n = (size_t)snprintf(text, sizeof text, "%.1f s", elapsed_s);
    if (w->best_us > 0)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s: best %s",
                              w->member ? ", " : "", w->member ? w->member : "",
                              text_time(w->best_us).s);
    if (w->bound_us > 0)
        n += (size_t)snprintf(text + n, sizeof text - n, ", bound %s",
                              text_time(w->bound_us).s);
    if (w->best_us > 0 && w->bound_us > 0)
        snprintf(text + n, sizeof text - n, ", gap %.2f %%",
                 100 * (w->best_us - w->bound_us) / w->best_us);
    progress_show(&w->line, text);
}

void watch_poll(struct watch *w) {
    if (!w)
        return;
    double elapsed_s = now_s() - w->line.start_s;
    if (elapsed_s * 1e6 < (double)atomic_load(&w->next_us) ||
        pthread_mutex_trylock(&w->lock))
        return;
    atomic_store(&w->next_us, (long long)((elapsed_s + EVERY_S) * 1e6));
    print(w, elapsed_s);
    pthread_mutex_unlock(&w->lock);
}
