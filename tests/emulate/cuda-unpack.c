/* Data that a GPU's kernel widens has the bits of the CPU's, wherever it begins and ends, in either order of
 * the threads. */
#include "../unit/tap.h"
#include "cuda/cuda_unpack.h"
#include "device/kernel.h"
#include "emulate.h"
#include "watch.h"

#include <stdlib.h>
#include <string.h>

/* Weak: without a compiler of C++ it is not there. */
#pragma weak cuda_unpack_kernel

enum { N = 4992 }; /* with 64 bytes more a multiple of what memory is aligned to */

static const int64_t counts[] = {1, 15, 16, 17, 4096, N - 1};

/* Read by the kernel where it begins, and behind one number, where no vector may. */
static bool same(int64_t n, enum dtype from, const char *x, enum dtype to) {
    enum { BYTES = 4 * N + 64 };
    char *got = aligned_alloc(64, BYTES), *want = aligned_alloc(64, BYTES);
    struct cuda_call c = {0};
    memset(got, 0x5a, BYTES);
    memset(want, 0x5a, BYTES);
    kernel_unpack(n, from, x, to, want);
    emu_forget();
    emu_buffer("x", x, dtype_size(from) * n, false);
    emu_buffer("y", got, BYTES, false);
    bool good =
        cuda_unpack_kernel(&c, n, x, from, got, to) == 0 && !memcmp(got, want, BYTES);
    free(got);
    free(want);
    return good;
}

static void test_pair(enum dtype from, enum dtype to) {
    enum { BYTES = 4 * N + 64 };
    char *x = aligned_alloc(64, BYTES); /* the emulator takes what is static for shared */
    bool good = true;
    for (int i = 0; i < BYTES; i++)
        x[i] = (char)(i * 37 + i / 256);
    for (int i = 0; i <= N && from == DTYPE_f32; i++)
        ((float *)x)[i] = (float)i / 4096;
    for (int down = 0; down < 2; down++) {
        emu_order(down);
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
            good &= same(counts[k], from, x, to) &&
                    same(counts[k], from, x + dtype_size(from), to);
    }
    emu_order(0);
    ok(good && emu_findings() == 0, "%s to %s", dtype_name(from), dtype_name(to));
    emu_forget();
    free(x);
}

int main(void) {
    static const enum dtype to[] = {DTYPE_f32, DTYPE_bf16, DTYPE_f16};
    if (!cuda_unpack_kernel) {
        puts("1..0 # SKIP no compiler of C++");
        return 0;
    }
    kernel_init(1, NULL);
    test_pair(DTYPE_u8, DTYPE_i32);
    test_pair(DTYPE_u16, DTYPE_i32);
    test_pair(DTYPE_i32, DTYPE_i32);
    for (int t = 0; t < 3; t++) {
        test_pair(DTYPE_u8, to[t]);
        test_pair(DTYPE_f32, to[t]);
    }
    kernel_release();
    return done_testing();
}
