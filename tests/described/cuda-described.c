/* The described GPU refuses what CUDA refuses: launches of kernels that take so much, on an H100. */
#include "../unit/tap.h"
#include "described.h"

const struct described_usage described_usages[] = {
    {"80", "_Z5smallPf", 64, 0},  {"90", "_Z5smallPf", 32, 1024},
    {"90", "_Z5largePf", 255, 0}, {"90a", "_Z6hopperv", 32, 0},
    {"100", "_Z5otherv", 32, 0},  {NULL, NULL, 0, 0},
};

static const struct fake_gpu h100 = {"H100", 90, 132, 227 << 10, (int64_t)80 << 30};
static const char small, large, hopper, other; /* what stands for them on the host */

static float *there; /* memory of the GPU */
static cudaStream_t stream;

struct shape {
    struct dim3 grid, block;
    size_t shared;
};

static cudaError_t launch_to(const char *host, struct shape s, void *to, cudaStream_t on) {
    void *args[] = {&to};
    cudaKernel_t k = NULL;
    return __cudaGetKernel(&k, host) != cudaSuccess
               ? cudaErrorInvalidDeviceFunction
               : __cudaLaunchKernel(k, s.grid, s.block, args, s.shared, on);
}

static cudaError_t launch(const char *host, struct shape s) {
    return launch_to(host, s, there, stream);
}

static const struct shape usual = {{1, 1, 1}, {256, 1, 1}, 0};

static void test_shapes(void) {
    const struct {
        struct shape s;
        cudaError_t want;
        const char *text;
    } shapes[] = {
        {usual, cudaSuccess, "one block"},
        {{{INT32_MAX, 65535, 65535}, {16, 1, 64}, 0}, cudaSuccess, "the largest grid"},
        {{{0, 1, 1}, {256, 1, 1}, 0}, cudaErrorInvalidConfiguration, "no block"},
        {{{1, 65536, 1}, {256, 1, 1}, 0}, cudaErrorInvalidConfiguration, "a high grid"},
        {{{1, 1, 1}, {0, 1, 1}, 0}, cudaErrorInvalidConfiguration, "no thread"},
        {{{1, 1, 1}, {1025, 1, 1}, 0}, cudaErrorInvalidConfiguration, "1025 threads"},
        {{{1, 1, 1}, {64, 32, 1}, 0}, cudaErrorInvalidConfiguration, "64 x 32 threads"},
        {{{1, 1, 1}, {1, 1, 65}, 0}, cudaErrorInvalidConfiguration, "a deep block"},
        {{{1, 1, 1}, {256, 1, 1}, 47 << 10}, cudaSuccess, "48 KB with what it declares"},
        {{{1, 1, 1}, {256, 1, 1}, (47 << 10) + 4}, cudaErrorInvalidValue, "4 bytes more"},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        ok(launch(&small, shapes[i].s) == shapes[i].want, "%s", shapes[i].text);
}

static void test_shared(void) {
    const enum cudaFuncAttribute most = cudaFuncAttributeMaxDynamicSharedMemorySize;
    const struct shape s = {{1, 1, 1}, {256, 1, 1}, 226 << 10};
    ok(launch(&small, s) == cudaErrorInvalidValue, "226 KB unasked");
    ok(cudaFuncSetAttribute(&small, most, 227 << 10) == cudaErrorInvalidValue,
       "more than there is");
    ok(cudaFuncSetAttribute(&small, most, 226 << 10) == cudaSuccess,
       "226 KB are asked for");
    ok(launch(&small, s) == cudaSuccess, "and had");
    ok(launch(&large, s) == cudaErrorInvalidValue, "by that kernel alone");
}

static void test_registers(void) {
    ok(launch(&large, usual) == cudaSuccess, "255 registers, 256 threads");
    ok(launch(&large, (struct shape){{1, 1, 1}, {257, 1, 1}, 0}) ==
           cudaErrorLaunchOutOfResources,
       "and one thread more");
    ok(launch(&small, (struct shape){{1, 1, 1}, {1024, 1, 1}, 0}) == cudaSuccess,
       "32 registers, 1024 threads: those of its own architecture");
}

static void test_images(void) {
    ok(launch(&hopper, usual) == cudaSuccess, "what is compiled for 9.0a runs on 9.0");
    ok(launch(&other, usual) == cudaErrorNoKernelImageForDevice, "a kernel for others");
    ok(launch("", usual) == cudaErrorInvalidDeviceFunction, "a kernel that is none");
}

static void test_arguments(void) {
    float here = 0;
    ok(launch_to(&small, usual, &here, stream) == cudaErrorIllegalAddress,
       "an address of the host");
    ok(launch_to(&small, usual, there + 1023, stream) == cudaSuccess, "the last number");
    ok(launch_to(&small, usual, there + 1024, stream) == cudaErrorIllegalAddress,
       "one behind it");
    ok(launch_to(&small, usual, NULL, stream) == cudaSuccess, "none");
    ok(launch_to(&small, usual, there, NULL) == cudaErrorInvalidResourceHandle,
       "the default stream");
    cudaGetLastError();
    ok(launch(&other, usual) != cudaSuccess &&
           cudaGetLastError() == cudaErrorNoKernelImageForDevice &&
           cudaGetLastError() == cudaSuccess,
       "a refusal is the last error, once");
}

int main(void) {
    fake_cuda.gpu = &h100;
    fake_cuda.idle = true;
    __cudaRegisterFunction(NULL, &small, NULL, "_Z5smallPf", -1, NULL, NULL, NULL, NULL,
                           NULL);
    __cudaRegisterFunction(NULL, &large, NULL, "_Z5largePf", -1, NULL, NULL, NULL, NULL,
                           NULL);
    __cudaRegisterFunction(NULL, &hopper, NULL, "_Z6hopperv", -1, NULL, NULL, NULL, NULL,
                           NULL);
    __cudaRegisterFunction(NULL, &other, NULL, "_Z5otherv", -1, NULL, NULL, NULL, NULL,
                           NULL);
    void *p = NULL;
    cudaMalloc(&p, 4096);
    there = p;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    test_shapes();
    test_shared();
    test_registers();
    test_images();
    test_arguments();
    cudaStreamDestroy(stream);
    cudaFree(p);
    return done_testing();
}
