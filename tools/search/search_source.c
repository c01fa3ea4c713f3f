/* weft-search --cost: the search over a source's chain, and its plans in the source's own form. */
#include "common/progress.h"
#include "common/text.h"
#include "search/aceso.h"
#include "search_tool.h"

#include <stdlib.h>
#include <string.h>

struct source *search_open_source(const char *ref, const char *model, const char *set,
                                  struct err *err) {
    static const char prefix[] = "aceso:";
    if (strncmp(ref, prefix, strlen(prefix)) != 0 || !ref[strlen(prefix)]) {
        err_usage(err, "--cost: expected aceso:FOLDER, got \"%s\"", ref);
        return NULL;
    }
    return aceso_open(ref + strlen(prefix), model, set, err);
}

int search_check_source(const char *algorithm, struct err *err) {
    static const char *const compiled[] = {"gradient", "ilp", "exhaustive", "styles"};
    for (size_t i = 0; i < sizeof compiled / sizeof *compiled; i++)
        if (!strcmp(algorithm, compiled[i]))
            return err_usage(err,
                             "--algorithm: %s needs costs that the compiler made; with "
                             "--cost there are hops, dp, mcmc, grid and dp-only",
                             algorithm);
    return 0;
}

/* "tp:4", "tp:1..4" */
static void print_range(FILE *f, const char *name, const json_t *list) {
    json_int_t least = json_integer_value(json_array_get(list, 0)), most = least;
    for (size_t i = 1; i < json_array_size(list); i++) {
        json_int_t v = json_integer_value(json_array_get(list, i));
        least = v < least ? v : least;
        most = v > most ? v : most;
    }
    if (least == most)
        fprintf(f, " %s:%lld", name, (long long)least);
    else
        fprintf(f, " %s:%lld..%lld", name, (long long)least, (long long)most);
}

static void print_stage(FILE *f, const json_t *doc, size_t s) {
    const json_t *marks = json_array_get(json_object_get(doc, "recompute_ops"), s);
    long long devices =
        json_integer_value(json_array_get(json_object_get(doc, "num_gpus"), s));
    int again = 0;
    for (size_t i = 0; i < json_array_size(marks); i++)
        again += json_integer_value(json_array_get(marks, i)) != 0;
    fprintf(f, "  stage %zu: %lld ops on %lld device%s,", s,
            (long long)json_array_size(marks), devices, devices > 1 ? "s" : "");
    print_range(f, "tp",
                json_array_get(json_object_get(doc, "model_parallel_size_of_each_op"), s));
    print_range(f, "dp",
                json_array_get(json_object_get(doc, "data_parallel_size_of_each_op"), s));
    if (again)
        fprintf(f, ", %d marked for recomputation", again);
    fputc('\n', f);
}

static void print_text(FILE *f, const json_t *doc, int i, const struct search_plan *plan) {
    fprintf(f, "%splan %d: a step takes %s, the fullest device holds %s\n", i ? "\n" : "",
            i + 1, text_time(plan->time_us).s, text_bytes((double)plan->max_bytes).s);
    fprintf(f, "  micro-batch %lld of %lld\n",
            (long long)json_integer_value(json_object_get(doc, "micro_batch_size")),
            (long long)json_integer_value(json_object_get(doc, "global_batch_size")));
    for (size_t s = 0; s < json_array_size(json_object_get(doc, "num_gpus")); s++)
        print_stage(f, doc, s);
}

int search_with_source(struct search_problem *p, search_algorithm *algorithm, bool text,
                       FILE *f, struct err *err) {
    struct search_result r;
    if (search_run(p, algorithm, &r, err) < 0)
        return -1;
    note("weft-search: %lld plans scored in %.2f s%s; all costs are those of %s",
         (long long)r.scored, r.seconds,
         r.complete ? "" : " (stopped early: the best so far)", p->source->name);
    /* The configuration has no room for its time, so this is exact. */
    note("weft-search: a step takes %.3f ms, the fullest device holds %s",
         r.plans[0].time_us / 1e3, text_bytes((double)r.plans[0].max_bytes).s);
    if (*r.relaxation)
        note("weft-search: no plan takes less than %s, gap %.2f %%",
             text_time(r.lower_bound_us).s,
             100 * (1 - r.lower_bound_us / r.plans[0].time_us));
    for (int i = 0; i < r.n; i++) {
        json_t *doc = aceso_document(p->source, r.plans[i].plan);
        if (text)
            print_text(f, doc, i, &r.plans[i]);
        else
            json_write(doc, f);
        json_decref(doc);
    }
    search_result_release(&r);
    return 0;
}
