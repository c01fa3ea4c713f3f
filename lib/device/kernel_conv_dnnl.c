/* Convolution through oneDNN: activations as they lie (nhwc), weights in the layout that
 * the library chooses. From weft's weights [taps, taps, in, out] to that layout is a
 * reorder in each call, and so is the way back, which adds to the gradient;
 * doc/kernels.md has what they cost.
 *
 * A primitive takes 0.1 to 0.8 ms to create, so they are kept by shape. Weights in the
 * library's layout and its own scratch stand in the room that all of oneDNN shares. */
#include "kernel_impl.h"

#ifdef WEFT_GEMM_dnnl

#include "common/mem.h"
#include "kernel_dnnl.h"

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

static ARR(struct convolution *) made;

static void destroy(struct convolution *c) {
    dnnl_memory_t memory[] = {c->x, c->y, c->plain, c->packed, c->scratch};
    dnnl_primitive_destroy(c->primitive);
    dnnl_primitive_destroy(c->reorder);
    for (int i = 0; i < 5; i++)
        dnnl_memory_destroy(memory[i]);
    free(c);
}

void kernel_conv_release(void) {
    for (int64_t i = 0; i < made.n; i++)
        destroy(made.p[i]);
    arr_release(&made);
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
    must(dnnl_primitive_desc_create(&pd, &desc, attr, kernel_dnnl_engine(), forward));
    return pd;
}

/* Backward passes are described beside their forward pass. */
static dnnl_primitive_desc_t describe(enum kernel_pass d, const struct kernel_conv *s,
                                      enum dtype type, const struct tensors *t) {
    const struct tensors of_forward = tensors_of(KERNEL_FORWARD, s, type);
    dnnl_primitive_attr_t attr = kernel_dnnl_attributes(false);
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
    *c = (struct convolution){.pass = d,
                              .type = type,
                              .shape = *s,
                              .reorder = d == KERNEL_WEIGHTS
                                             ? kernel_dnnl_reorder(packed, &t.plain, true)
                                             : kernel_dnnl_reorder(&t.plain, packed, false),
                              .x = kernel_dnnl_memory(&t.x),
                              .y = kernel_dnnl_memory(&t.y),
                              .plain = kernel_dnnl_memory(&t.plain),
                              .packed = kernel_dnnl_memory(packed),
                              .scratch = kernel_dnnl_memory(scratch),
                              .packed_bytes = kernel_dnnl_bytes(packed),
                              .scratch_bytes = kernel_dnnl_bytes(scratch)};
    must(dnnl_primitive_create(&c->primitive, pd));
    dnnl_primitive_desc_destroy(pd);
    return c;
}

/* ---- finding and running ----------------------------------------------------------- */

static bool same_shape(const struct kernel_conv *a, const struct kernel_conv *b) {
    return !memcmp(a, b, sizeof *a);
}

static struct convolution *find(enum kernel_pass d, const struct kernel_conv *s,
                                enum dtype type) {
    for (int64_t i = 0; i < made.n; i++)
        if (made.p[i]->pass == d && made.p[i]->type == type &&
            same_shape(&made.p[i]->shape, s))
            return made.p[i];
    arr_push(&made, make(d, s, type));
    return made.p[made.n - 1];
}

/* The library's convolutions of bf16 take longer than those of floats without the instructions. */
static bool has(enum dtype type) {
    return type == DTYPE_f32 ||
           (type == DTYPE_bf16 && kernel_dnnl_has(dnnl_cpu_isa_avx512_core_bf16));
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

bool kernel_conv_library(enum kernel_pass d, const struct kernel_conv *s, enum dtype type,
                         const void *x, const void *w, const void *y) {
    static const int arg[][3] = {
        [KERNEL_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
        [KERNEL_DATA] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
        [KERNEL_WEIGHTS] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};
    if (!has(type))
        return false;
    const struct convolution *c = find(d, s, type);
    char *room = kernel_dnnl_room(c->packed_bytes + c->scratch_bytes);
    kernel_dnnl_place(c->x, x);
    kernel_dnnl_place(c->plain, w);
    kernel_dnnl_place(c->y, y);
    kernel_dnnl_place(c->packed, room);
    kernel_dnnl_place(c->scratch, room + c->packed_bytes);
    if (d != KERNEL_WEIGHTS)
        kernel_dnnl_run_reorder(c->reorder, c->plain, c->packed);
    /* In 16 bits oneDNN 2.6 multiplies by columns of its scratch that it never wrote: seen with an
     * image one column wide, where whatever lay there reached the gradient. */
    if (d == KERNEL_WEIGHTS && type == DTYPE_bf16)
        memset(room + c->packed_bytes, 0, (size_t)c->scratch_bytes);
    const dnnl_exec_arg_t args[] = {{arg[d][0], c->x},
                                    {arg[d][1], c->packed},
                                    {arg[d][2], c->y},
                                    {DNNL_ARG_SCRATCHPAD, c->scratch}};
    kernel_dnnl_run(c->primitive, 4, args);
    if (d == KERNEL_WEIGHTS)
        kernel_dnnl_run_reorder(c->reorder, c->packed, c->plain);
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
