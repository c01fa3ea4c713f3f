/* Candidates (see candidate.h). */
#include "search/space/candidate.h"

#include "search/graph/memo.h"
#include "search/space/space.h"

#include <stdlib.h>
#include <string.h>

struct candidate candidate_make(const struct space *sp) {
    return (struct candidate){
        .stages = mem_array((size_t)sp->max_stages, sizeof(struct search_stage))};
}

void candidate_release(struct candidate *c) {
    free(c->stages);
    *c = (struct candidate){0};
}

void candidate_copy(struct candidate *to, const struct candidate *from) {
    struct search_stage *stages = to->stages;
    memcpy(stages, from->stages, sizeof *stages * (size_t)from->n_stages);
    *to = *from;
    to->stages = stages;
}

uint64_t stage_hash(const struct search_stage *st, uint64_t h) {
    h = memo_mix(h, (uint64_t)st->first << 32 | (uint64_t)st->end);
    h = memo_mix(h, (uint64_t)st->devices << 2 | (uint64_t)st->zero);
    if (st->recompute_level)
        h = memo_mix(h,
                     (uint64_t)st->recompute_level << 32 | (uint64_t)st->recompute_blocks);
    if (st->mesh)
        h = memo_mix(h, (uint64_t)(uintptr_t)st->mesh);
    h = st->regather ? memo_mix(h, 1) : h;
    return memo_mix(h, (uint64_t)(uintptr_t)st->layouts);
}

uint64_t candidate_hash(const struct candidate *c) {
    uint64_t h = memo_mix(memo_mix(1, (uint64_t)c->n_stages), (uint64_t)c->micro_batch);
    h = memo_mix(h, (uint64_t)c->n_groups);
    h = memo_mix(h, (uint64_t)c->schedule);
    for (int k = 0; k < c->n_stages; k++) {
        h = stage_hash(&c->stages[k], h);
        h = c->stages[k].place ? memo_mix(h, (uint64_t)c->stages[k].place) : h;
    }
    return h;
}
