/* Blocks that repeat: ops of modules that are numbered, and alike from one to the next. */
#include "import/build.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* The ops of one module of a list: layers.3. */
struct segment {
    const char *prefix;
    size_t prefix_size;
    int64_t number;
    int begin, ops;
};

struct repeats {
    struct build *b;
    ARR(struct segment) segments;
    int *segment_of; /* by place in the order; -1 */
    int *place_of;   /* of the program's ops, in the order; -1 */
    int *last_of;    /* the last place in the order that reads an op of the program; -1 */
};

static const struct found_op *op_at(const struct build *b, int at) {
    return &b->t->ops.p[b->order.p[at]];
}

/* The first number among the parts of a path: false where there is none. */
static bool find_number(const char *path, struct segment *s) {
    for (const char *p = path; *p;) {
        size_t n = strcspn(p, "."), digits = strspn(p, "0123456789");
        if (digits == n && n > 0 && n < 10 && p > path) {
            s->prefix = path;
            s->prefix_size = (size_t)(p - path - 1);
            s->number = strtol(p, NULL, 10);
            return true;
        }
        p += n + (p[n] == '.');
    }
    return false;
}

/* Of the module, or of a parameter where the program does not say it. */
static bool find_segment(const struct build *b, int at, struct segment *s) {
    const struct found_op *op = op_at(b, at);
    if (*op->path)
        return find_number(op->path, s);
    for (int i = 0; i < op->n_param; i++)
        if (build_path(b, op->param[i].param))
            return find_number(build_path(b, op->param[i].param), s);
    return false;
}

static bool same_module(const struct segment *a, const struct segment *b) {
    return a->prefix_size == b->prefix_size && a->number == b->number &&
           !strncmp(a->prefix, b->prefix, a->prefix_size);
}

/* Ops without a module stand in that of both their neighbours. */
static void cut_segments(struct repeats *r) {
    int n = (int)r->b->order.n, open = -1;
    for (int at = 0; at < n; at++) {
        struct segment s = {0};
        r->segment_of[at] = -1;
        if (!find_segment(r->b, at, &s)) {
            if (*op_at(r->b, at)->path)
                open = -1;
            continue;
        }
        struct segment *last = open >= 0 ? &r->segments.p[open] : NULL;
        if (last && same_module(last, &s)) {
            for (int k = last->begin + last->ops; k <= at; k++)
                r->segment_of[k] = open;
            last->ops = at + 1 - last->begin;
            continue;
        }
        s.begin = at;
        s.ops = 1;
        open = (int)r->segments.n;
        r->segment_of[at] = open;
        arr_push(&r->segments, s);
    }
}

/* Ops in no numbered module, from `at` on, at most `most`. */
static int count_loose(const struct repeats *r, int at, int most) {
    struct segment s;
    int n = 0;
    while (n < most && at + n < r->b->order.n && r->segment_of[at + n] < 0 &&
           !find_segment(r->b, at + n, &s))
        n++;
    return n;
}

/* What the module around does between two of its list belongs to the first, and behind the last as
 * much as behind the one before it. */
static void add_loose(struct repeats *r) {
    for (int64_t i = 0, gap = 0; i < r->segments.n; i++) {
        struct segment *s = &r->segments.p[i], *next = s + 1;
        bool list = i + 1 < r->segments.n && next->prefix_size == s->prefix_size &&
                    !strncmp(next->prefix, s->prefix, s->prefix_size);
        int end = s->begin + s->ops, between = list ? next->begin - end : (int)gap;
        gap = count_loose(r, end, between) == between ? between : 0;
        s->ops += (int)gap;
        gap = list ? gap : 0;
    }
}

/* ---- are two instances alike? ------------------------------------------------------------------------- */

static bool same_sizes(const struct build *b, const struct axis *p, const struct axis *q) {
    struct axis x = *p, y = *q;
    const struct axes *axes = &b->t->axes;
    if (axes_settle(axes, &x) < 0 || axes_settle(axes, &y) < 0 || x.n != y.n)
        return false;
    for (int i = 0; i < x.n; i++)
        if (axes->atoms.p[x.atom[i]].size != axes->atoms.p[y.atom[i]].size)
            return false;
    return true;
}

/* What follows the number in a path of the segment. */
static const char *rest_of(const struct segment *s, const char *path) {
    return strlen(path) > s->prefix_size ? strchr(path + s->prefix_size + 1, '.') : NULL;
}

static bool same_param(const struct repeats *r, const struct found_param *p,
                       const struct found_param *q, const struct segment *s,
                       const struct segment *u) {
    const char *a = build_path(r->b, p->param), *c = build_path(r->b, q->param);
    if (!a || !c)
        return !a && !c && same_sizes(r->b, &p->dims, &q->dims);
    const char *m = rest_of(s, a), *n = rest_of(u, c);
    if (p->param == q->param) /* all instances have it in common */
        return p->part < 0 && q->part < 0 && same_sizes(r->b, &p->dims, &q->dims);
    return p->index == q->index && (p->part < 0) == (q->part < 0) &&
           same_sizes(r->b, &p->dims, &q->dims) && m && n && !strcmp(m, n);
}

static bool same_op(const struct repeats *r, int p, int q, const struct segment *s,
                    const struct segment *u) {
    const struct found_op *a = op_at(r->b, p), *c = op_at(r->b, q);
    if (a->kind != c->kind || a->n_in != c->n_in || a->n_param != c->n_param ||
        !same_sizes(r->b, &a->dims, &c->dims) || !a->attrs != !c->attrs ||
        (a->attrs && !json_equal(a->attrs, c->attrs)))
        return false;
    for (int i = 0; i < a->n_param; i++)
        if (!same_param(r, &a->param[i], &c->param[i], s, u))
            return false;
    return true;
}

/* Where an operand comes from, seen from a segment: a place in it, in the one before, or elsewhere. */
struct origin {
    enum { INSIDE, CARRIED, OUTSIDE } from;
    int at; /* a place; OUTSIDE: the program's op */
};

static struct origin origin_of(const struct repeats *r, const struct segment *s,
                               const struct segment *before, int op) {
    int place = r->place_of[op];
    if (place >= s->begin && place < s->begin + s->ops)
        return (struct origin){INSIDE, place - s->begin};
    if (before && place >= before->begin && place < before->begin + before->ops)
        return (struct origin){CARRIED, place - before->begin};
    return (struct origin){OUTSIDE, op};
}

/* Is the second of two neighbours like the first of the run, and reads what that one hands on? The
 * first reads the same from elsewhere: run->carried says from where. */
static bool same_origins(const struct repeats *r, struct run *run, int first, int i) {
    const struct segment *s = &r->segments.p[first], *u = &r->segments.p[i];
    for (int k = 0; k < s->ops; k++) {
        const struct found_op *a = op_at(r->b, s->begin + k),
                              *c = op_at(r->b, u->begin + k);
        for (int x = 0; x < a->n_in; x++) {
            struct origin p = origin_of(r, s, NULL, a->in[x]),
                          q = origin_of(r, u, u - 1, c->in[x]);
            if (q.from != CARRIED) {
                if (p.from != q.from || p.at != q.at)
                    return false;
                continue;
            }
            int64_t j = 0;
            while (j < run->carried.n && run->carried.p[j].place != q.at)
                j++;
            if (p.from != OUTSIDE ||
                (j < run->carried.n && run->carried.p[j].first != p.at))
                return false;
            if (j == run->carried.n && i > first + 1)
                return false;
            if (j == run->carried.n)
                arr_push(&run->carried, (struct carried){.place = q.at, .first = p.at});
        }
    }
    return true;
}

static bool alike(const struct repeats *r, struct run *run, int first, int i) {
    const struct segment *s = &r->segments.p[first], *u = &r->segments.p[i];
    if (s->ops != u->ops || s->prefix_size != u->prefix_size ||
        strncmp(s->prefix, u->prefix, s->prefix_size) != 0 ||
        u[-1].number + 1 != u->number || u[-1].begin + u[-1].ops != u->begin)
        return false;
    for (int k = 0; k < s->ops; k++)
        if (!same_op(r, s->begin + k, u->begin + k, s, u))
            return false;
    return same_origins(r, run, first, i);
}

/* Does an op that is in none of the two segments read a result of the first? Then it is the last of
 * its run. */
static bool is_read_later(const struct repeats *r, int segment) {
    const struct segment *s = &r->segments.p[segment];
    for (int k = 0; k < s->ops; k++)
        if (r->last_of[r->b->order.p[s->begin + k]] >= s->begin + 2 * s->ops)
            return true;
    return false;
}

/* ---- a run -------------------------------------------------------------------------------------------- */

static void unify_lists(struct build *b, struct axis p, struct axis q) {
    axes_unify(&b->t->axes, &p, &q);
}

/* What stands at one place has the same dims in every instance. */
static void unify_run(struct repeats *r, const struct run *run) {
    for (int i = 1; i < run->instances; i++)
        for (int k = 0; k < run->ops; k++) {
            const struct found_op *a = op_at(r->b, run->begin + k),
                                  *c = op_at(r->b, run->begin + i * run->ops + k);
            unify_lists(r->b, a->dims, c->dims);
            for (int x = 0; x < a->n_param; x++) {
                unify_lists(r->b, a->param[x].dims, c->param[x].dims);
                if (a->param[x].part >= 0)
                    unify_lists(r->b, axis_of(a->param[x].part), axis_of(c->param[x].part));
            }
        }
}

/* Is the value that the first instance reads read behind it, under the name that goes on? */
static bool needs_lead(const struct repeats *r, const struct run *run,
                       const struct carried *c) {
    if (r->b->t->ops.p[c->first].kind == FOUND_INPUT)
        return true;
    for (int64_t j = 0; j < run->carried.n; j++)
        if (&run->carried.p[j] != c && run->carried.p[j].first == c->first)
            return true;
    int place = r->place_of[c->first];
    for (int64_t i = 0; i < r->b->runs.n; i++) {
        const struct run *other = &r->b->runs.p[i];
        if (other != run && place >= other->begin &&
            place < other->begin + other->ops * other->instances)
            return true;
    }
    return r->last_of[c->first] >= run->begin + run->ops;
}

/* Does the block read what it got after it has made what it hands on? */
static bool needs_trail(const struct repeats *r, const struct run *run,
                        const struct carried *c) {
    for (int k = c->place; k < run->ops; k++)
        for (int x = 0; k > c->place && x < op_at(r->b, run->begin + k)->n_in; x++)
            if (op_at(r->b, run->begin + k)->in[x] == c->first)
                return true;
    return false;
}

static void add_run(struct repeats *r, struct run *run, int first, int count) {
    const struct segment *s = &r->segments.p[first];
    run->prefix = arena_printf(&r->b->t->arena, "%.*s", (int)s->prefix_size, s->prefix);
    run->number = s->number;
    run->begin = s->begin;
    run->ops = s->ops;
    run->instances = count;
    for (int k = 0; k < count * s->ops; k++) {
        struct found_op *op = &r->b->t->ops.p[r->b->order.p[s->begin + k]];
        op->run = (int)r->b->runs.n;
        op->instance = k / s->ops;
        op->place = k % s->ops;
    }
    unify_run(r, run);
    arr_push(&r->b->runs, *run);
}

struct run *build_run_at(struct build *b, int at) {
    int run = op_at(b, at)->run;
    return run >= 0 ? &b->runs.p[run] : NULL;
}

void build_repeats(struct build *b) {
    struct repeats r = {.b = b};
    r.segment_of = mem_array((size_t)b->order.n + 1, sizeof *r.segment_of);
    r.place_of = mem_array((size_t)b->t->ops.n + 1, sizeof *r.place_of);
    r.last_of = mem_array((size_t)b->t->ops.n + 1, sizeof *r.last_of);
    for (int64_t i = 0; i < b->t->ops.n; i++)
        r.place_of[i] = r.last_of[i] = -1;
    for (int at = 0; at < b->order.n; at++) {
        r.place_of[b->order.p[at]] = at;
        for (int x = 0; x < op_at(b, at)->n_in; x++) {
            int in = op_at(b, at)->in[x];
            const struct found_op *op = &b->t->ops.p[in];
            r.last_of[op->kind == FOUND_SECOND ? op->in[0] : in] = at;
        }
    }
    for (int64_t i = 0; i < b->t->ops.n; i++)
        if (b->t->ops.p[i].kind == FOUND_SECOND)
            r.place_of[i] = r.place_of[b->t->ops.p[i].in[0]];
    cut_segments(&r);
    add_loose(&r);
    for (int i = 0; i < r.segments.n;) {
        struct run run = {0};
        int n = 1;
        while (i + n < r.segments.n && alike(&r, &run, i, i + n) &&
               (n == 1 || !is_read_later(&r, i + n - 2)))
            n++;
        if (n > 1)
            add_run(&r, &run, i, n);
        else
            arr_release(&run.carried);
        i += n;
    }
    for (int64_t i = 0; i < b->runs.n; i++)
        for (int64_t j = 0; j < b->runs.p[i].carried.n; j++) {
            struct run *run = &b->runs.p[i];
            run->carried.p[j].lead = needs_lead(&r, run, &run->carried.p[j]);
            run->carried.p[j].trail = needs_trail(&r, run, &run->carried.p[j]);
        }
    arr_release(&r.segments);
    free(r.segment_of);
    free(r.place_of);
    free(r.last_of);
}
