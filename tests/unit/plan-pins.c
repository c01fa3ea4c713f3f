/* Pins: what is read, what is refused, and which plans obey. */
#include "plan/pin.h"

#include "tap.h"

#include <stdlib.h>
#include <string.h>

static json_t *parse(const char *text) {
    struct err err = {0};
    json_t *doc = json_parse(text, strlen(text), "text", &err);
    if (!doc)
        printf("Bail out! %s\n", err.msg);
    return doc;
}

static const char set[] = "layers=2,hidden=24,heads=6,seq=6,vocab=24";

/* ---- plans and their pins ---------------------------------------------------------------- */

static const char dp[] = "[{\"mesh\": \"dp:2\", \"layout\": {\"dp\": \"batch\"}}]";
static const char tp[] = "[{\"mesh\": \"tp:3\", \"layout\": {\"tp\": [\"heads\", \"ffn\"]},"
                         "  \"zero\": 1, \"recompute\": \"all\"}]";
static const char pp[] =
    "[{\"ops\": [\"wte\", \"wpe\", \"layer.0\"]}, {\"mesh\": \"x:2\"}]";

/* The message of the plan with these pins; "" where it obeys. */
static const struct obeying {
    const char *stages, *pin, *says;
} plans[] = {
    {dp, "{}", ""},
    {dp, "{\"micro_batch\": 8, \"schedule\": \"1f1b\", \"stages\": 1, \"overlap\": false}",
     ""},
    {dp, "{\"micro_batch\": 4}", "pin: micro_batch: 8 instead of 4"},
    {dp, "{\"schedule\": \"gpipe\"}", "pin: schedule: 1f1b instead of gpipe"},
    {dp, "{\"overlap\": true}", "pin: overlap: false instead of true"},
    {dp, "{\"stages\": 2}", "pin: stages: 1 instead of 2"},
    {dp, "{\"*\": {\"split\": {\"batch\": 2, \"heads\": false}}}", ""},
    {dp, "{\"*\": {\"split\": {\"batch\": true}}}", ""},
    {dp, "{\"layer.0\": {\"split\": {\"batch\": 1}}}",
     "pin \"layer.0\": batch: layer.0.ln1 has 2 parts instead of 1"},
    {dp, "{\"*\": {\"split\": {\"heads\": true}}}",
     "pin \"*\": heads: layer.0.qkv is not split on it"},
    {dp, "{\"*\": {\"layout\": {\"dp\": \"batch\"}}}", ""},
    {dp, "{\"wte loss\": {\"layout\": {\"dp\": [\"vocab\", \"batch\"]}}}",
     "pin \"wte loss\": layout.dp: wte is split on batch instead of vocab"},
    {dp, "{\"wte\": {\"layout\": {\"dp\": null}}}",
     "pin \"wte\": layout.dp: wte is split on batch instead of nothing"},
    {dp, "{\"wte\": {\"layout\": {\"tp\": \"vocab\"}}}",
     "pin \"wte\": layout: the mesh of wte has no axis \"tp\""},
    {dp, "{\"*\": {\"mesh\": \" dp:2 \"}}", ""},
    {dp, "{\"*\": {\"mesh\": \"tp:2\"}}", "pin \"*\": mesh: wte has dp:2 instead of tp:2"},
    {dp, "{\"ln\": {\"zero\": 2}}", "pin \"ln\": zero: ln has 0 instead of 2"},
    {tp, "{\"*\": {\"zero\": 1, \"recompute\": \"all\", \"regather\": false}}", ""},
    {tp, "{\"layer.*.attn\": {\"recompute\": true}, \"head\": {\"recompute\": false}}", ""},
    {tp, "{\"layer.1.add2\": {\"recompute\": true}}",
     "pin \"layer.1.add2\": recompute: layer.1.add2 has false instead of true"},
    {tp, "{\"*\": {\"recompute\": \"selective\"}}",
     "recompute: layer.0.ln1 has true instead of false"},
    {tp, "{\"*\": {\"offload\": [], \"ring\": true}}", ""},
    {tp, "{\"wte\": {\"offload\": [\"optimizer\", \"activations\"]}}",
     "pin \"wte\": offload: wte has [] instead of [optimizer activations]"},
    {tp, "{\"*\": {\"regather\": true}}", "regather: wte has false instead of true"},
    {pp, "{\"wte\": {\"stage\": 0}, \"layer.1\": {\"stage\": \"begins\"}}", ""},
    {pp, "{\"wte\": {\"stage\": 1}}", "pin \"wte\": stage: wte has 0 instead of 1"},
    {pp, "{\"layer.0\": {\"stage\": \"begins\"}}", "stage: none begins with layer.0.ln1"},
    {pp, "{\"layer.1 head\": {\"stage\": \"one\"}}", ""},
    {pp, "{\"wte head\": {\"stage\": \"one\"}}",
     "pin \"wte head\": stage: wte is in stage 0, head in stage 1"},
};

static struct plan *read_plan(const char *stages, const char *pin, struct err *err) {
    json_t *doc = json_pack("{s:s, s:s, s:s, s:i, s:o, s:o}", "format", "weft-plan/1",
                            "model", "gpt:nano", "set", set, "batch", 8, "stages",
                            parse(stages), "pin", parse(pin));
    struct plan *p = plan_from_json(doc, err);
    json_decref(doc);
    return p;
}

static void test_plans(void) {
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        struct err err = {0};
        struct plan *p = read_plan(plans[i].stages, plans[i].pin, &err);
        bool good = *plans[i].says
                        ? !p && err.status == EXIT_INPUT && strstr(err.msg, plans[i].says)
                        : p != NULL;
        ok(good, "%s: %s", plans[i].pin, *plans[i].says ? err.msg : "obeyed");
        plan_destroy(p);
    }
}

/* "pin" of a plan is written with it, and read again. */
static void test_writing(void) {
    const char *text = "{\"*\": {\"zero\": 1}, \"stages\": 1}";
    struct plan *p = read_plan(tp, text, NULL);
    json_t *doc = p ? plan_to_json(p) : NULL, *pin = parse(text);
    struct plan *again = plan_from_json(doc, NULL);
    ok(json_equal(json_object_get(doc, "pin"), pin) && again, "pins are written");
    plan_destroy(again);
    plan_destroy(p);
    json_decref(doc);
    json_decref(pin);
}

/* ---- what is refused ----------------------------------------------------------------------- */

static const struct refused {
    const char *plan, *says;
} partial[] = {
    {"\"pin\": 1", "f: pin: expected an object"},
    {"\"pin\": {\"layer\": 1}", "f: pin \"layer\": expected an object"},
    {"\"pin\": {\"layer.7\": {}}", "f: pin: \"layer.7\" covers no op of the model"},
    {"\"pin\": {\"wte layr\": {}}", "f: pin[1]: \"layr\" covers no op of the model"},
    {"\"pin\": {\" \": {}}", "f: pin: expected patterns of ops"},
    {"\"pin\": {\"*\": {\"zzz\": 1}}", "unknown key \"zzz\""},
    {"\"pin\": {\"layer.*.attn\": {\"split\": {\"heads\": 4}}}",
     "f: pin \"layer.*.attn\": heads: 6 do not divide by 4"},
    {"\"pin\": {\"wte\": {\"split\": {\"heads\": 2}}}",
     "split: none of the ops can be split on heads"},
    {"\"pin\": {\"wte\": {\"split\": {\"zzz\": 2}}}", "the model has no dim \"zzz\""},
    {"\"pin\": {\"*\": {\"split\": {\"heads\": \"2\"}}}",
     "heads: expected a number of parts"},
    {"\"pin\": {\"*\": {\"layout\": {\"x\": 1}}}", "layout.x: expected a dim"},
    {"\"pin\": {\"*\": {\"recompute\": \"some\"}}", "recompute: expected true, false"},
    {"\"pin\": {\"*\": {\"stage\": -1}}", "stage: expected its number"},
    {"\"pin\": {\"*\": {\"zero\": 1}, \"wte\": {\"zero\": 0}}",
     "f: pin \"wte\": zero: 0, but f: pin \"*\" says 1 of wte"},
    {"\"pin\": {\"*\": {\"split\": {\"heads\": 2}}, \"layer.0\": {\"split\": {\"heads\": 3}}}",
     "f: pin \"layer.0\": heads: other parts than f: pin \"*\" says of layer.0.qkv"},
    {"\"micro_batch\": 2, \"pin\": {\"micro_batch\": 4}",
     "f: pin: micro_batch: 4, but f says 2"},
    {"\"zzz\": 1", "f: zzz: unknown key"},
    {"\"model\": \"mlp\"", "f: model: another one"},
    {"\"stages\": []", "f: stages: expected an array of 1"},
    {"\"stages\": [{\"layout\": {}}]", "f: stages[0].mesh: missing"},
    {"\"stages\": [{\"zero\": 1}, {}]", "f: stages[0].ops: missing"},
    {"\"stages\": [{\"ops\": \"wte\"}, {\"ops\": \"wte\"}]", "wte is in stages[0] too"},
    {"\"stages\": [{\"mesh\": \"x:2\", \"layout\": {\"x\": \"heads\"}}],"
     " \"pin\": {\"layer.*.attn\": {\"split\": {\"heads\": 1}}}",
     "heads: layer.0.attn has 2 parts instead of 1"},
};

static json_t *partial_plan(const char *members) {
    char *text;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    fprintf(f, "{\"format\": \"weft-plan/1\"%s%s}", *members ? ", " : "", members);
    fclose(f);
    json_t *doc = parse(text);
    free(text);
    return doc;
}

static void test_refused(const struct model *m) {
    for (size_t i = 0; i < sizeof partial / sizeof *partial; i++) {
        struct err err = {0};
        struct pins *p = pins_of_model(m, "m", &err);
        json_t *doc = partial_plan(partial[i].plan);
        ok(pins_add(p, doc, "f", true, &err) < 0 && err.status == EXIT_INPUT &&
               strstr(err.msg, partial[i].says),
           "%s: %s", partial[i].plan, err.msg);
        json_decref(doc);
        pins_destroy(p);
    }
}

/* ---- partial plans ------------------------------------------------------------------------- */

static bool obeys(const struct model *m, const char *members, const struct plan *plan) {
    struct err err = {0};
    struct pins *p = pins_of_model(m, "m", &err);
    json_t *doc = partial_plan(members);
    bool good = pins_add(p, doc, "f", true, &err) == 0 && pins_check(p, plan, &err) == 0;
    json_decref(doc);
    pins_destroy(p);
    return good;
}

/* A plan obeys itself, and itself less any of its keys; what is there must be the same. */
static void test_partial(const struct model *m) {
    struct plan *plan = read_plan(tp, "{}", NULL), *two = read_plan(pp, "{}", NULL);
    ok(obeys(m, "", plan) && obeys(m, "\"batch\": 8, \"optimizer\": \"adamw\"", plan),
       "what is missing is free");
    ok(!obeys(m, "\"batch\": 4", plan) && !obeys(m, "\"optimizer\": \"sgd\"", plan) &&
           !obeys(m, "\"stages\": [{}, {}]", plan),
       "what is there is fixed");
    char stages[256];
    snprintf(stages, sizeof stages, "\"stages\": %s", tp);
    ok(obeys(m, stages, plan) && !obeys(m, stages, two), "stages with all that they say");
    ok(obeys(m, "\"stages\": [{\"ops\": \"layer.0\"}, {}]", two) == false &&
           obeys(m, "\"stages\": [{\"ops\": [\"wte\", \"wpe\", \"layer.0\"]}, {}]", two),
       "one stage without ops has the rest");
    ok(obeys(
           m,
           "\"stages\": [{\"mesh\": \"tp:3\", \"layout\": {\"tp\": [\"heads\", \"ffn\"]}}]",
           plan) &&
           !obeys(m, "\"stages\": [{\"mesh\": \"tp:3\", \"layout\": {\"tp\": \"heads\"}}]",
                  plan),
       "a layout is one of all ops and axes");
    ok(!obeys(m,
              "\"stages\": [{\"zero\": 1, \"except\": [{\"ops\": \"ln\", \"zero\": 0}]}]",
              plan) &&
           !obeys(m, "\"stages\": [{\"recompute\": \"selective\"}]", plan),
       "exceptions and recompute, op by op");
    plan_destroy(plan);
    plan_destroy(two);
}

/* Pins of the model's file hold for each of its plans, and leave what is computed alone. */
static void test_model(void) {
    struct err err = {0};
    struct model *plain = model_load("gpt:nano", set, &err);
    json_t *doc = json_copy(plain->doc);
    json_object_set_new(doc, "pin",
                        parse("{\"layer.*.attn\": {\"split\": {\"heads\": 1}}}"));
    struct model *m = model_from_json(doc, "nano", set, &err);
    ok(m && m->hash == plain->hash, "the model is the same with pins");
    json_t *plan = json_pack("{s:s, s:O, s:s, s:i, s:o}", "format", "weft-plan/1", "model",
                             doc, "set", set, "batch", 8, "stages", parse(tp));
    struct plan *p = plan_from_json(plan, &err);
    ok(!p && strstr(err.msg, "model: pin \"layer.*.attn\": heads: layer.0.attn has 3 parts "
                             "instead of 1"),
       "its pins: %s", err.msg);
    json_object_set_new(plan, "stages", parse(dp));
    p = plan_from_json(plan, &err);
    ok(p != NULL, "a plan that obeys them");
    plan_destroy(p);
    json_decref(plan);
    model_destroy(m);
    json_object_set_new(doc, "pin", parse("{\"atn\": {}}"));
    m = model_from_json(doc, "nano", set, &err);
    struct pins *pins = m ? pins_of_model(m, "my.json", &err) : NULL;
    ok(!pins && !strcmp(err.msg, "my.json: pin: \"atn\" covers no op of the model"),
       "pins of a model are checked: %s", err.msg);
    json_decref(doc);
    pins_destroy(pins);
    model_destroy(m);
    model_destroy(plain);
}

int main(void) {
    struct model *m = model_load("gpt:nano", set, NULL);
    test_plans();
    test_writing();
    test_refused(m);
    test_partial(m);
    test_model();
    model_destroy(m);
    return done_testing();
}
