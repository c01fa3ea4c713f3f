/* emulate_wgmma.h - the products of lib/cuda/cuda_wgmma.h, from descriptors of shared memory as the PTX
 * ISA has them. A warp computes its rows alone, and at once; its operands count as read until the wait. */
#ifndef WEFT_EMULATE_WGMMA_H
#define WEFT_EMULATE_WGMMA_H

/* The element `bytes` from where the descriptor begins, in swizzles of 128 bytes. */
template <typename T> CUDA_DEVICE float emu_described(uint64_t d, int bytes) {
    if (d >> 62 != 1)
        emu_die("a descriptor of another layout");
    uint32_t at = ((uint32_t)d & 0x3fff) * 16 + (uint32_t)bytes;
    at ^= (at >> 7 & 7) << 4;
    return widen(*(const T *)((const char *)emu_shared() + at));
}

/* Element k of row r, where rows of the tile are rows (columns) of the product: K-major. */
template <typename T> CUDA_DEVICE float emu_row_major(uint64_t d, int r, int k) {
    return emu_described<T>(d,
                            r % 8 * 128 + r / 8 * ((int)(d >> 32) & 0x3fff) * 16 + 2 * k);
}

/* Column n of row k, where columns of the tile are columns of the product: MN-major. */
template <typename T> CUDA_DEVICE float emu_column_major(uint64_t d, int n, int k) {
    return emu_described<T>(d, n % 64 * 2 + n / 64 * ((int)(d >> 16) & 0x3fff) * 16 +
                                   k % 8 * 128 + k / 8 * ((int)(d >> 32) & 0x3fff) * 16);
}

template <typename T, int N>
CUDA_DEVICE void wgmma_rows(float (&c)[N][4], uint64_t a, uint64_t b) {
    emu_use(EMU_PRODUCT);
    for (int n = 0; n < N; n++)
        for (int i = 0; i < 4; i++) {
            const int row = (int)(threadIdx.x / 32 % 4) * 16 + lane_row(0, i / 2);
            float sum = c[n][i];
            for (int k = 0; k < 16; k++)
                sum += emu_row_major<T>(a, row, k) *
                       emu_row_major<T>(b, lane_column(n) + i % 2, k);
            c[n][i] = sum;
        }
    emu_use(EMU_PLAIN);
}

template <typename T, int N>
CUDA_DEVICE void wgmma_block(float (&c)[N][4], const uint32_t (&a)[4], uint64_t b) {
    struct alignas(EMU_LANE_BYTES) operand {
        uint32_t a[4];
    } mine = {{a[0], a[1], a[2], a[3]}};
    const operand *all = (const operand *)emu_warp_exchange(&mine, sizeof mine);
    emu_use(EMU_PRODUCT);
    for (int n = 0; n < N; n++)
        for (int i = 0; i < 4; i++) {
            const int row = lane_row(0, i / 2);
            for (int k = 0; k < 16; k++) {
                const uint32_t pair = all[row % 8 * 4 + k % 8 / 2].a[row / 8 + 2 * (k / 8)];
                c[n][i] += half_of<T>(pair, k & 1) *
                           emu_column_major<T>(b, lane_column(n) + i % 2, k);
            }
        }
    emu_use(EMU_PLAIN);
}

CUDA_DEVICE void wgmma_begin(void) {
}
CUDA_DEVICE void wgmma_commit(void) {
}
template <int N> CUDA_DEVICE void wgmma_wait(void) {
    if (N == 0)
        emu_product_wait();
}
CUDA_DEVICE void wgmma_publish(void) {
    emu_product_publish();
}
CUDA_DEVICE void hold(float &) {
}

#endif
