/* When two plans are different: not where a cut stands an op further, one block more is recomputed or one
 * of many stages is laid out otherwise, but where a person would name another plan. */
#include "search/search_impl.h"

/* How many devices do so. */
struct votes {
    int zero[ZERO_PARAMETERS + 1], again[AGAIN_LEVELS], axes[MESH_MAX_AXES + 1],
        sequence[2];
};

static uint64_t most_votes(const int *votes, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        best = votes[i] > votes[best] ? i : best;
    return (uint64_t)best;
}

/* A stage is recomputed where more than half of its blocks are. */
static void vote(const struct search *s, const struct search_stage *st, struct votes *v) {
    bool again = 2 * st->again_blocks > search_stage_blocks(s, st);
    v->zero[search_zero_of(st)] += st->devices;
    v->again[again ? st->again_level : 0] += st->devices;
    if (st->devices == 1)
        return;
    struct style style = search_infer_style(s, st);
    v->axes[style.model_axes] += st->devices;
    v->sequence[style.sequence] += st->devices;
}

uint64_t search_class(const struct search *s, const struct candidate *c) {
    struct votes v = {0};
    uint64_t h = memo_mix(memo_mix(1, (uint64_t)c->n_stages), (uint64_t)c->n_groups);
    h = memo_mix(h, (uint64_t)c->micro_batch);
    if (c->n_stages > 1)
        h = memo_mix(h, (uint64_t)c->schedule);
    for (int k = 0; k < c->n_stages; k++) {
        h = memo_mix(h, (uint64_t)c->stages[k].devices);
        vote(s, &c->stages[k], &v);
    }
    h = memo_mix(memo_mix(h, most_votes(v.zero, ZERO_PARAMETERS + 1)),
                 most_votes(v.again, AGAIN_LEVELS));
    return memo_mix(memo_mix(h, most_votes(v.axes, MESH_MAX_AXES + 1)),
                    most_votes(v.sequence, 2));
}
