/* weft-import - other people's descriptions of models as weft's, and what of them is trained.
 *
 *     weft-import config.json > model.json
 *     weft-import --freeze 'wte layer.0-5' gpt:gpt2 > model.json
 *     weft-import --lora 8:16 Qwen3-8B > model.json
 *     weft-import gpt.pt2 > model.json
 *     weft-import gpt.hlo > model.json
 *     weft-import gpt.onnx > model.json
 *     weft-import --weights gpt.safetensors gpt.onnx > model.json
 *     weft-import Qwen3-8B | weft-search -m /dev/stdin ...
 *
 * Nothing is executed of what is read, and weights are read only to write them. */
#include "common/file.h"
#include "common/opt.h"
#include "common/progress.h"
#include "import/archive.h"
#include "import/import.h"
#include "model/config.h"
#include "model/lora.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct {
    char *set;
    const char *freeze, *lora, *lora_on, *weights, *out;
} o = {.out = "-"};

static const struct opt options[] = {
    {0, "set", OPT_LIST, "LIST", "sizes changed: seq=4096,vocab=50304", &o.set},
    {0, "freeze", OPT_STR, "PATTERNS", "parameters that are not trained: 'wte layer.0-5'",
     &o.freeze},
    {0, "lora", OPT_STR, "RANK[:ALPHA]", "train adapters of this rank, and nothing else",
     &o.lora},
    {0, "lora-on", OPT_STR, "PATTERNS",
     "their places: 'layer.*.q layer.*.v' (all products in blocks)", &o.lora_on},
    {0, "weights", OPT_STR, "FILE", "write the weights of MODEL.onnx to FILE.safetensors",
     &o.weights},
    {'o', "output", OPT_STR, "FILE", "write to FILE instead of standard output", &o.out},
    {0}};

static const struct opt_tool tool = {
    "weft-import", "[options] CONFIG|PROGRAM.pt2|MODULE.hlo|MODEL.onnx|MODEL",
    "Turn a Hugging Face config.json, what torch.export wrote, an HLO module or ONNX into a model.",
    options};

/* The preset's numbers become those of the document, which then has no presets. */
static void take_preset(json_t *doc, const char *preset) {
    json_t *rates = json_object_get(doc, "rates"), *v;
    const char *key;
    json_object_foreach(json_object_get(json_object_get(doc, "presets"), preset), key, v) {
        const bool rate = json_object_get(rates, key);
        json_object_set(rate ? rates : json_object_get(doc, "sizes"), key, v);
    }
    json_object_del(doc, "presets");
    json_object_del(doc, "default");
}

/* The document, with the overrides put into its sizes and rates: they are checked by reading it. */
static int write_model(json_t *doc, struct err *err) {
    struct model *m = model_from_json(doc, NULL, o.set, err);
    if (!m)
        return -1;
    const double all = model_count_parameters(m, false);
    const double trained = model_count_parameters(m, true);
    char frozen[48] = "";
    if (trained < all)
        snprintf(frozen, sizeof frozen, ", %.0f of them trained", trained);
    note("weft-import: %s: %.0f parameters%s, %d ops in %d blocks", m->name, all, frozen,
         m->n_ops, m->n_blocks);
    take_preset(doc, m->preset);
    int rc = model_settle(doc, m->set, err);
    model_destroy(m);
    return rc < 0 ? -1 : json_write_file(doc, o.out, err);
}

static json_t *read_config(json_t *config, struct err *err) {
    const char *format = json_string_value(json_object_get(config, "format"));
    if (!config || config_is(config))
        return config ? config_to_model(config, err) : NULL;
    if (format && !strncmp(format, "weft-model/", 11))
        return json_incref(config);
    err_input(err, "expected a config.json, which has a \"model_type\", an archive of "
                   "torch.export, or a model");
    return NULL;
}

static void say(const json_t *notes) {
    for (size_t i = 0; i < json_array_size(notes); i++)
        note("weft-import: %s", json_string_value(json_array_get(notes, i)));
}

/* Text is for people: XLA prints it otherwise from version to version. */
static json_t *refuse_text(struct err *err) {
    err_input(err, "expected a serialized HLO module, got the text of one");
    err_hint(
        err,
        "write what as_serialized_hlo_module_proto() gives, as scripts/export-hlo.py does");
    return NULL;
}

/* Archives are mapped, since they may hold weights; what else there is, is read as a whole. */
static json_t *read_document(const char *path, struct err *err) {
    size_t size;
    json_t *notes = NULL, *config = NULL, *doc = NULL;
    bool in = !strcmp(path, "-"), archive = !in && archive_is(path);
    char *text = archive ? NULL : file_read(path, 0, &size, err);
    if (archive || (text && import_is_program(text, size) && !in))
        doc = import_exported(path, &notes, err);
    else if (text && import_is_program(text, size))
        doc = import_exported_bytes(text, (int64_t)size, "model", &notes, err);
    else if (text && (!strncmp(text, "HloModule ", 10) || !strncmp(text, "module @", 8)))
        doc = refuse_text(err);
    else if (text)
        doc = read_config(
            config = json_parse(text, size, in ? "standard input" : path, err), err);
    say(notes);
    json_decref(notes);
    json_decref(config);
    free(text);
    return doc;
}

/* Behind what the document has: the last pattern that covers a parameter counts. */
static void add_frozen(json_t *doc) {
    char *patterns = mem_strdup(o.freeze ? o.freeze : ""), *save;
    json_t *list = json_copy(json_object_get(doc, "frozen"));
    list = json_is_array(list) ? list : json_array();
    for (char *p = strtok_r(patterns, " ", &save); p; p = strtok_r(NULL, " ", &save))
        json_array_append_new(list, json_string(p));
    if (o.freeze)
        json_object_set(doc, "frozen", list);
    json_decref(list);
    free(patterns);
}

/* "8" or "8:16"; alpha is twice the rank where it is not given. */
static int read_lora(struct lora *spec, struct err *err) {
    char end;
    long long rank = 0, alpha = 0;
    int n = sscanf(o.lora, "%lld:%lld%c", &rank, &alpha, &end);
    alpha = n == 1 ? 2 * rank : alpha;
    if (n < 1 || n > 2 || rank < 1 || alpha < 1 || rank > 1 << 20 || alpha > 1 << 20 ||
        (n == 1 && strchr(o.lora, ':')))
        return err_usage(err, "--lora: expected RANK or RANK:ALPHA, got \"%.40s\"", o.lora);
    *spec = (struct lora){rank, alpha, o.lora_on};
    return 0;
}

/* What is trained of it. */
static int change(json_t *doc, struct err *err) {
    struct lora spec;
    if (o.lora_on && !o.lora)
        return err_usage(err, "--lora-on: expected --lora RANK as well");
    if (o.lora && (read_lora(&spec, err) < 0 || lora_add(doc, o.set, &spec, err) < 0))
        return -1;
    add_frozen(doc);
    return 0;
}

static int run(const char *path, struct err *err) {
    char file[PATH_MAX];
    struct stat st;
    bool there = stat(path, &st) == 0, in = !strcmp(path, "-");
    bool folder = there && S_ISDIR(st.st_mode);
    if (snprintf(file, sizeof file, "%s%s", path, folder ? "/config.json" : "") >=
        (int)sizeof file)
        return err_input(err, "%.64s: name too long", path);
    json_t *doc = in || there || strchr(path, '/') ? read_document(in ? "-" : file, err)
                                                   : model_document(path, err);
    int rc = doc ? change(doc, err) : -1;
    if (rc == 0 && o.weights)
        rc = in ? err_usage(err, "--weights: expected a file that is named")
                : import_weights(file, o.weights, err);
    if (rc == 0)
        rc = write_model(doc, err);
    json_decref(doc);
    return rc < 0 ? err_prefix(err, "%s", in ? "standard input" : file) : 0;
}

int main(int argc, char **argv) {
    struct err err = {0};
    int n = opt_parse(&tool, argc, argv, &err), rc = -1;
    if (n > 1)
        err_usage(&err, "expected one file, got %d operands", n);
    else if (n >= 0)
        rc = run(n ? argv[0] : "-", &err);
    free(o.set);
    return rc == 0 ? EXIT_DONE : err_report(&err, tool.name);
}
