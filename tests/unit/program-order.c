/* Messages between stages: both ends go through them in one order, wherever the model is cut, so
 * that a transport without tags (NCCL) matches them. And parameters that two stages share. */
#include "program.h"

/* ---- order ---------------------------------------------------------------------------------- */

/* Transfers that one stage sends to (or takes from) another in a segment, in its order. */
static int messages(const struct program *g, enum segment segment, int stage, int other,
                    bool sends, int *out) {
    int n = 0;
    FOR_SEGMENT(&g->stages[stage], segment, i) {
        if (i->code != (sends ? I_send : I_recv))
            continue;
        const struct transfer *t = &g->transfers[i->transfer];
        if ((sends ? t->to : t->from) == other)
            out[n++] = i->transfer;
    }
    return n;
}

/* Pairs of stages and segments whose two ends do not agree. */
static int count_disorder(const struct program *g, int *messages_seen) {
    int *sent = mem_array((size_t)g->n_transfers, sizeof *sent), found = 0;
    int *taken = mem_array((size_t)g->n_transfers, sizeof *taken);
    for (int s = 0; s < SEG_COUNT; s++)
        for (int a = 0; a < g->n_stages; a++)
            for (int b = 0; b < g->n_stages; b++) {
                int n = messages(g, (enum segment)s, a, b, true, sent);
                int k = messages(g, (enum segment)s, b, a, false, taken);
                found += n != k || memcmp(sent, taken, sizeof *sent * (size_t)n) != 0;
                *messages_seen += n;
            }
    free(sent);
    free(taken);
    return found;
}

/* What is sent from stage 0 to 1, or taken there: "wpe attn". */
static void format_messages(const struct program *g, enum segment segment, int from, int to,
                            bool sends, char *buf, size_t n) {
    int list[64],
        count = messages(g, segment, sends ? from : to, sends ? to : from, sends, list);
    buf[0] = '\0';
    for (int k = 0; k < count; k++) {
        const struct model *m = g->plan->model;
        const struct transfer *t = &g->transfers[list[k]];
        snprintf(buf + strlen(buf), n - strlen(buf), "%s%s", k ? " " : "",
                 t->tensor >= 0 ? m->ops[m->tensors[t->tensor].producer].name
                                : m->params[t->param].name);
    }
}

static void messages_are(const struct program *g, enum segment segment, int from, int to,
                         const char *want) {
    char sent[256], taken[256];
    format_messages(g, segment, from, to, true, sent, sizeof sent);
    format_messages(g, segment, from, to, false, taken, sizeof taken);
    ok(!strcmp(sent, want) && !strcmp(taken, want), "%s, %d to %d: sends %s, receives %s",
       segment_name(segment), from, to, sent, taken);
}

/* The second stage needs attention's result first, but the stream was finished before it. */
static void test_cut_inside_block(void) {
    struct compiled c = compile(
        "{'format': 'weft-plan/1', 'model': 'gpt:nano', 'set': 'layers=2', 'batch': 4, 'stages': ["
        " {'ops': ['wte', 'wpe', 'layer.0.ln1', 'layer.0.qkv', 'layer.0.attn']},"
        " {'ops': ['layer.0.proj', 'layer.0.add1', 'layer.0.ln2', 'layer.0.fc1',"
        "          'layer.0.gelu', 'layer.0.fc2', 'layer.0.add2', 'layer.1', 'ln', 'head',"
        "          'loss']}]}");
    messages_are(c.g, SEG_FORWARD, 0, 1, "wpe layer.0.attn");
    messages_are(c.g, SEG_LAST_BACKWARD, 1, 0, "wpe layer.0.attn");
    compiled_release(&c);
}

/* Cuts the model's ops after op a and after op b. */
static void test_cuts(const char *ref, const char *set, int recompute) {
    struct err err = {0};
    struct model *m = model_load(ref, set, &err);
    int found = 0, cuts = 0, seen = 0;
    for (int a = 1; m && a < m->n_ops - 1; a++)
        for (int b = a + 1; b < m->n_ops; b++) {
            int bounds[4] = {0, a, b, m->n_ops};
            struct plan *p = plan_create(m, 3, bounds);
            p->batch = 8;
            p->micro_batch = 2;
            for (int s = 0; s < 3; s++)
                for (int i = 0; i < p->stages[s].n_ops; i++)
                    p->stages[s].recompute[i] =
                        (recompute == 2 || (recompute == 1 && (i + a + b) % 3 == 0)) &&
                        !op_is(&m->ops[p->stages[s].ops[i]], KIND_LOSSES);
            struct program *g = plan_check(p, &err) == 0 ? program_compile(p, &err) : NULL;
            if (!g) {
                printf("# cut at %d, %d: %s\n", a, b, err.msg);
                found++;
            }
            for (int wrong = g ? count_disorder(g, &seen) : 0; wrong; wrong = 0) {
                printf("# cut before %s, %s: %d\n", m->ops[a].name, m->ops[b].name, wrong);
                found++;
            }
            cuts++;
            program_destroy(g);
            plan_destroy(p);
        }
    static const char *const how[] = {"nothing", "some", "all"};
    ok(m && cuts > 50 && !found, "%s, recompute %s: %d messages of %d cuts in one order%s",
       ref, how[recompute], seen, cuts, err.msg);
    model_destroy(m);
}

/* ---- parameters of two stages --------------------------------------------------------------- */

/* Where an instruction about this parameter stands, from instruction `from` on, or -1. */
static int position(const struct stage_program *sp, int from, enum opcode code,
                    const char *param, const struct model *m) {
    for (int i = from; i < sp->n_instrs; i++)
        if (sp->instrs[i].code == code && sp->instrs[i].param >= 0 &&
            !strcmp(m->params[sp->instrs[i].param].name, param))
            return i;
    return -1;
}

static int count_homes(const struct program *g, const char *param) {
    int n = 0;
    for (int s = 0; s < g->n_stages; s++)
        for (int i = 0; i < g->stages[s].n_params; i++) {
            const struct param_instance *p = &g->stages[s].params[i];
            n += p->home && !strcmp(g->plan->model->params[p->param].name, param);
        }
    return n;
}

/* The copy's gradient goes home before the optimizer, and the new value comes back after it. */
static void test_tied(void) {
    struct compiled c = compile(
        "{'format': 'weft-plan/1', 'model': 'gpt:nano', 'set': 'layers=2', 'batch': 4, 'stages': ["
        " {'mesh': 'tp:2', 'layout': {'tp': ['vocab', 'heads']}, 'ops': ['wte', 'wpe', 'layer.0']},"
        " {'ops': ['layer.1', 'ln', 'head', 'loss']}]}");
    const struct model *m = c.plan->model;
    const struct stage_program *home = &c.g->stages[0], *copy = &c.g->stages[1];
    static const char wte[] = "wte.weight";
    int update = home->seg[SEG_REDUCE], away = copy->seg[SEG_REDUCE];
    int gradient = position(home, update, I_recv, wte, m);
    int optimized = position(home, update, I_adamw, wte, m);
    int published = position(home, update, I_send, wte, m);
    ok(update <= gradient && gradient < optimized && optimized < published,
       "home: gradient %d, optimizer %d, new value %d", gradient, optimized, published);
    int sent = position(copy, away, I_send, wte, m);
    int taken = position(copy, away, I_recv, wte, m);
    ok(away <= sent && sent < taken && position(copy, 0, I_adamw, wte, m) < 0,
       "copy: gradient %d, new value %d, no optimizer", sent, taken);
    ok(count_homes(c.g, wte) == 1, "a parameter is at home once");
    messages_are(c.g, SEG_REDUCE, 1, 0, wte);
    messages_are(c.g, SEG_UPDATE, 0, 1, wte);
    ok(position(home, update, I_sum_squares, wte, m) > 0 &&
           position(copy, 0, I_sum_squares, wte, m) < 0,
       "its gradient counts once in the norm");
    compiled_release(&c);
}

/* A table that three ops of two stages read, under three layouts. */
static void test_tied_twice(void) {
    struct compiled c = compile(
        "{'format': 'weft-plan/1', 'model': './tests/models/encdec.json', 'batch': 4, 'stages': ["
        " {'mesh': 'a:2', 'layout': {'a': 'hidden'},"
        "  'ops': ['wte', 'enc', 'memory', 'head_in', 'loss_in']},"
        " {'mesh': 'a:2', 'layout': {'a': 'vocab'}, 'ops': ['again', 'dec', 'head', 'loss']}]}");
    int seen = 0;
    ok(count_homes(c.g, "wte.weight") == 1 && !count_disorder(c.g, &seen),
       "a table in three ops of two stages is at home once");
    messages_are(c.g, SEG_REDUCE, 1, 0, "wte.weight");
    compiled_release(&c);
}

int main(void) {
    test_cut_inside_block();
    test_cuts("gpt:nano", "layers=1,hidden=8,heads=2,seq=4,vocab=16,dropout=0.1", 0);
    test_cuts("gpt:nano", "layers=1,hidden=8,heads=2,seq=4,vocab=16,dropout=0.1", 1);
    test_cuts("gpt:nano", "layers=1,hidden=8,heads=2,seq=4,vocab=16,dropout=0.1", 2);
    test_cuts("./tests/models/encdec.json", "", 0);
    test_cuts("./tests/models/encdec.json", "", 1);
    test_cuts("./tests/models/nested.json", "", 1);
    test_tied();
    test_tied_twice();
    return done_testing();
}
