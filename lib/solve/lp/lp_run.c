/* lp_run.c - one attempt of lp_solve, in a child process.
 *
 * lp_solve 5.5.2.5 writes past its heap blocks (phase 1 primal in branch and bound, seen
 * under valgrind on models of 5 variables), leaks, and can loop without asking its abort
 * function. None of that reaches the caller from a child, which can always be killed. The
 * child copies each improved solution into shared memory, so its incumbent survives
 * whatever becomes of it. Inside the child an abort function watches the clock and ends an
 * attempt whose branch and bound has not moved to another node for too long, which is how
 * cycling shows.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, on every Unix but not in POSIX.1-2008 */
#include "solve/lp/lp_impl.h"

#include "common/progress.h"

#include <lpsolve/lp_lib.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Settings, most dependable first. Primal simplex first because the default (dual then
 * primal) has been seen to cycle; Bland's rule last because it cannot cycle but is slow.
 * Never SCALE_INTEGERS, a default, which makes the heap error above frequent, and never a
 * depth limit of branch and bound, a default too, which cuts branches off without saying
 * so. */
static const struct setting {
    int simplex, pricing, scaling, improve, floor_first;
} settings[] = {
    {SIMPLEX_PRIMAL_PRIMAL, PRICER_DEVEX | PRICE_ADAPTIVE,
     SCALE_GEOMETRIC | SCALE_EQUILIBRATE, IMPROVE_NONE, BRANCH_CEILING},
    {SIMPLEX_DUAL_PRIMAL, PRICER_DEVEX | PRICE_ADAPTIVE,
     SCALE_GEOMETRIC | SCALE_EQUILIBRATE | SCALE_DYNUPDATE, IMPROVE_DEFAULT,
     BRANCH_CEILING},
    {SIMPLEX_PRIMAL_PRIMAL, PRICER_STEEPESTEDGE | PRICE_ADAPTIVE, SCALE_CURTISREID,
     IMPROVE_THETAGAP, BRANCH_AUTOMATIC},
    {SIMPLEX_PRIMAL_PRIMAL, PRICER_FIRSTINDEX, SCALE_GEOMETRIC, IMPROVE_NONE,
     BRANCH_CEILING},
};
_Static_assert(sizeof settings / sizeof *settings == LP_NUM_SETTINGS,
               "one count, two files");

/* What the child leaves behind. Solutions alternate between two slots, so that one of them
 * is whole at any moment. */
struct shared {
    _Atomic int solutions; /* how many were written; the last is in slot (solutions & 1) */
    _Atomic int code;      /* lp_solve's, once it has ended; -100 before */
    double claimed;        /* the objective it states */
    double numbers[];      /* x of slot 0, x of slot 1 */
};

struct child {
    const struct lp_attempt *t;
    struct shared *sh;
    double node_since_s; /* when branch and bound came to this node */
    long long node;
    pid_t parent;
};

/* ---- in the child ---------------------------------------------------------------- */

static void publish(struct child *c, const double *x) {
    int next = atomic_load(&c->sh->solutions) + 1;
    size_t n = (size_t)c->t->m->vars.n;
    memcpy(c->sh->numbers + (size_t)(next & 1) * n, x, n * sizeof *x);
    atomic_store(&c->sh->solutions, next);
}

static int __WINAPI on_abort(lprec *lp, void *handle) {
    struct child *c = handle;
    double now = now_s();
    if (interrupted() || now >= c->t->deadline_s || getppid() != c->parent)
        return TRUE;
    long long node = get_total_nodes(lp);
    if (node != c->node) {
        c->node = node;
        c->node_since_s = now;
    }
    return now - c->node_since_s > c->t->stall_s;
}

static void __WINAPI on_improved(lprec *lp, void *handle, int message) {
    double *x = NULL;
    (void)message;
    if (get_ptr_variables(lp, &x) && x)
        publish(handle, x);
}

static double lps_inf(double v) {
    return isinf(v) ? (v > 0 ? 1e30 : -1e30) : v;
}

static void add_rows(lprec *lp, const struct lp_model *m, int *cols) {
    for (int64_t i = 0; i < m->rows.n; i++) {
        const struct lp_row *r = &m->rows.p[i];
        for (int k = 0; k < r->n; k++)
            cols[k] = m->cols.p[r->first + k] + 1;
        int type = r->lo == r->hi ? EQ : isinf(r->hi) ? GE : LE;
        double rhs = type == GE ? r->lo : r->hi;
        add_constraintex(lp, r->n, m->vals.p + r->first, cols, type, lps_inf(rhs));
        if (type == LE && isfinite(r->lo))
            set_rh_range(lp, get_Nrows(lp), r->hi - r->lo);
    }
}

/* Builds lp_solve's model. Empty columns first and then rows in row-entry mode is the
 * fast order. */
static lprec *build(const struct lp_model *m) {
    int n = (int)m->vars.n;
    lprec *lp = make_lp(0, n);
    if (!lp)
        return NULL;
    set_verbose(lp, NEUTRAL);
    set_minim(lp);
    int *cols = mem_array((size_t)n + 1, sizeof *cols), count = 0;
    double *vals = mem_array((size_t)n + 1, sizeof *vals);
    set_add_rowmode(lp, TRUE);
    for (int j = 0; j < n; j++)
        if (m->vars.p[j].cost != 0) {
            cols[count] = j + 1;
            vals[count++] = m->vars.p[j].cost;
        }
    set_obj_fnex(lp, count, vals, cols);
    add_rows(lp, m, cols);
    set_add_rowmode(lp, FALSE);
    for (int j = 0; j < n; j++) {
        const struct lp_var *v = &m->vars.p[j];
        if (v->integer) /* before the bounds, which it may reset */
            set_int(lp, j + 1, TRUE);
        set_bounds(lp, j + 1, lps_inf(v->lo), lps_inf(v->hi));
    }
    free(cols);
    free(vals);
    return lp;
}

static void configure(lprec *lp, struct child *c) {
    const struct lp_attempt *t = c->t;
    const struct setting *s = &settings[t->setting];
    set_simplextype(lp, s->simplex);
    set_pivoting(lp, s->pricing);
    set_scaling(lp, s->scaling);
    set_presolve(lp, PRESOLVE_NONE, 5);
    set_improve(lp, s->improve);
    set_bb_floorfirst(lp, s->floor_first);
    set_bb_rule(lp, NODE_FIRSTSELECT);
    set_bb_depthlimit(lp, 0); /* none */
    set_mip_gap(lp, TRUE, 1e-11);
    set_mip_gap(lp, FALSE, 1e-9);
    put_abortfunc(lp, on_abort, c);
    put_msgfunc(lp, on_improved, c, MSG_MILPFEASIBLE | MSG_MILPBETTER | MSG_MILPEQUAL);
    double left = t->deadline_s - now_s();
    if (isfinite(left)) /* a second line of defence; whole seconds only */
        set_timeout(lp, (long)fmax(1, ceil(left)));
}

static void child_run(struct child *c) {
    lprec *lp = build(c->t->m);
    if (!lp)
        return;
    c->node = -1;
    c->node_since_s = now_s();
    configure(lp, c);
    int code = solve(lp);
    double *x = NULL;
    if ((code == OPTIMAL || code == PRESOLVED) && get_ptr_variables(lp, &x) && x) {
        c->sh->claimed = get_objective(lp);
        publish(c, x);
        code = OPTIMAL;
    }
    atomic_store(&c->sh->code, code);
}

/* Starts the child, which sends one byte when it is done, so that the parent wakes at
 * once. */
static pid_t child_start(struct lp_attempt *t, struct shared *sh, int ends[2]) {
    struct child c = {.t = t, .sh = sh, .parent = getpid()};
    pid_t pid = fork();
    if (pid)
        return pid;
    int null = open("/dev/null", O_WRONLY);
    dup2(null, 1); /* the C library's last words about a heap are no one's business */
    dup2(null, 2);
    child_run(&c);
    _exit(write(ends[1], "", 1) != 1);
}

/* ---- in the parent -------------------------------------------------------------- */

/* Waits for the child to end by itself; kills it when it outstays its time. Another
 * thread's child may hold the pipe open, so the pipe alone does not tell that ours is gone.
 */
static void await(struct lp_attempt *t, pid_t child, int pipe_end) {
    struct pollfd p = {.fd = pipe_end, .events = POLLIN};
    double overdue = INFINITY;
    for (;;) {
        bool done = poll(&p, 1, 20) > 0 && (p.revents & POLLIN);
        pid_t gone = waitpid(child, NULL, done ? 0 : WNOHANG);
        if (gone == child || (gone < 0 && errno != EINTR))
            return;
        double now = now_s();
        t->timed_out |= interrupted() || now >= t->deadline_s;
        if (t->timed_out && isinf(overdue))
            overdue = now + 0.1; /* lp_solve may yet ask the abort function */
        if (now > overdue)
            kill(child, SIGKILL);
    }
}

/* Takes over what the child left. */
static enum lp_end harvest(struct lp_attempt *t, struct shared *sh) {
    size_t n = (size_t)t->m->vars.n;
    int solutions = atomic_load(&sh->solutions);
    if (solutions > 0) {
        t->x = mem_array(n + 1, sizeof *t->x);
        memcpy(t->x, sh->numbers + (size_t)(solutions & 1) * n, n * sizeof *t->x);
    }
    t->claimed = sh->claimed;
    switch (atomic_load(&sh->code)) {
    case OPTIMAL: return END_OPTIMAL;
    case INFEASIBLE: return END_INFEASIBLE;
    case UNBOUNDED: return END_UNBOUNDED;
    default: return END_NOTHING; /* timeout, bad numerics, no memory, or a dead child */
    }
}

enum lp_end lp_attempt_run(struct lp_attempt *t) {
    size_t bytes = sizeof(struct shared) + 2 * (size_t)t->m->vars.n * sizeof(double);
    enum lp_end end = END_NOTHING;
    int ends[2];
    t->timed_out = false;
    t->x = NULL;
    struct shared *sh =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sh == MAP_FAILED)
        return END_NOTHING;
    atomic_store(&sh->code, -100);
    if (pipe(ends) == 0) {
        pid_t child = child_start(t, sh, ends);
        if (child > 0) {
            await(t, child, ends[0]);
            end = harvest(t, sh);
        }
        close(ends[0]);
        close(ends[1]);
    }
    munmap(sh, bytes);
    return end;
}
