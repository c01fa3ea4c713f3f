/* Samples as the files have them: a function of the seed, the split and the number of the sample. */
#include "data/data_impl.h"
#include "data/shuffle.h"

#include "common/rng.h"

#include <string.h>

/* Number within the split of the sample-th sample that is asked for. */
int64_t samples_number(const struct data *d, enum data_split split, int64_t sample) {
    int64_t size = d->part[split].size, i = sample % size;
    if (split == DATA_VALID)
        return i;
    if (d->balance)
        return balance_number(d, sample / size, i);
    return shuffle_at(d->spec.seed, (uint64_t)(sample / size), size, i);
}

/* Where the windows of an epoch begin. The windows leave some tokens over; moving their start within
 * that lets training see all tokens in the course of the epochs. */
static int64_t window_offset(const struct data *d, enum data_split split, int64_t sample) {
    const struct part *p = &d->part[split];
    int64_t slack = p->items - d->window.shared - p->size * d->window.tokens;
    if (split == DATA_VALID || slack == 0)
        return 0;
    uint64_t draw =
        rng_bits(d->spec.seed, 0x6f6666u /* "off" */, (uint64_t)(sample / p->size));
    return (int64_t)(draw % (uint64_t)(slack + 1));
}

/* Where the window of a sample begins in the stream. */
static int64_t window_begin(const struct data *d, enum data_split split, int64_t sample,
                            int64_t number) {
    return d->part[split].first + window_offset(d, split, sample) +
           number * d->window.tokens;
}

/* Reads tokens [from, from+count) of the window of a sample, with their masks. */
static int read_marked(const struct data *d, enum data_split split, int64_t sample,
                       int64_t from, int64_t count, int32_t *out, struct err *err) {
    int64_t number = samples_number(d, split, sample);
    if (d->synthetic) {
        uint64_t stream = 2 * (uint64_t)number + (split == DATA_VALID);
        synthetic_tokens(&d->syn, stream, from, count, out);
        return 0;
    }
    int64_t begin = window_begin(d, split, sample, number);
    return token_stream_read(&d->part[split].store->tokens, begin + from, count, out, err);
}

/* The ids alone. */
static void unmark(int64_t count, int32_t *out) {
    for (int64_t i = 0; i < count; i++)
        out[i] &= ~TOKEN_MASK;
}

static int read_window(const struct data *d, enum data_split split, int64_t sample,
                       int64_t from, int64_t count, int32_t *out, struct err *err) {
    if (read_marked(d, split, sample, from, count, out, err) < 0)
        return -1;
    unmark(count, out);
    return 0;
}

/* Those that are masked do not count. */
static void ignore_masked(int64_t count, int32_t *targets) {
    for (int64_t i = 0; i < count; i++)
        targets[i] = targets[i] < 0 ? DATA_IGNORED : targets[i];
}

int samples_tokens(const struct data *data, enum data_split split, int64_t sample,
                   int64_t first, int64_t count, int32_t *tokens, int32_t *targets,
                   struct err *err) {
    if (count <= 0)
        return 0;
    if (tokens && read_marked(data, split, sample, first, count, tokens, err) < 0)
        return -1;
    int64_t known = tokens && targets ? count - 1 : 0; /* the same tokens, one further */
    if (known)
        memcpy(targets, tokens + 1, (size_t)known * sizeof *targets);
    if (tokens)
        unmark(count, tokens);
    if (!targets)
        return 0;
    if (read_marked(data, split, sample, first + 1 + known, count - known, targets + known,
                    err) < 0)
        return -1;
    ignore_masked(count, targets);
    return 0;
}

/* ---- pairs --------------------------------------------------------------------------- */

/* A sample whose window is read while spans are left out. */
struct corrupted {
    const struct data *data;
    enum data_split split;
    int64_t sample;
};

static int read_corrupted(const void *ctx, int64_t first, int64_t count, int32_t *out,
                          struct err *err) {
    const struct corrupted *c = ctx;
    return read_window(c->data, c->split, c->sample, first, count, out, err);
}

/* Spans are drawn anew in every epoch of training. */
static uint64_t spans_key(const struct data *d, enum data_split split, int64_t sample) {
    uint64_t stream = 0x7370616eu /* "span" */;
    return rng_bits(d->spec.seed, stream + (split == DATA_VALID), (uint64_t)sample);
}

static int64_t shorter(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Where the sequence of a sample lies in its file. */
static int find_sequence(const struct data *d, enum data_split split, int64_t sample,
                         const struct indexed *set, struct token_run *run,
                         struct err *err) {
    int64_t number = samples_number(d, split, sample);
    return indexed_find(set, d->part[split].first + number, run, err);
}

/* Positions [first, first+count) of a sample's input or target, `behind` beyond its end. */
struct places {
    bool target;
    int64_t first, count;
    int32_t behind;
};

/* Sets *length to what there is of the input or target within the model's sequence. */
static int read_sequence(const struct data *d, enum data_split split, int64_t sample,
                         const struct places *p, int32_t *out, int64_t *length,
                         struct err *err) {
    const bool target = p->target;
    int64_t seq = target ? d->spec.target_seq : d->spec.seq;
    const struct store *store = d->part[split].store;
    struct token_run run;
    if (d->spans.window) {
        *length = target ? d->spans.target : d->spans.input;
    } else {
        const struct indexed *set = target ? &store->targets : &store->inputs;
        if (find_sequence(d, split, sample, set, &run, err) < 0)
            return -1;
        *length = shorter(run.length, seq);
    }
    int64_t there = shorter(p->count, *length - p->first);
    for (int64_t i = there > 0 ? there : 0; i < p->count; i++)
        out[i] = p->behind;
    if (there <= 0)
        return 0;
    if (!d->spans.window)
        return token_file_read(target ? &store->targets.tokens : &store->inputs.tokens,
                               run.first + p->first, there, out, err);
    struct corrupted c = {d, split, sample};
    const struct spans_part part = {spans_key(d, split, sample), target, p->first, there};
    return spans_read(&d->spans, &part, read_corrupted, &c, out, err);
}

int samples_input(const struct data *data, enum data_split split, int64_t sample,
                  int64_t first, int64_t count, int32_t *input, struct err *err) {
    int64_t length;
    const struct places p = {false, first, count, (int32_t)data->spec.ids.pad};
    return read_sequence(data, split, sample, &p, input, &length, err);
}

int samples_input_length(const struct data *data, enum data_split split, int64_t sample,
                         int32_t *length, struct err *err) {
    int64_t n;
    if (read_sequence(data, split, sample, &(struct places){0}, NULL, &n, err) < 0)
        return -1;
    *length = (int32_t)n;
    return 0;
}

int samples_target(const struct data *data, enum data_split split, int64_t sample,
                   int64_t first, int64_t count, bool shifted, int32_t *target,
                   struct err *err) {
    int64_t length;
    const struct data_ids *ids = &data->spec.ids;
    if (!shifted)
        return read_sequence(data, split, sample,
                             &(struct places){true, first, count, DATA_IGNORED}, target,
                             &length, err);
    int64_t before = first == 0 && count > 0; /* no token stands before the first */
    if (before)
        target[0] = (int32_t)ids->start;
    const struct places p = {true, first + before - 1, count - before, (int32_t)ids->pad};
    return read_sequence(data, split, sample, &p, target + before, &length, err);
}

/* ---- images -------------------------------------------------------------------------- */

/* Bytes of an image in a file, and its label; either may be NULL. */
static int read_image(const struct data *data, enum data_split split, int64_t number,
                      int64_t first, int64_t count, unsigned char *bytes, int32_t *label,
                      struct err *err) {
    const struct part *p = &data->part[split];
    if (p->store->kind == STORE_CIFAR)
        return cifar_read(&p->store->cifar, p->first + number, first, count, bytes, label,
                          err);
    return image_set_read(&p->store->images, p->first + number, first, count, bytes, label,
                          err);
}

int samples_image(const struct data *data, enum data_split split, int64_t sample,
                  int64_t first, int64_t count, float *values, int32_t *label,
                  struct err *err) {
    enum { CHUNK = 4096 };
    unsigned char bytes[CHUNK];
    int64_t number = samples_number(data, split, sample);
    if (data->synthetic) {
        uint64_t stream = 2 * (uint64_t)number + (split == DATA_VALID);
        synthetic_image(&data->syn, stream, data->spec.classes, first, count, values,
                        label);
        return 0;
    }
    if (label && read_image(data, split, number, 0, 0, NULL, label, err) < 0)
        return -1;
    for (int64_t at = 0, n; values && at < count; at += n) {
        n = count - at < CHUNK ? count - at : CHUNK;
        if (read_image(data, split, number, first + at, n, bytes, NULL, err) < 0)
            return -1;
        for (int64_t i = 0; i < n; i++)
            values[at + i] = (float)bytes[i] / 255.0f;
    }
    return 0;
}

/* ---- as narrow as the source has them -------------------------------------------------- */

bool samples_ignore(const struct data *data) {
    return !data->synthetic && (data->spec.gaps || store_masks(&data->store[DATA_TRAIN]) ||
                                store_masks(&data->store[DATA_VALID]));
}

enum dtype samples_form(const struct data *data, enum data_split split) {
    const bool images = data->spec.kind == DATA_IMAGES;
    if (data->synthetic)
        return images ? DTYPE_f32 : DTYPE_i32;
    const struct store *store = data->part[split].store;
    if (samples_ignore(data) && !images)
        return DTYPE_i32; /* what does not count is below zero */
    return images ? DTYPE_u8
           : store->kind == STORE_STREAM && !data->spans.window
               ? token_stream_form(&store->tokens)
               : DTYPE_i32;
}

int samples_packed(const struct data *data, enum data_split split, int64_t sample,
                   int64_t first, int64_t count, void *out, struct err *err) {
    if (data->synthetic && data->spec.kind == DATA_IMAGES)
        return samples_image(data, split, sample, first, count, out, NULL, err);
    if (data->synthetic)
        return read_window(data, split, sample, first, count, out, err);
    int64_t number = samples_number(data, split, sample);
    if (data->spec.kind == DATA_IMAGES)
        return read_image(data, split, number, first, count, out, NULL, err);
    if (samples_form(data, split) == DTYPE_i32)
        return read_window(data, split, sample, first, count, out, err);
    return token_stream_packed(&data->part[split].store->tokens,
                               window_begin(data, split, sample, number) + first, count,
                               out, err);
}
