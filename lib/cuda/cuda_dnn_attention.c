/* Attention as a graph of cuDNN: the products, the mask, the softmax by its maxima and sums, and backward the
 * scores made again from the logarithms of the sums. It is the form that the library knows as flash attention:
 * what lies between the products is virtual. Where heads share keys the library repeats these, and sums the
 * gradients of the heads.
 *
 * Backward two things lie in memory beside operands: the rows of dO O, summed, and dQ, in floats, which the
 * blocks of keys add to. */
#include "cuda/cuda_dnn_impl.h"

#include <float.h>

enum {
    Q = 1,
    K,
    V,
    O,
    LSE,
    DOUT,
    DQ,
    DK,
    DV,
    DELTA,
    SUMS, /* in memory, as dnn_attention_operands has them */
    SCALE,
    LEAST,
    ONE, /* values */
    FIRST_VIRTUAL
};

enum { OPERATIONS = 32 };

/* A graph under way. */
struct builder {
    const struct dnn *d;
    const struct kernel_attention *t;
    cudnnDataType_t type; /* of operands */
    struct dnn_plans *plans;
    cudnnBackendDescriptor_t ops[OPERATIONS];
    int n;
    int64_t next; /* name of a virtual tensor */
    cudnnBackendDescriptor_t scale;
};
typedef cudnnBackendDescriptor_t part;

/* ---- tensors: [batch, heads, rows, columns] ------------------------------------------------ */

static part tensor(struct builder *b, const struct dnn_tensor *t) {
    return dnn_tensor(b->d, t, b->plans);
}

/* Rows of heads, one beside the other; turned: [columns, rows]. */
static part rows(struct builder *b, int64_t id, int64_t heads, int64_t length,
                 int64_t batch, int64_t apart, bool turned) {
    const int64_t dim = b->t->dim;
    const struct dnn_tensor plain = {id,
                                     b->type,
                                     id < FIRST_VIRTUAL ? DNN_MEMORY : DNN_VIRTUAL,
                                     {b->t->batch, heads, length, dim},
                                     {batch, dim, apart, 1}};
    struct dnn_tensor t = plain;
    if (turned) {
        t.n[2] = plain.n[3], t.n[3] = plain.n[2];
        t.stride[2] = plain.stride[3], t.stride[3] = plain.stride[2];
    }
    return tensor(b, &t);
}
static part queries(struct builder *b, int64_t id) {
    return rows(b, id, b->t->heads, b->t->q_len, b->t->q_batch, b->t->q_seq, false);
}
static part results(struct builder *b, int64_t id) {
    return rows(b, id, b->t->heads, b->t->q_len, b->t->o_batch, b->t->o_seq, false);
}
static part keys(struct builder *b, int64_t id, bool turned) {
    return rows(b, id, b->t->kv_heads, b->t->kv_len, b->t->kv_batch, b->t->kv_seq, turned);
}

/* Packed: of each head so many rows and columns. */
static part packed(struct builder *b, int64_t id, cudnnDataType_t type, int64_t m,
                   int64_t n) {
    const int64_t heads = b->t->heads;
    const struct dnn_tensor t = {id ? id : b->next++,
                                 type,
                                 id ? DNN_MEMORY : DNN_VIRTUAL,
                                 {b->t->batch, heads, m, n},
                                 {heads * m * n, m * n, n, 1}};
    return tensor(b, &t);
}
/* A number for each pair of query and key, one for each query: virtual. */
static part scores(struct builder *b, cudnnDataType_t type) {
    return packed(b, 0, type, b->t->q_len, b->t->kv_len);
}
static part column(struct builder *b) {
    return packed(b, 0, CUDNN_DATA_FLOAT, b->t->q_len, 1);
}
/* The scores in the type of operands, [keys, queries]. */
static part turned_scores(struct builder *b) {
    const int64_t heads = b->t->heads, m = b->t->q_len, n = b->t->kv_len;
    const struct dnn_tensor t = {b->next++,
                                 b->type,
                                 DNN_VIRTUAL,
                                 {b->t->batch, heads, n, m},
                                 {heads * m * n, m * n, 1, n}};
    return tensor(b, &t);
}

static part value(struct builder *b, int64_t id) {
    const struct dnn_tensor t = {
        id, CUDNN_DATA_FLOAT, DNN_VALUE, {1, 1, 1, 1}, {1, 1, 1, 1}};
    return tensor(b, &t);
}

/* ---- operations: each gives its result ----------------------------------------------------- */

static part keep(struct builder *b, struct dnn_descriptor *op, part result) {
    const part done = dnn_finish(op, b->plans);
    if (b->n < OPERATIONS)
        b->ops[b->n++] = done;
    return done ? result : NULL;
}

static part product(struct builder *b, part x, part y, part to) {
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    struct dnn_descriptor how = dnn_descriptor(b->d, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    dnn_set(&how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    struct dnn_descriptor op =
        dnn_descriptor(b->d, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    dnn_set_part(&op, CUDNN_ATTR_OPERATION_MATMUL_DESC, dnn_finish(&how, b->plans));
    dnn_set_part(&op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, x);
    dnn_set_part(&op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, y);
    dnn_set_part(&op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, to);
    return keep(b, &op, to);
}

static part reduce(struct builder *b, cudnnReduceTensorOp_t by, part x, part to) {
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    struct dnn_descriptor how = dnn_descriptor(b->d, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    dnn_set(&how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
            &by);
    dnn_set(&how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    struct dnn_descriptor op =
        dnn_descriptor(b->d, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    dnn_set_part(&op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, dnn_finish(&how, b->plans));
    dnn_set_part(&op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    dnn_set_part(&op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to);
    return keep(b, &op, to);
}

static part reshape(struct builder *b, part x, part to) {
    struct dnn_descriptor op =
        dnn_descriptor(b->d, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    dnn_set_part(&op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    dnn_set_part(&op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, to);
    return keep(b, &op, to);
}

/* What is done to each number: by which mode, in which type, and for an index along which dim. */
struct each {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t type;
    int64_t dim;
};

/* y and choice may be NULL: no such operand. */
static part pointwise(struct builder *b, const struct each *e, part x, part y, part choice,
                      part to) {
    struct dnn_descriptor how = dnn_descriptor(b->d, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    dnn_set(&how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &e->mode);
    dnn_set(&how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &e->type);
    if (e->mode == CUDNN_POINTWISE_GEN_INDEX)
        dnn_set(&how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &e->dim);
    struct dnn_descriptor op =
        dnn_descriptor(b->d, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    dnn_set_part(&op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                 dnn_finish(&how, b->plans));
    dnn_set_part(&op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (y)
        dnn_set_part(&op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, y);
    if (choice)
        dnn_set_part(&op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, choice);
    dnn_set_part(&op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to);
    return keep(b, &op, to);
}
static part floats(struct builder *b, cudnnPointwiseMode_t mode, part x, part y, part to) {
    const struct each e = {mode, CUDNN_DATA_FLOAT, 0};
    return pointwise(b, &e, x, y, NULL, to);
}

/* ---- attention ----------------------------------------------------------------------------- */

/* Scores of keys behind their query become the least float. */
static part masked(struct builder *b, part s) {
    const struct each query = {CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, 2},
                      key = {CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, 3},
                      compare = {CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, 0},
                      select = {CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, 0};
    const part i = pointwise(b, &query, s, NULL, NULL, scores(b, CUDNN_DATA_INT32));
    const part j = pointwise(b, &key, s, NULL, NULL, scores(b, CUDNN_DATA_INT32));
    const part seen = pointwise(b, &compare, i, j, NULL, scores(b, CUDNN_DATA_BOOLEAN));
    return pointwise(b, &select, s, value(b, LEAST), seen, scores(b, CUDNN_DATA_FLOAT));
}

static part scaled(struct builder *b, part x) {
    return floats(b, CUDNN_POINTWISE_MUL, x, b->scale, scores(b, CUDNN_DATA_FLOAT));
}

static void forward(struct builder *b) {
    part s = product(b, queries(b, Q), keys(b, K, true), scores(b, CUDNN_DATA_FLOAT));
    s = scaled(b, s);
    if (b->t->causal)
        s = masked(b, s);
    const part most = reduce(b, CUDNN_REDUCE_TENSOR_MAX, s, column(b));
    s = floats(b, CUDNN_POINTWISE_SUB, s, most, scores(b, CUDNN_DATA_FLOAT));
    const part e = floats(b, CUDNN_POINTWISE_EXP, s, NULL, scores(b, CUDNN_DATA_FLOAT));
    const part sum = reduce(b, CUDNN_REDUCE_TENSOR_ADD, e, column(b));
    const part log = floats(b, CUDNN_POINTWISE_LOG, sum, NULL, column(b));
    floats(b, CUDNN_POINTWISE_ADD, most, log,
           packed(b, LSE, CUDNN_DATA_FLOAT, b->t->q_len, 1));
    const part p = floats(b, CUDNN_POINTWISE_DIV, e, sum, scores(b, b->type));
    product(b, p, keys(b, V, false), results(b, O));
}

/* to, of the heads of keys, from what each head gives: [keys, queries] x [queries, dim]. */
static void gradient(struct builder *b, part scores_of, part x, int64_t to) {
    const struct kernel_attention *t = b->t;
    const part turned = reshape(b, scores_of, turned_scores(b));
    if (t->heads == t->kv_heads) {
        product(b, turned, x, keys(b, to, false));
        return;
    }
    const part each = product(b, turned, x, packed(b, 0, b->type, t->kv_len, t->dim));
    reduce(b, CUDNN_REDUCE_TENSOR_ADD, each, keys(b, to, false));
}

static void backward(struct builder *b) {
    const struct kernel_attention *t = b->t;
    const part q = queries(b, Q), dout = results(b, DOUT), k = keys(b, K, true);
    part x = floats(b, CUDNN_POINTWISE_MUL, dout, results(b, O),
                    packed(b, 0, CUDNN_DATA_FLOAT, t->q_len, t->dim));
    x = reduce(b, CUDNN_REDUCE_TENSOR_ADD, x, column(b));
    const part delta = floats(b, CUDNN_POINTWISE_MUL, x, value(b, ONE),
                              packed(b, DELTA, CUDNN_DATA_FLOAT, t->q_len, 1));
    part s = product(b, q, k, scores(b, CUDNN_DATA_FLOAT));
    s = scaled(b, s);
    s = floats(b, CUDNN_POINTWISE_SUB, s, packed(b, LSE, CUDNN_DATA_FLOAT, t->q_len, 1),
               scores(b, CUDNN_DATA_FLOAT));
    if (t->causal)
        s = masked(b, s);
    const part p = floats(b, CUDNN_POINTWISE_EXP, s, NULL, scores(b, CUDNN_DATA_FLOAT));
    gradient(b, p, dout, DV);
    part ds = product(b, dout, keys(b, V, true), scores(b, CUDNN_DATA_FLOAT));
    ds = floats(b, CUDNN_POINTWISE_SUB, ds, delta, scores(b, CUDNN_DATA_FLOAT));
    ds = floats(b, CUDNN_POINTWISE_MUL, ds, p, scores(b, CUDNN_DATA_FLOAT));
    ds = scaled(b, ds);
    gradient(b, ds, q, DK);
    const part upright = reshape(b, k, keys(b, b->next++, false));
    const part sums =
        product(b, ds, upright, packed(b, SUMS, CUDNN_DATA_FLOAT, t->q_len, t->dim));
    floats(b, CUDNN_POINTWISE_IDENTITY, sums, NULL, queries(b, DQ));
}

cudnnBackendDescriptor_t dnn_attention_graph(const struct dnn *d,
                                             const struct dnn_attention *w,
                                             struct dnn_plans *plans) {
    struct builder b = {.d = d,
                        .t = &w->t,
                        .type = dnn_type(w->type),
                        .plans = plans,
                        .next = FIRST_VIRTUAL};
    b.scale = value(&b, SCALE);
    if (w->backward)
        backward(&b);
    else
        forward(&b);
    return dnn_graph(d, b.ops, b.n, plans);
}

static struct dnn_rule rule_of(const struct dnn_attention *w) {
    return (struct dnn_rule){.type = w->type,
                             .deterministic = w->deterministic,
                             .workspace_bytes = w->workspace_bytes,
                             .compiled = 3};
}

int dnn_attention_plan(const struct dnn *d, const struct dnn_attention *w, int most,
                       struct dnn_plans *out) {
    const struct dnn_rule rule = rule_of(w);
    return dnn_engines(d, dnn_attention_graph(d, w, out), &rule, most, out);
}

int dnn_attention_named(const struct dnn *d, const struct dnn_attention *w,
                        const char *name, struct dnn_plans *out) {
    const struct dnn_rule rule = rule_of(w);
    return dnn_engine_named(d, dnn_attention_graph(d, w, out), &rule, name, out);
}

int dnn_attention_run(const struct dnn *d, const struct dnn_attention *w,
                      const struct dnn_plans *plans, int i,
                      const struct dnn_attention_operands *o, void *workspace,
                      cudaStream_t stream, struct err *err) {
    float scale = w->t.scale, least = -FLT_MAX, one = 1;
    void *q = (void *)(uintptr_t)o->q, *k = (void *)(uintptr_t)o->k,
         *v = (void *)(uintptr_t)o->v, *dout = (void *)(uintptr_t)o->dout;
    struct dnn_place at[16] = {{Q, q},    {K, k},        {V, v},
                               {O, o->o}, {LSE, o->lse}, {SCALE, &scale}};
    const struct dnn_place more[] = {{ONE, &one},    {DOUT, dout}, {DQ, o->dq},
                                     {DK, o->dk},    {DV, o->dv},  {DELTA, o->delta},
                                     {SUMS, o->sums}};
    int n = 6;
    if (w->t.causal)
        at[n++] = (struct dnn_place){LEAST, &least};
    for (size_t m = 0; w->backward && m < sizeof more / sizeof *more; m++)
        at[n++] = more[m];
    return dnn_execute(d, plans->of[i].plan, at, n, workspace, stream, err);
}
