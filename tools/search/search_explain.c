/* weft-search --explain: what bounds a plan, and what it would cost to decide otherwise.
 *
 * Each alternative is a search of its own in which one decision is pinned to something else and all
 * others are free: so its price is that of the decision, not of a plan that was spoiled. */
#include "search_tool.h"

#include "common/json.h"
#include "common/progress.h"
#include "common/text.h"

#include <errno.h>

#include <stdlib.h>
#include <string.h>

struct explain {
    const char *target;      /* of --for, or NULL */
    const struct plan *from; /* what runs now, or NULL */
    const struct search_problem *p;
    search_algorithm *algorithm;
    const struct search_plan *best;
    FILE *f;
    bool stopped;
    struct err *err;    /* of writing; */
    bool failed;        /* then nothing more is tried */
    double next;        /* the least ratio of another decision, */
    char next_name[64]; /* and which one; "" = none */
    double unlimited; /* ratio without a limit of memory; 0 = there is none, or not known */
    double unpinned;  /* and without pins */
    struct with_nodes {
        int devices;
        double us; /* a step */
    } nodes[3];    /* a node less, the plan, a node more; of those that are known */
    int n_nodes;
};

/* ---- the plan itself ----------------------------------------------------------------------- */

/* ", collectives 12.1 %", where that is anything of the whole. */
static void print_share(FILE *f, const char *what, double us, double of) {
    if (us > 0.0005 * of)
        fprintf(f, ", %s %.1f %%", what, 100 * us / of);
}

/* Compiles and simulates; on success both are the caller's. */
static int simulate(const struct explain *x, const struct plan *plan, struct program **g,
                    struct simulation *sim, struct err *err) {
    struct cost cost;
    *g = program_compile(plan, err);
    if (!*g)
        return -1;
    cost_init(&cost, x->p->provider, &x->p->cluster);
    int rc = simulate_program(*g, &cost, NULL, sim, err);
    cost_release(&cost);
    if (rc < 0)
        program_destroy(*g);
    return rc;
}

/* Where the time of the stage that sets the pace goes, and who is fullest. */
static int print_bounds(const struct explain *x, struct err *err) {
    struct simulation sim;
    struct program *g;
    int rc = simulate(x, x->best->plan, &g, &sim, err);
    if (rc == 0) {
        const struct sim_stage *s = &sim.stages[sim.slowest];
        fprintf(x->f, "time    stage %d sets the pace: computes %.1f %% of the step",
                sim.slowest, 100 * s->compute_us / sim.time_us);
        print_share(x->f, "collectives", s->collective_us, sim.time_us);
        print_share(x->f, "messages", s->p2p_us, sim.time_us);
        print_share(x->f, "reduction and update", s->update_us, sim.time_us);
        print_share(x->f, "waiting", s->bubble_us, sim.time_us);
        fprintf(x->f, "\nmemory  stage %d is fullest: %s", sim.fullest,
                text_bytes((double)g->stages[sim.fullest].arena_bytes).s);
        const struct stage *full = &x->best->plan->stages[sim.fullest];
        int64_t limit = search_memory(x->p, full->first_rank, mesh_devices(&full->mesh));
        if (limit)
            fprintf(x->f, " of %s", text_bytes((double)limit).s);
        fputc('\n', x->f);
        simulation_release(&sim);
        program_destroy(g);
    }
    return rc;
}

/* ---- alternatives -------------------------------------------------------------------------- */

static void print_line(struct explain *x, const char *what,
                       const struct search_plan *found) {
    char words[WORDS_LINE];
    fprintf(x->f, "%-24s %12s %7.3f  %s\n", what,
            text_time_beside(found->time_us, x->best->time_us).s,
            found->time_us / x->best->time_us,
            words_line(found->plan, words, sizeof words));
}

/* The plan to start from: what runs now. */
static void print_from(struct explain *x) {
    struct search_plan now = {.plan = (struct plan *)x->from};
    struct simulation sim;
    struct program *g;
    struct err why = {0};
    if (!now.plan)
        return;
    if (simulate(x, now.plan, &g, &sim, &why) < 0) {
        fprintf(x->f, "%-24s %s\n", "the plan to start from", why.msg);
        return;
    }
    now.time_us = sim.time_us;
    print_line(x, "the plan to start from", &now);
    simulation_release(&sim);
    program_destroy(g);
}

static void flush(struct explain *x) {
    if (!x->failed && fflush(x->f) != 0) {
        x->failed = true;
        err_system(x->err, "cannot write the explanation: %s", strerror(errno));
    }
}

/* A search of the problem, and its line; its time as a ratio, 0 where there is none. With fewer limits
 * (relaxed) the plan itself is allowed, too, so it stands for whatever is slower. */
static double try_problem(struct explain *x, const char *what,
                          const struct search_problem *p, search_algorithm *algorithm,
                          bool relaxed) {
    struct search_problem now = *p;
    struct search_result r = {0};
    struct err why = {0};
    now.no_bound = true;
    /* What is decided otherwise needs no proof, and no further search where it is as fast as the
     * plan. */
    now.known_us = relaxed ? 0 : x->best->time_us;
    now.gap = relaxed ? 0 : now.gap;
    /* The plan to start from may be just what a pin forbids. */
    bool starts = relaxed && now.devices == x->best->plan->devices;
    now.from = starts ? x->best->plan : NULL;
    x->stopped |= interrupted();
    if (x->stopped || x->failed)
        return 0;
    int rc = search_for_run(x->target, &now, algorithm, &r, &why);
    const struct search_plan *found = rc == 0 ? &r.plans[0] : NULL;
    if (relaxed && (!found || found->time_us > x->best->time_us))
        found = x->best;
    if (found)
        print_line(x, what, found);
    else
        fprintf(x->f, "%-24s %s\n", what, why.msg);
    double ratio = found ? found->time_us / x->best->time_us : 0;
    if (rc == 0)
        search_result_release(&r);
    flush(x);
    return ratio;
}

/* Another decision; one that changes nothing is none. */
static void try_other(struct explain *x, const char *what, const struct search_problem *p) {
    double ratio = try_problem(x, what, p, x->algorithm, false);
    if (ratio > 0 && ratio != 1 && (!x->next_name[0] || ratio < x->next)) {
        x->next = ratio;
        snprintf(x->next_name, sizeof x->next_name, "%s", what);
    }
}

static double try_relaxed(struct explain *x, const char *what,
                          const struct search_problem *p) {
    return try_problem(x, what, p, x->algorithm, true);
}

/* The same problem with something pinned; takes the document over. */
static void try_pin(struct explain *x, const char *what, json_t *pin) {
    struct search_problem p = *x->p;
    struct err why = {0};
    json_t *doc = json_pack("{s:o}", "pin", pin);
    struct pins *pins = search_read_pins(p.model, doc, &why);
    p.pins = pins;
    if (pins)
        try_other(x, what, &p);
    else
        fprintf(x->f, "%-24s %s\n", what, why.msg);
    pins_destroy(pins);
    json_decref(doc);
}

static void try_number(struct explain *x, const char *key, int64_t value) {
    char what[64];
    snprintf(what, sizeof what, "%s %lld", key, (long long)value);
    try_pin(x, what, json_pack("{s:I}", key, (json_int_t)value));
}

static void try_stages(struct explain *x) {
    int n = x->best->plan->n_groups;
    if (n > 1)
        try_number(x, "stages", 1);
    if (n > 3)
        try_number(x, "stages", n / 2);
    if (2 * n <= x->p->devices && 2 * n <= x->p->model->n_ops)
        try_number(x, "stages", 2 * n);
}

static void try_micro_batches(struct explain *x) {
    int64_t b = x->best->plan->micro_batch;
    for (int i = 0; i < x->p->n_micro; i++)
        if (x->p->micro[i] == 2 * b || 2 * x->p->micro[i] == b) {
            char what[64];
            struct search_problem p = *x->p;
            snprintf(what, sizeof what, "micro-batch %lld", (long long)x->p->micro[i]);
            p.micro = &x->p->micro[i];
            p.n_micro = 1;
            try_other(x, what, &p);
        }
}

/* All inner dims in so many parts; tp 1 splits no other dim but batch, sequence and experts, either. */
static bool is_tensor(const struct model *m, const struct plan_dims *d, int dim,
                      int64_t parts) {
    if (parts > 1)
        return plan_dims_has(d->inner, d->n_inner, dim) && m->dims[dim].size % parts == 0;
    return dim != m->batch && !plan_dims_has(d->sequence, d->n_sequence, dim) &&
           !plan_dims_has(d->experts, d->n_experts, dim);
}

static void try_tensor(struct explain *x, const struct plan_dims *d, int64_t parts) {
    const struct model *m = x->p->model;
    json_t *split = json_object();
    char what[64];
    snprintf(what, sizeof what, "tp %lld", (long long)parts);
    for (int i = 0; i < m->n_dims; i++)
        if (is_tensor(m, d, i, parts))
            json_object_set_new(split, m->dims[i].name, json_integer(parts));
    try_pin(x, what, json_pack("{s:{s:o}}", "*", "split", split));
}

static void try_tensors(struct explain *x) {
    struct plan_dims d;
    plan_dims_find(x->p->model, &d);
    int64_t parts = words_tensor(x->best->plan, &d);
    if (d.n_inner && parts > 1)
        try_tensor(x, &d, parts / 2);
    if (d.n_inner && 2 * parts <= x->p->devices)
        try_tensor(x, &d, 2 * parts);
    plan_dims_release(&d);
}

/* Is something computed again, and is something that could be not? */
static void try_recompute(struct explain *x) {
    const struct plan *p = x->best->plan;
    bool any = false, all = true;
    for (int s = 0; s < p->n_stages; s++)
        for (int i = 0; i < p->stages[s].n_ops; i++) {
            any |= p->stages[s].recompute[i];
            all &= p->stages[s].recompute[i] ||
                   !plan_recomputes(p->model, RECOMPUTE_all, p->stages[s].ops[i]);
        }
    if (any)
        try_pin(x, "recompute none", json_pack("{s:{s:b}}", "*", "recompute", 0));
    if (!all)
        try_pin(x, "recompute full", json_pack("{s:{s:s}}", "*", "recompute", "all"));
}

static void try_zero(struct explain *x) {
    const struct plan *p = x->best->plan;
    int most = ZERO_NONE;
    for (int s = 0; s < p->n_stages; s++)
        for (int i = 0; i < p->stages[s].n_ops; i++)
            most = p->stages[s].zero[i] > most ? p->stages[s].zero[i] : most;
    for (int level = most - 1; level <= most + 1; level += 2)
        if (level >= ZERO_NONE && level <= x->p->max_zero && x->p->devices > 1) {
            char what[64];
            snprintf(what, sizeof what, "zero %d", level);
            try_pin(x, what, json_pack("{s:{s:i}}", "*", "zero", level));
        }
}

static void try_schedules(struct explain *x) {
    for (int i = 0; i < SCHEDULE_COUNT && x->best->plan->n_groups > 1; i++) {
        struct search_problem p = *x->p;
        p.schedules = 1u << i;
        /* Pipelines that go round are made out of others. */
        if (i != (int)x->best->plan->schedule && !schedules_round(1u << i) &&
            x->p->schedules >> i & 1)
            try_other(x, schedule_name((enum schedule)i), &p);
    }
}

static void try_decisions(struct explain *x) {
    try_stages(x);
    try_tensors(x);
    try_recompute(x);
    try_zero(x);
    try_schedules(x);
}

/* What a person would do. */
static void try_others(struct explain *x) {
    static const char *const names[] = {"grid", "dp-only"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct algorithm *a = algorithm_find(names[i]);
        if (a && a->run != x->algorithm)
            try_problem(x, names[i], x->p, a->run, false);
    }
}

static void try_memory(struct explain *x) {
    struct search_problem p = *x->p;
    struct cluster *c = &p.cluster;
    if (!p.memory_bytes)
        return;
    p.memory_bytes += 1 << 30;
    for (int g = 0; g < c->n_groups; g++)
        c->groups[g].memory_bytes += 1 << 30;
    try_relaxed(x, "with 1 GiB more", &p);
    p = *x->p;
    p.memory_bytes = 0;
    p.memory_of_kinds = false;
    x->unlimited = try_relaxed(x, "with any memory", &p);
}

static void note_nodes(struct explain *x, int devices, double ratio) {
    if (ratio > 0)
        x->nodes[x->n_nodes++] = (struct with_nodes){devices, ratio * x->best->time_us};
}

static void try_node_less(struct explain *x) {
    struct search_problem p = *x->p;
    p.devices -= (int)p.cluster.groups[p.cluster.n_groups - 1].devices;
    if (p.devices > 0)
        note_nodes(x, p.devices,
                   try_problem(x, "with one node less", &p, x->algorithm, false));
}

static void try_node_more(struct explain *x) {
    struct search_problem p = *x->p;
    struct cluster *c = &p.cluster;
    if (!c->n_links)
        return; /* nothing is said of links between nodes */
    struct cluster_group *last = &c->groups[c->n_groups - 1];
    last->nodes++;
    if (c->n_links) /* the outermost level holds them all */
        c->links[c->n_links - 1].size = cluster_nodes(c);
    p.devices += (int)last->devices;
    if (cluster_devices(c) < p.devices)
        return;
    struct err why = {0};
    struct cost_provider *provider = search_open_provider(c, p.dtype, &why);
    p.provider = provider;
    if (provider)
        note_nodes(x, p.devices, try_relaxed(x, "with one node more", &p));
    else
        fprintf(x->f, "%-24s %s\n", "with one node more", why.msg);
    provider_destroy(provider);
}

static void try_without_pins(struct explain *x) {
    struct search_problem p = *x->p;
    struct micro_batches all = {{0}};
    if (!p.pins || !p.pins->list.n)
        return;
    p.pins = NULL;
    if (search_micro_batches(&p, &all, NULL) == 0) {
        p.micro = all.list.p;
        p.n_micro = (int)all.list.n;
        x->unpinned = try_relaxed(x, "without the pins", &p);
    }
    arr_release(&all.list);
}

/* ---- what follows from that ---------------------------------------------------------------- */

static void print_binding(const struct explain *x, const char *what, double ratio) {
    static const double SHOWN = 5e-5; /* of what has two digits of a percent */
    if (ratio > 0 && ratio < 1 - SHOWN)
        fprintf(x->f, "binds   %s: without, a step takes %.2f %% less\n", what,
                100 * (1 - ratio));
    else if (ratio > 0)
        fprintf(x->f, "free    %s: without, no plan was found that is faster\n", what);
}

/* What a node more or less gives. Devices that a plan leaves idle cost as much as the others. */
static void print_nodes(const struct explain *x) {
    const double batch = (double)x->p->batch;
    if (x->n_nodes < 2)
        return;
    fprintf(x->f, "\n%-24s %12s  %s\n", "with devices", "samples/s",
            "device-seconds a sample");
    for (int i = 0; i < x->n_nodes; i++) {
        const struct with_nodes *w = &x->nodes[i];
        fprintf(x->f, "%-24d %12.4g  %.4g\n", w->devices, batch / (1e-6 * w->us),
                w->devices * 1e-6 * w->us / batch);
    }
}

static void print_summary(const struct explain *x) {
    print_nodes(x);
    fputc('\n', x->f);
    print_binding(x, "the limit of memory", x->unlimited);
    print_binding(x, "the pins", x->unpinned);
    if (x->next_name[0] && x->next >= 1)
        fprintf(x->f, "next    %s: the best of the other decisions takes %.2f %% more\n",
                x->next_name, 100 * (x->next - 1));
    else if (x->next_name[0])
        fprintf(
            x->f,
            "missed  %s: pinned to that, the search finds a plan that takes %.2f %% less\n",
            x->next_name, 100 * (1 - x->next));
}

int search_explain(const char *target, const struct search_problem *p,
                   search_algorithm *algorithm, const struct plan *from,
                   const struct search_result *r, FILE *f, struct err *err) {
    const struct search_plan *best = &r->plans[0];
    struct search_problem once = *p;
    once.top = 1;
    once.slack = 0; /* what else costs is what it costs at best */
    once.may_offload = false;
    once.offload = search_offloaded(best->plan);
    once.may_logits = false;
    once.logits = best->plan->logits;
    struct explain x = {.target = target,
                        .from = from,
                        .p = &once,
                        .algorithm = algorithm,
                        .best = best,
                        .f = f,
                        .err = err};
    if (print_bounds(&x, err) < 0)
        return -1;
    fprintf(f, "\n%-24s %12s %7s  %s\n", "what else costs", "step", "ratio", "plan");
    print_line(&x, "this plan", best);
    print_from(&x);
    if (r->fastest.plan)
        print_line(&x, "the fastest", &r->fastest);
    flush(&x);
    try_decisions(&x);
    try_micro_batches(&x);
    try_others(&x);
    try_memory(&x);
    try_node_less(&x);
    note_nodes(&x, x.p->devices, 1);
    try_node_more(&x);
    try_without_pins(&x);
    print_summary(&x);
    if (x.stopped)
        fprintf(f, "stopped before all was tried\n");
    if (x.failed)
        return -1;
    return target && from ? search_for_changes(target, from, best->plan, f, err) : 0;
}
