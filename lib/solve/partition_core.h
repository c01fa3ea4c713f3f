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

#include "solve/partition.h"

/* Lists of integers: at[i]..at[i+1] in v. */
struct partition_lists {
    int32_t *at, *v;
};

enum { PARTITION_MAX_EXACT = 20000 }; /* items; beyond them n * n bits are too many */
enum {
    PARTITION_RATES = 3
}; /* rates of exchange CPU : accelerator that bounds are made with */

enum partition_core_mode {
    PARTITION_CORE_EXACT, /* only merges that lose nothing */
    PARTITION_CORE_MERGED, /* idle leaves join their neighbour even where memory might forbid it */
    PARTITION_CORE_RELAXED /* the same, and their memory is forgotten: a lower bound */
};

struct partition_core {
    int32_t n, tensors, words; /* words: 64-bit words of a set of items */
    int32_t *item_of;          /* item of each node */
    double *accel, *cpu, *size, *act;
    bool *supported;
    struct partition_lists pred, succ; /* item -> items directly before, behind */
    uint64_t *desc; /* n * words: everything behind an item, and itself; or NULL */
    struct partition_lists pins;  /* tensor -> items */
    struct partition_lists touch; /* item -> tensors */
    double *weight;               /* of a tensor: send_s or bytes, as the goal asks */
    uint64_t *key;                /* one random word per item: sets hash to the xor */
    int rates;
    double
        rate[PARTITION_RATES]; /* accelerator seconds that a CPU second is worth at most */
    double *worth[PARTITION_RATES]; /* work of an item at that rate, on its better device */
    double total[PARTITION_RATES];  /* sum of worth */
    double slack[PARTITION_RATES];  /* rounding allowed for in comparisons with total */
    /* the limits, copied from the problem */
    enum partition_goal goal;
    int accels, cpus;
    double max_size, max_load;
    int64_t micro_batches;
    bool
        merged_heavy; /* a leaf with memory was merged: PARTITION_CORE_EXACT would differ */
};

void partition_core_create(const struct partition_problem *p, enum partition_core_mode mode,
                           struct partition_core *c);
void partition_core_release(struct partition_core *c);

/* The least conceivable limit on loads that lets `left[]` work (per rate) be done by so
 * many devices; 0 when nothing is left. */
double partition_core_bound(const struct partition_core *c, const double *left, int accels,
                            int cpus);

/* Stages in the order of the search (end of the pipeline first). */
struct partition_chain {
    double value; /* INFINITY = none found yet */
    int stages;
    int32_t *stage_of; /* [n] of each item */
    bool *is_cpu;      /* [n] of each stage (never more stages than items) */
};
void partition_chain_init(struct partition_chain *ch, int32_t n);
void partition_chain_release(struct partition_chain *ch);

/* When to stop. */
struct partition_watch {
    double end_s; /* now_s() to stop at, INFINITY = never */
    int64_t steps, max_steps;
    bool stopped;
};
bool partition_watch_stop(struct partition_watch *w);

/* The linearized dynamic program over several orders, each next one drawn around the best
 * chain so far. Improves `best`. */
void partition_line(const struct partition_core *c, int rounds, uint64_t seed,
                    struct partition_watch *w, struct partition_chain *best);

/* Annealed moves of single items, `rounds` times from `best`, which improves. */
void partition_local(const struct partition_core *c, int rounds, uint64_t seed,
                     struct partition_watch *w, struct partition_chain *best);

/* The exact search over down-sets for a chain with value < cut. Returns the proven bound:
 * min(cut, anything left out). Stores a better chain in `best` when it finds one. */
double partition_ideal(const struct partition_core *c, double cut,
                       struct partition_watch *w, struct partition_chain *best);

/* Bytes that partition_ideal may take before it stops (watch.stopped). */
#define PARTITION_IDEAL_MAX_BYTES ((int64_t)1 << 30)

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
