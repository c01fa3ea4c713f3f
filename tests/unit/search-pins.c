/* The search under pins: random ones on small models.
 *
 * What is pinned is drawn as numbers, told to the search as a document, and held against the plans
 * that come out with rules of the test's own. The list of all plans without pins, those that disobey
 * struck out, says what is to be found: no plan of it may be better. */
#include "search/algorithms/algorithms.h"
#include "search/state.h"

#include "../unit/tap.h"
#include "common/rng.h"
#include "cost/estimate.h"
#include "model/pattern.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PINS = 3, PATTERN = 32, LISTED = 1000 };

/* ---- random pins ----------------------------------------------------------------------- */

enum sort {
    MICRO,
    SCHEDULE,
    STAGES,
    BEGINS,
    ONE,
    NUMBER,
    ZERO,
    RECOMPUTE,
    MESH,
    PARTS,
    SORTS
};

struct wanted {
    enum sort sort;
    const char *ops;  /* a pattern */
    const char *text; /* mesh, or name of a dim */
    int64_t value;
};

static const char *const patterns[] = {"*",           "layer.0",  "layer.1",
                                       "layer.*.fc1", "layer.*",  "layer.0-1.fc*",
                                       "layer.1.fc2", "layer.0.*"};

static struct wanted random_pin(struct rng *r, const struct search_problem *p,
                                const char *const *meshes, const char *const *dims) {
    struct wanted w = {.sort = (enum sort)rng_below(r, SORTS)};
    w.ops = patterns[rng_below(r, (int64_t)(sizeof patterns / sizeof *patterns))];
    switch (w.sort) {
    case MICRO: w.value = p->micro[rng_below(r, p->n_micro)]; break;
    case SCHEDULE: w.value = rng_below(r, 2); break;
    case STAGES: w.value = 1 + rng_below(r, p->devices); break;
    case NUMBER: w.value = rng_below(r, 2); break;
    case ZERO: w.value = rng_below(r, 2); break;
    case RECOMPUTE: w.value = rng_below(r, 2); break;
    case MESH: w.text = meshes[rng_below(r, 3)]; break;
    case PARTS:
        w.text = dims[rng_below(r, 2)];
        w.value = 1 + rng_below(r, 2);
        break;
    default: break;
    }
    return w;
}

static json_t *pin_json(const struct wanted *w) {
    switch (w->sort) {
    case BEGINS: return json_pack("{s:s}", "stage", "begins");
    case ONE: return json_pack("{s:s}", "stage", "one");
    case NUMBER: return json_pack("{s:I}", "stage", (json_int_t)w->value);
    case ZERO: return json_pack("{s:I}", "zero", (json_int_t)w->value);
    case RECOMPUTE: return json_pack("{s:b}", "recompute", (int)w->value);
    case MESH: return json_pack("{s:s}", "mesh", w->text);
    default: return json_pack("{s:{s:I}}", "split", w->text, (json_int_t)w->value);
    }
}

/* A partial plan with nothing but pins. */
static json_t *document(const struct wanted *w, int n) {
    json_t *pin = json_object();
    for (int i = 0; i < n; i++) {
        static const char *const keys[] = {"micro_batch", "schedule", "stages"};
        if (w[i].sort == SCHEDULE)
            json_object_set_new(pin, keys[SCHEDULE],
                                json_string(schedule_name((enum schedule)w[i].value)));
        else if (w[i].sort <= STAGES)
            json_object_set_new(pin, keys[w[i].sort], json_integer(w[i].value));
        else
            json_object_set_new(pin, w[i].ops, pin_json(&w[i]));
    }
    return json_pack("{s:s, s:o}", "format", "weft-plan/1", "pin", pin);
}

/* ---- the rules ------------------------------------------------------------------------- */

static bool mesh_is(const struct mesh *mesh, const char *text) {
    char buf[MESH_MAX_AXES * 32];
    mesh_format(mesh, buf, sizeof buf);
    return !strcmp(buf, text);
}

static bool op_obeys(const struct wanted *w, const struct plan *plan, int op) {
    int s = plan->stage_of[op], i = 0;
    const struct stage *st = &plan->stages[s];
    const struct model_op *o = &plan->model->ops[op];
    while (st->ops[i] != op)
        i++;
    if (w->sort == NUMBER)
        return s == w->value;
    if (w->sort == ZERO)
        return st->zero[i] == w->value;
    if (w->sort == RECOMPUTE)
        return st->recompute[i] == (w->value && !op_is(o, KIND_LOSSES));
    if (w->sort == MESH)
        return mesh_is(&st->mesh, w->text);
    if (w->sort != PARTS)
        return true;
    int k = op_space_find(&o->space, model_dim_find(plan->model, w->text));
    if (k < 0 || !role_splits(o->space.role[k]))
        return true;
    int64_t parts = 1;
    for (int a = 0; a < st->mesh.n_axes; a++)
        parts *= st->layouts[i].dim[a] == k ? st->mesh.size[a] : 1;
    return parts == w->value;
}

static bool obeys(const struct wanted *w, const struct plan *plan) {
    if (w->sort == MICRO)
        return plan->micro_batch == w->value;
    if (w->sort == SCHEDULE)
        return (int64_t)plan->schedule == w->value;
    if (w->sort == STAGES)
        return plan->n_stages == w->value;
    int first = -1;
    struct pattern p = {.text = w->ops};
    for (int op = 0; op < plan->model->n_ops; op++) {
        if (!pattern_covers(&p, plan->model->ops[op].name))
            continue;
        int s = plan->stage_of[op];
        if (w->sort == BEGINS && first < 0 && plan->stages[s].ops[0] != op)
            return false;
        if (w->sort == ONE && first >= 0 && plan->stage_of[first] != s)
            return false;
        if (!op_obeys(w, plan, op))
            return false;
        first = first < 0 ? op : first;
    }
    return true;
}

static bool obeys_all(const struct wanted *w, int n, const struct plan *plan) {
    bool good = true;
    for (int i = 0; i < n; i++)
        good &= obeys(&w[i], plan);
    return good;
}

/* ---- spaces ---------------------------------------------------------------------------- */

struct space_case {
    const char *model, *set;
    int devices;
    int64_t batch, micro[3];
    int n_micro;
    const char *meshes[3], *dims[2];
};

static const struct space_case spaces[] = {
    {"mlp:mnist",
     "pixels=64,hidden=64,inner=128,classes=16,layers=2",
     3,
     12,
     {3, 6, 12},
     3,
     {"x:3", "x:2", ""},
     {"inner", "batch"}},
    {"gpt:nano",
     "layers=2,hidden=64,heads=4,seq=32,vocab=64",
     2,
     8,
     {2, 4, 8},
     3,
     {"dp:2", "x:2", ""},
     {"ffn", "batch"}},
    {"mlp:mnist",
     "pixels=64,hidden=64,inner=128,classes=16,layers=3",
     4,
     16,
     {8, 16},
     2,
     {"dp:2 tp:2", "tp:2", "dp:4"},
     {"inner", "batch"}},
};

static bool problem_open(const struct space_case *sp, struct search_problem *p) {
    struct err err = {0};
    *p = (struct search_problem){.devices = sp->devices,
                                 .batch = sp->batch,
                                 .micro = sp->micro,
                                 .n_micro = sp->n_micro,
                                 .max_stages = 2 + (sp->devices == 3),
                                 .top = 1,
                                 .seed = 1};
    if (cluster_read(&p->cluster, "v100-4x8", &err) == 0)
        p->provider = provider_open(NULL, NULL, &p->cluster, true, &err);
    p->model = p->provider ? model_load(sp->model, sp->set, &err) : NULL;
    return ok(p->model != NULL, "%s %s on %d devices %s", sp->model, sp->set, sp->devices,
              err.msg);
}

static void problem_close(struct search_problem *p) {
    provider_destroy((struct cost_provider *)p->provider);
    model_destroy(p->model);
}

/* ---- searches -------------------------------------------------------------------------- */

struct tally {
    int searched, refused, none, disobeyed, listed, worse, hops_worse;
};

static double best_of(const struct search_result *r, const struct wanted *w, int n) {
    for (int i = 0; i < r->n; i++)
        if (obeys_all(w, n, r->plans[i].plan))
            return r->plans[i].time_us;
    return INFINITY;
}

static void complain(const char *what, const json_t *doc, double us, double other_us) {
    printf("# %s: %.2f us, %.2f us: ", what, us, other_us);
    json_write_line(doc, stdout);
}

/* By the list of plans under the pins, by hops, and by the list without them. */
static void search_both(struct search_problem *p, const struct wanted *w, int n,
                        const json_t *doc, const struct search_result *all,
                        struct tally *t) {
    struct search_result listed, hops;
    struct err err = {0};
    int a = search_run(p, search_presets, &listed, &err);
    int b = search_run(p, search_hops, &hops, &err);
    double least = best_of(all, w, n);
    t->refused += a < 0 && err.status == EXIT_INPUT;
    t->none += a < 0 && err.status == EXIT_NO;
    t->searched++;
    t->listed += isfinite(least);
    double us = a == 0 ? listed.plans[0].time_us : INFINITY;
    double hops_us = b == 0 ? hops.plans[0].time_us : INFINITY;
    if (us > 1.005 * least) {
        complain(err.msg[0] ? err.msg : "worse than the list", doc, us, least);
        t->worse++;
    }
    if (hops_us > 1.05 * us) {
        complain(err.msg[0] ? err.msg : "hops is worse", doc, hops_us, us);
        t->hops_worse++;
    }
    for (int i = 0; i < listed.n + hops.n; i++) {
        const struct plan *plan =
            i < listed.n ? listed.plans[i].plan : hops.plans[i - listed.n].plan;
        t->disobeyed += !obeys_all(w, n, plan);
    }
    search_result_release(&listed);
    search_result_release(&hops);
}

static void test_space(const struct space_case *sp, int64_t seed, int rounds) {
    struct search_problem p;
    struct search_result all;
    struct err err = {0};
    struct rng r = {(uint64_t)seed, 0};
    struct tally t = {0};
    if (!problem_open(sp, &p))
        return;
    p.top = LISTED;
    search_run(&p, search_presets, &all, &err);
    p.top = 4;
    for (int i = 0; i < rounds; i++) {
        struct wanted w[MOST_PINS];
        int n = 1 + (int)rng_below(&r, MOST_PINS);
        for (int k = 0; k < n; k++) {
            w[k] = random_pin(&r, &p, sp->meshes, sp->dims);
            for (int j = 0; j < k; j++) /* keys stand once */
                if (w[j].sort <= STAGES ? w[j].sort == w[k].sort
                                        : w[k].sort > STAGES && w[j].ops == w[k].ops)
                    n = k;
        }
        json_t *doc = document(w, n);
        struct pins *pins = pins_of_model(p.model, "model", &err);
        p.pins = pins;
        if (pins_add(pins, doc, "pins", true, &err) == 0)
            search_both(&p, w, n, doc, &all, &t);
        else
            t.refused++;
        pins_destroy(pins);
        json_decref(doc);
    }
    ok(t.searched > rounds / 2 && t.listed > rounds / 4 && !t.disobeyed,
       "seed %lld: %d sets of pins, %d refused, %d without a plan: all plans obey",
       (long long)seed, rounds, t.refused, t.none);
    ok(!t.worse, "of %d sets that plans found without pins obey, %d end worse than these",
       t.listed, t.worse);
    ok(!t.hops_worse, "hops is worse than the list of plans under %d of them",
       t.hops_worse);
    p.pins = NULL;
    search_result_release(&all);
    problem_close(&p);
}

int main(void) {
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        test_space(&spaces[i], 1 + (int64_t)i, 40);
    return done_testing();
}
