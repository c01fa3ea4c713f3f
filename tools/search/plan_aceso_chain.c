/* The chains, and where weft's ops stand in them. */
#include "plan_aceso.h"

#include <stdlib.h>
#include <string.h>

static const struct aceso_op gpt_head[] = {
    {"encoder-embedding", {"wte", "wpe", "drop"}, {"vocab", "vocab"}, false}};
static const struct aceso_op gpt_layer[] = {
    {"enc-1st-layernorm", {"ln1"}, {NULL}, true},
    {"enc-attention-qkv", {"qkv"}, {"heads", "hidden"}, false},
    {"enc-attention-score", {"attn"}, {"heads", "heads"}, false},
    {"enc-attention-softmax", {NULL}, {NULL}, false},
    {"enc-attention-dropout", {NULL}, {NULL}, false},
    {"enc-attention-context", {NULL}, {NULL}, false},
    {"enc-attention-dense", {"proj"}, {"heads", "hidden"}, false},
    {"enc-post-attention-dropout", {"drop1", "add1"}, {NULL}, false},
    {"enc-2nd-layernorm", {"ln2"}, {NULL}, false},
    {"enc-MLP-GEMM-1", {"fc1"}, {"ffn", "hidden"}, false},
    {"enc-MLP-gelu", {"gelu"}, {"ffn", "ffn"}, false},
    {"enc-MLP-GEMM-2", {"fc2"}, {"ffn", "hidden"}, false},
    {"enc-post-MLP-dropout", {"drop2", "add2"}, {NULL}, false}};
static const struct aceso_op gpt_tail[] = {
    {"final-layernorm", {"ln"}, {NULL}, false},
    {"gpt-post-process", {"head", "loss"}, {"vocab", "vocab"}, false}};

enum { N_HEAD = 1, N_LAYER = sizeof gpt_layer / sizeof *gpt_layer, N_TAIL = 2 };

/* Puts one position behind those so far, with the ops of weft from *next on that it stands for. */
static void add(struct aceso_chain *c, const struct model *m, const struct aceso_op *op,
                int block, int *next) {
    size_t skip = block < 0 ? 0 : strlen(m->blocks[block].name) + 1;
    c->ops[c->n] = op;
    c->layer[c->n] = block;
    c->of[c->n] = *next;
    for (int k = 0; k < 4 && op->ops[k]; k++)
        if (*next < m->n_ops && strlen(m->ops[*next].name) > skip &&
            !strcmp(m->ops[*next].name + skip, op->ops[k]))
            c->at[(*next)++] = c->n;
    c->n++;
    c->of[c->n] = *next;
}

struct aceso_chain *aceso_chain_create(const struct model *m, struct err *err) {
    struct aceso_chain *c = mem_alloc(sizeof *c);
    size_t n = N_HEAD + N_TAIL + N_LAYER * (size_t)m->n_blocks + 1;
    int next = 0;
    c->ops = mem_array(n, sizeof *c->ops);
    c->layer = mem_array(n, sizeof *c->layer);
    c->of = mem_array(n, sizeof *c->of);
    c->at = mem_array((size_t)m->n_ops, sizeof *c->at);
    for (int k = 0; k < N_HEAD; k++)
        add(c, m, &gpt_head[k], -1, &next);
    for (int b = 0; b < m->n_blocks; b++)
        for (int k = 0; k < N_LAYER; k++)
            add(c, m, &gpt_layer[k], b, &next);
    for (int k = 0; k < N_TAIL; k++)
        add(c, m, &gpt_tail[k], -1, &next);
    if (next == m->n_ops && !strcmp(m->name, "gpt"))
        return c;
    err_input(err, "model: Aceso's form is known for gpt, not for %s%s%s", m->name,
              next < m->n_ops ? ", which has an op " : "",
              next < m->n_ops ? m->ops[next].name : "");
    aceso_chain_destroy(c);
    return NULL;
}

void aceso_chain_destroy(struct aceso_chain *c) {
    if (!c)
        return;
    free(c->ops);
    free(c->layer);
    free(c->of);
    free(c->at);
    free(c);
}

int aceso_chain_end(const struct aceso_chain *c, int i) {
    while (i + 1 < c->n && !c->ops[i + 1]->ops[0])
        i++;
    return i;
}

bool aceso_drops(const struct aceso_chain *c, const bool *marks, int i, int end) {
    return marks[i] && i + 1 < end && marks[i + 1] && !c->ops[i + 1]->begins;
}
