/* From the inputs of a model to the data that it is trained on. */
#include "exec/exec_impl.h"

static enum data_kind data_kind_of(enum data_source source) {
    switch (source) {
    case DATA_TOKEN:
    case DATA_NEXT_TOKEN:
    case DATA_DOCUMENT_START:
    case DATA_DOCUMENT_POSITION: return DATA_TOKENS;
    case DATA_IMAGE:
    case DATA_LABEL: return DATA_IMAGES;
    default: return DATA_PAIRS;
    }
}

/* Inputs of one sequence have one length. */
static int take_seq(const struct model *m, const struct model_tensor *t, int64_t *seq,
                    struct err *err) {
    int64_t size = m->dims[t->shape.dim[1]].size;
    if (*seq && *seq != size)
        return err_input(err,
                         "inputs.%s: %lld positions, another input has %lld of the "
                         "same sequence",
                         t->name, (long long)size, (long long)*seq);
    *seq = size;
    return 0;
}

static int take_image(const struct model *m, const struct model_tensor *t,
                      struct data_spec *spec) {
    struct extents one = model_extents(m, &t->shape, 1);
    spec->pixels = extents_count(&one);
    spec->rank = one.rank - 1;
    for (int d = 0; d < spec->rank; d++)
        spec->dims[d] = one.size[d + 1];
    return 0;
}

static int take_input(const struct model *m, const struct model_tensor *t,
                      struct data_spec *spec, struct err *err) {
    switch (t->source) {
    case DATA_TOKEN:
    case DATA_NEXT_TOKEN:
    case DATA_DOCUMENT_START:
    case DATA_DOCUMENT_POSITION:
    case DATA_INPUT: return take_seq(m, t, &spec->seq, err);
    case DATA_TARGET:
    case DATA_SHIFTED_TARGET: return take_seq(m, t, &spec->target_seq, err);
    case DATA_IMAGE: return take_image(m, t, spec);
    default: return 0;
    }
}

/* What can be left out of a model: the image, for one that learns from labels alone, but not the
 * sequences by which all others are cut. */
static int check_sequences(const struct data_spec *spec, struct err *err) {
    if (spec->kind == DATA_PAIRS && !(spec->seq && spec->target_seq))
        return err_input(err, "inputs: the model reads %s sequence",
                         spec->seq ? "no target" : "no input");
    return 0;
}

int exec_data_spec(const struct model *m, struct data_spec *spec, struct err *err) {
    const struct model_data *d = &m->data;
    const struct model_tensor *first = NULL;
    int64_t classes = model_classes(m);
    spec->vocab = spec->classes = classes;
    spec->seq = spec->target_seq = 0;
    spec->ids = (struct data_ids){d->pad, d->start, d->eos,
                                  d->sentinel < 0 ? classes - 1 : d->sentinel};
    spec->noise = d->noise;
    spec->span = d->span;
    for (int i = 0; i < m->n_tensors; i++) {
        const struct model_tensor *t = &m->tensors[i];
        if (t->producer >= 0)
            continue;
        first = first ? first : t;
        spec->kind = data_kind_of(t->source);
        if (spec->kind != data_kind_of(first->source))
            return err_input(err, "inputs: no data has both \"%s\" and \"%s\"", first->name,
                             t->name);
        if (take_input(m, t, spec, err) < 0)
            return -1;
    }
    return check_sequences(spec, err);
}
