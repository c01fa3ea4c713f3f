/* weft-solve - the solvers of the plan search, on problems of their own.
 *
 *     weft-solve stages problem.json | jq .value
 *
 * One JSON document in, one out; what differs between the problems lies behind the
 * kinds of solve/solve.h. */
#include "common/file.h"
#include "common/json.h"
#include "common/opt.h"
#include "common/progress.h"
#include "solve/solve.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

struct options {
    const struct solve_kind *kind;
    const char *file, *output, *verify;
    double time_budget_s, gap;
    int64_t seed, threads;
    bool text;
};

static const struct solve_kind *find_kind(const char *name) {
    for (int i = 0; solve_kinds[i]; i++)
        if (!strcmp(solve_kinds[i]->name, name))
            return solve_kinds[i];
    return NULL;
}

static int parse(struct options *o, int argc, char **argv, struct err *err) {
    *o = (struct options){.file = "-", .output = "-", .seed = 1};
    const struct opt options[] = {
        {0, "time-budget", OPT_TIME, "TIME", "stop after TIME with the best answer so far",
         &o->time_budget_s},
        {0, "gap", OPT_REAL, "X", "stop when (value - bound) / bound <= X (0: optimum)",
         &o->gap},
        {0, "seed", OPT_INT, "N", "seed of random choices (1)", &o->seed},
        {0, "threads", OPT_INT, "N", "threads at most (0: one per core)", &o->threads},
        {0, "text", OPT_FLAG, NULL, "a short table instead of JSON", &o->text},
        {0, "verify", OPT_STR, "ANSWER", "check an answer to FILE instead of solving",
         &o->verify},
        {'o', "output", OPT_STR, "FILE", "write to FILE instead of standard output",
         &o->output},
        {0},
    };
    const struct opt_tool tool = {
        "weft-solve", "layout|partition|stages|joint [options] [FILE]",
        "Solve one of the combinatorial problems under the plan search.", options};
    int n = opt_parse(&tool, argc, argv, err);
    if (n < 0)
        return -1;
    if (n == 0)
        return err_usage(err, "expected a problem: layout, partition, stages or joint");
    if (n > 2)
        return err_usage(err, "expected a problem and one file, got %d operands", n);
    o->kind = find_kind(argv[0]);
    if (!o->kind)
        return err_usage(
            err, "expected a problem: layout, partition, stages or joint, got \"%.40s\"",
            argv[0]);
    if (n == 2)
        o->file = argv[1];
    if (o->verify && !strcmp(o->verify, "-") && !strcmp(o->file, "-"))
        return err_usage(err, "--verify: only one of the two can be standard input");
    if (o->gap < 0)
        return err_usage(err, "--gap: expected a number >= 0, got %g", o->gap);
    if (o->threads > 4096)
        return err_usage(err, "--threads: expected at most 4096, got %lld",
                         (long long)o->threads);
    return 0;
}

static json_t *solve(const struct options *o, struct err *err) {
    struct solve_limits limits = {.time_budget_s = o->time_budget_s,
                                  .gap = o->gap,
                                  .seed = (uint64_t)o->seed,
                                  .threads = (int)o->threads};
    struct json_stream s;
    json_t *answer = json_stream_open(&s, o->file, err) < 0
                         ? NULL
                         : solve_document(o->kind, &s, &limits, err);
    json_stream_close(&s);
    struct rusage use;
    if (answer && getrusage(RUSAGE_SELF, &use) == 0)
        json_object_set_new(answer, "peak_bytes", json_integer(use.ru_maxrss * 1024));
    return answer;
}

static int write_text(const struct options *o, const json_t *a, struct err *err) {
    struct file_out out;
    const char *proof = json_string_value(json_object_get(a, "proof"));
    if (file_out_open(&out, o->output, err) < 0)
        return -1;
    fprintf(out.f, "problem  %s\n", o->kind->name);
    fprintf(out.f, "value    %.12g\n", json_number_value(json_object_get(a, "value")));
    fprintf(out.f, "bound    %.12g\n", json_number_value(json_object_get(a, "bound")));
    const json_t *gap = json_object_get(a, "gap"); /* null above a bound of 0 */
    if (json_is_number(gap))
        fprintf(out.f, "gap      %.4g %%\n", 100 * json_number_value(gap));
    else
        fprintf(out.f, "gap      not bounded\n");
    fprintf(out.f, "time     %.4f s\n", json_number_value(json_object_get(a, "time_s")));
    fprintf(out.f, "memory   %.1f MB\n",
            json_number_value(json_object_get(a, "peak_bytes")) / 1e6);
    fprintf(out.f, "proof    %s\n", proof ? proof : "none");
    return file_out_close(&out, err);
}

/* Says in words what holds. */
static int verify(const struct options *o, struct err *err) {
    struct json_stream s;
    struct solve_verdict v;
    struct file_out out;
    int rc = json_stream_open(&s, o->file, err);
    if (rc == 0)
        rc = solve_verify(o->kind, &s, o->verify, &v, err);
    json_stream_close(&s);
    if (rc < 0 || file_out_open(&out, o->output, err) < 0)
        return -1;
    fprintf(out.f, "keeps to the problem, and its value is %.17g, as it says\n", v.value);
    if (v.bound > 0)
        fprintf(out.f, "its bound of %.17g, not proven again, puts it within %.4g %%\n",
                v.bound, 100 * (v.value - v.bound) / v.bound);
    return file_out_close(&out, err);
}

int main(int argc, char **argv) {
    struct err err = {0};
    struct options o;
    if (parse(&o, argc, argv, &err) < 0)
        return err_report(&err, "weft-solve");
    interrupt_catch();
    if (o.verify)
        return verify(&o, &err) < 0 ? err_report(&err, "weft-solve") : EXIT_DONE;
    json_t *answer = solve(&o, &err);
    int rc = !answer  ? -1
             : o.text ? write_text(&o, answer, &err)
                      : json_write_file(answer, o.output, &err);
    json_decref(answer);
    return rc < 0 ? err_report(&err, "weft-solve") : EXIT_DONE;
}
