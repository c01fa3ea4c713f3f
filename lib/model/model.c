#include "model/model.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef WEFT_SHARE
#define WEFT_SHARE "/usr/local/share/weft"
#endif

const char *op_kind_name(enum op_kind kind) {
    static const char *const names[] = {
#define X(id, name) name,
        MODEL_OP_KINDS(X)
#undef X
    };
    return names[kind];
}

int model_dim_find(const struct model *m, const char *name) {
    for (int d = 0; d < m->n_dims; d++)
        if (!strcmp(m->dims[d].name, name))
            return d;
    return -1;
}

dimset shape_dims(const struct shape *s) {
    dimset set = 0;
    for (int i = 0; i < s->rank; i++)
        set |= 1u << s->dim[i];
    return set;
}

int64_t model_elements(const struct model *m, const struct shape *s, int64_t batch) {
    int64_t n = 1;
    for (int i = 0; i < s->rank; i++)
        n *= s->dim[i] == m->batch ? batch : m->dims[s->dim[i]].size;
    return n;
}

int64_t model_param_count(const struct model *m) {
    int64_t n = 0;
    for (int i = 0; i < m->n_params; i++)
        n += model_elements(m, &m->params[i].shape, 1);
    return n;
}

/* Product of the sizes of a set of dims. */
static double volume(const struct model *m, dimset set, int64_t batch) {
    double v = 1;
    for (int d = 0; d < m->n_dims; d++)
        if (set >> d & 1)
            v *= (double)(d == m->batch ? batch : m->dims[d].size);
    return v;
}

double model_op_flops(const struct model *m, const struct model_op *op, int64_t batch) {
    if (op->kind == OP_einsum)
        return 2 * volume(m, op->domain, batch);
    if (op->kind == OP_attention) {
        const struct shape *out = &m->tensors[op->out].shape;
        double seq = (double)m->dims[out->dim[1]].size;
        double pairs = op->causal ? (seq + 1) / 2 : seq;
        return 4 * (double)model_elements(m, out, batch) * pairs;
    }
    return 0;
}

double model_forward_flops(const struct model *m, int64_t batch) {
    double flops = 0;
    for (int i = 0; i < m->n_ops; i++)
        flops += model_op_flops(m, &m->ops[i], batch);
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

/* Splits "NAME[:PRESET]" into a path and a preset. */
static int locate(const char *ref, char *path, size_t n, char *preset, size_t preset_n,
                  struct err *err) {
    char name[PATH_MAX];
    if (snprintf(name, sizeof name, "%s", ref) >= (int)sizeof name)
        return err_input(err, "model: name too long");
    preset[0] = '\0';
    char *colon = strrchr(name, ':');
    if (colon && !strchr(colon, '/')) {
        snprintf(preset, preset_n, "%s", colon + 1);
        *colon = '\0';
    }
    size_t len = strlen(name);
    if (strchr(name, '/') || (len > 5 && !strcmp(name + len - 5, ".json")))
        return snprintf(path, n, "%s", name) < (int)n
                   ? 0
                   : err_input(err, "model: name too long");
    char file[PATH_MAX];
    if (snprintf(file, sizeof file, "%s.json", name) >= (int)sizeof file)
        return err_input(err, "model: name too long");
    if (share_path("models", file, path, n, err) < 0) {
        err_input(err, "model \"%.64s\": not among the shipped models", name);
        err_hint(err, "a model file of your own is given as ./%.64s.json", name);
        return -1;
    }
    return 0;
}

struct model *model_load(const char *ref, const char *set, struct err *err) {
    char path[PATH_MAX], preset[64];
    if (locate(ref, path, sizeof path, preset, sizeof preset, err) < 0)
        return NULL;
    json_t *doc = json_read(path, err);
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
