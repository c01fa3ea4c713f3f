/* gpu-device - what device.h promises, on a GPU: memory that is aligned and zeroed, copies of any size
 * whose source may be reused, streams ordered by events, captured regions, and what is said when memory is
 * short. Where there is no GPU it says so. */
#include "../unit/tap.h"
#include "cuda/cuda.h"

#include "common/rng.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static struct cuda_report report;
static struct device *dev;
static struct device_stream *one, *two;
static struct err err;

static void test_memory(void) {
    bool aligned = true, zeroed = true;
    void *blocks[20];
    for (int i = 0; i < 20; i++) {
        int64_t bytes = 1 + (int64_t)i * i * 977;
        char *host = malloc((size_t)bytes);
        blocks[i] = device_alloc(dev, bytes, &err);
        aligned &= blocks[i] && (uintptr_t)blocks[i] % 4096 == 0;
        zeroed &= blocks[i] && device_download(one, host, blocks[i], bytes, &err) == 0;
        for (int64_t k = 0; k < bytes; k++)
            zeroed &= host[k] == 0;
        free(host);
    }
    ok(aligned, "memory is aligned %s", err.msg);
    ok(zeroed, "and zeroed %s", err.msg);
    for (int i = 0; i < 20; i++)
        device_free(dev, blocks[i]);
    ok(report.own_bytes == 0, "all of it is given back: %lld bytes are left",
       (long long)report.own_bytes);
}

/* The source is spoilt at once; sizes go over the halves of the staging. */
static void test_copies(void) {
    const int64_t sizes[] = {1, 8, 4095, 2 << 20, (2 << 20) + 1, (9 << 20) + 13};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t n = sizes[i];
        unsigned char *a = malloc((size_t)n), *b = malloc((size_t)n), *there;
        for (int64_t k = 0; k < n; k++)
            a[k] = (unsigned char)rng_bits(1, i, (uint64_t)k);
        bool good = (there = device_alloc(dev, n, &err)) != NULL;
        for (int64_t at = 0, part; at < n && good; at += part) {
            part = 1 + (n - at) / 3;
            memcpy(b, a + at, (size_t)part);
            good = device_upload(one, there + at, b, part, &err) == 0;
            memset(b, 0xee, (size_t)part);
        }
        good = good && device_download(one, b, there, n, &err) == 0;
        ok(good && !memcmp(a, b, (size_t)n), "%lld bytes up and down %s", (long long)n,
           err.msg);
        device_free(dev, there);
        free(a);
        free(b);
    }
}

static int fill(struct device_stream *s, float *p, int64_t n, float by) {
    const union instr_n shape = {.scale = {.elems = n}};
    const union instr_src src = {.scale = {.x = p}};
    const union instr_dst dst = {.scale = {.y = p}};
    const struct device_args args = {.scale = by};
    return device_launch(s, I_scale, &shape, &src, &dst, &args, &err);
}

/* Powers of two from two streams, whose order is seen in nothing but the events: an upload between. */
static void test_events(void) {
    enum { N = 1 << 20 };
    float *host = malloc(N * sizeof *host), *p = device_alloc(dev, N * sizeof *host, &err);
    struct device_event *e = device_event_create(dev, &err);
    bool good = p && e && device_event_wait(e, two, &err) == 0;
    for (int i = 0; i < N; i++)
        host[i] = 1;
    good = good && device_upload(one, p, host, N * sizeof *host, &err) == 0;
    for (int i = 0; i < 6 && good; i++) {
        struct device_stream *s = i % 2 ? two : one, *other = i % 2 ? one : two;
        good = fill(s, p, N, 2) == 0 && device_event_record(e, s, &err) == 0 &&
               device_event_wait(e, other, &err) == 0;
    }
    good = good && device_download(one, host, p, N * sizeof *host, &err) == 0;
    int right = 0;
    for (int i = 0; i < N; i++)
        right += host[i] == 64;
    ok(good && right == N, "streams in the order of events: %d of %d %s", right, N,
       err.msg);
    ok(good && device_event_reached(e, &err) == 1, "a place that is reached");
    device_event_destroy(e);
    device_free(dev, p);
    free(host);
}

static void test_region(void) {
    float x = 1, *p = device_alloc(dev, sizeof x, &err);
    bool good = p && device_upload(one, p, &x, sizeof x, &err) == 0 &&
                device_capture_begin(one, &err) == 0 && fill(one, p, 1, 3) == 0 &&
                fill(one, p, 1, 0.5f) == 0;
    struct device_region *r = device_capture_end(one, &err);
    good = good && r && device_download(one, &x, p, sizeof x, &err) == 0;
    ok(good && x == 1, "what is recorded is not done: %g %s", (double)x, err.msg);
    for (int i = 0; i < 4 && good; i++)
        good = device_replay(r, one, &err) == 0;
    good = good && device_download(one, &x, p, sizeof x, &err) == 0;
    ok(good && x == 1.5f * 1.5f * 1.5f * 1.5f, "replayed four times: %g %s", (double)x,
       err.msg);
    device_region_destroy(r);
    device_free(dev, p);
}

static void test_full(void) {
    struct err full = {0};
    void *p = device_alloc(dev, (int64_t)1 << 50, &full);
    ok(!p && strstr(full.msg, "out of memory") && strstr(full.msg, "free"), "too much: %s",
       full.msg);
    p = device_alloc(dev, 4096, &full);
    ok(p != NULL && device_synchronize(one, &full) == 0, "and less goes on");
    device_free(dev, p);
}

int main(void) {
    int gpus = cuda_count(&err);
    if (gpus <= 0) {
        printf("1..0 # SKIP no GPU: %s\n", gpus < 0 ? err.msg : "none is to be seen");
        return 0;
    }
    char kind[64] = "";
    struct cuda_backend cuda = cuda_backend(&(struct cuda_options){.report = &report});
    ok(cuda_kind(0, kind, sizeof kind, &err) == 0, "GPU 0 is a %s", kind);
    dev = device_create(&cuda.backend, 0, 1, &err);
    one = dev ? device_stream_create(dev, &err) : NULL;
    two = dev ? device_stream_create(dev, &err) : NULL;
    ok(one && two, "a device with streams %s", err.msg);
    if (one && two) {
        test_memory();
        test_copies();
        test_events();
        test_region();
        test_full();
    }
    device_stream_destroy(one);
    device_stream_destroy(two);
    device_destroy(dev);
    return done_testing();
}
