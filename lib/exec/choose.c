#include "exec/choose.h"

#include "common/mem.h"

#include <math.h>
#include <stdlib.h>

struct candidate {
    double weight; /* the logit over the temperature; then its probability, unscaled */
    int64_t id;
};

struct chooser chooser_create(int64_t vocab) {
    return (struct chooser){vocab, mem_array((size_t)vocab, sizeof(struct candidate))};
}

void chooser_release(struct chooser *c) {
    free(c->all);
    c->all = NULL;
}

static int64_t most_likely(const float *logits, int64_t vocab) {
    int64_t best = 0;
    for (int64_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* The most likely first; of equal ones the lower id, so that the order is one. */
static int by_weight(const void *a, const void *b) {
    const struct candidate *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* How many of the first ones come to this share of all n; sets their sum. */
static int64_t cut(const struct candidate *all, int64_t n, double share, double *sum) {
    double total = 0;
    for (int64_t i = 0; i < n; i++)
        total += all[i].weight;
    int64_t kept = 0;
    for (*sum = 0; kept < n && (!kept || share >= 1 || *sum < share * total); kept++)
        *sum += all[kept].weight;
    return kept;
}

int64_t choose_token(struct chooser *c, const struct choice *how, const float *logits,
                     double u) {
    int64_t n = c->vocab;
    const int64_t best = most_likely(logits, n);
    if (how->temperature <= 0)
        return best;
    for (int64_t i = 0; i < n; i++)
        c->all[i] = (struct candidate){
            exp(((double)logits[i] - (double)logits[best]) / how->temperature), i};
    if (how->top_k || how->top_p < 1)
        qsort(c->all, (size_t)n, sizeof *c->all, by_weight);
    n = how->top_k && how->top_k < n ? how->top_k : n;
    double sum;
    n = cut(c->all, n, how->top_p, &sum);
    double at = u * sum;
    for (int64_t i = 0; i < n - 1; i++)
        if ((at -= c->all[i].weight) < 0)
            return c->all[i].id;
    return c->all[n - 1].id;
}

double choose_logprob(const float *logits, int64_t vocab, int64_t id) {
    const double most = logits[most_likely(logits, vocab)];
    double sum = 0;
    for (int64_t i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - most);
    return (double)logits[id] - most - log(sum);
}
