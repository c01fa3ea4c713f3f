/* Stages that obey the pins: cuts and devices as near as possible to those of a
 * candidate. */
#include "search/space/space.h"

#include <stdlib.h>

static int least_way(const int64_t *way, int first, int end) {
    int least = first;
    for (int i = first; i < end; i++)
        least = way[i] < way[least] ? i : least;
    return least;
}

/* Returns whether the op can be on this many devices: they make up its mesh and the parts
 * of its dims. */
static bool suits(const struct space *sp, int op, int devices) {
    const struct pins *p = sp->p.pins;
    const struct mesh *mesh = pins_mesh(p, op);
    if (mesh && mesh_devices(mesh) != devices)
        return false;
    for (int64_t i = 0; i < p->list.n; i++) {
        const struct pin *pin = &p->list.p[i];
        for (int k = 0; k < pin->n_splits && pin->covers[op]; k++) {
            const struct pin_split *split = &pin->splits[k];
            if (layout_choose(&p->model->ops[op].space, &split->dim, 1) != PLACE_NONE &&
                (split->parts ? devices % split->parts : devices == 1))
                return false;
        }
    }
    return true;
}

/* Finds where a stage on this many devices has to end, by the op with which it begins:
 * [n_ops + 1]. The caller frees it. */
static int *ends_on(const struct space *sp, int devices) {
    int n_ops = sp->p.model->n_ops;
    int *ends = mem_array((size_t)n_ops + 1, sizeof *ends);
    ends[n_ops] = n_ops;
    for (int i = n_ops - 1; i >= 0; i--) {
        int next = ends[i + 1] > i + 1 || i + 1 == n_ops ? ends[i + 1] : i + 1;
        ends[i] = !suits(sp, i, devices)       ? i
                  : next < sp->pinned.until[i] ? next
                                               : sp->pinned.until[i];
    }
    return ends;
}

static const int64_t NO_WAY = INT64_MAX / 2;

/* A dynamic program from the candidate's stages to similar ones that obey: for each op
 * that may begin the k-th stage, and each number of devices used before it, the least
 * change of cuts and devices up to there. */
struct placing {
    const struct space *sp;
    struct candidate *c;
    bool move_devices;   /* otherwise each stage keeps its number of devices */
    int width, row;      /* how many numbers of used devices, and first ops, there are */
    int64_t *way, *next; /* [width][row] least changes so far */
    struct step {
        int from, devices;
    } * steps;  /* [stages][width][row] */
    int **ends; /* [devices + 1], or NULL */
};

/* Extends all pipelines of k - 1 stages by a stage on `devices` devices. The least
 * change in front moves on only when the stage can no longer begin there, so one pass
 * over the ops is enough. */
static void step_to(struct placing *p, int k, int used, int devices) {
    const struct pinned *pin = &p->sp->pinned;
    int n_ops = p->row - 1, best = 0, all = p->sp->p.devices;
    int after = p->move_devices ? used + devices : 0;
    const struct search_stage *st = &p->c->stages[k - 1];
    const int64_t *way = p->way + (int64_t)used * p->row;
    int64_t *next = p->next + (int64_t)after * p->row;
    struct step *steps = p->steps + ((int64_t)k * p->width + after) * p->row;
    int64_t moved = llabs((long long)devices - st->devices) * (1 + n_ops / all);
    if (!p->ends[devices])
        p->ends[devices] = ends_on(p->sp, devices);
    const int *ends = p->ends[devices];
    for (int op = 1; op <= n_ops; op++) {
        best = way[op - 1] < way[best] ? op - 1 : best;
        while (best < op && ends[best] < op)
            best = least_way(way, best + 1, op);
        bool may = k == p->c->n_stages
                       ? op == n_ops
                       : !pin->whole[op] && op >= pin->least[k] && op <= pin->most[k];
        if (!may || best == op || way[best] >= NO_WAY)
            continue;
        int64_t cost = way[best] + moved + llabs((long long)op - st->end);
        if (cost < next[op]) {
            next[op] = cost;
            steps[op] = (struct step){best, devices};
        }
    }
}

static void step_all(struct placing *p, int k) {
    int all = p->sp->p.devices, behind = p->c->n_stages - k;
    for (int64_t i = 0; i < (int64_t)p->width * p->row; i++)
        p->next[i] = NO_WAY;
    if (!p->move_devices)
        step_to(p, k, 0, p->c->stages[k - 1].devices);
    for (int used = 0; used <= all && p->move_devices; used++)
        for (int d = behind ? 1 : all - used; d > 0 && d <= all - used - behind; d++)
            step_to(p, k, used, d);
    int64_t *way = p->way;
    p->way = p->next;
    p->next = way;
}

static void take_steps(struct placing *p) {
    int used = p->width - 1, op = p->row - 1;
    for (int k = p->c->n_stages; k > 0; k--) {
        struct step step = p->steps[((int64_t)k * p->width + used) * p->row + op];
        struct search_stage *st = &p->c->stages[k - 1];
        st->end = op;
        st->first = op = step.from;
        st->devices = step.devices;
        used -= p->move_devices ? step.devices : 0;
    }
}

/* With devices that may move, the tables have devices x ops x stages cells; where
 * these take more than 64 MB, the stages keep their devices. */
static bool place(const struct space *sp, struct candidate *c, bool move_devices) {
    enum { MOST_STEPS = 1 << 22 };
    struct placing p = {.sp = sp, .c = c, .move_devices = move_devices};
    p.width = move_devices ? sp->p.devices + 1 : 1;
    p.row = sp->p.model->n_ops + 1;
    size_t cells = (size_t)p.width * (size_t)p.row, n = (size_t)c->n_stages + 1;
    if (move_devices && cells * n > MOST_STEPS)
        return false;
    p.way = mem_array(cells, sizeof *p.way);
    p.next = mem_array(cells, sizeof *p.next);
    p.steps = mem_array(cells * n, sizeof *p.steps);
    p.ends = mem_array((size_t)sp->p.devices + 1, sizeof *p.ends);
    for (size_t i = 1; i < cells; i++)
        p.way[i] = NO_WAY;
    for (int k = 1; k <= c->n_stages; k++)
        step_all(&p, k);
    bool found = p.way[cells - 1] < NO_WAY;
    if (found)
        take_steps(&p);
    for (int d = 0; d <= sp->p.devices; d++)
        free(p.ends[d]);
    free(p.ends);
    free(p.steps);
    free(p.next);
    free(p.way);
    return found;
}

bool space_place_stages(const struct space *sp, struct candidate *c) {
    return !sp->p.pins || (space_may_have_stages(sp, c->n_stages) &&
                           (place(sp, c, false) || place(sp, c, true)));
}
