/* What all functions of instructions (cuda_compute.h) need: the stream's workspace, the check that launches
 * were taken, and the name of the instruction in messages. */
#include "cuda/cuda_check.h"
#include "cuda/cuda_compute.h"
#include "cuda/cuda_state.h"
#include "cuda/cuda_unpack.h"

int cuda_open_workspace(struct device_stream *s, struct err *err) {
    struct cuda_queue *q = cuda_queue_of(s);
    int64_t bytes = cuda_state_of(s->device)->workspace_bytes;
    if (q->workspace || bytes <= 0)
        return 0;
    q->workspace = cuda_alloc(s->device, bytes, err);
    return q->workspace ? 0 : err_prefix(err, "workspace");
}

static struct cuda_call call_on(struct device_stream *s, const struct device_args *args,
                                struct err *err) {
    struct cuda_state *state = cuda_state_of(s->device);
    struct cuda_queue *q = cuda_queue_of(s);
    return (struct cuda_call){.dev = &state->dev,
                              .stream = q->stream,
                              .args = args,
                              .workspace = q->workspace,
                              .workspace_bytes = state->workspace_bytes,
                              .err = err};
}

static int launch_held(struct device_stream *s, struct err *err) {
    struct cuda_queue *q = cuda_queue_of(s);
    struct cuda_call c = call_on(s, &q->held.args, err);
    if (!q->holds)
        return 0;
    q->holds = false;
    const struct cuda_given *g = &q->held;
    const int rc = cuda_compute(&c, g->code, &g->n, &g->in, &g->out);
    return rc < 0   ? err_prefix(err, "%s", opcode_name(g->code))
           : rc > 0 ? err_system(err, "%s: no kernel for GPUs yet", opcode_name(g->code))
                    : 0;
}

int cuda_launch_rest(struct device_stream *s, struct err *err) {
    const struct device_args none = {.dtype = DTYPE_f32};
    struct cuda_call c = call_on(s, &none, err);
    if (launch_held(s, err) < 0 || cuda_multi_give(&cuda_queue_of(s)->together, &c) < 0)
        return -1;
    return cuda_check(cudaGetLastError(), "launching", err);
}

int cuda_launch_pair(struct device_stream *s, const struct cuda_given *first,
                     const struct cuda_given *second, struct err *err) {
    const int64_t planned = cuda_state_of(s->device)->workspace_bytes;
    if (!cuda_pair_fits(first, second))
        return err_system(err, "%s and %s are no pair", opcode_name(first->code),
                          opcode_name(second->code));
    if (planned < cuda_workspace_instr(first->code, &first->n, first->args.dtype))
        return err_system(err, "%s: less workspace than it takes",
                          opcode_name(first->code));
    if (cuda_open_workspace(s, err) < 0)
        return -1;
    struct cuda_call c = call_on(s, &first->args, err); /* with the workspace */
    int rc = cuda_pair_give(&c, first, second);
    if (rc >= 0 && cuda_check(cudaGetLastError(), "launching", err) < 0)
        rc = -1;
    return rc < 0 ? err_prefix(err, "%s, %s", opcode_name(first->code),
                               opcode_name(second->code))
                  : rc;
}

/* What a captured region is given: with what was held back, or behind it; with others of its sort; or
 * held back until the next is known. 1: it is done with, 0: it is to be launched. */
static int collect(struct device_stream *s, struct cuda_call *c,
                   const struct cuda_given *now) {
    struct cuda_queue *q = cuda_queue_of(s);
    if (q->holds && cuda_pair_fits(&q->held, now)) {
        q->holds = false;
        return cuda_pair_give(c, &q->held, now) < 0 ? -1 : 1;
    }
    if (launch_held(s, c->err) < 0)
        return -1;
    const int taken =
        cuda_multi_take(&q->together, c, now->code, &now->n, &now->in, &now->out);
    if (taken || !cuda_pair_begins(now->code))
        return taken;
    q->held = *now;
    q->holds = true;
    return 1;
}

static int launch(struct device_stream *s, struct cuda_call *c, enum opcode code,
                  const union instr_n *n, const union instr_src *in,
                  const union instr_dst *out) {
    struct cuda_queue *q = cuda_queue_of(s);
    const struct cuda_given now = {code, *n, *in, *out, *c->args};
    const int taken = q->capturing ? collect(s, c, &now) : 0;
    if (taken)
        return taken < 0 ? -1 : 0;
    const int rc = cuda_compute(c, code, n, in, out);
    return rc > 0 ? err_system(c->err, "no kernel for GPUs yet") : rc;
}

int cuda_launch(struct device_stream *s, enum opcode code, const union instr_n *n,
                const union instr_src *in, const union instr_dst *out,
                const struct device_args *args, struct err *err) {
    const int64_t wanted = cuda_workspace_instr(code, n, args->dtype);
    const int64_t planned = cuda_state_of(s->device)->workspace_bytes;
    if (wanted > planned)
        return err_system(err, "%s: %lld bytes of workspace are planned, it takes %lld",
                          opcode_name(code), (long long)planned, (long long)wanted);
    if (wanted && cuda_open_workspace(s, err) < 0)
        return -1;
    struct cuda_call c = call_on(s, args, err);
    int rc = launch(s, &c, code, n, in, out);
    if (rc == 0)
        rc = cuda_check(cudaGetLastError(), "launching", err);
    return rc < 0 ? err_prefix(err, "%s", opcode_name(code)) : 0;
}

int cuda_unpack(struct device_stream *s, void *dst, enum dtype to, const void *src,
                enum dtype from, int64_t n, struct err *err) {
    const struct device_args args = {.dtype = to};
    struct cuda_call c = call_on(s, &args, err);
    return cuda_unpack_kernel(&c, n, src, from, dst, to) < 0
               ? -1
               : cuda_check(cudaGetLastError(), "launching", err);
}

/* ---- copies to and from the host's memory --------------------------------------------------- */

static int move(struct cuda_call *c, int64_t elems, const void *from, void *to,
                enum cudaMemcpyKind kind) {
    size_t bytes = (size_t)(elems * dtype_size(c->args->dtype));
    return cuda_check(cudaMemcpyAsync(to, from, bytes, kind, c->stream), "copying", c->err);
}

CUDA_FUNCTION(offload) {
    return move(c, n->elems, in->x, out->y, cudaMemcpyDeviceToHost);
}

CUDA_FUNCTION(reload) {
    return move(c, n->elems, in->x, out->y, cudaMemcpyHostToDevice);
}
