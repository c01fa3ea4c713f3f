/* plan-random.h - random models and random legal plans, the same for the same seed.
 *
 * A model is an embedding, up to three repeats (some inside others) and some ops between them,
 * and a loss. A plan has stages cut anywhere, meshes of up to MESH_MAX_AXES axes, and layouts
 * that are legal op by op: some alike in all blocks, some not.
 *
 *     struct rng r = {seed, 0};
 *     struct model *m = random_model(&r, 2);
 *     struct plan *p = random_plan(&r, m, &(struct plan_limits){.axes = 4, .devices = 64});
 */
#ifndef WEFT_TEST_PLAN_RANDOM_H
#define WEFT_TEST_PLAN_RANDOM_H

#include "common/rng.h"
#include "plan-move.h"
#include "plan/plan.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

/* ---- models ---------------------------------------------------------------------------- */

struct model_writer {
    struct rng *r;
    FILE *f;
    int names;   /* op names given so far */
    int repeats; /* that may still be written */
};

/* An op of the stream x[batch seq hidden], or a few that lead back to it. */
static void write_ops(struct model_writer *w) {
    int n = w->names++;
    const char *h = "\"dims\": [\"batch\", \"seq\", \"hidden\"]";
    switch (rng_below(w->r, 6)) {
    case 0:
        fprintf(
            w->f,
            "{\"name\": \"gelu%d\", \"kind\": \"gelu\", \"in\": [\"x\"], \"out\": \"x\", %s}",
            n, h);
        break;
    case 1:
        fprintf(
            w->f,
            "{\"name\": \"ln%d\", \"kind\": \"layernorm\", \"in\": [\"x\"], \"out\": \"x\", %s,"
            " \"weight\": {\"dims\": [\"hidden\"]}, \"bias\": {\"dims\": [\"hidden\"]}}",
            n, h);
        break;
    case 2:
        fprintf(
            w->f,
            "{\"name\": \"fc%d\", \"kind\": \"einsum\", \"in\": [\"x\"], \"out\": \"h\","
            " \"dims\": [\"batch\", \"seq\", \"wide\"], \"weight\": {\"dims\": [\"hidden\", \"wide\"]}},"
            "{\"name\": \"back%d\", \"kind\": \"einsum\", \"in\": [\"h\"], \"out\": \"h\", %s,"
            " \"weight\": {\"dims\": [\"wide\", \"hidden\"]}, \"bias\": {\"dims\": [\"hidden\"]}},"
            "{\"name\": \"add%d\", \"kind\": \"add\", \"in\": [\"x\", \"h\"], \"out\": \"x\", %s}",
            n, n, h, n, h);
        break;
    case 3:
        fprintf(
            w->f,
            "{\"name\": \"qkv%d\", \"kind\": \"einsum\", \"in\": [\"x\"], \"out\": \"h\","
            " \"dims\": [\"batch\", \"seq\", \"three\", \"heads\", \"kv\"],"
            " \"weight\": {\"dims\": [\"hidden\", \"three\", \"heads\", \"kv\"]}},"
            "{\"name\": \"attn%d\", \"kind\": \"attention\", \"in\": [\"h\"], \"out\": \"h\","
            " \"dims\": [\"batch\", \"seq\", \"heads\", \"kv\"]},"
            "{\"name\": \"proj%d\", \"kind\": \"einsum\", \"in\": [\"h\"], \"out\": \"x\", %s,"
            " \"weight\": {\"dims\": [\"heads\", \"kv\", \"hidden\"]}}",
            n, n, n, h);
        break;
    case 4:
        fprintf(
            w->f,
            "{\"name\": \"split%d\", \"kind\": \"reshape\", \"in\": [\"x\"], \"out\": \"h\","
            " \"dims\": [\"batch\", \"seq\", \"heads\", \"kv\"]},"
            "{\"name\": \"merge%d\", \"kind\": \"reshape\", \"in\": [\"h\"], \"out\": \"x\", %s}",
            n, n, h);
        break;
    case 5:
        fprintf(
            w->f,
            "{\"name\": \"skip%d\", \"kind\": \"add\", \"in\": [\"x\", \"x0\"], \"out\": \"x\", %s}",
            n, h);
        break;
    }
}

static void write_list(struct model_writer *w, int depth);

/* In some repeats the dim called "wide" is another in every block. */
static void write_repeat(struct model_writer *w, int depth) {
    int count = 1 + (int)rng_below(w->r, 3);
    w->repeats--;
    fprintf(w->f, "{\"name\": \"block%d\", \"repeat\": \"%d\",", w->names++, count);
    if (rng_below(w->r, 2)) {
        fprintf(w->f, " \"bind\": {\"wide\": [");
        for (int i = 0; i < count; i++)
            fprintf(w->f, "%s\"%s\"", i ? ", " : "", rng_below(w->r, 2) ? "ffn" : "vocab");
        fprintf(w->f, "]},");
    }
    fprintf(w->f, " \"ops\": [");
    write_list(w, depth + 1);
    fprintf(w->f, "]}");
}

static void write_list(struct model_writer *w, int depth) {
    int n = 1 + (int)rng_below(w->r, 3);
    for (int i = 0; i < n; i++) {
        fprintf(w->f, i ? ",\n " : "\n ");
        if (w->repeats > 0 && depth < 3 && rng_below(w->r, 2)) {
            write_repeat(w, depth);
        } else {
            write_ops(w);
        }
    }
}

static struct model *random_model(struct rng *r, int repeats) {
    char *text;
    size_t size;
    struct model_writer w = {r, open_memstream(&text, &size), 0, repeats};
    fprintf(
        w.f,
        "{\"format\": \"weft-model/1\", \"name\": \"random\","
        " \"sizes\": {\"seq\": 16, \"hidden\": 64, \"heads\": 16, \"kv\": 4, \"three\": 3,"
        "             \"ffn\": 96, \"wide\": 32, \"vocab\": 48},"
        " \"inputs\": {\"tokens\": {\"dims\": [\"batch\", \"seq\"], \"source\": \"token\"},"
        "  \"targets\": {\"dims\": [\"batch\", \"seq\"], \"source\": \"next-token\"}},"
        " \"ops\": ["
        " {\"name\": \"wte\", \"kind\": \"embedding\", \"in\": [\"tokens\"], \"out\": \"x0\","
        "  \"dims\": [\"batch\", \"seq\", \"hidden\"], \"weight\": {\"dims\": [\"vocab\", \"hidden\"]}},"
        " {\"name\": \"wpe\", \"kind\": \"bias\", \"in\": [\"x0\"], \"out\": \"x\","
        "  \"dims\": [\"batch\", \"seq\", \"hidden\"], \"weight\": {\"dims\": [\"seq\", \"hidden\"]}},");
    write_list(&w, 0);
    fprintf(
        w.f,
        ",\n {\"name\": \"head\", \"kind\": \"einsum\", \"in\": [\"x\"], \"out\": \"logits\","
        "  \"dims\": [\"batch\", \"seq\", \"vocab\"],"
        "  \"weight\": {\"dims\": [\"vocab\", \"hidden\"]%s}},"
        " {\"name\": \"loss\", \"kind\": \"cross-entropy\", \"in\": [\"logits\", \"targets\"],"
        "  \"out\": \"loss\", \"dims\": []}]}",
        rng_below(r, 2) ? ", \"tie\": \"wte.weight\"" : "");
    fclose(w.f);
    struct err err = {0};
    json_t *doc = json_parse(text, size, "random model", &err);
    struct model *m = doc ? model_from_json(doc, NULL, NULL, &err) : NULL;
    if (!m)
        printf("# %s\n%s\n", err.msg, text);
    json_decref(doc);
    free(text);
    return m;
}

/* ---- plans ----------------------------------------------------------------------------- */

struct plan_limits {
    int axes, stages; /* at most; stages 0 = 4 */
    int devices;      /* of one stage */
    int least_axes;
};

static void random_mesh(struct rng *r, const struct plan_limits *lim, struct mesh *mesh) {
    *mesh = (struct mesh){0};
    int n = lim->least_axes + (int)rng_below(r, lim->axes - lim->least_axes + 1);
    int devices = 1;
    for (int a = 0; a < n; a++) {
        static const int sizes[] = {1, 2, 2, 2, 2, 3, 4, 4, 4, 4, 8, 8};
        int size = sizes[rng_below(r, lim->devices < 1000 ? 8 : 12)];
        if (devices * size > lim->devices)
            size = 1;
        devices *= size;
        mesh->size[a] = size;
        snprintf(mesh->name[a], MESH_MAX_NAME, "%c", 'a' + a);
    }
    mesh->n_axes = n;
}

/* A legal layout: dims of the op's space at random, those that fit. Of ops that have something to
 * send round every other one does. */
static struct layout random_layout(struct rng *r, const struct plan *p,
                                   const struct mesh *mesh, const struct model_op *op) {
    struct layout l;
    memset(&l, PLACE_NONE, sizeof l);
    if (layout_ring(&op->space) != PLACE_NONE && rng_below(r, 2))
        l.ring = (int8_t)layout_ring(&op->space);
    for (int a = 0; a < mesh->n_axes && op->space.n; a++) {
        l.dim[a] = (int8_t)rng_below(r, op->space.n);
        if (rng_below(r, 4) == 0 ||
            layout_check(p->model, op, mesh, &l, p->micro_batch, NULL) < 0)
            l.dim[a] = PLACE_NONE;
    }
    return l;
}

/* The first op of the stage at the same place as op i, where that is earlier. */
static int same_file_op(const struct plan *p, const struct stage *st, int i) {
    int j = 0;
    while (p->model->ops[st->ops[j]].file_op != p->model->ops[st->ops[i]].file_op)
        j++;
    return j;
}

/* One level for most ops, others for a few. */
static void random_zero(struct rng *r, struct stage *st) {
    int usual = (int)rng_below(r, 1 + ZERO_PARAMETERS), mixed = rng_below(r, 3) == 0;
    for (int i = 0; i < st->n_ops; i++)
        st->zero[i] =
            (int8_t)(mixed && rng_below(r, 3) == 0 ? (int)rng_below(r, 1 + ZERO_PARAMETERS)
                                                   : usual);
}

/* On most stages nothing; one set for most ops, others for a few. */
static void random_offload(struct rng *r, struct stage *st) {
    int usual = rng_below(r, 3) ? 0 : (int)rng_below(r, OFFLOAD_SETS);
    for (int i = 0; usual && i < st->n_ops; i++)
        st->offload[i] =
            (int8_t)(rng_below(r, 4) == 0 ? (int)rng_below(r, OFFLOAD_SETS) : usual);
}

static void random_stage(struct rng *r, const struct plan *p, struct stage *st) {
    int alike = (int)rng_below(r, 3); /* in all blocks: always, mostly, never */
    for (int i = 0; i < st->n_ops; i++) {
        const struct model_op *op = &p->model->ops[st->ops[i]];
        int j = same_file_op(p, st, i);
        bool copy = j < i && (alike == 0 || (alike == 1 && rng_below(r, 4))) &&
                    layout_check(p->model, op, &st->mesh, &st->layouts[j], p->micro_batch,
                                 NULL) == 0;
        st->layouts[i] = copy ? st->layouts[j] : random_layout(r, p, &st->mesh, op);
        st->recompute[i] =
            !op_is(op, KIND_LOSSES) && (copy ? st->recompute[j] : rng_below(r, 4) == 0);
    }
    random_zero(r, st);
    random_offload(r, st);
    st->regather = rng_below(r, 3) == 0;
}

/* Groups may stand in any order on the ranks. */
static void shuffle_groups(struct rng *r, struct plan *p) {
    for (int a = p->n_groups - 1; a > 0; a--) {
        int b = (int)rng_below(r, a + 1);
        for (int s = 0; s < p->n_stages; s++) {
            int *group = &p->stages[s].group;
            *group = *group == a ? b : *group == b ? a : *group;
        }
    }
}

/* A schedule, and stages on groups as it can order them. */
static void random_groups(struct rng *r, struct plan *p) {
    p->schedule = (enum schedule)rng_below(r, SCHEDULE_COUNT);
    if (schedule_traits(p->schedule)->stages == STAGES_ROUND) {
        while (p->n_stages % (p->n_groups = 1 + (int)rng_below(r, p->n_stages))) {
        }
        for (int s = 0; s < p->n_stages; s++)
            p->stages[s].group = s % p->n_groups;
    } else if (schedule_traits(p->schedule)->stages == STAGES_ANY) {
        p->n_groups = 1 + (int)rng_below(r, p->n_stages);
        for (int s = 0; s < p->n_stages; s++)
            p->stages[s].group = s < p->n_groups ? s : (int)rng_below(r, p->n_groups);
    }
    shuffle_groups(r, p);
}

/* The axes of the group's first stage in another order. */
static void share_devices(struct rng *r, struct plan *p, int s) {
    int first = 0;
    while (p->stages[first].group != p->stages[s].group)
        first++;
    struct mesh *mesh = &p->stages[s].mesh;
    *mesh = p->stages[first].mesh;
    for (int a = mesh->n_axes - 1; a > 0 && first < s; a--) {
        int b = (int)rng_below(r, a + 1), size = mesh->size[a];
        mesh->size[a] = mesh->size[b];
        mesh->size[b] = size;
    }
}

static void random_average(struct rng *r, struct plan *p) {
    if (p->aggregate != AGGREGATE_mean || rng_below(r, 2))
        return;
    p->average = (enum average)rng_below(r, AVERAGE_COUNT);
    p->average_every = 1 + rng_below(r, 5);
}

/* On all axes whose name is not that of the first one. */
static void keep_together(struct plan *p) {
    const char *name = NULL;
    for (int s = 0; s < p->n_stages; s++)
        for (int a = 0; a < p->stages[s].mesh.n_axes; a++) {
            const struct mesh *mesh = &p->stages[s].mesh;
            name = name ? name : mesh->name[a];
            p->stages[s].together |= strcmp(mesh->name[a], name) ? 1u << a : 0;
        }
}

static struct plan *random_plan(struct rng *r, struct model *m,
                                const struct plan_limits *lim) {
    int stages = 1 + (int)rng_below(r, lim->stages ? lim->stages : 4), bounds[65];
    if (stages > m->n_ops)
        stages = m->n_ops;
    for (int s = 0; s <= stages; s++)
        bounds[s] = s * m->n_ops / stages;
    for (int s = 1; s < stages; s++) /* anywhere between the neighbours */
        bounds[s] =
            bounds[s - 1] + 1 + (int)rng_below(r, bounds[s + 1] - bounds[s - 1] - 1);
    struct plan *p = plan_create(m, stages, bounds);
    if (rng_below(r, 4) == 0)
        move_ops(r, p);
    random_groups(r, p);
    p->micro_batch = 8 << rng_below(r, 3);
    p->batch = p->micro_batch * (1 + rng_below(r, 4));
    p->optimizer = (enum optimizer)rng_below(r, OPTIMIZER_COUNT);
    p->dtype = (enum dtype)rng_below(r, DTYPE_f16 + 1);
    p->reduce = rng_below(r, 2) ? p->dtype : (enum dtype)rng_below(r, DTYPE_bf16 + 1);
    p->overlap = rng_below(r, 2);
    p->aggregate =
        rng_below(r, 2) ? AGGREGATE_mean : (enum aggregate)rng_below(r, AGGREGATE_COUNT);
    random_average(r, p);
    for (int s = 0; s < stages; s++) {
        random_mesh(r, lim, &p->stages[s].mesh);
        share_devices(r, p, s);
        random_stage(r, p, &p->stages[s]);
    }
    if (p->average && rng_below(r, 3) == 0)
        keep_together(p);
    p->logits = rng_below(r, 2) ? 1 : 2 + rng_below(r, 6);
    return p;
}

/* ---- comparison ------------------------------------------------------------------------ */

static bool same_stage(const struct stage *a, const struct stage *b) {
    size_t n = (size_t)a->n_ops;
    return a->n_ops == b->n_ops && !memcmp(&a->mesh, &b->mesh, sizeof a->mesh) &&
           !memcmp(a->ops, b->ops, n * sizeof *a->ops) &&
           !memcmp(a->layouts, b->layouts, n * sizeof *a->layouts) &&
           !memcmp(a->recompute, b->recompute, n * sizeof *a->recompute) &&
           !memcmp(a->zero, b->zero, n * sizeof *a->zero) && a->group == b->group &&
           a->together == b->together;
}

__attribute__((unused)) static bool same_plan(const struct plan *a, const struct plan *b) {
    bool same =
        a->model->hash == b->model->hash && a->batch == b->batch &&
        a->micro_batch == b->micro_batch && a->schedule == b->schedule &&
        a->optimizer == b->optimizer && a->dtype == b->dtype && a->reduce == b->reduce &&
        a->overlap == b->overlap && a->logits == b->logits && a->average == b->average &&
        (!a->average || a->average_every == b->average_every) && a->n_stages == b->n_stages;
    for (int s = 0; s < a->n_stages && same; s++)
        same = same_stage(&a->stages[s], &b->stages[s]);
    return same;
}

#endif
