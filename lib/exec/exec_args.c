/* What kernels need to know beyond shapes: where the rank's part begins in the whole, what counts
 * once among replicas, hyper-parameters. One function for each group of opcodes that need the same. */
#include "common/mem.h"
#include "exec/exec_impl.h"

#include <math.h>

/* What an instruction of this rank is about, and where its arguments go. */
struct target {
    struct exec *x;
    const struct model *m;
    const struct exec_chunk *c;
    const struct instr *ins;
    struct exec_instr *r;
};
typedef void fill_args(const struct target *t);
#define ARGS(name) static void name(const struct target *t)

/* What this rank has of the tensor that the instruction is about. */
static struct box local_box(const struct target *t) {
    return exec_box(t->c, &t->m->tensors[t->ins->tensor].shape, t->ins->place);
}

static double attr_of(const struct target *t, enum attr attr) {
    return t->m->ops[t->ins->op].attr[attr];
}

ARGS(input) {
    t->r->box = local_box(t);
}

/* Where an axis is summed over, one rank adds the bias. */
ARGS(linear) {
    t->r->args.skip_bias = !t->r->args.counts;
}

/* The first row of the table that the rank has; rows at positions are counted from one on. */
ARGS(embedding) {
    t->r->args.first =
        exec_box(t->c, &t->m->params[t->ins->param].shape, t->ins->place).first[0] -
        (int64_t)attr_of(t, ATTR_start);
}

/* The first row of the table that the rank's positions take. */
ARGS(rows) {
    const int positions = t->m->tensors[t->ins->tensor].shape.rank - 2;
    t->r->args.first = (int64_t)attr_of(t, ATTR_start) +
                       (int64_t)attr_of(t, ATTR_step) * local_box(t).first[positions];
}

ARGS(one_row) {
    t->r->args.first = (int64_t)attr_of(t, ATTR_at);
}

ARGS(experts) {
    t->r->args.first = local_box(t).first[0];
}

/* Dropout draws for the block in the whole batch; the micro-batch moves it there. */
ARGS(dropout) {
    const struct shape *s = &t->m->tensors[t->ins->tensor].shape;
    struct device_args *a = &t->r->args;
    struct box b = exec_box(t->c, s, t->ins->place);
    a->box = exec_whole_box(t->x, s, &b);
    a->rate = (float)attr_of(t, ATTR_rate);
    a->op = t->ins->op;
    for (int i = 0; i < s->rank; i++)
        a->batch_dims |= s->dim[i] == t->m->batch ? 1u << i : 0;
}

ARGS(loss) {
    t->r->args.per_target = t->x->per_target + model_loss_index(t->m, t->ins->op);
    t->r->args.ignore = (int32_t)attr_of(t, ATTR_ignore);
}

/* The classes that a rank has begin here. */
ARGS(loss_part) {
    t->r->args.first = local_box(t).first[t->m->tensors[t->ins->tensor].shape.rank - 1];
    loss(t);
}

/* What one of `unit` elements of a tensor counts in the mean over a whole step. */
static double share(const struct target *t, int64_t unit) {
    struct extents all =
        model_extents(t->m, &t->m->tensors[t->ins->tensor].shape, t->x->g->plan->batch);
    return (double)unit / (double)extents_count(&all);
}

/* The losses of routers, and what finds no slot: each is a mean over the ops of its kind. */
static void router(const struct target *t, enum metric metric, int64_t unit) {
    double each = share(t, unit);
    t->r->args.weight = each / metric_ops(t->m, metric);
    t->r->args.scale = (float)(attr_of(t, ATTR_coefficient) * each);
}

ARGS(balance) {
    router(t, METRIC_balance, 2 * t->ins->n.balance.parts * t->ins->n.balance.experts);
}

ARGS(router_z) {
    router(t, METRIC_router_z, t->ins->n.router_z.experts);
}

ARGS(dropped) {
    router(t, METRIC_dropped, 1);
}

/* What the rank has of its window itself, and what it sends (packing) or gets (else). */
ARGS(halo) {
    const struct halo *h = &t->ins->halo;
    int me = mesh_group_index(t->c->sp->mesh, t->ins->axes, t->c->rp.coord);
    bool packs = t->ins->code == I_halo_pack;
    t->r->pieces = mem_array((size_t)h->parts, sizeof *t->r->pieces);
    for (int peer = 0; peer < h->parts; peer++)
        t->r->pieces[peer] = packs ? halo_sent(h, me, peer) : halo_got(h, me, peer);
    struct halo_run own = halo_run(h, me, me);
    t->r->args.halo = (struct kernel_halo){.outer = t->ins->n.halo_pack.outer,
                                           .inner = t->ins->n.halo_pack.inner,
                                           .own = own.n ? own : (struct halo_run){0},
                                           .pieces = t->r->pieces,
                                           .n_pieces = h->parts,
                                           .padding = h->lowest ? -INFINITY : 0};
}

/* Where several ranks have samples of one group, all know all groups of the micro-batch. */
ARGS(first_in_groups) {
    const struct batchnorm_n *n = &t->ins->n.batchnorm;
    bool own = n->groups * n->group == n->samples;
    t->r->args.first = own ? 0 : local_box(t).first[0];
}

/* Of an op that takes means: one over how many there are. */
ARGS(one_over) {
    const struct model_op *op = &t->m->ops[t->ins->op];
    struct extents in = model_extents(t->m, &t->m->tensors[op->in[0]].shape, 1);
    struct extents out = model_extents(t->m, &t->m->tensors[op->out[0]].shape, 1);
    t->r->args.scale = (float)((double)extents_count(&out) / (double)extents_count(&in));
}

ARGS(per_group) {
    t->r->args.scale = (float)(attr_of(t, ATTR_group) / (double)t->x->g->plan->batch);
}

/* The part of the keys that has come round to this rank after so many steps. */
static int part_at(const struct target *t, int step) {
    const struct mesh *mesh = t->c->sp->mesh;
    int parts = mesh_group_size(mesh, t->ins->axes);
    int me = mesh_group_index(mesh, t->ins->axes, t->c->rp.coord);
    return (me - step + parts) % parts;
}

/* Of all ranks, of the tensor that the instruction is about. */
static int64_t heads_of(const struct target *t) {
    const struct shape *s = &t->m->tensors[t->ins->tensor].shape;
    return t->m->dims[s->dim[s->rank - 2]].size;
}

/* Where the rank's queries begin, in the sequence and among the heads, and where its keys do. */
ARGS(attention) {
    const struct attention_n *n = &t->ins->n.attention; /* all begin like this */
    const double *attr = t->m->ops[t->ins->op].attr;
    struct device_args *a = &t->r->args;
    struct box b = local_box(t);
    a->first = b.first[1];
    a->first_key = part_at(t, t->ins->step) * n->kv_seq;
    a->first_head = b.first[2] % (n->group * n->kv_heads);
    a->distance = (int)attr[ATTR_distance];
    a->cap = (float)attr[ATTR_softcap];
    a->slope = (struct alibi){(float)attr[ATTR_slope], (int32_t)b.first[2],
                              (int32_t)heads_of(t), attr[ATTR_rounded] != 0};
    const float fan = attr[ATTR_fan] != 0 ? (float)attr[ATTR_fan] : (float)n->dim;
    const double temper = 1 + 0.1 * attr[ATTR_temper] * log(fmax(attr[ATTR_factor], 1));
    a->scale = attr[ATTR_scale] != 0 ? (float)attr[ATTR_scale] : 1.0f / sqrtf(fan);
    a->scale *= (float)(temper * temper);
    if (attr[ATTR_rounded] != 0)
        a->slope.by *= a->scale;
}

/* Where the rank's heads of x begin among those that read one of its heads of z. */
ARGS(join) {
    const struct join_n *n = &t->ins->n.join; /* both begin like this */
    const struct box b = local_box(t);
    const int heads = t->m->tensors[t->ins->tensor].shape.rank - 2;
    t->r->args.first_head = b.first[heads] % (n->group * n->few);
}

ARGS(route) {
    t->r->args.scale = (float)attr_of(t, ATTR_gain);
}

/* Of no op: the sum of what replicas have becomes their mean. */
ARGS(scale) {
    if (t->ins->op < 0) {
        t->r->args.scale = 1 / (float)t->ins->replicas;
        return;
    }
    t->r->args.scale = (float)(sqrt(attr_of(t, ATTR_root) / attr_of(t, ATTR_fan)) *
                               attr_of(t, ATTR_gain) / attr_of(t, ATTR_over));
}

ARGS(softcap) {
    t->r->args.scale = (float)attr_of(t, ATTR_cap);
}

ARGS(rotary) {
    t->r->args.first = local_box(t).first[1];
    t->r->args.angles = (struct rotary_angles){
        .log2_base = log2(attr_of(t, ATTR_base)),
        .turned = (int64_t)(attr_of(t, ATTR_share) * (double)t->ins->n.rotary.dim) / 2 * 2,
        .factor = attr_of(t, ATTR_factor),
        .original = attr_of(t, ATTR_original),
        .low = attr_of(t, ATTR_low),
        .high = attr_of(t, ATTR_high),
        .by_pair = attr_of(t, ATTR_by_pair) != 0,
        .gain = (float)attr_of(t, ATTR_gain),
        .slower = t->m->ops[t->ins->op].slower};
}

ARGS(copy) {
    t->r->args.copy = (struct device_copy){t->ins->copy.rank, t->ins->copy.size,
                                           t->ins->copy.src, t->ins->copy.dst};
    t->r->args.src_offset = mesh_group_index(t->c->sp->mesh, t->ins->axes, t->c->rp.coord) *
                            t->ins->copy.src_step;
}

ARGS(matmul) {
    t->r->args.matrices = &t->ins->matrices;
}

ARGS(running) {
    t->r->args.momentum =
        (float)t->m->ops[t->m->params[t->ins->param].first_op].attr[ATTR_momentum];
}

ARGS(optimizer) {
    struct device_args *a = &t->r->args;
    a->beta1 = (float)t->x->opt.beta1;
    a->beta2 = (float)t->x->opt.beta2;
    a->opt_eps = (float)t->x->opt.eps;
    a->momentum = (float)t->x->opt.momentum;
    a->replicas = t->ins->replicas;
    a->decay = t->m->params[t->ins->param].decay ? (float)t->x->opt.weight_decay : 0;
}

ARGS(sum_squares) {
    t->r->args.replicas = t->ins->replicas;
}

ARGS(location) {
    const struct stage_program *sp = t->c->sp;
    int64_t *suspects =
        exec_address(t->x, sp->suspects, (int64_t)sizeof *suspects * sp->n_suspects);
    t->r->args.faulty = t->x->g->plan->faulty;
    t->r->args.suspects = suspects + t->ins->slot;
}

/* Opcodes that are not here need nothing. */
static fill_args *const table[OPCODE_COUNT] = {
    [I_input] = input,
    [I_linear] = linear,
    [I_matmul] = matmul,
    [I_matmul_dw] = matmul,
    [I_embedding] = embedding,
    [I_embedding_dw] = embedding,
    [I_rows] = rows,
    [I_rows_dw] = rows,
    [I_select] = one_row,
    [I_select_dx] = one_row,
    [I_attention] = attention,
    [I_attention_bwd] = attention,
    [I_attention_more] = attention,
    [I_attention_more_bwd] = attention,
    [I_rotary] = rotary,
    [I_join] = join,
    [I_join_bwd] = join,
    [I_route] = route,
    [I_route_dx] = route,
    [I_scale] = scale,
    [I_softcap] = softcap,
    [I_softcap_dx] = softcap,
    [I_dropout] = dropout,
    [I_copy] = copy,
    [I_dispatch] = experts,
    [I_dispatch_dx] = experts,
    [I_combine] = experts,
    [I_combine_bwd] = experts,
    [I_balance] = balance,
    [I_balance_dx] = balance,
    [I_router_z] = router_z,
    [I_router_z_dx] = router_z,
    [I_dropped] = dropped,
    [I_halo_pack] = halo,
    [I_halo_join] = halo,
    [I_halo_add] = halo,
    [I_avgpool] = one_over,
    [I_avgpool_dx] = one_over,
    [I_batchnorm_running] = per_group,
    [I_batchnorm_moments] = first_in_groups,
    [I_batchnorm_center] = first_in_groups,
    [I_batchnorm] = first_in_groups,
    [I_batchnorm_bwd_sums] = first_in_groups,
    [I_batchnorm_bwd] = first_in_groups,
    [I_cross_entropy] = loss,
    [I_cross_entropy_finish] = loss,
    [I_cross_entropy_part] = loss_part,
    [I_cross_entropy_dx] = loss_part,
    [I_median] = location,
    [I_trimmed] = location,
    [I_fair] = location,
    [I_running] = running,
    [I_sum_squares] = sum_squares,
    [I_adamw] = optimizer,
    [I_sgd] = optimizer,
    [I_lion] = optimizer,
    [I_momentum] = optimizer,
    [I_muon] = optimizer,
};

void exec_prepare_instr(struct exec *x, const struct exec_chunk *c, const struct instr *ins,
                        struct exec_instr *r) {
    struct target t = {x, x->g->plan->model, c, ins, r};
    r->args.dtype = ins->dtype;
    r->args.scalars = x->scalars;
    r->args.counts = rank_is_first(&c->rp, ins->axes);
    if (ins->op >= 0) {
        r->args.eps = (float)attr_of(&t, ATTR_eps);
        r->args.offset = (float)attr_of(&t, ATTR_offset);
    }
    if (table[ins->code])
        table[ins->code](&t);
    if (opcode_is_collective(ins->code))
        r->group = c->groups[ins->axes];
}
