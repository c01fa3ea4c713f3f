/* Computes once what pins say about stages, and checks whether they can be obeyed at all,
 * as far as that is known before the search. */
#include "search/space/space.h"

#include <stdlib.h>
#include <string.h>

/* ---- what they say about stages -------------------------------------------------------- */

static const char *where(const struct space *sp, enum pin_field field, int op) {
    const struct pins *p = sp->p.pins;
    int64_t i = 0;
    while (pin_value(&p->list.p[i], field, op) == PIN_FREE)
        i++;
    return p->list.p[i].where;
}

static void add_cuts(struct space *sp, const struct pin *pin) {
    int n_ops = sp->p.model->n_ops, first = 0, last = n_ops - 1;
    while (!pin->covers[first])
        first++;
    while (!pin->covers[last])
        last--;
    if (pin->begins)
        sp->pinned.cut[first] = true;
    for (int i = first + 1; i <= last && pin->one; i++)
        sp->pinned.whole[i] = true;
}

/* The k-th stage begins behind all ops that are pinned to earlier stages, and no later than
 * the first op that is pinned to it or to a later one. */
static int add_numbers(struct space *sp, struct err *err) {
    struct pinned *p = &sp->pinned;
    int n_ops = sp->p.model->n_ops;
    for (int k = 0; k <= n_ops; k++)
        p->most[k] = n_ops;
    for (int i = 0, before = 0; i < n_ops; i++) {
        int k = (int)pins_value(sp->p.pins, PIN_stage, i);
        if (k == PIN_FREE)
            continue;
        if (k < p->last_stage) {
            err_input(err, "stage: %s is in %d, but %s before it in %d",
                      sp->p.model->ops[i].name, k, sp->p.model->ops[before].name,
                      p->last_stage);
            return err_prefix(err, "%s", where(sp, PIN_stage, i));
        }
        if (k >= sp->max_stages) {
            err_input(err, "stage: %d, but there can be at most %d stages", k,
                      sp->max_stages);
            return err_prefix(err, "%s", where(sp, PIN_stage, i));
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

/* A stage ends at the next cut, or before the first op whose mesh is pinned to another
 * one than that of an op in the stage. */
static void find_ends(struct space *sp) {
    struct pinned *p = &sp->pinned;
    int n_ops = sp->p.model->n_ops;
    p->until[n_ops] = n_ops;
    for (int i = n_ops - 1; i >= 0; i--) {
        const struct mesh *mesh = pins_mesh(sp->p.pins, i);
        int next = mesh ? p->meshed[i + 1] : n_ops;
        bool other = next < n_ops && pins_mesh(sp->p.pins, next) != mesh;
        p->until[i] = p->cut[i + 1] ? i + 1 : p->until[i + 1];
        if (other && p->until[i] > next)
            p->until[i] = next;
    }
}

/* Fills the arrays by op: where stages must and must not be cut, where they have to
 * end, and the limits of the k-th cut. */
static int find_cuts(struct space *sp, struct err *err) {
    const struct pins *pins = sp->p.pins;
    struct pinned *p = &sp->pinned;
    size_t n = (size_t)sp->p.model->n_ops + 1;
    p->cut = mem_array(2 * n, sizeof *p->cut);
    p->whole = p->cut + n;
    p->until = mem_array(3 * n, sizeof *p->until);
    p->least = p->until + n;
    p->most = p->least + n;
    for (int64_t i = 0; i < pins->list.n; i++)
        if (pins->list.p[i].begins || pins->list.p[i].one)
            add_cuts(sp, &pins->list.p[i]);
    p->cut[0] = false; /* it begins the first stage anyway */
    find_ends(sp);
    return add_numbers(sp, err);
}

/* Checks that the ops can be cut into an allowed number of stages. Every stage is made as
 * long as it may be, with at least one op. */
static int check_cuts(const struct space *sp, struct err *err) {
    const struct pinned *p = &sp->pinned;
    int n_ops = sp->p.model->n_ops, least = 0;
    for (int op = 0, end; op < n_ops; op = end, least++) {
        for (end = p->until[op]; end > op && p->whole[end];)
            end--;
        if (end == op)
            return err_input(err,
                             "pin: %s is to be in one stage with others, of which another "
                             "pin parts it",
                             sp->p.model->ops[op].name);
    }
    int n = p->n_stages ? p->n_stages : sp->max_stages;
    if (least <= n)
        return 0;
    return err_input(err, "pin: at least %d stages, but there can be at most %d", least, n);
}

/* ---- whether they can be obeyed --------------------------------------------------------- */

static int check_number(const struct space *sp, enum pin_field field, int64_t have,
                        const char *what, struct err *err) {
    int64_t pinned = space_pinned(sp, field);
    if (pinned == PIN_FREE || pinned == have)
        return 0;
    err_input(err, "%s: %lld, but the plan is to have %lld", what, (long long)pinned,
              (long long)have);
    return err_prefix(err, "%s", where(sp, field, 0));
}

/* Stages that share groups cannot be pinned yet. */
static int check_schedule(const struct space *sp, struct err *err) {
    int64_t pinned = space_pinned(sp, PIN_schedule);
    if (pinned == PIN_FREE || !schedules_round(1u << pinned))
        return 0;
    err_input(err, "schedule: with pins the search makes no plans of %s",
              schedule_name((enum schedule)pinned));
    return err_prefix(err, "%s", where(sp, PIN_schedule, 0));
}

static int check_dtype(const struct space *sp, struct err *err) {
    int64_t pinned = space_pinned(sp, PIN_dtype);
    if (pinned == PIN_FREE || pinned == sp->p.dtype)
        return 0;
    err_input(err, "dtype: %s, but the plan is to have %s",
              plan_dtype_name((enum dtype)pinned), plan_dtype_name(sp->p.dtype));
    return err_prefix(err, "%s", where(sp, PIN_dtype, 0));
}

static int check_optimizer(const struct space *sp, struct err *err) {
    int64_t pinned = space_pinned(sp, PIN_optimizer);
    if (pinned == PIN_FREE || pinned == sp->p.optimizer)
        return 0;
    err_input(err, "optimizer: %s, but the plan is to have %s",
              optimizer_name((enum optimizer)pinned), optimizer_name(sp->p.optimizer));
    return err_prefix(err, "%s", where(sp, PIN_optimizer, 0));
}

/* A pinned micro-batch becomes the only one. */
static int check_micro_batch(struct space *sp, struct err *err) {
    int64_t pinned = space_pinned(sp, PIN_micro_batch);
    if (pinned == PIN_FREE)
        return 0;
    for (int i = 0; i < sp->p.n_micro; i++)
        if (sp->p.micro[i] == pinned) {
            sp->p.micro += i;
            sp->p.n_micro = 1;
            return 0;
        }
    err_input(err, "micro_batch: %lld is none of those to consider", (long long)pinned);
    return err_prefix(err, "%s", where(sp, PIN_micro_batch, 0));
}

static int check_stages(struct space *sp, struct err *err) {
    int64_t pinned = space_pinned(sp, PIN_stages);
    if (pinned == PIN_FREE)
        return 0;
    if (pinned > sp->max_stages) {
        err_input(err, "stages: %lld, but there can be at most %d", (long long)pinned,
                  sp->max_stages);
        return err_prefix(err, "%s", where(sp, PIN_stages, 0));
    }
    sp->pinned.n_stages = (int)pinned;
    return 0;
}

/* Finds the next pinned mesh behind every op, and checks that there are enough devices
 * for each. */
static int check_meshes(struct space *sp, struct err *err) {
    int n = sp->p.model->n_ops;
    if (!sp->p.pins->meshes.n)
        return 0;
    sp->pinned.meshed = mem_array((size_t)n + 1, sizeof *sp->pinned.meshed);
    sp->pinned.meshed[n] = n;
    for (int i = n - 1; i >= 0; i--) {
        const struct mesh *mesh = pins_mesh(sp->p.pins, i);
        sp->pinned.meshed[i] = mesh ? i : sp->pinned.meshed[i + 1];
        if (!mesh || mesh_devices(mesh) <= sp->p.devices)
            continue;
        err_input(err, "mesh: %d devices, but there are %d", mesh_devices(mesh),
                  sp->p.devices);
        return err_prefix(err, "%s", where(sp, PIN_mesh, i));
    }
    return 0;
}

/* Checks that there are devices for each split of a dim, and that ops laid out on a named
 * axis have a mesh with it. */
static int check_layouts(const struct space *sp, const struct pin *pin, struct err *err) {
    const struct model *m = sp->p.model;
    for (int i = 0; i < pin->n_splits; i++) {
        int parts = pin->splits[i].parts ? pin->splits[i].parts : 2;
        if (parts > sp->p.devices) {
            err_input(err, "%s: %d parts, but there are %d device%s",
                      m->dims[pin->splits[i].dim].name, parts, sp->p.devices,
                      sp->p.devices == 1 ? "" : "s");
            return err_prefix(err, "%s", pin->where);
        }
    }
    for (int op = 0; op < m->n_ops; op++)
        for (int i = 0; i < pin->n_axes && pin->covers[op]; i++) {
            const struct mesh *mesh = pins_mesh(sp->p.pins, op);
            if (mesh && mesh_axis_find(mesh, pin->axes[i].axis) >= 0)
                continue;
            err_input(err, "layout: no mesh with an axis \"%.64s\" is pinned for %s",
                      pin->axes[i].axis, m->ops[op].name);
            return err_prefix(err, "%s", pin->where);
        }
    return 0;
}

/* Checks that an op has a layout on its pinned mesh: two pins may exclude each other. */
static int check_op(const struct space *sp, int op, struct err *err) {
    const struct mesh *mesh = pins_mesh(sp->p.pins, sp->blocks.x.from[op]);
    bool found = !mesh;
    for (int i = 0; i < sp->p.n_micro && !found; i++) {
        struct layout l;
        memset(&l, PLACE_NONE, sizeof l);
        space_obey(sp, op, mesh, mesh, sp->p.micro[i], &l);
        found = space_pins_allow(sp, op, mesh, mesh, &l);
    }
    if (found)
        return 0;
    err_input(err, "mesh: no layout of %s on it does what is pinned",
              sp->blocks.x.model->ops[op].name);
    return err_prefix(err, "%s", where(sp, PIN_mesh, sp->blocks.x.from[op]));
}

/* Checks what concerns the whole plan first, then stages, then single ops. */
int space_check_pins(struct space *sp, struct err *err) {
    const struct pins *p = sp->p.pins;
    if (!p)
        return 0;
    if (check_number(sp, PIN_batch, sp->p.batch, "batch", err) < 0 ||
        check_optimizer(sp, err) < 0 || check_dtype(sp, err) < 0 ||
        check_schedule(sp, err) < 0 || check_micro_batch(sp, err) < 0 ||
        check_stages(sp, err) < 0 || check_meshes(sp, err) < 0 || find_cuts(sp, err) < 0 ||
        check_cuts(sp, err) < 0)
        return -1;
    for (int64_t i = 0; i < p->list.n; i++)
        if (p->list.p[i].covers && check_layouts(sp, &p->list.p[i], err) < 0)
            return -1;
    for (int op = 0; op < sp->blocks.x.model->n_ops; op++)
        if (check_op(sp, op, err) < 0)
            return -1;
    return 0;
}

void space_forget_pins(struct space *sp) {
    free(sp->pinned.cut);
    free(sp->pinned.until);
    free(sp->pinned.meshed);
}
