/* Which token is chosen: against probabilities that are worked out here. */
#include "exec/choose.h"
#include "tap.h"

#include <math.h>

enum { VOCAB = 6, DRAWS = 20000 };
/* Of the six the probabilities are 0.1, 0.4, 0.05, 0.25, 0.15, 0.05. */
static const double share[VOCAB] = {0.1, 0.4, 0.05, 0.25, 0.15, 0.05};

static void logits_of(float logits[VOCAB]) {
    for (int i = 0; i < VOCAB; i++)
        logits[i] = (float)log(share[i]) + 3;
}

/* Draws with evenly spread numbers and says how far from `want` a share is at most. */
static double farthest(struct chooser *c, const struct choice *how,
                       const double want[VOCAB]) {
    float logits[VOCAB];
    double found[VOCAB] = {0}, worst = 0;
    logits_of(logits);
    for (int k = 0; k < DRAWS; k++)
        found[choose_token(c, how, logits, (k + 0.5) / DRAWS)] += 1.0 / DRAWS;
    for (int i = 0; i < VOCAB; i++)
        worst = fmax(worst, fabs(found[i] - want[i]));
    return worst;
}

int main(void) {
    struct chooser c = chooser_create(VOCAB);
    float logits[VOCAB] = {1, 5, 5, 2, 0, 4};
    struct choice greedy = {.temperature = 0, .top_p = 1};
    ok(choose_token(&c, &greedy, logits, 0.99) == 1, "greedy: the first of the largest");

    const float large[] = {1000, 1000 + logf(2), 1000 + logf(5)};
    double off = 0;
    for (int i = 0; i < 3; i++)
        off = fmax(off,
                   fabs(choose_logprob(large, 3, i) - log((i ? i == 1 ? 2 : 5 : 1) / 8.0)));
    ok(off < 1e-4, "logarithms of 1, 2 and 5 eighths, of logits beyond exp (%.1e)", off);

    struct choice all = {.temperature = 1, .top_p = 1};
    double d = farthest(&c, &all, share);
    ok(d < 1e-3, "all: as the model says (%.1e)", d);

    double sum = 0, half[VOCAB];
    for (int i = 0; i < VOCAB; i++)
        sum += share[i] * share[i];
    for (int i = 0; i < VOCAB; i++)
        half[i] = share[i] * share[i] / sum;
    struct choice cool = {.temperature = 0.5, .top_p = 1};
    d = farthest(&c, &cool, half);
    ok(d < 1e-3, "temperature 0.5: probabilities squared (%.1e)", d);

    const double two[VOCAB] = {0, 0.4 / 0.65, 0, 0.25 / 0.65, 0, 0};
    struct choice k2 = {.temperature = 1, .top_k = 2, .top_p = 1};
    d = farthest(&c, &k2, two);
    ok(d < 1e-3, "top-k 2 (%.1e)", d);

    const double three[VOCAB] = {0, 0.5, 0, 0.3125, 0.1875, 0};
    struct choice p7 = {.temperature = 1, .top_p = 0.7};
    d = farthest(&c, &p7, three);
    ok(d < 1e-3, "top-p 0.7: three come to 0.8 (%.1e)", d);
    struct choice p6 = {.temperature = 1, .top_p = 0.6};
    d = farthest(&c, &p6, two);
    ok(d < 1e-3, "top-p 0.6: two come to 0.65 (%.1e)", d);

    /* Of the two that top-k leaves, 0.4 is 0.62 of what there is. */
    const double one[VOCAB] = {0, 1, 0, 0, 0, 0};
    struct choice both = {.temperature = 1, .top_k = 2, .top_p = 0.6};
    d = farthest(&c, &both, one);
    ok(d < 1e-9, "top-p is of what top-k leaves (%.1e)", d);
    struct choice many = {.temperature = 1, .top_k = 100, .top_p = 1};
    d = farthest(&c, &many, share);
    ok(d < 1e-3, "top-k beyond the vocabulary (%.1e)", d);
    chooser_release(&c);
    return done_testing();
}
