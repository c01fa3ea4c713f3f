/* The losses of routers: how evenly experts are loaded, and how large logits are. */
#include "cuda/cuda_router.h"
#include "cuda/cuda_sum.h"

/* ---- load: of a group's tokens, the share that chose an expert and its mean probability ---------- */

/* A block takes up to this many tokens of a group: its warps work out their softmaxes and count their
 * choices, then its threads go down the experts. part[group][chunk][2][experts]. */
enum { LOAD_TOKENS = CUDA_WORKSPACE_TOKENS };

template <typename T>
CUDA_KERNEL void load_tokens(int64_t tokens, int64_t experts, int64_t choices,
                             const T *logits, float *part) {
    CUDA_DYNAMIC(int, chosen); /* [experts]: how often */
    __shared__ float max[LOAD_TOKENS], scale[LOAD_TOKENS];
    const int64_t first = blockIdx.x * (int64_t)LOAD_TOKENS;
    const int here = (int)(tokens - first < LOAD_TOKENS ? tokens - first : LOAD_TOKENS);
    const T *rows = logits + (blockIdx.y * tokens + first) * experts;
    for (int64_t j = threadIdx.x; j < experts; j += blockDim.x)
        chosen[j] = 0;
    __syncthreads();
    for (int i = threadIdx.x / WARP; i < here; i += blockDim.x / WARP) {
        const T *x = rows + i * experts;
        const struct softmax s = softmax_of(experts, x);
        struct choice next = {INFINITY, -1};
        for (int64_t k = 0; k < choices; k++) {
            next = choose_next(experts, x, next);
            if (threadIdx.x % WARP == 0)
                atomicAdd(&chosen[next.expert < 0 ? k : next.expert], 1);
        }
        if (threadIdx.x % WARP == 0)
            max[i] = s.max, scale[i] = s.scale;
    }
    __syncthreads();
    float *to = part + (blockIdx.y * (int64_t)gridDim.x + blockIdx.x) * 2 * experts;
    for (int64_t j = threadIdx.x; j < experts; j += blockDim.x) {
        float sum = 0;
        for (int i = 0; i < here; i++)
            sum += expf(get(rows + i * experts + j) - max[i]) * scale[i];
        to[j] = (float)chosen[j];
        to[experts + j] = sum;
    }
}

/* A thread takes a number of load[group][2][experts]. */
CUDA_KERNEL void load_finish(int64_t n, int64_t chunks, int64_t experts, int64_t tokens,
                             const float *part, float *load) {
    const int64_t i = grid_thread();
    if (i >= n)
        return;
    const int64_t group = quotient(i, 2 * experts), j = i - group * 2 * experts;
    double sum = 0;
    for (int64_t k = 0; k < chunks; k++)
        sum += part[(group * chunks + k) * 2 * experts + j];
    load[i] = (float)(sum / (double)tokens);
}

CUDA_FUNCTION(expert_load) {
    const int64_t chunks = cuda_workspace_token_chunks(n->tokens),
                  all = 2 * n->groups * n->experts;
    const int64_t counts = n->experts * (int64_t)sizeof(int);
    if (all * chunks == 0)
        return 0;
    if (counts > 40 << 10)
        return err_system(c->err,
                          "%lld experts are more than shared memory holds counts of",
                          (long long)n->experts);
    if (workspace_holds(c, all * chunks * (int64_t)sizeof(float)) < 0)
        return -1;
    CUDA_TYPED(c->args->dtype, T,
               CUDA_LAUNCH(load_tokens<T>, dim3((unsigned)chunks, (unsigned)n->groups),
                           BLOCK, (size_t)counts, c->stream, n->tokens, n->experts,
                           n->choices, (const T *)in->logits, (float *)c->workspace));
    CUDA_LAUNCH(load_finish, blocks_of(all, BLOCK), BLOCK, 0, c->stream, all, chunks,
                n->experts, n->tokens, (const float *)c->workspace, (float *)out->load);
    return 0;
}

template <typename T>
CUDA_KERNEL void expert_load_dx(int64_t rows, int64_t tokens, int64_t experts,
                                const T *logits, const float *dload, T *dlogits) {
    const int64_t row = router_row();
    if (row >= rows)
        return;
    const T *x = logits + row * experts;
    const float *dp = dload + (2 * quotient(row, tokens) + 1) * experts;
    const struct softmax s = softmax_of(experts, x);
    const float share = 1 / (float)tokens;
    float sum = 0;
    for (int64_t j = threadIdx.x % WARP; j < experts; j += WARP)
        sum += dp[j] * probability(s, x, j);
    sum = warp_sum(sum);
    for (int64_t j = threadIdx.x % WARP; j < experts; j += WARP)
        put(dlogits + row * experts + j, share * probability(s, x, j) * (dp[j] - sum));
}

CUDA_FUNCTION(expert_load_dx) {
    const int64_t rows = n->groups * n->tokens;
    if (rows > 0)
        CUDA_TYPED(c->args->dtype, T,
                   CUDA_LAUNCH(expert_load_dx<T>, router_blocks(rows), ROUTER_WARPS * WARP,
                               0, c->stream, rows, n->tokens, n->experts,
                               (const T *)in->logits, (const float *)in->dload,
                               (T *)out->dlogits));
    return 0;
}

/* ---- balance: experts x sum of the shares that chose an expert times its mean probability ---------- */

/* The sum over the parts of a group's loads of number j. */
CUDA_DEVICE double sum_parts(int64_t parts, int64_t experts, const float *load, int64_t j) {
    double sum = 0;
    for (int64_t i = 0; i < parts; i++)
        sum += load[i * 2 * experts + j];
    return sum;
}

/* Probabilities have the sum 1 in each router's load: how many loads there are is what they add up
 * to. */
CUDA_DEVICE double loads_of(double probabilities) {
    return fmax(1.0, rint(probabilities));
}

CUDA_KERNEL void balance(int64_t groups, int64_t parts, int64_t experts, const float *load,
                         double *part) {
    double all = 0;
    for (int64_t g = blockIdx.x; g < groups; g += gridDim.x) {
        const float *mine = load + g * 2 * parts * experts;
        double sum[2] = {0, 0}; /* of products, of probabilities */
        for (int64_t j = threadIdx.x; j < experts; j += blockDim.x) {
            const double p = sum_parts(parts, experts, mine, experts + j);
            sum[0] += sum_parts(parts, experts, mine, j) * p;
            sum[1] += p;
        }
        block_sums<2>(sum);
        const double loads = loads_of(sum[1]);
        all += (double)experts * sum[0] / (loads * loads);
    }
    if (threadIdx.x == 0)
        part[blockIdx.x] = all;
}

CUDA_FUNCTION(balance) {
    (void)out;
    if (n->groups == 0)
        return 0;
    const unsigned blocks = cuda_sum_blocks(c, n->groups, 1);
    if (!blocks)
        return -1;
    CUDA_LAUNCH(balance, blocks, BLOCK, 0, c->stream, n->groups, n->parts, n->experts,
                (const float *)in->load, (double *)c->workspace);
    return cuda_sum_finish(c, blocks, &c->args->scalars->metrics[METRIC_balance], NULL,
                           c->args->weight);
}

/* A block takes a group. */
CUDA_KERNEL void balance_dx(int64_t parts, int64_t experts, float scale,
                            const struct scalars *now, const float *load, float *dload) {
    const int64_t first = blockIdx.x * 2 * parts * experts;
    double sum = 0;
    for (int64_t j = threadIdx.x; j < experts; j += blockDim.x)
        sum += sum_parts(parts, experts, load + first, experts + j);
    const double loads = loads_of(block_sum(sum));
    for (int64_t j = threadIdx.x; j < experts; j += blockDim.x) {
        const double share = sum_parts(parts, experts, load + first, j);
        const double slope =
            scale * now->loss_scale * (double)experts * share / (loads * loads);
        for (int64_t i = 0; i < parts; i++) {
            float *d = dload + first + i * 2 * experts + j;
            d[0] = 0;
            d[experts] = (float)slope;
        }
    }
}

CUDA_FUNCTION(balance_dx) {
    if (n->groups > 0)
        CUDA_LAUNCH(balance_dx, (unsigned)n->groups, BLOCK, 0, c->stream, n->parts,
                    n->experts, c->args->scale, c->args->scalars, (const float *)in->load,
                    (float *)out->dload);
    return 0;
}

/* ---- squares of the rows' log-sum-exp ------------------------------------------------------ */

template <typename T>
CUDA_KERNEL void router_z(int64_t rows, int64_t experts, const T *logits, double *part) {
    double sum = 0;
    for (int64_t row = router_row(); row < rows; row += gridDim.x * (int64_t)ROUTER_WARPS) {
        const struct softmax s = softmax_of(experts, logits + row * experts);
        const double z = s.max + logf(s.sum);
        sum += threadIdx.x % WARP == 0 ? z * z : 0;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum;
}

CUDA_FUNCTION(router_z) {
    (void)out;
    if (n->rows == 0)
        return 0;
    const unsigned blocks = cuda_sum_blocks(c, n->rows, ROUTER_WARPS);
    if (!blocks)
        return -1;
    CUDA_TYPED(c->args->dtype, T,
               CUDA_LAUNCH(router_z<T>, blocks, ROUTER_WARPS * WARP, 0, c->stream, n->rows,
                           n->experts, (const T *)in->logits, (double *)c->workspace));
    return cuda_sum_finish(c, blocks, &c->args->scalars->metrics[METRIC_router_z], NULL,
                           c->args->weight);
}

template <typename T>
CUDA_KERNEL void router_z_dx(int64_t rows, int64_t experts, float scale,
                             const struct scalars *now, const T *logits, T *dlogits) {
    const int64_t row = router_row();
    if (row >= rows)
        return;
    const T *x = logits + row * experts;
    const struct softmax s = softmax_of(experts, x);
    const float slope = 2 * scale * now->loss_scale * (s.max + logf(s.sum));
    for (int64_t j = threadIdx.x % WARP; j < experts; j += WARP)
        put(dlogits + row * experts + j, slope * probability(s, x, j));
}

CUDA_FUNCTION(router_z_dx) {
    if (n->rows > 0)
        CUDA_TYPED(c->args->dtype, T,
                   CUDA_LAUNCH(router_z_dx<T>, router_blocks(n->rows), ROUTER_WARPS * WARP,
                               0, c->stream, n->rows, n->experts, c->args->scale,
                               c->args->scalars, (const T *)in->logits, (T *)out->dlogits));
    return 0;
}
