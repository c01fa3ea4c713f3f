/* The program as text: one line per instruction, and one per buffer of the memory plan. */
#include "program/text.h"

#include "common/mem.h"
#include "program/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A buffer's name: the letter of its class, or h on the host, and its number, which it
 * keeps from pass to pass. A part has the name of the whole and the element at which it
 * begins. */
static char *buffer_name(const struct stage_program *sp, int buffer, char name[40]) {
    static const char letters[MEM_COUNT] = {'p', 'g', 'o', 'a', 't', 'b'};
    const int whole = buffer_whole(sp->buffers, buffer);
    const struct buffer *b = &sp->buffers[whole];
    const char letter = b->host ? 'h' : letters[b->mem];
    if (whole != buffer)
        snprintf(name, 40, "%c%d+%lld", letter, whole,
                 (long long)sp->buffers[buffer].first);
    else
        snprintf(name, 40, "%c%d", letter, buffer);
    return name;
}

static void print_operands(const struct stage_program *sp, const int *ids, int n, FILE *f) {
    char name[40];
    for (int k = 0; k < n; k++)
        if (ids[k] >= 0)
            fprintf(f, " %s", buffer_name(sp, ids[k], name));
}

static void instr_print(const struct program *g, const struct stage_program *sp,
                        const struct instr *i, FILE *f) {
    const struct instr_info *info = instr_info(i->code);
    char name[40];
    fprintf(f, "%-20s", instr_name_format(i->code, i->dtype, name, sizeof name));
    for (int k = 0; k < instr_shape_written(i->code, &i->n); k++)
        fprintf(f, " %s=%lld", info->shape[k], (long long)i->n.v[k]);
    print_operands(sp, i->in.v, INSTR_MAX_IN, f);
    fputs(" ->", f);
    print_operands(sp, i->out.v, INSTR_MAX_OUT, f);
    if (i->fresh)
        fputs(" fresh", f);
    if (i->trains)
        fputs(" trains", f);
    if (i->replicas)
        fprintf(f, i->op < 0 && i->code == I_scale ? " over %d" : " of %d", i->replicas);
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

/* Prints F0; with chunks, F0.2 for stage 2. */
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

/* ---- the memory plan ----------------------------------------------------------------------- */

/* A line of the memory plan: a buffer, and the instructions that touch it first and last. */
struct placed {
    int buffer, first, last;
    enum memory_class mem;
    int64_t offset;
};

static int compare_placed(const void *a, const void *b) {
    const struct placed *x = a, *y = b;
    if (x->mem != y->mem)
        return x->mem < y->mem ? -1 : 1;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

/* Lists the buffers that instructions touch, in the order of the arena. Returns how
 * many. */
static int list_placed(const struct stage_program *sp, struct placed *out) {
    int n = 0;
    for (int b = 0; b < sp->n_buffers; b++)
        out[b] = (struct placed){b, -1, -1, sp->buffers[b].mem, sp->buffers[b].offset};
    for (int i = 0; i < sp->n_instrs; i++) {
        int b[INSTR_MAX_BUFFERS], touched = instr_buffers(&sp->instrs[i], b);
        for (int k = 0; k < touched; k++) {
            struct placed *p = &out[buffer_whole(sp->buffers, b[k])];
            p->first = p->first < 0 ? i : p->first;
            p->last = i;
        }
    }
    for (int b = 0; b < sp->n_buffers; b++)
        if (out[b].first >= 0)
            out[n++] = out[b];
    qsort(out, (size_t)n, sizeof *out, compare_placed);
    return n;
}

/* Prints a line per buffer: where it lies, what it takes, the instructions between which it
 * is needed, and what the first of them is about. Activations are those of slot 0. */
static void print_buffers(const struct program *g, const struct stage_program *sp,
                          FILE *f) {
    struct placed *list = mem_array((size_t)sp->n_buffers, sizeof *list);
    const int n = list_placed(sp, list);
    for (int i = 0; i < n; i++) {
        const struct placed *p = &list[i];
        const struct buffer *b = &sp->buffers[p->buffer];
        char name[40], life[32];
        if (!i || p[-1].mem != p->mem)
            fprintf(f, "%s:\n", memory_class_name(p->mem));
        snprintf(life, sizeof life, "%d-%d", p->first, p->last);
        fprintf(f, "  %-6s at %-9lld %9lld bytes, %-4s ", buffer_name(sp, p->buffer, name),
                (long long)(b->offset - (b->host ? HOST_ARENA : 0)),
                (long long)buffer_bytes(b), dtype_name(b->dtype));
        const char *about = trace_subject(g, &sp->instrs[p->first]);
        fprintf(f, about[0] ? "%-9s   ; %s\n" : "%s\n", life, about);
    }
    free(list);
}

static void print_memory(const struct stage_program *sp, const struct program_view *view,
                         FILE *f) {
    for (int c = 0; c < MEM_COUNT; c++)
        fprintf(f, "  %-12s %lld\n", memory_class_name((enum memory_class)c),
                (long long)sp->bytes[c]);
    if (sp->host_bytes)
        fprintf(f, "  %-12s %lld beside these\n", "host", (long long)sp->host_bytes);
    fprintf(f, "  %-12s up to %lld beside these\n", "workspace",
            (long long)view->workspace);
}

/* ---- a stage ------------------------------------------------------------------------------- */

static void print_stage(const struct program *g, const struct stage_program *sp,
                        const struct program_view *view, FILE *f) {
    char mesh[256];
    int devices = mesh_devices(sp->mesh);
    mesh_format(sp->mesh, mesh, sizeof mesh);
    fprintf(f, "stage %d on ", sp->stage);
    if (g->plan->n_groups < g->n_stages)
        fprintf(f, "group %d, ", g->plan->stages[sp->stage].group);
    fprintf(f, "%d device%s", devices, devices > 1 ? "s" : "");
    fprintf(f, mesh[0] ? " (%s)" : "%s", mesh);
    if (view->memory)
        fprintf(f, ", %lld in flight, %lld bytes", (long long)sp->in_flight,
                (long long)sp->arena_bytes);
    fputc('\n', f);
}

static void print_instrs(const struct program *g, const struct stage_program *sp, FILE *f) {
    fputs("schedule: ", f);
    schedule_print(g->plan, g->plan->stages[sp->stage].group, false, f);
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

void program_print(const struct program *g, int stage, const struct program_view *view,
                   FILE *f) {
    const struct stage_program *sp = &g->stages[stage];
    print_stage(g, sp, view, f);
    if (view->memory)
        print_memory(sp, view, f);
    if (view->buffers)
        print_buffers(g, sp, f);
    if (view->instrs)
        print_instrs(g, sp, f);
}
