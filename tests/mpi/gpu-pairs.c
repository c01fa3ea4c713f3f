/* gpu-pairs.c - what a captured region makes of a sum and the norm behind it, and of a norm's gradient and the sum
 * behind that (lib/cuda/cuda_pair.h), on the fake of CUDA: one kernel where they stand together, two where
 * something is between them, and the CPU's bits.
 *
 * usage: gpu-pairs
 */
#include "../gpu/given.h"
#include "../unit/tap.h"
#include "fake/cudart.h"

static void test(const struct given_at *at, enum opcode norm, enum given_how how) {
    struct trial_pair gpu, cpu;
    struct err err = {0};
    trial_pair_residual(&gpu, norm, DTYPE_f32, 8);
    trial_pair_residual(&cpu, norm, DTYPE_f32, 8);
    const int64_t before = fake_cuda.kernels;
    const int rc = given_pair(at, &gpu, how, &err);
    const int64_t kernels = fake_cuda.kernels - before, wanted = how == GIVEN_APART ? 3 : 1;
    trial_pair_on_cpu(&cpu);
    const bool same = trial_pair_distance(&gpu, &cpu) == 0;
    ok(rc >= 0 && same && kernels == wanted, "%s%s: %lld kernels, the bits of the CPU %s",
       opcode_name(norm), how == GIVEN_APART ? ", something between" : "",
       (long long)kernels, err.msg);
    trial_pair_end(&gpu), trial_pair_end(&cpu);
}

int main(void) {
    static const enum opcode norms[] = {I_layernorm, I_rmsnorm, I_layernorm_bwd,
                                        I_rmsnorm_bwd};
    struct err err = {0};
    struct cuda_backend cuda =
        cuda_backend(&(struct cuda_options){.workspace_bytes = 64 << 20});
    struct given_at at = {.dev = device_create(&cuda.backend, 0, 1, &err)};
    at.stream = at.dev ? device_stream_create(at.dev, &err) : NULL;
    ok(at.stream != NULL, "a GPU %s", err.msg);
    for (size_t i = 0; i < sizeof norms / sizeof *norms && at.stream; i++)
        test(&at, norms[i], GIVEN_CAPTURED), test(&at, norms[i], GIVEN_APART);
    device_stream_destroy(at.stream);
    device_destroy(at.dev);
    return done_testing();
}
