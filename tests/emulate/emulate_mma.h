/* emulate_mma.h - what lib/cuda/cuda_mma.h does with PTX, as functions of a warp of the emulator.
 *
 * A product exchanges the lanes' registers and computes what PTX says each lane gets. A copy writes
 * NaN at once and its bytes when the thread waits for it (emulate_copy.c): who reads too early, or
 * begins a copy into what others still read, gets a wrong result here too.
 */
#ifndef WEFT_EMULATE_MMA_H
#define WEFT_EMULATE_MMA_H

template <typename T> CUDA_DEVICE uint32_t pack_pair(float first, float second) {
    return narrow<T>(first).bits | (uint32_t)narrow<T>(second).bits << 16;
}

CUDA_DEVICE float exp2_fast(float x) {
    return x < -126 ? 0 : exp2f(x);
}

/* The lower or upper of two. */
template <typename T> CUDA_DEVICE float half_of(uint32_t pair, int upper) {
    const T x = {(uint16_t)(upper ? pair >> 16 : pair)};
    return widen(x);
}

CUDA_DEVICE uint32_t tf32_of(float x) {
    const uint32_t dropped = 0x1fff;
    return (isfinite(x) ? float_bits(x) + (dropped + 1) / 2 : float_bits(x)) & ~dropped;
}

/* An operand of a product in a register: the lower or upper of two, or what it reads of a float. */
template <typename T> CUDA_DEVICE float operand_in(uint32_t word, int upper) {
    if constexpr (std::is_same_v<T, float>)
        return bits_float(word & 0xffffe000u);
    else
        return half_of<T>(word, upper);
}

template <typename T>
CUDA_DEVICE void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    struct alignas(EMU_LANE_BYTES) operands {
        uint32_t a[4], b[2];
    } mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
    const operands *all = (const operands *)emu_warp_exchange(&mine, sizeof mine);
    const int lane = emu_lane(), each = 4 / (int)sizeof(T); /* of a register */
    for (int i = 0; i < 4; i++) {
        const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
        float sum = 0;
        for (int k = 0; k < 8 * each; k++) {
            const int word = k / each, upper = k % each;
            const uint32_t x = all[row % 8 * 4 + word % 4].a[row / 8 + 2 * (word / 4)];
            const uint32_t y = all[column * 4 + word % 4].b[word / 4];
            sum += operand_in<T>(x, upper) * operand_in<T>(y, upper);
        }
        c[i] += sum;
    }
}

CUDA_DEVICE void emu_matrices(uint32_t (&r)[4], const void *row, bool transposed) {
    struct alignas(EMU_LANE_BYTES) place {
        const uint16_t *row;
    } mine = {(const uint16_t *)row};
    const place *all = (const place *)emu_warp_exchange(&mine, sizeof mine);
    const int g = emu_lane() / 4, t = emu_lane() % 4;
    for (int i = 0; i < 4; i++) {
        const place *m = all + 8 * i;
        const uint16_t x = transposed ? m[2 * t].row[g] : m[g].row[2 * t];
        const uint16_t y = transposed ? m[2 * t + 1].row[g] : m[g].row[2 * t + 1];
        r[i] = x | (uint32_t)y << 16;
    }
}

CUDA_DEVICE void load_matrices(uint32_t (&r)[4], const void *row) {
    emu_matrices(r, row, false);
}

CUDA_DEVICE void load_transposed(uint32_t (&r)[4], const void *row) {
    emu_matrices(r, row, true);
}

CUDA_DEVICE void copy_chunk(void *shared, const void *global, bool there) {
    emu_copy_begin(shared, global, there, 16);
}

CUDA_DEVICE void copy_float(float *shared, const float *global, bool there) {
    emu_copy_begin(shared, global, there, sizeof *shared);
}

CUDA_DEVICE void copy_commit(void) {
    emu_copy_commit();
}

template <int N> CUDA_DEVICE void copy_wait(void) {
    emu_copy_wait(N);
}

#endif
