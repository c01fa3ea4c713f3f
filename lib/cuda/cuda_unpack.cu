/* Data, as narrow as its files have it, to what instructions take.
 *
 * The kernel reads the host's pinned memory by itself: bytes go over the bus once, and the device needs no
 * room for them. 16 bytes a thread, so that enough of them are under way. */
#include "cuda/cuda_block.h"
#include "cuda/cuda_unpack.h"

#include <type_traits>

/* One number: an id, the value of a byte, or of a float. */
template <typename From, typename To> CUDA_DEVICE void put_unpacked(To *y, From x) {
    if constexpr (std::is_same<To, int32_t>::value)
        *y = (int32_t)x;
    else if constexpr (std::is_same<From, uint8_t>::value)
        put(y, (float)x / 255.0f);
    else
        put(y, x);
}

template <typename From, typename To>
CUDA_KERNEL void unpack(int64_t n, int64_t head, const From *x, To *y) {
    constexpr int V = vector_of<From>::N;
    each_of<V>(n, head, grid_thread(), grid_threads(), [&](int64_t j, auto lanes) {
        constexpr int L = decltype(lanes)::N;
        From v[L];
        if constexpr (L == V) {
            const uint4 raw = *(const uint4 *)(x + j);
            memcpy(v, &raw, sizeof raw);
        } else {
            v[0] = x[j];
        }
#pragma unroll
        for (int i = 0; i < L; i++)
            put_unpacked(y + j + i, v[i]);
    });
}

template <typename From, typename To>
static void launch_unpack(struct cuda_call *c, int64_t n, const void *x, void *y) {
    CUDA_LAUNCH((unpack<From, To>), blocks_of(n, BLOCK * vector_of<From>::N), BLOCK, 0,
                c->stream, n, aligned(x) ? 0 : n, (const From *)x, (To *)y);
}

int cuda_unpack_kernel(struct cuda_call *c, int64_t n, const void *x, enum dtype from,
                       void *y, enum dtype to) {
    if (to == DTYPE_i32 && from == DTYPE_u8)
        launch_unpack<uint8_t, int32_t>(c, n, x, y);
    else if (to == DTYPE_i32 && from == DTYPE_u16)
        launch_unpack<uint16_t, int32_t>(c, n, x, y);
    else if (to == DTYPE_i32)
        launch_unpack<int32_t, int32_t>(c, n, x, y);
    else if (from == DTYPE_u8)
        CUDA_TYPED(to, T, (launch_unpack<uint8_t, T>(c, n, x, y)))
    else
        CUDA_TYPED(to, T, (launch_unpack<float, T>(c, n, x, y)))
    return 0;
}
