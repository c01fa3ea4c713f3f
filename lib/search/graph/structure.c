/* Finding repeats.
 *
 * From left to right: at an op that is in no repeat yet, every later op that is equal
 * proposes a period. The period that covers most ops wins, or the shortest of equals.
 * Instances must also be read from outside in the same way: if distant ops read
 * different instances, the range is no repeat. */
#include "search/graph/structure.h"

#include "common/rng.h"
#include "search/graph/memo.h"

#include <stdlib.h>
#include <string.h>

/* ---- alike ----------------------------------------------------------------------------- */

static uint64_t mix_real(uint64_t h, double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return memo_mix(h, bits);
}

static uint64_t mix_shape(const struct model *m, const struct shape *s, uint64_t h) {
    h = memo_mix(h, (uint64_t)s->rank);
    for (int i = 0; i < s->rank; i++)
        h = memo_mix(h, (uint64_t)s->dim[i] << 48 ^ (uint64_t)m->dims[s->dim[i]].size);
    return h;
}

/* Hashes what makes ops equal (structure.h). users: how many ops use each parameter. */
static uint64_t alike_hash(const struct model *m, int op, const int *users) {
    const struct model_op *o = &m->ops[op];
    uint64_t h = memo_mix(1, (uint64_t)o->kind);
    for (int a = 0; a < ATTR_COUNT; a++)
        h = mix_real(h, o->attr[a]);
    for (int k = 0; k < o->space.n; k++)
        h = memo_mix(memo_mix(h, (uint64_t)o->space.dim[k]), (uint64_t)o->space.role[k]);
    for (int k = 0; k < o->n_in; k++) {
        const struct model_tensor *t = &m->tensors[o->in[k]];
        h = mix_shape(m, &t->shape, memo_mix(h, (t->producer < 0) << 1 | t->gradient));
    }
    for (int k = 0; k < o->n_param; k++) {
        const struct model_param *p = &m->params[o->param[k] < 0 ? 0 : o->param[k]];
        h = memo_mix(h, o->param[k] < 0);
        if (o->param[k] < 0)
            continue;
        uint64_t shared = p->first_op != op ? 2 : users[o->param[k]] > 1;
        h = mix_shape(m, &p->shape, memo_mix(h, shared << 2 | p->matrix << 1 | p->frozen));
        h = p->matrix ? hash_bytes(&p->matrices, sizeof p->matrices, h) : h;
    }
    for (int k = 0; k < o->n_out; k++)
        h = mix_shape(m, &m->tensors[o->out[k]].shape, h);
    return h;
}

static int *count_users(const struct model *m) {
    int *users = mem_array((size_t)m->n_params + 1, sizeof *users);
    for (int i = 0; i < m->n_ops; i++)
        for (int k = 0; k < m->ops[i].n_param; k++)
            if (m->ops[i].param[k] >= 0)
                users[m->ops[i].param[k]]++;
    return users;
}

/* ---- edges ----------------------------------------------------------------------------- */

/* Returns whether an operand before the k-th is the same tensor. */
static bool read_before(const struct model_op *o, int k) {
    for (int i = 0; i < k; i++)
        if (o->in[i] == o->in[k])
            return true;
    return false;
}

/* Lists readers of tensors by the tensor's number; behind those, the users of
 * parameters except the first. */
static void list_readers(const struct model *m, int *first, int *list) {
    int n = m->n_tensors + m->n_params;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = m->n_ops - 1; i >= 0; i--) {
            const struct model_op *o = &m->ops[i];
            for (int k = 0; k < o->n_in + o->n_param; k++) {
                int p = k < o->n_in ? -1 : o->param[k - o->n_in];
                if (k < o->n_in ? read_before(o, k) : p < 0 || m->params[p].first_op == i)
                    continue;
                int id = p < 0 ? o->in[k] : m->n_tensors + p;
                if (pass == 0)
                    first[id]++;
                else
                    list[--first[id]] = i;
            }
        }
        for (int id = 0; pass == 0 && id < n; id++)
            first[id + 1] += first[id];
    }
}

static int64_t count_uses(const struct model *m) {
    int64_t n = 0;
    for (int i = 0; i < m->n_ops; i++)
        n += m->ops[i].n_in + m->ops[i].n_param;
    return n;
}

static void add_edge(struct structure *s, struct edge e, const int *first, int id) {
    e.readers = s->readers + first[id];
    e.n = first[id + 1] - first[id];
    s->edges[s->n_edges++] = e;
}

/* Makes an edge of every result, which may have no readers, and of every parameter that is
 * used more than once. */
static void find_edges(const struct model *m, struct structure *s) {
    int ids = m->n_tensors + m->n_params;
    int *first = mem_array((size_t)ids + 2, sizeof *first);
    s->readers = mem_array((size_t)count_uses(m) + 1, sizeof *s->readers);
    s->edges = mem_array((size_t)ids + 1, sizeof *s->edges);
    s->edges_of = mem_array((size_t)m->n_ops + 1, sizeof *s->edges_of);
    list_readers(m, first, s->readers);
    s->n_readers = first[ids];
    for (int i = 0; i < m->n_ops; i++) {
        const struct model_op *o = &m->ops[i];
        s->edges_of[i] = s->n_edges;
        for (int k = 0; k < o->n_out; k++)
            add_edge(s, (struct edge){.origin = i, .tensor = o->out[k], .param = -1}, first,
                     o->out[k]);
        for (int k = 0; k < o->n_param; k++) {
            int p = o->param[k], id = m->n_tensors + p;
            if (p >= 0 && m->params[p].first_op == i && first[id + 1] > first[id])
                add_edge(s, (struct edge){.origin = i, .tensor = -1, .param = p}, first,
                         id);
        }
    }
    s->edges_of[m->n_ops] = s->n_edges;
    free(first);
}

/* ---- repeats ------------------------------------------------------------------------------ */

/* Returns whether a and b read from the same op, or from ops equally far back. */
static bool same_source(int a, int from_a, int b, int from_b) {
    return from_a == from_b || a - from_a == b - from_b;
}

/* Returns whether a and b have the same readers more than `near` ops behind them. */
static bool same_far_readers(const struct structure *s, int a, int b, int near) {
    for (int k = s->edges_of[a], d = s->edges_of[b]; k < s->edges_of[a + 1]; k++, d++) {
        const struct edge *ea = &s->edges[k], *eb = &s->edges[d];
        int i = ea->n, j = eb->n;
        while (i > 0 && j > 0 && ea->readers[i - 1] == eb->readers[j - 1])
            i--, j--;
        if ((i > 0 && ea->readers[i - 1] > a + near) ||
            (j > 0 && eb->readers[j - 1] > b + near))
            return false;
    }
    return true;
}

static bool repeats(const struct model *m, const struct structure *s, int a, int b) {
    if (s->alike[a] != s->alike[b])
        return false;
    const struct model_op *x = &m->ops[a], *y = &m->ops[b];
    for (int k = 0; k < x->n_in; k++)
        if (x->in[k] != y->in[k] && !same_source(a, m->tensors[x->in[k]].producer, b,
                                                 m->tensors[y->in[k]].producer))
            return false;
    for (int k = 0; k < x->n_param; k++)
        if (x->param[k] >= 0 && !same_source(a, m->params[x->param[k]].first_op, b,
                                             m->params[y->param[k]].first_op))
            return false;
    return same_far_readers(s, a, b, 2 * (b - a));
}

/* How many ops from `first` on are each repeated one period later. */
static int reach(const struct model *m, const struct structure *s, int first, int period) {
    int i = first;
    while (i + period < m->n_ops && repeats(m, s, i, i + period))
        i++;
    return i - first;
}

/* Returns the repeat from this op on that covers most ops; count is 1 if there is
 * none. */
static struct repeat longest_run(const struct model *m, const struct structure *s,
                                 int first) {
    struct repeat best = {.first = first, .period = 1, .count = 1};
    for (int b = first + 1; b < m->n_ops; b++) {
        int period = b - first, covered = best.period * best.count;
        if (b + period > m->n_ops)
            break;
        /* a multiple of the best period covers no more than that period does */
        if (s->alike[b] != s->alike[first] ||
            (best.count > 1 && period < covered && period % best.period == 0))
            continue;
        int count = 1 + reach(m, s, first, period) / period;
        if (count > 1 && count * period > (best.count > 1 ? covered : 0))
            best = (struct repeat){.first = first, .period = period, .count = count};
    }
    return best;
}

/* Elements that pass a cut of a repeat, counting ops of the repeat only. */
static double passing_elems(const struct model *m, const struct structure *s, int first,
                            int cut) {
    double elems = 0;
    for (int i = s->edges_of[first]; i < s->edges_of[cut]; i++) {
        const struct edge *e = &s->edges[i];
        if (e->tensor < 0 || edge_last(e) < cut)
            continue;
        double n = 1;
        const struct shape *x = &m->tensors[e->tensor].shape;
        for (int k = 0; k < x->rank; k++)
            n *= (double)model_dim_size(m, x->dim[k], 1);
        elems += n;
    }
    return elems;
}

static int find_seam(const struct model *m, const struct structure *s,
                     const struct repeat *r) {
    int seam = 0;
    double least = passing_elems(m, s, r->first, r->first + r->period);
    for (int i = 1; i < r->period; i++) {
        double elems = passing_elems(m, s, r->first, r->first + r->period + i);
        if (elems < least) {
            least = elems;
            seam = i;
        }
    }
    return seam;
}

static void find_runs(const struct model *m, struct structure *s) {
    ARR(struct repeat) repeats = {0};
    for (int i = 0; i < m->n_ops;) {
        struct repeat r = longest_run(m, s, i);
        for (int k = 0; k < r.period * r.count; k++)
            s->repeat_of[i + k] = r.count > 1 ? (int)repeats.n : -1;
        i += r.period * r.count;
        if (r.count > 1) {
            r.seam = find_seam(m, s, &r);
            arr_push(&repeats, r);
        }
    }
    s->repeats = repeats.p;
    s->n_repeats = (int)repeats.n;
}

void structure_find(const struct model *m, const uint64_t *marks, struct structure *s) {
    *s = (struct structure){.n_ops = m->n_ops};
    s->alike = mem_array((size_t)m->n_ops, sizeof *s->alike);
    s->repeat_of = mem_array((size_t)m->n_ops, sizeof *s->repeat_of);
    int *users = count_users(m);
    for (int i = 0; i < m->n_ops; i++)
        s->alike[i] = memo_mix(alike_hash(m, i, users), marks ? marks[i] : 0);
    free(users);
    find_edges(m, s);
    find_runs(m, s);
}

void structure_release(struct structure *s) {
    free(s->alike);
    free(s->repeats);
    free(s->repeat_of);
    free(s->edges);
    free(s->edges_of);
    free(s->readers);
    *s = (struct structure){0};
}

int structure_instance(const struct structure *s, int op) {
    const struct repeat *r = &s->repeats[s->repeat_of[op]];
    return (op - r->first) / r->period;
}

int edge_reader_from(const struct edge *e, int first) {
    int lo = 0, hi = e->n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (e->readers[mid] < first)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

bool structure_begins_unit(const struct structure *s, int op) {
    int r = s->repeat_of[op];
    return r < 0 || !op ||
           (op - s->repeats[r].first) % s->repeats[r].period == s->repeats[r].seam;
}

int structure_unit_of(const struct structure *s, int op) {
    while (!structure_begins_unit(s, op))
        op--;
    return op;
}

int structure_next_unit(const struct structure *s, int op) {
    while (op < s->n_ops && !structure_begins_unit(s, op))
        op++;
    return op;
}

int structure_units(const struct structure *s) {
    int n = 0;
    for (int i = 0; i < s->n_ops; i++)
        n += structure_begins_unit(s, i);
    return n;
}

int structure_next_distinct(const struct structure *st, int first, int op) {
    const struct repeat *r = st->repeat_of[op] < 0 ? NULL : &st->repeats[st->repeat_of[op]];
    if (!r || op + 1 < (first > r->first ? first : r->first) + r->period)
        return op + 1;
    return r->first + r->period * r->count;
}
