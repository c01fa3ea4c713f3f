/* Programs of torch.export as models: GPT-2 and Llama of transformers are the shipped families, and what
 * has no op is refused by target, count and module. tests/import holds what PyTorch wrote
 * (scripts/compare-pt2.py). */
#include "import-model.h"
#include "message.h"

#include <math.h>

/* As many parameters and flops as a shipped model, all named, and so many ops of a kind. */
static void counts_as(const char *path, const char *family, const char *set,
                      enum kind_id kind, int many) {
    struct err err = {0};
    struct model *m = import_model(path, &err),
                 *want = m ? model_load(family, set, &err) : NULL;
    if (!ok(m && want, "%s is a model: %s", path, err.msg))
        return;
    int kinds[KIND_COUNT];
    count_kinds(m, kinds);
    struct weights *w = weights_of(m, &err);
    ok(w && count(m) == count(want) &&
           model_forward_flops(m, 3) == model_forward_flops(want, 3),
       "%lld parameters, each with its place in files, and %.0f flops: %s",
       (long long)count(m), model_forward_flops(m, 3), err.msg);
    ok(kinds[kind] == many, "%d ops of %s", kinds[kind], kind_of(kind)->name);
    weights_destroy(w);
    model_destroy(m);
    model_destroy(want);
}

/* What is neither a token nor in a shipped model: places and channels, mixed in turns. */
static void mixed(void) {
    struct err err = {0};
    struct model *m = import_model("tests/import/mixer.pt2", &err);
    if (!ok(m != NULL, "a mixer is a model: %s", err.msg))
        return;
    int kinds[KIND_COUNT];
    count_kinds(m, kinds);
    ok(kinds[OP_transpose] == 4 && kinds[OP_gelu] == 4 && kinds[OP_avgpool] == 1,
       "its places and channels change places %d times", kinds[OP_transpose]);
    model_destroy(m);
}

static void attributes(void) {
    struct err err = {0};
    struct model *m = import_model("tests/import/llama.pt2", &err);
    int turn = m ? op_find(m, "layer.1.rotary") : -1,
        attn = m ? op_find(m, "layer.1.attn") : -1;
    if (!ok(turn >= 0 && attn >= 0, "ops are called after kinds and modules: %s", err.msg))
        return;
    ok(m->ops[turn].attr[ATTR_base] == 500000, "the base of rotary positions is %.0f",
       m->ops[turn].attr[ATTR_base]);
    ok(m->ops[attn].attr[ATTR_causal] == 1 && m->ops[attn].attr[ATTR_scale] == 0,
       "attention is causal, its scale the usual one");
    int norm = op_find(m, "layer.0.input_layernorm");
    ok(norm >= 0 && fabs(m->ops[norm].attr[ATTR_eps] - 1e-6) < 1e-12, "eps is %g",
       norm >= 0 ? m->ops[norm].attr[ATTR_eps] : 0);
    ok(model_dim_find(m, "kv_heads") >= 0 && model_dim_find(m, "ffn") >= 0 &&
           model_dim_size(m, model_dim_find(m, "kv_heads"), 1) == 2,
       "dims have names");
    model_destroy(m);
}

/* What the layers have in common is one parameter. */
static void common(void) {
    struct err err = {0};
    struct model *m = import_model("tests/import/relative.pt2", &err);
    int a = m ? op_find(m, "layer.0.attn") : -1, b = m ? op_find(m, "layer.1.attn") : -1;
    if (!ok(a >= 0 && b >= 0, "attention with relative positions: %s", err.msg))
        return;
    ok(m->ops[a].param[0] >= 0 && m->ops[a].param[0] == m->ops[b].param[0] &&
           m->params[m->ops[a].param[0]].shape.rank == 2,
       "its layers have them in common");
    /* 12 in the module; from 9 on the buckets are the same: the fourth begins at 2 sqrt(distance / 2). */
    ok(m->ops[a].attr[ATTR_distance] == 9 && m->ops[a].attr[ATTR_scale] == 1 &&
           m->ops[a].attr[ATTR_causal] == 0,
       "from %.0f positions on all are alike", m->ops[a].attr[ATTR_distance]);
    struct weights *w = weights_of(m, &err);
    ok(w && count(m) == 120 * 32 * 2 + 2 * 4 * 32 * 32 + 8 * 2, "%lld parameters: %s",
       (long long)count(m), err.msg);
    weights_destroy(w);
    model_destroy(m);
}

/* Routing by a softmax, its largest and a sort of them is a mixture of experts: those of the shipped model, less
 * the loss that keeps experts busy, which no program gives. */
static void experts(void) {
    struct err err = {0};
    struct model *m, *want;
    if (!both("tests/import/mixtral.pt2", "mixtral",
              "layers=2,hidden=48,heads=4,kv_heads=2,ffn=80,seq=24,vocab=120,experts=4", &m,
              &want))
        return;
    int got[KIND_COUNT], kinds[KIND_COUNT];
    count_kinds(m, got);
    count_kinds(want, kinds);
    kinds[OP_add] -= kinds[OP_expert_load] - 1; /* the sum of the loads of all layers */
    kinds[OP_expert_load] = kinds[OP_balance] = 0;
    ok(!memcmp(got, kinds, sizeof got) && count(m) == count(want),
       "its ops are of the kinds of mixtral, with %lld parameters", (long long)count(m));
    double flops[2] = {0};
    for (int k = 0; k < 2; k++) {
        const struct model *x = k ? want : m;
        for (int i = 0; i < x->n_ops; i++)
            if (x->ops[i].kind != OP_expert_load && x->ops[i].kind != OP_balance)
                flops[k] += model_op_flops(x, &x->ops[i], 3);
    }
    ok(flops[0] == flops[1], "%.0f flops", flops[0]);
    bool normalized = false;
    for (int i = 0; i < m->n_ops; i++)
        if (m->ops[i].kind == OP_route)
            normalized = m->ops[i].attr[ATTR_normalize] == 1;
    ok(normalized, "the shares of a token are over their sum");
    struct weights *w = weights_of(m, &err);
    ok(w && w->n_parts >= m->n_params, "each parameter has its place in files: %s",
       err.msg);
    weights_destroy(w);
    model_destroy(m);
    model_destroy(want);
}

/* The first two ops of this kind in a model of so many parameters, of which so many are trained, and each has its
 * place in files or is in none. */
static bool two_of(const char *path, enum kind_id kind, int64_t params, int64_t trained,
                   struct model **m, const struct model_op *found[2]) {
    struct err err = {0};
    int n = 0;
    *m = import_model(path, &err);
    struct weights *w = *m ? weights_of(*m, &err) : NULL;
    for (int i = 0; *m && i < (*m)->n_ops && n < 2; i++)
        if ((*m)->ops[i].kind == kind)
            found[n++] = &(*m)->ops[i];
    int64_t train = 0;
    for (int p = 0; *m && p < (*m)->n_params; p++) {
        struct extents x = model_extents(*m, &(*m)->params[p].shape, 1);
        train += (*m)->params[p].frozen ? 0 : extents_count(&x);
    }
    bool good = ok(w && n == 2 && count(*m) == params && train == trained,
                   "%s: %lld parameters, %lld of them trained: %s", path,
                   *m ? (long long)count(*m) : 0, (long long)train, err.msg);
    weights_destroy(w);
    return good;
}

/* Positions turn a part of a head, pairs by angles of their own, backwards, or neighbours, however that is written:
 * what turns is known by the numbers that elements are multiplied by. */
static void turns(void) {
    struct model *m;
    const struct model_op *op[2];
    if (two_of("tests/import/neox-part.pt2", OP_rotary, 46432, 46432, &m, op))
        ok(op[0]->attr[ATTR_share] == 0.25 && op[1]->attr[ATTR_share] == 0.25 &&
               op[0]->attr[ATTR_base] == 10000 && op[0]->attr[ATTR_short] == 0,
           "a quarter of a head turns");
    model_destroy(m);
    if (two_of("tests/import/llama-yarn.pt2", OP_rotary, 48624, 48624, &m, op))
        /* 0.1 log(factor) + 1, of a factor of 8; of 6 pairs the first is as before, the last 8 times slower. */
        ok(fabs(op[0]->attr[ATTR_gain] - (0.1 * log(8) + 1)) < 1e-6 &&
               op[0]->attr[ATTR_short] == 6 && fabs(op[0]->slower[0] - 1) < 1e-5 &&
               fabs(op[0]->slower[5] - 8) < 1e-4,
           "its pairs turn 1 to %g times slower, and it is multiplied by %g",
           op[0]->slower[5], op[0]->attr[ATTR_gain]);
    model_destroy(m);
    if (two_of("tests/import/complex.pt2", OP_rotary, 25440, 25440, &m, op))
        ok(op[0]->attr[ATTR_base] == 10000 && op[0]->attr[ATTR_share] == 1 &&
               op[0]->attr[ATTR_short] == 0,
           "neighbours turn as complex numbers");
    model_destroy(m);
    if (two_of("tests/import/bare.pt2", OP_rotary, 67104, 66816, &m, op))
        ok(op[0]->attr[ATTR_short] == 6 && op[0]->slower[0] == -1 && op[0]->slower[5] == -1,
           "halves turn backwards");
    model_destroy(m);
}

/* A layer norm may lack its bias; a gate is a product; any factor is a scale. */
static void lacks(void) {
    struct model *m;
    const struct model_op *op[2];
    int kinds[KIND_COUNT];
    if (!two_of("tests/import/thin.pt2", OP_layernorm, 11808, 11808, &m, op))
        return;
    ok(op[0]->param[0] >= 0 && op[0]->param[1] < 0 && op[1]->param[1] < 0,
       "norms have no biases where the program has none");
    count_kinds(m, kinds);
    ok(kinds[OP_gelu_erf] == 2 && kinds[OP_einsum] == 9 && kinds[OP_scale] == 1,
       "%d products, two of them with a gate", kinds[OP_einsum]);
    model_destroy(m);
}

/* What an expert shared by all tokens gives is weighed by one number of each token. */
static void weighed(void) {
    struct model *m;
    const struct model_op *op[2];
    int kinds[KIND_COUNT];
    if (!two_of("tests/import/qwen2-moe.pt2", OP_sigmoid, 83856, 83856, &m, op))
        return;
    count_kinds(m, kinds);
    const struct shape *one = &m->tensors[op[0]->out[0]].shape;
    ok(one->rank == 2 && kinds[OP_sigmoid] == 2 && kinds[OP_swiglu] == 4,
       "a sigmoid of %d dims, batch and seq", one->rank);
    model_destroy(m);
}

static void refused(void) {
    struct err err = {0};
    ok(!import_model("tests/import/unet.pt2", &err) && err.status == EXIT_INPUT &&
           message_holds(err.msg,
                         "aten.max_pool2d.default (1, ...aten.conv_transpose2d.input "
                         "(1, in up...aten.cat.default (1,"),
       "refused: %s", err.msg);
}

/* ---- programs as text ------------------------------------------------------------------------- */

#define META(name, type, ...) "'" name "': {'dtype': " #type ", 'sizes': [" __VA_ARGS__ "]}"
#define INT(n)                "{'as_int': " #n "}"
#define TENSOR(name, as)      "{'name': '" name "', 'arg': {'as_tensor': {'name': '" as "'}}}"
#define NODE(target, in, out)                                                              \
    "{'target': 'torch.ops.aten." target "', 'inputs': [" in                               \
    "], 'outputs': [{'as_tensor': {'name': '" out                                          \
    "'}}], 'metadata': {'nn_module_stack': 'L__self__a,a,A;L__self__a_b,a.b,B'}}"
#define PROGRAM(major, values, nodes, result)                                              \
    "{'schema_version': {'major': " #major ", 'minor': 1}, 'graph_module': {'graph': {"    \
    "'tensor_values': {" values "}, 'nodes': [" nodes                                      \
    "], 'sym_int_values': {}}, 'signature': {'input_specs': ["                             \
    "{'user_input': {'arg': {'as_tensor': {'name': 'x'}}}}, "                              \
    "{'parameter': {'arg': {'name': 'w'}, 'parameter_name': 'a.b.weight'}}], "             \
    "'output_specs': [{'user_output': {'arg': {'as_tensor': {'name': '" result "'}}}}]}}}"
#define X  META("x", 7, INT(2) ", " INT(6))
#define W  META("w", 7, INT(4) ", " INT(6)) ", "
#define FC NODE("linear.default", TENSOR("input", "x") ", " TENSOR("weight", "w"), "y")

static json_t *of_text(const char *text, struct err *err) {
    char *s = strdup(text);
    for (char *q = s; (q = strchr(q, '\''));)
        *q = '"';
    json_t *notes = NULL,
           *doc = import_exported_bytes(s, (int64_t)strlen(s), "text", &notes, err);
    json_decref(notes);
    free(s);
    return doc;
}

static void smallest(void) {
    struct err err = {0};
    json_t *doc =
        of_text(PROGRAM(8, W X ", " META("y", 7, INT(2) ", " INT(4)), FC, "y"), &err);
    struct model *m = doc ? model_from_json(doc, NULL, NULL, &err) : NULL;
    ok(m && m->n_ops == 2 && count(m) == 24 && op_find(m, "b") == 0,
       "one product and its loss: %s", err.msg);
    model_destroy(m);
    json_decref(doc);
}

/* Nemotron's norm: its weight is counted from 1, and it has no bias here. */
static void offset(void) {
    struct err err = {0};
    json_t *doc = of_text(
        PROGRAM(
            8,
            META("w", 7, INT(6)) ", " META("v", 7, INT(6)) ", " X ", " META(
                "y", 7, INT(2) ", " INT(6)),
            NODE(
                "add.Tensor",
                TENSOR("self", "w") ", {'name': 'other', 'arg': {'as_int': 1}}",
                "v") ", " NODE("layer_norm.default",
                               TENSOR("input", "x") ", " TENSOR(
                                   "weight",
                                   "v") ", {'name': 'normalized_shape', 'arg': {'as_ints': [6]}}",
                               "y"),
            "y"),
        &err);
    struct model *m = doc ? model_from_json(doc, NULL, NULL, &err) : NULL;
    ok(m && m->ops[0].kind == OP_layernorm && count(m) == 6 &&
           m->ops[0].attr[ATTR_offset] == 1,
       "a layer norm by 1 and its weight: %s", err.msg);
    model_destroy(m);
    json_decref(doc);
}

static void bad_input(void) {
    static const struct {
        const char *text, *want;
    } cases[] = {
        {PROGRAM(7, W X ", " META("y", 7, INT(2) ", " INT(4)), FC, "y"),
         "schema_version.major: ...8...7"},
        {PROGRAM(
             8, W X ", " META("y", 7, INT(2) ", " INT(4)),
             NODE("linear.default", TENSOR("input", "y") ", " TENSOR("weight", "w"), "y"),
             "y"),
         "graph.nodes[0]...\"y\""},
        {PROGRAM(8, W X ", " META("y", 7, INT(2) ", " INT(4)), FC ", " FC, "y"),
         "graph.nodes[1]...y...two"},
        {PROGRAM(8,
                 W META("x", 7, "{'as_expr': {'expr_str': 's0', 'hint': null}}, " INT(6)),
                 FC, "y"),
         "tensor_values.x: size 0 is dynamic"},
        {PROGRAM(8, W META("x", 7, INT(1099511627776) ", " INT(1099511627776)), FC, "y"),
         "tensor_values.x: ...1099511627776"},
        {PROGRAM(8, W META("x", 7, INT(-2) ", " INT(6)), FC, "y"),
         "tensor_values.x: ...-2"},
        {PROGRAM(8, W X ", " META("y", 7, INT(2) ", " INT(5)), FC, "y"),
         "aten.linear.default (1, in a.b...sizes"},
        {PROGRAM(8,
                 W META("x", 7, INT(2) ", " INT(7)) ", " META("y", 7, INT(2) ", " INT(4)),
                 FC, "y"),
         "aten.linear.default (1, in a.b...weight"},
        {PROGRAM(8,
                 W META("x", 7, INT(1) ", " INT(6)) ", " META("y", 7, INT(1) ", " INT(4)),
                 FC, "y"),
         "x: ...2 samples...1"},
        {PROGRAM(8, W X ", " META("y", 7, INT(2) ", " INT(4)),
                 NODE("fft_fft.default", TENSOR("self", "x"), "y"), "y"),
         "aten.fft_fft.default (1, in a.b"},
        {PROGRAM(8, W X ", " META("y", 7, INT(2) ", " INT(4)), FC, "z"), "output_specs"},
        {"{'schema_version': 8}", "schema_version.major"},
        {"{'schema_version': {'major': 8}}", "input_specs"},
        {"[", "1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        json_t *doc = of_text(cases[i].text, &err);
        ok(!doc && err.status == EXIT_INPUT && message_holds(err.msg, cases[i].want),
           "refused: %s", err.msg);
        json_decref(doc);
    }
}

int main(void) {
    same_as("tests/import/gpt2.pt2", "gpt",
            "layers=2,hidden=48,heads=4,seq=24,vocab=120,tied=1");
    same_as("tests/import/llama.pt2", "llama",
            "layers=2,hidden=48,heads=4,kv_heads=2,ffn=80,seq=24,vocab=120,tied=0");
    /* Attention that is spelled out; 3 * hidden in the feed-forward part, an untied head. */
    same_as("tests/import/own-gpt.pt2", "gpt",
            "layers=2,hidden=48,heads=4,seq=24,vocab=120,tied=0,ffn=144");
    same_as("tests/import/gemma.pt2", "gemma:nano",
            "layers=2,hidden=48,heads=4,kv_heads=2,kv=16,ffn=80,seq=24,vocab=120");
    counts_as("tests/import/bert.pt2", "bert:nano",
              "layers=2,hidden=48,heads=4,ffn=80,positions=24,vocab=120", OP_rows, 1);
    counts_as("tests/import/vit.pt2", "vit:nano",
              "layers=2,hidden=48,heads=4,ffn=80,image=12,patch=4,classes=10", OP_prepend,
              1);
    /* Parts of several sizes of one product; a group of heads of queries beside its key and value. */
    same_as("tests/import/phi3-grouped.pt2", "phi3",
            "layers=2,hidden=48,heads=4,kv_heads=2,ffn=80,seq=24,vocab=120");
    same_as("tests/import/falcon-new.pt2", "falcon-new",
            "layers=2,hidden=48,heads=4,kv_heads=2,ffn=80,seq=24,vocab=120");
    /* Scores to which ALiBi and a mask are added. */
    same_as("tests/import/bloom.pt2", "bloom",
            "layers=2,hidden=48,heads=6,seq=24,vocab=120");
    /* Norms of all heads at once, which are seen as heads behind them. */
    same_as("tests/import/olmo2.pt2", "olmo2",
            "layers=2,hidden=48,heads=4,kv_heads=2,ffn=80,seq=24,vocab=120");
    mixed();
    experts();
    attributes();
    common();
    turns();
    lacks();
    weighed();
    refused();
    smallest();
    offset();
    bad_input();
    return done_testing();
}
