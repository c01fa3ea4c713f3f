/* The bounds of oneDNN 2.6 were seen, not read: dnnl_sgemm over 13 shapes, all
 * transpositions, took at most 15.6, 24.5 and 28.4 MB with 1, 2 and 4 threads; the bound
 * is 16 MiB and 8 for each thread. A convolution holds its weights padded to whole
 * vectors; for their gradient threads may hold sums of their own, while those are smaller
 * than what they are sums of; and with strides each gathers the places that it needs
 * (tests/unit/device-conv.c compares). Of fewer channels than a vector of AVX2 has, and
 * without AVX-512, it makes a product of a sample's patches, which it copies first. In bf16 each also turns samples' maps, and sums in floats.
 * The product of bf16 took at most 13 MB for each of 1 to 4 threads, over 500 shapes in all
 * transpositions, with AVX512_BF16, and 2.5 MB with AMX. */
#include "device/cpu_workspace.h"

/* What oneDNN packs into: per thread, and twice that; of bf16, per thread. */
enum { PRODUCT_BYTES = 8 << 20, PRODUCT_BF16_BYTES = 14 << 20 };

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

int64_t cpu_workspace_convolution(const struct conv2d_n *n, enum dtype dtype, int threads) {
    enum {
        VECTOR = 16,   /* floats, of AVX-512 */
        SHORT = 8,     /* of AVX2 */
        OWN = 64 << 10 /* bytes for each thread, whatever it does */
    };
    int64_t cin = (n->cin + VECTOR - 1) / VECTOR * VECTOR;
    int64_t cout = (n->cout + VECTOR - 1) / VECTOR * VECTOR;
    int64_t weights = n->kh * n->kw * cin * cout, gathered = cin * n->oh * n->ow;
    int64_t sample = n->ih * n->iw * cin + n->oh * n->ow * cout;
    int64_t elems = weights + min64((threads - 1) * weights, n->batch * sample) +
                    (n->stride > 1 ? threads * gathered : 0);
    if (n->cin < SHORT)
        elems += n->oh * n->ow * n->kh * n->kw * n->cin;
    if (dtype == DTYPE_bf16)
        elems += weights + 3 * threads * sample;
    return elems * dtype_size(DTYPE_f32) + (int64_t)threads * OWN;
}

static int64_t convolutions_of(const struct stage_program *sp, int threads) {
    int64_t most = 0;
    for (int i = 0; i < sp->n_instrs; i++) {
        if (sp->instrs[i].code != I_conv2d)
            continue;
        int64_t bytes = cpu_workspace_convolution(&sp->instrs[i].n.conv2d,
                                                  sp->instrs[i].dtype, threads);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Those of a rank share one workspace, as large as the largest needs. */
static int64_t all_convolutions(const struct workspace_site *at) {
    const struct plan *p = at->program->plan;
    int group = p->stages[at->stage].group;
    int64_t most = 0;
    for (int i = p->first_chunk[group]; i < p->first_chunk[group + 1]; i++) {
        int64_t bytes = convolutions_of(&at->program->stages[p->chunks[i]], at->threads);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Of floats, whose memory the library takes call by call, and of bf16, which share one workspace. */
static int64_t products_of(const struct stage_program *sp, int threads) {
    int64_t floats = 0, halves = 0;
    for (int i = 0; i < sp->n_instrs; i++)
        if (sp->instrs[i].code == I_linear && sp->instrs[i].dtype == DTYPE_bf16)
            halves = (int64_t)threads * PRODUCT_BF16_BYTES;
        else if (sp->instrs[i].code == I_linear || sp->instrs[i].code == I_orthogonalize)
            floats = (int64_t)(threads + 2) * PRODUCT_BYTES;
    return floats + halves;
}

int64_t cpu_workspace(const struct workspace_site *at) {
    if (workspace_on_gpu(at))
        return 0;
    return (int64_t)at->threads * CPU_WORKSPACE_SCRATCH +
           products_of(&at->program->stages[at->stage], at->threads) + all_convolutions(at);
}
