/* aceso_tables.h - the profile database of Aceso (Liu et al., "Aceso: Efficient Parallel
 * DNN Training through Iterative Bottleneck Alleviation", EuroSys 2024), as its profilers
 * write it: CSV files in a folder.
 *
 *   NAME_mbs8_tp2_algo0.csv              a row per distinct op: times, sizes, memory
 *   prim_NAME_all_gather_4gpus.csv       how long a collective takes, by whole MiB
 *   p2p_intra_node.csv, p2p_inter_node.csv   bandwidth of messages, for 1, 2, 4 ... MiB
 *
 * Lookups follow Aceso's cost model (aceso_cost_model.py), oddities included.
 *
 *     struct aceso_tables t;
 *     if (aceso_tables_read(dir, "gpt_1_3B", true, &t, &err) == 0)
 *         aceso_tables_release(&t);
 */
#ifndef WEFT_ACESO_TABLES_H
#define WEFT_ACESO_TABLES_H

#include "common/err.h"
#include "common/mem.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    ACESO_MOST_MBS = 16,
    ACESO_MOST_TP = 8, /* powers of two: tp up to 128 */
    ACESO_ALGORITHMS = 2,
    ACESO_MOST_BANDWIDTHS = 32,
};

/* A row of an op table: times in us of a micro-batch on one replica, sizes in MiB. */
struct aceso_cell {
    bool known; /* it was measured */
    double forward, backward, input, output, weights, activations;
    double reserved_forward, reserved_backward; /* by the allocator */
};

struct aceso_row {
    char *name;
    struct aceso_cell cells[ACESO_MOST_MBS][ACESO_MOST_TP][ACESO_ALGORITHMS];
};

#define ACESO_COLLECTIVES(X) X(all_gather) X(all_reduce) X(reduce_scatter) X(all_to_all)
enum aceso_collective {
#define X(id) ACESO_##id,
    ACESO_COLLECTIVES(X)
#undef X
        ACESO_COLLECTIVE_COUNT,
    ACESO_split, /* a slice of what every device has; free */
};

struct aceso_time {
    int64_t mib;
    double ms;
};
struct aceso_times {
    ARR(struct aceso_time) all; /* ascending by size */
};

struct aceso_bandwidths {
    int n;
    double gb_per_s[ACESO_MOST_BANDWIDTHS]; /* of messages of 1, 2, 4 ... MiB */
};

struct aceso_tables {
    int n_rows;
    struct aceso_row *rows;
    int n_mbs, n_tp;             /* tp: 1, 2, 4 ... */
    int64_t mbs[ACESO_MOST_MBS]; /* samples of a micro-batch on one replica, ascending */
    struct aceso_times collectives[ACESO_COLLECTIVE_COUNT][ACESO_MOST_TP];
    struct aceso_bandwidths inside, between; /* within a node, between two */
};

/* Reads the tables whose files have this name. `collectives` tells whether there are any of
 * collectives. */
int aceso_tables_read(const char *dir, const char *name, bool collectives,
                      struct aceso_tables *out, struct err *err);
void aceso_tables_release(struct aceso_tables *t);

/* Returns the cell of an op in a layout, or NULL if it was not measured. */
const struct aceso_cell *aceso_cell_find(const struct aceso_tables *t, int row, int64_t mbs,
                                         int tp, int algorithm);

/* Returns what a collective takes, or 100 s if its table lacks the size, which rules it
 * out. */
double aceso_collective_us(const struct aceso_tables *t, enum aceso_collective c,
                           int devices, double mib);

/* Returns what a message takes within a node or between two. */
double aceso_message_us(const struct aceso_tables *t, double mib, bool between_nodes);

#endif
