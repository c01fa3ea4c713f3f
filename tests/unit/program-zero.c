/* ZeRO: what a rank holds of parameters, gradients and the optimizer's state, and what is gathered and
 * reduced for it. */
#include "program-random.h"

enum { DEVICES = 8 };

/* head, stage: what else the plan and its stage say. */
static struct compiled compile_gpt(const char *size, const char *head, int zero,
                                   const char *stage) {
    char text[512];
    snprintf(text, sizeof text,
             "{'format': 'weft-plan/1', 'model': 'gpt:%s', 'batch': %d, %s"
             " 'stages': [{'mesh': 'dp:%d', 'layout': {'dp': 'batch'}, 'zero': %d%s}]}",
             size, DEVICES, head, DEVICES, zero, stage);
    return compile(text);
}

static int64_t parameters(const struct model *m) {
    int64_t n = 0;
    for (int p = 0; p < m->n_params; p++) {
        struct extents x = model_extents(m, &m->params[p].shape, 1);
        n += extents_count(&x);
    }
    return n;
}

/* In fp32 a parameter takes 4 bytes, its gradient 4, the moments of Adam 8: in the terms of the paper
 * 8 + K with K = 8, of which level 1 divides K by the devices, 2 the gradient too, 3 all. All sizes of
 * this model divide, so the formula holds to the byte. */
static void test_memory(void) {
    for (int zero = ZERO_NONE; zero <= ZERO_PARAMETERS; zero++) {
        struct compiled c = compile_gpt("1.3B", "", zero, "");
        const struct stage_program *sp = &c.g->stages[0];
        int64_t n = parameters(c.plan->model);
        int64_t want[] = {4 * n / (zero >= ZERO_PARAMETERS ? DEVICES : 1),
                          4 * n / (zero >= ZERO_GRADIENTS ? DEVICES : 1),
                          8 * n / (zero >= ZERO_OPTIMIZER ? DEVICES : 1)};
        for (enum memory_class k = MEM_parameters; k <= MEM_optimizer; k++)
            ok(sp->own[k] == want[k], "gpt:1.3B on %d devices, zero %d: %lld bytes of %s",
               DEVICES, zero, (long long)sp->own[k], memory_class_name(k));
        compiled_release(&c);
    }
}

static int count(const struct compiled *c, enum segment segment, enum opcode code,
                 const char *param) {
    int n = 0;
    FOR_SEGMENT(&c->g->stages[0], segment, i)
    n += i->code == code && i->param >= 0 &&
         !strncmp(c->plan->model->params[i->param].name, param, strlen(param));
    return n;
}

/* Made again in the backward pass, an op and its gradient share what is gathered. */
static void test_gathers(void) {
    struct compiled c = compile_gpt("nano", "", 3, ", 'recompute': 'all'");
    const char *weight = "layer.0.fc1.weight";
    ok(count(&c, SEG_FORWARD, I_all_gather, weight) == 1 &&
           count(&c, SEG_BACKWARD, I_all_gather, weight) == 1 &&
           count(&c, SEG_UPDATE, I_all_gather, weight) == 0,
       "a parameter is gathered once in each pass, and not behind the update");
    ok(count(&c, SEG_BACKWARD, I_reduce_scatter, weight) == 1 &&
           count(&c, SEG_REDUCE, I_reduce_scatter, weight) == 0,
       "its gradient is reduced in the backward pass, not at the step's end");
    ok(count(&c, SEG_BACKWARD, I_reduce_scatter, "wte.weight") == 2,
       "a tied gradient is reduced behind each op that adds to it");
    compiled_release(&c);
}

/* ---- overlap --------------------------------------------------------------------------------- */

static const char *name_of(const struct compiled *c, const struct instr *i) {
    return i->op < 0 ? "" : c->plan->model->ops[i->op].name;
}

/* The op that computes next when a collective about the parameter starts (or ends: I_wait). */
static const char *next_op(const struct compiled *c, enum segment segment, enum opcode code,
                           enum opcode of, const char *param) {
    bool found = false;
    int work = -1;
    FOR_SEGMENT(&c->g->stages[0], segment, i) {
        bool about = i->param >= 0 && !strcmp(c->plan->model->params[i->param].name, param);
        if (about && i->code == of)
            work = i->work;
        found |= about && i->code == code && i->work == work && work >= 0;
        if (found && i->param < 0 && i->code != I_add)
            return name_of(c, i);
    }
    return "none";
}

static void happens(const char *got, const char *want, const char *what) {
    ok(!strcmp(got, want), "%s: %s (%s)", what, want, got);
}

/* One block ahead, one block later: about one block is under way. */
static void test_overlap(void) {
    struct compiled c = compile_gpt("nano", "'overlap': true,", 3, "");
    const char *weight = "layer.3.fc1.weight";
    happens(next_op(&c, SEG_FORWARD, I_all_gather, I_all_gather, weight), "layer.2.fc1",
            "a parameter is gathered for the forward pass from this op on");
    happens(next_op(&c, SEG_FORWARD, I_wait, I_all_gather, weight), "layer.3.fc1",
            "and waited for before its own");
    happens(next_op(&c, SEG_BACKWARD, I_all_gather, I_all_gather, weight), "layer.4.fc1",
            "for the backward pass from this op on");
    happens(next_op(&c, SEG_BACKWARD, I_reduce_scatter, I_reduce_scatter, weight),
            "layer.3.ln2", "its gradient is reduced from this op on");
    happens(next_op(&c, SEG_BACKWARD, I_wait, I_reduce_scatter, weight), "layer.2.ln2",
            "and added before this one");
    compiled_release(&c);
}

/* What is gathered is for one pass, whatever is recomputed and whatever runs later. */
static void test_not_kept(void) {
    int n = 0, kept = 0;
    for (uint64_t k = 0; k < 300; k++) {
        struct compiled c = random_program(9, k);
        for (int s = 0; c.g && s < c.g->n_stages; s++) {
            const struct stage_program *sp = &c.g->stages[s];
            for (int i = 0; i < sp->seg[SEG_LAST_BACKWARD]; i++) {
                const struct instr *ins = &sp->instrs[i];
                if (ins->code != I_all_gather || ins->param < 0)
                    continue;
                n++;
                kept += sp->buffers[ins->out.all_gather.y].mem == MEM_activations;
            }
        }
        compiled_release(&c);
    }
    ok(n > 1000 && !kept, "none of %d gathered parameters is kept (%d are)", n, kept);
}

/* Patterns of ops say it for their parameters; the first op of a tied one says it for all. */
static void test_exceptions(void) {
    struct compiled c =
        compile_gpt("nano", "", 1, ", 'except': [{'ops': ['wte', 'layer.1'], 'zero': 3}]");
    ok(count(&c, SEG_FORWARD, I_all_gather, "wte.weight") == 2 &&
           count(&c, SEG_FORWARD, I_all_gather, "layer.1.fc1.weight") == 1 &&
           count(&c, SEG_FORWARD, I_all_gather, "layer.0.fc1.weight") == 0 &&
           count(&c, SEG_UPDATE, I_all_gather, "layer.0.fc1.weight") == 1,
       "an exception holds for the parameters of its ops alone");
    compiled_release(&c);
}

/* Shares of gradients live from their reduction to the update, in the place of activations. */
static void test_end_of_step(void) {
    struct compiled c = compile_gpt("1.3B", "", ZERO_OPTIMIZER, "");
    const struct stage_program *sp = &c.g->stages[0];
    const int64_t shares = 4 * parameters(c.plan->model) / DEVICES;
    const int64_t kept =
        sp->own[MEM_parameters] + sp->own[MEM_gradients] + sp->own[MEM_optimizer];
    int64_t first = sp->arena_bytes;
    for (int b = 0; b < sp->n_buffers; b++)
        if (sp->buffers[b].mem == MEM_temporaries && sp->buffers[b].part &&
            sp->buffers[b].offset < first)
            first = sp->buffers[b].offset;
    ok(sp->temporaries[1] >= shares && sp->temporaries[1] > sp->temporaries[0],
       "at a step's end %lld bytes are needed, more than before it",
       (long long)sp->temporaries[1]);
    ok(first == kept && sp->own[MEM_temporaries] == sp->temporaries[0],
       "but they lie where the activations were");
    compiled_release(&c);

    c = compile(
        "{'format': 'weft-plan/1', 'model': 'mlp:mnist', 'batch': 2, 'dtype': 'bf16',"
        " 'set': 'pixels=16,hidden=1024,inner=1024,classes=2',"
        " 'stages': [{'mesh': 'dp:2', 'layout': {'dp': 'batch'}, 'zero': 1}]}");
    sp = &c.g->stages[0];
    ok(sp->temporaries[1] > sp->own[MEM_activations] + sp->temporaries[0] &&
           sp->own[MEM_temporaries] == sp->temporaries[1] - sp->own[MEM_activations],
       "and where they need more than these, only what is beyond counts");
    compiled_release(&c);
}

int main(void) {
    test_memory();
    test_end_of_step();
    test_gathers();
    test_exceptions();
    test_overlap();
    test_not_kept();
    return done_testing();
}
