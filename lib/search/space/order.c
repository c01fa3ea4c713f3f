/* The ops of a model in another order (see order.h). */
#include "search/space/order.h"

#include <stdlib.h>
#include <string.h>

/* ---- the list ---------------------------------------------------------------------------- */

/* Blocks, which are ranges of the file, stay as they are: the search only asks which
 * op is in which block. */
static struct model *list_model(const struct order *o) {
    const struct model *m = o->whole;
    struct model *list = mem_alloc(sizeof *list);
    *list = *m;
    list->arena = (struct arena){0};
    list->ops = mem_array((size_t)m->n_ops, sizeof *list->ops);
    list->tensors = mem_array((size_t)m->n_tensors, sizeof *list->tensors);
    list->params = mem_array((size_t)m->n_params + 1, sizeof *list->params);
    for (int i = 0; i < m->n_ops; i++)
        list->ops[i] = m->ops[o->op[i]];
    for (int t = 0; t < m->n_tensors; t++) {
        list->tensors[t] = m->tensors[t];
        if (m->tensors[t].producer >= 0)
            list->tensors[t].producer = o->place[m->tensors[t].producer];
    }
    for (int k = 0; k < m->n_params; k++) {
        list->params[k] = m->params[k];
        list->params[k].first_op = o->place[m->params[k].first_op];
    }
    return list;
}

/* Moves values that are listed by op to the positions of the ops. */
static void *move(struct arena *a, const struct order *o, const void *of, size_t size) {
    if (!of)
        return NULL;
    char *out = arena_array(a, (size_t)o->whole->n_ops, size);
    for (int i = 0; i < o->whole->n_ops; i++)
        memcpy(out + (size_t)i * size, (const char *)of + (size_t)o->op[i] * size, size);
    return out;
}

/* The pins of the whole model, with everything that is listed by op moved. */
static struct pins *list_pins(const struct order *o) {
    const struct pins *from = o->whole_pins;
    if (!from)
        return NULL;
    struct pins *pins = mem_alloc(sizeof *pins);
    *pins = (struct pins){.model = o->model};
    for (int64_t i = 0; i < from->meshes.n; i++)
        arr_push(&pins->meshes, from->meshes.p[i]);
    for (int64_t i = 0; i < from->list.n; i++) {
        struct pin pin = from->list.p[i];
        pin.covers = move(&pins->arena, o, pin.covers, sizeof *pin.covers);
        pin.layouts = move(&pins->arena, o, pin.layouts, sizeof *pin.layouts);
        for (int f = 0; f < PIN_FIELD_COUNT; f++)
            pin.each[f] = move(&pins->arena, o, pin.each[f], sizeof *pin.each[f]);
        arr_push(&pins->list, pin);
    }
    return pins;
}

struct order *order_make(struct model *m, const struct pins *pins, const int *op) {
    struct order *o = mem_alloc(sizeof *o);
    *o = (struct order){.whole = m, .whole_pins = pins};
    o->op = mem_array((size_t)m->n_ops, sizeof *o->op);
    o->place = mem_array((size_t)m->n_ops, sizeof *o->place);
    for (int i = 0; i < m->n_ops; i++) {
        o->op[i] = op[i];
        o->place[op[i]] = i;
    }
    o->model = list_model(o);
    o->pins = list_pins(o);
    return o;
}

void order_free(struct order *o) {
    if (!o)
        return;
    if (o->pins) {
        arr_release(&o->pins->list);
        arr_release(&o->pins->meshes);
        arena_release(&o->pins->arena);
        free(o->pins);
    }
    free(o->model->ops);
    free(o->model->tensors);
    free(o->model->params);
    free(o->model);
    free(o->op);
    free(o->place);
    free(o);
}

struct search_problem order_problem(const struct order *o, const struct search_problem *p) {
    struct search_problem q = *p;
    q.order = o;
    q.model = o->model;
    q.pins = o->pins;
    q.from = NULL;
    return q;
}

/* ---- plans ------------------------------------------------------------------------------- */

static int by_number(const void *a, const void *b) {
    const int *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

struct plan *order_plan(const struct order *o, int n_stages, const int *bounds) {
    struct plan *p = plan_create(o->whole, n_stages, bounds);
    for (int s = 0; s < n_stages; s++) {
        struct stage *st = &p->stages[s];
        for (int i = 0; i < st->n_ops; i++) {
            st->ops[i] = o->op[bounds[s] + i];
            p->stage_of[st->ops[i]] = s;
        }
        qsort(st->ops, (size_t)st->n_ops, sizeof *st->ops, by_number);
    }
    return p;
}

/* Copies what a stage decides to a stage with the ops at the positions from `first` on;
 * false if these are other ops. */
static bool translate_stage(const struct order *o, const struct stage *from, int first,
                            struct stage *to) {
    to->mesh = from->mesh;
    to->group = from->group;
    to->first_rank = from->first_rank;
    to->regather = from->regather;
    to->together = from->together;
    for (int i = 0; i < from->n_ops; i++) {
        int at = o->place[from->ops[i]] - first;
        if (at < 0 || at >= from->n_ops)
            return false;
        to->layouts[at] = from->layouts[i];
        to->recompute[at] = from->recompute[i];
        to->zero[at] = from->zero[i];
        to->offload[at] = from->offload[i];
    }
    return true;
}

/* The translated plan has the same stages in the same order; its ops are renumbered. */
struct plan *order_translate(const struct order *o, const struct plan *plan) {
    int *bounds = mem_array((size_t)plan->n_stages + 1, sizeof *bounds);
    for (int s = 0; s < plan->n_stages; s++)
        bounds[s + 1] = bounds[s] + plan->stages[s].n_ops;
    struct plan *p = plan_create(o->model, plan->n_stages, bounds);
    bool good = true;
    for (int s = 0; s < plan->n_stages; s++)
        good &= translate_stage(o, &plan->stages[s], bounds[s], &p->stages[s]);
    free(bounds);
    p->batch = plan->batch;
    p->micro_batch = plan->micro_batch;
    p->schedule = plan->schedule;
    p->optimizer = plan->optimizer;
    p->dtype = plan->dtype;
    p->reduce = plan->reduce;
    p->aggregate = plan->aggregate;
    p->faulty = plan->faulty;
    p->average = plan->average;
    p->average_every = plan->average_every;
    p->overlap = plan->overlap;
    p->logits = plan->logits;
    p->n_groups = plan->n_groups;
    p->devices = plan->devices;
    if (good)
        return p;
    plan_destroy(p);
    return NULL;
}

bool plan_is_as_listed(const struct plan *plan) {
    for (int s = 0, op = 0; s < plan->n_stages; s++)
        for (int i = 0; i < plan->stages[s].n_ops; i++)
            if (plan->stages[s].ops[i] != op++)
                return false;
    return true;
}

/* Lists the ops stage by stage. */
struct order *order_of_plan(const struct plan *plan, const struct pins *pins) {
    struct model *m = plan->model;
    int *op = mem_array((size_t)m->n_ops, sizeof *op), n = 0;
    for (int s = 0; s < plan->n_stages; s++)
        for (int i = 0; i < plan->stages[s].n_ops; i++)
            op[n++] = plan->stages[s].ops[i];
    struct order *o = order_make(m, pins, op);
    free(op);
    for (int i = 0; i < m->n_ops; i++)
        for (int k = 0; k < m->ops[i].n_param; k++) {
            int param = m->ops[i].param[k];
            if (param >= 0 && o->place[m->params[param].first_op] > o->place[i]) {
                order_free(o);
                return NULL;
            }
        }
    return o;
}
