/* Instructions as nodes, which wait for the node before them in the rank's order and for
 * the writers of the buffers that they touch. */
#include "cost/chakra.h"

#include "common/file.h"
#include "common/json.h"
#include "common/wire.h"
#include "program/trace.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Values of Chakra's enum NodeType and enum CollectiveCommType. */
enum { LOAD = 2, STORE = 3, COMPUTE = 4, SEND = 5, RECEIVE = 6, COLLECTIVE = 7 };
enum { ALL_REDUCE = 0, ALL_GATHER = 2, ALL_TO_ALL = 6, REDUCE_SCATTER = 7 };

/* ---- groups of ranks ----------------------------------------------------------------------------------- */

/* Group names count from 1: ASTRA-sim takes group 0 for all ranks, whatever the list
 * says. */
struct groups {
    json_t *list;   /* "1": [ranks] */
    json_t *number; /* "[first,second,...]" -> "1" */
};

static const char *group_of(struct groups *s, const int *ranks, int n) {
    struct arena arena = {0};
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_integer(ranks[i]));
    char *key = json_dumps(list, JSON_COMPACT);
    if (!json_object_get(s->number, key)) {
        char *name = arena_printf(&arena, "%zu", json_object_size(s->list) + 1);
        json_object_set(s->list, name, list);
        json_object_set_new(s->number, key, json_string(name));
    }
    const char *name = json_string_value(json_object_get(s->number, key));
    free(key);
    json_decref(list);
    arena_release(&arena);
    return name;
}

/* ---- one rank ------------------------------------------------------------------------------------------- */

struct list {
    int64_t *p, n, cap;
};

struct writer {
    const struct program *g;
    const double *const *us; /* by stage and instruction */
    struct groups *groups;
    struct chakra_counts *counts;
    FILE *f;
    int rank;
    int64_t id; /* of the last node */
    /* of all nodes so far; ends are rounded, not durations, so that the sum is right */
    double time_us;
    struct list order;            /* nodes that the next one in order waits for */
    int64_t last[COLLECTIVE + 1]; /* by type: the last node that was only started, or 0 */
    int64_t **written; /* by stage and buffer: the node that wrote it last, or 0 */
    int64_t *started;  /* by instr.work: the node that it started */
};

static void attr_int(struct wire_out *node, const char *name, int field, uint64_t value) {
    struct wire_out a = {0};
    wire_put_text(&a, 1, name);
    wire_put_uint(&a, field, value);
    wire_put_bytes(node, 10, a.p, (size_t)a.n);
    arr_release(&a);
}

static void attr_text(struct wire_out *node, const char *name, const char *value) {
    struct wire_out a = {0};
    wire_put_text(&a, 1, name);
    wire_put_text(&a, 29, value);
    wire_put_bytes(node, 10, a.p, (size_t)a.n);
    arr_release(&a);
}

/* Field numbers of an attribute's value, by its type. */
enum { INT32 = 7, INT64 = 9, UINT64 = 13, BOOL = 27 };

static void put_message(FILE *f, const struct wire_out *message) {
    struct wire_out size = {0};
    wire_put_size(&size, (uint64_t)message->n);
    fwrite(size.p, 1, (size_t)size.n, f);
    if (message->n)
        fwrite(message->p, 1, (size_t)message->n, f);
    arr_release(&size);
}

static void put_deps(struct wire_out *node, int field, const struct list *deps) {
    if (deps->n)
        wire_put_uints(node, field, deps->p, deps->n);
}

static void push_once(struct list *l, int64_t id) {
    int64_t k = 0;
    while (k < l->n && l->p[k] != id)
        k++;
    if (k == l->n)
        arr_push(l, id);
}

/* Lists the nodes that last wrote what an instruction reads or overwrites, each once. */
static void find_writers(const struct writer *w, int stage, const struct instr *i,
                         struct list *out) {
    int b[INSTR_MAX_BUFFERS], n = instr_buffers(i, b);
    for (int k = 0; k < n; k++) {
        const int whole = buffer_whole(w->g->stages[stage].buffers, b[k]);
        if (w->written[stage][whole])
            push_once(out, w->written[stage][whole]);
    }
}

static void write_buffers(struct writer *w, int stage, const struct instr *i) {
    const struct instr_info *info = instr_info(i->code);
    for (int k = 0; k < info->n_out; k++)
        if (i->out.v[k] >= 0)
            w->written[stage][buffer_whole(w->g->stages[stage].buffers, i->out.v[k])] =
                w->id;
}

static void begin_node(struct writer *w, struct wire_out *node, const struct instr *i,
                       struct action a, int type, double us) {
    struct arena arena = {0};
    const char *about = trace_subject(w->g, i);
    double end = w->time_us + us;
    wire_put_uint(node, 1, (uint64_t)++w->id);
    wire_put_text(node, 2,
                  a.index < 0
                      ? arena_printf(&arena, "%s %s %s", segment_name(a.segment),
                                     opcode_name(i->code), about)
                      : arena_printf(&arena, "%s %lld %s %s", segment_name(a.segment),
                                     (long long)a.index, opcode_name(i->code), about));
    wire_put_uint(node, 3, (uint64_t)type);
    wire_put_uint(node, 7, (uint64_t)(llround(end) - llround(w->time_us)));
    attr_int(node, "is_cpu_op", BOOL, 0);
    w->time_us = end;
    w->counts->nodes++;
    arena_release(&arena);
}

/* Writes a node with what it waits for. The next node in order waits for this one. A node
 * that is only started waits for the last such node of its type too, and the order goes on
 * without it. The order is among the data dependencies too, since Chakra's own feeder reads
 * only those. */
static void end_node(struct writer *w, struct wire_out *node, int type, bool in_order,
                     struct list *data) {
    struct list wait = {0};
    for (int64_t k = 0; k < w->order.n; k++)
        push_once(&wait, w->order.p[k]);
    if (!in_order && w->last[type])
        push_once(&wait, w->last[type]);
    for (int64_t k = 0; k < wait.n; k++)
        push_once(data, wait.p[k]);
    put_deps(node, 4, &wait);
    put_deps(node, 5, data);
    put_message(w->f, node);
    if (in_order) {
        w->order.n = 0;
        arr_push(&w->order, w->id);
    } else {
        w->last[type] = w->id;
    }
    arr_release(&wait);
    arr_release(node);
}

/* ---- instructions ---------------------------------------------------------------------------------------- */

static int collective_type(enum opcode code) {
    switch (code) {
    case I_all_gather: return ALL_GATHER;
    case I_reduce_scatter: return REDUCE_SCATTER;
    case I_all_to_all:
    case I_exchange: return ALL_TO_ALL;
    case I_all_reduce:
    case I_norm: return ALL_REDUCE;
    default: return -1;
    }
}

static const char *collective_group(struct writer *w, const struct stage *s,
                                    const struct instr *i) {
    int n = i->code == I_norm ? w->g->plan->devices : mesh_group_size(&s->mesh, i->axes);
    int *ranks = mem_array((size_t)n, sizeof *ranks);
    if (i->code != I_norm)
        mesh_group(&s->mesh, i->axes, w->rank - s->first_rank, ranks);
    for (int k = 0; k < n; k++)
        ranks[k] = i->code == I_norm ? k : ranks[k] + s->first_rank;
    const char *name = group_of(w->groups, ranks, n);
    free(ranks);
    return name;
}

/* ASTRA-sim's size is what a rank puts in; an all-gather's numbers count what comes out. */
static void write_collective(struct writer *w, struct action a, const struct instr *i,
                             double us) {
    const struct stage *s = &w->g->plan->stages[a.stage];
    const int type = collective_type(i->code);
    const int64_t parts = type == ALL_GATHER ? i->n.v[1] : 1;
    struct wire_out node = {0};
    struct list data = {0};
    find_writers(w, a.stage, i, &data);
    begin_node(w, &node, i, a, COLLECTIVE, us);
    attr_int(&node, "comm_type", INT64, (uint64_t)type);
    attr_int(&node, "comm_size", INT64,
             (uint64_t)(i->n.v[0] / parts * dtype_size(i->dtype)));
    attr_text(&node, "pg_name", collective_group(w, s, i));
    end_node(w, &node, COLLECTIVE, i->work < 0, &data);
    write_buffers(w, a.stage, i);
    if (i->work >= 0)
        w->started[i->work] = w->id;
    w->counts->collectives++;
    arr_release(&data);
}

static void write_message(struct writer *w, struct action a, const struct instr *i,
                          int type, int other, int64_t tag, int64_t bytes) {
    struct wire_out node = {0};
    struct list data = {0};
    if (type == SEND)
        find_writers(w, a.stage, i, &data);
    begin_node(w, &node, i, a, type, 0);
    attr_int(&node, "comm_src", INT32, (uint64_t)(type == SEND ? w->rank : other));
    attr_int(&node, "comm_dst", INT32, (uint64_t)(type == SEND ? other : w->rank));
    attr_int(&node, "comm_tag", INT32, (uint64_t)(tag & INT_MAX));
    attr_int(&node, "comm_size", INT64, (uint64_t)bytes);
    end_node(w, &node, type, type == RECEIVE && i->work < 0, &data);
    if (type == RECEIVE)
        write_buffers(w, a.stage, i);
    if (i->work >= 0) /* of a shift, whose receive comes last: the wait is for that */
        w->started[i->work] = w->id;
    w->counts->messages += type == SEND;
    w->counts->message_bytes += type == SEND ? bytes : 0;
    arr_release(&data);
}

/* Writes the messages of a transfer, of which both ends have the same list. A piece that a
 * rank gives itself is no message. */
static void write_transfer(struct writer *w, struct action a, const struct instr *i) {
    const struct transfer *t = &w->g->transfers[i->transfer];
    bool sends = i->code == I_send;
    struct piece *pieces;
    int n = transfer_pieces(w->g, t, w->rank, sends, &pieces);
    for (int k = 0; k < n; k++) {
        const struct piece *p = &pieces[k];
        int64_t nth = 0;
        for (int j = 0; j < k; j++)
            nth += pieces[j].src == p->src && pieces[j].dst == p->dst;
        int64_t tag = ((a.index + 1) * w->g->n_transfers + i->transfer) * 16 + nth;
        if (p->src != p->dst)
            write_message(w, a, i, sends ? SEND : RECEIVE, sends ? p->dst : p->src, tag,
                          p->elems * dtype_size(t->dtype));
    }
    free(pieces);
}

/* A shift sends to the next rank of the group's ring and receives from the one before. */
static void write_shift(struct writer *w, struct action a, const struct instr *i) {
    const struct stage *s = &w->g->plan->stages[a.stage];
    int n = mesh_group_size(&s->mesh, i->axes), at = 0;
    int *ranks = mem_array((size_t)n, sizeof *ranks);
    mesh_group(&s->mesh, i->axes, w->rank - s->first_rank, ranks);
    while (ranks[at] != w->rank - s->first_rank)
        at++;
    int64_t bytes = i->n.shift.elems * dtype_size(i->dtype);
    /* Shifts share one tag, apart from those of transfers: their messages come in order. */
    int64_t tag = INT_MAX;
    write_message(w, a, i, SEND, ranks[(at + 1) % n] + s->first_rank, tag, bytes);
    write_message(w, a, i, RECEIVE, ranks[(at + n - 1) % n] + s->first_rank, tag, bytes);
    free(ranks);
}

static void write_compute(struct writer *w, struct action a, const struct instr *i,
                          double us) {
    struct wire_out node = {0};
    struct list data = {0};
    struct instr_work work;
    bool move = opcode_is_move(i->code);
    int type = !move ? COMPUTE : i->code == I_offload ? STORE : LOAD;
    instr_work(i->code, &i->n, &work);
    find_writers(w, a.stage, i, &data);
    begin_node(w, &node, i, a, type, us);
    attr_int(&node, "num_ops", INT64, (uint64_t)work.flops);
    attr_int(&node, "tensor_size", UINT64, (uint64_t)instr_bytes(&work, i->dtype));
    end_node(w, &node, type, i->work < 0, &data);
    write_buffers(w, a.stage, i);
    if (i->work >= 0)
        w->started[i->work] = w->id;
    arr_release(&data);
}

static void write_instr(struct writer *w, struct action a, int k) {
    const struct instr *i = &w->g->stages[a.stage].instrs[k];
    double us = w->us[a.stage][k];
    if (i->code == I_wait)
        arr_push(&w->order, w->started[i->work]);
    else if (i->code == I_send || i->code == I_recv)
        write_transfer(w, a, i);
    else if (i->code == I_shift)
        write_shift(w, a, i);
    else if (opcode_key(i->code) == KEY_COMM)
        write_collective(w, a, i, us);
    else
        write_compute(w, a, i, us);
}

/* ---- files ------------------------------------------------------------------------------------------------ */

static void write_rank(struct writer *w) {
    const struct program *g = w->g;
    struct wire_out head = {0};
    int group = program_group_of_rank(g, w->rank), works = 0;
    struct group_schedule s =
        schedule_of_group(g->plan, group, plan_micro_batches(g->plan));
    wire_put_text(&head, 1, "0.0.4");
    put_message(w->f, &head);
    w->written = mem_array((size_t)g->n_stages, sizeof *w->written);
    for (int k = 0; k < g->n_stages; k++) {
        w->written[k] = mem_array((size_t)g->stages[k].n_buffers + 1, sizeof **w->written);
        works = g->stages[k].n_works > works ? g->stages[k].n_works : works;
    }
    w->started = mem_array((size_t)works + 1, sizeof *w->started);
    for (int64_t n = 0; n < schedule_actions(&s); n++) {
        struct action a = schedule_action(&s, n);
        struct span span = program_segment(&g->stages[a.stage], a.segment);
        if (a.segment >= SEG_PAIR) /* these do not run in every step */
            continue;
        for (int k = span.first; k < span.end; k++)
            write_instr(w, a, k);
    }
    for (int k = 0; k < g->n_stages; k++)
        free(w->written[k]);
    free(w->written);
    free(w->started);
    arr_release(&w->order);
    arr_release(&head);
}

static int write_file(struct writer *w, const char *dir, struct err *err) {
    struct file_out out;
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/weft.%d.et", dir, w->rank) >= (int)sizeof path)
        return err_input(err, "%.64s: name too long", dir);
    if (file_out_open(&out, path, err) < 0)
        return -1;
    w->f = out.f;
    write_rank(w);
    return file_out_close(&out, err);
}

/* How long each instruction takes, which is the same for all ranks and micro-batches. */
static double **find_times(const struct program *g, struct cost *c) {
    double **us = mem_array((size_t)g->n_stages, sizeof *us);
    for (int k = 0; k < g->n_stages; k++) {
        const struct stage_program *sp = &g->stages[k];
        us[k] = mem_array((size_t)sp->n_instrs + 1, sizeof **us);
        for (int i = 0; i < sp->n_instrs; i++)
            us[k][i] = cost_instr(c, g->plan, sp, &sp->instrs[i]).us;
    }
    return us;
}

int chakra_write(const char *dir, const struct program *g, struct cost *c,
                 struct chakra_counts *out, struct err *err) {
    struct groups groups = {json_object(), json_object()};
    char path[PATH_MAX];
    *out = (struct chakra_counts){0};
    int rc = mkdir(dir, 0777) < 0 && errno != EEXIST
                 ? err_system(err, "%.256s: %s", dir, strerror(errno))
                 : 0;
    double **us = find_times(g, c);
    for (int r = 0; r < g->plan->devices && rc == 0; r++) {
        struct writer w = {.g = g,
                           .us = (const double *const *)us,
                           .groups = &groups,
                           .counts = out,
                           .rank = r};
        rc = write_file(&w, dir, err);
    }
    snprintf(path, sizeof path, "%.*s/comm_groups.json", PATH_MAX - 32, dir);
    if (rc == 0)
        rc = json_write_file(groups.list, path, err);
    for (int k = 0; k < g->n_stages; k++)
        free(us[k]);
    free(us);
    json_decref(groups.list);
    json_decref(groups.number);
    return rc;
}
