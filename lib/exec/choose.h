/* choose.h - one token out of what a model says of the next.
 *
 *     struct choice how = {.temperature = 0.8, .top_k = 50, .top_p = 0.95};
 *     struct chooser c = chooser_create(vocab);
 *     int64_t id = choose_token(&c, &how, logits, rng_uniform(seed, sequence, position));
 *     chooser_release(&c);
 */
#ifndef WEFT_CHOOSE_H
#define WEFT_CHOOSE_H

#include <stdint.h>

struct choice {
    double temperature; /* 0: the most likely token, the first of several */
    int64_t top_k;      /* of so many of the most likely; 0 = of all */
    double top_p; /* of the fewest of those whose probabilities come to so much; 1 = of all
                     (Holtzman et al., The Curious Case of Neural Text Degeneration, 2020) */
};

/* Room for the order of the tokens. */
struct chooser {
    int64_t vocab;
    struct candidate *all;
};
struct chooser chooser_create(int64_t vocab);
void chooser_release(struct chooser *c);

/* logits[vocab]; u in [0, 1) decides. */
int64_t choose_token(struct chooser *c, const struct choice *how, const float *logits,
                     double u);

/* The natural logarithm of the probability that the model gives a token, whatever is chosen and how. */
double choose_logprob(const float *logits, int64_t vocab, int64_t id);

#endif
