/* What all providers share (see provider.h). */
#include "cost/provider.h"

const char *cost_source_name(enum cost_source s) {
    static const char *const names[] = {
#define X(id) #id,
        COST_SOURCES(X)
#undef X
    };
    return names[s];
}

void cost_sum_add(struct cost_sum *sum, struct cost_time t, double uses) {
    sum->us[t.from] += uses * t.us;
    sum->low_us += uses * t.low_us;
    sum->high_us += uses * t.high_us;
}

void provider_destroy(struct cost_provider *p) {
    if (p)
        p->kind->destroy(p);
}
