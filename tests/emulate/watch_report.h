/* watch_report.h - inside the watcher: what was found, and how it is said. */
#ifndef WEFT_EMULATE_WATCH_REPORT_H
#define WEFT_EMULATE_WATCH_REPORT_H

#include "emulate.h"

enum watch_fault {
    FAULT_WARP,     /* two accesses of a warp, no __syncwarp between */
    FAULT_BLOCK,    /* of a block, no __syncthreads between */
    FAULT_BLOCKS,   /* of two blocks */
    FAULT_COPY,     /* what a copy writes, which was not waited for */
    FAULT_SOURCE,   /* a copy's source changed before it was waited for */
    FAULT_PRODUCT,  /* a write to what a product reads that was not waited for */
    FAULT_PUBLISH,  /* a product reads what was not published */
    FAULT_UNWRITTEN /* a read of what nobody wrote */
};

/* One of the two accesses. */
struct watch_side {
    const char *does; /* "reads" */
    struct emu_index block;
    int thread;
    uint32_t place; /* in the program, from its beginning */
};

struct watch_finding {
    enum watch_fault fault;
    const char *kernel;
    struct watch_side now, before; /* UNWRITTEN: no `before` */
    uintptr_t at;
    bool shared;
    const char
        *buffer; /* watch_report's own: NULL, or where `at` is `offset` behind its begin */
    int64_t offset;
};

/* Keeps it, unless there is one of the same fault and places. */
void watch_report(const struct watch_finding *f);
/* Names memory for findings; forgets all names, and the findings that were told. */
void watch_name(const char *name, const void *p, int64_t bytes);
void watch_report_forget(void);
/* A place in the program as watch_finding has it. */
uint32_t watch_place(const void *pc);

#endif
