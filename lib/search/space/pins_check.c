/* What pins say of stages, worked out once; and whether they can be obeyed at all, as far as that can
 * be told before the search. */
#include "search/search_impl.h"

#include <stdlib.h>
#include <string.h>

/* ---- what there is of them ------------------------------------------------------------- */

static const char *where(const struct search *s, enum pin_field field, int op) {
    const struct pins *p = s->p.pins;
    int64_t i = 0;
    while (pin_value(&p->list.p[i], field, op) == PIN_FREE)
        i++;
    return p->list.p[i].where;
}

static void add_cuts(struct search *s, const struct pin *pin) {
    int n_ops = s->p.model->n_ops, first = 0, last = n_ops - 1;
    while (!pin->covers[first])
        first++;
    while (!pin->covers[last])
        last--;
    if (pin->begins)
        s->pinned.cut[first] = true;
    for (int i = first + 1; i <= last && pin->one; i++)
        s->pinned.whole[i] = true;
}

/* The k-th stage begins behind all ops of those before it, and at the first of its own or of later
 * ones. */
static int add_numbers(struct search *s, struct err *err) {
    struct pinned *p = &s->pinned;
    int n_ops = s->p.model->n_ops;
    for (int k = 0; k <= n_ops; k++)
        p->most[k] = n_ops;
    for (int i = 0, before = 0; i < n_ops; i++) {
        int k = (int)pins_value(s->p.pins, PIN_stage, i);
        if (k == PIN_FREE)
            continue;
        if (k < p->last_stage) {
            err_input(err, "stage: %s is in %d, but %s before it in %d",
                      s->p.model->ops[i].name, k, s->p.model->ops[before].name,
                      p->last_stage);
            return err_prefix(err, "%s", where(s, PIN_stage, i));
        }
        if (k >= s->max_stages) {
            err_input(err, "stage: %d, but there can be at most %d stages", k,
                      s->max_stages);
            return err_prefix(err, "%s", where(s, PIN_stage, i));
        }
        before = i;
        p->last_stage = k;
        p->least[k + 1] = i + 1;
        p->most[k] = p->most[k] < i ? p->most[k] : i;
    }
    for (int k = 1; k <= n_ops; k++)
        p->least[k] = p->least[k] > p->least[k - 1] ? p->least[k] : p->least[k - 1];
    for (int k = n_ops - 1; k >= 0; k--)
        p->most[k] = p->most[k] < p->most[k + 1] ? p->most[k] : p->most[k + 1];
    return 0;
}

/* At the next cut, and before the first op whose mesh is pinned to another than that of one in the
 * stage. */
static void find_ends(struct search *s) {
    struct pinned *p = &s->pinned;
    int n_ops = s->p.model->n_ops;
    p->until[n_ops] = n_ops;
    for (int i = n_ops - 1; i >= 0; i--) {
        const struct mesh *mesh = pins_mesh(s->p.pins, i);
        int next = mesh ? p->meshed[i + 1] : n_ops;
        bool other = next < n_ops && pins_mesh(s->p.pins, next) != mesh;
        p->until[i] = p->cut[i + 1] ? i + 1 : p->until[i + 1];
        if (other && p->until[i] > next)
            p->until[i] = next;
    }
}

static int find_cuts(struct search *s, struct err *err) {
    const struct pins *pins = s->p.pins;
    struct pinned *p = &s->pinned;
    size_t n = (size_t)s->p.model->n_ops + 1;
    p->cut = mem_array(2 * n, sizeof *p->cut);
    p->whole = p->cut + n;
    p->until = mem_array(3 * n, sizeof *p->until);
    p->least = p->until + n;
    p->most = p->least + n;
    for (int64_t i = 0; i < pins->list.n; i++)
        if (pins->list.p[i].begins || pins->list.p[i].one)
            add_cuts(s, &pins->list.p[i]);
    p->cut[0] = false; /* it begins the first stage anyway */
    find_ends(s);
    return add_numbers(s, err);
}

/* Can the ops be cut into a number of stages that is allowed? A stage as long as may be each time,
 * and at least one op. */
static int check_cuts(struct search *s, struct err *err) {
    const struct pinned *p = &s->pinned;
    int n_ops = s->p.model->n_ops, least = 0;
    for (int op = 0, end; op < n_ops; op = end, least++) {
        for (end = p->until[op]; end > op && p->whole[end];)
            end--;
        if (end == op)
            return err_input(err,
                             "pin: %s is to be in one stage with others, of which another "
                             "pin parts it",
                             s->p.model->ops[op].name);
    }
    int n = p->n_stages ? p->n_stages : s->max_stages;
    if (least <= n)
        return 0;
    return err_input(err, "pin: at least %d stages, but there can be at most %d", least, n);
}

/* ---- can they be obeyed? ---------------------------------------------------------------- */

static int check_number(struct search *s, enum pin_field field, int64_t have,
                        const char *what, struct err *err) {
    int64_t pinned = search_pinned(s, field);
    if (pinned == PIN_FREE || pinned == have)
        return 0;
    err_input(err, "%s: %lld, but the plan is to have %lld", what, (long long)pinned,
              (long long)have);
    return err_prefix(err, "%s", where(s, field, 0));
}

/* Stages that share groups have no pins of their own yet. */
static int check_schedule(struct search *s, struct err *err) {
    int64_t pinned = search_pinned(s, PIN_schedule);
    if (pinned != SCHEDULE_interleaved)
        return 0;
    err_input(err, "schedule: with pins the search makes plans of gpipe, 1f1b and "
                   "zero-bubble, not of interleaved");
    return err_prefix(err, "%s", where(s, PIN_schedule, 0));
}

static int check_dtype(struct search *s, struct err *err) {
    int64_t pinned = search_pinned(s, PIN_dtype);
    if (pinned == PIN_FREE || pinned == s->p.dtype)
        return 0;
    err_input(err, "dtype: %s, but the plan is to have %s",
              plan_dtype_name((enum dtype)pinned), plan_dtype_name(s->p.dtype));
    return err_prefix(err, "%s", where(s, PIN_dtype, 0));
}

static int check_optimizer(struct search *s, struct err *err) {
    int64_t pinned = search_pinned(s, PIN_optimizer);
    if (pinned == PIN_FREE || pinned == s->p.optimizer)
        return 0;
    err_input(err, "optimizer: %s, but the plan is to have %s",
              optimizer_name((enum optimizer)pinned), optimizer_name(s->p.optimizer));
    return err_prefix(err, "%s", where(s, PIN_optimizer, 0));
}

/* From here on it is the only one. */
static int check_micro_batch(struct search *s, struct err *err) {
    int64_t pinned = search_pinned(s, PIN_micro_batch);
    if (pinned == PIN_FREE)
        return 0;
    for (int i = 0; i < s->p.n_micro; i++)
        if (s->p.micro[i] == pinned) {
            s->p.micro += i;
            s->p.n_micro = 1;
            return 0;
        }
    err_input(err, "micro_batch: %lld is none of those to consider", (long long)pinned);
    return err_prefix(err, "%s", where(s, PIN_micro_batch, 0));
}

static int check_stages(struct search *s, struct err *err) {
    int64_t pinned = search_pinned(s, PIN_stages);
    if (pinned == PIN_FREE)
        return 0;
    if (pinned > s->max_stages) {
        err_input(err, "stages: %lld, but there can be at most %d", (long long)pinned,
                  s->max_stages);
        return err_prefix(err, "%s", where(s, PIN_stages, 0));
    }
    s->pinned.n_stages = (int)pinned;
    return 0;
}

static int check_meshes(struct search *s, struct err *err) {
    int n = s->p.model->n_ops;
    if (!s->p.pins->meshes.n)
        return 0;
    s->pinned.meshed = mem_array((size_t)n + 1, sizeof *s->pinned.meshed);
    s->pinned.meshed[n] = n;
    for (int i = n - 1; i >= 0; i--) {
        const struct mesh *mesh = pins_mesh(s->p.pins, i);
        s->pinned.meshed[i] = mesh ? i : s->pinned.meshed[i + 1];
        if (!mesh || mesh_devices(mesh) <= s->p.devices)
            continue;
        err_input(err, "mesh: %d devices, but there are %d", mesh_devices(mesh),
                  s->p.devices);
        return err_prefix(err, "%s", where(s, PIN_mesh, i));
    }
    return 0;
}

/* Parts need devices, and axes a mesh that has them. */
static int check_layouts(struct search *s, const struct pin *pin, struct err *err) {
    const struct model *m = s->p.model;
    for (int i = 0; i < pin->n_splits; i++) {
        int parts = pin->splits[i].parts ? pin->splits[i].parts : 2;
        if (parts > s->p.devices) {
            err_input(err, "%s: %d parts, but there are %d device%s",
                      m->dims[pin->splits[i].dim].name, parts, s->p.devices,
                      s->p.devices == 1 ? "" : "s");
            return err_prefix(err, "%s", pin->where);
        }
    }
    for (int op = 0; op < m->n_ops; op++)
        for (int i = 0; i < pin->n_axes && pin->covers[op]; i++) {
            const struct mesh *mesh = pins_mesh(s->p.pins, op);
            if (mesh && mesh_axis_find(mesh, pin->axes[i].axis) >= 0)
                continue;
            err_input(err, "layout: no mesh with an axis \"%.64s\" is pinned for %s",
                      pin->axes[i].axis, m->ops[op].name);
            return err_prefix(err, "%s", pin->where);
        }
    return 0;
}

/* Is there a layout for an op on its mesh? What is pinned together may exclude each other. */
static int check_op(struct search *s, int op, struct err *err) {
    const struct mesh *mesh = pins_mesh(s->p.pins, s->graph.x.from[op]);
    bool found = !mesh;
    for (int i = 0; i < s->p.n_micro && !found; i++) {
        struct layout l;
        memset(&l, PLACE_NONE, sizeof l);
        search_obey(s, op, mesh, mesh, s->p.micro[i], &l);
        found = search_pins_allow(s, op, mesh, mesh, &l);
    }
    if (found)
        return 0;
    err_input(err, "mesh: no layout of %s on it does what is pinned",
              s->graph.x.model->ops[op].name);
    return err_prefix(err, "%s", where(s, PIN_mesh, s->graph.x.from[op]));
}

int search_check_pins(struct search *s, struct err *err) {
    const struct pins *p = s->p.pins;
    if (s->p.source)
        s->pinned.n_stages = s->p.source->pin.stages;
    if (!p)
        return 0;
    if (check_number(s, PIN_batch, s->p.batch, "batch", err) < 0 ||
        check_optimizer(s, err) < 0 || check_dtype(s, err) < 0 ||
        check_schedule(s, err) < 0 || check_micro_batch(s, err) < 0 ||
        check_stages(s, err) < 0 || check_meshes(s, err) < 0 || find_cuts(s, err) < 0 ||
        check_cuts(s, err) < 0)
        return -1;
    for (int64_t i = 0; i < p->list.n; i++)
        if (p->list.p[i].covers && check_layouts(s, &p->list.p[i], err) < 0)
            return -1;
    for (int op = 0; op < s->graph.x.model->n_ops; op++)
        if (check_op(s, op, err) < 0)
            return -1;
    return 0;
}

void search_forget_pins(struct search *s) {
    free(s->pinned.cut);
    free(s->pinned.until);
    free(s->pinned.meshed);
}
