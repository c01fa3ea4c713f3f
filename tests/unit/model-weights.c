/* Parameters in files of other programs: names, transposed, merged, packed and spread dims, sets of
 * files, types that widen, and every way in which a file can be wrong. */
#include "model/weights.h"

#include "model.h"

#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static struct err err;
static char dir[] = "/tmp/weft-weights-XXXXXX";

static const char *in_dir(const char *name) {
    static char path[4][128];
    static int i;
    snprintf(path[i = (i + 1) % 4], sizeof *path, "%s/%s", dir, name);
    return path[i];
}

static void put_text(const char *name, const char *text) {
    FILE *f = fopen(in_dir(name), "w");
    fputs(text, f);
    fclose(f);
}

/* Tensor i of a file has the values 1000 i, 1000 i + 1, ... */
static void put_file(const char *name, struct st_tensor *t, int n) {
    struct st_writer w;
    int64_t bytes;
    uint64_t hash;
    int bad = st_create(&w, in_dir(name), t, n, NULL, &err);
    for (int i = 0; i < n && !bad; i++)
        for (int64_t k = 0; k < t[i].bytes / 4 && !bad; k++)
            bad = st_append(&w, &(float){(float)(1000 * i + k)}, 4, &err);
    bad = bad || st_finish(&w, &bytes, &hash, &err);
    ok(!bad, "a file %s %s", name, err.msg);
}

/* Two blocks of three products, with `tensors` as the section says it. */
static struct model *blocks(const char *tensors) {
    char text[4096];
    snprintf(
        text, sizeof text,
        "{'format': 'weft-model/1', 'name': 'm', 'sizes': {'h': 4, 'a': 2, 'k': 3, 'e': 2, "
        "'tied': 0}, 'rates': {'drop': 0.5}, 'default': 'x', 'presets': {'x': {'h': 2}}, "
        "'inputs': {'x': {'dims': ['batch', 'h'], 'source': 'image'}, "
        "'l': {'dims': ['batch'], 'source': 'label'}}, 'ops': ["
        "{'name': 'b', 'repeat': 2, 'ops': ["
        "{'name': 'q', 'kind': 'einsum', 'in': ['x'], 'out': 'q', 'dims': ['batch', 'a', 'k'], "
        "'weight': {'dims': ['h', 'a', 'k']}},"
        "{'name': 'p', 'kind': 'einsum', 'in': ['x'], 'out': 'p', 'dims': ['batch', 'a', 'k'], "
        "'weight': {'dims': ['h', 'a', 'k']}},"
        "{'name': 's', 'kind': 'add', 'in': ['q', 'p'], 'out': 'q', 'dims': ['batch', 'a', 'k']},"
        "{'name': 'o', 'kind': 'einsum', 'in': ['q'], 'out': 'x', 'dims': ['batch', 'h'], "
        "'weight': {'dims': ['a', 'k', 'h']}}]},"
        "{'name': 'w', 'kind': 'einsum', 'in': ['x'], 'out': 'y', 'dims': ['batch', 'e', 'k'], "
        "'weight': {'dims': ['h', 'e', 'k']}},"
        "{'name': 'u', 'kind': 'einsum', 'in': ['y'], 'out': 'z', 'dims': ['batch', 'e'], "
        "'weight': {'dims': ['k']}},"
        "{'name': 'loss', 'kind': 'cross-entropy', 'in': ['z', 'l'], 'out': 'loss', "
        "'dims': []}]%s%s}",
        tensors ? ", 'weights': " : "", tensors ? tensors : "");
    struct model *m = model_of(text, NULL, &err);
    if (!m)
        printf("# %s\n", err.msg);
    return m;
}

/* q and p lie in one tensor, as parts of two behind its own dims, o is transposed, w lies in one
 * tensor for each e. */
static const char packed[] =
    "{'prefix': 'net.', 'ignore': ['*.mask'], 'tensors': {"
    "'b.*.q.weight': {'name': 'net.layer.*.qp', 'dims': ['h', '0/2 a k']}, "
    "'b.*.p.weight': {'name': 'net.layer.*.qp', 'dims': ['h', '1/2 a k']}, "
    "'b.*.o.weight': {'name': 'net.layer.*.o', 'dims': ['h', 'k a']}, "
    "'w.weight': {'name': 'net.w.{e}', 'dims': ['k', 'h']}, "
    "'u.weight': 'u'}, "
    "'config': {'h': '=h', 'twice': '=2*h', 'tied': '?tied', 'wide': '?h', 'drop': '=drop', "
    "'name': 'm', 'list': ['=h']}}";

static struct st_tensor tensors[] = {
    {.name = "layer.0.qp", .dims = 2, .shape = {2, 12}},
    {.name = "layer.1.qp", .dims = 2, .shape = {2, 12}},
    {.name = "layer.0.o", .dims = 2, .shape = {2, 6}},
    {.name = "layer.1.o", .dims = 2, .shape = {2, 6}},
    {.name = "w.0", .dims = 2, .shape = {3, 2}},
    {.name = "w.1", .dims = 2, .shape = {3, 2}},
    {.name = "u", .dims = 1, .shape = {3}},
    {.name = "layer.mask", .dims = 0},
};
enum { N_TENSORS = sizeof tensors / sizeof *tensors };

static int param_find(const struct model *m, const char *name) {
    for (int i = 0; i < m->n_params; i++)
        if (!strcmp(m->params[i].name, name))
            return i;
    return -1;
}

/* The element at[] of a parameter, read alone. */
static float element(const struct weight_file *f, const struct model *m, const char *name,
                     int64_t i, int64_t j, int64_t k) {
    int p = param_find(m, name);
    struct extents n = model_extents(m, &m->params[p].shape, 1);
    struct checkpoint_box box = {.dims = n.rank, .first = {i, j, k}, .size = {1, 1, 1}};
    memcpy(box.shape, n.size, sizeof box.shape);
    float out;
    weight_file_read(f, p, &box, &out);
    return out;
}

static void test_places(const struct model *m, const struct weights *w) {
    struct weight_file *f = weight_file_open(w, in_dir("a.safetensors"), &err);
    ok(!!f, "a file without the prefix opens %s", err.msg);
    if (!f)
        return;
    bool q = true, p = true, o = true, spread = true;
    for (int i = 0; i < 12; i++) {
        int h = i / 6, a = i / 3 % 2, k = i % 3;
        q &= element(f, m, "b.1.q.weight", h, a, k) == (float)(1000 + h * 12 + a * 3 + k);
        p &= element(f, m, "b.1.p.weight", h, a, k) ==
             (float)(1000 + h * 12 + 6 + a * 3 + k);
        o &= element(f, m, "b.0.o.weight", a, k, h) == (float)(2000 + h * 6 + k * 2 + a);
        spread &=
            element(f, m, "w.weight", h, a, k) == (float)(4000 + a * 1000 + k * 2 + h);
    }
    ok(q && p, "parts of a packed tensor");
    ok(o, "a transposed one with two dims as one");
    ok(spread, "a dim that stands in the name");
    int at = param_find(m, "w.weight");
    float out[8];
    struct checkpoint_box box = {3, {2, 2, 3}, {0, 0, 1}, {2, 2, 2}};
    weight_file_read(f, at, &box, out);
    bool all = true;
    for (int i = 0; i < 8; i++)
        all &=
            out[i] == element(f, m, "w.weight", box.first[0] + i / 4, i / 2 % 2, 1 + i % 2);
    ok(all, "a box over several tensors");
    weight_file_close(f);
}

/* Every element of every parameter is put where it is got from. */
static void test_round_trip(const struct model *m, const struct weights *w) {
    struct weight_file *f = weight_file_open(w, in_dir("a.safetensors"), &err);
    int wrong = 0, seen = 0;
    for (int t = 0; t < w->n_tensors && f; t++) {
        const struct weight_tensor *tensor = &w->tensors[t];
        float whole[64], part[64];
        int64_t n = 1;
        for (int d = 0; d < tensor->dims; d++)
            n *= tensor->shape[d];
        for (int i = 0; i < 64; i++)
            whole[i] = -1;
        for (int k = tensor->first_part; k < tensor->first_part + tensor->n_parts; k++) {
            int p = w->parts[k].param;
            struct checkpoint_box box = {.dims = w->forms[p].whole.dims};
            struct extents x = model_extents(m, &m->params[p].shape, 1);
            for (int d = 0; d < box.dims; d++)
                box.size[d] = box.shape[d] = x.size[d];
            if (w->forms[p].spread >= 0) {
                box.first[w->forms[p].spread] = w->parts[k].index;
                box.size[w->forms[p].spread] = 1;
            }
            weight_file_read(f, p, &box, part);
            st_view_put(whole, &w->forms[p].whole, part);
        }
        for (int64_t i = 0; i < n; i++, seen++)
            wrong += whole[i] < 0 || fmodf(whole[i], 1000) != (float)i;
    }
    ok(seen == 24 + 24 + 12 + 12 + 6 + 6 + 3 && wrong == 0,
       "written where they were read: %d elements, %d wrong", seen, wrong);
    weight_file_close(f);
}

static void refuses(const struct weights *w, const char *name, const char *text,
                    const char *what) {
    struct err e = {0};
    struct weight_file *f = weight_file_open(w, in_dir(name), &e);
    ok(!f && e.status == EXIT_INPUT && strstr(e.msg, text), "%s: %s", what,
       f ? "opens" : e.msg);
    weight_file_close(f);
}

/* The tensors with one changed: `dims` < 0 leaves it out. */
static void put_changed(const char *file, int which, const char *name, int dims,
                        int64_t size) {
    struct st_tensor t[N_TENSORS + 1];
    int n = 0;
    for (int i = 0; i < N_TENSORS; i++) {
        t[n] = tensors[i];
        if (i == which && dims < 0)
            continue;
        if (i == which) {
            t[n].name = name;
            t[n].dims = dims;
            t[n].shape[0] = size;
        }
        n++;
    }
    put_file(file, t, n);
}

static void test_refusals(const struct weights *w) {
    put_changed("missing.safetensors", 3, NULL, -1, 0);
    refuses(w, "missing.safetensors",
            "tensor \"net.layer.1.o\": missing; the model's b.1.o", "a tensor that misses");
    put_changed("shape.safetensors", 6, "u", 1, 4);
    refuses(w, "shape.safetensors", "tensor \"u\": shape [4], expected [3]",
            "another shape");
    put_changed("extra.safetensors", 7, "layer.2.o", 0, 0);
    refuses(w, "extra.safetensors", "tensor \"layer.2.o\": extra", "a tensor too many");
    ok(truncate(in_dir("shape.safetensors"), 700) == 0, "a file is cut");
    refuses(w, "shape.safetensors", "tensor \"", "a truncated file names the tensor");
    refuses(w, "none.safetensors", "No such file", "no file");
    refuses(w, "", "holds neither model.safetensors nor", "a folder without weights");
}

static void test_set(const struct weights *w) {
    put_file("one.safetensors", tensors, 4);
    put_file("two.safetensors", tensors + 4, 4);
    static const char map[] = "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {"
                              "\"layer.0.qp\": \"one.safetensors\", \"%s\": \"%s\"}}";
    char text[256];
    snprintf(text, sizeof text, map, "w.1", "two.safetensors");
    put_text("model.safetensors.index.json", text);
    struct weight_file *f = weight_file_open(w, dir, &err);
    ok(!!f, "a folder with two files and an index %s", err.msg);
    struct weight_file *g =
        weight_file_open(w, in_dir("model.safetensors.index.json"), &err);
    ok(g && weight_file_hash(f) == weight_file_hash(g), "the index itself is the same %s",
       err.msg);
    weight_file_close(f);
    weight_file_close(g);
    snprintf(text, sizeof text, map, "w.1", "one.safetensors");
    put_text("model.safetensors.index.json", text);
    refuses(w, "", "tensor \"w.1\": is not in one.safetensors",
            "an index that lacks a file");
    snprintf(text, sizeof text, map, "w.0", "../two.safetensors");
    put_text("model.safetensors.index.json", text);
    refuses(w, "", "tensor \"w.0\": expected a file beside the index", "a file elsewhere");
    snprintf(text, sizeof text, map, "layer.1.o", "two.safetensors");
    put_text("model.safetensors.index.json", text);
    refuses(w, "", "tensor \"layer.1.o\": is not in two.safetensors", "a wrong entry");
    put_file("two.safetensors", tensors + 3, 5);
    refuses(w, "", "tensor \"layer.1.o\": is in", "a tensor in two files");
    put_text("model.safetensors.index.json", "{\"weight_map\": {}}");
    refuses(w, "", "weight_map: is empty", "an empty index");
}

/* Values of 16 bits that say each of their parts. */
static void test_types(void) {
    static const struct {
        uint16_t f16;
        float value;
    } halves[] = {
        {0x3c00, 1},     {0xc000, -2},        {0x0001, 0x1p-24F}, {0x83ff, -0x1.ff8p-15F},
        {0x7bff, 65504}, {0x7c00, HUGE_VALF}, {0x8000, -0.0F}};
    unsigned char bytes[sizeof halves / sizeof *halves * 2 + 1]; /* odd: not aligned */
    int n = sizeof halves / sizeof *halves;
    for (int i = 0; i < n; i++)
        memcpy(bytes + 1 + 2 * i, &halves[i].f16, 2);
    struct st_file file = {.bytes = bytes + 1};
    struct st_tensor t = {.dtype = ST_F16};
    struct st_entry e = {&t, &file, ""};
    struct st_view v = {.dims = 1, .size = {n}, .stride = {1}};
    float out[16];
    bool good = true;
    st_view_get(&e, &v, out);
    for (int i = 0; i < n; i++)
        good &= out[i] == halves[i].value && !signbit(out[i]) == !signbit(halves[i].value);
    ok(good, "F16 widens, subnormal numbers and infinity too");
    memcpy(bytes + 1, (uint16_t[]){0x3f80, 0xc049, 0x7fc0}, 6);
    t.dtype = ST_BF16;
    v.size[0] = 3;
    st_view_get(&e, &v, out);
    ok(out[0] == 1 && out[1] == -3.140625F && isnan(out[2]), "BF16 widens");
    ok(!st_widens(ST_F64) && !st_widens(ST_I32), "other types do not");
}

static void test_config(struct model *m) {
    json_t *c = weights_config(m, &err);
    json_t *want = json_of("{'h': 2, 'twice': 4, 'tied': false, 'wide': true, 'drop': 0.5, "
                           "'name': 'm', 'list': ['=h']}",
                           &err);
    ok(json_equal(c, want), "the config has the sizes put in %s", err.msg);
    json_decref(c);
    json_decref(want);
}

static void bad_section(const char *section, const char *text, const char *what) {
    err = (struct err){0};
    struct model *m = blocks(section);
    struct weights *w = m ? weights_of(m, &err) : NULL;
    ok(!w && err.status == EXIT_INPUT && strstr(err.msg, text), "%s: %s", what, err.msg);
    weights_destroy(w);
    model_destroy(m);
}

#define REST                                                                               \
    "'b.*.o.weight': 'o.*', 'b.*.p.weight': 'p.*', 'w.weight': 'w', 'u.weight': 'u'}}"
static void test_sections(void) {
    bad_section("{'tensors': {'u.weight': 'u'}}", "nothing covers b.0.q.weight",
                "a parameter without a name");
    bad_section("{'tensors': {'b.*.q.weight': 'q.*', 'b.0.*.weight': 'z.*', " REST,
                "both cover b.0.q.weight", "two patterns");
    bad_section("{'tensors': {'b.*.q.weight': 'q', " REST, "have elements of q in common",
                "two parameters in one place");
    bad_section(
        "{'tensors': {'b.*.q.weight': {'name': 'q.*', 'dims': ['h', '0/2 a k']}, " REST,
        "hold 12 of 24", "a part alone");
    bad_section("{'tensors': {'b.*.q.weight': {'name': 'q.*', 'dims': ['h', 'a']}, " REST,
                "lacks \"k\"", "a dim left out");
    bad_section(
        "{'tensors': {'b.*.q.weight': {'name': 'q.*', 'dims': ['h h', 'a k']}, " REST,
        "\"h\" appears twice", "a dim twice");
    bad_section("{'tensors': {'b.*.q.weight': {'name': 'q.*', 'dims': ['z']}, " REST,
                "no dim \"z\"", "an unknown dim");
    bad_section(
        "{'tensors': {'b.*.q.weight': {'name': 'q.*', 'dims': ['2/2 h a k']}, " REST,
        "a part such as 0/3", "a part beyond the last");
    bad_section("{'tensors': {'b.*.q.weight': 'q.*.*', " REST, "more stars",
                "more stars than the pattern has");
    bad_section("{'tensors': {'b.*.q.weight': 'q.{h', " REST, "one dim in {}",
                "half a bracket");
    bad_section("{'tensors': {'b.*.q.weight': 3, " REST,
                "weights.tensors.b.*.q.weight: expected a name or an object",
                "a number for a name");
    bad_section("{'tensors': {}, 'tensor': 1}", "weights", "an unknown key");
    bad_section("{'ignore': [1], 'tensors': {}}", "ignore[0]", "a number to ignore");
}

/* Without the section a model has its own names and shapes. */
static void test_plain(void) {
    err = (struct err){0};
    struct model *m = blocks(NULL);
    struct weights *w = weights_of(m, &err);
    ok(w && w->n_tensors == m->n_params, "a model without the section has its own names %s",
       err.msg);
    ok(w && w->tensors[0].dims == 3 && !strcmp(w->tensors[0].name, "b.0.q.weight"),
       "and its own dims");
    ok(!weights_config(m, &err), "and no config");
    weights_destroy(w);
    model_destroy(m);
}

static void test_shipped(void) {
    static const char *const refs[] = {"gpt:gpt2",  "gpt:350M", "mlp",     "gpt-qkv:gpt2",
                                       "llama:70B", "llama:7B", "t5:770M", "mixtral:8x22B"};
    for (size_t i = 0; i < sizeof refs / sizeof *refs; i++) {
        struct model *m = model_load(refs[i], NULL, &err);
        struct weights *w = m ? weights_of(m, &err) : NULL;
        ok(!!w, "%s has a place for each parameter %s", refs[i], err.msg);
        weights_destroy(w);
        model_destroy(m);
    }
}

int main(void) {
    ok(!!mkdtemp(dir), "a folder");
    struct model *m = blocks(packed);
    struct weights *w = m ? weights_of(m, &err) : NULL;
    ok(!!w, "the section is read %s", err.msg);
    if (w) {
        put_file("a.safetensors", tensors, N_TENSORS);
        test_places(m, w);
        test_round_trip(m, w);
        test_refusals(w);
        test_set(w);
        test_config(m);
    }
    test_types();
    test_sections();
    test_plain();
    test_shipped();
    weights_destroy(w);
    model_destroy(m);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command) || done_testing();
}
