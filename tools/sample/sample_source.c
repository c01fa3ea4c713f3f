/* A model with its parameters: out of a checkpoint, or of a folder as Hugging Face has them. */
#include "sample.h"

#include "model/config.h"
#include "model/saved.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- opening ------------------------------------------------------------------------------ */

static bool ends_in(const char *path, const char *end) {
    size_t n = strlen(path), k = strlen(end);
    return n > k && !strcmp(path + n - k, end);
}

/* The config.json in a folder, or beside a file; false where there is none. */
static bool find_config(const char *path, char *file, size_t size) {
    struct stat st;
    const bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    const char *slash = strrchr(path, '/');
    const int stem = folder ? (int)strlen(path) : slash ? (int)(slash - path) : 0;
    snprintf(file, size, "%.*s%sconfig.json", stem, path, folder || slash ? "/" : "./");
    return access(file, R_OK) == 0;
}

static int open_weights(struct sample_source *s, const struct sample_options *o,
                        const char *path, const char *config, struct err *err) {
    const char *ref = o->model ? o->model : config;
    if (!ref) {
        opt_missing("-m MODEL", err);
        return err_hint(err, "no config.json beside %.200s says what model it is", path);
    }
    if (!(s->model = model_load(ref, o->set, err)))
        return -1;
    json_t *doc = config && o->model ? json_read(config, err) : json_object();
    int rc = !doc ? -1 : json_object_size(doc) ? config_check(s->model, doc, err) : 0;
    json_decref(doc);
    if (rc < 0)
        return err_prefix(err, "%s", config);
    s->weights = weights_of(s->model, err);
    s->file = s->weights ? weight_file_open(s->weights, path, err) : NULL;
    return s->file ? 0 : -1;
}

static int open_checkpoint(struct sample_source *s, const struct sample_options *o,
                           const char *path, struct err *err) {
    if (checkpoint_open(&s->ck, path, err) < 0)
        return -1;
    struct bulk_way way = {.threads = 2}; /* one reads, the other hashes */
    s->model = model_of_checkpoint(s->ck, o->model, o->set, err);
    return s->model ? checkpoint_verify(s->ck, 0, 1, &way, err) : -1;
}

int source_open(struct sample_source *s, const struct sample_options *o, const char *path,
                struct err *err) {
    char config[PATH_MAX + 16];
    *s = (struct sample_source){0};
    const bool found = find_config(path, config, sizeof config);
    if (found || ends_in(path, ".safetensors") || ends_in(path, ".index.json"))
        return open_weights(s, o, path, found ? config : NULL, err);
    return open_checkpoint(s, o, path, err);
}

void source_close(struct sample_source *s) {
    checkpoint_close(s->ck);
    weight_file_close(s->file);
    weights_destroy(s->weights);
    model_destroy(s->model);
}

/* ---- the model ---------------------------------------------------------------------------- */

int64_t source_vocab(const struct sample_source *s) {
    const struct model *m = s->model;
    for (int i = 0; i < m->n_ops; i++)
        if (op_targets(&m->ops[i]) >= 0) {
            const struct shape *logits = &m->tensors[m->ops[i].in[0]].shape;
            return m->dims[logits->dim[logits->rank - 1]].size;
        }
    return 0;
}

/* The dim of the sequence of an input that has one of these sources, or -1. */
static int dim_of(const struct model *m, enum data_source a, enum data_source b) {
    for (int i = 0; i < m->n_tensors; i++) {
        const struct model_tensor *t = &m->tensors[i];
        if (t->producer < 0 && (t->source == a || t->source == b))
            return t->shape.dim[1];
    }
    return -1;
}

static int written(const struct model *m) {
    return dim_of(m, DATA_TOKEN, DATA_SHIFTED_TARGET);
}

bool source_encodes(const struct sample_source *s) {
    return dim_of(s->model, DATA_INPUT, DATA_INPUT) >= 0;
}

static bool some_param_has(const struct model *m, int dim) {
    for (int p = 0; p < m->n_params; p++)
        for (int d = 0; d < m->params[p].shape.rank; d++)
            if (m->params[p].shape.dim[d] == dim)
                return true;
    return false;
}

/* The model's own overrides but for those of these two names; fresh. */
static char *other_settings(const char *set, const char *a, const char *b) {
    char *out = mem_alloc(strlen(set) + 1), *copy = mem_strdup(set), *save;
    for (char *p = strtok_r(copy, ",", &save); p; p = strtok_r(NULL, ",", &save)) {
        const size_t n = strcspn(p, "=");
        if ((strlen(a) == n && !strncmp(p, a, n)) || (strlen(b) == n && !strncmp(p, b, n)))
            continue;
        sprintf(out + strlen(out), "%s%s", *out ? "," : "", p);
    }
    free(copy);
    return out;
}

/* The same model with shorter sequences; where its document has no such sizes, it stays as it is.
 * What is computed of a position does not depend on those behind it. */
static void shorten(struct sample_source *s, int dims[2], const int64_t sizes[2]) {
    struct model *m = s->model;
    const char *names[2] = {dims[0] >= 0 ? m->dims[dims[0]].name : "",
                            dims[1] >= 0 ? m->dims[dims[1]].name : ""};
    char *set = other_settings(m->set, names[0], names[1]);
    const size_t room = strlen(set) + strlen(names[0]) + strlen(names[1]) + 64;
    set = mem_grow(set, room, 1);
    for (int i = 0; i < 2; i++)
        if (dims[i] >= 0)
            snprintf(set + strlen(set), room - strlen(set), "%s%s=%lld", *set ? "," : "",
                     names[i], (long long)sizes[i]);
    struct model *shorter = model_from_json(m->doc, m->preset, set, NULL);
    free(set);
    if (!shorter)
        return;
    if (s->file) { /* parameters are the same, and so are their numbers */
        s->weights->model = shorter;
    }
    model_destroy(m);
    s->model = shorter;
}

static int64_t rounded(int64_t n, int64_t most) {
    enum { STEP = 64 };
    n = (n + STEP - 1) / STEP * STEP;
    return n < most ? n : most;
}

int source_fit(struct sample_source *s, int64_t tokens, int64_t input, struct err *err) {
    const struct model *m = s->model;
    int dims[2] = {written(m), dim_of(m, DATA_INPUT, DATA_INPUT)};
    int64_t sizes[2] = {tokens, input};
    bool less = false;
    for (int i = 0; i < 2; i++) {
        if (dims[i] < 0)
            continue;
        const int64_t has = m->dims[dims[i]].size;
        if (sizes[i] > has)
            return err_input(err, "%s: %lld positions are wanted, and the model has %lld",
                             m->dims[dims[i]].name, (long long)sizes[i], (long long)has);
        sizes[i] = rounded(sizes[i], has);
        if (some_param_has(m, dims[i]) || sizes[i] == has)
            dims[i] = -1;
        less |= dims[i] >= 0;
    }
    if (less)
        shorten(s, dims, sizes);
    return 0;
}

int64_t source_positions(const struct sample_source *s) {
    const int dim = written(s->model);
    return dim < 0 ? 0 : s->model->dims[dim].size;
}

int64_t source_turn(const struct sample_source *s) {
    const struct model *m = s->model;
    const int dim = written(m);
    double turn = 0;
    for (int i = 0; i < m->n_ops; i++)
        if (m->ops[i].slower && m->ops[i].attr[ATTR_original] > turn)
            turn = m->ops[i].attr[ATTR_original];
    const bool fits = dim >= 0 && !some_param_has(m, dim) &&
                      turn < (double)m->dims[dim].size && !source_encodes(s);
    return fits ? (int64_t)turn : 0;
}

void source_resize(struct sample_source *s, int64_t positions) {
    int dims[2] = {written(s->model), -1};
    const int64_t sizes[2] = {positions, 0};
    shorten(s, dims, sizes);
}

int source_load(const struct sample_source *s, struct decoder *d, struct err *err) {
    return s->ck ? decoder_load_checkpoint(d, s->ck, err)
                 : decoder_load_weights(d, s->file, err);
}
