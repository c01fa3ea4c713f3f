/* Which operands programs find cold: what is kept for the backward pass and what reads it there, not what
 * was just made. */
#include "../../tools/profile/profile-op.h"

#include "common/mem.h"
#include "tap.h"

#include <stdio.h>
#include <string.h>

static struct model *model;

/* Masks of the instructions that a program of so many micro-batches has of this opcode. */
static struct cold walk(int64_t cache) {
    struct cold c = {0};
    struct err err = {0};
    if (cold_of_model(model, DTYPE_f32, 4, cache, &c, &err) < 0)
        printf("Bail out! %s\n", err.msg);
    return c;
}

/* Of a shape that no program has: what all instructions of the opcode find. */
static unsigned mask_of(const struct cold *c, enum opcode code) {
    const union instr_n n = {.v = {1, 1, 1, 1, 1}};
    const struct instr_key key = instr_key(code, DTYPE_f32, &n);
    return cold_operands(c, &key);
}

static int operand(enum opcode code, const char *name) {
    const struct instr_info *info = instr_info(code);
    for (int k = 0; k < info->n_in + info->n_out; k++)
        if (!strcmp(k < info->n_in ? info->in[k].name : info->out[k - info->n_in].name,
                    name))
            return k;
    return -1;
}

static void says(const struct cold *c, enum opcode code, const char *name, bool cold) {
    int k = operand(code, name);
    ok(k >= 0 && (mask_of(c, code) >> k & 1) == cold, "%s of %s: %s", name,
       opcode_name(code), cold ? "cold" : "in the cache");
}

int main(void) {
    struct err err = {0};
    model = model_load("gpt:nano", "layers=6,hidden=64,heads=4,seq=128,vocab=128", &err);
    /* A sample's activations are some 130 KB each and 260 for a feed-forward layer's; 6 layers keep 12 MB. */
    struct cold c = walk(2 << 20);
    says(&c, I_linear, "y", true);
    says(&c, I_layernorm, "y", true);
    says(&c, I_gelu, "x", false);
    says(&c, I_gelu, "y", true);
    says(&c, I_gelu_dx, "x", true);
    says(&c, I_gelu_dx, "dy", false);
    says(&c, I_linear_dw, "x", true);
    says(&c, I_linear_dw, "dy", false);
    ok(mask_of(&c, I_adamw) == mask_of(NULL, I_adamw) && mask_of(NULL, I_adamw),
       "of what no pass has, the table of the opcode says it");
    cold_release(&c);
    c = walk((int64_t)1 << 40);
    ok(!mask_of(&c, I_linear) && !mask_of(&c, I_gelu_dx),
       "in a cache that holds all nothing is cold");
    cold_release(&c);
    c = walk(1);
    says(&c, I_gelu, "x", true);
    cold_release(&c);
    model_destroy(model);
    return done_testing();
}
