/* The guard around lp_solve: small random integer programs against brute force, bounds that
 * must never pass the optimum, cutoffs, and a program too hard for the time it gets. */
#include "common/mem.h"
#include "common/progress.h"
#include "common/rng.h"
#include "solve/lp/lp.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>

struct small {
    int n, rows;
    double c[12], a[12][12], lo[12], hi[12];
};

/* Random one-hot groups, covers and knapsacks; costs whole, real, or mostly tied. */
static struct small draw(struct rng *r) {
    struct small s = {.n = 2 + (int)rng_below(r, 9), .rows = 1 + (int)rng_below(r, 6)};
    int kind = (int)rng_below(r, 3);
    for (int j = 0; j < s.n; j++)
        s.c[j] = kind == 0   ? (double)rng_below(r, 3)
                 : kind == 1 ? rng_real(r) * 10 - 2
                             : (double)rng_below(r, 100) * 1e4;
    for (int i = 0; i < s.rows; i++) {
        int type = (int)rng_below(r, 4);
        double sum = 0;
        for (int j = 0; j < s.n; j++) {
            s.a[i][j] = type < 2 ? (double)rng_below(r, 2) : (double)rng_below(r, 20) - 4;
            sum += s.a[i][j];
        }
        s.lo[i] = type == 0 ? 1 : type == 1 ? 1 : type == 2 ? -INFINITY : floor(sum * 0.3);
        s.hi[i] = type == 0   ? 1
                  : type == 1 ? INFINITY
                  : type == 2 ? floor(sum * 0.4)
                              : sum * 0.8;
        if (s.lo[i] > s.hi[i])
            s.lo[i] = -INFINITY;
    }
    return s;
}

static double brute(const struct small *s) {
    double best = INFINITY;
    for (int x = 0; x < 1 << s->n; x++) {
        double cost = 0;
        bool good = true;
        for (int i = 0; i < s->rows && good; i++) {
            double sum = 0;
            for (int j = 0; j < s->n; j++)
                sum += (x >> j & 1) * s->a[i][j];
            good = sum >= s->lo[i] - 1e-9 && sum <= s->hi[i] + 1e-9;
        }
        for (int j = 0; j < s->n; j++)
            cost += (x >> j & 1) * s->c[j];
        if (good && cost < best)
            best = cost;
    }
    return best;
}

static struct lp_model *model(const struct small *s) {
    struct lp_model *m = lp_create();
    for (int j = 0; j < s->n; j++)
        lp_add_var(m, s->c[j], 0, 1, true);
    int cols[12];
    double vals[12];
    for (int i = 0; i < s->rows; i++) {
        int n = 0;
        for (int j = 0; j < s->n; j++)
            if (s->a[i][j] != 0) {
                cols[n] = j;
                vals[n++] = s->a[i][j];
            }
        lp_add_row(m, n, cols, vals, s->lo[i], s->hi[i]);
    }
    return m;
}

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-6 * (1 + fabs(b));
}

static void test_random(void) {
    int wrong = 0, infeasible = 0, undecided = 0;
    struct rng r = {.seed = 3};
    const int cases = 1500;
    for (int k = 0; k < cases; k++) {
        struct small s = draw(&r);
        double want = brute(&s);
        struct lp_model *m = model(&s);
        struct lp_answer a;
        enum lp_status st = lp_minimize(m, 5, &a);
        infeasible += isinf(want);
        undecided += st == LP_FAILED;
        wrong += isinf(want) ? st != LP_INFEASIBLE && st != LP_FAILED
                             : st == LP_INFEASIBLE || st == LP_UNBOUNDED ||
                                   (st == LP_OPTIMAL && !near(a.value, want));
        lp_answer_release(&a);
        lp_destroy(m);
    }
    ok(!wrong,
       "%d random integer programs (%d infeasible): optimum or a true infeasible "
       "(%d wrong)",
       cases, infeasible, wrong);
    ok(undecided == 0, "%d left undecided", undecided);
}

/* The least x + y where lo <= x + 2y <= hi, 0 <= x <= most, -5 <= y <= 5. */
static enum lp_status least_sum(double lo, double hi, double most, struct lp_answer *a) {
    struct lp_model *m = lp_create();
    int x = lp_add_var(m, 1, 0, most, false), y = lp_add_var(m, 1, -5, 5, false);
    lp_add_row(m, 2, (int[]){x, y}, (double[]){1, 2}, lo, hi);
    enum lp_status st = lp_minimize(m, 0, a);
    lp_destroy(m);
    return st;
}

static void test_corners(void) {
    struct lp_model *m = lp_create();
    struct lp_answer a;
    lp_add_var(m, -1, 0, INFINITY, false);
    enum lp_status st = lp_minimize(m, 0, &a);
    ok(st == LP_UNBOUNDED, "an objective without bound (status %d)", (int)st);
    lp_answer_release(&a);
    lp_destroy(m);
    st = least_sum(4, 4, INFINITY, &a);
    ok(st == LP_OPTIMAL && near(a.value, 2), "an equality: value %g", a.value);
    lp_answer_release(&a);
    st = least_sum(100, INFINITY, 1, &a);
    ok(st == LP_INFEASIBLE, "constraints that contradict each other (status %d)", (int)st);
    lp_answer_release(&a);
}

/* A market split of 4 rows and 32 columns is beyond branch and bound: the clock must hold.
 */
static void test_clock(void) {
    struct rng r = {.seed = 5};
    struct lp_model *m = lp_create();
    enum { N = 32, ROWS = 4 };
    int cols[N + 2];
    double vals[N + 2];
    for (int j = 0; j < N; j++)
        lp_add_var(m, 0, 0, 1, true);
    for (int i = 0; i < ROWS; i++) {
        double sum = 0;
        for (int j = 0; j < N; j++) {
            cols[j] = j;
            vals[j] = (double)rng_below(&r, 100);
            sum += vals[j];
        }
        for (int k = 0; k < 2; k++) {
            cols[N + k] = lp_add_var(m, 1, 0, INFINITY, false);
            vals[N + k] = k ? -1 : 1;
        }
        lp_add_row(m, N + 2, cols, vals, floor(sum / 2), floor(sum / 2));
    }
    struct lp_answer a;
    double start = now_s();
    enum lp_status st = lp_minimize(m, 1, &a);
    double took = now_s() - start;
    ok(took < 2.5 && (st == LP_FAILED || st == LP_OPTIMAL),
       "one second on a hard one: status %d, %.1f s", (int)st, took);
    lp_answer_release(&a);
    lp_destroy(m);
}

int main(void) {
    test_random();
    test_corners();
    test_clock();
    return done_testing();
}
