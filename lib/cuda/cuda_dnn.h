/* cuda_dnn.h - convolutions and attention by cuDNN's graph API.
 *
 * Of cuDNN's two interfaces the calls with one function for each operation
 * (cudnnConvolutionForward) are deprecated in the headers of version 9, descriptors of
 * tensors and filters with them. What stays describes all things with attributes: tensors,
 * windows, the operation, a graph of this one operation; a heuristic lists engines for it,
 * and an engine that suits becomes a plan, which is executed.
 *
 * To cuDNN images and filters are channels-last too, but of filters that is [out, taps, taps,
 * in]: weights of weft are turned before (cuda_turn).
 *
 * This header knows no type of cuDNN: where weft is built without it, dnn_open() says so
 * (cuda_dnn_none.c).
 *
 *     struct dnn_wish wish = {.pass = KERNEL_FORWARD, .s = s, .type = DTYPE_bf16, .type_to = DTYPE_bf16};
 *     struct dnn_plans plans = {.n = 0};
 *     if (dnn_plan(dnn, &wish, 1, &plans) == 1) ...
 *     dnn_forget(dnn, &plans);
 */
#ifndef WEFT_CUDA_DNN_H
#define WEFT_CUDA_DNN_H

#include "common/err.h"
#include "common/mem.h"
#include "device/kernel.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>

struct dnn;

/* Opens the library for the GPU that is set; NULL with what is missing. */
struct dnn *dnn_open(struct err *err);
/* NULL: nothing to do. */
void dnn_close(struct dnn *d);
/* 91900 is 9.19.0; of NULL 0. */
int64_t dnn_version(const struct dnn *d);

/* A convolution, and what is asked of those who do it. */
struct dnn_wish {
    enum kernel_pass pass;
    struct kernel_conv s;
    enum dtype type, type_to; /* of operands; of the result: that or f32 */
    bool deterministic;       /* the same bits each time */
    bool tf32;                /* operands of type f32 may be rounded to 10 bits */
    int64_t workspace_bytes;  /* at most */
};

enum { DNN_PLANS = 16 /* for one convolution, at most */ };
struct dnn_plans {
    struct {
        void *plan, *config; /* the library's: the plan, and the engine with its knobs */
        int64_t workspace_bytes;
    } of[DNN_PLANS];
    int n, compiled;   /* how many; engines met that are compiled for it */
    ARR(void *) parts; /* what the plans were made from, which they may refer to */
};

/* At most so many plans that fulfil the wish: the heuristic's first choice first, then the first choice
 * of every other engine that it lists, then each one's second, and so on; then what the library has
 * for all cases. Returns how many. None is no failure. Sums are floats; an
 * engine that transforms tiles (Winograd, Fourier) or rounds what it sums does not suit. At
 * most one of the plans is compiled for this convolution, which takes a while. Released with
 * dnn_forget. */
int dnn_plan(const struct dnn *d, const struct dnn_wish *wish, int most,
             struct dnn_plans *out);
/* What plan i is called where it is kept. false where the library does not say or `size` is too small. */
bool dnn_plan_name(const struct dnn *d, struct dnn_plans *plans, int i, char *buf,
                   size_t size);
/* As dnn_plan(), of the plan of this name: 1; 0 where the library refuses; -1 where it does not suit. */
int dnn_plan_named(const struct dnn *d, const struct dnn_wish *wish, const char *name,
                   struct dnn_plans *out);
void dnn_forget(const struct dnn *d, struct dnn_plans *plans);

/* Gives plan i to the stream: x and y are the images (or their gradients) on both sides of
 * the forward pass, w the filter (or its gradient), all on 16 bytes; the result is one of
 * them. Returns 0, or -1 with what the library says. */
struct dnn_operands {
    void *x, *w, *y;
};
int dnn_run(const struct dnn *d, const struct dnn_plans *plans, int i,
            const struct dnn_operands *o, void *workspace, cudaStream_t stream,
            struct err *err);

/* ---- attention ---------------------------------------------------------------------------- */

/* Of bf16 or f16, over all keys or, causal, over those up to its own place, as many as queries; nothing is
 * added by distance, no sample is shorter than others. */
struct dnn_attention {
    bool backward;
    struct kernel_attention t;
    enum dtype type;
    bool deterministic;      /* the same bits each time */
    int64_t workspace_bytes; /* at most */
};
/* As dnn_plan() and dnn_plan_named(). */
int dnn_attention_plan(const struct dnn *d, const struct dnn_attention *w, int most,
                       struct dnn_plans *out);
int dnn_attention_named(const struct dnn *d, const struct dnn_attention *w,
                        const char *name, struct dnn_plans *out);

/* All on 16 bytes. lse: natural logarithms of the sums of exponentials of the scaled scores, floats [batch,
 * heads, q_len], written forward and read backward. Only backward, beside gradients, two that are scratch:
 * delta as lse, and sums, floats [batch, heads, q_len, dim]. */
struct dnn_attention_operands {
    const void *q, *k, *v, *dout;
    void *o;
    float *lse;
    void *dq, *dk, *dv;
    float *delta, *sums;
};
int dnn_attention_run(const struct dnn *d, const struct dnn_attention *w,
                      const struct dnn_plans *plans, int i,
                      const struct dnn_attention_operands *o, void *workspace,
                      cudaStream_t stream, struct err *err);

#endif
