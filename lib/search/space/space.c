/* The space: what plans may choose, how a candidate becomes a plan, and candidates that
 * divide ops and devices evenly. */
#include "search/space/space.h"
#include "search/space/devices.h"
#include "search/space/order.h"

#include <stdlib.h>
#include <string.h>

/* ---- candidates ---------------------------------------------------------------------- */

const struct search_problem *space_problem_of(const struct space *sp) {
    return &sp->p;
}

int space_max_groups(const struct space *sp) {
    return sp->max_groups;
}

int space_stage_limit(const struct space *sp) {
    return sp->max_stages;
}

int64_t space_spare(const struct space *sp) {
    enum { LITTLE = 1 << 16, LEAST = 2 };
    int64_t size = (int64_t)sp->p.model->n_ops * sp->p.devices;
    return size * LEAST < LITTLE ? LITTLE / size : LEAST;
}

/* ---- overlap --------------------------------------------------------------------------- */

bool space_may_hide(const struct space *sp) {
    int64_t pinned = space_pinned(sp, PIN_overlap);
    return (sp->p.may_overlap || pinned == 1) && pinned != 0 && sp->p.devices > 1 &&
           sp->p.provider->overlap > 0;
}

bool space_may_overlap(const struct space *sp) {
    bool copies = sp->p.offload && sp->p.may_overlap;
    return (sp->hides || copies) && space_pinned(sp, PIN_overlap) == PIN_FREE;
}

double space_hidden_us(const struct space *sp, double reduce_us, double backward_us) {
    return sp->hides ? fmin(sp->p.provider->overlap * reduce_us, backward_us) : 0;
}

/* ---- what the model offers ----------------------------------------------------------- */

int space_inner_dims(const struct space *sp) {
    return sp->n_inner;
}

bool space_has_sequence(const struct space *sp) {
    return sp->n_sequences > 0;
}

bool space_has_context(const struct space *sp) {
    return sp->n_sequences > 0 || sp->n_images > 0;
}

bool space_has_experts(const struct space *sp) {
    return sp->n_experts > 0;
}

/* ---- choices of a stage ------------------------------------------------------------------ */

bool space_keeps_all(const struct space *sp) {
    return !sp->p.offload && sp->p.logits <= 1;
}

bool space_may_regather(const struct space *sp) {
    return (sp->tight || sp->p.regather) && space_pinned(sp, PIN_regather) == PIN_FREE;
}

int space_zero_levels(const struct space *sp) {
    int most = sp->p.memory_bytes ? ZERO_PARAMETERS : ZERO_OPTIMIZER;
    return 1 + (sp->p.max_zero < most ? sp->p.max_zero : most);
}

/* ---- blocks that are recomputed ------------------------------------------------------- */

int space_block_begin(const struct space *sp, int op) {
    int lo = 0, hi = sp->n_blocks;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (sp->block_first[mid] <= op)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo ? sp->block_first[lo - 1] : 0;
}

int space_stage_blocks(const struct space *sp, const struct search_stage *st) {
    return segments_in(&sp->segments, st->first, st->end);
}

static bool is_recomputed(const struct space *sp, const struct search_stage *st, int op) {
    const struct dedup *x = &sp->blocks.x;
    int k = sp->segments.of[op] - segments_from(&sp->segments, st->first);
    bool chosen =
        st->recompute_level && sp->segments.of[op] >= 0 && k < st->recompute_blocks;
    return sp->recompute[chosen ? st->recompute_level : 0][x->node_of[x->of[op]]];
}

/* A plan's groups are numbered in the order of their ranks. */
static void number_groups(const struct candidate *c, struct plan *plan) {
    int *order = mem_array((size_t)c->n_groups, sizeof *order);
    candidate_order(c, order);
    for (int i = 0; i < c->n_groups; i++)
        for (int k = order[i]; k < c->n_stages; k += c->n_groups)
            plan->stages[k].group = i;
    free(order);
}

/* Copies what the candidate decides, op by op; what pins alone decide comes last. */
struct plan *space_plan_of(const struct space *sp, const struct candidate *c) {
    const struct blocks *g = &sp->blocks;
    int *bounds = mem_array((size_t)c->n_stages + 1, sizeof *bounds);
    for (int k = 0; k < c->n_stages; k++)
        bounds[k + 1] = c->stages[k].end;
    const struct order *order = sp->p.order;
    struct plan *plan = order ? order_plan(order, c->n_stages, bounds)
                              : plan_create(sp->p.model, c->n_stages, bounds);
    free(bounds);
    plan->batch = sp->p.batch;
    plan->micro_batch = c->micro_batch;
    plan->schedule = c->schedule;
    plan->n_groups = c->n_groups;
    plan->optimizer = sp->p.optimizer;
    plan->dtype = sp->p.dtype;
    plan->logits = sp->p.logits > 1 ? sp->p.logits : 1;
    number_groups(c, plan);
    for (int k = 0; k < c->n_stages; k++) {
        const struct search_stage *from = &c->stages[k];
        struct stage *st = &plan->stages[k];
        stage_mesh(from->devices, from->mesh, &st->mesh);
        st->regather = blocks_regather(g, g->x.of[from->first], from->regather);
        for (int i = 0; i < st->n_ops; i++) {
            int op = order ? order->place[st->ops[i]] : st->ops[i];
            int node = g->x.node_of[g->x.of[op]];
            st->layouts[i] = from->layouts[node];
            st->recompute[i] = is_recomputed(sp, from, op);
            st->zero[i] = (int8_t)blocks_zero(g, g->x.of[op], search_zero_of(from));
            st->offload[i] = (int8_t)blocks_offload(g, g->x.of[op]);
        }
    }
    space_put_pins(sp, plan);
    return plan;
}

/* ---- whole candidates ---------------------------------------------------------------- */

/* Returns the op in front of which this share of all flops lies. */
static int op_at_share(const struct space *sp, double share) {
    int lo = 0, hi = sp->p.model->n_ops;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (sp->flops[mid] < share * sp->flops[sp->p.model->n_ops] * (1 - 1e-9))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Cuts the ops in proportion to the stages' devices: each stage takes its share of the
 * flops, then all ops to the end of the instance, and leaves at least one op for each
 * stage behind. */
static void cut_evenly(const struct space *sp, struct candidate *c) {
    const struct structure *st = &sp->blocks.s;
    int n_ops = sp->p.model->n_ops, op = 0, before = 0;
    int chunks = c->n_stages / c->n_groups, all = chunks * sp->p.devices;
    for (int k = 0; k < c->n_stages; k++) {
        struct search_stage *to = &c->stages[k];
        int most = n_ops - (c->n_stages - 1 - k);
        before += to->devices;
        int end = op_at_share(sp, (double)before / all);
        end = end > op ? end : op + 1;
        end = structure_next_unit(st, end);
        to->first = op;
        op = to->end = k == c->n_stages - 1 ? n_ops : end < most ? end : most;
    }
}

/* Pins may move the even cuts, or make them impossible. */
bool space_even(const struct space *sp, int n_stages, int64_t micro_batch,
                struct preset preset, struct candidate *out) {
    const bool regather = sp->p.regather && space_may_regather(sp) && preset.sequence;
    int left = sp->p.devices;
    if (n_stages > sp->max_groups)
        return false;
    out->n_stages = out->n_groups = n_stages;
    out->micro_batch = micro_batch;
    out->schedule = space_first_schedule(sp);
    for (int k = 0; k < n_stages; k++) {
        out->stages[k] =
            (struct search_stage){.devices = left / (n_stages - k), .regather = regather};
        left -= out->stages[k].devices;
    }
    cut_evenly(sp, out);
    if (!space_place_stages(sp, out))
        return false;
    for (int k = 0; k < n_stages; k++)
        space_apply_preset(sp, &out->stages[k], micro_batch, preset);
    return true;
}

/* Each group takes several shorter stages, cut evenly and laid out like its stage in
 * c. */
bool space_chunk(const struct space *sp, const struct candidate *c, int chunks,
                 struct candidate *out) {
    int groups = c->n_groups, n = chunks * groups;
    if (sp->p.pins || groups < 2 || n > sp->max_stages ||
        (chunks > 1 && n > structure_units(&sp->blocks.s)))
        return false;
    candidate_copy(out, c);
    out->n_stages = n;
    out->schedule =
        chunks > 1 ? space_schedule_for(sp, STAGES_ROUND) : space_plain_schedule(sp);
    for (int k = groups; k < n; k++)
        out->stages[k] = out->stages[k % groups];
    cut_evenly(sp, out);
    for (int k = 0; k < n; k++) {
        struct search_stage *st = &out->stages[k];
        int blocks = space_stage_blocks(sp, st);
        st->recompute_blocks =
            blocks < st->recompute_blocks ? blocks : st->recompute_blocks;
    }
    return true;
}
