/* Norms, means, rotary positions, softmax and losses. */
#include "import/follow.h"

#include <math.h>
#include <string.h>

/* ---- norms ------------------------------------------------------------------------------------------ */

static const struct followed *norm(struct follow *t, const struct exported_node *n,
                                   enum kind_id kind, double eps) {
    int64_t shape[2];
    const struct followed *x = follow_arg(t, n, "input");
    if (!x || exported_ints(n, "normalized_shape", shape, 2) != 1)
        return follow_refuse(t, "a norm over several dims");
    x = follow_whole(t, x);
    if (!x || !follow_is_plain(t, x) || !x->rank)
        return NULL;
    int op = follow_op(t, (int)kind, follow_dims(t, x));
    const struct followed *bias = kind == OP_layernorm ? follow_arg(t, n, "bias") : NULL;
    follow_operand(t, op, x);
    if (!follow_norm_params(t, op, x, follow_arg(t, n, "weight"), bias))
        return NULL;
    follow_attr(t, op, "eps", json_real(exported_number(n, "eps", eps)));
    return follow_tensor(t, op, x);
}

static const struct followed *layer_norm(struct follow *t, const struct exported_node *n) {
    return norm(t, n, OP_layernorm, 1e-5);
}

static const struct followed *rms_norm(struct follow *t, const struct exported_node *n) {
    return norm(t, n, OP_rmsnorm, 1.1920928955078125e-07);
}

/* Over all places of an image, or all positions: what is left is [batch, channels]. */
static const struct followed *pool(struct follow *t, const struct followed *a,
                                   unsigned over, bool keep) {
    const struct followed *x = follow_whole(t, a);
    if (!x || !follow_is_plain(t, x))
        return NULL;
    struct followed *y = follow_new(t, FORM_TENSOR, NULL);
    struct axis dims = {0}, all = follow_dims(t, x);
    for (int i = 0; i < x->rank; i++)
        if (!(over >> i & 1))
            y->axis[y->rank++] = x->axis[i];
        else if (keep)
            y->rank++;
    if (x->rank - __builtin_popcount(over) != 2 || all.n < 3)
        return follow_refuse(t, "a mean that does not leave batch and one dim");
    dims.atom[dims.n++] = all.atom[0];
    dims.atom[dims.n++] = all.atom[all.n - 1];
    y->op = follow_op(t, OP_avgpool, dims);
    follow_operand(t, y->op, x);
    return follow_is_plain(t, y)
               ? y
               : follow_refuse(t,
                               "a mean over a dim that lies before or behind the others");
}

const struct followed *follow_mean(struct follow *t, const struct followed *x,
                                   unsigned over, bool keep) {
    const bool tensor = x->form == FORM_TENSOR || x->form == FORM_POINT,
               last = over == 1u << (x->rank - 1), spread = x->form == FORM_SPREAD;
    if (!last && tensor)
        return pool(t, x, over, keep);
    if (!last || (!tensor && !spread && x->form != FORM_HALF && x->form != FORM_SPAN))
        return follow_refuse(t, "a mean of what is no tensor");
    bool square = spread || follow_is_square(t, x);
    struct followed *y = follow_new(t, square ? FORM_MEAN_SQUARE : FORM_MEAN, x);
    y->of = square ? x->of : x;
    y->centered = spread;
    y->rank -= !keep;
    if (keep)
        y->axis[y->rank - 1] = (struct axis){0};
    return y;
}

static const struct followed *mean(struct follow *t, const struct exported_node *n) {
    int64_t dim[EXPORTED_MAX_RANK];
    const struct followed *x = follow_arg(t, n, "self");
    int count = exported_ints(n, "dim", dim, EXPORTED_MAX_RANK);
    unsigned over = 0;
    if (!x || count < 1)
        return follow_refuse(t, "a mean over all dims");
    for (int i = 0; i < count; i++) {
        int64_t d = dim[i] < 0 ? dim[i] + x->rank : dim[i];
        if (d < 0 || d >= x->rank)
            return follow_refuse(t, "a mean over a dim that its operand lacks");
        over |= 1u << d;
    }
    return follow_mean(t, x, over, exported_int(n, "keepdim", 0));
}

/* ---- softmax and losses ------------------------------------------------------------------------- */

static const struct followed *softmax(struct follow *t, const struct exported_node *n) {
    const struct followed *x = follow_arg(t, n, "self");
    bool tensor = x && (x->form == FORM_TENSOR || x->form == FORM_POINT);
    if (!x || (x->form != FORM_SCORES && !tensor))
        return follow_refuse(t, "a softmax outside of attention");
    int64_t d = exported_int(n, "dim", -1);
    if (d != -1 && d != x->rank - 1)
        return follow_refuse(t, "a softmax over queries");
    struct followed *y = follow_new(t, tensor ? FORM_CHANCES : FORM_SHARES, x);
    y->of = x;
    return y;
}

static const struct followed *any(struct follow *t, const struct exported_node *n) {
    const struct followed *x = follow_arg(t, n, "self");
    if (!x || x->form != FORM_UNSEEN)
        return follow_refuse(t, "data are compared");
    struct followed *y = follow_new(t, FORM_UNSEEN, x);
    y->axis[y->rank - 1] = (struct axis){0};
    return y;
}

/* The mean over all targets, which are an input as it is. */
static const struct followed *loss(struct follow *t, const struct exported_node *n) {
    const struct followed *x = follow_arg(t, n, "self"), *y = follow_arg(t, n, "target");
    if (!x || !y || exported_int(n, "reduction", 1) != 1 || exported_arg(n, "weight") ||
        exported_number(n, "label_smoothing", 0) != 0)
        return follow_refuse(t, "a loss with weights or smoothing, or that is no mean");
    x = follow_whole(t, x);
    y = y->form == FORM_TENSOR ? y : NULL;
    if (!x || !y || t->ops.p[y->op].kind != FOUND_INPUT || !follow_is_plain(t, x) ||
        !follow_is_plain(t, y) || x->rank != y->rank + 1)
        return follow_refuse(t, "a loss whose targets are no input as it is");
    for (int i = 0; i < y->rank; i++) {
        struct axis a = x->axis[i], b = y->axis[i];
        if (axes_unify(&t->axes, &a, &b) != AXES_ONE)
            return follow_refuse(t, "a loss whose targets have other dims than the logits");
    }
    int op = follow_op(t, OP_cross_entropy, (struct axis){0});
    follow_operand(t, op, x);
    follow_operand(t, op, y);
    t->loss = op;
    struct followed like = {.rank = 0};
    return follow_tensor(t, op, &like);
}

/* softmax(q k) v in one. */
static const struct followed *attention(struct follow *t, const struct exported_node *n) {
    const struct followed *q = follow_arg(t, n, "query"), *k = follow_arg(t, n, "key"),
                          *v = follow_arg(t, n, "value"),
                          *mask = follow_arg(t, n, "attn_mask");
    q = follow_unmixed(t, q);
    k = follow_unmixed(t, k);
    v = follow_unmixed(t, v);
    double scale = 1;
    if (q && k && !(q = follow_plain_order(t, &k, q, &scale)))
        return NULL;
    if (!q || !k || !v || q->rank < 3 || k->rank != q->rank || v->rank != q->rank)
        return follow_refuse(t, "attention of what are no heads");
    const struct followed *positions = mask && mask->form == FORM_POSITIONS ? mask : NULL;
    if (mask && !positions && (mask->form != FORM_CONSTANT || mask->value < 0))
        return follow_refuse(t, "attention whose mask follows from data");
    struct axis axis[EXPORTED_MAX_RANK];
    memcpy(axis, k->axis, sizeof axis);
    axis[k->rank - 1] = k->axis[k->rank - 2];
    axis[k->rank - 2] = k->axis[k->rank - 1];
    int64_t d = axes_size(&t->axes, &q->axis[q->rank - 1]);
    struct followed *s = follow_new(t, FORM_SCORES, q), *shares;
    s->number = scale * exported_number(n, "scale", 1 / sqrt((double)d));
    s->of = follow_unscaled(t, q, &s->number);
    s->cap = exported_number(n, "softcap", 0); /* an argument of ONNX */
    s->number /= s->cap > 0 ? s->cap : 1;
    s->with = follow_reaxed(t, k, k->rank, axis);
    s->axis[q->rank - 1] = axis[k->rank - 1];
    s->positions = positions;
    s->table = positions ? positions->table : mask ? mask->value : -1;
    s->mask = positions                                   ? positions->mask
              : mask && t->p->values.p[mask->value].truth ? MASK_SEEN
                                                          : MASK_ADDED;
    shares = follow_new(t, FORM_SHARES, s);
    shares->of = s;
    return follow_attend(t, shares, v, exported_int(n, "is_causal", 0));
}

const struct followed *follow_layer(struct follow *t, const struct exported_node *n,
                                    bool *known) {
    static const struct {
        const char *target;
        const struct followed *(*rule)(struct follow *, const struct exported_node *);
    } rules[] = {
        {"aten.layer_norm.default", layer_norm},
        {"aten.native_layer_norm.default", layer_norm},
        {"aten.rms_norm.default", rms_norm},
        {"aten._fused_rms_norm.default", rms_norm},
        {"aten.mean.dim", mean},
        {"aten.softmax.int", softmax},
        {"aten._softmax.default", softmax},
        {"aten._safe_softmax.default", softmax},
        {"aten.any.dim", any},
        {"aten.cross_entropy_loss.default", loss},
        {"aten.scaled_dot_product_attention.default", attention},
        {"aten._scaled_dot_product_flash_attention_for_cpu.default", attention},
    };
    *known = true;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (!strcmp(rules[i].target, n->target))
            return rules[i].rule(t, n);
    *known = false;
    return NULL;
}
