/* Models of ONNX: what PyTorch exported of a GPT-2 as its nodes are, and of a Llama with constants folded, are the
 * shipped families; what is damaged, dynamic, circular or absurd is refused where it is so. tests/import holds what
 * PyTorch wrote (scripts/compare-onnx.py). */
#include "import-damaged.h"
#include "import-model.h"

#include "checkpoint/safetensors.h"
#include "common/file.h"
#include "common/wire.h"
#include "message.h"

#include <unistd.h>

/* ---- models of a node ------------------------------------------------------------------------------- */

/* A value of sizes, of which one that is 0 is dynamic. */
static void put_value(struct wire_out *graph, int field, const char *name, int rank,
                      const int64_t *size) {
    struct wire_out shape = {0}, tensor = {0}, type = {0}, value = {0};
    for (int i = 0; i < rank; i++) {
        struct wire_out dim = {0};
        if (size[i])
            wire_put_uint(&dim, 1, (uint64_t)size[i]);
        else
            wire_put_text(&dim, 2, "batch");
        wire_put_bytes(&shape, 1, dim.p, (size_t)dim.n);
        arr_release(&dim);
    }
    wire_put_uint(&tensor, 1, 1);
    wire_put_bytes(&tensor, 2, shape.p, (size_t)shape.n);
    wire_put_bytes(&type, 1, tensor.p, (size_t)tensor.n);
    wire_put_text(&value, 1, name);
    wire_put_bytes(&value, 2, type.p, (size_t)type.n);
    wire_put_bytes(graph, field, value.p, (size_t)value.n);
    arr_release(&shape);
    arr_release(&tensor);
    arr_release(&type);
    arr_release(&value);
}

/* A tensor without numbers, or of so many in a file beside it. */
static void put_tensor(struct wire_out *graph, const char *name, int type, int rank,
                       const int64_t *size, const char *file) {
    struct wire_out t = {0}, pair = {0};
    wire_put_uints(&t, 1, size, rank);
    wire_put_uint(&t, 2, (uint64_t)type);
    wire_put_text(&t, 8, name);
    if (file) {
        wire_put_text(&pair, 1, "location");
        wire_put_text(&pair, 2, file);
        wire_put_bytes(&t, 13, pair.p, (size_t)pair.n);
    }
    wire_put_bytes(graph, 5, t.p, (size_t)t.n);
    arr_release(&t);
    arr_release(&pair);
}

static void put_node(struct wire_out *graph, const char *op, const char *a, const char *b,
                     const char *out) {
    struct wire_out n = {0};
    wire_put_text(&n, 1, a);
    if (b)
        wire_put_text(&n, 1, b);
    wire_put_text(&n, 2, out);
    wire_put_text(&n, 3, "it");
    wire_put_text(&n, 4, op);
    wire_put_bytes(graph, 1, n.p, (size_t)n.n);
    arr_release(&n);
}

/* A node of somebody's own ops. */
static void put_foreign(struct wire_out *graph, const char *in, const char *out) {
    struct wire_out n = {0};
    wire_put_text(&n, 1, in);
    wire_put_text(&n, 2, out);
    wire_put_text(&n, 3, "it");
    wire_put_text(&n, 4, "Gelu");
    wire_put_text(&n, 7, "com.other");
    wire_put_bytes(graph, 1, n.p, (size_t)n.n);
    arr_release(&n);
}

/* The model of a graph, which is taken over; `version` of its ops. */
static struct wire_out onnx_of(struct wire_out *graph, int version) {
    struct wire_out m = {0}, set = {0};
    wire_put_uint(&m, 1, 10);
    wire_put_uint(&set, 2, (uint64_t)version);
    wire_put_bytes(&m, 8, set.p, (size_t)set.n);
    wire_put_bytes(&m, 7, graph->p, (size_t)graph->n);
    arr_release(&set);
    arr_release(graph);
    return m;
}

static void refuses(struct wire_out m, const char *want) {
    struct err err = {0};
    json_t *notes = NULL, *doc = import_exported_bytes(m.p, m.n, "made", &notes, &err);
    ok(!doc && !notes && err.status == EXIT_INPUT && message_holds(err.msg, want),
       "refused: %s", err.msg);
    json_decref(doc);
    arr_release(&m);
}

/* x [2, 6] times w [6, 4], which is y. */
static struct wire_out product(const char *op, const int64_t *x, const int64_t *w,
                               const char *reads) {
    struct wire_out g = {0};
    put_value(&g, 11, "x", 2, x);
    put_tensor(&g, "fc.weight", 1, 2, w, NULL);
    put_node(&g, op, reads, "fc.weight", "y");
    put_value(&g, 12, "y", 2, (const int64_t[]){2, 4});
    return g;
}

static void smallest(void) {
    struct err err = {0};
    struct wire_out g =
        product("MatMul", (const int64_t[]){2, 6}, (const int64_t[]){6, 4}, "x");
    struct wire_out m = onnx_of(&g, 20);
    json_t *notes = NULL, *doc = import_exported_bytes(m.p, m.n, "made", &notes, &err);
    struct model *x = doc ? model_from_json(doc, NULL, NULL, &err) : NULL;
    ok(x && x->n_params == 1 && count(x) == 24, "one product: %s", err.msg);
    model_destroy(x);
    json_decref(doc);
    json_decref(notes);
    arr_release(&m);
}

/* A function of several numbers may be of one alone, or of three. */
static void many_operands(void) {
    const int64_t x[] = {2, 6}, w[] = {6, 4};
    struct err err = {0};
    struct wire_out g = {0};
    put_value(&g, 11, "x", 2, x);
    put_tensor(&g, "fc.weight", 1, 2, w, NULL);
    put_node(&g, "Max", "x", NULL, "m");
    put_node(&g, "MatMul", "m", "fc.weight", "y");
    put_value(&g, 12, "y", 2, (const int64_t[]){2, 4});
    struct wire_out m = onnx_of(&g, 20);
    json_t *notes = NULL, *doc = import_exported_bytes(m.p, m.n, "made", &notes, &err);
    struct model *made = doc ? model_from_json(doc, NULL, NULL, &err) : NULL;
    ok(made && made->n_ops == 2, "the largest of one tensor is that tensor: %s", err.msg);
    model_destroy(made);
    json_decref(doc);
    json_decref(notes);
    arr_release(&m);
}

static void bad_input(void) {
    const int64_t x[] = {2, 6}, w[] = {6, 4}, none[] = {0, 6}, other[] = {5, 4},
                  huge[] = {INT64_C(1) << 40, INT64_C(1) << 40};
    struct wire_out g = product("MatMul", x, w, "x");
    refuses(onnx_of(&g, 12), "opset_import: ...13...12");
    g = product("MatMul", none, w, "x");
    refuses(onnx_of(&g, 20), "x: size \"batch\" is dynamic");
    g = product("MatMul", x, w, "y");
    refuses(onnx_of(&g, 20), "graph: it: \"y\" is made by nothing before it");
    g = product("MatMul", x, w, "x");
    put_node(&g, "Relu", "x", NULL, "y");
    refuses(onnx_of(&g, 20), "graph: it: \"y\" is made by two");
    g = product("MatMul", x, other, "x");
    refuses(onnx_of(&g, 20), "MatMul (1");
    g = product("MatMul", x, huge, "x");
    refuses(onnx_of(&g, 20), "shape: a size of 1099511627776");
    g = product("Einsum", x, w, "x");
    refuses(onnx_of(&g, 20), "Einsum (1");
    g = product("MatMul", x, w, "x");
    put_tensor(&g, "table", 1, 1, w, "../secret");
    refuses(onnx_of(&g, 20), "../secret\", which is no file beside it");
    g = product("MatMul", x, w, "x");
    put_foreign(&g, "y", "z");
    refuses(onnx_of(&g, 20), "graph: it: no op does what this does: com.other.Gelu");
    g = product("MatMul", x, w, "x");
    put_tensor(&g, "fc.weight", 1, 1, w, NULL);
    refuses(onnx_of(&g, 20), "fc.weight: there are two");
    g = (struct wire_out){0};
    put_value(&g, 11, "x", 2, x);
    refuses(onnx_of(&g, 20), "one graph of nodes");
}

/* ---- files ------------------------------------------------------------------------------------------ */

/* Names of weights are lost where an exporter folds, and so blocks are not seen to repeat, and there may be reshapes,
 * which compute nothing: all other ops are the same. */
static void alike(const char *path, const char *family, const char *set) {
    struct model *m, *want;
    if (!both(path, family, set, &m, &want))
        return;
    int got[KIND_COUNT], kinds[KIND_COUNT];
    count_kinds(m, got);
    count_kinds(want, kinds);
    got[OP_reshape] = kinds[OP_reshape];
    ok(!memcmp(got, kinds, sizeof got) && count(m) == count(want) &&
           model_forward_flops(m, 3) == model_forward_flops(want, 3),
       "its ops are of the kinds of %s, with %lld parameters and %.0f flops", family,
       (long long)count(m), model_forward_flops(m, 3));
    model_destroy(m);
    model_destroy(want);
}

/* The op of version 23, whose heads are among the numbers of a row. */
static void whole_attention(void) {
    struct err err = {0};
    struct model *m = import_model("tests/import/attention.onnx", &err);
    int got[KIND_COUNT] = {0};
    if (!ok(m != NULL, "a model with the op of attention: %s", err.msg))
        return;
    count_kinds(m, got);
    ok(got[OP_attention_packed] == 1 && got[OP_gelu] == 1 && count(m) == 7008,
       "attention is one op, and all parameters are there");
    model_destroy(m);
}

/* A tensor of a file that weights were written to, or NULL. */
static const struct st_tensor *written(const struct st_file *f, const char *name) {
    for (int64_t i = 0; i < f->tensors; i++)
        if (!strcmp(f->tensor[i].name, name))
            return &f->tensor[i];
    return NULL;
}

/* Each parameter is there once: not the turned copy of a table, nor rows for each sample; what several ops have that
 * were equal is there for each. */
static void written_weights(void) {
    struct err err = {0};
    struct st_file f = {0};
    char path[] = "/tmp/weft-onnx-XXXXXX";
    int fd = mkstemp(path);
    struct model *m = import_model("tests/import/folded.onnx", &err);
    ok(m && count(m) == 12 * 8 + 8 + 4 * 8 + 2 * 2 * 8,
       "what an exporter has folded has the parameters of before: %s", err.msg);
    int rc = import_weights("tests/import/folded.onnx", path, &err);
    if (ok(rc == 0 && st_open(&f, path, &err) == 0, "its weights: %s", err.msg)) {
        const struct st_tensor *rows = written(&f, "rows"), *kind = written(&f, "kind");
        ok(f.tensors == 7 && written(&f, "table") && !written(&f, "turned") &&
               written(&f, "one_2"),
           "%d tensors, each parameter once", (int)f.tensors);
        ok(rows && rows->dims == 3 && rows->shape[0] == 1 && rows->shape[1] == 4 && kind &&
               kind->shape[1] == 1,
           "rows of one sample, and of one position where all are alike");
        st_close(&f);
    }
    rc = import_weights("tests/import/llama.pt2", path, &err);
    ok(rc < 0 && err.status == EXIT_INPUT && message_holds(err.msg, "model of ONNX"),
       "of others there are none: %s", err.msg);
    model_destroy(m);
    close(fd);
    unlink(path);
}

int main(void) {
    same_as("tests/import/gpt2.onnx", "gpt",
            "layers=2,hidden=48,heads=4,seq=24,vocab=120,tied=1");
    alike("tests/import/falcon.onnx", "falcon",
          "layers=2,hidden=48,heads=4,ffn=80,seq=24,vocab=120");
    alike("tests/import/llama.onnx", "llama",
          "layers=2,hidden=48,heads=4,kv_heads=2,ffn=80,seq=24,vocab=120,tied=0");
    whole_attention();
    written_weights();
    struct err err = {0};
    struct model *m = import_model("tests/import/mixer.onnx", &err);
    ok(m && count(m) == 9354, "a mixer that was traced is a model: %s", err.msg);
    model_destroy(m);
    smallest();
    many_operands();
    bad_input();
    damaged("tests/import/mixer.onnx");
    damaged("tests/import/gpt2.onnx");
    return done_testing();
}
