/* Algorithms of matrix products that a profile knows: each rank with a GPU takes those of its kind.
 *
 * weft-profile-op found them by trying, when it timed the products. Taking them saves the trials before
 * the first step, and the training computes what was timed. */
#include "run.h"

#include "common/mem.h"
#include "common/progress.h"

#include <stdio.h>
#include <string.h>

static int load(const char *path, struct profile_products *out, struct err *err) {
    struct profile *p = profile_open(path, false, err);
    int rc = p ? profile_load_products(p, out, err) : -1;
    profile_close(p);
    return rc;
}

int run_share_products(struct comm *comm, const char *path, struct profile_products *out,
                       struct err *err) {
    const bool root = comm_rank(comm) == 0;
    if (!path)
        return 0;
    if (exec_agree(comm, root ? load(path, out, err) : 0, err) < 0)
        return -1;
    struct comm_group *world = comm_world(comm);
    int64_t n = out->n;
    if (comm_broadcast(world, &n, sizeof n, 0, err) < 0)
        return -1;
    if (!root) {
        out->p = mem_array((size_t)n, sizeof *out->p);
        out->n = out->cap = n;
    }
    return comm_broadcast(world, out->p, n * (int64_t)sizeof *out->p, 0, err);
}

int run_choices(struct comm *comm, struct profile_products *known, struct cuda_choices *out,
                struct err *err) {
    char kind[64];
    int64_t kept = 0;
    int index = cuda_index(comm_node_rank(comm), err);
    if (index < 0 || cuda_kind(index, kind, sizeof kind, err) < 0)
        return -1;
    for (int64_t i = 0; i < known->n; i++)
        if (!strcmp(known->p[i].device, kind))
            known->p[kept++] = known->p[i];
    known->n = kept;
    *out = (struct cuda_choices){.known = known->p, .n_known = known->n};
    return 0;
}

/* 130101 is "13.1.1". */
static char *version(double library, char buf[16]) {
    int v = (int)library;
    snprintf(buf, 16, "%d.%d.%d", v / 10000 % 1000, v / 100 % 100, v % 100);
    return buf;
}

/* Of the rank that has most of each. */
int run_report_products(struct comm *comm, const char *path, const struct cuda_choices *c,
                        struct err *err) {
    double n[5] = {(double)c->taken, (double)c->refused, (double)c->other_version,
                   (double)c->library, (double)c->other};
    char here[16], there[16];
    if (comm_max_double(comm_world(comm), n, 5, err) < 0)
        return -1;
    if (comm_rank(comm) != 0)
        return 0;
    version(n[3], here);
    version(n[4], there);
    if (n[2] > 0)
        note("weft-run: %s: algorithms of %.0f products are cuBLASLt %s's, and this is %s: "
             "they are chosen anew",
             path, n[2], there, here);
    if (n[1] > 0)
        note("weft-run: %s: cuBLASLt %s refuses the algorithms of %.0f products: they are "
             "chosen anew",
             path, here, n[1]);
    note_verbose("weft-run: %s: %.0f products are computed as it says", path, n[0]);
    return 0;
}
