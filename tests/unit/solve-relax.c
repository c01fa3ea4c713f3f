/* The descent on relaxed problems: its probabilities of cuts against the list of all cuts, and its
 * answers against the list of all answers of small random problems. */
#include "common/rng.h"
#include "solve/relax/relax.h"
#include "solve/relax/relax_cuts.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- probabilities of cuts --------------------------------------------------------------- */

enum { UNITS = 6, CUTS = 2 };

/* The mean of sum gain[k][cut k] over all cuts, by listing them; and mass by adding up. */
static double list_cuts(const double *logits, double temperature, const double *gain,
                        double *mass) {
    double all = 0, mean = 0;
    memset(mass, 0, sizeof(double) * CUTS * UNITS);
    for (int a = 1; a < UNITS; a++) {
        for (int b = a + 1; b < UNITS; b++) {
            double w = exp((logits[a] + logits[UNITS + b]) / temperature);
            all += w;
            mean += w * (gain[a] + gain[UNITS + b]);
            mass[a] += w;
            mass[UNITS + b] += w;
        }
    }
    for (int i = 0; i < CUTS * UNITS; i++)
        mass[i] /= all;
    return mean / all;
}

static void test_cuts(void) {
    struct rng r = {.seed = 3};
    double worst_mass = 0, worst_gain = 0;
    int best_wrong = 0;
    for (int round = 0; round < 200; round++) {
        double logits[CUTS * UNITS], gain[CUTS * UNITS], row[CUTS * UNITS],
            mass[CUTS * UNITS], best = -INFINITY;
        double temperature = 0.2 + rng_real(&r);
        struct relax_cuts c;
        relax_cuts_init(&c, CUTS, UNITS);
        for (int i = 0; i < CUTS * UNITS; i++) {
            logits[i] = 2 * rng_real(&r);
            gain[i] = row[i] = rng_real(&r);
        }
        relax_cuts_find(&c, logits, temperature);
        list_cuts(logits, temperature, gain, mass);
        for (int i = 0; i < CUTS * UNITS; i++)
            worst_mass = fmax(worst_mass, fabs(mass[i] - c.mass[i]));
        relax_cuts_gradient(&c, temperature, row);
        for (int i = 0; i < CUTS * UNITS; i++) {
            double h = 1e-5, at = logits[i], up, down;
            logits[i] = at + h;
            up = list_cuts(logits, temperature, gain, mass);
            logits[i] = at - h;
            down = list_cuts(logits, temperature, gain, mass);
            logits[i] = at;
            worst_gain = fmax(worst_gain, fabs((up - down) / (2 * h) - row[i]));
        }
        int cut[CUTS];
        relax_cuts_best(&c, logits, cut);
        for (int a = 1; a < UNITS; a++)
            for (int b = a + 1; b < UNITS; b++)
                best = fmax(best, logits[a] + logits[UNITS + b]);
        best_wrong += cut[0] < 1 || cut[1] <= cut[0] || cut[1] >= UNITS ||
                      logits[cut[0]] + logits[UNITS + cut[1]] < best - 1e-12;
        relax_cuts_release(&c);
    }
    ok(worst_mass < 1e-12, "probabilities of cuts are those of the list, to %.1e",
       worst_mass);
    ok(worst_gain < 1e-6, "and gradients its differences, to %.1e", worst_gain);
    ok(!best_wrong, "the most probable cuts are the list's");
}

/* ---- small random problems --------------------------------------------------------------- */

enum { STAGES = 3, NODES = 3, CHOICES = 2, OPTIONS = 2, CLASSES = 2, EDGES = 3 };

struct small {
    int counts_of[UNITS + 1], nodes_of[CLASSES + 1], nodes[NODES], first[NODES + 1];
    struct relax_count counts[UNITS];
    double time[NODES * CHOICES], fixed[NODES * CHOICES], slot[NODES * CHOICES];
    double table[EDGES][CHOICES * CHOICES], more[3][OPTIONS * CLASSES], once[2][OPTIONS];
    double cut_in[UNITS + 1], cut_out[UNITS + 1], in_flight[STAGES];
    struct relax_edge edges[EDGES];
    struct relax_costs costs;
    const struct relax_costs *by_stage[STAGES];
    struct relax_problem p;
};

static void fill(struct rng *r, double *v, int n, double most) {
    for (int i = 0; i < n; i++)
        v[i] = most * rng_real(r);
}

/* Two classes, of which the first has two nodes; the second choice of a node is slower and smaller. */
static void draw(struct rng *r, struct small *s) {
    memset(s, 0, sizeof *s);
    for (int u = 0; u < UNITS; u++) {
        s->counts[u] =
            (struct relax_count){(int)rng_below(r, CLASSES), 1 + (double)rng_below(r, 2)};
        s->counts_of[u + 1] = u + 1;
        s->cut_in[u] = u ? 0.5 * rng_real(r) : 0;
        s->cut_out[u] = u ? 0.5 * rng_real(r) : 0;
    }
    s->nodes_of[1] = 2;
    s->nodes_of[2] = 3;
    for (int v = 0; v < NODES; v++) {
        s->nodes[v] = v;
        s->first[v + 1] = CHOICES * (v + 1);
    }
    fill(r, s->time, NODES * CHOICES, 4);
    fill(r, s->fixed, NODES * CHOICES, 2);
    fill(r, s->slot, NODES * CHOICES, 1);
    for (int e = 0; e < EDGES; e++) {
        fill(r, s->table[e], CHOICES * CHOICES, 2);
        s->edges[e] = (struct relax_edge){(int)rng_below(r, CLASSES), e % NODES,
                                          (e + 1) % NODES, s->table[e]};
    }
    for (int c = 0; c < CLASSES; c++) {
        s->more[0][CLASSES + c] = rng_real(r);
        s->more[2][CLASSES + c] = -0.5 * rng_real(r);
    }
    fill(r, s->once[0], OPTIONS, 0.5);
    fill(r, s->once[1], OPTIONS, 0.5);
    s->costs = (struct relax_costs){s->first,   s->time,    s->fixed,   s->slot,
                                    EDGES,      s->edges,   OPTIONS,    s->more[0],
                                    s->more[1], s->more[2], s->once[0], s->once[1]};
    for (int k = 0; k < STAGES; k++) {
        s->by_stage[k] = &s->costs;
        s->in_flight[k] = STAGES - k;
    }
    s->p = (struct relax_problem){
        UNITS,    CLASSES,     NODES, STAGES,    s->counts_of, s->counts, s->nodes_of,
        s->nodes, s->by_stage, 8,     s->cut_in, s->cut_out,   INFINITY,  s->in_flight};
}

/* Of units first .. end-1 in stage k under an option and choices (bit v = choice of node v). */
static void stage_of(const struct small *s, int k, int first, int end, int option,
                     int choices, double *time, double *bytes) {
    *time = s->once[0][option] + (first ? s->cut_in[first] : 0) +
            (end < UNITS ? s->cut_out[end] : 0);
    *bytes = s->once[1][option];
    for (int u = first; u < end; u++) {
        int c = s->counts[u].class, more = option * CLASSES + c;
        double t = s->more[0][more],
               b = s->more[1][more] + s->in_flight[k] * s->more[2][more];
        for (int i = s->nodes_of[c]; i < s->nodes_of[c + 1]; i++) {
            int j = CHOICES * i + (choices >> i & 1);
            t += s->time[j];
            b += s->fixed[j] + s->in_flight[k] * s->slot[j];
        }
        for (int e = 0; e < EDGES; e++)
            if (s->edges[e].class == c)
                t += s->table[e][CHOICES * (choices >> s->edges[e].a & 1) +
                                 (choices >> s->edges[e].b & 1)];
        *time += s->counts[u].times * t;
        *bytes += s->counts[u].times * b;
    }
}

struct listed {
    double best,
        least_bytes; /* the best value within the memory; the memory that some answer needs */
};

/* Every option and choice of every stage. */
static void list_stages(const struct small *s, const int *first, int k, double sum,
                        double longest, double most, struct listed *out) {
    if (k == STAGES) {
        double value = sum + (s->p.micro_batches - 1) * longest;
        out->least_bytes = fmin(out->least_bytes, most);
        if (most <= s->p.memory)
            out->best = fmin(out->best, value);
        return;
    }
    for (int o = 0; o < OPTIONS; o++) {
        for (int c = 0; c < 1 << NODES; c++) {
            double t, b;
            stage_of(s, k, first[k], first[k + 1], o, c, &t, &b);
            list_stages(s, first, k + 1, sum + t, fmax(longest, t), fmax(most, b), out);
        }
    }
}

static struct listed list_all(const struct small *s) {
    struct listed out = {INFINITY, INFINITY};
    for (int a = 1; a < UNITS; a++)
        for (int b = a + 1; b < UNITS; b++)
            list_stages(s, (const int[]){0, a, b, UNITS}, 0, 0, 0, 0, &out);
    return out;
}

/* Is the value that of the answer, and the memory kept where it says so? */
static bool is_true(const struct small *s, const struct relax_answer *a) {
    double sum = 0, longest = 0, most = 0;
    for (int k = 0; k < STAGES; k++) {
        double t, b;
        int choices = 0;
        for (int v = 0; v < NODES; v++)
            choices |= a->choice[k * NODES + v] << v;
        stage_of(s, k, a->first[k], a->first[k + 1], a->option[k], choices, &t, &b);
        sum += t;
        longest = fmax(longest, t);
        most = fmax(most, b);
    }
    double value = sum + (s->p.micro_batches - 1) * longest;
    return fabs(value - a->value) < 1e-9 * value &&
           (a->excess > 0) == (most > s->p.memory * (1 + 1e-12));
}

static bool same(const struct relax_answer *a, const struct relax_answer *b) {
    return a->value == b->value &&
           !memcmp(a->first, b->first, (STAGES + 1) * sizeof(int)) &&
           !memcmp(a->option, b->option, STAGES * sizeof(int)) &&
           !memcmp(a->choice, b->choice, STAGES * NODES * sizeof(int));
}

/* room: of the least memory that any answer needs; 0 = no limit */
static void test_small(double room) {
    enum { STARTS = 16, ROUNDS = 40 };
    struct rng r = {.seed = 5};
    int wrong = 0, none = 0, unlike = 0;
    double mean = 0, worst = 0;
    for (int round = 0; round < ROUNDS; round++) {
        static struct small s;
        const struct relax_problem *starts[STARTS];
        struct relax_answer a, b;
        draw(&r, &s);
        struct listed all = list_all(&s);
        if (room > 0) {
            s.p.memory = room * all.least_bytes;
            all = list_all(&s);
        }
        for (int i = 0; i < STARTS; i++)
            starts[i] = &s.p;
        relax_race(starts, STARTS, &(struct solve_limits){.seed = 1, .threads = 1}, &a, 1);
        relax_race(starts, STARTS, &(struct solve_limits){.seed = 1, .threads = 4}, &b, 1);
        unlike += !same(&a, &b);
        wrong += !is_true(&s, &a) || (a.excess <= 0 && a.value < all.best * (1 - 1e-12));
        none += a.excess > 0;
        double gap = a.excess > 0 ? 0 : a.value / all.best - 1;
        mean += gap / ROUNDS;
        worst = fmax(worst, gap);
        relax_answer_release(&a);
        relax_answer_release(&b);
    }
    ok(!wrong && !unlike, "%d problems, %s: values are true, and the same for any threads",
       ROUNDS, room > 0 ? "memory binds" : "no limit of memory");
    ok(mean < 0.03 && none <= ROUNDS / 10,
       "above the best of the list by %.2f %% on average, %.2f %% at most; %d found none "
       "that fits",
       100 * mean, 100 * worst, none);
}

int main(void) {
    test_cuts();
    test_small(0);
    test_small(1.3);
    return done_testing();
}
