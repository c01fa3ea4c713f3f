/* Overlap: see overlap.h. */
#include "search/evaluate/overlap.h"

#include <math.h>

bool search_may_hide(const struct search *s) {
    int64_t pinned = search_pinned(s, PIN_overlap);
    return (s->p.may_overlap || pinned == 1) && pinned != 0 && s->p.devices > 1 &&
           !s->p.source && s->p.provider->overlap > 0;
}

bool search_may_overlap(const struct search *s) {
    bool copies = s->p.offload && s->p.may_overlap;
    return (s->hides || copies) && search_pinned(s, PIN_overlap) == PIN_FREE;
}

double search_hidden_us(const struct search *s, double reduce_us, double backward_us) {
    return s->hides ? fmin(s->p.provider->overlap * reduce_us, backward_us) : 0;
}

bool search_overlap_plan(struct search *s, struct search_plan *p) {
    struct search_plan other = {.plan = p->plan, .member = p->member};
    if (!search_may_overlap(s) || p->plan->overlap)
        return false;
    p->plan->overlap = true;
    if (search_judge_plan(s, &other) && other.time_us < p->time_us * (1 - 1e-9)) {
        *p = other;
        return true;
    }
    p->plan->overlap = false;
    return false;
}
