/* weft-search --explain with --cost aceso:FOLDER: what bounds a configuration, and what it takes to
 * decide otherwise: each line is a search in which one decision is pinned and all others are free. */
#include "search_aceso.h"

#include "common/mem.h"
#include "common/progress.h"
#include "common/text.h"

#include <math.h>
#include <string.h>

static const double MIB = 1 << 20;

struct explain {
    const struct aceso_problem *p;
    const struct aceso_plan *best;
    FILE *f;
    double next;        /* the least ratio of another decision, */
    char next_name[32]; /* and which one; "": none */
};

/* ---- the configuration itself --------------------------------------------------------------- */

static void print_share(FILE *f, const char *what, double us, double of) {
    if (us > 0.0005 * of)
        fprintf(f, ", %s %.1f %%", what, 100 * us / of);
}

static void print_bounds(const struct explain *x) {
    const struct aceso_config *c = x->best->config;
    const struct aceso_step_cost *step = &x->best->cost;
    struct aceso_stage_cost s;
    double n = (double)(c->batch / c->micro_batch);
    aceso_cost_stage(x->p->model, c, step->slowest, &s);
    double computes = s.us - s.recompute_us - s.convert_us - s.message_us;
    fprintf(x->f, "time    stage %d sets the pace: computes %.1f %% of the step",
            step->slowest, 100 * n * computes / step->us);
    print_share(x->f, "recomputation", n * s.recompute_us, step->us);
    print_share(x->f, "conversions", n * s.convert_us, step->us);
    print_share(x->f, "messages", n * s.message_us, step->us);
    print_share(x->f, "waiting", step->us - n * s.us, step->us);
    fprintf(x->f, "\nmemory  stage %d is fullest: %s", step->fullest,
            text_bytes(step->mib * MIB).s);
    if (isfinite(x->p->limits.mib))
        fprintf(x->f, " of %s", text_bytes(x->p->limits.mib * MIB).s);
    fputc('\n', x->f);
}

/* ---- others --------------------------------------------------------------------------------- */

static void print_line(const struct explain *x, const char *what,
                       const struct aceso_plan *plan) {
    char words[WORDS_LINE];
    fprintf(x->f, "%-24s %12s %7.3f  %s\n", what,
            text_time_beside(plan->cost.us, x->best->cost.us).s,
            plan->cost.us / x->best->cost.us,
            search_aceso_words(plan->config, words, sizeof words));
}

/* The ratio of the best of another problem, 0 where there is none. With fewer limits (relaxed) the
 * configuration at hand stands for whatever is slower. */
static double try(struct explain *x, const char *what, const struct aceso_problem *p,
                  bool relaxed) {
    struct aceso_result r = {0};
    struct err why = {0};
    if (aceso_stopped(p))
        return 0;
    const struct aceso_plan *found = aceso_search(p, &r, &why) == 0 ? r.plans : NULL;
    if (relaxed && (!found || found->cost.us > x->best->cost.us))
        found = x->best;
    double ratio = found ? found->cost.us / x->best->cost.us : 0;
    if (found)
        print_line(x, what, found);
    else
        fprintf(x->f, "%-24s %s\n", what, why.msg);
    aceso_result_release(&r);
    fflush(x->f);
    return ratio;
}

static void decide(struct explain *x, const char *what, const struct aceso_problem *p) {
    double ratio = try(x, what, p, false);
    if (ratio > 0 && ratio != 1 && (!x->next_name[0] || ratio < x->next)) {
        x->next = ratio;
        snprintf(x->next_name, sizeof x->next_name, "%s", what);
    }
}

static void try_stages(struct explain *x, int stages) {
    char what[32];
    struct aceso_problem p = *x->p;
    snprintf(what, sizeof what, "stages %d", p.stages = stages);
    decide(x, what, &p);
}

static void try_tensors(struct explain *x) {
    const struct aceso_config *c = x->best->config;
    int most = 1;
    for (int i = 0; i < c->n_ops; i++)
        most = c->layout[i].tp > most ? c->layout[i].tp : most;
    for (int tp = most > 1 ? most / 2 : 2; tp <= x->p->devices && tp <= 2 * most; tp *= 2) {
        char what[32];
        struct aceso_problem p = *x->p;
        snprintf(what, sizeof what, "tp %d", p.limits.tp = tp);
        decide(x, what, &p);
    }
}

static void try_recompute(struct explain *x) {
    struct aceso_problem p = *x->p;
    bool any = false;
    for (int i = 0; i < x->best->config->n_ops; i++)
        any |= x->best->config->recompute[i];
    p.limits.recompute = ACESO_recompute_none;
    if (any)
        decide(x, "recompute none", &p);
    p.limits.recompute = ACESO_recompute_all;
    decide(x, "recompute all", &p);
}

static void try_micro_batches(struct explain *x) {
    int64_t b = x->best->config->micro_batch;
    for (int i = 0; i < x->p->n_micro; i++) {
        char what[32];
        struct aceso_problem p = *x->p;
        p.micro = &x->p->micro[i];
        p.n_micro = 1;
        snprintf(what, sizeof what, "micro-batch %lld", (long long)*p.micro);
        if (*p.micro == 2 * b || 2 * *p.micro == b)
            decide(x, what, &p);
    }
}

/* Returns the ratio without any limit of memory. */
static double try_relaxed(struct explain *x) {
    struct aceso_problem p = *x->p;
    double ratio = 0;
    if (isfinite(p.limits.mib)) {
        p.limits.mib += 1024;
        try(x, "with 1 GiB more", &p, true);
        p.limits.mib = INFINITY;
        ratio = try(x, "with any memory", &p, true);
    }
    p = *x->p;
    p.devices += p.per_node;
    try(x, "with one node more", &p, true);
    return ratio;
}

static void print_summary(const struct explain *x, double unlimited) {
    static const double SHOWN = 5e-5; /* of what has two digits of a percent */
    fputc('\n', x->f);
    if (unlimited > 0 && unlimited < 1 - SHOWN)
        fprintf(x->f, "binds   the limit of memory: without, a step takes %.2f %% less\n",
                100 * (1 - unlimited));
    else if (unlimited > 0)
        fprintf(x->f,
                "free    the limit of memory: without, no plan was found that is faster\n");
    if (x->next_name[0])
        fprintf(x->f, "next    %s: the best of the other decisions takes %.2f %% more\n",
                x->next_name, 100 * (x->next - 1));
}

int search_aceso_explain(const struct aceso_problem *p, const struct aceso_plan *best,
                         FILE *f, struct err *err) {
    struct aceso_problem once = *p;
    struct explain x = {.p = &once, .best = best, .f = f};
    int n = best->config->n_stages;
    (void)err;
    once.top = 1;
    print_bounds(&x);
    fprintf(f, "\n%-24s %12s %7s  %s\n", "what else costs", "step", "ratio", "plan");
    print_line(&x, "this plan", best);
    if (n > 1)
        try_stages(&x, 1);
    if (n > 3)
        try_stages(&x, n / 2);
    if (2 * n <= p->devices)
        try_stages(&x, 2 * n);
    try_tensors(&x);
    try_recompute(&x);
    try_micro_batches(&x);
    print_summary(&x, try_relaxed(&x));
    if (aceso_stopped(p))
        fprintf(f, "stopped before all was tried\n");
    return 0;
}
