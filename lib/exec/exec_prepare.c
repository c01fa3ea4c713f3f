/* Resolving a program for one rank: everything that depends on its coordinates. */
#include "common/mem.h"
#include "exec/exec.h"

#include <stdlib.h>
#include <string.h>

/* The groups of a job, in one order on every rank: of every stage, along every set of axes
 * that its program communicates over. */
struct group_list {
    ARR(int) ranks; /* of all, one after the other */
    ARR(struct comm_ranks) sets;
    int64_t own[1 << MESH_MAX_AXES]; /* this rank's among them, by axes; -1 = none */
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
                if (first + ranks[i] == x->rp.rank)
                    out->own[axes] = out->sets.n;
            }
            arr_push(&out->sets, (struct comm_ranks){.n = n});
        }
    free(ranks);
}

/* All ranks make all groups, also those they are not in. */
static int make_groups(struct exec *x, struct err *err) {
    struct group_list list = {.own = {0}};
    memset(list.own, -1, sizeof list.own);
    for (int s = 0; s < x->g->n_stages; s++)
        list_stage(x, s, &list);
    for (int64_t i = 0, at = 0; i < list.sets.n; at += list.sets.p[i++].n)
        list.sets.p[i].ranks = list.ranks.p + at;
    struct comm_group **groups = mem_array((size_t)list.sets.n + 1, sizeof *groups);
    int rc = comm_groups_create(x->comm, list.sets.p, (int)list.sets.n, groups, err);
    for (int axes = 0; axes < 1 << MESH_MAX_AXES; axes++)
        x->groups[axes] = list.own[axes] < 0 ? NULL : groups[list.own[axes]];
    free(groups);
    arr_release(&list.ranks);
    arr_release(&list.sets);
    return rc;
}

struct box exec_box(const struct exec *x, const struct shape *s, struct placement p) {
    struct extents n = model_extents(x->g->plan->model, s, x->g->plan->micro_batch);
    return placement_box(x->sp->mesh, &n, p, x->rp.coord);
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

/* What a kernel needs to know beyond shapes: where the rank's part begins in the whole, what counts
 * once among replicas, hyper-parameters. */
static void prepare_instr(struct exec *x, const struct instr *ins, struct exec_instr *r) {
    const struct model *m = x->g->plan->model;
    struct device_args *a = &r->args;
    r->counts = rank_is_first(&x->rp, ins->axes);
    if (ins->op >= 0)
        a->eps = (float)m->ops[ins->op].attr[ATTR_eps];
    switch (ins->code) {
    case I_input: r->box = exec_box(x, &m->tensors[ins->tensor].shape, ins->place); break;
    case I_linear: a->skip_bias = !r->counts; break;
    case I_embedding:
    case I_embedding_dw:
        a->first = exec_box(x, &m->params[ins->param].shape, ins->place).first[0];
        break;
    case I_cross_entropy:
    case I_cross_entropy_finish:
        r->loss_weight =
            (double)x->g->loss_terms / (double)program_loss_terms(x->g, ins->op);
        break;
    case I_cross_entropy_part:
    case I_cross_entropy_dx: {
        const struct shape *s = &m->tensors[ins->tensor].shape;
        a->first = exec_box(x, s, ins->place).first[s->rank - 1];
        a->scale = (float)(1.0 / (double)program_loss_terms(x->g, ins->op));
        break;
    }
    case I_dropout: {
        const struct shape *s = &m->tensors[ins->tensor].shape;
        struct box b = exec_box(x, s, ins->place);
        a->box = whole_box(x, s, &b);
        a->rate = (float)m->ops[ins->op].attr[ATTR_rate];
        break;
    }
    case I_copy:
        a->copy = &ins->copy;
        a->src_offset =
            mesh_group_index(x->sp->mesh, ins->axes, x->rp.coord) * ins->copy.src_step;
        break;
    case I_matmul:
    case I_matmul_dw: a->matrices = &ins->matrices; break;
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
        r->group = x->groups[ins->axes];
}

int exec_prepare(struct exec *x, struct err *err) {
    if (make_groups(x, err) < 0)
        return -1;
    exec_prepare_transfers(x);
    x->works = mem_array((size_t)x->sp->n_works, sizeof *x->works);
    x->ready = mem_array((size_t)x->sp->n_instrs, sizeof *x->ready);
    for (int i = 0; i < x->sp->n_instrs; i++)
        prepare_instr(x, &x->sp->instrs[i], &x->ready[i]);
    return 0;
}

/* The same numbers under every plan: each element is drawn by its index in the whole tensor. */
void exec_init(struct exec *x) {
    const struct model *m = x->g->plan->model;
    for (int i = 0; i < x->sp->n_params; i++) {
        const struct param_instance *p = &x->sp->params[i];
        const struct model_param *mp = &m->params[p->param];
        struct box b = exec_box(x, &mp->shape, p->place);
        struct kernel_box box = whole_box(x, &mp->shape, &b);
        float *w = (float *)(x->arena + x->sp->buffers[p->buffer].offset);
        int64_t n = x->sp->buffers[p->buffer].elems;
        if (mp->init == INIT_NORMAL)
            kernel_normal(&box, (float)mp->std, x->opt.seed, (uint64_t)p->param, w);
        else
            kernel_fill(n, mp->init == INIT_ONES ? 1.0f : 0.0f, w);
    }
    x->step = x->sample = 0;
}
