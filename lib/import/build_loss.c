/* The loss of a program, what it needs, and where its data come from. */
#include "import/build.h"

#include <stdio.h>
#include <string.h>

enum { REASONS_SAID = 6 };

/* ---- what is refused ----------------------------------------------------------------------------------- */

struct reason {
    const char *target, *why, *path;
    int count;
};

static void add_reason(struct reason *list, int *n, int most, const struct found_op *op,
                       const struct exported_node *node) {
    const char *target = !node        ? "the result"
                         : node->said ? node->said
                                      : node->target,
               *path = node && node->place ? node->place : op->path;
    int i = 0;
    while (i < *n &&
           (strcmp(list[i].target, target) != 0 || strcmp(list[i].why, op->why) != 0))
        i++;
    if (i == most)
        return;
    if (i == *n)
        list[(*n)++] = (struct reason){target, op->why, path, 0};
    list[i].count++;
}

static int say_reasons(const struct reason *list, int n, struct err *err) {
    char text[900] = "";
    size_t used = 0;
    for (int i = 0; i < n && i < REASONS_SAID && used < sizeof text - 1; i++)
        used += (size_t)snprintf(
            text + used, sizeof text - used, "%s%.48s (%d, %s%.48s: %.90s)", i ? ", " : "",
            list[i].target, list[i].count, list[i].count > 1 ? "first in " : "in ",
            list[i].path[0] ? list[i].path : "the model itself", list[i].why);
    return err_input(err, "no op does what this does: %s%s", text,
                     n > REASONS_SAID ? ", and more" : "");
}

static int check_refused(struct build *b, struct err *err) {
    struct reason list[64];
    int n = 0;
    for (int64_t i = 0; i < b->t->ops.n; i++) {
        const struct found_op *op = &b->t->ops.p[i];
        if (op->live && op->kind == FOUND_REFUSED && op->why)
            add_reason(list, &n, 64, op, op->node >= 0 ? &b->t->p->nodes[op->node] : NULL);
    }
    return n ? say_reasons(list, n, err) : 0;
}

/* ---- the loss -------------------------------------------------------------------------------------------- */

/* Every op follows its operands. */
static void mark_live(struct follow *t, int loss) {
    t->ops.p[loss].live = true;
    for (int i = loss; i >= 0; i--)
        for (int k = 0; t->ops.p[i].live && k < t->ops.p[i].n_in; k++)
            t->ops.p[t->ops.p[i].in[k]].live = true;
}

static int refused_result(struct follow *t, const struct followed *x) {
    int op = follow_op(t, FOUND_REFUSED, (struct axis){0});
    t->ops.p[op].why = t->why ? t->why : "it is no tensor that follows from data";
    for (; x && x->form != FORM_TENSOR; x = x->of)
        ;
    if (x)
        follow_operand(t, op, x);
    return op;
}

/* The first output that is a tensor of real numbers and follows from data, whole; or NULL. */
static const struct followed *find_output(struct follow *t, const struct followed **raw) {
    for (int64_t i = 0; i < t->p->outputs.n; i++) {
        const struct followed *x = t->values[t->p->outputs.p[i]];
        if (!x || x->form == FORM_CONSTANT || t->p->values.p[t->p->outputs.p[i]].integer)
            continue;
        *raw = x;
        t->why = NULL;
        if (t->p->outputs.n > 1)
            json_array_append_new(t->notes,
                                  json_sprintf("of %d outputs, %.64s is the result",
                                               (int)t->p->outputs.n,
                                               t->p->values.p[t->p->outputs.p[i]].name));
        return follow_whole(t, x);
    }
    return NULL;
}

/* Logits get the loss that a program leaves to its trainer. */
static int add_loss(struct build *b, const struct followed *x) {
    struct follow *t = b->t;
    struct axis dims = follow_dims(t, x), last = x->rank ? x->axis[x->rank - 1] : dims;
    struct axis rest = dims;
    axes_settle(&t->axes, &last);
    rest.n--;
    if (x->rank < 2 || !follow_is_plain(t, x) || last.n != 1 ||
        dims.atom[dims.n - 1] != last.atom[0]) {
        t->why =
            "the result of the program is not logits, of which the last dim are classes";
        return refused_result(t, x);
    }
    struct followed like = {.rank = 0};
    b->targets = follow_op(t, FOUND_INPUT, rest);
    const struct followed *y = follow_tensor(t, b->targets, &like);
    int op = follow_op(t, OP_cross_entropy, (struct axis){0});
    follow_operand(t, op, x);
    follow_operand(t, op, y);
    return op;
}

static int find_loss(struct build *b) {
    struct follow *t = b->t;
    const struct followed *raw = NULL, *x = find_output(t, &raw);
    if (!x)
        return refused_result(t, raw);
    if (t->ops.p[x->op].kind == OP_cross_entropy) {
        b->targets = t->ops.p[x->op].in[1];
        return x->op;
    }
    return add_loss(b, x);
}

/* ---- inputs ---------------------------------------------------------------------------------------------- */

/* Has the input the positions of the targets? Of two sequences that one is what is foretold, as far as it is
 * known, whatever an exporter calls it. */
static bool goes_with_targets(const struct build *b, const struct found_op *op) {
    struct axis x = op->dims, y = b->t->ops.p[b->targets].dims;
    axes_settle(&b->t->axes, &x);
    axes_settle(&b->t->axes, &y);
    return x.n > 1 && y.n > 1 && x.atom[1] == y.atom[1];
}

static const char *source_of(const struct build *b, const struct found_op *op, int at,
                             int sequences, bool images) {
    const struct exported_value *v = op->value >= 0 ? &b->t->p->values.p[op->value] : NULL;
    if (at == b->targets)
        return images ? "label" : sequences > 1 ? "target" : "next-token";
    if (!v->integer)
        return "image";
    return sequences < 2 ? "token" : goes_with_targets(b, op) ? "shifted-target" : "input";
}

static int check_batch(struct build *b, const struct found_op *op, struct err *err) {
    struct follow *t = b->t;
    struct axis dims = op->dims;
    if (op->value >= 0) {
        const struct exported_value *v = &t->p->values.p[op->value];
        if (!v->rank || v->size[0] < 2) {
            err_input(err,
                      "%.64s: expected a batch of 2 samples or more, got %lld: which "
                      "dims follow the batch is not seen",
                      v->path, v->rank ? (long long)v->size[0] : 0);
            return err_hint(err, "export with an example of 2 samples");
        }
        dims = t->values[op->value]->axis[0];
    }
    if (axes_settle(&t->axes, &dims) < 0 || !dims.n)
        return err_input(err, "an input without a batch");
    if (b->batch < 0)
        b->batch = dims.atom[0];
    struct axis batch = axis_of(b->batch), first = axis_of(dims.atom[0]);
    if ((op->value >= 0 && dims.n != 1) ||
        axes_unify(&t->axes, &batch, &first) != AXES_ONE || batch.n != 1)
        return err_input(err, "%.64s: its first dim is not the batch of the others",
                         op->value >= 0 ? t->p->values.p[op->value].path : "targets");
    b->batch = axes_class(&t->axes, b->batch);
    return 0;
}

static int find_sources(struct build *b, struct err *err) {
    struct follow *t = b->t;
    int sequences = 0;
    bool images = false;
    for (int64_t i = 0; i < t->ops.n; i++) {
        struct found_op *op = &t->ops.p[i];
        if (!op->live || op->kind != FOUND_INPUT)
            continue;
        if (check_batch(b, op, err) < 0)
            return -1;
        bool integer = op->value < 0 || t->p->values.p[op->value].integer;
        sequences += integer && i != b->targets;
        images |= !integer;
    }
    if (sequences > 2 || (images && sequences))
        return err_input(err, "expected one or two inputs of tokens, or one of images; the "
                              "program reads others");
    for (int64_t i = 0; i < t->ops.n; i++)
        if (t->ops.p[i].live && t->ops.p[i].kind == FOUND_INPUT)
            t->ops.p[i].source = source_of(b, &t->ops.p[i], (int)i, sequences, images);
    return 0;
}

/* What follows in a text is of the vocabulary that is read. */
static void one_vocabulary(struct build *b, int loss) {
    struct follow *t = b->t;
    struct axis classes = follow_dims(t, &(struct followed){.op = t->ops.p[loss].in[0]});
    const char *source = t->ops.p[b->targets].source;
    for (int i = 0; i < loss && strcmp(source, "label") != 0; i++) {
        const struct found_op *op = &t->ops.p[i];
        if (!op->live || op->kind != OP_embedding || !classes.n)
            continue;
        struct axis rows = axis_of(op->param[0].dims.atom[0]),
                    last = axis_of(classes.atom[classes.n - 1]);
        if (axes_size(&t->axes, &rows) == axes_size(&t->axes, &last))
            axes_unify(&t->axes, &rows, &last);
        return;
    }
}

int build_loss(struct build *b, struct err *err) {
    struct follow *t = b->t;
    b->batch = -1;
    int loss = find_loss(b);
    mark_live(t, loss);
    if (check_refused(b, err) < 0 || find_sources(b, err) < 0)
        return -1;
    one_vocabulary(b, loss);
    for (int i = 0; i < t->ops.n; i++)
        if (t->ops.p[i].live && t->ops.p[i].kind >= 0)
            arr_push(&b->order, i);
    return b->batch >= 0 ? 0 : err_input(err, "the program reads no data");
}
