/* What instructions are in ATen's words. */
#include "import/point.h"
#include "import/translate.h"

#include <math.h>
#include <string.h>

static const struct exported_value *value_at(const struct translate *t, int value) {
    return &t->p->values.p[value];
}

static bool is(const struct hlo_instruction *x, const char *opcode) {
    return !strcmp(x->opcode, opcode);
}

static bool is_array(const struct made *x) {
    return x->known || x->value >= 0;
}

static bool gives(struct made *out, const struct made *x, const struct hlo_shape *shape) {
    *out = *x;
    out->shape = shape;
    return true;
}

/* The result is a view of x. */
static bool viewed(struct made *out, const struct made *x, int value) {
    out->value = value;
    out->constant = x->constant;
    out->weight = x->weight;
    return true;
}

/* ---- element by element ---------------------------------------------------------------------------- */

static const struct function {
    const char *opcode, *direction, *target;
} functions[] = {
    {"add", "", "aten.add.Tensor"},           {"subtract", "", "aten.sub.Tensor"},
    {"multiply", "", "aten.mul.Tensor"},      {"divide", "", "aten.div.Tensor"},
    {"power", "", "aten.pow.Tensor_Scalar"},  {"maximum", "", "aten.maximum.default"},
    {"minimum", "", "aten.minimum.default"},  {"and", "", "aten.logical_and.default"},
    {"or", "", "aten.logical_or.default"},    {"not", "", "aten.logical_not.default"},
    {"compare", "EQ", "aten.eq.Tensor"},      {"compare", "NE", "aten.ne.Tensor"},
    {"compare", "LT", "aten.lt.Tensor"},      {"compare", "LE", "aten.le.Tensor"},
    {"compare", "GT", "aten.gt.Tensor"},      {"compare", "GE", "aten.ge.Tensor"},
    {"select", "", "aten.where.self"},        {"negate", "", "aten.neg.default"},
    {"abs", "", "aten.abs.default"},          {"sqrt", "", "aten.sqrt.default"},
    {"floor", "", "aten.floor.default"},      {"ceil", "", "aten.ceil.default"},
    {"rsqrt", "", "aten.rsqrt.default"},      {"exponential", "", "aten.exp.default"},
    {"log", "", "aten.log.default"},          {"logistic", "", "aten.sigmoid.default"},
    {"tanh", "", "aten.tanh.default"},        {"erf", "", "aten.erf.default"},
    {"cosine", "", "aten.cos.default"},       {"sine", "", "aten.sin.default"},
    {"convert", "", "aten._to_copy.default"},
};

/* Whole numbers are divided to the lower one, and their bits are no truth values. */
static const char *target_of(const struct hlo_instruction *x) {
    bool whole = x->shape.type != 1 && x->shape.type < 10;
    if (whole && is(x, "divide"))
        return "aten.floor_divide.default";
    if (whole && (is(x, "and") || is(x, "or") || is(x, "not")))
        return NULL;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (is(x, functions[i].opcode) && !strcmp(x->direction, functions[i].direction))
            return functions[i].target;
    return NULL;
}

/* Of size 1 where all operands are stretched. */
static bool thin_sizes(const struct translate *t, const struct hlo_instruction *x,
                       const struct made *const *in, int64_t *size) {
    for (int i = 0; i < x->shape.rank; i++)
        size[i] = 1;
    for (int k = 0; k < x->operands.n; k++) {
        const struct exported_value *v = in[k]->known ? NULL : value_at(t, in[k]->value);
        if (v && v->rank && v->rank != x->shape.rank)
            return false;
        for (int i = 0; v && i < v->rank; i++)
            if (v->size[i] != 1)
                size[i] = v->size[i];
    }
    return true;
}

/* What needs no node. */
static bool is_trivial(const struct hlo_instruction *x, const struct made *const *in,
                       struct made *out) {
    for (int i = 0; i < 2 && x->operands.n == 2; i++) {
        const struct made *a = in[i], *b = in[1 - i];
        if (a->known &&
            ((is(x, "maximum") && a->number == -INFINITY) ||
             (is(x, "minimum") && a->number == INFINITY) ||
             (is(x, "and") && a->number == 1) || (is(x, "or") && a->number == 0)))
            return gives(out, b, &x->shape);
        if (a->known &&
            ((is(x, "and") && a->number == 0) || (is(x, "or") && a->number == 1)))
            return gives(out, a, &x->shape);
    }
    /* What would not be a number is not taken. */
    if (is(x, "select") && in[0]->known)
        return gives(out, in[in[0]->number != 0 ? 1 : 2], &x->shape);
    if (is(x, "select") && in[2]->known && isnan(in[2]->number))
        return gives(out, in[1], &x->shape);
    return is(x, "convert") && !in[0]->known &&
           (in[0]->shape->type < 10) == (x->shape.type < 10) &&
           (in[0]->shape->type == 1) == (x->shape.type == 1) &&
           gives(out, in[0], &x->shape);
}

static bool apply(const struct hlo_instruction *x, const struct point *p,
                  const struct made *const *in, struct made *out) {
    double v[3] = {0};
    for (int i = 0; i < x->operands.n; i++)
        v[i] = in[i]->number;
    double y = point_apply(p->id, v);
    out->known = out->constant = true;
    out->number = x->shape.type == 1 ? y != 0 : x->shape.type < 10 ? trunc(y) : y;
    return true;
}

static bool function(struct translate *t, const struct hlo_instruction *x,
                     const struct made *const *in, struct made *out) {
    const char *target = target_of(x);
    const struct point *p = target ? point_find(target) : NULL;
    int64_t size[HLO_MAX_RANK];
    int n = 0;
    bool known = true, constant = true;
    while (p && n < 3 && p->arg[n])
        n++;
    if (!p || x->operands.n != n)
        return false;
    for (int i = 0; i < n; i++) {
        known &= in[i]->known;
        constant &= in[i]->known || in[i]->constant;
    }
    if (is_trivial(x, in, out))
        return true;
    if (known)
        return apply(x, p, in, out);
    if (!thin_sizes(t, x, in, size))
        return false;
    struct translate_args args = {0};
    for (int i = 0; i < n; i++)
        if (in[i]->known)
            translate_number(&args, p->arg[i], in[i]->number);
        else
            translate_tensor(&args, p->arg[i], in[i]->value);
    out->constant = constant;
    out->value =
        translate_node(t, target, &args, x->shape.rank, size, x->shape.type, constant);
    return true;
}

/* min(max(low, x), high) */
static bool clamp(struct translate *t, const struct hlo_instruction *x,
                  const struct made *const *in, struct made *out) {
    struct hlo_instruction step = *x;
    struct made least = {.shape = &x->shape, .value = -1};
    step.operands.n = 2;
    step.opcode = "maximum";
    if (x->operands.n != 3 || !function(t, &step, in, &least))
        return false;
    step.opcode = "minimum";
    return function(t, &step, (const struct made *[]){&least, in[2]}, out);
}

/* ---- views --------------------------------------------------------------------------------------------- */

static bool broadcast(struct translate *t, const struct hlo_instruction *x,
                      const struct made *in, struct made *out) {
    int64_t size[HLO_MAX_RANK];
    if (in->known)
        return gives(out, in, &x->shape);
    const struct exported_value *v = value_at(t, in->value);
    if (x->dimensions.n != v->rank)
        return false;
    for (int i = 0; i < x->shape.rank; i++)
        size[i] = 1;
    for (int i = 0; i < v->rank; i++) {
        int64_t d = x->dimensions.p[i];
        if (d < 0 || d >= x->shape.rank || (i && d <= x->dimensions.p[i - 1]))
            return false;
        size[d] = v->size[i];
    }
    return viewed(out, in, translate_view(t, in, in->value, x->shape.rank, size));
}

/* Only dims of size 1 come and go: what is stretched stays so. */
static bool squeeze(const struct exported_value *v, const struct hlo_shape *from,
                    const struct hlo_shape *to, int64_t *size) {
    int i = 0;
    for (int k = 0; k < to->rank; k++) {
        size[k] = 1;
        if (to->size[k] == 1)
            continue;
        while (i < from->rank && from->size[i] == 1)
            i++;
        if (i == from->rank || from->size[i] != to->size[k])
            return false;
        size[k] = v->size[i++];
    }
    while (i < from->rank && from->size[i] == 1)
        i++;
    return i == from->rank && v->rank == from->rank;
}

static bool reshape(struct translate *t, const struct hlo_instruction *x,
                    const struct made *in, struct made *out) {
    int64_t size[HLO_MAX_RANK];
    if (in->known)
        return gives(out, in, &x->shape);
    if (squeeze(value_at(t, in->value), in->shape, &x->shape, size))
        return viewed(out, in, translate_view(t, in, in->value, x->shape.rank, size));
    return hlo_elements(in->shape) == hlo_elements(&x->shape) &&
           viewed(
               out, in,
               translate_view(t, in, translate_full(t, in), x->shape.rank, x->shape.size));
}

static bool transpose(struct translate *t, const struct hlo_instruction *x,
                      const struct made *in, struct made *out) {
    if (in->known)
        return gives(out, in, &x->shape);
    unsigned seen = 0;
    int rank = value_at(t, in->value)->rank;
    if (x->dimensions.n != rank)
        return false;
    for (int i = 0; i < rank; i++) {
        int64_t d = x->dimensions.p[i];
        if (d < 0 || d >= rank || seen >> d & 1)
            return false;
        seen |= 1u << d;
    }
    return viewed(out, in, translate_permute(t, in, in->value, x->dimensions.p));
}

/* Elements from `from` to `to` of each dim, by steps. */
static bool cut(struct translate *t, const struct made *in, const int64_t (*part)[3],
                struct made *out) {
    int value = in->value, rank = value_at(t, value)->rank;
    for (int d = 0; d < rank; d++) {
        struct exported_value v = *value_at(t, value);
        int64_t from = part[d][0], to = part[d][1], step = part[d][2];
        if (from < 0 || to <= from || step < 1 || to > in->shape->size[d])
            return false;
        if (v.size[d] == 1 || (from == 0 && to == v.size[d] && step == 1))
            continue;
        v.size[d] = (to - from + step - 1) / step;
        struct translate_args args = {0};
        translate_tensor(&args, "self", value);
        translate_int(&args, "dim", d);
        translate_int(&args, "start", from);
        translate_int(&args, "end", to);
        translate_int(&args, "step", step);
        value = translate_node(t, "aten.slice.Tensor", &args, rank, v.size,
                               v.truth     ? 1
                               : v.integer ? 4
                                           : 11,
                               in->constant);
    }
    return viewed(out, in, value);
}

/* One layer of a stack, in a loop over it: its only part along the first dim. */
static bool is_layer(const struct translate *t, const struct made *in,
                     const int64_t (*part)[3]) {
    const struct hlo_shape *s = in->shape;
    bool whole =
        t->turn >= 0 && s->rank >= 2 && s->size[0] > 1 && part[0][1] - part[0][0] == 1;
    for (int d = 1; d < s->rank; d++)
        whole &= part[d][0] == 0 && part[d][1] == s->size[d];
    return whole && in->weight && !in->known;
}

static bool take(struct translate *t, const struct hlo_instruction *x,
                 const struct made *in, const int64_t (*part)[3], struct made *out) {
    if (in->known)
        return gives(out, in, &x->shape);
    int layer = is_layer(t, in, part) ? translate_part(t, in, part[0][0]) : -1;
    if (layer >= 0)
        return viewed(out, in, translate_view(t, in, layer, x->shape.rank, x->shape.size));
    return cut(t, in, part, out);
}

static bool slice(struct translate *t, const struct hlo_instruction *x,
                  const struct made *in, struct made *out) {
    return x->slices.n == 3 * in->shape->rank &&
           take(t, x, in, (const int64_t(*)[3])x->slices.p, out);
}

/* The starts must be known; they are moved so that all of it is inside. */
static bool dynamic_slice(struct translate *t, const struct hlo_instruction *x,
                          const struct made *const *in, struct made *out) {
    int64_t part[HLO_MAX_RANK][3];
    int rank = in[0]->shape->rank;
    if (x->operands.n != rank + 1 || x->slice_sizes.n != rank)
        return false;
    for (int d = 0; d < rank; d++) {
        int64_t size = x->slice_sizes.p[d], all = in[0]->shape->size[d];
        if (!in[d + 1]->known || size < 1 || size > all)
            return false;
        double from = in[d + 1]->number;
        part[d][0] = from < 0                      ? 0
                     : from > (double)(all - size) ? all - size
                                                   : (int64_t)from;
        part[d][1] = part[d][0] + size;
        part[d][2] = 1;
    }
    return take(t, x, in[0], (const int64_t(*)[3])part, out);
}

/* Numbers of rows, each with zeros behind it: where in a table rows begin. */
static const struct made *rows_of(struct translate *t, const struct hlo_instruction *x,
                                  const struct made *const *in, int64_t d) {
    bool rows = !in[0]->known && d == x->shape.rank - 1 && in[0]->shape->size[d] == 1;
    for (int i = 1; i < x->operands.n; i++)
        rows &= in[i]->known && in[i]->number == 0;
    struct made *own = rows ? arena_alloc(&t->h.arena, sizeof *own) : NULL;
    if (own)
        *own = *in[0];
    return own;
}

static bool concatenate(struct translate *t, const struct hlo_instruction *x,
                        const struct made *const *in, struct made *out) {
    int64_t d = x->dimensions.n == 1 ? x->dimensions.p[0] : -1, size[HLO_MAX_RANK];
    bool constant = true, thin = true;
    if (d < 0 || d >= x->shape.rank || x->operands.n < 1)
        return false;
    for (int i = 0; i < x->operands.n; i++) {
        const struct exported_value *v = in[i]->known ? NULL : value_at(t, in[i]->value);
        const struct exported_value *first =
            in[0]->known ? NULL : value_at(t, in[0]->value);
        constant &= in[i]->known || in[i]->constant;
        thin &= v && first && v->rank == first->rank && v->rank == x->shape.rank &&
                v->size[d] == in[i]->shape->size[d];
        for (int k = 0; thin && k < v->rank; k++)
            thin = k == d || v->size[k] == first->size[k];
    }
    memcpy(size, x->shape.size, sizeof size);
    struct translate_args args = {0};
    int *values = arena_array(&t->h.arena, (size_t)x->operands.n, sizeof *values);
    for (int i = 0; i < x->operands.n; i++) {
        int value = values[i] = thin ? in[i]->value : translate_full(t, in[i]);
        for (int k = 0; thin && k < x->shape.rank; k++)
            size[k] = k == d ? size[k] : value_at(t, value)->size[k];
    }
    translate_int(translate_tensors(&args, "tensors", values, x->operands.n), "dim", d);
    out->constant = constant;
    out->rows = rows_of(t, x, in, d);
    out->value = translate_node(t, "aten.cat.default", &args, x->shape.rank, size,
                                x->shape.type, constant);
    return true;
}

static bool iota(struct translate *t, const struct hlo_instruction *x, struct made *out) {
    int64_t d = x->dimensions.n ? x->dimensions.p[0] : -1, size[HLO_MAX_RANK];
    if (d < 0 || d >= x->shape.rank)
        return false;
    for (int i = 0; i < x->shape.rank; i++)
        size[i] = i == d ? x->shape.size[i] : 1;
    struct translate_args args = {0};
    translate_int(&args, "end", size[d]);
    out->constant = true;
    out->value =
        translate_node(t, "aten.arange.default", &args, 1, &size[d], x->shape.type, true);
    out->value = translate_view(t, out, out->value, x->shape.rank, size);
    return true;
}

/* ---- reductions ------------------------------------------------------------------------------------------ */

/* The opcode of a computation of two numbers; NULL where it does more. */
static const char *reducer_of(const struct translate *t, const struct hlo_instruction *x) {
    const struct hlo_computation *c =
        x->called.n == 1 ? &t->h.computations[x->called.p[0]] : NULL;
    return c && c->n == 3 && c->instructions[c->root].operands.n == 2
               ? c->instructions[c->root].opcode
               : NULL;
}

static bool reduce(struct translate *t, const struct hlo_instruction *x,
                   const struct made *const *in, struct made *out) {
    static const struct {
        const char *opcode, *target;
        double neutral;
    } reductions[] = {{"add", "aten.sum.dim_IntList", 0},
                      {"maximum", "aten.amax.default", -INFINITY},
                      {"and", NULL, 1},
                      {"or", NULL, 0}};
    const char *opcode = reducer_of(t, x), *target = NULL;
    int64_t dims[HLO_MAX_RANK], size[HLO_MAX_RANK];
    int n = 0, rank = 0;
    bool known = false, single = true;
    for (int i = 0; opcode && x->operands.n == 2 && i < 4; i++)
        if (!strcmp(opcode, reductions[i].opcode) && in[1]->known &&
            in[1]->number == reductions[i].neutral) {
            target = reductions[i].target;
            known = true;
        }
    if (!known || x->dimensions.n > in[0]->shape->rank)
        return false;
    for (int d = 0; d < in[0]->shape->rank; d++) {
        bool gone = false;
        for (int i = 0; i < x->dimensions.n; i++)
            gone |= x->dimensions.p[i] == d;
        if (gone)
            dims[n++] = d;
        single &= !gone || in[0]->shape->size[d] == 1;
        if (!gone)
            size[rank++] = in[0]->shape->size[d];
    }
    if (single)
        return reshape(t, x, in[0], out);
    if (!target || in[0]->known)
        return false;
    struct translate_args args = {0};
    translate_tensor(&args, "self", translate_full(t, in[0]));
    out->constant = in[0]->constant;
    out->value = translate_node(t, target, translate_ints(&args, "dim", dims, n), rank,
                                size, x->shape.type, out->constant);
    return true;
}

/* ---- by opcode ------------------------------------------------------------------------------------------- */

static bool by_opcode(struct translate *t, const struct hlo_instruction *x,
                      const struct made *const *in, struct made *out) {
    int n = x->operands.n;
    if (is(x, "copy") || is(x, "opt-barrier") || is(x, "bitcast") ||
        (is(x, "custom-call") && !strcmp(x->custom, "Sharding")))
        return n == 1 && gives(out, in[0], in[0]->shape);
    for (int i = 0; i < n; i++)
        if (!is_array(in[i]) || !in[i]->shape)
            return false;
    if (is(x, "iota"))
        return iota(t, x, out);
    if (n < 1)
        return false;
    return is(x, "broadcast")       ? n == 1 && broadcast(t, x, in[0], out)
           : is(x, "reshape")       ? n == 1 && reshape(t, x, in[0], out)
           : is(x, "transpose")     ? n == 1 && transpose(t, x, in[0], out)
           : is(x, "slice")         ? n == 1 && slice(t, x, in[0], out)
           : is(x, "dynamic-slice") ? dynamic_slice(t, x, in, out)
           : is(x, "concatenate")   ? concatenate(t, x, in, out)
           : is(x, "reduce")        ? reduce(t, x, in, out)
           : is(x, "dot")           ? n == 2 && translate_dot(t, x, in, out)
           : is(x, "gather")        ? n == 2 && translate_gather(t, x, in, out)
           : is(x, "clamp")         ? clamp(t, x, in, out)
                                    : function(t, x, in, out);
}

bool translate_op(struct translate *t, const struct hlo_instruction *x,
                  const struct made *const *in, struct made *out) {
    if (!by_opcode(t, x, in, out))
        return false;
    for (int i = 0; i < x->operands.n && !is(x, "dot"); i++)
        out->scores |= in[i]->scores;
    return true;
}
