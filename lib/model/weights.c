/* The section "weights": names by pattern, then where each element of a parameter lies. */
#include "model/weights.h"

#include "common/hashtable.h"
#include "common/rng.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_STARS = 8,
    MAX_PARTS = 1 << 16, /* of a tensor; tensors of a parameter */
};

/* ---- the form of the section ----------------------------------------------------------- */

static int check_strings(const json_t *list, const char *key, struct err *err) {
    if (list && !json_is_array(list))
        return err_input(err, "%s: expected an array, got %s", key, json_type_name(list));
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_string(json_array_get(list, i)))
            return err_input(err, "%s[%zu]: expected a text", key, i);
    return 0;
}

/* What is null lies in no file. */
static int check_entry(const json_t *v, const char *pattern, struct err *err) {
    const char *name;
    if (json_is_string(v) || json_is_null(v))
        return 0;
    if (!json_is_object(v))
        return err_input(err, "tensors.%.100s: expected a name or an object, got %s",
                         pattern, json_type_name(v));
    if (json_keys(v, "name dims", err) < 0 || json_str(v, "name", &name, err) < 0 ||
        check_strings(json_object_get(v, "dims"), "dims", err) < 0)
        return err_at(err, "tensors.%.100s", pattern);
    return 0;
}

static int check_entries(const json_t *section, const char *key, struct err *err) {
    const char *name;
    json_t *v, *tensors;
    if (json_object_member(section, key, &tensors, err) < 0)
        return -1;
    json_object_foreach(tensors, name, v) {
        if (check_entry(v, name, err) < 0)
            return -1;
    }
    return 0;
}

int weights_check(const json_t *section, struct err *err) {
    const char *prefix;
    json_t *config;
    if (json_keys(section,
                  "prefix ignore tensors config absent unread reads adapter adapter_config",
                  err) < 0 ||
        json_opt_str(section, "prefix", &prefix, err) < 0 ||
        check_strings(json_object_get(section, "ignore"), "ignore", err) < 0 ||
        check_strings(json_object_get(section, "unread"), "unread", err) < 0 ||
        check_strings(json_object_get(section, "reads"), "reads", err) < 0 ||
        (json_object_get(section, "absent") &&
         json_object_member(section, "absent", &config, err) < 0) ||
        (json_object_get(section, "config") &&
         json_object_member(section, "config", &config, err) < 0) ||
        (json_object_get(section, "adapter_config") &&
         json_object_member(section, "adapter_config", &config, err) < 0))
        return -1;
    const bool adapts = json_object_get(section, "adapter");
    if (adapts && check_entries(section, "adapter", err) < 0)
        return -1;
    return adapts && !json_object_get(section, "tensors")
               ? 0
               : check_entries(section, "tensors", err);
}

/* ---- names ------------------------------------------------------------------------------ */

/* Does the pattern, in which * is any text without dots, match? What the stars stand for are
 * parts of `name`. */
struct stars {
    int n;
    const char *text[MAX_STARS];
    int size[MAX_STARS];
};
static bool match(const char *pattern, const char *name, struct stars *stars) {
    stars->n = 0;
    for (; *pattern; pattern++) {
        if (*pattern != '*') {
            if (*pattern != *name++)
                return false;
            continue;
        }
        if (stars->n == MAX_STARS)
            return false;
        stars->text[stars->n] = name;
        stars->size[stars->n++] = (int)strcspn(name, ".");
        name += strcspn(name, ".");
    }
    return !*name;
}

/* The name with the stars filled in; NULL if it has more of them than the pattern. */
static const char *fill_stars(struct arena *arena, const char *name,
                              const struct stars *stars) {
    const char *out = "";
    int k = 0;
    for (const char *star; (star = strchr(name, '*')); name = star + 1, k++) {
        if (k == stars->n)
            return NULL;
        out = arena_printf(arena, "%s%.*s%.*s", out, (int)(star - name), name,
                           stars->size[k], stars->text[k]);
    }
    return arena_printf(arena, "%s%s", out, name);
}

/* What the file calls a parameter, and its entry. Exactly one pattern covers it. */
static const char *find_entry(struct weights *w, const json_t *tensors, const char *param,
                              const json_t **entry, struct err *err) {
    const char *pattern, *found = NULL;
    json_t *v;
    struct stars stars = {0}, these;
    json_object_foreach((json_t *)tensors, pattern, v) {
        if (!match(pattern, param, &these))
            continue;
        if (found) {
            err_input(err, "weights.tensors: \"%.64s\" and \"%.64s\" both cover %s", found,
                      pattern, param);
            return NULL;
        }
        found = pattern;
        stars = these;
        *entry = v;
    }
    if (!found) {
        err_input(err, "weights.tensors: nothing covers %s", param);
        return NULL;
    }
    if (json_is_null(*entry))
        return "";
    const char *name = json_is_string(*entry)
                           ? json_string_value(*entry)
                           : json_string_value(json_object_get(*entry, "name"));
    const char *full = fill_stars(&w->arena, name, &stars);
    if (!full)
        err_input(err, "weights.tensors.%s: the name has more stars than the pattern",
                  found);
    return full;
}

bool weights_ignores(const struct weights *w, const char *name) {
    size_t n = strlen(w->prefix);
    const char *rest = n && !strncmp(name, w->prefix, n) ? name + n : name;
    struct stars stars;
    for (size_t i = 0; i < json_array_size(w->ignore); i++)
        if (match(json_string_value(json_array_get(w->ignore, i)), rest, &stars))
            return true;
    return false;
}

/* ---- dims ------------------------------------------------------------------------------- */

/* A parameter while its place is worked out. */
struct placing {
    const struct model *m;
    const struct model_param *p;
    struct weight_form *form;
    struct weight_tensor t; /* the tensor, without its name */
    int seen;               /* dims of the parameter found so far, as bits */
};

/* Which dim of the parameter has this name, not found before? -1 with an error. */
static int take_dim(struct placing *x, const char *name, size_t n, struct err *err) {
    for (int d = 0; d < x->p->shape.rank; d++) {
        const char *dim = x->m->dims[x->p->shape.dim[d]].name;
        if (strlen(dim) != n || strncmp(dim, name, n) != 0)
            continue;
        if (x->seen >> d & 1)
            return err_input(err, "dims: \"%s\" appears twice", dim);
        x->seen |= 1 << d;
        return d;
    }
    return err_input(err, "dims: the parameter has no dim \"%.*s\"", (int)n, name);
}

static int64_t dim_size(const struct placing *x, int d) {
    return x->m->dims[x->p->shape.dim[d]].size;
}

/* "experts.{experts}.w1": splits the name around the dim. */
static int read_spread(struct placing *x, const char *name, const char **tail,
                       struct err *err) {
    const char *open = strchr(name, '{'), *close = open ? strchr(open, '}') : NULL;
    x->form->spread = -1;
    if (!open)
        return 0;
    if (!close || strchr(close, '{'))
        return err_input(err, "name: expected one dim in {}, got \"%.64s\"", name);
    *tail = close + 1;
    x->form->spread = take_dim(x, open + 1, (size_t)(close - open - 1), err);
    if (x->form->spread < 0)
        return -1;
    if (dim_size(x, x->form->spread) > MAX_PARTS)
        return err_input(err, "name: more than %d tensors", MAX_PARTS);
    return 0;
}

/* The size of a dim of the model, of n letters. */
static int64_t named_size(const struct placing *x, const char *name, size_t n,
                          struct err *err) {
    char dim[128];
    snprintf(dim, sizeof dim, "%.*s", (int)n, name);
    int d = model_dim_named(x->m, dim, err);
    if (d < 0)
        return err_prefix(err, "dims");
    return d == x->m->batch ? err_input(err, "dims: no parameter has \"batch\"")
                            : x->m->dims[d].size;
}

/* The size of one of the dims that lie behind each other: of a product of several, "pairs*halves". Where
 * it is the parameter's, each of them is a dim of it, the last with `inner` elements between neighbours. */
static int64_t read_product(struct placing *x, const char *text, size_t n, int64_t inner,
                            bool own, struct err *err) {
    int64_t all = 1;
    for (const char *end = text + n; end > text;) {
        const char *word = end;
        while (word > text && word[-1] != '*')
            word--;
        const size_t length = (size_t)(end - word);
        const int64_t size = named_size(x, word, length, err);
        const int d = own && size >= 0 ? take_dim(x, word, length, err) : 0;
        if (size < 0 || d < 0)
            return -1;
        if (own)
            x->form->whole.stride[d] = inner * all;
        all *= size;
        end = word > text ? word - 1 : text;
    }
    return all;
}

/* "heads+kv_heads+kv_heads" of 1/heads+kv_heads+kv_heads: dims that lie behind each other, of which the
 * parameter has the one of this number; a 1 is one of which it has no dim. first: of its elements among
 * all. */
static int read_sum(struct placing *x, const char *sum, size_t n, int64_t part,
                    int64_t inner, int64_t *first, int64_t *count, struct err *err) {
    int64_t k = 0;
    bool found = false;
    *first = *count = 0;
    for (const char *end = sum + n; sum < end; k++) {
        size_t length = strcspn(sum, "+ ");
        length = sum + length > end ? (size_t)(end - sum) : length;
        bool one = length == 1 && *sum == '1';
        int64_t size = one ? 1 : read_product(x, sum, length, inner, k == part, err);
        found |= k == part;
        if (size < 0)
            return -1;
        *first += k < part ? size : 0;
        *count += size;
        sum += length + 1;
    }
    return found ? 0 : err_input(err, "dims: there is no part %lld", (long long)part);
}

/* One word of a dim of the tensor, from the last to the first: a dim of the parameter, or "1/3",
 * the second of three equal parts, or of parts as large as dims. `step`: elements of the tensor between
 * neighbours. */
static int read_word(struct placing *x, const char *word, size_t n, int64_t *step,
                     int64_t *size, struct err *err) {
    int64_t count, part = 0, inner = *step;
    if (isdigit((unsigned char)*word)) {
        char *end;
        part = strtoll(word, &end, 10);
        if (*end == '/' && isalpha((unsigned char)end[1])) {
            const int64_t number = part;
            if (read_sum(x, end + 1, (size_t)(word + n - end - 1), number, inner, &part,
                         &count, err) < 0)
                return -1;
        } else {
            count = *end == '/' ? strtoll(end + 1, &end, 10) : 0;
            if (end != word + n || part >= count || count > MAX_PARTS)
                return err_input(err, "dims: expected a part such as 0/3, got \"%.*s\"",
                                 (int)n, word);
        }
    } else {
        int d = take_dim(x, word, n, err);
        if (d < 0)
            return -1;
        count = dim_size(x, d);
        x->form->whole.stride[d] = inner;
    }
    if (__builtin_mul_overflow(*size, count, size) ||
        __builtin_mul_overflow(*step, count, step))
        return err_input(err, "dims: the tensor is too large");
    x->form->whole.base += part * inner;
    return 0;
}

/* "0/3 heads kv": the words of a dim of the tensor, last first. */
static int read_words(struct placing *x, const char *text, int64_t *step, int64_t *size,
                      struct err *err) {
    const char *end = text + strlen(text);
    *size = 1;
    while (end > text) {
        const char *word = end;
        while (word > text && word[-1] != ' ')
            word--;
        if (word < end && read_word(x, word, (size_t)(end - word), step, size, err) < 0)
            return -1;
        end = word > text ? word - 1 : text;
    }
    return 0;
}

/* "dims" of the entry; without it, those of the parameter. */
static int read_form(struct placing *x, const json_t *dims, struct err *err) {
    const struct shape *s = &x->p->shape;
    int64_t step = 1;
    if (json_array_size(dims) > ST_DIMS)
        return err_input(err, "dims: expected at most %d", ST_DIMS);
    x->t.dims = 0;
    if (dims)
        x->t.dims = (int)json_array_size(dims);
    else
        for (int d = 0; d < s->rank; d++)
            x->t.dims += d != x->form->spread;
    for (int k = x->t.dims - 1, d = s->rank - 1; k >= 0; k--, d--) {
        d -= !dims && d == x->form->spread;
        const char *text = dims ? json_string_value(json_array_get(dims, (size_t)k))
                                : x->m->dims[s->dim[d]].name;
        if (read_words(x, text, &step, &x->t.shape[k], err) < 0)
            return -1;
    }
    for (int d = 0; d < s->rank; d++)
        if (!(x->seen >> d & 1))
            return err_input(err, "dims: lacks \"%s\" of the parameter",
                             x->m->dims[s->dim[d]].name);
    return 0;
}

/* ---- the table of tensors ------------------------------------------------------------------ */

struct table {
    struct hashtable names;
    ARR(struct weight_tensor) tensors;
    ARR(struct weight_part) parts;
};

static bool same_tensor(const void *entries, int64_t i, const void *key) {
    return !strcmp(((const struct weight_tensor *)entries)[i].name, key);
}

/* Adds what one parameter puts into a tensor. Returns its number, or -1. */
static int add_part(struct table *t, const struct weight_tensor *tensor,
                    struct weight_part part, struct err *err) {
    uint64_t hash = hash_bytes(tensor->name, strlen(tensor->name), 0);
    int64_t i = hashtable_put(&t->names, hash, same_tensor, t->tensors.p, tensor->name);
    if (i == t->tensors.n)
        arr_push(&t->tensors, *tensor);
    struct weight_tensor *known = &t->tensors.p[i];
    if (known->dims != tensor->dims ||
        memcmp(known->shape, tensor->shape, sizeof known->shape) != 0)
        return err_input(err, "other parameters give %s another shape", tensor->name);
    known->n_parts++;
    part.tensor = (int)i;
    arr_push(&t->parts, part);
    return (int)i;
}

static int add_param(struct weights *w, struct table *t, int param, const char *name,
                     const json_t *dims, struct err *err) {
    struct weight_form *form = &w->forms[param];
    struct placing x = {w->model, &w->model->params[param], form, {0}, 0};
    const char *tail = "";
    if (read_spread(&x, name, &tail, err) < 0 || read_form(&x, dims, err) < 0)
        return -1;
    int rank = x.p->shape.rank;
    int64_t copies = form->spread < 0 ? 1 : dim_size(&x, form->spread);
    form->tensor = arena_array(&w->arena, (size_t)copies, sizeof *form->tensor);
    form->whole.dims = rank;
    for (int d = 0; d < rank; d++)
        form->whole.size[d] = d == form->spread ? 1 : dim_size(&x, d);
    for (int64_t i = 0; i < copies; i++) {
        x.t.name = form->spread < 0
                       ? name
                       : arena_printf(&w->arena, "%.*s%lld%s", (int)strcspn(name, "{"),
                                      name, (long long)i, tail);
        form->tensor[i] = add_part(t, &x.t, (struct weight_part){0, param, i}, err);
        if (form->tensor[i] < 0)
            return -1;
    }
    return 0;
}

static const struct st_view *part_view(const struct weights *w, int part) {
    return &w->forms[w->parts[part].param].whole;
}

/* Behind the last element of a part. */
static int64_t view_end(const struct st_view *v) {
    int64_t end = v->base + 1;
    for (int d = 0; d < v->dims; d++)
        end += (v->size[d] - 1) * v->stride[d];
    return end;
}

/* The dim with this stride and size, or -1. */
static int find_step(const struct st_view *v, int64_t stride, int64_t size) {
    for (int d = 0; d < v->dims; d++)
        if (v->stride[d] == stride && v->size[d] == size)
            return d;
    return -1;
}

/* A step that two parts take alike keeps them apart as they are without it, where what is left of both
 * fits into one such step. In the end one has to end before the other begins. a begins first. */
static bool are_apart(struct st_view a, struct st_view b) {
    for (int d = 0; d < a.dims; d++) {
        int64_t size = a.size[d];
        int other = size > 1 ? find_step(&b, a.stride[d], size) : -1;
        if (other < 0)
            continue;
        a.size[d] = b.size[other] = 1;
        int64_t end = view_end(&a) > view_end(&b) ? view_end(&a) : view_end(&b);
        bool fits = end - a.base <= a.stride[d];
        if (fits)
            d = -1; /* without it, others may fit */
        else
            a.size[d] = b.size[other] = size;
    }
    return view_end(&a) <= b.base;
}

/* The parts of a tensor share no element and together have them all. */
static int check_tensor(const struct weights *w, const struct weight_tensor *t,
                        struct err *err) {
    int64_t whole = 1, held = 0;
    for (int d = 0; d < t->dims; d++)
        whole *= t->shape[d];
    for (int k = t->first_part; k < t->first_part + t->n_parts; k++) {
        const struct st_view *v = part_view(w, k);
        int64_t n = 1;
        for (int d = 0; d < v->dims; d++)
            n *= v->size[d];
        held += n;
        if (k > t->first_part && !are_apart(*part_view(w, k - 1), *v))
            return err_input(err,
                             "weights.tensors: %s and %s have elements of %s in common",
                             w->model->params[w->parts[k - 1].param].name,
                             w->model->params[w->parts[k].param].name, t->name);
    }
    if (held != whole)
        return err_input(err, "weights.tensors: the parts of %s hold %lld of %lld elements",
                         t->name, (long long)held, (long long)whole);
    return 0;
}

/* Parts side by side, tensor by tensor; in a tensor in the order in which they lie. */
static void order_parts(struct weights *w) {
    struct weight_part *sorted = arena_array(&w->arena, (size_t)w->n_parts, sizeof *sorted);
    for (int i = 0, at = 0; i < w->n_tensors; at += w->tensors[i++].n_parts)
        w->tensors[i].first_part = at;
    int *filled = mem_array((size_t)w->n_tensors, sizeof *filled);
    for (int k = 0; k < w->n_parts; k++) {
        int t = w->parts[k].tensor, first = w->tensors[t].first_part,
            at = first + filled[t]++;
        for (; at > first && w->forms[sorted[at - 1].param].whole.base >
                                 w->forms[w->parts[k].param].whole.base;
             at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = w->parts[k];
    }
    free(filled);
    w->parts = sorted;
}

static void *keep(struct arena *arena, const void *p, int64_t n, size_t size) {
    void *out = arena_array(arena, (size_t)n, size);
    if (n)
        memcpy(out, p, size * (size_t)n);
    return out;
}

static bool covers(const json_t *tensors, const char *param) {
    const char *pattern;
    json_t *v;
    struct stars stars;
    json_object_foreach((json_t *)tensors, pattern, v) {
        if (match(pattern, param, &stars))
            return true;
    }
    return false;
}

/* Of the adapter alone, or of all the others. */
static int read_params(struct weights *w, const json_t *section, bool adapter,
                       struct table *t, struct err *err) {
    const struct model *m = w->model;
    const json_t *tensors = json_object_get(section, adapter ? "adapter" : "tensors");
    for (int i = 0; i < m->n_params; i++) {
        const json_t *entry = NULL;
        if (covers(json_object_get(section, "adapter"), m->params[i].name) != adapter)
            continue;
        const char *name = tensors ? find_entry(w, tensors, m->params[i].name, &entry, err)
                                   : m->params[i].name;
        if (!name)
            return -1;
        if (json_is_null(entry))
            continue;
        if (add_param(w, t, i, name, json_object_get(entry, "dims"), err) < 0)
            return err_prefix(err, "weights.tensors: %s", m->params[i].name);
    }
    w->n_tensors = (int)t->tensors.n;
    w->n_parts = (int)t->parts.n;
    w->tensors = keep(&w->arena, t->tensors.p, t->tensors.n, sizeof *t->tensors.p);
    w->parts = keep(&w->arena, t->parts.p, t->parts.n, sizeof *t->parts.p);
    order_parts(w);
    for (int i = 0; i < w->n_tensors; i++)
        if (check_tensor(w, &w->tensors[i], err) < 0)
            return -1;
    return 0;
}

static struct weights *make(const struct model *m, bool adapter, struct err *err) {
    const json_t *section = json_object_get(m->doc, "weights");
    struct arena arena = {0};
    struct weights *w = arena_alloc(&arena, sizeof *w);
    struct table t = {0};
    w->arena = arena;
    w->model = m;
    w->prefix = "";
    w->ignore = json_object_get(section, "ignore");
    w->forms = arena_array(&w->arena, (size_t)m->n_params, sizeof *w->forms);
    json_opt_str(section, "prefix", &w->prefix, NULL);
    int rc = read_params(w, section, adapter, &t, err);
    hashtable_release(&t.names);
    arr_release(&t.tensors);
    arr_release(&t.parts);
    if (rc == 0)
        return w;
    err_prefix(err, "model %s", m->name);
    weights_destroy(w);
    return NULL;
}

struct weights *weights_of(const struct model *m, struct err *err) {
    return make(m, false, err);
}

struct weights *weights_of_adapter(const struct model *m, struct err *err) {
    if (json_object_get(json_object_get(m->doc, "weights"), "adapter"))
        return make(m, true, err);
    err_input(err, "model %s: it has no adapters", m->name);
    err_hint(err, "weft-import --lora writes a model that has");
    return NULL;
}

void weights_destroy(struct weights *w) {
    if (!w)
        return;
    struct arena arena = w->arena;
    arena_release(&arena); /* w itself lives in it */
}
