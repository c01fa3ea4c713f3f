/* both.h - small functions that the host's compiler and the device's both take.
 *
 *     BOTH uint64_t twice(uint64_t x) {
 *         return 2 * x;
 *     }
 */
#ifndef WEFT_BOTH_H
#define WEFT_BOTH_H

#ifdef __CUDACC__
#define BOTH __host__ __device__ static inline
#else
#define BOTH static inline
#endif

#endif
