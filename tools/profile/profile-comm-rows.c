/* The list of what to measure: groups as mesh axes make them, sizes by powers of two. */
#include "profile-comm.h"

const char *const collective_names[COLLECTIVE_COUNT] = {
#define X(name) #name,
    COLLECTIVES(X)
#undef X
};

/* Whether some group of the case has members on two nodes. */
static bool is_cross(const struct comm *comm, int g, int s) {
    int n = comm_size(comm) / (g * s) * (g * s);
    for (int r = 0; r < n; r++) {
        int first = r / (g * s) * (g * s) + r % s;
        if (comm_node_of(comm, r) != comm_node_of(comm, first))
            return true;
    }
    return false;
}

/* The size that can be measured next to `bytes`: whole floats, cut evenly where that is
 * done. */
static int64_t whole(enum collective c, int g, int64_t bytes) {
    int64_t unit = c == COLLECTIVE_all_reduce || c == COLLECTIVE_p2p ? 4 : 4 * (int64_t)g;
    return bytes < unit ? unit : bytes / unit * unit;
}

static void add_case(const struct comm *comm, const struct limits *l, int g, int s,
                     struct rows *rows) {
    struct row row = {.g = g, .s = s, .cross = is_cross(comm, g, s)};
    row.groups = comm_size(comm) / (g * s) * s;
    for (int c = 0; c < COLLECTIVE_COUNT; c++) {
        row.collective = (enum collective)c;
        if (c == COLLECTIVE_p2p && g != 2)
            continue;
        for (int64_t bytes = l->min_bytes; bytes <= l->max_bytes; bytes *= 2) {
            row.bytes = whole(row.collective, g, bytes);
            arr_push(rows, row);
        }
    }
}

void rows_list(const struct comm *comm, const struct limits *limits, struct rows *rows) {
    int n = comm_size(comm);
    for (int g = 2; g <= n; g++)
        for (int s = 1; g * s <= n; s++)
            if (limits->all_sizes || n % (g * s) == 0)
                add_case(comm, limits, g, s, rows);
}
