/* layout_json.c - layout problems from documents, answers to documents. */
#include "solve/layout/layout.h"

#include "common/progress.h"

#include <math.h>
#include <stdlib.h>

/* Whole where the document's numbers were whole. */
static json_t *number(int64_t x, double unit) {
    return unit == 1 ? json_integer(x) : json_real((double)x * unit);
}

static json_t *choices(const struct layout_problem *p, const struct layout_answer *a) {
    json_t *list = json_array();
    for (int32_t i = 0; i < p->n_nodes; i++)
        json_array_append_new(list, json_integer(a->choice[i]));
    return list;
}

static json_t *answer(const struct layout_problem *p, const struct layout_answer *a) {
    double gap = a->value == a->bound
                     ? 0
                     : (double)(a->value - a->bound) / fmax(fabs((double)a->bound), 1);
    json_t *o = json_object();
    json_object_set_new(o, "format", json_string("weft-answer/1"));
    json_object_set_new(o, "problem", json_string("layout"));
    json_object_set_new(o, "name", json_string(p->name));
    json_object_set_new(o, "value", number(a->value, p->cost_unit));
    json_object_set_new(o, "bound", number(a->bound, p->cost_unit));
    json_object_set_new(o, "gap", json_real(gap));
    json_object_set_new(o, "optimal", json_boolean(a->value == a->bound));
    json_object_set_new(o, "proof", json_string(layout_proof_text(a->proof)));
    json_object_set_new(o, "time_s", json_real(a->time_s));
    json_object_set_new(o, "peak_usage", number(a->peak_usage, p->usage_unit));
    json_object_set_new(o, "peak_time", json_integer(a->peak_time));
    if (p->usage_limit != LAYOUT_NO_LIMIT)
        json_object_set_new(o, "usage_limit", number(p->usage_limit, p->usage_unit));
    if (p->cost_error > 0)
        json_object_set_new(o, "rounding", json_real(p->cost_error * p->cost_unit));
    json_object_set_new(o, "choice", choices(p, a));
    return o;
}

json_t *solve_layout_json(struct json_stream *problem, const struct solve_limits *limits,
                          struct err *err) {
    struct layout_problem p;
    struct layout_answer a;
    struct solve_limits left = *limits;
    double start = now_s();
    problem->deadline_s = limits->time_budget_s > 0 ? start + limits->time_budget_s : 0;
    if (layout_read(&p, problem, err) < 0)
        return NULL;
    if (left.time_budget_s > 0) /* reading counts */
        left.time_budget_s = fmax(problem->deadline_s - now_s(), 1e-3);
    int rc = layout_solve(&p, &left, &a, err);
    a.time_s = now_s() - start;
    json_t *o = rc < 0 ? NULL : answer(&p, &a);
    if (rc < 0)
        err_prefix(err, "%s", problem->name);
    layout_answer_release(&a);
    layout_problem_release(&p);
    return o;
}
