/* Reading. All files are mapped, so a box costs the pages that hold it and no more. */
#include "checkpoint/checkpoint.h"

#include "checkpoint/ckptdir.h"
#include "checkpoint/ckptindex.h"
#include "checkpoint/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct checkpoint {
    char *path; /* DIR/step-N */
    struct checkpoint_info info;
    struct ckpt_index index;
    const unsigned char **map; /* by file of the index; NULL until mapped */
};

/* ---- finding ----------------------------------------------------------------------- */

static bool has_index(const char *path) {
    struct stat st;
    char *index = ckpt_join(path, "index.json");
    bool there = stat(index, &st) == 0;
    free(index);
    return there;
}

/* Whether entry a is a later checkpoint than b: of the same step, the new one. */
static bool is_later(const struct ckpt_entry *a, const struct ckpt_entry *b) {
    return a->step > b->step || (a->step == b->step && a->state < b->state);
}

int checkpoint_latest(const char *dir, char **path, struct err *err) {
    struct ckpt_entries e;
    struct ckpt_entry best = {.step = -1};
    *path = NULL;
    if (ckpt_scan(&e, dir, err) < 0)
        return -1;
    for (int64_t i = 0; i < e.n; i++) {
        if (e.p[i].state == CKPT_TEMP || !is_later(&e.p[i], &best))
            continue;
        char *p = ckpt_dir_path(dir, e.p[i].state, e.p[i].step);
        if (has_index(p)) {
            best = e.p[i];
            free(*path);
            *path = p;
        } else {
            free(p);
        }
    }
    arr_release(&e);
    return *path != NULL;
}

bool checkpoint_is(const char *path) {
    char *newest = NULL;
    bool found = has_index(path) || checkpoint_latest(path, &newest, NULL) == 1;
    free(newest);
    return found;
}

/* ---- opening ----------------------------------------------------------------------- */

static int read_index(struct checkpoint *ck, struct err *err) {
    char *path = ckpt_join(ck->path, "index.json");
    json_t *doc = json_read(path, err);
    int bad = !doc;
    if (doc && ckpt_index_read(&ck->index, &ck->info, doc, err) < 0)
        bad = err_prefix(err, "%s", path);
    json_decref(doc);
    free(path);
    return bad ? -1 : 0;
}

static int map_files(struct checkpoint *ck, struct err *err) {
    int64_t n = ck->index.files.n;
    ck->map = mem_array((size_t)n, sizeof *ck->map);
    for (int64_t i = 0; i < n; i++) {
        const struct ckpt_file *f = &ck->index.files.p[i];
        char *path = ckpt_join(ck->path, f->name);
        int64_t size = 0;
        int bad = 0;
        ck->map[i] = st_map(path, &size, err);
        if (!ck->map[i]) {
            bad = -1;
        } else if (size != f->bytes) {
            bad = err_input(err, "%s: %s: %lld bytes, index.json says %lld", path,
                            size < f->bytes ? "truncated" : "too long", (long long)size,
                            (long long)f->bytes);
            st_unmap(ck->map[i], size);
            ck->map[i] = NULL;
        }
        free(path);
        if (bad)
            return -1;
    }
    return 0;
}

static char *find(const char *path, struct err *err) {
    char *found = NULL;
    struct stat st;
    if (has_index(path))
        return mem_strdup(path);
    if (stat(path, &st) < 0)
        err_input(err, "%s: %s", path, strerror(errno));
    else if (checkpoint_latest(path, &found, err) == 0)
        err_input(err, "%s: holds no complete checkpoint (step-N/index.json)", path);
    return found;
}

int checkpoint_open(struct checkpoint **ck, const char *path, struct err *err) {
    *ck = NULL;
    char *found = find(path, err);
    if (!found)
        return -1;
    struct checkpoint *c = mem_alloc(sizeof *c);
    c->path = found;
    if (read_index(c, err) < 0 || map_files(c, err) < 0) {
        checkpoint_close(c);
        return -1;
    }
    *ck = c;
    return 0;
}

void checkpoint_close(struct checkpoint *ck) {
    if (!ck)
        return;
    for (int64_t i = 0; ck->map && i < ck->index.files.n; i++)
        st_unmap(ck->map[i], ck->index.files.p[i].bytes);
    free(ck->map);
    ckpt_index_release(&ck->index);
    free(ck->path);
    free(ck);
}

const struct checkpoint_info *checkpoint_info(const struct checkpoint *ck) {
    return &ck->info;
}

const char *checkpoint_path(const struct checkpoint *ck) {
    return ck->path;
}

/* ---- checking ---------------------------------------------------------------------- */

int checkpoint_check_model(const struct checkpoint *ck, const char *model,
                           uint64_t model_hash, struct err *err) {
    if (ck->info.model_hash == model_hash)
        return 0;
    bool named_alike = !strcmp(ck->info.model, model);
    if (named_alike)
        return err_input(err,
                         "%s: written by a model %.100s that differs from this one in "
                         "its sizes, rates or ops",
                         ck->path, model);
    return err_input(err, "%s: written by model %.100s, expected %.100s", ck->path,
                     ck->info.model, model);
}

int checkpoint_verify(const struct checkpoint *ck, int64_t part, int64_t parts,
                      struct err *err) {
    for (int64_t i = part; i < ck->index.files.n; i += parts) {
        const struct ckpt_file *f = &ck->index.files.p[i];
        struct xxh64 h;
        xxh64_begin(&h);
        xxh64_add(&h, ck->map[i], (size_t)f->bytes);
        uint64_t hash = xxh64_end(&h);
        if (hash == f->hash)
            continue;
        err_input(err, "%s/%s: checksum %016" PRIx64 ", index.json says %016" PRIx64,
                  ck->path, f->name, hash, f->hash);
        return err_hint(err, "the file was damaged; an earlier step-N may be whole");
    }
    return 0;
}

/* ---- tensors ----------------------------------------------------------------------- */

const struct checkpoint_box *checkpoint_tensor(const struct checkpoint *ck, int64_t i,
                                               enum checkpoint_kind *kind,
                                               const char **name) {
    if (i >= ck->index.tensors.n)
        return NULL;
    const struct ckpt_tensor *t = &ck->index.tensors.p[i];
    *kind = t->kind;
    *name = t->name;
    return &t->box;
}

/* Index in a dense box of the element at[] (global). */
static int64_t index_in(const struct checkpoint_box *box, const int64_t *at) {
    int64_t index = 0;
    for (int d = 0; d < box->dims; d++)
        index = index * box->size[d] + at[d] - box->first[d];
    return index;
}

/* Copies the part `both` of a dense box to another. Trailing dims that are whole in both
 * boxes join the contiguous run; an odometer walks over the others. */
static void copy_part(float *out, const struct checkpoint_box *to, const unsigned char *in,
                      const struct checkpoint_box *from,
                      const struct checkpoint_box *both) {
    int64_t at[CHECKPOINT_DIMS], run = 1;
    int outer = both->dims;
    bool dense = true;
    while (outer && dense) {
        outer--;
        run *= both->size[outer];
        dense =
            both->size[outer] == to->size[outer] && both->size[outer] == from->size[outer];
    }
    memcpy(at, both->first, sizeof at);
    for (int d = 0; d >= 0;) {
        memcpy(out + index_in(to, at), in + index_in(from, at) * (int64_t)sizeof(float),
               (size_t)run * sizeof(float));
        for (d = outer - 1; d >= 0; d--) {
            if (++at[d] < both->first[d] + both->size[d])
                break;
            at[d] = both->first[d];
        }
    }
}

bool checkpoint_has(const struct checkpoint *ck, enum checkpoint_kind kind) {
    for (int64_t i = 0; i < ck->index.tensors.n; i++)
        if (ck->index.tensors.p[i].kind == kind)
            return true;
    return false;
}

static int check_box(const struct ckpt_tensor *t, const struct checkpoint_box *box,
                     struct err *err) {
    int64_t count;
    if (box->dims != t->box.dims)
        return err_input(err, "%d dims are stored, expected %d", t->box.dims, box->dims);
    for (int d = 0; d < box->dims; d++)
        if (box->shape[d] != t->box.shape[d])
            return err_input(err, "dim %d: size %lld is stored, expected %lld", d,
                             (long long)t->box.shape[d], (long long)box->shape[d]);
    return ckpt_box_check(box, &count, err);
}

int checkpoint_read(const struct checkpoint *ck, enum checkpoint_kind kind,
                    const char *name, const struct checkpoint_box *box, float *out,
                    struct err *err) {
    const struct ckpt_tensor *t = ckpt_index_find(&ck->index, kind, name);
    if (!t)
        return err_input(err, "%s: holds no %s/%s", ck->path, checkpoint_kind_name(kind),
                         name);
    if (check_box(t, box, err) < 0)
        return err_prefix(err, "%s: %s/%s", ck->path, checkpoint_kind_name(kind), name);
    for (int64_t i = 0; i < t->count; i++) {
        const struct ckpt_piece *p = &ck->index.pieces.p[t->begin + i];
        struct checkpoint_box both;
        if (ckpt_box_meet(box, &p->box, &both))
            copy_part(out, box, ck->map[p->file] + p->offset, &p->box, &both);
    }
    return 0;
}
