/* order.h - the ops of a model in other orders.
 *
 * A stage may be any set of ops none of which needs the result of a later stage. To
 * the search, stages are ranges of a list of ops; in another list of the same ops
 * other sets are ranges. An order is such a list, with every operand before its
 * readers, as a model of its own, so that algorithms search it like any other model.
 * The plans that come out are plans of the original model.
 *
 *     struct orders o;
 *     orders_find(&problem, NULL, &o);
 *     for (int i = 0; i < o.n; i++) {
 *         struct search_problem q = order_problem(o.p[i], &problem);
 *         ...
 *     }
 *     orders_release(&o);
 */
#ifndef WEFT_ORDER_H
#define WEFT_ORDER_H

#include "search/search.h"

struct order {
    struct model *whole;           /* the original one; borrowed, as are its pins */
    const struct pins *whole_pins; /* or NULL */
    struct model *model;           /* the list */
    struct pins *pins;             /* of the list, or NULL */
    int *op;    /* [n_ops] op of the whole model at each position of the list */
    bool all;   /* all orders are looked at: proofs cover them */
    int *place; /* [n_ops] position in the list of each op of the whole model */
};

/* op: [n_ops] the list, with operands before their readers and parameters before those
 * that are tied to them. The model and the pins, which may be NULL, are borrowed. */
struct order *order_make(struct model *m, const struct pins *pins, const int *op);
void order_free(struct order *o);

/* The problem with its model's ops in this order, without a plan to start from. */
struct search_problem order_problem(const struct order *o, const struct search_problem *p);

/* A plan of the whole model whose stage k has the ops at positions bounds[k] ..
 * bounds[k + 1] - 1. */
struct plan *order_plan(const struct order *o, int n_stages, const int *bounds);
/* Translates a plan of the whole model to a plan of the list; the caller destroys it.
 * NULL if a stage is not a range of the list. */
struct plan *order_translate(const struct order *o, const struct plan *plan);
/* The list in which the stages of a plan are ranges, with the model's order inside
 * each; NULL if a parameter would come after one that is tied to it. */
struct order *order_of_plan(const struct plan *plan, const struct pins *pins);
/* Returns whether the plan's stages are ranges of the model's own list. */
bool plan_is_as_listed(const struct plan *plan);

/* Orders that a search looks at in addition to the model's own, at most. */
enum { MOST_ORDERS = 24 };
struct orders {
    int n;
    struct order *p[MOST_ORDERS + 1];
};

/* Finds orders in which pipelines can be cut better than in the model's own
 * (order_find.c): all orders if the graph is small and its plans can be listed;
 * otherwise those of the best cuts into some numbers of stages, if they are better.
 * plan: NULL, or one that must be a candidate in one of them. There are none if the
 * problem leaves no choice (search_problem.as_listed). They depend only on the problem
 * and the plan. */
void orders_find(const struct search_problem *p, const struct plan *plan,
                 struct orders *out);
void orders_release(struct orders *o);

#endif
