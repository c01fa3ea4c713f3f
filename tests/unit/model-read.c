/* Model files: repeats and what they bind, dims and sizes, names, ties, and the hash. */
#include "message.h"
#include "model.h"

#include <math.h>

/* A model of these sizes (and what else stands before the ops) and ops; a token model. */
#define MODEL(sizes, ops)                                                                  \
    "{'format': 'weft-model/1', 'name': 'm', 'sizes': {" sizes                             \
    "}, 'inputs': {'ids': {'dims': ['batch', 'seq'], 'source': 'token'},"                  \
    " 'next': {'dims': ['batch', 'seq'], 'source': 'next-token'}}, 'ops': [" ops "]}"
#define SIZES "'seq': 4, 'hidden': 6, 'wide': 12, 'vocab': 8"
#define WTE                                                                                \
    "{'name': 'wte', 'kind': 'embedding', 'in': ['ids'], 'out': 'x',"                      \
    " 'dims': ['batch', 'seq', 'hidden'], 'weight': {'dims': ['vocab', 'hidden']}},"
#define GELU(name, in, out)                                                                \
    "{'name': '" name "', 'kind': 'gelu', 'in': ['" in "'], 'out': '" out                  \
    "', 'dims': ['batch', 'seq', 'hidden']}"
#define LINEAR(name, from, to, in, out, more)                                              \
    "{'name': '" name "', 'kind': 'einsum', 'in': ['" in "'], 'out': '" out                \
    "', 'dims': ['batch', 'seq', '" to "'], 'weight': {'dims': ['" from "', '" to          \
    "']" more "}}"
#define LOSS(name, in)                                                                     \
    "{'name': '" name "', 'kind': 'cross-entropy', 'in': ['" in                            \
    "', 'next'], 'out': '" name "', 'dims': []}"
#define REPEAT(name, n, more, ops)                                                         \
    "{'name': '" name "', 'repeat': " n more ", 'ops': [" ops "]}"

static struct model *reads(const char *text, const char *what) {
    struct err err = {0};
    struct model *m = model_of(text, NULL, &err);
    ok(m != NULL, "%s %s", what, err.msg);
    return m;
}

static void refuses(const char *text, const char *message) {
    struct err err = {0};
    struct model *m = model_of(text, NULL, &err);
    ok(!m && message_says(err.msg, message) && err.status == EXIT_INPUT, "refuses: %s",
       m ? "it is accepted" : err.msg);
    model_destroy(m);
}

/* ---- repeats ----------------------------------------------------------------------------- */

/* All ops in order, parted by blanks. */
static void names_are(const struct model *m, const char *want) {
    char got[1024] = "";
    for (int i = 0; m && i < m->n_ops; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", i ? " " : "",
                 m->ops[i].name);
    ok(!strcmp(got, want), "ops: %s", got);
}

static void test_two_repeats(void) {
    struct model *m = reads(
        MODEL(SIZES, WTE REPEAT("enc", "2", "", GELU("act", "x", "x")) "," REPEAT(
                         "none", "'seq-4'", "",
                         GELU("act", "x", "x")) "," REPEAT("dec", "'hidden/3'", "",
                                                           GELU("a", "x", "h") "," GELU(
                                                               "b", "h",
                                                               "x")) "," LOSS("loss", "x")),
        "two repeats, and one of no instance");
    names_are(m, "wte enc.0.act enc.1.act dec.0.a dec.0.b dec.1.a dec.1.b loss");
    const struct model_op *ops = m->ops;
    ok(ops[1].file_op == ops[2].file_op && ops[3].file_op == ops[5].file_op &&
           ops[4].file_op == ops[6].file_op && ops[3].file_op != ops[4].file_op &&
           ops[1].file_op != ops[3].file_op,
       "an op has the same place in all instances, and no other op has it");
    ok(m->n_blocks == 4 && m->n_repeats == 3 && ops[0].block == -1 && ops[2].block == 1 &&
           m->blocks[3].index == 1 && m->blocks[3].first_op == 5 &&
           m->blocks[3].end_op == 7 && m->blocks[3].repeat == 2 &&
           !strcmp(m->blocks[3].name, "dec.1"),
       "blocks know their ops, their number and their repeat");
    ok(ops[5].in[0] == ops[4].out[0] && ops[3].in[0] == ops[2].out[0],
       "a block reads what the one before it gave");
    model_destroy(m);
}

/* Instances differ in what they bind: a dim, how often an inner repeat goes, a number. */
static void test_nested_repeats(void) {
    struct model *m = reads(
        MODEL(
            SIZES,
            WTE REPEAT(
                "stage", "2",
                ", 'index': 's', 'bind': {'ffn': ['wide', 'vocab'],"
                " 'depth': [1, '1+s'], 'both': 'wide'}",
                REPEAT("layer", "'depth'", "",
                       LINEAR("up", "hidden", "ffn", "x", "h", ", 'fan': 's+1'") "," LINEAR(
                           "down", "ffn", "hidden", "h", "x",
                           "")) "," LINEAR("out", "hidden", "both", "x", "h",
                                           "") "," LINEAR("in", "both", "hidden", "h", "x",
                                                          "")) "," LOSS("loss", "x")),
        "nested repeats");
    names_are(m, "wte stage.0.layer.0.up stage.0.layer.0.down stage.0.out stage.0.in "
                 "stage.1.layer.0.up stage.1.layer.0.down stage.1.layer.1.up "
                 "stage.1.layer.1.down stage.1.out stage.1.in loss");
    const struct model_op *up = &m->ops[1], *later = &m->ops[7];
    const struct shape *a = &m->params[up->param[0]].shape;
    const struct shape *b = &m->params[later->param[0]].shape;
    ok(a->dim[1] == model_dim_find(m, "wide") && b->dim[1] == model_dim_find(m, "vocab"),
       "a bound name is the dim that its instance names");
    ok(model_dim_find(m, "ffn") < 0 && model_dim_find(m, "both") < 0,
       "the bound name itself is no dim");
    ok(m->params[later->param[0]].std < m->params[up->param[0]].std,
       "\"index\" is a number in expressions");
    ok(up->file_op == later->file_op && m->ops[3].file_op == m->ops[9].file_op,
       "an op of the file has one place, in whichever instance it stands");
    const struct model_block *inner = &m->blocks[later->block];
    ok(m->n_repeats == 2 && m->n_blocks == 5 && inner->parent >= 0 &&
           !strcmp(m->blocks[inner->parent].name, "stage.1") && inner->repeat == 1 &&
           m->blocks[inner->parent].first_op == 5 && m->blocks[inner->parent].end_op == 11,
       "an inner block knows the one around it, which holds its ops too");
    model_destroy(m);
}

static void test_repeats_refused(void) {
    refuses(MODEL(SIZES, WTE REPEAT("b", "2", ", 'bind': {'f': [1]}", GELU("a", "x", "x"))),
            "ops[1] (b): bind.f:...2...1");
    refuses(MODEL(SIZES, WTE REPEAT("b", "2", ", 'bind': 3", GELU("a", "x", "x"))),
            "ops[1] (b): bind:...whole");
    refuses(MODEL(SIZES, WTE REPEAT("b", "'seq-5'", "", GELU("a", "x", "x"))),
            "ops[1] (b): repeat:...0...1048576...-1");
    refuses(
        MODEL(SIZES, WTE REPEAT("b", "2", "", GELU("a", "x", "x") "," GELU("c", "y", "x"))),
        "ops[1] (b).ops[1] (c): in[0]:...\"y\" before");
    refuses(MODEL(SIZES, WTE REPEAT("b", "2", ", 'index': 'i', 'bind': {'f': 'w*2'}",
                                    LINEAR("a", "hidden", "f", "x", "x", ""))),
            "ops[1] (b).ops[0] (a): dims[2]:...\"w*2\"...defined");
    refuses(MODEL(SIZES, WTE REPEAT("b", "2", ", 'bind': {'f': [6, 12]}",
                                    LINEAR("a", "hidden", "f", "x", "x", ""))),
            "ops[1] (b).ops[0] (a): dims[2]: \"f\"");
    refuses(
        MODEL(SIZES ", 'w': '6+i'", WTE REPEAT("b", "2", ", 'index': 'i'",
                                               LINEAR("a", "hidden", "w", "x", "x", ""))),
        "ops[1] (b).ops[0] (a): dims[2]:...\"w\":...\"i\"...defined");
    char text[4096] = "", deep[8192];
    for (int i = 0; i < 9; i++)
        sprintf(text + strlen(text), "{'name': 'b', 'repeat': 1, 'ops': [");
    strcat(text, GELU("a", "x", "x"));
    for (int i = 0; i < 9; i++)
        strcat(text, "]}");
    snprintf(deep, sizeof deep, MODEL(SIZES, WTE "%s"), text);
    struct err err = {0};
    ok(!model_of(deep, NULL, &err) && strstr(err.msg, "blocks are nested more than 8 deep"),
       "refuses: %s", err.msg);
}

/* ---- dims and sizes ----------------------------------------------------------------------- */

/* `dims` names dims whose sizes are those of others: a square weight, a second sequence. */
static void test_dims(void) {
    struct model *m = reads(
        "{'format': 'weft-model/1', 'name': 'm', 'sizes': {" SIZES "},"
        " 'dims': {'hidden_out': 'hidden', 'half': 'ceil(hidden+1, 2)'},"
        " 'inputs': {'ids': {'dims': ['batch', 'seq'], 'source': 'token'},"
        " 'next': {'dims': ['batch', 'seq'], 'source': 'next-token'}}, 'ops': [" WTE LINEAR(
            "square", "hidden", "hidden_out", "x", "y",
            "") "," LINEAR("narrow", "hidden_out", "half", "y", "y", "") "," LOSS("loss",
                                                                                  "y") "]}",
        "dims beside sizes");
    int hidden = model_dim_find(m, "hidden"), out = model_dim_find(m, "hidden_out");
    ok(hidden != out && m->dims[hidden].size == 6 && m->dims[out].size == 6 &&
           m->dims[model_dim_find(m, "half")].size == 4,
       "two dims of one size");
    const struct op_space *s = &m->ops[1].space;
    ok(s->role[op_space_find(s, hidden)] == ROLE_contracted &&
           s->role[op_space_find(s, out)] == ROLE_parallel,
       "a square weight has two dims, one of them summed over");
    ok(model_dim_find(m, "wide") < 0 && m->dims[m->batch].size == 0 &&
           model_dim_size(m, m->batch, 5) == 5,
       "a size that no tensor has is no dim; batch is bound later");
    model_destroy(m);
}

/* No limit is near: 60 dims in one model. */
static void test_many_dims(void) {
    char *text;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    fputs("{'format': 'weft-model/1', 'name': 'm', 'sizes': {'seq': 4, 'd0': 6", f);
    for (int i = 1; i < 60; i++)
        fprintf(f, ", 'd%d': %d", i, 6 + i);
    fputs("}, 'inputs': {'ids': {'dims': ['batch', 'seq'], 'source': 'token'},"
          " 'next': {'dims': ['batch', 'seq'], 'source': 'next-token'}}, 'ops': ["
          "{'name': 'op0', 'kind': 'embedding', 'in': ['ids'], 'out': 'x',"
          " 'dims': ['batch', 'seq', 'd0'], 'weight': {'dims': ['d59', 'd0']}}",
          f);
    for (int i = 1; i < 60; i++)
        fprintf(f,
                ", {'name': 'op%d', 'kind': 'einsum', 'in': ['x'], 'out': 'x',"
                " 'dims': ['batch', 'seq', 'd%d'], 'weight': {'dims': ['d%d', 'd%d']}}",
                i, i, i - 1, i);
    fputs(", " LOSS("loss", "x") "]}", f);
    fclose(f);
    struct model *m = reads(text, "60 sizes in a chain");
    int64_t params = 65 * 6;
    for (int i = 1; i < 60; i++)
        params += (5 + i) * (6 + i);
    for (int i = 0; i < m->n_params; i++) {
        struct extents x = model_extents(m, &m->params[i].shape, 1);
        params -= extents_count(&x);
    }
    ok(m->n_dims == 62 && m->n_params == 60 && params == 0, "62 dims, 60 parameters");
    free(text);
    model_destroy(m);
}

/* A chain of sizes is no cycle, but has an end. */
static void test_long_chain(int n, bool good) {
    char *text;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    fprintf(f, "{'format': 'weft-model/1', 'name': 'm', 'sizes': {'seq': 4, 'vocab': 8");
    for (int i = 1; i < n; i++)
        fprintf(f, ", 's%d': 's%d'", i, i + 1);
    fprintf(
        f,
        ", 's%d': 6, 'hidden': 's1'}, 'inputs': {'ids': {'dims': ['batch', 'seq'],"
        " 'source': 'token'}, 'next': {'dims': ['batch', 'seq'], 'source': 'next-token'}},"
        " 'ops': [" WTE LOSS("loss", "x") "]}",
        n);
    fclose(f);
    struct err err = {0};
    struct model *m = model_of(text, NULL, &err);
    ok(good ? m != NULL
            : strstr(err.msg, "more than 32 sizes depend on each other") != NULL,
       "a chain of %d sizes: %s", n, m ? "read" : err.msg + strlen(err.msg) - 60);
    free(text);
    model_destroy(m);
}

/* Sizes that are named after their parameters have as many: those of Aceso's table (Liu et al. 2024),
 * whose weights take 1888 to 48192 MiB. */
static int64_t trained(const struct model *m) {
    int64_t n = 0;
    for (int i = 0; i < m->n_params; i++) {
        struct extents x = model_extents(m, &m->params[i].shape, 1);
        n += m->params[i].running ? 0 : extents_count(&x);
    }
    return n;
}

static void test_published_sizes(void) {
    static const struct {
        const char *model;
        double name;
        int64_t params;
    } sizes[] = {
        {"wide-resnet:250M", 250e6, 254123104}, {"wide-resnet:500M", 500e6, 495046176},
        {"wide-resnet:1B", 1e9, 1005653184},    {"wide-resnet:2B", 2e9, 1965011008},
        {"wide-resnet:4B", 4e9, 4000937344},    {"wide-resnet:6.8B", 6.8e9, 6727679424},
        {"wide-resnet:13B", 13e9, 12633386944}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct err err = {0};
        struct model *m = model_load(sizes[i].model, NULL, &err);
        int64_t n = m ? trained(m) : 0;
        ok(n == sizes[i].params && fabs((double)n / sizes[i].name - 1) < 0.03,
           "%s has %lld parameters %s", sizes[i].model, (long long)n, err.msg);
        model_destroy(m);
    }
}

static void test_sizes_refused(void) {
    refuses(
        MODEL("'seq': 4, 'hidden': 'vocab*2', 'vocab': 'hidden/2'", WTE LOSS("loss", "x")),
        "ops[0] (wte): dims[2]:...\"hidden\":...\"vocab\":...\"hidden\"...itself");
    refuses(MODEL("'seq': 0, 'hidden': 6, 'vocab': 8", WTE LOSS("loss", "x")),
            "inputs.ids.dims[1]:...\"seq\": 0...1..2^40");
    refuses(MODEL("'seq': 4, 'hidden': 6.5, 'vocab': 8", WTE LOSS("loss", "x")),
            "ops[0] (wte): dims[2]:...\"hidden\":...whole");
    refuses(
        MODEL("'seq': 1099511627776, 'hidden': 1048576, 'vocab': 8", WTE LOSS("loss", "x")),
        "ops[0] (wte): dims:...1.15e+18 elements...large");
}

/* What --set and "set" say. */
static void test_settings(void) {
    static const char text[] = MODEL(SIZES, WTE LOSS("loss", "x"));
    struct err err = {0};
    struct model *m = model_of(text, "vocab=9, hidden=12", &err);
    ok(m && !strcmp(m->set, "hidden=12,vocab=9"), "settings are kept in one order%s",
       err.msg);
    model_destroy(m);
    m = model_of(text, "vocab=9,hidden=12,vocab=9", &err);
    ok(!m && !strcmp(err.msg, "set: \"vocab\" is given twice"), "refuses: %s", err.msg);
    model_destroy(m);
    ok(!model_load("none:b.json", NULL, &err) &&
           !strcmp(err.msg, "none:b.json: No such file or directory"),
       "what ends in .json is a file: %s", err.msg);
}

/* ---- the graph ------------------------------------------------------------------------------ */

static void test_names(void) {
    refuses(
        MODEL(SIZES, WTE GELU("a", "x", "x") "," GELU("a", "x", "x") "," LOSS("loss", "x")),
        "ops[2] (a): name:...called \"a\"");
    refuses(
        MODEL(SIZES, WTE REPEAT("b", "2", "", GELU("a", "x", "x") "," GELU("a", "x", "x"))),
        "ops[1] (b).ops[1] (a): name:...called \"b.0.a\"");
    refuses(MODEL(SIZES, WTE REPEAT("b", "1", "", GELU("a", "x", "x")) "," REPEAT(
                             "b", "1", "", GELU("c", "x", "x"))),
            "ops[2] (b): name:...called \"b\"");
    refuses(
        MODEL(SIZES, WTE REPEAT("b", "1", "", GELU("a", "x", "x")) "," GELU("b", "x", "x")),
        "ops[2] (b): name:...called \"b\"");
    for (int i = 0; i < 4; i++) {
        static const char *const bad[] = {"", "a.b", "3x", "a,b"};
        char text[2048], want[256];
        snprintf(text, sizeof text, MODEL(SIZES, WTE GELU("%s", "x", "x")), bad[i]);
        snprintf(
            want, sizeof want,
            "ops[1] (%s): name: \"%s\" is empty, begins with a digit or holds one of . * , "
            "or blanks",
            bad[i], bad[i]);
        refuses(text, want);
    }
}

static void test_losses(void) {
    struct model *m =
        reads(MODEL(SIZES,
                    WTE LOSS("early", "x") "," GELU("act", "x", "y") "," LOSS("late", "y")),
              "two losses, one of them inside the graph");
    ok(op_is(&m->ops[1], KIND_LOSS) && !op_is(&m->ops[2], KIND_LOSS) &&
           op_is(&m->ops[3], KIND_LOSS),
       "both are terms of the loss");
    model_destroy(m);
    m = reads(MODEL(SIZES, WTE LOSS("early", "x") "," LOSS("same", "x")),
              "a tensor in two losses");
    model_destroy(m);
    refuses(MODEL(SIZES, WTE GELU("act", "x", "x")), "ops:...result...\"act\"...used");
    refuses(MODEL(SIZES, WTE GELU("dead", "x", "y") "," LOSS("loss", "x")),
            "ops:...result...\"dead\"...used");
    refuses(
        MODEL(
            SIZES,
            WTE LOSS(
                "loss",
                "x") ","
                     "{'name': 'act', 'kind': 'gelu', 'in': ['loss'], 'out': 'y', 'dims': []},"
                     "{'name': 'act2', 'kind': 'gelu', 'in': ['y'], 'out': 'y', 'dims': []}"),
        "ops: \"loss\"...loss...read");
}

static void test_ties(void) {
    struct model *m = reads(
        MODEL(
            SIZES ", 'same': 0",
            WTE REPEAT(
                "b", "2", "",
                LINEAR(
                    "up", "hidden", "vocab", "x", "h",
                    "") ","
                        "{'name': 'down', 'kind': 'einsum', 'in': ['h'], 'out': 'x',"
                        " 'dims': ['batch', 'seq', 'hidden'],"
                        " 'weight': {'dims': ['vocab', 'hidden'], 'tie': 'wte.weight'}}") "," LINEAR("head",
                                                                                                     "hidden",
                                                                                                     "vocab",
                                                                                                     "x",
                                                                                                     "z",
                                                                                                     ", 'tie': 'b.0.up.weight', 'when': 'same'") "," LOSS("loss",
                                                                                                                                                          "z")),
        "ties");
    int wte = m->ops[op_find(m, "wte")].param[0];
    int first = m->ops[op_find(m, "b.0.down")].param[0];
    int second = m->ops[op_find(m, "b.1.down")].param[0];
    int head = m->ops[op_find(m, "head")].param[0];
    ok(wte == first && wte == second && m->params[wte].first_op == 0,
       "tied weights are one parameter, of its first op");
    ok(head != m->ops[op_find(m, "b.0.up")].param[0] && m->n_params == 4,
       "a tie whose \"when\" is 0 does not hold");
    model_destroy(m);
}

/* A dropout of rate 0 is no op, and its result keeps both names. */
static void test_dropout(void) {
    static const char text[] =
        "{'format': 'weft-model/1', 'name': 'm', 'sizes': {" SIZES "}, 'rates': {'p': 0},"
        " 'inputs': {'ids': {'dims': ['batch', 'seq'], 'source': 'token'},"
        " 'next': {'dims': ['batch', 'seq'], 'source': 'next-token'}}, 'ops': [" WTE
        "{'name': 'drop', 'kind': 'dropout', 'in': ['x'], 'out': 'y', 'rate': 'p',"
        " 'dims': ['batch', 'seq', 'hidden']}," LOSS("loss", "y") "]}";
    struct model *m = reads(text, "a dropout that renames its operand, rate 0");
    names_are(m, "wte loss");
    model_destroy(m);
    struct err err = {0};
    m = model_of(text, "p=0.5", &err);
    names_are(m, "wte drop loss");
    model_destroy(m);
}

/* ---- the hash ------------------------------------------------------------------------------- */

/* Replaces every `from`; free() it. */
static char *edited(const char *text, const char *from, const char *to) {
    char *out;
    size_t size;
    FILE *f = open_memstream(&out, &size);
    for (const char *at; (at = strstr(text, from)); text = at + strlen(from))
        fprintf(f, "%.*s%s", (int)(at - text), text, to);
    fputs(text, f);
    fclose(f);
    return out;
}

static uint64_t hash_of(const char *text) {
    struct err err = {0};
    struct model *m = model_of(text, NULL, &err);
    uint64_t h = m ? m->hash : 0;
    if (!m)
        ok(0, "a text that is read: %s", err.msg);
    model_destroy(m);
    return h;
}

/* Everything that decides what is computed is in the hash; nothing else is. */
/* A sum that has nothing to add to in the first block is no op there. */
static void test_missing_operands(void) {
    struct model *m = reads(
        MODEL(
            SIZES,
            WTE REPEAT(
                "layer", "3", "",
                GELU(
                    "act", "x",
                    "h") ","
                         "{'name': 'sum', 'kind': 'add', 'in': ['h', 'all?'],"
                         " 'out': 'all', 'dims': ['batch', 'seq', 'hidden']}") "," LINEAR("head",
                                                                                          "hidden",
                                                                                          "vocab",
                                                                                          "all",
                                                                                          "y",
                                                                                          "") "," LOSS("loss",
                                                                                                       "y")),
        "an operand that the first block lacks");
    names_are(m,
              "wte layer.0.act layer.1.act layer.1.sum layer.2.act layer.2.sum head loss");
    bool chained = m && m->ops[3].in[0] == m->ops[2].out[0] &&
                   m->ops[3].in[1] == m->ops[1].out[0] &&
                   m->ops[6].in[0] == m->ops[5].out[0];
    ok(chained, "each sum adds to the one before");
    model_destroy(m);
    refuses(MODEL(SIZES,
                  WTE "{'name': 'sum', 'kind': 'add', 'in': ['x', 'none'], 'out': 'y',"
                      " 'dims': ['batch', 'seq', 'hidden']}"),
            "ops[1] (sum): in[1]:...\"none\" before");
}

static void test_hash(void) {
    static const char text[] =
        "{'format': 'weft-model/1', 'name': 'm', 'sizes': {'seq': 4, 'hidden': 6, 'same': 6,"
        " 'vocab': 8, 'three': 3, 'heads': 2, 'kv': 3}, 'inputs': {'ids': {'dims': ['batch', 'seq'],"
        " 'source': 'token'}, 'next': {'dims': ['batch', 'seq'], 'source': 'next-token'}}, 'ops': [" WTE
        "{'name': 'ln', 'kind': 'layernorm', 'in': ['x'], 'out': 'h', 'eps': 1e-5,"
        " 'dims': ['batch', 'seq', 'hidden'], 'weight': {'dims': ['hidden']}, 'bias': {'dims': ['hidden']}},"
        "{'name': 'qkv', 'kind': 'einsum', 'in': ['h'], 'out': 'q',"
        " 'dims': ['batch', 'seq', 'three', 'heads', 'kv'],"
        " 'weight': {'dims': ['hidden', 'three', 'heads', 'kv'], 'std': 0.02}},"
        "{'name': 'attn', 'kind': 'attention', 'in': ['q'], 'out': 'a', 'causal': true,"
        " 'dims': ['batch', 'seq', 'heads', 'kv']},"
        "{'name': 'proj', 'kind': 'einsum', 'in': ['a'], 'out': 'h', 'dims': ['batch', 'seq', 'hidden'],"
        " 'weight': {'dims': ['heads', 'kv', 'hidden']}, 'bias': {'dims': ['hidden']}},"
        "{'name': 'drop', 'kind': 'dropout', 'in': ['h'], 'out': 'h', 'rate': 0.5,"
        " 'dims': ['batch', 'seq', 'hidden']},"
        "{'name': 'add', 'kind': 'add', 'in': ['x', 'h'], 'out': 'x', 'dims': ['batch', 'seq', 'hidden']},"
        "{'name': 'head', 'kind': 'einsum', 'in': ['x'], 'out': 'z', 'dims': ['batch', 'seq', 'vocab'],"
        " 'weight': {'dims': ['vocab', 'hidden'], 'tie': 'wte.weight'}}," LOSS("loss",
                                                                               "z") "]}";
    static const struct {
        const char *what, *from, *to;
        bool same;
    } edits[] = {
        {"eps", "1e-5", "1e-6", false},
        {"causal", "'causal': true", "'causal': false", false},
        {"a rate", "'rate': 0.5", "'rate': 0.25", false},
        {"a standard deviation", "'std': 0.02", "'std': 0.03", false},
        {"a size", "'vocab': 8", "'vocab': 9", false},
        {"sizes that multiply to the same", "'heads': 2, 'kv': 3", "'heads': 3, 'kv': 2",
         false},
        {"a tie", ", 'tie': 'wte.weight'", "", false},
        {"a transposed weight", "['vocab', 'hidden'], 'tie': 'wte.weight'",
         "['hidden', 'vocab']", false},
        {"a bias less", ", 'bias': {'dims': ['hidden']}},{'name': 'drop'",
         "},{'name': 'drop'", false},
        {"an op's name", "'name': 'proj'", "'name': 'project'", false},
        {"which operand comes first", "'in': ['x', 'h']", "'in': ['h', 'x']", false},
        {"a kind", "'kind': 'dropout', 'in': ['h'], 'out': 'h', 'rate': 0.5",
         "'kind': 'gelu', 'in': ['h'], 'out': 'h'", false},
        {"a tensor's name", "'q'", "'query'", true},
        {"a sentence", "'name': 'm'", "'name': 'm', 'about': 'for people'", true},
        {"an unused size", "'seq': 4", "'seq': 4, 'idle': 77", true},
        {"an expression of the same value", "'kv': 3", "'kv': 'hidden/heads'", true},
    };
    uint64_t hash = hash_of(text);
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        char *other = edited(text, edits[i].from, edits[i].to);
        bool changed = hash_of(other) != hash;
        ok(changed == !edits[i].same, "%s: %s", edits[i].what,
           edits[i].same ? "the same model" : "another model");
        free(other);
    }
}

int main(void) {
    test_two_repeats();
    test_nested_repeats();
    test_repeats_refused();
    test_dims();
    test_many_dims();
    test_long_chain(31, true);
    test_long_chain(40, false);
    test_published_sizes();
    test_sizes_refused();
    test_settings();
    test_names();
    test_losses();
    test_ties();
    test_dropout();
    test_missing_operands();
    test_hash();
    return done_testing();
}
