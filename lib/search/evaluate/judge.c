/* Judging: a candidate is compiled as a whole and simulated.
 *
 * It is done to the best candidate as soon as there is one, again when better ones turn up (as
 * far as a small share of the time allows), and to all finalists in the end. */
#include "common/progress.h"
#include "search/evaluate/overlap.h"
#include "search/pool/looks.h"
#include "search/search_impl.h"
#include "search/space/devices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void search_keep_most(struct search *s, int most) {
    s->kept = mem_grow(s->kept, (size_t)most, sizeof *s->kept);
    for (int i = s->max_kept; i < most; i++)
        s->kept[i] = (struct kept){.c = candidate_make(s)};
    s->plans = mem_grow(s->plans, (size_t)most + 1, sizeof *s->plans);
    s->max_kept = most;
}

/* ---- proofs ---------------------------------------------------------------------------- */

static bool fits(struct search *s, const struct candidate *c) {
    if (!s->p.memory_bytes)
        return true;
    struct plan *plan = search_plan_of(s, c);
    struct program *g = plan_check(plan, NULL) == 0 ? program_compile(plan, NULL) : NULL;
    bool good = g != NULL;
    for (int k = 0; good && k < g->n_stages; k++)
        good = g->stages[k].arena_bytes <= search_stage_memory(s, plan, k);
    program_destroy(g);
    plan_destroy(plan);
    return good;
}

bool search_may_be_best(struct search *s, const struct candidate *c,
                        const struct score *score) {
    return (!s->n_kept || score->time_us <= SEARCH_SLACK * s->kept[0].score.time_us) &&
           fits(s, c);
}

/* All that are alike are judged for a proof. */
void search_be_exact(struct search *s) {
    int n = 0;
    s->exact = true;
    search_keep_most(s, 4 * s->p.top + 500);
    for (int i = 0; i < s->n_kept; i++) {
        struct kept k = s->kept[i];
        if (!fits(s, &k.c))
            continue;
        s->kept[i] = s->kept[n];
        s->kept[n++] = k;
    }
    s->n_kept = n;
}

/* ---- judging --------------------------------------------------------------------------- */

/* The stage that comes nearest to its memory, or misses most; its bytes beyond that. */
static int fullest_stage(const struct search *s, const struct program *g, int64_t *beyond) {
    int fullest = 0;
    for (int k = 0; k < g->n_stages; k++) {
        int64_t more = g->stages[k].arena_bytes - search_stage_memory(s, g->plan, k);
        if (!k || more > *beyond) {
            fullest = k;
            *beyond = more;
        }
    }
    return fullest;
}

/* Exact memory, staging included, and the simulated time. False where it does not fit or
 * the profile lacks something. */
static bool judge_program(struct search *s, const struct program *g, struct kept *k,
                          struct search_plan *out) {
    struct simulation sim;
    int64_t beyond = 0;
    k->fullest = fullest_stage(s, g, &beyond);
    for (int i = 0; i < g->n_stages; i++)
        out->max_bytes = g->stages[i].arena_bytes > out->max_bytes
                             ? g->stages[i].arena_bytes
                             : out->max_bytes;
    if (s->p.memory_bytes && beyond > 0)
        k->excess = beyond;
    cost_forget(&s->cost);
    if (k->excess || simulate_program(g, &s->cost, NULL, &sim, NULL) < 0)
        return false;
    out->time_us = sim.time_us;
    simulation_release(&sim);
    char key[256];
    bool known = s->cost.n_missing == 0;
    if (!known)
        note_verbose("finalist: the profile lacks %s",
                     cost_key_format(&s->cost.missing[0], key, sizeof key));
    cost_forget(&s->cost);
    return known;
}

bool search_judge_plan(struct search *s, struct search_plan *p) {
    struct kept unused = {.score.unknown = true};
    struct program *g =
        plan_check(p->plan, NULL) == 0 ? program_compile(p->plan, NULL) : NULL;
    p->max_bytes = 0;
    bool good = g && judge_program(s, g, &unused, p);
    program_destroy(g);
    return good;
}

/* What came of judging a candidate's plan: the same whenever it is judged. */
struct verdict {
    bool good;
    double time_us;
    int64_t max_bytes, excess;
    int fullest;
};

/* plan: checked, or NULL where it is not legal. */
static struct verdict *make_verdict(struct search *s, struct kept *k,
                                    const struct plan *plan) {
    struct verdict *v = mem_alloc(sizeof *v);
    struct search_plan out = {0};
    struct program *g = plan ? program_compile(plan, NULL) : NULL;
    k->excess = 0;
    bool good = g && judge_program(s, g, k, &out);
    program_destroy(g);
    note_verbose("finalist: estimated %.3f ms, compiled %.1f MiB, simulated %.3f ms%s",
                 k->score.time_us / 1e3, (double)out.max_bytes / (1 << 20),
                 out.time_us / 1e3, good ? "" : ": refused");
    *v = (struct verdict){good, out.time_us, out.max_bytes, k->excess, k->fullest};
    return v;
}

/* Takes the plan over; merged: its meshes are. */
static bool judge_plan(struct search *s, struct kept *k, struct plan *plan, bool merged,
                       struct search_plan *out) {
    void **slot = memo_slot(&s->verdicts, memo_mix(candidate_hash(&k->c), merged));
    search_name_axes(s, plan);
    bool legal = plan_check(plan, NULL) == 0; /* which numbers its ranks, too */
    if (!*slot)
        *slot = make_verdict(s, k, legal ? plan : NULL);
    const struct verdict *v = *slot;
    k->excess = v->excess;
    k->fullest = v->fullest;
    out->time_us = v->time_us;
    out->max_bytes = v->max_bytes;
    out->plan = v->good ? plan : NULL;
    if (!v->good)
        plan_destroy(plan);
    return v->good;
}

int64_t search_excess(struct search *s, const struct kept *kept) {
    struct kept k = *kept;
    struct search_plan out = {0};
    struct plan *plan = search_plan_of(s, &k.c);
    bool merged = search_merge_meshes(plan);
    if (judge_plan(s, &k, plan, merged, &out))
        plan_destroy(out.plan);
    int64_t excess = k.excess;
    if (!merged || !excess)
        return excess;
    if (judge_plan(s, &k, search_plan_of(s, &k.c), false, &out))
        plan_destroy(out.plan);
    return k.excess < excess ? k.excess : excess;
}

/* A source's estimate is its word. */
static bool judge_by_source(struct search *s, struct kept *k, struct search_plan *out) {
    out->plan = source_plan(s, &k->c, &out->max_bytes);
    out->time_us = k->score.time_us;
    k->judged = true;
    k->excess = 0;
    return true;
}

/* With its meshes merged; as they are, too, where that is not good or (both) it is the best so
 * far. */
static bool judge(struct search *s, struct kept *k, bool both, struct search_plan *out) {
    if (s->p.source)
        return judge_by_source(s, k, out);
    double begin = now_s();
    int64_t known = s->verdicts.n;
    struct search_plan apart = {0};
    struct plan *plan = search_plan_of(s, &k->c);
    bool merged = search_merge_meshes(plan);
    bool good = judge_plan(s, k, plan, merged, out);
    bool best = !s->n_plans || out->time_us < s->plans[0].plan.time_us;
    if (merged && (!good || (both && best)) &&
        judge_plan(s, k, search_plan_of(s, &k->c), false, &apart)) {
        bool better = !good || apart.time_us < out->time_us * (1 - 1e-9);
        plan_destroy(better ? out->plan : apart.plan);
        *out = better ? apart : *out;
        good = true;
    }
    if (good)
        search_overlap_plan(s, out);
    k->judged = true;
    k->excess = good ? 0 : k->excess;
    if (s->verdicts.n > known)
        s->judge_s = now_s() - begin;
    return good;
}

/* Is a plan of the class the best of it where it stands at `at`? Where one plan is wanted, all are. */
static bool is_first(const struct search *s, int at, uint64_t class) {
    for (int i = 0; i < at && s->p.top > 1; i++)
        if (s->plans[i].class == class)
            return false;
    return true;
}

/* Sorted in by time; the worst goes when there are too many. */
static void add_judged(struct search *s, struct judged j) {
    int at = s->n_plans;
    while (at > 0 && j.plan.time_us < s->plans[at - 1].plan.time_us)
        at--;
    if (s->n_plans == s->max_kept)
        plan_destroy(s->plans[--s->n_plans].plan.plan);
    at = at < s->n_plans ? at : s->n_plans;
    memmove(&s->plans[at + 1], &s->plans[at], sizeof *s->plans * (size_t)(s->n_plans - at));
    j.first = is_first(s, at, j.class);
    for (int i = at; i < s->n_plans; i++)
        s->plans[i + 1].first &= s->p.top == 1 || s->plans[i + 1].class != j.class;
    s->plans[at] = j;
    s->n_plans++;
}

static bool judge_and_add(struct search *s, struct kept *k, bool both) {
    struct judged j = {.plan.member = k->member, .class = k->class};
    if (!judge(s, k, both, &j.plan))
        return false;
    watch_plan(s->watch, k->member, j.plan.time_us);
    add_judged(s, j);
    return true;
}

/* What was written down from number `first` on and is estimated no slower than this; of those of
 * one time the first that fits. */
static void judge_looks(struct search *s, int64_t first, double most_us) {
    bool good = false;
    for (int64_t i = first; i < s->looks.n; i++) {
        struct look *l = &s->looks.p[i];
        good &= l->instead;
        if (!good && l->k.score.time_us <= most_us)
            good = judge_and_add(s, &l->k, true);
    }
}

/* At first at once; later what promises to be better, in a twentieth of the time. Under a budget
 * all that was written down, and nothing else (looks.h). */
void search_verify(struct search *s) {
    struct kept *best = &s->kept[0];
    double wait = s->n_plans ? 20 : 2;
    if (search_has_budget(s)) {
        judge_looks(s, s->looks_judged, INFINITY);
        s->looks_judged = s->looks.n;
    }
    if (search_has_budget(s) || best->judged ||
        now_s() - s->last_judged_s < wait * s->judge_s ||
        (s->n_plans && best->score.time_us >= s->plans[0].plan.time_us))
        return;
    judge_and_add(s, best, false);
    s->last_judged_s = now_s();
}

/* What was judged on the way goes, so that a search that ends by itself gives the same plans
 * whatever the machine's speed; but for the best of it, which is handed back in case that no
 * finalist is good. */
static struct judged drop_judged(struct search *s) {
    struct judged best = {0};
    if (s->n_plans)
        best = s->plans[0];
    for (int i = 1; i < s->n_plans; i++)
        plan_destroy(s->plans[i].plan.plan);
    for (int i = 0; i < s->n_kept; i++)
        s->kept[i].judged = false;
    s->n_plans = 0;
    return best;
}

double search_simulated_us(struct search *s) {
    struct search_plan plan = {0};
    if (!s->n_kept)
        return INFINITY;
    struct kept best = s->kept[0]; /* what is noted of its judgement is not kept */
    double us = judge(s, &best, true, &plan) ? plan.time_us : INFINITY;
    plan_destroy(plan.plan);
    return us;
}

static void note_excess(struct search *s, const struct kept *k) {
    if (k->excess && (!s->refused.bytes || k->excess < s->refused.bytes))
        s->refused = search_shortage(s, &k->c, k->fullest, k->excess);
}

/* How many more than are wanted: as many as take little time. */
int64_t search_spare(const struct search *s) {
    enum { LITTLE = 1 << 16, LEAST = 2 };
    int64_t size = (int64_t)s->p.model->n_ops * s->p.devices;
    return size * LEAST < LITTLE ? LITTLE / size : LEAST;
}

/* If all plans were listed: what was not judged is not faster than the estimate of the best of it
 * allows. */
static void note_listed(struct search *s) {
    double rest_us =
        s->n_kept == s->max_kept ? s->kept[s->n_kept - 1].score.time_us : INFINITY;
    if (!s->proven || !s->n_plans || s->p.top > 1)
        return;
    for (int i = s->n_kept - 1; i >= 0; i--)
        if (!s->kept[i].judged)
            rest_us = s->kept[i].score.time_us;
    s->listed_us = fmin(s->plans[0].plan.time_us, rest_us / SEARCH_SLACK);
}

/* The slowest plan that is wanted; NULL while there are fewer. */
static const struct judged *last_wanted(const struct search *s) {
    int n = 0;
    for (int i = 0; i < s->n_plans; i++)
        if (s->plans[i].first && ++n == s->p.top)
            return &s->plans[i];
    return NULL;
}

static int judged_of(const struct search *s, uint64_t class) {
    int n = 0;
    for (int i = 0; i < s->n_plans; i++)
        n += s->plans[i].class == class;
    return n;
}

/* A search that was stopped has judged a plan; it judges what promises more only where that takes no
 * time that anyone notices. */
static bool may_judge(const struct search *s, const struct kept *k, double begin_s) {
    static const double UNNOTICED_S = 0.05;
    if (!s->n_plans)
        return true;
    if (!interrupted())
        return search_time_left_s(s) >= s->judge_s;
    return k->score.time_us < s->plans[0].plan.time_us && s->judge_s < UNNOTICED_S &&
           now_s() - begin_s < UNNOTICED_S;
}

static const double USUAL_SLACK = 1.05; /* few estimates err by more */

/* Best first, of each class some: none that is estimated slower than a judged one by more than estimates
 * err. */
static void judge_finalists(struct search *s) {
    double slack = s->exact ? SEARCH_SLACK : USUAL_SLACK;
    double begin_s = now_s();
    s->refused.bytes = 0;
    s->listed_us = 0;
    for (int i = 0; i < s->n_kept; i++) {
        struct kept *k = &s->kept[i];
        const struct judged *last = last_wanted(s);
        if (!may_judge(s, k, begin_s))
            return;
        if (last && k->score.time_us > slack * last->plan.time_us)
            break;
        int64_t more =
            k->class == s->kept[0].class ? search_spare(s) : search_spare(s) / s->p.top;
        if (judged_of(s, k->class) > more)
            continue;
        if (!k->judged)
            judge_and_add(s, k, !search_out_of_time(s));
        note_excess(s, k);
    }
    note_listed(s);
}

static void judge_rivals(struct search *s) {
    for (int i = 0; i < s->n_rivals && !search_out_of_time(s); i++) {
        struct kept *k = &s->rivals[i];
        if (s->n_plans && k->score.time_us < s->plans[0].plan.time_us)
            judge_and_add(s, k, true);
    }
}

void search_judge(struct search *s) {
    if (search_out_of_time(s)) {
        if (!search_has_budget(s) || interrupted() || !s->n_plans)
            judge_finalists(s);
        return;
    }
    struct judged other = drop_judged(s), *fallback = &s->fallback;
    judge_finalists(s);
    judge_rivals(s);
    judge_looks(s, 0, s->n_plans ? USUAL_SLACK * s->plans[0].plan.time_us : INFINITY);
    if (search_has_budget(s) && s->n_plans && other.plan.plan &&
        other.plan.time_us < s->plans[0].plan.time_us) {
        add_judged(s, other);
        return;
    }
    if (other.plan.plan &&
        (!fallback->plan.plan || other.plan.time_us < fallback->plan.time_us)) {
        struct judged was = *fallback;
        *fallback = other;
        other = was;
    }
    plan_destroy(other.plan.plan);
}
