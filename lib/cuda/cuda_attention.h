/* cuda_attention.h - inside attention on GPUs: what its files hand each other.
 *
 * cuda_attention.c makes a job of an instruction and chooses who does it: the tensor cores
 * (cuda_attention_mma.cu, cuda_attention_wgmma.cu: bf16 and f16; cuda_attention_tf32.cu) or plain arithmetic
 * (cuda_attention_plain.cu, cuda_attention_plain_bwd.cu: any type, any head). Both read the scores of
 * relative positions from what cuda_attention_position.cu has spread before them.
 */
#ifndef WEFT_CUDA_ATTENTION_H
#define WEFT_CUDA_ATTENTION_H

#include "cuda/cuda_impl.h"

#ifdef __cplusplus
extern "C" {
#endif
#include "device/attention.h"

#define LOG2_E 1.4426950408889634f
#define LN_2   0.6931471805599453f

/* What is added to scores by the distance between key and query, in memory of the device. */
struct attention_near {
    const float *near;      /* [heads, 2 distance + 1], times log2(e); NULL: nothing */
    const uint16_t *bucket; /* [2 distance + 1]: the number that it is */
    float *parts; /* backward: [batch, blocks of queries, heads, buckets] gradients */
    int distance, buckets;
};

/* An instruction; what it has not is NULL. Its pointers are the device's. */
struct attention_job {
    struct kernel_attention t; /* strides in elements */
    struct attention_near near;
    const void *q, *k, *v;
    void *o;
    float *lse; /* [batch, heads, q_len] */
    const void *dout;
    void *dq, *dk, *dv;
    float *dpositions;
    float *delta; /* [batch, heads, q_len]: rowsum(dO O) */
};

/* Each puts its kernels on the call's stream. Backward needs job->delta. */
void attention_plain(const struct cuda_call *c, const struct attention_job *job);
void attention_plain_bwd(const struct cuda_call *c, const struct attention_job *job);

/* bf16 or f16 whose heads are at most 256 wide, a multiple of 8, and lie on 16 bytes; false, and nothing
 * done, where a block of the device has too little shared memory. */
bool attention_mma(const struct cuda_call *c, const struct attention_job *job);
bool attention_mma_bwd(const struct cuda_call *c, const struct attention_job *job);
/* The same of heads that are at most 128 wide, on compute capability 9.0; by_128: a block has 128 keys or
 * queries, not 64. */
bool attention_wgmma(const struct cuda_call *c, const struct attention_job *job);
bool attention_wgmma_bwd(const struct cuda_call *c, const struct attention_job *job,
                         bool by_128);
/* Floats, rounded to TF32 before they are multiplied, of heads that are at most 128 wide. */
bool attention_tf32(const struct cuda_call *c, const struct attention_job *job);
bool attention_tf32_bwd(const struct cuda_call *c, const struct attention_job *job);

/* delta = rowsum(dO O). vectors: all rows lie on 16 bytes. */
void attention_delta(const struct cuda_call *c, const struct attention_job *job,
                     bool vectors);
/* Fills near.near and near.bucket from the table of all buckets. */
void attention_spread(const struct cuda_call *c, const struct attention_job *job,
                      const struct positions *p, float *near, uint16_t *bucket);
/* dpositions += near.parts, made by blocks of so many queries, at least WORKSPACE_ATTENTION. */
void attention_collect(const struct cuda_call *c, const struct attention_job *job,
                       int queries);

#ifdef __cplusplus
}
#endif

#endif
