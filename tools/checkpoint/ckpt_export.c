/* weft-ckpt export. All goes to a temporary name beside the output, which is given its own when it is
 * whole and on the disk; what is there already is never touched. */
#include "ckpt.h"

#include "checkpoint/ckptdir.h"
#include "common/opt.h"
#include "common/progress.h"
#include "model/config.h"
#include "model/saved.h"
#include "model/weights.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What is exported, and where to. */
struct export {
    struct model *model;
    struct weights *w;
    struct checkpoint *ck;
    json_t *config;   /* or NULL */
    bool adapter;     /* of the weights that is all */
    char *out, *temp; /* the names; without a slash at their end */
    bool folder;
};

/* ---- a tensor ----------------------------------------------------------------------------- */

/* Puts a parameter, or what it has at one index, where it lies in the tensor. `whole` has room for
 * the tensor, `part` too. */
static int put_part(const struct export *x, const struct weight_part *p, float *whole,
                    float *part, struct err *err) {
    const struct weight_form *form = &x->w->forms[p->param];
    const char *name = x->model->params[p->param].name;
    struct extents n = model_extents(x->model, &x->model->params[p->param].shape, 1);
    struct checkpoint_box box = {.dims = n.rank};
    for (int d = 0; d < n.rank; d++)
        box.shape[d] = box.size[d] = n.size[d];
    if (form->spread >= 0) {
        box.first[form->spread] = p->index;
        box.size[form->spread] = 1;
    }
    if (checkpoint_read(x->ck, CHECKPOINT_PARAM, name, &box, part, err) < 0)
        return -1;
    st_view_put(whole, &form->whole, part);
    return 0;
}

static int put_tensor(const struct export *x, int i, struct st_writer *w, int64_t bytes,
                      struct err *err) {
    const struct weight_tensor *t = &x->w->tensors[i];
    float *whole = malloc((size_t)bytes), *part = malloc((size_t)bytes);
    int rc = whole && part ? 0
                           : err_system(err, "%s: no memory for %lld bytes", t->name,
                                        (long long)bytes);
    for (int k = 0; k < t->n_parts && rc == 0; k++)
        rc = put_part(x, &x->w->parts[t->first_part + k], whole, part, err);
    if (rc == 0)
        rc = st_append(w, whole, bytes, err);
    free(whole);
    free(part);
    return rc;
}

/* ---- the files ------------------------------------------------------------------------------ */

static int write_tensors(const struct export *x, const char *path, struct err *err) {
    static const char *const metadata[] = {"format", "pt", NULL}; /* as PyTorch lays out */
    int n = x->w->n_tensors;
    struct st_tensor *t = mem_array((size_t)n, sizeof *t);
    for (int i = 0; i < n; i++) {
        t[i].name = x->w->tensors[i].name;
        t[i].dims = x->w->tensors[i].dims;
        memcpy(t[i].shape, x->w->tensors[i].shape, sizeof t[i].shape);
    }
    struct st_writer w;
    int64_t bytes;
    uint64_t hash;
    int rc = st_create(&w, path, t, n, metadata, err);
    for (int i = 0; i < n && rc == 0; i++)
        rc = interrupted() ? err_system(err, "%s: interrupted, and not written", x->out)
                           : put_tensor(x, i, &w, t[i].bytes, err);
    free(t);
    if (rc == 0)
        return st_finish(&w, &bytes, &hash, err);
    st_abort(&w);
    return -1;
}

static int write_folder(const struct export *x, struct err *err) {
    if (mkdir(x->temp, 0777) < 0)
        return err_system(err, "%s: cannot make the directory: %s", x->temp,
                          strerror(errno));
    char *tensors =
        ckpt_join(x->temp, x->adapter ? "adapter_model.safetensors" : "model.safetensors");
    char *config = ckpt_join(x->temp, x->adapter ? "adapter_config.json" : "config.json");
    int rc = write_tensors(x, tensors, err);
    if (rc == 0 && x->config)
        rc = json_write_file(x->config, config, err);
    free(tensors);
    free(config);
    if (rc == 0)
        rc = ckpt_sync_dir(x->temp, err);
    if (rc == 0)
        rc = ckpt_rename(x->temp, x->out, err);
    if (rc < 0)
        ckpt_remove_dir(x->temp, NULL);
    return rc;
}

/* A link fails where the name was taken meanwhile. */
static int write_file(const struct export *x, struct err *err) {
    if (write_tensors(x, x->temp, err) < 0)
        return -1;
    int rc = 0;
    if (link(x->temp, x->out) < 0)
        rc = err_system(err, "%s: cannot write: %s", x->out, strerror(errno));
    unlink(x->temp);
    return rc;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int name_output(struct export *x, const char *output, struct err *err) {
    static const char end[] = ".safetensors";
    struct stat st;
    size_t n = strlen(output), k = strlen(end);
    x->out = mem_strdup(output);
    while (n > 1 && x->out[n - 1] == '/')
        x->out[--n] = '\0';
    x->folder = n < k || strcmp(x->out + n - k, end) != 0;
    x->temp = mem_alloc(n + 32);
    snprintf(x->temp, n + 32, "%s.tmp.%ld", x->out, (long)getpid());
    if (lstat(x->out, &st) == 0)
        return err_system(err, "%s: exists already, and nothing is written over", x->out);
    return 0;
}

static int64_t count_parameters(const struct model *m) {
    int64_t n = 0;
    for (int p = 0; p < m->n_params; p++) {
        struct extents e = model_extents(m, &m->params[p].shape, 1);
        n += extents_count(&e);
    }
    return n;
}

/* A folder is read by its config.json, which must then mean this model: what it has no key for, such as
 * heads of GPT-2 that are not a share of hidden, transformers would take for something else. */
static int check_config(const struct export *x, struct err *err) {
    const bool says_all = x->config && x->folder && !x->adapter;
    json_t *doc = says_all ? config_to_model(x->config, NULL) : NULL;
    struct model *m = doc ? model_from_json(doc, NULL, NULL, NULL) : NULL;
    int64_t has = count_parameters(x->model), says = m ? count_parameters(m) : has;
    model_destroy(m);
    json_decref(doc);
    return says == has
               ? 0
               : err_input(err,
                           "model %s: a config.json cannot say its sizes: it would mean "
                           "%lld parameters, and there are %lld",
                           x->model->name, (long long)says, (long long)has);
}

static bool is_adapted(const struct model *m) {
    return json_object_get(json_object_get(m->doc, "weights"), "adapter");
}

/* An adapter's file has nothing else that was trained. */
static int check_adapter(const struct export *x, struct err *err) {
    const json_t *section = json_object_get(x->model->doc, "weights");
    for (int p = 0; p < x->model->n_params; p++)
        if (!x->model->params[p].frozen && !x->w->forms[p].tensor)
            return err_input(err, "model %s: %s is trained and part of no adapter",
                             x->model->name, x->model->params[p].name);
    if (x->folder && !json_object_get(section, "adapter_config")) {
        err_input(err, "model %s: PEFT has no names for these adapters", x->model->name);
        return err_hint(err, "a file, -o NAME.safetensors, has weft's names");
    }
    return 0;
}

static int open_input(struct export *x, const struct ckpt_options *o, const char *path,
                      struct err *err) {
    if (checkpoint_open(&x->ck, path, err) < 0)
        return -1;
    x->model = model_of_checkpoint(x->ck, o->model, o->set, err);
    x->adapter = x->model && is_adapted(x->model);
    x->w = !x->model    ? NULL
           : x->adapter ? weights_of_adapter(x->model, err)
                        : weights_of(x->model, err);
    struct err none = {0};
    struct bulk_way way = {.threads = 2}; /* one reads, the other hashes */
    if (!x->w || checkpoint_verify(x->ck, 0, 1, &way, err) < 0)
        return -1;
    if (x->adapter && check_adapter(x, err) < 0)
        return -1;
    x->config = (x->adapter ? weights_adapter_config : weights_config)(x->model, &none);
    if (none.status && err)
        *err = none;
    return none.status ? -1 : check_config(x, err);
}

static int export(struct export *x, struct err *err) {
    interrupt_catch();
    if ((x->folder ? write_folder(x, err) : write_file(x, err)) < 0)
        return -1;
    note("weft-ckpt: %s: %d tensors of step %lld", x->out, x->w->n_tensors,
         (long long)checkpoint_info(x->ck)->step);
    return 0;
}

int ckpt_export(const struct ckpt_options *o, const char *path, struct err *err) {
    if (!o->output)
        return opt_missing("-o NAME", err);
    struct export x = {0};
    int rc = name_output(&x, o->output, err);
    if (rc == 0)
        rc = open_input(&x, o, path, err);
    if (rc == 0)
        rc = export(&x, err);
    json_decref(x.config);
    checkpoint_close(x.ck);
    weights_destroy(x.w);
    model_destroy(x.model);
    free(x.out);
    free(x.temp);
    return rc;
}
