/* Enumeration against programs: whatever random plans make the devices run has been listed.
 */
#include "common/mem.h"
#include "common/progress.h"
#include "common/rng.h"
#include "cost/enumerate.h"
#include "cost/estimate.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct model *load(const char *ref, const char *set) {
    struct err err = {0};
    struct model *m = model_load(ref, set, &err);
    if (!m) {
        printf("Bail out! %s\n", err.msg);
        exit(1);
    }
    return m;
}

/* Up to max devices on axes whose product a mesh may have. */
static void random_mesh(struct rng *r, int max_devices, struct mesh *mesh) {
    *mesh = (struct mesh){0};
    int64_t total = 1;
    for (int tries = (int)rng_below(r, 5); tries > 0 && mesh->n_axes < MESH_MAX_AXES;
         tries--) {
        int64_t f = 2 + rng_below(r, max_devices > 2 ? max_devices - 1 : 1);
        if (!enumerate_factor(total * f, max_devices))
            continue;
        total *= f;
        mesh->name[mesh->n_axes][0] = (char)('a' + mesh->n_axes);
        mesh->size[mesh->n_axes++] = (int)f;
    }
}

static void random_layout(struct rng *r, const struct model *m, const struct model_op *op,
                          const struct mesh *mesh, int64_t batch, struct layout *l) {
    if (rng_below(r, 2))
        l->ring = (int8_t)layout_ring(&op->space);
    for (int a = 0; a < mesh->n_axes; a++) {
        if (!op->space.n || !rng_below(r, 4))
            continue;
        l->dim[a] = (int8_t)rng_below(r, op->space.n);
        if (layout_check(m, op, mesh, l, batch, NULL) < 0)
            l->dim[a] = PLACE_NONE;
    }
}

static struct plan *random_plan(struct rng *r, struct model *m, int max_devices,
                                int64_t micro_batch) {
    int n_stages = 1 + (int)rng_below(r, 3), bounds[4] = {0, m->n_ops, m->n_ops, m->n_ops};
    for (int s = 1; s < n_stages; s++)
        bounds[s] = m->n_ops * s / n_stages;
    struct plan *p = plan_create(m, n_stages, bounds);
    p->batch = 2 * micro_batch;
    p->micro_batch = micro_batch;
    p->optimizer = (enum optimizer)rng_below(r, OPTIMIZER_COUNT);
    for (int s = 0; s < n_stages; s++) {
        struct stage *st = &p->stages[s];
        random_mesh(r, max_devices, &st->mesh);
        int zero = (int)rng_below(r, 1 + ZERO_PARAMETERS);
        for (int i = 0; i < st->n_ops; i++) {
            st->zero[i] = (int8_t)zero;
            random_layout(r, m, &m->ops[st->ops[i]], &st->mesh, micro_batch,
                          &st->layouts[i]);
            st->recompute[i] = rng_below(r, 3) == 0;
        }
    }
    return p;
}

static int key_order(const void *a, const void *b) {
    return instr_key_compare(a, b);
}

/* Can a profile with a row for each key tell the time of one with this key? */
static bool covers_key(const struct enumeration *e, const struct instr_key *key) {
    switch (opcode_key(key->code)) {
    case KEY_SHAPE:
        return e->n && bsearch(key, e->p, (size_t)e->n, sizeof *e->p, key_order);
    case KEY_CURVE:
        for (int64_t i = 0; i < e->n; i++)
            if (e->p[i].code == key->code && e->p[i].dtype == key->dtype &&
                e->p[i].n.v[0] >= key->n.v[0])
                return true;
        return key->n.v[0] == 0;
    default: return true;
    }
}

static bool covers(const struct enumeration *e, const struct instr *ins) {
    struct instr_key key = instr_key(ins->code, ins->dtype, &ins->n);
    struct instr_part parts[INSTR_MAX_PARTS];
    bool all = covers_key(e, &key);
    for (int i = 0, n = instr_parts(&key, parts); i < n; i++)
        all &= covers_key(e, &parts[i].key);
    return all;
}

/* The first instruction that was not listed, or NULL. */
static const struct instr *first_missing(const struct program *g,
                                         const struct enumeration *e) {
    for (int s = 0; s < g->n_stages; s++)
        for (int i = 0; i < g->stages[s].n_instrs; i++)
            if (!covers(e, &g->stages[s].instrs[i]))
                return &g->stages[s].instrs[i];
    return NULL;
}

static void test_random_plans(const char *ref, const char *set, int max_devices,
                              uint64_t seed) {
    struct model *m = load(ref, set);
    const int64_t micro_batches[] = {1, 4, 6};
    struct enumeration e;
    enumerate_model(m, micro_batches, 3, max_devices, DTYPE_f32, &e);
    struct rng r = {.seed = seed};
    int plans = 60, good = 0;
    int64_t instrs = 0;
    for (int i = 0; i < plans; i++) {
        struct err err = {0};
        struct plan *p = random_plan(&r, m, max_devices, micro_batches[rng_below(&r, 3)]);
        struct program *g = plan_check(p, &err) == 0 ? program_compile(p, &err) : NULL;
        const struct instr *miss = g ? first_missing(g, &e) : NULL;
        char shape[128];
        if (!g || miss)
            printf("# plan %d: %s %s\n", i, miss ? opcode_name(miss->code) : err.msg,
                   miss ? instr_shape_format(miss->code, &miss->n, shape, sizeof shape)
                        : "");
        good += g && !miss;
        for (int s = 0; g && s < g->n_stages; s++)
            instrs += g->stages[s].n_instrs;
        program_destroy(g);
        plan_destroy(p);
    }
    ok(good == plans,
       "%s %s on up to %d devices, seed %llu: %d plans, %lld instructions, all among "
       "%lld keys",
       ref, set, max_devices, (unsigned long long)seed, plans, (long long)instrs,
       (long long)e.n);
    enumeration_release(&e);
    model_destroy(m);
}

/* ---- what a hint measures ---------------------------------------------------------- */

static int put_keys(struct profile *db, const struct enumeration *e, struct err *err) {
    for (int64_t i = 0; i < e->n; i++) {
        char shape[160];
        struct profile_op row = {
            .device = "x",
            .instr = opcode_name(e->p[i].code),
            .shape = instr_shape_format(e->p[i].code, &e->p[i].n, shape, sizeof shape),
            .dtype = "f32",
            .median_us = 1,
            .source = "measured"};
        if (profile_put_op(db, &row, err) < 0)
            return -1;
    }
    return 0;
}

/* Keys of instructions that a profile of this enumeration lacks for the program; the first is
 * left in *first. */
static int64_t lacking(const struct program *g, const struct cluster *cl,
                       const struct enumeration *e, struct cost_key *first) {
    char path[] = "/tmp/weft-enumerate-XXXXXX";
    struct err err = {0};
    close(mkstemp(path));
    struct profile *db = profile_open(path, true, &err);
    int64_t n = 0;
    if (!db || profile_begin(db, &err) < 0 || put_keys(db, e, &err) < 0 ||
        profile_commit(db, &err) < 0)
        printf("Bail out! %s\n", err.msg);
    struct profile_times *t = profile_load(db, NULL, &err);
    struct cost_provider *p = provider_profile(&t, 1);
    struct cost c;
    cost_init(&c, p, cl);
    cost_program(&c, g);
    estimate_program_us(g, &c);
    for (int64_t i = 0; i < c.n_missing; i++)
        if (!cost_key_is_comm(&c.missing[i]) && n++ == 0)
            *first = c.missing[i];
    cost_release(&c);
    provider_destroy(p);
    profile_close(db);
    unlink(path);
    return n;
}

/* Any mesh sizes, also those that a job of as many devices would not be cut into. */
static void odd_mesh(struct rng *r, struct mesh *mesh) {
    *mesh = (struct mesh){0};
    for (int a = (int)rng_below(r, 4); a > 0; a--) {
        mesh->name[mesh->n_axes][0] = (char)('a' + mesh->n_axes);
        mesh->size[mesh->n_axes++] = 1 + (int)rng_below(r, 4);
    }
}

static void test_hint(uint64_t seed) {
    struct model *m = load("gpt:nano", "layers=3,hidden=96,heads=6,seq=24,vocab=72");
    struct rng r = {.seed = seed};
    int plans = 40, good = 0;
    for (int i = 0; i < plans; i++) {
        struct err err = {0};
        struct plan *p = random_plan(&r, m, 4, 12);
        for (int s = 0; s < p->n_stages; s++) {
            struct stage *st = &p->stages[s];
            odd_mesh(&r, &st->mesh);
            for (int k = 0; k < st->n_ops; k++) {
                memset(&st->layouts[k], PLACE_NONE, sizeof st->layouts[k]);
                random_layout(&r, m, &m->ops[st->ops[k]], &st->mesh, 12, &st->layouts[k]);
            }
        }
        struct program *g = plan_check(p, &err) == 0 ? program_compile(p, &err) : NULL;
        struct enumeration e = {0};
        struct cost_key first;
        int64_t lacks = -1;
        if (g) {
            struct cluster cl = cluster_single_node(p->devices);
            enumerate_program(g, &cl, &e);
            lacks = lacking(g, &cl, &e, &first);
        }
        char key[160];
        if (lacks)
            printf("# plan %d: %s\n", i,
                   g ? cost_key_format(&first, key, sizeof key) : err.msg);
        good += lacks == 0;
        enumeration_release(&e);
        program_destroy(g);
        plan_destroy(p);
    }
    ok(good == plans, "%d plans of odd meshes, seed %llu: what is listed for one suffices",
       plans, (unsigned long long)seed);
    model_destroy(m);
}

static bool sorted_and_distinct(const struct enumeration *e) {
    for (int64_t i = 1; i < e->n; i++) {
        const struct instr_key *a = &e->p[i - 1], *b = &e->p[i];
        int c = memcmp(&a->n, &b->n, sizeof a->n);
        if (a->code > b->code || (a->code == b->code && c == 0))
            return false;
    }
    return true;
}

static void test_few(void) {
    struct model *m = load("gpt:nano", "layers=2");
    struct enumeration e, deep;
    enumerate_model(m, (int64_t[]){8}, 1, 1, DTYPE_f32, &e);
    ok(sorted_and_distinct(&e), "keys are sorted and distinct");
    ok(covers(&e,
              &(struct instr){.code = I_linear, .n = {.v = {8 * 256, 3 * 384, 384, 0, 1}}}),
       "one device: the whole qkv product is listed");
    ok(!covers(&e, &(struct instr){.code = I_linear,
                                   .n = {.v = {4 * 256, 3 * 384, 384, 0, 1}}}),
       "and no half of it");
    model_destroy(m);
    m = load("gpt:nano", "layers=48");
    enumerate_model(m, (int64_t[]){8}, 1, 1, DTYPE_f32, &deep);
    int same = 0;
    for (int64_t i = 0; i < e.n; i++)
        same += covers(&deep, &(struct instr){.code = e.p[i].code, .n = e.p[i].n});
    ok(same == e.n && deep.n <= e.n + 8, "48 layers have the keys of 2");
    enumeration_release(&e);
    enumeration_release(&deep);
    model_destroy(m);
}

static void test_speed(void) {
    struct model *m = load("gpt:13B", NULL);
    struct enumeration e;
    double start = now_s();
    enumerate_model(m, (int64_t[]){1, 2, 4, 8}, 4, 32, DTYPE_f32, &e);
    double took = now_s() - start;
    printf("# gpt:13B, 32 devices, micro-batches 1,2,4,8: %lld keys in %.0f ms\n",
           (long long)e.n, 1e3 * took);
    ok(took < 5, "enumeration is fast");
    enumeration_release(&e);
    model_destroy(m);
}

int main(void) {
    test_few();
    uint64_t rotating = (uint64_t)time(NULL);
    static const int devices[] = {2, 6, 8, 12};
    for (int i = 0; i < 4; i++) {
        test_random_plans("gpt:nano", "layers=3,hidden=96,heads=6,seq=24", devices[i], 7);
        test_random_plans("gpt:nano", "layers=2,dropout=0.1,tied=0", devices[i], rotating);
        test_random_plans("mlp", "layers=2,hidden=48", devices[i], rotating);
        test_random_plans("llama:nano", "layers=2,heads=12,kv_heads=6,seq=24", devices[i],
                          rotating);
        test_random_plans("t5:nano", "layers=1", devices[i], rotating);
        test_random_plans("moe:nano", "layers=2", devices[i], rotating);
        test_random_plans("transformer:nano", "layers=1", devices[i], rotating);
        test_random_plans("wide-resnet:nano", "group=1,blocks2=2", devices[i], rotating);
    }
    test_hint(7);
    test_hint(rotating);
    test_speed();
    return done_testing();
}
