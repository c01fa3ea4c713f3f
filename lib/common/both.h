/* both.h - BOTH begins the definition of a small function that the host's compiler and the device's
 * both take (rng.h).
 */
#ifndef WEFT_BOTH_H
#define WEFT_BOTH_H

#ifdef __CUDACC__
#define BOTH __host__ __device__ static inline
#else
#define BOTH static inline
#endif

#endif
