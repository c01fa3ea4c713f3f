/* gpu-kernels.c - the test of a GPU (tests/gpu/gpu-kernels.c) on the fakes of CUDA and its libraries, where the
 * CPU computes: with its object this is it. */
#include "products/cublaslt_end.h"
