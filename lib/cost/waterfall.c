/* Terms of a step: see waterfall.h. */
#include "cost/waterfall.h"

#include "cost/curve.h"

#include <math.h>

static const char *const names[] = {
#define X(id, about) #id,
    WATERFALL_TERMS(X)
#undef X
};
static const char *const abouts[] = {
#define X(id, about) about,
    WATERFALL_TERMS(X)
#undef X
};

const char *waterfall_name(enum waterfall_term t) {
    return names[t];
}

const char *waterfall_about(enum waterfall_term t) {
    return abouts[t];
}

struct fall {
    const struct program *g;
    struct cost *c;
    double us[WATERFALL_COUNT];
    double at_peak_us; /* products of the group, without what is computed again */
    double comm_us;    /* collectives of its passes, hidden or not */
};

/* Whether an instruction of a backward segment makes a result of the forward pass again. */
static bool is_again(const struct fall *f, const struct stage_program *sp,
                     const struct instr *i) {
    struct span forward = program_segment(sp, SEG_FORWARD);
    if (i->op < 0 || !cost_recomputes(&f->g->plan->stages[sp->stage], i->op))
        return false;
    for (int k = forward.first; k < forward.end; k++)
        if (sp->instrs[k].op == i->op && sp->instrs[k].code == i->code)
            return true;
    return false;
}

/* The time of a product at the devices' peak for its type; 0 for other instructions. */
static double peak_us(const struct fall *f, const struct stage *st, const struct instr *i) {
    double peak = (int)i->dtype < (int)CLUSTER_DTYPES
                      ? cluster_flops(&f->c->cluster, i->dtype, st->first_rank, 1)
                      : 0;
    struct instr_work w;
    instr_work(i->code, &i->n, &w);
    return peak > 0 && curve_form_of(i->code) != CURVE_MOVE ? 1e6 * w.flops / peak : 0;
}

static void add_instr(struct fall *f, const struct stage_program *sp, int k, bool again,
                      double uses) {
    const struct instr *i = &sp->instrs[k];
    if (opcode_key(i->code) == KEY_P2P || i->code == I_norm)
        return;
    double us = uses * cost_instr(f->c, f->g->plan, sp, i).us;
    double peak = uses * peak_us(f, &f->g->plan->stages[sp->stage], i);
    enum curve_form form = curve_form_of(i->code);
    if (opcode_key(i->code) == KEY_COMM || i->work >= 0) {
        f->comm_us += us;
    } else if (again) {
        f->us[WATERFALL_recompute] += us;
    } else {
        f->at_peak_us += peak;
        f->us[form == CURVE_MOVE        ? WATERFALL_memory
              : form == CURVE_ATTENTION ? WATERFALL_attention
                                        : WATERFALL_products] += us - peak;
    }
}

static void add_segment(struct fall *f, const struct stage_program *sp, enum segment seg,
                        double uses) {
    struct span span = program_segment(sp, seg), forward = program_segment(sp, SEG_FORWARD);
    for (int k = span.first; k < span.end; k++)
        add_instr(f, sp, k, seg != SEG_FORWARD && is_again(f, sp, &sp->instrs[k]), uses);
    for (int k = forward.first; k < forward.end; k++)
        if (cost_runs_again(f->c, f->g->plan, sp, k, seg))
            add_instr(f, sp, k, true, uses);
}

/* How often a stage's segment runs. */
static int64_t uses_of(const struct group_schedule *s, int stage, enum segment seg) {
    int64_t n = schedule_actions(s), uses = 0;
    for (int64_t i = 0; i < n; i++) {
        struct action a = schedule_action(s, i);
        uses += a.stage == stage && a.segment == seg;
    }
    return uses;
}

/* Splits what the simulation says of a group's stages by the times of instructions. */
static void add_group(struct fall *f, const struct simulation *sim, int group) {
    struct group_schedule s =
        schedule_of_group(f->g->plan, group, plan_micro_batches(f->g->plan));
    double beside_us = 0;
    for (const int *c = s.chunks; c < s.chunks + s.n_chunks; c++) {
        for (int seg = 0; seg < SEG_REDUCE; seg++)
            add_segment(f, &f->g->stages[*c], (enum segment)seg,
                        (double)uses_of(&s, *c, (enum segment)seg));
        beside_us += sim->stages[*c].collective_us;
        f->us[WATERFALL_messages] += sim->stages[*c].p2p_us;
        f->us[WATERFALL_update] += sim->stages[*c].update_us;
        f->us[WATERFALL_bubble] = sim->stages[*c].bubble_us; /* of the group */
    }
    /* What computation waits for beyond the collectives' own time is its host. */
    f->us[WATERFALL_collectives] = fmin(beside_us, f->comm_us);
    f->us[WATERFALL_host] = beside_us - f->us[WATERFALL_collectives];
}

int waterfall_find(const struct program *g, struct cost *c, const struct simulation *sim,
                   double flops, struct waterfall *out, struct err *err) {
    const struct plan *p = g->plan;
    double peak = cluster_flops(&c->cluster, p->dtype, 0, p->devices);
    struct fall f = {.g = g, .c = c};
    if (peak <= 0) {
        err_input(err, "the cluster does not say the peak of its devices in %s",
                  plan_dtype_name(p->dtype));
        err_hint(err,
                 "a cluster with \"flops\" does: --cluster h100:8 or a weft-cluster file");
        return -1;
    }
    add_group(&f, sim, p->stages[sim->slowest].group);
    f.us[WATERFALL_peak] = 1e6 * flops / peak;
    f.us[WATERFALL_uneven] = f.at_peak_us - f.us[WATERFALL_peak];
    *out = (struct waterfall){.stage = sim->slowest};
    out->ns[WATERFALL_rest] = llround(1e3 * sim->time_us);
    for (int t = 0; t < WATERFALL_rest; t++) {
        out->ns[t] = llround(1e3 * f.us[t]);
        out->ns[WATERFALL_rest] -= out->ns[t];
    }
    return 0;
}
