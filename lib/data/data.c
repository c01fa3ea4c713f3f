/* A split is a range of items of a token stream or of an image set. Its samples are
 * windows of the range (tokens) or its items (images); the order of training is a
 * permutation of the samples. Synthetic sources have no items: a sample's number is all
 * they need. */
#include "data/data.h"

#include "common/mem.h"
#include "common/rng.h"
#include "data/idx.h"
#include "data/shuffle.h"
#include "data/synthetic.h"
#include "data/tokens.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    SYNTHETIC_TRAIN = 1 << 16, /* samples of a synthetic epoch */
    SYNTHETIC_VALID = 1 << 10,
};
static const int64_t SIZE_MAX_SANE = INT64_C(1) << 40; /* of seq and pixels */

/* What one of the two sources holds. */
struct store {
    struct token_stream tokens;
    struct image_set images;
};

struct part {
    const struct store *store; /* one of data.store */
    int64_t first;             /* first item in it */
    int64_t items;             /* tokens or images */
    int64_t size;              /* samples */
};

struct data {
    struct data_spec spec; /* sources are dropped after data_open */
    struct data_info info;
    bool synthetic;
    struct synthetic syn;
    struct store store[DATA_SPLITS];
    struct part part[DATA_SPLITS];
};

static bool is_synthetic(const char *source) {
    return source && !strcmp(source, "synthetic");
}

/* ---- opening ----------------------------------------------------------------------- */

static int check_range(const char *what, int64_t v, int64_t max, struct err *err) {
    if (v < 1 || v > max)
        return err_input(err, "%s: expected 1..%lld, got %lld", what, (long long)max,
                         (long long)v);
    return 0;
}

static int check_spec(const struct data_spec *s, struct err *err) {
    if (!s->source || !*s->source)
        return err_usage(err, "no data source is given");
    if (!(s->validation >= 0 && s->validation < 1))
        return err_usage(err, "share of validation data: expected 0 <= share < 1, got %g",
                         s->validation);
    if (s->valid_source && (is_synthetic(s->source) || is_synthetic(s->valid_source)))
        return err_usage(err, "synthetic data makes its own validation split");
    if (s->kind == DATA_TOKENS)
        return check_range("seq", s->seq, SIZE_MAX_SANE, err) < 0 ||
                       check_range("vocab", s->vocab, INT32_MAX, err) < 0
                   ? -1
                   : 0;
    return check_range("pixels", s->pixels, SIZE_MAX_SANE, err) < 0 ||
                   check_range("classes", s->classes, INT32_MAX, err) < 0
               ? -1
               : 0;
}

/* Opens one source and returns the number of its items, or -1. */
static int64_t store_open(struct store *store, const char *source,
                          const struct data_spec *s, struct err *err) {
    if (s->kind == DATA_TOKENS)
        return token_stream_open(&store->tokens, source, s->vocab, err) < 0
                   ? -1
                   : store->tokens.tokens;
    return image_set_open(&store->images, source, s->pixels, s->classes, err) < 0
               ? -1
               : store->images.images.items;
}

static void store_close(struct store *store) {
    token_stream_close(&store->tokens);
    image_set_close(&store->images);
}

/* Samples in a range of items. */
static int64_t samples_in(int64_t items, const struct data_spec *s) {
    if (s->kind == DATA_IMAGES)
        return items;
    return items > s->seq ? (items - 1) / s->seq : 0;
}

/* `used`: of the items those that are for `whose`. */
static int too_short(const char *source, int64_t items, int64_t used, const char *whose,
                     const struct data_spec *s, struct err *err) {
    if (s->kind == DATA_IMAGES)
        return err_input(err, "%s: %lld images leave none for %s", source, (long long)items,
                         whose);
    long long need = s->seq + 1;
    if (used == items)
        return err_input(err,
                         "%s: %lld tokens, one sequence of %lld needs %lld (each "
                         "position and the one that follows)",
                         source, (long long)items, (long long)s->seq, need);
    return err_input(err,
                     "%s: %lld tokens, of which %lld are for %s; one sequence of %lld "
                     "needs %lld",
                     source, (long long)items, (long long)used, whose, (long long)s->seq,
                     need);
}

/* What the source of a split holds, where the split begins and ends in it, and how it is read. */
static int hash_split(struct data *d, const struct data_spec *s, enum data_split split,
                      struct err *err) {
    const struct part *p = &d->part[split];
    int64_t facts[] = {p->first, p->items, p->size,   s->kind,
                       s->seq,   s->vocab, s->pixels, s->classes};
    uint64_t *h = &d->info.hash[split];
    *h = hash_bytes(facts, sizeof facts, d->synthetic ? rng_mix(s->seed) : 0);
    if (!p->store || !p->size)
        return 0;
    return s->kind == DATA_TOKENS ? token_stream_hash(&p->store->tokens, h, err)
                                  : image_set_hash(&p->store->images, h, err);
}

/* Cuts one source into the two splits. */
static int split_one(struct data *d, const struct data_spec *s, int64_t items,
                     struct err *err) {
    int64_t valid = (int64_t)((double)items * s->validation);
    int64_t train = items - valid;
    d->part[DATA_TRAIN] = (struct part){d->store, 0, train, samples_in(train, s)};
    d->part[DATA_VALID] = (struct part){d->store, train, valid, samples_in(valid, s)};
    if (!d->part[DATA_TRAIN].size)
        return too_short(s->source, items, samples_in(items, s) ? train : items, "training",
                         s, err);
    return 0;
}

/* Training data, and validation data of its own or the end of the former. */
static int open_files(struct data *d, const struct data_spec *s, struct err *err) {
    int64_t items = store_open(&d->store[DATA_TRAIN], s->source, s, err);
    if (items < 0)
        return -1;
    d->info.items = items;
    d->info.format =
        s->kind == DATA_TOKENS ? d->store[0].tokens.shard[0].view.format : "IDX images";
    if (!s->valid_source)
        return split_one(d, s, items, err);
    int64_t valid = store_open(&d->store[DATA_VALID], s->valid_source, s, err);
    if (valid < 0)
        return -1;
    d->part[DATA_TRAIN] = (struct part){&d->store[0], 0, items, samples_in(items, s)};
    d->part[DATA_VALID] = (struct part){&d->store[1], 0, valid, samples_in(valid, s)};
    if (!d->part[DATA_TRAIN].size)
        return too_short(s->source, items, items, "training", s, err);
    if (!d->part[DATA_VALID].size)
        return too_short(s->valid_source, valid, valid, "validation", s, err);
    return 0;
}

static void open_synthetic(struct data *d, const struct data_spec *s) {
    bool tokens = s->kind == DATA_TOKENS;
    d->synthetic = true;
    synthetic_init(&d->syn, s->seed, tokens ? s->vocab : 1);
    d->part[DATA_TRAIN].size = SYNTHETIC_TRAIN;
    d->part[DATA_VALID].size = s->validation > 0 ? SYNTHETIC_VALID : 0;
    int64_t samples = d->part[DATA_TRAIN].size + d->part[DATA_VALID].size;
    d->info.format = tokens ? "synthetic tokens" : "synthetic images";
    d->info.items = samples * (tokens ? s->seq : 1);
}

int data_open(struct data **data, const struct data_spec *spec, struct err *err) {
    *data = NULL;
    if (check_spec(spec, err) < 0)
        return -1;
    struct data *d = mem_alloc(sizeof *d);
    if (is_synthetic(spec->source)) {
        open_synthetic(d, spec);
    } else if (open_files(d, spec, err) < 0) {
        data_close(d);
        return -1;
    }
    for (int i = 0; i < DATA_SPLITS; i++)
        if (hash_split(d, spec, (enum data_split)i, err) < 0) {
            data_close(d);
            return -1;
        }
    d->spec = *spec;
    d->spec.source = d->spec.valid_source = NULL;
    for (int i = 0; i < DATA_SPLITS; i++)
        d->info.size[i] = d->part[i].size;
    *data = d;
    return 0;
}

void data_close(struct data *data) {
    if (!data)
        return;
    for (int i = 0; i < DATA_SPLITS; i++)
        store_close(&data->store[i]);
    free(data);
}

const struct data_info *data_info(const struct data *data) {
    return &data->info;
}

int64_t data_size(const struct data *data, enum data_split split) {
    return data->part[split].size;
}

/* ---- samples ----------------------------------------------------------------------- */

/* Number within the split of the sample-th sample that is asked for. */
static int64_t sample_number(const struct data *d, enum data_split split, int64_t sample) {
    int64_t size = d->part[split].size, i = sample % size;
    if (split == DATA_VALID)
        return i;
    return shuffle_at(d->spec.seed, (uint64_t)(sample / size), size, i);
}

/* Where the windows of an epoch begin. The windows leave up to seq-1 tokens over; moving
 * their start within that lets training see all tokens in the course of the epochs. */
static int64_t window_offset(const struct data *d, enum data_split split, int64_t sample) {
    const struct part *p = &d->part[split];
    int64_t slack = p->items - 1 - p->size * d->spec.seq;
    if (split == DATA_VALID || slack == 0)
        return 0;
    uint64_t draw =
        rng_bits(d->spec.seed, 0x6f6666u /* "off" */, (uint64_t)(sample / p->size));
    return (int64_t)(draw % (uint64_t)(slack + 1));
}

/* Reads tokens [from, from+count) of the window of seq+1 tokens. */
static int read_window(const struct data *d, enum data_split split, int64_t sample,
                       int64_t from, int64_t count, int32_t *out, struct err *err) {
    int64_t number = sample_number(d, split, sample);
    if (d->synthetic) {
        uint64_t stream = 2 * (uint64_t)number + (split == DATA_VALID);
        synthetic_tokens(&d->syn, stream, from, count, out);
        return 0;
    }
    const struct part *p = &d->part[split];
    int64_t begin = p->first + window_offset(d, split, sample) + number * d->spec.seq;
    return token_stream_read(&p->store->tokens, begin + from, count, out, err);
}

int data_tokens(const struct data *data, enum data_split split, int64_t sample,
                int64_t first, int64_t count, int32_t *tokens, int32_t *targets,
                struct err *err) {
    if (count <= 0)
        return 0;
    if (tokens && read_window(data, split, sample, first, count, tokens, err) < 0)
        return -1;
    if (targets && tokens) { /* the same tokens, one further */
        memcpy(targets, tokens + 1, (size_t)(count - 1) * sizeof *targets);
        return read_window(data, split, sample, first + count, 1, &targets[count - 1], err);
    }
    return targets ? read_window(data, split, sample, first + 1, count, targets, err) : 0;
}

int data_image(const struct data *data, enum data_split split, int64_t sample,
               int64_t first, int64_t count, float *values, int32_t *label,
               struct err *err) {
    int64_t number = sample_number(data, split, sample);
    if (data->synthetic) {
        uint64_t stream = 2 * (uint64_t)number + (split == DATA_VALID);
        synthetic_image(&data->syn, stream, data->spec.classes, first, count, values,
                        label);
        return 0;
    }
    const struct part *p = &data->part[split];
    return image_set_read(&p->store->images, p->first + number, first, count, values, label,
                          err);
}
