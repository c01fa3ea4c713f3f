/* Opening: sources, and how they are cut into splits and samples. */
#include "data/data_impl.h"

#include "common/mem.h"
#include "common/rng.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    SYNTHETIC_TRAIN = 1 << 16, /* samples of a synthetic epoch */
    SYNTHETIC_VALID = 1 << 10,
};
static const int64_t SIZE_MAX_SANE = INT64_C(1) << 40; /* of seq and pixels */

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

static int check_id(const char *what, int64_t id, int64_t least, int64_t vocab,
                    struct err *err) {
    if (id < least || id >= vocab)
        return err_input(err, "%s: token id %lld, expected %lld..%lld", what, (long long)id,
                         (long long)least, (long long)vocab - 1);
    return 0;
}

static int check_pairs(const struct data_spec *s, struct err *err) {
    if (check_range("target seq", s->target_seq, SIZE_MAX_SANE, err) < 0 ||
        check_id("data.pad", s->ids.pad, 0, s->vocab, err) < 0 ||
        check_id("data.start", s->ids.start, 0, s->vocab, err) < 0 ||
        check_id("data.eos", s->ids.eos, -1, s->vocab, err) < 0)
        return -1;
    return check_id("data.sentinel", s->ids.sentinel, 0, s->vocab, err);
}

static int check_spec(const struct data_spec *s, struct err *err) {
    if (!s->source || !*s->source)
        return err_usage(err, "no data source is given");
    if (!(s->validation >= 0 && s->validation < 1))
        return err_usage(err, "share of validation data: expected 0 <= share < 1, got %g",
                         s->validation);
    if (s->valid_source && (is_synthetic(s->source) || is_synthetic(s->valid_source)))
        return err_usage(err, "synthetic data makes its own validation split");
    if (s->kind == DATA_IMAGES)
        return check_range("pixels", s->pixels, SIZE_MAX_SANE, err) < 0
                   ? -1
                   : check_range("classes", s->classes, INT32_MAX, err);
    if (check_range("seq", s->seq, SIZE_MAX_SANE, err) < 0 ||
        check_range("vocab", s->vocab, INT32_MAX, err) < 0)
        return -1;
    return s->kind == DATA_PAIRS ? check_pairs(s, err) : 0;
}

/* ---- splits -------------------------------------------------------------------------- */

/* Samples in a range of items of a source. */
static int64_t samples_in(const struct data *d, enum store_kind kind, int64_t items) {
    const struct window *w = &d->window;
    if (kind != STORE_STREAM)
        return items;
    return items > w->shared ? (items - w->shared) / w->tokens : 0;
}

static const char *items_name(enum store_kind kind) {
    return kind == STORE_STREAM ? "tokens" : kind == STORE_PAIRS ? "pairs" : "images";
}

static int too_short(const struct data *d, const struct store *store, const char *source,
                     int64_t items, int64_t used, const char *whose, struct err *err) {
    const struct window *w = &d->window;
    long long need = w->tokens + w->shared;
    if (store->kind != STORE_STREAM)
        return err_input(err, "%s: %lld %s leave none for %s", source, (long long)items,
                         items_name(store->kind), whose);
    if (used == items)
        return err_input(err, "%s: %lld token%s, one sequence of %lld needs %lld%s", source,
                         (long long)items, items == 1 ? "" : "s", (long long)w->tokens,
                         need,
                         w->shared ? " (each position and the one that follows)" : "");
    return err_input(err,
                     "%s: %lld tokens, of which %lld are for %s; one sequence of %lld "
                     "needs %lld",
                     source, (long long)items, (long long)used, whose, (long long)w->tokens,
                     need);
}

/* What the source of a split holds, where the split begins and ends in it, and how it is read. */
static int hash_split(struct data *d, const struct data_spec *s, enum data_split split,
                      struct err *err) {
    const struct part *p = &d->part[split];
    int64_t facts[] = {p->first, p->items, p->size,   s->kind,
                       s->seq,   s->vocab, s->pixels, s->classes};
    int64_t pairs[] = {s->target_seq,   s->ids.pad,      s->ids.start,   s->ids.eos,
                       s->ids.sentinel, d->spans.window, d->spans.noise, d->spans.spans};
    uint64_t *h = &d->info.hash[split];
    *h = hash_bytes(facts, sizeof facts, d->synthetic ? rng_mix(s->seed) : 0);
    if (s->kind == DATA_PAIRS)
        *h = hash_bytes(pairs, sizeof pairs, *h);
    if (split == DATA_TRAIN && s->balanced) /* the same images at other places */
        *h = rng_mix(*h);
    return p->store && p->size ? store_hash(p->store, h, err) : 0;
}

static struct part part_of(const struct data *d, const struct store *store, int64_t first,
                           int64_t items) {
    return (struct part){store, first, items, samples_in(d, store->kind, items)};
}

/* Cuts one source into the two splits; masked tokens only between windows, of which one ends with the token
 * that the next begins with. */
static int split_one(struct data *d, const struct data_spec *s, int64_t items,
                     struct err *err) {
    const bool masked = store_masks(d->store);
    const int64_t unit = masked ? d->window.tokens : 1, shared = masked;
    const int64_t all = (items - shared) / unit;
    int64_t valid = unit * (int64_t)((double)all * s->validation);
    int64_t train = unit * all - valid;
    d->part[DATA_TRAIN] = part_of(d, d->store, 0, train + shared);
    d->part[DATA_VALID] = part_of(d, d->store, train, valid + shared);
    if (!d->part[DATA_TRAIN].size)
        return too_short(d, d->store, s->source, items,
                         samples_in(d, d->store->kind, items) ? train : items, "training",
                         err);
    return 0;
}

/* Of a stream. Out of one that becomes pairs spans are left, for which sentinels stand. */
static struct token_vocab stream_vocab(const struct data *d, const struct data_spec *s) {
    if (s->kind != DATA_PAIRS)
        return (struct token_vocab){s->vocab, "", s->gaps};
    return (struct token_vocab){s->ids.sentinel + 1 - d->spans.spans,
                                " without the sentinels of spans", s->gaps};
}

/* Examples are as long as the model's sequences, and one token stands behind the last. */
static int check_masked(const struct data *d, const char *source, int64_t items,
                        struct err *err) {
    const long long seq = d->window.tokens;
    if (!d->window.shared)
        return err_input(err, "%s: masked tokens, of which spans cannot be left out",
                         source);
    if (items % seq == 1)
        return 0;
    err_input(err, "%s: %lld masked tokens, expected examples of %lld, and one token",
              source, (long long)items, seq);
    return err_hint(err, "weft-tokens --examples %lld writes such a file", seq);
}

static int64_t open_store(struct data *d, enum data_split split, const char *source,
                          const struct data_spec *s, struct err *err) {
    int64_t items = store_open(&d->store[split], source, s, stream_vocab(d, s), err);
    d->info.cut |= items >= 0 && store_cuts(&d->store[split], s);
    if (items >= 0 && store_masks(&d->store[split]) &&
        check_masked(d, source, items, err) < 0)
        return -1;
    return items;
}

static int open_files(struct data *d, const struct data_spec *s, struct err *err) {
    struct store *store = d->store;
    int64_t items = open_store(d, DATA_TRAIN, s->source, s, err);
    if (items < 0)
        return -1;
    d->info.items = items;
    d->info.format = store_format(store);
    if (!s->valid_source)
        return split_one(d, s, items, err);
    int64_t valid = open_store(d, DATA_VALID, s->valid_source, s, err);
    if (valid < 0)
        return -1;
    if (store[0].kind != store[1].kind)
        return err_input(err, "%s: holds %s, the training data %s", s->valid_source,
                         store_format(&store[1]), d->info.format);
    d->part[DATA_TRAIN] = part_of(d, &store[0], 0, items);
    d->part[DATA_VALID] = part_of(d, &store[1], 0, valid);
    if (!d->part[DATA_TRAIN].size)
        return too_short(d, &store[0], s->source, items, items, "training", err);
    if (!d->part[DATA_VALID].size)
        return too_short(d, &store[1], s->valid_source, valid, valid, "validation", err);
    return 0;
}

static void open_synthetic(struct data *d, const struct data_spec *s) {
    bool images = s->kind == DATA_IMAGES;
    d->synthetic = true;
    synthetic_init(&d->syn, s->seed, images ? 1 : stream_vocab(d, s).size);
    d->part[DATA_TRAIN].size = SYNTHETIC_TRAIN;
    d->part[DATA_VALID].size = s->validation > 0 ? SYNTHETIC_VALID : 0;
    int64_t samples = d->part[DATA_TRAIN].size + d->part[DATA_VALID].size;
    d->info.format = images ? "synthetic images" : "synthetic tokens";
    d->info.items = samples * (images ? 1 : d->window.tokens);
}

/* Are pairs made out of plain tokens? Then targets must have room for the spans. */
static int plan_windows(struct data *d, const struct data_spec *s, struct err *err) {
    struct spans *p = &d->spans;
    d->window = (struct window){s->seq, 1};
    if (s->kind != DATA_PAIRS || store_is_pairs(s->source))
        return 0;
    if (spans_init(p, s->seq, s->noise, s->span, s->ids.sentinel, s->ids.eos, err) < 0)
        return -1;
    d->window = (struct window){p->window, 0};
    if (p->target > s->target_seq)
        return err_input(err,
                         "the spans left out of inputs of %lld positions are targets of "
                         "%lld; the model's have %lld",
                         (long long)s->seq, (long long)p->target, (long long)s->target_seq);
    if (s->ids.sentinel < p->spans)
        return err_input(err, "data.sentinel: token id %lld leaves no room for %lld spans",
                         (long long)s->ids.sentinel, (long long)p->spans);
    return 0;
}

static int open_all(struct data *d, const struct data_spec *s, struct err *err) {
    if (plan_windows(d, s, err) < 0)
        return -1;
    if (is_synthetic(s->source))
        open_synthetic(d, s);
    else if (open_files(d, s, err) < 0)
        return -1;
    for (int i = 0; i < DATA_SPLITS; i++)
        if (hash_split(d, s, (enum data_split)i, err) < 0)
            return -1;
    return 0;
}

int data_open_one(struct data *d, const struct data_spec *spec, struct err *err) {
    if (check_spec(spec, err) < 0 || open_all(d, spec, err) < 0)
        return -1;
    d->spec = *spec;
    d->spec.source = d->spec.valid_source = NULL;
    for (int i = 0; i < DATA_SPLITS; i++)
        d->info.size[i] = d->part[i].size;
    return spec->balanced ? balance_open(d, err) : 0;
}

void data_close_one(struct data *d) {
    for (int i = 0; i < DATA_SPLITS; i++)
        store_close(&d->store[i]);
    balance_close(d->balance);
}

const struct data_info *data_info(const struct data *data) {
    return &data->info;
}

int64_t data_size(const struct data *data, enum data_split split) {
    return data->part[split].size;
}
