/* Aceso's formulas for time and memory. */
#include "aceso/aceso_cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct aceso_config *aceso_config_create(int n_ops, int n_stages) {
    struct aceso_config *c = mem_alloc(sizeof *c);
    c->n_ops = n_ops;
    c->n_stages = n_stages;
    c->first = mem_array((size_t)n_stages + 1, sizeof *c->first);
    c->devices = mem_array((size_t)n_stages, sizeof *c->devices);
    c->layout = mem_array((size_t)n_ops, sizeof *c->layout);
    c->recompute = mem_array((size_t)n_ops, sizeof *c->recompute);
    return c;
}

void aceso_config_destroy(struct aceso_config *c) {
    if (!c)
        return;
    free(c->first);
    free(c->devices);
    free(c->layout);
    free(c->recompute);
    free(c);
}

/* ---- conversions ---------------------------------------------------------------------------- */

/* How many devices hold each part of a tensor, and in how many parts each dim is split. */
struct spread {
    int replicas, dims[3];
};

static struct spread spread_of(enum aceso_spec spec, struct aceso_layout l) {
    switch (spec) {
    case SPEC_hidden: return (struct spread){1, {1, l.dp, l.tp}};
    case SPEC_heads: return (struct spread){1, {l.dp, l.tp, 1}};
    case SPEC_batch: return (struct spread){l.tp, {l.dp, 1, 1}};
    case SPEC_sequence:
    case SPEC_any: break;
    }
    return (struct spread){l.tp, {1, l.dp, 1}};
}

/* Finds the collectives, forward and backward, that turn one spread into the other, and
 * among how many devices. Returns false if Aceso has none. */
static bool find_collectives(const struct spread *from, const struct spread *to,
                             enum aceso_collective *forward,
                             enum aceso_collective *backward, int *devices) {
    for (int d = 0; d < 3 && from->replicas > to->replicas; d++)
        if (from->dims[d] < to->dims[d]) {
            *forward = ACESO_split;
            *backward = ACESO_all_gather;
            *devices = from->replicas / to->replicas;
            return true;
        }
    for (int d = 0; d < 3 && from->replicas <= to->replicas; d++) {
        if (from->dims[d] <= to->dims[d])
            continue;
        *devices = from->dims[d] / to->dims[d];
        if (from->replicas < to->replicas) {
            *forward = ACESO_all_gather;
            *backward = ACESO_split;
            return true;
        }
        *forward = *backward = ACESO_all_to_all;
        for (int e = 0; e < 3; e++)
            if (e != d && from->dims[e] < to->dims[e])
                return true;
    }
    return false;
}

double aceso_convert_us(const struct aceso_model *m, int i, struct aceso_layout before,
                        struct aceso_layout l, double mib) {
    enum aceso_spec out = m->ops[m->op_of[i - 1]].out[before.algorithm];
    enum aceso_spec in = m->ops[m->op_of[i]].in[l.algorithm];
    enum aceso_collective forward, backward;
    int devices;
    if (!m->converts)
        return before.tp == l.tp && before.dp == l.dp ? 0 : INFINITY;
    if (out == SPEC_any || in == SPEC_any)
        return 0;
    struct spread from = spread_of(out, before), to = spread_of(in, l);
    if (!memcmp(&from, &to, sizeof from))
        return 0;
    if (!find_collectives(&from, &to, &forward, &backward, &devices))
        return INFINITY;
    return aceso_collective_us(&m->tables, forward, devices, mib) +
           aceso_collective_us(&m->tables, backward, devices, mib);
}

/* ---- recomputation -------------------------------------------------------------------------- */

bool aceso_drops_saved(const struct aceso_model *m, int i) {
    return m->ops[m->op_of[i]].corrected || !m->ops[m->op_of[i + 1]].breaks;
}

bool aceso_run_ends(const struct aceso_model *m, int i) {
    return !m->ops[m->op_of[i]].corrected && m->ops[m->op_of[i + 1]].breaks;
}

/* Adds up what the marks save, and finds the largest run. A run up to the stage's end
 * counts unless the stage's last op but one is corrected, an oddity of the artifact. */
static void add_recompute(const struct aceso_model *m, const struct aceso_config *c,
                          int first, int end, const double *kept, double *saved,
                          double *peak) {
    double run = 0;
    for (int i = first; i + 1 < end; i++) {
        if (!c->recompute[i] || !c->recompute[i + 1]) {
            *peak = fmax(*peak, run);
            run = 0;
            continue;
        }
        run += kept[i - first];
        *saved += aceso_drops_saved(m, i) ? kept[i - first] : 0;
        if (aceso_run_ends(m, i) || (i + 2 == end && !m->ops[m->op_of[i]].corrected)) {
            *peak = fmax(*peak, run);
            run = 0;
        }
    }
}

/* ---- a stage -------------------------------------------------------------------------------- */

static const struct aceso_cell *cell_of(const struct aceso_model *m,
                                        const struct aceso_config *c, int i) {
    struct aceso_layout l = c->layout[i];
    if (c->micro_batch % l.dp)
        return NULL;
    return aceso_cell_find(&m->tables, m->op_of[i], c->micro_batch / l.dp, l.tp,
                           l.algorithm);
}

/* Adds the messages in and out. Aceso looks the outgoing one up with the first op's tp. */
static bool add_messages(const struct aceso_model *m, const struct aceso_config *c, int s,
                         struct aceso_stage_cost *out, double *input) {
    int first = c->first[s], last = c->first[s + 1] - 1, before = 0;
    struct aceso_layout l = c->layout[last];
    const struct aceso_cell *in = cell_of(m, c, first);
    const struct aceso_cell *to =
        aceso_cell_find(&m->tables, m->op_of[last], c->micro_batch / l.dp,
                        c->layout[first].tp, l.algorithm);
    for (int k = 0; k < s; k++)
        before += c->devices[k];
    int behind = before + c->devices[s];
    if (!in || !to)
        return false;
    *input = in->input;
    out->message_us =
        aceso_message_us(&m->tables, in->input, before && before % c->per_node == 0) +
        aceso_message_us(&m->tables, to->output, behind % c->per_node == 0);
    return true;
}

bool aceso_cost_stage(const struct aceso_model *m, const struct aceso_config *c, int s,
                      struct aceso_stage_cost *out) {
    int first = c->first[s], end = c->first[s + 1];
    double weights = 0, activations = 0, forward = 0, backward = 0, input = 0;
    double saved = 0, peak = 0, in_flight = c->n_stages - s;
    double *kept = mem_array((size_t)(end - first), sizeof *kept);
    bool good = true;
    *out = (struct aceso_stage_cost){0};
    for (int i = first; i < end && good; i++) {
        const struct aceso_cell *cell = cell_of(m, c, i);
        good = cell != NULL;
        if (!good)
            break;
        out->us += cell->forward + cell->backward;
        out->recompute_us += c->recompute[i] ? cell->forward : 0;
        if (i > first)
            out->convert_us +=
                aceso_convert_us(m, i, c->layout[i - 1], c->layout[i], cell->input);
        weights += cell->weights;
        kept[i - first] = m->ops[m->op_of[i]].counts * cell->activations;
        activations += kept[i - first];
        if (i + 1 < end) { /* Aceso leaves the last op out */
            forward = fmax(forward, cell->reserved_forward);
            backward = fmax(backward, cell->reserved_backward);
        }
    }
    good = good && add_messages(m, c, s, out, &input);
    add_recompute(m, c, first, end, kept, &saved, &peak);
    free(kept);
    out->us += out->recompute_us + out->convert_us + out->message_us;
    out->mib = m->state * weights + (input + activations - saved) * in_flight + peak +
               fmax(forward + backward, weights);
    return good && isfinite(out->us);
}

bool aceso_cost_step(const struct aceso_model *m, const struct aceso_config *c,
                     struct aceso_step_cost *out) {
    double slowest = 0;
    *out = (struct aceso_step_cost){0};
    for (int s = 0; s < c->n_stages; s++) {
        struct aceso_stage_cost cost;
        if (!aceso_cost_stage(m, c, s, &cost))
            return false;
        out->us += cost.us;
        if (cost.us > slowest) {
            slowest = cost.us;
            out->slowest = s;
        }
        if (cost.mib > out->mib) {
            out->mib = cost.mib;
            out->fullest = s;
        }
    }
    out->us += (double)(c->batch / c->micro_batch - 1) * slowest;
    return true;
}
