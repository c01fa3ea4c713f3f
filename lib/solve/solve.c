/* solve.c - from a problem document to a checked answer, whatever the kind of problem. */
#include "solve/solve.h"

#include "common/json.h"
#include "common/progress.h"

#include <math.h>
#include <string.h>

/* Sums of doubles in another order may differ by this fraction. */
#define TOL 1e-9

const struct solve_kind *const solve_kinds[] = {&solve_layout, &solve_stages,
                                                &solve_partition, &solve_joint, NULL};

/* Compares what the answer states about itself with the value that the evaluator found. */
static int check_stated(const json_t *answer, double value, struct err *err) {
    double stated = NAN, bound = NAN, tolerance = TOL * fabs(value);
    if (json_num(answer, "value", -INFINITY, 1e300, &stated, err) < 0 ||
        json_num(answer, "bound", -INFINITY, 1e300, &bound, err) < 0)
        return -1;
    if (fabs(value - stated) > tolerance)
        return err_no(err, "value: it is %.17g, not %.17g", value, stated);
    if (bound > value + tolerance)
        return err_no(err, "bound: %.17g is above the value, %.17g", bound, value);
    if (json_is_true(json_object_get(answer, "optimal")) && bound < value - tolerance)
        return err_no(err, "optimal: the bound, %.17g, is below the value, %.17g", bound,
                      value);
    return 0;
}

static int check_answer(const struct solve_kind *kind, const void *problem,
                        const json_t *answer, double *value, struct err *err) {
    if (kind->check(problem, answer, value, err) < 0)
        return -1;
    return check_stated(answer, *value, err);
}

/* Checks the solver's own answer. If it does not pass, that is a bug of the solver,
 * whatever status the evaluator gives it. */
static json_t *check_own(const struct solve_kind *kind, const void *problem, json_t *answer,
                         struct err *err) {
    double value;
    if (!answer || check_answer(kind, problem, answer, &value, err) == 0)
        return answer;
    if (err)
        err->status = EXIT_SYSTEM;
    err_prefix(err, "the evaluator refuses the answer");
    json_decref(answer);
    return NULL;
}

json_t *solve_document(const struct solve_kind *kind, struct json_stream *s,
                       const struct solve_limits *limits, struct err *err) {
    double start = now_s();
    struct solve_limits left = *limits;
    s->deadline_s = limits->time_budget_s > 0 ? start + limits->time_budget_s : 0;
    void *problem = kind->read(s, err);
    if (!problem)
        return NULL;
    if (left.time_budget_s > 0)
        left.time_budget_s = fmax(s->deadline_s - now_s(), 1e-9);
    json_t *answer = check_own(kind, problem, kind->solve(problem, &left, err), err);
    if (!answer)
        err_prefix(err, "%s", s->name);
    kind->release(problem);
    if (!answer)
        return NULL;
    json_object_set_new(answer, "format", json_string("weft-answer/1"));
    json_object_set_new(answer, "problem", json_string(kind->name));
    json_object_set_new(answer, "time_s", json_real(now_s() - start));
    return answer;
}

/* ---- answers of others ----------------------------------------------------------- */

static int check_kind(const json_t *answer, const char *problem, struct err *err) {
    const char *named;
    if (!json_is_object(answer))
        return err_input(err, "expected an object, got %s", json_type_name(answer));
    if (json_format(answer, "weft-answer/1", err) < 0 ||
        json_str(answer, "problem", &named, err) < 0)
        return -1;
    if (strcmp(named, problem) != 0)
        return err_input(err, "problem: this answers a %.40s problem, not a %s problem",
                         named, problem);
    return 0;
}

/* Checks the answer to a problem. Returns -1 with a message that begins with the name of
 * the document that it is about. */
static int verify(const struct solve_kind *kind, struct json_stream *s,
                  const json_t *answer, const char *path, double *value, struct err *err) {
    if (check_kind(answer, kind->name, err) < 0)
        return err_prefix(err, "%s", path);
    void *problem = kind->read(s, err);
    if (!problem)
        return -1;
    int rc = check_answer(kind, problem, answer, value, err);
    kind->release(problem);
    return rc < 0 ? err_prefix(err, "%s", path) : 0;
}

int solve_verify(const struct solve_kind *kind, struct json_stream *problem,
                 const char *path, struct solve_verdict *verdict, struct err *err) {
    json_t *answer = json_read(path, err);
    if (!answer)
        return -1;
    int rc = verify(kind, problem, answer, path, &verdict->value, err);
    verdict->bound = json_number_value(json_object_get(answer, "bound"));
    json_decref(answer);
    return rc;
}
