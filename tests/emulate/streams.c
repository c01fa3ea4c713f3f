/* Kernels of the emulator on the streams of the fake CUDA runtime (tests/fake/cudart.h): linked into a
 * program, it makes launches and copies wait for their turn, and be kept where a graph is captured. */
#include "emulate.h"
#include "fake/cudart.h"

#include <stdint.h>

static void give(void *stream, void (*run)(void *args), const void *args, size_t bytes) {
    fake_cuda_load((const void *)(uintptr_t)run);
    fake_cuda_launch((cudaStream_t)stream, run, args, bytes);
}

__attribute__((constructor)) static void begin(void) {
    emu_streams(give);
}
