/* Heads in groups: a program may have them as two dims all along, which kinds have as one. */
#include "import/build.h"

#include <string.h>

/* All lists of dims that matter, settled: those of ops and of what they have of parameters, then those of
 * parameters. */
static struct axis *list_at(struct build *b, int *op, int *param, int *axis) {
    struct follow *t = b->t;
    for (; *op < t->ops.n; (*op)++, *param = -1) {
        struct found_op *o = &t->ops.p[*op];
        if (o->live && *param < o->n_param) {
            struct axis *a = *param < 0 ? &o->dims : &o->param[*param].dims;
            (*param)++;
            return axes_settle(&t->axes, a) < 0 ? NULL : a;
        }
    }
    for (int64_t at = *op - t->ops.n; at < t->params.n; at++, (*op)++, *axis = 0) {
        struct followed_param *p = &t->params.p[at];
        if (*axis < p->rank) {
            struct axis *a = &p->axis[(*axis)++];
            return axes_settle(&t->axes, a) < 0 ? NULL : a;
        }
    }
    return NULL;
}

#define FOR_LISTS(b, a)                                                                    \
    for (int op_ = 0, param_ = -1, axis_ = 0; ((a) = list_at((b), &op_, &param_, &axis_));)

static bool are_one(struct build *b, int outer, int inner) {
    struct axis *a;
    FOR_LISTS(b, a)
    for (int i = 0; i < a->n; i++)
        if ((a->atom[i] == outer && (i + 1 == a->n || a->atom[i + 1] != inner)) ||
            (a->atom[i] == inner && (i == 0 || a->atom[i - 1] != outer)))
            return false;
    return true;
}

static void make_one(struct build *b, int outer, int inner) {
    const struct atom *atoms = b->t->axes.atoms.p;
    int whole = axes_new(&b->t->axes, atoms[outer].size * atoms[inner].size);
    struct axis *a;
    FOR_LISTS(b, a)
    for (int i = 0; i < a->n; i++)
        if (a->atom[i] == outer) {
            memmove(a->atom + i + 1, a->atom + i + 2,
                    sizeof *a->atom * (size_t)(a->n - i - 2));
            a->atom[i] = whole;
            a->n--;
        }
}

void build_mend(struct build *b) {
    for (int at = 0; at < b->order.n; at++) {
        const struct found_op *op = &b->t->ops.p[b->order.p[at]];
        struct axis dims = op->dims;
        if ((op->kind == OP_attention || op->kind == OP_rotary) &&
            axes_settle(&b->t->axes, &dims) == 0 && dims.n == 5 &&
            are_one(b, dims.atom[2], dims.atom[3]))
            make_one(b, dims.atom[2], dims.atom[3]);
    }
}
