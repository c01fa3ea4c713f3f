/* point.h - what is computed element by element: ATen's functions of numbers, by name.
 *
 * Constants are folded with them, and what is done to one tensor alone is known by its values: GELU
 * is GELU in however many nodes it was written.
 *
 *     const struct point *f = point_find("aten.mul.Tensor");
 *     double y = point_apply(f->id, (double[]){3, 2, 0});         // 6
 */
#ifndef WEFT_POINT_H
#define WEFT_POINT_H

#include <stdbool.h>

/* id, its value for operands v[0], v[1], v[2] */
#define POINTS(X)                                                                          \
    X(COPY, v[0])                                                                          \
    X(ADD, v[0] + v[1])                                                                    \
    X(SUB, v[0] - v[1])                                                                    \
    X(RSUB, v[1] - v[0])                                                                   \
    X(MUL, v[0] * v[1])                                                                    \
    X(DIV, v[0] / v[1])                                                                    \
    X(FLOOR_DIV, floor(v[0] / v[1]))                                                       \
    X(POW, pow(v[0], v[1]))                                                                \
    X(NEG, -v[0])                                                                          \
    X(ABS, fabs(v[0]))                                                                     \
    X(FLOOR, floor(v[0]))                                                                  \
    X(CEIL, ceil(v[0]))                                                                    \
    X(SQUARE, v[0] * v[0])                                                                 \
    X(SQRT, sqrt(v[0]))                                                                    \
    X(RSQRT, 1 / sqrt(v[0]))                                                               \
    X(RECIPROCAL, 1 / v[0])                                                                \
    X(EXP, exp(v[0]))                                                                      \
    X(LOG, log(v[0]))                                                                      \
    X(COS, cos(v[0]))                                                                      \
    X(SIN, sin(v[0]))                                                                      \
    X(TANH, tanh(v[0]))                                                                    \
    X(ERF, erf(v[0]))                                                                      \
    X(SIGMOID, 1 / (1 + exp(-v[0])))                                                       \
    X(RELU, v[0] > 0 ? v[0] : 0)                                                           \
    X(SILU, v[0] / (1 + exp(-v[0])))                                                       \
    X(GELU, v[0] / 2 * (1 + erf(v[0] / sqrt(2))))                                          \
    X(GELU_TANH, v[0] / 2 * (1 + tanh(sqrt(2 / pi) * (v[0] + 0.044715 * pow(v[0], 3)))))   \
    X(MINIMUM, fmin(v[0], v[1]))                                                           \
    X(MAXIMUM, fmax(v[0], v[1]))                                                           \
    X(EQ, v[0] == v[1])                                                                    \
    X(NE, v[0] != v[1])                                                                    \
    X(LT, v[0] < v[1])                                                                     \
    X(LE, v[0] <= v[1])                                                                    \
    X(GT, v[0] > v[1])                                                                     \
    X(GE, v[0] >= v[1])                                                                    \
    X(AND, v[0] != 0 && v[1] != 0)                                                         \
    X(OR, v[0] != 0 || v[1] != 0)                                                          \
    X(NOT, v[0] == 0)                                                                      \
    X(ISNAN, isnan(v[0]))                                                                  \
    X(WHERE, v[0] != 0 ? v[1] : v[2])                                                      \
    X(FILL, v[1] != 0 ? v[2] : v[0])
enum point_id {
#define X(id, ...) POINT_##id,
    POINTS(X)
#undef X
        POINT_COUNT
};

struct point {
    const char *target;
    enum point_id id;
    const char *arg[3]; /* the names of its operands; NULL = no more */
};

/* NULL where the target is none of them. */
const struct point *point_find(const char *target);
double point_apply(enum point_id id, const double v[3]);

#endif
