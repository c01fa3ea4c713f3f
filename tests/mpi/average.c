/* average DIR - replicas that train apart against the arithmetic of the same training, done here in double for
 * all replicas at once: losses, norms and parameters of every step, before and behind the means; the
 * pairs that meet; checkpoints, which hold one model. Rank 0 prints TAP; for 2 ranks and more, some cases
 * for 4. */
#include "checkpoint/checkpoint.h"
#include "common/rng.h"
#include "data/data.h"
#include "exec/exec_impl.h"
#include "tap_ranks.h"
#include "two-layers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIXELS = 12,
    HIDDEN = 16,
    CLASSES = 10,
    OWN = 8, /* samples of a rank in a step, in two micro-batches */
    W1 = 0,
    B1 = W1 + PIXELS * HIDDEN,
    W2 = B1 + HIDDEN,
    B2 = W2 + HIDDEN * CLASSES,
    PARAMS = B2 + CLASSES,
    MOST_RANKS = 16,
    STEPS = 12,
    SEED = 7,
    ARENA_BYTES = 1 << 20
};

/* The keys of the plan besides; %d in the stage: the ranks. */
static struct plan *plan_of(const char *keys, const char *stage) {
    struct err err = {0};
    char text[512];
    const int n = comm_size(comm);
    json_t *doc = json_of(keys);
    snprintf(text, sizeof text, stage, n);
    json_object_set_new(doc, "format", json_string("weft-plan/1"));
    json_object_set_new(doc, "model", json_of(TWO_LAYERS("16")));
    json_object_set_new(doc, "batch", json_integer(OWN * n));
    json_object_set_new(doc, "micro_batch", json_integer(OWN * n / 2));
    json_object_set_new(doc, "stages", json_pack("[o]", json_of(text)));
    struct plan *plan = plan_from_json(doc, &err);
    json_decref(doc);
    must(plan ? 0 : -1, &err);
    return plan;
}

/* ---- the arithmetic ------------------------------------------------------------------------- */

struct samples {
    double image[OWN][PIXELS], label[OWN];
};

/* What it has: parameters, moments, and of this step its gradient. */
enum { P, M, V, STATES };
struct replica {
    double state[STATES][PARAMS], g[PARAMS];
};

/* Adds the gradient of one sample's loss, times `by`; returns the loss. */
static double backward(struct replica *r, const double *x, int label, double by) {
    const double *p = r->state[P];
    double h[HIDDEN], y[CLASSES], dh[HIDDEN] = {0}, sum = 0;
    for (int j = 0; j < HIDDEN; j++) {
        h[j] = p[B1 + j];
        for (int i = 0; i < PIXELS; i++)
            h[j] += x[i] * p[W1 + i * HIDDEN + j];
        h[j] = h[j] > 0 ? h[j] : 0;
    }
    for (int k = 0; k < CLASSES; k++) {
        y[k] = p[B2 + k];
        for (int j = 0; j < HIDDEN; j++)
            y[k] += h[j] * p[W2 + j * CLASSES + k];
        sum += exp(y[k]);
    }
    for (int k = 0; k < CLASSES; k++) {
        const double dy = by * (exp(y[k]) / sum - (k == label));
        r->g[B2 + k] += dy;
        for (int j = 0; j < HIDDEN; j++) {
            r->g[W2 + j * CLASSES + k] += h[j] * dy;
            dh[j] += dy * p[W2 + j * CLASSES + k];
        }
    }
    for (int j = 0; j < HIDDEN; j++) {
        dh[j] = h[j] > 0 ? dh[j] : 0;
        r->g[B1 + j] += dh[j];
        for (int i = 0; i < PIXELS; i++)
            r->g[W1 + i * HIDDEN + j] += x[i] * dh[j];
    }
    return log(sum) - y[label];
}

/* Weights decay, biases do not. */
static double decay_of(int i, double rate) {
    return (i < B1 || (i >= W2 && i < B2)) ? rate : 0;
}

static void descend(struct replica *r, enum optimizer by, const struct exec_options *o,
                    double lr, double scale, int step) {
    const double fix1 = 1 - pow(o->beta1, step), fix2 = 1 - pow(o->beta2, step);
    double *p = r->state[P], *m = r->state[M], *v = r->state[V];
    for (int i = 0; i < PARAMS; i++) {
        const double g = scale * r->g[i], decay = decay_of(i, o->weight_decay);
        if (by == OPTIMIZER_sgd) {
            m[i] = o->momentum * m[i] + g + decay * p[i];
            p[i] -= lr * m[i];
            continue;
        }
        m[i] = o->beta1 * m[i] + (1 - o->beta1) * g;
        v[i] = o->beta2 * v[i] + (1 - o->beta2) * g * g;
        p[i] -= lr * (m[i] / fix1 / (sqrt(v[i] / fix2) + o->eps) + decay * p[i]);
    }
}

/* Of those replicas for which `with` is the same. */
static void average(struct replica *all, int n, const int *with) {
    struct replica *was = malloc(sizeof *was * (size_t)n);
    memcpy(was, all, sizeof *was * (size_t)n);
    for (int r = 0; r < n; r++) {
        int members = 0;
        for (int q = 0; q < n; q++)
            members += with[q] == with[r];
        memset(all[r].state, 0, sizeof all[r].state);
        for (int q = 0; q < n; q++)
            for (int s = 0; s < STATES && with[q] == with[r]; s++)
                for (int i = 0; i < PARAMS; i++)
                    all[r].state[s][i] += was[q].state[s][i] / members;
    }
    free(was);
}

/* ---- the training -------------------------------------------------------------------------- */

static float *arena; /* of all runs */

struct watched {
    struct exec *x;
    struct samples own;
    int seen;              /* samples of this step */
    double before[PARAMS]; /* parameters behind the update, before a mean */
};

static int param_at(const char *name) {
    static const char *const names[] = {"in.weight", "in.bias", "out.weight", "out.bias"};
    static const int at[] = {W1, B1, W2, B2};
    for (int i = 0; i < 4; i++)
        if (!strcmp(name, names[i]))
            return at[i];
    return -1;
}

/* Parameters as one list; of 16 bits their masters. */
static void read_params(const struct exec *x, double *out) {
    const struct stage_program *sp = x->chunks->sp;
    const struct model *m = x->g->plan->model;
    for (int i = 0; i < sp->n_params + sp->n_states; i++) {
        const bool state = i >= sp->n_params;
        const int param = state ? sp->states[i - sp->n_params].param : sp->params[i].param;
        const struct buffer *b = &sp->buffers[state ? sp->states[i - sp->n_params].buffer
                                                    : sp->params[i].buffer];
        if (b->dtype != DTYPE_f32 ||
            (state && sp->states[i - sp->n_params].which != STATE_MASTER))
            continue;
        const char *at =
            b->host ? x->host_arena + (b->offset - HOST_ARENA) : x->arena + b->offset;
        const float *p = (const float *)(const void *)at;
        for (int64_t k = 0; k < b->elems; k++)
            out[param_at(m->params[param].name) + k] = p[k];
    }
}

/* Notes the rank's samples as they come, and what the update leaves. */
static void on_instr(void *ctx, const struct instr *i, struct action a, double start_s,
                     double end_s) {
    struct watched *w = ctx;
    const struct stage_program *sp = w->x->chunks->sp;
    (void)start_s, (void)end_s;
    if (a.segment == SEG_UPDATE && i == &sp->instrs[sp->seg[SEG_UPDATE + 1] - 1])
        read_params(w->x, w->before);
    if (i->code != I_input || a.segment != SEG_FORWARD)
        return;
    const void *data = w->x->arena + buffer_offset(sp, i->out.input.y, a.index);
    const bool image = w->x->g->plan->model->tensors[i->tensor].integer == 0;
    const int each = image ? PIXELS : 1, n = (int)i->n.input.elems / each;
    for (int k = 0; k < n * each; k++) {
        const int at = (int)a.index * n + k / each;
        if (image)
            w->own.image[at][k % each] = ((const float *)data)[k];
        else
            w->own.label[at] = ((const int32_t *)data)[k];
    }
}

static struct data *data_of(void) {
    struct err err = {0};
    struct data_spec spec = {.source = "synthetic",
                             .kind = DATA_IMAGES,
                             .pixels = PIXELS,
                             .classes = CLASSES,
                             .seed = SEED};
    struct data *data = NULL;
    must(data_open(&data, &spec, &err), &err);
    return data;
}

static struct exec_options run_options(const struct plan *p, struct watched *w) {
    struct exec_options o = exec_defaults();
    o.lr = p->optimizer == OPTIMIZER_sgd ? 0.05 : 0.01;
    o.min_lr = o.lr;
    o.warmup = 0;
    o.eps = 1e-3; /* noise is not normalized */
    o.clip = 0.6; /* which binds in the first steps */
    o.arena = arena;
    o.arena_bytes = ARENA_BYTES;
    o.on_instr = on_instr;
    o.on_instr_ctx = w;
    return o;
}

/* What every rank has, side by side: [ranks][n]. free() it. */
static double *gather(const void *own, int n) {
    struct err err = {0};
    double *all = calloc((size_t)(comm_size(comm) * n), sizeof *all);
    memcpy(all + job_rank * n, own, sizeof *all * (size_t)n);
    must(comm_sum_double(comm_world(comm), all, comm_size(comm) * n, &err), &err);
    return all;
}

static double apart(const double *a, const double *b) {
    double worst = 0;
    for (int i = 0; i < PARAMS; i++)
        worst = fmax(worst, fabs(a[i] - b[i]) / (0.01 + fabs(b[i])));
    return worst;
}

/* ---- against the arithmetic ----------------------------------------------------------------- */

struct errors {
    double loss, norm, before, behind;
};

/* One step of all replicas; `each`: ranks of one of them. */
static void follow(const struct plan *p, const struct exec_options *o, struct watched *w,
                   struct replica *all, int each, int step, const struct exec_metrics *m,
                   struct errors *worst) {
    const int ranks = comm_size(comm), n = ranks / each;
    double *seen = gather(&w->own, sizeof w->own / sizeof(double)), loss = 0, squares = 0;
    for (int r = 0; r < n; r++) {
        memset(all[r].g, 0, sizeof all[r].g);
        for (int k = 0; k < each; k++) {
            const struct samples *s = (const struct samples *)seen + r * each + k;
            for (int i = 0; i < OWN; i++)
                loss +=
                    backward(&all[r], s->image[i], (int)s->label[i], 1.0 / (OWN * each)) /
                    (OWN * ranks);
        }
        for (int i = 0; i < PARAMS; i++)
            squares += all[r].g[i] * all[r].g[i] / n;
    }
    const double norm = sqrt(squares), scale = norm > o->clip ? o->clip / norm : 1;
    worst->loss = fmax(worst->loss, fabs(m->loss - loss) / loss);
    worst->norm = fmax(worst->norm, fabs(m->grad_norm - norm) / norm);
    for (int r = 0; r < n; r++)
        descend(&all[r], p->optimizer, o, o->lr, scale, step + 1);
    worst->before = fmax(worst->before, apart(w->before, all[job_rank / each].state[P]));
    int with[MOST_RANKS] = {0};
    for (int r = 0; r < n && p->average == AVERAGE_pairs; r++) {
        const int other = exec_partner(o->seed, step, n, r);
        with[r] = r < other ? r : other;
    }
    if ((step + 1) % p->average_every == 0)
        average(all, n, with);
    double now[PARAMS];
    read_params(w->x, now);
    worst->behind = fmax(worst->behind, apart(now, all[job_rank / each].state[P]));
    free(seen);
}

/* Trains, and follows every step. `each`: neighbouring ranks that are one replica. */
static void try_plan(const char *keys, const char *stage, int each) {
    struct err err = {0};
    struct plan *p = plan_of(keys, stage);
    struct program *g = program_compile(p, &err);
    struct watched w = {0};
    struct exec_options o = run_options(p, &w);
    struct data *data = data_of();
    struct errors worst = {0};
    struct replica *all = calloc((size_t)comm_size(comm), sizeof *all);
    must(g ? program_validate(g, &err) : -1, &err);
    w.x = exec_create(g, comm, data, &o, &err);
    must(w.x ? exec_init(w.x, &err) : -1, &err);
    for (int r = 0; r < comm_size(comm) / each; r++)
        read_params(w.x, all[r].state[P]);
    for (int s = 0; s < STEPS; s++) {
        struct exec_metrics m;
        must(exec_step(w.x, &m, &err), &err);
        follow(p, &o, &w, all, each, s, &m, &worst);
    }
    must(exec_average(w.x, &err), &err);
    ok_all(worst.loss < 1e-5 && worst.norm < 1e-4, "%s: loss %.1e, norm %.1e apart", keys,
           worst.loss, worst.norm);
    ok_all(worst.before < 2e-4 && worst.behind < 2e-4,
           "%s: parameters %.1e apart before means, %.1e behind", keys, worst.before,
           worst.behind);
    ok_all(w.x->high_water == w.x->chunks->sp->arena_bytes &&
               w.x->host_high_water == w.x->chunks->sp->host_bytes,
           "%s: of %lld bytes all are used, and no more", keys,
           (long long)w.x->chunks->sp->arena_bytes);
    exec_destroy(w.x);
    program_destroy(g);
    plan_destroy(p);
    data_close(data);
    free(all);
}

/* ---- what means keep ------------------------------------------------------------------------ */

/* The mean over ranks of each parameter, and the root of the mean square of what they are apart from it. */
static double spread(const double *own, double *mean) {
    const int n = comm_size(comm);
    double *all = gather(own, PARAMS), sum = 0;
    for (int i = 0; i < PARAMS; i++) {
        mean[i] = 0;
        for (int r = 0; r < n; r++)
            mean[i] += all[r * PARAMS + i] / n;
        for (int r = 0; r < n; r++)
            sum += pow(all[r * PARAMS + i] - mean[i], 2) / (n * PARAMS);
    }
    free(all);
    return sqrt(sum);
}

/* Pairs that meet keep the mean of all, and come nearer to it; so they do when nothing else happens. */
static void check_gossip(void) {
    struct err err = {0};
    struct plan *p = plan_of("{'average': 'pairs', 'average_every': 3}",
                             "{'mesh': 'dp:%d', 'layout': {'dp': 'batch'}}");
    struct program *g = program_compile(p, &err);
    struct watched w = {0};
    struct exec_options o = run_options(p, &w);
    struct data *data = data_of();
    double before[PARAMS], behind[PARAMS], now[PARAMS], first = 0, last = 0;
    int good = 0;
    must(g ? 0 : -1, &err);
    w.x = exec_create(g, comm, data, &o, &err);
    must(w.x ? exec_init(w.x, &err) : -1, &err);
    for (int s = 0; s <= STEPS; s++) { /* the last one does not meet */
        struct exec_metrics m;
        must(exec_step(w.x, &m, &err), &err);
        read_params(w.x, now);
        first = spread(w.before, before);
        last = spread(now, behind);
        good += apart(behind, before) < 1e-5 &&
                ((s + 1) % 3 ? last == first : last < first || comm_size(comm) == 1);
    }
    ok_all(good == STEPS + 1, "pairs keep the mean, and come nearer to it when they meet");
    first = spread(now, before);
    for (w.x->step = 3 * STEPS; w.x->step < 3 * STEPS + 60; w.x->step++)
        must(exec_run(w.x, (struct action){SEG_PAIR, 0, -1}, &err), &err);
    read_params(w.x, now);
    last = spread(now, behind);
    ok_all(first > 1e-4 && last < 1e-4 * first && apart(behind, before) < 1e-5,
           "who only meets agrees: %.1e apart after %.1e", last, first);
    exec_destroy(w.x);
    program_destroy(g);
    plan_destroy(p);
    data_close(data);
}

/* Everybody has the same matching, in which nobody stands twice; over the steps all meet all. */
static void check_matchings(void) {
    enum { MOST = 9, DRAWS = 2000 };
    int bad = 0, alone = 0;
    for (int n = 1; n <= MOST; n++) {
        int met[MOST][MOST] = {{0}};
        for (int s = 0; s < DRAWS; s++)
            for (int r = 0; r < n; r++) {
                const int other = exec_partner(SEED, s, n, r);
                bad += other < 0 || other >= n || exec_partner(SEED, s, n, other) != r;
                alone += n % 2 == 0 && other == r;
                met[r][other]++;
            }
        const double each = (double)DRAWS / (n - 1 + n % 2);
        for (int r = 0; r < n; r++)
            for (int q = 0; q < n; q++) /* by chance, within six deviations */
                bad += (q != r || n % 2) && fabs(met[r][q] - each) > 6 * sqrt(each);
    }
    ok_all(!bad && !alone, "matchings: %d faults, %d of even groups alone", bad, alone);
}

/* ---- K = 1 ---------------------------------------------------------------------------------- */

/* SGD without clipping is linear: to average what was stepped apart is to step by the mean. */
static void check_plain(void) {
    struct err err = {0};
    static const char *const keys[] = {
        "{'optimizer': 'sgd'}",
        "{'optimizer': 'sgd', 'average': 'all', 'average_every': 1}"};
    double now[2][PARAMS];
    for (int k = 0; k < 2; k++) {
        struct plan *p = plan_of(keys[k], "{'mesh': 'dp:%d', 'layout': {'dp': 'batch'}}");
        struct program *g = program_compile(p, &err);
        struct watched w = {0};
        struct exec_options o = run_options(p, &w);
        struct data *data = data_of();
        o.clip = 0;
        must(g ? 0 : -1, &err);
        w.x = exec_create(g, comm, data, &o, &err);
        must(w.x ? exec_init(w.x, &err) : -1, &err);
        for (int s = 0; s < STEPS; s++) {
            struct exec_metrics m;
            must(exec_step(w.x, &m, &err), &err);
        }
        read_params(w.x, now[k]);
        exec_destroy(w.x);
        program_destroy(g);
        plan_destroy(p);
        data_close(data);
    }
    ok_all(apart(now[1], now[0]) < 1e-4,
           "sgd, a mean every step: %.1e from sums of gradients", apart(now[1], now[0]));
}

/* ---- checkpoints ---------------------------------------------------------------------------- */

static uint64_t hash_of(const struct exec *x) {
    const struct stage_program *sp = x->chunks->sp;
    uint64_t h = hash_bytes(x->arena, (size_t)sp->bytes[MEM_parameters], 0);
    return hash_bytes(x->arena + sp->bytes[MEM_parameters] + sp->bytes[MEM_gradients],
                      (size_t)sp->bytes[MEM_optimizer], h);
}

/* Do all ranks have the bits of rank 0? */
static bool alike(uint64_t hash) {
    const double own[2] = {(double)(hash >> 32), (double)(hash & UINT32_MAX)};
    double *all = gather(own, 2);
    bool same = true;
    for (int r = 1; r < comm_size(comm); r++)
        same &= all[2 * r] == all[0] && all[2 * r + 1] == all[1];
    free(all);
    return same;
}

/* Saved behind step 5, in the midst of four that go apart, with a mean in every fourth: a run that goes on from
 * there ends with the bits of the one that saved. */
static void check_checkpoint(const char *keys, const char *dir) {
    enum { SAVED = 5 };
    struct err err = {0};
    struct plan *p = plan_of(keys, "{'mesh': 'dp:%d', 'layout': {'dp': 'batch'}}");
    struct program *g = program_compile(p, &err);
    struct watched w = {0};
    struct exec_options o = run_options(p, &w);
    struct data *data = data_of();
    struct checkpoint_info about = {.run = 1};
    uint64_t saved = 0, end[2] = {0};
    bool differed = false;
    must(g ? 0 : -1, &err);
    for (int k = 0; k < 2; k++) {
        struct checkpoint *ck = NULL;
        w.x = exec_create(g, comm, data, &o, &err);
        must(w.x ? 0 : -1, &err);
        if (k == 0) {
            must(exec_init(w.x, &err), &err);
        } else {
            must(checkpoint_open(&ck, dir, &err), &err);
            must(exec_load(w.x, ck, &err), &err);
            checkpoint_close(ck);
            ok_all(exec_steps(w.x) == SAVED && hash_of(w.x) == saved,
                   "%s: what is read is what all had when they saved", keys);
        }
        while (exec_steps(w.x) < STEPS) {
            struct exec_metrics m;
            must(exec_step(w.x, &m, &err), &err);
            if (k || exec_steps(w.x) != SAVED)
                continue;
            differed = !alike(hash_of(w.x));
            must(exec_save(w.x, &(struct exec_folder){.dir = dir}, &about, &err), &err);
            saved = hash_of(w.x);
        }
        end[k] = hash_of(w.x);
        exec_destroy(w.x);
    }
    ok_all(differed && alike(saved), "%s: replicas differ, and are one where they save",
           keys);
    ok_all(end[0] == end[1], "%s: a resumed run ends with the same bits", keys);
    program_destroy(g);
    plan_destroy(p);
    data_close(data);
}

static void check_all(const char *dir) {
    static const char dp[] = "{'mesh': 'dp:%d', 'layout': {'dp': 'batch'}}";
    try_plan("{'average': 'all', 'average_every': 4}", dp, 1);
    try_plan("{'average': 'all', 'optimizer': 'sgd', 'average_every': 3}", dp, 1);
    try_plan("{'average': 'pairs', 'average_every': 2}", dp, 1);
    try_plan("{'average': 'pairs', 'optimizer': 'sgd'}", dp, 1);
    if (comm_size(comm) == 4) {
        static const char *const stages[] = {
            "{'mesh': 'node:2 dp:2', 'layout': {'node': 'batch', 'dp': 'batch'}}",
            "{'mesh': 'node:2 dp:2', 'layout': {'node': 'batch', 'dp': 'batch'}, 'zero': 1}",
            "{'mesh': 'node:2 dp:2', 'layout': {'node': 'batch', 'dp': 'batch'},"
            " 'offload': ['optimizer', 'parameters']}"};
        for (int k = 0; k < 3; k++)
            try_plan("{'average': 'all', 'average_every': 4, 'average_axes': ['node']}",
                     stages[k], 2);
        try_plan("{'average': 'pairs', 'average_axes': ['node'], 'overlap': true}",
                 stages[0], 2);
    }
    check_gossip();
    check_matchings();
    check_plain();
    const char *const kinds[] = {
        "{'average': 'all', 'average_every': 4}",
        "{'average': 'pairs', 'average_every': 2}",
        "{'average': 'all', 'average_every': 4, 'dtype': 'bf16'}",
        "{'average': 'pairs', 'average_every': 2, 'dtype': 'bf16', 'optimizer': 'lion'}"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        char at[512];
        snprintf(at, sizeof at, "%s/%zu", dir, k);
        check_checkpoint(kinds[k], at);
    }
}

int main(int argc, char **argv) {
    int status = begin_job("average", &argc, &argv, NULL);
    struct err err = {0};
    if (status)
        return status;
    if (argc < 2) {
        err_usage(&err, "expected a folder");
        must(-1, &err);
    }
    must((arena = comm_alloc(comm, ARENA_BYTES, &err)) ? 0 : -1, &err);
    check_all(argv[1]);
    return end_job();
}
