/* What a scenario leaves of a plan's speed, as JSON and as a table. */
#include "predict.h"

#include "common/json.h"
#include "common/text.h"

static double samples_per_second(const struct predict *p, const struct scenario_run *r) {
    return (double)p->plan->batch / p->steps.mean_us * 1e6 * r->goodput;
}

static json_t *run_json(const struct predict *p, int64_t devices, bool own) {
    struct scenario_run r;
    scenario_failures(p->scenario, devices, &r);
    json_t *o =
        json_pack("{s:I,s:f}", "devices", (json_int_t)devices, "goodput", r.goodput);
    if (own)
        json_object_set_new(o, "samples_per_second", json_real(samples_per_second(p, &r)));
    if (r.mtbf_s > 0)
        json_object_update_new(
            o, json_pack("{s:f,s:f,s:f,s:f,s:f,s:f,s:I,s:I}", "mtbf_s", r.mtbf_s,
                         "interval_s", r.interval_s, "expected", r.expected, "checkpoints",
                         r.writing, "lost", r.lost, "down", r.down, "failures",
                         (json_int_t)r.failures, "written", (json_int_t)r.checkpoints));
    return o;
}

json_t *predict_scenario_json(const struct predict *p) {
    const struct scenario *s = p->scenario;
    json_t *runs = json_array();
    json_array_append_new(runs, run_json(p, p->plan->devices, true));
    for (int i = 0; i < s->n_sizes; i++)
        json_array_append_new(runs, run_json(p, s->sizes[i], false));
    return json_pack("{s:I,s:I,s:f,s:f,s:f,s:f,s:f,s:o}", "seed", (json_int_t)s->seed,
                     "steps", (json_int_t)s->steps, "hours", s->hours, "time_us",
                     p->steps.mean_us, "least_us", p->steps.least_us, "most_us",
                     p->steps.most_us, "slower", p->steps.mean_us / p->sim.time_us, "runs",
                     runs);
}

static void print_run(const struct predict *p, int64_t devices, FILE *f) {
    struct scenario_run r;
    scenario_failures(p->scenario, devices, &r);
    fprintf(f, "%9lld %12.4g %14.4g %9lld %9.1f %6.1f %6.1f %9.1f %9.1f\n",
            (long long)devices, r.mtbf_s / 3600, r.interval_s, (long long)r.failures,
            100 * r.writing, 100 * r.lost, 100 * r.down, 100 * r.goodput, 100 * r.expected);
}

void predict_scenario_text(const struct predict *p, FILE *f) {
    const struct scenario *s = p->scenario;
    struct scenario_run own;
    scenario_failures(s, p->plan->devices, &own);
    fprintf(f, "\nscenario: a step takes %s (%.3f times as long), from %s to %s in %lld\n",
            text_time(p->steps.mean_us).s, p->steps.mean_us / p->sim.time_us,
            text_time(p->steps.least_us).s, text_time(p->steps.most_us).s,
            (long long)s->steps);
    fprintf(f, "%.4g samples/s over a run of %g hours\n", samples_per_second(p, &own),
            s->hours);
    if (own.mtbf_s <= 0)
        return;
    fprintf(f, "\n%9s %12s %14s %9s %9s %6s %6s %9s %9s\n", "devices", "fails each h",
            "written each s", "failures", "writing %", "lost %", "down %", "goodput %",
            "formula %");
    print_run(p, p->plan->devices, f);
    for (int i = 0; i < s->n_sizes; i++)
        print_run(p, s->sizes[i], f);
}
