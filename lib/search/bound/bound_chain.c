/* Pipelines with one stage on each group (see bound_chain.h).
 *
 * T is computed from the back, within a time limit, for all i that matter: those for
 * which the ops behind can be done on u devices and the ops in front on the others.
 * For given i and d the best j is where both terms of the maximum cross, because,
 * messages apart, the work grows with j and T(j, ...) falls. The search starts there
 * and goes to each side as long as the term that grows there, without messages, is below
 * the best. The d that was best for the previous op is tried first, so that most others
 * are excluded quickly.
 *
 * At first every stage is charged the memory of the last one, which holds one
 * micro-batch. Only where the dual of bytes could say more about stages in front is T
 * computed again for each number of stages that follow, for those i and u that are still
 * open. A T that equals its first value needs no further work. */
#include "search/bound/bound_chain.h"

#include <math.h>
#include <stdlib.h>

/* The most following stages that are distinguished: a stage in front of more is charged
 * the memory of one with this many behind it. */
enum { MOST_BEHIND = 8 };
/* Limits the work of one bound, counted in stages looked at, to about a tenth of a second.
 * Excluding a stage at once counts as GLANCE of one. */
static const double MOST_WORK = 6e6, GLANCE = 1. / 16;

/* T(i, .) for the ops i from `first` to `end`; `least` is the minimum of T(i) and all
 * T before it. */
struct row {
    int first, end;
    double *us, *least;
    /* devices of the first stage, and the op behind its last; 0: nothing is possible in
     * time */
    int *devices, *last;
};

struct chain {
    struct cuts *c;
    const struct relaxed *r;
    int n_ops;
    /* Prefix sums over the ops of the model; ops that cannot be done on that many
     * devices count 0. */
    double *work;    /* [size][n_ops + 1] with bytes free of charge */
    double *forward; /* [size][n_ops + 1] */
    /* [n_ops + 1] device-microseconds on the number of devices where that is least */
    double *alone;
    /* [size][n_ops + 1] the first op at or behind this one that cannot be done */
    int *legal;
    struct sums *with_bytes; /* [size][flight][byte dual] work with bytes at a dual */
    bool *binds; /* [size][flight] some dual of bytes may raise the time of a stage */
    /* Some dual of bytes may say more about stages in front than about the last one. */
    bool tells;
    int devices;        /* of the pipelines at hand */
    double limit_us;    /* for the pipelines at hand */
    struct row *rows;   /* [devices + 1] T with any number of stages that follow */
    struct row *behind; /* [MOST_BEHIND + 1][devices + 1] */
    double looked, most_work;
};

/* ---- sums -------------------------------------------------------------------------------- */

static struct sums *with_bytes_at(const struct chain *h, int size, int flight) {
    return &h->with_bytes[(size * h->r->n_flights + flight) * h->r->n_duals];
}

static const double *by_size(const struct chain *h, const double *all, int size) {
    return all + (size_t)size * (size_t)(h->n_ops + 1);
}

/* Copies costs, with 0 for ops that cannot be done; returns scratch. */
static const double *only_legal(const struct relaxed *r, int size, const double *of_op,
                                double *scratch) {
    const double *us = costs_at(r, size, 0, 0);
    for (int i = 0; i < r->n_ops; i++)
        scratch[i] = isfinite(us[i]) ? of_op[i] : 0;
    return scratch;
}

static void find_legal(struct chain *h, int size) {
    const double *us = costs_at(h->r, size, 0, 0);
    int *legal = h->legal + (size_t)size * (size_t)(h->n_ops + 1), end = h->n_ops;
    for (int i = h->n_ops; i >= 0; i--) {
        end = i < h->n_ops && !isfinite(us[h->r->ev->space->blocks.x.of[i]]) ? i : end;
        legal[i] = end;
    }
}

/* Sums the work at each dual of bytes, and notes whether a dual could raise the time
 * of any stage. */
static void find_with_bytes(struct chain *h, int size, double *scratch) {
    const struct relaxed *r = h->r;
    double bare = by_size(h, h->work, size)[h->n_ops];
    for (int f = 0; f < r->n_flights; f++)
        for (int k = 1; k < r->n_duals; k++) {
            struct sums *s = &with_bytes_at(h, size, f)[k];
            *s = sums_make(r, only_legal(r, size, costs_at(r, size, f, k), scratch));
            bool binds =
                s->until[r->n_ops] - bare > r->byte_dual[k] * r->classes->of[0].memory;
            h->binds[size * r->n_flights + f] |= binds;
            h->tells |= binds && f > 0;
        }
}

static void find_alone(struct chain *h, double *us) {
    const struct relaxed *r = h->r;
    for (int i = 0; i < r->n_ops; i++) {
        us[i] = INFINITY;
        for (int d = 0; d < r->n_sizes; d++)
            us[i] = fmin(us[i], r->sizes[d] * costs_at(r, d, 0, 0)[i]);
    }
    sums_write_out(r, us, h->alone);
}

/* Prefix sums of every kind of work on every number of devices. */
struct chain *chain_make(struct cuts *c) {
    const struct relaxed *r = c->r;
    struct chain *h = mem_alloc(sizeof *h);
    size_t n = (size_t)c->n_ops + 1, sizes = (size_t)r->n_sizes;
    double *scratch = mem_array((size_t)r->n_ops, sizeof *scratch);
    *h = (struct chain){.c = c, .r = r, .n_ops = c->n_ops};
    h->work = mem_array((2 * sizes + 1) * n, sizeof *h->work);
    h->forward = h->work + sizes * n;
    h->alone = h->forward + sizes * n;
    h->legal = mem_array(sizes * n, sizeof *h->legal);
    h->with_bytes =
        mem_array(sizes * (size_t)(r->n_flights * r->n_duals), sizeof *h->with_bytes);
    h->binds = mem_array(sizes * (size_t)r->n_flights, sizeof *h->binds);
    for (int d = 0; d < r->n_sizes; d++) {
        const double *forward = r->forward + (size_t)d * (size_t)r->n_ops;
        sums_write_out(r, only_legal(r, d, costs_at(r, d, 0, 0), scratch),
                       h->work + (size_t)d * n);
        sums_write_out(r, only_legal(r, d, forward, scratch), h->forward + (size_t)d * n);
        find_legal(h, d);
        find_with_bytes(h, d, scratch);
    }
    find_alone(h, scratch);
    free(scratch);
    return h;
}

void chain_free(struct chain *h) {
    const struct relaxed *r = h->r;
    for (int i = 0; i < r->n_sizes * r->n_flights * r->n_duals; i++)
        sums_release(&h->with_bytes[i]);
    free(h->with_bytes);
    free(h->work);
    free(h->legal);
    free(h->binds);
    free(h);
}

/* ---- a stage ------------------------------------------------------------------------------ */

/* A stage of d devices in front of those that a row is about. */
struct step {
    const struct row *behind;
    /* devices, indices of the size that they count as and of the flights, first rank */
    int d, size, flight, rank;
    const double *work;
};

static struct step step_make(const struct chain *h, const struct row *behind, int d,
                             int flight, int rank) {
    int size = h->r->size_of[d];
    return (struct step){behind, d, size, flight, rank, by_size(h, h->work, size)};
}

/* The forward time of the path in this range, with the message in front; 0 if none of its
 * ops are there. */
static double path_us(const struct chain *h, const struct step *t, int first, int end) {
    int from = h->c->next_on[first], to = h->c->last_on[end];
    const double *forward = by_size(h, h->forward, t->size);
    if (from > to)
        return 0;
    return forward[to + 1] - forward[from] +
           (first ? cuts_path_us(h->c, first, t->d, t->rank) : 0);
}

/* The work of the stage from when its path arrives, without messages and the dual of
 * bytes. What it may have done on its first micro-batch before that is left out. */
static inline double bare_us(const struct chain *h, const struct step *t, int first,
                             int end) {
    int on = h->c->next_on[first], from = on < end ? on : end;
    const double *w = t->work;
    return w[end] - w[first] - (w[from] - w[first]) / h->r->m;
}

static double messages_us(const struct chain *h, const struct step *t, int first, int end) {
    struct cuts *c = h->c;
    double us = end < h->n_ops ? h->r->m * cuts_back_us(c, first, end, t->d, t->rank) : 0;
    if (first)
        us += (h->r->m - 1) * cuts_take_us(c, first, end, t->d, t->rank) +
              (c->next_on[first] < end ? cuts_path_us(c, first, t->d, t->rank) : 0);
    return us;
}

static double work_us(const struct chain *h, const struct step *t, int first, int end,
                      double enough_us) {
    const struct relaxed *r = h->r;
    double most = bare_us(h, t, first, end), memory = r->classes->of[0].memory;
    double messages = messages_us(h, t, first, end);
    if (!h->binds[t->size * r->n_flights + t->flight] || most + messages >= enough_us)
        return most + messages;
    int on = h->c->next_on[first], from = on < end ? on : end;
    const struct sums *w = with_bytes_at(h, t->size, t->flight);
    for (int k = 1; k < r->n_duals; k++)
        most = fmax(most, sums_between(r, &w[k], first, end) -
                              sums_between(r, &w[k], first, from) / r->m -
                              r->byte_dual[k] * memory);
    return most + messages;
}

/* Tries a first stage of ops first .. end-1 with the best of what follows it. */
static void try_end(struct chain *h, const struct step *t, int first, int end, double *best,
                    int *last) {
    double rest = t->behind->us[end - t->behind->first];
    h->looked++;
    if (rest >= *best)
        return;
    if (end < h->n_ops)
        rest += path_us(h, t, first, end);
    double us = rest < *best ? fmax(rest, work_us(h, t, first, end, *best)) : rest;
    if (us >= *best)
        return;
    *best = us;
    *last = end;
}

/* Returns the least time below `best`, with the end of its stage in *last; `best` if there
 * is none. */
static double best_end(struct chain *h, const struct step *t, int first, double best,
                       int *last) {
    const struct row *b = t->behind;
    int legal = h->legal[(size_t)t->size * (size_t)(h->n_ops + 1) + (size_t)first];
    int from = first + 1 > b->first ? first + 1 : b->first;
    int end = legal + 1 < b->end ? legal + 1 : b->end, lo = from, hi = end;
    if (lo >= end || b->least[end - 1 - b->first] >= best ||
        bare_us(h, t, first, lo) >= best)
        return best;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        bool crossed = bare_us(h, t, first, mid) >= b->least[mid - b->first];
        *(crossed ? &hi : &lo) = crossed ? mid : mid + 1;
    }
    h->looked++;
    for (int j = lo; j < end && bare_us(h, t, first, j) < best; j++)
        try_end(h, t, first, j, &best, last);
    for (int j = lo - 1; j >= from && b->least[j - b->first] < best; j--)
        try_end(h, t, first, j, &best, last);
    return best;
}

/* ---- all stages --------------------------------------------------------------------------- */

static bool gives_up(const struct chain *h) {
    return h->looked > h->most_work;
}

/* Finds the ops i for which the ops in front and those behind may both be done in time. */
static void find_window(const struct chain *h, int devices, int *first, int *end) {
    double all = h->alone[h->n_ops];
    int lo = 0, hi = h->n_ops;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        bool fits = all - h->alone[mid] <= devices * h->limit_us * (1 + 1e-9);
        *(fits ? &hi : &lo) = fits ? mid : mid + 1;
    }
    *first = lo;
    hi = h->n_ops;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        bool fits = h->alone[mid] <= (h->devices - devices) * h->limit_us * (1 + 1e-9);
        *(fits ? &lo : &hi) = fits ? mid + 1 : mid;
    }
    *end = devices < h->devices ? lo : 1;
}

/* Prepares T on this number of devices, with nothing known. */
static void row_init(const struct chain *h, struct row *row, int devices) {
    find_window(h, devices, &row->first, &row->end);
    int n = row->end > row->first ? row->end - row->first : 0;
    row->us = mem_array((size_t)n + 1, 2 * sizeof *row->us + 2 * sizeof *row->devices);
    row->least = row->us + n + 1;
    row->devices = (int *)(row->least + n + 1);
    row->last = row->devices + n + 1;
    for (int i = 0; i < n; i++)
        row->us[i] = h->limit_us * (1 + 1e-9);
}

static void row_finish(const struct chain *h, struct row *row) {
    for (int i = 0; i < row->end - row->first; i++) {
        row->us[i] = row->us[i] > h->limit_us ? INFINITY : row->us[i];
        row->least[i] = i ? fmin(row->us[i], row->least[i - 1]) : row->us[i];
    }
}

/* The row of no devices: there is nothing to do behind the last op. */
static struct row row_of_none(const struct chain *h) {
    double *us = mem_array(2, sizeof *us);
    return (struct row){.first = h->n_ops, .end = h->n_ops + 1, .us = us, .least = us};
}

/* The least time of all pipelines on this many devices, counted from the last rank. */
static double row_total(const struct row *row) {
    return row->us && row->first == 0 && row->end > 0 ? row->us[0] : INFINITY;
}

static void rows_free(struct row **rows, int n) {
    for (int i = 0; *rows && i < n; i++)
        free((*rows)[i].us);
    free(*rows);
    *rows = NULL;
}

/* Tries first stages on the devices of the step for op i of the row. */
static void try_devices(struct chain *h, struct row *row, int i, const struct step *t) {
    double best = best_end(h, t, row->first + i, row->us[i], &row->last[i]);
    row->devices[i] = best < row->us[i] ? t->d : row->devices[i];
    row->us[i] = best;
}

/* Computes T on this number of devices, for all ops of the row. */
static void fill_row(struct chain *h, int devices) {
    struct row *row = &h->rows[devices];
    struct step *steps = mem_array((size_t)devices + 1, sizeof *steps);
    int last = 0; /* the number of devices that was best for the previous op */
    row_init(h, row, devices);
    for (int d = 1; d <= devices; d++)
        steps[d] = step_make(h, &h->rows[devices - d], d, 0, h->devices - devices);
    for (int i = 0; i < row->end - row->first && !gives_up(h); i++) {
        if (last)
            try_devices(h, row, i, &steps[last]);
        for (int d = 1; d <= devices; d++)
            if (d != last)
                try_devices(h, row, i, &steps[d]);
        h->looked += devices * GLANCE;
        last = row->devices[i] ? row->devices[i] : last;
    }
    row_finish(h, row);
    free(steps);
}

/* Computes T where every stage is charged as if it were the last one. */
static double fill_rows(struct chain *h) {
    h->rows = mem_array((size_t)h->devices + 1, sizeof *h->rows);
    h->rows[0] = row_of_none(h);
    for (int u = 1; u <= h->devices && !gives_up(h); u++)
        fill_row(h, u);
    return gives_up(h) ? 0 : row_total(&h->rows[h->devices]);
}

/* Finds the best pipeline from op `first` of a row on and charges each of its stages for
 * its true number of flights. Returns its time, and its number of stages in *n. */
static double told_us(const struct chain *h, int devices, int first, int *n) {
    const struct row *row = &h->rows[devices];
    int d = devices ? row->devices[first - row->first] : 0;
    *n = 0;
    if (!d)
        return row->us[0];
    int end = row->last[first - row->first];
    double rest = told_us(h, devices - d, end, n);
    struct step t = step_make(h, row, d, flight_at(h->r, *n), h->devices - devices);
    ++*n;
    rest += end < h->n_ops ? path_us(h, &t, first, end) : 0;
    return fmax(rest, work_us(h, &t, first, end, INFINITY));
}

static struct row *behind_at(const struct chain *h, int behind, int devices) {
    return &h->behind[behind * (h->devices + 1) + devices];
}

/* Tries first stages of pipelines of `behind` stages or, if that is the largest number, of
 * at least as many. */
static void try_behind(struct chain *h, struct row *row, int behind, int devices, int i,
                       int d) {
    int least = behind - 1, most = behind == MOST_BEHIND ? behind : behind - 1;
    for (int b = least; b <= most; b++) {
        const struct row *rest = behind_at(h, b, devices - d);
        struct step t = step_make(h, rest, d, flight_at(h->r, b), h->devices - devices);
        if (rest->us)
            try_devices(h, row, i, &t);
    }
}

static void fill_behind(struct chain *h, int behind, int devices) {
    struct row *row = behind_at(h, behind, devices);
    const struct row *known = &h->rows[devices];
    row_init(h, row, devices);
    for (int i = 0; i < row->end - row->first && !gives_up(h); i++) {
        if (!isfinite(known->us[i]))
            continue;
        try_behind(h, row, behind, devices, i, known->devices[i]);
        for (int d = 1; d <= devices && row->us[i] > known->us[i]; d++)
            try_behind(h, row, behind, devices, i, d);
        h->looked += devices * GLANCE;
    }
    row_finish(h, row);
}

/* Computes T for each number of stages, for all i that are still open. */
static double fill_all_behind(struct chain *h) {
    double best = INFINITY;
    h->behind =
        mem_array((size_t)((MOST_BEHIND + 1) * (h->devices + 1)), sizeof *h->behind);
    *behind_at(h, 0, 0) = row_of_none(h);
    for (int u = 1; u <= h->devices; u++)
        for (int b = 1; b <= MOST_BEHIND && b <= u && !gives_up(h); b++)
            fill_behind(h, b, u);
    for (int b = 1; b <= MOST_BEHIND; b++)
        best = fmin(best, row_total(behind_at(h, b, h->devices)));
    rows_free(&h->behind, (MOST_BEHIND + 1) * (h->devices + 1));
    return gives_up(h) ? 0 : best;
}

/* Returns the least time within this limit; INFINITY if every pipeline takes longer, 0
 * if that is not known. */
static double within_us(struct chain *h, double limit_us) {
    h->limit_us = limit_us;
    double best = fill_rows(h);
    int n;
    if (h->tells && best > 0 && isfinite(best) && told_us(h, h->devices, 0, &n) > best) {
        double looked = h->looked;
        h->most_work += MOST_WORK;
        best = fmax(best, fill_all_behind(h));
        h->most_work -= MOST_WORK;
        h->looked = looked;
    }
    rows_free(&h->rows, h->devices + 1);
    return budget_out_of_time(h->r->ev->budget) ? 0 : best;
}

/* Raises the limit until there is a pipeline within it. */
static double raise(struct chain *h, double us, double enough_us) {
    static const double steps[] = {1.05, 1.15, 1.3, 1.5, 2, 3, 4, 6, 10, 20, 100};
    double low = us;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && us < enough_us; i++) {
        double limit = fmin(low * steps[i], enough_us), best = within_us(h, limit);
        us = best > 0 ? fmax(us, fmin(best, limit)) : us;
        if (best < INFINITY)
            break;
    }
    return us;
}

double chain_raise(struct chain *h, int devices, double us, double enough_us) {
    /* If enough_us is at most this factor away, it is the first limit. */
    static const double NEAR = 1.5;
    if (us <= 0)
        return us;
    h->devices = devices;
    h->looked = 0;
    h->most_work = MOST_WORK;
    if (enough_us <= NEAR * us) {
        double best = within_us(h, enough_us);
        if (best > 0)
            return fmax(us, fmin(best, enough_us));
        h->looked = 0;
    }
    return raise(h, us, enough_us);
}
