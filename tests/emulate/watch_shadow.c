/* Pages in a table with open addressing; the one that was used last is found at once. */
#include "watch_shadow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, COARSEST = 4 /* log2 of the bytes of a grain */, FIRST_SLOTS = 1024 };

struct page {
    uintptr_t number; /* address / PAGE */
    int grain;        /* log2 of bytes */
    struct watch_cell *cell;
};

static struct {
    struct page *slot;
    size_t slots, used;
    struct page *last;
} table;

static void *zeros(size_t n, size_t size) {
    void *p = calloc(n, size);
    if (!p) {
        fprintf(stderr, "watch: no memory for the shadow\n");
        abort();
    }
    return p;
}

/* Its slot, or the empty one that it would have. */
static struct page *slot_of(uintptr_t number) {
    size_t i = (size_t)(number * 0x9e3779b97f4a7c15u >> 20) & (table.slots - 1);
    while (table.slot[i].cell && table.slot[i].number != number)
        i = (i + 1) & (table.slots - 1);
    return &table.slot[i];
}

static void grow(void) {
    struct page *old = table.slot;
    const size_t n = table.slots;
    table.slots = n ? 2 * n : FIRST_SLOTS;
    table.slot = zeros(table.slots, sizeof *table.slot);
    for (size_t i = 0; i < n; i++)
        if (old[i].cell)
            *slot_of(old[i].number) = old[i];
    free(old);
}

static struct page *page_of(uintptr_t number) {
    if (table.last && table.last->number == number)
        return table.last;
    if (2 * table.used >= table.slots)
        grow();
    struct page *p = slot_of(number);
    if (!p->cell) {
        *p = (struct page){number, COARSEST,
                           zeros(PAGE >> COARSEST, sizeof(struct watch_cell))};
        table.used++;
    }
    return table.last = p;
}

/* Finer grains know what the coarser one knew. */
static void split(struct page *p, int grain) {
    const int parts = 1 << (p->grain - grain);
    struct watch_cell *cell = zeros(PAGE >> grain, sizeof *cell);
    for (int i = 0; i < PAGE >> grain; i++)
        cell[i] = p->cell[i / parts];
    free(p->cell);
    p->cell = cell;
    p->grain = grain;
}

struct watch_cell *watch_cells(uintptr_t at, size_t bytes, size_t *done, int *cells) {
    struct page *p = page_of(at / PAGE);
    const size_t in_page = at % PAGE, left = PAGE - in_page;
    const size_t n = bytes < left ? bytes : left;
    const size_t bits = in_page | n;
    if (bits & (((size_t)1 << p->grain) - 1))
        split(p, __builtin_ctzll(bits));
    *done = n;
    *cells = (int)(n >> p->grain);
    return p->cell + (in_page >> p->grain);
}

void watch_cells_forget(void) {
    for (size_t i = 0; i < table.slots; i++)
        free(table.slot[i].cell);
    free(table.slot);
    memset(&table, 0, sizeof table);
}
