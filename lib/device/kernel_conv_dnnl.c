/* Convolution through oneDNN: activations as they lie (nhwc), weights in the layout that
 * the library chooses. From weft's weights [taps, taps, in, out] to that layout is a
 * reorder in each call, and so is the way back, which adds to the gradient;
 * doc/kernels.md has what they cost.
 *
 * A primitive takes 0.1 to 0.8 ms to create, so they are kept by shape. Weights in the
 * library's layout and its own scratch stand in one buffer, as large as the largest
 * primitive needs. */
#include "kernel_impl.h"

#ifdef WEFT_GEMM_dnnl

#include "common/mem.h"

#include <oneapi/dnnl/dnnl.h>

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* One primitive with the reorder of its weights. The roles of x, w, y are those of the
 * forward pass, whichever of them is written. */
struct convolution {
    enum kernel_pass pass;
    enum dtype type;
    struct kernel_conv shape;
    dnnl_primitive_t primitive, reorder;
    dnnl_memory_t x, y, plain, packed, scratch;
    int64_t packed_bytes, scratch_bytes;
};

static struct {
    ARR(struct convolution *) made;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    char *room;
    int64_t bytes;
} state;

/* No call here can fail but for want of memory: shapes are checked by the model. */
static void must(dnnl_status_t status) {
    assert(status == dnnl_success);
    (void)status;
}

static void destroy(struct convolution *c) {
    dnnl_memory_t memory[] = {c->x, c->y, c->plain, c->packed, c->scratch};
    dnnl_primitive_destroy(c->primitive);
    dnnl_primitive_destroy(c->reorder);
    for (int i = 0; i < 5; i++)
        dnnl_memory_destroy(memory[i]);
    free(c);
}

void kernel_conv_release(void) {
    for (int64_t i = 0; i < state.made.n; i++)
        destroy(state.made.p[i]);
    arr_release(&state.made);
    if (state.engine) {
        dnnl_stream_destroy(state.stream);
        dnnl_engine_destroy(state.engine);
    }
    free(state.room);
    memset(&state, 0, sizeof state);
}

/* ---- making one -------------------------------------------------------------------- */

/* The three tensors in the library's order of dims, with the layouts that weft has, or
 * any. */
struct tensors {
    dnnl_memory_desc_t x, w, y, plain;
};

static dnnl_memory_desc_t tensor(int64_t a, int64_t b, int64_t c, int64_t d,
                                 enum dtype type, dnnl_format_tag_t tag) {
    dnnl_memory_desc_t m;
    must(dnnl_memory_desc_init_by_tag(&m, 4, (dnnl_dims_t){a, b, c, d},
                                      type == DTYPE_f32 ? dnnl_f32 : dnnl_bf16, tag));
    return m;
}

/* The gradient of weights is in 32 bits. */
static struct tensors tensors_of(enum kernel_pass d, const struct kernel_conv *s,
                                 enum dtype type) {
    const enum dtype of_w = d == KERNEL_WEIGHTS ? DTYPE_f32 : type;
    const dnnl_format_tag_t any = dnnl_format_tag_any;
    return (struct tensors){.x = tensor(s->batch, s->cin, s->ih, s->iw, type, dnnl_nhwc),
                            .w = tensor(s->cout, s->cin, s->kh, s->kw, of_w, any),
                            .y = tensor(s->batch, s->cout, s->oh, s->ow, type, dnnl_nhwc),
                            .plain =
                                tensor(s->cout, s->cin, s->kh, s->kw, of_w, dnnl_hwio)};
}

static dnnl_primitive_desc_t describe_pass(enum kernel_pass d, const struct kernel_conv *s,
                                           const struct tensors *t,
                                           const_dnnl_primitive_attr_t attr,
                                           const_dnnl_primitive_desc_t forward) {
    dnnl_convolution_desc_t desc;
    const dnnl_dims_t stride = {s->stride, s->stride}, pad = {s->ph, s->pw};
    const dnnl_alg_kind_t how = dnnl_convolution_direct;
    if (d == KERNEL_FORWARD)
        must(dnnl_convolution_forward_desc_init(&desc, dnnl_forward_training, how, &t->x,
                                                &t->w, NULL, &t->y, stride, pad, pad));
    else if (d == KERNEL_DATA)
        must(dnnl_convolution_backward_data_desc_init(&desc, how, &t->x, &t->w, &t->y,
                                                      stride, pad, pad));
    else
        must(dnnl_convolution_backward_weights_desc_init(&desc, how, &t->x, &t->w, NULL,
                                                         &t->y, stride, pad, pad));
    dnnl_primitive_desc_t pd;
    must(dnnl_primitive_desc_create(&pd, &desc, attr, state.engine, forward));
    return pd;
}

/* Backward passes are described beside their forward pass. */
static dnnl_primitive_desc_t describe(enum kernel_pass d, const struct kernel_conv *s,
                                      enum dtype type, const struct tensors *t) {
    const struct tensors of_forward = tensors_of(KERNEL_FORWARD, s, type);
    dnnl_primitive_attr_t attr;
    must(dnnl_primitive_attr_create(&attr));
    must(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
    dnnl_primitive_desc_t forward =
        describe_pass(KERNEL_FORWARD, s, &of_forward, attr, NULL);
    dnnl_primitive_desc_t pd = forward;
    if (d != KERNEL_FORWARD) {
        pd = describe_pass(d, s, t, attr, forward);
        dnnl_primitive_desc_destroy(forward);
    }
    dnnl_primitive_attr_destroy(attr);
    return pd;
}

/* Weights into the library's layout; their gradient out of it, added to what is there. */
static dnnl_primitive_t make_reorder(bool back, const dnnl_memory_desc_t *plain,
                                     const dnnl_memory_desc_t *packed) {
    dnnl_primitive_desc_t pd;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_t made;
    must(dnnl_primitive_attr_create(&attr));
    if (back) {
        dnnl_post_ops_t add;
        must(dnnl_post_ops_create(&add));
        must(dnnl_post_ops_append_sum(add, 1));
        must(dnnl_primitive_attr_set_post_ops(attr, add));
        dnnl_post_ops_destroy(add);
    }
    must(dnnl_reorder_primitive_desc_create(&pd, back ? packed : plain, state.engine,
                                            back ? plain : packed, state.engine, attr));
    must(dnnl_primitive_create(&made, pd));
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
    return made;
}

static dnnl_memory_t memory_of(const dnnl_memory_desc_t *desc) {
    dnnl_memory_t m;
    must(dnnl_memory_create(&m, desc, state.engine, DNNL_MEMORY_NONE));
    return m;
}

static struct convolution *make(enum kernel_pass d, const struct kernel_conv *s,
                                enum dtype type) {
    struct convolution *c = mem_alloc(sizeof *c);
    struct tensors t = tensors_of(d, s, type);
    dnnl_primitive_desc_t pd = describe(d, s, type, &t);
    dnnl_query_t which =
        d == KERNEL_WEIGHTS ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
    const dnnl_memory_desc_t *packed = dnnl_primitive_desc_query_md(pd, which, 0);
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    *c = (struct convolution){
        .pass = d,
        .type = type,
        .shape = *s,
        .reorder = make_reorder(d == KERNEL_WEIGHTS, &t.plain, packed),
        .x = memory_of(&t.x),
        .y = memory_of(&t.y),
        .plain = memory_of(&t.plain),
        .packed = memory_of(packed),
        .scratch = memory_of(scratch),
        .packed_bytes = memory_aligned((int64_t)dnnl_memory_desc_get_size(packed)),
        .scratch_bytes = memory_aligned((int64_t)dnnl_memory_desc_get_size(scratch))};
    must(dnnl_primitive_create(&c->primitive, pd));
    dnnl_primitive_desc_destroy(pd);
    return c;
}

/* ---- finding and running ----------------------------------------------------------- */

static bool same_shape(const struct kernel_conv *a, const struct kernel_conv *b) {
    return !memcmp(a, b, sizeof *a);
}

static void make_room(int64_t bytes) {
    if (bytes <= state.bytes)
        return;
    free(state.room);
    state.room = aligned_alloc(64, (size_t)bytes);
    assert(state.room && "no memory for a convolution's weights");
    state.bytes = bytes;
}

static struct convolution *find(enum kernel_pass d, const struct kernel_conv *s,
                                enum dtype type) {
    if (!state.engine) {
        must(dnnl_engine_create(&state.engine, dnnl_cpu, 0));
        must(dnnl_stream_create(&state.stream, state.engine, dnnl_stream_default_flags));
    }
    for (int64_t i = 0; i < state.made.n; i++)
        if (state.made.p[i]->pass == d && state.made.p[i]->type == type &&
            same_shape(&state.made.p[i]->shape, s))
            return state.made.p[i];
    struct convolution *c = make(d, s, type);
    make_room(c->packed_bytes + c->scratch_bytes);
    arr_push(&state.made, c);
    return c;
}

/* The library's convolutions of bf16 take longer than those of floats without the instructions. */
static bool has(enum dtype type) {
    const int needed = dnnl_cpu_isa_avx512_core_bf16;
    return type == DTYPE_f32 ||
           (type == DTYPE_bf16 && ((int)dnnl_get_effective_cpu_isa() & needed) == needed);
}

int64_t kernel_conv_bytes(const struct kernel_conv *s, enum dtype type) {
    int64_t most = 0;
    for (int d = KERNEL_FORWARD; has(type) && d <= KERNEL_WEIGHTS; d++) {
        const struct convolution *c = find((enum kernel_pass)d, s, type);
        int64_t bytes = c->packed_bytes + c->scratch_bytes;
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void set(dnnl_memory_t m, const void *p) {
    must(dnnl_memory_set_data_handle(m, (void *)p));
}

static void reorder(const struct convolution *c, dnnl_memory_t from, dnnl_memory_t to) {
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    must(dnnl_primitive_execute(c->reorder, state.stream, 2, args));
}

bool kernel_conv_library(enum kernel_pass d, const struct kernel_conv *s, enum dtype type,
                         const void *x, const void *w, const void *y) {
    static const int arg[][3] = {
        [KERNEL_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
        [KERNEL_DATA] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
        [KERNEL_WEIGHTS] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};
    if (!has(type))
        return false;
    const struct convolution *c = find(d, s, type);
    set(c->x, x);
    set(c->plain, w);
    set(c->y, y);
    set(c->packed, state.room);
    set(c->scratch, state.room + c->packed_bytes);
    if (d != KERNEL_WEIGHTS)
        reorder(c, c->plain, c->packed);
    const dnnl_exec_arg_t args[] = {{arg[d][0], c->x},
                                    {arg[d][1], c->packed},
                                    {arg[d][2], c->y},
                                    {DNNL_ARG_SCRATCHPAD, c->scratch}};
    must(dnnl_primitive_execute(c->primitive, state.stream, 4, args));
    if (d == KERNEL_WEIGHTS)
        reorder(c, c->packed, c->plain);
    return true;
}

#else

bool kernel_conv_library(enum kernel_pass d, const struct kernel_conv *s, enum dtype type,
                         const void *x, const void *w, const void *y) {
    (void)d, (void)s, (void)type, (void)x, (void)w, (void)y;
    return false;
}

int64_t kernel_conv_bytes(const struct kernel_conv *s, enum dtype type) {
    (void)s, (void)type;
    return 0;
}

void kernel_conv_release(void) {
}

#endif
