/* The program as text: names of opcodes and memory classes, keys, and one line an instruction. */
#include "program/program.h"
#include "program/trace.h"
#include "program/workspace.h"

#include <stdio.h>
#include <string.h>

/* Of a class in the arena, or of the host. */
static void print_place(const struct buffer *b, FILE *f) {
    static const char letters[MEM_COUNT] = {'p', 'g', 'o', 'a', 't', 'b'};
    fprintf(f, " %c%lld", b->host ? 'h' : letters[b->mem],
            (long long)(b->offset - (b->host ? HOST_ARENA : 0)));
}

static void print_operands(const struct stage_program *sp, const int *ids, int n, FILE *f) {
    for (int k = 0; k < n; k++)
        if (ids[k] >= 0)
            print_place(&sp->buffers[ids[k]], f);
}

static void instr_print(const struct program *g, const struct stage_program *sp,
                        const struct instr *i, FILE *f) {
    const struct instr_info *info = instr_info(i->code);
    char name[40];
    fprintf(f, "%-20s", instr_name_format(i->code, i->dtype, name, sizeof name));
    for (int k = 0; k < info->n_shape; k++)
        fprintf(f, " %s=%lld", info->shape[k], (long long)i->n.v[k]);
    print_operands(sp, i->in.v, INSTR_MAX_IN, f);
    fputs(" ->", f);
    print_operands(sp, i->out.v, INSTR_MAX_OUT, f);
    if (i->fresh)
        fputs(" fresh", f);
    if (opcode_key(i->code) == KEY_COMM) {
        fputs(" on", f);
        for (int a = 0; a < sp->mesh->n_axes; a++)
            if (i->axes >> a & 1)
                fprintf(f, " %s:%d", sp->mesh->name[a], sp->mesh->size[a]);
    }
    if (i->work >= 0)
        fprintf(f, " %s work %d", i->code == I_wait ? "of" : "as", i->work);
    if (i->transfer >= 0) {
        const struct transfer *t = &g->transfers[i->transfer];
        fprintf(f, " stage %d to %d%s", t->from, t->to, t->gradient ? ", gradient" : "");
    }
    if (trace_subject(g, i)[0])
        fprintf(f, "   ; %s", trace_subject(g, i));
    fputc('\n', f);
}

/* F0; of chunks F0.2, stage 2. */
static void print_action(struct action a, bool chunks, FILE *f) {
    fputc(segment_letter(a.segment), f);
    if (a.index >= 0)
        fprintf(f, "%lld", (long long)a.index);
    if (chunks && a.segment != SEG_NORM)
        fprintf(f, ".%d", a.stage);
}

void schedule_print(const struct plan *p, int group, bool whole, FILE *f) {
    enum { HEAD = 24, TAIL = 8 };
    struct group_schedule s = schedule_of_group(p, group, plan_micro_batches(p));
    int64_t n = schedule_actions(&s), head = HEAD * s.n_chunks, tail = TAIL * s.n_chunks;
    for (int64_t i = 0; i < n; i++) {
        if (!whole && i >= head && n > head + tail && i < n - tail) {
            fputs(" ...", f);
            i = n - tail;
        }
        fputs(i ? " " : "", f);
        print_action(schedule_action(&s, i), s.n_chunks > 1, f);
    }
    fputc('\n', f);
}

/* Beside the arena, on the cluster that the plan is for, or else on one node. */
static void print_workspace(const struct program *g, int stage, int threads, FILE *f) {
    struct cluster node = cluster_single_node(g->plan->devices);
    struct workspace w =
        workspace_of(g, stage, g->plan->cluster ? g->plan->cluster : &node, threads);
    fprintf(f, "  %-12s up to %lld beside these\n", "workspace", (long long)w.total);
}

void program_print(const struct program *g, int stage, int threads, FILE *f) {
    const struct stage_program *sp = &g->stages[stage];
    char mesh[256];
    mesh_format(sp->mesh, mesh, sizeof mesh);
    int devices = mesh_devices(sp->mesh);
    fprintf(f, "stage %d on ", stage);
    if (g->plan->n_groups < g->n_stages)
        fprintf(f, "group %d, ", g->plan->stages[stage].group);
    fprintf(f, "%d device%s", devices, devices > 1 ? "s" : "");
    fprintf(f, mesh[0] ? " (%s)" : "%s", mesh);
    fprintf(f, ", %lld in flight, %lld bytes\n", (long long)sp->in_flight,
            (long long)sp->arena_bytes);
    for (int c = 0; c < MEM_COUNT; c++)
        fprintf(f, "  %-12s %lld\n", memory_class_name((enum memory_class)c),
                (long long)sp->bytes[c]);
    if (sp->host_bytes)
        fprintf(f, "  %-12s %lld beside these\n", "host", (long long)sp->host_bytes);
    print_workspace(g, stage, threads, f);
    fputs("schedule: ", f);
    schedule_print(g->plan, g->plan->stages[stage].group, false, f);
    for (int s = 0; s < SEG_COUNT; s++) {
        if (sp->seg[s] == sp->seg[s + 1])
            continue;
        fprintf(f, "%s:\n", segment_name((enum segment)s));
        for (int i = sp->seg[s]; i < sp->seg[s + 1]; i++) {
            fprintf(f, "%5d  ", i);
            instr_print(g, sp, &sp->instrs[i], f);
        }
    }
}
