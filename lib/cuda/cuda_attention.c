/* The four instructions of attention (cuda_attention.h).
 *
 * Tensor cores take heads of bf16 and f16 of up to 256 columns whose rows are aligned to 16 bytes, and heads
 * of floats of up to 128 columns where TF32 is allowed; the plain kernels take all else, caps and
 * slopes of scores and heads of values of another size too. On compute
 * capability 9.0 wgmma computes those of 16 bits and up to 128 columns: on an H100 1.5 to 2 times as fast
 * forward, and 1.7 to 2.3 times backward, as mma.sync.
 * Where a device has others that do attention (cuda_attention_library.h) these are asked first.
 * cuda_device.attention overrides all that, for comparisons: "mma" for mma.sync, "wgmma-128" for wgmma with
 * larger blocks backward, "plain" for all, "cudnn" for what that can do. */
#include "cuda/cuda_attention_library.h"
#include "cuda/cuda_workspace_attention.h"

#include <string.h>

static bool on_16_bytes(const void *p) {
    return (uintptr_t)p % 16 == 0;
}

/* Can rows of all tensors be copied 16 bytes at a time? */
bool cuda_attention_in_chunks(const struct attention_job *job) {
    const struct kernel_attention *t = &job->t;
    const void *rows[] = {job->q,    job->k,  job->v,  job->o,
                          job->dout, job->dq, job->dk, job->dv};
    const int64_t apart[] = {t->dim,   t->q_batch, t->q_seq, t->kv_batch, t->kv_seq,
                             t->value, t->v_batch, t->v_seq, t->o_batch,  t->o_seq};
    bool fits = true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        fits &= on_16_bytes(rows[i]);
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
        fits &= apart[i] % 8 == 0;
    return fits;
}

static bool is_asked(const struct cuda_call *c, const char *name) {
    return c->dev->attention && !strcmp(c->dev->attention, name);
}

static bool on_tensor_cores(const struct cuda_call *c, const struct attention_job *job) {
    return c->dev->arch >= 80 && job->t.cap == 0 && job->t.slope.by == 0 &&
           job->t.value == job->t.dim && cuda_attention_in_chunks(job) &&
           !is_asked(c, "plain");
}

static bool for_mma(const struct cuda_call *c, const struct attention_job *job) {
    return c->args->dtype != DTYPE_f32 && job->t.dim <= 256 && on_tensor_cores(c, job);
}

static bool for_tf32(const struct cuda_call *c, const struct attention_job *job) {
    return c->args->dtype == DTYPE_f32 && c->dev->tf32 && job->t.dim <= 128 &&
           on_tensor_cores(c, job);
}

/* wgmma is of 9.0 alone: what comes after it has others. */
static bool for_wgmma(const struct cuda_call *c, const struct attention_job *job) {
    return c->dev->arch == 90 && job->t.dim <= 128 && !is_asked(c, "mma") &&
           for_mma(c, job);
}

/* Gives the job its part of the workspace, and spreads what positions add. */
static int prepare(struct cuda_call *c, struct attention_job *job, bool backward) {
    struct kernel_attention *t = &job->t;
    char *at = c->workspace;
    const struct cuda_workspace_attention w =
        cuda_workspace_attention(t->batch, t->heads, t->q_len, t->buckets, backward);
    if (w.total > c->workspace_bytes)
        return err_system(c->err, "attention takes %lld bytes of workspace, there are %lld",
                          (long long)w.total, (long long)c->workspace_bytes);
    if (backward)
        job->delta = (float *)(at + w.delta);
    if (!t->positions)
        return 0;
    struct positions p;
    position_init(&p, t);
    job->near = (struct attention_near){.near = (float *)(at + w.near),
                                        .bucket = (uint16_t *)(at + w.bucket),
                                        .parts = (float *)(at + w.parts),
                                        .distance = p.distance,
                                        .buckets = (int)t->buckets};
    attention_spread(c, job, &p, (float *)(at + w.near), (uint16_t *)(at + w.bucket));
    return 0;
}

static int forward(struct cuda_call *c, const struct attention_job *job) {
    if (for_wgmma(c, job) && attention_wgmma(c, job))
        return 0;
    if (for_mma(c, job) && attention_mma(c, job))
        return 0;
    if (!for_tf32(c, job) || !attention_tf32(c, job))
        attention_plain(c, job);
    return 0;
}

static int backward(struct cuda_call *c, const struct attention_job *job) {
    attention_delta(c, job, cuda_attention_in_chunks(job));
    if (for_wgmma(c, job) && attention_wgmma_bwd(c, job, is_asked(c, "wgmma-128")))
        return 0;
    if (for_mma(c, job) && attention_mma_bwd(c, job))
        return 0;
    if (!for_tf32(c, job) || !attention_tf32_bwd(c, job))
        attention_plain_bwd(c, job);
    return 0;
}

int cuda_attention_own(struct cuda_call *c, const struct attention_job *job,
                       bool is_backward) {
    return is_backward ? backward(c, job) : forward(c, job);
}

static int do_attention(struct cuda_call *c, struct attention_job *job, bool is_backward) {
    struct cuda_attentions *others = c->dev->attentions;
    if (prepare(c, job, is_backward) < 0)
        return -1;
    const int rc = others ? others->run(c, job, is_backward) : 1;
    return rc == 1 ? cuda_attention_own(c, job, is_backward) : rc;
}

/* The tensor behind one that is so many elements wide, in packed rows. */
static void *beside(const struct cuda_call *c, void *p, int64_t elements) {
    return (char *)p + elements * dtype_size(c->args->dtype);
}

CUDA_FUNCTION(attention) {
    struct attention_job job = {
        .t = attention_of(n, in->lengths, in->starts, in->positions, c->args),
        .q = in->q,
        .k = n->packed ? beside(c, in->q, n->heads * n->dim) : in->k,
        .v = n->packed ? beside(c, in->q, 2 * n->heads * n->dim) : in->v,
        .o = out->o,
        .lse = out->lse};
    return do_attention(c, &job, false);
}

CUDA_FUNCTION(attention_bwd) {
    const union instr_n same = {.attention_bwd = *n}; /* the same numbers */
    struct attention_job job = {
        .t = attention_of(&same.attention, in->lengths, in->starts, in->positions, c->args),
        .q = in->q,
        .k = n->packed ? beside(c, in->q, n->heads * n->dim) : in->k,
        .v = n->packed ? beside(c, in->q, 2 * n->heads * n->dim) : in->v,
        .o = in->o,
        .lse = in->lse,
        .dout = in->dy,
        .dq = out->dq,
        .dk = n->packed ? beside(c, out->dq, n->heads * n->dim) : out->dk,
        .dv = n->packed ? beside(c, out->dq, 2 * n->heads * n->dim) : out->dv,
        .dpositions = out->dpositions};
    return do_attention(c, &job, true);
}

CUDA_FUNCTION(attention_more) {
    struct attention_job job = {
        .t = attention_more_of(n, in->lengths, in->starts, in->positions, c->args),
        .q = in->q,
        .k = in->k,
        .v = in->v,
        .o = out->o,
        .lse = out->lse};
    return do_attention(c, &job, false);
}

CUDA_FUNCTION(attention_more_bwd) {
    const union instr_n same = {.attention_more_bwd = *n}; /* the same numbers */
    struct attention_job job = {.t = attention_more_of(&same.attention_more, in->lengths,
                                                       in->starts, in->positions, c->args),
                                .q = in->q,
                                .k = in->k,
                                .v = in->v,
                                .o = in->o,
                                .lse = in->lse,
                                .dout = in->dy,
                                .dq = out->dq,
                                .dk = out->dk,
                                .dv = out->dv,
                                .dpositions = out->dpositions};
    return do_attention(c, &job, true);
}
