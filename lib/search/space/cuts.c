/* Cuts: where few elements pass from one op to the next, as between blocks or between
 * attention and what follows it. A stage that ends elsewhere sends several times as
 * much and recomputes part of a block, so algorithms end stages there if they can. */
#include "search/space/space.h"

#include <math.h>
#include <stdlib.h>

/* Elements of one sample that pass in front of an op. */
static double passing_elems(const struct space *sp, int op) {
    const struct model *m = sp->p.model;
    const struct crossing *x = &sp->crossings[op];
    double elems = 0;
    for (int i = 0; i < x->n; i++) {
        int t = sp->blocks.s.edges[x->edges[i]].tensor;
        if (t < 0)
            continue;
        struct extents sample = model_extents(m, &m->tensors[t].shape, 1);
        elems += (double)extents_count(&sample);
    }
    return elems;
}

/* The end of the part that begins with this op: an instance of a repeat, what the
 * model's file has as one block outside of repeats, or a single op. */
static int part_end(const struct space *sp, int first) {
    const struct structure *s = &sp->blocks.s;
    const struct model_op *ops = sp->p.model->ops;
    if (s->repeat_of[first] >= 0)
        return structure_next_unit(s, first + 1);
    int end = first + 1;
    while (end < s->n_ops && s->repeat_of[end] < 0 && ops[first].block >= 0 &&
           ops[end].block == ops[first].block)
        end++;
    return end;
}

void space_find_cuts(struct space *sp) {
    int n = sp->blocks.s.n_ops;
    double *passing = mem_array((size_t)n + 1, sizeof *passing);
    sp->cuts = mem_array((size_t)n + 1, sizeof *sp->cuts);
    sp->cut_before = mem_array((size_t)n + 1, sizeof *sp->cut_before);
    for (int i = 0; i < n; i++)
        passing[i] = passing_elems(sp, i);
    for (int first = 0, end; first < n; first = end) {
        double least = INFINITY;
        end = part_end(sp, first);
        for (int i = first; i < end; i++)
            least = i > 0 ? fmin(least, passing[i]) : least;
        for (int i = first; i < end; i++) {
            if (i == 0 || passing[i] <= least)
                sp->cuts[sp->n_cuts++] = i;
            sp->cut_before[i] = sp->n_cuts - 1;
        }
    }
    sp->cuts[sp->n_cuts] = n;
    sp->cut_before[n] = sp->n_cuts;
    free(passing);
}

bool space_is_cut(const struct space *sp, int op) {
    return sp->cuts[sp->cut_before[op]] == op;
}
