/* gpu-epilogues.c - the test of a GPU (tests/gpu/gpu-epilogues.c) on the fakes of CUDA and cuBLASLt: with its
 * object this is it. */
#include "products/cublaslt_end.h"
