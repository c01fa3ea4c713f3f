/* Parameters and their gradients as a stage holds them.
 *
 * Where a parameter is replicated, ZeRO (Rajbhandari et al. 2020) leaves a rank only its
 * share: of the optimizer's state, at the next level of gradients too, and then of the
 * parameter itself. A share is the placement scattered, so all of this is placements and
 * conversions. A parameter that is wanted whole is gathered for one op, and again in the
 * backward pass. A gradient is whole after one op, and is then reduced into the share.
 *
 * Where ops read 16 bits, the share of a parameter that is held is its master, in f32,
 * which is rounded before it is gathered: rounded numbers exist only while an op needs
 * them. A parameter that several ops use is held rounded, since its copies elsewhere are
 * made from that. */
#include "program/emit/params.h"

struct placement param_share(const struct emit *e, int param, struct placement place,
                             int level) {
    if (e->zero[param] < level)
        return place;
    struct extents sizes = emit_extents(e, &e->m->params[param].shape);
    const unsigned apart = param_apart(e, param);
    if (!apart)
        return placement_scatter(e->mesh, &sizes, place);
    /* replicas that train apart do not share their state */
    struct mesh together = *e->mesh;
    for (int a = 0; a < together.n_axes; a++)
        if (apart >> a & 1)
            together.size[a] = 1;
    return placement_scatter(&together, &sizes, place);
}

unsigned param_apart(const struct emit *e, int param) {
    return e->apart[param] < 0 ? 0 : (unsigned)e->apart[param];
}

struct placement param_own(const struct emit *e, int param, struct placement place) {
    const unsigned apart = param_apart(e, param);
    for (int a = 0; a < MESH_MAX_AXES; a++)
        if (apart >> a & 1)
            place.at[a] = PLACE_PARTIAL;
    return place;
}

/* ---- parameters --------------------------------------------------------------------------- */

/* The type of an instance held under one placement for ops that want it under another. */
static enum dtype held_dtype(const struct emit *e, int param, struct placement held,
                             struct placement want) {
    const struct model_param *p = &e->m->params[param];
    bool master = !placement_equal(held, want) && !p->tied && !p->frozen;
    return master ? DTYPE_f32 : emit_param_dtype(e, param);
}

/* The instance that is held for ops that want the parameter under this placement, made if
 * it is new. There are few, so they are searched one by one, from the parameter's first one
 * on. */
static int instance_get(struct emit *e, int param, struct placement want) {
    struct placement place = param_share(e, param, want, ZERO_PARAMETERS);
    for (int64_t i = e->param_of[param]; i >= 0 && i < e->params.n; i++)
        if (e->params.p[i].param == param && placement_equal(e->params.p[i].place, place))
            return (int)i;
    int buffer = emit_buffer(e, emit_elements(e, &e->m->params[param].shape, place),
                             held_dtype(e, param, place, want), MEM_parameters);
    bool first = e->param_of[param] < 0;
    /* The home of a parameter is the stage that uses it first, under that op's layout. */
    bool home = first && e->plan->stage_of[e->m->params[param].first_op] == e->stage;
    arr_push(&e->params, (struct param_instance){param, place, buffer, home});
    if (first)
        e->param_of[param] = (int)e->params.n - 1;
    return (int)e->params.n - 1;
}

/* The parameter in the type in which ops read it. */
static int rounded(struct emit *e, int param, int buffer) {
    enum dtype dtype = emit_param_dtype(e, param);
    int64_t elems = e->buffers.p[buffer].elems;
    if (e->buffers.p[buffer].dtype == dtype)
        return buffer;
    int y = emit_buffer(e, elems, dtype, MEM_temporaries);
    emit_cast(e, buffer, y, elems);
    return y;
}

int param_get(struct emit *e, int op, int slot, struct placement want) {
    int param = e->m->ops[op].param[slot], pass = e->seg != SEG_FORWARD;
    int instance = instance_get(e, param, want); /* may grow the list */
    struct param_instance held = e->params.p[instance];
    if (placement_equal(held.place, want))
        return held.buffer;
    int *gathered = &e->gathered[(2 * e->op_index[op] + pass) * KIND_MAX_SLOTS + slot];
    if (*gathered < 0) {
        int caller = e->param;
        e->param = param;
        *gathered = emit_convert(e, &e->m->params[param].shape,
                                 rounded(e, param, held.buffer), held.place, want, -1);
        e->param = caller;
    }
    return *gathered;
}

/* ---- gradients ---------------------------------------------------------------------------- */

/* Finds or makes a gradient's buffer: one for each set of sample axes that it is a sum
 * over. */
static int accumulator_get(struct emit *e, int param, int instance, struct placement place,
                           unsigned data) {
    for (int64_t i = e->grad_of[param]; i >= 0 && i < e->grads.n; i++)
        if (e->grads.p[i].param == param && e->grads.p[i].instance == instance &&
            placement_equal(e->grads.p[i].place, place) && e->grads.p[i].data == data)
            return e->grads.p[i].buffer;
    int buffer = emit_buffer(e, emit_elements(e, &e->m->params[param].shape, place),
                             DTYPE_f32, MEM_gradients);
    arr_push(&e->grads,
             (struct grad_instance){param, instance, place, data, buffer, false});
    if (e->grad_of[param] < 0)
        e->grad_of[param] = (int)e->grads.n - 1;
    return buffer;
}

/* The placement of a gradient. Sums that cannot be scattered over a dim of the parameter
 * are taken once, at the step's end; so are all where a rule has to see all replicas at
 * once. */
static struct placement gradient_share(const struct emit *e, int param,
                                       struct placement from, unsigned data) {
    struct placement to = param_share(e, param, from, ZERO_GRADIENTS);
    for (int a = 0; a < e->mesh->n_axes; a++)
        if (from.at[a] == PLACE_PARTIAL && to.at[a] == PLACE_REPLICATE)
            to.at[a] = PLACE_PARTIAL;
    return data & placement_axes(e->mesh, to, PLACE_PARTIAL) ? from : to;
}

/* The axes over which a rule takes a gradient's sum. Running statistics are no gradients:
 * some replicas have no share in them. */
static unsigned data_axes(const struct emit *e, int param, struct placement from) {
    if (e->plan->aggregate == AGGREGATE_mean || e->m->params[param].running)
        return 0;
    return plan_data_axes(e->plan, e->st, e->op_index[e->op]) &
           placement_axes(e->mesh, from, PLACE_PARTIAL);
}

/* A temporary sum, which begins at zero. */
static int zeros(struct emit *e, int param, struct placement from) {
    int64_t elems = emit_elements(e, &e->m->params[param].shape, from);
    int whole = emit_buffer(e, elems, DTYPE_f32, MEM_temporaries);
    struct instr *i = emit_instr(e, I_fill);
    i->param = param;
    i->out.fill.y = whole;
    i->n.fill.elems = elems;
    return whole;
}

int grad_get(struct emit *e, int param, struct placement want, struct placement from) {
    if (e->m->params[param].frozen)
        return zeros(e, param, from);
    const unsigned data = data_axes(e, param, from);
    struct placement to = gradient_share(e, param, from, data);
    int share = accumulator_get(e, param, instance_get(e, param, want), to, data);
    if (placement_equal(from, to))
        return share;
    int whole = zeros(e, param, from);
    arr_push(&e->whole_gradients,
             (struct whole_gradient){param, whole, share, from, to, data});
    return whole;
}

/* Whether all steps are sums in place. */
static bool only_reduces(const struct convert_step *steps, int n) {
    bool only = true;
    for (int i = 0; i < n; i++)
        only &= steps[i].kind == CONVERT_all_reduce;
    return only;
}

/* Converts a gradient, taking sums in the plan's type for them. */
static int sum_convert(struct emit *e, int param, int buffer, struct placement from,
                       struct placement to) {
    const struct shape *s = &e->m->params[param].shape;
    struct convert_step steps[CONVERT_MAX_STEPS];
    struct extents sizes = emit_extents(e, s);
    int n = convert_path(e->mesh, &sizes, from, to, steps, NULL);
    if (e->plan->reduce == DTYPE_f32 || e->m->params[param].running ||
        only_reduces(steps, n))
        return emit_convert(e, s, buffer, from, to, -1);
    int64_t before = emit_elements(e, s, from), after = emit_elements(e, s, to);
    int sent = emit_buffer(e, before, e->plan->reduce, MEM_temporaries);
    emit_cast(e, buffer, sent, before);
    int sum = emit_convert(e, s, sent, from, to, -1);
    int wide = emit_buffer(e, after, DTYPE_f32, MEM_temporaries);
    emit_cast(e, sum, wide, after);
    return wide;
}

/* The last instruction from `first` on that is one of these two sums over these axes. */
static struct instr *sum_over(struct emit *e, int64_t first, unsigned axes) {
    for (int64_t i = e->instrs.n - 1; i >= first; i--) {
        struct instr *ins = &e->instrs.p[i];
        if ((ins->code == I_all_reduce || ins->code == I_reduce_scatter) &&
            ins->axes == axes)
            return ins;
    }
    return NULL;
}

/* Sums over the other axes first, then over all replicas at once, and keeps what is wanted
 * of that: a rule applied to parts of the replicas is not the rule applied to all. */
int grad_convert(struct emit *e, int param, int buffer, struct placement from,
                 struct placement to, unsigned data) {
    struct placement between = to, whole = to;
    unsigned left = data & placement_axes(e->mesh, from, PLACE_PARTIAL) &
                    ~placement_axes(e->mesh, to, PLACE_PARTIAL);
    if (!left)
        return sum_convert(e, param, buffer, from, to);
    for (int a = 0; a < e->mesh->n_axes; a++)
        if (left >> a & 1) {
            between.at[a] = PLACE_PARTIAL;
            whole.at[a] = PLACE_REPLICATE;
        }
    buffer = sum_convert(e, param, buffer, from, between);
    struct convert_step steps[CONVERT_MAX_STEPS];
    struct extents sizes = emit_extents(e, &e->m->params[param].shape);
    int n = convert_path(e->mesh, &sizes, between, to, steps, NULL);
    struct placement sum = n == 1 && steps[0].axes == left ? to : whole;
    int64_t first = e->instrs.n;
    buffer = sum_convert(e, param, buffer, between, sum);
    sum_over(e, first, left)->guarded = true;
    return emit_convert(e, &e->m->params[param].shape, buffer, sum, to, -1);
}

static void reduce(struct emit *e, const struct whole_gradient *g) {
    const struct shape *s = &e->m->params[g->param].shape;
    e->param = g->param;
    int part = grad_convert(e, g->param, g->whole, g->from, g->to, g->data);
    struct instr *i = emit_instr(e, I_add);
    i->in.add.a = i->out.add.y = g->share;
    i->in.add.b = part;
    i->n.add.elems = emit_elements(e, s, g->to);
    e->param = -1;
}

void grads_reduce(struct emit *e) {
    for (int64_t i = 0; i < e->whole_gradients.n; i++)
        reduce(e, &e->whole_gradients.p[i]);
    e->whole_gradients.n = 0;
}
