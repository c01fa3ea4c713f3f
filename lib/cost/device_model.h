/* device_model.h - a kind of device as curves (weft-device(5)).
 *
 * A device model is a datasheet and a curve for each form (curve.h); instructions that were
 * measured have curves of their own. So it answers for every instruction, and where nothing was
 * measured on the device itself, curves of a like device say what fraction of the datasheet is
 * reached.
 *
 *     struct device_model *m = device_model_read("h100", &err);      // or a file
 *     const struct device_curve *c = device_model_curve(m, I_linear, DTYPE_bf16);
 *     double us = curve_us(&m->chip, &c->curve, &shape);
 *     device_model_destroy(m);
 */
#ifndef WEFT_DEVICE_MODEL_H
#define WEFT_DEVICE_MODEL_H

#include "common/json.h"
#include "cost/curve.h"
#include "cost/link_curve.h"

enum { CURVE_SOURCE_LENGTH = 96 };

struct device_curve {
    struct curve curve;
    bool given;                     /* in the file; otherwise the form's curve holds */
    char from[CURVE_SOURCE_LENGTH]; /* what it rests on, in words */
};

struct device_model {
    char name[CLUSTER_MAX_NAME];
    char *about; /* or NULL */
    struct chip chip;
    struct device_curve forms[CURVE_FORM_COUNT];
    struct device_curve ops[OPCODE_COUNT][CLUSTER_DTYPES];
    struct link_curve links[2]; /* inside a node, and where some hop leaves it */
    bool has_links;
    char links_from[2][CURVE_SOURCE_LENGTH];
    json_t *node; /* what its usual node looks like, for weft-cluster(5); or NULL */
};

/* Reads a shipped model by name, or a file (a '/' in it, or .json at its end). "h100-80gb"
 * is h100 unless the longer name is shipped. NULL with a message; exit status 3. */
struct device_model *device_model_read(const char *ref, struct err *err);
struct device_model *device_model_from_json(const json_t *doc, struct err *err);
void device_model_destroy(struct device_model *m); /* NULL is fine */
/* A new reference. */
json_t *device_model_to_json(const struct device_model *m);

/* A model that knows only these numbers; its curves are guesses. */
struct device_model *device_model_plain(const char *name, const struct chip *chip);

/* The instruction's curve, else that in the other type of 16 bits, else, if it only moves
 * memory, in any type, else its form's. */
const struct device_curve *device_model_curve(const struct device_model *m,
                                              enum opcode code, enum dtype dtype);

#endif
