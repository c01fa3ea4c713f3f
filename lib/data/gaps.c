/* Samples that cannot be read. Whoever reads any part of one asks for all of it first, so that all ranks
 * leave out the same samples, whichever part is theirs. */
#include "data/data_impl.h"

#include <string.h>

enum { PIECE = 4096 }; /* positions or values at a time */

/* Reads positions [0, n) of a sample in pieces. */
static int try_positions(const struct data *d, int64_t sample, bool target, int64_t n,
                         struct err *err) {
    int32_t piece[PIECE];
    int rc = 0;
    for (int64_t at = 0, m; at < n && rc == 0; at += m) {
        m = n - at < PIECE ? n - at : PIECE;
        if (d->spec.kind == DATA_TOKENS)
            rc = samples_tokens(d, DATA_TRAIN, sample, at, m, piece, NULL, err);
        else if (target)
            rc = samples_target(d, DATA_TRAIN, sample, at, m, false, piece, err);
        else
            rc = samples_input(d, DATA_TRAIN, sample, at, m, piece, err);
    }
    return rc;
}

static int try_image(const struct data *d, int64_t sample, struct err *err) {
    unsigned char piece[PIECE];
    int32_t label;
    int rc = samples_image(d, DATA_TRAIN, sample, 0, 0, NULL, &label, err);
    for (int64_t at = 0, m; at < d->spec.pixels && rc == 0; at += m) {
        m = d->spec.pixels - at < PIECE ? d->spec.pixels - at : PIECE;
        rc = samples_packed(d, DATA_TRAIN, sample, at, m, piece, err);
    }
    return rc;
}

int data_missing(const struct data *data, int64_t sample, struct err *why) {
    const struct data_spec *s = &data->spec;
    if (!data_has_gaps(data))
        return 0;
    if (data->mixture) {
        data = mixture_source(data, DATA_TRAIN, &sample);
        return data_missing(data, sample, why);
    }
    if (s->kind == DATA_IMAGES)
        return try_image(data, sample, why) < 0;
    /* Behind the last input of a window of tokens stands the last target. */
    int64_t n = s->kind == DATA_TOKENS ? s->seq + 1 : s->seq;
    return try_positions(data, sample, false, n, why) < 0 ||
           (s->kind == DATA_PAIRS &&
            try_positions(data, sample, true, s->target_seq, why) < 0);
}

bool data_has_gaps(const struct data *data) {
    return data->spec.gaps && !data->synthetic;
}

bool data_ignores(const struct data *data) {
    return data->mixture ? mixture_has(data, data_ignores) : samples_ignore(data);
}

static bool is_missing(const struct data *d, enum data_split split, int64_t sample) {
    return split == DATA_TRAIN && data_missing(d, sample, NULL);
}

static int fill(int32_t *out, int64_t count, int64_t value) {
    for (int64_t i = 0; out && i < count; i++)
        out[i] = (int32_t)value;
    return 0;
}

/* ---- what data.h declares --------------------------------------------------------------- */

int data_tokens(const struct data *data, enum data_split split, int64_t sample,
                int64_t first, int64_t count, int32_t *tokens, int32_t *targets,
                struct err *err) {
    data = mixture_source(data, split, &sample);
    if (!is_missing(data, split, sample))
        return samples_tokens(data, split, sample, first, count, tokens, targets, err);
    fill(tokens, count, 0);
    return fill(targets, count, DATA_IGNORED);
}

int data_input(const struct data *data, enum data_split split, int64_t sample,
               int64_t first, int64_t count, int32_t *input, struct err *err) {
    data = mixture_source(data, split, &sample);
    if (is_missing(data, split, sample))
        return fill(input, count, data->spec.ids.pad);
    return samples_input(data, split, sample, first, count, input, err);
}

int data_input_length(const struct data *data, enum data_split split, int64_t sample,
                      int32_t *length, struct err *err) {
    data = mixture_source(data, split, &sample);
    if (is_missing(data, split, sample))
        return fill(length, 1, 1); /* attention needs something to look at */
    return samples_input_length(data, split, sample, length, err);
}

int data_target(const struct data *data, enum data_split split, int64_t sample,
                int64_t first, int64_t count, bool shifted, int32_t *target,
                struct err *err) {
    data = mixture_source(data, split, &sample);
    if (is_missing(data, split, sample))
        return fill(target, count, shifted ? data->spec.ids.pad : DATA_IGNORED);
    return samples_target(data, split, sample, first, count, shifted, target, err);
}

int data_image(const struct data *data, enum data_split split, int64_t sample,
               int64_t first, int64_t count, float *values, int32_t *label,
               struct err *err) {
    data = mixture_source(data, split, &sample);
    if (!is_missing(data, split, sample))
        return samples_image(data, split, sample, first, count, values, label, err);
    for (int64_t i = 0; values && i < count; i++)
        values[i] = 0;
    return fill(label, 1, DATA_IGNORED);
}

int data_packed(const struct data *data, enum data_split split, int64_t sample,
                int64_t first, int64_t count, void *out, struct err *err) {
    const struct data *source = mixture_source(data, split, &sample);
    const enum dtype form = data_form(data, split);
    if (form !=
        data_form(source, split)) /* sources of a mixture do not agree: none is packed */
        return form == DTYPE_f32
                   ? data_image(source, split, sample, first, count, out, NULL, err)
                   : data_tokens(source, split, sample, first, count, out, NULL, err);
    if (!is_missing(source, split, sample))
        return samples_packed(source, split, sample, first, count, out, err);
    memset(out, 0, (size_t)(count * dtype_size(form)));
    return 0;
}
