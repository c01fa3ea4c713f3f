/* data_impl.h - what is open, and how its samples are found (private to lib/data).
 *
 * A split is a range of items of a store: tokens of a stream, sequences, images. Its samples are
 * windows of the range (of a stream) or its items; the order of training is a permutation of the
 * samples. Synthetic sources have no items: a sample's number is all they need.
 */
#ifndef WEFT_DATA_IMPL_H
#define WEFT_DATA_IMPL_H

#include "data/cifar.h"
#include "data/data.h"
#include "data/idx.h"
#include "data/indexed.h"
#include "data/spans.h"
#include "data/synthetic.h"
#include "data/tokens.h"

enum store_kind { STORE_STREAM, STORE_PAIRS, STORE_IDX, STORE_CIFAR };

/* What one of the two sources holds; the others are zero. */
struct store {
    enum store_kind kind;
    struct token_stream tokens;
    struct indexed inputs, targets; /* as many of one as of the other */
    struct image_set images;
    struct cifar_set cifar;
};

struct part {
    const struct store *store; /* one of data.store; NULL = synthetic */
    int64_t first;             /* first item in it */
    int64_t items;             /* tokens, pairs or images */
    int64_t size;              /* samples */
};

/* How a stream is cut: from one window to the next, and what of it the next one has, too. */
struct window {
    int64_t tokens, shared;
};

struct mixture;
struct balance;

struct data {
    struct data_spec spec; /* sources are dropped after data_open */
    struct data_info info;
    bool synthetic;
    struct mixture *mixture; /* NULL, or the sources that there are instead of the rest */
    struct synthetic syn;
    struct balance *balance; /* NULL, or the order of training by label */
    struct window window;
    struct spans spans; /* of pairs out of plain tokens */
    struct store store[DATA_SPLITS];
    struct part part[DATA_SPLITS];
};

/* ---- store.c ----------------------------------------------------------------------------- */

/* Is it a list of pairs of sequences, for a model that reads pairs? */
bool store_is_pairs(const char *source);
/* Opens one source, a stream with this vocabulary. Returns the number of its items, or -1. */
int64_t store_open(struct store *store, const char *source, const struct data_spec *s,
                   struct token_vocab vocab, struct err *err);
void store_close(struct store *store); /* a zeroed one is fine */
const char *store_format(const struct store *store);
/* Is some sequence longer than the model's? */
bool store_cuts(const struct store *store, const struct data_spec *s);
/* Is it a stream of tokens some of which are no targets (TOKEN_MASK)? */
bool store_masks(const struct store *store);
/* Adds to *hash what the files hold, as datafile_hash. Returns 0 or -1. */
int store_hash(const struct store *store, uint64_t *hash, struct err *err);

/* ---- data.c: one source ------------------------------------------------------------------ */

/* Opens it in *d, which is zero. Returns 0 or -1; data_close_one either way. */
int data_open_one(struct data *d, const struct data_spec *spec, struct err *err);
void data_close_one(struct data *d);

/* ---- mixture.c: and several, for which what data.h says of opening, numbers and forms is there --- */

/* Which source has a sample, the data itself where it is no mixture; *sample becomes its number there. */
const struct data *mixture_source(const struct data *d, enum data_split split,
                                  int64_t *sample);
/* Is any source of a mixture such? */
bool mixture_has(const struct data *d, bool (*is)(const struct data *source));

/* ---- balance.c: batches balanced by label -------------------------------------------------- */

/* Makes d->balance of an open source of images, from the labels of training. Returns 0 or -1; balance_close either way. */
int balance_open(struct data *d, struct err *err);
void balance_close(struct balance *b); /* NULL is fine */
/* The number of the i-th image of an epoch. */
int64_t balance_number(const struct data *d, int64_t epoch, int64_t i);

/* ---- samples.c: what data.h says of the functions of data_*, but for missing samples ------- */

int64_t samples_number(const struct data *d, enum data_split split, int64_t sample);
enum dtype samples_form(const struct data *data, enum data_split split);
bool samples_ignore(const struct data *data);
int samples_tokens(const struct data *data, enum data_split split, int64_t sample,
                   int64_t first, int64_t count, int32_t *tokens, int32_t *targets,
                   struct err *err);
int samples_input(const struct data *data, enum data_split split, int64_t sample,
                  int64_t first, int64_t count, int32_t *input, struct err *err);
int samples_input_length(const struct data *data, enum data_split split, int64_t sample,
                         int32_t *length, struct err *err);
int samples_target(const struct data *data, enum data_split split, int64_t sample,
                   int64_t first, int64_t count, bool shifted, int32_t *target,
                   struct err *err);
int samples_image(const struct data *data, enum data_split split, int64_t sample,
                  int64_t first, int64_t count, float *values, int32_t *label,
                  struct err *err);
int samples_packed(const struct data *data, enum data_split split, int64_t sample,
                   int64_t first, int64_t count, void *out, struct err *err);

#endif
