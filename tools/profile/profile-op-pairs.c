/* Instructions that a GPU does in one call with another (cuda.h), beside which they stand in the model's program.
 * A profile has a row for each instruction; so one of the two is the time of it alone, and the other is what it
 * adds: the two of them in a captured region, less the one alone. Their sum is what is predicted.
 *
 * GELU and its gradient may be done in the product before, where that is faster: the row of the product is its own,
 * and GELU's is what it adds. Which products stand in front is read off the model's program. Norms with the sum of
 * a residual are in profile-op-norms.c. */
#include "profile-op.h"

#include "common/mem.h"

#include <math.h>
#include <stdlib.h>

/* ---- which products ----------------------------------------------------------------------- */

static bool is_product(enum opcode code) {
    return code == I_linear || code == I_linear_dx;
}

void pairs_of_program(const struct program *g, struct pairs *out) {
    for (int s = 0; s < g->n_stages; s++) {
        const struct stage_program *sp = &g->stages[s];
        for (int i = 0; i + 1 < sp->n_instrs; i++) {
            const struct instr *ins = &sp->instrs[i];
            if (is_product(ins->code) && cuda_is_pair(ins, ins + 1))
                arr_push(&out->products, instr_key(ins->code, ins->dtype, &ins->n));
        }
        norms_of_stage(sp, out);
    }
}

int pairs_of_model(struct model *m, enum dtype dtype, struct pairs *out, struct err *err) {
    const int bounds[] = {0, m->n_ops};
    struct plan *plan = plan_create(m, 1, bounds);
    plan->batch = plan->micro_batch = 1;
    plan->dtype = dtype;
    struct program *g = program_compile(plan, err);
    if (g)
        pairs_of_program(g, out);
    program_destroy(g);
    plan_destroy(plan);
    return g ? 0 : -1;
}

void pairs_release(struct pairs *p) {
    arr_release(&p->products);
    arr_release(&p->norms);
}

/* Elements of a row of what the product makes. */
static int64_t row_of(const struct instr_key *product) {
    return product->code == I_linear ? product->n.linear.n : product->n.linear_dx.k;
}

/* The same layer, on other rows; its result may be split. */
static bool is_share(const struct instr_key *key, const struct instr_key *whole) {
    const struct linear_n *a = &key->n.linear, *b = &whole->n.linear;
    if (key->code != whole->code || key->dtype != whole->dtype || a->wt != b->wt ||
        row_of(whole) % row_of(key))
        return false;
    return key->code == I_linear ? a->k == b->k && a->bias == b->bias : a->n == b->n;
}

static bool stands_before_gelu(const struct pairs *p, const struct instr_key *key) {
    for (int64_t i = 0; i < p->products.n; i++)
        if (is_share(key, &p->products.p[i]))
            return true;
    return false;
}

/* A product in front of a GELU or a gradient of so many elements; false: there is none. */
static bool product_before(const struct pairs *p, const struct instr_key *gelu,
                           struct instr_key *out) {
    const enum opcode code = gelu->code == I_gelu ? I_linear : I_linear_dx;
    const int64_t elems = gelu->n.v[0];
    for (int64_t i = 0; i < p->products.n; i++) {
        const struct instr_key *product = &p->products.p[i];
        if (product->code == code && product->dtype == gelu->dtype &&
            elems >= row_of(product)) {
            *out = *product;
            out->n.linear.m = elems / row_of(out); /* m comes first of both */
            return true;
        }
    }
    return false;
}

/* What stands behind it. */
static struct instr_key gelu_behind(const struct instr_key *product) {
    const union instr_n n = {.gelu = {.elems = product->n.linear.m * row_of(product)}};
    return instr_key(product->code == I_linear ? I_gelu : I_gelu_dx, product->dtype, &n);
}

/* ---- both ways ---------------------------------------------------------------------------- */

struct instrs {
    struct instr *p;
    int64_t n, cap;
};

static struct instr instr_of(const struct instr_key *key) {
    struct instr ins = instr_init(key->code);
    ins.dtype = key->dtype;
    ins.n = key->n;
    return ins;
}

/* As a program has them. Where nobody wants what GELU is of, it is in place. */
static void push_pair(struct instrs *out, const struct instr_key *product, bool in_place) {
    enum { RESULT, OTHER };
    const struct instr_key gelu = gelu_behind(product);
    struct instr a = instr_of(product), b = instr_of(&gelu);
    if (product->code == I_linear) {
        a.out.linear.y = b.in.gelu.x = RESULT;
        b.out.gelu.y = in_place ? RESULT : OTHER;
    } else {
        a.out.linear_dx.dx = b.in.gelu_dx.dy = b.out.gelu_dx.dx = RESULT;
        b.in.gelu_dx.x = OTHER;
    }
    arr_push(out, a);
    arr_push(out, b);
}

int pairs_try(const struct pairs *p, const struct instr_key *rows, int64_t n,
              struct bench *b, struct err *err) {
    struct instrs all = {NULL};
    for (int64_t i = 0; i < n; i++) {
        if (!is_product(rows[i].code) || !stands_before_gelu(p, &rows[i]))
            continue;
        push_pair(&all, &rows[i], false);
        if (rows[i].code == I_linear)
            push_pair(&all, &rows[i], true);
    }
    const int rc = cuda_try(b->device, all.p, all.n, b->budget, err);
    arr_release(&all);
    return rc;
}

/* ---- what it adds ------------------------------------------------------------------------- */

struct measured pairs_added(const struct measured *both, const struct measured *other) {
    const double us = fmax(0, both->median_us - other->median_us);
    const double wide = both->spread * both->median_us + other->spread * other->median_us;
    return (struct measured){us, us > 0 ? fmin(1, wide / us) : 1, both->repeats};
}

/* Rows that the library does not take are no pair. */
static bool may_fit(const struct instr_key *product) {
    enum { AUX_ROW = 8 };
    return row_of(product) % AUX_ROW == 0;
}

static int gelu_measure(struct bench *b, const struct pairs *p, const struct instr_key *key,
                        const struct limits *l, struct measured *out, struct err *err) {
    struct instr_key product;
    struct measured alone, both;
    if (!product_before(p, key, &product) || !may_fit(&product) ||
        bench_bytes(NULL, &product, 0) > b->budget / 2)
        return PAIRS_APART;
    const struct instr_key gelu = gelu_behind(&product);
    if (bench_prepare(b, &product, err) < 0)
        return -1;
    int rc = bench_measure(b, l, &alone, err);
    if (rc)
        return rc;
    if (bench_put_behind(b, &gelu, err) < 0)
        return -1;
    const int in_one = bench_run_pair(b, err);
    if (in_one <= 0)
        return in_one < 0 ? -1 : PAIRS_APART;
    rc = bench_measure(b, l, &both, err);
    if (rc)
        return rc;
    *out = pairs_added(&both, &alone);
    /* of all elements: the last row of them may be cut */
    out->median_us *= (double)key->n.gelu.elems / (double)gelu.n.gelu.elems;
    return 0;
}

int pairs_measure(struct bench *b, const struct pairs *p, const struct instr_key *key,
                  const struct limits *l, struct measured *out, struct err *err) {
    switch (key->code) {
    case I_gelu:
    case I_gelu_dx: return gelu_measure(b, p, key, l, out, err);
    case I_layernorm:
    case I_layernorm_bwd:
    case I_rmsnorm:
    case I_rmsnorm_bwd: return norms_measure(b, p, key, l, out, err);
    default: return PAIRS_APART;
    }
}
