/* What a model reads: the sources of its inputs, and section "data". */
#include "model/read.h"

#include <string.h>

enum { ANY_DIMS = -1 }; /* one at least */

static const struct {
    const char *name;
    bool integer;
    int dims;
} sources[] = {
#define X(id, name, integer, dims) {name, integer, dims},
    DATA_SOURCES(X)
#undef X
};

/* "source" of an input, into t. */
static int read_source(const json_t *v, struct model_tensor *t, struct err *err) {
    const char *name = "";
    char known[256] = "";
    if (json_str(v, "source", &name, err) < 0)
        return -1;
    for (int s = 0; s < DATA_SOURCE_COUNT; s++) {
        t->source = (enum data_source)s;
        t->integer = sources[s].integer;
        if (!strcmp(sources[s].name, name))
            return 0;
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s",
                 !s                          ? ""
                 : s + 1 < DATA_SOURCE_COUNT ? ", "
                                             : " or ",
                 sources[s].name);
    }
    return err_input(err, "source: expected %s, got \"%.64s\"", known, name);
}

/* Has the input the dims behind batch that its source gives? */
static int check_input_dims(const struct model_tensor *t, struct err *err) {
    int dims = sources[t->source].dims, got = t->shape.rank - 1;
    if (dims == ANY_DIMS ? got > 0 : got == dims)
        return 0;
    return err_input(err, "dims: expected batch%s",
                     dims == 0   ? " alone"
                     : dims == 1 ? " and one dim for the sequence"
                                 : " and the dims of a sample");
}

/* "end" of what is said of documents: the token behind which another begins. Returns 1 where it is -1: there is
 * no such token, and no such input. */
static int read_end(struct reader *r, const json_t *v, struct model_tensor *t,
                    struct err *err) {
    const json_t *given = json_object_get(v, "end");
    int64_t end = -1;
    if (t->source != DATA_DOCUMENT_START && t->source != DATA_DOCUMENT_POSITION)
        return given
                   ? err_input(err, "end: only starts and positions of documents have one")
                   : 0;
    if (!given)
        return err_input(err, "end: missing (expected the token that ends a document)");
    if (read_int(r, given, "end", &end, err) < 0)
        return -1;
    if (end < -1 || end > INT32_MAX)
        return err_input(err, "end: expected a token id, or -1 for none, got %lld",
                         (long long)end);
    t->end = (int32_t)end;
    return end < 0;
}

/* "length" of documents, in the mean, for predictions alone: 0 where it is not said. */
static int read_length(struct reader *r, const json_t *v, struct model_tensor *t,
                       struct err *err) {
    const json_t *given = json_object_get(v, "length");
    if (!given)
        return 0;
    if (t->source != DATA_DOCUMENT_START)
        return err_input(err, "length: only starts of documents have one");
    if (read_int(r, given, "length", &t->length, err) < 0)
        return -1;
    return t->length >= 0 && t->length <= 1L << 40
               ? 0
               : err_input(err, "length: expected positions, or 0 for unknown, got %lld",
                           (long long)t->length);
}

/* A data input: batch first; then what its source can give. */
static int read_input(struct reader *r, const char *name, const json_t *v,
                      struct err *err) {
    struct model_tensor t = {.name = arena_strdup(&r->m->arena, name), .producer = -1};
    json_t *dims;
    if (json_keys(v, "dims source end length", err) < 0 ||
        json_array_member(v, "dims", &dims, err) < 0 ||
        read_shape(r, dims, &t.shape, err) < 0 || read_source(v, &t, err) < 0)
        return -1;
    if (!t.shape.rank || t.shape.dim[0] != r->m->batch)
        return err_input(err, "dims: expected batch first");
    if (check_input_dims(&t, err) < 0)
        return -1;
    if (read_length(r, v, &t, err) < 0)
        return -1;
    const int none = read_end(r, v, &t, err);
    if (none)
        return none < 0 ? -1 : 0;
    arr_push(&r->tensors, t);
    read_name_tensor(r, name, (int)r->tensors.n - 1);
    return 0;
}

int read_inputs(struct reader *r, const json_t *inputs, struct err *err) {
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)inputs, name, v) {
        if (read_input(r, name, v, err) < 0)
            return err_at(err, "inputs.%s", name);
    }
    return 0;
}

int read_check_ends(const struct model *m, struct err *err) {
    const int64_t classes = model_classes(m);
    for (int i = 0; i < m->n_tensors; i++) {
        const struct model_tensor *t = &m->tensors[i];
        if (t->producer < 0 && t->end >= classes)
            return err_input(err,
                             "inputs.%s.end: token %d is none of the vocabulary's %lld",
                             t->name, (int)t->end, (long long)classes);
    }
    return 0;
}

int read_data(struct reader *r, const json_t *v, struct err *err) {
    struct model_data *d = &r->m->data;
    *d = (struct model_data){
        .pad = 0, .start = 0, .eos = 1, .sentinel = -1, .noise = 0.15, .span = 3};
    if (!v)
        return 0;
    const struct {
        const char *key;
        int64_t *whole;
        double *real;
    } members[] = {{"pad", &d->pad, NULL},     {"start", &d->start, NULL},
                   {"eos", &d->eos, NULL},     {"sentinel", &d->sentinel, NULL},
                   {"noise", NULL, &d->noise}, {"span", NULL, &d->span}};
    int rc = json_keys(v, "pad start eos sentinel noise span", err);
    for (size_t i = 0; i < sizeof members / sizeof *members && rc == 0; i++) {
        const json_t *given = json_object_get(v, members[i].key);
        if (given && members[i].whole)
            rc = read_int(r, given, members[i].key, members[i].whole, err);
        else if (given)
            rc = read_real(r, given, members[i].key, members[i].real, err);
    }
    if (rc == 0 && !(d->noise > 0 && d->noise < 1))
        rc =
            err_input(err, "noise: expected more than 0 and less than 1, got %g", d->noise);
    if (rc == 0 && !(d->span >= 1))
        rc = err_input(err, "span: expected at least 1, got %g", d->span);
    return rc < 0 ? err_at(err, "data") : 0;
}
