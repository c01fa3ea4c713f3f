/* Costs of instructions: from an instruction and the ranks that run it to a row of the
 * profile.
 *
 * Nothing is guessed here. A key without a row costs 0 and goes into the set of missing
 * keys: an array in the order of first need with an open-addressing table over it, so that
 * 60,000 misses of 12 shapes stay 12 entries. */
#include "cost/cost.h"

#include "common/mem.h"
#include "common/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cost_init(struct cost *c, const struct profile_times *times,
               const struct cluster *cluster) {
    *c = (struct cost){.times = times, .cluster = *cluster, .groups.first_rank = -1};
}

void cost_release(struct cost *c) {
    free(c->missing);
    free(c->slots);
    *c = (struct cost){0};
}

void cost_forget(struct cost *c) {
    c->n_missing = 0;
    if (c->slots)
        memset(c->slots, 0, sizeof *c->slots * (size_t)c->n_slots);
}

/* ---- missing keys ------------------------------------------------------------------ */

static bool key_equal(const struct cost_key *a, const struct cost_key *b) {
    return a->code == b->code && !memcmp(a->n, b->n, sizeof a->n);
}

/* The slot of a key: its own or the free one where it belongs. */
static int64_t *find_slot(const struct cost *c, const struct cost_key *k) {
    uint64_t h = hash_bytes(k->n, sizeof k->n, (uint64_t)k->code);
    for (;; h++) {
        int64_t *slot = &c->slots[h & (uint64_t)(c->n_slots - 1)];
        if (!*slot || key_equal(&c->missing[*slot - 1], k))
            return slot;
    }
}

static void grow(struct cost *c) {
    free(c->slots);
    c->n_slots = c->n_slots ? 2 * c->n_slots : 64;
    c->slots = mem_array((size_t)c->n_slots, sizeof *c->slots);
    c->cap_missing = c->n_slots / 2;
    c->missing = mem_grow(c->missing, (size_t)c->cap_missing, sizeof *c->missing);
    for (int64_t i = 0; i < c->n_missing; i++)
        *find_slot(c, &c->missing[i]) = i + 1;
}

static void note_missing(struct cost *c, const struct cost_key *k) {
    if (c->n_missing == c->cap_missing)
        grow(c);
    int64_t *slot = find_slot(c, k);
    if (!*slot) {
        c->missing[c->n_missing] = *k;
        *slot = ++c->n_missing;
    }
    c->missing[*slot - 1].count++;
}

/* ---- groups ------------------------------------------------------------------------ */

/* Some rank stands on another node than the first one of its group. */
static bool find_crossing(const struct cluster *cl, const struct stage *st, unsigned axes) {
    int devices = mesh_devices(&st->mesh), coord[MESH_MAX_AXES] = {0};
    if (cluster_node_of(cl, st->first_rank) ==
        cluster_node_of(cl, st->first_rank + devices - 1))
        return false;
    for (int r = 0; r < devices; r++) {
        mesh_coords(&st->mesh, r, coord);
        for (int a = 0; a < st->mesh.n_axes; a++)
            if (axes >> a & 1)
                coord[a] = 0;
        if (cluster_node_of(cl, st->first_rank + mesh_rank(&st->mesh, coord)) !=
            cluster_node_of(cl, st->first_rank + r))
            return true;
    }
    return false;
}

static bool same_grid(const struct mesh *a, const struct mesh *b) {
    return a->n_axes == b->n_axes &&
           !memcmp(a->size, b->size, sizeof *a->size * (size_t)a->n_axes);
}

bool cost_group_crosses(struct cost *c, const struct plan *plan, int stage, unsigned axes) {
    const struct stage *st = &plan->stages[stage];
    if (c->groups.first_rank != st->first_rank || !same_grid(&c->groups.mesh, &st->mesh)) {
        c->groups.first_rank = st->first_rank;
        c->groups.mesh = st->mesh;
        memset(c->groups.crosses, -1, sizeof c->groups.crosses);
    }
    signed char *known = &c->groups.crosses[axes & ((1u << MESH_MAX_AXES) - 1)];
    if (*known < 0)
        *known = find_crossing(&c->cluster, st, axes);
    return *known;
}

static bool job_crosses(const struct cost *c, const struct plan *plan) {
    return cluster_node_of(&c->cluster, plan->devices - 1) > 0;
}

/* How far apart the ranks of two stages stand that talk to each other, about. */
static int64_t stage_distance(const struct plan *plan, int a, int b) {
    int64_t d = (int64_t)plan->stages[a].first_rank - plan->stages[b].first_rank;
    return d > 0 ? d : d < 0 ? -d : 1;
}

/* Messages between two stages: does any rank of them stand on another node than the
 * rest? */
static bool stages_cross(const struct cost *c, const struct plan *plan, int a, int b) {
    const struct stage *lo = &plan->stages[a < b ? a : b],
                       *hi = &plan->stages[a < b ? b : a];
    return cluster_node_of(&c->cluster, lo->first_rank) !=
           cluster_node_of(&c->cluster, hi->first_rank + mesh_devices(&hi->mesh) - 1);
}

/* ---- single costs ------------------------------------------------------------------ */

static double comm_us(struct cost *c, enum opcode code, int64_t size, int64_t stride,
                      bool cross, int64_t bytes) {
    const char *name = code == I_send ? "p2p" : opcode_name(code);
    double us = profile_comm_us(c->times, name, size, stride, cross, bytes);
    if (us >= 0)
        return us;
    note_missing(c, &(struct cost_key){code, {size, stride, cross, bytes}, 0});
    return 0;
}

static double shape_us(struct cost *c, enum opcode code, const int64_t *n) {
    double us = profile_op_us(c->times, (int)code, n);
    if (us >= 0)
        return us;
    struct cost_key key = {.code = code};
    memcpy(key.n, n, sizeof *n * (size_t)instr_info(code)->n_shape);
    note_missing(c, &key);
    return 0;
}

double cost_p2p_us(struct cost *c, int64_t stride, bool cross, int64_t bytes) {
    return bytes > 0 ? comm_us(c, I_send, 2, stride, cross, bytes) : 0;
}

double cost_copy_us(struct cost *c, int64_t elems, int64_t inner) {
    return elems > 0 ? shape_us(c, I_copy, (const int64_t[]){elems, inner}) : 0;
}

static double collective_us(struct cost *c, const struct plan *plan,
                            const struct stage_program *sp, const struct instr *i) {
    if (i->code == I_norm) /* the squared norm and the loss, summed over the job */
        return plan->devices > 1 ? comm_us(c, I_all_reduce, plan->devices, 1,
                                           job_crosses(c, plan), 4 * i->n.norm.elems)
                                 : 0;
    int size = mesh_group_size(sp->mesh, i->axes);
    if (size <= 1)
        return 0;
    return comm_us(c, i->code, size, mesh_group_stride(sp->mesh, i->axes),
                   cost_group_crosses(c, plan, sp->stage, i->axes),
                   4 * i->n.all_reduce.elems);
}

double cost_instr_us(struct cost *c, const struct plan *plan,
                     const struct stage_program *sp, const struct instr *i) {
    switch (opcode_key(i->code)) {
    case KEY_FREE:
    case KEY_P2P: return 0;
    case KEY_COMM: return collective_us(c, plan, sp, i);
    case KEY_SHAPE:
    case KEY_CURVE: break;
    }
    if (i->code == I_fill && i->n.fill.elems == 0) /* all gradients of the stage */
        return sp->bytes[MEM_gradients]
                   ? shape_us(c, I_fill, (const int64_t[]){sp->bytes[MEM_gradients] / 4})
                   : 0;
    return shape_us(c, i->code, i->n.v);
}

static double fraction(double f) {
    return f > 0 ? f < 1 ? f : 1 : 0;
}

double cost_instr_overlap(struct cost *c, const struct plan *plan,
                          const struct stage_program *sp, const struct instr *i) {
    if (opcode_key(i->code) != KEY_COMM || i->code == I_norm)
        return 0;
    return fraction(profile_overlap_of(c->times, opcode_name(i->code),
                                       cost_group_crosses(c, plan, sp->stage, i->axes)));
}

/* ---- transfers --------------------------------------------------------------------- */

/* Elements in one run of memory when the box is copied from or to the block. */
static int64_t run_length(int rank, const struct box *block, const struct box *box) {
    int64_t run = 1;
    for (int i = rank - 1; i >= 0; i--) {
        run *= box->size[i];
        if (box->size[i] != block->size[i])
            break;
    }
    return run;
}

static struct box block_of(const struct program *g, const struct transfer *t, int rank,
                           bool sender) {
    const struct stage *st = &g->plan->stages[sender ? t->from : t->to];
    int coord[MESH_MAX_AXES];
    mesh_coords(&st->mesh, rank - st->first_rank, coord);
    struct extents x = transfer_extents(g, t);
    return placement_box(&st->mesh, &x, sender ? t->from_place : t->to_place, coord);
}

/* The runs of the first message stand for all: shards are even. */
static void find_runs(const struct program *g, const struct transfer *t, int64_t *pack,
                      int64_t *unpack) {
    struct piece *pieces;
    *pack = *unpack = 1;
    int n = transfer_pieces(g, t, g->plan->stages[t->to].first_rank, false, &pieces);
    if (n > 0) {
        struct box from = block_of(g, t, pieces[0].src, true);
        struct box to = block_of(g, t, pieces[0].dst, false);
        *pack = run_length(transfer_shape(g, t)->rank, &from, &pieces[0].box);
        *unpack = run_length(transfer_shape(g, t)->rank, &to, &pieces[0].box);
    }
    free(pieces);
}

struct transfer_cost cost_transfer(struct cost *c, const struct program *g,
                                   const struct transfer *t) {
    bool cross = stages_cross(c, g->plan, t->from, t->to);
    int64_t pack, unpack;
    find_runs(g, t, &pack, &unpack);
    return (struct transfer_cost){
        .pack_us = cost_copy_us(c, t->max_send, pack),
        .move_us =
            cost_p2p_us(c, stage_distance(g->plan, t->from, t->to), cross, 4 * t->max_recv),
        .unpack_us = cost_copy_us(c, t->recv_staging, unpack),
        .overlap = fraction(profile_overlap_of(c->times, "p2p", cross)),
        .cross = cross,
    };
}

/* What a stage alone can tell of a send or receive. A message is taken to be there when it
 * is asked for, as it is at the stage that bounds the time. */
static double transfer_alone_us(struct cost *c, const struct plan *plan,
                                const struct stage_program *sp, const struct instr *i) {
    if (i->code == I_send)
        return cost_copy_us(c, i->n.send.elems, i->n.send.elems);
    const struct model *m = plan->model;
    int op = i->tensor >= 0 ? m->tensors[i->tensor].producer : m->params[i->param].first_op;
    int from = plan->stage_of[op];
    if (from == sp->stage) /* a gradient, from behind */
        from = sp->stage + 1 < plan->n_stages ? sp->stage + 1 : sp->stage;
    bool cross = stages_cross(c, plan, from, sp->stage);
    return cost_p2p_us(c, stage_distance(plan, from, sp->stage), cross,
                       4 * i->n.recv.elems) *
           (1 - fraction(profile_overlap_of(c->times, "p2p", cross)));
}

/* ---- a stage ----------------------------------------------------------------------- */

static enum segment segment_at(const struct stage_program *sp, int i) {
    return i < sp->seg[SEG_BACKWARD] ? SEG_FORWARD
           : i < sp->seg[SEG_UPDATE] ? SEG_BACKWARD
                                     : SEG_UPDATE;
}

static void cost_segment(struct cost *c, const struct plan *plan,
                         const struct stage_program *sp, struct streams *st, int first,
                         int end, struct stage_cost *out) {
    enum segment seg = first < end ? segment_at(sp, first) : SEG_FORWARD;
    streams_reset(st);
    for (int k = first; k < end; k++) {
        const struct instr *i = &sp->instrs[k];
        if (opcode_key(i->code) == KEY_P2P) {
            out->p2p_us[seg] += transfer_alone_us(c, plan, sp, i);
            continue;
        }
        double us = cost_instr_us(c, plan, sp, i);
        streams_add(st, i, us, cost_instr_overlap(c, plan, sp, i));
        *(opcode_key(i->code) == KEY_COMM ? &out->comm_us[seg] : &out->compute_us[seg]) +=
            us;
    }
    out->us[seg] += streams_end(st);
}

void cost_stage(struct cost *c, const struct plan *plan, const struct stage_program *sp,
                struct stage_cost *out) {
    struct streams st;
    int64_t missing = 0, before = 0;
    for (int64_t i = 0; i < c->n_missing; i++)
        before += c->missing[i].count;
    *out = (struct stage_cost){0};
    streams_init(&st, sp);
    cost_segment(c, plan, sp, &st, sp->seg[0], sp->seg[1], out);
    cost_segment(c, plan, sp, &st, sp->seg[1], sp->seg[2], out);
    int norm = sp->seg[SEG_UPDATE];
    while (norm < sp->seg[SEG_COUNT] && sp->instrs[norm].code != I_norm)
        norm++;
    cost_segment(c, plan, sp, &st, sp->seg[SEG_UPDATE], norm, out);
    out->reduce_us = out->us[SEG_UPDATE] + out->p2p_us[SEG_UPDATE];
    if (norm < sp->seg[SEG_COUNT]) {
        out->norm_us = cost_instr_us(c, plan, sp, &sp->instrs[norm]);
        cost_segment(c, plan, sp, &st, norm + 1, sp->seg[SEG_COUNT], out);
    }
    streams_release(&st);
    for (int64_t i = 0; i < c->n_missing; i++)
        missing += c->missing[i].count;
    out->missing = missing - before;
}

/* ---- reporting --------------------------------------------------------------------- */

static bool is_comm(enum opcode code) {
    return opcode_key(code) == KEY_COMM || opcode_key(code) == KEY_P2P;
}

char *cost_key_format(const struct cost_key *k, char *buf, size_t n) {
    if (is_comm(k->code)) {
        snprintf(buf, n, "%s size=%lld stride=%lld %s %lld",
                 k->code == I_send ? "p2p" : opcode_name(k->code), (long long)k->n[0],
                 (long long)k->n[1], k->n[2] ? "cross" : "node", (long long)k->n[3]);
        return buf;
    }
    union instr_n shape = {{0}};
    memcpy(shape.v, k->n, sizeof k->n);
    char text[128];
    snprintf(buf, n, "%s %s", opcode_name(k->code),
             instr_shape_format(k->code, &shape, text, sizeof text));
    return buf;
}

static void list_missing(const struct cost *c, char *buf, size_t n) {
    enum { SHOWN = 3 };
    size_t used = 0;
    char key[160];
    buf[0] = '\0';
    for (int64_t i = 0; i < c->n_missing && i < SHOWN && used < n; i++)
        used += (size_t)snprintf(buf + used, n - used, "%s%s", i ? "; " : "",
                                 cost_key_format(&c->missing[i], key, sizeof key));
    if (c->n_missing > SHOWN && used < n)
        snprintf(buf + used, n - used, " ...");
}

/* The commands that measure what is missing. */
static int hint_commands(const struct cost *c, const char *profile, const struct plan *plan,
                         struct err *err) {
    enum { USUAL_BYTES = 64 << 20 }; /* as far as weft-profile-comm goes by itself */
    const struct model *m = plan->model;
    char op[400] = "", comm[256] = "", bytes[48] = "";
    int64_t most = -1;
    for (int64_t i = 0; i < c->n_missing; i++) {
        const struct cost_key *k = &c->missing[i];
        if (!is_comm(k->code))
            snprintf(op, sizeof op,
                     "weft-profile-op -m %.60s%s%.100s -p %.80s --max-devices %d "
                     "--micro-batch %lld",
                     m->ref ? m->ref : "MODEL", m->set && *m->set ? " --set " : "",
                     m->set ? m->set : "", profile, plan->devices,
                     (long long)plan->micro_batch);
        else if (k->n[3] > most)
            most = k->n[3];
    }
    if (most > USUAL_BYTES)
        snprintf(bytes, sizeof bytes, " --max-bytes %lldM",
                 (long long)((most + (1 << 20) - 1) >> 20));
    if (most >= 0)
        snprintf(comm, sizeof comm, "%smpirun -n %d weft-profile-comm -p %.80s%s",
                 *op ? "; " : "", plan->devices, profile, bytes);
    return err_hint(err, "measure with: %.300s%.180s", op, comm);
}

int cost_check(const struct cost *c, const char *profile, const struct plan *plan,
               struct err *err) {
    char list[600];
    if (!c->n_missing)
        return 0;
    list_missing(c, list, sizeof list);
    err_no(err, "%s lacks %lld shape%s on device %s: %s", profile, (long long)c->n_missing,
           c->n_missing > 1 ? "s" : "", profile_times_device(c->times), list);
    return hint_commands(c, profile, plan, err);
}

/* ---- streams ----------------------------------------------------------------------- */

void streams_init(struct streams *s, const struct stage_program *sp) {
    size_t n = (size_t)sp->n_buffers + 1;
    *s = (struct streams){.ready = mem_array(n, sizeof *s->ready),
                          .epoch = mem_array(n, sizeof *s->epoch),
                          .now = 1};
}

void streams_release(struct streams *s) {
    free(s->ready);
    free(s->epoch);
}

void streams_reset(struct streams *s) {
    s->compute_us = s->comm_us = 0;
    s->now++;
}

static double operands_ready(const struct streams *s, const struct instr *i) {
    double t = 0;
    for (int k = 0; k < INSTR_MAX_IN + INSTR_MAX_OUT; k++) {
        int b = k < INSTR_MAX_IN ? i->in.v[k] : i->out.v[k - INSTR_MAX_IN];
        if (b >= 0 && s->epoch[b] == s->now && s->ready[b] > t)
            t = s->ready[b];
    }
    return t;
}

/* A collective's operands are not to be touched until it ends, whether read or written. */
static void hold_operands(struct streams *s, const struct instr *i, double until) {
    for (int k = 0; k < INSTR_MAX_IN + INSTR_MAX_OUT; k++) {
        int b = k < INSTR_MAX_IN ? i->in.v[k] : i->out.v[k - INSTR_MAX_IN];
        if (b >= 0) {
            s->ready[b] = until;
            s->epoch[b] = s->now;
        }
    }
}

double streams_add(struct streams *s, const struct instr *i, double us, double overlap) {
    double ready = operands_ready(s, i);
    double start = s->compute_us > ready ? s->compute_us : ready;
    if (opcode_key(i->code) != KEY_COMM) {
        s->compute_us = start + us;
        return start;
    }
    if (s->comm_us > start)
        start = s->comm_us;
    s->comm_us = start + us;
    s->compute_us += (1 - overlap) * us;
    if (overlap > 0)
        hold_operands(s, i, s->comm_us);
    return start;
}

double streams_end(const struct streams *s) {
    return s->compute_us > s->comm_us ? s->compute_us : s->comm_us;
}
