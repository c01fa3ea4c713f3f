/* Pipelines with one stage on each group: see bound_chain.h.
 *
 * T is worked out from the back for all i that matter: what is behind can be done on u devices, and what is
 * in front on the others, within a time that is raised until there is a pipeline. For i and d the
 * best j lies where both terms cross: work grows with j, but for messages, and T(j, ...) falls with it, so
 * it is looked for from there on, to both sides, as long as either term without messages allows. */
#include "search/bound_chain.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_BEHIND = 8 /* stages that are told apart */ };
static const double MOST_WORK = 6e6; /* stages looked at, all limits together */

/* T by i, for those between `first` and `end`; `least` is that of it and all i before. */
struct row {
    int first, end;
    double *us, *least;
};

struct chain {
    struct cuts *c;
    const struct relaxed *r;
    int devices, n_ops;
    double limit_us;
    int behind;           /* numbers of stages that are told apart */
    struct sums *work;    /* [size][flight][byte price] */
    struct sums *forward; /* [size] */
    struct sums *illegal; /* [size] ops that cannot be done */
    struct sums alone;    /* microseconds times devices, where that is least */
    struct row *rows;     /* [behind + 1][devices + 1] */
    double looked;        /* stages, and first ops of them */
};

/* ---- sums -------------------------------------------------------------------------------- */

static const struct sums *work_at(const struct chain *h, int size, int flight) {
    const struct relaxed *r = h->r;
    return &h->work[(size * r->n_flights + flight) * r->n_prices];
}

static void find_sums(struct chain *h) {
    const struct relaxed *r = h->r;
    size_t n = (size_t)r->n_ops;
    double *us = mem_array(n, sizeof *us), *no = mem_array(n, sizeof *no);
    h->work = mem_array((size_t)(r->n_sizes * r->n_flights * r->n_prices), sizeof *h->work);
    h->forward = mem_array((size_t)r->n_sizes, sizeof *h->forward);
    h->illegal = mem_array((size_t)r->n_sizes, sizeof *h->illegal);
    for (int d = 0; d < r->n_sizes; d++) {
        for (size_t i = 0; i < n; i++)
            no[i] = !isfinite(costs_at(r, d, 0, 0)[i]);
        h->illegal[d] = sums_make(h->r, no);
        for (size_t i = 0; i < n; i++)
            us[i] = no[i] > 0 ? 0 : r->forward[(size_t)d * n + i];
        h->forward[d] = sums_make(h->r, us);
        for (int f = 0; f < r->n_flights; f++)
            for (int k = 0; k < r->n_prices; k++) {
                for (size_t i = 0; i < n; i++)
                    us[i] = no[i] > 0 ? 0 : costs_at(r, d, f, k)[i];
                ((struct sums *)work_at(h, d, f))[k] = sums_make(h->r, us);
            }
    }
    for (size_t i = 0; i < n; i++) {
        us[i] = INFINITY;
        for (int d = 0; d < r->n_sizes; d++)
            us[i] = fmin(us[i], r->sizes[d] * costs_at(r, d, 0, 0)[i]);
    }
    h->alone = sums_make(h->r, us);
    free(us);
    free(no);
}

/* ---- a stage ------------------------------------------------------------------------------ */

/* What stands on the path and between, going forward; 0 where nothing does. */
static double path_us(struct chain *h, int first, int end, int d, int rank) {
    int from = h->c->next_on[first], to = h->c->last_on[end];
    if (from > to)
        return 0;
    return sums_between(h->r, &h->forward[h->r->size_of[d]], from, to + 1) +
           (first ? cuts_path_us(h->c, first, d, rank) : 0);
}

/* From when its path is there: what it may have done of its first micro-batch before is not counted. */
static double work_us(struct chain *h, int first, int end, int d, int flight, int rank) {
    const struct relaxed *r = h->r;
    const struct sums *w = work_at(h, r->size_of[d], flight);
    double most = 0, memory = r->classes->of[0].memory;
    int from = h->c->next_on[first] < end ? h->c->next_on[first] : end;
    for (int k = 0; k < r->n_prices; k++)
        most = fmax(most, sums_between(h->r, &w[k], first, end) -
                              sums_between(h->r, &w[k], first, from) / r->m -
                              r->byte_price[k] * memory);
    if (first)
        most += (r->m - 1) * cuts_take_us(h->c, first, end, d, rank) +
                (from < end ? cuts_path_us(h->c, first, d, rank) : 0);
    return end < h->n_ops ? most + r->m * cuts_back_us(h->c, first, end, d, rank) : most;
}

/* ---- all stages --------------------------------------------------------------------------- */

static struct row *row_at(const struct chain *h, int behind, int devices) {
    return &h->rows[behind * (h->devices + 1) + devices];
}

/* The ops i so that what is in front and behind may be done in time. */
static void find_window(const struct chain *h, int devices, int *first, int *end) {
    double all = sums_before(h->r, &h->alone, h->n_ops);
    int lo = 0, hi = h->n_ops;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        bool fits =
            all - sums_before(h->r, &h->alone, mid) <= devices * h->limit_us * (1 + 1e-9);
        *(fits ? &hi : &lo) = fits ? mid : mid + 1;
    }
    *first = lo;
    hi = h->n_ops;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        bool fits = sums_before(h->r, &h->alone, mid) <=
                    (h->devices - devices) * h->limit_us * (1 + 1e-9);
        *(fits ? &lo : &hi) = fits ? mid + 1 : mid;
    }
    *end = devices < h->devices ? lo : 1;
}

/* A stage in front of those that a row has, and the best so far of its first op. */
struct step {
    struct chain *h;
    const struct row *behind;
    int d, size, flight, rank; /* devices, and as which size they count */
};

static void try_end(struct step *t, int first, int end, double *best) {
    struct chain *h = t->h;
    double rest = t->behind->us[end - t->behind->first];
    h->looked++;
    if (rest >= *best)
        return;
    if (end < h->n_ops)
        rest += path_us(h, first, end, t->d, t->rank);
    if (rest < *best)
        *best = fmin(*best, fmax(rest, work_us(h, first, end, t->d, t->flight, t->rank)));
}

/* Without messages and the price of bytes. */
static double bare_us(const struct step *t, int first, int end) {
    const struct chain *h = t->h;
    const struct sums *w = work_at(h, t->size, t->flight);
    int from = h->c->next_on[first] < end ? h->c->next_on[first] : end;
    return sums_between(h->r, w, first, end) - sums_between(h->r, w, first, from) / h->r->m;
}

/* From `best` on down. */
static double best_end(struct step *t, int first, double best) {
    const struct row *b = t->behind;
    const struct chain *h = t->h;
    int lo = first + 1 > b->first ? first + 1 : b->first, end = b->end, hi = end, from = lo;
    if (lo >= end || sums_between(h->r, &h->illegal[t->size], first, lo) > 0.5)
        return best;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        bool crossed = bare_us(t, first, mid) >= b->least[mid - b->first];
        *(crossed ? &hi : &lo) = crossed ? mid : mid + 1;
    }
    for (int j = lo; j < end && bare_us(t, first, j) < best &&
                     sums_between(h->r, &h->illegal[t->size], first, j) < 0.5;
         j++)
        try_end(t, first, j, &best);
    for (int j = lo - 1; j >= from && b->least[j - b->first] < best; j--)
        if (sums_between(h->r, &h->illegal[t->size], first, j) < 0.5)
            try_end(t, first, j, &best);
    return best;
}

static void fill_row(struct chain *h, int behind, int devices) {
    struct row *row = row_at(h, behind, devices);
    const struct relaxed *r = h->r;
    find_window(h, devices, &row->first, &row->end);
    int n = row->end > row->first ? row->end - row->first : 0;
    row->us = mem_array(2 * (size_t)n + 1, sizeof *row->us);
    row->least = row->us + n;
    for (int i = 0; i < n; i++)
        row->us[i] = h->limit_us * (1 + 1e-9);
    for (int d = 1; d <= devices; d++)
        for (int b = behind > 0 ? behind - 1 : 0; b <= behind; b++) {
            bool last = b == behind && behind < h->behind;
            if (last || h->looked > MOST_WORK)
                continue;
            struct step t = {h,
                             row_at(h, b, devices - d),
                             d,
                             r->size_of[d],
                             flight_at(r, b),
                             h->devices - devices};
            for (int i = 0; i < n && t.behind->us; i++)
                row->us[i] = best_end(&t, row->first + i, row->us[i]);
            h->looked += t.behind->us ? n : 0;
        }
    for (int i = 0; i < n; i++) {
        row->us[i] = row->us[i] > h->limit_us ? INFINITY : row->us[i];
        row->least[i] = i ? fmin(row->us[i], row->least[i - 1]) : row->us[i];
    }
}

/* The least time within this limit; INFINITY where it takes longer, 0 where that is not known. */
static double within_us(struct chain *h, double limit_us) {
    double best = INFINITY;
    h->limit_us = limit_us;
    h->rows = mem_array((size_t)((h->behind + 1) * (h->devices + 1)), sizeof *h->rows);
    *row_at(h, 0, 0) =
        (struct row){h->n_ops, h->n_ops + 1, mem_array(2, sizeof(double)), NULL};
    row_at(h, 0, 0)->least = row_at(h, 0, 0)->us;
    for (int u = 1; u <= h->devices && h->looked <= MOST_WORK; u++)
        for (int b = 1; b <= h->behind && b <= u; b++)
            fill_row(h, b, u);
    for (int b = 1; b <= h->behind; b++) {
        const struct row *row = row_at(h, b, h->devices);
        if (row->us && row->first == 0 && row->end > 0)
            best = fmin(best, row->us[0]);
    }
    for (int i = 0; i < (h->behind + 1) * (h->devices + 1); i++)
        free(h->rows[i].us);
    free(h->rows);
    return h->looked > MOST_WORK || search_out_of_time(h->r->s) ? 0 : best;
}

static void sums_free(struct sums *s, int n) {
    for (int i = 0; i < n; i++)
        sums_release(&s[i]);
    free(s);
}

/* Raises the limit until there is a pipeline. */
static double raise(struct chain *h, double us, double enough_us) {
    static const double steps[] = {1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5, 1.75,
                                   2,    2.5,  3,   4,    6,   10,  20,  100};
    double low = us;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && us < enough_us; i++) {
        double limit = fmin(low * steps[i], enough_us), best = within_us(h, limit);
        us = best <= 0 ? us : fmax(us, fmin(best, limit));
        if (best < INFINITY)
            break;
    }
    return us;
}

double chain_raise(struct cuts *c, int devices, double us, double enough_us) {
    const struct relaxed *r = c->r;
    struct chain h = {.c = c, .r = r, .devices = devices, .n_ops = c->n_ops};
    if (us <= 0)
        return us;
    find_sums(&h);
    /* Mostly it does not matter how many stages follow. */
    h.behind = 1;
    us = raise(&h, us, enough_us);
    h.behind = MOST_BEHIND;
    if (r->n_flights > 1 && us < enough_us)
        us = raise(&h, us, enough_us);
    sums_free(h.work, r->n_sizes * r->n_flights * r->n_prices);
    sums_free(h.forward, r->n_sizes);
    sums_free(h.illegal, r->n_sizes);
    sums_release(&h.alone);
    return us;
}
