/* Routing: what the dims of one op alone do not say. Tokens are routed within sample groups, by
 * one op, and moved by others that have its experts and its groups. */
#include "model/read.h"

/* Slots are 32-bit numbers, and kernels keep a few numbers per expert at hand. */
enum { MAX_EXPERTS = 1 << 16 };

static int64_t dim_size(const struct reader *r, int dim) {
    return r->dim_list.p[dim].size;
}

/* [batch, .., t, e] or [batch, .., 2, e]: groups are of whole samples, and of one where a sample has
 * several. */
static int check_groups(const struct reader *r, const struct model_op *op,
                        const struct shape *s, struct err *err) {
    int64_t group = (int64_t)op->attr[ATTR_group];
    if (s->rank < 3 || s->dim[0] != r->m->batch)
        return err_input(err,
                         "in[0]: expected dims that begin with batch, with two or more "
                         "behind it");
    if (group > 1 && s->rank > 3)
        return err_input(err,
                         "group: several samples (%lld) make one where batch has two dims "
                         "behind it only",
                         (long long)group);
    int64_t experts = dim_size(r, s->dim[s->rank - 1]);
    double tokens = (double)group * (double)dim_size(r, s->dim[s->rank - 2]);
    if (experts > MAX_EXPERTS || tokens * (double)experts > INT32_MAX)
        return err_input(err, "group: %.0f tokens for %lld experts are too many", tokens,
                         (long long)experts);
    return 0;
}

/* logits[.., e] */
static int check_choices(const struct reader *r, const struct model_op *op,
                         const struct shape *logits, struct err *err) {
    int64_t experts = dim_size(r, logits->dim[logits->rank - 1]);
    if (op->attr[ATTR_choices] > (double)experts)
        return err_input(err, "choices: expected at most the %lld experts, got %.0f",
                         (long long)experts, op->attr[ATTR_choices]);
    return 0;
}

/* A token's choices are among those of the groups of experts that it keeps. */
static int check_parts(const struct reader *r, const struct model_op *op,
                       const struct slot_shapes *shapes, struct err *err) {
    const struct shape *logits = shapes->in[0], *gates = shapes->out[0];
    const int64_t experts = dim_size(r, logits->dim[logits->rank - 1]);
    const int64_t choices = dim_size(r, gates->dim[gates->rank - 1]);
    const int64_t parts = (int64_t)op->attr[ATTR_parts],
                  kept = (int64_t)op->attr[ATTR_kept];
    if (experts % parts || experts / parts < (int64_t)op->attr[ATTR_best])
        return err_input(err, "parts: %lld experts make no %lld groups of at least %.0f",
                         (long long)experts, (long long)parts, op->attr[ATTR_best]);
    if (parts > 1 && (kept > parts || kept * (experts / parts) < choices))
        return err_input(err,
                         "kept: %lld of %lld groups of %lld experts have no %lld choices",
                         (long long)kept, (long long)parts, (long long)(experts / parts),
                         (long long)choices);
    return 0;
}

/* The op takes its sample groups from where its slots, the last operand, come from. */
static int follow_route(const struct reader *r, struct model_op *op, int experts,
                        struct err *err) {
    int k = op->n_in - 1;
    const struct model_tensor *slots = &r->tensors.p[op->in[k]];
    const struct model_op *route = slots->producer < 0 ? NULL : &r->ops.p[slots->producer];
    if (!route || route->kind != OP_route)
        return err_input(err, "in[%d]: expected the slots that a route gives", k);
    const struct shape *logits = &r->tensors.p[route->in[0]].shape;
    int routed = logits->dim[logits->rank - 1];
    if (routed != experts)
        return err_input(err, "in[%d]: the slots are of the dim %.64s, not of %.64s", k,
                         r->dim_list.p[routed].name, r->dim_list.p[experts].name);
    op->attr[ATTR_group] = route->attr[ATTR_group];
    return 0;
}

int read_routing(const struct reader *r, struct model_op *op,
                 const struct slot_shapes *shapes, struct err *err) {
    switch (op->kind) {
    case OP_route:
        return check_groups(r, op, shapes->in[0], err) < 0
                   ? -1
                   : check_parts(r, op, shapes, err);
    case OP_balance: return check_groups(r, op, shapes->in[0], err);
    case OP_expert_load:
        return check_groups(r, op, shapes->in[0], err) < 0
                   ? -1
                   : check_choices(r, op, shapes->in[0], err);
    case OP_dispatch: return follow_route(r, op, shapes->out[0]->dim[0], err);
    case OP_combine: return follow_route(r, op, shapes->in[0]->dim[0], err);
    default: return 0;
    }
}
