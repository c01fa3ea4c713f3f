/* The program as text: names of opcodes and memory classes, keys, and one line an instruction. */
#include "program/program.h"
#include "program/trace.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    enum key_kind key;
    const char *shape;
} opcodes[] = {
#define X(id, key, shape) {#id, key, shape},
    OPCODES(X)
#undef X
};

const char *opcode_name(enum opcode op) {
    return opcodes[op].name;
}

enum key_kind opcode_key(enum opcode op) {
    return opcodes[op].key;
}

const char *opcode_shape(enum opcode op) {
    return opcodes[op].shape;
}

int opcode_shape_rank(enum opcode op) {
    int n = 1;
    for (const char *p = opcodes[op].shape; (p = strchr(p, ' ')); p++)
        n++;
    return n;
}

int opcode_find(const char *name) {
    for (int i = 0; i < OPCODE_COUNT; i++)
        if (!strcmp(opcodes[i].name, name))
            return i;
    return -1;
}

const char *memory_class_name(enum memory_class c) {
    static const char *const names[] = {
#define X(id) #id,
        MEMORY_CLASSES(X)
#undef X
    };
    return names[c];
}

char *instr_shape(const struct instr *i, char *buf, size_t n) {
    size_t used = 0;
    int rank = opcode_shape_rank(i->code);
    buf[0] = '\0';
    for (int k = 0; k < rank && used < n; k++)
        used += (size_t)snprintf(buf + used, n - used, "%s%lld", k ? "," : "",
                                 (long long)i->n[k]);
    return buf;
}

static void print_operands(const struct stage_program *sp, const int *ids, int n, FILE *f) {
    static const char letters[MEM_COUNT] = {'p', 'g', 'o', 'a', 't', 'b'};
    for (int k = 0; k < n; k++)
        if (ids[k] >= 0)
            fprintf(f, " %c%lld", letters[sp->buffers[ids[k]].mem],
                    (long long)sp->buffers[ids[k]].offset);
}

void instr_print(const struct program *g, const struct stage_program *sp,
                 const struct instr *i, FILE *f) {
    char names[128];
    snprintf(names, sizeof names, "%s", opcode_shape(i->code));
    fprintf(f, "%-20s", opcode_name(i->code));
    char *save, *name = strtok_r(names, " ", &save);
    for (int k = 0; name; k++, name = strtok_r(NULL, " ", &save))
        fprintf(f, " %s=%lld", name, (long long)i->n[k]);
    print_operands(sp, i->in, INSTR_MAX_IN, f);
    fputs(" ->", f);
    print_operands(sp, i->out, INSTR_MAX_OUT, f);
    if (opcode_key(i->code) == KEY_COMM) {
        fputs(" on", f);
        for (int a = 0; a < sp->mesh->n_axes; a++)
            if (i->axes >> a & 1)
                fprintf(f, " %s:%d", sp->mesh->name[a], sp->mesh->size[a]);
    }
    if (i->transfer >= 0) {
        const struct transfer *t = &g->transfers[i->transfer];
        fprintf(f, " stage %d to %d%s", t->from, t->to, t->gradient ? ", gradient" : "");
    }
    if (trace_subject(g, i)[0])
        fprintf(f, "   ; %s", trace_subject(g, i));
    fputc('\n', f);
}

void program_print(const struct program *g, int stage, FILE *f) {
    static const char *const names[] = {"forward", "backward", "update"};
    const struct stage_program *sp = &g->stages[stage];
    char mesh[256];
    mesh_format(sp->mesh, mesh, sizeof mesh);
    fprintf(f, "stage %d on %d devices (%s), %lld in flight, %lld bytes\n", stage,
            mesh_devices(sp->mesh), mesh, (long long)sp->slots, (long long)sp->arena_bytes);
    for (int c = 0; c < MEM_COUNT; c++)
        fprintf(f, "  %-12s %lld\n", memory_class_name((enum memory_class)c),
                (long long)sp->bytes[c]);
    for (int s = 0; s < SEG_COUNT; s++) {
        fprintf(f, "%s:\n", names[s]);
        for (int i = sp->seg[s]; i < sp->seg[s + 1]; i++) {
            fprintf(f, "%5d  ", i);
            instr_print(g, sp, &sp->instrs[i], f);
        }
    }
}
