/* Trying products, convolutions and attention before the training begins: on operands that nobody needs.
 * Also where the first choice counts (cuda_options.deterministic) each is run once, so that
 * libraries load their kernels now and not while a stream is captured. */
#include "cuda/cuda_attention_library.h"
#include "cuda/cuda_check.h"
#include "cuda/cuda_convolution.h"
#include "cuda/cuda_product.h"
#include "cuda/cuda_state.h"
#include "cuda/cuda_workspace_attention.h"

#include <stdlib.h>
#include <string.h>

/* Elements from the first to the last that a matrix by strides has. */
static int64_t reach(const struct matmul_n *n, const struct matrix *m, int64_t rows,
                     int64_t columns) {
    return 1 + (n->outer - 1) * m->outer + (n->inner - 1) * m->inner + (rows - 1) * m->row +
           (columns - 1) * m->column;
}

static bool by_strides(enum opcode code) {
    return code == I_matmul || code == I_matmul_dw;
}

/* One behind the other, as programs have them. */
struct instrs {
    const struct instr *p;
    int64_t n;
};

/* Is it what libraries do? */
static bool is_tried(const struct instr *ins) {
    const enum opcode code = ins->code;
    if (code == I_attention || code == I_attention_bwd)
        return cuda_workspace_attention_library(&ins->n.attention, ins->dtype,
                                                code == I_attention_bwd) >= 0;
    return code == I_linear || code == I_linear_dx || code == I_linear_dw ||
           code == I_orthogonalize || by_strides(code) || code == I_conv2d ||
           code == I_conv2d_dx || code == I_conv2d_dw;
}

/* Elements of the operands: those of strides may lie apart in something larger. */
static struct instr_work extents_of(const struct instr *ins) {
    const struct matmul_n *n = &ins->n.matmul;
    const struct matrices *s = &ins->matrices;
    struct instr_work w;
    instr_work(ins->code, &ins->n, &w);
    if (by_strides(ins->code)) {
        w.in[0] = reach(n, &s->a, n->m, n->k);
        w.in[1] = reach(n, &s->b, n->k, n->n);
        w.out[0] = reach(n, &s->y, n->m, n->n);
    }
    return w;
}

/* Numbers of about 0.01 in every type: products of zeros take less power, and so less time. */
static void *scratch(struct device *dev, int64_t bytes, struct err *err) {
    void *p = cuda_alloc(dev, bytes, err);
    if (p && cuda_check(cudaMemset(p, 0x3c, (size_t)bytes), "operands", err) < 0) {
        cuda_free(dev, p);
        return NULL;
    }
    return p;
}

static int alloc_operands(struct device *dev, const struct instr *ins, union instr_src *in,
                          union instr_dst *out, struct err *err) {
    const struct instr_info *info = instr_info(ins->code);
    const struct instr_work w = extents_of(ins);
    for (int i = 0; i < info->n_in; i++) {
        int64_t bytes = w.in[i] * dtype_size(operand_dtype(&info->in[i], ins->dtype));
        if (bytes && !(in->v[i] = scratch(dev, bytes, err)))
            return -1;
    }
    for (int i = 0; i < info->n_out; i++) {
        int64_t bytes = w.out[i] * dtype_size(operand_dtype(&info->out[i], ins->dtype));
        if (bytes && !(out->v[i] = scratch(dev, bytes, err)))
            return -1;
    }
    return 0;
}

/* With and without the bias, which one rank of a group adds. */
static int run(struct device_stream *s, const struct instr *ins, const union instr_src *in,
               const union instr_dst *out, struct err *err) {
    struct device_args args = {.dtype = ins->dtype, .matrices = &ins->matrices};
    for (int skip = 0; skip < (ins->code == I_linear && ins->axes ? 2 : 1); skip++) {
        args.skip_bias = skip;
        if (cuda_launch(s, ins->code, &ins->n, in, out, &args, err) < 0)
            return -1;
    }
    return device_synchronize(s, err);
}

static int tune(struct device *dev, const struct instr *ins, struct err *err) {
    union instr_src in = {{NULL}};
    union instr_dst out = {{NULL}};
    struct device_stream *s = device_stream_create(dev, err);
    int rc = s ? alloc_operands(dev, ins, &in, &out, err) : -1;
    if (rc == 0)
        rc = run(s, ins, &in, &out, err);
    for (int i = 0; i < INSTR_MAX_IN; i++)
        device_free(dev, in.v[i]);
    for (int i = 0; i < INSTR_MAX_OUT; i++)
        device_free(dev, out.v[i]);
    device_stream_destroy(s);
    return rc;
}

/* ---- pairs -------------------------------------------------------------------------------- */

static bool is_pair(const struct instrs *all, int64_t i) {
    return i + 1 < all->n && cuda_is_pair(&all->p[i], &all->p[i + 1]);
}

/* Is the first result of the second in the place of what it is made of? */
static bool in_place(const struct instr *second) {
    return second->out.v[0] ==
           (second->code == I_gelu ? second->in.gelu.x : second->in.gelu_dx.dy);
}

/* What both touch, each once: for the first as it is alone, for the second what it has besides. */
static int alloc_pair(struct device *dev, const struct instr *ins, struct cuda_given *a,
                      struct cuda_given *b, struct err *err) {
    const struct instr *next = ins + 1;
    const int64_t bytes = next->n.v[0] * dtype_size(ins->dtype);
    a->code = ins->code, a->n = ins->n;
    b->code = next->code, b->n = next->n;
    a->args.dtype = b->args.dtype = ins->dtype;
    if (alloc_operands(dev, ins, &a->in, &a->out, err) < 0)
        return -1;
    if (next->code == I_gelu)
        b->in.gelu.x = a->out.linear.y;
    else if (!(b->in.gelu_dx.x = scratch(dev, bytes, err)))
        return -1;
    else
        b->in.gelu_dx.dy = a->out.linear_dx.dx;
    b->out.v[0] = in_place(next) ? a->out.v[0] : scratch(dev, bytes, err);
    return b->out.v[0] ? 0 : -1;
}

static void free_pair(struct device *dev, const struct cuda_given *a,
                      const struct cuda_given *b) {
    if (b->out.v[0] != a->out.v[0])
        device_free(dev, b->out.v[0]);
    if (b->code == I_gelu_dx)
        device_free(dev, (void *)b->in.gelu_dx.x);
    for (int i = 0; i < INSTR_MAX_IN; i++)
        device_free(dev, (void *)a->in.v[i]);
    device_free(dev, a->out.v[0]);
}

static int run_pair(struct device_stream *s, struct cuda_given *a, struct cuda_given *b,
                    bool either, struct err *err) {
    for (int skip = 0; skip <= either; skip++) {
        a->args.skip_bias = skip;
        if (cuda_launch_pair(s, a, b, err) < 0)
            return -1;
    }
    return device_synchronize(s, err);
}

static int tune_pair(struct device *dev, const struct instr *ins, struct err *err) {
    struct cuda_given a = {.code = ins->code}, b = a;
    struct device_stream *s = device_stream_create(dev, err);
    int rc = s ? alloc_pair(dev, ins, &a, &b, err) : -1;
    if (rc == 0 && cuda_pair_fits(&a, &b))
        rc = run_pair(s, &a, &b, ins->code == I_linear && ins->axes, err);
    free_pair(dev, &a, &b);
    device_stream_destroy(s);
    return rc;
}

static bool alike(const struct instr *a, const struct instr *b) {
    const struct instr_key p = instr_key(a->code, a->dtype, &a->n);
    const struct instr_key q = instr_key(b->code, b->dtype, &b->n);
    return instr_key_equal(&p, &q) && (a->axes != 0) == (b->axes != 0) &&
           (!by_strides(a->code) ||
            !memcmp(&a->matrices, &b->matrices, sizeof a->matrices));
}

/* A stage's products and convolutions come again in every layer. */
static bool seen_before(const struct instrs *all, int64_t i) {
    for (int64_t k = 0; k < i; k++)
        if (alike(&all->p[k], &all->p[i]))
            return true;
    return false;
}

static bool pair_seen_before(const struct instrs *all, int64_t i) {
    for (int64_t k = 0; k < i; k++)
        if (alike(&all->p[k], &all->p[i]) && is_pair(all, k) &&
            in_place(&all->p[k + 1]) == in_place(&all->p[i + 1]))
            return true;
    return false;
}

/* Of operands and results together. */
static int64_t bytes_of(const struct instr *ins) {
    const struct instr_info *info = instr_info(ins->code);
    const struct instr_work w = extents_of(ins);
    int64_t bytes = 0;
    for (int i = 0; i < info->n_in; i++)
        bytes += w.in[i] * dtype_size(operand_dtype(&info->in[i], ins->dtype));
    for (int i = 0; i < info->n_out; i++)
        bytes += w.out[i] * dtype_size(operand_dtype(&info->out[i], ins->dtype));
    return bytes;
}

/* Those that take more bytes are left out. */
static int tune_all(struct device *dev, const struct instrs *all, int64_t most_bytes,
                    struct err *err) {
    for (int64_t i = 0; i < all->n; i++) {
        const struct instr *ins = &all->p[i];
        if (!is_tried(ins) || bytes_of(ins) > most_bytes)
            continue;
        if ((!seen_before(all, i) && tune(dev, ins, err) < 0) ||
            (is_pair(all, i) && !pair_seen_before(all, i) && tune_pair(dev, ins, err) < 0))
            return err_prefix(err, "trying products, convolutions and attention");
    }
    return 0;
}

int cuda_try(struct device *dev, const struct instr *instrs, int64_t n, int64_t most_bytes,
             struct err *err) {
    const struct instrs all = {instrs, n};
    return tune_all(dev, &all, most_bytes, err);
}

int cuda_tune(struct device *dev, const struct program *g, int rank, struct err *err) {
    const struct plan *p = g->plan;
    const int group = program_group_of_rank(g, rank);
    const struct cuda_device *d = &cuda_state_of(dev)->dev;
    int rc = 0;
    cuda_products_tune(d->products, true);
    cuda_convolutions_tune(d->convolutions, true);
    cuda_attentions_tune(d->attentions, true);
    for (int k = p->first_chunk[group]; k < p->first_chunk[group + 1] && rc == 0; k++) {
        const struct stage_program *sp = &g->stages[p->chunks[k]];
        const struct instrs all = {sp->instrs, sp->n_instrs};
        rc = tune_all(dev, &all, INT64_MAX, err);
    }
    cuda_products_tune(d->products, false);
    cuda_convolutions_tune(d->convolutions, false);
    cuda_attentions_tune(d->attentions, false);
    return rc;
}
