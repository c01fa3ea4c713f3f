/* HLO modules as models: what JAX lowered of a GPT and a Llama are the shipped families, a scan over
 * layers is blocks that repeat, and what is damaged or never ends is refused where it is so. tests/import
 * holds what JAX wrote (scripts/compare-hlo.py). */
#include "import-damaged.h"
#include "import-model.h"

#include "common/file.h"
#include "common/wire.h"
#include "message.h"

/* ---- modules of a few instructions ---------------------------------------------------------------- */

enum { PRED = 1, S32 = 4, F32 = 11, TUPLE = 13 };

/* An instruction: id, opcode, shape, operands; what else it has is in `more`. */
static void put(struct wire_out *c, int id, const char *opcode, int type, int rank,
                const int64_t *size, int n, const int64_t *operands,
                const struct wire_out *more) {
    struct wire_out x = {0}, shape = {0};
    char name[32];
    snprintf(name, sizeof name, "%s.%d", opcode, id);
    wire_put_text(&x, 1, name);
    wire_put_text(&x, 2, opcode);
    wire_put_uint(&shape, 2, (uint64_t)type);
    wire_put_uints(&shape, 3, size, rank);
    wire_put_bytes(&x, 3, shape.p, (size_t)shape.n);
    wire_put_uint(&x, 35, (uint64_t)id);
    if (n)
        wire_put_uints(&x, 36, operands, n);
    for (int64_t i = 0; more && i < more->n; i++)
        arr_push(&x, more->p[i]);
    wire_put_bytes(c, 2, x.p, (size_t)x.n);
    arr_release(&x);
    arr_release(&shape);
}

static void finish(struct wire_out *module, struct wire_out *c, const char *name, int id,
                   int root) {
    struct wire_out all = {0};
    wire_put_text(&all, 1, name);
    wire_put_uint(&all, 5, (uint64_t)id);
    wire_put_uint(&all, 6, (uint64_t)root);
    for (int64_t i = 0; i < c->n; i++)
        arr_push(&all, c->p[i]);
    wire_put_bytes(module, 3, all.p, (size_t)all.n);
    arr_release(&all);
    arr_release(c);
}

static void begin(struct wire_out *module, int entry) {
    wire_put_text(module, 1, "made");
    wire_put_uint(module, 6, (uint64_t)entry);
}

static void refuses(struct wire_out *module, const char *want) {
    struct err err = {0};
    json_t *notes = NULL,
           *doc = import_exported_bytes(module->p, module->n, "made", &notes, &err);
    ok(!doc && !notes && err.status == EXIT_INPUT && message_holds(err.msg, want),
       "refused: %s", err.msg);
    json_decref(doc);
    arr_release(module);
}

#define LIST(...)                                                                          \
    (const int64_t[]) {                                                                    \
        __VA_ARGS__                                                                        \
    }

/* An operand that stands behind, or is none. */
static void circular(void) {
    struct wire_out module = {0}, c = {0};
    begin(&module, 1);
    put(&c, 1, "tanh", F32, 1, LIST(4), 1, LIST(2), NULL);
    put(&c, 2, "tanh", F32, 1, LIST(4), 1, LIST(1), NULL);
    finish(&module, &c, "main", 1, 2);
    refuses(&module, "main.tanh.1...operand 0...2");
    begin(&module, 1);
    put(&c, 1, "tanh", F32, 1, LIST(4), 1, LIST(7), NULL);
    finish(&module, &c, "main", 1, 1);
    refuses(&module, "main.tanh.1...operand 0...7");
}

static void absurd(void) {
    struct wire_out module = {0}, c = {0};
    begin(&module, 1);
    put(&c, 1, "parameter", F32, 3, LIST(1 << 30, 1 << 30, 1 << 30), 0, NULL, NULL);
    finish(&module, &c, "main", 1, 1);
    refuses(&module, "main.parameter.1...shape...1073741824");
    begin(&module, 1);
    put(&c, 1, "constant", F32, 1, LIST(1 << 20), 0, NULL, NULL);
    finish(&module, &c, "main", 1, 1);
    refuses(&module, "main.constant.1...numbers");
    begin(&module, 3);
    put(&c, 1, "parameter", F32, 1, LIST(4), 0, NULL, NULL);
    finish(&module, &c, "main", 1, 1);
    refuses(&module, "entry...3");
}

/* A computation that calls itself, and a loop that goes on for ever. */
static void endless(void) {
    struct wire_out module = {0}, c = {0}, more = {0}, literal = {0};
    begin(&module, 1);
    wire_put_uints(&more, 38, LIST(1), 1);
    put(&c, 1, "call", F32, 1, LIST(4), 0, NULL, &more);
    finish(&module, &c, "main", 1, 1);
    arr_release(&more);
    refuses(&module, "main.call.1...computation 0...1");
    begin(&module, 3);
    put(&c, 1, "parameter", F32, 1, LIST(4), 0, NULL, NULL);
    finish(&module, &c, "body", 1, 1);
    put(&c, 1, "parameter", F32, 1, LIST(4), 0, NULL, NULL);
    wire_put_uints(&literal, 2, LIST(1), 1);
    wire_put_bytes(&more, 8, literal.p, (size_t)literal.n);
    put(&c, 2, "constant", PRED, 0, NULL, 0, NULL, &more);
    finish(&module, &c, "go", 2, 2);
    arr_release(&more);
    wire_put_uints(&more, 38, LIST(1, 2), 2);
    put(&c, 1, "parameter", F32, 1, LIST(4), 0, NULL, NULL);
    put(&c, 2, "while", F32, 1, LIST(4), 1, LIST(1), &more);
    finish(&module, &c, "main", 3, 2);
    refuses(&module, "expected at most 262144 instructions");
    arr_release(&more);
    arr_release(&literal);
}

/* x [2 4] w [4 3] summed over a dim that is none, or of another size. */
static void products(void) {
    for (int64_t dim = 0; dim < 3; dim++) {
        struct wire_out module = {0}, c = {0}, more = {0}, dot = {0}, w = {0};
        struct err err = {0};
        begin(&module, 1);
        put(&c, 1, "parameter", F32, 2, LIST(2, 4), 0, NULL, NULL);
        wire_put_uint(&w, 9, 1);
        put(&c, 2, "parameter", F32, 2, LIST(4, 3), 0, NULL, &w);
        wire_put_uints(&dot, 1, LIST(1), 1);
        wire_put_uints(&dot, 2, &dim, 1);
        wire_put_bytes(&more, 30, dot.p, (size_t)dot.n);
        put(&c, 3, "dot", F32, 2, LIST(2, 3), 2, LIST(1, 2), &more);
        finish(&module, &c, "main", 1, 3);
        json_t *notes = NULL,
               *doc = import_exported_bytes(module.p, module.n, "made", &notes, &err);
        ok(!doc && message_holds(err.msg, dim ? "dot (1...no op" : "dot (1...weights"),
           "a product over dim %d: %s", (int)dim, err.msg);
        arr_release(&module);
        arr_release(&more);
        arr_release(&dot);
        arr_release(&w);
    }
}

/* ---- files ------------------------------------------------------------------------------------------- */

static void refused(void) {
    struct err err = {0};
    ok(!import_model("tests/import/sorted.hlo", &err) && err.status == EXIT_INPUT &&
           message_holds(err.msg, "sort (1, in ...sort"),
       "refused: %s", err.msg);
}

int main(void) {
    same_as("tests/import/gpt-scan.hlo", "gpt",
            "layers=3,hidden=48,heads=4,seq=24,vocab=120,tied=1");
    same_as("tests/import/llama.hlo", "llama",
            "layers=3,hidden=48,heads=4,kv_heads=2,ffn=96,seq=24,vocab=120,tied=0");
    refused();
    circular();
    absurd();
    endless();
    products();
    damaged("tests/import/sorted.hlo");
    damaged("tests/import/gpt-scan.hlo");
    return done_testing();
}
