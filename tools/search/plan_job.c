/* A plan in a few words, and the proof that they are enough: the plan made of them is the same. */
#include "plan_job.h"

#include <stdlib.h>
#include <string.h>

/* ---- degrees -------------------------------------------------------------------------------- */

/* In the order in which Megatron-LM numbers devices, the outermost first. */
enum axis_word { AXIS_dp, AXIS_ep, AXIS_cp, AXIS_tp, AXIS_nothing };

/* Which ops words are about: those of an outer block, those outside of all, or all. */
enum { PART_AROUND = -1, PART_ALL = -2 };

static bool in_part(const struct model *m, int part, int op) {
    return part == PART_ALL || plan_outer_block(m, op) == part;
}

/* What the ops of a stage are split on along one axis says which word it is. */
static enum axis_word axis_word(const struct model *m, const struct plan_dims *d,
                                const struct stage *st, int part, int axis) {
    bool inner = false, experts = false, sequence = false, batch = false;
    for (int i = 0; i < st->n_ops; i++) {
        const struct model_op *op = &m->ops[st->ops[i]];
        int k = st->layouts[i].dim[axis];
        if (k == PLACE_NONE || !in_part(m, part, st->ops[i]))
            continue;
        int dim = op->space.dim[k];
        inner |= plan_dims_has(d->inner, d->n_inner, dim) && plan_is_product(op);
        experts |= plan_dims_has(d->experts, d->n_experts, dim);
        sequence |= plan_dims_has(d->sequence, d->n_sequence, dim);
        batch |= dim == m->batch;
    }
    return inner      ? AXIS_tp
           : experts  ? AXIS_ep
           : sequence ? AXIS_cp
           : batch    ? AXIS_dp
                      : AXIS_nothing;
}

/* Does any op split the sequence on an axis of tensor parallelism? */
static bool splits_sequence(const struct model *m, const struct plan_dims *d,
                            const struct stage *st, int part, int axis) {
    for (int i = 0; i < st->n_ops; i++) {
        int k = st->layouts[i].dim[axis];
        if (k != PLACE_NONE && in_part(m, part, st->ops[i]) &&
            plan_dims_has(d->sequence, d->n_sequence, m->ops[st->ops[i]].space.dim[k]))
            return true;
    }
    return false;
}

static bool has_part(const struct model *m, const struct stage *st, int part) {
    bool has = false;
    for (int i = 0; i < st->n_ops && !has; i++)
        has = in_part(m, part, st->ops[i]);
    return has;
}

static int read_mesh(struct plan_job *job, const struct plan_dims *d, int s, int part,
                     const char *target, struct err *err) {
    const struct model *m = job->plan->model;
    const struct stage *st = &job->plan->stages[s];
    int64_t degree[] = {1, 1, 1, 1};
    enum axis_word last = AXIS_dp;
    if (!has_part(m, st, part))
        return 0;
    for (int a = 0; a < st->mesh.n_axes; a++) {
        if (st->mesh.size[a] == 1)
            continue;
        enum axis_word w = axis_word(m, d, st, part, a);
        if (w == AXIS_nothing &&
            part == PART_AROUND) /* an embedding that has a stage to itself */
            continue;
        if (w == AXIS_nothing)
            return err_input(err,
                             "stages[%d].mesh: axis %s splits nothing, and %s has no "
                             "word for that",
                             s, st->mesh.name[a], target);
        if (w < last)
            return err_input(err,
                             "stages[%d].mesh: axis %s lies inside of another than %s "
                             "places there",
                             s, st->mesh.name[a], target);
        last = w;
        degree[w] *= st->mesh.size[a];
        job->sp |= w == AXIS_tp && splits_sequence(m, d, st, part, a);
    }
    if (degree[AXIS_ep] >= job->ep) { /* a stage without experts has replicas there */
        job->ep = degree[AXIS_ep];
        job->dp = degree[AXIS_dp] * degree[AXIS_ep];
        job->cp = degree[AXIS_cp];
    }
    job->tp = degree[AXIS_tp] > job->tp ? degree[AXIS_tp] : job->tp;
    return 0;
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* Stages follow each other in the order of the ops, each of whole blocks. */
static int read_stage(struct plan_job *job, int s, int *next, const char *target,
                      struct err *err) {
    const struct model *m = job->plan->model;
    const struct stage *st = &job->plan->stages[s];
    for (int i = 0; i < st->n_ops; i++) {
        int op = st->ops[i];
        if (op != (*next)++)
            return err_input(err,
                             "stages[%d]: %s does not follow the op before it in the "
                             "model, and stages of %s do",
                             s, m->ops[op].name, target);
        int b = plan_outer_block(m, op);
        if (b < 0)
            continue;
        if (i == 0 && op != m->blocks[b].first_op)
            return err_input(err,
                             "stages[%d]: begins with %s, inside %s, and stages of %s "
                             "have whole layers",
                             s, m->ops[op].name, m->blocks[b].name, target);
        job->blocks[s] += op == m->blocks[b].first_op;
    }
    return 0;
}

static int read_stages(struct plan_job *job, const char *target, struct err *err) {
    const struct plan *p = job->plan;
    int next = 0;
    job->blocks = mem_array((size_t)p->n_stages, sizeof *job->blocks);
    job->pp = p->n_groups;
    job->chunks = p->n_stages / p->n_groups;
    if (p->n_stages % p->n_groups)
        return err_input(err,
                         "stages: %d on %d device groups, and those of %s have as many",
                         p->n_stages, p->n_groups, target);
    job->even = true;
    for (int s = 0; s < p->n_stages; s++) {
        if (p->stages[s].group != s % p->n_groups)
            return err_input(err,
                             "stages[%d].group: expected %d, as %s deals stages, got %d", s,
                             s % p->n_groups, target, p->stages[s].group);
        if (read_stage(job, s, &next, target, err) < 0)
            return -1;
        job->even &= job->blocks[s] == job->blocks[0];
    }
    return 0;
}

/* The word for what is recomputed of a part in a stage; the comparison finds where it does not hold. */
static enum recompute read_recompute(const struct plan *p, const struct stage *st,
                                     int part) {
    for (int word = 0; word < RECOMPUTE_COUNT; word++) {
        bool is = true;
        for (int i = 0; i < st->n_ops; i++)
            is &= !in_part(p->model, part, st->ops[i]) ||
                  plan_recomputes(p->model, (enum recompute)word, st->ops[i]) ==
                      st->recompute[i];
        if (is)
            return (enum recompute)word;
    }
    return RECOMPUTE_none;
}

/* From the first stage that has the part. */
static void read_rest(struct plan_job *job, int part) {
    const struct plan *p = job->plan;
    int s = 0;
    while (s + 1 < p->n_stages && !has_part(p->model, &p->stages[s], part))
        s++;
    const struct stage *st = &p->stages[s];
    job->recompute = read_recompute(p, st, part);
    for (int i = 0; i < st->n_ops; i++) {
        if (!in_part(p->model, part, st->ops[i]))
            continue;
        job->ring |= st->layouts[i].ring != PLACE_NONE;
        if (p->model->ops[st->ops[i]].n_param && st->zero[i] > job->zero)
            job->zero = st->zero[i];
        job->offload |= st->offload[i] == OFFLOAD_optimizer;
    }
}

/* ---- the plan of the words ------------------------------------------------------------------- */

static struct plan *made_of(const struct plan_job *job, struct err *err) {
    static const char *const recompute[] = {[RECOMPUTE_none] = "none",
                                            [RECOMPUTE_selective] = "selective",
                                            [RECOMPUTE_all] = "full"};
    const struct plan *p = job->plan;
    struct plan_words w = {.batch = p->batch,
                           .micro_batch = p->micro_batch,
                           .dp = job->dp,
                           .ep = job->ep,
                           .cp = job->cp,
                           .tp = job->tp,
                           .pp = job->pp,
                           .chunks = job->chunks,
                           .sp = job->sp,
                           .ring = job->ring,
                           .zero = job->zero,
                           .recompute = recompute[job->recompute],
                           .offload = job->offload ? "optimizer" : NULL,
                           .schedule = schedule_name(p->schedule),
                           .blocks = job->blocks,
                           .quiet = true};
    json_t *doc = plan_make_for(&w, p->model, err);
    struct plan *q = doc ? plan_from_json(doc, err) : NULL;
    json_decref(doc);
    return q;
}

/* How many ways an op is split on a dim of its space. */
static int64_t parts_of(const struct stage *st, const struct layout *l, int k) {
    int64_t n = 1;
    for (int a = 0; a < st->mesh.n_axes; a++)
        n *= l->dim[a] == k ? st->mesh.size[a] : 1;
    return n;
}

/* Where the op stands in its stage. */
static int place_of(const struct stage *st, int op) {
    int low = 0, high = st->n_ops - 1;
    while (low < high) {
        int mid = (low + high) / 2;
        if (st->ops[mid] < op)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static int compare_op(const struct plan *p, const struct plan *q, int op,
                      const char *target, struct err *err) {
    const struct model *m = p->model;
    int s = p->stage_of[op];
    const char *name = m->ops[op].name;
    const struct stage *a = &p->stages[s], *b = &q->stages[s];
    int i = place_of(a, op), j = place_of(b, op);
    for (int k = 0; k < m->ops[op].space.n; k++) {
        int64_t has = parts_of(a, &a->layouts[i], k),
                would = parts_of(b, &b->layouts[j], k);
        if (has != would)
            return err_input(err,
                             "stages[%d]: %s is split %lld ways on %s, and %lld ways in "
                             "%s",
                             s, name, (long long)has, m->dims[m->ops[op].space.dim[k]].name,
                             (long long)would, target);
    }
    if (a->layouts[i].ring != b->layouts[j].ring)
        return err_input(err,
                         "stages[%d]: keys and values of %s go round in some stages "
                         "alone, which %s cannot say",
                         s, name, target);
    if (a->recompute[i] != b->recompute[j])
        return err_input(err,
                         "stages[%d]: %s is %srecomputed, which is not the same in all "
                         "of the plan, as in %s",
                         s, name, a->recompute[i] ? "" : "not ", target);
    if (m->ops[op].n_param && a->zero[i] != b->zero[j])
        return err_input(err,
                         "stages[%d]: zero is %d for %s, and %d for others: %s has one", s,
                         a->zero[i], name, b->zero[j], target);
    if (m->ops[op].n_param && a->offload[i] != b->offload[j])
        return err_input(err, "stages[%d].offload: of %s is not as of all, as in %s", s,
                         name, target);
    return 0;
}

static int compare_stages(const struct plan_job *job, const struct plan *q,
                          const char *target, struct err *err) {
    const struct plan *p = job->plan;
    for (int s = 0; s < p->n_stages; s++) {
        if (mesh_devices(&p->stages[s].mesh) != mesh_devices(&q->stages[s].mesh))
            return err_input(err,
                             "stages[%d].mesh: %d devices, and others have %d: stages "
                             "of %s have as many",
                             s, mesh_devices(&p->stages[s].mesh),
                             mesh_devices(&q->stages[s].mesh), target);
        if (job->sp && job->tp > 1 && !p->stages[s].regather)
            return err_input(err, "stages[%d].regather: false, and %s gathers again", s,
                             target);
    }
    return 0;
}

static bool same_words(const struct plan_job *a, const struct plan_job *b) {
    return a->dp == b->dp && a->ep == b->ep && a->cp == b->cp && a->tp == b->tp &&
           a->sp == b->sp && a->ring == b->ring && a->zero == b->zero &&
           a->recompute == b->recompute && a->offload == b->offload;
}

/* The plan that the words of jobs[which] describe, beside the one that there is, at all ops with these
 * words: those of block b have jobs[b], the others jobs[n_blocks]. */
static int compare(const struct plan_job *jobs, int n_blocks, int which, const char *target,
                   struct err *err) {
    const struct plan_job *job = &jobs[which];
    const struct plan *p = job->plan;
    struct plan *q = made_of(job, err);
    int rc = q ? compare_stages(job, q, target, err) : -1;
    if (!q && err)
        err->status = EXIT_INPUT; /* of words, not of the command line */
    for (int op = 0; op < p->model->n_ops && rc == 0; op++) {
        int b = n_blocks ? plan_outer_block(p->model, op) : PART_AROUND;
        if (!same_words(job, &jobs[b < 0 ? n_blocks : b]))
            continue;
        rc = p->stage_of[op] == q->stage_of[op]
                 ? compare_op(p, q, op, target, err)
                 : err_input(err, "stages[%d]: has %s, which %s places in stage %d",
                             p->stage_of[op], p->model->ops[op].name, target,
                             q->stage_of[op]);
    }
    plan_destroy(q);
    return rc;
}

/* What no trainer but this one has words for. */
static int check_words(const struct plan *p, const char *target, struct err *err) {
    if (p->aggregate != AGGREGATE_mean)
        return err_input(err, "aggregate: %s sums gradients, the plan takes their %s",
                         target, aggregate_name(p->aggregate));
    if (p->average != AVERAGE_none)
        return err_input(err, "average: replicas of %s sum their gradients at every step",
                         target);
    if (p->logits > 1)
        return err_input(err, "logits: in %lld pieces, which %s cannot say",
                         (long long)p->logits, target);
    if (p->optimizer != OPTIMIZER_adamw && p->optimizer != OPTIMIZER_sgd)
        return err_input(err, "optimizer: nothing is known of %s in %s",
                         optimizer_name(p->optimizer), target);
    for (int i = 0; i < p->model->n_params; i++)
        if (p->model->params[i].frozen)
            return err_input(
                err,
                "model.frozen: %s is told of no parameters that stay as they are, such as %s",
                target, p->model->params[i].name);
    return 0;
}

static int read_part(struct plan_job *job, const struct plan_dims *d, int part,
                     const char *target, struct err *err) {
    for (int s = 0; s < job->plan->n_stages; s++)
        if (read_mesh(job, d, s, part, target, err) < 0)
            return -1;
    read_rest(job, part);
    return 0;
}

int plan_job_of(struct plan_job *job, const struct plan *p, const char *target,
                struct err *err) {
    *job = (struct plan_job){.plan = p, .dp = 1, .ep = 1, .cp = 1, .tp = 1};
    if (check_words(p, target, err) < 0)
        return -1;
    struct plan_dims dims;
    plan_dims_find(p->model, &dims);
    int rc = read_stages(job, target, err);
    if (rc == 0)
        rc = read_part(job, &dims, PART_ALL, target, err);
    plan_dims_release(&dims);
    if (rc == 0)
        rc = compare(job, 0, 0, target, err);
    if (rc < 0)
        plan_job_release(job);
    return rc;
}

/* Blocks inside others are no parts, nor is what is around them where nothing is. */
static bool is_part(const struct plan *p, int part) {
    bool is = false;
    for (int s = 0; s < p->n_stages && !is; s++)
        is = has_part(p->model, &p->stages[s], part);
    return is;
}

struct plan_job *plan_job_layers(const struct plan *p, const char *target,
                                 struct err *err) {
    const int n = p->model->n_blocks;
    struct plan_job base = {.plan = p, .dp = 1, .ep = 1, .cp = 1, .tp = 1};
    if (check_words(p, target, err) < 0)
        return NULL;
    struct plan_dims dims;
    plan_dims_find(p->model, &dims);
    int rc = read_stages(&base, target, err);
    struct plan_job *jobs = mem_array((size_t)n + 1, sizeof *jobs);
    for (int b = 0; b <= n && rc == 0; b++) {
        jobs[b] = base;
        rc = read_part(&jobs[b], &dims, b == n ? PART_AROUND : b, target, err);
    }
    plan_dims_release(&dims);
    for (int b = 0; b <= n && rc == 0; b++) {
        bool seen = !is_part(p, b == n ? PART_AROUND : b);
        for (int k = 0; k < b && !seen; k++)
            seen = same_words(&jobs[k], &jobs[b]);
        rc = seen ? 0 : compare(jobs, n, b, target, err);
    }
    if (rc == 0)
        return jobs;
    free(jobs);
    plan_job_release(&base);
    return NULL;
}

void plan_job_release(struct plan_job *job) {
    free(job->blocks);
    job->blocks = NULL;
}

int64_t plan_job_samples(const struct plan_job *job) {
    return job->plan->micro_batch / job->dp;
}

int64_t plan_model_size(const struct model *m, const char *dim) {
    int d = model_dim_find(m, dim);
    return d < 0 ? 0 : m->dims[d].size;
}
