#include "model/model.h"
#include "model/seen.h"

#include "model/config.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef WEFT_SHARE
#define WEFT_SHARE "/usr/local/share/weft"
#endif

int model_dim_find(const struct model *m, const char *name) {
    for (int d = 0; d < m->n_dims; d++)
        if (!strcmp(m->dims[d].name, name))
            return d;
    return -1;
}

int model_dim_named(const struct model *m, const char *name, struct err *err) {
    int dim = model_dim_find(m, name);
    char names[512] = "";
    if (dim >= 0)
        return dim;
    for (int d = 0; d < m->n_dims; d++)
        err_list(names, sizeof names, m->dims[d].name);
    return err_input(err, "the model has no dim \"%.64s\" (there are:%s)", name, names);
}

int op_space_find(const struct op_space *s, int dim) {
    for (int k = 0; k < s->n; k++)
        if (s->dim[k] == dim)
            return k;
    for (int k = 0; k < s->n; k++)
        if (s->alias[k] == dim)
            return k;
    return -1;
}

bool op_is(const struct model_op *op, enum kind_flag flag) {
    return kind_of(op->kind)->flags & flag;
}

int op_targets(const struct model_op *op) {
    return op_is(op, KIND_LOSS) && op->n_in == 2 ? op->in[1] : -1;
}

static bool takes_gradient(const struct model *m, const struct model_op *op) {
    for (int k = 0; k < op->n_in; k++)
        if (m->tensors[op->in[k]].gradient)
            return true;
    return false;
}

bool model_has_backward(const struct model *m, int op) {
    const struct model_op *o = &m->ops[op];
    bool has = takes_gradient(m, o);
    for (int k = 0; k < o->n_param; k++)
        has |= o->param[k] >= 0 && !m->params[o->param[k]].frozen;
    for (int k = 0; k < o->n_out; k++)
        has |= m->tensors[o->out[k]].gradient;
    return has;
}

int64_t model_classes(const struct model *m) {
    int64_t classes = INT64_MAX;
    for (int i = 0; i < m->n_ops; i++) {
        if (op_targets(&m->ops[i]) < 0)
            continue;
        const struct shape *logits = &m->tensors[m->ops[i].in[0]].shape;
        const int64_t n = m->dims[logits->dim[logits->rank - 1]].size;
        classes = n < classes ? n : classes;
    }
    return classes;
}

int model_loss_index(const struct model *m, int op) {
    int losses = 0;
    for (int i = 0; i < op; i++)
        losses += op_targets(&m->ops[i]) >= 0;
    return losses;
}

int model_losses(const struct model *m) {
    return model_loss_index(m, m->n_ops);
}

double model_count_parameters(const struct model *m, bool trained) {
    double n = 0;
    for (int p = 0; p < m->n_params; p++) {
        const struct extents x = model_extents(m, &m->params[p].shape, 1);
        if (!m->params[p].running && !(trained && m->params[p].frozen))
            n += (double)extents_count(&x);
    }
    return n;
}

static double shape_volume(const struct model *m, const struct shape *s, int64_t batch) {
    double n = 1;
    for (int i = 0; i < s->rank; i++)
        n *= (double)model_dim_size(m, s->dim[i], batch);
    return n;
}

static bool attends(const struct model_op *op) {
    return op->kind == OP_attention || op->kind == OP_attention_inside ||
           op->kind == OP_attention_packed;
}

int64_t model_document_length(const struct model *m, const struct model_op *op) {
    const int last = op->in[op->n_in - 1];
    return m->tensors[last].source == DATA_DOCUMENT_START && m->tensors[last].producer < 0
               ? m->tensors[last].length
               : 0;
}

/* Two products of every query with the keys that it sees, of the whole sequence or of documents as long as
 * the data is said to have them. */
static double attention_flops(const struct model *m, const struct model_op *op,
                              int64_t batch) {
    const struct shape *y = &m->tensors[op->out[0]].shape;
    const struct shape *q = &m->tensors[op->in[0]].shape;
    const struct shape *keys = &m->tensors[op->in[op->n_in > 2]].shape;
    const double columns =
        (double)(m->dims[q->dim[q->rank - 1]].size + m->dims[y->dim[y->rank - 1]].size);
    double seen = keys_seen(m->dims[y->dim[1]].size, m->dims[keys->dim[1]].size,
                            op->attr[ATTR_causal] != 0, (int64_t)op->attr[ATTR_window],
                            model_document_length(m, op));
    return 2 * shape_volume(m, y, batch) / (double)m->dims[y->dim[y->rank - 1]].size *
           columns * seen;
}

/* A product, and a convolution, of all dims of the iteration space. */
double model_op_flops(const struct model *m, const struct model_op *op, int64_t batch) {
    if (attends(op))
        return attention_flops(m, op, batch);
    if (op->kind != OP_einsum && op->kind != OP_conv2d)
        return 0;
    double volume = 1;
    for (int k = 0; k < op->space.n; k++)
        volume *= (double)model_dim_size(m, op->space.dim[k], batch);
    return 2 * volume;
}

double model_forward_flops(const struct model *m, int64_t batch) {
    double flops = 0;
    for (int i = 0; i < m->n_ops; i++)
        flops += model_op_flops(m, &m->ops[i], batch);
    return flops;
}

double model_step_flops(const struct model *m, int64_t batch) {
    double flops = 0;
    if (!json_object_get(m->doc, "frozen"))
        return 3 * model_forward_flops(m, batch);
    for (int i = 0; i < m->n_ops; i++) {
        const struct model_op *op = &m->ops[i];
        const bool both = attends(op);
        double times = both ? 1 + 2 * takes_gradient(m, op) : 1;
        for (int k = 0; k < op->n_in && !both; k++)
            times += m->tensors[op->in[k]].gradient;
        if (!both && op->n_param && op->param[0] >= 0)
            times += !m->params[op->param[0]].frozen;
        flops += times * model_op_flops(m, op, batch);
    }
    return flops;
}

void model_destroy(struct model *m) {
    if (!m)
        return;
    json_decref(m->doc);
    struct arena arena = m->arena;
    arena_release(&arena); /* m itself lives in it */
}

/* Tries the repository's share/ above the program, then the installed one. */
int share_path(const char *folder, const char *file, char *buf, size_t n, struct err *err) {
    char exe[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (len > 0) {
        exe[len] = '\0';
        for (int up = 0; up < 5; up++) {
            char *slash = strrchr(exe, '/');
            if (!slash)
                break;
            *slash = '\0';
            static const char *const places[] = {"share", "share/weft"};
            for (int i = 0; i < 2; i++) {
                int w = snprintf(buf, n, "%s/%s/%s/%s", exe, places[i], folder, file);
                if (w > 0 && (size_t)w < n && access(buf, R_OK) == 0)
                    return 0;
            }
        }
    }
    int w = snprintf(buf, n, "%s/%s/%s", WEFT_SHARE, folder, file);
    if (w > 0 && (size_t)w < n && access(buf, R_OK) == 0)
        return 0;
    return err_input(err, "%s: no such file among the shipped %s", file, folder);
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void share_list(const char *folder, char *list, size_t size) {
    char path[PATH_MAX];
    ARR(char *) names = {0};
    DIR *d = share_path(folder, ".", path, sizeof path, NULL) < 0 ? NULL : opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        size_t len = strlen(e->d_name);
        if (len < 6 || strcmp(e->d_name + len - 5, ".json") != 0)
            continue;
        char *name = mem_strdup(e->d_name);
        name[len - 5] = '\0';
        arr_push(&names, name);
    }
    if (d)
        closedir(d);
    if (names.n)
        qsort(names.p, (size_t)names.n, sizeof *names.p, by_text);
    for (int64_t i = 0; i < names.n; i++) {
        err_list(list, size, names.p[i]);
        free(names.p[i]);
    }
    arr_release(&names);
}

static bool ends_in_json(const char *name) {
    size_t len = strlen(name);
    return len > 5 && !strcmp(name + len - 5, ".json");
}

/* Splits "NAME[:PRESET]" into a path and a preset. */
static int locate(const char *ref, char *path, size_t n, char *preset, size_t preset_n,
                  struct err *err) {
    char name[PATH_MAX];
    if (snprintf(name, sizeof name, "%s", ref) >= (int)sizeof name)
        return err_input(err, "model: name too long");
    preset[0] = '\0';
    char *colon = strrchr(name, ':');
    if (colon && !strchr(colon, '/') && !ends_in_json(colon)) {
        snprintf(preset, preset_n, "%s", colon + 1);
        *colon = '\0';
    }
    if (strchr(name, '/') || ends_in_json(name))
        return snprintf(path, n, "%s", name) < (int)n
                   ? 0
                   : err_input(err, "model: name too long");
    char file[PATH_MAX];
    if (snprintf(file, sizeof file, "%s.json", name) >= (int)sizeof file)
        return err_input(err, "model: name too long");
    if (share_path("models", file, path, n, err) < 0) {
        char shipped[512] = "";
        share_list("models", shipped, sizeof shipped);
        err_input(err, "model \"%.64s\": not among the shipped models (there are:%s)", name,
                  shipped);
        err_hint(err, "a model file of your own is given as ./%.64s.json", name);
        return -1;
    }
    return 0;
}

static json_t *read_located(const char *path, struct err *err) {
    json_t *doc = json_read(path, err);
    if (!doc || !config_is(doc))
        return doc;
    json_t *config = doc;
    doc = config_to_model(config, err);
    json_decref(config);
    if (!doc)
        err_prefix(err, "%s", path);
    return doc;
}

json_t *model_document(const char *ref, struct err *err) {
    char path[PATH_MAX], preset[64];
    if (locate(ref, path, sizeof path, preset, sizeof preset, err) < 0)
        return NULL;
    json_t *doc = read_located(path, err);
    if (doc && preset[0])
        json_object_set_new(doc, "default", json_string(preset));
    return doc;
}

/* A plan names a shipped model by reference; one from a file of the user's is embedded in it. */
struct model *model_load(const char *ref, const char *set, struct err *err) {
    char path[PATH_MAX], preset[64];
    if (locate(ref, path, sizeof path, preset, sizeof preset, err) < 0)
        return NULL;
    json_t *doc = read_located(path, err);
    if (!doc)
        return NULL;
    struct model *m = model_from_json(doc, preset, set, err);
    json_decref(doc);
    if (!m) {
        err_prefix(err, "%s", path);
        return NULL;
    }
    if (!strchr(ref, '/') && !strstr(ref, ".json"))
        m->ref =
            arena_printf(&m->arena, "%s%s%s", m->name, m->preset[0] ? ":" : "", m->preset);
    return m;
}

char *model_file_text(const struct model *m) {
    if (m->ref)
        return NULL;
    json_t *doc = json_copy(m->doc);
    if (m->preset[0])
        json_object_set_new(doc, "default", json_string(m->preset));
    char *text = json_dumps(doc, JSON_COMPACT);
    json_decref(doc);
    return text;
}
