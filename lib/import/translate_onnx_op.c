/* What ops of ONNX are in ATen's words. */
#include "import/point.h"
#include "import/translate_onnx.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct onnx_reading reading;
typedef const struct onnx_node *node_ref;
typedef const struct exported_value *value_ref;

/* ---- element by element --------------------------------------------------------------------------- */

static const struct function {
    const char *op, *target;
    bool truth;
} functions[] = {{"Add", "aten.add.Tensor", false},
                 {"Sub", "aten.sub.Tensor", false},
                 {"Mul", "aten.mul.Tensor", false},
                 {"Div", "aten.div.Tensor", false},
                 {"Pow", "aten.pow.Tensor_Scalar", false},
                 {"Sum", "aten.add.Tensor", false},
                 {"Max", "aten.maximum.default", false},
                 {"Min", "aten.minimum.default", false},
                 {"Equal", "aten.eq.Tensor", true},
                 {"Less", "aten.lt.Tensor", true},
                 {"LessOrEqual", "aten.le.Tensor", true},
                 {"Greater", "aten.gt.Tensor", true},
                 {"GreaterOrEqual", "aten.ge.Tensor", true},
                 {"And", "aten.logical_and.default", true},
                 {"Or", "aten.logical_or.default", true},
                 {"Not", "aten.logical_not.default", true},
                 {"Where", "aten.where.self", false},
                 {"Neg", "aten.neg.default", false},
                 {"Abs", "aten.abs.default", false},
                 {"Floor", "aten.floor.default", false},
                 {"Ceil", "aten.ceil.default", false},
                 {"Sqrt", "aten.sqrt.default", false},
                 {"Reciprocal", "aten.reciprocal.default", false},
                 {"Exp", "aten.exp.default", false},
                 {"Log", "aten.log.default", false},
                 {"Cos", "aten.cos.default", false},
                 {"Sin", "aten.sin.default", false},
                 {"Tanh", "aten.tanh.default", false},
                 {"Erf", "aten.erf.default", false},
                 {"Sigmoid", "aten.sigmoid.default", false},
                 {"Relu", "aten.relu.default", false},
                 {"Gelu", "aten.gelu.default", false},
                 {"IsNaN", "aten.isnan.default", true},
                 {"Identity", "aten.alias.default", false},
                 {"Dropout", "aten.alias.default", false},
                 {"Swish", "aten.silu.default", false}};

/* The sizes of operands that are stretched to each other; false where they cannot be. */
static bool stretch(reading *r, const int *in, int n, int *rank, int64_t *size) {
    *rank = 0;
    for (int i = 0; i < n; i++)
        *rank = onnx_value(r, in[i])->rank > *rank ? onnx_value(r, in[i])->rank : *rank;
    for (int d = 0; d < *rank; d++)
        size[d] = 1;
    for (int i = 0; i < n; i++) {
        value_ref v = onnx_value(r, in[i]);
        for (int d = 0; d < v->rank; d++) {
            int64_t *to = &size[*rank - v->rank + d];
            if (*to != 1 && v->size[d] != 1 && *to != v->size[d])
                return false;
            *to = v->size[d] == 1 ? *to : v->size[d];
        }
    }
    return true;
}

/* A function of so many values, of which ATen has this target. */
static int apply(reading *r, node_ref n, const char *target, const int *in, int count,
                 int type) {
    int rank;
    int64_t size[EXPORTED_MAX_RANK];
    const struct point *p = point_find(target);
    if (!stretch(r, in, count, &rank, size))
        return -1;
    struct translate_args args = {0};
    if (!p && count == 1)
        onnx_with(&args, "self", in[0]);
    for (int i = 0; p && i < 3 && p->arg[i]; i++) {
        if (i >= count) {
            return -1;
        }
        onnx_with(&args, p->arg[i], in[i]);
    }
    const struct onnx_attr *how = onnx_attr(n, "approximate");
    if (how && how->text)
        translate_text(&args, "approximate", how->text);
    return onnx_emit(r, target, &args, rank, size, type);
}

/* Of any number of operands, two by two. */
static bool is_of_many(const char *op) {
    return !strcmp(op, "Max") || !strcmp(op, "Min") || !strcmp(op, "Sum");
}

static int of_many(reading *r, node_ref n, const char *target) {
    int y = onnx_in(r, n, 0);
    for (int64_t i = 1; i < n->in.n && y >= 0; i++) {
        int in[] = {onnx_thin(r, y), onnx_thin(r, onnx_in(r, n, (int)i))};
        y = in[1] < 0 ? -1 : apply(r, n, target, in, 2, onnx_type(r, in[1]));
    }
    return y;
}

/* Is the value the number one? */
static bool is_one(reading *r, int value) {
    double v;
    return fold_scalar(&r->fold, value, &v) && v == 1;
}

/* Whole numbers are divided to the lower one. */
static int function(reading *r, node_ref n, const struct function *f) {
    int in[3], count = 0;
    if (is_of_many(f->op))
        return of_many(r, n, f->target);
    for (; count < 3 && (in[count] = onnx_in(r, n, count)) >= 0; count++)
        in[count] = onnx_thin(r, in[count]);
    if (!count || n->in.n > 3)
        return -1;
    const int type = onnx_type(r, in[count - 1]);
    const char *target = f->target;
    if (!strcmp(f->op, "Div") && type != 11)
        target = "aten.floor_divide.default";
    else if (!strcmp(f->op, "Div") && count == 2 && is_one(r, in[0]))
        return apply(r, n, "aten.reciprocal.default", in + 1, 1, type);
    return apply(r, n, target, in, count, f->truth ? 1 : type);
}

static int cast(reading *r, node_ref n) {
    int x = onnx_in(r, n, 0), like = onnx_in(r, n, 1);
    if (x < 0)
        return -1;
    value_ref v = onnx_value(r, x);
    int64_t to = onnx_int(n, "to", ONNX_FLOAT);
    int type = like >= 0                                      ? onnx_type(r, like)
               : to == ONNX_BOOL                              ? 1
               : (to >= 2 && to <= 7) || to == 12 || to == 13 ? 5
                                                              : 11;
    return onnx_emit(r, "aten._to_copy.default",
                     onnx_with(&(struct translate_args){0}, "self", x), v->rank, v->size,
                     type);
}

/* ---- numbers -------------------------------------------------------------------------------------- */

static int constant(reading *r, node_ref n) {
    const struct onnx_attr *a = n->attrs.n ? &n->attrs.p[0] : NULL;
    double one;
    if (!a)
        return -1;
    if (a->tensor) {
        int64_t count = onnx_elements(&a->tensor->shape);
        if (count > 1 << 20)
            return -1;
        double *v = mem_array((size_t)count + 1, sizeof *v);
        int type = a->tensor->shape.type, y = -1;
        if (onnx_numbers(a->tensor, r->folder, v, NULL) == 0)
            y = onnx_constant(r, a->tensor->shape.rank, a->tensor->shape.size,
                              type == ONNX_BOOL ? 1
                              : type == ONNX_FLOAT || type == 10 || type == 11 || type == 16
                                  ? 11
                                  : 5,
                              v);
        free(v);
        return y;
    }
    if (!strcmp(a->name, "value_ints") && a->wholes.n <= 64) {
        double list[64];
        for (int64_t i = 0; i < a->wholes.n; i++)
            list[i] = (double)a->wholes.p[i];
        return onnx_constant(r, 1, &a->wholes.n, 5, list);
    }
    one = !strcmp(a->name, "value_int") ? (double)a->whole : (double)a->real;
    if (strcmp(a->name, "value_int") != 0 && strcmp(a->name, "value_float") != 0)
        return -1;
    return onnx_constant(r, 0, NULL, !strcmp(a->name, "value_int") ? 5 : 11, &one);
}

static int shape(reading *r, node_ref n) {
    int x = onnx_in(r, n, 0);
    double list[EXPORTED_MAX_RANK];
    if (x < 0)
        return -1;
    value_ref v = onnx_value(r, x);
    int64_t from = onnx_int(n, "start", 0), to = onnx_int(n, "end", v->rank);
    from = from < 0 ? from + v->rank : from;
    to = to < 0 ? to + v->rank : to > v->rank ? v->rank : to;
    int64_t count = 0;
    for (int64_t i = from < 0 ? 0 : from; i < to; i++)
        list[count++] = (double)v->size[i];
    return onnx_constant(r, 1, &count, 5, list);
}

static int range(reading *r, node_ref n) {
    double v[3];
    int type = 5;
    for (int i = 0; i < 3; i++) {
        int x = onnx_in(r, n, i);
        if (x < 0 || !fold_scalar(&r->fold, x, &v[i]))
            return -1;
        type = onnx_type(r, x);
    }
    double count = v[2] == 0 ? -1 : ceil((v[1] - v[0]) / v[2]);
    if (!(count >= 0 && count <= 1 << 24))
        return -1;
    struct translate_args args = {0};
    translate_number(&args, "start", v[0]);
    return onnx_emit(r, "aten.arange.start_step", translate_number(&args, "step", v[2]), 1,
                     &(int64_t){(int64_t)count}, type);
}

static int filled(reading *r, node_ref n) {
    int64_t size[EXPORTED_MAX_RANK];
    const struct onnx_attr *a = onnx_attr(n, "value");
    double v = 0;
    int rank = onnx_known(r, onnx_in(r, n, 0), size, EXPORTED_MAX_RANK), type = 11;
    if (rank < 0)
        return -1;
    if (a && a->tensor) {
        if (onnx_elements(&a->tensor->shape) != 1 ||
            onnx_numbers(a->tensor, r->folder, &v, NULL) < 0)
            return -1;
        type = a->tensor->shape.type == ONNX_BOOL    ? 1
               : a->tensor->shape.type == ONNX_FLOAT ? 11
                                                     : 5;
    }
    for (int i = 0; i < rank; i++)
        if (size[i] < 0)
            return -1;
    struct translate_args args = {0};
    translate_ints(&args, "size", size, rank);
    return onnx_emit(r, "aten.full.default", translate_number(&args, "fill_value", v), rank,
                     size, type);
}

/* ---- what reads along an axis --------------------------------------------------------------------- */

/* The target with its operand and one number. */
static int with_number(reading *r, int x, const char *target, const char *name, int64_t v) {
    if (x < 0)
        return -1;
    value_ref y = onnx_value(r, x);
    struct translate_args args = {0};
    onnx_with(&args, "self", x);
    return onnx_emit(r, target, translate_int(&args, name, v), y->rank, y->size,
                     onnx_type(r, x));
}

static int running_sum(reading *r, node_ref n) {
    int64_t d;
    if (onnx_known(r, onnx_in(r, n, 1), &d, 1) != 1 || onnx_int(n, "exclusive", 0) ||
        onnx_int(n, "reverse", 0))
        return -1;
    return with_number(r, onnx_in(r, n, 0), "aten.cumsum.default", "dim", d);
}

static int triangle(reading *r, node_ref n) {
    int64_t k = 0;
    int by = onnx_in(r, n, 1);
    if (by >= 0 && onnx_known(r, by, &k, 1) != 1)
        return -1;
    return with_number(r, onnx_in(r, n, 0),
                       onnx_int(n, "upper", 1) ? "aten.triu.default" : "aten.tril.default",
                       "diagonal", k);
}

static int reduce(reading *r, node_ref n) {
    int64_t axes[EXPORTED_MAX_RANK], size[EXPORTED_MAX_RANK];
    int x = onnx_in(r, n, 0), count = onnx_axes(r, n, 1, axes), rank = 0;
    bool keep = onnx_int(n, "keepdims", 1);
    if (x < 0 || count < 1)
        return -1;
    value_ref v = onnx_value(r, x);
    unsigned over = 0;
    for (int i = 0; i < count; i++) {
        int d = onnx_axis(axes[i], v->rank);
        if (d < 0)
            return -1;
        over |= 1u << d;
    }
    for (int i = 0; i < v->rank; i++)
        if (!(over >> i & 1) || keep)
            size[rank++] = over >> i & 1 ? 1 : v->size[i];
    const char *target = !strcmp(n->op, "ReduceMean")  ? "aten.mean.dim"
                         : !strcmp(n->op, "ReduceSum") ? "aten.sum.dim_IntList"
                                                       : "aten.amax.default";
    struct translate_args args = {0};
    onnx_with(&args, "self", x);
    translate_ints(&args, "dim", axes, count);
    return onnx_emit(r, target, translate_int(&args, "keepdim", keep), rank, size,
                     onnx_type(r, x));
}

static int norm(reading *r, node_ref n) {
    int x = onnx_in(r, n, 0), w = onnx_in(r, n, 1);
    bool rms = !strcmp(n->op, "RMSNormalization");
    if (x < 0 || w < 0)
        return -1;
    value_ref v = onnx_value(r, x);
    if (onnx_axis(onnx_int(n, "axis", -1), v->rank) != v->rank - 1)
        return -1;
    struct translate_args args = {0};
    onnx_with(&args, "input", x);
    translate_ints(&args, "normalized_shape", &v->size[v->rank - 1], 1);
    onnx_with(onnx_with(&args, "weight", w), "bias", onnx_in(r, n, 2));
    translate_number(&args, "eps", onnx_real(n, "epsilon", 1e-5));
    return onnx_emit(r, rms ? "aten.rms_norm.default" : "aten.layer_norm.default", &args,
                     v->rank, v->size, 11);
}

/* ---- products ------------------------------------------------------------------------------------- */

static int matmul(reading *r, node_ref n) {
    int a = onnx_in(r, n, 0), b = onnx_in(r, n, 1);
    int64_t size[EXPORTED_MAX_RANK];
    if (a < 0 || b < 0)
        return -1;
    value_ref x = onnx_value(r, a), y = onnx_value(r, b);
    const struct exported_value *most = x->rank >= y->rank ? x : y;
    if (x->rank < 2 || y->rank < 2 || x->size[x->rank - 1] != y->size[y->rank - 2])
        return -1;
    int rank = most->rank;
    for (int i = 0; i < rank - 2; i++) {
        int p = i - (rank - x->rank), q = i - (rank - y->rank);
        int64_t k = p < 0 ? 1 : x->size[p], m = q < 0 ? 1 : y->size[q];
        if (k != m && k != 1 && m != 1)
            return -1;
        size[i] = k > m ? k : m;
    }
    size[rank - 2] = x->size[x->rank - 2];
    size[rank - 1] = y->size[y->rank - 1];
    return onnx_emit(
        r, "aten.matmul.default",
        onnx_with(onnx_with(&(struct translate_args){0}, "self", a), "other", b), rank,
        size, 11);
}

static int gemm(reading *r, node_ref n) {
    int a = onnx_in(r, n, 0), b = onnx_in(r, n, 1), c = onnx_in(r, n, 2);
    const int64_t order[] = {1, 0};
    if (a < 0 || b < 0 || onnx_real(n, "alpha", 1) != 1 || onnx_real(n, "beta", 1) != 1 ||
        onnx_value(r, a)->rank != 2 || onnx_value(r, b)->rank != 2)
        return -1;
    if (onnx_int(n, "transA", 0))
        a = onnx_permute(r, a, order);
    if (onnx_int(n, "transB", 0))
        b = onnx_permute(r, b, order);
    if (onnx_value(r, a)->size[1] != onnx_value(r, b)->size[0])
        return -1;
    int64_t size[] = {onnx_value(r, a)->size[0], onnx_value(r, b)->size[1]};
    struct translate_args args = {0};
    onnx_with(&args, "self", c < 0 ? a : c);
    onnx_with(&args, "mat1", c < 0 ? -1 : a);
    onnx_with(&args, "mat2", b);
    return onnx_emit(r, c < 0 ? "aten.mm.default" : "aten.addmm.default", &args, 2, size,
                     11);
}

/* Two equal numbers of an attribute; false where it has others. */
static bool alike(node_ref n, const char *name, int64_t missing, int64_t *out) {
    const struct onnx_attr *a = onnx_attr(n, name);
    *out = a && a->wholes.n ? a->wholes.p[0] : missing;
    for (int64_t i = 0; a && i < a->wholes.n; i++)
        if (a->wholes.p[i] != *out)
            return false;
    return *out >= 0 && *out < 1 << 20;
}

static int convolve(reading *r, node_ref n) {
    int x = onnx_in(r, n, 0), w = onnx_in(r, n, 1);
    int64_t stride, padding, dilation, size[4];
    const struct onnx_attr *how = onnx_attr(n, "auto_pad");
    if (x < 0 || w < 0 || onnx_value(r, x)->rank != 4 || onnx_value(r, w)->rank != 4 ||
        !alike(n, "strides", 1, &stride) || !alike(n, "pads", 0, &padding) ||
        !alike(n, "dilations", 1, &dilation) || stride < 1 || dilation < 1 ||
        (how && how->text && strcmp(how->text, "NOTSET") != 0))
        return -1;
    size[0] = onnx_value(r, x)->size[0];
    size[1] = onnx_value(r, w)->size[0];
    for (int i = 2; i < 4; i++) {
        int64_t taps = dilation * (onnx_value(r, w)->size[i] - 1) + 1;
        size[i] = (onnx_value(r, x)->size[i] + 2 * padding - taps) / stride + 1;
        if (size[i] < 1)
            return -1;
    }
    struct translate_args args = {0};
    onnx_with(onnx_with(&args, "input", x), "weight", w);
    onnx_with(&args, "bias", onnx_in(r, n, 2));
    translate_ints(&args, "stride", &stride, 1);
    translate_ints(&args, "padding", &padding, 1);
    translate_ints(&args, "dilation", &dilation, 1);
    translate_int(&args, "groups", onnx_int(n, "group", 1));
    return onnx_emit(r, "aten.convolution.default", &args, 4, size, 11);
}

/* [b, s, heads d] as [b, heads, s, d]; -1 where it has no such heads. */
static int by_heads(reading *r, int x, int64_t heads) {
    static const int64_t order[] = {0, 2, 1, 3};
    value_ref v = onnx_value(r, x);
    int64_t size[] = {v->size[0], v->size[1], heads, 0};
    if (heads < 1 || v->size[2] % heads)
        return -1;
    size[3] = v->size[2] / heads;
    return onnx_permute(r, onnx_view(r, x, 4, size), order);
}

/* The way back. */
static int joined_heads(reading *r, int x) {
    static const int64_t order[] = {0, 2, 1, 3};
    int y = onnx_permute(r, x, order);
    value_ref v = onnx_value(r, y);
    int64_t size[] = {v->size[0], v->size[1], v->size[2] * v->size[3]};
    return onnx_view(r, y, 3, size);
}

/* Queries, keys, values and perhaps a mask, and nothing of a step before; only the first result is read. */
static bool is_plain_attention(node_ref n) {
    for (int64_t i = 4; i < n->in.n; i++)
        if (*n->in.p[i])
            return false;
    for (int64_t i = 1; i < n->out.n; i++)
        if (*n->out.p[i])
            return false;
    return true;
}

static int attention(reading *r, node_ref n) {
    static const char *const heads[] = {"q_num_heads", "kv_num_heads", "kv_num_heads"};
    int x[4];
    for (int i = 0; i < 4; i++)
        x[i] = onnx_in(r, n, i);
    if (x[0] < 0 || x[1] < 0 || x[2] < 0 || !is_plain_attention(n))
        return -1;
    const bool flat = onnx_value(r, x[0])->rank == 3;
    for (int i = 0; i < 3; i++) {
        if (onnx_value(r, x[i])->rank != (flat ? 3 : 4) ||
            (flat && (x[i] = by_heads(r, x[i], onnx_int(n, heads[i], 0))) < 0))
            return -1;
    }
    int64_t size[EXPORTED_MAX_RANK];
    memcpy(size, onnx_value(r, x[0])->size, sizeof size);
    size[3] = onnx_value(r, x[2])->size[3];
    struct translate_args args = {0};
    onnx_with(onnx_with(&args, "query", x[0]), "key", x[1]);
    onnx_with(onnx_with(&args, "value", x[2]), "attn_mask", x[3]);
    translate_int(&args, "is_causal", onnx_int(n, "is_causal", 0));
    if (onnx_attr(n, "scale"))
        translate_number(&args, "scale", onnx_real(n, "scale", 1));
    if (onnx_real(n, "softcap", 0) > 0)
        translate_number(&args, "softcap", onnx_real(n, "softcap", 0));
    int y = onnx_emit(r, "aten.scaled_dot_product_attention.default", &args, 4, size, 11);
    return flat && y >= 0 ? joined_heads(r, y) : y;
}

/* ---- by op ---------------------------------------------------------------------------------------- */

int onnx_op(reading *r, node_ref n, json_t **list) {
    static const struct {
        const char *op;
        int (*rule)(reading *, node_ref);
    } rules[] = {{"Cast", cast},
                 {"CastLike", cast},
                 {"Constant", constant},
                 {"Shape", shape},
                 {"Range", range},
                 {"ConstantOfShape", filled},
                 {"CumSum", running_sum},
                 {"Trilu", triangle},
                 {"ReduceMean", reduce},
                 {"ReduceSum", reduce},
                 {"ReduceMax", reduce},
                 {"LayerNormalization", norm},
                 {"RMSNormalization", norm},
                 {"MatMul", matmul},
                 {"Gemm", gemm},
                 {"Conv", convolve},
                 {"Attention", attention}};
    int value;
    if (onnx_view_op(r, n, &value, list))
        return value;
    if (!strcmp(n->op, "Softmax"))
        return with_number(r, onnx_in(r, n, 0), "aten.softmax.int", "dim",
                           onnx_int(n, "axis", -1));
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (!strcmp(rules[i].op, n->op))
            return rules[i].rule(r, n);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (!strcmp(functions[i].op, n->op))
            return function(r, n, &functions[i]);
    return -1;
}
