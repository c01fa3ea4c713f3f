/* layout_json.c - the layout solver for documents: problems in, answers out and checked. */
#include "solve/layout/layout.h"

#include "common/json.h"
#include "common/mem.h"
#include "solve/solve_doc.h"

#include <math.h>
#include <stdlib.h>

/* Writes a number as an integer where the document's numbers were whole. */
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
    json_t *o = solve_answer((double)a->value * p->cost_unit,
                             (double)a->bound * p->cost_unit, layout_proof_text(a->proof));
    json_object_set_new(o, "value", number(a->value, p->cost_unit));
    json_object_set_new(o, "bound", number(a->bound, p->cost_unit));
    json_object_set_new(o, "name", json_string(p->name));
    json_object_set_new(o, "peak_usage", number(a->peak_usage, p->usage_unit));
    json_object_set_new(o, "peak_time", json_integer(a->peak_time));
    if (p->usage_limit != LAYOUT_NO_LIMIT)
        json_object_set_new(o, "usage_limit", number(p->usage_limit, p->usage_unit));
    if (p->cost_error > 0)
        json_object_set_new(o, "rounding", json_real(p->cost_error * p->cost_unit));
    json_object_set_new(o, "choice", choices(p, a));
    return o;
}

static void *read_problem(struct json_stream *s, struct err *err) {
    struct layout_problem *p = mem_alloc(sizeof *p);
    if (layout_read(p, s, err) == 0)
        return p;
    free(p);
    return NULL;
}

static void release(void *problem) {
    layout_problem_release(problem);
    free(problem);
}

static json_t *solve(const void *problem, const struct solve_limits *limits,
                     struct err *err) {
    struct layout_answer a;
    json_t *o = layout_solve(problem, limits, &a, err) < 0 ? NULL : answer(problem, &a);
    layout_answer_release(&a);
    return o;
}

/* ---- checking an answer ---------------------------------------------------------- */

/* Compares a number that the answer states, to the last digit if it is whole. */
static int check_number(const json_t *answer, const char *key, int64_t x, double unit,
                        struct err *err) {
    const json_t *v = json_object_get(answer, key);
    bool same = unit == 1 && json_is_integer(v)
                    ? json_integer_value(v) == x
                    : json_is_number(v) && json_number_value(v) == (double)x * unit;
    if (same)
        return 0;
    return err_no(err, "%s: it is %.17g, which the answer does not say", key,
                  (double)x * unit);
}

static int32_t *read_choice(const struct layout_problem *p, const json_t *answer,
                            struct err *err) {
    json_t *list;
    if (json_array_member(answer, "choice", &list, err) < 0)
        return NULL;
    if (json_array_size(list) != (size_t)p->n_nodes) {
        err_no(err, "choice: expected %d entries, got %zu", (int)p->n_nodes,
               json_array_size(list));
        return NULL;
    }
    int32_t *choice = mem_array((size_t)p->n_nodes + 1, sizeof *choice);
    for (int32_t i = 0; i < p->n_nodes; i++) {
        const json_t *v = json_array_get(list, (size_t)i);
        json_int_t a = json_is_integer(v) ? json_integer_value(v) : -1;
        choice[i] = a < 0 || a > INT32_MAX ? -1 : (int32_t)a;
    }
    return choice;
}

static int check(const void *problem, const json_t *answer, double *value,
                 struct err *err) {
    const struct layout_problem *p = problem;
    int64_t cost, peak, when;
    int32_t *choice = read_choice(p, answer, err);
    int rc = choice ? layout_evaluate(p, choice, &cost, &peak, &when, err) : -1;
    free(choice);
    if (rc < 0 || check_number(answer, "value", cost, p->cost_unit, err) < 0 ||
        check_number(answer, "peak_usage", peak, p->usage_unit, err) < 0)
        return -1;
    *value = (double)cost * p->cost_unit;
    return 0;
}

const struct solve_kind solve_layout = {.name = "layout",
                                        .about = "one strategy per node, within memory",
                                        .read = read_problem,
                                        .solve = solve,
                                        .check = check,
                                        .release = release};
