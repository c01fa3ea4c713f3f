/* Calls and loops of a module, written out. */
#include "import/translate.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum {
    CALLS_MOST = 64,
    WORK_MOST = 1 << 22, /* instructions and operands, as often as they are written out */
    NODES_MOST = 1 << 18,
};

/* ---- parameters --------------------------------------------------------------------------------- */

/* "params['blocks'][0]['w']" and "model.blocks[0].w" are the root and the path blocks.0.w; layers_3 is
 * layers.3 there, as scripts/export-hlo.py has it. */
static char *path_of(struct translate *t, const char *name, char **root) {
    char *path = arena_alloc(&t->p->arena, 2 * strlen(name) + 1), *to = path;
    for (const char *c = name; *c; c++) {
        bool splits = strchr("[]'\". ", *c);
        if (!splits)
            *to++ = *c;
        else if (to > path && to[-1] != '.')
            *to++ = '.';
    }
    while (to > path && to[-1] == '.')
        to--;
    *to = '\0';
    for (char *c = path; *c; c++)
        if (c > path && *c == '_' && isalpha((unsigned char)c[-1]) &&
            isdigit((unsigned char)c[1])) {
            size_t n = strspn(c + 1, "0123456789");
            if (!c[n + 1] || c[n + 1] == '.')
                *c = '.';
        }
    char *dot = strchr(path, '.');
    *root = path;
    if (!dot)
        return NULL;
    *dot = '\0';
    return dot + 1;
}

/* The leaves of the first argument that is a container are parameters; all else is data. */
static int add_inputs(struct translate *t, struct made *in, struct err *err) {
    const struct hlo_computation *c = &t->h.computations[t->h.entry];
    char *root, *params = NULL;
    const struct hlo_instruction **list =
        arena_array(&t->p->arena, (size_t)c->n + 1, sizeof *list);
    for (int i = 0; i < c->n; i++) {
        const struct hlo_instruction *x = &c->instructions[i];
        if (strcmp(x->opcode, "parameter") != 0)
            continue;
        if (x->number < 0 || x->number >= c->n || list[x->number] ||
            x->shape.type == HLO_TUPLE)
            return err_input(err, "%.64s.%.64s: expected an array, the only parameter %lld",
                             c->name, x->name, (long long)x->number);
        list[x->number] = x;
    }
    for (int i = 0; i < c->n; i++) {
        const struct hlo_instruction *x = list[i];
        if (!x)
            continue;
        bool named = x->op_name[0], integer = translate_is_integer(x->shape.type);
        char *path = path_of(t, named ? x->op_name : x->name, &root);
        if (named && path && !integer && !params)
            params = root;
        bool weight = !integer && (named ? path && !strcmp(root, params) : true);
        in[i] = (struct made){.shape = &x->shape, .weight = weight};
        in[i].value = translate_value(t, weight ? EXPORTED_PARAMETER : EXPORTED_INPUT,
                                      path ? path : root, x->shape.rank, x->shape.size,
                                      x->shape.type);
    }
    return 0;
}

/* ---- computations -------------------------------------------------------------------------------- */

static int run(struct translate *t, int computation, const struct made *const *args, int n,
               struct made *out, struct err *err);

static int constant(struct translate *t, const struct hlo_instruction *x, struct made *out,
                    struct err *err) {
    const double *v = hlo_literal(&t->h, x);
    int64_t n = hlo_elements(&x->shape), i = 1;
    if (!v)
        return err_input(err, "a constant whose numbers are missing, or of type %d",
                         x->shape.type);
    while (i < n && v[i] == v[0])
        i++;
    out->constant = out->known = i == n;
    out->number = v[0];
    if (out->known)
        return 0;
    out->constant = true;
    out->value = translate_value(t, EXPORTED_BUFFER, NULL, x->shape.rank, x->shape.size,
                                 x->shape.type);
    double *own = arena_array(&t->p->arena, (size_t)n, sizeof *own);
    memcpy(own, v, (size_t)n * sizeof *own);
    t->p->values.p[out->value].numbers = own;
    return 0;
}

/* What has no path of its own is of this turn's layer. */
static void name_turn(struct translate *t, int64_t from, int64_t turn) {
    const char *path = arena_printf(&t->p->arena, "%s.%lld", t->stack ? t->stack : "layers",
                                    (long long)turn);
    for (int64_t i = from; i < t->nodes.n; i++)
        if (!t->nodes.p[i].path[0])
            t->nodes.p[i].path = path;
}

static int loop(struct translate *t, const struct hlo_instruction *x,
                const struct made *state, struct made *out, struct err *err) {
    const char *around = t->stack;
    int64_t outer = t->turn;
    *out = *state;
    if (x->called.n != 2)
        return err_input(err, "expected a body and a condition");
    for (int64_t turn = 0;; turn++) {
        struct made go;
        const struct made *in = out;
        struct made next;
        int64_t from = t->nodes.n;
        t->stack = NULL;
        t->turn = turn;
        if (run(t, (int)x->called.p[1], &in, 1, &go, err) < 0)
            return -1;
        if (!go.known || !go.shape || go.shape->rank)
            return err_input(err, "a loop whose number of turns follows from data");
        if (go.number == 0)
            break;
        if (run(t, (int)x->called.p[0], &in, 1, &next, err) < 0)
            return -1;
        *out = next;
        name_turn(t, from, turn);
    }
    t->stack = around;
    t->turn = outer;
    return 0;
}

static void unknown(struct translate *t, const struct hlo_instruction *x,
                    const struct made *const *in, struct made *out) {
    struct translate_args args = {0};
    for (int i = 0; i < x->operands.n && i < TRANSLATE_MOST_ARGS; i++)
        if (in[i]->value >= 0 && !in[i]->known)
            translate_tensor(&args, arena_printf(&t->p->arena, "in%d", i), in[i]->value);
    const char *target = arena_printf(&t->p->arena, "hlo.%s", x->opcode);
    *out = (struct made){.shape = &x->shape};
    out->value = translate_node(t, target, &args, x->shape.rank, x->shape.size,
                                x->shape.type, false);
}

/* What has no parts is not known, and refused once. */
static int element(struct translate *t, const struct hlo_instruction *x,
                   const struct made *tuple, struct made *out, struct err *err) {
    if (!tuple->n && tuple->value >= 0 && !tuple->known) {
        struct translate_args args = {0};
        translate_tensor(&args, "self", tuple->value);
        out->value = translate_node(t, "aten.view.default", &args, x->shape.rank,
                                    x->shape.size, x->shape.type, false);
        return 0;
    }
    if (x->index < 0 || x->index >= tuple->n)
        return err_input(err, "a tuple of %d has no element %lld", tuple->n,
                         (long long)x->index);
    *out = tuple->part[x->index];
    return 0;
}

static bool is_call(const char *opcode) {
    return !strcmp(opcode, "call") || !strcmp(opcode, "fusion");
}

static int instruction(struct translate *t, const struct hlo_instruction *x,
                       const struct made *const *in, struct made *out, struct err *err) {
    *out = (struct made){.shape = &x->shape, .value = -1};
    t->at = x;
    t->work += 1 + x->operands.n;
    if (t->work > WORK_MOST || t->nodes.n > NODES_MOST)
        return err_input(err,
                         "expected at most %d instructions, calls and turns of loops "
                         "written out",
                         NODES_MOST);
    if (strstr(x->op_name, "transpose(jvp")) {
        err_input(err, "it is part of a gradient");
        return err_hint(err,
                        "weft makes gradients itself: lower the function of the logits, "
                        "or of the loss");
    }
    if (!strcmp(x->opcode, "constant"))
        return constant(t, x, out, err);
    if (!strcmp(x->opcode, "tuple")) {
        struct made *part =
            arena_array(&t->h.arena, (size_t)x->operands.n + 1, sizeof *part);
        for (int i = 0; i < x->operands.n; i++)
            part[i] = *in[i];
        out->part = part;
        out->n = x->operands.n;
        return 0;
    }
    if (!strcmp(x->opcode, "get-tuple-element") && x->operands.n == 1)
        return element(t, x, in[0], out, err);
    if (is_call(x->opcode) && x->called.n == 1)
        return run(t, (int)x->called.p[0], in, x->operands.n, out, err);
    if (!strcmp(x->opcode, "while") && x->operands.n == 1)
        return loop(t, x, in[0], out, err);
    if (!translate_op(t, x, in, out))
        unknown(t, x, in, out);
    return 0;
}

/* The shapes that instructions say must be those of what they are: damaged files differ. */
static int check(const struct translate *t, const struct hlo_instruction *x,
                 const struct made *out, struct err *err) {
    if (out->n || out->known || out->value < 0)
        return 0;
    const struct exported_value *v = &t->p->values.p[out->value];
    bool fits = v->rank == x->shape.rank || x->shape.type == HLO_TUPLE;
    for (int i = 0; fits && i < v->rank && x->shape.type != HLO_TUPLE; i++)
        fits = v->size[i] == x->shape.size[i] || v->size[i] == 1;
    return fits ? 0 : err_input(err, "its result has another shape than it says");
}

static int run(struct translate *t, int computation, const struct made *const *args, int n,
               struct made *out, struct err *err) {
    const struct hlo_computation *c = &t->h.computations[computation];
    struct made *made = mem_array((size_t)c->n + 1, sizeof *made);
    ARR(const struct made *) in = {0};
    int rc = ++t->depth > CALLS_MOST ? err_input(err, "calls nest too deep") : 0;
    for (int i = 0; i < c->n && rc == 0; i++) {
        const struct hlo_instruction *x = &c->instructions[i];
        in.n = 0;
        for (int k = 0; k < x->operands.n; k++)
            arr_push(&in, &made[x->operands.p[k]]);
        arr_push(&in, NULL);
        if (strcmp(x->opcode, "parameter") != 0)
            rc = instruction(t, x, in.p, &made[i], err);
        else if (x->number >= 0 && x->number < n && args[x->number]->shape)
            made[i] = *args[x->number];
        else
            rc = err_input(err, "a parameter that its caller does not give");
        if ((rc < 0 || (rc = check(t, x, &made[i], err)) < 0) && !t->failed) {
            err_prefix(err, "%.64s.%.64s", c->name, x->name);
            t->failed = true;
        }
    }
    *out = made[c->root];
    t->depth--;
    arr_release(&in);
    free(made);
    return rc;
}

/* ---- all of it -------------------------------------------------------------------------------------- */

static int add_outputs(struct translate *t, const struct made *root, struct err *err) {
    for (int i = 0; i < root->n; i++)
        if (!root->part[i].n && !root->part[i].known && root->part[i].value >= 0)
            arr_push(&t->p->outputs, root->part[i].value);
    if (!root->n && !root->known && root->value >= 0)
        arr_push(&t->p->outputs, root->value);
    return t->p->outputs.n ? 0 : err_input(err, "expected a result that is an array");
}

static int translate_module(struct translate *t, struct err *err) {
    const struct hlo_computation *c = &t->h.computations[t->h.entry];
    struct made *in = arena_array(&t->h.arena, (size_t)c->n + 1, sizeof *in), root;
    const struct made **args = arena_array(&t->h.arena, (size_t)c->n + 1, sizeof *args);
    for (int i = 0; i < c->n; i++)
        args[i] = &in[i];
    return add_inputs(t, in, err) < 0 || run(t, t->h.entry, args, c->n, &root, err) < 0
               ? -1
               : add_outputs(t, &root, err);
}

int translate_hlo(struct exported *p, const void *bytes, int64_t size, struct err *err) {
    struct translate t = {.p = p, .turn = -1, .parts = json_object()};
    *p = (struct exported){.about = "From an HLO module."};
    int rc = hlo_parse(&t.h, bytes, size, err) < 0 ? -1 : translate_module(&t, err);
    translate_end(&t);
    hlo_close(&t.h);
    return rc;
}
