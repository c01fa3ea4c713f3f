/* Curves of collectives from a profile: see link_fit.h. */
#include "cost/link_fit.h"

#include "common/mem.h"
#include "cost/curve_fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The most rows kept of a series; five opcodes, each inside a node or beyond. */
enum { MOST = 64, KINDS = 10 };
/* Deviations of a series from its curve: over many octaves, and from size to size; how many
 * octaves either reaches; the clock's own. On Alpa's V100 tables, with either half of the
 * sizes predicted from the other, errors change by a twentieth where these are halved or
 * doubled. */
static const double slow = 0.3, slow_octaves = 6, quick = 0.2, quick_octaves = 3,
                    clock_off = 0.003;

struct point {
    double at, off; /* logarithms: of bytes, to base 2; of measured over the curve's */
    double bytes, us;
};

/* Rows of one collective and group. */
struct series {
    int kind;
    int64_t size, stride;
    int64_t n;
    struct point rows[MOST];
    double pull[MOST]; /* inverse of the covariance times off */
    double within;
};

struct row {
    int kind;
    int64_t size, stride;
    double bytes, us;
    struct curve_shape shape;
};

struct link_fit {
    const struct cluster *cluster; /* only while the fit is made */
    ARR(struct row) rows;          /* by kind, group and bytes */
    struct curve curves[KINDS];    /* without rows: not fitted */
    double far[KINDS]; /* how far off they may be for groups and sizes far from all rows */
    double overlap[KINDS];
    ARR(struct series) series;
};

static const enum opcode codes[KINDS / 2] = {I_all_gather, I_all_reduce, I_reduce_scatter,
                                             I_all_to_all, I_send};

/* The kind of a collective, inside a node or beyond; -1: none. */
static int link_kind(enum opcode code, bool cross) {
    for (int i = 0; i < KINDS / 2; i++)
        if (codes[i] == code)
            return 2 * i + cross;
    return -1;
}

struct link_class link_fit_class(const struct cluster *c, enum opcode code, int64_t size,
                                 int64_t stride, bool cross) {
    int64_t all = cluster_devices(c), node = c->groups[0].devices;
    if (code == I_send) {
        int64_t sender = cross ? node : 1;
        return sender < all && (cross || node > 1) ? links_of_message(c, sender, 0, 1)
                                                   : (struct link_class){0};
    }
    stride = stride > 0 ? stride : 1;
    if (size < 2 || stride > all || size > all / stride)
        return (struct link_class){0};
    struct mesh mesh = {.n_axes = 2, .size = {(int)size, (int)stride}};
    return links_of_group(c, &mesh, 0, 1);
}

static void take_row(void *ctx, const struct profile_comm_row *r) {
    struct link_fit *f = ctx;
    int kind = link_kind(r->code, r->cross);
    struct link_class l = link_fit_class(f->cluster, r->code, r->size, r->stride, r->cross);
    if (kind < 0 || r->us <= 0 || r->bytes < 1 || !l.level || l.cross != r->cross ||
        (r->code == I_all_to_all ? l.pairs : l.bandwidth) <= 0)
        return;
    bool message = r->code == I_send;
    arr_push(&f->rows,
             (struct row){.kind = kind,
                          .size = message ? 0 : r->size,
                          .stride = message ? 0 : r->stride,
                          .bytes = (double)r->bytes,
                          .us = r->us,
                          .shape = link_shape(r->code, r->size, (double)r->bytes, &l)});
}

static int sign(double x) {
    return (x > 0) - (x < 0);
}

static int by_group(const void *pa, const void *pb) {
    const struct row *a = pa, *b = pb;
    int c = a->kind - b->kind;
    c = c ? c : sign((double)(a->size - b->size));
    c = c ? c : sign((double)(a->stride - b->stride));
    return c ? c : sign(a->bytes - b->bytes);
}

/* ---- what a series is off ------------------------------------------------------------- */

static double covariance(double a, double b) {
    double d = fabs(a - b), s = d / slow_octaves;
    return slow * slow * exp(-0.5 * s * s) + quick * quick * exp(-d / quick_octaves);
}

/* Inverts a covariance (Gauss-Jordan). It is positive definite: no rows are exchanged. */
static void invert(double (*a)[MOST], int64_t n) {
    for (int64_t k = 0; k < n; k++) {
        double pivot = a[k][k];
        a[k][k] = 1;
        for (int64_t j = 0; j < n; j++)
            a[k][j] /= pivot;
        for (int64_t i = 0; i < n; i++) {
            double factor = a[i][k];
            if (i == k)
                continue;
            a[i][k] = 0;
            for (int64_t j = 0; j < n; j++)
                a[i][j] -= factor * a[k][j];
        }
    }
}

/* Finds pull, and within: the inverse predicts each row from all others at once. */
static void solve(struct series *s, double of_curve) {
    double(*a)[MOST] = mem_array(MOST, sizeof *a), left[MOST];
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t j = 0; j < s->n; j++)
            a[i][j] = covariance(s->rows[i].at, s->rows[j].at) +
                      (i == j ? clock_off * clock_off : 0);
    invert(a, s->n);
    for (int64_t i = 0; i < s->n; i++) {
        for (int64_t j = 0; j < s->n; j++)
            s->pull[i] += a[i][j] * s->rows[j].off;
        left[i] = s->pull[i] / a[i][i];
    }
    /* A few rows do not tell how far off the next one will be. */
    s->within = fmax(curve_bound(left, s->n), of_curve * exp(-(double)s->n / 4));
    free(a);
}

/* near: how much the nearest row tells about this size, 0..1; 1 up to a factor of two. */
static double off_at(const struct series *s, double bytes, double *near) {
    double sum = 0, at = log2(bytes), most = 0;
    for (int64_t i = 0; i < s->n; i++) {
        double c = covariance(at, s->rows[i].at);
        sum += s->pull[i] * c;
        most = fmax(most, c);
    }
    *near = fmin(most / covariance(0, 1), 1);
    return sum;
}

/* The time on the line through two rows, a latency and a bandwidth; negative elsewhere. */
static double line_us(const struct series *s, double bytes) {
    for (int64_t i = 1; i < s->n; i++) {
        const struct point *a = &s->rows[i - 1], *b = &s->rows[i];
        if (bytes >= a->bytes && bytes <= b->bytes && b->bytes > a->bytes)
            return a->us + (b->us - a->us) * (bytes - a->bytes) / (b->bytes - a->bytes);
    }
    return -1;
}

static void add_series(struct link_fit *f, const struct row *rows, int64_t n) {
    const struct curve *c = &f->curves[rows->kind];
    struct series s = {.kind = rows->kind, .size = rows->size, .stride = rows->stride};
    int64_t step = (n + MOST - 1) / MOST;
    for (int64_t i = 0; i < n; i += step)
        s.rows[s.n++] = (struct point){log2(rows[i].bytes),
                                       log(rows[i].us / curve_us(NULL, c, &rows[i].shape)),
                                       rows[i].bytes, rows[i].us};
    solve(&s, c->within);
    arr_push(&f->series, s);
}

/* ---- curves --------------------------------------------------------------------------- */

static struct curve begin(const struct link_curve *prior, int kind) {
    struct curve c = curve_default(CURVE_LINK);
    c.within = 0.5;
    if (prior)
        c = prior[kind % 2].curve;
    if (prior && kind == link_kind(I_send, kind % 2))
        for (int i = 0; curve_params(CURVE_LINK)[i].name; i++)
            if (!strcmp(curve_params(CURVE_LINK)[i].name, "reached"))
                c.p[i] = prior[kind % 2].message;
    return c;
}

static void fit_kind(struct link_fit *f, const struct link_curve *prior, int64_t first,
                     int64_t end) {
    struct curve_row *rows = mem_array((size_t)(end - first), sizeof *rows);
    int kind = f->rows.p[first].kind;
    for (int64_t i = first; i < end; i++)
        rows[i - first] = (struct curve_row){f->rows.p[i].shape, f->rows.p[i].us};
    f->curves[kind] = begin(prior, kind);
    f->far[kind] = f->curves[kind].within;
    curve_fit(NULL, rows, end - first, &f->curves[kind]);
    f->far[kind] = fmax(f->far[kind], f->curves[kind].within);
    free(rows);
}

/* The end of the rows of the same kind or, if `group` is set, of the same group. */
static int64_t run_end(const struct link_fit *f, int64_t i, bool group) {
    const struct row *a = &f->rows.p[i];
    int64_t k = i;
    while (k < f->rows.n && f->rows.p[k].kind == a->kind &&
           (!group || (f->rows.p[k].size == a->size && f->rows.p[k].stride == a->stride)))
        k++;
    return k;
}

struct link_fit *link_fit_create(const struct profile_times *times, const struct cluster *c,
                                 const struct link_curve *prior) {
    struct link_fit *f = mem_alloc(sizeof *f);
    f->cluster = c;
    profile_each_comm(times, take_row, f);
    if (f->rows.n)
        qsort(f->rows.p, (size_t)f->rows.n, sizeof *f->rows.p, by_group);
    for (int64_t i = 0, end; i < f->rows.n; i = end)
        fit_kind(f, prior, i, end = run_end(f, i, false));
    for (int64_t i = 0, end; i < f->rows.n; i = end)
        add_series(f, &f->rows.p[i], (end = run_end(f, i, true)) - i);
    for (int k = 0; k < KINDS; k++) {
        enum opcode code = codes[k / 2];
        f->overlap[k] =
            profile_overlap_of(times, code == I_send ? "p2p" : opcode_name(code), k % 2);
    }
    f->cluster = NULL;
    return f;
}

void link_fit_destroy(struct link_fit *f) {
    if (!f)
        return;
    arr_release(&f->rows);
    arr_release(&f->series);
    free(f);
}

struct link_time link_fit_time(const struct link_fit *f, enum opcode code, int64_t size,
                               int64_t stride, int64_t bytes,
                               const struct link_class *link) {
    static const struct link_time unknown = {.us = -1};
    int kind = link_kind(code, link->cross);
    if (kind < 0 || !f->curves[kind].rows || !link->level ||
        (code == I_all_to_all ? link->pairs : link->bandwidth) <= 0)
        return unknown;
    const struct curve *c = &f->curves[kind];
    double at = fmax((double)bytes, 1);
    struct curve_shape s = link_shape(code, size, at, link);
    struct link_time t = {curve_us(NULL, c, &s), f->far[kind], f->overlap[kind]};
    for (int64_t i = 0; i < f->series.n; i++) {
        const struct series *k = &f->series.p[i];
        if (k->kind == kind &&
            (code == I_send || (k->size == size && k->stride == stride))) {
            double near, off = off_at(k, at, &near), line = line_us(k, at);
            t.us = line > 0 ? line : t.us * exp(off);
            t.within = near * k->within + (1 - near) * t.within;
        }
    }
    return t;
}
