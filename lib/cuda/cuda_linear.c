/* The matrix products of instr.def, by cuBLASLt (cuda_product.h). */
#include "cuda/cuda_linear.h"

#include "cuda/cuda_check.h"

static int product(struct cuda_call *c, const struct cuda_product *p,
                   const struct cuda_operands *o) {
    return cuda_product(c, p, o, c->workspace, cuda_product_workspace(c));
}

/* ---- linear layers ------------------------------------------------------------------------ */

struct cuda_product cuda_linear_product(const struct linear_n *n, enum dtype type) {
    return (struct cuda_product){.type = type,
                                 .type_y = type,
                                 .tb = n->wt != 0,
                                 .m = n->m,
                                 .n = n->n,
                                 .k = n->k,
                                 .lda = n->k,
                                 .ldb = n->wt ? n->k : n->n,
                                 .ldy = n->n,
                                 .batch = 1};
}

struct cuda_product cuda_linear_dx_product(const struct linear_dx_n *n, enum dtype type) {
    return (struct cuda_product){.type = type,
                                 .type_y = type,
                                 .tb = n->wt == 0,
                                 .m = n->m,
                                 .n = n->k,
                                 .k = n->n,
                                 .lda = n->n,
                                 .ldb = n->wt ? n->k : n->n,
                                 .ldy = n->k,
                                 .batch = 1};
}

CUDA_FUNCTION(linear) {
    struct cuda_product p = cuda_linear_product(n, c->args->dtype);
    const struct cuda_operands o = {.a = in->x, .b = in->w, .y = out->y, .vector = in->b};
    p.epilogue = in->b && !c->args->skip_bias ? PRODUCT_BIAS : PRODUCT_PLAIN;
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
    const struct cuda_product p = cuda_linear_dx_product(n, c->args->dtype);
    const struct cuda_operands o = {.a = in->dy, .b = in->w, .y = out->dx};
    return product(c, &p, &o);
}

/* ---- gradients of weights and bias -------------------------------------------------------- */

/* db += the sum of dy's rows, by a pass of its own. */
static int row_sums(struct cuda_call *c, const struct linear_dw_n *n,
                    const struct linear_dw_src *in, const struct linear_dw_dst *out) {
    const struct bias_dw_n rows = {.elems = n->m * n->n, .inner = n->n};
    const struct bias_dw_src src = {.dy = in->dy};
    const struct bias_dw_dst dst = {.dp = out->db};
    return out->db ? cuda_bias_dw(c, &rows, &src, &dst) : 0;
}

/* dw = dy^T x where w is [n,k], else x^T dy. */
struct gradient {
    const struct linear_dw_n *n;
    const struct linear_dw_src *in;
    const struct linear_dw_dst *out;
    struct cuda_product p;  /* with sums of dy */
    struct cuda_operands o; /* the sums are written to the first of the workspace */
};

static struct gradient gradient_of(struct cuda_call *c, const struct linear_dw_n *n,
                                   const struct linear_dw_src *in,
                                   const struct linear_dw_dst *out) {
    const bool wt = n->wt != 0;
    const struct cuda_product p = {.type = c->args->dtype,
                                   .type_y = DTYPE_f32,
                                   .ta = true,
                                   .add = true,
                                   .epilogue = wt ? PRODUCT_SUMS_A : PRODUCT_SUMS_B,
                                   .m = wt ? n->n : n->k,
                                   .n = wt ? n->k : n->n,
                                   .k = n->m,
                                   .lda = wt ? n->n : n->k,
                                   .ldb = wt ? n->k : n->n,
                                   .ldy = wt ? n->k : n->n,
                                   .batch = 1};
    const struct cuda_operands o = {.a = wt ? in->dy : in->x,
                                    .b = wt ? in->x : in->dy,
                                    .y = out->dw,
                                    .vector = c->workspace,
                                    .fresh = c->args->fresh};
    return (struct gradient){n, in, out, p, o};
}

static int gradient_apart(struct cuda_call *c, const void *arg) {
    const struct gradient *g = arg;
    struct cuda_product p = g->p;
    p.epilogue = PRODUCT_PLAIN;
    return product(c, &p, &g->o) < 0 ? -1 : row_sums(c, g->n, g->in, g->out);
}

/* The library writes the sums, in floats as dw is, and weft adds: db += them, or is them. */
static int add_sums(struct cuda_call *c, const void *arg) {
    const struct gradient *g = arg;
    if (g->o.fresh)
        return cuda_check(cudaMemcpyAsync(g->out->db, g->o.vector,
                                          (size_t)(g->n->n * dtype_size(DTYPE_f32)),
                                          cudaMemcpyDeviceToDevice, c->stream),
                          "copying", c->err);
    const struct device_args floats = {.dtype = DTYPE_f32};
    const struct add_n n = {.elems = g->n->n};
    const struct add_src src = {.a = g->out->db, .b = g->o.vector};
    const struct add_dst dst = {.y = g->out->db};
    struct cuda_call own = *c;
    own.args = &floats;
    return cuda_add(&own, &n, &src, &dst);
}

CUDA_FUNCTION(linear_dw) {
    enum { LINE = 256 };
    const struct gradient g = gradient_of(c, n, in, out);
    const int64_t bytes = n->n * dtype_size(DTYPE_f32);
    const int64_t sums = (bytes + LINE - 1) / LINE * LINE;
    const int64_t left = cuda_product_workspace(c) - sums;
    if (!out->db || left < sums)
        return gradient_apart(c, &g);
    const struct cuda_rivals rivals = {gradient_apart, add_sums, &g};
    const int rc =
        cuda_product_either(c, &g.p, &g.o, (char *)c->workspace + sums, left, &rivals);
    return rc < 0 ? -1 : 0;
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
                     const struct count *count, bool fresh, const char *a, const char *b,
                     char *y) {
    const bool sums = count->y == 0 && count->n > 1;
    const int64_t size = dtype_size(p.type), size_y = dtype_size(p.type_y);
    p.batch = sums ? 1 : count->n;
    p.step_a = count->a, p.step_b = count->b, p.step_y = count->y;
    const struct cuda_product t = exchange ? exchanged(&p) : p;
    for (int64_t i = 0; i < (sums ? count->n : 1); i++) {
        const char *ai = a + i * count->a * size, *bi = b + i * count->b * size;
        const struct cuda_operands o = {.a = exchange ? bi : ai,
                                        .b = exchange ? ai : bi,
                                        .y = y + i * count->y * size_y,
                                        .fresh = fresh && i == 0};
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
        if (run_count(
                c, p, transposed(&s->y), &once, c->args->fresh && (i == 0 || walk.y != 0),
                (const char *)a + i * walk.a * size, (const char *)b + i * walk.b * size,
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
