/* cuda.h - NVIDIA GPUs as devices (device/device_backend.h).
 *
 * Where weft is built without CUDA the same functions are there (cuda_none.c) and say so.
 *
 *     struct cuda_options o = {.program = program, .rank = rank};
 *     struct cuda_backend cuda = cuda_backend(&o);
 *     struct device *dev = device_create(&cuda.backend, local_rank, threads, &err);
 */
#ifndef WEFT_CUDA_H
#define WEFT_CUDA_H

#include "device/device_backend.h"
#include "program/algorithm.h"

/* What a device counts while it is there. */
struct cuda_report {
    int64_t own_bytes;  /* of the GPU: what was asked for, and workspaces */
    double waited_s;    /* time that the host spent waiting for the GPU */
    char no_cudnn[256]; /* why convolutions go without cuDNN, where it is missing */
};

/* Libraries whose algorithms are known by their numbers. */
enum cuda_library { CUDA_CUBLASLT, CUDA_CUDNN, CUDA_LIBRARIES };

/* Algorithms that were found before, and those that a device finds. */
struct cuda_choices {
    const struct library_algorithm *known; /* of GPUs of this kind; borrowed */
    int64_t n_known;
    /* NULL, or called with what was found by trying; -1 ends the launch with that error. */
    int (*found)(void *arg, const struct library_algorithm *algorithm, struct err *err);
    void *arg;
    /* The device counts its products and convolutions: whose known algorithm was taken; was refused by the
     * library; is that of another version of it alone. */
    struct {
        int64_t taken, refused, other_version;
        int64_t library, other; /* versions: of the library, and one of the others */
    } of[CUDA_LIBRARIES];
};

/* What a device is to do; what is zero is the default. */
struct cuda_options {
    /* What this rank will run, borrowed while the device is made: its workspace is planned, and its
     * products are tried. */
    const struct program *program;
    int rank;
    int64_t workspace_bytes; /* of each stream that computes, where there is no program */
    bool deterministic;      /* the same bits each time: nothing is chosen by its speed */
    bool tf32; /* products of floats round operands to 10 bits, on tensor cores */
    /* operands are scratch: the first launch of a product tries how it is fastest */
    bool tunes;
    const char
        *attention; /* NULL, or the attention kernels to take, for comparisons; "cudnn" */
    /* "own": weft's kernels; "cudnn": that wherever it can; NULL: the faster one where that may be
     * measured, else cuDNN wherever it has what rounds as weft does. For comparisons. */
    const char *convolution;
    /* What products do besides, where weft can do without (cuda_product.h): "fused" wherever the library
     * has it, "apart" nowhere; NULL: the faster way. For comparisons. */
    const char *epilogues;
    struct cuda_choices *choices; /* NULL, or what is known: it comes first */
    struct cuda_report *report;   /* NULL, or where the device counts */
};

/* The backend with its options; it must outlive its devices. Device number i is GPU i of those that
 * the process sees, counted round. */
struct cuda_backend {
    struct device_backend backend;
    struct cuda_options options;
};
struct cuda_backend cuda_backend(const struct cuda_options *o);

/* An instruction as it is launched; what args point to stays as it is until it has run. */
struct cuda_given {
    enum opcode code;
    union instr_n n;
    union instr_src in;
    union instr_dst out;
    struct device_args args;
};
/* Launches both as a captured region takes them one behind the other: a product of a linear layer, and GELU of
 * what it makes or GELU's gradient in its place, may be one call of the library; where the device tunes
 * (operands are scratch) that is tried. A sum and its norm, or a norm's gradient and a sum of it, are one kernel.
 * Returns 1 where it was one call, 0, or -1; also where they are no pair. */
int cuda_launch_pair(struct device_stream *s, const struct cuda_given *first,
                     const struct cuda_given *second, struct err *err);
/* Are these two, one behind the other in a program, such a pair, as far as it says which buffers they have? */
bool cuda_is_pair(const struct instr *a, const struct instr *b);

/* Runs each product and convolution among these instructions once, and GELU together with the product before
 * it, on operands of its own: what is not known is tried where the device tunes, and so found for
 * cuda_choices. What takes more than most_bytes is left out. Returns 0 or -1. */
int cuda_try(struct device *dev, const struct instr *instrs, int64_t n, int64_t most_bytes,
             struct err *err);

/* GPUs that this process sees; -1 with the reason where that cannot be said: no driver, or weft was
 * built without CUDA. */
int cuda_count(struct err *err);

/* The kind of GPU `index`: "h100-80gb", "h200". Returns 0 or -1. */
int cuda_kind(int index, char *buf, size_t size, struct err *err);
/* From the name that CUDA has for it: "NVIDIA A100-SXM4-80GB" is "a100-80gb". Returns buf. */
char *cuda_kind_of_name(const char *name, char *buf, size_t size);

/* Which GPU a device of this number is: -1 as cuda_count(). */
int cuda_index(int number, struct err *err);
/* Bytes of GPU `index`, those that other processes have among them. */
int cuda_memory(int index, int64_t *total, int64_t *left, struct err *err);

/* How fast a GPU runs at the moment, and what holds its clock back: bits of NVML's
 * nvmlClocksThrottleReasons. -1 where NVML cannot say. */
struct cuda_clocks {
    int mhz, most_mhz; /* of the multiprocessors */
    int celsius;
    unsigned long long reasons;
};
int cuda_clocks(int index, struct cuda_clocks *out, struct err *err);
/* "1755 of 1980 MHz, 62 C, held back by power". Returns buf. */
char *cuda_clocks_format(const struct cuda_clocks *c, char *buf, size_t size);

/* Marks places in time on a stream and tells the time between two of them. */
struct cuda_timer;
struct cuda_timer *cuda_timer_create(struct err *err);
void cuda_timer_destroy(struct cuda_timer *t);
int cuda_timer_begin(struct cuda_timer *t, struct device_stream *s, struct err *err);
/* Waits for what was given to the stream since; microseconds. */
int cuda_timer_end(struct cuda_timer *t, struct device_stream *s, double *us,
                   struct err *err);

#endif
