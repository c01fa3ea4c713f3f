/* The validator sees what is wrong: programs are compiled, damaged in one place, and must be
 * refused with the message that fits. */
#include "program/program.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

/* A pipeline cut inside a block, so that two tensors cross; ZeRO and a tied table. */
static const char pipeline[] =
    "{\"format\": \"weft-plan/1\", \"model\": \"gpt:nano\","
    " \"set\": \"layers=2,hidden=64,heads=4,seq=64\", \"batch\": 16, \"micro_batch\": 4,"
    " \"stages\": [{\"ops\": [\"wte\", \"wpe\", \"layer.0.ln1\", \"layer.0.qkv\", "
    "               \"layer.0.attn\"], \"mesh\": \"dp:2\", \"layout\": {\"dp\": \"batch\"},"
    "               \"zero\": 1},"
    "              {\"mesh\": \"dp:2 tp:2\", \"zero\": 1,"
    "               \"layout\": {\"dp\": \"batch\", \"tp\": [\"heads\", \"ffn\"]}}]}";

struct fixture {
    struct plan *plan;
    struct program *g;
    struct stage_program *sp; /* the stage that is damaged */
};

static struct fixture compile_text(const char *text, int stage) {
    struct err err = {0};
    struct fixture f = {0};
    json_t *doc = json_parse(text, strlen(text), "plan", &err);
    f.plan = plan_from_json(doc, &err);
    f.g = f.plan ? program_compile(f.plan, &err) : NULL;
    json_decref(doc);
    if (!f.g) {
        printf("Bail out! %s\n", err.msg);
        exit(1);
    }
    f.sp = &f.g->stages[stage];
    return f;
}

static struct fixture compile(int stage) {
    return compile_text(pipeline, stage);
}

static void release(struct fixture *f) {
    program_destroy(f->g);
    plan_destroy(f->plan);
}

/* Refused, with this in the message; releases. */
static void refused(struct fixture *f, const char *damage, const char *want) {
    struct err err = {0};
    int rc = program_validate(f->g, &err);
    ok(rc < 0 && strstr(err.msg, want), "%s: %s", damage, rc < 0 ? err.msg : "not seen");
    release(f);
}

/* The n-th instruction of this opcode in a segment. */
static struct instr *find(const struct stage_program *sp, enum segment segment,
                          enum opcode code, int n) {
    for (int i = sp->seg[segment]; i < sp->seg[segment + 1]; i++)
        if (sp->instrs[i].code == code && n-- == 0)
            return &sp->instrs[i];
    printf("Bail out! no %s\n", opcode_name(code));
    exit(1);
}

/* Puts nothing in its place. */
static void delete (struct instr *ins) {
    *ins = instr_init(I_fill);
    ins->code = I_sum_squares;
}

static void swap(struct instr *a, struct instr *b) {
    struct instr t = *a;
    *a = *b;
    *b = t;
}

/* ---- memory ------------------------------------------------------------------------------ */

static void test_permanent(void) {
    struct fixture f = compile(0);
    f.sp->buffers[f.sp->params[1].buffer].offset =
        f.sp->buffers[f.sp->params[0].buffer].offset;
    refused(&f, "two parameters on one place", "a parameter at byte");
    f = compile(0);
    f.sp->buffers[f.sp->states[0].buffer].offset =
        f.sp->buffers[f.sp->grads[0].buffer].offset;
    refused(&f, "optimizer state on a gradient", "overlaps what is at byte");
    f = compile(0);
    f.sp->buffers[f.sp->grads[0].buffer].offset = f.sp->arena_bytes;
    refused(&f, "a gradient behind the arena", "outside the arena");
    f = compile(1);
    for (int i = 0; i < f.g->n_transfers; i++)
        if (f.g->transfers[i].from == 1)
            f.g->transfers[i].send_offset = f.sp->buffers[f.sp->states[1].buffer].offset;
    refused(&f, "staging on optimizer state", "staging at byte");
}

static void test_temporaries(void) {
    struct fixture f = compile(1);
    struct instr *ins = find(f.sp, SEG_FORWARD, I_layernorm, 0);
    f.sp->buffers[ins->out.layernorm.y].offset =
        f.sp->buffers[f.sp->params[0].buffer].offset;
    refused(&f, "a norm's result on a parameter", "overwrites an operand");
    f = compile(1);
    ins = find(f.sp, SEG_FORWARD, I_gelu, 0);
    f.sp->buffers[ins->out.gelu.y].offset = f.sp->buffers[f.sp->params[0].buffer].offset;
    refused(&f, "a gelu's result on a parameter", "is not written or was overwritten");
    f = compile(1);
    ins = find(f.sp, SEG_BACKWARD, I_linear_dx, 0);
    f.sp->buffers[ins->out.linear_dx.dx].offset =
        f.sp->buffers[f.sp->states[f.sp->n_states - 1].buffer].offset;
    refused(&f, "a gradient of the data on optimizer state", "overwritten");
    f = compile(1);
    ins = find(f.sp, SEG_FORWARD, I_linear, 0);
    f.sp->buffers[ins->out.linear.y].elems /= 2;
    refused(&f, "a buffer too small for its result", "y of micro-batch 0 is larger");
    f = compile(0);
    f.sp->slots[POOL_FORWARD_BACKWARD].n = 1;
    refused(&f, "one slot for two micro-batches in flight",
            "is not written or was overwritten");
}

static void test_gradients(void) {
    struct fixture f = compile(0);
    struct instr *scatter = find(f.sp, SEG_REDUCE, I_reduce_scatter, 0),
                 *squares = find(f.sp, SEG_REDUCE, I_sum_squares, 0);
    squares->in.sum_squares.g = scatter->in.reduce_scatter.x;
    refused(&f, "a gradient read after its reduce-scatter spoilt it",
            "sum_squares: g of micro-batch 0 is not written");
    f = compile(0);
    delete (&f.sp->instrs[f.sp->seg[SEG_COUNT] - 1]);
    refused(&f, "gradients not set to zero at the end",
            "embedding_dw: dtable of micro-batch 0 is not written");
    f = compile(1);
    struct instr *dw = find(f.sp, SEG_BACKWARD, I_linear_dw, 0);
    ok(dw->fresh, "a layer begins its gradients");
    dw->fresh = false;
    refused(&f, "gradients added to what the step before left",
            "linear_dw: dw of micro-batch 0 is not written");
}

/* The update of stages[1] reduces gradients that the last backward pass has started to sum. */
static struct fixture compile_overlapped(void) {
    struct fixture f = compile(1);
    struct err err = {0};
    program_destroy(f.g);
    f.plan->overlap = true;
    for (int s = 0; s < 2; s++)
        memset(f.plan->stages[s].zero, ZERO_NONE, (size_t)f.plan->stages[s].n_ops);
    f.g = program_compile(f.plan, &err);
    f.sp = &f.g->stages[1];
    if (program_validate(f.g, &err) < 0)
        ok(0, "with overlap: %s", err.msg);
    return f;
}

static void test_overlap(void) {
    struct fixture f = compile_overlapped();
    struct instr *wait = find(f.sp, SEG_REDUCE, I_wait, 0);
    delete (wait);
    refused(&f, "a reduction not waited for", "is not written or was overwritten");
    f = compile_overlapped();
    wait = find(f.sp, SEG_REDUCE, I_wait, 0);
    struct instr *squares = find(f.sp, SEG_REDUCE, I_sum_squares, 0);
    int64_t elems = squares->n.sum_squares.elems;
    *wait = *squares;
    wait->n.sum_squares.elems = elems;
    refused(&f, "a gradient read while its reduction is under way",
            "sum_squares: g of micro-batch 0 is not written");
    f = compile_overlapped();
    struct instr *start = find(f.sp, SEG_LAST_BACKWARD, I_all_reduce, 0);
    while (start->work < 0)
        start++;
    swap(start, &f.sp->instrs[f.sp->seg[SEG_LAST_BACKWARD]]);
    refused(&f, "a reduction started before its gradients are there", "stages[1]: ");
    f = compile_overlapped();
    start = find(f.sp, SEG_LAST_BACKWARD, I_all_reduce, 0);
    while (start->work < 0)
        start++;
    delete (start);
    refused(&f, "a reduction not started", "was not started");
}

/* Every instruction in turn: without it a read fails, or something is not whole at the end. */
static void test_deletions(int stage) {
    int n = 0, unseen = 0;
    for (int i = 0;; i++) {
        struct fixture f = compile(stage);
        if (i == f.sp->n_instrs) {
            release(&f);
            break;
        }
        struct instr *ins = &f.sp->instrs[i];
        const struct instr_info *info = instr_info(ins->code);
        /* What adds to gradients, parameters or the norm, or works in place, leaves no trace. */
        bool writes = info->n_out && !(info->out[0].flags & OPERAND_ADD) &&
                      ins->out.v[0] >= 0 &&
                      f.sp->buffers[ins->out.v[0]].mem != MEM_parameters;
        for (int k = 0; k < info->n_in; k++)
            writes &= ins->out.v[0] != ins->in.v[k];
        if (writes) {
            char name[64];
            snprintf(name, sizeof name, "%s", opcode_name(ins->code));
            delete (ins);
            n++;
            if (program_validate(f.g, NULL) == 0) {
                unseen++;
                printf("# not seen: instruction %d, %s\n", i, name);
            }
        }
        release(&f);
    }
    ok(n > 10 && !unseen, "%d instructions of stages[%d] left out, %d not noticed", n,
       stage, unseen);
}

/* ---- messages ---------------------------------------------------------------------------- */

static void test_messages(void) {
    struct fixture f = compile(1);
    swap(find(f.sp, SEG_FORWARD, I_recv, 0), find(f.sp, SEG_FORWARD, I_recv, 1));
    refused(&f, "two receives exchanged", "which takes them in the other order");
    f = compile(0);
    swap(find(f.sp, SEG_BACKWARD, I_recv, 0), find(f.sp, SEG_BACKWARD, I_recv, 1));
    refused(&f, "two gradients exchanged", "sends the gradient of");
    f = compile(0);
    delete (find(f.sp, SEG_FORWARD, I_send, 0));
    refused(&f, "a send left out", "deadlock: stages[");
    f = compile(1);
    struct instr *recv = find(f.sp, SEG_FORWARD, I_recv, 0);
    recv->code = I_input; /* writes its result from elsewhere */
    refused(&f, "a receive left out", "which takes them in the other order");
    f = compile(0);
    f.g->transfers[find(f.sp, SEG_FORWARD, I_send, 0)->transfer].depth = 0;
    refused(&f, "no room for a message", "deadlock: stages[");
    f = compile(1);
    delete (find(f.sp, SEG_NORM, I_norm, 0));
    refused(&f, "a stage that does not come to the norm", "waits at norm");
    f = compile(1);
    struct transfer *t = &f.g->transfers[find(f.sp, SEG_FORWARD, I_recv, 0)->transfer];
    f.g->plan->stages[t->from].mesh.size[0] = 3;
    refused(&f, "shards that do not make up the box", "its box has");
    f = compile(0);
    f.g->transfers[0].from_place.at[0] = PLACE_PARTIAL;
    refused(&f, "a sum that is sent in parts", "is sent before it is summed");
}

/* ---- chunks and weight gradients ----------------------------------------------------------- */

#define CHUNKS(schedule, a, b)                                                             \
    "{\"format\": \"weft-plan/1\", \"model\": \"gpt:nano\","                               \
    " \"set\": \"layers=2,hidden=64,heads=4,seq=64\", \"batch\": 32, \"micro_batch\": 4,"  \
    " \"schedule\": \"" schedule "\", \"stages\": ["                                       \
    "  {\"ops\": [\"wte\", \"wpe\"], \"mesh\": \"dp:2\", \"layout\": {\"dp\": \"batch\"}," \
    "   \"zero\": 1" a "}, {\"ops\": \"layer.0\"" b "},"                                   \
    "  {\"ops\": \"layer.1\", \"mesh\": \"dp:2\", \"layout\": {\"dp\": \"batch\"},"        \
    "   \"zero\": 1" a "}, {\"ops\": [\"ln\", \"head\", \"loss\"]" b "}]}"
#define SHARED(schedule) CHUNKS(schedule, ", \"group\": 0", ", \"group\": 1")

static struct buffer *first_buffer(struct stage_program *sp, enum memory_class mem,
                                   unsigned part) {
    for (int i = 0; i < sp->n_buffers; i++)
        if (sp->buffers[i].mem == mem && sp->buffers[i].part == part)
            return &sp->buffers[i];
    printf("Bail out! no buffer of class %s\n", memory_class_name(mem));
    exit(1);
}

static void test_chunks(void) {
    struct fixture f = compile_text(SHARED("interleaved"), 2);
    struct stage_program *other = &f.g->stages[0];
    first_buffer(f.sp, MEM_parameters, 0)->offset =
        first_buffer(other, MEM_parameters, 0)->offset;
    refused(&f, "a parameter on that of another chunk", "overlaps what is at byte");
    f = compile_text(SHARED("interleaved"), 2);
    other = &f.g->stages[0];
    first_buffer(f.sp, MEM_temporaries, 1)->offset =
        first_buffer(other, MEM_temporaries, 1)->offset;
    refused(&f, "a finished gradient on that of another chunk",
            "is not written or was overwritten");
    f = compile_text(SHARED("interleaved"), 2);
    f.sp->slots[POOL_FORWARD_BACKWARD].n--;
    refused(&f, "a slot too few for a chunk", "is not written or was overwritten");
    f = compile_text(SHARED("gpipe"), 1);
    for (int t = 0; t < f.g->n_transfers; t++)
        f.g->transfers[t].depth = 1;
    refused(&f, "no room for what chunks take later", "deadlock: stages[");
}

static void test_weights(void) {
    static const char *const between[] = {"forward and weight gradients",
                                          "backward and weight gradients"};
    for (int pool = POOL_FORWARD_WEIGHTS; pool <= POOL_BACKWARD_WEIGHTS; pool++) {
        struct fixture f = compile_text(CHUNKS("zero-bubble", "", ""), 2);
        f.sp->slots[pool].n--;
        char name[80];
        snprintf(name, sizeof name, "a slot too few between %s",
                 between[pool - POOL_FORWARD_WEIGHTS]);
        refused(&f, name, "is not written or was overwritten");
    }
    struct fixture f = compile_text(CHUNKS("zero-bubble", "", ""), 1);
    swap(find(f.sp, SEG_WEIGHTS, I_linear_dw, 0), find(f.sp, SEG_BACKWARD, I_linear_dx, 0));
    refused(&f, "a weight's gradient before that of its input", "is not written");
}

int main(void) {
    struct fixture f = compile(0);
    struct err err = {0};
    ok(program_validate(f.g, &err) == 0, "the program as it is compiled: no fault %s",
       err.msg);
    release(&f);
    test_permanent();
    test_temporaries();
    test_gradients();
    test_overlap();
    test_deletions(0);
    test_deletions(1);
    test_messages();
    test_chunks();
    test_weights();
    return done_testing();
}
