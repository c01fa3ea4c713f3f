/* The interpreter: one action is one segment of the program for one micro-batch. */
#include "common/mem.h"
#include "common/progress.h"
#include "common/rng.h"
#include "exec/exec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The address of a buffer for this micro-batch; notes how far into the arena it reaches. */
static float *address(struct exec *x, int buffer, int64_t micro_batch) {
    if (buffer < 0)
        return NULL;
    int64_t at = buffer_offset(x->sp, buffer, micro_batch);
    int64_t end = at + buffer_bytes(&x->sp->buffers[buffer]);
    if (end > x->high_water)
        x->high_water = end;
    return (float *)(x->arena + at);
}

/* One run of a sample, from position `at` on. */
static int read_run(struct exec *x, enum data_source source, int64_t sample, int64_t at,
                    int64_t n, void *out, struct err *err) {
    switch (source) {
    case DATA_TOKEN: return data_tokens(x->data, x->split, sample, at, n, out, NULL, err);
    case DATA_NEXT_TOKEN:
        return data_tokens(x->data, x->split, sample, at, n, NULL, out, err);
    case DATA_IMAGE: return data_image(x->data, x->split, sample, at, n, out, NULL, err);
    case DATA_LABEL: return data_image(x->data, x->split, sample, 0, 0, NULL, out, err);
    case DATA_SOURCE_COUNT: break;
    }
    return err_system(err, "no source of data");
}

/* The samples of this rank's box, each run by run: all of its axes but the last are counted up. */
static int run_input(struct exec *x, const struct instr *ins, const struct exec_instr *r,
                     int64_t micro_batch, void *out, struct err *err) {
    const struct model *m = x->g->plan->model;
    const struct model_tensor *t = &m->tensors[ins->tensor];
    struct extents whole = model_extents(m, &t->shape, 1);
    int last = t->shape.rank - 1, rc = 0;
    int64_t first = x->sample + micro_batch * x->g->plan->micro_batch;
    int64_t n = last ? r->box.size[last] : 1, runs = ins->n.input.elems / n;
    for (int64_t i = 0; i < runs && rc == 0; i++) {
        int64_t rest = i, at = last ? r->box.first[last] : 0,
                step = last ? whole.size[last] : 1;
        for (int d = last - 1; d > 0; d--) {
            at += step * (r->box.first[d] + rest % r->box.size[d]);
            rest /= r->box.size[d];
            step *= whole.size[d];
        }
        int64_t sample = first + r->box.first[0] + (last ? rest : i);
        rc = read_run(x, t->source, sample, at, n, (int32_t *)out + i * n, err);
    }
    return rc;
}

/* Global gradient norm and loss; from here on every rank knows the step's scale, and whether there
 * is a step to take. */
static int run_norm(struct exec *x, struct err *err) {
    double sums[2] = {x->norm_squared, x->loss_sum};
    if (comm_sum_double(comm_world(x->comm), sums, 2, err) < 0)
        return -1;
    x->norm_squared = sums[0];
    x->loss_sum = sums[1];
    double norm = sqrt(sums[0]);
    x->skipping = !isfinite(sums[0]) || !isfinite(sums[1]);
    x->grad_scale = x->opt.clip > 0 && norm > x->opt.clip ? x->opt.clip / norm : 1;
    return 0;
}

/* Starts it on a work of its own; one without a number is waited for at once. */
static int run_collective(struct exec *x, const struct instr *ins,
                          const struct exec_instr *r, float *in, float *out,
                          struct err *err) {
    struct comm_work own = {.progress = COMM_PROGRESS_OFF};
    struct comm_work *work = ins->work >= 0 ? &x->works[ins->work] : &own;
    int64_t n = ins->n.all_reduce.elems, per_rank = n / ins->n.all_reduce.parts;
    enum dtype dtype = x->sp->buffers[ins->in.all_reduce.x].dtype;
    int rc = -1;
    switch (ins->code) {
    case I_all_gather:
        rc = comm_start_all_gather(r->group, in, out, per_rank, dtype, work, err);
        break;
    case I_all_reduce: rc = comm_start_all_reduce(r->group, in, n, dtype, work, err); break;
    case I_reduce_scatter:
        rc = comm_start_reduce_scatter(r->group, in, out, per_rank, dtype, work, err);
        break;
    case I_all_to_all:
        rc = comm_start_all_to_all(r->group, in, out, per_rank, dtype, work, err);
        break;
    default: return err_system(err, "not a collective");
    }
    return rc < 0 || ins->work >= 0 ? rc : comm_wait(work, err);
}

/* Compute: what changes from call to call is set here. */
static void run_compute(struct exec *x, const struct instr *ins, const struct exec_instr *r,
                        int64_t micro_batch, const union instr_src *in,
                        const union instr_dst *out) {
    struct device_args a = r->args;
    if (ins->code == I_dropout) {
        const struct model *m = x->g->plan->model;
        const struct shape *s = &m->tensors[ins->tensor].shape;
        for (int i = 0; i < s->rank; i++)
            if (s->dim[i] == m->batch)
                a.box.first[i] += micro_batch * x->g->plan->micro_batch;
        a.seed = x->opt.seed;
        a.stream = rng_mix(((uint64_t)x->step << 24) + (uint64_t)ins->op + 1);
        if (x->evaluating)
            a.rate = 0;
    }
    a.grad_scale = (float)x->grad_scale;
    a.lr = (float)x->lr;
    /* Of the optimizer, which knows nothing of the skipped ones. */
    a.step = x->step - x->skipped + 1;
    double value = device_exec(ins->code, &ins->n, in, out, &a);
    if (!r->counts)
        return;
    if (ins->code == I_cross_entropy || ins->code == I_cross_entropy_finish)
        x->loss_sum += value * r->loss_weight;
    else if (ins->code == I_sum_squares)
        x->norm_squared += value;
}

/* Resolves operands to addresses of this micro-batch's slot, and does it. */
static int run_instr(struct exec *x, const struct instr *ins, struct exec_instr *r,
                     int64_t micro_batch, struct err *err) {
    union instr_src in;
    union instr_dst out;
    for (int k = 0; k < INSTR_MAX_IN; k++)
        in.v[k] = address(x, ins->in.v[k], micro_batch);
    for (int k = 0; k < INSTR_MAX_OUT; k++)
        out.v[k] = address(x, ins->out.v[k], micro_batch);
    switch (ins->code) {
    case I_input: return run_input(x, ins, r, micro_batch, out.input.y, err);
    case I_fill:
        memset(x->arena + x->sp->bytes[MEM_parameters], 0,
               (size_t)x->sp->bytes[MEM_gradients]);
        return 0;
    case I_send: return exec_send(x, ins->transfer, in.send.x, err);
    case I_recv: return exec_recv(x, ins->transfer, out.recv.y, err);
    case I_norm: return run_norm(x, err);
    case I_wait: return comm_wait(&x->works[ins->work], err);
    case I_all_gather:
    case I_all_reduce:
    case I_reduce_scatter:
    case I_all_to_all:
        return run_collective(x, ins, r, in.all_reduce.x, out.all_reduce.y, err);
    default: run_compute(x, ins, r, micro_batch, &in, &out); return 0;
    }
}

/* Time is taken between instructions: one clock reading each. */
int exec_run(struct exec *x, struct action a, struct err *err) {
    int64_t mb = a.micro_batch < 0 ? 0 : a.micro_batch;
    double start = now_s();
    struct span span = program_segment(x->sp, a.segment);
    for (int i = span.first; i < span.end; i++) {
        const struct instr *ins = &x->sp->instrs[i];
        if (x->skipping && ins->code != I_fill)
            continue; /* behind the norm: gradients are cleared, nothing else changes */
        if (run_instr(x, ins, &x->ready[i], mb, err) < 0) {
            err_prefix(err, "%s", opcode_name(ins->code));
            comm_fail(x->comm, err); /* messages are under way: the others must know now */
            return -1;
        }
        double end = now_s();
        x->seconds[ins->code] += end - start;
        if (x->opt.on_instr)
            x->opt.on_instr(x->opt.on_instr_ctx, ins, a, start, end);
        start = end;
    }
    return 0;
}
