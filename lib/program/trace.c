/* Chrome trace format, streamed: one event per line, nothing is kept. */
#include "program/trace.h"

#include "common/file.h"
#include "common/mem.h"

#include <stdlib.h>

struct trace {
    struct file_out out;
    bool any; /* an event is there already, so the next one needs a comma */
};

struct trace *trace_open(const char *path, struct err *err) {
    struct trace *t = mem_alloc(sizeof *t);
    if (file_out_open(&t->out, path, err) < 0) {
        free(t);
        return NULL;
    }
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", t->out.f);
    return t;
}

static void put_escaped(const char *s, FILE *f) {
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            fputc('\\', f);
        if ((unsigned char)*s < 0x20)
            fprintf(f, "\\u%04x", (unsigned)*s);
        else
            fputc(*s, f);
    }
}

static void begin_event(struct trace *t) {
    fputs(t->any ? ",\n" : "\n", t->out.f);
    t->any = true;
}

void trace_rank(struct trace *t, const struct program *g, int rank) {
    char name[256];
    plan_group_name(g->plan, program_group_of_rank(g, rank), name, sizeof name);
    begin_event(t);
    fprintf(t->out.f,
            "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":"
            "\"rank %d, %s%s%s\"}}",
            rank, rank, name, g->plan->dtype == DTYPE_f32 ? "" : ", ",
            g->plan->dtype == DTYPE_f32 ? "" : plan_dtype_name(g->plan->dtype));
}

/* Writes what an instruction computes and moves, by instr.def: with the duration, how near
 * it is to the device's peaks. */
static void put_work(const struct instr *i, FILE *f) {
    const enum key_kind key = opcode_key(i->code);
    struct instr_work w;
    if (key != KEY_SHAPE && key != KEY_CURVE)
        return;
    instr_work(i->code, &i->n, &w);
    fprintf(f, ",\"flops\":%.0f,\"bytes\":%.0f", w.flops, instr_bytes(&w, i->dtype));
}

void trace_event(struct trace *t, const struct trace_event *e) {
    static const char *const categories[] = {"compute", "comm", "p2p", "update"};
    FILE *f = t->out.f;
    begin_event(t);
    fputs("{\"name\":\"", f);
    put_escaped(e->name, f);
    if (e->subject && *e->subject) {
        fputc(' ', f);
        put_escaped(e->subject, f);
    }
    fprintf(f,
            "\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,"
            "\"args\":{\"mb\":%lld,\"seg\":\"%c\"",
            categories[e->category], e->pid, e->tid, e->ts_us, e->dur_us,
            (long long)e->index, segment_letter(e->segment));
    if (e->instr)
        put_work(e->instr, f);
    if (e->step > 0)
        fprintf(f, ",\"step\":%lld", (long long)e->step);
    if (e->together > 1)
        fprintf(f, ",\"together\":%d", e->together);
    if (e->captured)
        fprintf(f, ",\"captured\":%s", e->divided ? "\"divided\"" : "true");
    fputs("}}", f);
}

int trace_close(struct trace *t, struct err *err) {
    fputs("\n]}\n", t->out.f);
    int rc = file_out_close(&t->out, err);
    free(t);
    return rc;
}

void trace_abort(struct trace *t) {
    if (!t)
        return;
    file_out_abort(&t->out);
    free(t);
}

enum trace_category trace_category_of(enum opcode code, enum segment segment) {
    enum key_kind key = opcode_key(code);
    return key == KEY_P2P          ? TRACE_P2P
           : key == KEY_COMM       ? TRACE_COMM
           : segment >= SEG_REDUCE ? TRACE_UPDATE
                                   : TRACE_COMPUTE;
}

const char *trace_subject(const struct program *g, const struct instr *i) {
    const struct model *m = g->plan->model;
    bool moves = opcode_key(i->code) == KEY_COMM || opcode_key(i->code) == KEY_FREE ||
                 i->code == I_fill;
    if (i->op >= 0 && (i->param < 0 || !moves))
        return m->ops[i->op].name;
    if (i->param >= 0)
        return m->params[i->param].name;
    if (i->tensor < 0)
        return "";
    int producer = m->tensors[i->tensor].producer;
    return producer >= 0 ? m->ops[producer].name : m->tensors[i->tensor].name;
}
