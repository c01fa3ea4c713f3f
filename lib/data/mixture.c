/* Several sources by weight. Training comes in rounds of as many samples as the weights add up to: in each a
 * source has as many as its weight, the next of its own, at places drawn from the seed. So shares are exact, every
 * source goes through its epochs as it would alone, and which sample is which follows from its number. */
#include "data/data_impl.h"
#include "data/shuffle.h"

#include "common/mem.h"
#include "common/rng.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { WEIGHT_MOST = 1000000 };

struct mixture {
    int n;
    struct data **source; /* [n] */
    int64_t *weight, round;
};

static bool is_mixture(const char *source) {
    struct stat st;
    return source && strchr(source, '@') && stat(source, &st) < 0;
}

/* The weight behind the last '@', which is cut off. */
static int take_weight(char *part, int64_t *weight, struct err *err) {
    char *at = strrchr(part, '@'), *end = NULL;
    *weight = at ? strtoll(at + 1, &end, 10) : 0;
    if (!at || at == part || end == at + 1 || *end || *weight < 1 || *weight > WEIGHT_MOST)
        return err_input(err,
                         "\"%.200s\": expected SOURCE@WEIGHT, weights from 1 to %d, with "
                         "+ between several",
                         part, WEIGHT_MOST);
    *at = '\0';
    return 0;
}

/* Data for validation is that of the first. */
static int open_one(struct mixture *x, const char *source, const struct data_spec *spec,
                    struct err *err) {
    struct data_spec one = *spec;
    one.source = source;
    if (x->n && spec->valid_source) {
        one.valid_source = NULL;
        one.validation = 0;
    }
    x->source = mem_grow(x->source, (size_t)x->n + 1, sizeof *x->source);
    return data_open(&x->source[x->n++], &one, err);
}

static int open_all(struct mixture *x, char *list, const struct data_spec *spec,
                    struct err *err) {
    for (char *part = list, *next; part; part = next) {
        int64_t weight;
        if ((next = strchr(part, '+')))
            *next++ = '\0';
        if (take_weight(part, &weight, err) < 0 || open_one(x, part, spec, err) < 0)
            return -1;
        x->weight = mem_grow(x->weight, (size_t)x->n, sizeof *x->weight);
        x->weight[x->n - 1] = weight;
        x->round += weight;
    }
    return 0;
}

static void describe(struct data *d) {
    const struct mixture *x = d->mixture;
    const int64_t *weight = x->weight;
    d->info.format = "mixture";
    for (int k = 0; k < x->n; k++) {
        const struct data_info *one = data_info(x->source[k]);
        d->info.items += one->items;
        d->info.cut |= one->cut;
        for (int s = 0; s < DATA_SPLITS; s++) {
            d->part[s].size += one->size[s];
            d->info.size[s] = d->part[s].size;
            d->info.hash[s] = hash_bytes(&one->hash[s], sizeof one->hash[s],
                                         rng_mix(d->info.hash[s] + (uint64_t)weight[k]));
        }
    }
}

static int mixture_open(struct data *d, const struct data_spec *spec, struct err *err) {
    d->mixture = mem_alloc(sizeof *d->mixture);
    d->spec = *spec;
    d->spec.source = d->spec.valid_source = NULL;
    char *list = mem_strdup(spec->source);
    int rc = open_all(d->mixture, list, spec, err);
    free(list);
    if (rc == 0)
        describe(d);
    return rc;
}

int data_open(struct data **data, const struct data_spec *spec, struct err *err) {
    struct data *d = *data = mem_alloc(sizeof *d);
    if ((is_mixture(spec->source) ? mixture_open(d, spec, err)
                                  : data_open_one(d, spec, err)) == 0)
        return 0;
    data_close(d);
    *data = NULL;
    return -1;
}

void data_close(struct data *data) {
    if (!data)
        return;
    struct mixture *x = data->mixture;
    for (int k = 0; x && k < x->n; k++)
        data_close(x->source[k]);
    if (x) {
        free(x->source);
        free(x->weight);
    }
    free(x);
    data_close_one(data);
    free(data);
}

/* ---- samples -------------------------------------------------------------------------------- */

/* Validation has one source after the other. */
static int find_valid(const struct data *d, int64_t *sample) {
    const struct mixture *x = d->mixture;
    int k = 0;
    *sample %= d->part[DATA_VALID].size;
    for (; *sample >= data_size(x->source[k], DATA_VALID); k++)
        *sample -= data_size(x->source[k], DATA_VALID);
    return k;
}

static int find(const struct data *d, enum data_split split, int64_t *sample) {
    const struct mixture *x = d->mixture;
    if (split == DATA_VALID)
        return find_valid(d, sample);
    const int64_t round = *sample / x->round;
    const uint64_t key = rng_bits(d->spec.seed, 0x6d6978u /* "mix" */, 0);
    int64_t place = shuffle_at(key, (uint64_t)round, x->round, *sample % x->round);
    int k = 0;
    for (; place >= x->weight[k]; k++)
        place -= x->weight[k];
    *sample = round * x->weight[k] + place;
    return k;
}

const struct data *mixture_source(const struct data *d, enum data_split split,
                                  int64_t *sample) {
    return d->mixture ? d->mixture->source[find(d, split, sample)] : d;
}

int64_t data_number(const struct data *d, enum data_split split, int64_t sample) {
    if (!d->mixture)
        return samples_number(d, split, sample);
    const int k = find(d, split, &sample);
    int64_t before = 0;
    for (int i = 0; i < k; i++)
        before += data_size(d->mixture->source[i], split);
    return before + data_number(d->mixture->source[k], split, sample);
}

enum dtype data_form(const struct data *d, enum data_split split) {
    const struct mixture *x = d->mixture;
    if (!x)
        return samples_form(d, split);
    enum dtype form = DTYPE_COUNT,
               wide = d->spec.kind == DATA_IMAGES ? DTYPE_f32 : DTYPE_i32;
    for (int k = 0; k < x->n; k++) {
        const enum dtype one = data_form(x->source[k], split);
        if (data_size(x->source[k], split))
            form = form == DTYPE_COUNT || form == one ? one : wide;
    }
    return form == DTYPE_COUNT ? wide : form;
}

bool mixture_has(const struct data *d, bool (*is)(const struct data *source)) {
    bool any = false;
    for (int k = 0; k < d->mixture->n; k++)
        any |= is(d->mixture->source[k]);
    return any;
}
