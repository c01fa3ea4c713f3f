/* Findings are kept as they are, and put in words when they are asked for: addr2line names the lines. */
#define _GNU_SOURCE /* popen */
#include "watch_report.h"

#include "watch.h"

#include <elf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const Elf64_Ehdr __executable_start; /* the linker's: where the program begins */

enum { MOST_FINDINGS = 64, MOST_BUFFERS = 32 };

struct buffer {
    const char *name;
    uintptr_t at;
    int64_t bytes;
};

static struct {
    struct watch_finding finding[MOST_FINDINGS];
    struct buffer buffer[MOST_BUFFERS];
    int findings, told, buffers;
    char text[2048];
} said;

uint32_t watch_place(const void *pc) {
    return (uint32_t)((uintptr_t)pc - 1 - (uintptr_t)&__executable_start);
}

/* With the buffer's name. */
static struct watch_finding in_buffer(const struct watch_finding *f) {
    struct watch_finding named = *f;
    for (int i = said.buffers - 1; i >= 0 && !named.buffer; i--) {
        const struct buffer *b = &said.buffer[i];
        if (f->at - b->at < (uintptr_t)b->bytes)
            named.buffer = b->name, named.offset = (int64_t)(f->at - b->at);
    }
    return named;
}

void watch_report(const struct watch_finding *f) {
    for (int i = 0; i < said.findings; i++) {
        const struct watch_finding *g = &said.finding[i];
        if (g->fault == f->fault && g->now.place == f->now.place &&
            g->before.place == f->before.place && !strcmp(g->kernel, f->kernel))
            return;
    }
    if (said.findings < MOST_FINDINGS)
        said.finding[said.findings++] = in_buffer(f);
}

void watch_name(const char *name, const void *p, int64_t bytes) {
    if (said.buffers < MOST_BUFFERS)
        said.buffer[said.buffers++] = (struct buffer){name, (uintptr_t)p, bytes};
}

/* Those that nobody was told of are left. */
void watch_report_forget(void) {
    said.findings -= said.told;
    memmove(said.finding, said.finding + said.told,
            (size_t)said.findings * sizeof *said.finding);
    said.told = said.buffers = 0;
}

/* ---- words ---------------------------------------------------------------------------------- */

static void append(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void append(const char *fmt, ...) {
    const size_t n = strlen(said.text);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(said.text + n, sizeof said.text - n, fmt, ap);
    va_end(ap);
}

/* What addr2line calls the program's first byte. */
static unsigned long link_base(void) {
    const bool fixed = __executable_start.e_type == ET_EXEC;
    return fixed ? (unsigned long)(uintptr_t)&__executable_start : 0;
}

/* Adds a line of addr2line's, "FILE:LINE ...", unless the one before is of the same file: `last`. */
static void add_line(char *line, char *last, size_t size, char *to, size_t room) {
    line[strcspn(line, " \n")] = 0;
    const size_t file = strcspn(line, ":"), n = strlen(to);
    if (strlen(last) == file && !strncmp(last, line, file))
        return;
    snprintf(last, size, "%.*s", (int)file, line);
    snprintf(to + n, room - n, "%s%s", n ? " < " : "", line);
}

void emu_place(uint32_t place, char *to, size_t size) {
    char command[128], line[256], last[256] = "";
    snprintf(command, sizeof command, "addr2line -s -i -e /proc/%ld/exe 0x%lx 2>/dev/null",
             (long)getpid(), (unsigned long)place + link_base());
    FILE *f = popen(command, "r");
    *to = 0;
    while (f && fgets(line, sizeof line, f))
        add_line(line, last, sizeof last, to, size);
    if (f)
        pclose(f);
    if (!*to)
        snprintf(to, size, "+0x%x", place);
}

static void append_place(uint32_t place) {
    char where[512];
    emu_place(place, where, sizeof where);
    append(" at %s", where);
}

static void append_memory(const struct watch_finding *f) {
    if (f->shared) {
        append(" shared memory");
        return;
    }
    if (f->buffer)
        append(" %s + %lld", f->buffer, (long long)f->offset);
    else
        append(" global memory");
}

static void append_thread(const struct watch_side *s, bool its_block) {
    if (its_block)
        append("block (%u,%u,%u) ", s->block.x, s->block.y, s->block.z);
    append("thread %d %s", s->thread, s->does);
}

const char *emu_finding(void) {
    static const char *const rule[] = {
        [FAULT_WARP] = "no __syncwarp between",
        [FAULT_BLOCK] = "no __syncthreads between",
        [FAULT_BLOCKS] = "blocks are in no order",
        [FAULT_COPY] = "the copy was not waited for",
        [FAULT_SOURCE] = "a copy from there was not waited for",
        [FAULT_PRODUCT] = "the product was not waited for",
        [FAULT_PUBLISH] = "not published to products (fence.proxy.async)",
        [FAULT_UNWRITTEN] = "which nobody wrote",
    };
    if (said.told == said.findings)
        return NULL;
    const struct watch_finding *f = &said.finding[said.told++];
    said.text[0] = 0;
    append("%s: ", f->kernel);
    append_thread(&f->now, true);
    append_memory(f);
    append_place(f->now.place);
    if (f->fault != FAULT_UNWRITTEN) {
        append(", ");
        append_thread(&f->before, f->fault == FAULT_BLOCKS);
        append(" it");
        append_place(f->before.place);
    }
    append(": %s", rule[f->fault]);
    return said.text;
}

int emu_findings(void) {
    int n = 0;
    for (const char *f; (f = emu_finding()); n++)
        printf("# %s\n", f);
    return n;
}
