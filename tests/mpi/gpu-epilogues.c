/* gpu-epilogues.c - the test of a GPU (tests/gpu/gpu-epilogues.c) on the fakes of CUDA and cuBLASLt: with its
 * object this is it. At the end it fails where the library was asked for what it does not allow. */
#include "products/cublaslt.h"

#include <stdio.h>
#include <stdlib.h>

__attribute__((destructor)) static void end(void) {
    fprintf(stderr, "# epilogues %d\n", fake_cublaslt.epilogues);
    if (!fake_cublaslt.wrong)
        return;
    fprintf(stderr, "wrong: %s\n", fake_cublaslt.wrong);
    _Exit(EXIT_FAILURE);
}
