/* prefetch DIR PLAN - data that is read ahead: whatever comes between the steps, and whenever a training ends, steps
 * see what they would see alone; a file that cannot be read any more is an error of the step that
 * wants it, which ends the job: one plan is tried, by its number. Rank 0 prints TAP. Files are written
 * to DIR. */
#define _XOPEN_SOURCE 700 /* truncate */
#include "../unit/tap.h"
#include "common/rng.h"
#include "exec/exec_impl.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 12, TOKENS = 60000, BELOW = 200 };

/* The second counts targets, the third has more inputs in a step than are read ahead at once; the last two
 * are for 2 ranks, and the stages of the last read one input each. */
static const char *const plans[] = {
    "{'model': 'gpt:nano', 'batch': 8, 'micro_batch': 2, 'stages': [{}]}",
    "{'model': 't5:nano', 'batch': 4, 'micro_batch': 2, 'stages': [{}]}",
    "{'model': 'gpt:nano', 'batch': 300, 'micro_batch': 1, 'stages': [{}]}",
    "{'model': 't5:nano', 'batch': 4, 'micro_batch': 2,"
    " 'stages': [{'mesh': 'dp:2', 'layout': {'dp': 'batch'}}]}",
    "{'model': 'gpt:nano', 'batch': 8, 'micro_batch': 2, 'schedule': '1f1b',"
    " 'stages': [{'ops': ['wte', 'wpe', 'layer.0']}, {}]}",
};

static struct plan *plan_of(const char *text, struct err *err) {
    char buf[512];
    snprintf(buf, sizeof buf, "%s", text);
    for (char *p = buf; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    json_t *doc = json_parse(buf, strlen(buf), "plan", err);
    const char *model = json_string_value(json_object_get(doc, "model"));
    json_object_set_new(doc, "format", json_string("weft-plan/1"));
    json_object_set_new(doc, "set",
                        json_string(*model == 'g' ? "layers=2,hidden=32,heads=4,seq=32"
                                                  : "layers=1,hidden=32,heads=4"));
    struct plan *plan = plan_from_json(doc, err);
    json_decref(doc);
    return plan;
}

static int write_tokens(const char *path, struct err *err) {
    FILE *f = fopen(path, "w");
    for (int i = 0; f && i < TOKENS; i++) {
        int id = (int)(rng_bits(1, 2, (uint64_t)i) % BELOW);
        fputc(id, f);
        fputc(0, f);
    }
    return f && fclose(f) == 0 ? 0 : err_system(err, "%s: cannot be written", path);
}

struct trial {
    const struct program *g;
    struct comm *comm;
    struct data *data;
    const char *path, *plan;
};

static struct exec *begin(const struct trial *t, struct err *err) {
    struct exec_options o = exec_defaults();
    struct exec *x = exec_create(t->g, t->comm, t->data, &o, err);
    if (x && exec_init(x, err) == 0)
        return x;
    exec_destroy(x);
    return NULL;
}

static int end(struct exec *x, struct err *err) {
    int rc = exec_drain(x, err);
    exec_destroy(x);
    return rc;
}

/* Goes on, or stops a validation behind its first batch. */
static int stops(void *ctx, struct err *err) {
    (void)err;
    return *(bool *)ctx;
}

/* Losses of STEPS steps; with validations between them, some of which are stopped. */
static int train(const struct trial *t, bool validates, double *losses, double *valid,
                 struct err *err) {
    struct exec *x = begin(t, err);
    int rc = x ? 0 : -1;
    for (int s = 0; s < STEPS && rc == 0; s++) {
        struct exec_metrics m;
        bool stop = s % 3 == 1;
        double loss;
        rc = exec_step(x, &m, err);
        losses[s] = m.loss;
        if (rc == 0 && validates && s % 3)
            rc = exec_validate(x, 0, 2, stops, &stop, &loss, err) < 0 ? -1 : 0;
        if (s == 2)
            *valid = loss;
    }
    return x && end(x, err) == 0 ? rc : -1;
}

/* Trainings that end at once, and behind each step. */
static int end_early(const struct trial *t, struct err *err) {
    int rc = 0;
    for (int steps = 0; steps < STEPS && rc == 0; steps++) {
        struct exec_metrics m;
        struct exec *x = begin(t, err);
        rc = x ? 0 : -1;
        for (int s = 0; s < steps && rc == 0; s++)
            rc = exec_step(x, &m, err);
        rc = x && end(x, err) == 0 ? rc : -1;
    }
    return rc;
}

static void say(const struct trial *t, bool good, const char *text) {
    double bad = !good;
    comm_max_double(comm_world(t->comm), &bad, 1, NULL);
    if (comm_rank(t->comm) == 0)
        ok(bad == 0, "%s: %s", text, t->plan);
}

/* By one rank alone: when its fellows hear of the failure is not for this test. */
static int cut_short(const struct trial *t, struct err *err) {
    struct err said = {0};
    struct exec_metrics m;
    struct exec *x = comm_size(t->comm) == 1 ? begin(t, err) : NULL;
    int rc = x ? exec_step(x, &m, err) : 0, more = 0;
    if (!x || rc < 0 || truncate(t->path, 2) < 0)
        return x ? err_system(err, "%s: cannot be cut short", t->path) : rc;
    int64_t before = exec_steps(x);
    while (more < 1000000 && exec_step(x, &m, &said) == 0)
        more++;
    say(t, said.status == EXIT_SYSTEM && strstr(said.msg, "nothing at byte"),
        "a file that is cut short is an error");
    char step[64];
    snprintf(step, sizeof step, "step %lld: ", (long long)before + more + 1);
    say(t, !strncmp(said.msg, step, strlen(step)), "of the step that wants it");
    say(t, strstr(said.msg, "input: ") || strstr(said.msg, "targets: "),
        "and of its input");
    exec_destroy(x);
    return 0;
}

static int try_program(struct trial *t, struct err *err) {
    double alone[STEPS], amid[STEPS], first, second;
    if (train(t, true, alone, &first, err) < 0 || train(t, true, amid, &second, err) < 0)
        return -1;
    say(t, !memcmp(alone, amid, sizeof alone) && first == second, "the same twice");
    if (train(t, false, amid, &second, err) < 0)
        return -1;
    say(t, !memcmp(alone, amid, sizeof alone), "validations change nothing");
    if (end_early(t, err) < 0)
        return -1;
    say(t, true, "ends at any time");
    return cut_short(t, err);
}

static int try_plan(const char *text, struct comm *comm, const char *path,
                    struct err *err) {
    struct plan *plan = plan_of(text, err);
    struct program *g = plan ? program_compile(plan, err) : NULL;
    struct data_spec spec = {.source = path, .validation = DATA_VALIDATION, .seed = 7};
    struct trial t = {g, comm, NULL, path, text};
    int rc = g && exec_data_spec(plan->model, &spec, err) == 0 ? 0 : -1;
    if (rc == 0)
        rc = exec_agree(comm, comm_rank(comm) ? 0 : write_tokens(path, err), err);
    if (rc == 0)
        rc = data_open(&t.data, &spec, err);
    if (rc == 0)
        rc = try_program(&t, err);
    data_close(t.data);
    program_destroy(g);
    plan_destroy(plan);
    return rc;
}

int main(int argc, char **argv) {
    struct err err = {0};
    struct comm *comm = comm_create(&argc, &argv, NULL, &err);
    char path[4096];
    size_t plan = argc == 3 ? (size_t)atoi(argv[2]) : sizeof plans;
    int rc = comm && plan < sizeof plans / sizeof *plans ? 0 : -1;
    snprintf(path, sizeof path, "%s/prefetch.bin", argc == 3 ? argv[1] : ".");
    if (rc < 0 || try_plan(plans[plan], comm, path, &err) < 0) {
        err_report(&err, "prefetch");
        if (!comm)
            return 4;
        comm_abort(comm, 4);
    }
    rc = comm_rank(comm) ? 0 : done_testing();
    comm_destroy(comm);
    return rc;
}
