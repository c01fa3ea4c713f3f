/* Documents in a sequence: where they start, and positions in them, are inputs that there are only where a token
 * ends a document; what takes them, and what is refused. */
#include "message.h"
#include "model.h"

static int input_find(const struct model *m, const char *name) {
    for (int i = 0; i < m->n_tensors; i++)
        if (m->tensors[i].producer < 0 && !strcmp(m->tensors[i].name, name))
            return i;
    return -1;
}

static struct model *shipped(const char *ref, const char *set) {
    struct err err = {0};
    struct model *m = model_load(ref, set, &err);
    ok(m != NULL, "%s with %s is read%s%s", ref, set ? set : "nothing", m ? "" : ": ",
       err.msg);
    return m;
}

/* Of a family: the op's operands with documents, and without. */
static void check_family(const char *ref, const char *op, int with, int without,
                         bool learned) {
    struct model *m = shipped(ref, "documents=7,layers=2"), *old = shipped(ref, "layers=2");
    const int i = m ? op_find(m, op) : -1, k = old ? op_find(old, op) : -1;
    const int starts = m ? input_find(m, "starts") : -1;
    ok(i >= 0 && m->ops[i].n_in == with && starts >= 0 && m->tensors[starts].end == 7 &&
           m->ops[i].in[with - 1] == starts && m->tensors[starts].integer,
       "%s: %s takes where documents that token 7 ends start", ref, op);
    ok(m && (input_find(m, "positions") >= 0) == learned, "%s: positions are %san input",
       ref, learned ? "" : "not ");
    ok(k >= 0 && old->ops[k].n_in == without && input_find(old, "starts") < 0 &&
           input_find(old, "positions") < 0,
       "%s: without such a token there is none of it", ref);
    ok(m && old && m->hash != old->hash && m->n_params == old->n_params &&
           model_count_parameters(m, true) == model_count_parameters(old, true),
       "%s: it is another model with the same parameters", ref);
    model_destroy(m);
    model_destroy(old);
}

static void test_families(void) {
    check_family("gpt:nano", "layer.0.attn", 2, 1, true);
    check_family("gpt-qkv:nano", "layer.1.attn", 4, 3, true);
    check_family("opt:nano", "layer.0.attn", 4, 3, true);
    check_family("llama:nano", "layer.1.attn", 4, 3, false);
    check_family("gemma2:nano", "layer.0.attn", 4, 3, false);
    struct model *one = shipped("llama:nano", "documents=7"),
                 *other = shipped("llama:nano", "documents=8"),
                 *none = shipped("llama:nano", "documents=-1"),
                 *plain = shipped("llama:nano", NULL);
    ok(one && other && one->hash != other->hash, "the token is a part of the model");
    ok(none && plain && none->hash == plain->hash, "-1 stands for no such token");
    ok(one && model_forward_flops(one, 2) == model_forward_flops(plain, 2),
       "the work is counted as that of whole sequences");
    model_destroy(one);
    model_destroy(other);
    model_destroy(none);
    model_destroy(plain);
}

/* A model of one attention over x, with `inputs` besides. */
static void refuses(const char *inputs, const char *op, const char *message) {
    struct err err = {0};
    char text[2048];
    snprintf(text, sizeof text,
             "{'format': 'weft-model/1', 'name': 'm',"
             " 'sizes': {'seq': 4, 'heads': 2, 'kv': 3, 'vocab': 8, 'three': 3, 'few': 3,"
             "           'hidden': 5},"
             " 'inputs': {'ids': {'dims': ['batch', 'seq'], 'source': 'token'},"
             "   'next': {'dims': ['batch', 'seq'], 'source': 'next-token'}%s%s},"
             " 'ops': [{'name': 'wte', 'kind': 'embedding', 'in': ['ids'], 'out': 'x',"
             "   'dims': ['batch', 'seq', 'hidden'],"
             "   'weight': {'dims': ['vocab', 'hidden']}},"
             "  {'name': 'up', 'kind': 'einsum', 'in': ['x'], 'out': 'q',"
             "   'dims': ['batch', 'seq', 'three', 'heads', 'kv'],"
             "   'weight': {'dims': ['hidden', 'three', 'heads', 'kv']}}, {%s},"
             "  {'name': 'head', 'kind': 'einsum', 'in': ['y'], 'out': 'z',"
             "   'dims': ['batch', 'seq', 'vocab'],"
             "   'weight': {'dims': ['heads', 'kv', 'vocab']}},"
             "  {'name': 'loss', 'kind': 'cross-entropy', 'in': ['z', 'next'], 'out': 'l',"
             "   'dims': []}]}",
             *inputs ? ", " : "", inputs, op);
    struct model *m = model_of(text, NULL, &err);
    ok(!m && message_says(err.msg, message) && err.status == EXIT_INPUT, "refuses: %s",
       m ? "it is accepted" : err.msg);
    model_destroy(m);
}

#define STARTS(end)                                                                        \
    "'starts': {'dims': ['batch', 'seq'], 'source': 'document-start'" end "}"
#define ATTEND(in, more)                                                                   \
    "'name': 'attn', 'kind': 'attention', 'in': ['q', '" in                                \
    "'], 'out': 'y', 'dims': ['batch', 'seq', 'heads', 'kv']" more

static void test_refusals(void) {
    const char *good = ATTEND("starts", ", 'causal': true");
    refuses(STARTS(""), good, "inputs.starts.end: missing");
    refuses(STARTS(", 'end': -2"), good, "inputs.starts.end:...-1 for none...-2");
    refuses(STARTS(", 'end': 0.5"), good, "inputs.starts.end:...fraction");
    refuses(STARTS(", 'end': 1, 'length': -3"), good, "inputs.starts.length:...-3");
    refuses("'starts': {'dims': ['batch', 'seq'], 'source': 'token', 'length': 3}", good,
            "inputs.starts.length:...documents");
    refuses(STARTS(", 'end': 8"), good, "inputs.starts.end: token 8...vocabulary...8");
    refuses(STARTS(", 'end': -1"), good, "ops[2] (attn): in[1]: no tensor \"starts\"");
    refuses("'starts': {'dims': ['batch', 'seq'], 'source': 'token', 'end': 1}", good,
            "inputs.starts.end:...documents");
    refuses("'starts': {'dims': ['batch'], 'source': 'document-start', 'end': 1}", good,
            "inputs.starts.dims:...one dim for the sequence");
    refuses("'starts': {'dims': ['batch', 'few'], 'source': 'document-start', 'end': 1}",
            good, "ops[2] (attn): starts:...[batch, seq]...[batch, few]");
    refuses(STARTS(", 'end': 1"), ATTEND("starts", ""),
            "ops[2] (attn): in[1]: only causal attention");
    refuses("", ATTEND("ids", ", 'causal': true"),
            "ops[2] (attn): in[1]:...document-start...\"ids\"");
    refuses(STARTS(", 'end': 1"),
            "'name': 'p', 'kind': 'rows', 'in': ['x', 'starts'], 'out': 'x',"
            " 'dims': ['batch', 'seq', 'hidden'], 'weight': {'dims': ['few', 'hidden']}",
            "ops[2] (p): in[1]:...document-position...\"starts\"");
}

/* Said to be so long, documents are no other model, only one that takes less work: a query sees as many keys as
 * there are up to it in its document. */
static void test_lengths(void) {
    struct model *whole = shipped("llama:nano", "documents=7"),
                 *cut = shipped("llama:nano", "documents=7,document_length=16"),
                 *long_ones = shipped("llama:nano", "documents=7,document_length=4096"),
                 *none = shipped("llama:nano", "document_length=16"),
                 *window = shipped("gemma3:nano",
                                   "documents=7,document_length=16,window=4,pattern=9");
    const int i = cut ? op_find(cut, "layer.0.attn") : -1;
    const int k = window ? op_find(window, "layer.0.attn") : -1;
    const double all = i < 0 ? 0 : model_op_flops(whole, &whole->ops[i], 2);
    ok(i >= 0 && whole->hash == cut->hash,
       "how long documents are is not a part of the model");
    ok(all > 0 && model_op_flops(cut, &cut->ops[i], 2) == all * 17 / 257,
       "documents of 16 of 256 tokens: queries see 8.5 keys in the mean, not 128.5");
    ok(all > 0 && model_op_flops(long_ones, &long_ones->ops[i], 2) == all,
       "documents longer than the sequence: those of the sequence");
    ok(none && model_forward_flops(none, 2) == model_forward_flops(whole, 2),
       "without a token that ends them there are none");
    ok(k >= 0 && model_op_flops(window, &window->ops[k], 1) ==
                     2.0 * 256 * 4 * 64 * (1 + 2 + 3 + 13 * 4) / 16,
       "under a window of 4 a query sees at most 4");
    model_destroy(whole), model_destroy(cut), model_destroy(long_ones);
    model_destroy(none), model_destroy(window);
}

/* A table of fewer rows than there are positions. */
static void test_rows(void) {
    struct err err = {0};
    struct model *m = model_load("opt:nano", "documents=1,positions=8,seq=9", &err);
    ok(!m && message_says(
                 err.msg,
                 "...opt.json: ops[1] (wpe): weight: \"places\"...10 rows...number 10"),
       "opt: %s", err.msg);
    model_destroy(m);
}

int main(void) {
    test_families();
    test_lengths();
    test_refusals();
    test_rows();
    return done_testing();
}
