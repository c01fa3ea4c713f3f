/* gpu-run.c - weft-run on the fakes of CUDA, NCCL, cuBLASLt and cuDNN (tests/fake, tests/products): with the
 * objects of the tool this is the tool. At the end it says on stderr how products were computed, how many of them
 * did with an epilogue what weft can do by itself, and how convolutions were. Libraries are of the versions that
 * FAKE_VERSION and FAKE_CUDNN say. FAKE_NONE is the error by which CUDA says why there is no GPU, FAKE_DRIVER the
 * driver's version; FAKE_GPU is what the
 * GPU is: NAME:COMPUTE_CAPABILITY:BYTES, as in Tesla V100-SXM2-32GB:70:34359738368; FAKE_USED the bytes of it
 * that others have, and FAKE_LOST after how many graphs it is gone. */
#include "device/kernel.h"
#include "fake/cudart.h"
#include "products/cublaslt.h"
#ifdef WEFT_FAKE_DNN
#include "products/cudnn.h"
#endif

#include <stdio.h>
#include <stdlib.h>

static void describe_gpu(void) {
    static char name[64];
    static struct fake_gpu gpu = {.name = name, .processors = 4, .shared_bytes = 227 << 10};
    const char *text = getenv("FAKE_GPU"), *none = getenv("FAKE_NONE");
    const char *driver = getenv("FAKE_DRIVER"), *lost = getenv("FAKE_LOST"),
               *used = getenv("FAKE_USED");
    fake_cuda.lost = lost ? atoll(lost) : 0;
    fake_cuda.bytes = used ? atoll(used) : 0;
    long long bytes = 0;
    fake_cuda.driver = driver ? atoi(driver) : 0;
    fake_cuda.none = none ? (cudaError_t)atoi(none) : cudaSuccess;
    if (!text)
        return;
    if (sscanf(text, "%63[^:]:%d:%lld", name, &gpu.arch, &bytes) != 3)
        abort();
    gpu.bytes = bytes;
    fake_cuda.gpu = &gpu;
}

__attribute__((constructor)) static void begin(void) {
    describe_gpu();
    const char *version = getenv("FAKE_VERSION");
    fake_cublaslt.version = version ? strtoul(version, NULL, 10) : 0;
#ifdef WEFT_FAKE_DNN
    const char *cudnn = getenv("FAKE_CUDNN");
    fake_cudnn.version = cudnn ? strtoul(cudnn, NULL, 10) : 0;
#endif
    if (kernel_init(1, NULL) < 0) /* the other instructions are done by the CPU's kernels */
        abort();
}

__attribute__((destructor)) static void end(void) {
    const int *n = fake_cublaslt.runs;
    fprintf(stderr, "# heuristics %d, algorithms %d %d %d%s%s\n", fake_cublaslt.heuristics,
            n[0], n[1], n[2], fake_cublaslt.wrong ? ", wrong: " : "",
            fake_cublaslt.wrong ? fake_cublaslt.wrong : "");
    fprintf(stderr, "# epilogues %d\n", fake_cublaslt.epilogues);
#ifdef WEFT_FAKE_DNN
    fprintf(stderr, "# cudnn: heuristics %d, plans %d%s%s\n", fake_cudnn.heuristics,
            fake_cudnn.plans, fake_cudnn.wrong ? ", wrong: " : "",
            fake_cudnn.wrong ? fake_cudnn.wrong : "");
#endif
}
