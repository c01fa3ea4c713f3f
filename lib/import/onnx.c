/* The fields of a model of ONNX. */
#include "import/onnx.h"

#include "common/half.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t most_elements = (int64_t)1 << 40;

/* ---- texts and lists ------------------------------------------------------------------------------ */

static const char *text_of(struct onnx *x, const struct wire_field *f) {
    size_t n = f->type == WIRE_BYTES ? (size_t)(f->bytes.end - f->bytes.at) : 0;
    char *text = arena_alloc(&x->arena, n + 1);
    for (size_t i = 0; i < n; i++)
        text[i] = f->bytes.at[i] < ' ' ? '_' : (char)f->bytes.at[i];
    return text;
}

/* A message whose fields 1 and 2 are a key and a value. */
static int read_pair(struct onnx *x, struct wire in, const char *pair[2], struct err *err) {
    struct wire_field f;
    int got;
    pair[0] = pair[1] = "";
    while ((got = wire_next(&in, &f, err)) > 0)
        if (f.number == 1 || f.number == 2)
            pair[f.number - 1] = text_of(x, &f);
    return got;
}

/* ---- shapes and tensors --------------------------------------------------------------------------- */

static int add_size(struct onnx_shape *s, int64_t size, struct err *err) {
    int64_t all = s->rank > 0 ? onnx_elements(s) : 1;
    if (s->rank == ONNX_MAX_RANK)
        return err_input(err, "shape: expected at most %d sizes", ONNX_MAX_RANK);
    if (size < 0 || (size && size > most_elements / (all ? all : 1)))
        return err_input(err, "shape: a size of %lld elements", (long long)size);
    s->size[s->rank++] = size;
    return 0;
}

int64_t onnx_elements(const struct onnx_shape *s) {
    int64_t n = 1;
    for (int i = 0; i < s->rank; i++)
        n *= s->size[i];
    return n;
}

/* A dimension: its value, or the name of one that changes. */
static int read_dim(struct onnx *x, struct wire in, struct onnx_shape *s, struct err *err) {
    struct wire_field f;
    int64_t size = -1;
    const char *name = "?";
    int got;
    while ((got = wire_next(&in, &f, err)) > 0) {
        if (f.number == 1 && f.type == WIRE_VARINT)
            size = (int64_t)f.value;
        if (f.number == 2)
            name = text_of(x, &f);
    }
    if (size < 0 && !s->dynamic)
        s->dynamic = name;
    return got < 0 ? -1 : add_size(s, size < 0 ? 1 : size, err);
}

/* TypeProto's tensor: a type and sizes, at two depths of messages. */
static int read_type(struct onnx *x, struct wire in, int depth, struct onnx_shape *s,
                     struct err *err) {
    struct wire_field f;
    int got;
    while ((got = wire_next(&in, &f, err)) > 0) {
        int rc = 0;
        if (depth == 0 && f.number == 1 && f.type == WIRE_BYTES)
            rc = read_type(x, f.bytes, 1, s, err);
        else if (depth == 1 && f.number == 1)
            s->type = (int)(f.value & 0xff);
        else if (depth == 1 && f.number == 2 && f.type == WIRE_BYTES) {
            s->rank = 0;
            rc = read_type(x, f.bytes, 2, s, err);
        } else if (depth == 2 && f.number == 1 && f.type == WIRE_BYTES)
            rc = read_dim(x, f.bytes, s, err);
        if (rc < 0)
            return -1;
    }
    return got;
}

static int read_shape(struct onnx *x, struct wire in, struct onnx_shape *s,
                      struct err *err) {
    struct wire_field f;
    int got;
    *s = (struct onnx_shape){.name = "", .rank = -1};
    while ((got = wire_next(&in, &f, err)) > 0) {
        if (f.number == 1)
            s->name = text_of(x, &f);
        if (f.number == 2 && f.type == WIRE_BYTES && read_type(x, f.bytes, 0, s, err) < 0)
            return err_at(err, "%.64s", s->name);
    }
    return got;
}

static int read_place(struct onnx *x, struct wire in, struct onnx_tensor *t,
                      struct err *err) {
    const char *pair[2];
    if (read_pair(x, in, pair, err) < 0)
        return -1;
    if (!strcmp(pair[0], "location"))
        t->file = pair[1];
    if (!strcmp(pair[0], "offset"))
        t->offset = strtoll(pair[1], NULL, 10);
    return 0;
}

static int read_tensor(struct onnx *x, struct wire in, struct onnx_tensor *t,
                       struct err *err) {
    struct wire_field f;
    int got;
    *t = (struct onnx_tensor){.shape = {.name = ""}, .message = in};
    while ((got = wire_next(&in, &f, err)) > 0) {
        uint8_t one[10];
        uint64_t v;
        struct wire sizes = f.number == 1 ? wire_numbers(&f, one) : (struct wire){0};
        while (f.number == 1 && sizes.at < sizes.end)
            if (!wire_number(&sizes, WIRE_VARINT, &v) ||
                add_size(&t->shape, (int64_t)v, err) < 0)
                return err_at(err, "%.64s", t->shape.name);
        if (f.number == 2)
            t->shape.type = (int)(f.value & 0xff);
        if (f.number == 8)
            t->shape.name = text_of(x, &f);
        if (f.number == 9 && f.type == WIRE_BYTES)
            t->raw = f.bytes;
        if (f.number == 13 && f.type == WIRE_BYTES && read_place(x, f.bytes, t, err) < 0)
            return -1;
    }
    return got;
}

/* ---- nodes ---------------------------------------------------------------------------------------- */

static int read_attr(struct onnx *x, struct wire in, struct onnx_attr *a, struct err *err) {
    struct wire_field f;
    int got;
    *a = (struct onnx_attr){.name = ""};
    while ((got = wire_next(&in, &f, err)) > 0) {
        uint8_t one[10];
        uint64_t v;
        if (f.number == 1)
            a->name = text_of(x, &f);
        if (f.number == 2)
            a->real = half_float((uint32_t)f.value);
        if (f.number == 3)
            a->whole = (int64_t)f.value;
        if (f.number == 4)
            a->text = text_of(x, &f);
        struct wire list = f.number == 8 ? wire_numbers(&f, one) : (struct wire){0};
        while (f.number == 8 && list.at < list.end) {
            if (!wire_number(&list, WIRE_VARINT, &v))
                return err_input(err, "%.64s: expected whole numbers", a->name);
            arr_push(&a->wholes, (int64_t)v);
        }
        if (f.number == 5 && f.type == WIRE_BYTES) {
            struct onnx_tensor *t = arena_alloc(&x->arena, sizeof *t);
            a->tensor = t;
            if (read_tensor(x, f.bytes, t, err) < 0)
                return -1;
        }
    }
    return got;
}

/* "['', 'model', 'model.layers.0', 'linear']": the last but one. */
static const char *scope_in(struct onnx *x, const char *list) {
    const char *before = "", *last = "", *end;
    for (const char *p = list; (p = strchr(p, '\'')); p = end + 1) {
        if (!(end = strchr(p + 1, '\'')))
            break;
        before = last;
        last = arena_printf(&x->arena, "%.*s", (int)(end - p - 1), p + 1);
    }
    return before;
}

/* "/encoder/layer.0/query/MatMul", as older exporters name their nodes. */
static const char *scope_of_name(struct onnx *x, const char *name) {
    const char *last = strrchr(name, '/');
    if (name[0] != '/' || !last || last == name)
        return "";
    char *scope = arena_printf(&x->arena, "%.*s", (int)(last - name - 1), name + 1);
    for (char *c = scope; *c; c++)
        *c = *c == '/' ? '.' : *c;
    return scope;
}

static int read_node(struct onnx *x, struct wire in, struct onnx_node *n, struct err *err) {
    struct wire_field f;
    int got;
    while ((got = wire_next(&in, &f, err)) > 0) {
        const char *pair[2];
        struct onnx_attr a;
        int rc = 0;
        switch (f.number) {
        case 1: arr_push(&n->in, text_of(x, &f)); break;
        case 2: arr_push(&n->out, text_of(x, &f)); break;
        case 3: n->name = text_of(x, &f); break;
        case 4: n->op = text_of(x, &f); break;
        case 5:
            rc = f.type == WIRE_BYTES ? read_attr(x, f.bytes, &a, err) : 0;
            if (f.type == WIRE_BYTES)
                arr_push(&n->attrs, a);
            break;
        case 7: n->domain = text_of(x, &f); break;
        case 9:
            rc = f.type == WIRE_BYTES ? read_pair(x, f.bytes, pair, err) : 0;
            if (f.type == WIRE_BYTES && rc >= 0 &&
                !strcmp(pair[0], "pkg.torch.onnx.name_scopes"))
                n->scope = scope_in(x, pair[1]);
            break;
        default: break;
        }
        if (rc < 0)
            return err_at(err, "%.64s", n->name);
    }
    if (!n->scope)
        n->scope = scope_of_name(x, n->name);
    return got;
}

/* ---- the model ------------------------------------------------------------------------------------ */

static int read_member(struct onnx *x, const struct wire_field *f, struct err *err) {
    struct onnx_tensor t;
    struct onnx_shape s;
    if (f->number == 1) {
        if (x->nodes.n == ONNX_MAX_NODES)
            return err_input(err, "graph: expected at most %d nodes", ONNX_MAX_NODES);
        arr_push(&x->nodes, (struct onnx_node){.op = "", .domain = "", .name = ""});
        return read_node(x, f->bytes, &x->nodes.p[x->nodes.n - 1], err);
    }
    if (f->number == 5) {
        if (read_tensor(x, f->bytes, &t, err) < 0)
            return -1;
        arr_push(&x->tensors, t);
    }
    if (f->number >= 11 && f->number <= 13) {
        if (read_shape(x, f->bytes, &s, err) < 0)
            return -1;
        if (f->number == 11)
            arr_push(&x->inputs, s);
        else
            arr_push(&x->shapes, s);
        if (f->number == 12)
            arr_push(&x->outputs, s.name);
    }
    return 0;
}

static int read_graph(struct onnx *x, struct wire in, struct err *err) {
    struct wire_field f;
    int got;
    while ((got = wire_next(&in, &f, err)) > 0)
        if (f.type == WIRE_BYTES && read_member(x, &f, err) < 0)
            return -1;
    return got;
}

/* An operator set: only that of ONNX itself has no name. */
static int read_set(struct onnx *x, struct wire in, struct err *err) {
    struct wire_field f;
    int64_t version = 0;
    bool own = true;
    int got;
    while ((got = wire_next(&in, &f, err)) > 0) {
        if (f.number == 1)
            own = !*text_of(x, &f) || !strcmp(text_of(x, &f), "ai.onnx");
        if (f.number == 2)
            version = (int64_t)f.value;
    }
    if (own)
        x->version = version;
    return got;
}

int onnx_parse(struct onnx *x, const void *bytes, int64_t size, struct err *err) {
    struct wire in = {bytes, (const uint8_t *)bytes + size};
    struct wire_field f;
    int got, graphs = 0;
    *x = (struct onnx){0};
    while ((got = wire_next(&in, &f, err)) > 0) {
        if (f.number == 7 && f.type == WIRE_BYTES && graphs++ == 0 &&
            read_graph(x, f.bytes, err) < 0)
            return -1;
        if (f.number == 8 && f.type == WIRE_BYTES && read_set(x, f.bytes, err) < 0)
            return -1;
        x->functions += f.number == 25;
    }
    if (got < 0)
        return -1;
    if (graphs != 1 || !x->nodes.n)
        return err_input(err, "expected a model of ONNX with one graph of nodes");
    if (x->version >= 13)
        return 0;
    err_input(err, "opset_import: expected version 13 or later, got %lld",
              (long long)x->version);
    return err_hint(err, "export it again with opset_version=20");
}

void onnx_close(struct onnx *x) {
    for (int64_t i = 0; i < x->nodes.n; i++) {
        struct onnx_node *n = &x->nodes.p[i];
        for (int64_t k = 0; k < n->attrs.n; k++)
            arr_release(&n->attrs.p[k].wholes);
        arr_release(&n->in);
        arr_release(&n->out);
        arr_release(&n->attrs);
    }
    arr_release(&x->nodes);
    arr_release(&x->tensors);
    arr_release(&x->inputs);
    arr_release(&x->shapes);
    arr_release(&x->outputs);
    arena_release(&x->arena);
    *x = (struct onnx){0};
}

const struct onnx_attr *onnx_attr(const struct onnx_node *n, const char *name) {
    for (int64_t i = 0; i < n->attrs.n; i++)
        if (!strcmp(n->attrs.p[i].name, name))
            return &n->attrs.p[i];
    return NULL;
}

int64_t onnx_int(const struct onnx_node *n, const char *name, int64_t missing) {
    const struct onnx_attr *a = onnx_attr(n, name);
    return a ? a->whole : missing;
}

double onnx_real(const struct onnx_node *n, const char *name, double missing) {
    const struct onnx_attr *a = onnx_attr(n, name);
    return a ? (double)a->real : missing;
}
