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
struct lists {
    int32_t *at, *v;
};

enum { CORE_MAX_EXACT = 20000 }; /* items; beyond them n * n bits are too many */
enum { CORE_RATES = 3 }; /* rates of exchange CPU : accelerator that bounds are made with */

enum core_mode {
    CORE_EXACT,  /* only merges that lose nothing */
    CORE_MERGED, /* idle leaves join their neighbour even where memory might forbid it */
    CORE_RELAXED /* the same, and their memory is forgotten: a lower bound */
};

struct core {
    int32_t n, tensors, words; /* words: 64-bit words of a set of items */
    int32_t *item_of;          /* item of each node */
    double *accel, *cpu, *size, *act;
    bool *supported;
    struct lists pred, succ; /* item -> items directly before, behind */
    uint64_t *desc;          /* n * words: everything behind an item, and itself; or NULL */
    struct lists pins;       /* tensor -> items */
    struct lists touch;      /* item -> tensors */
    double *weight;          /* of a tensor: send_s or bytes, as the goal asks */
    uint64_t *key;           /* one random word per item: sets hash to the xor */
    int rates;
    double rate[CORE_RATES];   /* accelerator seconds that a CPU second is worth at most */
    double *worth[CORE_RATES]; /* work of an item at that rate, on its better device */
    double total[CORE_RATES];  /* sum of worth */
    double slack[CORE_RATES];  /* rounding allowed for in comparisons with total */
    /* the limits, copied from the problem */
    enum partition_goal goal;
    int accels, cpus;
    double max_size, max_load;
    int64_t micro_batches;
    bool merged_heavy; /* a leaf with memory was merged: CORE_EXACT would differ */
};

void core_create(const struct partition_problem *p, enum core_mode mode, struct core *c);
void core_release(struct core *c);

/* The least conceivable limit on loads that lets `left[]` work (per rate) be done by so
 * many devices; 0 when nothing is left. */
double core_bound(const struct core *c, const double *left, int accels, int cpus);

/* Stages in the order of the search (end of the pipeline first). */
struct chain {
    double value; /* INFINITY = none found yet */
    int stages;
    int32_t *stage_of; /* [n] of each item */
    bool *is_cpu;      /* [n] of each stage (never more stages than items) */
};
void chain_init(struct chain *ch, int32_t n);
void chain_release(struct chain *ch);

/* When to stop. */
struct watch {
    double end_s; /* now_s() to stop at, INFINITY = never */
    int64_t steps, max_steps;
    bool stopped;
};
bool watch_stop(struct watch *w);

/* The linearized dynamic program over several orders, each next one drawn around the best
 * chain so far. Improves `best`. */
void line_search(const struct core *c, int rounds, uint64_t seed, struct watch *w,
                 struct chain *best);

/* Annealed moves of single items, `rounds` times from `best`, which improves. */
void local_search(const struct core *c, int rounds, uint64_t seed, struct watch *w,
                  struct chain *best);

/* The exact search over down-sets for a chain with value < cut. Returns the proven bound:
 * min(cut, anything left out). Stores a better chain in `best` when it finds one. */
double ideal_search(const struct core *c, double cut, struct watch *w, struct chain *best);

/* Bytes that ideal_search may take before it stops (watch.stopped). */
#define IDEAL_MAX_BYTES ((int64_t)1 << 30)

static inline bool set_has(const uint64_t *s, int32_t i) {
    return s[i >> 6] >> (i & 63) & 1;
}
static inline void set_add(uint64_t *s, int32_t i) {
    s[i >> 6] |= (uint64_t)1 << (i & 63);
}
static inline void set_drop(uint64_t *s, int32_t i) {
    s[i >> 6] &= ~((uint64_t)1 << (i & 63));
}

#endif
