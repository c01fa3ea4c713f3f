/* Stands in for the kernels of lib/cuda: each instruction is done by the CPU, when its turn comes on
 * the stream. So the rest of lib/cuda runs as it is. */
#include "cuda/cuda_attention_library.h"
#include "cuda/cuda_convolution.h"
#include "cuda/cuda_multi.h"
#include "cuda/cuda_norm.h"
#include "cuda/cuda_product.h"
#include "cuda/cuda_state.h"
#include "cuda/cuda_unpack.h"
#include "device/cpu.h"
#include "fake/cudart.h"

#include <stdlib.h>

/* cuBLASLt is not wanted where the CPU multiplies; a test that is linked with lib/cuda's own products has
 * those instead. */
__attribute__((weak)) struct cuda_products *
cuda_products_create(const struct cuda_device *dev, bool tunes, struct err *err) {
    (void)dev, (void)tunes;
    return kernel_init(1, err) == 0 ? mem_alloc(1) : NULL;
}

__attribute__((weak)) void cuda_products_know(struct cuda_products *p,
                                              struct cuda_choices *choices) {
    (void)p, (void)choices;
}

__attribute__((weak)) void cuda_products_destroy(struct cuda_products *p) {
    kernel_release();
    free(p);
}

/* So no product takes what comes behind it. */
__attribute__((weak)) bool cuda_pair_gelu_fits(const struct cuda_given *first,
                                               const struct cuda_given *second) {
    (void)first, (void)second;
    return false;
}

__attribute__((weak)) int cuda_pair_gelu_give(struct cuda_call *c,
                                              const struct cuda_given *first,
                                              const struct cuda_given *second) {
    (void)first, (void)second;
    return err_system(c->err, "no pairs here");
}

/* Nor is cuDNN where it convolves; with lib/cuda's own choice of convolutions it is. */
__attribute__((weak)) struct cuda_convolutions *
cuda_convolutions_create(bool asked, bool tunes, char *lacks, size_t size) {
    (void)asked, (void)tunes, (void)lacks, (void)size;
    return NULL;
}

__attribute__((weak)) void cuda_convolutions_know(struct cuda_convolutions *p,
                                                  struct cuda_choices *choices) {
    (void)p, (void)choices;
}

__attribute__((weak)) void cuda_convolutions_destroy(struct cuda_convolutions *p) {
    (void)p;
}

__attribute__((weak)) struct cuda_attentions *cuda_attentions_create(bool asked,
                                                                     bool tunes) {
    (void)asked, (void)tunes;
    return NULL;
}

__attribute__((weak)) void cuda_attentions_know(struct cuda_attentions *p,
                                                struct cuda_choices *choices) {
    (void)p, (void)choices;
}

__attribute__((weak)) void cuda_attentions_tune(struct cuda_attentions *p, bool tunes) {
    (void)p, (void)tunes;
}

__attribute__((weak)) void cuda_attentions_destroy(struct cuda_attentions *p) {
    (void)p;
}

__attribute__((weak)) int cuda_tune(struct device *dev, const struct program *g, int rank,
                                    struct err *err) {
    (void)dev, (void)g, (void)rank, (void)err;
    return 0;
}

struct kernel {
    enum opcode code;
    union instr_n n;
    union instr_src in;
    union instr_dst out;
    struct device_args args;
};

static void compute(const struct kernel *k) {
    cpu_exec(k->code, &k->n, &k->in, &k->out, &k->args);
}

static void run(void *args) {
    fake_cuda.kernels++;
    compute(args);
}

#define KERNEL_SHAPE(id)                                                                   \
    __attribute__((weak)) CUDA_FUNCTION(id) {                                              \
        struct kernel k = {.code = I_##id, .args = *c->args};                              \
        fake_cuda_load(opcode_name(I_##id));                                               \
        k.n.id = *n;                                                                       \
        k.in.id = *in;                                                                     \
        k.out.id = *out;                                                                   \
        fake_cuda_launch(c->stream, run, &k, sizeof k);                                    \
        return 0;                                                                          \
    }
#define KERNEL_CURVE(id) KERNEL_SHAPE(id)
#define KERNEL_PARTS(id) KERNEL_SHAPE(id)
#define KERNEL_FREE(id)
#define KERNEL_COMM(id)
#define KERNEL_P2P(id)
#define OPCODE(id, key, about) KERNEL_##key(id)
#include "program/instr.def"

static void give(struct cuda_call *c, struct kernel k) {
    fake_cuda_load(opcode_name(k.code));
    fake_cuda_launch(c->stream, run, &k, sizeof k);
}

/* ---- data ------------------------------------------------------------------------------------ */

struct unpacked {
    int64_t n;
    const void *x;
    void *y;
    enum dtype from, to;
};

static void run_unpacked(void *args) {
    const struct unpacked *u = args;
    fake_cuda.kernels++;
    kernel_unpack(u->n, u->from, u->x, u->to, u->y);
}

__attribute__((weak)) int cuda_unpack_kernel(struct cuda_call *c, int64_t n, const void *x,
                                             enum dtype from, void *y, enum dtype to) {
    const struct unpacked u = {n, x, y, from, to};
    fake_cuda_load("data");
    fake_cuda_launch(c->stream, run_unpacked, &u, sizeof u);
    return 0;
}

/* ---- several in one ----------------------------------------------------------------------- */

/* A sum, and what stands before or behind it, are one launch. */
struct with_sum {
    struct kernel first, second;
};

static void run_with_sum(void *args) {
    const struct with_sum *both = args;
    fake_cuda.kernels++;
    compute(&both->first);
    compute(&both->second);
}

static int give_with_sum(struct cuda_call *c, struct kernel first, struct kernel second) {
    const struct with_sum both = {first, second};
    fake_cuda_load(first.code == I_add ? "a sum and its norm" : "a gradient and its sum");
    fake_cuda_launch(c->stream, run_with_sum, &both, sizeof both);
    return 0;
}

static struct kernel sum_of(const struct cuda_call *c, int64_t elems, const void *a,
                            const void *b, const void *y) {
    struct kernel k = {.code = I_add, .args = *c->args};
    k.n.add.elems = elems;
    k.in.add.a = (void *)a, k.in.add.b = (void *)b;
    k.out.add.y = (void *)y;
    return k;
}

#define SUM_AND_NORM(id)                                                                   \
    __attribute__((weak)) int cuda_add_##id(                                               \
        struct cuda_call *c, const struct id##_n *n, const struct add_src *add,            \
        const struct id##_src *in, const struct id##_dst *out) {                           \
        struct kernel k = {.code = I_##id, .args = *c->args};                              \
        k.n.id = *n, k.in.id = *in, k.out.id = *out;                                       \
        return give_with_sum(c, sum_of(c, n->rows * n->n, add->a, add->b, in->x), k);      \
    }
#define GRADIENT_AND_SUM(id)                                                               \
    __attribute__((weak)) int cuda_##id##_add(                                             \
        struct cuda_call *c, const struct id##_n *n, const struct id##_src *in,            \
        const struct id##_dst *out, const void *g, void *y) {                              \
        struct kernel k = {.code = I_##id, .args = *c->args};                              \
        k.n.id = *n, k.in.id = *in, k.out.id = *out;                                       \
        return give_with_sum(c, k, sum_of(c, n->rows * n->n, out->dx, g, y));              \
    }
SUM_AND_NORM(layernorm)
SUM_AND_NORM(rmsnorm)
GRADIENT_AND_SUM(layernorm_bwd)
GRADIENT_AND_SUM(rmsnorm_bwd)

__attribute__((weak)) int cuda_multi_launch(struct cuda_call *c,
                                            const struct cuda_multi *m) {
    for (int i = 0; i < m->count; i++) {
        const struct cuda_multi_tensor *t = &m->tensor[i];
        struct kernel k = {.code = m->code,
                           .args = {.dtype = DTYPE_f32,
                                    .scalars = m->scalars,
                                    .counts = true,
                                    .beta1 = m->beta1,
                                    .beta2 = m->beta2,
                                    .opt_eps = m->eps,
                                    .decay = t->decay,
                                    .replicas = (int)t->by}};
        k.n.adamw.elems = t->n;
        k.in.adamw.g = (void *)t->g;
        k.out.adamw.p = t->p, k.out.adamw.m = t->m, k.out.adamw.v = t->v;
        if (m->code != I_narrow)
            give(c, k);
        k.code = I_narrow;
        k.args.dtype = m->dtype;
        k.n.narrow.elems = t->n;
        k.in.narrow.x = t->p;
        k.out.narrow.y = t->rounded;
        if (t->rounded)
            give(c, k);
    }
    return 0;
}
