/* skip DIR - a step that is not finite on one rank changes nothing on any: parameters, optimizer
 * state and what follows have the bits of a run that never saw it. Values that are not finite are
 * not saved in DIR. Rank 0 prints TAP; plans for 1, 2 and 4 ranks. */
#include "../unit/tap.h"
#include "common/rng.h"
#include "exec/exec_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BEFORE = 2, AFTER = 3, ARENA_BYTES = 8 << 20 };

static const char *const plans[] = {
    "{'stages': [{}]}",
    "{'optimizer': 'sgd', 'stages': [{}]}",
    "{'dtype': 'fp16', 'stages': [{}]}",
    "{'stages': [{'mesh': 'dp:2', 'layout': {'dp': 'batch'}, 'zero': 1}]}",
    "{'dtype': 'fp16', 'stages': [{'mesh': 'dp:2', 'layout': {'dp': 'batch'}, 'zero': 1}]}",
    "{'stages': [{'mesh': 'tp:2', 'layout': {'tp': ['heads', 'ffn', 'vocab']}}]}",
    "{'schedule': '1f1b', 'stages': [{'ops': ['wte', 'wpe', 'drop', 'layer.0']}, {}]}",
    "{'stages': [{'ops': ['wte', 'wpe', 'drop', 'layer.0'], 'mesh': 'dp:2',"
    "             'layout': {'dp': 'batch'}},"
    "            {'mesh': 'tp:2', 'layout': {'tp': ['heads', 'ffn', 'vocab']}, 'zero': 1}]}",
};

static struct plan *plan_of(const char *text, struct err *err) {
    char buf[512];
    snprintf(buf, sizeof buf, "%s", text);
    for (char *p = buf; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    json_t *doc = json_parse(buf, strlen(buf), "plan", err);
    json_object_set_new(doc, "format", json_string("weft-plan/1"));
    json_object_set_new(doc, "model", json_string("gpt:nano"));
    json_object_set_new(doc, "set",
                        json_string("layers=2,hidden=32,heads=4,seq=8,dropout=0.1"));
    json_object_set_new(doc, "batch", json_integer(8));
    json_object_set_new(doc, "micro_batch", json_integer(4));
    struct plan *plan = plan_from_json(doc, err);
    json_decref(doc);
    return plan;
}

/* What a rank keeps from step to step. */
static uint64_t state_hash(const struct exec *x) {
    uint64_t h = 0;
    for (int i = 0; i < x->chunks->sp->n_params; i++) {
        const struct buffer *b = &x->chunks->sp->buffers[x->chunks->sp->params[i].buffer];
        h = hash_bytes(x->arena + b->offset, (size_t)(dtype_size(b->dtype) * b->elems), h);
    }
    for (int i = 0; i < x->chunks->sp->n_states; i++) {
        const struct buffer *b = &x->chunks->sp->buffers[x->chunks->sp->states[i].buffer];
        h = hash_bytes(x->arena + b->offset, 4 * (size_t)b->elems, h);
    }
    return h;
}

struct poison {
    struct exec *x;
    bool now; /* the last rank's part of the gradient norm is no number */
};

static void on_instr(void *ctx, const struct instr *i, struct action a, double start_s,
                     double end_s) {
    struct poison *p = ctx;
    (void)a, (void)start_s, (void)end_s;
    if (p->now && i->code == I_sum_squares)
        p->x->scalars->norm_squared = NAN;
}

struct outcome {
    uint64_t before, behind, end; /* states: before the step, behind it, at the end */
    bool skipped;
    double norm, scale;
    int unsaved; /* what exec_save said of a parameter that is no number */
};

static int run(const struct program *g, struct comm *comm, const struct data *data,
               float *arena, bool poisoned, const char *dir, struct outcome *out,
               struct err *err) {
    struct poison p = {0};
    struct exec_options o = exec_defaults();
    struct exec_metrics m = {0};
    o.arena = arena;
    o.arena_bytes = ARENA_BYTES;
    o.on_instr = on_instr;
    o.on_instr_ctx = &p;
    struct exec *x = p.x = exec_create(g, comm, data, &o, err);
    if (!x)
        return -1;
    int rc = exec_init(x, err);
    for (int s = 0; s < BEFORE && rc == 0; s++)
        rc = exec_step(x, &m, err);
    out->before = state_hash(x);
    p.now = poisoned && comm_rank(comm) == comm_size(comm) - 1;
    if (poisoned && rc == 0) {
        rc = exec_step(x, &m, err);
        out->skipped = m.skipped;
        out->norm = m.grad_norm;
        out->scale = x->loss_scale;
    } else { /* the step that never was */
        x->loss_scale /= 2;
        x->good_steps = 0;
        x->step++;
        x->skipped++;
        x->sample += g->plan->batch;
    }
    p.now = false;
    out->behind = state_hash(x);
    for (int s = 0; s < AFTER && rc == 0; s++)
        rc = exec_step(x, &m, err);
    out->end = state_hash(x);
    if (rc == 0)
        rc = exec_drain(x, err);
    if (poisoned && rc == 0) {
        struct checkpoint_info about = {.run = 1};
        if (comm_rank(comm) == comm_size(comm) - 1)
            ((float *)(x->arena +
                       x->chunks->sp->buffers[x->chunks->sp->states[0].buffer].offset))[0] =
                INFINITY;
        rc = out->unsaved = exec_save(x, &(struct exec_folder){.dir = dir}, &about, err);
    }
    exec_destroy(x);
    return rc < 0 ? -1 : 0;
}

/* 1 where all ranks say so. */
static int all(struct comm *comm, bool good) {
    double bad = !good;
    comm_max_double(comm_world(comm), &bad, 1, NULL);
    return bad == 0;
}

static void say(struct comm *comm, int good, const char *text, const char *plan) {
    if (comm_rank(comm) == 0)
        ok(good, "%s: %s", text, plan);
}

static int try_plan(const char *text, struct comm *comm, float *arena, const char *dir,
                    struct err *err) {
    struct plan *plan = plan_of(text, err);
    if (plan && plan->devices != comm_size(comm)) {
        plan_destroy(plan);
        return 0;
    }
    struct program *g = plan ? program_compile(plan, err) : NULL;
    struct data_spec spec = {
        .source = "synthetic", .kind = DATA_TOKENS, .seq = 8, .vocab = 256, .seed = 7};
    struct data *data = NULL;
    struct outcome a, b;
    int rc = g && data_open(&data, &spec, err) == 0 ? 0 : -1;
    if (rc == 0)
        rc = run(g, comm, data, arena, true, dir, &a, err);
    if (rc == 0)
        rc = run(g, comm, data, arena, false, dir, &b, err);
    if (rc == 0) {
        char *path = NULL;
        say(comm, all(comm, a.skipped && !isfinite(a.norm)), "all ranks skip", text);
        say(comm, all(comm, a.before == a.behind), "nothing changes", text);
        if (plan->dtype == DTYPE_f16)
            say(comm, all(comm, a.scale == 1 << 15), "but for half the loss scale", text);
        say(comm, all(comm, a.end == b.end && a.end != a.before),
            "and goes on as if it had not been", text);
        say(comm, all(comm, a.unsaved == 1) && checkpoint_latest(dir, &path, NULL) == 0,
            "infinity is not saved", text);
        free(path);
    }
    data_close(data);
    program_destroy(g);
    plan_destroy(plan);
    return rc;
}

int main(int argc, char **argv) {
    struct err err = {0};
    struct comm *comm = comm_create(&argc, &argv, NULL, &err);
    float *arena = comm && argc == 2 ? comm_alloc(comm, ARENA_BYTES, &err) : NULL;
    int rc = arena ? 0 : -1;
    for (size_t i = 0; i < sizeof plans / sizeof *plans && rc == 0; i++)
        rc = try_plan(plans[i], comm, arena, argv[1], &err);
    if (rc < 0) {
        err_report(&err, "skip");
        if (!comm)
            return 4;
        comm_abort(comm, 4);
    }
    rc = comm_rank(comm) ? 0 : done_testing();
    comm_destroy(comm);
    return rc;
}
