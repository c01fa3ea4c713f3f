/* GELU and its gradient where a GPU's library does them in the product before (cuda.h).
 *
 * A recording gives the two instructions as one call where that is faster. So a row of GELU is what it adds
 * to the product in front of it: the two of them in a recording, less the product alone. Which products stand in
 * front is read off the model's program. Where they go one by one, a row is the instruction's as any other's.
 *
 * Behind each row of such a product both ways are tried, too, which keeps the faster one in the profile. */
#include "profile-op.h"

#include <math.h>

/* ---- which products ----------------------------------------------------------------------- */

void pairs_of_program(const struct program *g, struct pairs *out) {
    for (int s = 0; s < g->n_stages; s++)
        for (int i = 0; i + 1 < g->stages[s].n_instrs; i++) {
            const struct instr *ins = &g->stages[s].instrs[i];
            if (cuda_is_pair(ins, ins + 1))
                arr_push(out, instr_key(ins->code, ins->dtype, &ins->n));
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

bool pairs_have(const struct pairs *p, const struct instr_key *key) {
    for (int64_t i = 0; i < p->n; i++)
        if (is_share(key, &p->p[i]))
            return true;
    return false;
}

/* A product in front of a GELU or a gradient of so many elements; false: there is none. */
static bool product_before(const struct pairs *p, const struct instr_key *gelu,
                           struct instr_key *out) {
    const enum opcode code = gelu->code == I_gelu ? I_linear : I_linear_dx;
    const int64_t elems = gelu->n.v[0];
    for (int64_t i = 0; i < p->n; i++)
        if (p->p[i].code == code && p->p[i].dtype == gelu->dtype &&
            elems >= row_of(&p->p[i])) {
            *out = p->p[i];
            out->n.linear.m = elems / row_of(out); /* m comes first of both */
            return true;
        }
    return false;
}

/* ---- both ways ---------------------------------------------------------------------------- */

/* Both instructions on the product's operands and `beside`. */
static int launch_both(struct bench *b, bool in_place, struct err *err) {
    struct cuda_given first = {.code = b->key.code, .n = b->key.n}, second;
    first.args.dtype = b->key.dtype;
    operands_at(b, 0, &first.in, &first.out);
    bench_behind(b, &first.out, &second);
    if (in_place && second.code == I_gelu)
        second.out.gelu.y = first.out.linear.y;
    return cuda_launch_pair(b->stream, &first, &second, err);
}

/* cuda_launch_pair() takes a pair only: rows that the library does not take are none. */
static bool may_fit(const struct instr_key *product) {
    enum { AUX_ROW = 8 };
    return row_of(product) % AUX_ROW == 0;
}

int pairs_try(struct bench *b, struct err *err) {
    if (!may_fit(&b->key))
        return 0;
    b->beside = device_alloc(
        b->device, b->key.n.v[0] * row_of(&b->key) * dtype_size(b->key.dtype), err);
    if (!b->beside)
        return -1;
    int kept = launch_both(b, false, err), rc = kept;
    if (rc >= 0 && b->key.code == I_linear) /* where nobody wants what it is of */
        rc = launch_both(b, true, err);
    if (rc >= 0 && device_synchronize(b->stream, err) < 0)
        rc = -1;
    device_free(b->device, b->beside);
    b->beside = NULL;
    return rc < 0 ? -1 : kept;
}

/* ---- what it adds ------------------------------------------------------------------------- */

/* The product alone, then with what is behind it. */
static int measure_added(struct bench *b, const struct limits *l, struct measured *out,
                         struct err *err) {
    struct measured alone, both;
    int rc = bench_measure(b, l, &alone, err);
    if (rc)
        return rc;
    b->beside = device_alloc(
        b->device, b->key.n.v[0] * row_of(&b->key) * dtype_size(b->key.dtype), err);
    rc = b->beside ? bench_measure(b, l, &both, err) : -1;
    device_free(b->device, b->beside);
    b->beside = NULL;
    if (rc == 0) {
        const double us = fmax(0, both.median_us - alone.median_us);
        const double wide = alone.spread * alone.median_us + both.spread * both.median_us;
        *out = (struct measured){us, us > 0 ? fmin(1, wide / us) : 1, both.repeats};
    }
    return rc;
}

int pairs_measure(struct bench *b, const struct pairs *p, const struct instr_key *key,
                  const struct limits *l, struct measured *out, struct err *err) {
    struct instr_key product;
    if ((key->code != I_gelu && key->code != I_gelu_dx) ||
        !product_before(p, key, &product) || bench_bytes(&product, 0) > b->budget / 2)
        return PAIRS_APART;
    if (bench_prepare(b, &product, err) < 0 || bench_run(b, err) < 0)
        return -1;
    const int fused = pairs_try(b, err);
    if (fused <= 0)
        return fused < 0 ? -1 : PAIRS_APART;
    const int rc = measure_added(b, l, out, err);
    /* of all elements: the last row of them may be cut */
    out->median_us *= (double)key->n.v[0] / (double)(product.n.linear.m * row_of(&product));
    return rc;
}
