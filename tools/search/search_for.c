/* weft-search --for: plans that another trainer can run. The space is cut down to what its options can
 * say at all, and of the plans that are found those are kept of which they say everything. */
#include "search_tool.h"

#include "common/progress.h"
#include "plan_tool.h"

#include <stdlib.h>
#include <string.h>

#define BIT(name) (1u << SCHEDULE_##name)
static const struct target {
    const char *name;
    unsigned schedules;
    int max_zero, max_stages; /* 0: any number of stages */
    bool f16;                 /* does it train in fp16? */
    char *(*say)(const struct plan *p, struct err *err);
} targets[] = {
    {"megatron", BIT(1f1b) | BIT(interleaved), ZERO_OPTIMIZER, 0, true, plan_to_megatron},
    {"torchtitan", BIT(1f1b) | BIT(interleaved) | BIT(gpipe), ZERO_PARAMETERS, 0, false,
     plan_to_torchtitan},
    {"deepspeed", BIT(1f1b), ZERO_PARAMETERS, 1, true, plan_to_deepspeed},
    {"accelerate", BIT(1f1b), ZERO_PARAMETERS, 1, true, plan_to_accelerate},
    {"galvatron", BIT(1f1b) | BIT(gpipe), ZERO_PARAMETERS, 0, true, plan_to_galvatron},
    {"nnscaler", BIT(1f1b), ZERO_OPTIMIZER, 0, true, plan_to_nnscaler},
};

/* Of so many plans some can be said; where of these none can, of more. */
enum { CANDIDATES = 32, MORE_CANDIDATES = 1024 };

static const struct target *find_target(const char *name) {
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (!strcmp(targets[i].name, name))
            return &targets[i];
    return NULL;
}

int search_for_limit(struct search_problem *p, const char *name, struct err *err) {
    const struct target *t = find_target(name);
    if (!t)
        return err_usage(
            err,
            "--for: expected megatron, torchtitan, deepspeed, accelerate, galvatron or "
            "nnscaler, got \"%s\"",
            name);
    p->schedules &= t->schedules;
    if (!p->schedules)
        return err_usage(err, "--schedule: none of these is one of %s", name);
    if (p->dtype == DTYPE_f16 && !t->f16)
        return err_usage(err, "--dtype: %s trains in bf16 or fp32", name);
    p->max_zero = p->max_zero < t->max_zero ? p->max_zero : t->max_zero;
    if (t->max_stages && (!p->max_stages || p->max_stages > t->max_stages))
        p->max_stages = t->max_stages;
    p->as_listed = true;
    p->may_offload = false;
    p->may_logits = false;
    p->slack = 0;
    p->regather = true; /* of a sequence that tensor parallelism splits */
    struct err why = {0};
    char *text = p->from ? t->say(p->from, &why) : NULL;
    if (p->from && !text) {
        note("weft-search: --for %s: the plan to start from cannot be said: %s", name,
             why.msg);
        p->from = NULL;
    }
    free(text);
    return 0;
}

/* Keeps up to `wanted` plans of which the trainer's options say all. */
static int keep(struct search_result *r, const struct target *t, int wanted,
                struct err *err) {
    struct err first = {0};
    int kept = 0;
    for (int i = 0; i < r->n; i++) {
        struct err why = {0};
        char *text = kept < wanted ? t->say(r->plans[i].plan, &why) : NULL;
        if (text)
            r->plans[kept++] = r->plans[i];
        else
            plan_destroy(r->plans[i].plan);
        if (!text && !first.status)
            first = why;
        free(text);
    }
    r->n = kept;
    return kept ? 0
                : err_no(err,
                         "--for %s: none of the plans that were found can be said; the "
                         "fastest: %.400s",
                         t->name, first.msg);
}

int search_for_run(const char *name, const struct search_problem *p,
                   search_algorithm *algorithm, struct search_result *out,
                   struct err *err) {
    struct search_problem more = *p;
    if (!name)
        return search_run(p, algorithm, out, err);
    for (more.top = CANDIDATES;; more.top = MORE_CANDIDATES) {
        more.top = more.top < p->top ? p->top : more.top;
        if (search_run(&more, algorithm, out, err) < 0)
            return -1;
        if (keep(out, find_target(name), p->top, err) == 0)
            return 0;
        search_result_release(out);
        if (more.top >= MORE_CANDIDATES)
            return -1;
        *err = (struct err){0};
    }
}

/* ---- what to change ------------------------------------------------------------------------ */

/* Is the line of n letters one of the text's? */
static bool has_line(const char *text, const char *line, size_t n) {
    for (size_t m; *text; text += m + (text[m] == '\n')) {
        m = strcspn(text, "\n");
        if (m == n && !memcmp(text, line, n))
            return true;
    }
    return false;
}

/* The lines of `text` that the other lacks; returns whether there are any. */
static bool print_lines(FILE *f, char sign, const char *text, const char *other) {
    bool any = false;
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        if (n && !has_line(other, text, n))
            any |= fprintf(f, "%c %.*s\n", sign, (int)n, text) > 0;
    }
    return any;
}

int search_for_changes(const char *name, const struct plan *from, const struct plan *to,
                       FILE *f, struct err *err) {
    const struct target *t = find_target(name);
    char *after = t->say(to, err), *before = after ? t->say(from, NULL) : NULL;
    if (after) {
        fprintf(f, "\nwhat to change for %s\n", name);
        bool gone = print_lines(f, '-', before ? before : "", after);
        if (!print_lines(f, '+', after, before ? before : "") && !gone)
            fprintf(f, "nothing: no plan was found that is faster\n");
    }
    free(before);
    free(after);
    return after ? 0 : -1;
}
