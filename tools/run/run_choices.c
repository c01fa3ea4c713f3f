/* Algorithms of products and convolutions that a profile knows: each rank with a GPU takes those of its kind.
 *
 * weft-profile-op found them by trying, when it timed them. Taking them saves the trials before
 * the first step, and the training computes what was timed. */
#include "run.h"

#include "common/mem.h"
#include "common/progress.h"

#include <stdio.h>
#include <string.h>

static int load(const char *path, struct profile_algorithms *out, struct err *err) {
    struct profile *p = profile_open(path, false, err);
    int rc = p ? profile_load_algorithms(p, out, err) : -1;
    profile_close(p);
    return rc;
}

int run_share_algorithms(struct comm *comm, const char *path,
                         struct profile_algorithms *out, struct err *err) {
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

int run_choices(struct comm *comm, struct profile_algorithms *known,
                struct cuda_choices *out, struct err *err) {
    char kind[64], other[sizeof known->p->device] = "";
    int64_t kept = 0;
    int index = cuda_index(comm_node_rank(comm), err);
    if (index < 0 || cuda_kind(index, kind, sizeof kind, err) < 0)
        return -1;
    for (int64_t i = 0; i < known->n; i++)
        if (!strcmp(known->p[i].device, kind))
            known->p[kept++] = known->p[i];
        else if (!*other)
            snprintf(other, sizeof other, "%s", known->p[i].device);
    if (!kept && *other && comm_rank(comm) == 0)
        note("weft-run: the profile has algorithms of kind \"%s\", and this GPU is of kind "
             "\"%s\": they are chosen anew",
             other, kind);
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

static const struct {
    const char *name, *what;
} libraries[CUDA_LIBRARIES] = {
    [CUDA_CUBLASLT] = {"cuBLASLt", "products"}, [CUDA_CUDNN] = {"cuDNN", "convolutions"}};

enum { TAKEN, REFUSED, OTHER_VERSION, LIBRARY, OTHER, NUMBERS };

static void report(const char *path, const double n[NUMBERS], const char *library,
                   const char *what) {
    char here[16], there[16];
    version(n[LIBRARY], here);
    version(n[OTHER], there);
    if (n[OTHER_VERSION] > 0)
        note("weft-run: %s: algorithms of %.0f %s are %s %s's, and this is %s: they are "
             "chosen anew",
             path, n[OTHER_VERSION], what, library, there, here);
    if (n[REFUSED] > 0)
        note("weft-run: %s: %s %s refuses the algorithms of %.0f %s: they are chosen anew",
             path, library, here, n[REFUSED], what);
    if (n[TAKEN] > 0 || n[LIBRARY] > 0)
        note_verbose("weft-run: %s: %.0f %s are computed as it says", path, n[TAKEN], what);
}

/* Of the rank that has most of each. */
int run_report_choices(struct comm *comm, const char *path, const struct cuda_choices *c,
                       struct err *err) {
    double n[CUDA_LIBRARIES][NUMBERS];
    for (int i = 0; i < CUDA_LIBRARIES; i++) {
        n[i][TAKEN] = (double)c->of[i].taken;
        n[i][REFUSED] = (double)c->of[i].refused;
        n[i][OTHER_VERSION] = (double)c->of[i].other_version;
        n[i][LIBRARY] = (double)c->of[i].library;
        n[i][OTHER] = (double)c->of[i].other;
    }
    if (comm_max_double(comm_world(comm), n[0], CUDA_LIBRARIES * NUMBERS, err) < 0)
        return -1;
    for (int i = 0; i < CUDA_LIBRARIES && comm_rank(comm) == 0; i++)
        report(path, n[i], libraries[i].name, libraries[i].what);
    return 0;
}
