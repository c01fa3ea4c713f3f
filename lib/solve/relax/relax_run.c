/* relax_run.c - one descent. Forwards, logits become probabilities (of cuts by
 * relax_cuts.h, otherwise by a softmax at the present temperature), these become
 * expected times and bytes of every stage, and these the loss, a smooth maximum over the
 * stages. The backward pass is written by hand. Expectations multiply as if choices were
 * independent, which they become as they are decided. Adam (Kingma and Ba, ICLR 2015)
 * moves the logits. The loss has no unit: times are fractions of the first average stage
 * time, bytes of the memory. */
#include "solve/relax/relax_run.h"

#include "common/mem.h"
#include "common/rng.h"
#include "solve/relax/relax_cuts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double RATE = 0.15, FIRST_DECAY = 0.9, SECOND_DECAY = 0.98, SPREAD = 0.3;
/* First and last values of temperature, sharpness of the maximum and memory penalty. */
static const double WARM = 1, COLD = 0.05, BLUNT = 8, SHARP = 150, MILD = 0.5, STRICT = 20;

/* What one instance of a class takes in a stage. */
struct relax_sum {
    double time, fixed, slot;
};

struct relax_run {
    const struct relax_problem *p;
    double temperature, sharpness, penalty, scale_us;
    int64_t steps;
    struct relax_cuts cuts;
    /* One row of all that is relaxed: the logits of the cuts, then for each stage those of
     * its options and of its nodes' choices. */
    int64_t n, *stage_at;
    double *logit, *chance, *gain, *first_moment, *second_moment;
    /* inside: how much of each class is in each stage, [stages x classes]; sums: what one
     * instance of it takes there; the others: [stages] */
    double *inside;
    struct relax_sum *sums;
    double *time, *bytes, *time_gain, *bytes_gain;
    double *row; /* [units + 1] scratch */
};

static const struct relax_costs *costs_of(const struct relax_run *r, int k) {
    return r->p->costs[k];
}

/* Returns where the choices of a node of stage k begin in the row. */
static int64_t choices_at(const struct relax_run *r, int k, int node) {
    const struct relax_costs *c = costs_of(r, k);
    return r->stage_at[k] + c->n_options + c->first[node];
}

static void lay_out(struct relax_run *r) {
    const struct relax_problem *p = r->p;
    r->stage_at = mem_array((size_t)p->n_stages + 1, sizeof *r->stage_at);
    r->n = (int64_t)r->cuts.n * r->cuts.width;
    for (int k = 0; k < p->n_stages; k++) {
        r->stage_at[k] = r->n;
        r->n += costs_of(r, k)->n_options + costs_of(r, k)->first[p->n_nodes];
    }
    r->stage_at[p->n_stages] = r->n;
}

struct relax_run *relax_run_make(const struct relax_problem *p, uint64_t seed) {
    struct relax_run *r = mem_alloc(sizeof *r);
    size_t stages = (size_t)p->n_stages, cells = stages * (size_t)p->n_classes;
    r->p = p;
    relax_cuts_init(&r->cuts, p->n_stages - 1, p->n_units);
    lay_out(r);
    r->logit = mem_array(5 * (size_t)r->n + 1, sizeof *r->logit);
    r->chance = r->logit + r->n;
    r->gain = r->chance + r->n;
    r->first_moment = r->gain + r->n;
    r->second_moment = r->first_moment + r->n;
    r->inside = mem_array(cells + 4 * stages + (size_t)p->n_units + 1, sizeof *r->inside);
    r->time = r->inside + cells;
    r->bytes = r->time + stages;
    r->time_gain = r->bytes + stages;
    r->bytes_gain = r->time_gain + stages;
    r->row = r->bytes_gain + stages;
    r->sums = mem_array(cells, sizeof *r->sums);
    for (int64_t i = 0; i < r->n; i++)
        r->logit[i] = SPREAD * (double)rng_normal(seed, 1, (uint64_t)i);
    return r;
}

void relax_run_free(struct relax_run *r) {
    relax_cuts_release(&r->cuts);
    free(r->stage_at);
    free(r->logit);
    free(r->inside);
    free(r->sums);
    free(r);
}

/* ---- forwards ------------------------------------------------------------------------ */

static void soften(const struct relax_run *r, int64_t at, int n) {
    double most = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        most = fmax(most, r->logit[at + i]);
    for (int i = 0; i < n; i++)
        sum += r->chance[at + i] = exp((r->logit[at + i] - most) / r->temperature);
    for (int i = 0; i < n; i++)
        r->chance[at + i] /= sum;
}

static void find_chances(struct relax_run *r) {
    relax_cuts_find(&r->cuts, r->logit, r->temperature);
    for (int k = 0; k < r->p->n_stages; k++) {
        const struct relax_costs *c = costs_of(r, k);
        soften(r, r->stage_at[k], c->n_options);
        for (int v = 0; v < r->p->n_nodes; v++)
            soften(r, choices_at(r, k, v), c->first[v + 1] - c->first[v]);
    }
}

/* Computes the expected amount of each class in each stage. The cuts tell how likely each
 * unit is to stand behind them. */
static void find_inside(struct relax_run *r) {
    const struct relax_problem *p = r->p;
    int classes = p->n_classes;
    memset(r->inside, 0, sizeof *r->inside * (size_t)p->n_stages * (size_t)p->n_classes);
    for (int k = 0; k < p->n_stages; k++) {
        double behind = k == 0, before_next = 1;
        for (int u = 0; u < p->n_units; u++) {
            behind += k ? r->cuts.mass[(k - 1) * r->cuts.width + u] : 0;
            before_next -= k < r->cuts.n ? r->cuts.mass[k * r->cuts.width + u] : 0;
            double here = behind + before_next - 1;
            for (int i = p->counts_of[u]; i < p->counts_of[u + 1]; i++)
                r->inside[k * classes + p->counts[i].class] += here * p->counts[i].times;
        }
    }
}

/* Returns the expected cost of an edge for one choice of its node a, or of b if of_b. */
static double edge_us(const struct relax_run *r, int k, const struct relax_edge *e,
                      bool of_b, int choice) {
    const struct relax_costs *c = costs_of(r, k);
    int na = c->first[e->a + 1] - c->first[e->a], nb = c->first[e->b + 1] - c->first[e->b];
    const double *chance = r->chance + choices_at(r, k, of_b ? e->a : e->b);
    double us = 0;
    for (int i = 0; of_b && i < na; i++)
        us += chance[i] * e->time[i * nb + choice];
    for (int i = 0; !of_b && i < nb; i++)
        us += chance[i] * e->time[choice * nb + i];
    return us;
}

static struct relax_sum sum_node(const struct relax_run *r, int k, int v) {
    const struct relax_costs *c = costs_of(r, k);
    const double *chance = r->chance + choices_at(r, k, v);
    struct relax_sum sum = {0};
    for (int i = c->first[v]; i < c->first[v + 1]; i++) {
        double p = chance[i - c->first[v]];
        sum.time += p * c->time[i];
        sum.fixed += p * c->fixed[i];
        sum.slot += p * c->slot[i];
    }
    return sum;
}

static void add_sum(struct relax_sum *to, struct relax_sum more, double times) {
    to->time += times * more.time;
    to->fixed += times * more.fixed;
    to->slot += times * more.slot;
}

static struct relax_sum option_sum(const struct relax_run *r, int k, int option,
                                   int class) {
    const struct relax_costs *c = costs_of(r, k);
    int at = option * r->p->n_classes + class;
    return (struct relax_sum){c->more_time[at], c->more_fixed[at], c->more_slot[at]};
}

/* Adds up the expected costs of all classes in stage k. */
static void sum_classes(struct relax_run *r, int k) {
    const struct relax_problem *p = r->p;
    const struct relax_costs *c = costs_of(r, k);
    struct relax_sum *sums = r->sums + k * p->n_classes;
    for (int d = 0; d < p->n_classes; d++) {
        sums[d] = (struct relax_sum){0};
        for (int i = p->nodes_of[d]; i < p->nodes_of[d + 1]; i++)
            add_sum(&sums[d], sum_node(r, k, p->nodes[i]), 1);
        for (int o = 0; o < c->n_options; o++)
            add_sum(&sums[d], option_sum(r, k, o, d), r->chance[r->stage_at[k] + o]);
    }
    for (int i = 0; i < c->n_edges; i++) {
        const struct relax_edge *e = &c->edges[i];
        const double *chance = r->chance + choices_at(r, k, e->a);
        for (int j = 0; j < c->first[e->a + 1] - c->first[e->a]; j++)
            sums[e->class].time += chance[j] * edge_us(r, k, e, false, j);
    }
}

/* Returns the expected cost of the cuts around stage k. */
static double cuts_us(const struct relax_run *r, int k) {
    const struct relax_problem *p = r->p;
    double us = 0;
    for (int u = 1; u < p->n_units; u++) {
        us += k ? r->cuts.mass[(k - 1) * r->cuts.width + u] * p->cut_in[u] : 0;
        us += k < r->cuts.n ? r->cuts.mass[k * r->cuts.width + u] * p->cut_out[u] : 0;
    }
    return us;
}

static void sum_stage(struct relax_run *r, int k) {
    const struct relax_problem *p = r->p;
    const struct relax_costs *c = costs_of(r, k);
    sum_classes(r, k);
    r->time[k] = cuts_us(r, k);
    r->bytes[k] = 0;
    for (int o = 0; o < c->n_options; o++) {
        r->time[k] += r->chance[r->stage_at[k] + o] * c->once_time[o];
        r->bytes[k] += r->chance[r->stage_at[k] + o] * c->once_bytes[o];
    }
    for (int d = 0; d < p->n_classes; d++) {
        const struct relax_sum *sum = &r->sums[k * p->n_classes + d];
        double inside = r->inside[k * p->n_classes + d];
        r->time[k] += inside * sum->time;
        r->bytes[k] += inside * (sum->fixed + p->in_flight[k] * sum->slot);
    }
}

/* ---- the loss ------------------------------------------------------------------------ */

/* Computes the gradient of the loss with respect to each stage's time and bytes. */
static void find_stage_gains(struct relax_run *r) {
    const struct relax_problem *p = r->p;
    double longest = 0, all = 0;
    for (int k = 0; k < p->n_stages; k++) {
        longest = fmax(longest, r->time[k]);
        all += r->time[k];
    }
    if (!r->steps)
        r->scale_us = all > 0 ? all / p->n_stages : 1;
    all = 0;
    for (int k = 0; k < p->n_stages; k++)
        all += r->time_gain[k] = exp(r->sharpness * (r->time[k] - longest) / r->scale_us);
    for (int k = 0; k < p->n_stages; k++) {
        double worst = r->time_gain[k] / all;
        r->time_gain[k] =
            (1 + (p->micro_batches - 1) * worst) / (p->micro_batches * r->scale_us);
        bool over = r->bytes[k] > p->memory;
        r->bytes_gain[k] = over ? r->penalty * r->bytes[k] / p->memory / p->memory : 0;
    }
}

/* ---- backwards ----------------------------------------------------------------------- */

/* Turns the gradient with respect to probabilities into that with respect to logits, in
 * place. */
static void harden(const struct relax_run *r, int64_t at, int n) {
    double mean = 0;
    for (int i = 0; i < n; i++)
        mean += r->chance[at + i] * r->gain[at + i];
    for (int i = 0; i < n; i++)
        r->gain[at + i] = r->chance[at + i] * (r->gain[at + i] - mean) / r->temperature;
}

static double gain_of(const struct relax_run *r, int k, struct relax_sum sum) {
    return r->time_gain[k] * sum.time +
           r->bytes_gain[k] * (sum.fixed + r->p->in_flight[k] * sum.slot);
}

static void gain_edges(struct relax_run *r, int k) {
    const struct relax_costs *c = costs_of(r, k);
    for (int i = 0; i < c->n_edges; i++) {
        const struct relax_edge *e = &c->edges[i];
        double times = r->time_gain[k] * r->inside[k * r->p->n_classes + e->class];
        double *a = r->gain + choices_at(r, k, e->a), *b = r->gain + choices_at(r, k, e->b);
        for (int j = 0; j < c->first[e->a + 1] - c->first[e->a]; j++)
            a[j] += times * edge_us(r, k, e, false, j);
        for (int j = 0; j < c->first[e->b + 1] - c->first[e->b]; j++)
            b[j] += times * edge_us(r, k, e, true, j);
    }
}

static void gain_stage(struct relax_run *r, int k) {
    const struct relax_problem *p = r->p;
    const struct relax_costs *c = costs_of(r, k);
    double *options = r->gain + r->stage_at[k];
    memset(options, 0, sizeof *options * (size_t)(r->stage_at[k + 1] - r->stage_at[k]));
    for (int d = 0; d < p->n_classes; d++) {
        double inside = r->inside[k * p->n_classes + d];
        for (int o = 0; o < c->n_options; o++)
            options[o] += inside * gain_of(r, k, option_sum(r, k, o, d));
        for (int i = p->nodes_of[d]; i < p->nodes_of[d + 1]; i++) {
            int v = p->nodes[i];
            double *gain = r->gain + choices_at(r, k, v);
            for (int j = c->first[v]; j < c->first[v + 1]; j++)
                gain[j - c->first[v]] +=
                    inside *
                    gain_of(r, k, (struct relax_sum){c->time[j], c->fixed[j], c->slot[j]});
        }
    }
    for (int o = 0; o < c->n_options; o++)
        options[o] +=
            r->time_gain[k] * c->once_time[o] + r->bytes_gain[k] * c->once_bytes[o];
    gain_edges(r, k);
    harden(r, r->stage_at[k], c->n_options);
    for (int v = 0; v < p->n_nodes; v++)
        harden(r, choices_at(r, k, v), c->first[v + 1] - c->first[v]);
}

/* Computes into r->row the gradient of the loss with respect to each unit's presence in
 * stage k. */
static void gain_units(struct relax_run *r, int k) {
    const struct relax_problem *p = r->p;
    const struct relax_sum *sums = r->sums + k * p->n_classes;
    for (int u = 0; u < p->n_units; u++) {
        r->row[u] = 0;
        for (int i = p->counts_of[u]; i < p->counts_of[u + 1]; i++)
            r->row[u] += p->counts[i].times * gain_of(r, k, sums[p->counts[i].class]);
    }
}

/* Computes the gradient with respect to the cuts: a cut further to the front gives the
 * units behind it to the stage behind it. */
static void gain_cuts(struct relax_run *r) {
    const struct relax_problem *p = r->p;
    int width = r->cuts.width;
    double *gain = r->gain;
    memset(gain, 0, sizeof *gain * (size_t)(r->cuts.n * width));
    for (int k = 0; k < p->n_stages; k++) {
        gain_units(r, k);
        double behind = 0;
        for (int u = p->n_units - 1; u > 0; u--) {
            behind += r->row[u];
            if (k)
                gain[(k - 1) * width + u] += behind + r->time_gain[k] * p->cut_in[u];
            if (k < r->cuts.n)
                gain[k * width + u] += r->time_gain[k] * p->cut_out[u] - behind;
        }
    }
}

/* ---- steps --------------------------------------------------------------------------- */

static void descend(struct relax_run *r) {
    double first = 1 - pow(FIRST_DECAY, (double)r->steps),
           second = 1 - pow(SECOND_DECAY, (double)r->steps);
    for (int64_t i = 0; i < r->n; i++) {
        double g = r->gain[i], *m = &r->first_moment[i], *v = &r->second_moment[i];
        *m += (1 - FIRST_DECAY) * (g - *m);
        *v += (1 - SECOND_DECAY) * (g * g - *v);
        r->logit[i] -= RATE * (*m / first) / (sqrt(*v / second) + 1e-12);
    }
}

void relax_run_step(struct relax_run *r, double done) {
    r->temperature = WARM * pow(COLD / WARM, done);
    r->sharpness = BLUNT * pow(SHARP / BLUNT, done);
    r->penalty = MILD * pow(STRICT / MILD, done);
    find_chances(r);
    find_inside(r);
    for (int k = 0; k < r->p->n_stages; k++)
        sum_stage(r, k);
    find_stage_gains(r);
    gain_cuts(r);
    relax_cuts_gradient(&r->cuts, r->temperature, r->gain);
    for (int k = 0; k < r->p->n_stages; k++)
        gain_stage(r, k);
    r->steps++;
    descend(r);
}

static int most_likely(const double *logit, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        best = logit[i] > logit[best] ? i : best;
    return best;
}

void relax_run_round(struct relax_run *r, struct relax_answer *out) {
    const struct relax_problem *p = r->p;
    out->first[0] = 0;
    out->first[p->n_stages] = p->n_units;
    relax_cuts_best(&r->cuts, r->logit, out->first + 1);
    for (int k = 0; k < p->n_stages; k++) {
        const struct relax_costs *c = costs_of(r, k);
        out->option[k] = most_likely(r->logit + r->stage_at[k], c->n_options);
        for (int v = 0; v < p->n_nodes; v++)
            out->choice[k * p->n_nodes + v] =
                most_likely(r->logit + choices_at(r, k, v), c->first[v + 1] - c->first[v]);
    }
}
