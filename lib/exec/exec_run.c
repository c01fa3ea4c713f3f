/* The interpreter: one action is one segment of the program for one micro-batch. */
#include "common/progress.h"
#include "exec/exec_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void *exec_address(struct exec *x, int64_t at, int64_t bytes) {
    bool host = at >= HOST_ARENA;
    int64_t *reached = host ? &x->host_high_water : &x->high_water;
    at -= host ? HOST_ARENA : 0;
    int64_t end = at + memory_aligned(bytes);
    if (bytes && end > *reached)
        *reached = end;
    return (host ? x->host_arena : x->arena) + at;
}

/* The address of a buffer for this micro-batch. */
static void *address(struct exec *x, const struct stage_program *sp, int buffer,
                     int64_t micro_batch) {
    if (buffer < 0)
        return NULL;
    return exec_address(x, buffer_offset(sp, buffer, micro_batch),
                        buffer_bytes(&sp->buffers[buffer]));
}

int exec_upload(struct exec *x, void *to, enum dtype dtype, const void *from, int64_t n,
                struct err *err) {
    if (dtype_is_half(dtype)) {
        kernel_narrow(n, dtype, from, x->rounded);
        from = x->rounded;
    }
    return device_upload(x->streams[STREAM_compute], to, from, dtype_size(dtype) * n, err);
}

static int run_input(struct exec *x, const struct instr *ins, void *out, struct err *err) {
    enum dtype form;
    const int64_t sample = x->sample + x->now.first_sample;
    const void *data = exec_prefetch_take(x->prefetch, ins, sample, &form, err);
    if (!data || device_unpack(x->streams[STREAM_compute], out, ins->dtype, data, form,
                               ins->n.input.elems, err) < 0)
        return -1;
    return exec_prefetch_give(x->prefetch, err);
}

/* ---- scalars ------------------------------------------------------------------------------ */

int exec_set_scalars(struct exec *x, struct err *err) {
    return device_upload(x->streams[STREAM_compute], x->scalars, &x->now, sizeof x->now,
                         err);
}

static int set_micro_batch(struct exec *x, int64_t micro_batch, struct err *err) {
    x->now.first_sample = micro_batch * x->g->plan->micro_batch;
    return device_upload(x->streams[STREAM_compute], &x->scalars->first_sample,
                         &x->now.first_sample, sizeof x->now.first_sample, err);
}

/* Global gradient norm and loss; from here on every rank knows the step's scale, and whether there
 * is a step to take. */
static int run_norm(struct exec *x, struct err *err) {
    struct scalars mine;
    if (device_download(x->streams[STREAM_compute], &mine, x->scalars, sizeof mine, err) <
        0)
        return -1;
    double *sums = x->sums, *told = sums + 2 + METRIC_COUNT;
    const bool lost = exec_suspects_are_told(x) && !isfinite(mine.loss_sum);
    sums[0] = mine.norm_squared;
    sums[1] = lost ? 0 : mine.loss_sum;
    memcpy(sums + 2, mine.metrics, sizeof mine.metrics);
    if (exec_suspects_tell(x, mine.loss_sum, told, err) < 0 ||
        comm_sum_double(comm_world(x->comm), sums,
                        2 + METRIC_COUNT + (int)exec_suspects_numbers(x), err) < 0)
        return -1;
    sums[1] *= exec_suspects_learn(x, told);
    memcpy(x->now.metrics, sums + 2, sizeof mine.metrics);
    double scale = x->now.loss_scale;
    sums[0] /= scale * scale;
    x->now.norm_squared = sums[0];
    x->now.loss_sum = sums[1];
    x->skipping = !isfinite(sums[0]) || !isfinite(sums[1]);
    double norm = sqrt(sums[0]);
    x->now.grad_scale =
        (float)((x->opt.clip > 0 && norm > x->opt.clip ? x->opt.clip / norm : 1) / scale);
    return exec_set_scalars(x, err);
}

/* A step's first micro-batch begins its gradients. */
static int launch(struct exec *x, const struct instr *ins, const struct exec_instr *r,
                  int64_t micro_batch, const union instr_src *in,
                  const union instr_dst *out, struct err *err) {
    struct device_args args = r->args;
    args.fresh = ins->fresh && micro_batch == 0;
    return device_launch(x->streams[STREAM_compute], ins->code, &ins->n, in, out, &args,
                         err);
}

int exec_instr(struct exec *x, const struct exec_chunk *c, int i, int64_t micro_batch,
               struct err *err) {
    const struct instr *ins = &c->sp->instrs[i];
    const struct exec_instr *r = &c->ready[i];
    union instr_src in;
    union instr_dst out;
    for (int k = 0; k < INSTR_MAX_IN; k++)
        in.v[k] = address(x, c->sp, ins->in.v[k], micro_batch);
    for (int k = 0; k < INSTR_MAX_OUT; k++)
        out.v[k] = address(x, c->sp, ins->out.v[k], micro_batch);
    switch (ins->code) {
    case I_input: return run_input(x, ins, out.input.y, err);
    case I_send: return exec_send(x, ins->transfer, in.send.x, err);
    case I_recv: return exec_recv(x, ins->transfer, out.recv.y, err);
    case I_norm: return run_norm(x, err);
    case I_wait: return exec_finish(x, c, ins->work, err);
    case I_shift: return exec_shift(x, c, ins, r, in.shift.x, out.shift.y, err);
    case I_offload:
    case I_reload: return exec_move(x, c, ins, r, &in, &out, err);
    case I_swap: return exec_swap(x, c, ins, r, in.swap.x, out.swap.y, err);
    case I_exchange: return exec_exchange(x, c, ins, r, in.exchange.x, out.exchange.y, err);
    case I_all_gather:
    case I_all_reduce:
    case I_reduce_scatter:
    case I_all_to_all:
        return exec_collective(x, c, ins, r, in.all_reduce.x, out.all_reduce.y, err);
    default: return launch(x, ins, r, micro_batch, &in, &out, err);
    }
}

/* A region of this micro-batch's slot. Where none was captured before (a test runs an action by itself),
 * it is now. */
static int run_region(struct exec *x, const struct exec_chunk *c, int first,
                      struct action a, struct err *err) {
    const int64_t mb = a.index < 0 ? 0 : a.index;
    const struct exec_instr *r = &c->ready[first];
    struct device_region **kept = exec_region(c, r, mb), *which;
    if (!*kept && !(*kept = exec_capture(x, c, first, r->region, mb, err)))
        return -1;
    which = *kept;
    if (exec_watch_is_on(x))
        which = exec_watch_from(x, c, first, r->region, a, which, err);
    if (device_replay(which, x->streams[STREAM_compute], err) < 0)
        return -1;
    return exec_watch_is_on(x) ? exec_watch_to(x, err) : 0;
}

/* The same for an instruction that is not replayed. */
static int run_marked(struct exec *x, const struct exec_chunk *c, int i, struct action a,
                      struct err *err) {
    exec_watch_from(x, c, i, 1, a, NULL, err);
    if (exec_instr(x, c, i, a.index < 0 ? 0 : a.index, err) < 0)
        return -1;
    return exec_watch_to(x, err);
}

/* One instruction. Time is taken between instructions: one clock reading each. */
static int run_watched(struct exec *x, const struct exec_chunk *c, int i, struct action a,
                       double *start, struct err *err) {
    const struct instr *ins = &c->sp->instrs[i];
    if (exec_watch_is_on(x))
        return run_marked(x, c, i, a, err);
    if (x->watch)
        return exec_instr(x, c, i, a.index < 0 ? 0 : a.index, err);
    if (exec_instr(x, c, i, a.index < 0 ? 0 : a.index, err) < 0 ||
        (x->opt.on_instr && device_synchronize(x->streams[STREAM_compute], err) < 0))
        return -1;
    double end = now_s();
    x->seconds[ins->code] += end - *start;
    if (x->opt.on_instr)
        x->opt.on_instr(x->opt.on_instr_ctx, ins, a, *start, end);
    *start = end;
    return 0;
}

int exec_run(struct exec *x, struct action a, struct err *err) {
    const struct exec_chunk *c = exec_chunk_of(x, a.stage);
    int64_t mb = a.index < 0 ? 0 : a.index;
    double start = now_s();
    struct span span = program_segment(c->sp, a.segment);
    const bool skips = x->skipping && a.segment < SEG_PAIR;
    int rc = set_micro_batch(x, mb, err);
    for (int i = span.first, next; i < span.end && rc == 0; i = next) {
        bool replays = x->captures && !skips && c->ready[i].region > 1;
        next = i + (replays ? c->ready[i].region : 1);
        if (x->now.evaluating && c->sp->instrs[i].trains)
            continue;
        if (skips && c->sp->instrs[i].code != I_fill)
            continue; /* behind the norm: gradients are cleared, nothing else changes */
        rc = replays ? run_region(x, c, i, a, err) : run_watched(x, c, i, a, &start, err);
        if (rc < 0)
            err_prefix(err, "%s", opcode_name(c->sp->instrs[i].code));
    }
    if (rc < 0)
        comm_fail(x->comm, err); /* messages are under way: the others must know now */
    return rc;
}
