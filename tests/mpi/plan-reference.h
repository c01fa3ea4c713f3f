/* plan-reference.h - what one rank finds for a case: its losses, last gradients and parameters, which
 * every plan is compared with.
 *
 *     struct reference r = reference_new(model);
 *     if (reference_file(&r, plan, "folder", 3, false, &err) < 0) ...
 */
#ifndef WEFT_TEST_PLAN_REFERENCE_H
#define WEFT_TEST_PLAN_REFERENCE_H

#include "common/err.h"
#include "common/mem.h"
#include "plan/plan.h"
#include "program/scalars.h"

#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 5 };

struct reference {
    double loss[STEPS], norm[STEPS], more[STEPS][METRIC_COUNT];
    float **grad, **param; /* whole tensors, by parameter */
};

static int64_t param_elems(const struct model *m, int p) {
    struct extents x = model_extents(m, &m->params[p].shape, 1);
    return extents_count(&x);
}

static void reference_io(struct reference *r, const struct model *m, FILE *f, bool write) {
    size_t bad = 0;
#define IO(p, size, count)                                                                 \
    bad += (write ? fwrite(p, size, count, f) : fread(p, size, count, f)) != (count)
    IO(r->loss, sizeof *r->loss, (size_t)STEPS);
    IO(r->norm, sizeof *r->norm, (size_t)STEPS);
    IO(r->more, sizeof *r->more, (size_t)STEPS);
    for (int p = 0; p < m->n_params; p++) {
        size_t n = (size_t)param_elems(m, p);
        IO(r->grad[p], sizeof(float), n);
        IO(r->param[p], sizeof(float), n);
    }
    if (bad) {
        printf("Bail out! cannot read or write the reference\n");
        exit(1);
    }
}

static struct reference reference_new(const struct model *m) {
    struct reference r = {.grad = mem_array((size_t)m->n_params, sizeof *r.grad),
                          .param = mem_array((size_t)m->n_params, sizeof *r.param)};
    for (int p = 0; p < m->n_params; p++) {
        r.grad[p] = mem_array((size_t)param_elems(m, p), sizeof(float));
        r.param[p] = mem_array((size_t)param_elems(m, p), sizeof(float));
    }
    return r;
}

static void reference_release(struct reference *r, const struct model *m) {
    for (int p = 0; p < m->n_params; p++) {
        free(r->grad[p]);
        free(r->param[p]);
    }
    free(r->grad);
    free(r->param);
}

/* Writes the reference of a case in a type to its file in the folder, or reads it. */
static int reference_file(struct reference *r, const struct plan *p, const char *dir, int c,
                          bool write, struct err *err) {
    char path[512];
    snprintf(path, sizeof path, "%s/case-%d-%s", dir, c, dtype_name(p->dtype));
    FILE *f = fopen(path, write ? "wb" : "rb");
    if (!f)
        return err_system(err, "%s: cannot %s", path, write ? "write" : "read");
    reference_io(r, p->model, f, write);
    fclose(f);
    return 0;
}

#endif
