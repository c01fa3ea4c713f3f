/* weights.h - what a model's parameters are called, and how they lie, in other programs' files.
 *
 * The section "weights" of weft-model(5) says it: patterns of names, and the dims of the tensor
 * in the file. A model without the section has its own names and dims there.
 *
 *     "layer.*.q.weight": {"name": "transformer.h.*.attn.c_attn.weight",
 *                          "dims": ["hidden", "0/3 heads kv"]}
 *
 * A parameter may be a part of a tensor (of three, above), and its dims may stand in another
 * order, several of them as one; one of them may stand in the name ("experts.{experts}.w1").
 *
 *     struct weights *w = weights_of(m, &err);
 *     struct weight_file *f = w ? weight_file_open(w, "gpt2/", &err) : NULL;
 *     weight_file_read(f, param, &box, out);
 *     weight_file_close(f);
 *     weights_destroy(w);
 */
#ifndef WEFT_WEIGHTS_H
#define WEFT_WEIGHTS_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/stset.h"
#include "model/model.h"

/* How a parameter lies in its tensor, or in one for each index of the dim `spread`. */
struct weight_form {
    int spread;           /* dim of the parameter that stands in the name, or -1 */
    int *tensor;          /* by index of `spread`; else one */
    struct st_view whole; /* of the parameter, but for `spread`, which has size 1 */
};

/* A tensor of a file. */
struct weight_tensor {
    const char *name;
    int dims;
    int64_t shape[ST_DIMS];
    int n_parts, first_part; /* in weights.parts */
};
/* What a tensor is made of: all of a parameter, or what it has at one index of `spread`. */
struct weight_part {
    int tensor, param;
    int64_t index;
};

struct weights {
    struct arena arena;
    const struct model *model; /* borrowed */
    struct weight_form *forms; /* by parameter */
    int n_tensors, n_parts;
    struct weight_tensor *tensors; /* by name */
    struct weight_part *parts;     /* tensor by tensor */
    const char *prefix;            /* of names, which a file may leave out; "" if none */
    const json_t *ignore;          /* patterns of tensors that are no parameters, or NULL */
};

/* Every parameter in one tensor or its share of one, every tensor full; but for those that no file has, and those of
 * adapters, which have files of their own: of these this says nothing (their forms have no tensor). NULL on failure. */
struct weights *weights_of(const struct model *m, struct err *err);
/* Of the parameters of adapters alone ("adapter", lora.h). NULL on failure, or where there are none. */
struct weights *weights_of_adapter(const struct model *m, struct err *err);
void weights_destroy(struct weights *w);

/* Is a tensor of this name, with or without the prefix, known to be no parameter? */
bool weights_ignores(const struct weights *w, const char *name);

/* The document that tells another program what the model is ("config": its name and sizes), with
 * the sizes of this one put in; NULL without an error if the model has none. New reference. */
json_t *weights_config(struct model *m, struct err *err);
/* The same of PEFT's adapter_config.json ("adapter_config"). */
json_t *weights_adapter_config(struct model *m, struct err *err);
/* What that program takes for keys that such a document lacks ("absent"); {} if nothing is said. New
 * reference, NULL on failure. */
json_t *weights_absent(struct model *m, struct err *err);

/* Reads the section "weights" of a document for form alone. Returns 0 or -1. */
int weights_check(const json_t *section, struct err *err);

/* ---- weight_file.c: reading ---------------------------------------------------------------- */

struct weight_file;

/* Opens what st_set_open opens and compares it with the model: no tensor may miss, have another
 * shape or a type that does not widen to fp32, or be left over. NULL on failure. w is borrowed. */
struct weight_file *weight_file_open(const struct weights *w, const char *path,
                                     struct err *err);
void weight_file_close(struct weight_file *f);
/* Equal means the same tensors, as far as headers tell. */
uint64_t weight_file_hash(const struct weight_file *f);
/* Does it hold the parameter? */
bool weight_file_has(const struct weight_file *f, int param);
/* A box of a parameter that it holds, dense. */
void weight_file_read(const struct weight_file *f, int param,
                      const struct checkpoint_box *box, float *out);

#endif
