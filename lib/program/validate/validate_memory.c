/* The replay of memory: who wrote which bytes last.
 *
 * Parameters and optimizer state are there from the beginning. Gradients are zeros if the
 * step before clears them at its end, else what it left, which nobody may read. The staging
 * of transfers belongs to them alone. All of it but old gradients must be there, unspoilt,
 * when the step ends. What overwrites a part of something loses the whole of it, and the
 * next read of that is the fault that is reported. */
#include "program/validate/validate.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Owners of bytes other than buffers. Gradients are one owner, since the update reduces
 * several that lie side by side in one instruction. So is all else that outlives a step, of
 * which replicas take means. */
enum {
    NOBODY = -1,
    GRADIENTS = -2,
    KEPT = -3,
    STAGING = -4,
    OLD_GRADIENTS = INT_MIN / 2,
    UNDER_WAY = INT_MIN
};

struct extent {
    int64_t from, to; /* bytes, with the padding behind */
    int owner;  /* a buffer of the group, or one of the above (+ work, - 2 * transfer) */
    int64_t mb; /* micro-batch that wrote it; 0 for what outlives a step */
};

/* What a collective under way reads. */
struct reading {
    struct extent x;
    int work;
};

struct replay {
    const struct program *g;
    struct group_schedule schedule;
    const struct stage_program *sp; /* the chunk at hand */
    /* how many the chunks before it have; its own are numbered from there on */
    int buffers, works;
    ARR(struct extent) list; /* disjoint, by offset */
    ARR(struct reading) readings;
    int under_way; /* collectives started and not waited for */
};

static void turn_to(struct replay *r, int stage) {
    r->buffers = r->works = 0;
    for (const int *c = r->schedule.chunks; *c != stage; c++) {
        r->buffers += r->g->stages[*c].n_buffers;
        r->works += r->g->stages[*c].n_works;
    }
    r->sp = &r->g->stages[stage];
}

/* The first extent that ends behind `from`. */
static int64_t first_touching(const struct replay *r, int64_t from) {
    int64_t lo = 0, hi = r->list.n;
    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (r->list.p[mid].to <= from)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Gives the bytes to a new owner; extents that they touch are lost as a whole. */
static void put(struct replay *r, struct extent w) {
    int64_t i = first_touching(r, w.from), end = i;
    while (end < r->list.n && r->list.p[end].from < w.to)
        end++;
    if (end == i)
        arr_push(&r->list, w);
    int64_t tail = r->list.n - (end == i ? 1 : 0) - end;
    memmove(r->list.p + i + 1, r->list.p + end, sizeof w * (size_t)tail);
    r->list.p[i] = w;
    r->list.n = i + 1 + tail;
}

/* Whether the extent is there as its owner wrote it, in one piece or in several. */
static bool is_whole(const struct replay *r, struct extent x) {
    int64_t i = first_touching(r, x.from), at = x.from;
    for (; i < r->list.n && at < x.to && r->list.p[i].owner == x.owner &&
           r->list.p[i].mb == x.mb;
         i++) {
        if (r->list.p[i].from > at)
            return false;
        at = r->list.p[i].to;
    }
    return at >= x.to;
}

static struct extent extent_of(const struct replay *r, int buffer, int64_t mb) {
    const struct buffer *b = &r->sp->buffers[buffer];
    int64_t at = buffer_offset(r->sp, buffer, mb), end = at + buffer_bytes(b);
    if (b->mem == MEM_gradients)
        return (struct extent){at, end, GRADIENTS, 0};
    if (b->mem == MEM_parameters || b->mem == MEM_optimizer)
        return (struct extent){at, end, KEPT, 0};
    return (struct extent){at, end, r->buffers + buffer_whole(r->sp->buffers, buffer), mb};
}

/* ---- what outlives a step ---------------------------------------------------------------- */

/* Whether the extent is inside the arena of the device or of the host. */
static bool is_inside(const struct stage_program *sp, struct extent x) {
    bool host = x.from >= HOST_ARENA;
    return x.from >= 0 && x.to <= (host ? HOST_ARENA + sp->host_bytes : sp->arena_bytes);
}

/* Takes bytes that nobody has yet. */
static int reserve(struct replay *r, struct extent x, const char *what, struct err *err) {
    int64_t i = first_touching(r, x.from);
    if (!is_inside(r->sp, x))
        return err_input(err, "%s at byte %lld lies outside the arena", what,
                         (long long)x.from);
    if (i < r->list.n && r->list.p[i].from < x.to)
        return err_input(err, "%s at byte %lld overlaps what is at byte %lld", what,
                         (long long)x.from, (long long)r->list.p[i].from);
    if (x.from < x.to)
        put(r, x);
    return 0;
}

static int reserve_buffer(struct replay *r, int buffer, const char *what, struct err *err) {
    return reserve(r, extent_of(r, buffer, 0), what, err);
}

/* A gradient as the step before left it: zeros where the update ended with them. */
static struct extent gradient_before(const struct replay *r, int buffer) {
    const struct stage_program *sp = r->sp;
    const struct instr *last = &sp->instrs[sp->seg[SEG_UPDATE + 1] - 1];
    struct extent x = extent_of(r, buffer, 0), zeros = {0};
    if (last->code == I_fill && sp->seg[SEG_UPDATE + 1] > sp->seg[SEG_UPDATE])
        zeros = extent_of(r, last->out.fill.y, 0);
    if (x.from < zeros.from || x.to > zeros.to)
        x.owner = OLD_GRADIENTS;
    return x;
}

/* Parameters, optimizer state and gradients each have bytes of their own. */
static int reserve_permanent(struct replay *r, struct err *err) {
    const struct stage_program *sp = r->sp;
    for (int i = 0; i < sp->n_params; i++)
        if (reserve_buffer(r, sp->params[i].buffer, "a parameter", err) < 0)
            return -1;
    for (int i = 0; i < sp->n_states; i++)
        if (reserve_buffer(r, sp->states[i].buffer, "optimizer state", err) < 0)
            return -1;
    for (int i = 0; i < sp->n_grads; i++)
        if (reserve(r, gradient_before(r, sp->grads[i].buffer), "a gradient", err) < 0)
            return -1;
    return 0;
}

/* The staging of every transfer that begins or ends here has bytes of its own too. */
static int reserve_staging(struct replay *r, const struct program *g, struct err *err) {
    for (int i = 0; i < g->n_transfers; i++) {
        const struct transfer *t = &g->transfers[i];
        int64_t size = dtype_size(t->dtype), send = t->send_offset, recv = t->recv_offset;
        struct extent out = {send, send + memory_aligned(size * t->depth * t->send_staging),
                             STAGING - 2 * i, 0},
                      in = {recv, recv + memory_aligned(size * t->recv_staging),
                            STAGING - 2 * i - 1, 0};
        int group = g->plan->stages[r->sp->stage].group;
        if ((g->plan->stages[t->from].group == group &&
             reserve(r, out, "staging", err) < 0) ||
            (g->plan->stages[t->to].group == group && reserve(r, in, "staging", err) < 0))
            return -1;
    }
    return 0;
}

/* Checks that nothing was overwritten that was there before. */
static int compare(const struct replay *r, const struct replay *before, struct err *err) {
    if (r->under_way)
        return err_input(err, "a collective is started and not waited for");
    for (int64_t i = 0; i < before->list.n; i++) {
        struct extent x = before->list.p[i];
        if (x.owner != OLD_GRADIENTS && !is_whole(r, x))
            return err_input(err, "what is at byte %lld is overwritten within a step",
                             (long long)x.from);
    }
    return 0;
}

/* ---- instructions ------------------------------------------------------------------------ */

static int fault(const struct instr *ins, const char *operand, int64_t mb, const char *what,
                 struct err *err) {
    return err_input(err, "%s: %s of micro-batch %lld %s", opcode_name(ins->code), operand,
                     (long long)mb, what);
}

static int check_read(const struct replay *r, const struct instr *ins, int buffer,
                      const char *operand, int64_t mb, struct err *err) {
    if (!is_whole(r, extent_of(r, buffer, mb)))
        return fault(ins, operand, mb, "is not written or was overwritten", err);
    return 0;
}

static int check_reads(const struct replay *r, const struct instr *ins, int64_t mb,
                       struct err *err) {
    const struct instr_info *info = instr_info(ins->code);
    const bool writes = ins->fresh && mb == 0;
    for (int k = 0; k < info->n_in; k++)
        if (ins->in.v[k] >= 0 &&
            check_read(r, ins, ins->in.v[k], info->in[k].name, mb, err) < 0)
            return -1;
    for (int k = 0; k < info->n_out; k++)
        if (ins->out.v[k] >= 0 && info->out[k].flags & OPERAND_ADD &&
            !(writes && info->out[k].flags & OPERAND_FRESH) &&
            check_read(r, ins, ins->out.v[k], info->out[k].name, mb, err) < 0)
            return -1;
    return 0;
}

/* Whether result k may lie on operand j's bytes: on all, where it works in place. */
static bool may_share(const struct instr *ins, int k, int j, struct extent out,
                      struct extent in) {
    if (out.to <= in.from || in.to <= out.from)
        return true;
    bool in_place = instr_info(ins->code)->in[j].flags & OPERAND_OVER && k == 0;
    return (in_place || ins->out.v[k] == ins->in.v[j]) && out.from == in.from;
}

static bool is_read(const struct replay *r, struct extent w) {
    for (int64_t i = 0; i < r->readings.n; i++)
        if (r->readings.p[i].x.from < w.to && w.from < r->readings.p[i].x.to)
            return true;
    return false;
}

static int check_writes(struct replay *r, const struct instr *ins, int64_t mb,
                        struct err *err) {
    const struct instr_info *info = instr_info(ins->code);
    for (int k = 0; k < info->n_out; k++) {
        if (ins->out.v[k] < 0)
            continue;
        struct extent w = extent_of(r, ins->out.v[k], mb);
        if (!is_inside(r->sp, w))
            return fault(ins, info->out[k].name, mb, "is outside the arena", err);
        if (is_read(r, w))
            return fault(ins, info->out[k].name, mb, "overwrites what is under way", err);
        for (int j = 0; j < info->n_in; j++)
            if (ins->in.v[j] >= 0 &&
                !may_share(ins, k, j, w, extent_of(r, ins->in.v[j], mb)))
                return fault(ins, info->out[k].name, mb, "overwrites an operand", err);
        if (!is_whole(r, w))
            put(r, w);
    }
    return 0;
}

/* What a started collective writes, or uses up, is its own until the wait: to touch it in
 * between is a fault. */
static int hold(struct replay *r, const struct instr *ins, int buffer, int64_t mb,
                struct err *err) {
    struct extent x = extent_of(r, buffer, mb), held = x;
    held.owner = UNDER_WAY + r->works + ins->work;
    if (ins->code == I_wait && !is_whole(r, held))
        return fault(ins, "x", mb, "was not started, or touched before this wait", err);
    put(r, ins->code == I_wait ? x : held);
    return 0;
}

/* Where in `readings` the operand of a started collective is; -1: nowhere. */
static int64_t reading_of(const struct replay *r, int work) {
    int64_t i = r->readings.n - 1;
    while (i >= 0 && r->readings.p[i].work != work)
        i--;
    return i;
}

/* Holds an operand until the wait. What is only read, others may read as well. */
static int hold_operand(struct replay *r, const struct instr *ins, int64_t mb,
                        struct err *err) {
    int64_t reading = reading_of(r, r->works + ins->work);
    if (ins->code == I_wait && reading >= 0) {
        r->readings.p[reading] = arr_last(&r->readings);
        r->readings.n--;
        return check_read(r, ins, ins->in.v[0], "x", mb, err);
    }
    bool alone = ins->code == I_wait || ins->code == I_reduce_scatter ||
                 ins->in.v[0] == ins->out.v[0];
    if (alone)
        return hold(r, ins, ins->in.v[0], mb, err);
    arr_push(&r->readings,
             (struct reading){extent_of(r, ins->in.v[0], mb), r->works + ins->work});
    return 0;
}

/* A start reads and writes like the whole collective, then holds its operands until the wait. */
static int replay_started(struct replay *r, const struct instr *ins, int64_t mb,
                          struct err *err) {
    r->under_way += ins->code == I_wait ? -1 : 1;
    if (ins->code != I_wait &&
        (check_reads(r, ins, mb, err) < 0 || check_writes(r, ins, mb, err) < 0))
        return -1;
    if (hold_operand(r, ins, mb, err) < 0)
        return -1;
    return ins->out.v[0] == ins->in.v[0] ? 0 : hold(r, ins, ins->out.v[0], mb, err);
}

/* A reduce-scatter uses its operand up as scratch. */
static int replay_instr(struct replay *r, const struct instr *ins, int64_t mb,
                        struct err *err) {
    if (ins->work >= 0)
        return replay_started(r, ins, mb, err);
    if (check_reads(r, ins, mb, err) < 0)
        return -1;
    if (ins->code == I_reduce_scatter) {
        struct extent x = extent_of(r, ins->in.reduce_scatter.x, mb);
        x.owner = NOBODY;
        put(r, x);
    }
    return check_writes(r, ins, mb, err);
}

/* An operand must be as large as the shape says, and of the type that the table says. The
 * device works on its own memory; the host's is only for copies, and for their waits. */
static int check_operand(const struct stage_program *sp, const struct instr *ins,
                         const struct operand_info *operand, int buffer, int64_t elems,
                         struct err *err) {
    if (buffer < 0)
        return 0;
    const struct buffer *b = &sp->buffers[buffer];
    if (elems > b->elems)
        return fault(ins, operand->name, 0, "is larger than its buffer", err);
    if (b->dtype != operand_dtype(operand, ins->dtype))
        return fault(ins, operand->name, 0, "is of another type than its buffer", err);
    if (b->host != ((operand->flags & OPERAND_HOST) != 0) && ins->code != I_wait)
        return fault(ins, operand->name, 0, "is in the wrong memory", err);
    return 0;
}

/* Checks every instruction once. Whole numbers are moved, not computed with. */
static int check_operands(const struct stage_program *sp, struct err *err) {
    for (int i = 0; i < sp->n_instrs; i++) {
        const struct instr *ins = &sp->instrs[i];
        const struct instr_info *info = instr_info(ins->code);
        struct instr_work w;
        instr_work(ins->code, &ins->n, &w);
        if (ins->dtype != DTYPE_f32 && !dtype_is_half(ins->dtype) &&
            !opcode_moves(ins->code))
            return err_input(err, "%s: of whole numbers", opcode_name(ins->code));
        for (int k = 0; k < info->n_in; k++)
            if (check_operand(sp, ins, &info->in[k], ins->in.v[k], w.in[k], err) < 0)
                return -1;
        for (int k = 0; k < info->n_out; k++)
            if (check_operand(sp, ins, &info->out[k], ins->out.v[k], w.out[k], err) < 0)
                return -1;
    }
    return 0;
}

/* ---- a step ------------------------------------------------------------------------------ */

/* Micro-batches in flight have slots of equal size, so a few of them show every
 * neighbourhood: the first and last slots, and the first ones when they are used again. The
 * last micro-batch has a backward pass of its own. */
static bool is_typical(int64_t mb, int64_t slots) {
    int64_t in_slot = mb % slots;
    return in_slot < 2 || in_slot >= slots - 2;
}

static bool holds_all(const struct plan *p) {
    return schedule_traits(p->schedule)->further == FURTHER_ALL;
}

/* Where all micro-batches are held at once, the four of a schedule of four stand for the
 * first two and the last two. */
static int64_t stands_for(const struct program *g, int64_t mb, int64_t replayed) {
    int64_t m = plan_micro_batches(g->plan);
    return mb < replayed / 2 ? mb : m - replayed + mb;
}

static int replay_action(struct replay *r, struct action a, int64_t mb, struct err *err) {
    turn_to(r, a.stage);
    struct span span = program_segment(r->sp, a.segment);
    for (int j = span.first; j < span.end; j++)
        if (replay_instr(r, &r->sp->instrs[j], mb, err) < 0)
            return err_prefix(err, "stages[%d]", a.stage);
    return 0;
}

/* Replays the actions of a step in order, with a few micro-batches for many. */
static int replay_step(struct replay *r, struct err *err) {
    const struct plan *p = r->g->plan;
    bool at_once = holds_all(p);
    int64_t m = r->schedule.micro_batches;
    for (int64_t i = 0; i < schedule_actions(&r->schedule); i++) {
        struct action a = schedule_action(&r->schedule, i);
        int64_t mb = a.index < 0 ? 0 : a.index;
        if (!at_once && mb != m - 1 && !is_typical(mb, r->g->stages[a.stage].in_flight))
            continue;
        if (at_once)
            mb = stands_for(r->g, mb, m);
        if (replay_action(r, a, mb, err) < 0)
            return -1;
    }
    return 0;
}

/* Reserves what each chunk always has for itself. */
static int reserve_chunks(struct replay *r, struct err *err) {
    for (int k = 0; k < r->schedule.n_chunks; k++) {
        turn_to(r, r->schedule.chunks[k]);
        if (check_operands(r->sp, err) < 0 || reserve_permanent(r, err) < 0)
            return err_prefix(err, "stages[%d]", r->sp->stage);
    }
    if (reserve_staging(r, r->g, err) < 0)
        return err_prefix(err, "stages[%d]", r->sp->stage);
    return 0;
}

int validate_memory(const struct program *g, int group, struct err *err) {
    int64_t m = schedule_enough(g->plan);
    if (holds_all(g->plan) && m > 4)
        m = 4;
    struct replay r = {.g = g, .schedule = schedule_of_group(g->plan, group, m)};
    struct replay before = {.g = g};
    int rc = reserve_chunks(&r, err);
    for (int64_t i = 0; i < r.list.n; i++)
        arr_push(&before.list, r.list.p[i]);
    if (rc == 0)
        rc = replay_step(&r, err);
    if (rc == 0 && compare(&r, &before, err) < 0)
        rc = err_prefix(err, "stages[%d]", r.sp->stage);
    arr_release(&r.list);
    arr_release(&r.readings);
    arr_release(&before.list);
    return rc;
}
