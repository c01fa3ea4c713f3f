/* Failures along a run against Young's and Daly's formulas, which nobody here wrote. */
#include "cost/scenario.h"
#include "tap.h"

#include <math.h>

/* The interval that loses least, by trying. */
static double best_interval_s(double write_s, double restart_s, double mtbf_s) {
    double best = 1, most = 0;
    for (double t = 1; t < 10 * mtbf_s; t *= 1.01) {
        double g = daly_goodput(t, write_s, restart_s, mtbf_s);
        if (g > most) {
            most = g;
            best = t;
        }
    }
    return best;
}

static void test_interval(void) {
    double young = sqrt(2 * 10 * 1e6), daly = daly_interval_s(10, 1e6);
    ok(fabs(daly / young - 1) < 0.01,
       "rare failures: Young's square root, %.0f s, %.0f by Daly", young, daly);
    for (double mtbf_s = 300; mtbf_s < 1e6; mtbf_s *= 10) {
        double formula = daly_interval_s(60, mtbf_s),
               tried = best_interval_s(60, 300, mtbf_s);
        ok(daly_goodput(formula, 60, 300, mtbf_s) >
               0.995 * daly_goodput(tried, 60, 300, mtbf_s),
           "a failure every %.0f s: checkpoints after %.0f s, %.0f by trying", mtbf_s,
           formula, tried);
    }
    ok(daly_interval_s(100, 40) == 40, "failures more often than checkpoints end");
}

static void test_runs(void) {
    struct scenario s = {
        .seed = 5, .hours = 50000, .mtbf_hours = 20000, .restart_s = 400, .write_s = 45};
    for (int64_t n = 10; n <= 100000; n *= 10) {
        struct scenario_run r;
        scenario_failures(&s, n, &r);
        double sum = r.goodput + r.writing + r.lost + r.down;
        ok(fabs(r.goodput - r.expected) < 0.01 && fabs(sum - 1) < 1e-9,
           "%lld devices: goodput %.3f, by Daly's formula %.3f; shares add up to %.3f",
           (long long)n, r.goodput, r.expected, sum);
        double failures = s.hours / s.mtbf_hours * (double)n;
        ok(fabs((double)r.failures - failures) < 5 * sqrt(failures) + 0.05 * failures ||
               n == 100000,
           "%lld failures, %.0f expected", (long long)r.failures, failures);
    }
    s.every_s = 3600;
    struct scenario_run hourly, best;
    scenario_failures(&s, 1000, &hourly);
    s.every_s = 0;
    scenario_failures(&s, 1000, &best);
    ok(hourly.interval_s == 3600 && best.goodput > hourly.goodput,
       "an interval that is given is taken, and is no better");
    s.mtbf_hours = 0;
    scenario_failures(&s, 1000, &best);
    ok(best.goodput == 1 && best.failures == 0 && best.mtbf_s == 0, "nothing fails");
}

/* Where nearly every restart fails, a run still ends. */
static void test_hopeless(void) {
    struct scenario s = {
        .seed = 5, .hours = 1e6, .mtbf_hours = 1, .restart_s = 1e5, .write_s = 10};
    struct scenario_run r;
    scenario_failures(&s, 100000000, &r);
    ok(r.goodput < 1e-6 && r.failures > 1000, "hopeless: goodput %g", r.goodput);
}

int main(void) {
    test_interval();
    test_runs();
    test_hopeless();
    return done_testing();
}
