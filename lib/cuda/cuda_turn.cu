/* Matrices turned: a block of 32 x 8 threads turns a tile of 32 x 32 in shared memory, so
 * that it reads and writes neighbours. */
#include "cuda/cuda_block.h"
#include "cuda/cuda_convolution.h"

enum { TURN = 32, DOWN = 8 };

/* Blocks: x tiles of rows, y tiles of columns. Elements are copied, whatever their bits mean,
 * or added. */
template <typename T, typename U, bool ADD>
CUDA_KERNEL void turn(int64_t rows, int64_t columns, const T *x, U *y) {
    __shared__ T tile[TURN][TURN + 1]; /* + 1: other banks for every row */
    const int64_t row = blockIdx.x * (int64_t)TURN, column = blockIdx.y * (int64_t)TURN;
    const int across = (int)threadIdx.x;
    for (int i = (int)threadIdx.y; i < TURN; i += DOWN)
        if (row + i < rows && column + across < columns)
            tile[i][across] = x[(row + i) * columns + column + across];
    __syncthreads();
    for (int i = (int)threadIdx.y; i < TURN; i += DOWN)
        if (column + i < columns && row + across < rows) {
            U *to = y + (column + i) * rows + row + across;
            if constexpr (ADD)
                *to += widen(tile[across][i]);
            else
                *to = tile[across][i];
        }
}

template <typename T, typename U, bool ADD>
static void launch_turn(struct cuda_call *c, int64_t rows, int64_t columns, const void *x,
                        void *y) {
    const dim3 grid(blocks_of(rows, TURN), blocks_of(columns, TURN)), block(TURN, DOWN);
    if (rows * columns > 0)
        CUDA_LAUNCH((turn<T, U, ADD>), grid, block, 0, c->stream, rows, columns,
                    (const T *)x, (U *)y);
}

void cuda_turn(struct cuda_call *c, int64_t rows, int64_t columns, int bytes, const void *x,
               void *y) {
    if (bytes == 2)
        launch_turn<uint16_t, uint16_t, false>(c, rows, columns, x, y);
    else
        launch_turn<uint32_t, uint32_t, false>(c, rows, columns, x, y);
}

void cuda_turn_add(struct cuda_call *c, int64_t rows, int64_t columns, enum dtype dtype,
                   const void *x, float *y) {
    CUDA_TYPED(dtype, T, launch_turn<T, float, true>(c, rows, columns, x, y));
}

CUDA_KERNEL void turn_taps(int64_t n, int64_t taps, int64_t rows, int64_t columns,
                           const float *x, float *y) {
    const int64_t i = grid_thread();
    if (i >= n)
        return;
    const int64_t line = quotient(i, columns), tap = quotient(line, rows);
    const int64_t row = line - tap * rows;
    y[(row * taps + taps - 1 - tap) * columns + i - line * columns] = x[i];
}

void cuda_turn_taps(struct cuda_call *c, int64_t taps, int64_t rows, int64_t columns,
                    const float *x, float *y) {
    const int64_t n = taps * rows * columns;
    if (n > 0)
        CUDA_LAUNCH(turn_taps, blocks_of(n, BLOCK), BLOCK, 0, c->stream, n, taps, rows,
                    columns, x, y);
}
