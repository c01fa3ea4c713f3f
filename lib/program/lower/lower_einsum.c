/* Matrix products: of an activation and a weight that are rows and columns as they stand (linear),
 * and of any two tensors that are matrices by strides (matmul). */
#include "program/lower/lower.h"

/* ---- linear ------------------------------------------------------------------------------- */

/* Sizes of the dims that x and y share, that the weight adds, and that are summed over. */
struct sizes {
    int64_t m, n, k;
    bool wt; /* the weight is [n, k] */
};

/* The weight's first axis tells whether it is [n, k]. */
static struct sizes sizes_of(const struct emit *e, int op) {
    const struct model_op *o = op_of(e, op);
    const struct axis_map *x = &o->in_map[0], *y = &o->out_map[0], *w = &o->param_map[0];
    struct sizes s = {.m = lower_shared(e, op, x, y),
                      .n = lower_without(e, op, y, x),
                      .k = lower_role(e, op, ROLE_contracted)};
    for (int k = 0; k < o->space.n; k++)
        if (w->axis[k] == 0)
            s.wt = y->axis[k] >= 0;
    return s;
}

/* Whether the op is y[M.., N..] of x[M.., K..] and a weight without the dims of M. */
static bool is_linear(const struct model_op *o) {
    const struct axis_map *x = &o->in_map[0], *y = &o->out_map[0], *w = &o->param_map[0];
    if (o->param[0] < 0)
        return false;
    for (int k = 0; k < o->space.n; k++)
        if (x->axis[k] >= 0 && y->axis[k] >= 0 &&
            (w->axis[k] >= 0 || x->axis[k] != y->axis[k]))
            return false;
    /* The dims that x and y share must be the first ones of both. */
    int shared = 0, last = -1;
    for (int k = 0; k < o->space.n; k++)
        if (x->axis[k] >= 0 && y->axis[k] >= 0) {
            shared++;
            last = x->axis[k] > last ? x->axis[k] : last;
        }
    return last == shared - 1;
}

static void linear_forward(struct emit *e, int op) {
    struct sizes s = sizes_of(e, op);
    int x = lower_operand(e, op, 0), w = lower_param(e, op, 0);
    int b = lower_param(e, op, 1), y = lower_result(e, op, 0);
    struct instr *i = emit_instr(e, I_linear);
    i->in.linear.x = x;
    i->in.linear.w = w;
    i->in.linear.b = b;
    i->out.linear.y = y;
    i->n.linear.m = s.m;
    i->n.linear.n = s.n;
    i->n.linear.k = s.k;
    i->n.linear.wt = s.wt;
    i->n.linear.bias = b >= 0;
    i->axes = lower_axes(e, op, ROLE_contracted);
}

/* dW = x^T dy is added to the gradient. */
static void linear_dw(struct emit *e, int op, struct sizes s, int dy) {
    int x = lower_operand(e, op, 0), dw = lower_grad(e, op, 0);
    int db = lower_trains(e, op, 1) ? lower_grad(e, op, 1) : -1;
    struct instr *i = emit_instr(e, I_linear_dw);
    i->in.linear_dw.x = x;
    i->in.linear_dw.dy = dy;
    i->out.linear_dw.dw = dw;
    i->out.linear_dw.db = db;
    i->n.linear_dw.m = s.m;
    i->n.linear_dw.n = s.n;
    i->n.linear_dw.k = s.k;
    i->n.linear_dw.wt = s.wt;
    i->n.linear_dw.bias = db >= 0;
}

/* The gradient of a bias beside a frozen weight. */
static void linear_db(struct emit *e, int op, struct sizes s, int dy) {
    int db = lower_grad(e, op, 1);
    struct instr *i = emit_instr(e, I_bias_dw);
    i->in.bias_dw.dy = dy;
    i->out.bias_dw.dp = db;
    i->n.bias_dw = (struct bias_dw_n){.elems = s.m * s.n, .inner = s.n};
}

/* dx = dy W^T is made only where it is wanted. */
static void linear_backward(struct emit *e, int op, const int *dy) {
    struct sizes s = sizes_of(e, op);
    if (lower_trains(e, op, 0))
        linear_dw(e, op, s, dy[0]);
    else if (lower_trains(e, op, 1))
        linear_db(e, op, s, dy[0]);
    if (!lower_wants_gradient(e, op, 0))
        return;
    int w = lower_param(e, op, 0), dx = lower_gradient(e, op, 0);
    struct instr *i = emit_instr(e, I_linear_dx);
    i->in.linear_dx.dy = dy[0];
    i->in.linear_dx.w = w;
    i->out.linear_dx.dx = dx;
    i->n.linear_dx.m = s.m;
    i->n.linear_dx.n = s.n;
    i->n.linear_dx.k = s.k;
    i->n.linear_dx.wt = s.wt;
}

/* ---- matmul ------------------------------------------------------------------------------- */

/* A tensor in a product: its buffer and the map of its axes. */
struct part {
    int buffer;
    const struct axis_map *map;
};

/* Elements from one to the next of space dim k in a tensor; 0 where it lacks the dim. */
static int64_t stride_of(const struct emit *e, int op, const struct axis_map *map, int k) {
    int64_t stride = map->axis[k] < 0 ? 0 : 1;
    for (int j = 0; j < op_of(e, op)->space.n; j++)
        if (map->axis[k] >= 0 && map->axis[j] > map->axis[k])
            stride *= lower_size(e, op, j);
    return stride;
}

/* The stride of the innermost dim that both tensors have and the third lacks. */
static int64_t index_stride(const struct emit *e, int op, const struct axis_map *of,
                            const struct axis_map *with, const struct axis_map *without) {
    int64_t least = 0;
    for (int k = 0; k < op_of(e, op)->space.n; k++) {
        if (of->axis[k] < 0 || with->axis[k] < 0 || without->axis[k] >= 0)
            continue;
        int64_t stride = stride_of(e, op, of, k);
        least = least && least < stride ? least : stride;
    }
    return least ? least : 1;
}

/* Elements of the dims that a and b have and the third lacks. */
static int64_t index_size(const struct emit *e, int op, const struct axis_map *a,
                          const struct axis_map *b, const struct axis_map *without) {
    int64_t n = 1;
    for (int k = 0; k < op_of(e, op)->space.n; k++)
        if (a->axis[k] >= 0 && b->axis[k] >= 0 && without->axis[k] < 0)
            n *= lower_size(e, op, k);
    return n;
}

/* Counts the products over dims that all three have, in their order in a, as one or two
 * counts: dims that are neighbours in all three make one. */
static void count_products(const struct emit *e, int op, const struct part *a,
                           const struct part *b, const struct part *y, struct instr *i) {
    const struct model_op *o = op_of(e, op);
    const struct part *parts[] = {a, b, y};
    struct matrix *m[] = {&i->matrices.a, &i->matrices.b, &i->matrices.y};
    int64_t *count = &i->n.matmul.inner;
    i->n.matmul.outer = i->n.matmul.inner = 1;
    for (int axis = TENSOR_MAX_RANK - 1; axis >= 0; axis--) {
        int k = 0;
        while (k < o->space.n && a->map->axis[k] != axis)
            k++;
        if (k == o->space.n || b->map->axis[k] < 0 || y->map->axis[k] < 0)
            continue;
        int64_t size = lower_size(e, op, k), stride[3];
        bool joins = true, first = count == &i->n.matmul.inner && *count == 1;
        for (int t = 0; t < 3; t++) {
            stride[t] = stride_of(e, op, parts[t]->map, k);
            int64_t at = count == &i->n.matmul.inner ? m[t]->inner : m[t]->outer;
            joins &= stride[t] == at * *count;
        }
        if (!first && !joins)
            count = &i->n.matmul.outer;
        for (int t = 0; t < 3 && *count == 1; t++)
            *(count == &i->n.matmul.inner ? &m[t]->inner : &m[t]->outer) = stride[t];
        *count *= size;
    }
}

/* y[.., M, N] = (or +=) sum over K of a[.., M, K] b[.., K, N], whatever the order of their dims. */
static void emit_matmul(struct emit *e, int op, enum opcode code, struct part a,
                        struct part b, struct part y) {
    struct instr *i = emit_instr(e, code);
    i->in.matmul.a = a.buffer;
    i->in.matmul.b = b.buffer;
    i->out.matmul.y = y.buffer;
    i->matrices =
        (struct matrices){.a = {.row = index_stride(e, op, a.map, y.map, b.map),
                                .column = index_stride(e, op, a.map, b.map, y.map)},
                          .b = {.row = index_stride(e, op, b.map, a.map, y.map),
                                .column = index_stride(e, op, b.map, y.map, a.map)},
                          .y = {.row = index_stride(e, op, y.map, a.map, b.map),
                                .column = index_stride(e, op, y.map, b.map, a.map)}};
    i->n.matmul.m = index_size(e, op, a.map, y.map, b.map);
    i->n.matmul.n = index_size(e, op, b.map, y.map, a.map);
    i->n.matmul.k = index_size(e, op, a.map, b.map, y.map);
    count_products(e, op, &a, &b, &y, i);
}

/* The second factor: an operand, or the weight. */
static struct part factor(struct emit *e, int op) {
    const struct model_op *o = op_of(e, op);
    if (o->n_in > 1)
        return (struct part){lower_operand(e, op, 1), &o->in_map[1]};
    return (struct part){lower_param(e, op, 0), &o->param_map[0]};
}

static void matmul_forward(struct emit *e, int op) {
    const struct model_op *o = op_of(e, op);
    struct part x = {lower_operand(e, op, 0), &o->in_map[0]}, w = factor(e, op);
    emit_matmul(e, op, I_matmul, x, w,
                (struct part){lower_result(e, op, 0), &o->out_map[0]});
}

/* Each gradient is a product of the same kind: of the result's gradient and the other factor. */
static void matmul_backward(struct emit *e, int op, const int *dy) {
    const struct model_op *o = op_of(e, op);
    struct part d = {dy[0], &o->out_map[0]}, x = {lower_operand(e, op, 0), &o->in_map[0]};
    if (o->n_in > 1 && lower_wants_gradient(e, op, 1))
        emit_matmul(e, op, I_matmul, x, d,
                    (struct part){lower_gradient(e, op, 1), &o->in_map[1]});
    else if (o->n_in < 2 && lower_trains(e, op, 0))
        emit_matmul(e, op, I_matmul_dw, x, d,
                    (struct part){lower_grad(e, op, 0), &o->param_map[0]});
    if (lower_wants_gradient(e, op, 0))
        emit_matmul(e, op, I_matmul, d, factor(e, op),
                    (struct part){lower_gradient(e, op, 0), x.map});
}

/* ---- einsum ------------------------------------------------------------------------------- */

static void forward(struct emit *e, int op) {
    (is_linear(op_of(e, op)) ? linear_forward : matmul_forward)(e, op);
}

static void backward(struct emit *e, int op, const int *dy) {
    (is_linear(op_of(e, op)) ? linear_backward : matmul_backward)(e, op, dy);
}

const struct lowering lower_einsum = {forward, backward};
