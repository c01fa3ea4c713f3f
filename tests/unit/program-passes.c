/* Forward and backward passes: what is kept, what is made again, whose gradient is wanted. */
#include "program.h"

static int count(const struct stage_program *sp, enum segment segment, enum opcode code) {
    int n = 0;
    FOR_SEGMENT(sp, segment, i)
    n += i->code == code;
    return n;
}

/* Is there an instruction with this opcode for this op? */
static bool has(const struct compiled *c, enum segment segment, enum opcode code,
                const char *op) {
    FOR_SEGMENT(&c->g->stages[0], segment, i)
    if (i->code == code && i->op >= 0 && !strcmp(c->plan->model->ops[i->op].name, op))
        return true;
    return false;
}

#define PLAN(recompute)                                                                    \
    "{'format': 'weft-plan/1', 'model': 'gpt:nano', 'set': 'layers=2', 'batch': 4,"        \
    " 'stages': [{'recompute': [" recompute "]}]}"

/* ---- recompute ------------------------------------------------------------------------------- */

static int64_t kept_bytes(const char *text) {
    struct compiled c = compile(text);
    int64_t bytes = c.g->stages[0].slots[POOL_FORWARD_BACKWARD].bytes;
    compiled_release(&c);
    return bytes;
}

static void test_recompute(void) {
    struct compiled none = compile(PLAN(""));
    const struct stage_program *sp = &none.g->stages[0];
    ok(count(sp, SEG_BACKWARD, I_gelu) == 0 && count(sp, SEG_BACKWARD, I_linear) == 0 &&
           count(sp, SEG_BACKWARD, I_layernorm) == 0 &&
           count(sp, SEG_BACKWARD, I_attention) == 0,
       "nothing is made again unless the plan says so");
    compiled_release(&none);

    struct compiled one = compile(PLAN("'layer.*.gelu'"));
    sp = &one.g->stages[0];
    ok(count(sp, SEG_FORWARD, I_gelu) == 2 && count(sp, SEG_BACKWARD, I_gelu) == 2 &&
           has(&one, SEG_BACKWARD, I_gelu, "layer.1.gelu") &&
           count(sp, SEG_BACKWARD, I_linear) == 0,
       "gelu is made again from what its operand's op gave");
    compiled_release(&one);
    /* [4, 256, 1536] floats, of two blocks */
    ok(kept_bytes(PLAN("")) - kept_bytes(PLAN("'layer.*.gelu'")) == 2 * 4 * 4 * 256 * 1536,
       "its result is not kept");

    struct compiled chain = compile(PLAN("'layer.0.fc1', 'layer.0.gelu'"));
    ok(has(&chain, SEG_BACKWARD, I_linear, "layer.0.fc1") &&
           has(&chain, SEG_BACKWARD, I_gelu, "layer.0.gelu") &&
           !has(&chain, SEG_BACKWARD, I_linear, "layer.1.fc1"),
       "what the backward pass needs is made again as far back as it must");
    compiled_release(&chain);
}

/* The statistics of a norm and the normalizers of attention are made again with it. */
static void test_recompute_statistics(void) {
    struct compiled c = compile(PLAN("'layer.0.ln1', 'layer.0.attn'"));
    ok(has(&c, SEG_BACKWARD, I_layernorm, "layer.0.ln1") &&
           has(&c, SEG_BACKWARD, I_attention, "layer.0.attn"),
       "a norm and an attention are made again");
    FOR_SEGMENT(&c.g->stages[0], SEG_BACKWARD, i) {
        const struct buffer *b = c.g->stages[0].buffers;
        const char *op = i->op >= 0 ? c.plan->model->ops[i->op].name : "";
        if (i->code == I_layernorm_bwd && !strncmp(op, "layer", 5))
            ok((b[i->in.layernorm_bwd.stat].mem == MEM_temporaries) ==
                   !strcmp(op, "layer.0.ln1"),
               "%s: its statistics are %s", op,
               memory_class_name(b[i->in.layernorm_bwd.stat].mem));
        if (i->code == I_attention_bwd)
            ok((b[i->in.attention_bwd.lse].mem == MEM_temporaries) ==
                   !strcmp(op, "layer.0.attn"),
               "%s: its normalizers are %s", op,
               memory_class_name(b[i->in.attention_bwd.lse].mem));
    }
    compiled_release(&c);
}

/* ---- gradients -------------------------------------------------------------------------------- */

/* Data has no gradient. A product leaves dx out; a norm cannot, and writes it into scratch. */
static void test_data_operands(void) {
    struct compiled c = compile("{'format': 'weft-plan/1', 'model': 'mlp', 'batch': 4,"
                                " 'stages': [{}]}");
    ok(has(&c, SEG_BACKWARD, I_linear_dw, "fc_in") &&
           !has(&c, SEG_BACKWARD, I_linear_dx, "fc_in") &&
           has(&c, SEG_BACKWARD, I_linear_dx, "fc_out"),
       "a product of the data has a gradient of its weight alone");
    compiled_release(&c);
    for (int split = 0; split < 2; split++) {
        c = compile(
            split ? "{'format': 'weft-plan/1', 'model': './tests/models/patches.json',"
                    " 'batch': 4, 'stages': [{'mesh': 't:2', 'layout': {'t': 'columns'}}]}"
                  : "{'format': 'weft-plan/1', 'model': './tests/models/patches.json',"
                    " 'batch': 4, 'stages': [{}]}");
        FOR_SEGMENT(&c.g->stages[0], SEG_BACKWARD, i) {
            if (i->code != I_layernorm_bwd ||
                strcmp(c.plan->model->ops[i->op].name, "norm"))
                continue;
            int dx = i->out.layernorm_bwd.dx;
            ok(dx >= 0 && i->out.v[1] >= 0 && i->out.v[2] >= 0,
               "a norm on the data%s: its gradients have buffers", split ? ", split" : "");
        }
        compiled_release(&c);
    }
}

/* Each loss begins a backward pass; what two of them reach is summed. */
static void test_two_losses(void) {
    struct compiled c = compile("{'format': 'weft-plan/1',"
                                " 'model': './tests/models/encdec.json', 'batch': 4,"
                                " 'stages': [{}]}");
    const struct stage_program *sp = &c.g->stages[0];
    ok(count(sp, SEG_FORWARD, I_cross_entropy) == 2 &&
           count(sp, SEG_BACKWARD, I_cross_entropy_dx) == 2,
       "two losses, two gradients of logits");
    /* `memory` is read by head_in and by two blocks, the stream of each block twice */
    ok(count(sp, SEG_BACKWARD, I_add) == 2 + 2 + 2, "%d sums of gradients",
       count(sp, SEG_BACKWARD, I_add));
    ok(program_loss_terms(c.g, op_find(c.plan->model, "loss")) == 48,
       "the mean is over %lld targets",
       (long long)program_loss_terms(c.g, op_find(c.plan->model, "loss")));
    compiled_release(&c);
}

/* Sums over a split dim are reduced once, however many ops read them. */
static void test_reduced_once(void) {
    struct compiled c = compile(
        "{'format': 'weft-plan/1', 'model': 'gpt:nano', 'set': 'layers=1',"
        " 'batch': 4, 'stages': [{'mesh': 'tp:2', 'layout': {'tp': ['heads', 'ffn']}}]}");
    const struct stage_program *sp = &c.g->stages[0];
    ok(count(sp, SEG_FORWARD, I_all_reduce) == 2 &&
           count(sp, SEG_BACKWARD, I_all_reduce) == 2,
       "tensor parallel: %d reductions forward and %d backward in one block",
       count(sp, SEG_FORWARD, I_all_reduce), count(sp, SEG_BACKWARD, I_all_reduce));
    compiled_release(&c);
}

/* A reshape moves nothing: its result is its operand's buffer, split alike. */
static void test_reshape(void) {
    struct compiled c = compile(
        "{'format': 'weft-plan/1', 'model': './tests/models/patches.json', 'batch': 4,"
        " 'stages': [{'mesh': 't:2', 'layout': {'t': ['hidden', 'groups']}}]}");
    const struct stage_program *sp = &c.g->stages[0];
    int found = 0, norms = 0;
    for (int i = 0; i < sp->n_instrs; i++) {
        int op = sp->instrs[i].op;
        if (op >= 0 && !strncmp(c.plan->model->ops[op].name, "layer", 5)) {
            found += c.plan->model->ops[op].kind == OP_reshape;
            found += opcode_key(sp->instrs[i].code) == KEY_COMM &&
                     c.plan->model->ops[op].kind != OP_rmsnorm;
            norms += sp->instrs[i].code == I_layernorm;
        }
    }
    ok(!found && norms == 2, "where both sides are split alike, nothing is sent or copied");
    compiled_release(&c);
}

int main(void) {
    test_recompute();
    test_recompute_statistics();
    test_data_operands();
    test_two_losses();
    test_reduced_once();
    test_reshape();
    return done_testing();
}
