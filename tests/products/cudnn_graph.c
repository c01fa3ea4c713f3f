/* Graphs of operations on the fake of cuDNN (cudnn_sheet.h), in plain loops over strides. */
#include "cudnn_sheet.h"

#include <math.h>
#include <stdlib.h>

enum { TENSORS = 64, OPS = 32 };

/* A tensor that has been met: as it was described first, and where it lies. Virtual ones lie as their strides
 * say. */
struct met {
    int64_t id;
    void *p;
    bool own; /* virtual: doubles */
};

struct run {
    const struct sheet *pack;
    struct met met[TENSORS];
    int n;
};

/* As an operation has it. */
struct view {
    struct tensor t;
    struct met *at;
};

static int64_t reach(const struct tensor *t) {
    int64_t last = 0;
    for (int d = 0; d < 4; d++)
        last += (t->size[d] - 1) * t->stride[d];
    return last + 1;
}

static struct view view_of(struct run *r, const struct sheet *op,
                           cudnnBackendAttributeName_t name) {
    struct view v = {.t = tensor_of(part_of(op, name))};
    for (int i = 0; i < r->n && !v.at; i++)
        if (r->met[i].id == v.t.id)
            v.at = &r->met[i];
    if (v.at || r->n == TENSORS)
        return v;
    v.at = &r->met[r->n++];
    *v.at = (struct met){.id = v.t.id};
    v.at->p = v.t.is_virtual ? NULL : fake_cudnn_address(r->pack, &v.t);
    v.at->own = !v.at->p;
    if (v.at->own)
        v.at->p = calloc((size_t)reach(&v.t), sizeof(double));
    return v;
}

static double load(const struct view *v, int64_t i) {
    return v->at->own ? ((const double *)v->at->p)[i] : load_at(v->t.type, v->at->p, i);
}

/* Rounded to its type; whole numbers and truths as they are. */
static void store(const struct view *v, int64_t i, double x) {
    if (!v->at->own) {
        store_at(v->t.type, v->at->p, i, x);
        return;
    }
    union {
        float f;
        uint16_t h;
    } rounded;
    store_at(v->t.type, &rounded, 0, x);
    ((double *)v->at->p)[i] = load_at(v->t.type, &rounded, 0);
}

/* Where the element at these places of a tensor of other sizes lies: one of a size of 1 stands for all, and
 * heads are shared by neighbours. */
static int64_t place(const struct tensor *t, const int64_t *at, const int64_t *sizes) {
    int64_t i = 0;
    for (int d = 0; d < 4; d++)
        i += t->size[d] == sizes[d] ? at[d] * t->stride[d]
                                    : at[d] / (sizes[d] / t->size[d]) * t->stride[d];
    return i;
}

static bool next(int64_t *at, const int64_t *sizes) {
    for (int d = 3; d >= 0; d--) {
        if (++at[d] < sizes[d])
            return true;
        at[d] = 0;
    }
    return false;
}

static void product(struct run *r, const struct sheet *op) {
    const struct view a = view_of(r, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC),
                      b = view_of(r, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC),
                      c = view_of(r, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
    const int64_t inner = a.t.size[3];
    if (inner != b.t.size[2] || a.t.size[2] != c.t.size[2] || b.t.size[3] != c.t.size[3]) {
        fake_cudnn_wrong("matrices that do not go together");
        return;
    }
    int64_t at[4] = {0};
    do {
        const int64_t group_a = c.t.size[1] / a.t.size[1],
                      group_b = c.t.size[1] / b.t.size[1];
        const int64_t from_a =
            at[0] * a.t.stride[0] + at[1] / group_a * a.t.stride[1] + at[2] * a.t.stride[2];
        const int64_t from_b =
            at[0] * b.t.stride[0] + at[1] / group_b * b.t.stride[1] + at[3] * b.t.stride[3];
        double sum = 0;
        for (int64_t k = 0; k < inner; k++)
            sum +=
                load(&a, from_a + k * a.t.stride[3]) * load(&b, from_b + k * b.t.stride[2]);
        store(&c, place(&c.t, at, c.t.size), sum);
    } while (next(at, c.t.size));
}

static void reduce(struct run *r, const struct sheet *op) {
    const struct view x = view_of(r, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC),
                      y = view_of(r, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
    cudnnReduceTensorOp_t by;
    memcpy(&by,
           value_of(part_of(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC),
                    CUDNN_ATTR_REDUCTION_OPERATOR),
           sizeof by);
    double *to = malloc((size_t)reach(&y.t) * sizeof *to);
    const bool most = by == CUDNN_REDUCE_TENSOR_MAX;
    for (int64_t i = 0; i < reach(&y.t); i++)
        to[i] = most ? -(double)INFINITY : 0;
    int64_t at[4] = {0};
    do {
        const double v = load(&x, place(&x.t, at, x.t.size));
        double *sum = &to[place(&y.t, at, x.t.size)];
        *sum = most ? fmax(*sum, v) : *sum + v;
    } while (next(at, x.t.size));
    do
        store(&y, place(&y.t, at, y.t.size), to[place(&y.t, at, y.t.size)]);
    while (next(at, y.t.size));
    free(to);
}

/* The same memory by other strides. */
static void reshape(struct run *r, const struct sheet *op) {
    const struct view x = view_of(r, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC),
                      y = view_of(r, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
    int64_t at[4] = {0};
    if (reach(&x.t) != reach(&y.t))
        fake_cudnn_wrong("a view of something else");
    else
        do {
            const int64_t i = place(&y.t, at, y.t.size);
            store(&y, i, load(&x, i));
        } while (next(at, y.t.size));
}

static double value(cudnnPointwiseMode_t mode, double x, double y, double choice) {
    switch ((int)mode) {
    case CUDNN_POINTWISE_ADD: return x + y;
    case CUDNN_POINTWISE_SUB: return x - y;
    case CUDNN_POINTWISE_MUL: return x * y;
    case CUDNN_POINTWISE_DIV: return x / y;
    case CUDNN_POINTWISE_EXP: return exp(x);
    case CUDNN_POINTWISE_LOG: return log(x);
    case CUDNN_POINTWISE_IDENTITY: return x;
    case CUDNN_POINTWISE_CMP_GE: return x >= y;
    case CUDNN_POINTWISE_BINARY_SELECT: return choice != 0 ? x : y;
    default: fake_cudnn_wrong("what the fake cannot do to each number"); return 0;
    }
}

static void pointwise(struct run *r, const struct sheet *op) {
    const struct sheet *how = part_of(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const bool has_y = part_of(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC) != NULL,
               has_choice = part_of(op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC) != NULL;
    const struct view x = view_of(r, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
                      to = view_of(r, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    const struct view y = has_y ? view_of(r, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC) : x;
    const struct view choice =
        has_choice ? view_of(r, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC) : x;
    cudnnPointwiseMode_t mode;
    int64_t dim = 0, at[4] = {0};
    memcpy(&mode, value_of(how, CUDNN_ATTR_POINTWISE_MODE), sizeof mode);
    if (value_of(how, CUDNN_ATTR_POINTWISE_AXIS))
        memcpy(&dim, value_of(how, CUDNN_ATTR_POINTWISE_AXIS), sizeof dim);
    do {
        const int64_t *n = to.t.size;
        const double v =
            mode == CUDNN_POINTWISE_GEN_INDEX
                ? (double)at[dim]
                : value(mode, load(&x, place(&x.t, at, n)), load(&y, place(&y.t, at, n)),
                        load(&choice, place(&choice.t, at, n)));
        store(&to, place(&to.t, at, n), v);
    } while (next(at, to.t.size));
}

cudnnStatus_t fake_cudnn_graph(const struct sheet *graph, const struct sheet *pack) {
    const struct attribute *all = attribute_of(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    struct run r = {.pack = pack};
    const struct sheet *ops[OPS];
    if (!all)
        return fake_cudnn_wrong("a graph of nothing");
    memcpy(ops, all->value, sizeof ops);
    for (int64_t i = 0; i < all->n && !fake_cudnn.wrong; i++)
        switch ((int)ops[i]->type) {
        case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: product(&r, ops[i]); break;
        case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: reduce(&r, ops[i]); break;
        case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: reshape(&r, ops[i]); break;
        case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: pointwise(&r, ops[i]); break;
        default: fake_cudnn_wrong("an operation that the fake does not know");
        }
    for (int i = 0; i < r.n; i++)
        if (r.met[i].own)
            free(r.met[i].p);
    return fake_cudnn.wrong ? CUDNN_STATUS_BAD_PARAM : CUDNN_STATUS_SUCCESS;
}
