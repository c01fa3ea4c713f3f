/* The matrix products of instr.def, by cuBLASLt (cuda_product.h). */
#include "cuda/cuda_product.h"

/* The library has as much workspace as is planned for a product, though a stream may have more: what is
 * chosen with so much in one program can be taken in any other. */
static int product(struct cuda_call *c, const struct cuda_product *p,
                   const struct cuda_operands *o) {
    const int64_t planned = WORKSPACE_GPU_PRODUCT;
    return cuda_product(c, p, o, c->workspace,
                        c->workspace_bytes < planned ? c->workspace_bytes : planned);
}

/* ---- linear layers ------------------------------------------------------------------------ */

CUDA_FUNCTION(linear) {
    const enum dtype type = c->args->dtype;
    const void *bias = c->args->skip_bias ? NULL : in->b;
    struct cuda_product p = {.type = type,
                             .type_y = type,
                             .tb = n->wt != 0,
                             .epilogue = bias ? PRODUCT_BIAS : PRODUCT_PLAIN,
                             .m = n->m,
                             .n = n->n,
                             .k = n->k,
                             .lda = n->k,
                             .ldb = n->wt ? n->k : n->n,
                             .ldy = n->n,
                             .batch = 1};
    const struct cuda_operands o = {in->x, in->w, out->y, in->b};
    int rc = product(c, &p, &o);
    if (rc <= 0)
        return rc;
    /* Where the library adds no bias, it is added behind the product. */
    const struct bias_n rows = {.elems = n->m * n->n, .inner = n->n};
    const struct bias_src src = {.x = out->y, .p = in->b};
    const struct bias_dst dst = {.y = out->y};
    p.epilogue = PRODUCT_PLAIN;
    return product(c, &p, &o) < 0 ? -1 : cuda_bias(c, &rows, &src, &dst);
}

CUDA_FUNCTION(linear_dx) {
    const enum dtype type = c->args->dtype;
    const struct cuda_product p = {.type = type,
                                   .type_y = type,
                                   .tb = n->wt == 0,
                                   .m = n->m,
                                   .n = n->k,
                                   .k = n->n,
                                   .lda = n->n,
                                   .ldb = n->wt ? n->k : n->n,
                                   .ldy = n->k,
                                   .batch = 1};
    return product(c, &p, &(struct cuda_operands){in->dy, in->w, out->dx, NULL});
}

/* db += the sum of dy's rows, by a pass of its own. */
static int row_sums(struct cuda_call *c, const struct linear_dw_n *n,
                    const struct linear_dw_src *in, const struct linear_dw_dst *out) {
    const struct bias_dw_n rows = {.elems = n->m * n->n, .inner = n->n};
    const struct bias_dw_src src = {.dy = in->dy};
    const struct bias_dw_dst dst = {.dp = out->db};
    return out->db ? cuda_bias_dw(c, &rows, &src, &dst) : 0;
}

/* dw = dy^T x where w is [n,k], else x^T dy. The library's epilogue would write the sums of dy, not
 * add to them, and has few algorithms that make them: they are a pass of their own, over what the
 * instruction before has just written. */
CUDA_FUNCTION(linear_dw) {
    const bool wt = n->wt != 0;
    const struct cuda_product p = {.type = c->args->dtype,
                                   .type_y = DTYPE_f32,
                                   .ta = true,
                                   .add = true,
                                   .m = wt ? n->n : n->k,
                                   .n = wt ? n->k : n->n,
                                   .k = n->m,
                                   .lda = wt ? n->n : n->k,
                                   .ldb = wt ? n->k : n->n,
                                   .ldy = wt ? n->k : n->n,
                                   .batch = 1};
    const struct cuda_operands o = {wt ? in->dy : in->x, wt ? in->x : in->dy, out->dw,
                                    NULL};
    return product(c, &p, &o) < 0 ? -1 : row_sums(c, n, in, out);
}

/* ---- products by strides ------------------------------------------------------------------ */

/* Which way a matrix lies: rows of columns that are neighbours, or the other way round. */
static bool transposed(const struct matrix *m) {
    return m->column != 1;
}

/* Elements from one run of neighbours to the next; a lone run may say anything. */
static int64_t leading(const struct matrix *m, int64_t rows, int64_t columns) {
    int64_t step = transposed(m) ? m->column : m->row, run = transposed(m) ? rows : columns;
    return step > run ? step : run;
}

static struct cuda_product product_of(const struct matrices *s, int64_t m, int64_t n,
                                      int64_t k, enum dtype type, bool add) {
    struct cuda_product p = {.type = type,
                             .type_y = add ? DTYPE_f32 : type,
                             .ta = transposed(&s->a),
                             .tb = transposed(&s->b),
                             .add = add,
                             .m = m,
                             .n = n,
                             .k = k,
                             .lda = leading(&s->a, m, k),
                             .ldb = leading(&s->b, k, n),
                             .ldy = leading(&s->y, m, n),
                             .batch = 1};
    return p;
}

/* Where the rows of y are neighbours, y^T = b^T a^T. */
static struct cuda_product exchanged(const struct cuda_product *p) {
    struct cuda_product t = *p;
    t.ta = !p->tb, t.tb = !p->ta;
    t.m = p->n, t.n = p->m;
    t.lda = p->ldb, t.ldb = p->lda;
    t.step_a = p->step_b, t.step_b = p->step_a;
    return t;
}

/* Two counts of products: how many, and elements from one to the next of each matrix. */
struct count {
    int64_t n, a, b, y;
};

/* One count where the outer goes on from where the inner ends. */
static bool joins(const struct count *outer, const struct count *inner) {
    return outer->a == inner->n * inner->a && outer->b == inner->n * inner->b &&
           outer->y == inner->n * inner->y;
}

/* Those of one count at once, unless all are summed in one place: then one after the other. */
static int run_count(struct cuda_call *c, struct cuda_product p, bool exchange,
                     const struct count *count, const char *a, const char *b, char *y) {
    const bool sums = count->y == 0 && count->n > 1;
    const int64_t size = dtype_size(p.type), size_y = dtype_size(p.type_y);
    p.batch = sums ? 1 : count->n;
    p.step_a = count->a, p.step_b = count->b, p.step_y = count->y;
    const struct cuda_product t = exchange ? exchanged(&p) : p;
    for (int64_t i = 0; i < (sums ? count->n : 1); i++) {
        const char *ai = a + i * count->a * size, *bi = b + i * count->b * size;
        const struct cuda_operands o = {exchange ? bi : ai, exchange ? ai : bi,
                                        y + i * count->y * size_y, NULL};
        if (product(c, &t, &o) < 0)
            return -1;
    }
    return 0;
}

/* outer x inner products; the larger count is given at once, the other is walked. */
static int products(struct cuda_call *c, const struct matmul_n *n, bool add, const void *a,
                    const void *b, void *y) {
    const struct matrices *s = c->args->matrices;
    const enum dtype type = c->args->dtype;
    struct cuda_product p = product_of(s, n->m, n->n, n->k, type, add);
    const int64_t size = dtype_size(type), size_y = dtype_size(p.type_y);
    struct count walk = {n->outer, s->a.outer, s->b.outer, s->y.outer};
    struct count once = {n->inner, s->a.inner, s->b.inner, s->y.inner};
    if (once.n == 1 || (once.y != 0 && joins(&walk, &once))) {
        const int64_t inner = once.n;
        once = once.n == 1 ? walk : once;
        once.n = inner * n->outer;
        walk = (struct count){1, 0, 0, 0};
    } else if (walk.n > once.n && walk.y != 0) {
        struct count other = walk;
        walk = once;
        once = other;
    }
    for (int64_t i = 0; i < walk.n; i++)
        if (run_count(c, p, transposed(&s->y), &once, (const char *)a + i * walk.a * size,
                      (const char *)b + i * walk.b * size,
                      (char *)y + i * walk.y * size_y) < 0)
            return -1;
    return 0;
}

CUDA_FUNCTION(matmul) {
    return products(c, n, false, in->a, in->b, out->y);
}

CUDA_FUNCTION(matmul_dw) {
    const struct matmul_n shape = {n->outer, n->inner, n->m, n->n, n->k, 0};
    return products(c, &shape, true, in->a, in->b, out->y);
}
