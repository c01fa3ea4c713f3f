/* profile.h - the profile database (weft-profile(5)): measured times, in SQLite.
 *
 * A row is keyed by what was really measured: device kind, instruction, local shape, dtype; or
 * collective, group size, link class, bytes. So one row serves every model and plan that needs
 * it, and databases merge with plain SQL. Rows are written one transaction each and never twice.
 *
 *     struct profile *p = profile_open("profile.db", true, &err);
 *     if (!profile_has_op(p, "cpu-1t", "linear", "2048,1536,384,0,1", "bf16"))
 *         profile_put_op(p, &row, &err);
 *     struct profile_times *t = profile_load(p, "cpu-1t", &err);   // for prediction, in memory
 */
#ifndef WEFT_PROFILE_H
#define WEFT_PROFILE_H

#include "common/err.h"
#include "program/algorithm.h"
#include "program/instr.h"

#include <stdbool.h>
#include <stdint.h>

struct profile;

/* One measurement. Strings are borrowed for the call. */
struct profile_op {
    /* kind: "cpu-1t": threads per rank; oversubscribed: "cpu-1t-over4" */
    const char *device;
    const char *instr;        /* opcode */
    const char *shape;        /* "2048,1536,384,0,1" */
    const char *dtype;        /* "bf16" */
    double median_us, spread; /* spread: half the inter-quartile range over the median */
    int64_t repeats;
    /* "measured"; how it was computed: "roofline 312T:1.5T:5us"; or estimated, from whose
     * rows: "like h100" */
    const char *source;
};
#define PROFILE_ESTIMATED "like "

/* collective: all_gather, all_reduce, reduce_scatter, all_to_all, p2p. bytes: of the larger side
 * for gather and scatter, of the buffer otherwise. groups: how many such groups ran at the same
 * time. link: "node" or "cross". */
struct profile_comm {
    const char *device;
    const char *collective;
    int64_t group_size, stride, groups;
    const char *link;
    int64_t bytes;
    double median_us, spread;
    int64_t repeats;
    const char *source;
};

/* What the backend really overlaps: fraction of a collective's (or transfer's) time that hides
 * behind computation, 0..1. */
struct profile_overlap {
    const char *device, *collective, *link;
    double fraction;
};

struct profile_algorithms {
    struct library_algorithm *p;
    int64_t n, cap;
};

/* Opens or (create) makes the database; a file of another kind or a later version is refused. */
struct profile *profile_open(const char *path, bool create, struct err *err);
void profile_close(struct profile *p);

/* Estimated rows do not count: what is measured takes their place. */
bool profile_has_op(struct profile *p, const char *device, const char *instr,
                    const char *shape, const char *dtype);
bool profile_has_comm(struct profile *p, const struct profile_comm *key);
/* One transaction each. A row with the same key is left as it is, unless it was estimated.
 * The library records the machine's name and the time of day. */
int profile_put_op(struct profile *p, const struct profile_op *row, struct err *err);
int profile_put_comm(struct profile *p, const struct profile_comm *row, struct err *err);
int profile_put_overlap(struct profile *p, const struct profile_overlap *row,
                        struct err *err);
int profile_put_algorithm(struct profile *p, const struct library_algorithm *row,
                          struct err *err);
/* Appends all algorithms, of every device and version; arr_release() them. Returns 0 or -1. */
int profile_load_algorithms(struct profile *p, struct profile_algorithms *out,
                            struct err *err);
/* Many rows in one transaction (computed rows, which cost nothing to make again). */
int profile_begin(struct profile *p, struct err *err);
int profile_commit(struct profile *p, struct err *err);

/* The device kind of a rank that has `threads` threads on a node where `ranks` ranks share
 * `cores` cores: "cpu-2t", or "cpu-1t-over4" when 4 ranks share each core. Returns buf. */
char *profile_device_kind(int threads, int ranks, int cores, char *buf, int n);

/* ---- times in memory ------------------------------------------------------------------- */

struct profile_times;

/* Loads all rows of one device kind; device NULL takes the only kind there is, or fails and
 * lists the kinds. */
struct profile_times *profile_load(struct profile *p, const char *device, struct err *err);
void profile_times_destroy(struct profile_times *t);
const char *profile_times_device(const struct profile_times *t);
/* How computed rows were made, from their source: "312T:1.5T:5us", "node:200G:5us"; "" = none
 * was. Borrowed. */
const char *profile_times_roofline(const struct profile_times *t);
const char *profile_times_links(const struct profile_times *t);

/* Up to this many elements, an instruction takes its latency. */
enum { PROFILE_LATENCY_ELEMS = 256 };

/* A time from the table. Between two sizes: the wider spread, and computed if either is. */
struct profile_time {
    double us; /* median; -1 = the profile has no such row */
    double spread;
    bool computed;  /* from a roofline or estimated, not measured */
    bool estimated; /* from rows of a like device and some of this one */
    /* it is that of the smallest size there is, which is more than twice the size asked for
     * and takes longer than the latency */
    bool below;
};
/* The time of an instruction. For curve instructions (instr.def) it is interpolated between
 * measured sizes of the first number; of a second one, the nearest measured one counts. */
struct profile_time profile_op_time(const struct profile_times *t,
                                    const struct instr_key *key);
/* Calls `row` for every measured row of the instructions. Computed ones are left out. */
typedef void profile_row_fn(void *ctx, const struct instr_key *key, double us);
void profile_each_op(const struct profile_times *t, profile_row_fn *row, void *ctx);
/* The same for collectives and messages (I_send). */
struct profile_comm_row {
    enum opcode code;
    int64_t size, stride, bytes;
    bool cross;
    double us;
};
typedef void profile_comm_fn(void *ctx, const struct profile_comm_row *row);
void profile_each_comm(const struct profile_times *t, profile_comm_fn *row, void *ctx);
/* The time of a collective, interpolated between measured sizes. There is none beyond the
 * largest size, or without any row of this group size and link. Below the smallest size its
 * time holds. */
struct profile_time profile_comm_time(const struct profile_times *t, const char *collective,
                                      int64_t group_size, int64_t stride, bool cross_node,
                                      int64_t bytes);
double profile_overlap_of(const struct profile_times *t, const char *collective,
                          bool cross_node);

#endif
