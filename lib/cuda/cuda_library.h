/* cuda_library.h - NVIDIA's libraries, opened when a GPU is wanted.
 *
 * They have hundreds of megabytes; a program that is linked with them takes a tenth of a second longer
 * to start, and does not start where they are not installed. So weft is compiled with their headers,
 * and finds their functions by name:
 *
 *     #define FUNCTIONS(X) X(sqrt) X(cbrt)
 *     static struct { CUDA_LIBRARY_TABLE(FUNCTIONS) } maths;
 *     static const char *const names[] = {CUDA_LIBRARY_NAMES(FUNCTIONS) NULL};
 *     if (cuda_library_open("libm.so.6", names, &maths, &err) < 0) ...
 *     double root = maths.sqrt(2);
 *
 * A library is looked for as the system does (LD_LIBRARY_PATH, then where libraries are installed), then
 * in the folders where `make` found it.
 */
#ifndef WEFT_CUDA_LIBRARY_H
#define WEFT_CUDA_LIBRARY_H

#include "common/err.h"

/* Members of a table: pointers to the functions, of the types of their declarations. */
#define CUDA_LIBRARY_POINTER(name)    __typeof__(&name) name;
#define CUDA_LIBRARY_TABLE(FUNCTIONS) FUNCTIONS(CUDA_LIBRARY_POINTER)
#define CUDA_LIBRARY_NAME(name)       #name,
#define CUDA_LIBRARY_NAMES(FUNCTIONS) FUNCTIONS(CUDA_LIBRARY_NAME)

/* Fills the table with the functions of these names (NULL ends them), in their order. The library stays
 * open until the program ends. Returns 0, or -1 with the library or function that is missing. */
int cuda_library_open(const char *file, const char *const *names, void *table,
                      struct err *err);

#endif
