#define _GNU_SOURCE /* sched_getaffinity */
#include "keep/measure.h"

#include "checkpoint/ckptdir.h"
#include "checkpoint/xxh64.h"
#include "common/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIDE = 192, COPY = 32 << 20, FILE_BYTES = 32 << 20, BLOCK = 1 << 20 };
#define SECONDS 0.3

/* One thread's share. */
struct worker {
    pthread_t thread;
    double done_per_s; /* flops, or bytes */
    uint64_t result;
};

static int cores(void) {
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n > 0 ? n : 1;
}

/* c += a b, in the order that lets the compiler take a row at a time. */
static void multiply(const float *restrict a, const float *restrict b, float *restrict c) {
    for (int i = 0; i < SIDE; i++)
        for (int k = 0; k < SIDE; k++)
            for (int j = 0; j < SIDE; j++)
                c[i * SIDE + j] += a[i * SIDE + k] * b[k * SIDE + j];
}

static void *products(void *arg) {
    struct worker *w = arg;
    const size_t n = (size_t)SIDE * SIDE;
    float *a = mem_array(3 * n, sizeof *a), *b = a + n, *c = b + n;
    for (size_t i = 0; i < n; i++) {
        a[i] = (float)(i % 13) - 6;
        b[i] = (float)(i % 7) * 0.125f;
    }
    const double start = now_s();
    int times = 0;
    for (; now_s() - start < SECONDS; times++) {
        memset(c, 0, n * sizeof *c);
        multiply(a, b, c);
    }
    w->done_per_s = 2.0 * SIDE * SIDE * SIDE * times / (now_s() - start);
    struct xxh64 hash;
    xxh64_begin(&hash);
    xxh64_add(&hash, c, n * sizeof *c);
    w->result = xxh64_end(&hash);
    free(a);
    return NULL;
}

static void *copies(void *arg) {
    struct worker *w = arg;
    char *from = mem_array(2, COPY), *to = from + COPY;
    memset(from, 1, COPY);
    memcpy(to, from, COPY); /* touches it */
    const double start = now_s();
    int times = 0;
    for (; now_s() - start < SECONDS; times++)
        memcpy(to, from, COPY);
    w->done_per_s = 2.0 * COPY * times / (now_s() - start);
    free(from);
    return NULL;
}

/* The sum of all threads; *result: theirs, if all have the same. */
static double on_all_cores(void *(*work)(void *), uint64_t *result) {
    const int n = cores();
    double sum = 0;
    bool same = true;
    struct worker *w = mem_array((size_t)n, sizeof *w);
    for (int i = 1; i < n; i++)
        if (pthread_create(&w[i].thread, NULL, work, &w[i]) != 0)
            w[i].thread = pthread_self();
    work(&w[0]);
    for (int i = 0; i < n; i++) {
        if (i && !pthread_equal(w[i].thread, pthread_self()))
            pthread_join(w[i].thread, NULL);
        sum += w[i].done_per_s;
        same &= w[i].result == w[0].result;
    }
    *result = same ? w[0].result : ~w[0].result;
    free(w);
    return sum;
}

static int write_blocks(int fd, const char *block) {
    for (int i = 0; i < FILE_BYTES / BLOCK; i++)
        if (write(fd, block, BLOCK) != BLOCK)
            return -1;
    return fsync(fd);
}

static double disk(const char *dir, struct check_host *h) {
    char name[64], *block = mem_array(1, BLOCK);
    snprintf(name, sizeof name, ".check-%ld-XXXXXX", (long)getpid());
    char *path = ckpt_join(dir, name);
    int rc = ckpt_make_dirs(dir, NULL), fd = rc < 0 ? -1 : mkstemp(path);
    const double start = now_s();
    rc = fd < 0 ? -1 : write_blocks(fd, block);
    const double took = now_s() - start;
    if (rc < 0)
        snprintf(h->failed, sizeof h->failed, "disk: %.100s: %s", path, strerror(errno));
    if (fd >= 0) {
        close(fd);
        unlink(path);
    }
    free(path);
    free(block);
    return rc < 0 ? 0 : FILE_BYTES / took;
}

void measure_host(const char *dir, struct check_host *h) {
    uint64_t none;
    h->speed[CHECK_PRODUCTS] = on_all_cores(products, &h->result);
    h->speed[CHECK_MEMORY] = on_all_cores(copies, &none);
    h->speed[CHECK_DISK] = disk(dir, h);
}
