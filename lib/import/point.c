/* Functions of numbers. */
#include "import/point.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

#define ONE(name, id)                                                                      \
    {                                                                                      \
        "aten." name, POINT_##id, {                                                        \
            "self"                                                                         \
        }                                                                                  \
    }
#define TWO(name, id)                                                                      \
    {                                                                                      \
        "aten." name, POINT_##id, {                                                        \
            "self", "other"                                                                \
        }                                                                                  \
    }

static const struct point points[] = {
    TWO("add.Tensor", ADD),
    TWO("add_.Tensor", ADD),
    TWO("add.Scalar", ADD),
    TWO("sub.Tensor", SUB),
    TWO("sub.Scalar", SUB),
    TWO("rsub.Scalar", RSUB),
    TWO("rsub.Tensor", RSUB),
    TWO("mul.Tensor", MUL),
    TWO("mul_.Tensor", MUL),
    TWO("mul.Scalar", MUL),
    TWO("div.Tensor", DIV),
    TWO("div_.Tensor", DIV),
    TWO("div.Scalar", DIV),
    TWO("div.Tensor_mode", DIV),
    TWO("floor_divide.default", FLOOR_DIV),
    {"aten.pow.Tensor_Scalar", POINT_POW, {"self", "exponent"}},
    {"aten.pow.Scalar", POINT_POW, {"self", "exponent"}},
    {"aten.pow.Tensor_Tensor", POINT_POW, {"self", "exponent"}},
    ONE("neg.default", NEG),
    ONE("abs.default", ABS),
    ONE("floor.default", FLOOR),
    ONE("ceil.default", CEIL),
    ONE("square.default", SQUARE),
    ONE("sqrt.default", SQRT),
    ONE("rsqrt.default", RSQRT),
    ONE("reciprocal.default", RECIPROCAL),
    ONE("exp.default", EXP),
    ONE("log.default", LOG),
    ONE("cos.default", COS),
    ONE("sin.default", SIN),
    ONE("tanh.default", TANH),
    ONE("erf.default", ERF),
    ONE("sigmoid.default", SIGMOID),
    ONE("relu.default", RELU),
    ONE("relu_.default", RELU),
    ONE("silu.default", SILU),
    ONE("silu_.default", SILU),
    ONE("gelu.default", GELU),
    ONE("tanh_.default", TANH),
    ONE("square_.default", SQUARE),
    TWO("sub_.Tensor", SUB),
    TWO("minimum.default", MINIMUM),
    TWO("maximum.default", MAXIMUM),
    TWO("min.other", MINIMUM),
    TWO("max.other", MAXIMUM),
    {"aten.clamp_min.default", POINT_MAXIMUM, {"self", "min"}},
    {"aten.clamp_max.default", POINT_MINIMUM, {"self", "max"}},
    TWO("eq.Tensor", EQ),
    TWO("eq.Scalar", EQ),
    TWO("ne.Tensor", NE),
    TWO("ne.Scalar", NE),
    TWO("lt.Tensor", LT),
    TWO("lt.Scalar", LT),
    TWO("le.Tensor", LE),
    TWO("le.Scalar", LE),
    TWO("gt.Tensor", GT),
    TWO("gt.Scalar", GT),
    TWO("ge.Tensor", GE),
    TWO("ge.Scalar", GE),
    TWO("bitwise_and.Tensor", AND),
    TWO("__and__.Tensor", AND),
    TWO("logical_and.default", AND),
    TWO("bitwise_or.Tensor", OR),
    TWO("__or__.Tensor", OR),
    TWO("logical_or.default", OR),
    ONE("logical_not.default", NOT),
    ONE("isnan.default", ISNAN),
    ONE("bitwise_not.default", NOT),
    {"aten.where.self", POINT_WHERE, {"condition", "self", "other"}},
    {"aten.where.ScalarSelf", POINT_WHERE, {"condition", "self", "other"}},
    {"aten.where.ScalarOther", POINT_WHERE, {"condition", "self", "other"}},
    {"aten.masked_fill.Scalar", POINT_FILL, {"self", "mask", "value"}},
    {"aten.masked_fill_.Scalar", POINT_FILL, {"self", "mask", "value"}},
    {"aten.masked_fill.Tensor", POINT_FILL, {"self", "mask", "value"}},
    ONE("to.dtype", COPY),
    ONE("to.dtype_layout", COPY),
    ONE("to.device", COPY),
    ONE("_to_copy.default", COPY),
    ONE("type_as.default", COPY),
    ONE("alias.default", COPY),
    ONE("detach.default", COPY),
    ONE("detach_.default", COPY),
    ONE("clone.default", COPY),
    ONE("contiguous.default", COPY),
    ONE("lift_fresh_copy.default", COPY),
    ONE("positive.default", COPY),
    {"aten.dropout.default", POINT_COPY, {"input"}},
};

const struct point *point_find(const char *target) {
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        if (!strcmp(points[i].target, target))
            return &points[i];
    return NULL;
}

double point_apply(enum point_id id, const double v[3]) {
    switch (id) {
#define X(id, value)                                                                       \
    case POINT_##id: return value;
        POINTS(X)
#undef X
    case POINT_COUNT: break;
    }
    return (double)NAN;
}
