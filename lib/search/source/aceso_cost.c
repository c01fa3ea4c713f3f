/* Aceso's formulas (aceso_cost_model.py of its artifact), stage by stage. */
#include "search/source/aceso_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double MIB = 1 << 20;

/* ---- layouts --------------------------------------------------------------------------- */

static bool aceso_say(const struct model_op *op, const struct mesh *mesh,
                      const struct layout *l, struct aceso_said *out) {
    int dim = -1;
    *out = (struct aceso_said){1, 1, 0};
    for (int a = mesh->n_axes - 1; a >= 0; a--) {
        int d = l->dim[a] == PLACE_NONE ? -1 : op->space.dim[l->dim[a]];
        if (d == DIM_batch) {
            out->dp *= mesh->size[a];
            continue;
        }
        if (d < 0 || out->dp > 1 || (dim >= 0 && d != dim))
            return false;
        dim = d;
        out->tp *= mesh->size[a];
    }
    out->algorithm = dim == DIM_other;
    return true;
}

/* NULL where it was not measured. */
static const struct aceso_cell *find_cell(const struct aceso *a, int row, int64_t mbs,
                                          int tp, int algorithm) {
    const struct aceso_tables *t = &a->tables;
    int m = 0, k = 0;
    while (m < t->n_mbs && t->mbs[m] != mbs)
        m++;
    while (k < t->n_tp && 1 << k != tp)
        k++;
    if (m == t->n_mbs || k == t->n_tp)
        return NULL;
    const struct aceso_cell *c = &t->rows[row].cells[m][k][algorithm];
    return c->known ? c : NULL;
}

/* An op that is not split was measured under both of its algorithms, and has the faster one: no
 * conversion depends on it. */
static const struct aceso_cell *settle(const struct aceso *a, int row, int64_t micro_batch,
                                       struct aceso_said *said) {
    int64_t mbs = micro_batch / said->dp;
    int tp = a->source.pin.tp;
    if (micro_batch % said->dp || (tp && said->tp != tp))
        return NULL;
    const struct aceso_cell *c = find_cell(a, row, mbs, said->tp, said->algorithm);
    if (said->tp > 1 || !a->tables.rows[row].algorithms)
        return c;
    const struct aceso_cell *other = find_cell(a, row, mbs, 1, 1);
    said->algorithm =
        other && (!c || other->forward + other->backward < c->forward + c->backward);
    return said->algorithm ? other : c;
}

bool aceso_say_op(const struct aceso *a, int op, int64_t micro_batch,
                  const struct mesh *mesh, const struct layout *l, struct aceso_said *out) {
    return aceso_say(&a->model.ops[op], mesh, l, out) &&
           settle(a, a->row_of[op], micro_batch, out);
}

/* ---- conversions ----------------------------------------------------------------------- */

struct spread {
    int replicas, dims[3];
};

static struct spread spread_of(enum aceso_spec spec, struct aceso_said s) {
    switch (spec) {
    case SPEC_hidden: return (struct spread){1, {1, s.dp, s.tp}};
    case SPEC_heads: return (struct spread){1, {s.dp, s.tp, 1}};
    case SPEC_batch: return (struct spread){s.tp, {s.dp, 1, 1}};
    case SPEC_sequence:
    case SPEC_any: break;
    }
    return (struct spread){s.tp, {1, s.dp, 1}};
}

static double collective_us(const struct aceso *a, enum aceso_collective c, int devices,
                            double mib) {
    enum { MISS_US = 100000 * 1000 };
    const struct aceso_time *all = NULL;
    int64_t n = 0;
    char text[64];
    for (int k = 1; k < ACESO_MOST_TP; k++)
        if (1 << k == devices) {
            all = a->tables.collectives[c][k].all.p;
            n = a->tables.collectives[c][k].all.n;
        }
    for (int less = 0; less < 2; less++) {
        snprintf(text, sizeof text, "%.0f", mib - less); /* rounded as Python does */
        int64_t size = strtoll(text, NULL, 10), lo = 0, hi = n;
        while (lo < hi) {
            int64_t mid = (lo + hi) / 2;
            if (all[mid].mib < size)
                lo = mid + 1;
            else
                hi = mid;
        }
        if (lo < n && all[lo].mib == size)
            return all[lo].ms * 1000;
    }
    return MISS_US;
}

/* What Aceso does forward and backward to turn one into the other, among so many devices; false where it
 * has nothing. */
static bool find_primitives(const struct spread *from, const struct spread *to,
                            enum aceso_collective *forward, enum aceso_collective *backward,
                            int *devices) {
    if (from->replicas > to->replicas) {
        for (int d = 0; d < 3; d++)
            if (from->dims[d] < to->dims[d]) {
                *forward = ACESO_split;
                *backward = ACESO_all_gather;
                *devices = from->replicas / to->replicas;
                return true;
            }
        return false;
    }
    for (int d = 0; d < 3; d++) {
        if (from->dims[d] <= to->dims[d])
            continue;
        *devices = from->dims[d] / to->dims[d];
        if (from->replicas < to->replicas) {
            *forward = ACESO_all_gather;
            *backward = ACESO_split;
            return true;
        }
        *forward = *backward = ACESO_all_to_all;
        for (int e = 0; e < 3; e++)
            if (e != d && from->dims[e] < to->dims[e])
                return true;
    }
    return false;
}

/* Conversion of what one op makes into what the next one takes; INFINITY where Aceso has none. */
static double between_us(const struct aceso *a, int row_before, struct aceso_said before,
                         int row, struct aceso_said said, double mib) {
    enum aceso_spec out = a->tables.rows[row_before].out[before.algorithm];
    enum aceso_spec in = a->tables.rows[row].in[said.algorithm];
    if (!a->converts)
        return before.tp == said.tp && before.dp == said.dp ? 0 : INFINITY;
    if (out == SPEC_any || in == SPEC_any)
        return 0;
    struct spread from = spread_of(out, before), to = spread_of(in, said);
    enum aceso_collective how[2];
    int devices;
    double us = 0;
    if (!memcmp(&from, &to, sizeof from))
        return 0;
    if (!find_primitives(&from, &to, &how[0], &how[1], &devices))
        return INFINITY;
    for (int i = 0; i < 2; i++)
        us += how[i] == ACESO_split ? 0 : collective_us(a, how[i], devices, mib);
    return us;
}

/* The bandwidth of the next lower power of two; below half a MiB a negative index, which is the end of
 * a list in Python. */
static double send_us(const struct aceso *a, double mib, bool between_nodes) {
    const struct aceso_band *b = between_nodes ? &a->tables.between : &a->tables.inside;
    if (mib <= 0)
        return 0;
    int i = (int)(log(mib) / log(2));
    i -= i >= 1;
    i = i < -b->n ? 0 : i < 0 ? b->n + i : i >= b->n ? b->n - 1 : i;
    return mib / (b->gb[i] * 0.001);
}

/* ---- a set of layouts ------------------------------------------------------------------ */

/* By node: what the tables have, and what conversion in front of it takes; of the first op of a run in
 * its first instance that is another. */
struct prepared {
    struct aceso_said *said;
    const struct aceso_cell **cells; /* NULL: not measured, or not to be said */
    uint64_t *keys;
    double *convert_us, *first_us;
};

static int node_of(const struct blocks *g, int op) {
    return g->x.node_of[g->x.of[op]];
}

static void free_prepared(void *p) {
    struct prepared *q = p;
    free(q->said);
    free(q->cells);
    free(q->keys);
    free(q->convert_us);
    free(q->first_us);
    free(q);
}

static double convert_us(const struct aceso *a, const struct blocks *g,
                         const struct prepared *p, int op) {
    int node = node_of(g, op), before = node_of(g, op - 1);
    if (!p->cells[node] || !p->cells[before])
        return INFINITY;
    return between_us(a, a->row_of[op - 1], p->said[before], a->row_of[op], p->said[node],
                      p->cells[node]->input);
}

static struct prepared *prepare(const struct aceso *a, const struct source_ask *ask) {
    const struct blocks *g = ask->graph;
    size_t n = (size_t)g->x.n_nodes;
    struct prepared *p = mem_alloc(sizeof *p);
    struct mesh mesh;
    stage_mesh(ask->devices, ask->mesh, &mesh);
    p->said = mem_array(n, sizeof *p->said);
    p->cells = mem_array(n, sizeof *p->cells);
    p->keys = mem_array(n, sizeof *p->keys);
    p->convert_us = mem_array(n, sizeof *p->convert_us);
    p->first_us = mem_array(n, sizeof *p->first_us);
    for (int x = 0; x < g->x.model->n_ops; x++) {
        int node = g->x.node_of[x], row = a->row_of[g->x.from[x]];
        struct aceso_said *s = &p->said[node];
        if (aceso_say(&g->x.model->ops[x], &mesh, &ask->layouts[node], s))
            p->cells[node] = settle(a, row, ask->micro_batch, s);
        p->keys[node] = memo_mix(memo_mix(1, (uint64_t)(uintptr_t)p->cells[node]),
                                 (uint64_t)(uintptr_t)&a->tables.rows[row]);
    }
    for (int x = 1; x < g->x.model->n_ops; x++) {
        int op = g->x.from[x], node = g->x.node_of[x];
        double us = convert_us(a, g, p, op);
        bool first = g->s.repeat_of[op] < 0 || structure_instance(&g->s, op) == 0;
        *(first ? &p->first_us[node] : &p->convert_us[node]) = us;
        if (first)
            p->convert_us[node] = us;
    }
    return p;
}

static const struct prepared *prepared_of(struct aceso *a, const struct source_ask *ask) {
    enum { MOST = 1 << 12 };
    uint64_t key = memo_mix(memo_mix(1, (uint64_t)(uintptr_t)ask->layouts),
                            (uint64_t)(uintptr_t)ask->mesh);
    key = memo_mix(memo_mix(key, (uint64_t)ask->micro_batch), (uint64_t)ask->devices);
    if (a->prepared.n > MOST)
        memo_release(&a->prepared, free_prepared);
    void **slot = memo_slot(&a->prepared, key);
    if (!*slot)
        *slot = prepare(a, ask);
    return *slot;
}

/* ---- pieces of a stage ----------------------------------------------------------------- */

struct pieces {
    ARR(struct aceso_piece) all;
    struct aceso *a;
    const struct source_ask *ask;
    const struct prepared *p;
};

/* Ops first .. end - 1, of one instance or outside of repeats, so many times over: pieces end before
 * breaks. */
static void add_stretch(struct pieces *ps, int first, int end, int times) {
    const struct aceso *a = ps->a;
    for (int i = first; i < end;) {
        struct aceso_piece piece = {.first = i, .times = times, .key = (uint64_t)times};
        const struct aceso_row *row = &a->tables.rows[a->row_of[i]];
        int node = node_of(ps->ask->graph, i);
        piece.may_begin = row->breaks || (i == ps->ask->first && times == 1);
        piece.cells = ps->p->cells + node;
        piece.key = memo_mix(1, piece.may_begin);
        do
            piece.key = memo_mix(piece.key, ps->p->keys[node + piece.n++]);
        while (++i < end && piece.n < ACESO_MOST_PIECE &&
               !a->tables.rows[a->row_of[i]].breaks);
        arr_push(&ps->all, piece);
    }
}

/* Whole instances that stand one behind the other are one stretch. */
static void find_pieces(struct pieces *ps) {
    const struct structure *st = &ps->ask->graph->s;
    int end = ps->ask->end;
    for (int i = ps->ask->first; i < end;) {
        int r = st->repeat_of[i], next = i + 1;
        if (r < 0) {
            while (next < end && st->repeat_of[next] < 0)
                next++;
            add_stretch(ps, i, next, 1);
            i = next;
            continue;
        }
        const struct repeat *repeat = &st->repeats[r];
        int run_end = repeat->first + repeat->period * repeat->count;
        run_end = run_end < end ? run_end : end;
        bool begins = (i - repeat->first) % repeat->period == 0;
        int whole = begins ? (run_end - i) / repeat->period : 0;
        next = whole ? i + repeat->period
                     : repeat->first + (structure_instance(st, i) + 1) * repeat->period;
        next = next < end ? next : end;
        add_stretch(ps, i, next, whole ? whole : 1);
        i = whole ? i + whole * repeat->period : next;
    }
}

/* ---- a stage --------------------------------------------------------------------------- */

struct totals {
    double us, weights, kept, reserved_forward, reserved_backward;
};

/* False where an op of it was not measured. */
static bool add_ops(struct totals *t, const struct aceso_piece *piece, int end) {
    for (int j = 0; j < piece->n; j++) {
        const struct aceso_cell *c = piece->cells[j];
        if (!c)
            return false;
        t->us += piece->times * (c->forward + c->backward);
        t->weights += piece->times * c->weights;
        t->kept += piece->times * c->kept;
        if (piece->times == 1 && piece->first + j == end - 1)
            continue; /* the stage's last op reserves nothing */
        t->reserved_forward = fmax(t->reserved_forward, c->reserved_forward);
        t->reserved_backward = fmax(t->reserved_backward, c->reserved_backward);
    }
    return true;
}

/* As much as it takes to fit, by so many bytes, or as is pinned. */
static void choose_recompute(struct pieces *ps, double in_flight, double lacks,
                             struct aceso_recompute *out) {
    int how = ps->a->source.pin.recompute;
    *out = (struct aceso_recompute){0};
    if (how == SOURCE_AGAIN_most)
        lacks = INFINITY;
    if (lacks > 0 && how != SOURCE_AGAIN_none)
        aceso_choose_recompute(ps->a, ps->all.p, (int)ps->all.n, in_flight, lacks, out);
}

/* In front of each op but the stage's first. */
static double conversions_us(const struct pieces *ps, const struct aceso_piece *piece) {
    const struct blocks *g = ps->ask->graph;
    const struct structure *st = &g->s;
    double us = 0;
    for (int j = 0; j < piece->n; j++) {
        int op = piece->first + j, node = node_of(g, op);
        bool first = st->repeat_of[op] < 0 || structure_instance(st, op) == 0;
        int others = piece->times - (first || op == ps->ask->first);
        if (first && op > ps->ask->first)
            us += ps->p->first_us[node];
        if (others)
            us += others * ps->p->convert_us[node];
    }
    return us;
}

/* What comes in and goes out; INFINITY where the table lacks it. Aceso incumbents up the last op's output
 * with the first one's tp. */
static double ends_us(const struct pieces *ps, double *input) {
    const struct source_ask *ask = ps->ask;
    const struct blocks *g = ask->graph;
    int first = node_of(g, ask->first), last = node_of(g, ask->end - 1);
    int before = ask->first_rank, behind = before + ask->devices;
    int node = ask->devices_per_node;
    const struct aceso_said *s = &ps->p->said[last];
    const struct aceso_cell *in = ps->p->cells[first];
    const struct aceso_cell *out =
        find_cell(ps->a, ps->a->row_of[ask->end - 1], ask->micro_batch / s->dp,
                  ps->p->said[first].tp, s->algorithm);
    if (!in || !out)
        return INFINITY;
    *input = in->input;
    return send_us(ps->a, in->input, before && before % node == 0) +
           send_us(ps->a, out->output, behind % node == 0);
}

static void mark_ops(const struct pieces *ps, bool *recompute) {
    const struct structure *st = &ps->ask->graph->s;
    for (int64_t i = 0; i < ps->all.n; i++) {
        const struct aceso_piece *p = &ps->all.p[i];
        int r = st->repeat_of[p->first], period = r < 0 ? 0 : st->repeats[r].period;
        for (int k = 0; k < p->times; k++) {
            uint64_t marks = k < p->copies ? p->marks : p->other_marks;
            for (int j = 0; j < p->n; j++)
                recompute[p->first + k * period + j - ps->ask->first] = marks >> j & 1;
        }
    }
}

/* Tensor parallelism was measured inside nodes: stages lie in one, or have whole ones. */
static bool lies_well(const struct source_ask *ask) {
    int node = ask->devices_per_node, at = ask->first_rank % node;
    return at + ask->devices <= node || (at == 0 && ask->devices % node == 0);
}

static bool stage_cost(struct pieces *ps, struct source_cost *out, bool *recompute) {
    const struct source_ask *ask = ps->ask;
    struct totals t = {0};
    double input = 0, in_flight = ask->behind + 1, convert = 0;
    find_pieces(ps);
    for (int64_t i = 0; i < ps->all.n; i++) {
        if (!add_ops(&t, &ps->all.p[i], ask->end))
            return false;
        convert += conversions_us(ps, &ps->all.p[i]);
    }
    double message = ends_us(ps, &input), us = t.us + convert + message;
    if (!isfinite(us))
        return false;
    double reserved = fmax(t.reserved_forward + t.reserved_backward, t.weights);
    double mib = ps->a->state * t.weights + (input + t.kept) * in_flight + reserved;
    /* A hair less than the limit, for sums in another order. */
    double most = (double)ask->memory_bytes / MIB - 1e-6;
    struct aceso_recompute chosen;
    choose_recompute(ps, in_flight, ask->memory_bytes ? mib - most : 0, &chosen);
    *out =
        (struct source_cost){.us = us + chosen.us,
                             .recompute_us = chosen.us,
                             .convert_us = convert,
                             .message_us = message,
                             .bytes = (mib - in_flight * chosen.saved + chosen.peak) * MIB};
    if (recompute)
        mark_ops(ps, recompute);
    return true;
}

static bool stage(struct source *src, const struct source_ask *ask, struct source_cost *out,
                  bool *recompute) {
    struct aceso *a = (struct aceso *)src;
    struct pieces ps = {.a = a, .ask = ask};
    if (!lies_well(ask))
        return false;
    ps.p = prepared_of(a, ask);
    bool good = stage_cost(&ps, out, recompute);
    arr_release(&ps.all);
    return good;
}

/* ---- single ops ------------------------------------------------------------------------ */

static const struct aceso_cell *cell_of(const struct aceso *a, const struct source_ask *ask,
                                        int op, const struct layout *l,
                                        struct aceso_said *said) {
    struct mesh mesh;
    stage_mesh(ask->devices, ask->mesh, &mesh);
    return aceso_say(&a->model.ops[op], &mesh, l, said)
               ? settle(a, a->row_of[op], ask->micro_batch, said)
               : NULL;
}

static bool one_op(struct source *src, const struct source_ask *ask, int op,
                   const struct layout *l, struct source_op *out) {
    struct aceso *a = (struct aceso *)src;
    struct aceso_said said;
    const struct aceso_cell *c = cell_of(a, ask, op, l, &said);
    if (!c)
        return false;
    const struct aceso_row *rows = a->tables.rows;
    double kept = c->kept * (ask->behind + 1);
    bool stays = rows[a->row_of[op]].kept ||
                 (op + 1 < a->n_ops && rows[a->row_of[op + 1]].breaks) ||
                 a->source.pin.recompute == SOURCE_AGAIN_none;
    *out = (struct source_op){.us = c->forward + c->backward,
                              .bytes = (a->state * c->weights + kept) * MIB,
                              .fixed_bytes = a->state * c->weights * MIB,
                              .kept_bytes = c->kept * MIB,
                              .reserved_bytes = c->weights * MIB,
                              .forward_bytes = c->reserved_forward * MIB,
                              .backward_bytes = c->reserved_backward * MIB,
                              .recompute_us = c->forward,
                              .recompute_bytes = stays ? 0 : kept * MIB};
    return true;
}

static double between(struct source *src, const struct source_ask *ask, int op,
                      const struct layout *before, const struct layout *l) {
    struct aceso *a = (struct aceso *)src;
    struct aceso_said from, to;
    const struct aceso_cell *c = cell_of(a, ask, op, l, &to);
    if (!c || !cell_of(a, ask, op - 1, before, &from))
        return INFINITY;
    return between_us(a, a->row_of[op - 1], from, a->row_of[op], to, c->input);
}

/* The least over all layouts, in a node or between two. Aceso may look up what goes out with
 * another op's tp, so any tp goes with any dp. */
static void ends(struct source *src, const struct source_ask *ask, int op, double *in_us,
                 double *out_us) {
    const struct aceso *a = (const struct aceso *)src;
    const struct aceso_tables *t = &a->tables;
    *in_us = *out_us = INFINITY;
    for (int m = 0; m < t->n_mbs; m++) {
        bool asked = ask->micro_batch % t->mbs[m] == 0 &&
                     ask->micro_batch / t->mbs[m] <= ask->devices;
        for (int i = 0; asked && i < t->n_tp * ACESO_ALGORITHMS; i++) {
            const struct aceso_cell *c = &t->rows[a->row_of[op]].cells[m][i / 2][i % 2];
            for (int far = 0; c->known && far < 2; far++) {
                *in_us = fmin(*in_us, send_us(a, c->input, far));
                *out_us = fmin(*out_us, send_us(a, c->output, far));
            }
        }
    }
}

/* ---- the source ------------------------------------------------------------------------ */

static void forget(struct source *src) {
    struct aceso *a = (struct aceso *)src;
    memo_release(&a->prepared, free_prepared);
    aceso_forget_options(a);
}

void aceso_put_costs(struct aceso *a) {
    a->source.forget = forget;
    a->source.stage = stage;
    a->source.op = one_op;
    a->source.between = between;
    a->source.ends = ends;
}
