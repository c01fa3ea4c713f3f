/* weft-search --cost: the search over a source's chain, and its plans in the source's own form. */
#include "common/progress.h"
#include "common/text.h"
#include "search/source/aceso.h"
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
    static const char *const compiled[] = {"gradient", "ilp", "exhaustive", "presets"};
    for (size_t i = 0; i < sizeof compiled / sizeof *compiled; i++)
        if (!strcmp(algorithm, compiled[i]))
            return err_usage(err,
                             "--algorithm: %s needs costs that the compiler made; with "
                             "--cost there are hops, dp, mcmc, grid and dp-only",
                             algorithm);
    return 0;
}

/* Of numbers in the lists of ops. */
struct range {
    long long least, most;
};

static struct range range_of(const json_t *list) {
    struct range r = {INT64_MAX, 0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        long long v = json_integer_value(json_array_get(list, i));
        r.least = v < r.least ? v : r.least;
        r.most = v > r.most ? v : r.most;
    }
    return r;
}

static struct range range_of_all(const json_t *doc, const char *key) {
    const json_t *stages = json_object_get(doc, key);
    struct range r = {INT64_MAX, 0};
    for (size_t s = 0; s < json_array_size(stages); s++) {
        struct range of = range_of(json_array_get(stages, s));
        r.least = of.least < r.least ? of.least : r.least;
        r.most = of.most > r.most ? of.most : r.most;
    }
    return r;
}

/* "4", "1..4" */
static const char *range_text(struct range r, char *buf, size_t n) {
    if (r.least == r.most)
        snprintf(buf, n, "%lld", r.least);
    else
        snprintf(buf, n, "%lld..%lld", r.least, r.most);
    return buf;
}

static int count_marks(const json_t *marks) {
    int n = 0;
    for (size_t i = 0; i < json_array_size(marks); i++)
        n += json_integer_value(json_array_get(marks, i)) != 0;
    return n;
}

json_t *search_plan_document(const struct search_problem *p, const struct plan *plan) {
    return p->source ? aceso_document(p->source, plan) : plan_to_json(plan);
}

const char *search_plan_words(const struct search_problem *p, const struct plan *plan,
                              char *buf, size_t n) {
    char dp[48], tp[48];
    if (!p->source)
        return words_line(plan, buf, n);
    json_t *doc = aceso_document(p->source, plan);
    const json_t *marks = json_object_get(doc, "recompute_ops");
    int recompute = 0;
    for (size_t s = 0; s < json_array_size(marks); s++)
        recompute += count_marks(json_array_get(marks, s));
    range_text(range_of_all(doc, "data_parallel_size_of_each_op"), dp, sizeof dp);
    range_text(range_of_all(doc, "model_parallel_size_of_each_op"), tp, sizeof tp);
    snprintf(buf, n,
             "pp %d, dp %s, tp %s, %d ops marked for recomputation, micro-batch %lld",
             plan->n_stages, dp, tp, recompute, (long long)plan->micro_batch);
    json_decref(doc);
    return buf;
}

static void print_stage(FILE *f, const json_t *doc, size_t s) {
    const json_t *marks = json_array_get(json_object_get(doc, "recompute_ops"), s);
    long long devices =
        json_integer_value(json_array_get(json_object_get(doc, "num_gpus"), s));
    int recompute = count_marks(marks);
    const json_t *tp = json_object_get(doc, "model_parallel_size_of_each_op");
    const json_t *dp = json_object_get(doc, "data_parallel_size_of_each_op");
    char tps[48], dps[48];
    fprintf(f, "  stage %zu: %lld ops on %lld device%s, tp:%s dp:%s", s,
            (long long)json_array_size(marks), devices, devices > 1 ? "s" : "",
            range_text(range_of(json_array_get(tp, s)), tps, sizeof tps),
            range_text(range_of(json_array_get(dp, s)), dps, sizeof dps));
    if (recompute)
        fprintf(f, ", %d marked for recomputation", recompute);
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
                       bool explain, FILE *f, struct err *err) {
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
    int rc = explain ? search_explain(p, algorithm, &r, f, err) : 0;
    for (int i = 0; i < r.n && !explain; i++) {
        json_t *doc = search_plan_document(p, r.plans[i].plan);
        if (text)
            print_text(f, doc, i, &r.plans[i]);
        else
            json_write(doc, f);
        json_decref(doc);
    }
    search_result_release(&r);
    return rc;
}
