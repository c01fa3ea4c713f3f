/* weft-search --verify: a plan's certificate, worked out again. */
#include "search_tool.h"

#include "common/text.h"

#include <stdio.h>

static double number(const json_t *o, const char *key) {
    return json_number_value(json_object_get(o, key));
}

static struct search_claim claim_of(const struct plan *plan) {
    const json_t *predicted = json_object_get(plan->provenance, "predicted");
    const json_t *search = json_object_get(plan->provenance, "search");
    return (struct search_claim){.time_us = number(predicted, "time_us"),
                                 .memory_bytes = number(predicted, "memory_bytes"),
                                 .lower_bound_us = number(search, "lower_bound_us")};
}

/* The bound is that of the plan's number of devices, while a search that leaves some idle is about all
 * numbers. Listing all plans takes long, so it is tried only where the plan claims what nothing less
 * proves; without a claim a search may know a higher bound. */
static void print_bound(const struct search_problem *p, const struct search_claim *claim,
                        const struct search_verdict *v, FILE *f) {
    if (v->lower_bound_us <= 0) {
        fprintf(f, "no bound is known, so neither is the distance to the optimum\n");
        return;
    }
    fprintf(f, "no plan takes less than %s (%s): within %.2f %% of the optimum",
            text_time(v->lower_bound_us).s, v->relaxation,
            100 * (v->time_us - v->lower_bound_us) / v->time_us);
    if (p->devices < cluster_devices(&p->cluster))
        fprintf(f, " on %d of %lld devices", p->devices,
                (long long)cluster_devices(&p->cluster));
    if (claim->lower_bound_us <= 0)
        fprintf(f, "; it claims no bound, so a higher one was not tried");
    fprintf(f, "\n");
}

int search_print_verdict(struct search_problem *p, struct plan *plan, FILE *f,
                         struct err *err) {
    struct search_claim claim = claim_of(plan);
    struct search_verdict v;
    p->batch = plan->batch;
    p->devices = plan->devices;
    p->optimizer = plan->optimizer;
    p->dtype = plan->dtype;
    if (search_verify_plan(p, plan, &claim, &v, err) < 0)
        return -1;
    fprintf(f, "legal, and runs without a fault\n");
    fprintf(f, "a step takes %s%s\n", text_time(v.time_us).s,
            claim.time_us > 0 ? ", as it says" : "");
    fprintf(f, "a device holds %s%s", text_bytes((double)v.max_bytes).s,
            claim.memory_bytes > 0 ? ", as it says" : "");
    if (p->memory_bytes && search_memory(p, 0, p->devices) == p->memory_bytes)
        fprintf(f, ", of %s", text_bytes((double)p->memory_bytes).s);
    fprintf(f, "\n");
    print_bound(p, &claim, &v, f);
    return 0;
}
