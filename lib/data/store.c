/* What the files of a source are follows from what the model reads, and from their names. */
#include "data/data_impl.h"

#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool ends_in(const char *name, size_t n, const char *end) {
    size_t m = strlen(end);
    return n >= m && !memcmp(name + n - m, end, m);
}

/* The first name of a list. */
static size_t first_name(const char *source) {
    struct stat st;
    return stat(source, &st) == 0 ? strlen(source) : strcspn(source, ",");
}

bool store_is_pairs(const char *source) {
    return ends_in(source, first_name(source), ".idx");
}

static enum store_kind kind_of(const char *source, enum data_kind kind) {
    size_t n = first_name(source);
    switch (kind) {
    case DATA_IMAGES: return ends_in(source, n, ".bin") ? STORE_CIFAR : STORE_IDX;
    case DATA_PAIRS: return store_is_pairs(source) ? STORE_PAIRS : STORE_STREAM;
    default: return STORE_STREAM;
    }
}

/* "INPUTS.idx,TARGETS.idx" */
static int open_pairs(struct store *s, const char *source, int64_t vocab, struct err *err) {
    size_t n = first_name(source);
    const char *second = source[n] ? source + n + 1 : "";
    if (!ends_in(second, strlen(second), ".idx") || strchr(second, ','))
        return err_input(
            err, "%s: expected INPUTS.idx,TARGETS.idx: token sequences of two kinds",
            source);
    char *inputs = mem_strdup(source);
    inputs[n] = '\0';
    int rc = indexed_open(&s->inputs, inputs, vocab, err);
    free(inputs);
    if (rc < 0 || indexed_open(&s->targets, second, vocab, err) < 0)
        return -1;
    int64_t items = s->inputs.view.items, targets = s->targets.view.items;
    if (targets != items)
        return err_input(err, "%s: %lld sequences for %lld of %s", second,
                         (long long)targets, (long long)items, s->inputs.index.path);
    return 0;
}

/* A file of images whose dims are these; dims of size 1 do not matter. */
static int check_dims(const struct data_spec *s, const int64_t *size, int rank,
                      const char *source, struct err *err) {
    char want[128] = "", got[128] = "";
    int a = 0, b = 0;
    bool same = true;
    if (s->rank < 2)
        return 0;
    while (same && (a < s->rank || b < rank)) {
        if (a < s->rank && s->dims[a] == 1)
            a++;
        else if (b < rank && size[b] == 1)
            b++;
        else
            same = a < s->rank && b < rank && s->dims[a++] == size[b++];
    }
    for (int d = 0; d < s->rank; d++)
        snprintf(want + strlen(want), sizeof want - strlen(want), "%s%lld", d ? "x" : "",
                 (long long)s->dims[d]);
    for (int d = 0; d < rank; d++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%lld", d ? "x" : "",
                 (long long)size[d]);
    return same ? 0
                : err_input(err, "%s: images of %s values, the model reads %s", source, got,
                            want);
}

static int open_images(struct store *store, const char *source, const struct data_spec *s,
                       struct err *err) {
    static const int64_t cifar[] = {CIFAR_SIDE, CIFAR_SIDE, CIFAR_CHANNELS};
    if (store->kind == STORE_IDX) {
        const struct idx *idx = &store->images.images;
        return image_set_open(&store->images, source, s->pixels, s->classes, err) < 0
                   ? -1
                   : check_dims(s, idx->size + 1, idx->dims - 1, source, err);
    }
    if (s->pixels != CIFAR_VALUES)
        return err_input(err, "%s: images of %d values (CIFAR-10), the model reads %lld",
                         source, CIFAR_VALUES, (long long)s->pixels);
    return check_dims(s, cifar, 3, source, err) < 0
               ? -1
               : cifar_open(&store->cifar, source, s->classes, err);
}

bool store_masks(const struct store *s) {
    return s->kind == STORE_STREAM && s->tokens.shards &&
           s->tokens.shard->tokens.view.masked;
}

static int64_t items_of(const struct store *s) {
    switch (s->kind) {
    case STORE_STREAM: return s->tokens.tokens;
    case STORE_PAIRS: return s->inputs.view.items;
    case STORE_IDX: return s->images.images.items;
    default: return s->cifar.items;
    }
}

int64_t store_open(struct store *store, const char *source, const struct data_spec *s,
                   struct token_vocab vocab, struct err *err) {
    int rc;
    store->kind = kind_of(source, s->kind);
    if (store->kind == STORE_STREAM)
        rc = token_stream_open(&store->tokens, source, vocab, err);
    else if (store->kind == STORE_PAIRS)
        rc = open_pairs(store, source, s->vocab, err);
    else
        rc = open_images(store, source, s, err);
    return rc < 0 ? -1 : items_of(store);
}

void store_close(struct store *store) {
    token_stream_close(&store->tokens);
    indexed_close(&store->inputs);
    indexed_close(&store->targets);
    image_set_close(&store->images);
    cifar_close(&store->cifar);
}

const char *store_format(const struct store *store) {
    switch (store->kind) {
    case STORE_STREAM: return store->tokens.shard[0].tokens.view.format;
    case STORE_PAIRS: return "token sequences";
    case STORE_IDX: return "IDX images";
    default: return "CIFAR-10 images";
    }
}

bool store_cuts(const struct store *store, const struct data_spec *s) {
    return store->kind == STORE_PAIRS &&
           (store->inputs.longest > s->seq || store->targets.longest > s->target_seq);
}

int store_hash(const struct store *store, uint64_t *hash, struct err *err) {
    switch (store->kind) {
    case STORE_STREAM: return token_stream_hash(&store->tokens, hash, err);
    case STORE_PAIRS:
        return indexed_hash(&store->inputs, hash, err) < 0
                   ? -1
                   : indexed_hash(&store->targets, hash, err);
    case STORE_IDX: return image_set_hash(&store->images, hash, err);
    default: return cifar_hash(&store->cifar, hash, err);
    }
}
