/* pin.h - pins: what is fixed of a plan before it is made (weft-plan(5)).
 *
 * A model, a plan and a partial plan may fix decisions: of ops that a pattern covers, or of the
 * plan as a whole. All pins hold at once; a plan that does not obey one is refused, and the search
 * proposes none such. Pins say nothing of what is computed: a model with other pins is the same
 * model.
 *
 *     struct pins *pins = pins_of_model(m, "my.json", &err);
 *     if (pins && pins_add(pins, doc, "part.json", true, &err) == 0 &&
 *         pins_check(pins, plan, &err) == 0)
 *         use(plan);
 *     pins_destroy(pins);
 */
#ifndef WEFT_PIN_H
#define WEFT_PIN_H

#include "plan/plan.h"

/* What a pin may fix as one value: a key of the plan, or of the stage that an op is in. */
#define PIN_FIELDS(X)                                                                      \
    X(batch)                                                                               \
    X(micro_batch)                                                                         \
    X(schedule)                                                                            \
    X(optimizer)                                                                           \
    X(dtype)                                                                               \
    X(reduce)                                                                              \
    X(overlap)                                                                             \
    X(stages) /* how many */                                                               \
    X(stage)  /* from here on of an op: the stage that it is in, */                        \
    X(group)                                                                               \
    X(mesh) /* index into the meshes of the pins */                                        \
    X(zero)                                                                                \
    X(recompute)                                                                           \
    X(regather)                                                                            \
    X(offload) /* a set of OFFLOADS */                                                     \
    X(ring)    /* does a dim go round? Part of the layout */
enum pin_field {
#define X(id) PIN_##id,
    PIN_FIELDS(X)
#undef X
        PIN_FIELD_COUNT
};
enum { PIN_FREE = -1 };

/* A dim in so many parts; 0: more than one. */
struct pin_split {
    int dim, parts;
};

/* On this mesh axis the first of these dims that the op can be split on; none: it is not split. */
struct pin_axis {
    const char *axis;
    int n, *dims;
};

/* One object of "pin", or what is given of one stage of a partial plan. */
struct pin {
    const char *where;              /* begins messages: `my.json: pin "layer.*.attn"` */
    bool *covers;                   /* [n_ops]; NULL: it is of the plan as a whole */
    int64_t value[PIN_FIELD_COUNT]; /* PIN_FREE where it says nothing */
    int8_t *each[PIN_FIELD_COUNT];  /* [n_ops] the same where ops differ, or NULL */
    struct layout *layouts;         /* [n_ops] all axes of the pinned mesh, or NULL */
    bool begins;                    /* the first of the ops begins a stage */
    bool one;                       /* they are in one stage */
    int n_splits, n_axes;
    struct pin_split *splits;
    struct pin_axis *axes;
};

struct pins {
    struct arena arena;
    const struct model *model; /* borrowed */
    ARR(struct pin) list;
    ARR(struct mesh) meshes; /* each once */
    json_t *own;             /* "pin" of the plan, which is written with it; or NULL */
};

/* The pins of the model's file, which messages call `name`; without any an empty list. NULL on
 * failure: a pattern that covers no op, parts that do not divide a dim, pins that contradict each
 * other. */
struct pins *pins_of_model(const struct model *m, const char *name, struct err *err);
/* Adds "pin" of a plan; of a partial plan (weft-search --pin) all else that it says as well.
 * `name`: its file, or NULL where the caller says it. */
int pins_add(struct pins *p, const json_t *plan, const char *name, bool partial,
             struct err *err);
void pins_destroy(struct pins *p);

/* What this one says; PIN_FREE: nothing. */
int64_t pin_value(const struct pin *pin, enum pin_field field, int op);
/* What is pinned of an op, or of the plan (op is ignored); PIN_FREE: nothing. */
int64_t pins_value(const struct pins *p, enum pin_field field, int op);
/* The mesh of the stage that the op is in, or NULL; equal meshes are one pointer. */
const struct mesh *pins_mesh(const struct pins *p, int op);
/* Equal for ops of which the same is pinned, but for where stages begin. */
uint64_t pins_mark(const struct pins *p, int op);

/* May the op have this layout, on this mesh? */
int pins_allow(const struct pins *p, int op, const struct mesh *mesh,
               const struct layout *l, struct err *err);
/* Does the plan obey? The message names the pin and what the plan has instead. */
int pins_check(const struct pins *p, const struct plan *plan, struct err *err);

#endif
