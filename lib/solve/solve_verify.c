/* solve_verify.c - answers of the four solvers, worked out again from their problems.
 *
 * The evaluators (*_check.c) do the work; here the answer's document becomes what they take, and
 * what it says of itself is compared with what they find. A bound is not proven again: only that it
 * is not above the value.
 */
#include "solve/joint/joint.h"
#include "solve/layout/layout.h"
#include "solve/partition/partition.h"
#include "solve/stages/stages.h"

#include "common/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TOL 1e-9
#define BAD_PROBLEM                                                                        \
    -2 /* of functions below: the message is about the problem, with its name */

/* Is the document an answer to this kind of problem? */
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

/* A number that the answer states, to be the same to the last digit if it is whole. */
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

static int check_bound(const json_t *answer, double value, struct err *err) {
    double bound = NAN;
    if (json_num(answer, "bound", -INFINITY, 1e300, &bound, err) < 0)
        return -1;
    if (bound > value + TOL * fabs(value))
        return err_no(err, "bound: %.17g is above the value, %.17g", bound, value);
    if (json_is_true(json_object_get(answer, "optimal")) &&
        bound < value - TOL * fabs(value))
        return err_no(err, "optimal: the bound, %.17g, is below the value, %.17g", bound,
                      value);
    return 0;
}

/* What an evaluator of the solver's own answers calls a fault is a "no" here. */
static int refused(struct err *err) {
    if (err)
        err->status = EXIT_NO;
    return -1;
}

/* ---- layout ---------------------------------------------------------------------- */

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

static int verify_layout(const struct layout_problem *p, const json_t *answer,
                         double *value, struct err *err) {
    int64_t cost, peak, when;
    int32_t *choice = read_choice(p, answer, err);
    int rc = choice ? layout_evaluate(p, choice, &cost, &peak, &when, err) : -1;
    free(choice);
    if (rc < 0 || check_number(answer, "value", cost, p->cost_unit, err) < 0 ||
        check_number(answer, "peak_usage", peak, p->usage_unit, err) < 0)
        return -1;
    *value = (double)cost * p->cost_unit;
    return check_bound(answer, *value, err);
}

static int verify_layout_doc(struct json_stream *problem, const json_t *answer,
                             double *value, struct err *err) {
    struct layout_problem p;
    if (layout_read(&p, problem, err) < 0)
        return BAD_PROBLEM;
    int rc = verify_layout(&p, answer, value, err);
    layout_problem_release(&p);
    return rc;
}

/* ---- partition ------------------------------------------------------------------- */

struct named {
    int64_t id;
    int32_t index;
};

static int by_id(const void *pa, const void *pb) {
    const struct named *a = pa, *b = pb;
    return (a->id > b->id) - (a->id < b->id);
}

static struct named *sort_nodes(const struct partition_problem *p) {
    struct named *v = mem_array((size_t)p->n + 1, sizeof *v);
    for (int32_t i = 0; i < p->n; i++)
        v[i] = (struct named){p->nodes[i].id, i};
    qsort(v, (size_t)p->n, sizeof *v, by_id);
    return v;
}

/* The nodes of device s. */
static int read_device(const struct partition_problem *p, const struct named *names,
                       const json_t *device, int s, int32_t *stage_of, struct err *err) {
    json_t *list;
    if (json_array_member(device, "nodes", &list, err) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct named key = {json_integer_value(json_array_get(list, i)), 0};
        const struct named *found = bsearch(&key, names, (size_t)p->n, sizeof key, by_id);
        if (!found)
            return err_no(err, "nodes[%zu]: no node has the id %lld", i, (long long)key.id);
        if (stage_of[found->index] >= 0)
            return err_no(err, "nodes[%zu]: node %lld is on two devices", i,
                          (long long)key.id);
        stage_of[found->index] = s;
    }
    return 0;
}

static int verify_devices(const struct partition_problem *p, const json_t *devices,
                          double *value, struct err *err) {
    int n = (int)json_array_size(devices), rc = 0;
    struct named *names = sort_nodes(p);
    int32_t *stage_of = mem_array((size_t)p->n + 1, sizeof *stage_of);
    bool *is_cpu = mem_array((size_t)n + 1, sizeof *is_cpu);
    memset(stage_of, -1, ((size_t)p->n + 1) * sizeof *stage_of);
    for (int s = 0; s < n && rc == 0; s++) {
        const json_t *device = json_array_get(devices, (size_t)s);
        const char *kind = json_string_value(json_object_get(device, "kind"));
        is_cpu[s] = kind && !strcmp(kind, "cpu");
        if (read_device(p, names, device, s, stage_of, err) < 0)
            rc = err_at(err, "devices[%d]", s);
    }
    if (rc == 0)
        rc = partition_check(p, stage_of, is_cpu, n, NULL, value, err);
    free(names), free(stage_of), free(is_cpu);
    return rc;
}

/* Sums of doubles in another order differ in the last digits. */
static int check_value(const json_t *answer, double value, struct err *err) {
    double stated = NAN;
    if (json_num(answer, "value", -INFINITY, 1e300, &stated, err) < 0)
        return -1;
    if (fabs(value - stated) > TOL * fabs(value))
        return err_no(err, "value: it is %.17g, not %.17g", value, stated);
    return check_bound(answer, value, err);
}

static int verify_partition_doc(struct json_stream *problem, const json_t *answer,
                                double *value, struct err *err) {
    struct partition_problem p;
    json_t *devices;
    if (partition_read(problem, &p, err) < 0)
        return BAD_PROBLEM;
    int rc = json_array_member(answer, "devices", &devices, err);
    if (rc == 0)
        rc = verify_devices(&p, devices, value, err);
    if (rc == 0)
        rc = check_value(answer, *value, err);
    partition_release(&p);
    return rc;
}

/* ---- stages, joint --------------------------------------------------------------- */

static int verify_stages_doc(struct json_stream *problem, const json_t *answer,
                             double *value, struct err *err) {
    struct stages_problem p;
    struct stages_doc doc;
    if (stages_read(&p, &doc, problem, err) < 0)
        return BAD_PROBLEM;
    int rc = stages_check(&doc, answer, value, err) < 0 ? refused(err)
                                                        : check_value(answer, *value, err);
    stages_release(&p);
    stages_doc_release(&doc);
    return rc;
}

static int verify_joint_doc(struct json_stream *problem, const json_t *answer,
                            double *value, struct err *err) {
    struct joint_doc doc;
    struct joint_problem p;
    int rc = BAD_PROBLEM;
    if (joint_doc_read(&doc, problem, err) == 0 && joint_read(&p, &doc, err) == 0) {
        joint_release(&p); /* the document is sound: that was all it was for */
        rc = joint_check(&doc, answer, value, err) < 0 ? refused(err)
                                                       : check_value(answer, *value, err);
    } else if (!problem->failed) {
        err_prefix(err, "%s", problem->name);
    }
    joint_doc_release(&doc);
    return rc;
}

/* ---- the four -------------------------------------------------------------------- */

typedef int verify_fn(struct json_stream *problem, const json_t *answer, double *value,
                      struct err *err);

static const struct {
    const char *problem;
    verify_fn *verify;
} kinds[] = {{"layout", verify_layout_doc},
             {"partition", verify_partition_doc},
             {"stages", verify_stages_doc},
             {"joint", verify_joint_doc}};

int solve_verify(const char *kind, struct json_stream *problem, const char *path,
                 struct solve_verdict *verdict, struct err *err) {
    json_t *answer = json_read(path, err);
    if (!answer)
        return -1;
    int rc = check_kind(answer, kind, err);
    for (size_t k = 0; rc == 0 && k < sizeof kinds / sizeof *kinds; k++)
        if (!strcmp(kinds[k].problem, kind))
            rc = kinds[k].verify(problem, answer, &verdict->value, err);
    verdict->bound = json_number_value(json_object_get(answer, "bound"));
    json_decref(answer);
    return rc == BAD_PROBLEM || rc == 0 ? rc : err_prefix(err, "%s", path);
}
