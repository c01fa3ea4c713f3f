/* Reading plan files: patterns, layouts by name, and what is refused. */
#include "plan/plan.h"

#include "message.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

/* Two kinds of block, one inside the other; a dim that is split into two and merged again. */
static const char model_text[] =
    "{\"format\": \"weft-model/1\", \"name\": \"m\","
    " \"sizes\": {\"pixels\": 16, \"rows\": 4, \"columns\": 4, \"classes\": 8},"
    " \"inputs\": {\"image\": {\"dims\": [\"batch\", \"pixels\"], \"source\": \"image\"},"
    "              \"labels\": {\"dims\": [\"batch\"], \"source\": \"label\"}},"
    " \"ops\": ["
    "  {\"name\": \"split\", \"kind\": \"reshape\", \"in\": [\"image\"], \"out\": \"x\","
    "   \"dims\": [\"batch\", \"rows\", \"columns\"]},"
    "  {\"name\": \"merge\", \"kind\": \"reshape\", \"in\": [\"x\"], \"out\": \"x\","
    "   \"dims\": [\"batch\", \"pixels\"]},"
    "  {\"name\": \"enc\", \"repeat\": \"3\", \"ops\": ["
    "   {\"name\": \"act\", \"kind\": \"gelu\", \"in\": [\"x\"], \"out\": \"x\", \"dims\": "
    "[\"batch\", \"pixels\"]},"
    "   {\"name\": \"sub\", \"repeat\": \"2\", \"ops\": ["
    "    {\"name\": \"act\", \"kind\": \"relu\", \"in\": [\"x\"], \"out\": \"x\", \"dims\": "
    "[\"batch\", \"pixels\"]}]}]},"
    "  {\"name\": \"dec\", \"repeat\": \"2\", \"ops\": ["
    "   {\"name\": \"act\", \"kind\": \"silu\", \"in\": [\"x\"], \"out\": \"x\", \"dims\": "
    "[\"batch\", \"pixels\"]}]},"
    "  {\"name\": \"fc\", \"kind\": \"einsum\", \"in\": [\"x\"], \"out\": \"x\", \"dims\": "
    "[\"batch\", \"classes\"], \"weight\": {\"dims\": [\"pixels\", \"classes\"]}},"
    "  {\"name\": \"loss\", \"kind\": \"cross-entropy\", \"in\": [\"x\", \"labels\"],"
    "   \"out\": \"l\", \"dims\": []}]}";

static struct plan *read_schedule(const char *schedule, const char *stages,
                                  struct err *err) {
    char *text;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    fprintf(
        f,
        "{\"format\": \"weft-plan/1\", \"model\": %s, \"batch\": 8, \"schedule\": \"%s\","
        " \"stages\": %s}",
        model_text, schedule, stages);
    fclose(f);
    json_t *doc = json_parse(text, size, "plan", err);
    struct plan *p = doc ? plan_from_json(doc, err) : NULL;
    json_decref(doc);
    free(text);
    return p;
}

static struct plan *read_stages(const char *stages, struct err *err) {
    return read_schedule("1f1b", stages, err);
}

static int op_find(const struct model *m, const char *name) {
    for (int i = 0; i < m->n_ops; i++)
        if (!strcmp(m->ops[i].name, name))
            return i;
    ok(0, "the model has no op %s", name);
    return 0;
}

/* ---- patterns ---------------------------------------------------------------------------- */

/* want: the ops covered, parted by blanks. */
static void covers(const char *pattern, const char *want) {
    struct err err = {0};
    char stages[256], got[1024] = "";
    snprintf(stages, sizeof stages, "[{\"recompute\": [\"%s\"]}]", pattern);
    struct plan *p = read_stages(stages, &err);
    for (int i = 0; p && i < p->model->n_ops; i++) {
        size_t used = strlen(got);
        if (p->stages[0].recompute[i])
            snprintf(got + used, sizeof got - used, "%s%s", used ? " " : "",
                     p->model->ops[i].name);
    }
    ok(!strcmp(got, want), "\"%s\" covers %s%s", pattern, got, err.msg);
    plan_destroy(p);
}

static void test_patterns(void) {
    covers("merge", "merge");
    covers("enc.1", "enc.1.act enc.1.sub.0.act enc.1.sub.1.act");
    covers("enc.0-1.act", "enc.0.act enc.1.act");
    covers("enc.0,2.sub.1", "enc.0.sub.1.act enc.2.sub.1.act");
    covers("enc.*.sub.0.*", "enc.0.sub.0.act enc.1.sub.0.act enc.2.sub.0.act");
    covers("*.1.act", "enc.1.act dec.1.act");
    covers("dec.1-7", "dec.1.act");
    covers("*er*", "merge");
}

static void test_recompute_all(void) {
    struct err err = {0};
    struct plan *p = read_stages("[{\"recompute\": \"all\"}]", &err);
    const struct stage *st = &p->stages[0];
    const struct model *m = p->model;
    ok(st->recompute[op_find(m, "enc.0.act")] &&
           !st->recompute[op_find(m, "enc.0.sub.0.act")] &&
           !st->recompute[op_find(m, "dec.0.act")] && !st->recompute[op_find(m, "merge")] &&
           !st->recompute[op_find(m, "loss")],
       "\"all\" keeps the last op of each block, and what stands in none");
    plan_destroy(p);
}

static void test_recompute_selective(void) {
    struct err err = {0};
    json_t *doc = json_pack("{s:s, s:s, s:i, s:[{s:s}]}", "format", "weft-plan/1", "model",
                            "gpt:nano", "batch", 1, "stages", "recompute", "selective");
    struct plan *p = plan_from_json(doc, &err);
    int attention = 0, other = 0;
    for (int i = 0; p && i < p->model->n_ops; i++) {
        bool attends = p->model->ops[i].kind == OP_attention_packed;
        attention += attends && p->stages[0].recompute[i];
        other += !attends && p->stages[0].recompute[i];
    }
    ok(attention == 6 && other == 0, "\"selective\" is attention alone %s", err.msg);
    plan_destroy(p);
    json_decref(doc);
}

/* ---- layouts ----------------------------------------------------------------------------- */

static void splits(const char *stages, const char *op, int axis, const char *want) {
    struct err err = {0};
    struct plan *p = read_stages(stages, &err);
    int i = p ? op_find(p->model, op) : 0;
    int k = p ? p->stages[0].layouts[i].dim[axis] : PLACE_NONE;
    const char *got =
        k == PLACE_NONE ? "none" : p->model->dims[p->model->ops[i].space.dim[k]].name;
    ok(p && !strcmp(got, want), "axis %d splits %s on %s%s", axis, op, got, err.msg);
    plan_destroy(p);
}

static void test_layouts(void) {
    const char *list =
        "[{\"mesh\": \"a:2 b:2\", \"layout\": {\"b\": [\"classes\", \"pixels\"]},"
        " \"except\": [{\"ops\": [\"dec\", \"fc\"], \"layout\": {\"a\": \"batch\"}},"
        "              {\"ops\": \"dec.1\", \"layout\": {}}]}]";
    splits(list, "enc.0.act", 0, "none");
    splits(list, "enc.0.act", 1, "pixels");
    splits(list, "loss", 1, "classes");
    splits(list, "fc", 0, "batch");
    splits(list, "fc", 1, "none");
    splits(list, "dec.0.act", 0, "batch");
    splits(list, "dec.1.act", 0, "none");
    const char *second = "[{\"mesh\": \"a:2\", \"layout\": {\"a\": \"pixels\"}}]";
    splits(second, "split", 0, "rows");
    splits(second, "merge", 0, "pixels");
    splits("[{\"mesh\": \"a:2\", \"layout\": {\"a\": \"rows\"}}]", "merge", 0, "pixels");
    splits("[{\"mesh\": \"a:2\", \"layout\": {\"a\": \"columns\"}}]", "merge", 0, "none");
    splits("[{\"mesh\": \"a:1\", \"layout\": {\"a\": \"batch\"}}]", "fc", 0, "batch");
}

/* ---- rings ------------------------------------------------------------------------------- */

static struct plan *read_attend(const char *stage, struct err *err) {
    char text[512];
    int n = snprintf(text, sizeof text,
                     "{\"format\": \"weft-plan/1\", \"model\": "
                     "\"./tests/models/attend.json\", \"batch\": 4, \"stages\": [{"
                     "\"mesh\": \"cp:2\", \"layout\": {\"cp\": \"seq\"}%s}]}",
                     stage);
    json_t *doc = json_parse(text, (size_t)n, "plan", err);
    struct plan *p = doc ? plan_from_json(doc, err) : NULL;
    json_decref(doc);
    return p;
}

/* The ops whose keys go round, and what is written of the stage. */
static void rings(const char *stage, const char *want, const char *written) {
    struct err err = {0};
    struct plan *p = read_attend(stage, &err);
    char got[64] = "";
    for (int i = 0; p && i < p->stages[0].n_ops; i++)
        if (p->stages[0].layouts[i].ring != PLACE_NONE)
            snprintf(got + strlen(got), sizeof got - strlen(got), "%s ",
                     p->model->ops[i].name);
    json_t *doc = p ? plan_to_json(p) : json_object();
    const json_t *st = json_array_get(json_object_get(doc, "stages"), 0);
    json_t *said =
        json_pack("[O?, O?]", json_object_get(st, "ring"), json_object_get(st, "except"));
    char *text = said ? json_dumps(said, JSON_COMPACT) : strdup("");
    ok(p && !strcmp(got, want) && !strcmp(text, written), "%s: rings of %s: %s %s", stage,
       got, text, err.msg);
    free(text);
    json_decref(said);
    json_decref(doc);
    plan_destroy(p);
}

static void test_rings(void) {
    rings("", "", "[null,null]");
    rings(", \"ring\": true", "self cross ", "[true,null]");
    rings(", \"ring\": true, \"except\": [{\"ops\": \"cross\", \"ring\": false}]", "self ",
          "[null,[{\"ops\":[\"self\"],\"ring\":true}]]");
    rings(", \"except\": [{\"ops\": [\"c*\", \"self\"], \"ring\": true}]", "self cross ",
          "[true,null]");
    struct err err = {0};
    struct plan *p =
        read_attend(", \"ring\": true, \"except\": [{\"ops\": \"self\"}]", &err);
    ok(!p &&
           strstr(
               err.msg,
               "except[0].ops: expected \"layout\", \"ring\", \"zero\" or \"offload\" beside"),
       "an exception from nothing: %s", err.msg);
    plan_destroy(p);
}

/* ---- what is refused --------------------------------------------------------------------- */

static void refused(const char *stages, const char *want) {
    struct err err = {0};
    struct plan *p = read_stages(stages, &err);
    ok(!p && err.status == EXIT_INPUT && message_says(err.msg, want), "refused: %s",
       p ? "not at all" : err.msg);
    plan_destroy(p);
}

static void test_refused(void) {
    refused("[{\"ops\": [\"split\", \"merge\", \"encc.0\"]}, {}]",
            "stages[0].ops[2]: \"encc.0\" covers");
    refused("[{\"ops\": \"spilt\"}, {}]", "stages[0].ops: \"spilt\" covers");
    refused("[{\"ops\": [\"split\", \"\"]}, {}]", "stages[0].ops[1]:...\"layer.0-3.*\"");
    refused("[{\"ops\": [\"split\", \"split\", 3]}, {}]",
            "stages[0].ops[2]:...\"layer.0-3.*\"");
    refused("[{\"ops\": []}, {}]", "stages[0].ops:");
    refused("[{}, {}]", "stages[1].ops: missing (only...stage...out)");
    refused("[{\"ops\": [\"split\"]}, {\"ops\": [\"merge\", \"*\"]}]",
            "stages[1].ops: split...stages[0]");
    refused("[{\"ops\": [\"split\"]}]", "stages:...stage");
    refused("[{\"ops\": [\"merge\"]}, {}]", "stages[0].ops:...result...split...stages[1]");
    refused("[{\"recompute\": [\"fc\", \"dce\"]}]",
            "stages[0].recompute[1]: \"dce\" covers...stage");
    refused("[{\"recompute\": \"layer.9\"}]",
            "stages[0].recompute: \"layer.9\" covers...stage");
    refused("[{\"except\": [{\"ops\": [\"fc\", \"enc.3\"], \"layout\": {}}]}]",
            "stages[0].except[0].ops[1]: \"enc.3\" covers...stage");
    refused("[{\"ops\": [\"split\", \"merge\"]}, {\"except\": [{\"ops\": \"split\", "
            "\"layout\": {}}]}]",
            "stages[1].except[0].ops: \"split\" covers...stage");
    refused("[{\"mesh\": \"a:2\", \"layout\": {\"b\": \"batch\"}}]",
            "stages[0].layout:...mesh \"a:2\"...axis \"b\"");
    refused("[{\"mesh\": \"a:2\", \"layout\": {\"a\": \"bach\"}}]",
            "stages[0].layout.a:...\"bach\" (there are:...classes)");
    refused("[{\"mesh\": \"a:2\", \"layout\": {\"a\": [\"batch\", 1]}}]",
            "stages[0].layout.a:...list...dims");
    refused("[{\"mesh\": \"a:3\", \"layout\": {\"a\": \"batch\"}}]",
            "stages[0].layout: axis...(3)...divide...(8)...split");
}

/* A layout or a micro-batch that would cut a sample group. */
static void test_groups(void) {
    static const struct {
        const char *plan, *want;
    } cases[] = {
        {"\"batch\": 6, \"micro_batch\": 3, \"stages\": [{}]",
         "stages[0].layout:...micro-batch (3) cuts...group (2)...layer.0.even"},
        {"\"batch\": 6, \"stages\": [{\"mesh\": \"a:2\", \"layout\": {\"a\": \"batch\"}}]",
         "stages[0].layout: axis...(2) cuts...group (2)...(6)...layer.0.even"},
        {"\"batch\": 8, \"stages\": [{\"mesh\": \"a:2 b:4\", \"layout\": {\"a\": \"batch\"},"
         " \"except\": [{\"ops\": \"layer.0.combine\", \"layout\": {\"b\": \"batch\", "
         "\"a\": \"batch\"}}]}]",
         "stages[0].layout: axis b (4) cuts...group (2)...(4)...layer.0.combine"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        char text[1024];
        int n = snprintf(text, sizeof text,
                         "{\"format\": \"weft-plan/1\", \"model\": "
                         "\"./tests/models/experts.json\", %s}",
                         cases[i].plan);
        json_t *doc = json_parse(text, (size_t)n, "plan", &err);
        struct plan *p = doc ? plan_from_json(doc, &err) : NULL;
        ok(!p && message_says(err.msg, cases[i].want), "refused: %s",
           p ? "not at all" : err.msg);
        plan_destroy(p);
        json_decref(doc);
    }
}

/* ---- device groups ------------------------------------------------------------------------------ */

static struct plan *read_aggregate(const char *keys, const char *mesh, struct err *err) {
    char text[512];
    snprintf(
        text, sizeof text,
        "{\"format\": \"weft-plan/1\", \"model\": \"gpt:nano\", \"batch\": 24, %s, \"stages\": "
        "[{\"mesh\": \"%s\", \"layout\": {\"dp\": \"batch\", \"tp\": [\"heads\", \"ffn\"]}}]}",
        keys, mesh);
    json_t *doc = json_parse(text, strlen(text), "plan", err);
    struct plan *p = doc ? plan_from_json(doc, err) : NULL;
    json_decref(doc);
    return p;
}

/* Replicas are what the batch is split over, whatever else is. */
static void test_aggregate(void) {
    static const struct {
        const char *keys, *mesh, *want; /* want: of the message, NULL = it is read */
        int faulty;
    } cases[] = {
        {"\"aggregate\": \"median\"", "dp:3 tp:1", NULL, 1},
        {"\"aggregate\": \"fair\", \"faulty\": 2", "dp:6 tp:2", NULL, 2},
        {"\"aggregate\": \"trimmed\", \"faulty\": 0", "dp:1 tp:2", NULL, 0},
        {"\"aggregate\": \"mean\"", "dp:2 tp:1", NULL, 0},
        {"\"aggregate\": \"median\"", "dp:1 tp:2", NULL, 1},
        {"\"aggregate\": \"median\"", "dp:2 tp:2", "stages[0].mesh:...2...median...1...3",
         0},
        {"\"aggregate\": \"fair\", \"faulty\": 4", "dp:8 tp:1",
         "stages[0].mesh:...8...fair...4...9", 0},
        {"\"aggregate\": \"fairly\"", "dp:3 tp:1", "aggregate:...fair...\"fairly\"", 0},
        {"\"aggregate\": 3", "dp:3 tp:1", "aggregate:", 0},
        {"\"faulty\": 1", "dp:3 tp:1", "faulty:...mean", 0},
        {"\"aggregate\": \"fair\", \"faulty\": -1", "dp:3 tp:1", "faulty:", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        struct plan *p = read_aggregate(cases[i].keys, cases[i].mesh, &err);
        if (cases[i].want)
            ok(!p && err.status == EXIT_INPUT && message_holds(err.msg, cases[i].want),
               "%s on %s: %s", cases[i].keys, cases[i].mesh, p ? "not refused" : err.msg);
        else
            ok(p && p->faulty == cases[i].faulty, "%s on %s %s", cases[i].keys,
               cases[i].mesh, err.msg);
        plan_destroy(p);
    }
}

/* Axes that train apart: bits of the first stage, of an op that splits its batch. */
static void test_average(void) {
    static const struct {
        const char *keys, *mesh, *want; /* want: of the message, NULL = it is read */
        enum average how;
        int64_t every;
        unsigned axes;
    } cases[] = {
        {"\"average\": \"none\"", "dp:4 tp:2", NULL, AVERAGE_none, 1, 0},
        {"\"average\": \"all\"", "dp:4 tp:2", NULL, AVERAGE_all, 1, 1},
        {"\"average\": \"all\", \"average_every\": 16", "dp:1 tp:2", NULL, AVERAGE_all, 16,
         0},
        {"\"average\": \"pairs\", \"average_every\": 3, \"average_axes\": [\"dp\"]",
         "tp:2 dp:3", NULL, AVERAGE_pairs, 3, 2},
        {"\"average\": \"all\", \"average_axes\": [\"tp\"]", "dp:4 tp:2", NULL, AVERAGE_all,
         1, 0},
        {"\"average\": \"some\"", "dp:4 tp:2", "average:...all...\"some\"", 0, 0, 0},
        {"\"average\": true", "dp:4 tp:2", "average:", 0, 0, 0},
        {"\"average_every\": 4", "dp:4 tp:2", "average_every:...average", 0, 0, 0},
        {"\"average_axes\": [\"dp\"]", "dp:4 tp:2", "average_axes:...average", 0, 0, 0},
        {"\"average\": \"all\", \"average_every\": 0", "dp:4 tp:2", "average_every:", 0, 0,
         0},
        {"\"average\": \"all\", \"average_axes\": [\"dp\", \"node\"]", "dp:4 tp:2",
         "average_axes[1]:...\"node\"", 0, 0, 0},
        {"\"average\": \"all\", \"average_axes\": [3]", "dp:4 tp:2", "average_axes[0]:", 0,
         0, 0},
        {"\"average\": \"all\", \"average_axes\": \"dp\"", "dp:4 tp:2", "average_axes:", 0,
         0, 0},
        {"\"average\": \"all\", \"aggregate\": \"median\"", "dp:4 tp:2",
         "average:...median", 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        struct plan *p = read_aggregate(cases[i].keys, cases[i].mesh, &err);
        if (cases[i].want)
            ok(!p && err.status == EXIT_INPUT && message_holds(err.msg, cases[i].want),
               "%s on %s: %s", cases[i].keys, cases[i].mesh, p ? "not refused" : err.msg);
        else
            ok(p && p->average == cases[i].how && p->average_every == cases[i].every &&
                   plan_apart_axes(p, &p->stages[0], 0) == cases[i].axes,
               "%s on %s %s", cases[i].keys, cases[i].mesh, err.msg);
        plan_destroy(p);
    }
}

static void refused_under(const char *schedule, const char *stages, const char *want) {
    struct err err = {0};
    struct plan *p = read_schedule(schedule, stages, &err);
    ok(!p && err.status == EXIT_INPUT && message_holds(err.msg, want), "refused: %s",
       p ? "not at all" : err.msg);
    plan_destroy(p);
}

static void test_device_groups(void) {
    struct err err = {0};
    struct plan *p = read_schedule("interleaved",
                                   "[{\"ops\": [\"split\", \"merge\"], \"group\": 0,"
                                   "  \"mesh\": \"a:2 b:2\"},"
                                   " {\"ops\": \"enc\", \"group\": 1, \"mesh\": \"a:3\"},"
                                   " {\"ops\": [\"dec\", \"fc\"], \"group\": 0,"
                                   "  \"mesh\": \"c:4\"},"
                                   " {\"group\": 1, \"mesh\": \"a:3\"}]",
                                   &err);
    ok(p && p->n_groups == 2 && p->devices == 7 && p->stages[0].first_rank == 0 &&
           p->stages[2].first_rank == 0 && p->stages[1].first_rank == 4 &&
           p->stages[3].first_rank == 4,
       "ranks are numbered group by group: %s", p ? "7 devices" : err.msg);
    char name[32] = "";
    if (p)
        plan_group_name(p, 1, name, sizeof name);
    ok(!strcmp(name, "stages 1, 3"), "the second group has %s", name);
    plan_destroy(p);
    refused_under("gpipe", "[{\"ops\": [\"split\", \"merge\"], \"group\": 0}, {}]",
                  "stages[1].group: missing (all...none)");
    refused_under("gpipe",
                  "[{\"ops\": [\"split\", \"merge\"], \"group\": 1}, {\"group\": 1}]",
                  "stages:...stage...group 0...0...1");
    refused_under("gpipe",
                  "[{\"ops\": [\"split\", \"merge\"], \"group\": 0, \"mesh\": \"a:2\"},"
                  " {\"group\": 0}]",
                  "stages[1].mesh: 1...stages[0]...group...2");
    refused_under("1f1b",
                  "[{\"ops\": [\"split\", \"merge\"], \"group\": 0}, {\"group\": 0}]",
                  "stages[0].group: 1f1b...stage...group");
    refused_under(
        "interleaved",
        "[{\"ops\": \"split\", \"group\": 0}, {\"ops\": \"merge\", \"group\": 0}, "
        "{\"group\": 1}]",
        "stages[0].group:...groups:...0...2");
    refused_under("zero", "[{}]", "1f1b, ");
    refused_under("zero", "[{}]", "got \"zero\"");
}

int main(void) {
    test_patterns();
    test_recompute_all();
    test_recompute_selective();
    test_layouts();
    test_rings();
    test_aggregate();
    test_average();
    test_refused();
    test_groups();
    test_device_groups();
    return done_testing();
}
