/* layout_read.c - layout problems from JSON: the contest's form and Alpa's solver calls.
 *
 * Contest (google/iopddl): problem{name, nodes{intervals, costs, usages}, edges{nodes,
 * costs}, usage_limit}; alias{nodes, excluded} may be added: pairs that exclude each other.
 * Alpa (auto_sharding.py, _call_solver_serialized_args): s_len, s_follow, edges, edge_cost,
 * alias, alias_cost, live, compute_cost + comm_cost, memory_cost, memory_budget. Followers
 * and alias pairs become edges with forbidden entries, lists of live nodes become
 * intervals.
 *
 * Numbers that are not whole are scaled by a power of two, chosen in a first pass: the
 * float32 costs of Alpa become exact integers. What cannot be exact is rounded down (costs;
 * cost_error bounds the sum of it) or up (usages), so that bounds stay true.
 */
#include "solve/layout.h"

#include "common/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SUM_MAX   (INT64_C(1) << 57) /* sums of costs, and of usages, stay below this */
#define MOST_BITS 40                 /* a finer scale than 2^-40 is not tried */

/* What the first pass finds out about the costs (or the usages). */
struct scale {
    int bits;      /* fraction bits that make all numbers whole, at most MOST_BITS + 1 */
    double sum;    /* of the largest number of each array */
    double factor; /* 2^bits that was chosen */
    bool exact;
};

static void scale_number(struct scale *s, double x) {
    int e;
    double m = fabs(frexp(x, &e));
    /* m in [0.5, 1) has 53 bits; count those in use below the binary point. */
    int used = 53;
    for (double y = ldexp(m, 53); used > 0 && fmod(y, 2) == 0 && y > 0; y /= 2)
        used--;
    int bits = x == 0 ? 0 : used - e;
    if (bits > MOST_BITS)
        bits = MOST_BITS + 1;
    s->bits = bits > s->bits ? bits : s->bits;
}

/* Checks that v is an array of n numbers (n < 0: any) that are >= 0; adds to the scale. */
static int scan_array(const json_t *v, int64_t n, struct scale *s, struct err *err) {
    if (!json_is_array(v))
        return err_input(err, ": expected an array, got %s", json_type_name(v));
    if (n >= 0 && (int64_t)json_array_size(v) != n)
        return err_input(err, ": expected %lld entries, got %zu", (long long)n,
                         json_array_size(v));
    double most = 0;
    size_t i;
    json_t *x;
    json_array_foreach((json_t *)v, i, x) {
        if (!json_is_number(x))
            return err_input(err, "[%zu]: expected a number, got %s", i, json_type_name(x));
        double y = json_number_value(x);
        if (!isfinite(y) || y < 0)
            return err_input(err, "[%zu]: expected a finite number >= 0, got %.17g", i, y);
        if (y > (double)LAYOUT_MAX)
            return err_input(err, "[%zu]: %.17g is above 2e18 (10^18 forbids a choice)", i,
                             y);
        if (json_is_real(x) && y < (double)LAYOUT_FORBIDDEN)
            scale_number(s, y);
        if (y < (double)LAYOUT_FORBIDDEN && y > most)
            most = y;
    }
    s->sum += most;
    return 0;
}

/* "nodes.costs" + "[3]" + ": expected ..." */
static int located(struct err *err, const char *what, size_t i) {
    if (!err)
        return -1;
    char text[sizeof err->msg];
    snprintf(text, sizeof text, "%.900s", err->msg);
    return err_input(err, "%s[%zu]%s", what, i, text);
}

static int too_much(struct scale *s, const char *what, size_t i, struct err *err) {
    if (s->sum < (double)SUM_MAX)
        return 0;
    return err_input(err,
                     "%s[%zu]: the sum of the largest %s up to here is %.17g: it overflows "
                     "the %.17g that sums may reach",
                     what, i, strstr(what, "cost") ? "costs" : "usages", s->sum,
                     (double)SUM_MAX);
}

static void scale_choose(struct scale *s) {
    int bits = s->bits > MOST_BITS ? MOST_BITS : s->bits;
    while (bits > 0 && ldexp(s->sum, bits) >= (double)SUM_MAX)
        bits--;
    s->factor = ldexp(1, bits);
    s->exact = bits >= s->bits;
}

static int64_t scaled(const json_t *x, const struct scale *s, bool up) {
    if (json_is_integer(x)) {
        int64_t n = json_integer_value(x);
        return n >= LAYOUT_FORBIDDEN ? n : n * (int64_t)s->factor;
    }
    double y = json_real_value(x);
    if (y >= (double)LAYOUT_FORBIDDEN)
        return (int64_t)y;
    y *= s->factor;
    return (int64_t)(up ? ceil(y) : floor(y));
}

static const json_t *item(const json_t *array, size_t i) {
    return json_array_get(array, i);
}

static int whole(const json_t *v, int64_t lo, int64_t hi, int64_t *out, struct err *err) {
    double y = json_number_value(v);
    if (!json_is_number(v) || y != floor(y))
        return err_input(err, ": expected a whole number, got %s", json_type_name(v));
    if (y < (double)lo || y > (double)hi)
        return err_input(err, ": %.17g is not in %lld..%lld", y, (long long)lo,
                         (long long)hi);
    *out = json_is_integer(v) ? json_integer_value(v) : (int64_t)y;
    return 0;
}

/* Two whole numbers. */
static int pair(const json_t *v, int64_t lo, int64_t hi, int64_t out[2], struct err *err) {
    if (!json_is_array(v) || json_array_size(v) != 2)
        return err_input(err, ": expected two whole numbers");
    for (size_t s = 0; s < 2; s++)
        if (whole(item(v, s), lo, hi, &out[s], err) < 0)
            return -1;
    return 0;
}

/* The arrays of a document, under the names they have there. */
struct doc {
    const json_t *costs, *more_costs, *usages, *ends, *edge_costs, *alias, *excluded,
        *follow;
    const char *costs_name, *more_name, *usages_name, *ends_name, *edge_name, *alias_name,
        *excluded_name;
    struct scale cost, usage;
};

static int want_array(const json_t *v, const char *name, int64_t n, struct err *err) {
    if (!json_is_array(v))
        return err_input(err, "%s: expected an array, got %s", name, json_type_name(v));
    if (n >= 0 && (int64_t)json_array_size(v) != n)
        return err_input(err, "%s: expected %lld entries, got %zu", name, (long long)n,
                         json_array_size(v));
    return 0;
}

static int scan_nodes(struct layout_problem *p, struct doc *d, struct err *err) {
    if (want_array(d->costs, d->costs_name, -1, err) < 0)
        return -1;
    size_t n = json_array_size(d->costs);
    if (n > 100000000)
        return err_input(err, "%s: %zu nodes are too many", d->costs_name, n);
    if ((d->more_costs && want_array(d->more_costs, d->more_name, (int64_t)n, err) < 0) ||
        want_array(d->usages, d->usages_name, (int64_t)n, err) < 0)
        return -1;
    p->n_nodes = (int32_t)n;
    p->first = mem_array(n + 1, sizeof *p->first);
    for (size_t i = 0; i < n; i++) {
        if (scan_array(item(d->costs, i), -1, &d->cost, err) < 0)
            return located(err, d->costs_name, i);
        int64_t k = (int64_t)json_array_size(item(d->costs, i));
        if (d->more_costs && scan_array(item(d->more_costs, i), k, &d->cost, err) < 0)
            return located(err, d->more_name, i);
        if (scan_array(item(d->usages, i), k, &d->usage, err) < 0)
            return located(err, d->usages_name, i);
        if (too_much(&d->cost, d->costs_name, i, err) < 0 ||
            too_much(&d->usage, d->usages_name, i, err) < 0)
            return -1;
        p->first[i + 1] = p->first[i] + k;
    }
    return 0;
}

static int64_t n_strategies(const struct layout_problem *p, int64_t i) {
    return p->first[i + 1] - p->first[i];
}

static int scan_edges(struct layout_problem *p, struct doc *d, struct err *err) {
    if (want_array(d->ends, d->ends_name, -1, err) < 0)
        return -1;
    size_t n = json_array_size(d->ends);
    size_t aliases = d->alias ? json_array_size(d->alias) : 0;
    if (want_array(d->edge_costs, d->edge_name, (int64_t)n, err) < 0 ||
        (d->alias &&
         (want_array(d->alias, d->alias_name, -1, err) < 0 ||
          want_array(d->excluded, d->excluded_name, (int64_t)aliases, err) < 0)))
        return -1;
    size_t most = n + aliases + (d->follow ? (size_t)p->n_nodes : 0);
    p->ends = mem_array(most + 1, sizeof *p->ends);
    p->entry = mem_array(most + 2, sizeof *p->entry);
    struct scale unused = {0};
    for (size_t e = 0; e < n + aliases; e++) {
        bool alias = e >= n;
        size_t at = alias ? e - n : e;
        const char *name = alias ? d->alias_name : d->ends_name;
        const char *matrix = alias ? d->excluded_name : d->edge_name;
        const json_t *m = item(alias ? d->excluded : d->edge_costs, at);
        int64_t uv[2];
        if (pair(item(alias ? d->alias : d->ends, at), 0, p->n_nodes - 1, uv, err) < 0)
            return located(err, name, at);
        int64_t ku = n_strategies(p, uv[0]), kv = n_strategies(p, uv[1]);
        if (json_is_array(m) && (int64_t)json_array_size(m) != ku * kv)
            return err_input(err, "%s[%zu]: expected %lld x %lld entries, got %zu", matrix,
                             at, (long long)ku, (long long)kv, json_array_size(m));
        if (scan_array(m, ku * kv, alias ? &unused : &d->cost, err) < 0)
            return located(err, matrix, at);
        if (too_much(&d->cost, d->edge_name, at, err) < 0)
            return -1;
        p->ends[e][0] = (int32_t)uv[0];
        p->ends[e][1] = (int32_t)uv[1];
        p->entry[e + 1] = p->entry[e] + ku * kv;
    }
    p->n_edges = (int64_t)(n + aliases);
    return 0;
}

/* "Follow" of Alpa: node i takes the same strategy as follow[i]. */
static int scan_follow(struct layout_problem *p, const json_t *follow, struct err *err) {
    if (!follow)
        return 0;
    if (want_array(follow, "s_follow", p->n_nodes, err) < 0)
        return -1;
    for (int32_t i = 0; i < p->n_nodes; i++) {
        int64_t f;
        if (whole(item(follow, (size_t)i), -1, p->n_nodes - 1, &f, err) < 0)
            return located(err, "s_follow", (size_t)i);
        if (f < 0 || f == i)
            continue;
        if (n_strategies(p, f) != n_strategies(p, i))
            return err_input(
                err, "s_follow[%d]: node %d has %lld strategies, node %lld has %lld",
                (int)i, (int)i, (long long)n_strategies(p, i), (long long)f,
                (long long)n_strategies(p, f));
        int64_t e = p->n_edges++;
        p->ends[e][0] = i;
        p->ends[e][1] = (int32_t)f;
        p->entry[e + 1] = p->entry[e] + n_strategies(p, f) * n_strategies(p, f);
    }
    return 0;
}

static void fill_nodes(struct layout_problem *p, const struct doc *d) {
    size_t total = (size_t)p->first[p->n_nodes];
    p->cost = mem_array(total + 1, sizeof *p->cost);
    p->usage = mem_array(total + 1, sizeof *p->usage);
    for (int32_t i = 0; i < p->n_nodes; i++)
        for (int64_t a = 0; a < n_strategies(p, i); a++) {
            size_t at = (size_t)(p->first[i] + a), s = (size_t)a, n = (size_t)i;
            p->cost[at] = scaled(item(item(d->costs, n), s), &d->cost, false);
            if (d->more_costs)
                p->cost[at] += scaled(item(item(d->more_costs, n), s), &d->cost, false);
            if (p->cost[at] > LAYOUT_MAX)
                p->cost[at] = LAYOUT_MAX;
            p->usage[at] = scaled(item(item(d->usages, n), s), &d->usage, true);
        }
}

static void fill_edges(struct layout_problem *p, const struct doc *d) {
    p->edge_cost = mem_array((size_t)p->entry[p->n_edges] + 1, sizeof *p->edge_cost);
    int64_t costs = (int64_t)json_array_size(d->edge_costs);
    int64_t aliases = d->alias ? (int64_t)json_array_size(d->alias) : 0;
    for (int64_t e = 0; e < p->n_edges; e++) {
        int64_t *w = p->edge_cost + p->entry[e], n = p->entry[e + 1] - p->entry[e];
        int64_t k = n_strategies(p, p->ends[e][1]);
        for (int64_t s = 0; s < n; s++) {
            if (e < costs)
                w[s] = scaled(item(item(d->edge_costs, (size_t)e), (size_t)s), &d->cost,
                              false);
            else if (e < costs + aliases)
                w[s] = json_number_value(
                           item(item(d->excluded, (size_t)(e - costs)), (size_t)s)) > 0.5
                           ? 2 * LAYOUT_FORBIDDEN
                           : 0;
            else
                w[s] = s / k == s % k ? 0 : 2 * LAYOUT_FORBIDDEN;
        }
    }
}

static int fill_limit(struct layout_problem *p, const struct doc *d, const json_t *limit,
                      const char *name, bool negative_is_none, struct err *err) {
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
    if (x * d->usage.factor >= (double)SUM_MAX)
        return 0; /* more than all sums */
    p->usage_limit = scaled(limit, &d->usage, false);
    return 0;
}

static int read_intervals(struct layout_problem *p, const json_t *v, struct err *err) {
    if (want_array(v, "nodes.intervals", p->n_nodes, err) < 0)
        return -1;
    p->live = mem_array((size_t)p->n_nodes + 1, sizeof *p->live);
    for (int32_t i = 0; i < p->n_nodes; i++) {
        int64_t t[2];
        if (pair(item(v, (size_t)i), -(INT64_C(1) << 53), INT64_C(1) << 53, t, err) < 0)
            return located(err, "nodes.intervals", (size_t)i);
        if (t[0] < t[1])
            p->live[p->n_live++] = (struct layout_live){i, t[0], t[1]};
    }
    return 0;
}

/* Alpa lists the live nodes of each time; runs of times become intervals. */
static int read_live(struct layout_problem *p, const json_t *v, struct err *err) {
    if (want_array(v, "live", -1, err) < 0)
        return -1;
    ARR(struct layout_live) live = {0};
    int64_t *last = mem_array((size_t)p->n_nodes + 1, sizeof *last); /* 1 + index in live */
    int rc = 0;
    for (size_t t = 0; t < json_array_size(v) && rc == 0; t++) {
        if (!json_is_array(item(v, t)))
            rc = err_input(err, "live[%zu]: expected an array, got %s", t,
                           json_type_name(item(v, t)));
        for (size_t s = 0; rc == 0 && s < json_array_size(item(v, t)); s++) {
            int64_t i;
            if (whole(item(item(v, t), s), 0, p->n_nodes - 1, &i, err) < 0) {
                rc = located(err, "live", t);
                break;
            }
            int64_t l = last[i] - 1;
            if (l >= 0 && live.p[l].hi >= (int64_t)t) { /* goes on, or listed twice */
                live.p[l].hi = (int64_t)t + 1;
                continue;
            }
            last[i] = live.n + 1;
            arr_push(&live, (struct layout_live){(int32_t)i, (int64_t)t, (int64_t)t + 1});
        }
    }
    free(last);
    p->live = live.p;
    p->n_live = live.n;
    return rc;
}

static int read_doc(struct layout_problem *p, struct doc *d, struct err *err) {
    if (scan_nodes(p, d, err) < 0 || scan_edges(p, d, err) < 0 ||
        scan_follow(p, d->follow, err) < 0)
        return -1;
    scale_choose(&d->cost);
    scale_choose(&d->usage);
    fill_nodes(p, d);
    fill_edges(p, d);
    p->cost_unit = 1 / d->cost.factor;
    p->usage_unit = 1 / d->usage.factor;
    p->cost_error = d->cost.exact ? 0 : 2.0 * p->n_nodes + (double)p->n_edges;
    return 0;
}

static int read_contest(struct layout_problem *p, const json_t *doc, struct err *err) {
    json_t *nodes, *edges;
    if (json_object_member(doc, "nodes", &nodes, err) < 0 ||
        json_object_member(doc, "edges", &edges, err) < 0)
        return -1;
    struct doc d = {
        .costs = json_object_get(nodes, "costs"),
        .usages = json_object_get(nodes, "usages"),
        .ends = json_object_get(edges, "nodes"),
        .edge_costs = json_object_get(edges, "costs"),
        .costs_name = "nodes.costs",
        .usages_name = "nodes.usages",
        .ends_name = "edges.nodes",
        .edge_name = "edges.costs",
        .alias_name = "alias.nodes",
        .excluded_name = "alias.excluded",
    };
    json_t *alias = json_object_get(doc, "alias");
    if (alias) {
        d.alias = json_object_get(alias, "nodes");
        d.excluded = json_object_get(alias, "excluded");
        if (want_array(d.alias, d.alias_name, -1, err) < 0)
            return -1;
    }
    if (read_doc(p, &d, err) < 0 ||
        read_intervals(p, json_object_get(nodes, "intervals"), err) < 0)
        return -1;
    const char *name = "";
    if (json_opt_str(doc, "name", &name, err) < 0)
        return -1;
    p->name = mem_strdup(name);
    return fill_limit(p, &d, json_object_get(doc, "usage_limit"), "usage_limit", false,
                      err);
}

static int read_alpa(struct layout_problem *p, const json_t *doc, struct err *err) {
    struct doc d = {
        .costs = json_object_get(doc, "compute_cost"),
        .more_costs = json_object_get(doc, "comm_cost"),
        .usages = json_object_get(doc, "memory_cost"),
        .ends = json_object_get(doc, "edges"),
        .edge_costs = json_object_get(doc, "edge_cost"),
        .alias = json_object_get(doc, "alias"),
        .excluded = json_object_get(doc, "alias_cost"),
        .follow = json_object_get(doc, "s_follow"),
        .costs_name = "compute_cost",
        .more_name = "comm_cost",
        .usages_name = "memory_cost",
        .ends_name = "edges",
        .edge_name = "edge_cost",
        .alias_name = "alias",
        .excluded_name = "alias_cost",
    };
    if (want_array(d.more_costs, "comm_cost", -1, err) < 0 || read_doc(p, &d, err) < 0 ||
        read_live(p, json_object_get(doc, "live"), err) < 0)
        return -1;
    const json_t *len = json_object_get(doc, "s_len");
    if (want_array(len, "s_len", p->n_nodes, err) < 0)
        return -1;
    for (int32_t i = 0; i < p->n_nodes; i++)
        if (json_integer_value(item(len, (size_t)i)) != n_strategies(p, i))
            return err_input(err, "s_len[%d]: compute_cost[%d] has %lld entries", (int)i,
                             (int)i, (long long)n_strategies(p, i));
    const char *name = "";
    if (json_opt_str(doc, "test", &name, err) < 0)
        return -1;
    p->name = mem_strdup(name);
    return fill_limit(p, &d, json_object_get(doc, "memory_budget"), "memory_budget", true,
                      err);
}

int layout_read(struct layout_problem *p, const json_t *doc, struct err *err) {
    *p = (struct layout_problem){0};
    if (!json_is_object(doc))
        return err_input(err, "expected an object, got %s", json_type_name(doc));
    const json_t *inner = json_object_get(doc, "problem");
    doc = json_is_object(inner) ? inner : doc;
    int rc =
        json_object_get(doc, "s_len") ? read_alpa(p, doc, err) : read_contest(p, doc, err);
    if (rc < 0)
        layout_problem_release(p);
    return rc;
}

void layout_problem_release(struct layout_problem *p) {
    free(p->name);
    free(p->first);
    free(p->cost);
    free(p->usage);
    free(p->live);
    free(p->ends);
    free(p->entry);
    free(p->edge_cost);
    *p = (struct layout_problem){0};
}

/* Room for the sums of the largest costs; -1 when a cost is bad. */
static int add_costs(const int64_t *cost, int64_t n, int64_t *sum) {
    int64_t most = 0;
    for (int64_t s = 0; s < n; s++) {
        if (cost[s] < 0 || cost[s] > LAYOUT_MAX)
            return -1;
        if (cost[s] < LAYOUT_FORBIDDEN && cost[s] > most)
            most = cost[s];
    }
    *sum += most;
    return *sum < SUM_MAX ? 0 : -1;
}

static int validate_nodes(const struct layout_problem *p, int64_t *sum, struct err *err) {
    int64_t used = 0;
    for (int32_t i = 0; i < p->n_nodes; i++) {
        int64_t k = n_strategies(p, i);
        if (k < 0 || k > INT32_MAX || add_costs(p->cost + p->first[i], k, sum) < 0)
            return err_input(err,
                             "node %d: a cost is negative, too large, or overflows "
                             "the sum of costs",
                             (int)i);
        if (add_costs(p->usage + p->first[i], k, &used) < 0)
            return err_input(err,
                             "node %d: a usage is negative, too large, or overflows "
                             "the sum of usages",
                             (int)i);
    }
    return 0;
}

int layout_validate(const struct layout_problem *p, struct err *err) {
    int64_t sum = 0;
    if (validate_nodes(p, &sum, err) < 0)
        return -1;
    for (int64_t e = 0; e < p->n_edges; e++) {
        int32_t u = p->ends[e][0], v = p->ends[e][1];
        if (u < 0 || u >= p->n_nodes || v < 0 || v >= p->n_nodes)
            return err_input(err, "edge %lld: node %d or %d does not exist", (long long)e,
                             (int)u, (int)v);
        int64_t n = p->entry[e + 1] - p->entry[e];
        if (n != n_strategies(p, u) * n_strategies(p, v))
            return err_input(err, "edge %lld: expected %lld x %lld entries, got %lld",
                             (long long)e, (long long)n_strategies(p, u),
                             (long long)n_strategies(p, v), (long long)n);
        if (add_costs(p->edge_cost + p->entry[e], n, &sum) < 0)
            return err_input(err,
                             "edge %lld: a cost is negative, too large, or overflows "
                             "the sum of costs",
                             (long long)e);
    }
    for (int64_t l = 0; l < p->n_live; l++)
        if (p->live[l].node < 0 || p->live[l].node >= p->n_nodes)
            return err_input(err, "life %lld: node %d does not exist", (long long)l,
                             (int)p->live[l].node);
    return 0;
}
