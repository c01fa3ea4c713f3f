/* Placements from layouts, boxes, and the layouts that are refused. */
#include "placement-text.h"
#include "plan/placement.h"
#include "tap.h"

#include <string.h>

/* x[batch seq heads kv] -> merge -> [batch seq hidden] -> fc -> [batch seq ffn] */
static const char model_text[] =
    "{\"format\": \"weft-model/1\", \"name\": \"m\","
    " \"sizes\": {\"pixels\": 12, \"heads\": 4, \"kv\": 3, \"hidden\": 12, \"ffn\": 8,"
    "             \"classes\": 5},"
    " \"inputs\": {\"image\": {\"dims\": [\"batch\", \"pixels\"], \"source\": \"image\"},"
    "              \"labels\": {\"dims\": [\"batch\"], \"source\": \"label\"}},"
    " \"ops\": ["
    "  {\"name\": \"split\", \"kind\": \"reshape\", \"in\": [\"image\"], \"out\": \"h\","
    "   \"dims\": [\"batch\", \"heads\", \"kv\"]},"
    "  {\"name\": \"merge\", \"kind\": \"reshape\", \"in\": [\"h\"], \"out\": \"h\","
    "   \"dims\": [\"batch\", \"hidden\"]},"
    "  {\"name\": \"norm\", \"kind\": \"layernorm\", \"in\": [\"h\"], \"out\": \"h\","
    "   \"dims\": [\"batch\", \"hidden\"], \"weight\": {\"dims\": [\"hidden\"]},"
    "   \"bias\": {\"dims\": [\"hidden\"]}},"
    "  {\"name\": \"fc\", \"kind\": \"einsum\", \"in\": [\"h\"], \"out\": \"h\","
    "   \"dims\": [\"batch\", \"ffn\"], \"weight\": {\"dims\": [\"hidden\", \"ffn\"]}},"
    "  {\"name\": \"head\", \"kind\": \"einsum\", \"in\": [\"h\"], \"out\": \"h\","
    "   \"dims\": [\"batch\", \"classes\"], \"weight\": {\"dims\": [\"ffn\", \"classes\"]}},"
    "  {\"name\": \"loss\", \"kind\": \"cross-entropy\", \"in\": [\"h\", \"labels\"],"
    "   \"out\": \"l\", \"dims\": []}]}";

static struct model *m;

static const struct model_op *op_named(const char *name) {
    for (int i = 0; i < m->n_ops; i++)
        if (!strcmp(m->ops[i].name, name))
            return &m->ops[i];
    ok(0, "the model has no op %s", name);
    return m->ops;
}

static struct mesh mesh_of(const char *text) {
    struct mesh mesh;
    struct err err = {0};
    if (mesh_parse(text, 64, &mesh, &err) < 0)
        ok(0, "%s", err.msg);
    return mesh;
}

/* One dim per axis of the mesh, "-" for none: "batch - ffn". */
static struct layout layout_of(const struct model_op *op, const char *text) {
    struct layout l;
    memset(&l, PLACE_NONE, sizeof l);
    char name[64];
    for (int a = 0, n; sscanf(text, "%63s%n", name, &n) == 1; a++, text += n)
        if (strcmp(name, "-") != 0)
            l.dim[a] = (int8_t)op_space_find(&op->space, model_dim_find(m, name));
    return l;
}

/* ---- the rules --------------------------------------------------------------------------- */

static void placed(const char *op_name, const char *mesh_text, const char *layout,
                   const char *operand, const char *weight, const char *result,
                   const char *wanted) {
    const struct model_op *op = op_named(op_name);
    struct mesh mesh = mesh_of(mesh_text);
    struct layout l = layout_of(op, layout);
    char got[4][128] = {"", "", "", ""};
    const struct shape *in = &m->tensors[op->in[0]].shape,
                       *out = &m->tensors[op->out[0]].shape;
    placement_format(m, in, &mesh, placement_operand(&mesh, &l, op->in_map), got[0],
                     sizeof *got);
    if (op->n_param)
        placement_format(m, &m->params[op->param[0]].shape, &mesh,
                         placement_operand(&mesh, &l, op->param_map), got[1], sizeof *got);
    placement_format(m, out, &mesh, placement_result(&mesh, &l, op->out_map), got[2],
                     sizeof *got);
    placement_format(m, out, &mesh, placement_operand(&mesh, &l, op->out_map), got[3],
                     sizeof *got);
    ok(!strcmp(got[0], operand) && !strcmp(got[1], weight) && !strcmp(got[2], result) &&
           !strcmp(got[3], wanted),
       "%s on %s, split by %s: operand %s, weight %s, result %s, its gradient %s", op_name,
       mesh_text, layout, got[0], got[1], got[2], got[3]);
}

static void test_rules(void) {
    placed("fc", "a:2", "batch", "[a:batch]", "[a:=]", "[a:batch]", "[a:batch]");
    placed("fc", "a:2", "ffn", "[a:=]", "[a:ffn]", "[a:ffn]", "[a:ffn]");
    placed("fc", "a:2", "hidden", "[a:hidden]", "[a:hidden]", "[a:+]", "[a:=]");
    placed("fc", "a:2 b:2", "- hidden", "[a:= b:hidden]", "[a:= b:hidden]", "[a:= b:+]",
           "[a:= b:=]");
    placed("fc", "a:1 b:2", "batch hidden", "[a:= b:hidden]", "[a:= b:hidden]", "[a:= b:+]",
           "[a:= b:=]");
    placed("merge", "a:2 b:2", "hidden heads", "[a:heads b:heads]", "",
           "[a:hidden b:hidden]", "[a:hidden b:hidden]");
    placed("loss", "a:2", "batch", "[a:batch]", "", "[a:+]", "[a:=]");
}

/* Fewer heads of keys than of queries, all axes of the mesh over heads: keys as operand, as gradient. */
static void keys_placed(const struct model *attend, const char *mesh_text,
                        const char *operand, const char *gradient) {
    const struct model_op *op = attend->ops;
    while (strcmp(op->name, "self") != 0)
        op++;
    struct mesh mesh = mesh_of(mesh_text);
    struct layout l;
    char got[2][128];
    struct err err = {0};
    memset(&l, PLACE_NONE, sizeof l);
    for (int a = 0; a < mesh.n_axes; a++)
        l.dim[a] = (int8_t)op_space_find(&op->space, model_dim_find(attend, "heads"));
    const struct shape *keys = &attend->tensors[op->in[1]].shape;
    placement_format(attend, keys, &mesh, placement_operand(&mesh, &l, &op->in_map[1]),
                     got[0], sizeof *got);
    placement_format(attend, keys, &mesh, placement_result(&mesh, &l, &op->in_map[1]),
                     got[1], sizeof *got);
    ok(layout_check(attend, op, &mesh, &l, 4, &err) == 0 && !strcmp(got[0], operand) &&
           !strcmp(got[1], gradient),
       "heads split by %s: keys %s, their gradient %s %s", mesh_text, got[0], got[1],
       err.msg);
}

/* Axes that split the queries cut the keys too, where these go round: as operand and as gradient. */
static void ring_placed(const struct model *attend, const char *name, const char *mesh_text,
                        int operand, const char *want) {
    const struct model_op *op = attend->ops;
    while (strcmp(op->name, name) != 0)
        op++;
    struct mesh mesh = mesh_of(mesh_text);
    struct layout l;
    struct err err = {0};
    memset(&l, PLACE_NONE, sizeof l);
    l.ring = (int8_t)layout_ring(&op->space);
    l.dim[0] = (int8_t)op_space_find(&op->space, model_dim_find(attend, "seq"));
    l.dim[1] = (int8_t)op_space_find(&op->space, model_dim_find(attend, "heads"));
    l.dim[2] = l.dim[0];
    const struct axis_map *map = &op->in_map[operand];
    struct placement p = placement_operand(&mesh, &l, map);
    char got[128];
    placement_format(attend, &attend->tensors[op->in[operand]].shape, &mesh, p, got,
                     sizeof got);
    bool good = layout_check(attend, op, &mesh, &l, 4, &err) == 0;
    ok(!strcmp(good ? got : err.msg, want) &&
           placement_equal(p, placement_result(&mesh, &l, map)),
       "a ring of %s on %s: operand %d %s %s", name, mesh_text, operand, got, err.msg);
}

static void test_ring(void) {
    struct err err = {0};
    struct model *attend = model_load("./tests/models/attend.json", "kv_heads=4", &err);
    ok(attend != NULL, "a model of attention %s", err.msg);
    if (!attend)
        return;
    ring_placed(attend, "self", "a:2 b:2 c:4", 0, "[a:seq b:heads c:seq]");
    ring_placed(attend, "self", "a:2 b:2 c:4", 1, "[a:seq b:kv_heads c:seq]");
    ring_placed(attend, "cross", "a:2 b:2 c:2", 2, "[a:other b:heads c:other]");
    ring_placed(attend, "cross", "a:1 b:2 c:4", 1, "[a:= b:heads c:other]");
    ring_placed(attend, "cross", "a:8 b:1 c:1", 1,
                "layout: axis a (8) does not divide other (12) of cross");
    ok(layout_ring(&attend->ops[0].space) == PLACE_NONE,
       "an embedding has nothing to send");
    model_destroy(attend);
}

/* An axis that does not divide the heads of keys leaves them whole, and so do those inside it. */
static void test_groups(void) {
    struct err err = {0};
    struct model *attend =
        model_load("./tests/models/attend.json", "heads=24,kv_heads=6", &err);
    ok(attend != NULL, "a model with grouped heads %s", err.msg);
    if (!attend)
        return;
    keys_placed(attend, "a:2", "[a:kv_heads]", "[a:kv_heads]");
    keys_placed(attend, "a:2 b:3", "[a:kv_heads b:kv_heads]", "[a:kv_heads b:kv_heads]");
    keys_placed(attend, "a:4", "[a:=]", "[a:+]");
    keys_placed(attend, "a:3 b:4", "[a:kv_heads b:=]", "[a:kv_heads b:+]");
    keys_placed(attend, "a:4 b:2", "[a:= b:=]", "[a:+ b:+]");
    keys_placed(attend, "a:1 b:6", "[a:= b:kv_heads]", "[a:= b:kv_heads]");
    model_destroy(attend);
}

/* ---- boxes ------------------------------------------------------------------------------- */

static void test_boxes(void) {
    struct mesh mesh = mesh_of("a:2 b:3 c:2");
    struct extents x = {2, {12, 8}};
    struct placement p = placement_replicate();
    p.at[0] = 0;
    p.at[1] = 0;
    p.at[2] = 1;
    char seen[12][8] = {{0}};
    bool once = true, equal = true;
    for (int r = 0; r < 12; r++) {
        int coord[MESH_MAX_AXES];
        mesh_coords(&mesh, r, coord);
        struct box b = placement_box(&mesh, &x, p, coord);
        equal &= b.size[0] * b.size[1] == placement_elements(&mesh, &x, p) &&
                 b.size[0] == placement_size(&mesh, &x, p, 0) &&
                 b.size[1] == placement_size(&mesh, &x, p, 1);
        for (int64_t i = 0; i < b.size[0]; i++)
            for (int64_t j = 0; j < b.size[1]; j++)
                once &= !seen[b.first[0] + i][b.first[1] + j]++;
    }
    ok(once && equal, "the boxes of all ranks cover the tensor, each element once");
    int coord[MESH_MAX_AXES] = {1, 2, 0};
    ok(placement_box(&mesh, &x, p, coord).first[0] == 10,
       "the outer axis takes the coarser cut");
    ok(placement_axes(&mesh, p, 0) == 3 && placement_sharded_axes(&mesh, p) == 7,
       "axes of a placement");
    struct layout l = {{0, 1, 0, -1, -1, -1}, PLACE_NONE};
    ok(layout_size(&mesh, &l, 0, 24) == 6 && layout_size(&mesh, &l, 1, 24) == 8 &&
           layout_size(&mesh, &l, 2, 24) == 24,
       "local sizes of an op's dims");
}

/* ---- placements made from others --------------------------------------------------------- */

static void test_resolve(void) {
    struct mesh mesh = mesh_of("a:4 b:2 c:1 d:3");
    struct extents x = {2, {6, 8}};
    struct placement p = placement_replicate();
    p.at[0] = PLACE_PARTIAL;
    p.at[3] = PLACE_PARTIAL;
    struct placement q = placement_resolve(&mesh, &x, p);
    ok(q.at[0] == 1 && q.at[1] == PLACE_REPLICATE && q.at[3] == 0,
       "a sum is scattered to the first axis that the mesh axis divides");
    q = placement_scatter(&mesh, &x, p);
    ok(q.at[0] == 1 && q.at[1] == 0 && q.at[2] == PLACE_REPLICATE && q.at[3] == 0,
       "ZeRO splits what is replicated too, but not over one device");
    mesh = mesh_of("a:3 b:2");
    x = (struct extents){2, {8, 18}};
    q = placement_scatter(&mesh, &x, placement_replicate());
    ok(q.at[0] == 1 && q.at[1] == 1, "on one axis of the tensor where that can be");
    x.size[1] = 3;
    q = placement_scatter(&mesh, &x, placement_replicate());
    ok(q.at[0] == 1 && q.at[1] == 0, "else each mesh axis on the first that it divides");
    mesh = mesh_of("a:4 b:2 c:1 d:3");
    x = (struct extents){2, {6, 8}};
    p.at[1] = 0; /* inside axis a: a cannot split here any more */
    x.size[1] = 5;
    ok(placement_resolve(&mesh, &x, p).at[0] == PLACE_REPLICATE,
       "where nothing can be split the sum is reduced whole");
}

/* ---- legal layouts ----------------------------------------------------------------------- */

static void checked(const char *op_name, const char *mesh_text, const char *layout,
                    int64_t batch, const char *want) {
    const struct model_op *op = op_named(op_name);
    struct mesh mesh = mesh_of(mesh_text);
    struct layout l = layout_of(op, layout);
    struct err err = {0};
    int rc = layout_check(m, op, &mesh, &l, batch, &err);
    ok(want ? rc < 0 && !strcmp(err.msg, want) : rc == 0, "%s on %s, split by %s: %s",
       op_name, mesh_text, layout, rc < 0 ? err.msg : "legal");
}

static void test_checks(void) {
    checked("fc", "a:2 b:2", "ffn ffn", 8, NULL);
    checked("fc", "a:1", "ffn", 8, NULL);
    checked("fc", "a:3", "batch", 8, "layout: axis a (3) does not divide batch (8) of fc");
    checked(
        "fc", "a:2 b:8", "ffn ffn", 8,
        "layout: axis b (8) does not divide what the axes before it leave of ffn (4 of 8) "
        "of fc");
    /* hidden is 12, but only its outer part, the 4 heads, can be split */
    checked("merge", "a:4", "hidden", 8, NULL);
    checked("merge", "a:3", "hidden", 8,
            "layout: axis a (3) does not divide heads (4) of merge");
    struct layout l;
    struct mesh mesh = mesh_of("a:2");
    struct model_op op = *op_named("fc");
    struct err err = {0};
    memset(&l, PLACE_NONE, sizeof l);
    l.dim[0] = 1;
    op.space.role[1] = ROLE_whole;
    ok(layout_check(m, &op, &mesh, &l, 8, &err) < 0 &&
           strstr(err.msg, "cannot be split on dim"),
       "a dim that is whole: %s", err.msg);
}

int main(void) {
    struct err err = {0};
    json_t *doc = json_parse(model_text, strlen(model_text), "model", &err);
    m = model_from_json(doc, NULL, NULL, &err);
    json_decref(doc);
    if (!m) {
        ok(0, "%s", err.msg);
        return done_testing();
    }
    test_rules();
    test_groups();
    test_ring();
    test_boxes();
    test_resolve();
    test_checks();
    model_destroy(m);
    return done_testing();
}
