/* Where the parameters of a model lie in files that PyTorch wrote. */
#include "import/build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct found_op *op_at(const struct build *b, int at) {
    return &b->t->ops.p[b->order.p[at]];
}

const char *build_slot(const struct found_op *op, int slot) {
    return kind_of((enum kind_id)op->kind)->param[slot].name;
}

/* A parameter that several ops have lies as PyTorch has it, so that it is one for all. */
struct axis build_param_dims(struct build *b, int at, int slot) {
    const struct found_op *op = op_at(b, at);
    struct axis dims = op->param[slot].dims;
    const struct followed_param *p = &b->t->params.p[op->param[slot].param];
    if (b->uses[op->param[slot].param] > 1 && op->kind == OP_einsum &&
        op->param[slot].part < 0) {
        dims.n = 0;
        for (int i = 0; i < p->rank; i++)
            for (int k = 0; k < p->axis[i].n && dims.n < AXIS_MOST; k++)
                dims.atom[dims.n++] = p->axis[i].atom[k];
    }
    axes_settle(&b->t->axes, &dims);
    return dims;
}

/* ---- the section ------------------------------------------------------------------------------- */

/* The parts that an atom is cut into, one behind the other, as "heads*kv+kv_heads*kv+1"; false where some of it
 * is in none. */
static bool ranges_text(struct build *b, int atom, char *text, size_t size) {
    const struct follow *t = b->t;
    int64_t at = 0, all = t->axes.atoms.p[atom].size;
    size_t used = 0;
    while (at < all && used < size) {
        const struct followed_range *r = NULL;
        for (int64_t i = 0; i < t->ranges.n && !r; i++)
            if (axes_class(&t->axes, t->ranges.p[i].atom) == atom &&
                t->ranges.p[i].from == at)
                r = &t->ranges.p[i];
        if (!r)
            return false;
        struct axis dims = {0};
        if (r->as >= 0)
            dims = axis_of(r->as);
        axes_settle(&t->axes, &dims);
        used += (size_t)snprintf(text + used, size - used, "%s%s", at ? "+" : "",
                                 dims.n ? "" : "1");
        for (int i = 0; i < dims.n && used < size; i++)
            used += (size_t)snprintf(text + used, size - used, "%s%s", i ? "*" : "",
                                     build_dim(b, dims.atom[i]));
        at += r->count;
    }
    return used < size && at == all;
}

/* The number of the part that begins at an index of an atom; -1: there are no parts of several sizes. */
static int range_number(struct build *b, int atom, int from) {
    const struct follow *t = b->t;
    int n = 0;
    bool ranges = false;
    for (int64_t i = 0; i < t->ranges.n; i++) {
        const struct followed_range *r = &t->ranges.p[i];
        bool again = axes_class(&t->axes, r->atom) != atom;
        ranges |= !again;
        for (int64_t k = 0; k < i && !again; k++)
            again = axes_class(&t->axes, t->ranges.p[k].atom) == atom &&
                    t->ranges.p[k].from == r->from;
        n += !again && r->from < from;
    }
    return ranges ? n : -1;
}

/* What is cut in words: "1/3", or "1/heads+kv_heads+kv_heads" where parts have several sizes. */
static bool part_text(struct build *b, const struct found_param *use, int atom, char *text,
                      size_t size) {
    char ranges[192];
    int number = range_number(b, atom, use->index);
    if (number < 0)
        return snprintf(text, size, "%d/%lld", use->index,
                        (long long)b->t->axes.atoms.p[atom].size) < (int)size;
    return ranges_text(b, atom, ranges, sizeof ranges) &&
           snprintf(text, size, "%d/%s", number, ranges) < (int)size;
}

/* An axis of the tensor in words: names of dims, and "1/3" where the op has one part of them. False
 * where the op has it otherwise. */
static bool axis_text(struct build *b, const struct found_param *use,
                      const struct axis *axis, char *text, size_t size) {
    struct axis a = *axis;
    size_t used = 0;
    int part = use->part >= 0 ? axes_class(&b->t->axes, use->part) : -1;
    if (axes_settle(&b->t->axes, &a) < 0)
        return false;
    if (!a.n) /* of size 1 */
        return snprintf(text, size, "0/1") > 0;
    for (int i = 0; i < a.n && used < size; i++) {
        char cut[224];
        if (a.atom[i] == part && !part_text(b, use, part, cut, sizeof cut))
            return false;
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? " " : "",
                                 a.atom[i] == part ? cut : build_dim(b, a.atom[i]));
    }
    return used < size;
}

/* Of a table only the first rows may be used: the first of equal parts. */
static bool rows_text(struct build *b, const struct followed_param *p, char *text,
                      size_t size) {
    int64_t all = b->t->p->values.p[p->value].size[0];
    if (p->rows == 1 && all > 1)
        return false; /* of samples that are alike in the file: they cannot be left out there */
    const char *own = p->rows == all ? text
                                     : arena_printf(&b->t->arena, "0/%lld %s",
                                                    (long long)(all / p->rows), text);
    if (own != text)
        snprintf(text, size, "%s", own);
    return all % p->rows == 0 && strlen(own) < size;
}

static json_t *dims_text(struct build *b, const struct found_param *use) {
    const struct followed_param *p = &b->t->params.p[use->param];
    json_t *dims = json_array();
    char text[256];
    for (int i = 0; i < p->rank; i++) {
        if (!axis_text(b, use, &p->axis[i], text, sizeof text) ||
            (i == 0 && !rows_text(b, p, text, sizeof text))) {
            json_decref(dims);
            return NULL;
        }
        json_array_append_new(dims, json_string(text));
    }
    return dims;
}

/* The tensor's name, with a star for the number of the instance; NULL where it has none there. */
static const char *tensor_name(struct build *b, const struct found_op *op,
                               const char *path) {
    if (op->run < 0)
        return path;
    const struct run *r = &b->runs.p[op->run];
    size_t n = strlen(r->prefix);
    char *rest;
    if (r->number != 0 || strncmp(path, r->prefix, n) != 0 || path[n] != '.' ||
        strtol(path + n + 1, &rest, 10) != 0 || *rest != '.')
        return NULL;
    return arena_printf(&b->t->arena, "%s.*%s", r->prefix, rest);
}

/* The parameter's name in the model, of all instances. */
static const char *own_name(const struct build *b, const struct found_op *op, int slot) {
    return op->run < 0 ? arena_printf(&b->t->arena, "%s.%s", op->name, build_slot(op, slot))
                       : arena_printf(&b->t->arena, "%s.*.%s.%s", b->runs.p[op->run].name,
                                      op->name, build_slot(op, slot));
}

json_t *build_frozen(const struct build *b) {
    json_t *list = json_array();
    for (int at = 0; at < b->order.n; at++) {
        const struct found_op *op = op_at(b, at);
        for (int i = 0; i < op->n_param && (op->run < 0 || op->instance == 0); i++)
            if (!build_path(b, op->param[i].param))
                json_array_append_new(list, json_string(own_name(b, op, i)));
    }
    if (json_array_size(list))
        return list;
    json_decref(list);
    return NULL;
}

static int add_tensor(struct build *b, json_t *tensors, int at, int slot) {
    const struct found_op *op = op_at(b, at);
    const struct found_param *use = &op->param[slot];
    const char *path = build_path(b, use->param);
    if (!path) {
        json_object_set_new(tensors, own_name(b, op, slot), json_null());
        return 0;
    }
    bool common = op->run >= 0 && use->part < 0 && b->uses[use->param] > 1;
    const char *name = common ? path : tensor_name(b, op, path);
    json_t *dims = name ? dims_text(b, use) : NULL;
    if (!dims || strpbrk(path, "*{}"))
        return json_decref(dims), -1;
    const char *own =
        common ? arena_printf(&b->t->arena, "%s.0.%s.%s", b->runs.p[op->run].name, op->name,
                              build_slot(op, slot))
               : own_name(b, op, slot);
    struct axis lies = build_param_dims(b, at, slot);
    bool plain = (int)json_array_size(dims) == lies.n;
    for (int i = 0; i < lies.n && plain; i++)
        plain = !strcmp(json_string_value(json_array_get(dims, (size_t)i)),
                        build_dim(b, lies.atom[i]));
    json_object_set_new(tensors, own,
                        plain ? json_string(name)
                              : json_pack("{s:s, s:O}", "name", name, "dims", dims));
    json_decref(dims);
    return 0;
}

/* Buffers lie in such files too: masks, frequencies. */
static json_t *ignored(struct build *b) {
    json_t *list = json_array(), *seen = json_object();
    for (int64_t i = 0; i < b->t->p->values.n; i++) {
        const struct exported_value *v = &b->t->p->values.p[i];
        char name[256] = "";
        if (v->role != EXPORTED_BUFFER || strlen(v->path) >= sizeof name)
            continue;
        for (const char *p = v->path; *p;) {
            size_t n = strcspn(p, "."), digits = strspn(p, "0123456789");
            size_t used = strlen(name);
            snprintf(name + used, sizeof name - used, "%.*s%s", digits == n ? 1 : (int)n,
                     digits == n ? "*" : p, p[n] ? "." : "");
            p += n + (p[n] == '.');
        }
        if (!json_object_get(seen, name))
            json_array_append_new(list, json_string(name));
        json_object_set_new(seen, name, json_true());
    }
    json_decref(seen);
    return list;
}

json_t *build_weights(struct build *b) {
    json_t *tensors = json_object();
    for (int at = 0; at < b->order.n; at++)
        for (int i = 0; i < op_at(b, at)->n_param; i++) {
            const struct found_op *op = op_at(b, at);
            const struct found_param *p = &op->param[i];
            bool again = p->part < 0 && b->first[p->param] != at;
            if ((op->run >= 0 && op->instance > 0) || again)
                continue;
            if (add_tensor(b, tensors, at, i) < 0) {
                json_array_append_new(
                    b->t->notes,
                    json_sprintf(
                        "where %.128s lies in files of weights cannot be said, so the "
                        "model has no names for weights",
                        build_path(b, p->param)));
                json_decref(tensors);
                return NULL;
            }
        }
    json_t *section = json_pack("{s:o}", "tensors", tensors), *ignore = ignored(b);
    if (json_array_size(ignore))
        json_object_set(section, "ignore", ignore);
    json_decref(ignore);
    return section;
}
