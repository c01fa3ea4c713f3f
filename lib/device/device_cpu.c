/* The dispatch from instructions to CPU kernels. */
#include "device/device.h"

#include <math.h>

/* q, k and v are slices of one [batch, seq, 3, heads, dim] tensor. */
static void attention(bool backward, const int64_t *n, float *const *in,
                      float *const *out) {
    int64_t batch = n[0], heads = n[1], seq = n[2], dim = n[3], width = heads * dim;
    struct kernel_attention t = {.batch = batch,
                                 .heads = heads,
                                 .q_len = seq,
                                 .kv_len = seq,
                                 .dim = dim,
                                 .q_batch = 3 * seq * width,
                                 .q_seq = 3 * width,
                                 .kv_batch = 3 * seq * width,
                                 .kv_seq = 3 * width,
                                 .o_batch = seq * width,
                                 .o_seq = width,
                                 .causal = n[4] != 0,
                                 .scale = 1.0f / sqrtf((float)dim)};
    const float *qkv = in[0];
    if (!backward) {
        kernel_attention(&t, qkv, qkv + width, qkv + 2 * width, out[0], out[1]);
        return;
    }
    float *d = out[0];
    kernel_attention_bwd(&t, qkv, qkv + width, qkv + 2 * width, in[1], in[2], in[3], d,
                         d + width, d + 2 * width);
}

static void copy_block(const struct copy *c, const float *src, float *dst) {
    kernel_copy(c->rank, c->size, src, c->src, dst, c->dst, false);
}

double device_exec(enum opcode code, const int64_t *n, float *const *in, float *const *out,
                   const struct device_args *a) {
    switch (code) {
    case I_linear:
        kernel_linear(n[0], n[1], n[2], in[0], in[1], n[3] != 0,
                      a->skip_bias ? NULL : in[2], out[0]);
        return 0;
    case I_linear_dx:
        kernel_linear_dx(n[0], n[1], n[2], in[0], in[1], n[3] != 0, out[0]);
        return 0;
    case I_linear_dw:
        kernel_linear_dw(n[0], n[1], n[2], in[0], in[1], n[3] != 0, out[0], out[1]);
        return 0;
    case I_embedding:
        kernel_embedding(n[0], n[1], n[2], (const int32_t *)in[0], a->first, in[1], out[0]);
        return 0;
    case I_embedding_dw:
        kernel_embedding_dw(n[0], n[1], n[2], (const int32_t *)in[0], a->first, in[1],
                            out[0]);
        return 0;
    case I_bias: kernel_add_param(n[0] / n[1], n[1], in[0], in[1], out[0]); return 0;
    case I_bias_dw: kernel_add_param_dw(n[0] / n[1], n[1], in[0], out[0]); return 0;
    case I_layernorm:
        kernel_layernorm(n[0], n[1], in[0], in[1], in[2], a->eps, out[0], out[1]);
        return 0;
    case I_layernorm_bwd:
        kernel_layernorm_bwd(n[0], n[1], in[0], in[1], in[2], in[3], out[0], out[1],
                             out[2]);
        return 0;
    case I_layernorm_moments: kernel_layernorm_moments(n[0], n[1], in[0], out[0]); return 0;
    case I_layernorm_apply:
        kernel_layernorm_apply(n[0], n[1], n[2], in[3], in[0], in[1], in[2], a->eps, out[0],
                               out[1]);
        return 0;
    case I_layernorm_bwd_sums:
        kernel_layernorm_bwd_sums(n[0], n[1], in[0], in[1], in[2], in[3], out[0]);
        return 0;
    case I_layernorm_bwd_apply:
        kernel_layernorm_bwd_apply(n[0], n[1], n[2], in[4], in[0], in[1], in[2], in[3],
                                   out[0], out[1], out[2]);
        return 0;
    case I_attention: attention(false, n, in, out); return 0;
    case I_attention_bwd: attention(true, n, in, out); return 0;
    case I_gelu: kernel_act(KERNEL_GELU, n[0], in[0], out[0]); return 0;
    case I_relu: kernel_act(KERNEL_RELU, n[0], in[0], out[0]); return 0;
    case I_silu: kernel_act(KERNEL_SILU, n[0], in[0], out[0]); return 0;
    case I_gelu_dx: kernel_act_dx(KERNEL_GELU, n[0], in[0], in[1], out[0]); return 0;
    case I_relu_dx: kernel_act_dx(KERNEL_RELU, n[0], in[0], in[1], out[0]); return 0;
    case I_silu_dx: kernel_act_dx(KERNEL_SILU, n[0], in[0], in[1], out[0]); return 0;
    case I_add: kernel_add(n[0], in[0], in[1], out[0]); return 0;
    case I_dropout:
        kernel_dropout(&a->box, a->rate, a->seed, a->stream, in[0], out[0]);
        return 0;
    case I_cross_entropy:
        return kernel_cross_entropy(n[0], n[1], in[0], (const int32_t *)in[1], out[0]);
    case I_cross_entropy_part:
        kernel_cross_entropy_part(n[0], n[1], a->first, in[0], (const int32_t *)in[1],
                                  out[0]);
        return 0;
    case I_cross_entropy_finish:
        return kernel_cross_entropy_finish(n[0], n[1], in[0], out[0]);
    case I_cross_entropy_dx:
        kernel_cross_entropy_dx(n[0], n[1], a->first, in[0], (const int32_t *)in[1], in[2],
                                a->scale, out[0]);
        return 0;
    case I_copy: copy_block(a->copy, in[0] + a->src_offset, out[0]); return 0;
    case I_sum_squares: return kernel_sum_squares(n[0], in[0]);
    case I_adamw:
        kernel_adamw(n[0], in[0], in[1], in[2], in[3], a->grad_scale, a->lr, a->beta1,
                     a->beta2, a->opt_eps, a->decay, a->step);
        return 0;
    case I_sgd:
        kernel_sgd(n[0], in[0], in[1], in[2], a->grad_scale, a->lr, a->momentum, a->decay);
        return 0;
    default: return 0;
    }
}
