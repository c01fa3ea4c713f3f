/* What instructions take of a GPU's workspace. Kernels are written to these numbers, and launch
 * refuses an instruction that takes more than was planned. */
#include "cuda/cuda_workspace.h"
#include "cuda/cuda_workspace_attention.h"

#define ATTENTION(n, backward)                                                             \
    cuda_workspace_attention((n).batch, (n).heads, (n).seq, (n).buckets, backward).total

/* By weft's kernels, or by cuDNN. */
static int64_t attention(const struct attention_n *n, enum dtype dtype, bool backward) {
    const int64_t own = ATTENTION(*n, backward);
    const int64_t library = cuda_workspace_attention_library(n, dtype, backward);
    return own > library ? own : library;
}

/* Sums of chunks of the rows of matrices with n columns, `count` of each column. */
static int64_t columns(int64_t rows, int64_t n, int64_t groups, int64_t count) {
    return groups * cuda_workspace_chunks(rows, n, groups) * count * n *
           dtype_size(DTYPE_f32);
}

/* Sums of the blocks that share the rows of a norm, `count` of each column. */
static int64_t norm(int64_t rows, int64_t n, int64_t count) {
    return cuda_workspace_norm(rows, n) * count * n * dtype_size(DTYPE_f32);
}

/* Two sums of each channel over the places of each group; both passes begin with the same numbers. */
static int64_t groups(const struct batchnorm_n *n) {
    return columns(cuda_workspace_min(n->group, n->samples) * n->places, n->c, n->groups,
                   2);
}

/* By cuDNN: the weights turned, and its own workspace. */
static int64_t convolution(const struct conv2d_n *n, enum dtype of_weights) {
    return cuda_workspace_turned(n->kh * n->kw * n->cin * n->cout, dtype_size(of_weights)) +
           CUDA_WORKSPACE_CONVOLUTION;
}

/* The gradient of a convolution's weights, from parts of the places; or by cuDNN. */
static int64_t weights(const struct conv2d_n *n) {
    const int64_t rows = n->kh * n->kw * n->cin;
    const int64_t own = cuda_workspace_parts(rows, n->cout, n->batch * n->oh * n->ow) *
                        rows * n->cout * dtype_size(DTYPE_f32);
    const int64_t library = convolution(n, DTYPE_f32);
    return own > library ? own : library;
}

/* A product, and behind it the sums of dy's rows. */
static int64_t product_and_sums(const struct linear_dw_n *n) {
    int64_t sums = n->bias ? columns(n->m, n->n, 1, 1) : 0;
    return sums > CUDA_WORKSPACE_PRODUCT ? sums : CUDA_WORKSPACE_PRODUCT;
}

int64_t cuda_workspace_instr(enum opcode code, const union instr_n *n, enum dtype dtype) {
    switch (code) {
    case I_linear:
    case I_linear_dx:
    case I_matmul:
    case I_matmul_dw:
    case I_orthogonalize: return CUDA_WORKSPACE_PRODUCT;
    case I_linear_dw: return product_and_sums(&n->linear_dw);
    case I_bias_dw:
        return columns(n->bias_dw.elems / n->bias_dw.inner, n->bias_dw.inner, 1, 1);
    case I_rows_dw:
        return columns(n->rows_dw.outer, n->rows_dw.rows * n->rows_dw.inner, 1, 1);
    case I_embedding_dw:
        return 2 * cuda_workspace_sorted(n->embedding_dw.rows) * dtype_size(DTYPE_i32);
    case I_layernorm_bwd: return norm(n->layernorm_bwd.rows, n->layernorm_bwd.n, 2);
    case I_rmsnorm_bwd: return norm(n->rmsnorm_bwd.rows, n->rmsnorm_bwd.n, 1);
    case I_conv2d:
    case I_conv2d_dx: return convolution(&n->conv2d, dtype);
    case I_conv2d_dw: return weights(&n->conv2d);
    case I_batchnorm_moments:
    case I_batchnorm_bwd_sums: return groups(&n->batchnorm);
    case I_expert_load:
        return 2 * n->expert_load.groups * n->expert_load.experts *
               cuda_workspace_token_chunks(n->expert_load.tokens) * dtype_size(DTYPE_f32);
    case I_dropped:
    case I_balance:
    case I_router_z:
    case I_cross_entropy:
    case I_cross_entropy_finish:
    case I_sum_squares: return CUDA_WORKSPACE_SUMS * (int64_t)sizeof(double);
    case I_attention: return attention(&n->attention, dtype, false);
    case I_attention_bwd: return attention(&n->attention, dtype, true);
    case I_attention_more: return ATTENTION(n->attention_more, false);
    case I_attention_more_bwd: return ATTENTION(n->attention_more_bwd, true);
    default: return 0;
    }
}

int64_t cuda_workspace_of(const struct program *g, int stage) {
    const struct plan *p = g->plan;
    const int group = p->stages[stage].group;
    int64_t most = 0;
    for (int k = p->first_chunk[group]; k < p->first_chunk[group + 1]; k++) {
        const struct stage_program *sp = &g->stages[p->chunks[k]];
        for (int i = 0; i < sp->n_instrs; i++) {
            const struct instr *ins = &sp->instrs[i];
            int64_t bytes = cuda_workspace_instr(ins->code, &ins->n, ins->dtype);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

int64_t cuda_workspace(const struct workspace_site *at) {
    return workspace_on_gpu(at) ? cuda_workspace_of(at->program, at->stage) : 0;
}
