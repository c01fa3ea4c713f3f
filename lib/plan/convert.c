/* Conversions between placements: single-axis steps, and the cheapest path over them. */
#include "plan/layout.h"

#include <math.h>
#include <string.h>

const char *convert_kind_name(enum convert_kind kind) {
    static const char *const names[] = {
#define X(id, name) name,
        CONVERT_KINDS(X)
#undef X
    };
    return names[kind];
}

/* True when no inner axis splits d: only then is the block of `a` contiguous in d. */
static bool innermost(const struct mesh *mesh, struct placement p, int a, int d) {
    for (int b = a + 1; b < mesh->n_axes; b++)
        if (p.at[b] == d)
            return false;
    return true;
}

/* Elements that each rank moves in this step, roughly. */
static double step_cost(enum convert_kind kind, double before, double after, int n) {
    double share = (double)(n - 1) / n;
    switch (kind) {
    case CONVERT_all_gather: return share * after;
    case CONVERT_all_reduce: return 2 * share * before;
    case CONVERT_reduce_scatter: return share * before;
    case CONVERT_all_to_all: return share * before;
    case CONVERT_slice: return 0;
    }
    return 0;
}

/* Tries to move axis a to `to`. Returns false when that is no single step. */
static bool single_step(const struct mesh *mesh, const struct shape *s,
                        const struct dim_sizes *sizes, struct placement p, int a, int to,
                        struct convert_step *step, double *cost) {
    int from = p.at[a];
    if (from == to || to == PLACE_PARTIAL)
        return false;
    if (from >= 0 && !innermost(mesh, p, a, from))
        return false;
    if (to >= 0 && (!innermost(mesh, p, a, to) ||
                    placement_dim_size(mesh, sizes, p, to) % mesh->size[a]))
        return false;
    *step = (struct convert_step){
        .axes = 1u << a, .from = from, .to = to, .before = p, .after = p};
    step->after.at[a] = (int8_t)to;
    if (from >= 0)
        step->kind = to >= 0 ? CONVERT_all_to_all : CONVERT_all_gather;
    else if (from == PLACE_PARTIAL)
        step->kind = to >= 0 ? CONVERT_reduce_scatter : CONVERT_all_reduce;
    else
        step->kind = CONVERT_slice;
    double before = (double)placement_elements(mesh, s, sizes, p);
    double after = (double)placement_elements(mesh, s, sizes, step->after);
    /* Every step also costs a start; ties go to fewer steps. */
    *cost = 1024 + step_cost(step->kind, before, after, mesh->size[a]);
    return true;
}

struct state {
    struct placement p;
    double cost;
    int previous;
    bool done;
    struct convert_step step; /* that led here */
};

/* Successive all-reduces are one collective over their axes together. */
static int merge_all_reduces(struct convert_step *steps, int n) {
    int kept = 0;
    for (int i = 0; i < n; i++) {
        struct convert_step *last = kept ? &steps[kept - 1] : NULL;
        if (last && last->kind == CONVERT_all_reduce &&
            steps[i].kind == CONVERT_all_reduce) {
            last->axes |= steps[i].axes;
            last->after = steps[i].after;
        } else {
            steps[kept++] = steps[i];
        }
    }
    return kept;
}

enum { MAX_STATES = 729 }; /* 3 choices for each of 6 axes */

int convert_path(const struct mesh *mesh, const struct shape *s,
                 const struct dim_sizes *sizes, struct placement from, struct placement to,
                 struct convert_step steps[CONVERT_MAX_STEPS], double *cost) {
    if (cost)
        *cost = 0;
    if (placement_equal(from, to))
        return 0;
    static _Thread_local struct state states[MAX_STATES];
    int n = 1, end = -1;
    states[0] = (struct state){.p = from, .previous = -1};
    while (end < 0) {
        int best = -1;
        for (int i = 0; i < n; i++)
            if (!states[i].done && (best < 0 || states[i].cost < states[best].cost))
                best = i;
        if (best < 0)
            return -1; /* cannot happen: everything reaches Replicate and goes down again */
        states[best].done = true;
        if (placement_equal(states[best].p, to)) {
            end = best;
            break;
        }
        for (int a = 0; a < mesh->n_axes; a++) {
            int targets[3] = {to.at[a], PLACE_REPLICATE, from.at[a]};
            for (int t = 0; t < 3; t++) {
                struct convert_step step;
                double c;
                if (!single_step(mesh, s, sizes, states[best].p, a, targets[t], &step, &c))
                    continue;
                c += states[best].cost;
                int j = 0;
                while (j < n && !placement_equal(states[j].p, step.after))
                    j++;
                if (j == n && n < MAX_STATES)
                    states[n++] = (struct state){.p = step.after, .cost = INFINITY};
                if (j < n && c < states[j].cost) {
                    states[j].cost = c;
                    states[j].previous = best;
                    states[j].step = step;
                }
            }
        }
    }
    int count = 0;
    for (int i = end; states[i].previous >= 0; i = states[i].previous)
        count++;
    for (int i = end, k = count; states[i].previous >= 0; i = states[i].previous)
        steps[--k] = states[i].step;
    if (cost)
        *cost = states[end].cost;
    return merge_all_reduces(steps, count);
}

/* The first dim of s that axis a may split in p, or PLACE_REPLICATE. */
static int8_t scatter_dim(const struct mesh *mesh, const struct shape *s,
                          const struct dim_sizes *sizes, struct placement p, int a) {
    for (int i = 0; i < s->rank; i++)
        if (innermost(mesh, p, a, s->dim[i]) &&
            placement_dim_size(mesh, sizes, p, s->dim[i]) % mesh->size[a] == 0)
            return (int8_t)s->dim[i];
    return PLACE_REPLICATE;
}

struct placement placement_resolve(const struct mesh *mesh, const struct shape *s,
                                   const struct dim_sizes *sizes, struct placement p) {
    for (int a = 0; a < mesh->n_axes; a++)
        if (p.at[a] == PLACE_PARTIAL)
            p.at[a] = scatter_dim(mesh, s, sizes, p, a);
    return p;
}

struct placement placement_scatter(const struct mesh *mesh, const struct shape *s,
                                   const struct dim_sizes *sizes, struct placement p) {
    for (int a = 0; a < mesh->n_axes; a++)
        if (p.at[a] < 0)
            p.at[a] = scatter_dim(mesh, s, sizes, p, a);
    return p;
}
