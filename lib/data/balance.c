/* Batches balanced by label. The images of each label are spread evenly over the epoch: the k-th of the n of a label stands at
 * (k + o) / n of it, where the offsets o of labels are spread evenly, too. So any samples that follow each other have
 * each label about as often as the whole data has it, whatever the batch and whoever reads which part of it. Which image
 * of a label is its k-th is drawn from the seed, the epoch and the label. */
#include "data/data_impl.h"
#include "data/shuffle.h"

#include "common/mem.h"

#include <stdlib.h>

struct slot {
    double at; /* in the epoch, 0..1 */
    int64_t rank;
    int32_t label;
};

struct balance {
    struct slot *slot; /* [samples] of an epoch */
    int64_t *number;   /* [samples] of images, by label */
    int64_t *begin;    /* [labels + 1] where those of a label begin there */
};

static int compare_slots(const void *a, const void *b) {
    const struct slot *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return (x->label > y->label) - (x->label < y->label);
}

/* Of the training image with this number in the order of the files. */
static int read_label(const struct data *d, int64_t number, int32_t *label,
                      struct err *err) {
    const struct part *p = &d->part[DATA_TRAIN];
    if (d->synthetic) {
        synthetic_image(&d->syn, 2 * (uint64_t)number, d->spec.classes, 0, 0, NULL, label);
        return 0;
    }
    return p->store->kind == STORE_CIFAR
               ? cifar_read(&p->store->cifar, p->first + number, 0, 0, NULL, label, err)
               : image_set_read(&p->store->images, p->first + number, 0, 0, NULL, label,
                                err);
}

static int count_labels(const struct data *d, int32_t *label, int64_t *begin,
                        struct err *err) {
    for (int64_t i = 0; i < d->part[DATA_TRAIN].size; i++) {
        if (read_label(d, i, &label[i], err) < 0)
            return -1;
        begin[label[i] + 1]++;
    }
    for (int64_t c = 0; c < d->spec.classes; c++)
        begin[c + 1] += begin[c];
    return 0;
}

/* Where the first image of each label stands in the share of the epoch that it has: [labels], the caller's to free. */
static double *offsets_of(const struct data *d) {
    const int64_t classes = d->spec.classes;
    double *offset = mem_array((size_t)classes, sizeof *offset);
    for (int64_t c = 0; c < classes; c++)
        offset[c] =
            ((double)shuffle_at(d->spec.seed, 0x6c6162656cu /* "label" */, classes, c) +
             0.5) /
            (double)classes;
    return offset;
}

static void fill(const struct data *d, struct balance *b, const int32_t *label) {
    const int64_t n = d->part[DATA_TRAIN].size;
    int64_t *had = mem_array((size_t)d->spec.classes, sizeof *had);
    double *offset = offsets_of(d);
    for (int64_t i = 0; i < n; i++) {
        const int32_t c = label[i];
        const int64_t rank = had[c]++, many = b->begin[c + 1] - b->begin[c];
        b->number[b->begin[c] + rank] = i;
        b->slot[i] = (struct slot){((double)rank + offset[c]) / (double)many, rank, c};
    }
    free(offset);
    free(had);
    qsort(b->slot, (size_t)n, sizeof *b->slot, compare_slots);
}

int balance_open(struct data *d, struct err *err) {
    const int64_t n = d->part[DATA_TRAIN].size;
    if (d->spec.kind != DATA_IMAGES)
        return err_usage(
            err, "batches balanced by label: the model reads no images with labels");
    struct balance *b = mem_alloc(sizeof *b);
    int32_t *label = mem_array((size_t)n, sizeof *label);
    *b =
        (struct balance){.slot = mem_array((size_t)n, sizeof *b->slot),
                         .number = mem_array((size_t)n, sizeof *b->number),
                         .begin = mem_array((size_t)d->spec.classes + 1, sizeof *b->begin)};
    const int rc = count_labels(d, label, b->begin, err);
    if (rc == 0)
        fill(d, b, label);
    free(label);
    d->balance = b;
    return rc;
}

void balance_close(struct balance *b) {
    if (!b)
        return;
    free(b->slot);
    free(b->number);
    free(b->begin);
    free(b);
}

int64_t balance_number(const struct data *d, int64_t epoch, int64_t i) {
    const struct balance *b = d->balance;
    const struct slot *s = &b->slot[i];
    const int64_t first = b->begin[s->label], many = b->begin[s->label + 1] - first;
    const uint64_t seed = rng_bits(d->spec.seed, 0x62616cu /* "bal" */, (uint64_t)s->label);
    return b->number[first + shuffle_at(seed, (uint64_t)epoch, many, s->rank)];
}
