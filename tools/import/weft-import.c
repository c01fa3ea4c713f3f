/* weft-import - other people's descriptions of models as weft's.
 *
 *     weft-import config.json > model.json
 *     weft-import gpt.pt2 > model.json
 *     weft-import gpt.hlo > model.json
 *     weft-import Qwen3-8B | weft-search -m /dev/stdin ...
 *
 * Nothing is executed of what is read, and no weights are. */
#include "common/file.h"
#include "common/opt.h"
#include "common/progress.h"
#include "import/archive.h"
#include "import/import.h"
#include "model/config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct {
    char *set;
    const char *out;
} o = {.out = "-"};

static const struct opt options[] = {
    {0, "set", OPT_LIST, "LIST", "sizes changed: seq=4096,vocab=50304", &o.set},
    {'o', "output", OPT_STR, "FILE", "write to FILE instead of standard output", &o.out},
    {0}};

static const struct opt_tool tool = {
    "weft-import", "[options] CONFIG|PROGRAM.pt2|MODULE.hlo",
    "Turn a Hugging Face config.json, what torch.export wrote, or an HLO module into a model.",
    options};

static double count_parameters(const struct model *m) {
    double n = 0;
    for (int p = 0; p < m->n_params; p++) {
        struct extents x = model_extents(m, &m->params[p].shape, 1);
        n += m->params[p].running ? 0 : (double)extents_count(&x);
    }
    return n;
}

/* The document, with the overrides put into its sizes and rates: they are checked by reading it. */
static int write_model(json_t *doc, struct err *err) {
    struct model *m = model_from_json(doc, NULL, o.set, err);
    if (!m)
        return -1;
    note("weft-import: %s: %.0f parameters, %d ops in %d blocks", m->name,
         count_parameters(m), m->n_ops, m->n_blocks);
    int rc = model_settle(doc, m->set, err);
    model_destroy(m);
    return rc < 0 ? -1 : json_write_file(doc, o.out, err);
}

static json_t *read_config(json_t *config, struct err *err) {
    if (!config || config_is(config))
        return config ? config_to_model(config, err) : NULL;
    err_input(err, "expected a config.json, which has a \"model_type\", or an archive of "
                   "torch.export");
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

static int run(const char *path, struct err *err) {
    char file[PATH_MAX];
    struct stat st;
    bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode), in = !strcmp(path, "-");
    if (snprintf(file, sizeof file, "%s%s", path, folder ? "/config.json" : "") >=
        (int)sizeof file)
        return err_input(err, "%.64s: name too long", path);
    json_t *doc = read_document(in ? "-" : file, err);
    int rc = doc ? write_model(doc, err) : -1;
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
