/* What the programs of some plans need, and how often. */
#include "profile-op.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

struct programs {
    ARR(struct program *) list;
};

/* Compiles one, on the cluster that it was made for, and adds what it needs. */
static struct program *add_plan(const char *name, struct enumeration *keys,
                                struct err *err) {
    struct enumeration own;
    struct plan *plan = plan_read(name, err);
    struct program *g = plan ? program_compile(plan, err) : NULL;
    if (!g) {
        plan_destroy(plan);
        return NULL;
    }
    struct cluster cluster =
        plan->cluster ? *plan->cluster : cluster_single_node(plan->devices);
    enumerate_program(g, &cluster, &own);
    enumeration_merge(keys, &own);
    return g;
}

static int add_plans(const char *names, struct programs *all, struct enumeration *keys,
                     struct err *err) {
    char *list = mem_strdup(names), *end;
    int rc = 0;
    for (char *at = list; rc == 0 && at; at = end ? end + 1 : NULL) {
        end = strchr(at, ',');
        if (end)
            *end = '\0';
        struct program *g = add_plan(at, keys, err);
        if (g)
            arr_push(&all->list, g);
        rc = g ? 0 : -1;
    }
    free(list);
    return rc;
}

int plans_enumerate(const char *names, struct enumeration *keys, double **uses,
                    int64_t *devices, struct pairs *pairs, struct cold *cold,
                    struct err *err) {
    struct programs all = {0};
    int rc = add_plans(names, &all, keys, err);
    *uses = mem_array((size_t)keys->n + 1, sizeof **uses);
    for (int64_t i = 0; i < all.list.n; i++) {
        struct program *g = all.list.p[i];
        struct plan *plan = (struct plan *)g->plan;
        *devices = i == 0 || plan->devices > *devices ? plan->devices : *devices;
        enumerate_uses(g, keys, *uses);
        if (pairs)
            pairs_of_program(g, pairs);
        if (cold)
            cold_of_program(g, cold_cache_bytes(), cold);
        program_destroy(g);
        plan_destroy(plan);
    }
    arr_release(&all.list);
    return rc;
}
