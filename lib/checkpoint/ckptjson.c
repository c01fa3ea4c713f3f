/* The index as text: reports of ranks and index.json. A piece looks the same in both,
 *     {"file": 0, "first": [0, 0], "offset": 1024, "size": [4, 8]}
 * In a report it carries "tensor" and "shape" too and no "file" (a report is about one).
 * */
#include "checkpoint/ckptindex.h"

#include "checkpoint/xxh64.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing ----------------------------------------------------------------------- */

static json_t *hex(uint64_t v) {
    char text[20];
    snprintf(text, sizeof text, "%016" PRIx64, v);
    return json_string(text);
}

static json_t *int_array(const int64_t *v, int n) {
    json_t *array = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(array, json_integer(v[i]));
    return array;
}

static json_t *piece_json(const struct checkpoint_box *box, int64_t offset) {
    json_t *o = json_object();
    json_object_set_new(o, "first", int_array(box->first, box->dims));
    json_object_set_new(o, "size", int_array(box->size, box->dims));
    json_object_set_new(o, "offset", json_integer(offset));
    return o;
}

static json_t *file_json(const struct ckpt_file *f) {
    json_t *o = json_object();
    json_object_set_new(o, "name", json_string(f->name));
    json_object_set_new(o, "bytes", json_integer(f->bytes));
    json_object_set_new(o, "xxh64", hex(f->hash));
    return o;
}

static char *tensor_key(struct arena *arena, enum checkpoint_kind kind, const char *name) {
    return arena_printf(arena, "%s/%s", checkpoint_kind_name(kind), name);
}

char *ckpt_report_text(int64_t step, const struct ckpt_file *file,
                       const struct checkpoint_piece *pieces, const int64_t *offsets,
                       int64_t n) {
    struct arena arena = {0};
    json_t *root = json_object(), *list = json_array();
    json_object_set_new(root, "step", json_integer(step));
    json_object_set_new(root, "file", file_json(file));
    json_object_set_new(root, "pieces", list);
    for (int64_t i = 0; i < n; i++) {
        const struct checkpoint_piece *p = &pieces[i];
        json_t *o = piece_json(&p->box, offsets[i]);
        json_object_set_new(o, "tensor", json_string(tensor_key(&arena, p->kind, p->name)));
        json_object_set_new(o, "shape", int_array(p->box.shape, p->box.dims));
        json_array_append_new(list, o);
    }
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    arena_release(&arena);
    return text;
}

static json_t *tensor_json(const struct ckpt_index *ix, const struct ckpt_tensor *t) {
    json_t *o = json_object(), *list = json_array();
    json_object_set_new(o, "shape", int_array(t->box.shape, t->box.dims));
    json_object_set_new(o, "pieces", list);
    for (int64_t i = 0; i < t->count; i++) {
        const struct ckpt_piece *p = &ix->pieces.p[t->begin + i];
        json_t *piece = piece_json(&p->box, p->offset);
        json_object_set_new(piece, "file", json_integer(p->file));
        json_array_append_new(list, piece);
    }
    return o;
}

static json_t *settings_json(const struct checkpoint_settings *s) {
    json_t *o = json_object();
#define X(name) json_object_set_new(o, #name, json_integer(s->name));
    CHECKPOINT_WHOLES(X)
#undef X
#define X(name) json_object_set_new(o, #name, json_real(s->name));
    CHECKPOINT_REALS(X)
#undef X
#define X(name, before) json_object_set_new(o, #name, json_integer(s->name));
    CHECKPOINT_LATER_WHOLES(X)
#undef X
#define X(name, before) json_object_set_new(o, #name, json_real(s->name));
    CHECKPOINT_LATER_REALS(X)
#undef X
    if (s->decay)
        json_object_set_new(o, "decay", json_string(s->decay));
    return o;
}

static json_t *data_json(const struct checkpoint_data *d) {
    json_t *o = json_object();
    json_object_set_new(o, "format", json_string(d->format ? d->format : ""));
    json_object_set_new(o, "items", json_integer(d->items));
    json_object_set_new(o, "hash", hex(d->hash));
    return o;
}

static json_t *info_json(const struct checkpoint_info *info) {
    json_t *root = json_object();
    char seed[24]; /* as text: JSON's numbers end at 2^53, those of its readers at 2^63 */
    snprintf(seed, sizeof seed, "%" PRIu64, info->seed);
    json_object_set_new(root, "format", json_string(CKPT_FORMAT));
    json_object_set_new(root, "step", json_integer(info->step));
    json_object_set_new(root, "skipped", json_integer(info->skipped));
    if (info->missing)
        json_object_set_new(root, "missing", json_integer(info->missing));
    if (info->valid_loss > 0)
        json_object_set_new(root, "valid_loss", json_real(info->valid_loss));
    if (info->loss_scale > 0) {
        json_object_set_new(root, "loss_scale", json_real(info->loss_scale));
        json_object_set_new(root, "good_steps", json_integer(info->good_steps));
    }
    json_object_set_new(root, "sample", json_integer(info->sample));
    json_object_set_new(root, "seed", json_string(seed));
    json_object_set_new(root, "run", hex(info->run));
    json_object_set_new(root, "model", json_string(info->model ? info->model : ""));
    json_object_set_new(root, "model_hash", hex(info->model_hash));
    if (info->facts)
        json_object_set_new(root, "model_facts",
                            json_parse(info->facts, strlen(info->facts), "facts", NULL));
    if (info->batch > 0)
        json_object_set_new(root, "batch", json_integer(info->batch));
    if (info->ref)
        json_object_set_new(root, "model_ref", json_string(info->ref));
    if (info->set && info->set[0])
        json_object_set_new(root, "model_set", json_string(info->set));
    if (info->doc) /* as text: the order of its keys is that of its inputs and dims */
        json_object_set_new(root, "model_file", json_string(info->doc));
    json_object_set_new(root, "data", data_json(&info->data));
    json_object_set_new(root, "settings", settings_json(&info->settings));
    return root;
}

/* XXH64 of the canonical text of a document without its checksum. */
static uint64_t content_hash(const json_t *doc) {
    json_t *content = json_copy((json_t *)doc);
    json_object_del(content, "checksum");
    char *text = NULL;
    size_t n = 0;
    struct xxh64 h;
    xxh64_begin(&h);
    FILE *f = open_memstream(&text, &n);
    if (f) {
        json_write(content, f);
        fclose(f);
        xxh64_add(&h, text, n);
    }
    free(text);
    json_decref(content);
    return xxh64_end(&h);
}

json_t *ckpt_index_json(const struct ckpt_index *ix, const struct checkpoint_info *info) {
    struct arena arena = {0};
    json_t *root = info_json(info), *files = json_array(), *tensors = json_object();
    json_object_set_new(root, "files", files);
    json_object_set_new(root, "tensors", tensors);
    for (int64_t i = 0; i < ix->files.n; i++)
        json_array_append_new(files, file_json(&ix->files.p[i]));
    for (int64_t i = 0; i < ix->tensors.n; i++) {
        const struct ckpt_tensor *t = &ix->tensors.p[i];
        json_object_set_new(tensors, tensor_key(&arena, t->kind, t->name),
                            tensor_json(ix, t));
    }
    json_object_set_new(root, "checksum", hex(content_hash(root)));
    arena_release(&arena);
    return root;
}

/* ---- reading ----------------------------------------------------------------------- */

static int read_hex(const json_t *obj, const char *key, uint64_t *out, struct err *err) {
    const char *text = NULL;
    if (json_str(obj, key, &text, err) < 0)
        return -1;
    if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return err_input(err, "%s: expected 16 hexadecimal digits", key);
    *out = strtoull(text, NULL, 16);
    return 0;
}

/* Reads whole numbers; *dims < 0 takes their number, else it must match. */
static int read_ints(const json_t *obj, const char *key, int *dims, int64_t *out,
                     struct err *err) {
    json_t *array;
    if (json_array_member(obj, key, &array, err) < 0)
        return -1;
    size_t n = json_array_size(array);
    if (*dims >= 0 && n != (size_t)*dims)
        return err_input(err, "%s: expected %d numbers, got %zu", key, *dims, n);
    if (n > CHECKPOINT_DIMS)
        return err_input(err, "%s: expected at most %d numbers", key, CHECKPOINT_DIMS);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(array, i);
        if (!json_is_integer(v))
            return err_input(err, "%s[%zu]: expected a whole number", key, i);
        out[i] = json_integer_value(v);
    }
    *dims = (int)n;
    return 0;
}

/* Reads "first", "size", "offset"; dims and shape of the box are set. */
static int read_box(const json_t *obj, struct ckpt_piece *p, struct err *err) {
    if (read_ints(obj, "first", &p->box.dims, p->box.first, err) < 0 ||
        read_ints(obj, "size", &p->box.dims, p->box.size, err) < 0)
        return -1;
    return json_int(obj, "offset", 0, INT64_MAX, &p->offset, err);
}

/* Splits "adam_m/wte.weight". */
static int read_key(struct ckpt_index *ix, const char *key, struct ckpt_piece *p,
                    struct err *err) {
    for (int k = 0; k < CHECKPOINT_KIND_COUNT; k++) {
        const char *kind = checkpoint_kind_name((enum checkpoint_kind)k);
        size_t n = strlen(kind);
        if (strncmp(key, kind, n) || key[n] != '/')
            continue;
        if (!ckpt_name_good(key + n + 1))
            break;
        p->kind = (enum checkpoint_kind)k;
        p->name = arena_strdup(&ix->arena, key + n + 1);
        return 0;
    }
    return err_input(err, "expected KIND/NAME, such as param/wte.weight");
}

static int read_file(struct ckpt_index *ix, const json_t *obj, struct err *err) {
    struct ckpt_file f = {0};
    if (json_keys(obj, "name bytes xxh64", err) < 0 ||
        json_str(obj, "name", &f.name, err) < 0 ||
        json_int(obj, "bytes", 1, INT64_MAX, &f.bytes, err) < 0 ||
        read_hex(obj, "xxh64", &f.hash, err) < 0)
        return -1;
    /* A name with a slash would lead out of the checkpoint. */
    if (!ckpt_name_good(f.name) || f.name[0] == '.')
        return err_input(err, "name: expected a plain file name");
    f.name = arena_strdup(&ix->arena, f.name);
    arr_push(&ix->files, f);
    return 0;
}

static int read_report_piece(struct ckpt_index *ix, const json_t *obj, struct err *err) {
    struct ckpt_piece p = {.box.dims = -1, .file = ix->files.n - 1};
    const char *key = NULL;
    if (json_keys(obj, "tensor shape first size offset", err) < 0 ||
        json_str(obj, "tensor", &key, err) < 0 || read_key(ix, key, &p, err) < 0 ||
        read_ints(obj, "shape", &p.box.dims, p.box.shape, err) < 0 ||
        read_box(obj, &p, err) < 0)
        return -1;
    arr_push(&ix->pieces, p);
    return 0;
}

static int read_report(struct ckpt_index *ix, int64_t step, const json_t *root,
                       struct err *err) {
    json_t *file, *pieces;
    if (json_keys(root, "step file pieces", err) < 0 ||
        json_int(root, "step", step, step, &step, err) < 0 ||
        json_object_member(root, "file", &file, err) < 0 ||
        json_array_member(root, "pieces", &pieces, err) < 0)
        return -1;
    if (read_file(ix, file, err) < 0)
        return err_at(err, "file");
    for (size_t i = 0; i < json_array_size(pieces); i++)
        if (read_report_piece(ix, json_array_get(pieces, i), err) < 0)
            return err_at(err, "pieces[%zu]", i);
    return 0;
}

int ckpt_index_add_report(struct ckpt_index *ix, int64_t step, const char *text,
                          struct err *err) {
    json_t *root = json_parse(text, strlen(text), "report", err);
    if (!root)
        return -1;
    int bad = read_report(ix, step, root, err);
    json_decref(root);
    return bad;
}

static int read_tensor(struct ckpt_index *ix, const char *key, const json_t *obj,
                       struct err *err) {
    struct ckpt_piece p = {.box.dims = -1};
    json_t *pieces;
    if (read_key(ix, key, &p, err) < 0 || json_keys(obj, "shape pieces", err) < 0 ||
        read_ints(obj, "shape", &p.box.dims, p.box.shape, err) < 0 ||
        json_array_member(obj, "pieces", &pieces, err) < 0)
        return -1;
    if (!json_array_size(pieces))
        return err_input(err, "pieces: expected at least one");
    for (size_t i = 0; i < json_array_size(pieces); i++) {
        const json_t *piece = json_array_get(pieces, i);
        if (json_keys(piece, "file first size offset", err) < 0 ||
            json_int(piece, "file", 0, INT64_MAX, &p.file, err) < 0 ||
            read_box(piece, &p, err) < 0)
            return err_at(err, "pieces[%zu]", i);
        arr_push(&ix->pieces, p);
    }
    return 0;
}

/* A whole number of 64 bits, as text. */
static int read_seed(const json_t *obj, uint64_t *out, struct err *err) {
    const char *text = NULL;
    char *end;
    if (json_str(obj, "seed", &text, err) < 0)
        return -1;
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (!*text || strspn(text, "0123456789") != strlen(text) || errno)
        return err_input(err, "seed: expected the digits of a whole number");
    return 0;
}

/* What came later is as it was before where it is not said. */
static int read_later(struct ckpt_index *ix, const json_t *obj,
                      struct checkpoint_settings *s, struct err *err) {
#define X(name, before)                                                                    \
    s->name = before;                                                                      \
    if (json_opt_int(obj, #name, 0, INT64_MAX, &s->name, err) < 0)                         \
        return -1;
    CHECKPOINT_LATER_WHOLES(X)
#undef X
#define X(name, before)                                                                    \
    s->name = before;                                                                      \
    if (json_opt_num(obj, #name, 0, HUGE_VAL, &s->name, err) < 0)                          \
        return -1;
    CHECKPOINT_LATER_REALS(X)
#undef X
    if (json_opt_str(obj, "decay", &s->decay, err) < 0)
        return -1;
    s->decay = s->decay ? arena_strdup(&ix->arena, s->decay) : NULL;
    return 0;
}

static int read_settings(struct ckpt_index *ix, const json_t *obj,
                         struct checkpoint_settings *s, struct err *err) {
#define X(name)             #name " "
#define LATER(name, before) #name " "
    if (json_keys(obj,
                  CHECKPOINT_WHOLES(X) CHECKPOINT_REALS(X) CHECKPOINT_LATER_WHOLES(LATER)
                      CHECKPOINT_LATER_REALS(LATER) "decay",
                  err) < 0)
        return -1;
#undef X
#undef LATER
#define X(name)                                                                            \
    if (json_int(obj, #name, 0, INT64_MAX, &s->name, err) < 0)                             \
        return -1;
    CHECKPOINT_WHOLES(X)
#undef X
#define X(name)                                                                            \
    if (json_num(obj, #name, 0, HUGE_VAL, &s->name, err) < 0)                              \
        return -1;
    CHECKPOINT_REALS(X)
#undef X
    return read_later(ix, obj, s, err);
}

static int read_data(struct ckpt_index *ix, const json_t *obj, struct checkpoint_data *d,
                     struct err *err) {
    if (json_keys(obj, "format items hash", err) < 0 ||
        json_str(obj, "format", &d->format, err) < 0 ||
        json_int(obj, "items", 0, INT64_MAX, &d->items, err) < 0 ||
        read_hex(obj, "hash", &d->hash, err) < 0)
        return -1;
    d->format = arena_strdup(&ix->arena, d->format);
    return 0;
}

/* Whatever they are: they are compared and shown, nothing more. */
static int read_facts(struct ckpt_index *ix, struct checkpoint_info *info,
                      const json_t *doc, struct err *err) {
    const json_t *facts = json_object_get(doc, "model_facts");
    if (!facts)
        return 0;
    if (!json_is_object(facts))
        return err_input(err, "model_facts: expected an object, got %s",
                         json_type_name(facts));
    char *text = json_dumps(facts, JSON_COMPACT);
    info->facts = arena_strdup(&ix->arena, text);
    free(text);
    return 0;
}

static int read_info(struct ckpt_index *ix, struct checkpoint_info *info, const json_t *doc,
                     struct err *err) {
    const char *model = NULL;
    json_t *data, *settings;
    if (json_format(doc, CKPT_FORMAT, err) < 0 ||
        json_keys(
            doc,
            "format step skipped missing valid_loss loss_scale good_steps sample seed run model "
            "model_hash model_facts model_ref model_set model_file batch data settings "
            "files tensors checksum",
            err) < 0 ||
        json_int(doc, "step", 0, INT64_MAX, &info->step, err) < 0 ||
        json_int(doc, "skipped", 0, info->step, &info->skipped, err) < 0 ||
        json_opt_int(doc, "missing", 0, INT64_MAX, &info->missing, err) < 0 ||
        json_opt_num(doc, "valid_loss", 0, HUGE_VAL, &info->valid_loss, err) < 0 ||
        json_opt_num(doc, "loss_scale", 1, 0x1p60, &info->loss_scale, err) < 0 ||
        json_opt_int(doc, "good_steps", 0, info->step, &info->good_steps, err) < 0 ||
        json_int(doc, "sample", 0, INT64_MAX, &info->sample, err) < 0 ||
        read_seed(doc, &info->seed, err) < 0 || read_hex(doc, "run", &info->run, err) < 0 ||
        json_str(doc, "model", &model, err) < 0 ||
        read_hex(doc, "model_hash", &info->model_hash, err) < 0 ||
        json_opt_int(doc, "batch", 1, INT64_MAX, &info->batch, err) < 0 ||
        read_facts(ix, info, doc, err) < 0 ||
        json_opt_str(doc, "model_ref", &info->ref, err) < 0 ||
        json_opt_str(doc, "model_set", &info->set, err) < 0 ||
        json_opt_str(doc, "model_file", &info->doc, err) < 0 ||
        json_object_member(doc, "data", &data, err) < 0 ||
        json_object_member(doc, "settings", &settings, err) < 0)
        return -1;
    if (read_data(ix, data, &info->data, err) < 0)
        return err_at(err, "data");
    if (read_settings(ix, settings, &info->settings, err) < 0)
        return err_at(err, "settings");
    info->model = arena_strdup(&ix->arena, model);
    info->ref = info->ref ? arena_strdup(&ix->arena, info->ref) : NULL;
    info->set = info->set ? arena_strdup(&ix->arena, info->set) : NULL;
    info->doc = info->doc ? arena_strdup(&ix->arena, info->doc) : NULL;
    return 0;
}

static int check_content(const json_t *doc, struct err *err) {
    uint64_t told = 0, found = content_hash(doc);
    if (read_hex(doc, "checksum", &told, err) < 0)
        return -1;
    if (told != found)
        return err_input(
            err, "checksum: the content has %016" PRIx64 ", the file says %016" PRIx64,
            found, told);
    return 0;
}

int ckpt_index_read(struct ckpt_index *ix, struct checkpoint_info *info, const json_t *doc,
                    struct err *err) {
    json_t *files, *tensors, *v;
    const char *key;
    if (!json_is_object(doc))
        return err_input(err, "expected an object, got %s", json_type_name(doc));
    if (read_info(ix, info, doc, err) < 0 ||
        json_array_member(doc, "files", &files, err) < 0 ||
        json_object_member(doc, "tensors", &tensors, err) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(files); i++)
        if (read_file(ix, json_array_get(files, i), err) < 0)
            return err_at(err, "files[%zu]", i);
    json_object_foreach(tensors, key, v) {
        if (read_tensor(ix, key, v, err) < 0)
            return err_prefix(err, "tensors: %.100s", key);
    }
    if (ckpt_index_check(ix, err) < 0)
        return err_prefix(err, "tensors");
    return check_content(doc, err);
}
