/* joint_table.c - down-sets in the order of a search, each with the sums over its nodes
 * that say how many devices it needs at least. */
#include "solve/joint/joint.h"

#include <stdlib.h>
#include <string.h>

static double sum_over(const struct joint_problem *p, const uint64_t *set,
                       const double *q) {
    double sum = 0;
    for (int v = 0; v < p->nodes; v++)
        if (joint_has(set, v))
            sum += q[v];
    return sum;
}

struct place {
    double used;
    int size, at;
};

static int by_used(const void *a, const void *b) {
    const struct place *x = a, *y = b;
    if (x->used != y->used)
        return x->used < y->used ? -1 : 1;
    return x->size != y->size ? x->size - y->size : x->at - y->at;
}

static int count(const uint64_t *set, int words) {
    int n = 0;
    for (int i = 0; i < words; i++)
        n += __builtin_popcountll(set[i]);
    return n;
}

/* Sorts sets by their sums, so that a set comes after those that it contains. Adding nodes
 * in one order keeps the sums rising with the set in spite of rounding. */
static void sort_sets(struct joint_table *t, struct joint_sets *x) {
    struct place *order = mem_array((size_t)x->n, sizeof *order);
    for (int i = 0; i < x->n; i++) {
        const uint64_t *set = x->bits + (int64_t)i * x->words;
        order[i] =
            (struct place){sum_over(t->p, set, t->bound->m[0].q), count(set, x->words), i};
    }
    qsort(order, (size_t)x->n, sizeof *order, by_used);
    t->n = x->n;
    t->words = x->words;
    t->bits = mem_array((size_t)x->n * (size_t)x->words, sizeof *t->bits);
    for (int i = 0; i < x->n; i++)
        memcpy(t->bits + (int64_t)i * x->words, x->bits + (int64_t)order[i].at * x->words,
               (size_t)x->words * sizeof *t->bits);
    free(order);
    joint_sets_release(x);
}

int joint_table_init(struct joint_table *t, const struct joint_problem *p,
                     const struct joint_bound *bound, struct joint_sets *x) {
    *t = (struct joint_table){.p = p, .bound = bound};
    sort_sets(t, x);
    for (int m = 0; m < JOINT_MEASURES; m++) {
        t->used[m] = mem_array((size_t)t->n, sizeof *t->used[m]);
        for (int i = 0; i < t->n && !joint_stopped(p); i++)
            t->used[m][i] = sum_over(p, t->bits + (int64_t)i * t->words, bound->m[m].q);
    }
    return joint_stopped(p) ? -1 : 0;
}

void joint_table_release(struct joint_table *t) {
    free(t->bits);
    for (int m = 0; m < JOINT_MEASURES; m++)
        free(t->used[m]);
    *t = (struct joint_table){0};
}
