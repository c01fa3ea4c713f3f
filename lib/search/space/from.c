/* A plan read back into a candidate, so that a search can start from it.
 *
 * The space is coarser than plans: instances of blocks in a stage have one layout; a
 * stage recomputes its first blocks, at one level, and has one level of ZeRO. Whatever
 * else a plan has is dropped and reported. A mesh whose axes are products of the
 * space's axes is divided into these; any other mesh stays as it is. */
#include "search/space/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reading {
    const struct space *sp;
    const struct plan *plan;
    struct candidate *to;
    char *lost; /* "micro-batch, offloading": what is dropped, each once */
    size_t size;
};

static void lose(struct reading *r, const char *what) {
    size_t n = strlen(r->lost);
    if (!strstr(r->lost, what))
        snprintf(r->lost + n, r->size - n, "%s%s", n ? ", " : "", what);
}

/* ---- stages ---------------------------------------------------------------------------- */

/* If the order of groups is no choice, they take the usual one. */
static void take_places(struct reading *r) {
    struct candidate *c = r->to;
    int *order = mem_array((size_t)c->n_groups, sizeof *order);
    bool free_order = space_has_places(r->sp), moved = false;
    candidate_order(c, order);
    for (int i = 0; i < c->n_groups; i++) {
        moved |= order[i] != i;
        order[i] = free_order ? order[i] : i;
    }
    candidate_place(c, order);
    free(order);
    if (moved && !free_order)
        lose(r, "the order of groups of devices");
}

/* Stages have to be ranges of the model's order, with stage k on group k % groups. */
static int take_stages(struct reading *r, struct err *err) {
    const struct plan *p = r->plan;
    const struct space *sp = r->sp;
    if (p->n_groups > space_max_groups(sp) || p->n_stages > space_stage_limit(sp))
        return err_input(err, "%d stages, but there can be at most %d", p->n_stages,
                         p->n_groups > space_max_groups(sp) ? space_max_groups(sp)
                                                            : space_stage_limit(sp));
    for (int k = 0, op = 0; k < p->n_stages; k++) {
        const struct stage *st = &p->stages[k];
        if (st->ops[0] != op || st->ops[st->n_ops - 1] != op + st->n_ops - 1)
            return err_input(err, "stages[%d]: no stretch of the model's order", k);
        int home = p->stages[k % p->n_groups].group;
        if (st->group != home)
            return err_input(err, "stages[%d].group: expected %d, found %d", k, home,
                             st->group);
        r->to->stages[k] = (struct search_stage){
            .first = op, .devices = mesh_devices(&st->mesh), .place = st->group};
        op += st->n_ops;
        r->to->stages[k].end = op;
    }
    r->to->n_stages = p->n_stages;
    r->to->n_groups = p->n_groups;
    take_places(r);
    return 0;
}

/* Takes the numbers that the search considers, or the nearest ones. */
static void take_numbers(struct reading *r) {
    const struct search_problem *p = &r->sp->p;
    int at = p->n_micro - 1;
    while (at > 0 && p->micro[at] > r->plan->micro_batch)
        at--;
    r->to->micro_batch = p->micro[at];
    r->to->schedule = r->plan->schedule;
    if (p->micro[at] != r->plan->micro_batch)
        lose(r, "micro-batch");
    if (!space_has_schedule(r->sp, r->plan->schedule) &&
        !(r->sp->further >> r->plan->schedule & 1) && r->to->n_groups == r->to->n_stages) {
        lose(r, "schedule");
        r->to->schedule = space_first_schedule(r->sp);
    }
    if (r->plan->batch != p->batch)
        lose(r, "batch");
    if (r->plan->optimizer != p->optimizer)
        lose(r, "optimizer");
    if (r->plan->dtype != p->dtype)
        lose(r, "dtype");
    if (r->plan->overlap && !space_may_overlap(r->sp))
        lose(r, "overlap");
    if (r->plan->logits > 1 && p->logits <= 1)
        lose(r, "logits in pieces");
    if (r->plan->aggregate != AGGREGATE_mean)
        lose(r, "aggregate");
    if (r->plan->average != AVERAGE_none)
        lose(r, "average");
}

/* ---- layouts --------------------------------------------------------------------------- */

/* Finds which axis of a mesh each axis of a finer mesh is a part of; false if it is
 * not finer. */
static bool take_apart(const struct mesh *mesh, const struct mesh *finer, int *part_of) {
    int a = 0;
    for (int m = 0; m < mesh->n_axes; m++) {
        int left = mesh->size[m];
        for (; a < finer->n_axes && left > 1 && left % finer->size[a] == 0; a++) {
            left /= finer->size[a];
            part_of[a] = m;
        }
        if (left > 1)
            return false;
    }
    return a == finer->n_axes;
}

static struct layout refine(const struct layout *l, const struct mesh *finer,
                            const int *part_of) {
    struct layout out;
    memset(&out, PLACE_NONE, sizeof out);
    out.ring = l->ring;
    for (int a = 0; a < finer->n_axes; a++)
        out.dim[a] = l->dim[part_of[a]];
    return out;
}

/* The first op of a node decides for all of them. */
static void take_layouts(struct reading *r, int k) {
    const struct blocks *g = &r->sp->blocks;
    const struct stage *st = &r->plan->stages[k];
    struct search_stage *to = &r->to->stages[k];
    size_t nodes = (size_t)g->x.n_nodes;
    bool *seen = mem_array(nodes, sizeof *seen);
    struct layout *layouts = mem_array(nodes, sizeof *layouts);
    struct mesh mesh;
    int part_of[MESH_MAX_AXES];
    space_apply_preset(r->sp, to, r->to->micro_batch, (struct preset){.inner = ~0u});
    memcpy(layouts, to->layouts, nodes * sizeof *layouts);
    stage_mesh(to->devices, to->mesh, &mesh);
    bool finer = take_apart(&st->mesh, &mesh, part_of);
    if (!finer)
        to->mesh = &st->mesh;
    for (int i = 0; i < st->n_ops; i++) {
        int node = g->x.node_of[g->x.of[st->ops[i]]];
        struct layout l = finer ? refine(&st->layouts[i], &mesh, part_of) : st->layouts[i];
        if (!seen[node])
            layouts[node] = l;
        else if (memcmp(&layouts[node], &l, sizeof l))
            lose(r, "layouts that differ in blocks that are alike");
        seen[node] = true;
    }
    to->layouts = space_layouts(r->sp, layouts);
    free(layouts);
    free(seen);
}

/* ---- memory ---------------------------------------------------------------------------- */

/* The highest level of ZeRO in the stage counts, because it needs the least memory. */
static void take_zero(struct reading *r, int k) {
    const struct stage *st = &r->plan->stages[k];
    struct search_stage *to = &r->to->stages[k];
    int least = ZERO_PARAMETERS;
    for (int i = 0; i < st->n_ops; i++) {
        bool has = r->plan->model->ops[st->ops[i]].n_param > 0;
        to->zero = has && st->zero[i] > to->zero ? st->zero[i] : to->zero;
        least = has && st->zero[i] < least ? st->zero[i] : least;
        if (st->offload[i] & ~r->sp->p.offload)
            lose(r, "offloading");
        else if (st->offload[i] != r->sp->p.offload)
            lose(r, "offloading of some ops only");
    }
    if (least < to->zero)
        lose(r, "levels of ZeRO that differ in a stage");
    if (to->zero >= space_zero_levels(r->sp)) {
        lose(r, "ZeRO");
        to->zero = space_zero_levels(r->sp) - 1;
    }
    to->regather = st->regather && space_may_regather(r->sp);
    if (st->regather && !to->regather &&
        !blocks_regather(&r->sp->blocks, r->sp->blocks.x.of[to->first], false))
        lose(r, "regathering");
}

/* Takes the level and the number of blocks with which most ops are recomputed as in
 * the plan. */
static void take_recompute(struct reading *r, int k) {
    const struct space *sp = r->sp;
    const struct stage *st = &r->plan->stages[k];
    struct search_stage *to = &r->to->stages[k];
    int blocks = space_stage_blocks(sp, to), least = st->n_ops + 1;
    int first = segments_from(&sp->segments, to->first);
    int *wrong = mem_array((size_t)blocks + 2, sizeof *wrong);
    for (int level = 0; level < RECOMPUTE_LEVELS; level++) {
        int all = 0;
        memset(wrong, 0, sizeof *wrong * ((size_t)blocks + 2));
        for (int i = 0; i < st->n_ops; i++) {
            int op = st->ops[i], node = sp->blocks.x.node_of[sp->blocks.x.of[op]];
            int segment = sp->segments.of[op],
                block = segment < 0 ? blocks + 1 : segment - first + 1;
            all += sp->recompute[0][node] != st->recompute[i];
            wrong[block] += (sp->recompute[level][node] != st->recompute[i]) -
                            (sp->recompute[0][node] != st->recompute[i]);
        }
        for (int n = 0; n <= (level ? blocks : 0); n++) {
            all += n ? wrong[n] : 0;
            if (all < least) {
                least = all;
                to->recompute_level = n ? level : 0;
                to->recompute_blocks = n;
            }
        }
    }
    if (least)
        lose(r, "recompute");
    free(wrong);
}

/* ---- what options leave ---------------------------------------------------------------- */

static bool admits_stage(const struct space *sp, const struct stage *st) {
    int most = space_zero_levels(sp) - 1;
    for (int i = 0; i < st->n_ops; i++)
        if (st->zero[i] > most || (st->offload[i] & ~sp->p.offload))
            return false;
    return true;
}

/* What the plan decides is compared with the options and pins, stage by stage. */
bool space_admits(const struct space *sp, const struct plan *plan) {
    const struct search_problem *p = &sp->p;
    int64_t reduce = space_pinned(sp, PIN_reduce);
    bool micro = false, same = plan->batch == p->batch && plan->optimizer == p->optimizer &&
                               plan->dtype == p->dtype &&
                               (reduce != PIN_FREE || plan->reduce == DTYPE_f32) &&
                               plan->aggregate == AGGREGATE_mean &&
                               plan->average == AVERAGE_none;
    for (int i = 0; i < p->n_micro; i++)
        micro |= p->micro[i] == plan->micro_batch;
    if (!same || !micro || !space_has_schedule(sp, plan->schedule) ||
        (plan->overlap && !space_may_overlap(sp)) || (plan->logits > 1 && p->logits <= 1) ||
        (p->pins && pins_check(p->pins, plan, NULL) < 0))
        return false;
    for (int k = 0; k < plan->n_stages; k++)
        if (!admits_stage(sp, &plan->stages[k]))
            return false;
    return true;
}

/* ---- the whole ------------------------------------------------------------------------- */

/* What the space cannot express is dropped and named in `lost`. */
int space_take_plan(const struct space *sp, const struct plan *plan, struct candidate *out,
                    char *lost, size_t size, struct err *err) {
    struct reading r = {sp, plan, out, lost, size};
    lost[0] = '\0';
    if (plan->model->hash != sp->p.model->hash)
        return err_input(err, "a plan of another model");
    if (plan->devices != sp->p.devices)
        return err_input(err, "%d devices, but %d are to be used", plan->devices,
                         sp->p.devices);
    if (take_stages(&r, err) < 0)
        return -1;
    take_numbers(&r);
    for (int k = 0; k < out->n_stages; k++) {
        take_layouts(&r, k);
        take_zero(&r, k);
        take_recompute(&r, k);
    }
    return 0;
}
