/* Device models as a provider: curves instead of one peak.
 *
 * Its bounds are how far off the model's curves were on rows that they were not fitted to.
 */
#include "cost/provider.h"

#include "common/mem.h"
#include "cost/device_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct devices {
    struct cost_provider base;
    int n;
    struct device_model *models[CLUSTER_MAX_GROUPS]; /* NULL: the group names none */
};

static const struct device_model *model_of(const struct cost_provider *p, int group) {
    return ((const struct devices *)p)->models[group];
}

static struct cost_time within(double us, double part) {
    if (us < 0)
        return (struct cost_time){0};
    return (struct cost_time){.us = us,
                              .low_us = us / (1 + part),
                              .high_us = us * (1 + part),
                              .from = COST_MODEL};
}

static struct cost_time devices_op(const struct cost_provider *p,
                                   const struct op_question *q) {
    const struct device_model *m = model_of(p, q->group);
    if (!m || opcode_is_move(q->key->code))
        return (struct cost_time){0};
    const struct device_curve *c = device_model_curve(m, q->key->code, q->key->dtype);
    struct curve_shape s = curve_shape(q->key);
    return within(curve_us(&m->chip, &c->curve, &s), c->curve.within);
}

static struct cost_time over_link(const struct cost_provider *p,
                                  const struct comm_question *q) {
    const struct device_model *m = model_of(p, q->group);
    if (!m || !m->has_links)
        return (struct cost_time){0};
    const struct link_curve *l = &m->links[q->link.cross];
    return within(link_curve_us(l, q->code, q->size, (double)q->bytes, &q->link),
                  l->curve.within);
}

static void devices_destroy(struct cost_provider *p) {
    struct devices *d = (struct devices *)p;
    for (int i = 0; i < d->n; i++)
        device_model_destroy(d->models[i]);
    free(d);
}

static const struct provider_kind devices_kind = {devices_op, over_link, over_link,
                                                  devices_destroy};

struct cost_provider *provider_device(const struct cluster *c, bool *named,
                                      struct err *err) {
    struct devices *d = mem_alloc(sizeof *d);
    d->base.kind = &devices_kind;
    d->n = c->n_groups;
    *named = false;
    for (int i = 0; i < c->n_groups; i++) {
        const char *model = c->groups[i].model;
        if (!*model)
            continue;
        *named = true;
        d->models[i] = device_model_read(model, err);
        if (!d->models[i]) {
            err_prefix(err, "device_model");
            devices_destroy(&d->base);
            return NULL;
        }
        if (!*d->base.device)
            snprintf(d->base.device, sizeof d->base.device, "%s", d->models[i]->name);
    }
    if (*named)
        return &d->base;
    devices_destroy(&d->base);
    return NULL;
}
