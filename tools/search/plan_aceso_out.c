/* To Aceso: what a plan says of each op, in the few words that Aceso has for it; what it has none for
 * is refused. */
#include "plan_aceso.h"

#include "plan_tool.h"

#include "plan/aceso_lists.h"

#include <stdlib.h>
#include <string.h>

/* What Aceso says of one op. */
struct said {
    int tp, dp, algorithm;
};

static int unsaid(const struct plan *p, int op, const struct mesh *mesh, int axis,
                  const char *what, struct err *err) {
    return err_input(err, "%s: axis %s %s, which Aceso cannot say", p->model->ops[op].name,
                     mesh->name[axis], what);
}

/* Axes that split batch are dp, those inside of them tp: all on the dim of one algorithm, or, for an
 * op that Aceso splits on none, on none. */
static int say_op(const struct plan *p, const struct aceso_op *as, int op,
                  const struct mesh *mesh, const struct layout *l, struct said *out,
                  struct err *err) {
    const struct model *m = p->model;
    const struct op_space *space = &m->ops[op].space;
    *out = (struct said){1, 1, 0};
    for (int a = mesh->n_axes - 1; a >= 0; a--) {
        const char *dim =
            l->dim[a] == PLACE_NONE ? NULL : m->dims[space->dim[l->dim[a]]].name;
        if (mesh->size[a] == 1)
            continue;
        if (dim && !strcmp(dim, "batch")) {
            out->dp *= mesh->size[a];
            continue;
        }
        if (out->dp > 1)
            return unsaid(p, op, mesh, a, "lies outside of one that splits batch", err);
        bool first = out->tp == 1;
        out->tp *= mesh->size[a];
        int zero = as->split[0] ? model_dim_find(m, as->split[0]) : -1;
        bool has = zero >= 0 && op_space_find(space, zero) >= 0;
        if (!dim && !has)
            continue;
        if (!dim)
            return unsaid(p, op, mesh, a, "splits nothing", err);
        int algorithm = has && !strcmp(dim, as->split[0])            ? 0
                        : as->split[1] && !strcmp(dim, as->split[1]) ? 1
                                                                     : -1;
        if (algorithm < 0 || (!first && algorithm != out->algorithm))
            return unsaid(p, op, mesh, a, "splits another dim than Aceso's algorithms",
                          err);
        out->algorithm = algorithm;
    }
    return 0;
}

/* ---- the lists ------------------------------------------------------------------------------- */

struct writer {
    const struct plan *p;
    struct aceso_chain *chain;
    struct said *said; /* by position */
    int *stage;        /* by position */
    bool *marks;       /* by position */
};

static const struct layout *layout_of(const struct plan *p, int op, bool *recompute) {
    const struct stage *st = &p->stages[p->stage_of[op]];
    int i = 0;
    while (st->ops[i] != op)
        i++;
    *recompute = st->recompute[i];
    return &st->layouts[i];
}

/* The ops at one position, which Aceso treats alike; those inside of an op are as it is. */
static int say_position(struct writer *w, int i, bool *drops, struct err *err) {
    const struct aceso_chain *c = w->chain;
    *drops = false;
    if (!c->ops[i]->ops[0]) {
        w->said[i] = w->said[i - 1];
        w->stage[i] = w->stage[i - 1];
        return 0;
    }
    for (int op = c->of[i]; op < c->of[i + 1]; op++) {
        struct said said;
        bool recompute;
        int s = w->p->stage_of[op];
        const struct layout *l = layout_of(w->p, op, &recompute);
        if (say_op(w->p, c->ops[i], op, &w->p->stages[s].mesh, l, &said, err) < 0)
            return -1;
        bool first = op == c->of[i];
        if (!first && (said.tp != w->said[i].tp || said.algorithm != w->said[i].algorithm ||
                       s != w->stage[i]))
            return err_input(err,
                             "%s: another layout or stage than %s, with which it is one op "
                             "in Aceso",
                             w->p->model->ops[op].name, w->p->model->ops[op - 1].name);
        w->said[i] = said;
        w->stage[i] = s;
        /* The loss is never dropped; what comes with it may be. */
        *drops = op_is(&w->p->model->ops[op], KIND_LOSS) ? *drops : recompute;
    }
    return 0;
}

static int end_of_stage(const struct writer *w, int i) {
    int end = i;
    while (end < w->chain->n && w->stage[end] == w->stage[i])
        end++;
    return end;
}

/* Marks the positions whose results are dropped, and those behind them; then what the marks mean must
 * be what the plan says. */
static int say_recompute(struct writer *w, const bool *drops, struct err *err) {
    const struct aceso_chain *c = w->chain;
    for (int i = 0; i < c->n; i++) {
        int last = aceso_chain_end(c, i);
        for (int k = i; drops[i] && k <= last + 1 && k < c->n; k++)
            w->marks[k] = true;
    }
    for (int i = 0; i < c->n; i++) {
        bool dropped = aceso_drops(c, w->marks, aceso_chain_end(c, i), end_of_stage(w, i));
        if (c->ops[i]->ops[0] && dropped != drops[i])
            return err_input(err,
                             "%s is %scomputed again between ops that are%s, which Aceso "
                             "cannot say",
                             w->p->model->ops[c->of[i]].name, drops[i] ? "" : "not ",
                             drops[i] ? " not" : "");
    }
    return 0;
}

static int say_all(struct writer *w, struct err *err) {
    bool *drops = mem_array((size_t)w->chain->n, 1);
    int rc = 0;
    for (int i = 0; i < w->chain->n && rc == 0; i++) {
        rc = say_position(w, i, &drops[i], err);
        if (rc == 0 && i && w->stage[i] != w->stage[i - 1] &&
            w->stage[i] != w->stage[i - 1] + 1)
            rc = err_input(err,
                           "stages[%d]: ops that do not follow each other, which Aceso "
                           "cannot say",
                           w->stage[i]);
    }
    if (rc == 0)
        rc = say_recompute(w, drops, err);
    free(drops);
    return rc;
}

/* ---- the document ---------------------------------------------------------------------------- */

static json_t *size_json(const struct model *m, const char *dim) {
    return json_integer(m->dims[model_dim_find(m, dim)].size);
}

static void put_lists(const struct writer *w, json_t *doc) {
    size_t n = (size_t)w->chain->n;
    int *tp = mem_array(3 * n, sizeof *tp), *dp = tp + n, *algorithm = dp + n;
    for (size_t i = 0; i < n; i++) {
        tp[i] = w->said[i].tp;
        dp[i] = w->said[i].dp;
        algorithm[i] = w->said[i].algorithm;
    }
    aceso_put_lists(doc,
                    &(struct aceso_lists){(int)n, w->stage, tp, dp, algorithm, w->marks});
    free(tp);
}

static json_t *document(const struct writer *w) {
    const struct model *m = w->p->model;
    char size[64];
    snprintf(size, sizeof size, "%s", m->preset);
    for (char *c = size; (c = strchr(c, '.'));)
        *c = '_';
    json_t *doc =
        json_pack("{s:s, s:s, s:i, s:I, s:I}", "model_name", m->name, "model_size", size,
                  "num_layers", m->n_blocks, "global_batch_size", (json_int_t)w->p->batch,
                  "micro_batch_size", (json_int_t)w->p->micro_batch);
    json_object_set_new(doc, "seq_length", size_json(m, "seq"));
    json_object_set_new(doc, "max_position_embeddings", size_json(m, "seq"));
    json_object_set_new(doc, "num_attention_heads", size_json(m, "heads"));
    json_object_set_new(doc, "hidden_size", size_json(m, "hidden"));
    put_lists(w, doc);
    return doc;
}

static bool any(const int8_t *of, int n) {
    for (int i = 0; i < n; i++)
        if (of[i])
            return true;
    return false;
}

/* The key of a stage that says what Aceso cannot, or NULL. */
static const char *beyond(const struct stage *st) {
    if (any(st->zero, st->n_ops))
        return "zero";
    if (any(st->offload, st->n_ops))
        return "offload";
    return st->regather ? "regather" : NULL;
}

static int check_plan(const struct plan *p, struct err *err) {
    if (p->schedule != SCHEDULE_DEFAULT)
        return err_input(err, "schedule: Aceso runs %s, the plan %s",
                         schedule_name(SCHEDULE_DEFAULT), schedule_name(p->schedule));
    if (p->aggregate != AGGREGATE_mean)
        return err_input(err, "aggregate: Aceso sums gradients, the plan takes their %s",
                         aggregate_name(p->aggregate));
    if (p->average != AVERAGE_none)
        return err_input(err,
                         "average: Aceso's replicas sum their gradients at every step");
    for (int s = 0; s < p->n_stages; s++) {
        const char *key = beyond(&p->stages[s]);
        if (key)
            return err_input(err, "stages[%d].%s: Aceso has nothing like it", s, key);
    }
    return 0;
}

json_t *plan_to_aceso(const struct plan *p, struct err *err) {
    if (check_plan(p, err) < 0)
        return NULL;
    struct writer w = {.p = p, .chain = aceso_chain_create(p->model, err)};
    if (!w.chain)
        return NULL;
    size_t n = (size_t)w.chain->n;
    w.said = mem_array(n, sizeof *w.said);
    w.stage = mem_array(n, sizeof *w.stage);
    w.marks = mem_array(n, sizeof *w.marks);
    json_t *doc = say_all(&w, err) == 0 ? document(&w) : NULL;
    aceso_chain_destroy(w.chain);
    free(w.said);
    free(w.stage);
    free(w.marks);
    return doc;
}
