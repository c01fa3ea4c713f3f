/* What pins say, all of them together. */
#include "plan/pin_impl.h"

#include "common/rng.h"

#include <stdlib.h>
#include <string.h>

/* ---- values --------------------------------------------------------------------------- */

int64_t pin_value(const struct pin *pin, enum pin_field field, int op) {
    bool whole = field < PIN_stage;
    if (whole != !pin->covers || (!whole && !pin->covers[op]))
        return PIN_FREE;
    return pin->each[field] ? pin->each[field][op] : pin->value[field];
}

int64_t pins_value(const struct pins *p, enum pin_field field, int op) {
    for (int64_t i = 0; i < p->list.n; i++) {
        int64_t value = pin_value(&p->list.p[i], field, op);
        if (value != PIN_FREE)
            return value;
    }
    return PIN_FREE;
}

const struct mesh *pins_mesh(const struct pins *p, int op) {
    int64_t i = pins_value(p, PIN_mesh, op);
    return i == PIN_FREE ? NULL : &p->meshes.p[i];
}

int pins_add_mesh(struct pins *p, const struct mesh *mesh) {
    for (int64_t i = 0; i < p->meshes.n; i++)
        if (!memcmp(&p->meshes.p[i], mesh, sizeof *mesh))
            return (int)i;
    arr_push(&p->meshes, *mesh);
    return (int)p->meshes.n - 1;
}

static uint64_t mix(uint64_t h, int64_t v) {
    return rng_mix(h ^ ((uint64_t)v + 0x9e3779b97f4a7c15u));
}

static uint64_t mark_split(const struct pins *p, const struct pin *pin, int op,
                           uint64_t h) {
    const struct op_space *space = &p->model->ops[op].space;
    for (int i = 0; i < pin->n_splits; i++)
        if (layout_choose(space, &pin->splits[i].dim, 1) != PLACE_NONE)
            h = mix(mix(h, pin->splits[i].dim), pin->splits[i].parts);
    for (int i = 0; i < pin->n_axes; i++) {
        for (const char *c = pin->axes[i].axis; *c; c++)
            h = mix(h, *c);
        h = mix(h, layout_choose(space, pin->axes[i].dims, pin->axes[i].n));
    }
    for (int a = 0; a < MESH_MAX_AXES && pin->layouts; a++)
        h = mix(h, pin->layouts[op].dim[a]);
    return h;
}

uint64_t pins_mark(const struct pins *p, int op) {
    uint64_t h = 1;
    for (enum pin_field f = PIN_mesh; f < PIN_FIELD_COUNT; f++)
        h = mix(h, pins_value(p, f, op));
    for (int64_t i = 0; i < p->list.n; i++)
        if (p->list.p[i].covers && p->list.p[i].covers[op])
            h = mark_split(p, &p->list.p[i], op, h);
    return h;
}

/* ---- making them ---------------------------------------------------------------------- */

struct pin *pins_push(struct pins *p, const char *where, bool *covers) {
    struct pin pin = {.where = where, .covers = covers};
    for (int f = 0; f < PIN_FIELD_COUNT; f++)
        pin.value[f] = PIN_FREE;
    arr_push(&p->list, pin);
    return &arr_last(&p->list);
}

struct pins *pins_of_model(const struct model *m, const char *name, struct err *err) {
    struct pins *p = mem_alloc(sizeof *p);
    const json_t *v = json_object_get(m->doc, "pin");
    p->model = m;
    if (v && (pins_read_object(p, v, name, err) < 0 || pins_agree(p, err) < 0)) {
        pins_destroy(p);
        return NULL;
    }
    return p;
}

int pins_add(struct pins *p, const json_t *plan, const char *name, bool partial,
             struct err *err) {
    json_t *own = json_object_get(plan, "pin");
    if ((partial && pins_read_partial(p, plan, name, err) < 0) ||
        (own && pins_read_object(p, own, name, err) < 0))
        return -1;
    json_decref(p->own);
    p->own = json_incref(own);
    return pins_agree(p, err);
}

void pins_destroy(struct pins *p) {
    if (!p)
        return;
    arr_release(&p->list);
    arr_release(&p->meshes);
    arena_release(&p->arena);
    json_decref(p->own);
    free(p);
}
