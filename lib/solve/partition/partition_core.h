/* partition_core.h - inside the partition solver: items, tensors, down-sets.
 *
 * An item is a set of nodes that stand on one device in every solution worth finding
 * (colour classes, cycles of classes, idle leaves). Items are numbered in topological order
 * from the END of the pipeline, because the memory of a stage depends on how many stages
 * follow it: a search that begins at the end knows that number. "Before" below means nearer
 * to the end.
 *
 * A tensor is the set of items that touch one produced output (its producer and consumers).
 * A stage pays for a tensor exactly when it holds some but not all of its items, whoever
 * produces it, so training graphs need nothing special.
 */
#ifndef WEFT_SOLVE_PARTITION_CORE_H
#define WEFT_SOLVE_PARTITION_CORE_H

#include "solve/partition/partition.h"

/* Lists of integers: at[i]..at[i+1] in v. */
struct partition_lists {
    int32_t *at, *v;
};

enum { PARTITION_MAX_EXACT = 20000 }; /* items; beyond them n * n bits are too many */
enum { PARTITION_RATES = 6 };         /* at most */

/* A relaxation of what devices can hold (partition_rates.c): with weights on a second of an
 * accelerator, a second of a CPU and a byte of an accelerator, an item is worth its
 * weighted needs on its better device. The worths of what is left must find room in the
 * weighted seconds below the limit on loads and the weighted bytes of the devices left. */
struct partition_rate {
    double accel, cpu, size; /* the weights */
    double flight;           /* how many times activations count */
    bool accel_only; /* worth on accelerators alone: a bound only when no CPU is left */
    double *worth;   /* of each item */
    double total;    /* sum of worth */
    double slack;    /* rounding allowed for in comparisons with total */
    double *room;    /* [devices + 1]: weighted bytes of accelerators on the first places */
};

/* When to stop. */
struct partition_watch {
    double end_s;             /* now_s() to stop at, INFINITY = never */
    int64_t steps, max_steps; /* of a pass */
    int64_t all_steps;        /* of all; 0 = any number */
    bool stopped;
};
/* Returns whether the time, or all steps, are used up, or an interrupt came. */
bool partition_watch_over(const struct partition_watch *w);
/* Counts a step, and returns whether the search has to stop. */
bool partition_watch_stop(struct partition_watch *w);
/* Returns the same for work that takes long: counts no step, and looks at the clock every
 * time. */
bool partition_watch_stop_now(struct partition_watch *w);

struct partition_core {
    int32_t n, tensors, words; /* words: 64-bit words of a set of items */
    int32_t *item_of;          /* item of each node */
    double *accel, *cpu, *size, *act;
    bool *supported;
    struct partition_lists pred, succ; /* item -> items directly before, behind */
    uint64_t *desc; /* n * words: everything behind an item, and itself; or NULL */
    struct partition_lists pins;  /* tensor -> items */
    struct partition_lists touch; /* item -> tensors */
    double *weight;               /* of a tensor: send_s */
    uint64_t *key;                /* one random word per item: sets hash to the xor */
    int rates;
    struct partition_rate rate[PARTITION_RATES];
    /* the limits, copied from the problem */
    int accels, cpus;
    double max_size;
    int64_t micro_batches;
    bool any_order; /* stages that do not depend on each other may change places */
};

/* Builds the core. Merging ends early, with more items, when `w` says stop. Returns
 * false on an interrupt: the core may only be released then. */
bool partition_core_create(const struct partition_problem *p, struct partition_watch *w,
                           struct partition_core *c);
void partition_core_release(struct partition_core *c);

/* Set up c->rate[] from items and limits, and free it. */
void partition_rates_create(struct partition_core *c);
void partition_rates_release(struct partition_core *c);

/* Returns the least limit on loads at which so many devices, which follow those used,
 * could do what is left (sums of worth, one per rate); 0 when nothing is left, INFINITY
 * when they cannot hold it. */
double partition_rates_bound(const struct partition_core *c, const double *left, int accels,
                             int cpus);

/* Returns the same for everything on all devices. */
double partition_rates_least(const struct partition_core *c);

/* Returns how much worth of rate r so many devices, which follow those used, can hold below
 * `limit`. INFINITY: any amount. */
double partition_rates_room(const struct partition_core *c, int r, double limit, int accels,
                            int cpus);

/* A partition as its stages in the order of the search, which begins at the end of the
 * pipeline. */
struct partition_chain {
    double value; /* INFINITY = none found yet */
    int stages;
    int32_t *stage_of; /* [n] of each item */
    bool *is_cpu;      /* [n] of each stage (never more stages than items) */
};
void partition_chain_init(struct partition_chain *ch, int32_t n);
void partition_chain_release(struct partition_chain *ch);

/* Improves `best` by the linearized dynamic program over several orders, each next one
 * drawn around the best chain so far. */
void partition_line(const struct partition_core *c, int rounds, uint64_t seed,
                    struct partition_watch *w, struct partition_chain *best);

/* Searches the down-sets exactly for a chain with value < cut, where `low` is proven to
 * be a bound (0 = none). Returns the proven bound: the cut, or the least bound of what
 * was left out. Stores a better chain in `best` when it finds one. */
double partition_ideal(const struct partition_core *c, double low, double cut,
                       struct partition_watch *w, struct partition_chain *best);

/* Bytes that partition_ideal may take before it stops (watch.stopped). */
#define PARTITION_IDEAL_MAX_BYTES ((int64_t)800 << 20)

static inline bool partition_set_has(const uint64_t *s, int32_t i) {
    return s[i >> 6] >> (i & 63) & 1;
}
static inline void partition_set_add(uint64_t *s, int32_t i) {
    s[i >> 6] |= (uint64_t)1 << (i & 63);
}
static inline void partition_set_drop(uint64_t *s, int32_t i) {
    s[i >> 6] &= ~((uint64_t)1 << (i & 63));
}

#endif
