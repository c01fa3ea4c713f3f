/* Routing of tokens to experts: choices, slots and gates against a plain rewriting in double,
 * gradients by central differences; dispatch and combine against what they mean, and their gradients
 * as adjoints: <A x, y> = <x, A' y>. Experts split over ranks give the blocks of the whole. */
#include "device.h"

#include "device/cpu.h"

static struct scalars now = {.loss_scale = 1};
static const struct device_args args = {
    .scalars = &now, .counts = true, .weight = 1, .scale = 1};

/* How a router chooses; by the largest logits where all is 0. */
struct way {
    int64_t sigmoid, parts, kept, best;
    bool biased;
    float gain;
};
static const struct way plain = {.gain = 1};

struct test {
    int64_t groups, tokens, experts, choices, normalize, capacity, width;
    int64_t rows; /* tokens of all groups */
    float *logits, *gates, *bias;
    int32_t *slots;
    struct way way;
};

static struct route_n route_n(const struct test *t) {
    return (struct route_n){.groups = t->groups,
                            .tokens = t->tokens,
                            .experts = t->experts,
                            .choices = t->choices,
                            .normalize = t->normalize,
                            .sigmoid = t->way.sigmoid,
                            .parts = t->way.parts,
                            .kept = t->way.kept,
                            .best = t->way.best,
                            .biased = t->way.biased};
}

static struct device_args args_of(const struct test *t) {
    struct device_args with = args;
    with.scale = t->way.gain;
    return with;
}

/* Some logits are equal. */
static struct test make(int64_t groups, int64_t tokens, int64_t experts, int64_t choices,
                        int64_t normalize, struct way way) {
    struct test t = {groups, tokens, experts, choices, normalize, .rows = groups * tokens};
    t.way = way;
    t.bias = noise(experts, 0.3f, 9);
    t.logits = noise(t.rows * experts, 2, 1);
    for (int64_t i = 1; i < t.rows * experts; i += 3)
        t.logits[i] = roundf(t.logits[i]);
    t.gates = floats(t.rows * choices);
    t.slots = (int32_t *)floats(t.rows * choices);
    union instr_n n = {.route = route_n(&t)};
    union instr_src in = {.route = {t.logits, way.biased ? t.bias : NULL, NULL}};
    union instr_dst out = {.route = {t.gates, t.slots, NULL}};
    const struct device_args with = args_of(&t);
    cpu_exec(I_route, &n, &in, &out, &with);
    return t;
}

static void drop(struct test *t) {
    free(t->logits), free(t->gates), free(t->slots), free(t->bias);
}

/* ---- the same in double ----------------------------------------------------------------- */

/* How many experts a row prefers to j: larger ones, and equal ones before it. */
static int64_t rank_of(int64_t n, const float *x, int64_t j) {
    int64_t rank = 0;
    for (int64_t k = 0; k < n; k++)
        rank += x[k] > x[j] || (x[k] == x[j] && k < j);
    return rank;
}

static double log_sum_exp(int64_t n, const double *x) {
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; j++)
        max = fmax(max, x[j]);
    for (int64_t j = 0; j < n; j++)
        sum += exp(x[j] - max);
    return max + log(sum);
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* The gate of choice c for logits x, what was chosen being given, before the gain. */
static double gate_of(const struct test *t, const double *x, const int32_t *slots,
                      int64_t c) {
    double sum = 0;
    if (t->way.sigmoid) {
        for (int64_t k = 0; k < t->choices; k++)
            sum += sigmoid(x[slots[k] % t->experts]);
        return sigmoid(x[slots[c] % t->experts]) / (t->normalize ? sum : 1);
    }
    for (int64_t k = 0; k < t->choices; k++)
        sum += exp(x[slots[k] % t->experts]);
    return t->normalize ? exp(x[slots[c] % t->experts]) / sum
                        : exp(x[slots[c] % t->experts] - log_sum_exp(t->experts, x));
}

static double *row_of(const struct test *t, int64_t i) {
    double *x = doubles(t->experts);
    for (int64_t j = 0; j < t->experts; j++)
        x[j] = t->logits[i * t->experts + j];
    return x;
}

/* ---- route -------------------------------------------------------------------------------- */

/* The sum of the best of a group of experts by their keys. */
static double best_of(const struct test *t, int64_t each, const float *key) {
    double sum = 0;
    for (int64_t j = 0; j < each; j++)
        sum += rank_of(each, key, j) < t->way.best ? key[j] : 0;
    return sum;
}

/* What the experts of row i are ranked by: logits, or scores with a bias, of groups that are kept. */
static void keys_of(const struct test *t, int64_t i, float *key) {
    const float *x = t->logits + i * t->experts;
    const struct way *w = &t->way;
    double *of = row_of(t, i), z = log_sum_exp(t->experts, of);
    float group[8];
    for (int64_t j = 0; j < t->experts; j++) {
        double score = w->sigmoid ? sigmoid(of[j]) : exp(of[j] - z);
        key[j] = w->sigmoid || w->parts || w->biased
                     ? (float)score + (w->biased ? t->bias[j] : 0)
                     : x[j];
    }
    const int64_t each = w->parts ? t->experts / w->parts : t->experts;
    for (int64_t g = 0; g < w->parts; g++)
        group[g] = (float)best_of(t, each, key + g * each);
    for (int64_t j = 0; w->parts && j < t->experts; j++)
        if (rank_of(w->parts, group, j / each) >= w->kept)
            key[j] = -INFINITY;
    free(of);
}

/* First choices before second ones, each in the order of the tokens. */
static bool slots_right(const struct test *t) {
    bool right = true;
    float *key = floats(t->experts);
    for (int64_t g = 0; g < t->groups; g++) {
        int32_t *taken = calloc((size_t)t->experts, sizeof *taken);
        for (int64_t c = 0; c < t->choices; c++)
            for (int64_t i = g * t->tokens; i < (g + 1) * t->tokens; i++) {
                int64_t slot = t->slots[i * t->choices + c], expert = slot % t->experts;
                keys_of(t, i, key);
                right &= rank_of(t->experts, key, expert) == c &&
                         slot / t->experts == taken[expert]++;
            }
        free(taken);
    }
    free(key);
    return right;
}

/* Gates, and the gradient of sum gates dgates by central differences. */
static void check_gates(const struct test *t) {
    int64_t n = t->rows * t->experts, k = t->choices;
    float *dgates = noise(t->rows * k, 1, 2), *dx = floats(n);
    double *gates = doubles(t->rows * k), *want = doubles(n);
    union instr_n shape = {.route = route_n(t)};
    union instr_src in = {.route_dx = {t->logits, t->slots, dgates, NULL}};
    union instr_dst out = {.route_dx = {dx, NULL}};
    const struct route_n *r = &shape.route;
    shape.route_dx = (struct route_dx_n){r->groups,    r->tokens,  r->experts, r->choices,
                                         r->normalize, r->sigmoid, 0};
    const struct device_args with = args_of(t);
    cpu_exec(I_route_dx, &shape, &in, &out, &with);
    for (int64_t i = 0; i < t->rows; i++) {
        const int32_t *slots = t->slots + i * k;
        double *x = row_of(t, i);
        for (int64_t c = 0; c < k; c++) {
            gates[i * k + c] = t->way.gain * gate_of(t, x, slots, c);
            for (int64_t j = 0; j < t->experts; j++) {
                const double at = x[j], h = 1e-5;
                x[j] = at + h;
                double up = gate_of(t, x, slots, c);
                x[j] = at - h;
                want[i * t->experts + j] += t->way.gain * dgates[i * k + c] *
                                            (up - gate_of(t, x, slots, c)) / (2 * h);
                x[j] = at;
            }
        }
        free(x);
    }
    double e = nmse(t->rows * k, t->gates, gates);
    double apart = 0; /* by element: where one choice has the gate 1 there is no gradient */
    for (int64_t i = 0; i < n; i++)
        apart = fmax(apart, fabs(dx[i] - want[i]) / fmax(1, t->way.gain));
    ok(slots_right(t) && e < 1e-12 && apart < 1e-6,
       "%d groups of %d tokens, %d of %d experts%s%s%s, %d of %d groups by %d: slots as they "
       "must be, gates %.0e, gradient %.0e",
       (int)t->groups, (int)t->tokens, (int)k, (int)t->experts,
       t->normalize ? ", normalized" : "", t->way.sigmoid ? ", sigmoids" : "",
       t->way.biased ? ", biased" : "", (int)t->way.kept, (int)t->way.parts,
       (int)t->way.best, e, apart);
    free(dgates), free(dx), free(gates), free(want);
}

/* ---- losses ------------------------------------------------------------------------------- */

/* experts / tokens sum of load p over the tokens of group g, whose load is given. */
static double balance_of(const struct test *t, const float *load, const double *x) {
    double sum = 0, z = log_sum_exp(t->experts, x);
    for (int64_t j = 0; j < t->experts; j++)
        sum += load[j] * exp(x[j] - z);
    return sum * (double)t->experts / (double)t->tokens;
}

static double square_of(const struct test *t, const float *load, const double *x) {
    (void)load;
    double z = log_sum_exp(t->experts, x);
    return z * z;
}

/* The value is the sum of f over all rows; the gradient that of f. */
static void check_loss(const struct test *t, const char *what, enum metric metric,
                       const float *load, const float *dx,
                       double (*f)(const struct test *t, const float *load,
                                   const double *x)) {
    double *want = doubles(t->rows * t->experts), value = 0;
    for (int64_t i = 0; i < t->rows; i++) {
        double *x = row_of(t, i);
        const float *of = load + 2 * (i / t->tokens) * t->experts;
        value += f(t, of, x);
        for (int64_t j = 0; j < t->experts; j++) {
            const double at = x[j], h = 1e-5;
            x[j] = at + h;
            want[i * t->experts + j] = f(t, of, x);
            x[j] = at - h;
            want[i * t->experts + j] -= f(t, of, x);
            want[i * t->experts + j] /= 2 * h;
            x[j] = at;
        }
        free(x);
    }
    double e = fabs(now.metrics[metric] / value - 1), apart = 0;
    for (int64_t i = 0; i < t->rows * t->experts; i++)
        apart = fmax(apart, fabs(dx[i] - want[i]));
    ok(e < 1e-6 && apart < 1e-5, "%s of %d x %d: value %.0e gradient %.0e", what,
       (int)t->rows, (int)t->experts, e, apart);
    free(want);
}

/* A load's first half: how many of the group's tokens have an expert among so many choices. */
static bool shares_right(const struct test *t, int64_t choices, const float *load) {
    double *want = doubles(t->experts);
    bool right = true;
    for (int64_t g = 0; g < t->groups; g++, load += 2 * t->experts) {
        memset(want, 0, (size_t)t->experts * sizeof *want);
        for (int64_t i = g * t->tokens; i < (g + 1) * t->tokens; i++)
            for (int64_t j = 0; j < t->experts; j++)
                want[j] += rank_of(t->experts, t->logits + i * t->experts, j) < choices;
        for (int64_t j = 0; j < t->experts; j++)
            right &= fabs(load[j] - want[j] / (double)t->tokens) < 1e-6;
    }
    free(want);
    return right;
}

/* Loads of these numbers of choices, the loss of each group's own, and its gradient. */
static void check_balance(const struct test *t, int64_t choices) {
    int64_t n = t->rows * t->experts, n_load = 2 * t->groups * t->experts;
    float *load = floats(n_load), *dload = floats(n_load), *dx = floats(n);
    now = (struct scalars){.loss_scale = 1};
    union instr_n shape = {.expert_load = {t->groups, t->tokens, t->experts, choices, 0}};
    union instr_src in = {.expert_load = {t->logits, NULL}};
    union instr_dst out = {.expert_load = {load, NULL}};
    cpu_exec(I_expert_load, &shape, &in, &out, &args);
    ok(shares_right(t, choices, load), "loads are shares of the tokens");
    shape.balance = (struct balance_n){t->groups, 1, t->experts, 0};
    in.balance = (struct balance_src){load, NULL};
    cpu_exec(I_balance, &shape, &in, &out, &args);
    out.balance_dx = (struct balance_dx_dst){dload, NULL};
    cpu_exec(I_balance_dx, &shape, &in, &out, &args);
    shape.expert_load_dx = (struct expert_load_dx_n){t->groups, t->tokens, t->experts, 0};
    in.expert_load_dx = (struct expert_load_dx_src){t->logits, dload, NULL};
    out.expert_load_dx = (struct expert_load_dx_dst){dx, NULL};
    cpu_exec(I_expert_load_dx, &shape, &in, &out, &args);
    check_loss(t, "balance", METRIC_balance, load, dx, balance_of);
    free(load), free(dload), free(dx);
}

/* Groups of several parts: a loss of the means of their loads. */
static void check_parts(const struct test *t) {
    int64_t n_load = 2 * t->groups * t->experts, e = t->experts;
    float *load = floats(n_load), *dload = floats(n_load);
    double *mean = doubles(2 * e), want = 0, apart = 0;
    now = (struct scalars){.loss_scale = 1};
    union instr_n shape = {.expert_load = {t->groups, t->tokens, e, t->choices, 0}};
    union instr_src in = {.expert_load = {t->logits, NULL}};
    union instr_dst out = {.expert_load = {load, NULL}};
    cpu_exec(I_expert_load, &shape, &in, &out, &args);
    for (int64_t i = 0; i < n_load; i++)
        mean[i % (2 * e)] += load[i] / (double)t->groups;
    for (int64_t j = 0; j < e; j++)
        want += (double)e * mean[j] * mean[e + j];
    shape.balance = (struct balance_n){1, t->groups, e, 0};
    in.balance = (struct balance_src){load, NULL};
    cpu_exec(I_balance, &shape, &in, &out, &args);
    out.balance_dx = (struct balance_dx_dst){dload, NULL};
    cpu_exec(I_balance_dx, &shape, &in, &out, &args);
    for (int64_t i = 0; i < n_load; i++) {
        double d = i / e % 2 ? (double)e * mean[i % e] / (double)t->groups : 0;
        apart = fmax(apart, fabs(dload[i] - d));
    }
    double off = fabs(now.metrics[METRIC_balance] / want - 1);
    ok(off < 1e-6 && apart < 1e-6, "balance of %d parts: value %.0e gradient %.0e",
       (int)t->groups, off, apart);
    free(load), free(dload), free(mean);
}

static void check_z(const struct test *t) {
    float *dx = floats(t->rows * t->experts), *none = floats(2 * t->groups * t->experts);
    now = (struct scalars){.loss_scale = 1};
    union instr_n shape = {.router_z = {t->rows, t->experts, 0}};
    union instr_src in = {.router_z = {t->logits, NULL}};
    union instr_dst out = {{NULL}};
    cpu_exec(I_router_z, &shape, &in, &out, &args);
    out.router_z_dx = (struct router_z_dx_dst){dx, NULL};
    cpu_exec(I_router_z_dx, &shape, &in, &out, &args);
    check_loss(t, "router z", METRIC_router_z, none, dx, square_of);
    free(dx), free(none);
}

/* ---- dispatch and combine ----------------------------------------------------------------- */

/* The numbers of a rank that has some of the experts. */
static union instr_n moving(const struct test *t, int64_t experts) {
    return (union instr_n){.dispatch = {t->groups, t->tokens, t->choices, t->experts,
                                        experts, t->capacity, t->width, 0}};
}

static double inner(int64_t n, const float *x, const float *y) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * y[i];
    return sum;
}

static bool equal_products(double a, double b) {
    return fabs(a - b) < 1e-4 * (1 + fabs(a));
}

/* The row of a choice among those of all experts, or -1. */
static int64_t slot_row(const struct test *t, int64_t i, int64_t c) {
    int64_t slot = t->slots[i * t->choices + c], position = slot / t->experts;
    if (position >= t->capacity)
        return -1;
    return (slot % t->experts * t->groups + i / t->tokens) * t->capacity + position;
}

/* Which rows hold which tokens; every other is zero. */
static bool rows_right(const struct test *t, const float *x, const float *y) {
    int64_t rows = t->experts * t->groups * t->capacity, w = t->width;
    int64_t *token = malloc((size_t)rows * sizeof *token);
    bool right = true;
    for (int64_t r = 0; r < rows; r++)
        token[r] = -1;
    for (int64_t i = 0; i < t->rows * t->choices; i++) {
        int64_t r = slot_row(t, i / t->choices, i % t->choices);
        if (r >= 0)
            token[r] = i / t->choices;
    }
    for (int64_t i = 0; i < rows * w; i++)
        right &= y[i] == (token[i / w] < 0 ? 0 : x[token[i / w] * w + i % w]);
    free(token);
    return right;
}

/* Weighted sums of the rows of a token's choices. */
static double combine_error(const struct test *t, const float *x, const float *y) {
    double *want = doubles(t->rows * t->width);
    for (int64_t i = 0; i < t->rows * t->choices; i++) {
        int64_t r = slot_row(t, i / t->choices, i % t->choices);
        for (int64_t j = 0; r >= 0 && j < t->width; j++)
            want[i / t->choices * t->width + j] +=
                (double)t->gates[i] * x[r * t->width + j];
    }
    double e = nmse(t->rows * t->width, y, want);
    free(want);
    return e;
}

static void check_moving(struct test *t, int64_t capacity, int64_t width) {
    t->capacity = capacity, t->width = width;
    int64_t tokens = t->rows * width, k = t->rows * t->choices;
    int64_t rows = t->experts * t->groups * capacity * width;
    float *x = noise(tokens, 1, 3), *y = floats(rows), *dx = floats(tokens);
    float *z = noise(rows, 1, 4), *out_z = floats(tokens), *dz = floats(rows),
          *dg = floats(k), *dy = noise(tokens, 1, 5);
    union instr_n n = moving(t, t->experts);
    union instr_src in = {.dispatch = {x, t->slots, NULL}};
    union instr_dst out = {.dispatch = {y, NULL}};
    cpu_exec(I_dispatch, &n, &in, &out, &args);
    bool moved = rows_right(t, x, y);
    in.dispatch_dx = (struct dispatch_dx_src){z, t->slots, NULL};
    out.dispatch_dx = (struct dispatch_dx_dst){dx, NULL};
    cpu_exec(I_dispatch_dx, &n, &in, &out, &args);
    bool adjoint = equal_products(inner(rows, y, z), inner(tokens, x, dx));
    in.combine = (struct combine_src){z, t->gates, t->slots, NULL};
    out.combine = (struct combine_dst){out_z, NULL};
    cpu_exec(I_combine, &n, &in, &out, &args);
    double e = combine_error(t, z, out_z);
    in.combine_bwd = (struct combine_bwd_src){z, t->gates, t->slots, dy, NULL};
    out.combine_bwd = (struct combine_bwd_dst){dz, dg, NULL};
    cpu_exec(I_combine_bwd, &n, &in, &out, &args);
    double product = inner(tokens, out_z, dy);
    adjoint &= equal_products(product, inner(rows, z, dz)) &&
               equal_products(product, inner(k, t->gates, dg));
    ok(moved && adjoint && e < 1e-12,
       "%d slots for each of %d experts, width %d: moved, combined to %.0e, gradients "
       "adjoint",
       (int)capacity, (int)t->experts, (int)width, e);
    free(x), free(y), free(dx), free(z), free(out_z), free(dz), free(dg), free(dy);
}

/* Each rank's experts give a block of the rows, and a part of each sum. */
static void check_split(const struct test *t, int64_t parts) {
    int64_t experts = t->experts / parts, block = experts * t->groups * t->capacity;
    int64_t tokens = t->rows * t->width, k = t->rows * t->choices;
    block *= t->width;
    float *x = noise(tokens, 1, 3), *whole = floats(block * parts), *y = floats(block);
    float *z = noise(block * parts, 1, 4), *sum = floats(tokens), *part = floats(tokens);
    float *dz = floats(block * parts), *dg = floats(k), *dg_sum = floats(k), *d = floats(k);
    union instr_n all = moving(t, t->experts), n = moving(t, experts);
    union instr_src in = {.dispatch = {x, t->slots, NULL}};
    union instr_dst out = {.dispatch = {whole, NULL}};
    cpu_exec(I_dispatch, &all, &in, &out, &args);
    in.combine = (struct combine_src){z, t->gates, t->slots, NULL};
    out.combine = (struct combine_dst){sum, NULL};
    cpu_exec(I_combine, &all, &in, &out, &args);
    in.combine_bwd = (struct combine_bwd_src){z, t->gates, t->slots, x, NULL};
    out.combine_bwd = (struct combine_bwd_dst){dz, dg, NULL};
    cpu_exec(I_combine_bwd, &all, &in, &out, &args);
    bool blocks = true;
    memset(dg_sum, 0, (size_t)k * sizeof *dg_sum);
    for (int64_t p = 0; p < parts; p++) {
        struct device_args mine = args;
        mine.first = p * experts;
        in.dispatch = (struct dispatch_src){x, t->slots, NULL};
        out.dispatch = (struct dispatch_dst){y, NULL};
        cpu_exec(I_dispatch, &n, &in, &out, &mine);
        blocks &= same(block, y, whole + p * block);
        in.combine = (struct combine_src){z + p * block, t->gates, t->slots, NULL};
        out.combine = (struct combine_dst){part, NULL};
        cpu_exec(I_combine, &n, &in, &out, &mine);
        for (int64_t i = 0; i < tokens; i++)
            sum[i] -= part[i];
        in.combine_bwd =
            (struct combine_bwd_src){z + p * block, t->gates, t->slots, x, NULL};
        out.combine_bwd = (struct combine_bwd_dst){y, d, NULL};
        cpu_exec(I_combine_bwd, &n, &in, &out, &mine);
        blocks &= same(block, y, dz + p * block);
        for (int64_t i = 0; i < k; i++)
            dg_sum[i] += d[i];
    }
    double left = inner(tokens, sum, sum) / (double)tokens;
    ok(blocks && same(k, dg, dg_sum) && left < 1e-12,
       "%d experts over %d ranks: blocks of the whole, and sums to %.0e", (int)t->experts,
       (int)parts, left);
    free(x), free(whole), free(y), free(z), free(sum), free(part);
    free(dz), free(dg), free(dg_sum), free(d);
}

static void check_dropped(const struct test *t) {
    int64_t n = t->rows * t->choices, count = 0;
    for (int64_t i = 0; i < n; i++)
        count += slot_row(t, i / t->choices, i % t->choices) < 0;
    now = (struct scalars){.loss_scale = 1};
    union instr_n shape = {.dropped = {n, t->experts * t->capacity, 0}};
    union instr_src in = {.dropped = {t->slots, NULL}};
    union instr_dst out = {{NULL}};
    cpu_exec(I_dropped, &shape, &in, &out, &args);
    ok(now.metrics[METRIC_dropped] == (double)count, "%d of %d choices find no slot",
       (int)count, (int)n);
}

static void check(int64_t groups, int64_t tokens, int64_t experts, int64_t choices,
                  int64_t normalize, int64_t parts) {
    struct test t = make(groups, tokens, experts, choices, normalize, plain);
    check_gates(&t);
    check_balance(&t, 1);
    check_balance(&t, choices);
    check_parts(&t);
    check_z(&t);
    check_moving(&t, tokens, 5);
    check_moving(&t, (choices * tokens + experts - 1) / experts, 33);
    check_split(&t, parts);
    check_dropped(&t);
    drop(&t);
}

/* DeepSeek-V2's and V3's ways to choose. */
static void check_way(int64_t groups, int64_t tokens, int64_t experts, int64_t choices,
                      int64_t normalize, struct way way) {
    struct test t = make(groups, tokens, experts, choices, normalize, way);
    check_gates(&t);
    drop(&t);
}

static void all(void) {
    check_way(2, 40, 16, 4, 0, (struct way){0, 4, 2, 1, false, 16});
    check_way(1, 50, 18, 3, 1, (struct way){0, 6, 3, 2, false, 0.5f});
    check_way(3, 40, 12, 3, 1, (struct way){1, 4, 2, 2, true, 2.5f});
    check_way(2, 30, 7, 2, 0, (struct way){1, 0, 0, 0, false, 1});
    check_way(2, 30, 64, 8, 1, (struct way){1, 8, 4, 2, true, 2.5f});
    check_way(2, 30, 9, 2, 0, (struct way){0, 0, 0, 0, true, 1});
    check(1, 1, 1, 1, 0, 1);
    check(2, 7, 4, 1, 0, 2);
    check(2, 7, 4, 2, 1, 4);
    check(3, 40, 6, 3, 1, 3);
    check(1, 300, 18, 2, 0, 2);
    check(70, 4, 33, 2, 1, 3);
}

int main(void) {
    with_threads(all);
    return done_testing();
}
