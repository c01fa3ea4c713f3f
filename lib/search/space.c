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

/* The tensor that passes from block to block (or, without blocks, the first result). */
static const struct shape *passing_shape(const struct model *m) {
    for (int i = 1; i < m->n_ops; i++)
        if (m->ops[i].block >= 0 && m->ops[i - 1].block != m->ops[i].block)
            return &m->tensors[m->ops[i].in[0]].shape;
    return &m->tensors[m->ops[0].out[0]].shape;
}

static bool has_dim(const struct shape *s, int dim) {
    for (int i = 0; i < s->rank; i++)
        if (s->dim[i] == dim)
            return true;
    return false;
}

static bool in_data(const struct model *m, int dim) {
    for (int t = 0; t < m->n_tensors; t++)
        if (m->tensors[t].producer < 0 && has_dim(&m->tensors[t].shape, dim))
            return true;
    return false;
}

/* May every op that has the dim be split on it? False where none has it. */
static bool always_splittable(const struct model *m, int dim) {
    bool any = false;
    for (int i = 0; i < m->n_ops; i++) {
        int k = op_space_find(&m->ops[i].space, dim);
        if (k >= 0 && m->ops[i].space.role[k] == ROLE_whole)
            return false;
        any |= k >= 0;
    }
    return any;
}

/* Inner dims: in no passing tensor, splittable wherever they occur, and more than one
 * unit. */
static void find_inner_dims(struct search *s) {
    const struct model *m = s->p.model;
    const struct shape *passing = passing_shape(m);
    s->n_inner = 0;
    s->sequence = -1;
    for (int d = 0; d < m->n_dims; d++) {
        bool data = in_data(m, d), passes = has_dim(passing, d);
        if (!data && !passes && m->dims[d].size > 1 && s->n_inner < SEARCH_MAX_INNER &&
            always_splittable(m, d))
            s->inner[s->n_inner++] = d;
        if (data && passes && d != m->batch)
            s->sequence = d;
    }
}

/* The results that pass each cut of the list of ops. */
static void find_crossings(struct search *s) {
    const struct model *m = s->p.model;
    s->crossings = mem_array((size_t)m->n_ops + 1, sizeof *s->crossings);
    for (int i = 0; i < m->n_ops; i++) {
        int last = i;
        for (int j = i + 1; j < m->n_ops && j < i + 4 * (s->block_len + 8); j++)
            for (int k = 0; k < m->ops[j].n_in; k++)
                if (m->ops[j].in[k] == m->ops[i].out[0])
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
            int param = m->ops[i].param[k],
                home = param < 0 ? i : m->params[param].first_op;
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

int search_inner_dims(const struct search *s, int dims[SEARCH_MAX_INNER]) {
    memcpy(dims, s->inner, sizeof *dims * (size_t)s->n_inner);
    return s->n_inner;
}

bool search_has_sequence(const struct search *s) {
    return s->sequence >= 0;
}

/* ---- styles -------------------------------------------------------------------------- */

/* Index of a dim in the op's space if the axis can split it there evenly, else PLACE_NONE. */
static int try_dim(const struct search *s, const struct model_op *op,
                   const struct mesh *mesh, const struct layout *l, int64_t micro_batch,
                   int axis, int dim) {
    int k = op_space_find(&op->space, dim);
    if (k < 0 || op->space.role[k] == ROLE_whole)
        return PLACE_NONE;
    int64_t n = model_dim_size(s->p.model, dim, micro_batch);
    for (int a = 0; a < mesh->n_axes; a++)
        if (a != axis && l->dim[a] == k) {
            if (n % mesh->size[a])
                return PLACE_NONE;
            n /= mesh->size[a];
        }
    return n % mesh->size[axis] ? PLACE_NONE : k;
}

static bool splittable(const struct model_op *op, int dim) {
    int k = op_space_find(&op->space, dim);
    return k >= 0 && op->space.role[k] != ROLE_whole;
}

static int style_dim(const struct search *s, const struct model_op *op,
                     const struct mesh *mesh, const struct layout *l, int64_t micro_batch,
                     int axis, struct style style) {
    if (axis < mesh->n_axes - style.model_axes)
        return try_dim(s, op, mesh, l, micro_batch, axis, s->p.model->batch);
    for (int i = 0; i < s->n_inner; i++)
        if ((style.inner >> i & 1) && splittable(op, s->inner[i]))
            return try_dim(s, op, mesh, l, micro_batch, axis, s->inner[i]);
    return style.sequence && s->sequence >= 0
               ? try_dim(s, op, mesh, l, micro_batch, axis, s->sequence)
               : PLACE_NONE;
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
        if (level == 2 ? i + 1 < s->block_len : level == 1 && op_is(op, KIND_CHEAP))
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
            if (layout_check(m, op, &mesh, &st->layout[op->place], c->micro_batch, NULL) <
                0)
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
