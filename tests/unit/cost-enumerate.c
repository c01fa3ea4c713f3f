/* Enumeration against programs: whatever random plans make the devices run has been listed.
 */
#include "common/mem.h"
#include "common/progress.h"
#include "common/rng.h"
#include "cost/enumerate.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

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
        st->zero = (int)rng_below(r, 2);
        for (int i = 0; i < st->n_ops; i++) {
            random_layout(r, m, &m->ops[st->ops[i]], &st->mesh, micro_batch,
                          &st->layouts[i]);
            st->recompute[i] = rng_below(r, 3) == 0;
        }
    }
    return p;
}

/* The first instruction that was not listed, or NULL. */
static const struct instr *first_missing(const struct program *g,
                                         const struct enumeration *e) {
    for (int s = 0; s < g->n_stages; s++)
        for (int i = 0; i < g->stages[s].n_instrs; i++)
            if (!enumeration_covers(e, g->stages[s].instrs[i].code,
                                    &g->stages[s].instrs[i].n))
                return &g->stages[s].instrs[i];
    return NULL;
}

static void test_random_plans(const char *ref, const char *set, int max_devices,
                              uint64_t seed) {
    struct model *m = load(ref, set);
    const int64_t micro_batches[] = {1, 4, 6};
    struct enumeration e;
    enumerate_model(m, micro_batches, 3, max_devices, &e);
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

static bool sorted_and_distinct(const struct enumeration *e) {
    for (int64_t i = 1; i < e->n; i++) {
        const struct enum_key *a = &e->p[i - 1], *b = &e->p[i];
        int c = memcmp(&a->n, &b->n, sizeof a->n);
        if (a->code > b->code || (a->code == b->code && c == 0))
            return false;
    }
    return true;
}

static void test_few(void) {
    struct model *m = load("gpt:nano", "layers=2");
    struct enumeration e, deep;
    enumerate_model(m, (int64_t[]){8}, 1, 1, &e);
    ok(sorted_and_distinct(&e), "keys are sorted and distinct");
    ok(enumeration_covers(&e, I_linear,
                          &(union instr_n){.v = {8 * 256, 3 * 384, 384, 0, 1}}),
       "one device: the whole qkv product is listed");
    ok(!enumeration_covers(&e, I_linear,
                           &(union instr_n){.v = {4 * 256, 3 * 384, 384, 0, 1}}),
       "and no half of it");
    model_destroy(m);
    m = load("gpt:nano", "layers=48");
    enumerate_model(m, (int64_t[]){8}, 1, 1, &deep);
    int same = 0;
    for (int64_t i = 0; i < e.n; i++)
        same += enumeration_covers(&deep, e.p[i].code, &e.p[i].n);
    ok(same == e.n && deep.n <= e.n + 8, "48 layers have the keys of 2");
    enumeration_release(&e);
    enumeration_release(&deep);
    model_destroy(m);
}

static void test_speed(void) {
    struct model *m = load("gpt:13B", NULL);
    struct enumeration e;
    double start = now_s();
    enumerate_model(m, (int64_t[]){1, 2, 4, 8}, 4, 32, &e);
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
    }
    test_speed();
    return done_testing();
}
