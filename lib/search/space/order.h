/* order.h - the ops of a model in other orders.
 *
 * A stage may be any set of ops of which none needs the result of a later stage. The search
 * knows stages as stretches of a list of ops; in another list of the same ops other sets are
 * stretches. An order is such a list, with every operand before its readers, as a model of its
 * own, so algorithms search it like any other. The plans that come out are plans of the model
 * as it is.
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
    struct model *whole;           /* as it is; borrowed, as are its pins */
    const struct pins *whole_pins; /* or NULL */
    struct model *model;           /* the list */
    struct pins *pins;             /* of the list, or NULL */
    int *op;    /* [n_ops] at each place of the list the op of the whole model */
    bool all;   /* all orders are looked at: proofs go through them */
    int *place; /* [n_ops] of each op of the whole model */
};

/* op: [n_ops] the list, with operands before their readers and parameters before those that are tied to
 * them. The model and the pins, which may be NULL, are borrowed. */
struct order *order_make(struct model *m, const struct pins *pins, const int *op);
void order_free(struct order *o);

/* The problem with its model's ops in this order, without a plan to start from. */
struct search_problem order_problem(const struct order *o, const struct search_problem *p);

/* A plan of the whole model with stages of the ops at places bounds[k] .. bounds[k + 1] - 1. */
struct plan *order_plan(const struct order *o, int n_stages, const int *bounds);
/* A plan of the whole model as a plan of the list; the caller destroys it. NULL where a stage
 * is not a stretch of the list. */
struct plan *order_translate(const struct order *o, const struct plan *plan);
/* The list in which the stages of a plan are stretches, in the model's order inside; NULL where
 * a parameter would come after one that is tied to it. */
struct order *order_of_plan(const struct plan *plan, const struct pins *pins);
/* Are its stages stretches of the model's own list? */
bool plan_is_as_listed(const struct plan *plan);

/* Further orders that a search is to look at. */
enum { MOST_ORDERS = 24 };
struct orders {
    int n;
    struct order *p[MOST_ORDERS + 1];
};

/* Orders in which pipelines can be cut better than in the model's own (order_find.c). Where the
 * graph is small and its plans can be listed, all orders; otherwise those of the best cuts into
 * some numbers of stages, if they are better. `plan`, or NULL: one that is to be a candidate in
 * one of them. None where the problem leaves no choice (search_problem.as_listed). They depend
 * on the problem and the plan only. */
void orders_find(const struct search_problem *p, const struct plan *plan,
                 struct orders *out);
void orders_release(struct orders *o);

#endif
