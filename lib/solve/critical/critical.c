/* critical.c - cuts the problem into pieces, and finds the multiplier of the limit: see
 * critical.h. */
#include "common/err.h"
#include "common/mem.h"
#include "common/progress.h"
#include "solve/critical/critical_impl.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_ENTRIES = 4096, /* of a piece: combinations of values of the variables around it */
    MOST_COLUMNS = 2000, /* of a program: entries of its tables */
    MOST_MULTIPLIERS = 10,
};
static const double TOLERANCE = 1e-9;

/* ---- pieces ------------------------------------------------------------------------------ */

/* Marks a variable and all those that connect with it other than through cut ones. */
static void mark_piece(const struct critical_cut *c, int *piece_of, int var, int piece) {
    bool grows = true;
    piece_of[var] = piece;
    while (grows) {
        grows = false;
        for (int f = 0; f < c->p->n_factors; f++) {
            const struct critical_factor *factor = &c->p->factors[f];
            bool touches = false;
            for (int i = 0; i < factor->n; i++)
                touches |= piece_of[factor->var[i]] == piece;
            for (int i = 0; i < factor->n && touches; i++) {
                int v = factor->var[i];
                grows |= !c->cut[v] && piece_of[v] < 0;
                if (!c->cut[v])
                    piece_of[v] = piece;
            }
        }
    }
}

/* Finds the factors of the piece and the variables around it. */
static void find_around(const struct critical_cut *c, const int *piece_of, int k,
                        struct critical_piece *piece) {
    const struct critical_problem *p = c->p;
    bool *around = mem_array((size_t)p->n, sizeof *around);
    for (int f = 0; f < p->n_factors; f++) {
        const struct critical_factor *factor = &p->factors[f];
        bool touches = false;
        for (int i = 0; i < factor->n; i++)
            touches |= piece_of[factor->var[i]] == k;
        if (!touches)
            continue;
        piece->factors[piece->n_factors++] = f;
        for (int i = 0; i < factor->n; i++)
            around[factor->var[i]] |= c->cut[factor->var[i]];
    }
    piece->n_entries = 1;
    for (int v = 0; v < p->n; v++) {
        if (!around[v])
            continue;
        if (piece->n_around < CRITICAL_ARITY)
            piece->around[piece->n_around] = v;
        piece->n_around++;
        if (piece->n_entries <= MOST_ENTRIES)
            piece->n_entries *= p->size[v];
    }
    free(around);
}

/* Counts the columns that these tables have as an integer program. */
static int64_t columns(const struct critical_problem *p, int n, const int *factors) {
    int64_t sum = 0;
    for (int k = 0; k < n; k++) {
        const struct critical_factor *f = &p->factors[factors ? factors[k] : k];
        int64_t size = 1;
        for (int i = 0; i < f->n; i++)
            size *= p->size[f->var[i]];
        sum += size;
    }
    return sum;
}

/* Returns the variable of the piece that shares tables with the most others. */
static int most_joined(const struct critical_cut *c, const struct critical_piece *piece) {
    int best = -1, most = -1;
    for (int i = 0; i < piece->n; i++) {
        int n = 0;
        for (int k = 0; k < piece->n_factors; k++) {
            const struct critical_factor *f = &c->p->factors[piece->factors[k]];
            for (int j = 0; j < f->n; j++)
                n += f->var[j] == piece->inside[i] ? f->n - 1 : 0;
        }
        if (n > most) {
            most = n;
            best = piece->inside[i];
        }
    }
    return best;
}

static void forget_pieces(struct critical_cut *c) {
    for (int k = 0; k < c->n_pieces; k++) {
        struct critical_piece *piece = &c->pieces[k];
        for (int64_t i = 0; piece->entries && i < piece->n_entries; i++)
            free(piece->entries[i].inside);
        free(piece->entries);
        free(piece->inside);
        free(piece->factors);
    }
    free(c->pieces);
    c->pieces = NULL;
    c->n_pieces = 0;
}

/* Returns a variable that must also be cut for a piece to be small enough, or -1 if
 * there is none. */
static int make_pieces(struct critical_cut *c) {
    const struct critical_problem *p = c->p;
    int *piece_of = mem_array((size_t)p->n, sizeof *piece_of), wanted = -1;
    c->pieces = mem_array((size_t)p->n, sizeof *c->pieces);
    for (int v = 0; v < p->n; v++)
        piece_of[v] = -1;
    for (int v = 0; v < p->n && wanted < 0; v++) {
        if (c->cut[v] || piece_of[v] >= 0)
            continue;
        struct critical_piece *piece = &c->pieces[c->n_pieces];
        mark_piece(c, piece_of, v, c->n_pieces);
        piece->inside = mem_array((size_t)p->n, sizeof *piece->inside);
        piece->factors = mem_array((size_t)p->n_factors, sizeof *piece->factors);
        for (int u = v; u < p->n; u++)
            if (piece_of[u] == c->n_pieces)
                piece->inside[piece->n++] = u;
        find_around(c, piece_of, c->n_pieces++, piece);
        if (piece->n_around > CRITICAL_ARITY || piece->n_entries > MOST_ENTRIES ||
            columns(p, piece->n_factors, piece->factors) > MOST_COLUMNS)
            wanted = most_joined(c, piece);
    }
    free(piece_of);
    return wanted;
}

static double least_usage(const struct critical_problem *p,
                          const struct critical_factor *f) {
    int64_t n = 1;
    double least = INFINITY;
    for (int i = 0; i < f->n; i++)
        n *= p->size[f->var[i]];
    for (int64_t i = 0; i < n && f->usage; i++)
        least = fmin(least, isinf(f->cost[i]) ? INFINITY : f->usage[i]);
    return f->usage ? least : 0;
}

/* Lets each piece use what is left when everything else uses the least. */
static void find_most_usage(struct critical_cut *c) {
    double all = 0;
    for (int f = 0; f < c->p->n_factors; f++)
        all += least_usage(c->p, &c->p->factors[f]);
    for (int k = 0; k < c->n_pieces; k++) {
        struct critical_piece *piece = &c->pieces[k];
        double own = 0;
        for (int i = 0; i < piece->n_factors; i++)
            own += least_usage(c->p, &c->p->factors[piece->factors[i]]);
        piece->most_usage =
            isinf(c->p->limit) ? INFINITY : c->p->limit - (all - own) + fabs(all) * 1e-12;
    }
}

/* Cuts at the variables that are marked, and at more as long as a piece is too large.
 * Returns false if the join would then have too large a table. */
static bool cut_into_pieces(struct critical_cut *c) {
    int *x = mem_array((size_t)c->p->n, sizeof *x);
    for (int v = make_pieces(c); v >= 0; v = make_pieces(c)) {
        forget_pieces(c);
        c->cut[v] = true;
    }
    for (int k = 0; k < c->n_pieces; k++)
        c->pieces[k].entries =
            mem_array((size_t)c->pieces[k].n_entries, sizeof *c->pieces[k].entries);
    bool good = !isnan(critical_join(c, x));
    free(x);
    find_most_usage(c);
    return good;
}

/* Cuts at all variables, so that the join does all the work, or only at the critical ones
 * where the join's tables would be too large. */
static bool cut_up(struct critical_cut *c, bool by_pieces) {
    size_t n = (size_t)c->p->n;
    for (size_t v = 0; v < n; v++)
        c->cut[v] = true;
    if (!by_pieces && cut_into_pieces(c))
        return true;
    forget_pieces(c);
    memcpy(c->cut, c->p->critical, n * sizeof *c->cut);
    return cut_into_pieces(c);
}

/* ---- bounds of entries ------------------------------------------------------------------- */

/* Returns the least entry of a table over the variables that are inside the piece. */
static double least_inside(const struct critical_cut *c, const struct critical_factor *f,
                           int n, const int *var, int *x) {
    double least = INFINITY;
    do
        least = fmin(least, critical_value(c, f, critical_at(c->p, f, x)));
    while (critical_next(c->p, n, var, x));
    return least;
}

/* Bounds the piece with the variables around it fixed in x: the least value of every
 * variable by the tables that have no other one inside, plus the least entry of every
 * other table. */
static double bound_entry(const struct critical_cut *c, const struct critical_piece *piece,
                          int *x, double *alone, const int *first) {
    double sum = 0;
    for (int i = 0; i < first[piece->n]; i++)
        alone[i] = 0;
    for (int k = 0; k < piece->n_factors; k++) {
        const struct critical_factor *f = &c->p->factors[piece->factors[k]];
        int n = 0, var[CRITICAL_ARITY], at = 0;
        for (int i = 0; i < f->n; i++)
            if (!c->cut[f->var[i]])
                var[n++] = f->var[i];
        if (n > 1) {
            sum += least_inside(c, f, n, var, x);
            continue;
        }
        while (piece->inside[at] != var[0])
            at++;
        for (int a = 0; a < c->p->size[var[0]]; a++) {
            x[var[0]] = a;
            alone[first[at] + a] += critical_value(c, f, critical_at(c->p, f, x));
        }
        x[var[0]] = 0;
    }
    for (int k = 0; k < piece->n; k++) {
        double least = INFINITY;
        for (int i = first[k]; i < first[k + 1]; i++)
            least = fmin(least, alone[i]);
        sum += least;
    }
    return sum;
}

static void bound_entries(struct critical_cut *c) {
    const struct critical_problem *p = c->p;
    int *x = mem_array((size_t)p->n, sizeof *x);
    for (int k = 0; k < c->n_pieces; k++) {
        struct critical_piece *piece = &c->pieces[k];
        int *first = mem_array((size_t)piece->n + 1, sizeof *first);
        for (int i = 0; i < piece->n; i++) {
            first[i + 1] = first[i] + p->size[piece->inside[i]];
            x[piece->inside[i]] = 0;
        }
        double *alone = mem_array((size_t)first[piece->n], sizeof *alone);
        for (int i = 0; i < piece->n_around; i++)
            x[piece->around[i]] = 0;
        for (int64_t i = 0; i < piece->n_entries; i++) {
            free(piece->entries[i].inside);
            piece->entries[i] =
                (struct critical_entry){.value = bound_entry(c, piece, x, alone, first)};
            critical_next(p, piece->n_around, piece->around, x);
        }
        free(alone);
        free(first);
    }
    free(x);
}

/* ---- under one multiplier --------------------------------------------------------------------- */

/* A choice, and what it costs. */
struct point {
    int *x;
    double cost, usage;
};

static void evaluate(const struct critical_problem *p, struct point *at) {
    at->cost = at->usage = 0;
    for (int i = 0; i < p->n_factors; i++) {
        const struct critical_factor *f = &p->factors[i];
        int64_t k = critical_at(p, f, at->x);
        at->cost += f->cost[k];
        at->usage += f->usage ? f->usage[k] : 0;
    }
}

static void keep_point(const struct critical_problem *p, struct point *to,
                       const struct point *from) {
    memcpy(to->x, from->x, (size_t)p->n * sizeof *to->x);
    to->cost = from->cost;
    to->usage = from->usage;
}

static bool is_open(const struct point *best, double bound) {
    return bound < best->cost - TOLERANCE * fabs(best->cost);
}

static struct critical_entry *entry_at(const struct critical_cut *c,
                                       const struct critical_piece *piece, const int *x) {
    int64_t at = 0;
    for (int i = 0; i < piece->n_around; i++)
        at = at * c->p->size[piece->around[i]] + x[piece->around[i]];
    return &piece->entries[at];
}

/* Puts the values inside the pieces into x. Of the entries that the answer rests on,
 * those with the crudest bounds get a better one, and the others are solved. Returns
 * whether any entry changed. *whole: x is a complete choice; *stopped: a limit was
 * reached. */
static bool fill_in(struct critical_cut *c, int *x, bool *whole, bool *stopped) {
    bool news = false;
    *whole = true;
    for (int k = 0; k < c->n_pieces; k++) {
        const struct critical_piece *piece = &c->pieces[k];
        struct critical_entry *e = entry_at(c, piece, x);
        if (!e->refined) {
            e->value = fmax(e->value, critical_bound(c, piece, x));
            e->refined = news = true;
        } else if (!e->exact && !*stopped) {
            *stopped = !critical_program(c, piece, x, e);
            news |= !*stopped;
        }
        *whole &= e->inside != NULL;
        for (int i = 0; i < piece->n && e->inside; i++)
            x[piece->inside[i]] = e->inside[i];
    }
    return news;
}

/* Finds the least value under a multiplier, which is a bound, and whether a choice with
 * that value was found. Choices within the limit that turn up meanwhile replace `best`
 * if they are cheaper. */
static double solve_at(struct critical_cut *c, double per_cost, double per_usage,
                       struct point *at, struct point *best, bool *found) {
    struct point now = {.x = mem_array((size_t)c->p->n, sizeof(int))};
    double value = INFINITY, least = INFINITY;
    bool stopped = false, whole, news = true;
    c->per_cost = per_cost;
    c->per_usage = per_usage;
    *found = false;
    bound_entries(c);
    while (news && !stopped) {
        stopped = interrupted() || (c->deadline_s > 0 && now_s() > c->deadline_s);
        value = critical_join(c, now.x);
        if (isinf(value))
            break;
        news = fill_in(c, now.x, &whole, &stopped);
        if (!whole)
            continue;
        evaluate(c->p, &now);
        double v = per_cost * now.cost + per_usage * now.usage;
        if (v < least) {
            least = v;
            keep_point(c->p, at, &now);
            *found = true;
        }
        if (now.usage <= c->p->limit && now.cost < best->cost)
            keep_point(c->p, best, &now);
    }
    free(now.x);
    return value;
}

/* ---- the limit ----------------------------------------------------------------------------- */

/* Moves the multiplier to where a choice above the limit and one within it have the same
 * value, until no other choice has less: then the bound is that of the lower hull at the
 * limit. */
static double follow_hull(struct critical_cut *c, struct point *over, struct point *within,
                          struct point *best, double bound) {
    struct point now = {.x = mem_array((size_t)c->p->n, sizeof(int))};
    for (int i = 0; i < MOST_MULTIPLIERS; i++) {
        double multiplier = (within->cost - over->cost) / (over->usage - within->usage);
        bool found;
        if (!(multiplier > 0) || c->programs >= c->most_programs)
            break;
        double value = solve_at(c, 1, multiplier, &now, best, &found);
        double line = over->cost + multiplier * over->usage;
        c->multiplier =
            value - multiplier * c->p->limit > bound ? multiplier : c->multiplier;
        bound = fmax(bound, value - multiplier * c->p->limit);
        if (!found || value >= line - TOLERANCE * fabs(line))
            break;
        keep_point(c->p, now.usage <= c->p->limit ? within : over, &now);
    }
    free(now.x);
    return bound;
}

/* The search for choices that are better than the best one. */
struct ranking {
    const struct critical_problem *p;
    struct point *best;
    double multiplier, most_cost, most_value;
};

static void rank_below(struct ranking *r) {
    r->most_cost = r->best->cost - TOLERANCE * fabs(r->best->cost);
    r->most_value = r->most_cost + r->multiplier * r->p->limit;
}

static bool take_better(void *arg, const int *choice) {
    struct ranking *r = arg;
    struct point at = {.x = (int *)choice};
    evaluate(r->p, &at);
    if (at.usage <= r->p->limit && at.cost < r->best->cost)
        keep_point(r->p, r->best, &at);
    rank_below(r);
    return !interrupted();
}

/* Goes through all choices that may be better: under the multiplier, their value is below
 * the best one's cost plus the multiplier times the limit, and few choices lie between that
 * and the bound (Handler and Zang, "A dual algorithm for the constrained shortest path
 * problem", 1980). Returns whether all of them were looked at. */
static bool rank(struct critical_cut *c, struct point *best) {
    enum { STEPS = 300000 };
    struct ranking r = {.p = c->p, .best = best, .multiplier = c->multiplier};
    struct critical_sum sums[] = {
        {1, c->multiplier, &r.most_value}, {0, 1, &c->p->limit}, {1, 0, &r.most_cost}};
    rank_below(&r);
    return critical_list_below(c->p, 3, sums, true, STEPS, take_better, &r);
}

/* Solves one integer program for the whole problem. Returns the bound. */
static double close_gap(struct critical_cut *c, struct point *best, double bound) {
    const struct critical_problem *p = c->p;
    struct critical_piece all = {
        .n = p->n, .n_factors = p->n_factors, .most_usage = p->limit};
    struct critical_entry e = {0};
    struct point at = {.x = mem_array((size_t)p->n, sizeof(int))};
    all.inside = mem_array((size_t)p->n, sizeof *all.inside);
    all.factors = mem_array((size_t)p->n_factors, sizeof *all.factors);
    for (int i = 0; i < p->n; i++)
        all.inside[i] = i;
    for (int i = 0; i < p->n_factors; i++)
        all.factors[i] = i;
    c->per_cost = 1;
    c->per_usage = 0;
    if (columns(p, p->n_factors, NULL) <= MOST_COLUMNS &&
        critical_program(c, &all, at.x, &e)) {
        bound = fmax(bound, isinf(e.value) ? best->cost : e.value);
        evaluate(p, &at);
        if (e.inside && at.usage <= p->limit && at.cost < best->cost)
            keep_point(p, best, &at);
    }
    free(e.inside);
    free(at.x);
    free(all.inside);
    free(all.factors);
    return bound;
}

static double solve_within(struct critical_cut *c, bool closes, bool by_pieces,
                           struct point *best) {
    size_t n = (size_t)c->p->n;
    struct point over = {.x = mem_array(n, sizeof(int))},
                 within = {.x = mem_array(n, sizeof(int))};
    bool found;
    double bound = solve_at(c, 1, 0, &over, best, &found);
    if (found && over.usage > c->p->limit) {
        double least = solve_at(c, 0, 1, &within, best, &found);
        if (least > c->p->limit + TOLERANCE * fabs(least))
            bound = INFINITY;
        else if (found && within.usage <= c->p->limit)
            bound = follow_hull(c, &over, &within, best, bound);
        bool open = closes && is_open(best, bound);
        if (open && !by_pieces && rank(c, best))
            bound = best->cost;
        else if (open)
            bound = close_gap(c, best, bound);
    }
    free(over.x);
    free(within.x);
    return bound;
}

/* Solves the problem under one rule of cutting and adds the work to the answer. Returns
 * the bound. */
static double solve_cut(const struct critical_problem *p, const struct critical_options *o,
                        bool by_pieces, double deadline_s, struct point *best,
                        struct critical_answer *a) {
    struct critical_cut c = {.p = p,
                             .per_cost = 1,
                             .most_programs = o->programs - a->programs,
                             .deadline_s = deadline_s};
    c.cut = mem_array((size_t)p->n, sizeof *c.cut);
    bool good = cut_up(&c, by_pieces);
    double bound = good ? solve_within(&c, o->closes, by_pieces, best) : -INFINITY;
    for (int k = 0; k < c.n_pieces; k++)
        a->n_pieces += c.pieces[k].n > 1;
    a->programs += c.programs;
    if (c.columns > a->columns) {
        a->columns = c.columns;
        a->rows = c.rows;
    }
    forget_pieces(&c);
    free(c.cut);
    return bound;
}

int critical_solve(const struct critical_problem *p, const struct critical_options *o,
                   struct critical_answer *a) {
    struct point best = {.x = mem_array((size_t)p->n, sizeof(int)), .cost = INFINITY};
    double deadline_s = o->time_budget_s > 0 ? now_s() + o->time_budget_s : 0;
    *a = (struct critical_answer){.choice = best.x};
    a->bound = solve_cut(p, o, o->by_pieces, deadline_s, &best, a);
    /* The programs of pieces have a row of usage, which excludes choices that a
     * multiplier cannot. */
    if (o->closes && !a->n_pieces && !o->by_pieces && is_open(&best, a->bound))
        a->bound = fmax(a->bound, solve_cut(p, o, true, deadline_s, &best, a));
    a->bound = fmin(a->bound, best.cost);
    a->cost = best.cost;
    a->usage = best.usage;
    if (isinf(best.cost)) {
        free(best.x);
        a->choice = NULL;
    }
    return a->choice ? 0 : EXIT_NO;
}

void critical_answer_release(struct critical_answer *a) {
    free(a->choice);
    *a = (struct critical_answer){0};
}
