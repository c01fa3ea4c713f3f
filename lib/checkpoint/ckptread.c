/* Reading. Of a box so much is read as it has, in as few calls as that allows; a file is open only while
 * it is read, for there are as many as there were ranks. */
#include "checkpoint/checkpoint.h"

#include "checkpoint/ckptdir.h"
#include "checkpoint/ckptindex.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct checkpoint {
    char *path; /* DIR/step-N */
    struct checkpoint_info info;
    struct ckpt_index index;
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

int checkpoint_older(const char *dir, int64_t before, char **path, int64_t *step,
                     struct err *err) {
    struct ckpt_entries e;
    struct ckpt_entry best = {.step = -1};
    *path = NULL;
    if (ckpt_scan(&e, dir, err) < 0)
        return -1;
    for (int64_t i = 0; i < e.n; i++) {
        if (e.p[i].state == CKPT_TEMP || e.p[i].step >= before || !is_later(&e.p[i], &best))
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
    if (step)
        *step = best.step;
    return *path != NULL;
}

int checkpoint_latest(const char *dir, char **path, struct err *err) {
    return checkpoint_older(dir, INT64_MAX, path, NULL, err);
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

/* A file of the index for reading; its path is fresh. -1 where that fails, and no path. */
static int open_file(const struct checkpoint *ck, const struct ckpt_file *f, char **path,
                     struct err *err) {
    *path = ckpt_join(ck->path, f->name);
    int fd = open(*path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        err_input(err, "%s: %s", *path, strerror(errno));
        free(*path);
        *path = NULL;
    }
    return fd;
}

/* Can the file be read, and is it as long as the index says? */
static int check_file(const struct checkpoint *ck, const struct ckpt_file *f,
                      struct err *err) {
    struct stat st;
    char *path;
    int fd = open_file(ck, f, &path, err), rc = 0;
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) < 0)
        rc = err_input(err, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        rc = err_input(err, "%s: expected a regular file", path);
    else if (st.st_size != f->bytes)
        rc = err_input(err, "%s: %s: %lld bytes, index.json says %lld", path,
                       st.st_size < f->bytes ? "truncated" : "too long",
                       (long long)st.st_size, (long long)f->bytes);
    close(fd);
    free(path);
    return rc;
}

static int check_files(const struct checkpoint *ck, struct err *err) {
    for (int64_t i = 0; i < ck->index.files.n; i++)
        if (check_file(ck, &ck->index.files.p[i], err) < 0)
            return -1;
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
    if (read_index(c, err) < 0 || check_files(c, err) < 0) {
        checkpoint_close(c);
        return -1;
    }
    *ck = c;
    return 0;
}

void checkpoint_close(struct checkpoint *ck) {
    if (!ck)
        return;
    ckpt_index_release(&ck->index);
    free(ck->path);
    free(ck);
}

int64_t checkpoint_files(const char *path, struct checkpoint_file **out, struct err *err) {
    struct checkpoint ck = {.path = mem_strdup(path)};
    int64_t n = read_index(&ck, err) < 0 ? -1 : ck.index.files.n;
    *out = n > 0 ? mem_array((size_t)n, sizeof **out) : NULL;
    for (int64_t i = 0; i < n; i++) {
        const struct ckpt_file *f = &ck.index.files.p[i];
        (*out)[i] = (struct checkpoint_file){.bytes = f->bytes, .hash = f->hash};
        snprintf((*out)[i].name, sizeof(*out)[i].name, "%s", f->name);
    }
    ckpt_index_release(&ck.index);
    free(ck.path);
    return n;
}

const struct checkpoint_info *checkpoint_info(const struct checkpoint *ck) {
    return &ck->info;
}

const char *checkpoint_path(const struct checkpoint *ck) {
    return ck->path;
}

/* ---- checking ---------------------------------------------------------------------- */

/* The first fact that the checkpoint has otherwise, or has not; -1 with it as the message, 0 if none. */
static int compare_facts(const char *was, const char *is, struct err *err) {
    json_t *a = was ? json_parse(was, strlen(was), "facts", NULL) : NULL;
    json_t *b = is ? json_parse(is, strlen(is), "facts", NULL) : NULL;
    const char *name;
    json_t *v;
    int rc = 0;
    json_object_foreach(b, name, v) {
        const char *here = json_string_value(v);
        const char *there = json_string_value(json_object_get(a, name));
        if (!a || (there && here && !strcmp(there, here)))
            continue;
        rc = err_input(err, "%s is %s, and %s in the checkpoint", name, here ? here : "?",
                       there ? there : "nothing");
        break;
    }
    json_decref(a);
    json_decref(b);
    return rc;
}

int checkpoint_check_model(const struct checkpoint *ck, const char *model,
                           uint64_t model_hash, const char *facts, struct err *err) {
    if (ck->info.model_hash == model_hash)
        return 0;
    bool named_alike = !strcmp(ck->info.model, model);
    if (named_alike && compare_facts(ck->info.facts, facts, err) < 0)
        return err_prefix(err, "%s: written by another model %.100s", ck->path, model);
    if (named_alike)
        return err_input(err,
                         "%s: written by a model %.100s that differs from this one in "
                         "its ops or in how its parameters begin",
                         ck->path, model);
    return err_input(err, "%s: written by model %.100s, expected %.100s", ck->path,
                     ck->info.model, model);
}

static int verify_file(const struct checkpoint *ck, const struct ckpt_file *f,
                       const struct bulk_way *way, struct err *err) {
    uint64_t hash;
    char *path = ckpt_join(ck->path, f->name);
    int rc = bulk_hash(path, f->bytes, way, &hash, err);
    if (rc == 0 && hash != f->hash) {
        rc = err_input(err, "%s: checksum %016" PRIx64 ", index.json says %016" PRIx64,
                       path, hash, f->hash);
        err_hint(err, "the file was damaged; an earlier step-N may be whole");
    }
    free(path);
    return rc;
}

int checkpoint_verify(const struct checkpoint *ck, int64_t part, int64_t parts,
                      const struct bulk_way *way, struct err *err) {
    for (int64_t i = part; i < ck->index.files.n; i += parts)
        if (verify_file(ck, &ck->index.files.p[i], way, err) < 0)
            return -1;
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

/* The part `both` of a piece of a file is read into a dense box: as runs of floats that are contiguous in
 * both. */
struct runs {
    const struct checkpoint_box *to, *from, *both;
    int64_t offset; /* of the piece in its file */
    int64_t floats; /* of a run */
    int outer;      /* the dims before this one are walked through */
};

/* Trailing dims that are whole in both boxes join the run. */
static struct runs runs_of(const struct checkpoint_box *to,
                           const struct checkpoint_box *from,
                           const struct checkpoint_box *both, int64_t offset) {
    struct runs r = {to, from, both, offset, 1, both->dims};
    for (bool dense = true; r.outer && dense;) {
        int d = --r.outer;
        r.floats *= both->size[d];
        dense = both->size[d] == to->size[d] && both->size[d] == from->size[d];
    }
    return r;
}

static int64_t place_of(const struct runs *r, const int64_t *at) {
    return r->offset + index_in(r->from, at) * (int64_t)sizeof(float);
}

/* Moves at[] on to the next run; false behind the last. */
static bool next_run(const struct runs *r, int64_t *at) {
    for (int d = r->outer - 1; d >= 0; d--) {
        if (++at[d] < r->both->first[d] + r->both->size[d])
            return true;
        at[d] = r->both->first[d];
    }
    return false;
}

enum {
    GAP =
        4096, /* between two runs: less than what a call costs, and the disk reads pages */
    BLOCK = 1 << 18 /* of runs that are read together: some of it stays in a core's cache */
};

/* Runs from at[] on, together with what lies between them, as long as that is little. Moves at[] behind
 * them; *more says whether there are others. */
static int read_runs(const struct runs *r, int fd, const char *path, int64_t *at,
                     char *block, float *out, bool *more, struct err *err) {
    int64_t first[CHECKPOINT_DIMS], begin = place_of(r, at), n = 1;
    int64_t bytes = r->floats * (int64_t)sizeof(float), end = begin + bytes;
    memcpy(first, at, sizeof first);
    while ((*more = next_run(r, at))) {
        int64_t place = place_of(r, at);
        if (place - end > GAP || place + bytes - begin > BLOCK)
            break;
        end = place + bytes;
        n++;
    }
    if (n == 1)
        return bulk_read_at(fd, path, out + index_in(r->to, first), bytes, begin, err);
    if (bulk_read_at(fd, path, block, end - begin, begin, err) < 0)
        return -1;
    for (; n; n--, next_run(r, first))
        memcpy(out + index_in(r->to, first), block + (place_of(r, first) - begin),
               (size_t)bytes);
    return 0;
}

static int read_part(const struct checkpoint *ck, const struct ckpt_piece *p,
                     const struct checkpoint_box *box, const struct checkpoint_box *both,
                     float *out, struct err *err) {
    struct runs r = runs_of(box, &p->box, both, p->offset);
    int64_t at[CHECKPOINT_DIMS];
    char *path, *block = mem_alloc(BLOCK);
    int fd = open_file(ck, &ck->index.files.p[p->file], &path, err), rc = fd < 0 ? -1 : 0;
    memcpy(at, both->first, sizeof at);
    for (bool more = rc == 0; more && rc == 0;)
        rc = read_runs(&r, fd, path, at, block, out, &more, err);
    if (fd >= 0)
        close(fd);
    free(path);
    free(block);
    return rc;
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
        if (ckpt_box_meet(box, &p->box, &both) &&
            read_part(ck, p, box, &both, out, err) < 0)
            return -1;
    }
    return 0;
}
