/* The space: from a candidate to a plan, and the families of layouts that make good
 * starts. */
#include "search/search_impl.h"

#include <stdlib.h>
#include <string.h>

const struct search_problem *search_problem_of(const struct search *s) {
    return &s->p;
}

int search_mesh_axes(int devices) {
    struct mesh mesh;
    search_mesh(devices, &mesh);
    return mesh.n_axes;
}

void search_mesh(int devices, struct mesh *mesh) {
    *mesh = (struct mesh){0};
    for (int f = 2; devices > 1;) {
        if (devices % f) {
            f++;
            continue;
        }
        devices /= f;
        if (mesh->n_axes == MESH_MAX_AXES) {
            mesh->size[MESH_MAX_AXES - 1] *= f; /* the innermost takes what is left */
            continue;
        }
        snprintf(mesh->name[mesh->n_axes], MESH_MAX_NAME, "%c", 'a' + mesh->n_axes);
        mesh->size[mesh->n_axes++] = f;
    }
}

bool search_devices_allowed(int devices) {
    return devices >= 1;
}

/* ---- what the model offers ----------------------------------------------------------- */

/* Dims of the tensors that pass from block to block (or, without blocks, of the first
 * result). */
static dimset passing_dims(const struct model *m) {
    for (int i = 1; i < m->n_ops; i++)
        if (m->ops[i].block >= 0 && m->ops[i - 1].block != m->ops[i].block)
            return shape_dims(&m->tensors[m->ops[i].in[0]].shape);
    return shape_dims(&m->tensors[m->ops[0].out].shape);
}

/* Inner dims: in no passing tensor, splittable wherever they occur, and more than one
 * unit. */
static void find_inner_dims(struct search *s) {
    const struct model *m = s->p.model;
    dimset passing = passing_dims(m), all = 0, bad = passing, data = 0;
    for (int i = 0; i < m->n_ops; i++) {
        all |= m->ops[i].domain;
        bad |= m->ops[i].domain & ~m->ops[i].splittable;
    }
    for (int t = 0; t < m->n_tensors; t++)
        if (m->tensors[t].producer < 0)
            data |= shape_dims(&m->tensors[t].shape);
    s->n_inner = 0;
    for (int d = 0; d < m->n_dims; d++)
        if ((all & ~bad & ~data) >> d & 1 && m->dims[d].size > 1)
            s->inner[s->n_inner++] = d;
    s->sequence = -1;
    for (int d = 0; d < m->n_dims; d++)
        if ((passing & data) >> d & 1 && d != m->batch)
            s->sequence = d;
}

/* The results that pass each cut of the list of ops. */
static void find_crossings(struct search *s) {
    const struct model *m = s->p.model;
    s->crossings = mem_array((size_t)m->n_ops + 1, sizeof *s->crossings);
    for (int i = 0; i < m->n_ops; i++) {
        int last = i;
        for (int j = i + 1; j < m->n_ops && j < i + 4 * (s->block_len + 8); j++)
            for (int k = 0; k < m->ops[j].n_in; k++)
                if (m->ops[j].in[k] == m->ops[i].out)
                    last = j;
        for (int cut = i + 1; cut <= last; cut++)
            if (s->crossings[cut].n < 4)
                s->crossings[cut].producer[s->crossings[cut].n++] = i;
    }
}

static void find_ties(struct search *s) {
    const struct model *m = s->p.model;
    for (int i = 0; i < m->n_ops; i++)
        for (int k = 0; k < m->ops[i].n_param && s->n_ties < SEARCH_MAX_PLACES; k++) {
            int home = m->params[m->ops[i].param[k]].first_op;
            if (home != i)
                s->ties[s->n_ties++] = (struct tie){m->ops[home].place, m->ops[i].place};
        }
}

/* The same model with three blocks, if it has more and says how to ask for fewer. */
static struct model *small_model(const struct model *m, struct err *err) {
    const char *count = NULL;
    json_t *ops = json_object_get(m->doc, "ops");
    for (size_t i = 0; i < json_array_size(ops); i++) {
        const json_t *repeat = json_object_get(json_array_get(ops, i), "repeat");
        if (repeat)
            count = json_string_value(repeat);
    }
    char set[512];
    if (!count || snprintf(set, sizeof set, "%s%s%s=3", m->set, m->set[0] ? "," : "",
                           count) >= (int)sizeof set)
        return NULL;
    return model_from_json(m->doc, m->preset, set, err);
}

int search_survey(struct search *s, struct err *err) {
    const struct model *m = s->p.model;
    int blocks = 0;
    s->first_block_op = -1;
    for (int i = 0; i < m->n_ops; i++) {
        if (m->ops[i].place >= SEARCH_MAX_PLACES)
            return err_input(err, "the search takes models with at most %d different ops",
                             SEARCH_MAX_PLACES);
        s->block_len += m->ops[i].block == 0;
        if (m->ops[i].block == 0 && s->first_block_op < 0)
            s->first_block_op = i;
        if (m->ops[i].block >= blocks)
            blocks = m->ops[i].block + 1;
    }
    find_inner_dims(s);
    find_crossings(s);
    find_ties(s);
    s->small = blocks > 3 ? small_model(m, NULL) : NULL;
    s->small_block = s->small || blocks > 1 ? 1 : 0;
    return 0;
}

int search_inner_dims(const struct search *s, int dims[MODEL_MAX_DIMS]) {
    memcpy(dims, s->inner, sizeof *dims * (size_t)s->n_inner);
    return s->n_inner;
}

bool search_has_sequence(const struct search *s) {
    return s->sequence >= 0;
}

/* ---- styles -------------------------------------------------------------------------- */

static bool divides(const struct search *s, const struct mesh *mesh, const struct layout *l,
                    int64_t micro_batch, int axis, int dim) {
    int64_t n = dim == s->p.model->batch ? micro_batch : s->p.model->dims[dim].size;
    for (int a = 0; a < mesh->n_axes; a++)
        if (a != axis && l->dim[a] == dim) {
            if (n % mesh->size[a])
                return false;
            n /= mesh->size[a];
        }
    return n % mesh->size[axis] == 0;
}

static int style_dim(const struct search *s, const struct model_op *op,
                     const struct mesh *mesh, const struct layout *l, int64_t micro_batch,
                     int axis, struct style style) {
    if (axis < mesh->n_axes - style.model_axes) {
        int b = s->p.model->batch;
        return (op->splittable >> b & 1) && divides(s, mesh, l, micro_batch, axis, b)
                   ? b
                   : PLACE_NONE;
    }
    for (int i = 0; i < s->n_inner; i++)
        if ((style.inner >> i & 1) && (op->splittable >> s->inner[i] & 1))
            return divides(s, mesh, l, micro_batch, axis, s->inner[i]) ? s->inner[i]
                                                                       : PLACE_NONE;
    if (style.sequence && s->sequence >= 0 && (op->splittable >> s->sequence & 1) &&
        divides(s, mesh, l, micro_batch, axis, s->sequence))
        return s->sequence;
    return PLACE_NONE;
}

void search_apply_style(struct search *s, struct search_stage *st, int64_t micro_batch,
                        struct style style) {
    const struct model *m = s->p.model;
    struct mesh mesh;
    search_mesh(st->devices, &mesh);
    if (style.model_axes > mesh.n_axes)
        style.model_axes = mesh.n_axes;
    memset(st->layout, PLACE_NONE, sizeof st->layout);
    for (int i = 0; i < m->n_ops; i++) {
        const struct model_op *op = &m->ops[i];
        if (op->block > 0)
            continue; /* the same as in block 0 */
        struct layout *l = &st->layout[op->place];
        for (int a = 0; a < mesh.n_axes; a++)
            l->dim[a] = (int8_t)style_dim(s, op, &mesh, l, micro_batch, a, style);
    }
}

uint64_t search_recompute_places(const struct search *s, int level) {
    const struct model *m = s->p.model;
    uint64_t places = 0;
    for (int i = 0; i < s->block_len; i++) {
        const struct model_op *op = &m->ops[s->first_block_op + i];
        bool cheap = op->kind == OP_layernorm || op->kind == OP_gelu ||
                     op->kind == OP_relu || op->kind == OP_silu || op->kind == OP_dropout;
        if (level == 2 ? i + 1 < s->block_len : level == 1 && cheap)
            places |= (uint64_t)1 << op->place;
    }
    return places;
}

int search_stage_blocks(const struct search *s, const struct search_stage *st) {
    const struct model *m = s->p.model;
    int n = 0;
    for (int i = st->first; i < st->end; i++)
        if (m->ops[i].block >= 0 &&
            (i == st->first || m->ops[i].block != m->ops[i - 1].block))
            n++;
    return n;
}

bool search_even(struct search *s, int n_stages, int64_t micro_batch, struct style style,
                 struct candidate *out) {
    const struct search_problem *p = &s->p;
    const struct model *m = p->model;
    if (n_stages > p->devices || n_stages > m->n_ops || n_stages > SEARCH_MAX_STAGES)
        return false;
    memset(out, 0, sizeof *out);
    out->n_stages = n_stages;
    out->micro_batch = micro_batch;
    out->schedule = SCHEDULE_1f1b;
    double total = model_forward_flops(m, 1), sum = 0;
    int op = 0, left = p->devices;
    for (int k = 0; k < n_stages; k++) {
        struct search_stage *st = &out->stages[k];
        st->devices = left / (n_stages - k);
        left -= st->devices;
        st->first = op;
        double share = total * (double)(p->devices - left) / p->devices;
        /* Up to the share of flops, then on to the end of the block; ops for those
         * behind. */
        int most = m->n_ops - (n_stages - 1 - k);
        while (op < most &&
               (op == st->first || sum < share - 1e-9 * total || k == n_stages - 1))
            sum += model_op_flops(m, &m->ops[op++], 1);
        while (op < most && k < n_stages - 1 && m->ops[op].block >= 0 &&
               m->ops[op].block == m->ops[op - 1].block)
            sum += model_op_flops(m, &m->ops[op++], 1);
        st->end = op;
        search_apply_style(s, st, micro_batch, style);
    }
    return op == m->n_ops;
}

bool search_legal(struct search *s, const struct candidate *c) {
    const struct model *m = s->p.model;
    struct dim_sizes sizes = dim_sizes_of(m, c->micro_batch);
    for (int k = 0; k < c->n_stages; k++) {
        const struct search_stage *st = &c->stages[k];
        struct mesh mesh;
        search_mesh(st->devices, &mesh);
        if (st->first >= st->end || st->devices < 1)
            return false;
        uint64_t seen = 0;
        for (int i = st->first; i < st->end; i++) {
            const struct model_op *op = &m->ops[i];
            if (seen >> op->place & 1)
                continue;
            seen |= (uint64_t)1 << op->place;
            if (layout_check(m, op, &mesh, &st->layout[op->place], &sizes, NULL) < 0)
                return false;
        }
    }
    return true;
}

/* ---- candidates as plans ------------------------------------------------------------- */

struct plan *search_plan_of(struct search *s, const struct candidate *c) {
    const struct model *m = s->p.model;
    int bounds[SEARCH_MAX_STAGES + 1];
    for (int k = 0; k < c->n_stages; k++)
        bounds[k] = c->stages[k].first;
    bounds[c->n_stages] = c->stages[c->n_stages - 1].end;
    struct plan *plan = plan_create(s->p.model, c->n_stages, bounds);
    plan->batch = s->p.batch;
    plan->micro_batch = c->micro_batch;
    plan->schedule = c->schedule;
    plan->optimizer = s->p.optimizer;
    for (int k = 0; k < c->n_stages; k++) {
        const struct search_stage *from = &c->stages[k];
        struct stage *st = &plan->stages[k];
        search_mesh(from->devices, &st->mesh);
        st->zero = from->zero;
        int first_block = -1;
        for (int i = 0; i < st->n_ops; i++) {
            const struct model_op *op = &m->ops[st->ops[i]];
            st->layouts[i] = from->layout[op->place];
            if (op->block >= 0 && first_block < 0)
                first_block = op->block;
            st->recompute[i] = op->block >= 0 && (from->recompute >> op->place & 1) &&
                               op->block - first_block < from->recompute_blocks;
        }
    }
    return plan;
}
