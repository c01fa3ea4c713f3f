/* Kinds: every op is bound to the descriptor of its kind, and what does not fit is refused. */
#include "message.h"
#include "model.h"

/* One op of a model whose data and sizes are fixed, then what reads it. */
static const char head[] =
    "{'format': 'weft-model/1', 'name': 'm', 'rates': {'half': 0.5, 'big': 1},"
    " 'sizes': {'seq': 4, 'hidden': 6, 'wide': 12, 'vocab': 8, 'three': 3, 'heads': 2,"
    "           'kv': 3, 'rows': 2, 'columns': 3, 'other': 6, 'one': 1, 'unit': 1,"
    "           'h': 8, 'w': 9, 'h2': 4, 'w2': 5, 'c': 5, 'k': 10, 'taps': 3, 'taps2': 3},"
    " 'inputs': {'ids': {'dims': ['batch', 'seq'], 'source': 'token'},"
    "            'next': {'dims': ['batch', 'seq'], 'source': 'next-token'},"
    "            'image': {'dims': ['batch', 'rows', 'columns'], 'source': 'image'},"
    "            'map': {'dims': ['batch', 'h', 'w', 'c'], 'source': 'image'},"
    "            'label': {'dims': ['batch'], 'source': 'label'}},"
    " 'ops': [{'name': 'first', 'kind': 'embedding', 'in': ['ids'], 'out': 'x',"
    "          'dims': ['batch', 'seq', 'hidden'], 'weight': {'dims': ['vocab', 'hidden']}},"
    "         {'name': 'probe', ";

static struct model *bound(const char *op, struct err *err) {
    char *text;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    fprintf(f, "%s%s}]}", head, op);
    fclose(f);
    struct model *m = model_of(text, NULL, err);
    free(text);
    return m;
}

/* The op is refused with this message, which says where it stands. */
static void refuses(const char *op, const char *message) {
    struct err err = {0};
    char want[512];
    snprintf(want, sizeof want, "ops[1] (probe): %s", message);
    struct model *m = bound(op, &err);
    ok(!m && message_says(err.msg, want) && err.status == EXIT_INPUT, "refuses: %s",
       m ? "it is accepted" : err.msg);
    model_destroy(m);
}

/* "batch seq hidden/coupled", a dim's second name behind "=". */
static void write_space(const struct model *m, const struct op_space *s, char *text,
                        size_t size) {
    text[0] = '\0';
    for (int k = 0; k < s->n; k++) {
        size_t n = strlen(text);
        snprintf(text + n, size - n, "%s%s%s%s%s%s", k ? " " : "", m->dims[s->dim[k]].name,
                 s->alias[k] >= 0 ? "=" : "",
                 s->alias[k] >= 0 ? m->dims[s->alias[k]].name : "",
                 s->role[k] == ROLE_parallel ? "" : "/",
                 s->role[k] == ROLE_parallel ? "" : role_name(s->role[k]));
    }
}

/* The op's iteration space. `more` are the ops that read its result, without the last bracket. */
static void space_is(const char *op, const char *more, const char *want) {
    struct err err = {0};
    char text[2048], got[512] = "";
    snprintf(text, sizeof text, "%s}, %s", op, more);
    struct model *m = bound(text, &err);
    int i = m ? op_find(m, "probe") : -1;
    if (i >= 0)
        write_space(m, &m->ops[i].space, got, sizeof got);
    ok(i >= 0 && !strcmp(got, want), "%.24s: space %s %s", op, got, err.msg);
    model_destroy(m);
}

#define LOSS(x)                                                                            \
    "'name': 'loss', 'kind': 'cross-entropy', 'in': ['" x                                  \
    "', 'next'], 'out': 'l', 'dims': []"
#define HEAD(x, dims)                                                                      \
    "{'name': 'head', 'kind': 'einsum', 'in': ['" x                                        \
    "'], 'out': 'z', 'dims': ['batch', 'seq', 'vocab'], 'weight': {'dims': [" dims         \
    ", 'vocab']}}, {" LOSS("z")
#define ON_HIDDEN HEAD("x", "'hidden'")

static void test_spaces(void) {
    space_is("'kind': 'einsum', 'in': ['x'], 'out': 'x', 'dims': ['batch', 'seq', 'vocab'],"
             " 'weight': {'dims': ['hidden', 'vocab']}, 'bias': {'dims': ['vocab']}",
             "{" LOSS("x"), "batch seq hidden/contracted vocab");
    space_is("'kind': 'einsum', 'in': ['x'], 'out': 'x', 'dims': ['batch', 'seq', 'vocab'],"
             " 'weight': {'dims': ['vocab', 'hidden']}",
             "{" LOSS("x"), "batch seq hidden/contracted vocab");
    space_is(
        "'kind': 'layernorm', 'in': ['x'], 'out': 'x', 'dims': ['batch', 'seq', 'hidden'],"
        " 'weight': {'dims': ['hidden']}, 'bias': {'dims': ['hidden']}",
        ON_HIDDEN, "batch seq hidden/coupled");
    space_is("'kind': 'bias', 'in': ['x'], 'out': 'x', 'dims': ['batch', 'seq', 'hidden'],"
             " 'weight': {'dims': ['seq', 'hidden']}",
             ON_HIDDEN, "batch seq hidden");
    space_is("'kind': 'dropout', 'rate': 'half', 'in': ['x'], 'out': 'x',"
             " 'dims': ['batch', 'seq', 'hidden']",
             ON_HIDDEN, "batch seq hidden");
    space_is(
        "'kind': 'reshape', 'in': ['x'], 'out': 'h', 'dims': ['batch', 'seq', 'heads', 'kv']",
        HEAD("h", "'heads', 'kv'"), "batch seq heads=hidden");
    space_is(
        "'kind': 'reshape', 'in': ['x'], 'out': 'h', 'dims': ['batch', 'seq', 'other']",
        HEAD("h", "'other'"), "batch seq other=hidden");
    space_is("'kind': 'reshape', 'in': ['x'], 'out': 'h',"
             " 'dims': ['batch', 'one', 'seq', 'rows', 'columns', 'unit']",
             "{'name': 'back', 'kind': 'reshape', 'in': ['h'], 'out': 'h',"
             " 'dims': ['batch', 'seq', 'hidden']}, " HEAD("h", "'hidden'"),
             "batch seq rows=hidden");
    space_is("'kind': 'einsum', 'in': ['x'], 'out': 'q',"
             " 'dims': ['batch', 'seq', 'three', 'heads', 'kv'],"
             " 'weight': {'dims': ['hidden', 'three', 'heads', 'kv']}",
             "{'name': 'attn', 'kind': 'attention', 'in': ['q'], 'out': 'h',"
             " 'dims': ['batch', 'seq', 'heads', 'kv']}, " HEAD("h", "'heads', 'kv'"),
             "batch seq hidden/contracted three heads kv");
    space_is(
        "'kind': 'einsum', 'in': ['x', 'x'], 'out': 'y', 'dims': ['batch', 'seq']",
        "{'name': 'up', 'kind': 'einsum', 'in': ['y'], 'out': 'z', 'dims': ['batch', 'seq', 'vocab'], 'weight': {'dims': ['vocab']}}, {" LOSS(
            "z"),
        "batch seq hidden/contracted");
    space_is("'kind': 'einsum', 'in': ['x'], 'out': 'y', 'dims': ['batch', 'seq', 'wide'],"
             " 'weight': {'dims': ['seq', 'hidden', 'wide']}",
             HEAD("y", "'wide'"), "batch seq hidden/contracted wide");
    space_is("'kind': 'cross-entropy', 'in': ['x', 'next'], 'out': 'l', 'dims': []",
             "{'name': 'more', 'kind': 'cross-entropy', 'in': ['x', 'next'], 'out': 'l2',"
             " 'dims': []",
             "batch/contracted seq/contracted hidden/coupled");
}

static void test_routing(void) {
#define ROUTE(k, more)                                                                     \
    "'kind': 'route', 'in': ['x'], 'out': ['g', 's'],"                                     \
    " 'dims': [['batch', 'seq', '" k "'], ['batch', 'seq', '" k "']]" more
    space_is(ROUTE("kv", ""),
             "{'name': 'more', 'kind': 'einsum', 'in': ['x'], 'out': 'h', 'dims':"
             " ['batch', 'seq', 'wide'], 'weight': {'dims': ['hidden', 'wide']}},"
             "{'name': 'up', 'kind': 'dispatch', 'in': ['h', 's'], 'out': 'h',"
             " 'dims': ['hidden', 'batch', 'heads', 'wide']},"
             "{'name': 'back', 'kind': 'combine', 'in': ['h', 'g', 's'], 'out': 'h',"
             " 'dims': ['batch', 'seq', 'wide']}, " HEAD("h", "'wide'"),
             "batch seq/whole hidden/whole kv/whole");
#define LOAD(choices)                                                                      \
    "'kind': 'expert-load', 'in': ['x'], 'out': 'l', 'dims': ['batch', 'rows', 'hidden']," \
    " 'choices': " choices
    space_is(
        LOAD("6"),
        "{'name': 'even', 'kind': 'balance', 'in': ['l'], 'out': 'b', 'dims': []}," ON_HIDDEN,
        "batch seq/whole hidden/whole rows/whole");
    refuses(LOAD("7"), "choices:...6...7");
    refuses("'kind': 'balance', 'in': ['x'], 'out': 'b', 'dims': []",
            "in[0]:...sums...f32...\"x\"");
#undef LOAD
    space_is("'kind': 'router-z', 'in': ['x'], 'out': 'b', 'dims': []", ON_HIDDEN,
             "batch/contracted seq/contracted hidden/whole");
    refuses(ROUTE("vocab", ""), "vocab (8) is larger than hidden (6)");
    refuses(ROUTE("kv", ", 'group': 0"), "group:...1...1.099511628e+12...0");
    refuses(ROUTE("kv", ", 'group': 'seq*2000000000'"), "group: 32000000000...6");
    refuses("'kind': 'route', 'in': ['x'], 'out': 'g', 'dims': ['batch', 'seq', 'kv']",
            "out:...2 results:...list...dims");
    refuses("'kind': 'dispatch', 'in': ['x', 'next'], 'out': 'h',"
            " 'dims': ['hidden', 'batch', 'kv', 'other']",
            "slots:...dims [batch...*]...[batch, seq]");
#undef ROUTE
}

/* Messages about what stands in several ops. */
static void test_routed(void) {
    static const struct {
        const char *op, *want;
    } cases[] = {
        {"{'name': 'up', 'kind': 'dispatch', 'in': ['x', 's'], 'out': 'h',"
         " 'dims': ['other', 'batch', 'rows', 'hidden']}",
         "ops[2] (up): in[1]:...slots"},
        {"{'name': 'load', 'kind': 'expert-load', 'in': ['x'], 'out': 'l', 'dims':"
         " ['batch', 'rows', 'hidden']}, {'name': 'more', 'kind': 'reshape', 'in': ['l'],"
         " 'out': 'y', 'dims': ['batch', 'rows', 'heads', 'kv']}, {'name': 'even',"
         " 'kind': 'balance', 'in': ['y'], 'out': 'b', 'dims': [], 'group': 2}",
         "ops[4] (even): group:...(2)...dims"},
        {"{'name': 'sum', 'kind': 'einsum', 'in': ['x', 'x'], 'out': 'y', 'dims':"
         " ['batch', 'seq']}, {'name': 'load', 'kind': 'expert-load', 'in': ['y'],"
         " 'out': 'b', 'dims': ['rows', 'seq']}",
         "ops[3] (load): in[0]:...dims"},
        {ON_HIDDEN "}", "ops:...result...\"probe\"...used"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        char text[2048];
        snprintf(text, sizeof text,
                 "'kind': 'route', 'in': ['x'], 'out': ['g', 's'], 'dims':"
                 " [['batch', 'seq', 'kv'], ['batch', 'seq', 'kv']]}, %.*s",
                 (int)strlen(cases[i].op) - 1, cases[i].op);
        struct model *m = bound(text, &err);
        ok(!m && message_says(err.msg, cases[i].want), "refuses: %s",
           m ? "it is accepted" : err.msg);
        model_destroy(m);
    }
}

/* What reads a result of maps, down to a loss. */
#define MAP(kind, in, out, dims, more)                                                     \
    "'kind': '" kind "', 'in': ['" in "'], 'out': '" out "', 'dims': [" dims "]" more
#define ON_MAP(dims)                                                                            \
    "{'name': 'sum', 'kind': 'einsum', 'in': ['y'], 'out': 'z', 'dims': ['batch', 'vocab'],"    \
    " 'weight': {'dims': [" dims ", 'vocab']}},"                                                \
    " {'name': 'loss', 'kind': 'cross-entropy', 'in': ['z', 'label'], 'out': 'l', 'dims': []}," \
    " {'name': 'other', 'kind': 'cross-entropy', 'in': ['x', 'next'], 'out': 'm', 'dims': []"
#define WEIGHT(dims) ", 'weight': {'dims': [" dims "]}"
#define STATISTICS                                                                         \
    ", 'weight': {'dims': ['c']}, 'bias': {'dims': ['c']}, 'mean': {'dims': ['c']},"       \
    " 'variance': {'dims': ['c']}"

static void test_windows(void) {
    space_is(MAP("conv2d", "map", "y", "'batch', 'h', 'w', 'k'",
                 WEIGHT("'taps', 'taps2', 'c', 'k'") ", 'padding': 1"),
             ON_MAP("'h', 'w', 'k'"),
             "batch h/halo w/halo c/contracted taps/whole taps2/whole k");
    space_is(MAP("conv2d", "map", "y", "'batch', 'h2', 'w2', 'k'",
                 WEIGHT("'taps', 'taps2', 'c', 'k'") ", 'padding': 1, 'stride': '2'"),
             ON_MAP("'h2', 'w2', 'k'"),
             "batch h2=h/halo w2=w/halo c/contracted taps/whole taps2/whole k");
    space_is(MAP("maxpool", "map", "y", "'batch', 'h2', 'w2', 'c'",
                 ", 'kernel': 'taps', 'padding': 1, 'stride': 2"),
             ON_MAP("'h2', 'w2', 'c'"), "batch h2=h/halo w2=w/halo c");
    space_is(MAP("avgpool", "map", "y", "'batch', 'c'", ""), ON_MAP("'c'"),
             "batch h/contracted w/contracted c");
    space_is(
        MAP("batchnorm", "map", "y", "'batch', 'h', 'w', 'c'", ", 'group': 2" STATISTICS),
        ON_MAP("'h', 'w', 'c'"), "batch/coupled h/coupled w/coupled c");
    refuses(MAP("conv2d", "map", "y", "'batch', 'h2', 'w', 'k'",
                WEIGHT("'taps', 'taps2', 'c', 'k'") ", 'padding': 1"),
            "y: \"h2\"...4...8:...3...1...\"h\" (8)...1");
    refuses(MAP("conv2d", "map", "y", "'batch', 'h', 'w', 'c'",
                WEIGHT("'taps', 'taps2', 'c', 'c'")),
            "weight.dims[3]: \"c\" appears twice");
    refuses(MAP("conv2d", "map", "y", "'batch', 'w', 'h', 'k'",
                WEIGHT("'taps', 'taps2', 'c', 'k'")),
            "dim \"w\" has two roles in this op");
    refuses(MAP("maxpool", "map", "y", "'batch', 'h', 'w', 'c'", ""), "kernel: missing");
    refuses(MAP("maxpool", "map", "y", "'batch', 'h', 'w', 'c'", ", 'kernel': 0"),
            "kernel:...1...1048576...0");
    refuses(
        MAP("maxpool", "map", "y", "'batch', 'h', 'w', 'c'", ", 'kernel': 3, 'padding': 3"),
        "padding: 3...3");
    refuses(MAP("maxpool", "map", "y", "'batch', 'h', 'w', 'c'", ", 'kernel': 20"),
            "x: \"h\" (8)...20");
    refuses(MAP("batchnorm", "map", "y", "'batch', 'h', 'w', 'c'", STATISTICS),
            "group: missing");
}

#define ATTEND "./tests/models/attend.json"

/* The op of the model has this space, and its second operand this map, axis by axis. */
static void attend_is(const char *op, const char *space, const char *map) {
    struct err err = {0};
    char got[256] = "", axes[256] = "";
    struct model *m = model_load(ATTEND, NULL, &err);
    int i = m ? op_find(m, op) : -1;
    if (i >= 0)
        write_space(m, &m->ops[i].space, got, sizeof got);
    for (int k = 0; i >= 0 && k < m->ops[i].space.n; k++) {
        const struct axis_map *keys = &m->ops[i].in_map[1];
        size_t n = strlen(axes);
        snprintf(axes + n, sizeof axes - n, "%s%d", k ? " " : "", keys->axis[k]);
        n = strlen(axes);
        if (k == keys->grouped)
            snprintf(axes + n, sizeof axes - n, "/%d", (int)keys->groups);
    }
    ok(!strcmp(got, space) && !strcmp(axes, map), "%s: space %s, keys %s %s", op, got, axes,
       err.msg);
    model_destroy(m);
}

/* A dim that is gathered may be one that is split; of heads there may be fewer. */
static void test_attention(void) {
    attend_is("self", "batch seq heads=kv_heads kv/whole seq/gathered kv/whole",
              "0 -1 2/2 3 1 -1");
    attend_is("cross", "batch seq heads kv/whole other/gathered kv/whole buckets/whole",
              "0 -1 2/4 3 1 -1 -1");
    struct err err = {0};
    struct model *m = model_load(ATTEND, "kv_heads=3", &err);
    ok(!m && strstr(err.msg, "(self): k: kv_heads (3) does not divide heads (4)"),
       "refuses: %s", err.msg);
    m = model_load(ATTEND, "kv=3", &err);
    ok(!m && strstr(err.msg, "(turn): x: kv (3) is no multiple of 2"), "refuses: %s",
       err.msg);
    m = model_load(ATTEND, "kv_heads=4", &err);
    ok(m && op_space_find(&m->ops[op_find(m, "self")].space,
                          model_dim_find(m, "kv_heads")) == 2,
       "as many heads of keys under another name");
    ok(m && op_space_find(&m->ops[op_find(m, "self")].space, model_dim_find(m, "seq")) == 1,
       "a layout that splits seq splits the queries");
    model_destroy(m);
}

/* Rows of tables, rows in front, one row: in the space, and what is not there is refused. */
#define ROWS(weight, more)                                                                 \
    "'kind': 'rows', 'in': ['x'], 'out': 'x', 'dims': ['batch', 'seq', 'hidden'],"         \
    " 'weight': {'dims': [" weight "]}" more
#define PREPEND(t, r)                                                                      \
    "'kind': 'prepend', 'in': ['x'], 'out': 'y', 'dims': ['batch', " t ", 'hidden'],"      \
    " 'weight': {'dims': [" r ", 'hidden']}"
#define SELECT(at)                                                                         \
    "'kind': 'select', 'in': ['x'], 'out': 'y', 'dims': ['batch', 'hidden'], 'at': " at

static void test_positions(void) {
    space_is(
        "'kind': 'transpose', 'in': ['x'], 'out': 'y', 'dims': ['batch', 'hidden', 'seq']",
        "{'name': 'head', 'kind': 'einsum', 'in': ['y'], 'out': 'z', 'dims': ['batch', "
        "'hidden', 'vocab'], 'weight': {'dims': ['seq', 'vocab']}}, {'name': 'flip', 'kind': "
        "'einsum', 'in': ['z'], 'out': 'z', 'dims': ['batch', 'seq', 'k'], 'weight': "
        "{'dims': ['hidden', 'vocab', 'seq', 'k']}}, {" LOSS("z"),
        "batch seq hidden");
    refuses(
        "'kind': 'transpose', 'in': ['x'], 'out': 'y', 'dims': ['batch', 'seq', 'hidden']",
        "y:...dims [batch, hidden, seq]...[batch, seq, hidden]");
    space_is(ROWS("'wide', 'hidden'", ", 'start': 8"), ON_HIDDEN,
             "batch seq hidden wide/whole");
    space_is(ROWS("'one', 'hidden'", ", 'step': 0"), ON_HIDDEN,
             "batch seq hidden one/whole");
    space_is(
        PREPEND("'h'", "'h2'"),
        "{'name': 'head', 'kind': 'einsum', 'in': ['y'], 'out': 'z', 'dims': ['batch', "
        "'seq', 'vocab'], 'weight': {'dims': ['h', 'hidden', 'seq', 'vocab']}}, {" LOSS(
            "z"),
        "batch seq/whole hidden h2/whole h/whole");
    space_is(
        SELECT("3"),
        "{'name': 'head', 'kind': 'einsum', 'in': ['y'], 'out': 'z', 'dims': ['batch', "
        "'seq', 'vocab'], 'weight': {'dims': ['hidden', 'seq', 'vocab']}}, {" LOSS("z"),
        "batch seq/whole hidden");
    refuses(ROWS("'wide', 'hidden'", ", 'start': 9"), "weight: \"wide\"...12...12");
    refuses(ROWS("'three', 'hidden'", ""), "weight: \"three\"...3...3");
    refuses(ROWS("'one', 'hidden'", ", 'start': 1, 'step': 0"), "weight: \"one\"...1...1");
    refuses(ROWS("'wide', 'hidden'", ", 'step': 2"), "step: expected at least 0");
    refuses(PREPEND("'w'", "'h2'"), "y: \"w\"...9...8...\"h2\"...\"seq\"");
    refuses(SELECT("4"), "at: \"seq\"...4...4");
}

static void test_patterns(void) {
    refuses(
        "'kind': 'embedding', 'in': ['ids'], 'out': 'y', 'dims': ['batch', 'seq', 'wide'],"
        " 'weight': {'dims': ['vocab', 'hidden']}",
        "y:...dims [batch...hidden]...[batch...wide]");
    refuses(
        "'kind': 'embedding', 'in': ['ids'], 'out': 'y', 'dims': ['batch', 'seq', 'hidden'],"
        " 'weight': {'dims': ['vocab']}",
        "weight:...dims [*, *]...[vocab]");
    refuses("'kind': 'bias', 'in': ['x'], 'out': 'y', 'dims': ['batch', 'seq', 'hidden'],"
            " 'weight': {'dims': ['wide']}",
            "y:...dims [..., wide]...[batch...hidden]");
    refuses("'kind': 'bias', 'in': ['x'], 'out': 'y', 'dims': ['batch', 'hidden', 'seq'],"
            " 'weight': {'dims': ['hidden']}",
            "y:...dims [..., hidden]...[batch...seq]");
    refuses(
        "'kind': 'layernorm', 'in': ['x'], 'out': 'y', 'dims': ['batch', 'seq', 'hidden'],"
        " 'weight': {'dims': ['seq']}, 'bias': {'dims': ['hidden']}",
        "weight:...dims [hidden]...[seq]");
    refuses(
        "'kind': 'layernorm', 'in': ['x'], 'out': 'y', 'dims': ['batch', 'seq', 'hidden'],"
        " 'weight': {'dims': ['hidden']}, 'bias': {'dims': ['seq', 'hidden']}",
        "bias:...dims [hidden]...[seq, hidden]");
    refuses("'kind': 'layernorm', 'in': ['x'], 'out': 'y', 'dims': ['batch', 'hidden'],"
            " 'weight': {'dims': ['hidden']}, 'bias': {'dims': ['hidden']}",
            "y:...dims [batch...hidden]...[batch, hidden]");
    refuses("'kind': 'attention', 'in': ['x', 'x', 'x'], 'out': 'y', 'dims': ['batch']",
            "q:...dims [*, *, *, *]...[batch...hidden]");
    refuses(
        "'kind': 'attention', 'in': ['x'], 'out': 'y', 'dims': ['batch', 'seq', 'hidden']",
        "qkv:...dims [*, *, 3, *, *]...[batch...hidden]");
    for (int i = 0; i < 3; i++) {
        static const char *const kinds[] = {"gelu", "relu", "silu"};
        char op[256];
        snprintf(op, sizeof op,
                 "'kind': '%s', 'in': ['x'], 'out': 'y', 'dims': ['batch', 'seq']",
                 kinds[i]);
        refuses(op, "y:...dims [batch...hidden]...[batch, seq]");
    }
    refuses(
        "'kind': 'add', 'in': ['x', 'image'], 'out': 'y', 'dims': ['batch', 'seq', 'hidden']",
        "z:...dims [batch...hidden]...[batch...columns]");
    refuses("'kind': 'dropout', 'in': ['x'], 'out': 'y', 'dims': ['batch', 'seq', 'other']",
            "y:...dims [batch...hidden]...[batch...other]");
    refuses("'kind': 'cross-entropy', 'in': ['x', 'label'], 'out': 'l', 'dims': []",
            "targets:...dims [batch, seq]...[batch]");
    refuses("'kind': 'cross-entropy', 'in': ['x', 'next'], 'out': 'l', 'dims': ['batch']",
            "y:...dims []...[batch]");
}

/* Kinds that are not bound by patterns. */
static void test_products(void) {
#define EINSUM(out, weight, more)                                                          \
    "'kind': 'einsum', 'in': ['x'], 'out': 'y', 'dims': [" out                             \
    "], 'weight': {'dims': [" weight "]}" more
    refuses(EINSUM("'batch', 'hidden', 'wide'", "'seq', 'wide'", ""),
            "y:...dims...shares...x...order");
    refuses(EINSUM("'batch', 'wide', 'seq'", "'hidden', 'wide'", ""),
            "y:...dims...shares...x...order");
    refuses(EINSUM("'batch', 'seq', 'heads', 'kv'", "'heads', 'hidden', 'kv'", ""),
            "y:...dims...shares...weight...order");
    refuses(EINSUM("'batch', 'seq', 'wide'", "'hidden', 'vocab'", ""), "weight: \"vocab\"");
    refuses(EINSUM("'batch', 'seq', 'wide'", "'wide'", ""), "x: \"hidden\"");
    refuses(
        EINSUM("'hidden', 'seq', 'batch', 'wide'", "'wide', 'batch', 'seq', 'hidden'", ""),
        "y:...dims...three...order");
    refuses(EINSUM("'batch', 'seq', 'wide', 'hidden'", "'wide', 'hidden'", ""),
            "x:...last...three");
    refuses(
        "'kind': 'einsum', 'in': ['x', 'x'], 'out': 'y', 'dims': ['batch', 'seq', 'wide'],"
        " 'weight': {'dims': ['hidden', 'wide']}",
        "einsum takes either a second operand or a weight");
    refuses("'kind': 'einsum', 'in': ['x'], 'out': 'y', 'dims': ['batch', 'seq', 'wide']",
            "einsum takes either a second operand or a weight");
#define BIAS(out, weight, bias) EINSUM(out, weight, ", 'bias': {'dims': [" bias "]}")
    refuses(BIAS("'batch', 'seq', 'wide'", "'hidden', 'wide'", "'hidden'"),
            "bias:...dims...weight...y");
    refuses(BIAS("'wide', 'batch', 'seq'", "'hidden', 'wide'", "'wide'"),
            "bias:...dims...weight...y");
    refuses(BIAS("'batch', 'seq', 'wide'", "'seq', 'hidden', 'wide'", "'wide'"),
            "bias:...weight...shares dims...x...y");
#undef BIAS
#undef EINSUM
}

static void test_reshapes(void) {
    refuses("'kind': 'reshape', 'in': ['x'], 'out': 'y', 'dims': ['batch', 'seq', 'wide']",
            "y:...dims...elements");
    refuses(
        "'kind': 'reshape', 'in': ['x'], 'out': 'y', 'dims': ['seq', 'batch', 'hidden']",
        "y:...dims...elements");
    refuses(
        "'kind': 'reshape', 'in': ['x'], 'out': 'y', 'dims': ['batch', 'seq', 'one', 'rows']",
        "y:...dims...elements");
    refuses("'kind': 'reshape', 'in': ['x'], 'out': 'y', 'dims': ['batch', 'seq']",
            "y:...dims...elements");
}

/* Operands, attributes and parameters beside their dims. */
static void test_slots(void) {
    refuses("'kind': 'conv3d', 'in': ['x'], 'out': 'y', 'dims': []", "kind:...\"conv3d\"");
    refuses(
        "'kind': 'gelu', 'in': ['none?'], 'out': 'y', 'dims': ['batch', 'seq', 'hidden']",
        "in: gelu takes 1, got 0");
    refuses(
        "'kind': 'add', 'in': ['x', 'x', 'x'], 'out': 'y', 'dims': ['batch', 'seq', 'hidden']",
        "in: add takes 2, got 3");
    refuses("'kind': 'attention', 'in': ['x', 'x'], 'out': 'y', 'dims': ['batch']",
            "in[1]:...whole numbers...\"x\"...numbers");
    refuses("'kind': 'attention', 'in': ['x', 'x', 'x', 'x', 'x'], 'out': 'y', 'dims': []",
            "in: attention takes 4, got 5");
    refuses("'kind': 'attention', 'in': ['x', 'x', 'x', 'x'], 'out': 'y', 'dims': []",
            "in[3]:...whole numbers...\"x\"...numbers");
    refuses(
        "'kind': 'gelu', 'in': ['x', 'x'], 'out': 'y', 'dims': ['batch', 'seq', 'hidden']",
        "in: gelu takes 1, got 2");
    refuses("'kind': 'gelu', 'in': ['nowhere'], 'out': 'y', 'dims': ['batch']",
            "in[0]:...\"nowhere\" before");
    refuses("'kind': 'gelu', 'in': ['ids'], 'out': 'y', 'dims': ['batch', 'seq']",
            "in[0]:...numbers...\"ids\"...whole numbers");
    refuses("'kind': 'cross-entropy', 'in': ['x', 'x'], 'out': 'l', 'dims': []",
            "in[1]: cross-entropy...whole numbers...\"x\"...numbers");
    refuses("'kind': 'bias', 'in': ['x'], 'out': 'y', 'dims': ['batch', 'seq', 'hidden']",
            "weight: missing, bias");
    refuses("'kind': 'gelu', 'in': ['x'], 'out': 'y', 'dims': ['batch', 'seq', 'hidden'],"
            " 'weight': {'dims': ['hidden']}",
            "weight: unknown...\"weight\" (expected:...dims)");
    refuses("'kind': 'gelu', 'in': ['x'], 'out': 'y', 'dims': ['batch', 'seq', 'hidden'],"
            " 'rate': 0.5",
            "rate: unknown...\"rate\" (expected:...dims)");
    refuses("'kind': 'gelu', 'in': ['x'], 'out': 'y', 'dims': ['batch', 'seq', 'depth']",
            "dims[2]:...\"depth\"...defined");
    refuses("'kind': 'gelu', 'in': ['x'], 'out': 'y', 'dims': ['batch', 'seq', 'seq']",
            "dims[2]: \"seq\" appears twice");
    refuses("'kind': 'gelu', 'in': ['x'], 'out': 7, 'dims': ['batch', 'seq', 'hidden']",
            "out:...result");
    refuses(
        "'kind': 'dropout', 'in': ['x'], 'out': 'y', 'dims': ['batch', 'seq', 'hidden'],"
        " 'rate': 'big'",
        "rate:...0...1...1");
    refuses(
        "'kind': 'dropout', 'in': ['x'], 'out': 'y', 'dims': ['batch', 'seq', 'hidden'],"
        " 'rate': 'none'",
        "rate: expected a number or the name of a rate");
    refuses(
        "'kind': 'layernorm', 'in': ['x'], 'out': 'y', 'dims': ['batch', 'seq', 'hidden'],"
        " 'eps': -1, 'weight': {'dims': ['hidden']}, 'bias': {'dims': ['hidden']}",
        "eps:...0...1...-1");
    refuses("'kind': 'attention', 'in': ['x'], 'out': 'y', 'dims': ['batch'], 'causal': 1",
            "causal:...whole");
    refuses("'kind': 'attention', 'in': ['x'], 'out': 'y', 'dims': ['batch'], 'window': 4",
            "window: only causal attention");
    refuses("'kind': 'attention', 'in': ['x'], 'out': 'y', 'dims': ['batch'], 'softcap': 4,"
            " 'positions': {'dims': ['seq', 'hidden']}",
            "softcap: attention with positions");
}

static void test_parameters(void) {
#define BIAS(weight)                                                                       \
    "'kind': 'bias', 'in': ['x'], 'out': 'y', 'dims': ['batch', 'seq', 'hidden'],"         \
    " 'weight': {" weight "}"
    refuses(BIAS("'dims': ['hidden'], 'tie': 'last.weight'"),
            "weight.tie:...\"last.weight\" before");
    refuses(BIAS("'dims': ['hidden'], 'tie': 'first.weight'"),
            "weight.tie: \"first.weight\" has other dims");
    refuses(BIAS("'dims': ['hidden'], 'fan': 'seq-4'"), "weight.fan: 0 is not positive");
    refuses(BIAS("'dims': ['hidden'], 'std': 'none'"), "weight.std:");
    refuses(BIAS("'dims': ['hidden'], 'mean': 1"),
            "weight.mean: unknown...\"mean\" (expected: dims...tie when)");
    refuses(BIAS("'std': 1"), "weight.dims: missing (expected an array)");
#undef BIAS
}

/* The tables say of themselves what can be checked. */
static void test_table(void) {
    for (int i = 0; i < KIND_COUNT; i++) {
        const struct kind *k = kind_of((enum kind_id)i);
        int ranks[KIND_MAX_SLOTS];
        for (int s = 0; s < k->n_in; s++)
            ranks[s] = k->in[s].rank;
        int good = kind_form(kind_find(k->name), k->n_in, ranks) == (enum kind_id)i &&
                   k->n_in >= 1 && k->n_out >= 1 && k->n_in <= KIND_MAX_SLOTS &&
                   k->n_param <= KIND_MAX_SLOTS && k->n_out <= KIND_MAX_SLOTS;
        for (int a = 0; a < k->n_in; a++)
            for (int b = 0; b < k->n_param; b++)
                good &= strcmp(k->in[a].name, k->param[b].name) != 0;
        for (int a = 0; a < ATTR_COUNT; a++)
            good &= !k->has_attr[a] || k->needs_attr[a] ||
                    (k->attr[a] >= attr_info((enum attr)a)->least &&
                     k->attr[a] < attr_info((enum attr)a)->below);
        ok(good, "%s: found by its name, with slots and attributes within bounds", k->name);
    }
    const int unknown[7] = {-1, -1, -1, -1, -1, -1, -1};
    ok(kind_form(kind_find("attention"), 4, unknown) == kind_find("attention"),
       "operands that are not there: the first form that takes as many");
    ok(kind_form(kind_find("attention"), 7, unknown) == kind_find("attention"),
       "a number of operands that no form takes: the first form");
    ok(kind_find("") == KIND_COUNT && kind_find("Einsum") == KIND_COUNT, "no other names");
}

int main(void) {
    test_table();
    test_spaces();
    test_routing();
    test_routed();
    test_windows();
    test_attention();
    test_positions();
    test_patterns();
    test_products();
    test_reshapes();
    test_slots();
    test_parameters();
    return done_testing();
}
