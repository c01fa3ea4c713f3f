/* stages_json.c - the stages solver for documents: problems in, answers out and checked. */
#include "solve/stages/stages.h"

#include "common/mem.h"
#include "solve/solve_doc.h"

#include <stdlib.h>

struct document {
    struct stages_problem p; /* borrows the tables of doc */
    struct stages_doc doc;
};

static json_t *stage_json(const struct stages_problem *p, const struct stages_plan *plan,
                          int i) {
    const struct stages_stage *st = &plan->stages[i];
    const struct stages_choice *c = &p->choices[st->choice];
    const struct stages_config *g = &p->configs[c->config];
    return json_pack("{s:[i,i], s:i, s:i, s:[i,i], s:i, s:f}", "layers", st->first,
                     st->last + 1, "submesh", g->submesh, "config", g->config, "devices",
                     st->device, st->device + c->size, "successors", plan->n - 1 - i,
                     "time", st->time);
}

static json_t *answer_json(const struct stages_problem *p, const struct stages_answer *a) {
    bool exact = a->bound >= a->plan.value;
    char proof[400];
    snprintf(
        proof, sizeof proof,
        "%s: dynamic program over (layer, devices left), %lld passes (%lld of them with "
        "memory as fronts of stages and sums); every other greatest stage time is "
        "excluded by least sum + (B-1) * that time >= value",
        exact ? "exact" : "stopped early; open times bound the value", (long long)a->passes,
        (long long)a->label_passes);
    json_t *stages = json_array(), *o = solve_answer(a->plan.value, a->bound, proof);
    for (int i = 0; i < a->plan.n; i++)
        json_array_append_new(stages, stage_json(p, &a->plan, i));
    json_object_set_new(o, "sum", json_real(a->plan.sum));
    json_object_set_new(o, "max", json_real(a->plan.max));
    json_object_set_new(o, "stages", stages);
    return o;
}

static void *read_problem(struct json_stream *s, struct err *err) {
    struct document *d = mem_alloc(sizeof *d);
    if (stages_read(&d->p, &d->doc, s, err) == 0)
        return d;
    free(d);
    return NULL;
}

static void release(void *problem) {
    struct document *d = problem;
    stages_release(&d->p);
    stages_doc_release(&d->doc);
    free(d);
}

static json_t *solve(const void *problem, const struct solve_limits *limits,
                     struct err *err) {
    const struct document *d = problem;
    struct stages_answer a;
    if (stages_solve(&d->p, limits, &a, err) < 0)
        return NULL;
    json_t *answer = answer_json(&d->p, &a);
    stages_answer_release(&a);
    return answer;
}

static int check(const void *problem, const json_t *answer, double *value,
                 struct err *err) {
    return stages_check(&((const struct document *)problem)->doc, answer, value, err);
}

const struct solve_kind solve_stages = {.name = "stages",
                                        .about =
                                            "a chain of layers as stages on sub-meshes",
                                        .read = read_problem,
                                        .solve = solve,
                                        .check = check,
                                        .release = release};
