/* input-bench.c - how much data one core supplies: images of 224 x 224 in three colours, those of CIFAR-10,
 * and tokens.
 *
 * The files are written to DIR first, and so are in the system's cache when they are read. Then every
 * sample is read once, in the order of a training, as the thread that reads ahead does; and widened by one
 * thread, as the step does on a CPU. What both cost is processor time.
 *
 * usage: input-bench DIR [IMAGES]
 */
#define _XOPEN_SOURCE 700 /* clock_gettime */
#include "common/mem.h"
#include "common/rng.h"
#include "data/data.h"
#include "device/kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SIDE = 224, PIXELS = SIDE * SIDE * 3, SEQ = 1024, TOKENS = SEQ * 4096, BATCH = 8 };

static double cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void put_be32(FILE *f, uint32_t v) {
    for (int shift = 24; shift >= 0; shift -= 8)
        fputc((int)(v >> shift & 255), f);
}

static int write_images(const char *dir, char *images, char *labels, size_t size,
                        int64_t n) {
    unsigned char *bytes = mem_alloc(PIXELS);
    snprintf(images, size, "%s/bench-images-idx4-ubyte", dir);
    snprintf(labels, size, "%s/bench-labels-idx1-ubyte", dir);
    FILE *f = fopen(images, "wb"), *g = fopen(labels, "wb");
    const uint32_t head[] = {0x804, (uint32_t)n, SIDE, SIDE, 3};
    for (int i = 0; f && i < 5; i++)
        put_be32(f, head[i]);
    if (g)
        put_be32(g, 0x801), put_be32(g, (uint32_t)n);
    for (int64_t i = 0; f && g && i < n; i++) {
        for (int k = 0; k < PIXELS; k++)
            bytes[k] = (unsigned char)(rng_bits(1, (uint64_t)i, (uint64_t)k / 8) >> k % 8);
        fwrite(bytes, 1, PIXELS, f);
        fputc((int)(i % 10), g);
    }
    free(bytes);
    return f && g && fclose(f) == 0 && fclose(g) == 0 ? 0 : -1;
}

static int write_cifar(const char *dir, char *path, size_t size) {
    enum { RECORD = 3073, IMAGES = 10000 };
    unsigned char record[RECORD];
    snprintf(path, size, "%s/bench-cifar.bin", dir);
    FILE *f = fopen(path, "wb");
    for (int i = 0; f && i < IMAGES; i++) {
        for (int k = 0; k < RECORD; k++)
            record[k] = (unsigned char)(k ? i + 7 * k : i % 10);
        fwrite(record, 1, RECORD, f);
    }
    return f && fclose(f) == 0 ? 0 : -1;
}

static int write_tokens(const char *dir, char *path, size_t size) {
    snprintf(path, size, "%s/bench.bin", dir);
    FILE *f = fopen(path, "wb");
    for (int64_t i = 0; f && i < TOKENS + 1; i++) {
        uint16_t id = (uint16_t)(rng_bits(2, 0, (uint64_t)i) % 50257);
        fwrite(&id, sizeof id, 1, f);
    }
    return f && fclose(f) == 0 ? 0 : -1;
}

/* Reads all samples of `count` numbers, and widens them a batch at a time. */
static int measure(const struct data_spec *spec, const char *what, int64_t count,
                   enum dtype to, struct err *err) {
    struct data *data;
    if (data_open(&data, spec, err) < 0)
        return -1;
    int64_t n = data_size(data, DATA_TRAIN) / BATCH * BATCH, at = 0;
    enum dtype form = data_form(data, DATA_TRAIN);
    int64_t bytes = dtype_size(form) * count;
    char *read = mem_alloc((size_t)(BATCH * bytes));
    char *wide = mem_alloc((size_t)(BATCH * count * dtype_size(to)));
    double reading = 0, widening = 0;
    int rc = 0;
    for (; at < n && rc == 0; at += BATCH) {
        double start = cpu_s(), between;
        for (int64_t i = 0; i < BATCH && rc == 0; i++)
            rc = data_packed(data, DATA_TRAIN, at + i, 0, count, read + i * bytes, err);
        between = cpu_s();
        kernel_unpack(BATCH * count, form, read, to, wide);
        reading += between - start;
        widening += cpu_s() - between;
    }
    if (rc == 0)
        printf("%-7s %s to %-4s %9.0f read, %9.0f widened, %9.0f both; a second and core\n",
               what, dtype_name(form), dtype_name(to), (double)n / reading,
               (double)n / widening, (double)n / (reading + widening));
    free(read);
    free(wide);
    data_close(data);
    return rc;
}

int main(int argc, char **argv) {
    char images[4096], labels[4096], tokens[4096], cifar[4096], pair[8200];
    struct err err = {0};
    if (argc < 2) {
        fprintf(stderr, "usage: input-bench DIR [IMAGES]\n");
        return EXIT_USAGE;
    }
    if (kernel_init(1, &err) < 0 ||
        write_images(argv[1], images, labels, sizeof images,
                     argc > 2 ? atol(argv[2]) : 512) < 0 ||
        write_cifar(argv[1], cifar, sizeof cifar) < 0 ||
        write_tokens(argv[1], tokens, sizeof tokens) < 0)
        return fprintf(stderr, "input-bench: %s: cannot be written\n", argv[1]),
               EXIT_SYSTEM;
    snprintf(pair, sizeof pair, "%s,%s", images, labels);
    struct data_spec of_images = {
        .source = pair, .kind = DATA_IMAGES, .pixels = PIXELS, .classes = 10, .seed = 1};
    struct data_spec of_cifar = {
        .source = cifar, .kind = DATA_IMAGES, .pixels = 3072, .classes = 10, .seed = 1};
    struct data_spec of_tokens = {
        .source = tokens, .kind = DATA_TOKENS, .seq = SEQ, .vocab = 50257, .seed = 1};
    int rc = measure(&of_images, "images", PIXELS, DTYPE_f32, &err) < 0 ||
             measure(&of_images, "images", PIXELS, DTYPE_bf16, &err) < 0 ||
             measure(&of_cifar, "cifar", 3072, DTYPE_f32, &err) < 0 ||
             measure(&of_tokens, "windows", SEQ, DTYPE_i32, &err) < 0;
    unlink(images), unlink(labels), unlink(cifar), unlink(tokens);
    kernel_release();
    return rc ? err_report(&err, "input-bench") : 0;
}
