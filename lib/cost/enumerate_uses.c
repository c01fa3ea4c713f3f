/* Counts how often a step of a plan uses the rows of an enumeration, and merges
 * enumerations of several plans. */
#include "cost/enumerate.h"

#include "common/mem.h"

#include <math.h>
#include <stdlib.h>

static int key_order(const void *pa, const void *pb) {
    return instr_key_compare(pa, pb);
}

/* The last micro-batch runs the last backward segments instead. */
static double uses_of(const struct program *g, enum segment seg) {
    double n = (double)plan_micro_batches(g->plan);
    return seg == SEG_FORWARD                          ? n
           : seg == SEG_BACKWARD || seg == SEG_WEIGHTS ? n - 1
                                                       : schedule_share(g->plan, seg);
}

static double far(int64_t a, int64_t b) {
    return fabs(log((double)(a > 0 ? a : 1) / (double)(b > 0 ? b : 1)));
}

/* Shares the uses between the two sizes around this one, as profile_op_time() does. */
static void use_curve(const struct enumeration *e, const struct instr_key *key, double n,
                      double *uses) {
    int64_t lo = -1, hi = -1, x = key->n.v[0];
    for (int64_t i = 0; i < e->n; i++) {
        const struct instr_key *k = &e->p[i];
        if (k->code != key->code || k->dtype != key->dtype)
            continue;
        int64_t *end = k->n.v[0] < x ? &lo : &hi;
        double better = *end < 0 ? INFINITY : far(e->p[*end].n.v[1], key->n.v[1]);
        double now = far(k->n.v[1], key->n.v[1]);
        bool nearer = *end >= 0 && far(k->n.v[0], x) < far(e->p[*end].n.v[0], x);
        if (now < better || (now == better && nearer))
            *end = i;
    }
    if (lo < 0 || hi < 0) {
        if (lo >= 0 || hi >= 0)
            uses[lo < 0 ? hi : lo] += n;
        return;
    }
    double a = (double)e->p[lo].n.v[0], b = (double)e->p[hi].n.v[0];
    double part = ((double)x - a) / (b - a);
    uses[lo] += n * (1 - part);
    uses[hi] += n * part;
}

void enumerate_uses(const struct program *g, const struct enumeration *e, double *uses) {
    for (int s = 0; s < g->plan->n_stages; s++)
        for (int seg = 0; seg < SEG_COUNT; seg++) {
            struct span span = program_segment(&g->stages[s], (enum segment)seg);
            double n = uses_of(g, (enum segment)seg);
            for (int k = span.first; k < span.end; k++) {
                const struct instr *ins = &g->stages[s].instrs[k];
                struct instr_key key = instr_key(ins->code, ins->dtype, &ins->n);
                if (opcode_key(key.code) == KEY_CURVE)
                    use_curve(e, &key, n, uses);
                if (opcode_key(key.code) != KEY_SHAPE)
                    continue;
                const struct instr_key *at =
                    bsearch(&key, e->p, (size_t)e->n, sizeof *e->p, key_order);
                if (at)
                    uses[at - e->p] += n;
            }
        }
}

void enumeration_merge(struct enumeration *into, struct enumeration *from) {
    struct {
        struct instr_key *p;
        int64_t n, cap;
    } all = {0};
    for (int64_t i = 0, k = 0; i < into->n || k < from->n;) {
        int order = i == into->n   ? 1
                    : k == from->n ? -1
                                   : instr_key_compare(&into->p[i], &from->p[k]);
        arr_push(&all, order <= 0 ? into->p[i] : from->p[k]);
        i += order <= 0;
        k += order >= 0;
    }
    struct enumeration sum = {.n = all.n, .p = all.p};
    sum.n_forms = into->n_forms + from->n_forms;
    sum.forms = mem_array((size_t)sum.n_forms + 1, sizeof *sum.forms);
    for (int64_t i = 0; i < sum.n_forms; i++)
        sum.forms[i] = i < into->n_forms ? into->forms[i] : from->forms[i - into->n_forms];
    sum.n_comm = into->n_comm + from->n_comm;
    sum.comm = mem_array((size_t)sum.n_comm + 1, sizeof *sum.comm);
    for (int64_t i = 0; i < sum.n_comm; i++)
        sum.comm[i] = i < into->n_comm ? into->comm[i] : from->comm[i - into->n_comm];
    sum.largest_comm_bytes = into->largest_comm_bytes > from->largest_comm_bytes
                                 ? into->largest_comm_bytes
                                 : from->largest_comm_bytes;
    enumeration_release(into);
    enumeration_release(from);
    *into = sum;
}
