/* One provider behind another: the second is asked what the first does not know. */
#include "cost/provider.h"

#include "common/mem.h"

#include <stdlib.h>

struct stack {
    struct cost_provider base;
    struct cost_provider *first, *second;
};

static struct cost_time stack_op(const struct cost_provider *p,
                                 const struct op_question *q) {
    const struct stack *s = (const struct stack *)p;
    struct cost_time t = s->first->kind->op(s->first, q);
    return t.from != COST_UNKNOWN ? t : s->second->kind->op(s->second, q);
}

static struct cost_time stack_collective(const struct cost_provider *p,
                                         const struct comm_question *q) {
    const struct stack *s = (const struct stack *)p;
    struct cost_time t = s->first->kind->collective(s->first, q);
    return t.from != COST_UNKNOWN ? t : s->second->kind->collective(s->second, q);
}

static struct cost_time stack_message(const struct cost_provider *p,
                                      const struct comm_question *q) {
    const struct stack *s = (const struct stack *)p;
    struct cost_time t = s->first->kind->message(s->first, q);
    return t.from != COST_UNKNOWN ? t : s->second->kind->message(s->second, q);
}

static void stack_destroy(struct cost_provider *p) {
    struct stack *s = (struct stack *)p;
    provider_destroy(s->first);
    provider_destroy(s->second);
    free(s);
}

static const struct provider_kind stack_kind = {stack_op, stack_collective, stack_message,
                                                stack_destroy};

struct cost_provider *provider_stack(struct cost_provider *first,
                                     struct cost_provider *second) {
    struct stack *s = mem_alloc(sizeof *s);
    s->base = *first; /* messages name its device */
    s->base.kind = &stack_kind;
    s->first = first;
    s->second = second;
    return &s->base;
}
