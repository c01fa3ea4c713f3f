/* weft-search --explain with --cost: what the source says of the plan's stages, and which
 * decisions there are to pin: the source itself refuses what is decided otherwise (struct
 * source_pin). */
#include "search_explain.h"

#include "common/text.h"
#include "search/source/aceso.h"

#include <stdio.h>

static double number(const json_t *stage, const char *key) {
    return json_number_value(json_object_get(stage, key));
}

static size_t most_of(const json_t *stages, const char *key) {
    size_t most = 0;
    for (size_t k = 1; k < json_array_size(stages); k++)
        if (number(json_array_get(stages, k), key) >
            number(json_array_get(stages, most), key))
            most = k;
    return most;
}

void explain_source_bounds(const struct explain *x) {
    const struct plan *plan = x->best->plan;
    const json_t *stages = json_object_get(plan->provenance, "stages");
    size_t slowest = most_of(stages, "us"), fullest = most_of(stages, "bytes");
    const json_t *s = json_array_get(stages, slowest);
    double m = (double)(plan->batch / plan->micro_batch), step = x->best->time_us;
    double busy = m * number(s, "us"), recompute = m * number(s, "again_us"),
           convert = m * number(s, "convert_us"), message = m * number(s, "message_us");
    fprintf(x->f, "time    stage %zu sets the pace: computes %.1f %% of the step", slowest,
            100 * (busy - recompute - convert - message) / step);
    explain_share(x->f, "again", recompute, step);
    explain_share(x->f, "conversions", convert, step);
    explain_share(x->f, "messages", message, step);
    explain_share(x->f, "waiting", step - busy, step);
    fprintf(x->f, "\nmemory  stage %zu is fullest: %s", fullest,
            text_bytes((double)x->best->max_bytes).s);
    if (x->p->memory_bytes)
        fprintf(x->f, " of %s", text_bytes((double)x->p->memory_bytes).s);
    fputc('\n', x->f);
}

static void try_pin(struct explain *x, const char *what, struct source_pin pin) {
    x->p->source->pin = pin;
    explain_other(x, what, x->p);
    x->p->source->pin = (struct source_pin){0};
}

static void try_tensors(struct explain *x) {
    json_t *doc = aceso_document(x->p->source, x->best->plan);
    const json_t *of = json_object_get(doc, "model_parallel_size_of_each_op");
    int most = 1;
    for (size_t s = 0; s < json_array_size(of); s++)
        for (size_t i = 0; i < json_array_size(json_array_get(of, s)); i++) {
            int tp = (int)json_integer_value(json_array_get(json_array_get(of, s), i));
            most = tp > most ? tp : most;
        }
    json_decref(doc);
    for (int tp = most > 1 ? most / 2 : 2; tp <= x->p->devices && tp <= 2 * most; tp *= 2) {
        char what[64];
        snprintf(what, sizeof what, "tp %d", tp);
        try_pin(x, what, (struct source_pin){.tp = tp});
    }
}

static void try_recompute(struct explain *x) {
    const struct plan *p = x->best->plan;
    bool any = false;
    for (int s = 0; s < p->n_stages; s++)
        for (int i = 0; i < p->stages[s].n_ops; i++)
            any |= p->stages[s].recompute[i];
    if (any)
        try_pin(x, "recompute none", (struct source_pin){.recompute = SOURCE_AGAIN_none});
    try_pin(x, "recompute most", (struct source_pin){.recompute = SOURCE_AGAIN_most});
}

void explain_source_decisions(struct explain *x) {
    int stages[3], n = explain_stages(x, x->best->plan->n_stages, stages);
    for (int i = 0; i < n; i++) {
        char what[64];
        snprintf(what, sizeof what, "stages %d", stages[i]);
        try_pin(x, what, (struct source_pin){.stages = stages[i]});
    }
    try_tensors(x);
    try_recompute(x);
}
