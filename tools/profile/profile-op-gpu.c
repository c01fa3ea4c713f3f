/* Timing on a GPU: which one, what its rows are called, and the algorithms of its libraries.
 *
 * What computes a product or a convolution is found by trying, once, and kept in the profile beside the times:
 * so rows that are measured later, and weft-run, compute it in the same way. */
#include "device_kind.h"
#include "profile-op.h"

#include "common/mem.h"
#include "common/progress.h"
#include "cuda/cuda_workspace.h"

#include <stdio.h>
#include <string.h>

int gpu_choose(struct gpu *g, const char *device, bool tf32, char *kind, size_t size,
               struct err *err) {
    int64_t total;
    int index = cuda_index(0, err);
    if (index < 0 || cuda_memory(index, &total, &g->left, err) < 0 ||
        cuda_kind(index, g->name, sizeof g->name, err) < 0)
        return -1;
    g->on = true;
    return device_kind_of_gpu(device, 0, tf32, kind, size, err);
}

/* ---- algorithms --------------------------------------------------------------------------- */

static int keep(void *arg, const struct library_algorithm *found, struct err *err) {
    const struct gpu *g = arg;
    struct library_algorithm row = *found;
    snprintf(row.device, sizeof row.device, "%s", g->name);
    return profile_put_algorithm(g->profile, &row, err);
}

/* Those of this GPU. */
static int load_known(struct gpu *g, struct err *err) {
    struct profile_algorithms *all = &g->known;
    if (g->profile && profile_load_algorithms(g->profile, all, err) < 0)
        return -1;
    int64_t kept = 0;
    for (int64_t i = 0; i < all->n; i++)
        if (!strcmp(all->p[i].device, g->name))
            all->p[kept++] = all->p[i];
    all->n = kept;
    return 0;
}

/* Room for the largest workspace of all rows, and for those of the calibration. */
static int64_t largest_workspace(const struct enumeration *keys) {
    int64_t most = CUDA_WORKSPACE_PRODUCT;
    for (int64_t i = 0; i < keys->n; i++) {
        const struct instr_key *key = &keys->p[i];
        int64_t bytes = cuda_workspace_instr(key->code, &key->n, key->dtype);
        most = bytes > most ? bytes : most;
    }
    return most;
}

int gpu_prepare(struct gpu *g, struct bench *b, const struct enumeration *keys, bool tf32,
                struct profile *profile, bool keeps, struct err *err) {
    g->profile = profile;
    if (load_known(g, err) < 0)
        return -1;
    g->choices = (struct cuda_choices){.known = g->known.p,
                                       .n_known = g->known.n,
                                       .found = profile && keeps ? keep : NULL,
                                       .arg = g};
    g->cuda =
        cuda_backend(&(struct cuda_options){.workspace_bytes = largest_workspace(keys),
                                            .tf32 = tf32,
                                            .tunes = true,
                                            .choices = &g->choices,
                                            .report = &g->report});
    b->backend = &g->cuda.backend;
    return 0;
}

void gpu_release(struct gpu *g) {
    arr_release(&g->known);
}

void gpu_note_clocks(const struct gpu *g, const char *device, const char *when) {
    struct cuda_clocks c;
    char text[200];
    if (g->on && cuda_clocks(cuda_index(0, NULL), &c, NULL) == 0)
        note("%s %s: %s", device, when, cuda_clocks_format(&c, text, sizeof text));
}
