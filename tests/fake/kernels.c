/* Stands in for the kernels of lib/cuda: each instruction is done by the CPU, when its turn comes on
 * the stream. So the rest of lib/cuda runs as it is. */
#include "cuda/cuda_convolution.h"
#include "cuda/cuda_product.h"
#include "cuda/cuda_state.h"
#include "device/cpu.h"
#include "fake/cudart.h"

#include <stdlib.h>

/* cuBLASLt is not wanted where the CPU multiplies. */
struct cuda_products *cuda_products_create(const struct cuda_device *dev, bool tunes,
                                           struct err *err) {
    (void)dev, (void)tunes;
    return kernel_init(1, err) == 0 ? mem_alloc(1) : NULL;
}

void cuda_products_destroy(struct cuda_products *p) {
    kernel_release();
    free(p);
}

/* Nor is cuDNN where it convolves. */
struct cuda_convolutions *cuda_convolutions_create(bool asked, bool tunes, char *lacks,
                                                   size_t size) {
    (void)asked, (void)tunes, (void)lacks, (void)size;
    return NULL;
}

void cuda_convolutions_destroy(struct cuda_convolutions *p) {
    (void)p;
}

int cuda_tune(struct device *dev, const struct program *g, int rank, struct err *err) {
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

static void run(void *args) {
    const struct kernel *k = args;
    cpu_exec(k->code, &k->n, &k->in, &k->out, &k->args);
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
#define KERNEL_FREE(id)
#define KERNEL_COMM(id)
#define KERNEL_P2P(id)
#define OPCODE(id, key, about) KERNEL_##key(id)
#include "program/instr.def"
