/* A model's parameters out of the files of another program; all is checked before any is read. */
#include "model/weights.h"

#include <stdlib.h>
#include <string.h>

struct weight_file {
    const struct weights *w;
    struct st_set set;
    const struct st_entry **entry; /* by tensor of w */
    const char *path;
};

/* By its name, or by what follows the prefix. */
static const struct st_entry *find(const struct weight_file *f, const char *name) {
    const struct st_entry *e = st_set_find(&f->set, name);
    size_t n = strlen(f->w->prefix);
    return e || !n || strncmp(name, f->w->prefix, n) != 0 ? e
                                                          : st_set_find(&f->set, name + n);
}

static const char *shape_text(int dims, const int64_t *shape, char *buf, size_t n) {
    size_t used = (size_t)snprintf(buf, n, "[");
    for (int d = 0; d < dims && used < n; d++)
        used += (size_t)snprintf(buf + used, n - used, "%s%lld", d ? ", " : "",
                                 (long long)shape[d]);
    if (used < n)
        snprintf(buf + used, n - used, "]");
    return buf;
}

static const char *first_param(const struct weights *w, const struct weight_tensor *t) {
    return w->model->params[w->parts[t->first_part].param].name;
}

static int check_tensor(const struct weight_file *f, const struct weight_tensor *t,
                        const struct st_entry *e, struct err *err) {
    char has[ST_DIMS * 22], wanted[ST_DIMS * 22];
    if (!e)
        return err_input(err, "%s: tensor \"%.100s\": missing; the model's %s lies there",
                         f->path, t->name, first_param(f->w, t));
    const struct st_tensor *s = e->tensor;
    if (s->dims != t->dims ||
        memcmp(s->shape, t->shape, sizeof *s->shape * (size_t)s->dims) != 0)
        return err_input(err, "%s: tensor \"%.100s\": shape %s, expected %s", e->path,
                         s->name, shape_text(s->dims, s->shape, has, sizeof has),
                         shape_text(t->dims, t->shape, wanted, sizeof wanted));
    if (!st_widens(s->dtype))
        return err_input(err, "%s: tensor \"%.100s\": expected F32, F16 or BF16, got %s",
                         e->path, s->name, st_dtype_name(s->dtype));
    return 0;
}

/* Whatever is no parameter is either known to be none, or the file is of another model. */
static int check_extra(const struct weight_file *f, const char *used, struct err *err) {
    for (int64_t i = 0; i < f->set.entries; i++) {
        const struct st_entry *e = &f->set.entry[i];
        if (!used[i] && !weights_ignores(f->w, e->tensor->name))
            return err_input(err,
                             "%s: tensor \"%.100s\": extra; no parameter of the model "
                             "lies there",
                             e->path, e->tensor->name);
    }
    return 0;
}

static int check_tensors(struct weight_file *f, struct err *err) {
    char *used = mem_array((size_t)f->set.entries + 1, 1);
    int rc = 0;
    for (int i = 0; i < f->w->n_tensors && rc == 0; i++) {
        const struct st_entry *e = find(f, f->w->tensors[i].name);
        rc = check_tensor(f, &f->w->tensors[i], e, err);
        if (rc == 0)
            used[e - f->set.entry] = 1;
        f->entry[i] = e;
    }
    if (rc == 0)
        rc = check_extra(f, used, err);
    free(used);
    return rc;
}

struct weight_file *weight_file_open(const struct weights *w, const char *path,
                                     struct err *err) {
    struct weight_file *f = mem_alloc(sizeof *f);
    f->w = w;
    if (st_set_open(&f->set, path, err) < 0) {
        free(f);
        return NULL;
    }
    f->path = arena_strdup(&f->set.arena, path);
    f->entry = arena_array(&f->set.arena, (size_t)w->n_tensors, sizeof *f->entry);
    if (check_tensors(f, err) == 0)
        return f;
    weight_file_close(f);
    return NULL;
}

void weight_file_close(struct weight_file *f) {
    if (!f)
        return;
    st_set_close(&f->set);
    free(f);
}

uint64_t weight_file_hash(const struct weight_file *f) {
    return st_set_hash(&f->set);
}

bool weight_file_has(const struct weight_file *f, int param) {
    return f->w->forms[param].tensor;
}

/* The part of `box` that has index i along the dim `spread`, and where it goes in the dense box. */
static void read_slice(const struct weight_file *f, int param,
                       const struct checkpoint_box *box, int64_t i, float *out) {
    const struct weight_form *form = &f->w->forms[param];
    struct st_view v = form->whole;
    for (int d = 0; d < box->dims; d++) {
        v.size[d] = d == form->spread ? 1 : box->size[d];
        v.base += d == form->spread ? 0 : box->first[d] * v.stride[d];
    }
    st_view_get(f->entry[form->tensor[i]], &v, out);
}

/* Where a dim stands in the name, what the box has at each of its indices comes from another
 * tensor. */
void weight_file_read(const struct weight_file *f, int param,
                      const struct checkpoint_box *box, float *out) {
    int spread = f->w->forms[param].spread;
    if (spread < 0) {
        read_slice(f, param, box, 0, out);
        return;
    }
    struct st_view place = {.dims = box->dims};
    int64_t n = 1;
    for (int d = box->dims - 1; d >= 0; d--) {
        place.stride[d] = n;
        place.size[d] = d == spread ? 1 : box->size[d];
        n *= box->size[d];
    }
    float *slice = mem_array((size_t)(n / box->size[spread]), sizeof *slice);
    for (int64_t i = 0; i < box->size[spread]; i++) {
        read_slice(f, param, box, box->first[spread] + i, slice);
        place.base = i * place.stride[spread];
        st_view_put(out, &place, slice);
    }
    free(slice);
}
