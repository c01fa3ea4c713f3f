/* What is computed again. Aceso marks ops; in a run of marked ops all is made again forward, and
 * nothing but the last op's result is kept. So a run of ops a .. b costs the forward time of all of them
 * and saves the activations of a .. b - 1 for every micro-batch in flight; the largest run is
 * held once more while it is made again.
 *
 * For a piece - the ops between two breaks - the sets of repeats that no other beats in time, bytes
 * saved and largest run are listed once, by dynamic programming over its ops. For a stage one set
 * per copy of a piece is chosen under each of some limits on the largest run: along the lower
 * hull of time against bytes saved, which is the linear relaxation, and then, since the last step
 * saves more than was needed, by single exchanges as long as one is cheaper. Aceso itself takes
 * ops by size until it fits. */
#include "search/source/aceso_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A set of repeats of one piece. */
struct option {
    double us, saved, peak;
    uint64_t marks;
};
struct options {
    ARR(struct option) all; /* by time */
};

enum {
    MOST_OPTIONS = 96,   /* of a piece */
    MOST_KEPT = 1 << 14, /* pieces whose options are kept */
    MOST_EXCHANGES = 24,
};

/* ---- the options of a piece ------------------------------------------------------------ */

static int by_time(const void *a, const void *b) {
    const struct option *x = a, *y = b;
    if (x->us != y->us)
        return x->us < y->us ? -1 : 1;
    if (x->saved != y->saved)
        return x->saved > y->saved ? -1 : 1;
    return (x->peak > y->peak) - (x->peak < y->peak);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Leaves those that none beats; where these are many, those that save most for their time, and
 * some of the others. */
static void prune(struct options *o) {
    int64_t n = 0, front = 0;
    double most = -1;
    qsort(o->all.p, (size_t)o->all.n, sizeof *o->all.p, by_time);
    for (int64_t i = 0; i < o->all.n; i++) {
        struct option p = o->all.p[i];
        bool beaten = false;
        for (int64_t k = n - 1; k >= 0 && !beaten; k--)
            beaten = o->all.p[k].saved >= p.saved && o->all.p[k].peak <= p.peak;
        if (!beaten)
            o->all.p[n++] = p;
    }
    o->all.n = n;
    if (n <= MOST_OPTIONS)
        return;
    for (int64_t i = 0; i < n; i++)
        if (o->all.p[i].saved > most) {
            most = o->all.p[i].saved;
            front++;
        }
    int64_t others = n - front, room = front < MOST_OPTIONS ? MOST_OPTIONS - front : 0;
    int64_t kept = 0, seen = 0;
    most = -1;
    for (int64_t i = 0; i < n; i++) {
        struct option p = o->all.p[i];
        bool on_front = p.saved > most;
        most = on_front ? p.saved : most;
        seen += !on_front;
        if (on_front || seen * room / others > (seen - 1) * room / others)
            o->all.p[kept++] = p;
    }
    o->all.n = kept;
}

/* Everything that is in `from` with one more run behind it. */
static void extend(struct options *to, const struct options *from, struct option run) {
    for (int64_t i = 0; i < from->all.n; i++) {
        struct option p = from->all.p[i];
        p.us += run.us;
        p.saved += run.saved;
        p.peak = fmax(p.peak, run.peak);
        p.marks |= run.marks;
        arr_push(&to->all, p);
    }
}

static bool may_drop(const struct aceso *a, const struct aceso_piece *p, int j) {
    return !a->tables.rows[a->row_of[p->first + j]].kept;
}

/* Runs that begin at op j: the first and the last but one of them save something. until[i]: sets of repeats
 * among ops 0 .. i - 1 of which op i - 1 is in none. */
static void add_runs(const struct aceso *a, const struct aceso_piece *p, int j,
                     struct options *until) {
    struct option run = {.us = p->cells[j]->forward, .marks = UINT64_C(1) << j};
    if (p->cells[j]->kept <= 0 || (j == 0 && !p->may_begin))
        return;
    for (int b = j + 1; b < p->n && may_drop(a, p, b - 1); b++) {
        run.us += p->cells[b]->forward;
        run.saved += p->cells[b - 1]->kept;
        run.peak = run.saved;
        run.marks |= UINT64_C(1) << b;
        if (p->cells[b - 1]->kept <= 0)
            continue;
        if (b == p->n - 1)
            run.peak += p->cells[b]->kept; /* where the next op is marked, too */
        extend(&until[b + 2 < p->n + 1 ? b + 2 : p->n + 1], &until[j], run);
    }
}

static struct options *list_options(const struct aceso *a, const struct aceso_piece *p) {
    struct options *until = mem_array((size_t)p->n + 2, sizeof *until);
    arr_push(&until[0].all, (struct option){0});
    for (int j = 0; j < p->n; j++) {
        prune(&until[j]);
        extend(&until[j + 1], &until[j], (struct option){0});
        add_runs(a, p, j, until);
    }
    extend(&until[p->n + 1], &until[p->n], (struct option){0});
    prune(&until[p->n + 1]);
    struct options *found = mem_alloc(sizeof *found);
    *found = until[p->n + 1];
    for (int j = 0; j <= p->n; j++)
        arr_release(&until[j].all);
    free(until);
    return found;
}

static void free_options(void *p) {
    struct options *o = p;
    arr_release(&o->all);
    free(o);
}

void aceso_forget_options(struct aceso *a) {
    memo_release(&a->options, free_options);
}

/* ---- a stage --------------------------------------------------------------------------- */

/* A piece with what its copies do: so many of them `now`, the others `other`. */
struct copies_of {
    const struct options *options;
    int copies, others; /* others of these */
    int now, other;     /* options */
};

struct choice {
    struct copies_of *shares;
    int n;
    double need, limit; /* bytes to be saved by each micro-batch; on the largest run */
    double us, saved;
};

static const struct option *at(const struct copies_of *s, int i) {
    return &s->options->all.p[i];
}

/* The next step along the hull: the option that saves more at the least time for it. */
static int next_on_hull(const struct copies_of *s, double limit, double *price) {
    const struct option *from = at(s, s->now);
    int best = -1;
    for (int i = 0; i < s->options->all.n; i++) {
        const struct option *o = at(s, i);
        if (o->saved <= from->saved || o->peak > limit)
            continue;
        double p = (o->us - from->us) / (o->saved - from->saved);
        if (best < 0 || p < *price || (p == *price && o->saved > at(s, best)->saved)) {
            best = i;
            *price = p;
        }
    }
    return best;
}

/* False where it ends short of the need. */
static bool climb(struct choice *c) {
    struct step {
        int to;
        double price;
    } *steps = mem_array((size_t)c->n, sizeof *steps);
    for (int i = 0; i < c->n; i++)
        steps[i].to = next_on_hull(&c->shares[i], c->limit, &steps[i].price);
    while (c->saved < c->need) {
        int k = -1;
        for (int i = 0; i < c->n; i++)
            if (steps[i].to >= 0 && (k < 0 || steps[i].price < steps[k].price))
                k = i;
        if (k < 0)
            break;
        struct copies_of *s = &c->shares[k];
        const struct option *from = at(s, s->now), *to = at(s, steps[k].to);
        double each = to->saved - from->saved, copies = ceil((c->need - c->saved) / each);
        int n = copies < s->copies ? (int)copies : s->copies;
        c->saved += n * each;
        c->us += n * (to->us - from->us);
        if (n < s->copies) {
            s->other = s->now;
            s->others = s->copies - n;
        }
        s->now = steps[k].to;
        steps[k].to = next_on_hull(s, c->limit, &steps[k].price);
    }
    free(steps);
    return c->saved >= c->need;
}

/* What one copy may do instead that is cheaper and still saves enough. */
struct exchange {
    int share, to;
    bool other; /* one of the others */
    double us;
};

static void find_exchange(const struct choice *c, int k, bool other,
                          struct exchange *best) {
    const struct copies_of *s = &c->shares[k];
    const struct option *from = at(s, other ? s->other : s->now);
    double spare = c->saved - c->need;
    /* A share has two kinds of copies at most. */
    bool joins_only = s->others > 0 && (other ? s->others : s->copies - s->others) > 1;
    for (int i = 0; i < s->options->all.n; i++) {
        const struct option *o = at(s, i);
        if (o->us - from->us >= best->us || o->peak > c->limit ||
            from->saved - o->saved > spare)
            continue;
        if (joins_only && i != s->now && i != s->other)
            continue;
        *best = (struct exchange){k, i, other, o->us - from->us};
    }
}

static void exchange(struct choice *c, const struct exchange *x) {
    struct copies_of *s = &c->shares[x->share];
    const struct option *from = at(s, x->other ? s->other : s->now), *to = at(s, x->to);
    c->us += x->us;
    c->saved += to->saved - from->saved;
    int mine = x->other ? s->others : s->copies - s->others;
    if (s->others && x->to == (x->other ? s->now : s->other)) {
        s->others += x->other ? -1 : 1;
    } else if (mine == 1) {
        *(x->other ? &s->other : &s->now) = x->to;
    } else { /* all were alike */
        s->other = x->to;
        s->others = 1;
    }
    if (s->others == s->copies) {
        s->now = s->other;
        s->others = 0;
    }
}

static void polish(struct choice *c) {
    for (int i = 0; i < MOST_EXCHANGES; i++) {
        struct exchange best = {.share = -1, .us = -1e-9};
        for (int k = 0; k < c->n; k++) {
            find_exchange(c, k, false, &best);
            if (c->shares[k].others)
                find_exchange(c, k, true, &best);
        }
        if (best.share < 0)
            return;
        exchange(c, &best);
    }
}

/* Limits that may be set on the largest run: the options' own, ascending. */
static int64_t find_limits(const struct copies_of *shares, int n, double **out) {
    ARR(double) all = {0};
    int64_t kinds = 0;
    for (int k = 0; k < n; k++)
        for (int64_t i = 0; i < shares[k].options->all.n; i++)
            if (shares[k].options->all.p[i].saved > 0)
                arr_push(&all, shares[k].options->all.p[i].peak);
    if (all.n)
        qsort(all.p, (size_t)all.n, sizeof *all.p, by_size);
    for (int64_t i = 0; i < all.n; i++)
        if (!i || all.p[i] > all.p[kinds - 1])
            all.p[kinds++] = all.p[i];
    *out = all.p;
    return kinds;
}

static const struct options *options_of(struct aceso *a, const struct aceso_piece *p) {
    void **slot = memo_slot(&a->options, p->key);
    if (!*slot)
        *slot = list_options(a, p);
    return *slot;
}

/* A stage under work, and the best that was found. */
struct chooser {
    struct aceso_piece *pieces;
    struct copies_of *shares;
    int n;
    double in_flight, need;
    bool fits;
    double worth; /* the less time, or else the more saved, the better */
    struct aceso_recompute *out;
};

static void take(const struct choice *c, struct aceso_piece *pieces,
                 struct aceso_recompute *out) {
    *out = (struct aceso_recompute){c->us, c->saved, 0};
    for (int i = 0; i < c->n; i++) {
        const struct copies_of *s = &c->shares[i];
        pieces[i].copies = s->copies - s->others;
        pieces[i].marks = at(s, s->now)->marks;
        pieces[i].other_marks = s->others ? at(s, s->other)->marks : 0;
        out->peak = fmax(out->peak, at(s, s->now)->peak);
        if (s->others)
            out->peak = fmax(out->peak, at(s, s->other)->peak);
    }
}

/* The best under one limit, if that is better than what was found. */
static bool try_limit(struct chooser *x, double limit) {
    struct choice c = {.shares = x->shares,
                       .n = x->n,
                       .need = (x->need + limit) / x->in_flight,
                       .limit = limit};
    for (int i = 0; i < x->n; i++)
        x->shares[i] = (struct copies_of){.options = x->shares[i].options,
                                          .copies = x->pieces[i].times};
    bool fits = climb(&c);
    if (fits)
        polish(&c);
    double worth = fits ? -c.us : x->in_flight * c.saved - limit;
    if (fits < x->fits || (fits == x->fits && worth <= x->worth))
        return false;
    x->worth = worth;
    x->fits = fits;
    take(&c, x->pieces, x->out);
    return true;
}

/* Some of the limits, then those about the best of them, ever closer. */
static void try_limits(struct chooser *x, const double *limits, int64_t n) {
    enum { AT_ONCE = 8 };
    int64_t lo = 0, hi = n - 1, best = -1, step;
    do {
        step = (hi - lo + AT_ONCE - 1) / AT_ONCE;
        step = step ? step : 1;
        for (int64_t i = lo; i <= hi; i += step)
            if (i != best && try_limit(x, limits[i]))
                best = i;
        if (best < 0)
            return;
        lo = best - step + 1 > lo ? best - step + 1 : lo;
        hi = best + step - 1 < hi ? best + step - 1 : hi;
    } while (step > 1);
}

bool aceso_choose_recompute(struct aceso *a, struct aceso_piece *pieces, int n,
                            double in_flight, double need, struct aceso_recompute *out) {
    struct chooser x = {.pieces = pieces,
                        .shares = mem_array((size_t)n, sizeof *x.shares),
                        .n = n,
                        .in_flight = in_flight,
                        .need = need,
                        .worth = -INFINITY,
                        .out = out};
    double *limits;
    if (a->options.n > MOST_KEPT)
        aceso_forget_options(a);
    for (int i = 0; i < n; i++)
        x.shares[i].options = options_of(a, &pieces[i]);
    int64_t kinds = find_limits(x.shares, n, &limits);
    if (kinds)
        try_limits(&x, limits, kinds);
    free(limits);
    free(x.shares);
    return x.fits;
}
