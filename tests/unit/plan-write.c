/* Plans through their text: what is read back is what was written, and what is written is short. */
#include "plan-random.h"

static void print_stages(const json_t *doc) {
    char *text = json_dumps(json_object_get(doc, "stages"), JSON_INDENT(1));
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        printf("# %s\n", line);
    free(text);
}

/* Writes p, reads that, writes it again. */
static bool survives(const struct plan *p, struct err *err) {
    json_t *doc = plan_to_json(p);
    struct plan *q = plan_from_json(doc, err);
    json_t *again = q ? plan_to_json(q) : NULL;
    bool good = q && same_plan(p, q) && json_equal(doc, again);
    if (!good)
        print_stages(doc);
    plan_destroy(q);
    json_decref(doc);
    json_decref(again);
    return good;
}

static void test_round_trip(uint64_t seed, int count, int repeats) {
    int bad = 0, blocks = 0;
    for (int k = 0; k < count && bad < 3; k++) {
        struct rng r = {rng_bits(seed, (uint64_t)repeats, (uint64_t)k), 0};
        struct err err = {0};
        struct model *m = random_model(&r, repeats);
        struct plan *p =
            m ? random_plan(&r, m, &(struct plan_limits){.axes = 6, .devices = 4096})
              : NULL;
        if (m && m->n_repeats > blocks)
            blocks = m->n_repeats;
        if (!p || plan_check(p, &err) < 0 || !survives(p, &err)) {
            bad++;
            printf("# plan %llu.%d: %s\n", (unsigned long long)seed, k, err.msg);
        }
        plan_destroy(p);
        model_destroy(m);
    }
    ok(!bad && blocks == repeats, "%d plans of models with up to %d repeats (seed %llu)",
       count, blocks, (unsigned long long)seed);
}

/* ---- how short it is --------------------------------------------------------------------- */

static struct plan *whole_plan(struct model *m, int n_stages, const int *bounds,
                               const char *mesh) {
    struct plan *p = plan_create(m, n_stages, bounds);
    p->batch = p->micro_batch = 16;
    for (int s = 0; s < n_stages; s++)
        mesh_parse(mesh, 64, &p->stages[s].mesh, NULL);
    return p;
}

static void says(struct plan *p, int stage, const char *key, const char *want) {
    json_t *doc = plan_to_json(p);
    json_t *v =
        json_object_get(json_array_get(json_object_get(doc, "stages"), (size_t)stage), key);
    char *got = v ? json_dumps(v, JSON_SORT_KEYS | JSON_ENCODE_ANY) : NULL;
    ok(got && !strcmp(got, want), "%s of stages[%d]: %s", key, stage, got ? got : "none");
    free(got);
    json_decref(doc);
}

static int op_find(const struct model *m, const char *name) {
    for (int i = 0; i < m->n_ops; i++)
        if (!strcmp(m->ops[i].name, name))
            return i;
    ok(0, "the model has no op %s", name);
    return 0;
}

static void split(struct plan *p, const char *op, int axis, const char *dim) {
    int i = op_find(p->model, op);
    struct stage *st = &p->stages[p->stage_of[i]];
    st->layouts[i - st->ops[0]].dim[axis] =
        (int8_t)op_space_find(&p->model->ops[i].space, model_dim_find(p->model, dim));
}

static const char two_repeats[] =
    "{\"format\": \"weft-model/1\", \"name\": \"two\", \"sizes\": {\"pixels\": 8, \"classes\": 8},"
    " \"inputs\": {\"image\": {\"dims\": [\"batch\", \"pixels\"], \"source\": \"image\"},"
    "              \"labels\": {\"dims\": [\"batch\"], \"source\": \"label\"}},"
    " \"ops\": ["
    "  {\"name\": \"x\", \"kind\": \"gelu\", \"in\": [\"image\"], \"out\": \"x\", \"dims\": [\"batch\", \"pixels\"]},"
    "  {\"name\": \"enc\", \"repeat\": \"4\", \"ops\": ["
    "   {\"name\": \"act\", \"kind\": \"gelu\", \"in\": [\"x\"], \"out\": \"x\", \"dims\": [\"batch\", \"pixels\"]},"
    "   {\"name\": \"sub\", \"repeat\": \"3\", \"ops\": ["
    "    {\"name\": \"act\", \"kind\": \"relu\", \"in\": [\"x\"], \"out\": \"x\", \"dims\": [\"batch\", \"pixels\"]}]}]},"
    "  {\"name\": \"dec\", \"repeat\": \"2\", \"ops\": ["
    "   {\"name\": \"act\", \"kind\": \"silu\", \"in\": [\"x\"], \"out\": \"x\", \"dims\": [\"batch\", \"pixels\"]}]},"
    "  {\"name\": \"fc\", \"kind\": \"einsum\", \"in\": [\"x\"], \"out\": \"x\", \"dims\": [\"batch\", \"classes\"],"
    "   \"weight\": {\"dims\": [\"pixels\", \"classes\"]}},"
    "  {\"name\": \"loss\", \"kind\": \"cross-entropy\", \"in\": [\"x\", \"labels\"], \"out\": \"l\", \"dims\": []}]}";

static void test_short(void) {
    struct err err = {0};
    json_t *doc = json_parse(two_repeats, strlen(two_repeats), "model", &err);
    struct model *m = model_from_json(doc, NULL, NULL, &err);
    json_decref(doc);
    if (!m) {
        ok(0, "%s", err.msg);
        return;
    }
    int bounds[] = {0, op_find(m, "enc.2.sub.1.act"), op_find(m, "dec.1.act"), m->n_ops};
    struct plan *p = whole_plan(m, 3, bounds, "a:2 b:1");
    says(p, 0, "ops", "[\"x\", \"enc.0-1\", \"enc.2.act\", \"enc.2.sub.0\"]");
    says(p, 1, "ops", "[\"enc.2.sub.1-2\", \"enc.3\", \"dec.0\"]");
    says(p, 2, "ops", "[\"dec.1\", \"fc\", \"loss\"]");
    plan_destroy(p);
    int one[] = {0, m->n_ops};
    p = whole_plan(m, 1, one, "a:2 b:1");
    for (int i = 0; i < m->n_ops; i++)
        p->stages[0].layouts[i].dim[0] = (int8_t)op_space_find(&m->ops[i].space, m->batch);
    split(p, "enc.1.sub.0.act", 0, "pixels");
    split(p, "enc.1.sub.1.act", 0, "pixels");
    split(p, "enc.2.sub.1.act", 0, "pixels");
    split(p, "dec.0.act", 0, "pixels");
    split(p, "dec.1.act", 0, "pixels");
    split(p, "fc", 1, "classes");
    says(p, 0, "layout", "{\"a\": \"batch\"}");
    says(
        p, 0, "except",
        "[{\"layout\": {\"a\": \"pixels\"}, \"ops\": [\"enc.1.sub.0-1.act\", \"dec.*.act\", "
        "\"enc.2.sub.1.act\"]}, {\"layout\": {\"a\": \"batch\", \"b\": \"classes\"}, \"ops\": [\"fc\"]}]");
    for (int i = 0; i < m->n_ops; i++)
        p->stages[0].recompute[i] = strstr(m->ops[i].name, "sub") != NULL;
    says(p, 0, "recompute", "[\"enc.*.sub.*.act\"]");
    for (int i = 0; i < m->n_ops; i++)
        p->stages[0].zero[i] = ZERO_GRADIENTS;
    p->stages[0].zero[op_find(m, "fc")] = ZERO_PARAMETERS;
    p->stages[0].zero[op_find(m, "dec.1.act")] = ZERO_NONE;
    memset(p->stages[0].layouts, PLACE_NONE, (size_t)m->n_ops * sizeof(struct layout));
    says(p, 0, "zero", "2");
    says(p, 0, "except",
         "[{\"ops\": [\"dec.1.act\"], \"zero\": 0}, {\"ops\": [\"fc\"], \"zero\": 3}]");
    ok(survives(p, &err), "and is read back the same %s", err.msg);
    plan_destroy(p);
    model_destroy(m);
}

int main(void) {
    int count = getenv("WEFT_LONG") ? 5000 : 200;
    test_short();
    for (int repeats = 0; repeats <= 3; repeats++)
        test_round_trip(1, count, repeats);
    return done_testing();
}
