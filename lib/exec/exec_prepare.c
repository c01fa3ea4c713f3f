/* Resolving a program for one rank: everything that depends on its coordinates. */
#include "common/mem.h"
#include "exec/exec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The groups of a job, in one order on every rank: of every stage, along every set of axes
 * that its program communicates over. */
struct group_list {
    ARR(int) ranks; /* of all, one after the other */
    ARR(struct comm_ranks) sets;
    ARR(struct own_group) own; /* those that this rank is in */
};
struct own_group {
    int64_t set;
    int stage;
    unsigned axes;
};

/* Every group of the stage along every set of axes that an instruction uses. */
static void list_stage(const struct exec *x, int stage, struct group_list *out) {
    const struct stage_program *sp = &x->g->stages[stage];
    int first = x->g->plan->stages[stage].first_rank, devices = mesh_devices(sp->mesh);
    int *ranks = mem_array((size_t)devices, sizeof *ranks);
    bool wanted[1 << MESH_MAX_AXES] = {false};
    for (int i = 0; i < sp->n_instrs; i++) {
        const struct instr *ins = &sp->instrs[i];
        if (opcode_is_collective(ins->code))
            wanted[ins->axes] = true;
    }
    for (unsigned axes = 1; axes < 1u << sp->mesh->n_axes; axes++)
        for (int r = 0; wanted[axes] && r < devices; r++) {
            int n = mesh_group(sp->mesh, axes, r, ranks);
            if (ranks[0] != r) /* a group is listed by its first member */
                continue;
            for (int i = 0; i < n; i++) {
                arr_push(&out->ranks, first + ranks[i]);
                if (first + ranks[i] == x->rank)
                    arr_push(&out->own, (struct own_group){out->sets.n, stage, axes});
            }
            arr_push(&out->sets, (struct comm_ranks){.n = n});
        }
    free(ranks);
}

/* All ranks, for messages between stages: the list's first. */
static void list_everyone(const struct exec *x, struct group_list *out) {
    int n = comm_size(x->comm);
    for (int r = 0; r < n; r++)
        arr_push(&out->ranks, r);
    arr_push(&out->sets, (struct comm_ranks){.n = n});
}

/* All ranks make all groups, also those they are not in. */
static int make_groups(struct exec *x, struct err *err) {
    struct group_list list = {.own = {0}};
    list_everyone(x, &list);
    for (int s = 0; s < x->g->n_stages; s++)
        list_stage(x, s, &list);
    for (int64_t i = 0, at = 0; i < list.sets.n; at += list.sets.p[i++].n)
        list.sets.p[i].ranks = list.ranks.p + at;
    struct comm_group **groups = mem_array((size_t)list.sets.n + 1, sizeof *groups);
    int rc = comm_groups_create(x->comm, list.sets.p, (int)list.sets.n, groups, err);
    x->everyone = groups[0];
    for (int64_t i = 0; i < list.own.n; i++) {
        const struct own_group *o = &list.own.p[i];
        exec_chunk_of(x, o->stage)->groups[o->axes] = groups[o->set];
    }
    free(groups);
    arr_release(&list.own);
    arr_release(&list.ranks);
    arr_release(&list.sets);
    return rc;
}

struct box exec_box(const struct exec_chunk *c, const struct shape *s, struct placement p) {
    const struct plan *plan = c->rp.g->plan;
    struct extents n = model_extents(plan->model, s, plan->micro_batch);
    return placement_box(c->sp->mesh, &n, p, c->rp.coord);
}

/* A box inside the whole tensor, by whose indices random numbers are drawn. */
static struct kernel_box whole_box(const struct exec *x, const struct shape *s,
                                   const struct box *b) {
    struct kernel_box box = {.rank = s->rank};
    for (int i = 0; i < s->rank; i++) {
        box.size[i] = b->size[i];
        box.first[i] = b->first[i];
        /* The batch is indexed over the whole step, not over one micro-batch. */
        box.whole[i] = s->dim[i] == x->g->plan->model->batch
                           ? x->g->plan->batch
                           : model_dim_size(x->g->plan->model, s->dim[i], 0);
    }
    return box;
}

/* Dropout draws for the block in the whole batch; the micro-batch moves it there. */
static void prepare_dropout(struct exec *x, const struct exec_chunk *c,
                            const struct instr *ins, struct device_args *a) {
    const struct model *m = x->g->plan->model;
    const struct shape *s = &m->tensors[ins->tensor].shape;
    struct box b = exec_box(c, s, ins->place);
    a->box = whole_box(x, s, &b);
    a->rate = (float)m->ops[ins->op].attr[ATTR_rate];
    a->op = ins->op;
    for (int i = 0; i < s->rank; i++)
        a->batch_dims |= s->dim[i] == m->batch ? 1u << i : 0;
}

static void prepare_loss(const struct exec *x, int op, struct device_args *a) {
    const struct model *m = x->g->plan->model;
    a->per_target = x->per_target + model_loss_index(m, op);
    a->ignore = (int32_t)m->ops[op].attr[ATTR_ignore];
}

/* What one of `unit` elements of a tensor counts in the mean over a whole step. */
static double share(const struct exec *x, const struct instr *ins, int64_t unit) {
    const struct model *m = x->g->plan->model;
    struct extents all =
        model_extents(m, &m->tensors[ins->tensor].shape, x->g->plan->batch);
    return (double)unit / (double)extents_count(&all);
}

/* The losses of routers, and what finds no slot: each is a mean over the ops of its kind. */
static void prepare_router(struct exec *x, const struct instr *ins, enum metric metric,
                           int64_t unit, struct device_args *a) {
    const struct model *m = x->g->plan->model;
    double each = share(x, ins, unit);
    a->weight = each / metric_ops(m, metric);
    a->scale = (float)(m->ops[ins->op].attr[ATTR_coefficient] * each);
}

/* What the rank has of its window itself, and what it sends (packing) or gets (else). */
static void prepare_halo(const struct exec_chunk *c, const struct instr *ins,
                         struct exec_instr *r) {
    const struct halo *h = &ins->halo;
    int me = mesh_group_index(c->sp->mesh, ins->axes, c->rp.coord);
    bool packs = ins->code == I_halo_pack;
    r->pieces = mem_array((size_t)h->parts, sizeof *r->pieces);
    for (int peer = 0; peer < h->parts; peer++)
        r->pieces[peer] = packs ? halo_sent(h, me, peer) : halo_got(h, me, peer);
    struct halo_run own = halo_run(h, me, me);
    r->args.halo = (struct kernel_halo){.outer = ins->n.halo_pack.outer,
                                        .inner = ins->n.halo_pack.inner,
                                        .own = own.n ? own : (struct halo_run){0},
                                        .pieces = r->pieces,
                                        .n_pieces = h->parts,
                                        .padding = h->lowest ? -INFINITY : 0};
}

/* Where several ranks have samples of one group, all know all groups of the micro-batch. */
static int64_t first_in_groups(const struct exec *x, const struct exec_chunk *c,
                               const struct instr *ins) {
    const struct batchnorm_n *n = &ins->n.batchnorm;
    const struct shape *s = &x->g->plan->model->tensors[ins->tensor].shape;
    return n->groups * n->group == n->samples ? 0 : exec_box(c, s, ins->place).first[0];
}

/* Of an op that takes means: one over how many there are. */
static float one_over(const struct exec *x, const struct instr *ins) {
    const struct plan *p = x->g->plan;
    const struct model_op *op = &p->model->ops[ins->op];
    if (ins->code == I_batchnorm_running)
        return (float)(op->attr[ATTR_group] / (double)p->batch);
    struct extents in = model_extents(p->model, &p->model->tensors[op->in[0]].shape, 1);
    struct extents out = model_extents(p->model, &p->model->tensors[op->out[0]].shape, 1);
    return (float)((double)extents_count(&out) / (double)extents_count(&in));
}

/* Where the rank's queries begin, in the sequence and among the heads. */
static void prepare_attention(struct exec *x, const struct exec_chunk *c,
                              const struct instr *ins, struct device_args *a) {
    const struct model *m = x->g->plan->model;
    const struct attention_n *n = &ins->n.attention;
    const double *attr = m->ops[ins->op].attr;
    struct box b = exec_box(c, &m->tensors[ins->tensor].shape, ins->place);
    a->first = b.first[1];
    a->first_head = b.first[2] % (n->group * n->kv_heads);
    a->distance = (int)attr[ATTR_distance];
    a->scale =
        attr[ATTR_scale] != 0 ? (float)attr[ATTR_scale] : 1.0f / sqrtf((float)n->dim);
}

/* What a kernel needs to know beyond shapes: where the rank's part begins in the whole, what counts
 * once among replicas, hyper-parameters. */
static void prepare_instr(struct exec *x, const struct exec_chunk *c,
                          const struct instr *ins, struct exec_instr *r) {
    const struct model *m = x->g->plan->model;
    struct device_args *a = &r->args;
    a->scalars = x->scalars;
    a->counts = rank_is_first(&c->rp, ins->axes);
    if (ins->op >= 0)
        a->eps = (float)m->ops[ins->op].attr[ATTR_eps];
    switch (ins->code) {
    case I_input: r->box = exec_box(c, &m->tensors[ins->tensor].shape, ins->place); break;
    case I_linear: a->skip_bias = !a->counts; break;
    case I_embedding:
    case I_embedding_dw:
        a->first = exec_box(c, &m->params[ins->param].shape, ins->place).first[0];
        break;
    case I_cross_entropy:
    case I_cross_entropy_finish: prepare_loss(x, ins->op, a); break;
    case I_cross_entropy_part:
    case I_cross_entropy_dx: {
        const struct shape *s = &m->tensors[ins->tensor].shape;
        a->first = exec_box(c, s, ins->place).first[s->rank - 1];
        prepare_loss(x, ins->op, a);
        break;
    }
    case I_dispatch:
    case I_dispatch_dx:
    case I_combine:
    case I_combine_bwd:
        a->first = exec_box(c, &m->tensors[ins->tensor].shape, ins->place).first[0];
        break;
    case I_balance:
    case I_balance_dx:
        prepare_router(x, ins, METRIC_balance,
                       ins->n.balance.tokens * ins->n.balance.experts, a);
        break;
    case I_router_z:
    case I_router_z_dx:
        prepare_router(x, ins, METRIC_router_z, ins->n.router_z.experts, a);
        break;
    case I_dropped: prepare_router(x, ins, METRIC_dropped, 1, a); break;
    case I_attention:
    case I_attention_bwd: prepare_attention(x, c, ins, a); break;
    case I_scale: a->scale = (float)(1 / sqrt(m->ops[ins->op].attr[ATTR_fan])); break;
    case I_rotary:
        a->first = exec_box(c, &m->tensors[ins->tensor].shape, ins->place).first[1];
        a->base = (float)m->ops[ins->op].attr[ATTR_base];
        break;
    case I_dropout: prepare_dropout(x, c, ins, a); break;
    case I_copy:
        a->copy = (struct device_copy){ins->copy.rank, ins->copy.size, ins->copy.src,
                                       ins->copy.dst};
        a->src_offset =
            mesh_group_index(c->sp->mesh, ins->axes, c->rp.coord) * ins->copy.src_step;
        break;
    case I_matmul:
    case I_matmul_dw: a->matrices = &ins->matrices; break;
    case I_halo_pack:
    case I_halo_join:
    case I_halo_add: prepare_halo(c, ins, r); break;
    case I_avgpool:
    case I_avgpool_dx:
    case I_batchnorm_running: a->scale = one_over(x, ins); break;
    case I_batchnorm_moments:
    case I_batchnorm_center:
    case I_batchnorm:
    case I_batchnorm_bwd_sums:
    case I_batchnorm_bwd: a->first = first_in_groups(x, c, ins); break;
    case I_running:
        a->momentum = (float)m->ops[m->params[ins->param].first_op].attr[ATTR_momentum];
        break;
    case I_adamw:
    case I_sgd:
        a->beta1 = (float)x->opt.beta1;
        a->beta2 = (float)x->opt.beta2;
        a->opt_eps = (float)x->opt.eps;
        a->momentum = (float)x->opt.momentum;
        a->decay = m->params[ins->param].decay ? (float)x->opt.weight_decay : 0;
        break;
    default: break;
    }
    if (opcode_is_collective(ins->code))
        r->group = c->groups[ins->axes];
}

/* Does the device do it alone, the same way each time? */
static bool repeats(enum opcode code) {
    return opcode_key(code) == KEY_SHAPE || opcode_key(code) == KEY_CURVE || code == I_fill;
}

static void mark_stretches(struct exec_chunk *c) {
    for (int s = 0; s < SEG_COUNT; s++)
        for (int i = c->sp->seg[s], n; i < c->sp->seg[s + 1]; i += n ? n : 1) {
            struct exec_instr *r = &c->ready[i];
            for (n = 0; i + n < c->sp->seg[s + 1] && repeats(c->sp->instrs[i + n].code);)
                n++;
            r->stretch = n;
            if (n > 1)
                r->recorded = mem_array((size_t)c->rhythm, sizeof *r->recorded);
        }
}

/* Room for the largest piece of data, and for initial parameters at least in rows. */
static void need_host_room(struct exec *x, const struct exec_chunk *c) {
    for (int i = 0; i < c->sp->n_instrs; i++) {
        const struct instr *ins = &c->sp->instrs[i];
        int64_t bytes =
            ins->code == I_input ? dtype_size(DTYPE_i32) * ins->n.input.elems : 0;
        x->host_bytes = bytes > x->host_bytes ? bytes : x->host_bytes;
    }
    for (int i = 0; i < c->sp->n_params; i++) {
        const struct param_instance *p = &c->sp->params[i];
        struct box b = exec_box(c, &x->g->plan->model->params[p->param].shape, p->place);
        int64_t bytes = buffer_bytes(&c->sp->buffers[p->buffer]) / b.size[0];
        x->host_bytes = bytes > x->host_bytes ? bytes : x->host_bytes;
    }
}

static void find_rhythm(struct exec_chunk *c) {
    c->rhythm = 1;
    for (int p = 0; p < POOL_COUNT; p++) {
        int64_t a = c->rhythm, b = c->sp->slots[p].bytes ? c->sp->slots[p].n : 1;
        for (int64_t rest; b; a = b, b = rest)
            rest = a % b;
        if (c->sp->slots[p].bytes)
            c->rhythm *= c->sp->slots[p].n / a;
    }
}

static int prepare_chunk(struct exec *x, struct exec_chunk *c, struct err *err) {
    c->works = exec_make_works(x, c->sp->n_works + 1, err);
    c->exchanged = exec_make_works(x, 2 * mesh_devices(c->sp->mesh), err);
    if (!c->works || !c->exchanged)
        return -1;
    c->ready = mem_array((size_t)c->sp->n_instrs, sizeof *c->ready);
    for (int i = 0; i < c->sp->n_instrs; i++)
        prepare_instr(x, c, &c->sp->instrs[i], &c->ready[i]);
    find_rhythm(c);
    if (x->records)
        mark_stretches(c);
    need_host_room(x, c);
    return 0;
}

int exec_prepare(struct exec *x, struct err *err) {
    for (int i = 0; i < EXEC_STREAMS; i++)
        if (!(x->streams[i] = device_stream_create(x->device, err)))
            return -1;
    if (!(x->computed = device_event_create(x->device, err)) || make_groups(x, err) < 0)
        return -1;
    x->scalars = exec_address(x, x->chunks->sp->scalars, sizeof *x->scalars);
    exec_prepare_losses(x);
    x->on_streams = comm_on_streams(x->everyone);
    x->records = device_can_record(x->device) && !x->opt.on_instr;
    x->host_bytes = 1 << 20; /* at least */
    for (int i = 0; i < x->n_chunks; i++)
        if (prepare_chunk(x, &x->chunks[i], err) < 0)
            return -1;
    x->host = mem_alloc((size_t)x->host_bytes);
    return exec_prepare_transfers(x, err);
}

static void release_instr(const struct exec_chunk *c, struct exec_instr *r) {
    for (int64_t i = 0; r->recorded && i < c->rhythm; i++)
        device_recording_destroy(r->recorded[i]);
    free(r->recorded);
    free(r->pieces);
}

static void release_chunk(struct exec_chunk *c) {
    for (int i = 0; c->ready && i < c->sp->n_instrs; i++)
        release_instr(c, &c->ready[i]);
    free(c->ready);
    exec_free_works(c->works, c->sp->n_works + 1);
    exec_free_works(c->exchanged, 2 * mesh_devices(c->sp->mesh));
    for (int i = 0; i < 1 << MESH_MAX_AXES; i++)
        comm_group_destroy(c->groups[i]);
}

void exec_release(struct exec *x) {
    for (int i = 0; i < x->n_chunks; i++)
        release_chunk(&x->chunks[i]);
    free(x->losses);
    free(x->counts);
    free(x->inverse);
    exec_release_transfers(x);
    comm_group_destroy(x->everyone);
    device_event_destroy(x->computed);
    for (int i = 0; i < EXEC_STREAMS; i++)
        device_stream_destroy(x->streams[i]);
    free(x->host);
}

/* ---- initial parameters ------------------------------------------------------------------- */

/* Fills rows first..first+n-1 of the block in host memory. */
static void init_rows(const struct exec *x, const struct param_instance *p,
                      const struct kernel_box *box, int64_t first, int64_t n, float *out) {
    const struct model_param *mp = &x->g->plan->model->params[p->param];
    struct kernel_box part = *box;
    int64_t elems = 1;
    part.first[0] += first;
    part.size[0] = n;
    for (int d = 0; d < part.rank; d++)
        elems *= part.size[d];
    if (mp->init == INIT_NORMAL)
        kernel_normal(&part, (float)mp->std, x->opt.seed, (uint64_t)p->param, out);
    else
        kernel_fill(elems, mp->init == INIT_ONES ? 1.0f : 0.0f, out);
}

/* Made on the host, for every bit must be the same on all devices, as many rows at a time as the
 * room there holds. */
static int init_param(struct exec *x, const struct exec_chunk *c,
                      const struct param_instance *p, struct err *err) {
    const struct shape *s = &x->g->plan->model->params[p->param].shape;
    const struct buffer *b = &c->sp->buffers[p->buffer];
    struct box held = exec_box(c, s, p->place);
    struct kernel_box box = whole_box(x, s, &held);
    int64_t rows = box.size[0], bytes = dtype_size(b->dtype) * b->elems / rows;
    int64_t most = x->host_bytes / bytes;
    for (int64_t first = 0; first < rows; first += most) {
        int64_t n = rows - first < most ? rows - first : most;
        init_rows(x, p, &box, first, n, (float *)x->host);
        if (device_upload(x->streams[STREAM_compute], x->arena + b->offset + first * bytes,
                          x->host, n * bytes, err) < 0)
            return -1;
    }
    return 0;
}

/* The same numbers under every plan: each element is drawn by its index in the whole tensor. */
int exec_init(struct exec *x, struct err *err) {
    x->step = x->sample = 0;
    for (const struct exec_chunk *c = x->chunks; c < x->chunks + x->n_chunks; c++)
        for (int i = 0; i < c->sp->n_params; i++)
            if (init_param(x, c, &c->sp->params[i], err) < 0)
                return -1;
    return 0;
}
