/* Blocks (see blocks.h). */
#include "search/graph/blocks.h"

#include <stdlib.h>

int blocks_zero(const struct blocks *b, int op, int zero) {
    int64_t pinned = b->pins ? pins_value(b->pins, PIN_zero, b->x.from[op]) : PIN_FREE;
    return pinned == PIN_FREE ? zero : (int)pinned;
}

int blocks_offload(const struct blocks *b, int op) {
    int64_t pinned = b->pins ? pins_value(b->pins, PIN_offload, b->x.from[op]) : PIN_FREE;
    return pinned == PIN_FREE ? b->offload : (int)pinned;
}

bool blocks_regather(const struct blocks *b, int op, bool regather) {
    int64_t pinned = b->pins ? pins_value(b->pins, PIN_regather, b->x.from[op]) : PIN_FREE;
    return pinned == PIN_FREE ? regather : pinned == 1;
}

const struct edge *blocks_small_edge(const struct blocks *b, const struct edge *e) {
    int64_t which = e - &b->s.edges[b->s.edges_of[e->origin]];
    return &b->xs.edges[b->xs.edges_of[b->x.of[e->origin]] + which];
}

/* Finds the structure of the whole model and that of the deduplicated one. */
static void find_structure(struct blocks *b) {
    int n = b->pins ? b->whole->n_ops : 0;
    uint64_t *marks = n ? mem_array((size_t)n, sizeof *marks) : NULL;
    for (int i = 0; i < n; i++)
        marks[i] = pins_mark(b->pins, i);
    structure_find(b->whole, marks, &b->s);
    dedup_make(b->whole, &b->s, &b->x);
    for (int i = 0; marks && i < b->x.model->n_ops; i++)
        marks[i] = marks[b->x.from[i]];
    structure_find(b->x.model, marks, &b->xs);
    free(marks);
}

void blocks_init(struct blocks *b, const struct model *m, const struct pins *pins) {
    *b = (struct blocks){.whole = m, .pins = pins};
    find_structure(b);
}

void blocks_release(struct blocks *b) {
    structure_release(&b->xs);
    dedup_release(&b->x);
    structure_release(&b->s);
}
