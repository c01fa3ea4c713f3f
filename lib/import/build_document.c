/* The document of a model, from ops with names. */
#include "import/build.h"

#include "common/file.h"
#include "import/import.h"
#include "import/translate.h"

#include <stdlib.h>
#include <string.h>

static struct found_op *op_at(const struct build *b, int at) {
    return &b->t->ops.p[b->order.p[at]];
}

static json_t *dim_names(struct build *b, const struct axis *a) {
    struct axis dims = *a;
    json_t *list = json_array();
    axes_settle(&b->t->axes, &dims);
    for (int i = 0; i < dims.n; i++)
        json_array_append_new(list, json_string(build_dim(b, dims.atom[i])));
    return list;
}

/* ---- ops ----------------------------------------------------------------------------------------------- */

static json_t *param_of(struct build *b, int at, int slot) {
    const struct found_param *p = &op_at(b, at)->param[slot];
    struct axis dims = build_param_dims(b, at, slot);
    json_t *v = json_pack("{s:o}", "dims", dim_names(b, &dims));
    int first = p->part < 0 ? b->first[p->param] : at;
    const struct found_op *op = op_at(b, first);
    if (op->run >= 0 && b->uses[p->param] > 1 && p->part < 0) {
        json_object_set_new(v, "tie",
                            json_sprintf("%s.0.%s.%s", b->runs.p[op->run].name, op->name,
                                         build_slot(op, slot)));
        json_object_set_new(v, "when", json_string("instance"));
    }
    if (first == at)
        return v;
    for (int i = 0; i < op->n_param; i++)
        if (op->param[i].param == p->param)
            json_object_set_new(v, "tie",
                                json_sprintf("%s.%s", op->name, build_slot(op, i)));
    return v;
}

static json_t *op_json(struct build *b, int at) {
    const struct found_op *op = op_at(b, at);
    json_t *in = json_array();
    for (int i = 0; i < op->n_in; i++)
        json_array_append_new(in, json_string(b->t->ops.p[op->in[i]].out));
    json_t *v = json_pack("{s:s, s:s, s:o, s:s, s:o}", "name", op->name, "kind",
                          kind_of((enum kind_id)op->kind)->name, "in", in, "out", op->out,
                          "dims", dim_names(b, &op->dims));
    for (int i = 0; i < op->n_param; i++)
        json_object_set_new(v, build_slot(op, i), param_of(b, at, i));
    if (op->attrs)
        json_object_update(v, op->attrs);
    if (op->kind == OP_route) {
        json_t *dims = json_object_get(v, "dims");
        json_object_set_new(v, "out", json_pack("[s, s]", op->out, op->second));
        json_object_set_new(v, "dims", json_pack("[O, O]", dims, dims));
    }
    return v;
}

/* A sum of one operand, which is no op: its operand under another name. */
static json_t *named_json(struct build *b, const char *name, const char *from,
                          const char *to, int like) {
    return json_pack("{s:s, s:s, s:[s], s:s, s:o}", "name", name, "kind", "add", "in", from,
                     "out", to, "dims", dim_names(b, &b->t->ops.p[like].dims));
}

static bool has_common(const struct build *b, const struct run *r) {
    for (int k = 0; k < r->ops; k++)
        for (int i = 0; i < op_at(b, r->begin + k)->n_param; i++) {
            const struct found_param *p = &op_at(b, r->begin + k)->param[i];
            if (p->part < 0 && b->uses[p->param] > 1)
                return true;
        }
    return false;
}

/* The first instance stands for all; what it reads that is handed on has the name of that. */
static json_t *block_json(struct build *b, struct run *r, json_t *ops) {
    json_t *inside = json_array();
    for (int64_t i = 0; i < r->carried.n; i++) {
        struct carried *c = &r->carried.p[i];
        struct found_op *first = &b->t->ops.p[c->first];
        if (c->lead) {
            json_array_append_new(
                ops,
                named_json(b, arena_printf(&b->t->arena, "%s_reads_%s", r->name, c->name),
                           first->out, c->name, c->first));
            first->out = c->name;
        }
    }
    for (int k = 0; k < r->ops; k++)
        json_array_append_new(inside, op_json(b, r->begin + k));
    for (int64_t i = 0; i < r->carried.n; i++) {
        struct carried *c = &r->carried.p[i];
        if (!c->trail)
            continue;
        json_array_append_new(
            inside, named_json(b, arena_printf(&b->t->arena, "gives_%s", c->name), c->inner,
                               c->name, b->order.p[r->begin + c->place]));
        op_at(b, r->begin + (r->instances - 1) * r->ops + c->place)->out = c->name;
    }
    json_t *block =
        json_pack("{s:s, s:s, s:o}", "name", r->name, "repeat", r->count, "ops", inside);
    if (has_common(b, r))
        json_object_set_new(block, "index", json_string("instance"));
    return block;
}

static json_t *ops_json(struct build *b) {
    json_t *ops = json_array();
    for (int at = 0; at < b->order.n;) {
        struct run *r = build_run_at(b, at);
        json_array_append_new(ops, r ? block_json(b, r, ops) : op_json(b, at));
        at += r ? r->ops * r->instances : 1;
    }
    return ops;
}

static json_t *inputs_json(struct build *b) {
    json_t *inputs = json_object();
    for (int64_t i = 0; i < b->t->ops.n; i++) {
        const struct found_op *op = &b->t->ops.p[i];
        if (op->live && op->kind == FOUND_INPUT)
            json_object_set_new(inputs, op->name,
                                json_pack("{s:o, s:s}", "dims", dim_names(b, &op->dims),
                                          "source", op->source));
    }
    return inputs;
}

/* ---- the document ------------------------------------------------------------------------------------- */

/* Do two ops at one place of instances of a block have it, neighbours in the order? */
static bool is_common(const struct build *b, int at, int other) {
    const struct found_op *p = op_at(b, at), *q = op_at(b, other);
    return p->run >= 0 && p->run == q->run && p->place == q->place &&
           p->instance + 1 == q->instance;
}

static int count_uses(struct build *b, struct err *err) {
    size_t n = (size_t)b->t->params.n + 1;
    b->uses = arena_array(&b->t->arena, n, sizeof *b->uses);
    b->first = arena_array(&b->t->arena, n, sizeof *b->first);
    for (int at = (int)b->order.n; at-- > 0;)
        for (int i = 0; i < op_at(b, at)->n_param; i++) {
            int p = op_at(b, at)->param[i].param;
            if (op_at(b, at)->param[i].part >= 0)
                continue;
            if (b->uses[p]++ && !is_common(b, at, b->first[p]) &&
                (op_at(b, at)->run >= 0 || op_at(b, b->first[p])->run >= 0))
                return err_input(err, "%.128s: several ops have it, in blocks that repeat",
                                 build_path(b, p));
            b->first[p] = at;
        }
    return 0;
}

static json_t *document(struct build *b, const char *name, struct err *err) {
    if (count_uses(b, err) < 0)
        return NULL;
    const struct exported *p = b->t->p;
    json_t *weights = build_weights(b);
    json_t *inputs = inputs_json(b), *ops = ops_json(b);
    json_t *doc =
        json_pack("{s:s, s:s, s:s, s:O, s:o, s:o}", "format", "weft-model/1", "name", name,
                  "about", p->about ? p->about : "From a program that torch.export wrote.",
                  "sizes", b->sizes, "inputs", inputs, "ops", ops);
    if (weights)
        json_object_set_new(doc, "weights", weights);
    json_t *frozen = build_frozen(b);
    if (frozen)
        json_object_set_new(doc, "frozen", frozen);
    return doc;
}

/* ---- all of it ------------------------------------------------------------------------------------------ */

static json_t *import_program(const struct exported *p, const char *name, json_t **notes,
                              struct err *err) {
    struct follow t = {.p = p};
    struct build b = {.t = &t, .targets = -1};
    json_t *doc = NULL;
    follow_run(&t);
    if (build_loss(&b, err) == 0) {
        build_repeats(&b);
        build_mend(&b);
        if (build_names(&b, err) == 0)
            doc = document(&b, name, err);
    }
    *notes = doc ? json_incref(t.notes) : NULL;
    for (int64_t i = 0; i < b.runs.n; i++)
        arr_release(&b.runs.p[i].carried);
    arr_release(&b.runs);
    arr_release(&b.order);
    json_decref(b.sizes);
    follow_release(&t);
    return doc;
}

/* A zip archive, or a protobuf message, which begins with its first field: of a module its name, of a model of ONNX
 * the version of its form. No JSON begins so. */
bool import_is_program(const void *bytes, size_t size) {
    const char *b = bytes;
    if (size > 4 && b[0] == 0x08 && b[1] > 2 && b[1] < 100)
        return true;
    return (size > 4 && !memcmp(b, "PK\3\4", 4)) ||
           (size > 4 && b[0] == '\n' && b[strspn(b, " \t\r\n")] != '{');
}

/* `folder`: that of the file, where there is one. */
static json_t *import_bytes(const void *bytes, int64_t size, const char *name,
                            const char *folder, json_t **notes, struct err *err) {
    struct exported p;
    const uint8_t first = size ? *(const uint8_t *)bytes : 0;
    int rc = first == 0x0a   ? translate_hlo(&p, bytes, size, err)
             : first == 0x08 ? translate_onnx(&p, bytes, size, folder, NULL, err)
                             : exported_parse(&p, bytes, size, err);
    json_t *doc = rc == 0 ? import_program(&p, name, notes, err) : NULL;
    exported_close(&p);
    return doc;
}

json_t *import_exported_bytes(const void *bytes, int64_t size, const char *name,
                              json_t **notes, struct err *err) {
    return import_bytes(bytes, size, name, NULL, notes, err);
}

static json_t *import_archive(const char *path, const char *name, json_t **notes,
                              struct err *err) {
    struct exported p;
    json_t *doc =
        exported_open(&p, path, err) == 0 ? import_program(&p, name, notes, err) : NULL;
    exported_close(&p);
    return doc;
}

/* The folder that a file is in. */
static char *folder_of(const char *path) {
    const char *last = strrchr(path, '/');
    char *folder = mem_strdup(!last ? "." : last == path ? "/" : path);
    if (last && last != path)
        folder[last - path] = '\0';
    return folder;
}

json_t *import_exported(const char *path, json_t **notes, struct err *err) {
    const char *last = strrchr(path, '/');
    char *name = mem_strdup(last ? last + 1 : path), *bytes;
    json_t *doc = NULL;
    size_t size;
    name[strcspn(name, ".")] = '\0';
    for (char *c = name; *c; c++)
        if (*c < ' ')
            *c = '_';
    if (archive_is(path)) {
        doc = import_archive(path, *name ? name : "model", notes, err);
    } else if ((bytes = file_read(path, 0, &size, err))) {
        char *folder = folder_of(path);
        doc =
            import_bytes(bytes, (int64_t)size, *name ? name : "model", folder, notes, err);
        free(folder);
        free(bytes);
    }
    free(name);
    return doc;
}

int import_weights(const char *path, const char *to, struct err *err) {
    size_t size;
    struct exported p;
    char *bytes = archive_is(path) ? NULL : file_read(path, 0, &size, err);
    if (!bytes || size < 2 || *bytes != 0x08 || !import_is_program(bytes, size)) {
        free(bytes);
        return err && err->msg[0] ? -1 : err_input(err, "expected a model of ONNX");
    }
    char *folder = folder_of(path);
    int rc = translate_onnx(&p, bytes, (int64_t)size, folder, to, err);
    exported_close(&p);
    free(folder);
    free(bytes);
    return rc;
}
