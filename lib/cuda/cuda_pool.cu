/* Pooling over tensors [batch, height, width, channels]: a thread takes an element of the result, so
 * neighbours read neighbouring channels. The gradient of the maximum asks every window that an element
 * is in whether it is the first largest there, in the order of the windows, so no sums meet. */
#include "cuda/cuda_block.h"

#define POOL_OF(n)                                                                         \
    {                                                                                      \
        (n)->batch, (n)->ih, (n)->iw, (n)->c, (n)->oh, (n)->ow, (n)->kernel, (n)->stride,  \
            (n)->ph, (n)->pw                                                               \
    }

/* An element [batch, h, w, c] of a tensor of h x w places. */
struct element {
    int64_t batch, h, w, c;
};
CUDA_DEVICE struct element element_of(int64_t i, int64_t height, int64_t width, int64_t c) {
    struct element e;
    const int64_t place = quotient(i, c), row = quotient(place, width);
    e.c = i - place * c;
    e.w = place - row * width;
    e.batch = quotient(row, height);
    e.h = row - e.batch * height;
    return e;
}

/* Calls f(h, w) for the places of the window of (oh, ow) that are inside, in order. */
template <typename F>
CUDA_DEVICE void each_tap(const struct kernel_pool &p, int64_t oh, int64_t ow, F f) {
    const int64_t h0 = oh * p.stride - p.ph, w0 = ow * p.stride - p.pw;
    for (int64_t h = h0 < 0 ? 0 : h0; h < h0 + p.kernel && h < p.ih; h++)
        for (int64_t w = w0 < 0 ? 0 : w0; w < w0 + p.kernel && w < p.iw; w++)
            f(h, w);
}

/* The largest of a window; one that is no number wins. x: the sample's, from the channel on. */
template <typename T>
CUDA_DEVICE float largest(const struct kernel_pool &p, int64_t oh, int64_t ow, const T *x) {
    float best = -INFINITY;
    each_tap(p, oh, ow, [&](int64_t h, int64_t w) {
        const float v = get(x + (h * p.iw + w) * p.c);
        best = v > best || v != v ? v : best;
    });
    return best;
}

template <typename T>
CUDA_KERNEL void maxpool(struct kernel_pool p, int64_t n, const T *x, T *y) {
    const int64_t i = grid_thread();
    if (i >= n)
        return;
    const struct element e = element_of(i, p.oh, p.ow, p.c);
    put(y + i, largest(p, e.h, e.w, x + e.batch * p.ih * p.iw * p.c + e.c));
}

CUDA_FUNCTION(maxpool) {
    const struct kernel_pool p = POOL_OF(n);
    const int64_t all = n->batch * p.oh * p.ow * p.c;
    if (all > 0)
        CUDA_TYPED(c->args->dtype, T,
                   CUDA_LAUNCH(maxpool<T>, blocks_of(all, BLOCK), BLOCK, 0, c->stream, p,
                               all, (const T *)in->x, (T *)out->y));
    return 0;
}

/* Is place (h, w) the first of the largest of the window of (oh, ow)? */
template <typename T>
CUDA_DEVICE bool is_first(const struct kernel_pool &p, int64_t oh, int64_t ow, int64_t h,
                          int64_t w, const T *x) {
    const float best = largest(p, oh, ow, x);
    bool found = false, mine = false;
    each_tap(p, oh, ow, [&](int64_t r, int64_t t) {
        const bool top = !found && get(x + (r * p.iw + t) * p.c) == best;
        mine |= top && r == h && t == w;
        found |= top;
    });
    return mine;
}

/* Windows along one dim that have a place: those that begin from place - kernel + 1 to the place. */
CUDA_DEVICE int64_t first_window(int64_t at, int64_t kernel, int64_t stride) {
    const int64_t begin = at - kernel + 1;
    return begin <= 0 ? 0 : (begin + stride - 1) / stride;
}

template <typename T>
CUDA_KERNEL void maxpool_dx(struct kernel_pool p, int64_t n, const T *x, const T *dy,
                            T *dx) {
    const int64_t i = grid_thread();
    if (i >= n)
        return;
    const struct element e = element_of(i, p.ih, p.iw, p.c);
    const T *sample = x + e.batch * p.ih * p.iw * p.c + e.c;
    const int64_t h = e.h + p.ph, w = e.w + p.pw;
    float sum = 0;
    for (int64_t oh = first_window(h, p.kernel, p.stride); oh < p.oh && oh * p.stride <= h;
         oh++)
        for (int64_t ow = first_window(w, p.kernel, p.stride);
             ow < p.ow && ow * p.stride <= w; ow++)
            if (is_first(p, oh, ow, e.h, e.w, sample))
                sum += get(dy + ((e.batch * p.oh + oh) * p.ow + ow) * p.c + e.c);
    put(dx + i, sum);
}

CUDA_FUNCTION(maxpool_dx) {
    const struct kernel_pool p = POOL_OF(n);
    const int64_t all = n->batch * p.ih * p.iw * p.c;
    if (all > 0)
        CUDA_TYPED(c->args->dtype, T,
                   CUDA_LAUNCH(maxpool_dx<T>, blocks_of(all, BLOCK), BLOCK, 0, c->stream, p,
                               all, (const T *)in->x, (const T *)in->dy, (T *)out->dx));
    return 0;
}

/* ---- mean --------------------------------------------------------------------------------- */

/* A block of 32 channels of a sample; rows of threads share out the places. */
enum { PLACES = 8 };
template <typename T>
CUDA_KERNEL void avgpool(int64_t places, int64_t c, float scale, const T *x, T *y) {
    __shared__ float shown[PLACES][WARP];
    const int64_t channel = blockIdx.x * (int64_t)WARP + threadIdx.x, batch = blockIdx.y;
    float sum = 0;
    if (channel < c)
        for (int64_t i = threadIdx.y; i < places; i += PLACES)
            sum += get(x + (batch * places + i) * c + channel);
    shown[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || channel >= c)
        return;
    for (int r = 1; r < PLACES; r++)
        sum += shown[r][threadIdx.x];
    put(y + batch * c + channel, sum * scale);
}

CUDA_FUNCTION(avgpool) {
    if (n->batch * n->c > 0)
        CUDA_TYPED(c->args->dtype, T,
                   CUDA_LAUNCH(avgpool<T>, dim3(blocks_of(n->c, WARP), (unsigned)n->batch),
                               dim3(WARP, PLACES), 0, c->stream, n->places, n->c,
                               c->args->scale, (const T *)in->x, (T *)out->y));
    return 0;
}

template <typename T>
CUDA_KERNEL void avgpool_dx(int64_t n, int64_t places, int64_t c, float scale, const T *dy,
                            T *dx) {
    const int64_t i = grid_thread();
    if (i >= n)
        return;
    const int64_t place = quotient(i, c);
    put(dx + i, scale * get(dy + quotient(place, places) * c + (i - place * c)));
}

CUDA_FUNCTION(avgpool_dx) {
    const int64_t all = n->batch * n->places * n->c;
    if (all > 0)
        CUDA_TYPED(c->args->dtype, T,
                   CUDA_LAUNCH(avgpool_dx<T>, blocks_of(all, BLOCK), BLOCK, 0, c->stream,
                               all, n->places, n->c, c->args->scale, (const T *)in->dy,
                               (T *)out->dx));
    return 0;
}
