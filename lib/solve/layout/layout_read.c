/* layout_read.c - layout problems from JSON: the contest's form and Alpa's solver calls.
 *
 * Contest (google/iopddl): problem{name, nodes{intervals, costs, usages}, edges{nodes,
 * costs}, usage_limit}; alias{nodes, excluded} may be added: pairs that exclude each other.
 * Alpa (auto_sharding.py, _call_solver_serialized_args): s_len, s_follow, edges, edge_cost,
 * alias, alias_cost, live, compute_cost + comm_cost, memory_cost, memory_budget. Followers
 * and alias pairs become edges with forbidden entries, lists of live nodes become
 * intervals.
 *
 * Keys come in any order, so the arrays are first read into tables, packed, and put
 * together after the end of the document. Equal matrices are kept once.
 *
 * Numbers that are not whole are scaled by a power of two, chosen when all are known: the
 * float32 costs of Alpa become exact integers. What cannot be exact is rounded down (costs;
 * cost_error bounds the sum of it) or up (usages), so that bounds stay true.
 */
#include "solve/layout/layout.h"

#include "common/mem.h"
#include "solve/layout/layout_doc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BITS 40 /* a finer scale than 2^-40 is not tried */

/* What is known about the costs, or the usages, before they are scaled. */
struct scale {
    int bits;      /* fraction bits that make all numbers whole, at most MOST_BITS + 1 */
    double sum;    /* of the largest number of each array */
    double factor; /* 2^bits that was chosen */
    bool exact;
};

struct reader {
    struct layout_doc d;
    struct scale cost, usage;
};

/* ---- scales ------------------------------------------------------------------------ */

/* Returns how many bits below the binary point x uses. */
static int fraction_bits(double x) {
    int e;
    int64_t m = (int64_t)ldexp(frexp(x, &e), 53), used = 53;
    for (; m && !(m & 1); m >>= 1)
        used--;
    return m ? (int)used - e : 0;
}

static void scale_table(struct scale *s, const struct layout_table *t) {
    for (int64_t at = 0; at < t->real.n; at++) {
        double x = layout_table_value(t, at);
        if (!t->real.p[at] || x >= (double)LAYOUT_FORBIDDEN || s->bits > MOST_BITS)
            continue;
        int bits = fraction_bits(x);
        bits = bits > MOST_BITS ? MOST_BITS + 1 : bits;
        s->bits = bits > s->bits ? bits : s->bits;
    }
}

/* Adds the largest number of a row that does not forbid. */
static int add_row(struct scale *s, const struct layout_table *t, int64_t r,
                   struct err *err) {
    const struct layout_row *row = &t->row.p[r];
    double most = 0;
    for (int64_t i = 0; i < row->n; i++) {
        double x = layout_table_value(t, row->begin + i);
        most = x > most && x < (double)LAYOUT_FORBIDDEN ? x : most;
    }
    s->sum += most;
    if (s->sum < (double)LAYOUT_SUM_MAX)
        return 0;
    return err_input(
        err,
        "%s[%lld]: the sum of the largest %s up to here is %.17g: it overflows "
        "the %.17g that sums may reach",
        t->name, (long long)r, strstr(t->name, "cost") ? "costs" : "usages", s->sum,
        (double)LAYOUT_SUM_MAX);
}

static void scale_choose(struct scale *s) {
    int bits = s->bits > MOST_BITS ? MOST_BITS : s->bits;
    while (bits > 0 && ldexp(s->sum, bits) >= (double)LAYOUT_SUM_MAX)
        bits--;
    s->factor = ldexp(1, bits);
    s->exact = bits >= s->bits;
}

static int64_t scaled(const struct scale *s, double x, bool up) {
    if (x >= (double)LAYOUT_FORBIDDEN)
        return (int64_t)x;
    return (int64_t)(up ? ceil(x * s->factor) : floor(x * s->factor));
}

static int64_t scaled_at(const struct layout_table *t, int64_t at, const struct scale *s,
                         bool up) {
    if (!layout_table_whole(t, at))
        return scaled(s, layout_table_value(t, at), up);
    int64_t n = t->number.p[at];
    return n >= LAYOUT_FORBIDDEN ? n : n * (int64_t)s->factor;
}

/* ---- nodes and edges ---------------------------------------------------------------- */

static int64_t n_strategies(const struct layout_problem *p, int64_t i) {
    return p->first[i + 1] - p->first[i];
}

/* Checks that row r has as many entries as the node has strategies. */
static int same_length(const struct layout_table *t, int64_t r, int64_t n,
                       struct err *err) {
    if (t->row.p[r].n == n)
        return 0;
    return err_input(err, "%s[%lld]: expected %lld entries, got %lld", t->name,
                     (long long)r, (long long)n, (long long)t->row.p[r].n);
}

static int check_nodes(struct layout_problem *p, struct reader *in, struct err *err) {
    int64_t n = in->d.costs.row.n;
    if (n > 100000000)
        return err_input(err, "%s: %lld nodes are too many", in->d.costs.name,
                         (long long)n);
    if ((in->d.more_costs.name &&
         layout_table_expect(&in->d.more_costs, in->d.more_costs.name, n, err) < 0) ||
        layout_table_expect(&in->d.usages, in->d.usages.name, n, err) < 0)
        return -1;
    p->n_nodes = (int32_t)n;
    p->first = mem_array((size_t)n + 1, sizeof *p->first);
    for (int64_t i = 0; i < n; i++) {
        int64_t k = in->d.costs.row.p[i].n;
        if (add_row(&in->cost, &in->d.costs, i, err) < 0 ||
            (in->d.more_costs.name &&
             (same_length(&in->d.more_costs, i, k, err) < 0 ||
              add_row(&in->cost, &in->d.more_costs, i, err) < 0)) ||
            same_length(&in->d.usages, i, k, err) < 0 ||
            add_row(&in->usage, &in->d.usages, i, err) < 0)
            return -1;
        p->first[i + 1] = p->first[i] + k;
    }
    return 0;
}

/* Checks the edges of a table of pairs and appends them with their matrices. */
static int check_edges(struct layout_problem *p, struct layout_table *ends,
                       struct layout_table *matrices, struct scale *cost, struct err *err) {
    for (int64_t r = 0; r < ends->row.n; r++) {
        int64_t u, v;
        if (ends->row.p[r].n != 2)
            return err_input(err, "%s[%lld]: expected two whole numbers", ends->name,
                             (long long)r);
        if (layout_table_int(ends, r, 0, 0, p->n_nodes - 1, &u, err) < 0 ||
            layout_table_int(ends, r, 1, 0, p->n_nodes - 1, &v, err) < 0)
            return -1;
        int64_t ku = n_strategies(p, u), kv = n_strategies(p, v);
        if (matrices->row.p[r].n != ku * kv)
            return err_input(err, "%s[%lld]: expected %lld x %lld entries, got %lld",
                             matrices->name, (long long)r, (long long)ku, (long long)kv,
                             (long long)matrices->row.p[r].n);
        if (cost && add_row(cost, matrices, r, err) < 0)
            return -1;
        p->ends[p->n_edges][0] = (int32_t)u;
        p->ends[p->n_edges][1] = (int32_t)v;
        p->entry[p->n_edges++] = matrices->row.p[r].begin;
    }
    return 0;
}

/* Scales the matrices of the edges in place, and appends those of alias pairs, which forbid
 * entries. */
static void fill_matrices(struct layout_problem *p, struct reader *in, int64_t costs) {
    struct layout_table *t = &in->d.matrices, *x = &in->d.excluded;
    for (int64_t at = 0; at < t->number.n; at++)
        t->number.p[at] = scaled_at(t, at, &in->cost, false);
    int64_t before = t->number.n;
    for (int64_t at = 0; at < x->number.n; at++)
        arr_push(&t->number, layout_table_value(x, at) > 0.5 ? 2 * LAYOUT_FORBIDDEN : 0);
    for (int64_t e = costs; e < p->n_edges; e++)
        p->entry[e] += before;
}

/* Adds Alpa's "follow": node i takes the same strategy as follow[i]. */
static int add_follow(struct layout_problem *p, struct reader *in, struct err *err) {
    struct layout_table *t = &in->d.matrices;
    int64_t n = in->d.follow.row.n ? in->d.follow.row.p[0].n : 0;
    if (in->d.follow.name && n != p->n_nodes)
        return err_input(err, "s_follow: expected %d entries, got %lld", (int)p->n_nodes,
                         (long long)n);
    for (int64_t i = 0; i < n; i++) {
        double f = layout_table_value(&in->d.follow, i);
        if (f != floor(f) || f < -1 || f >= p->n_nodes)
            return err_input(err, "s_follow[%lld]: %.17g is not in -1..%d", (long long)i, f,
                             (int)p->n_nodes - 1);
        int64_t j = (int64_t)f, k = n_strategies(p, i);
        if (j < 0 || j == i)
            continue;
        if (n_strategies(p, j) != k)
            return err_input(
                err, "s_follow[%lld]: node %lld has %lld strategies, node %lld has %lld",
                (long long)i, (long long)i, (long long)k, (long long)j,
                (long long)n_strategies(p, j));
        int64_t e = p->n_edges++;
        p->ends[e][0] = (int32_t)i;
        p->ends[e][1] = (int32_t)j;
        p->entry[e] = t->number.n;
        for (int64_t s = 0; s < k * k; s++)
            arr_push(&t->number, s / k == s % k ? 0 : 2 * LAYOUT_FORBIDDEN);
    }
    return 0;
}

static void fill_nodes(struct layout_problem *p, const struct reader *in) {
    size_t total = (size_t)p->first[p->n_nodes];
    p->cost = mem_array(total + 1, sizeof *p->cost);
    p->usage = mem_array(total + 1, sizeof *p->usage);
    for (int32_t i = 0; i < p->n_nodes; i++)
        for (int64_t a = 0; a < n_strategies(p, i); a++) {
            int64_t at = p->first[i] + a;
            p->cost[at] =
                scaled_at(&in->d.costs, in->d.costs.row.p[i].begin + a, &in->cost, false);
            if (in->d.more_costs.name)
                p->cost[at] +=
                    scaled_at(&in->d.more_costs, in->d.more_costs.row.p[i].begin + a,
                              &in->cost, false);
            if (p->cost[at] > LAYOUT_MAX)
                p->cost[at] = LAYOUT_MAX;
            p->usage[at] =
                scaled_at(&in->d.usages, in->d.usages.row.p[i].begin + a, &in->usage, true);
        }
}

static int put_together(struct layout_problem *p, struct reader *in, struct err *err) {
    if (check_nodes(p, in, err) < 0)
        return -1;
    int64_t edges = in->d.ends.row.n, aliases = in->d.alias.row.n;
    if (layout_table_expect(&in->d.matrices, in->d.matrices.name, edges, err) < 0 ||
        (in->d.alias.name &&
         layout_table_expect(&in->d.excluded,
                             in->d.lens.name ? "alias_cost" : "alias.excluded", aliases,
                             err) < 0))
        return -1;
    size_t most = (size_t)(edges + aliases) + (in->d.follow.name ? (size_t)p->n_nodes : 0);
    p->ends = mem_array(most + 1, sizeof *p->ends);
    p->entry = mem_array(most + 1, sizeof *p->entry);
    if (check_edges(p, &in->d.ends, &in->d.matrices, &in->cost, err) < 0 ||
        check_edges(p, &in->d.alias, &in->d.excluded, NULL, err) < 0)
        return -1;
    scale_table(&in->cost, &in->d.costs);
    scale_table(&in->cost, &in->d.more_costs);
    scale_table(&in->cost, &in->d.matrices);
    scale_table(&in->usage, &in->d.usages);
    scale_choose(&in->cost);
    scale_choose(&in->usage);
    fill_nodes(p, in);
    fill_matrices(p, in, edges);
    if (add_follow(p, in, err) < 0)
        return -1;
    p->edge_cost = in->d.matrices.number.p; /* taken over */
    p->n_entries = in->d.matrices.number.n;
    in->d.matrices.number.p = NULL;
    p->cost_unit = 1 / in->cost.factor;
    p->usage_unit = 1 / in->usage.factor;
    p->cost_error = in->cost.exact ? 0 : 2.0 * p->n_nodes + (double)p->n_edges;
    return 0;
}

/* ---- the rest ------------------------------------------------------------------------ */

static int fill_limit(struct layout_problem *p, const struct reader *in,
                      const json_t *limit, const char *name, bool negative_is_none,
                      struct err *err) {
    p->usage_limit = LAYOUT_NO_LIMIT;
    if (json_is_null(limit))
        return 0;
    if (!json_is_number(limit))
        return err_input(err, "%s: expected a number, got %s", name, json_type_name(limit));
    double x = json_number_value(limit);
    if (x < 0 && negative_is_none)
        return 0;
    if (!isfinite(x) || x < 0)
        return err_input(err, "%s: expected a finite number >= 0, got %.17g", name, x);
    if (x * in->usage.factor >= (double)LAYOUT_SUM_MAX)
        return 0; /* more than all sums */
    p->usage_limit = json_is_integer(limit)
                         ? json_integer_value(limit) * (int64_t)in->usage.factor
                         : scaled(&in->usage, x, false);
    return 0;
}

static int fill_name(struct layout_problem *p, const json_t *name, const char *key,
                     struct err *err) {
    if (name && !json_is_string(name))
        return err_input(err, "%s: expected a string, got %s", key, json_type_name(name));
    p->name = mem_strdup(name ? json_string_value(name) : "");
    return 0;
}

static int fill_intervals(struct layout_problem *p, const struct reader *in,
                          struct err *err) {
    const struct layout_table *t = &in->d.intervals;
    const int64_t most = INT64_C(1) << 53;
    if (layout_table_expect(t, "nodes.intervals", p->n_nodes, err) < 0)
        return -1;
    p->live = mem_array((size_t)p->n_nodes + 1, sizeof *p->live);
    for (int32_t i = 0; i < p->n_nodes; i++) {
        int64_t lo, hi;
        if (t->row.p[i].n != 2)
            return err_input(err, "nodes.intervals[%d]: expected two whole numbers",
                             (int)i);
        if (layout_table_int(t, i, 0, -most, most, &lo, err) < 0 ||
            layout_table_int(t, i, 1, -most, most, &hi, err) < 0)
            return -1;
        if (lo < hi)
            p->live[p->n_live++] = (struct layout_live){i, lo, hi};
    }
    return 0;
}

/* Alpa lists the live nodes of each time; runs of times become intervals. */
static int fill_live(struct layout_problem *p, const struct reader *in, struct err *err) {
    const struct layout_table *t = &in->d.live;
    if (layout_table_expect(t, "live", -1, err) < 0)
        return -1;
    ARR(struct layout_live) live = {0};
    int64_t *last = mem_array((size_t)p->n_nodes + 1, sizeof *last); /* 1 + index in live */
    int rc = 0;
    for (int64_t r = 0; r < t->row.n && rc == 0; r++)
        for (int64_t s = 0; s < t->row.p[r].n && rc == 0; s++) {
            int64_t i;
            rc = layout_table_int(t, r, s, 0, p->n_nodes - 1, &i, err);
            int64_t l = rc < 0 ? -1 : last[i] - 1;
            if (rc < 0)
                break;
            if (l >= 0 && live.p[l].hi >= r) { /* goes on, or listed twice */
                live.p[l].hi = r + 1;
                continue;
            }
            last[i] = live.n + 1;
            arr_push(&live, (struct layout_live){(int32_t)i, r, r + 1});
        }
    free(last);
    p->live = live.p;
    p->n_live = live.n;
    return rc;
}

static int read_contest(struct layout_problem *p, struct reader *in, struct err *err) {
    if (!in->d.costs.name && !in->d.usages.name && !in->d.intervals.name)
        return err_input(err, "nodes: missing (expected an object)");
    if (!in->d.ends.name && !in->d.matrices.name)
        return err_input(err, "edges: missing (expected an object)");
    if (layout_table_expect(&in->d.costs, "nodes.costs", -1, err) < 0 ||
        layout_table_expect(&in->d.usages, "nodes.usages", -1, err) < 0 ||
        layout_table_expect(&in->d.ends, "edges.nodes", -1, err) < 0 ||
        layout_table_expect(&in->d.matrices, "edges.costs", -1, err) < 0)
        return -1;
    if (put_together(p, in, err) < 0 || fill_intervals(p, in, err) < 0 ||
        fill_name(p, in->d.name, "name", err) < 0)
        return -1;
    return fill_limit(p, in, in->d.limit, "usage_limit", false, err);
}

static int read_alpa(struct layout_problem *p, struct reader *in, struct err *err) {
    if (layout_table_expect(&in->d.costs, "compute_cost", -1, err) < 0 ||
        layout_table_expect(&in->d.more_costs, "comm_cost", -1, err) < 0 ||
        layout_table_expect(&in->d.usages, "memory_cost", -1, err) < 0 ||
        layout_table_expect(&in->d.ends, "edges", -1, err) < 0 ||
        layout_table_expect(&in->d.matrices, "edge_cost", -1, err) < 0)
        return -1;
    int64_t lens = in->d.lens.row.p[0].n;
    if (lens != in->d.costs.row.n)
        return err_input(err, "s_len: expected %lld entries, got %lld",
                         (long long)in->d.costs.row.n, (long long)lens);
    for (int64_t i = 0; i < lens; i++)
        if (layout_table_value(&in->d.lens, i) != (double)in->d.costs.row.p[i].n)
            return err_input(err, "s_len[%lld]: compute_cost[%lld] has %lld entries",
                             (long long)i, (long long)i, (long long)in->d.costs.row.p[i].n);
    if (put_together(p, in, err) < 0 || fill_live(p, in, err) < 0 ||
        fill_name(p, in->d.test, "test", err) < 0)
        return -1;
    return fill_limit(p, in, in->d.budget, "memory_budget", true, err);
}

int layout_read(struct layout_problem *p, struct json_stream *s, struct err *err) {
    struct reader in = {0};
    *p = (struct layout_problem){0};
    int rc = layout_doc_read(&in.d, s, err);
    if (rc == 0)
        rc = in.d.lens.name ? read_alpa(p, &in, err) : read_contest(p, &in, err);
    layout_doc_release(&in.d);
    if (rc == 0)
        return 0;
    layout_problem_release(p);
    return s->failed ? -1 : err_prefix(err, "%s", s->name);
}
