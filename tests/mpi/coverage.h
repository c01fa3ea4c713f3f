/* coverage.h - what random plans have between them: how many are of each family, schedule, level of
 * ZeRO, how many split each sort of dim, and so on, in one table whose rows are data.
 *
 * Rows that can be read off the project are made from it: a family is a file of share/models or
 * tests/models, a schedule a name of the plan's, a split a dim of a kind of op. So what is new is a
 * row without a word here, and an empty one until plans have it.
 *
 *     struct coverage c = coverage_rows();
 *     coverage_add(&c, plan);
 *     coverage_load(&c, "counts"); // those of other runs, added
 *     coverage_print(&c);
 */
#ifndef WEFT_TEST_COVERAGE_H
#define WEFT_TEST_COVERAGE_H

#include "plan/plan.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>

struct row {
    const char *group;
    char name[48];
    bool (*covers)(const struct plan *, const struct row *);
    int kind, a, b; /* what `covers` asks for */
    int64_t plans;  /* that have it */
};

enum { COVERAGE_MAX = 256 };
enum { COVERAGE_ERRORS = 3, COVERAGE_DTYPES = DTYPE_f16 + 1 };
struct coverage {
    int64_t plans;
    /* Differences of losses, gradients, parameters from one rank's in the same type. */
    double worst[COVERAGE_DTYPES][COVERAGE_ERRORS];
    int n;
    struct row rows[COVERAGE_MAX];
};

/* ---- what a plan may have ------------------------------------------------------------- */

static bool has_family(const struct plan *p, const struct row *r) {
    return !strcmp(p->model->name, r->name);
}

static bool has_ranks(const struct plan *p, const struct row *r) {
    return p->devices == r->a;
}

/* A schedule orders nothing where there is one stage. */
static bool has_schedule(const struct plan *p, const struct row *r) {
    return (int)p->schedule == r->a && p->n_groups > 1 && plan_micro_batches(p) > 1 &&
           (schedule_traits(p->schedule)->stages != STAGES_ROUND ||
            p->n_stages > p->n_groups);
}

static bool has_chunks(const struct plan *p, const struct row *r) {
    return p->n_stages == r->a * p->n_groups;
}

static bool has_dtype(const struct plan *p, const struct row *r) {
    return (int)p->dtype == r->a;
}

/* Replicas sum gradients in so many bits. */
static bool has_reduce(const struct plan *p, const struct row *r) {
    return p->dtype != DTYPE_f32 && (p->reduce != DTYPE_f32) == r->a &&
           p->devices > p->n_groups;
}

static bool has_optimizer(const struct plan *p, const struct row *r) {
    return (int)p->optimizer == r->a;
}

/* A level shares out what several ranks would hold alike. */
static bool has_zero(const struct plan *p, const struct row *r) {
    for (int s = 0; s < p->n_stages; s++) {
        const struct stage *st = &p->stages[s];
        for (int i = 0; i < st->n_ops; i++) {
            const struct model_op *op = &p->model->ops[st->ops[i]];
            for (int k = 0; k < op->n_param; k++) {
                if (op->param[k] < 0 || st->zero[i] != r->a)
                    continue;
                struct placement at =
                    placement_operand(&st->mesh, &st->layouts[i], &op->param_map[k]);
                unsigned alike = placement_axes(&st->mesh, at, PLACE_REPLICATE);
                if (mesh_group_size(&st->mesh, alike) > 1)
                    return true;
            }
        }
    }
    return false;
}

/* Does the stage split dim k of its op? */
static bool splits(const struct stage *st, int i, int k) {
    for (int a = 0; a < st->mesh.n_axes; a++)
        if (st->layouts[i].dim[a] == k && st->mesh.size[a] > 1)
            return true;
    return false;
}

/* Is a dim k split of some op, for which `is` holds? */
static bool any_split(const struct plan *p, const struct row *r,
                      bool (*is)(const struct model *, const struct model_op *, int k,
                                 const struct row *)) {
    for (int s = 0; s < p->n_stages; s++) {
        const struct stage *st = &p->stages[s];
        for (int i = 0; i < st->n_ops; i++) {
            const struct model_op *op = &p->model->ops[st->ops[i]];
            for (int k = 0; k < op->space.n; k++)
                if (is(p->model, op, k, r) && splits(st, i, k))
                    return true;
        }
    }
    return false;
}

static bool is_batch(const struct model *m, const struct model_op *op, int k,
                     const struct row *r) {
    (void)r;
    return op->space.dim[k] == m->batch;
}

/* What stands in the weight of a product: a = 1 if it is summed over. */
static bool is_tensor(const struct model *m, const struct model_op *op, int k,
                      const struct row *r) {
    (void)m;
    return op->kind == OP_einsum && op->n_param && op->param[0] >= 0 &&
           op->param_map[0].axis[k] >= 0 && (op->space.role[k] == ROLE_contracted) == r->a;
}

/* A dim of a norm that is neither its samples nor what it norms over. */
static bool is_position(const struct model *m, const struct model_op *op, int k,
                        const struct row *r) {
    (void)r;
    return (op->kind == OP_layernorm || op->kind == OP_rmsnorm) &&
           op->space.dim[k] != m->batch && op->space.role[k] == ROLE_parallel;
}

/* Axis b of operand a. */
static bool is_operand(const struct model *m, const struct model_op *op, int k,
                       const struct row *r) {
    (void)m;
    return (int)op->kind == r->kind && op->in_map[r->a].axis[k] == r->b;
}

static bool is_param(const struct model *m, const struct model_op *op, int k,
                     const struct row *r) {
    (void)m;
    return (int)op->kind == r->kind && op->param_map[r->a].axis[k] == r->b;
}

/* An axis of the operands of the products between dispatch and combine. */
static bool is_expert(const struct model *m, const struct model_op *op, int k,
                      const struct row *r) {
    int from = op->kind == OP_einsum ? m->tensors[op->in[0]].producer : -1;
    return from >= 0 && m->ops[from].kind == OP_dispatch && op->in_map[0].axis[k] == r->a;
}

static bool is_role(const struct model *m, const struct model_op *op, int k,
                    const struct row *r) {
    (void)m;
    return (int)op->kind == r->kind && (int)op->space.role[k] == r->a;
}

static bool has_kind(const struct plan *p, const struct row *r) {
    for (int i = 0; i < p->model->n_ops; i++)
        if ((int)p->model->ops[i].kind == r->kind)
            return true;
    return false;
}

/* Queries are split, and keys and values go round. */
static bool has_ring(const struct plan *p, const struct row *r) {
    for (int s = 0; s < p->n_stages; s++) {
        const struct stage *st = &p->stages[s];
        for (int i = 0; i < st->n_ops; i++) {
            const struct model_op *op = &p->model->ops[st->ops[i]];
            for (int k = 0; k < op->space.n; k++)
                if (st->layouts[i].ring != PLACE_NONE && is_operand(p->model, op, k, r) &&
                    splits(st, i, k))
                    return true;
        }
    }
    return false;
}

#define SPLIT(id)                                                                          \
    static bool has_##id(const struct plan *p, const struct row *r) {                      \
        return any_split(p, r, is_##id);                                                   \
    }
SPLIT(batch)
SPLIT(tensor)
SPLIT(position)
SPLIT(operand)
SPLIT(param)
SPLIT(expert)
SPLIT(role)

/* All ops as the word says, and some of them computed again. */
static bool has_recompute(const struct plan *p, const struct row *r) {
    int again = 0, kept = 0;
    for (int s = 0; s < p->n_stages; s++) {
        const struct stage *st = &p->stages[s];
        for (int i = 0; i < st->n_ops; i++) {
            if (r->a >= 0 &&
                st->recompute[i] !=
                    plan_recomputes(p->model, (enum recompute)r->a, st->ops[i]))
                return false;
            again += st->recompute[i];
            kept += !st->recompute[i];
        }
    }
    return r->a == RECOMPUTE_none || (again && kept);
}

/* Something of an op that has it lives in the memory of the host. */
static bool has_offload(const struct plan *p, const struct row *r) {
    for (int s = 0; s < p->n_stages; s++) {
        const struct stage *st = &p->stages[s];
        for (int i = 0; i < st->n_ops; i++) {
            const struct model_op *op = &p->model->ops[st->ops[i]];
            bool has = r->a == OFFLOAD_activations || (op->n_param && op->param[0] >= 0);
            if (has && st->offload[i] & r->a)
                return true;
        }
    }
    return false;
}

static bool has_regather(const struct plan *p, const struct row *r) {
    bool any = false;
    (void)r;
    for (int s = 0; s < p->n_stages; s++)
        any |= p->stages[s].regather && mesh_devices(&p->stages[s].mesh) > 1;
    return any;
}

static bool has_overlap(const struct plan *p, const struct row *r) {
    (void)r;
    return p->overlap && p->devices > p->n_groups;
}

/* A parameter that ops of several stages have. */
static bool has_tie(const struct plan *p, const struct row *r) {
    const struct model *m = p->model;
    (void)r;
    for (int i = 0; i < m->n_ops; i++)
        for (int k = 0; k < m->ops[i].n_param; k++) {
            int param = m->ops[i].param[k];
            if (param >= 0 && p->stage_of[m->params[param].first_op] != p->stage_of[i])
                return true;
        }
    return false;
}

static bool has_branches(const struct plan *p, const struct row *r) {
    (void)r;
    for (int i = 1; i < p->model->n_ops; i++)
        if (p->stage_of[i] < p->stage_of[i - 1])
            return true;
    return false;
}

/* A tensor that goes past a stage. */
static bool has_skip(const struct plan *p, const struct row *r) {
    const struct model *m = p->model;
    (void)r;
    for (int i = 0; i < m->n_ops; i++)
        for (int k = 0; k < m->ops[i].n_in; k++) {
            int from = m->tensors[m->ops[i].in[k]].producer;
            if (from >= 0 && p->stage_of[i] - p->stage_of[from] > 1)
                return true;
        }
    return false;
}

/* ---- the rows --------------------------------------------------------------------------- */

#define ROWS(X)                                                                            \
    X("optimizer", "adamw", has_optimizer, 0, OPTIMIZER_adamw, 0)                          \
    X("optimizer", "sgd", has_optimizer, 0, OPTIMIZER_sgd, 0)                              \
    X("optimizer", "lion", has_optimizer, 0, OPTIMIZER_lion, 0)                            \
    X("optimizer", "muon", has_optimizer, 0, OPTIMIZER_muon, 0)                            \
    X("dtype", "fp32", has_dtype, 0, DTYPE_f32, 0)                                         \
    X("dtype", "bf16", has_dtype, 0, DTYPE_bf16, 0)                                        \
    X("dtype", "fp16", has_dtype, 0, DTYPE_f16, 0)                                         \
    X("dtype", "16 bits, summed in 32", has_reduce, 0, 0, 0)                               \
    X("dtype", "16 bits, summed in 16", has_reduce, 0, 1, 0)                               \
    X("ranks", "1", has_ranks, 0, 1, 0)                                                    \
    X("ranks", "2", has_ranks, 0, 2, 0)                                                    \
    X("ranks", "3", has_ranks, 0, 3, 0)                                                    \
    X("ranks", "4", has_ranks, 0, 4, 0)                                                    \
    X("ranks", "6", has_ranks, 0, 6, 0)                                                    \
    X("ranks", "8", has_ranks, 0, 8, 0)                                                    \
    X("zero", "0", has_zero, 0, ZERO_NONE, 0)                                              \
    X("zero", "1", has_zero, 0, ZERO_OPTIMIZER, 0)                                         \
    X("zero", "2", has_zero, 0, ZERO_GRADIENTS, 0)                                         \
    X("zero", "3", has_zero, 0, ZERO_PARAMETERS, 0)                                        \
    X("recompute", "none", has_recompute, 0, RECOMPUTE_none, 0)                            \
    X("recompute", "selective", has_recompute, 0, RECOMPUTE_selective, 0)                  \
    X("recompute", "all", has_recompute, 0, RECOMPUTE_all, 0)                              \
    X("recompute", "some ops", has_recompute, 0, -1, 0)                                    \
    X("stages", "1 a group", has_chunks, 0, 1, 0)                                          \
    X("stages", "2 a group", has_chunks, 0, 2, 0)                                          \
    X("stages", "3 a group", has_chunks, 0, 3, 0)                                          \
    X("stages", "4 a group", has_chunks, 0, 4, 0)                                          \
    X("stages", "ops not in a row", has_branches, 0, 0, 0)                                 \
    X("stages", "tied parameter", has_tie, 0, 0, 0)                                        \
    X("stages", "tensor past a stage", has_skip, 0, 0, 0)                                  \
    X("collectives", "regather", has_regather, 0, 0, 0)                                    \
    X("collectives", "overlap", has_overlap, 0, 0, 0)                                      \
    X("split", "data", has_batch, 0, 0, 0)                                                 \
    X("split", "tensor, output", has_tensor, 0, 0, 0)                                      \
    X("split", "tensor, input", has_tensor, 0, 1, 0)                                       \
    X("split", "heads", has_operand, OP_attention, 0, 2)                                   \
    X("split", "heads, packed", has_operand, OP_attention_packed, 0, 3)                    \
    X("split", "sequence", has_position, 0, 0, 0)                                          \
    X("split", "context", has_operand, OP_attention, 0, 1)                                 \
    X("split", "context, in a ring", has_ring, OP_attention, 0, 1)                         \
    X("split", "vocabulary, table", has_param, OP_embedding, 0, 0)                         \
    X("split", "vocabulary, loss", has_role, OP_cross_entropy, ROLE_coupled, 0)            \
    X("split", "expert", has_expert, 0, 0, 0)                                              \
    X("split", "height", has_operand, OP_conv2d, 0, 1)                                     \
    X("split", "width", has_operand, OP_conv2d, 0, 2)                                      \
    X("split", "channels in", has_param, OP_conv2d, 0, 2)                                  \
    X("split", "channels out", has_param, OP_conv2d, 0, 3)                                 \
    X("split", "batch-norm group", has_operand, OP_batchnorm, 0, 0)

static struct row *coverage_row(struct coverage *c, const char *group, const char *name) {
    struct row *r = &c->rows[c->n];
    c->n += c->n < COVERAGE_MAX - 1;
    *r = (struct row){.group = group};
    snprintf(r->name, sizeof r->name, "%s", name);
    return r;
}

static void add_families(struct coverage *c, const char *pattern) {
    glob_t files;
    if (glob(pattern, 0, NULL, &files) == 0)
        for (size_t i = 0; i < files.gl_pathc; i++) {
            const char *base = strrchr(files.gl_pathv[i], '/') + 1;
            struct row *r = coverage_row(c, "family", base);
            r->name[strlen(r->name) - strlen(".json")] = 0;
            r->covers = has_family;
        }
    globfree(&files);
}

/* The name of a kind's form. */
static const char *kind_id(int kind) {
    static const char *const names[] = {
#define X(id, ...) #id,
        KINDS(X)
#undef X
    };
    return names[kind];
}

/* Behind them come those of the models' ops. */
static struct coverage coverage_rows(void) {
    struct coverage c = {0};
    add_families(&c, "share/models/*.json");
    add_families(&c, "tests/models/*.json");
    for (int s = 0; s < SCHEDULE_COUNT; s++) {
        struct row *r = coverage_row(&c, "schedule", schedule_name((enum schedule)s));
        r->covers = has_schedule;
        r->a = s;
    }
#define X(g, text, f, k, x, y)                                                             \
    {                                                                                      \
        struct row *r = coverage_row(&c, g, text);                                         \
        r->covers = f, r->kind = k, r->a = x, r->b = y;                                    \
    }
    ROWS(X)
#undef X
#define X(text, bit)                                                                       \
    {                                                                                      \
        struct row *r = coverage_row(&c, "offload", #text);                                \
        r->covers = has_offload, r->a = bit;                                               \
    }
    OFFLOADS(X)
#undef X
    for (int k = 0; k < KIND_COUNT; k++) {
        struct row *r = coverage_row(&c, "kind", kind_id(k));
        r->covers = has_kind, r->kind = k;
    }
    return c;
}

/* The dims of a model's ops that can be split, by kind and role. */
static void coverage_of_model(struct coverage *c, const struct model *m) {
    for (int i = 0; i < m->n_ops; i++) {
        const struct op_space *x = &m->ops[i].space;
        for (int k = 0; k < x->n; k++) {
            int kind = (int)m->ops[i].kind, role = (int)x->role[k], at = 0;
            while (at < c->n && (c->rows[at].covers != has_role ||
                                 c->rows[at].kind != kind || c->rows[at].a != role))
                at++;
            if (at == c->n && role_splits(x->role[k])) {
                struct row *r = coverage_row(c, "role", kind_id(kind));
                size_t n = strlen(r->name);
                snprintf(r->name + n, sizeof r->name - n, " %s", role_name(x->role[k]));
                r->covers = has_role, r->kind = kind, r->a = role;
            }
        }
    }
}

/* ---- counting --------------------------------------------------------------------------- */

static void coverage_add(struct coverage *c, const struct plan *p) {
    c->plans++;
    for (int i = 0; i < c->n; i++)
        c->rows[i].plans += c->rows[i].covers(p, &c->rows[i]);
}

static void coverage_worst(struct coverage *c, enum dtype dtype,
                           const double error[COVERAGE_ERRORS]) {
    for (int i = 0; i < COVERAGE_ERRORS; i++)
        c->worst[dtype][i] = error[i] > c->worst[dtype][i] ? error[i] : c->worst[dtype][i];
}

/* Adds what is in a file, if there is one. */
static void coverage_load(struct coverage *c, const char *path) {
    FILE *f = fopen(path, "r");
    long long n = 0;
    if (!f)
        return;
    if (fscanf(f, "%lld", &n) == 1)
        c->plans += n;
    for (int t = 0; t < COVERAGE_DTYPES; t++) {
        double worst[COVERAGE_ERRORS] = {0};
        for (int i = 0; i < COVERAGE_ERRORS; i++)
            if (fscanf(f, "%lf", &worst[i]) != 1)
                worst[i] = 0;
        coverage_worst(c, (enum dtype)t, worst);
    }
    for (int i = 0; i < c->n && fscanf(f, "%lld", &n) == 1; i++)
        c->rows[i].plans += n;
    fclose(f);
}

static bool coverage_save(const struct coverage *c, const char *path) {
    FILE *f = fopen(path, "w");
    if (!f)
        return false;
    fprintf(f, "%lld\n", (long long)c->plans);
    for (int t = 0; t < COVERAGE_DTYPES; t++)
        for (int i = 0; i < COVERAGE_ERRORS; i++)
            fprintf(f, "%g\n", c->worst[t][i]);
    for (int i = 0; i < c->n; i++)
        fprintf(f, "%lld\n", (long long)c->rows[i].plans);
    return fclose(f) == 0;
}

/* A line for each row, under the name of its group. */
static void coverage_print(const struct coverage *c) {
    printf("#| %lld plans; largest differences from one rank of the same dtype:\n",
           (long long)c->plans);
    for (int t = 0; t < COVERAGE_DTYPES; t++)
        printf("#| %s: losses %.1e, gradients %.1e, parameters %.1e\n",
               plan_dtype_name((enum dtype)t), c->worst[t][0], c->worst[t][1],
               c->worst[t][2]);
    for (int i = 0; i < c->n; i++) {
        const struct row *r = &c->rows[i];
        bool first = i == 0 || strcmp(r[-1].group, r->group) != 0;
        printf("#| %-12s %-28s %6lld\n", first ? r->group : "", r->name,
               (long long)r->plans);
    }
}

#endif
