/* Ways to do convolutions that a profile knows: their names, and whether they can be had here.
 *
 * "own" is weft's kernels, "product" the product of matrices; "cudnn bf16 30 2=1" is a plan of cuDNN by its
 * name (cuda_dnn_name.c), after the type of its result. Each belongs to one version of cuDNN (0: without it),
 * since another version may be faster in another way. Before a plan is taken the library makes it again and
 * its notes are read, so an engine that adds in any order is not taken where bits must be the same. */
#include "cuda/cuda_choices.h"
#include "cuda/cuda_conv_impl.h"
#include "cuda/cuda_workspace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char cudnn[] = "cudnn ";

static struct library_algorithm name_of(const struct conv_picker *p,
                                        const struct conv_key *key,
                                        const struct cuda_call *c) {
    static const char *const problems[] = {[KERNEL_FORWARD] = "conv2d",
                                           [KERNEL_DATA] = "conv2d_dx",
                                           [KERNEL_WEIGHTS] = "conv2d_dw"};
    const struct kernel_conv *s = &key->s;
    const int64_t numbers[] = {s->batch, s->ih, s->iw, s->cin,    s->oh, s->ow,
                               s->cout,  s->kh, s->kw, s->stride, s->ph, s->pw};
    const enum dtype type = (enum dtype)key->dtype;
    struct library_algorithm name = {.library = dnn_version(p->dnn)};
    snprintf(name.problem, sizeof name.problem, "%s", problems[key->pass]);
    cuda_choices_join(numbers, sizeof numbers / sizeof *numbers, name.shape,
                      sizeof name.shape);
    snprintf(name.dtype, sizeof name.dtype, "%s",
             type == DTYPE_f32 && c->dev->tf32 ? "tf32" : dtype_name(type));
    snprintf(name.dtype_y, sizeof name.dtype_y, "%s",
             dtype_name(key->pass == KERNEL_WEIGHTS ? DTYPE_f32 : type));
    return name;
}

bool conv_is_product(const struct kernel_conv *s) {
    return s->kh == 1 && s->kw == 1 && s->stride == 1 && !s->ph && !s->pw &&
           s->batch * s->oh * s->ow * s->cin * s->cout > 0;
}

bool conv_mirrors(const struct conv_key *key, const struct cuda_call *c) {
    const struct kernel_conv *s = &key->s;
    return key->pass == KERNEL_DATA && key->dtype == DTYPE_f32 && !c->dev->tf32 &&
           s->stride == 1 && s->ph < s->kh && s->pw < s->kw;
}

struct dnn_wish conv_wish(const struct conv_entry *e, const struct cuda_call *c) {
    const enum dtype type = c->args->dtype;
    const struct kernel_conv *s = &e->key.s;
    struct dnn_wish wish = {.pass = (enum kernel_pass)e->key.pass,
                            .s = *s,
                            .type = type,
                            .type_to = e->key.pass == KERNEL_WEIGHTS ? DTYPE_f32 : type,
                            .deterministic = c->dev->deterministic,
                            .tf32 = c->dev->tf32,
                            .workspace_bytes = CUDA_WORKSPACE_CONVOLUTION};
    if (conv_mirrors(&e->key, c)) {
        wish.pass = KERNEL_FORWARD;
        wish.s = (struct kernel_conv){s->batch,
                                      s->oh,
                                      s->ow,
                                      s->cout,
                                      s->ih,
                                      s->iw,
                                      s->cin,
                                      s->kh,
                                      s->kw,
                                      1,
                                      s->kh - 1 - s->ph,
                                      s->kw - 1 - s->pw};
    }
    return wish;
}

/* "bf16 30 2=1": 1, 0 where the library refuses it, -1 where it does not suit. */
static int plan_named(const struct conv_picker *p, struct conv_entry *e,
                      const struct cuda_call *c, const char *text) {
    struct dnn_wish wish = conv_wish(e, c);
    const char *type = dtype_name(wish.type_to);
    if (strncmp(text, type, strlen(type)) != 0) { /* sums that are rounded */
        wish.type_to = wish.type;
        type = dtype_name(wish.type);
    }
    const size_t n = strlen(type);
    if (!p->dnn || strncmp(text, type, n) != 0 || text[n] != ' ')
        return 0;
    e->type_to = wish.type_to;
    e->way = 0;
    return dnn_plan_named(p->dnn, &wish, text + n + 1, &e->plans);
}

/* As plan_named(). */
static int take(const struct conv_picker *p, struct conv_entry *e,
                const struct cuda_call *c, const char *algorithm) {
    if (!strcmp(algorithm, "own")) {
        e->way = CONV_OWN;
        return 1;
    }
    if (!strcmp(algorithm, "product")) {
        e->way = CONV_PRODUCT;
        return conv_is_product(&e->key.s);
    }
    if (strncmp(algorithm, cudnn, sizeof cudnn - 1) != 0)
        return 0;
    return plan_named(p, e, c, algorithm + sizeof cudnn - 1);
}

bool conv_known(const struct conv_picker *p, struct conv_entry *e,
                const struct cuda_call *c) {
    if (!p->choices)
        return false;
    const struct library_algorithm name = name_of(p, &e->key, c);
    const struct library_algorithm *known =
        cuda_choices_find(p->choices, CUDA_CUDNN, &name);
    if (!known)
        return false;
    const int taken = take(p, e, c, known->algorithm);
    if (taken != 1)
        dnn_forget(p->dnn, &e->plans);
    if (taken >= 0)
        cuda_choices_count(p->choices, CUDA_CUDNN, taken == 1);
    e->us = known->least_us;
    return taken == 1;
}

int conv_found(const struct conv_picker *p, struct conv_entry *e,
               const struct cuda_call *c) {
    struct library_algorithm found = name_of(p, &e->key, c);
    char plan[sizeof found.algorithm - 16];
    if (e->way >= 0 && !dnn_plan_name(p->dnn, &e->plans, e->way, plan, sizeof plan))
        return 0; /* it has no name to be kept by */
    if (e->way >= 0)
        snprintf(found.algorithm, sizeof found.algorithm, "%s%s %s", cudnn,
                 dtype_name(e->type_to), plan);
    else
        snprintf(found.algorithm, sizeof found.algorithm, "%s",
                 e->way == CONV_OWN ? "own" : "product");
    found.workspace_bytes = e->way >= 0 ? e->plans.of[e->way].workspace_bytes : 0;
    found.least_us = isfinite(e->us) ? e->us : 0;
    return cuda_choices_tell(p->choices, &found, c->err);
}
