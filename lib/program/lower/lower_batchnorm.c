/* Batch norm (Ioffe and Szegedy 2015) over groups of samples that the model names ("ghost
 * batches", Hoffer et al. 2017), so that statistics are the same under every plan. Each
 * rank takes the moments of its places; where others have places of the same groups, sums
 * are reduced, and then squared deviations from the common mean. */
#include "program/lower/lower.h"

/* The groups that a rank knows: those that its samples are in, or all of the micro-batch
 * where the samples of one may lie on several ranks. */
struct groups {
    int64_t samples, places, c, group; /* local; group: samples of a group on all ranks */
    int64_t n, total;                  /* groups known; places of a group on all ranks */
    unsigned axes;                     /* along which other ranks have places of them */
};

static struct groups groups_of(const struct emit *e, int op) {
    const struct model_op *o = op_of(e, op);
    int last = o->space.n - 1;
    struct groups g = {.samples = lower_size(e, op, 0),
                       .c = lower_size(e, op, last),
                       .group = (int64_t)o->attr[ATTR_group],
                       .axes = lower_axes(e, op, ROLE_coupled)};
    g.places = lower_role(e, op, ROLE_coupled) / g.samples;
    g.total = g.group;
    for (int k = 1; k < last; k++)
        g.total *= model_dim_size(e->m, o->space.dim[k], 0);
    bool apart = g.samples % g.group == 0;
    if (apart)
        g.axes &= ~lower_dim_axes(e, op, 0);
    g.n = (apart ? g.samples : e->plan->micro_batch) / g.group;
    return g;
}

static struct batchnorm_n numbers(const struct groups *g) {
    return (struct batchnorm_n){.samples = g->samples,
                                .places = g->places,
                                .c = g->c,
                                .groups = g->n,
                                .group = g->group};
}

/* ---- forward ----------------------------------------------------------------------- */

/* Reduces the sums, then the squared deviations, now from the common means. */
static int reduce(struct emit *e, int op, const struct groups *g, int *sums, int squares) {
    int64_t n = g->n * g->c;
    int all = emit_copy(e, *sums, lower_scratch(e, n), n), centered = lower_scratch(e, n);
    emit_collective(e, I_all_reduce, g->axes, all, all, n);
    struct instr *i = emit_instr(e, I_batchnorm_center);
    i->in.batchnorm_center.sums = *sums;
    i->in.batchnorm_center.all = all;
    i->in.batchnorm_center.squares = squares;
    i->out.batchnorm_center.centered = centered;
    i->n.batchnorm_center = (struct batchnorm_center_n){.samples = g->samples,
                                                        .places = g->places,
                                                        .c = g->c,
                                                        .groups = g->n,
                                                        .group = g->group,
                                                        .total = g->total};
    lower_about_operand(e, i, op, 0);
    emit_collective(e, I_all_reduce, g->axes, centered, centered, n);
    *sums = all;
    return centered;
}

static int statistics(struct emit *e, int op, const struct groups *g, int x) {
    int sums = lower_scratch(e, g->n * g->c), squares = lower_scratch(e, g->n * g->c);
    int mean = lower_param(e, op, 2), variance = lower_param(e, op, 3);
    struct instr *i = emit_instr(e, I_batchnorm_moments);
    i->in.batchnorm_moments.x = x;
    i->out.batchnorm_moments.sums = sums;
    i->out.batchnorm_moments.squares = squares;
    i->n.batchnorm = numbers(g);
    lower_about_operand(e, i, op, 0);
    if (g->axes)
        squares = reduce(e, op, g, &sums, squares);
    int stat = lower_scratch(e, 2 * g->n * g->c);
    i = emit_instr(e, I_batchnorm_stat);
    i->in.batchnorm_stat.sums = sums;
    i->in.batchnorm_stat.squares = squares;
    i->in.batchnorm_stat.mean = mean;
    i->in.batchnorm_stat.variance = variance;
    i->out.batchnorm_stat.stat = stat;
    i->n.batchnorm_stat =
        (struct batchnorm_stat_n){.c = g->c, .groups = g->n, .total = g->total};
    lower_save(e, op, stat);
    return stat;
}

static void forward(struct emit *e, int op) {
    struct groups g = groups_of(e, op);
    int x = lower_operand(e, op, 0), gamma = lower_param(e, op, 0);
    int beta = lower_param(e, op, 1), stat = statistics(e, op, &g, x);
    int y = lower_result(e, op, 0);
    struct instr *i = emit_instr(e, I_batchnorm);
    i->in.batchnorm.x = x;
    i->in.batchnorm.gamma = gamma;
    i->in.batchnorm.beta = beta;
    i->in.batchnorm.stat = stat;
    i->out.batchnorm.y = y;
    i->n.batchnorm = numbers(&g);
    lower_about_operand(e, i, op, 0);
}

/* ---- backward ---------------------------------------------------------------------- */

/* Once per micro-batch, so not in the forward pass, which may be recomputed. Where several
 * ranks know a group, the first of them counts it. */
static void add_running(struct emit *e, int op, const struct groups *g, int stat) {
    int dmean = lower_grad(e, op, 2), dvariance = lower_grad(e, op, 3);
    struct instr *i = emit_instr(e, I_batchnorm_running);
    i->in.batchnorm_running.stat = stat;
    i->out.batchnorm_running.dmean = dmean;
    i->out.batchnorm_running.dvariance = dvariance;
    i->n.batchnorm_running =
        (struct batchnorm_running_n){.c = g->c, .groups = g->n, .total = g->total};
    i->axes = g->axes;
}

static int backward_sums(struct emit *e, int op, const struct groups *g, int x, int stat,
                         int dy) {
    int sums = lower_scratch(e, 2 * g->n * g->c);
    int dgamma = lower_grad(e, op, 0), dbeta = lower_grad(e, op, 1);
    struct instr *i = emit_instr(e, I_batchnorm_bwd_sums);
    i->in.batchnorm_bwd_sums.x = x;
    i->in.batchnorm_bwd_sums.stat = stat;
    i->in.batchnorm_bwd_sums.dy = dy;
    i->out.batchnorm_bwd_sums.sums = sums;
    i->out.batchnorm_bwd_sums.dgamma = dgamma;
    i->out.batchnorm_bwd_sums.dbeta = dbeta;
    i->n.batchnorm = numbers(g);
    lower_about_operand(e, i, op, 0);
    if (g->axes)
        emit_collective(e, I_all_reduce, g->axes, sums, sums, 2 * g->n * g->c);
    return sums;
}

static void backward(struct emit *e, int op, const int *dy) {
    struct groups g = groups_of(e, op);
    int x = lower_operand(e, op, 0), gamma = lower_param(e, op, 0), stat = saved_get(e, op);
    if (lower_trains(e, op, 2) || lower_trains(e, op, 3))
        add_running(e, op, &g, stat);
    if (dy[0] < 0)
        return;
    int sums = backward_sums(e, op, &g, x, stat, dy[0]);
    if (!lower_wants_gradient(e, op, 0))
        return;
    int dx = lower_gradient(e, op, 0);
    struct instr *i = emit_instr(e, I_batchnorm_bwd);
    i->in.batchnorm_bwd.x = x;
    i->in.batchnorm_bwd.gamma = gamma;
    i->in.batchnorm_bwd.stat = stat;
    i->in.batchnorm_bwd.dy = dy[0];
    i->in.batchnorm_bwd.sums = sums;
    i->out.batchnorm_bwd.dx = dx;
    i->n.batchnorm_bwd = (struct batchnorm_bwd_n){.samples = g.samples,
                                                  .places = g.places,
                                                  .c = g.c,
                                                  .groups = g.n,
                                                  .group = g.group,
                                                  .total = g.total};
    lower_about_operand(e, i, op, 0);
}

const struct lowering lower_batchnorm = {forward, backward};
