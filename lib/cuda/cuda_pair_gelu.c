/* GELU in the product before it (cuda_pair.h): y = gelu(x w + b), with its argument kept as aux; and
 * dx = (dy w^T) gelu'(aux). */
#include "cuda/cuda_pair.h"

#include "cuda/cuda_linear.h"

/* What the library asks of aux (cublasLt.h): elements of a row; and bytes, for vectors. */
enum { AUX_ROW = 8, AUX_ALIGNMENT = 16 };

static bool aux_lies_well(const void *aux, int64_t row) {
    return row % AUX_ROW == 0 && (uintptr_t)aux % AUX_ALIGNMENT == 0;
}

/* The second may be given a place that was free behind the first: an operand's of the first. */
static bool fits_forward(const struct cuda_given *first, const struct cuda_given *second) {
    const struct linear_n *n = &first->n.linear;
    const struct linear_src *in = &first->in.linear;
    const void *aux = first->out.linear.y, *y = second->out.gelu.y;
    const int64_t size = dtype_size(first->args.dtype), bytes = n->m * n->n * size;
    if (second->in.gelu.x != aux || second->n.gelu.elems != n->m * n->n)
        return false;
    if (y == aux)
        return true;
    return aux_lies_well(aux, n->n) && cuda_disjoint(y, bytes, in->x, n->m * n->k * size) &&
           cuda_disjoint(y, bytes, in->w, n->k * n->n * size) &&
           (!in->b || cuda_disjoint(y, bytes, in->b, n->n * size));
}

/* The gradient is in the place of what the product makes: so nobody else wants that. */
static bool fits_backward(const struct cuda_given *first, const struct cuda_given *second) {
    const struct linear_dx_n *n = &first->n.linear_dx;
    const void *dx = first->out.linear_dx.dx;
    return second->in.gelu_dx.dy == dx && second->out.gelu_dx.dx == dx &&
           second->n.gelu_dx.elems == n->m * n->k &&
           aux_lies_well(second->in.gelu_dx.x, n->k);
}

bool cuda_pair_gelu_fits(const struct cuda_given *first, const struct cuda_given *second) {
    return first->code == I_linear ? fits_forward(first, second)
                                   : fits_backward(first, second);
}

/* ---- in one ------------------------------------------------------------------------------- */

static enum cuda_epilogue forward_epilogue(bool bias, bool keeps) {
    if (bias)
        return keeps ? PRODUCT_GELU_AUX_BIAS : PRODUCT_GELU_BIAS;
    return keeps ? PRODUCT_GELU_AUX : PRODUCT_GELU;
}

static struct cuda_product product_of(const struct cuda_given *first,
                                      const struct cuda_given *second,
                                      struct cuda_operands *o) {
    const struct linear_src *in = &first->in.linear;
    const enum dtype type = first->args.dtype;
    struct cuda_product p;
    if (first->code == I_linear_dx) {
        p = cuda_linear_dx_product(&first->n.linear_dx, type);
        p.epilogue = PRODUCT_DGELU;
        *o = (struct cuda_operands){.a = first->in.linear_dx.dy,
                                    .b = first->in.linear_dx.w,
                                    .y = second->out.gelu_dx.dx,
                                    .aux = (void *)second->in.gelu_dx.x};
        return p;
    }
    void *y = second->out.gelu.y, *aux = first->out.linear.y;
    p = cuda_linear_product(&first->n.linear, type);
    p.epilogue = forward_epilogue(in->b && !first->args.skip_bias, y != aux);
    *o =
        (struct cuda_operands){.a = in->x, .b = in->w, .y = y, .vector = in->b, .aux = aux};
    return p;
}

/* ---- one by one --------------------------------------------------------------------------- */

static int give_one(struct cuda_call *c, const struct cuda_given *one) {
    struct cuda_call own = *c;
    own.args = &one->args;
    switch (one->code) {
    case I_linear:
        return cuda_linear(&own, &one->n.linear, &one->in.linear, &one->out.linear);
    case I_linear_dx:
        return cuda_linear_dx(&own, &one->n.linear_dx, &one->in.linear_dx,
                              &one->out.linear_dx);
    case I_gelu: return cuda_gelu(&own, &one->n.gelu, &one->in.gelu, &one->out.gelu);
    default:
        return cuda_gelu_dx(&own, &one->n.gelu_dx, &one->in.gelu_dx, &one->out.gelu_dx);
    }
}

struct pair {
    const struct cuda_given *first, *second;
};

static int give_apart(struct cuda_call *c, const void *arg) {
    const struct pair *t = arg;
    return give_one(c, t->first) < 0 ? -1 : give_one(c, t->second);
}

int cuda_pair_gelu_give(struct cuda_call *c, const struct cuda_given *first,
                        const struct cuda_given *second) {
    struct cuda_operands o;
    const struct cuda_product p = product_of(first, second, &o);
    const struct pair both = {first, second};
    const struct cuda_rivals rivals = {give_apart, NULL, &both};
    return cuda_product_either(c, &p, &o, c->workspace, cuda_product_workspace(c), &rivals);
}
