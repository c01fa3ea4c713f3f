/* The instructions of instr.def on the CPU, by the kernels of kernel.h. */
#include "device/cpu.h"

#include "device/attention.h"
#include "device/kernel_box.h"
#include "kernel_type.h"

#include <math.h>
#include <string.h>

/* Where a sum begins (device_args.fresh), kernels add to zeros. */
static void begin_sum(const struct device_args *a, int64_t n, float *sum) {
    if (a->fresh && sum)
        memset(sum, 0, (size_t)n * sizeof *sum);
}

CPU_FUNCTION(linear) {
    kernel_linear(n->m, n->n, n->k, in->x, in->w, n->wt != 0, a->skip_bias ? NULL : in->b,
                  out->y);
}

CPU_FUNCTION(linear_dx) {
    (void)a;
    kernel_linear_dx(n->m, n->n, n->k, in->dy, in->w, n->wt != 0, out->dx);
}

CPU_FUNCTION(linear_dw) {
    begin_sum(a, n->n, out->db);
    kernel_linear_dw(n->m, n->n, n->k, in->x, in->dy, n->wt != 0, a->fresh ? 0 : 1,
                     out->dw);
    if (out->db)
        kernel_add_param_dw(n->m, n->n, in->dy, out->db);
}

CPU_FUNCTION(embedding) {
    kernel_embedding(n->rows, n->vocab, n->width, in->ids, a->first, in->table, out->y);
}

CPU_FUNCTION(embedding_dw) {
    kernel_embedding_dw(n->rows, n->vocab, n->width, in->ids, a->first, in->dy,
                        out->dtable);
}

CPU_FUNCTION(bias) {
    (void)a;
    kernel_add_param(n->elems / n->inner, n->inner, in->x, in->p, out->y);
}

CPU_FUNCTION(bias_dw) {
    begin_sum(a, n->inner, out->dp);
    kernel_add_param_dw(n->elems / n->inner, n->inner, in->dy, out->dp);
}

CPU_FUNCTION(rows) {
    kernel_add_param(n->outer, n->rows * n->inner, in->x,
                     (const T *)in->table + a->first * n->inner, out->y);
}

CPU_FUNCTION(rows_dw) {
    kernel_add_param_dw(n->outer, n->rows * n->inner, in->dy,
                        (float *)out->dtable + a->first * n->inner);
}

CPU_FUNCTION(prepend) {
    (void)a;
    kernel_prepend(n->outer, n->rows, n->inner, n->front, in->x, in->table, out->y);
}

CPU_FUNCTION(prepend_bwd) {
    (void)a;
    kernel_prepend_bwd(n->outer, n->rows, n->inner, n->front, in->dy, out->dx, out->dtable);
}

CPU_FUNCTION(select) {
    kernel_select(n->outer, n->rows, n->inner, a->first, in->x, out->y);
}

CPU_FUNCTION(select_dx) {
    kernel_select_dx(n->outer, n->rows, n->inner, a->first, in->dy, out->dx);
}

CPU_FUNCTION(layernorm) {
    const struct kernel_layernorm t = {n->rows, n->n, n->n * n->parts, a->eps, a->offset};
    kernel_layernorm(&t, in->moments, in->x, in->gamma, n->plain ? NULL : in->beta, out->y,
                     out->stat);
}

CPU_FUNCTION(layernorm_bwd) {
    const struct kernel_layernorm t = {n->rows, n->n, n->total, a->eps, a->offset};
    float *const params[] = {out->dgamma, n->plain ? NULL : out->dbeta};
    begin_sum(a, n->n, out->dgamma);
    if (!n->plain)
        begin_sum(a, n->n, out->dbeta);
    kernel_layernorm_bwd(&t, in->sums, in->x, in->gamma, in->stat, in->dy, out->dx, params);
}

CPU_FUNCTION(layernorm_moments) {
    (void)a;
    kernel_layernorm_moments(n->rows, n->n, in->x, out->part);
}

CPU_FUNCTION(layernorm_bwd_sums) {
    const struct kernel_layernorm t = {n->rows, n->n, n->n, a->eps, a->offset};
    kernel_layernorm_bwd_sums(&t, in->x, in->gamma, in->stat, in->dy, out->sums);
}

CPU_FUNCTION(attention) {
    struct kernel_attention t = attention_of(n, in->lengths, in->starts, in->positions, a);
    const T *q = in->q, *k = in->k, *v = in->v;
    if (n->packed)
        k = q + n->heads * n->dim, v = k + n->heads * n->dim;
    kernel_attention(&t, q, k, v, out->o, out->lse);
}

CPU_FUNCTION(attention_bwd) {
    union instr_n same = {.attention_bwd = *n}; /* the same numbers */
    struct kernel_attention t =
        attention_of(&same.attention, in->lengths, in->starts, in->positions, a);
    struct kernel_attention_bwd of = {in->q,  in->k,   in->v,   in->o,   in->lse,
                                      in->dy, out->dq, out->dk, out->dv, out->dpositions};
    if (n->packed) {
        const T *k = (const T *)in->q + n->heads * n->dim;
        T *dk = (T *)out->dq + n->heads * n->dim;
        of.k = k, of.v = k + n->heads * n->dim;
        of.dk = dk, of.dv = dk + n->heads * n->dim;
    }
    kernel_attention_bwd(&t, &of);
}

CPU_FUNCTION(attention_more) {
    struct kernel_attention t =
        attention_more_of(n, in->lengths, in->starts, in->positions, a);
    kernel_attention(&t, in->q, in->k, in->v, out->o, out->lse);
}

CPU_FUNCTION(attention_more_bwd) {
    union instr_n same = {.attention_more_bwd = *n}; /* the same numbers */
    struct kernel_attention t =
        attention_more_of(&same.attention_more, in->lengths, in->starts, in->positions, a);
    kernel_attention_bwd(
        &t, &(struct kernel_attention_bwd){in->q, in->k, in->v, in->o, in->lse, in->dy,
                                           out->dq, out->dk, out->dv, out->dpositions});
}

CPU_FUNCTION(rotary) {
    kernel_rotary(&(struct kernel_rotary){n->batch, n->seq, n->heads, n->dim, a->first,
                                          a->angles, n->back != 0},
                  in->x, out->y);
}

CPU_FUNCTION(swiglu) {
    (void)a;
    kernel_swiglu(n->elems, in->x, in->z, out->y);
}

CPU_FUNCTION(swiglu_bwd) {
    (void)a;
    kernel_swiglu_bwd(n->elems, in->x, in->z, in->dy, out->dx, out->dz);
}

CPU_FUNCTION(geglu) {
    (void)a;
    kernel_geglu(n->elems, in->x, in->z, out->y);
}

CPU_FUNCTION(geglu_bwd) {
    (void)a;
    kernel_geglu_bwd(n->elems, in->x, in->z, in->dy, out->dx, out->dz);
}

#define CPU_ACTIVATION(id, act)                                                            \
    CPU_FUNCTION(id) {                                                                     \
        (void)a;                                                                           \
        kernel_act(act, n->elems, in->x, out->y);                                          \
    }                                                                                      \
    CPU_FUNCTION(id##_dx) {                                                                \
        (void)a;                                                                           \
        kernel_act_dx(act, n->elems, in->x, in->dy, out->dx);                              \
    }
CPU_ACTIVATION(gelu, KERNEL_GELU)
CPU_ACTIVATION(relu, KERNEL_RELU)
CPU_ACTIVATION(silu, KERNEL_SILU)
CPU_ACTIVATION(tanh, KERNEL_TANH)
CPU_ACTIVATION(gelu_erf, KERNEL_GELU_ERF)
CPU_ACTIVATION(relu2, KERNEL_RELU2)
CPU_ACTIVATION(sigmoid, KERNEL_SIGMOID)

CPU_FUNCTION(softcap) {
    kernel_softcap(n->elems, a->scale, in->x, out->y);
}

CPU_FUNCTION(softcap_dx) {
    kernel_softcap_dx(n->elems, a->scale, in->x, in->dy, out->dx);
}

CPU_FUNCTION(scale) {
    kernel_scale(n->elems, a->scale, in->x, out->y);
}

CPU_FUNCTION(add) {
    (void)a;
    kernel_add(n->elems, in->a, in->b, out->y);
}

/* Every op draws numbers of its own in every step, for the elements of the whole batch. */
CPU_FUNCTION(dropout) {
    (void)n;
    const struct scalars *now = a->scalars;
    struct kernel_box box = a->box;
    for (int d = 0; d < box.rank; d++)
        if (a->batch_dims >> d & 1)
            box.first[d] += now->first_sample;
    kernel_dropout(&box, now->evaluating ? 0 : a->rate, now->seed,
                   dropout_stream(now->step, a->op), in->x, out->y);
}

/* ---- convolutions, pooling, halos ----------------------------------------------------------- */

/* The numbers of the instruction are those of the kernel, in the same order. */
#define CONV(n)                                                                            \
    (&(struct kernel_conv){(n)->batch, (n)->ih, (n)->iw, (n)->cin, (n)->oh, (n)->ow,       \
                           (n)->cout, (n)->kh, (n)->kw, (n)->stride, (n)->ph, (n)->pw})
#define POOL(n)                                                                            \
    (&(struct kernel_pool){(n)->batch, (n)->ih, (n)->iw, (n)->c, (n)->oh, (n)->ow,         \
                           (n)->kernel, (n)->stride, (n)->ph, (n)->pw})

CPU_FUNCTION(conv2d) {
    (void)a;
    kernel_conv(CONV(n), in->x, in->w, out->y);
}

CPU_FUNCTION(conv2d_dx) {
    (void)a;
    kernel_conv_dx(CONV(n), in->dy, in->w, out->dx);
}

CPU_FUNCTION(conv2d_dw) {
    (void)a;
    kernel_conv_dw(CONV(n), in->x, in->dy, out->dw);
}

CPU_FUNCTION(maxpool) {
    (void)a;
    kernel_maxpool(POOL(n), in->x, out->y);
}

CPU_FUNCTION(maxpool_dx) {
    (void)a;
    kernel_maxpool_dx(POOL(n), in->x, in->dy, out->dx);
}

CPU_FUNCTION(avgpool) {
    kernel_avgpool(n->batch, n->places, n->c, a->scale, in->x, out->y);
}

CPU_FUNCTION(avgpool_dx) {
    kernel_avgpool_dx(n->batch, n->places, n->c, a->scale, in->dy, out->dx);
}

CPU_FUNCTION(halo_pack) {
    kernel_halo_pack(&a->halo, n->rows, in->x, out->s);
}

CPU_FUNCTION(halo_join) {
    kernel_halo_join(&a->halo, n->rows, n->window, in->x, in->r, out->y);
}

CPU_FUNCTION(halo_add) {
    kernel_halo_add(&a->halo, n->rows, n->window, in->d, in->r, out->dx);
}

/* ---- batch norm ------------------------------------------------------------------------------ */

#define GROUPS(n, a)                                                                       \
    (&(struct kernel_batchnorm){(n)->samples, (n)->places, (n)->c, (n)->groups,            \
                                (n)->group, (a)->first, (a)->eps})

CPU_FUNCTION(batchnorm_moments) {
    kernel_batchnorm_moments(GROUPS(n, a), in->x, out->sums, out->squares);
}

CPU_FUNCTION(batchnorm_center) {
    kernel_batchnorm_center(GROUPS(n, a), n->total, in->sums, in->all, in->squares,
                            out->centered);
}

/* While evaluating every group has the running statistics. */
CPU_FUNCTION(batchnorm_stat) {
    float *stat = out->stat;
    if (!a->scalars->evaluating) {
        kernel_batchnorm_stat(n->c, n->groups, n->total, in->sums, in->squares, stat);
        return;
    }
    for (int64_t g = 0; g < n->groups; g++, stat += 2 * n->c) {
        memcpy(stat, in->mean, sizeof *stat * (size_t)n->c);
        memcpy(stat + n->c, in->variance, sizeof *stat * (size_t)n->c);
    }
}

CPU_FUNCTION(batchnorm) {
    kernel_batchnorm(GROUPS(n, a), in->x, in->gamma, in->beta, in->stat, out->y);
}

CPU_FUNCTION(batchnorm_bwd_sums) {
    kernel_batchnorm_bwd_sums(GROUPS(n, a), in->x, in->stat, in->dy, out->sums, out->dgamma,
                              out->dbeta);
}

CPU_FUNCTION(batchnorm_bwd) {
    kernel_batchnorm_bwd(GROUPS(n, a), n->total, in->x, in->gamma, in->stat, in->dy,
                         in->sums, out->dx);
}

CPU_FUNCTION(batchnorm_running) {
    if (a->counts)
        kernel_batchnorm_running(n->c, n->groups, n->total, a->scale, in->stat, out->dmean,
                                 out->dvariance);
}

CPU_FUNCTION(running) {
    kernel_running(n->elems, a->momentum, in->s, out->p);
}

/* ---- losses ---------------------------------------------------------------------------------- */

static void add_loss(const struct device_args *a, double loss) {
    if (a->counts)
        a->scalars->loss_sum += loss * *a->per_target;
}

#define TARGETS(in, a) (&(struct kernel_targets){(in)->targets, (a)->ignore, (a)->first})

CPU_FUNCTION(cross_entropy) {
    add_loss(a, kernel_cross_entropy(n->rows, n->n, in->logits, TARGETS(in, a), out->lse));
}

CPU_FUNCTION(cross_entropy_part) {
    kernel_cross_entropy_part(n->rows, n->n, in->logits, TARGETS(in, a), out->part);
}

CPU_FUNCTION(cross_entropy_finish) {
    add_loss(a, kernel_cross_entropy_finish(n->rows, n->parts, in->part, out->lse));
}

CPU_FUNCTION(cross_entropy_dx) {
    kernel_cross_entropy_dx(n->rows, n->n, in->logits, TARGETS(in, a), in->lse,
                            (float)*a->per_target * a->scalars->loss_scale, out->dlogits);
}

CPU_FUNCTION(copy) {
    (void)n;
    const struct device_copy *c = &a->copy;
    const int64_t bytes = dtype_size(a->dtype);
    kernel_copy(c->rank, c->size, bytes, (const char *)in->x + a->src_offset * bytes,
                c->src, out->y, c->dst);
}

CPU_FUNCTION(widen) {
    kernel_widen(n->elems, a->dtype, in->x, out->y);
}

CPU_FUNCTION(narrow) {
    kernel_narrow(n->elems, a->dtype, in->x, out->y);
}

CPU_FUNCTION(offload) {
    kernel_move(dtype_size(a->dtype) * n->elems, in->x, out->y);
}

CPU_FUNCTION(reload) {
    kernel_move(dtype_size(a->dtype) * n->elems, in->x, out->y);
}

CPU_FUNCTION(fill) {
    (void)a, (void)in;
    kernel_fill(n->elems, 0, out->y);
}

CPU_FUNCTION(sum_squares) {
    (void)out;
    double squares = kernel_sum_squares(n->elems, in->g);
    if (a->counts)
        a->scalars->norm_squared += device_grad_factor(a) * squares;
}

static struct kernel_adamw adamw_of(const struct device_args *a) {
    const struct scalars *now = a->scalars;
    return (struct kernel_adamw){.grad_scale = device_grad_factor(a) * now->grad_scale,
                                 .lr = now->lr,
                                 .beta1 = a->beta1,
                                 .beta2 = a->beta2,
                                 .eps = a->opt_eps,
                                 .decay = a->decay,
                                 .t = now->updates};
}

CPU_FUNCTION(adamw) {
    const struct kernel_adamw how = adamw_of(a);
    kernel_adamw(&how, n->elems, out->p, in->g, out->m, out->v);
}

CPU_FUNCTION(sgd) {
    const struct scalars *now = a->scalars;
    kernel_sgd(n->elems, out->p, in->g, out->b, device_grad_factor(a) * now->grad_scale,
               now->lr, a->momentum, a->decay);
}

CPU_FUNCTION(lion) {
    const struct kernel_adamw how = adamw_of(a);
    kernel_lion(&how, n->elems, out->p, in->g, out->m);
}

CPU_FUNCTION(momentum) {
    kernel_momentum(n->elems, out->u, in->g, out->m,
                    device_grad_factor(a) * a->scalars->grad_scale, a->momentum);
}

CPU_FUNCTION(orthogonalize) {
    const struct kernel_matrices x = {n->outer, n->rows, n->inner, n->columns};
    (void)a;
    kernel_orthogonalize(&x, in->u, out->o, out->scratch);
}

CPU_FUNCTION(muon) {
    kernel_muon(n->elems, out->p, in->o, a->scalars->lr, a->decay);
}

/* ---- dispatch ------------------------------------------------------------------------------ */

#define CPU_CASE_SHAPE(id)                                                                 \
    case I_##id:                                                                           \
        TYPED(cpu_##id)(&n->id, &in->id, &out->id, a);                                     \
        break;
#define CPU_CASE_CURVE(id) CPU_CASE_SHAPE(id)
#define CPU_CASE_PARTS(id) CPU_CASE_SHAPE(id)
#define CPU_CASE_FREE(id)
#define CPU_CASE_COMM(id)
#define CPU_CASE_P2P(id)

#if defined(WEFT_bf16)
CPU_EXEC(cpu_exec_bf16) {
#elif defined(WEFT_f16)
CPU_EXEC(cpu_exec_f16) {
#else
CPU_EXEC(cpu_exec_f32) {
#endif
    switch (code) {
#define OPCODE(id, key, about) CPU_CASE_##key(id)
#include "program/instr.def"
    default: break;
    }
}
