/* profile-op.h - inside weft-profile-op: what an instruction touches, and timing it.
 *
 * The bench process times; its siblings are ranks that fill the node meanwhile. All of them
 * prepare the same instruction over memory of their own and launch it, as the executor does.
 */
#ifndef WEFT_PROFILE_OP_H
#define WEFT_PROFILE_OP_H

#include "common/err.h"
#include "cost/enumerate.h"
#include "cost/profile.h"
#include "cuda/cuda.h"
#include "device/device.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- profile-op-bench.c: running and timing ------------------------------ */

struct limits {
    double row_s; /* time for one row at most, unless two runs take longer */
    double error; /* good enough: relative error of the median */
    int over;     /* ranks per core */
};

struct measured {
    double median_us, spread;
    int64_t repeats;
};

/* What changes from step to step, with one loss. */
struct bench_scalars {
    struct scalars now;
    double per_target;
};

/* An instruction made ready. What the instruction before would have produced, and what is
 * written over and over, has one place; what was last touched long ago has many, so that it
 * has left the caches when its turn comes again, as in a step. */
struct bench {
    int64_t budget;                       /* bytes, set before use, as is the backend */
    const struct device_backend *backend; /* NULL: the CPU */
    bool captures; /* launches are timed as the executor gives them */
    struct device *device;
    struct device_stream *stream;
    struct bench_scalars *scalars; /* on the device */
    char *memory;                  /* on the device */
    int64_t size;
    const struct cold *cold; /* borrowed; NULL: the opcodes' tables hold */
    struct instr_work work;
    unsigned old; /* its operands that are (profile-op-cold.c) */
    const struct instr_info *info;
    struct instr_key key;
    int sets, next;
    int64_t copy_size[2], copy_src[2], copy_dst[2];
    struct matrices matrices;
    struct halo_piece piece; /* of halo_*: rows of one message */
    /* What else is launched behind it, on its first result, and what that has besides, on the device;
     * NULL: nothing is. */
    struct instr_key behind;
    char *beside;
    int beside_sets; /* as `sets`, of its old operands */
};
/* With the budget set; bench_release ends it, also after a failure. */
int bench_open(struct bench *b, int threads, struct err *err);
/* Bytes that bench_prepare will ask for: at most the budget, unless one place for each
 * operand takes more; so with budget 0 the least. */
int64_t bench_bytes(const struct cold *cold, const struct instr_key *key, int64_t budget);
int bench_prepare(struct bench *b, const struct instr_key *key, struct err *err);
/* Seconds that measuring will take, roughly, when a run takes run_s. */
double bench_estimate_s(const struct bench *b, const struct instr_key *key,
                        const struct limits *l, double run_s);
int bench_run(struct bench *b, struct err *err); /* once, on the next set */
/* From now on, until another is prepared, this one is launched behind it on its first result: as a pair
 * (cuda/cuda.h). Returns 0 or -1. */
int bench_put_behind(struct bench *b, const struct instr_key *behind, struct err *err);
/* Launches the two as a captured region does: 1 where they were one call, 0, or -1. */
int bench_run_pair(struct bench *b, struct err *err);
/* 0, 1 when interrupted, or -1. */
int bench_measure(struct bench *b, const struct limits *l, struct measured *out,
                  struct err *err);
void bench_release(struct bench *b);

/* ---- profile-op-cold.c: what has left the caches ------------------------- */

/* Of all instructions of some programs how many bytes of each operand have; cold_release() ends it. */
struct cold {
    struct cold_key *p;
    int64_t n, cap;
};
/* Of a core's own cache and its share of the last one. */
int64_t cold_cache_bytes(void);
/* Adds what a few micro-batches of a program find that is run with so large a cache. */
void cold_of_program(const struct program *g, int64_t cache, struct cold *out);
/* The same of a model on one device, with so many samples in a micro-batch. Returns 0 or -1. */
int cold_of_model(struct model *m, enum dtype dtype, int64_t samples, int64_t cache,
                  struct cold *out, struct err *err);
/* Bit k is set where operand k (operands before results) is cold; of what no program has, and with
 * NULL, as the opcode's table says. */
unsigned cold_operands(const struct cold *c, const struct instr_key *key);
void cold_release(struct cold *c);

/* ---- profile-op-operands.c: where operands lie, and what is in them ------ */

/* Of one set of the old operands, or of the others. mask: which are old. */
int64_t operands_bytes(const struct instr_key *key, const struct instr_work *w,
                       unsigned mask, bool old);
/* The addresses of the operands, the old ones of this set. */
void operands_at(const struct bench *b, int set, union instr_src *in, union instr_dst *out);
/* What else there is than the first result of `before`: bytes of one set of the old operands, or of the others. */
int64_t operands_beside_bytes(const struct instr_key *behind, bool old);
/* What is launched behind `before`, with its operands. */
void operands_behind(const struct bench *b, int set, const struct cuda_given *before,
                     struct cuda_given *out);
/* The position of the first query of an attention, counted from the first key that is here; else 0. */
int64_t bench_first_query(const struct instr_key *key);
/* Gives all of them numbers, and waits until they have them. Returns 0 or -1. */
int operands_fill(struct bench *b, struct err *err);

/* ---- profile-op-ranks.c: the other ranks of the node --------------------- */

struct ranks;
/* Forks n processes, each with `threads` threads; before this process has any. */
struct ranks *ranks_start(int n, int threads, int64_t budget, const struct cold *cold,
                          struct err *err);
/* All run this instruction, over and over, when it returns; NULL key: all rest. */
int ranks_run(struct ranks *r, const struct instr_key *key, struct err *err);
void ranks_stop(struct ranks *r);

/* ---- profile-op-gpu.c: timing on a GPU ----------------------------------- */

struct gpu {
    bool on;                 /* a GPU is timed */
    char name[64];           /* what it is: "h100-80gb" */
    int64_t left;            /* bytes of its memory that are free */
    struct profile *profile; /* where algorithms are kept; borrowed */
    struct profile_algorithms known;
    struct cuda_choices choices;
    struct cuda_report report;
    struct cuda_backend cuda;
};
/* Finds the GPU that --device means, and names the kind of its rows (device_kind.h). */
int gpu_choose(struct gpu *g, const char *device, bool tf32, char *kind, size_t size,
               struct err *err);
/* The backend for these instructions. Algorithms that the profile knows are taken, others are
 * found and, where it `keeps`, written there; NULL: there is no profile. Released also after a failure. */
int gpu_prepare(struct gpu *g, struct bench *b, const struct enumeration *keys, bool tf32,
                struct profile *profile, bool keeps, struct err *err);
void gpu_release(struct gpu *g);
/* What is measured counts for these clocks; nothing where none is timed. */
void gpu_note_clocks(const struct gpu *g, const char *device, const char *when);

/* ---- profile-op-pairs.c: GELU in the product before it ------------------- */

/* What of a model's program is one call on a GPU; pairs_release() ends it. */
struct pairs {
    struct {
        struct instr_key
            *p; /* whose result is what GELU, or its gradient, is made of next */
        int64_t n, cap;
    } products;
    struct {
        struct norm_places *p;
        int64_t n, cap;
    } norms;
};
enum { PAIRS_APART = 2 };
void pairs_of_program(const struct program *g, struct pairs *out); /* appends */
int pairs_of_model(struct model *m, enum dtype dtype, struct pairs *out, struct err *err);
/* Those among these rows of products are tried, with GELU and without (cuda_try): for programs that are not
 * known yet. Returns 0 or -1. */
int pairs_try(const struct pairs *p, const struct instr_key *rows, int64_t n,
              struct bench *b, struct err *err);
/* A row of what may be part of a pair: what it adds to the other part. As bench_measure(), or PAIRS_APART:
 * it is one of its own, and nothing was measured. */
int pairs_measure(struct bench *b, const struct pairs *p, const struct instr_key *key,
                  const struct limits *l, struct measured *out, struct err *err);
/* The time of both less that of the other. */
struct measured pairs_added(const struct measured *both, const struct measured *other);
void pairs_release(struct pairs *p);

/* ---- profile-op-norms.c: a norm with the sum of a residual --------------- */

/* Where norms of this sort stand in the program: how many, and how many of them beside such a sum. */
struct norm_places {
    enum opcode code;
    enum dtype dtype;
    int64_t width; /* of a whole row */
    int64_t all, paired;
};
void norms_of_stage(const struct stage_program *sp, struct pairs *out); /* adds */
/* As pairs_measure(), of norms and their gradients. */
int norms_measure(struct bench *b, const struct pairs *p, const struct instr_key *key,
                  const struct limits *l, struct measured *out, struct err *err);

/* ---- profile-op-plans.c: what plans need --------------------------------- */

/* names: of files, with commas between them. uses: how often a step of all plans together uses each row,
 * to be freed also after a failure; devices: of the largest plan; pairs: NULL: they are not asked for. */
int plans_enumerate(const char *names, struct enumeration *keys, double **uses,
                    int64_t *devices, struct pairs *pairs, struct cold *cold,
                    struct err *err);

/* ---- profile-op-probes.c: a few rows, and estimates of the others --------- */

struct probes;
/* like: the profile of another device; from: one of this device whose rows are taken instead of measured,
 * or NULL. NULL with a message. */
struct probes *probes_open(const char *like, const char *from, const char *device,
                           struct err *err);
void probes_close(struct probes *p); /* NULL is fine */
/* Is there a model of the device, which has its datasheet? */
bool probes_know_sheet(const struct probes *p);
/* Of these rows, each used so often (NULL: all alike), chooses up to k that `known` (NULL: nothing) lacks;
 * returns how many. */
int64_t probes_choose(struct probes *p, const struct enumeration *keys, const double *uses,
                      int64_t k, struct profile *known, const char *device);
/* Is it to be measured: was it chosen, or can nothing be said of it otherwise? */
bool probes_wants(const struct probes *p, const struct instr_key *key);
/* Its time in `from`; of a row that was chosen. */
double probes_given_us(const struct probes *p, const struct instr_key *key);
/* Writes what the rows that were not measured take; returns how many, or -1. */
int64_t probes_put(struct probes *p, struct profile *db, const char *device,
                   struct err *err);

/* ---- profile-op-roofline.c: computed rows -------------------------------- */

struct roofline {
    double flops, bytes, latency_us; /* per second; of one instruction */
    char source[80];                 /* of its rows: "roofline 312T:1.5T:5us" */
};
struct link {
    char source[144]; /* of its rows: "roofline " and the whole of --links */
    char name[8];     /* node or cross */
    double bytes, latency_us;
};
enum { MAX_LINKS = 2 };

int roofline_parse(const char *text, struct roofline *r, struct err *err);
/* "node:200G:5us cross:25G:10us"; returns the number of links. */
int links_parse(const char *text, struct link links[MAX_LINKS], struct err *err);
double roofline_us(const struct roofline *r, const struct instr_key *key);
/* Writes every row that is missing; *added counts them. */
int roofline_put_ops(struct profile *p, const char *device, const struct roofline *r,
                     const struct enumeration *e, int64_t *added, struct err *err);
/* Of groups of all sizes that a mesh of max_devices may have, and those that e names. */
int links_put(struct profile *p, const char *device, const struct link *links, int n,
              int64_t max_devices, const struct enumeration *e, int64_t *added,
              struct err *err);

#endif
