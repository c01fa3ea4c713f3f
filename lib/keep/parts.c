#include "keep/parts.h"

#include <stdlib.h>
#include <string.h>

void parts_add(struct parts *p, const struct part *one) {
    arr_push(&p->list, *one);
}

void parts_release(struct parts *p) {
    arr_release(&p->list);
}

static bool is_file(const struct part *a, const struct part *listed) {
    return !a->listed && a->step == listed->step && a->bytes == listed->bytes &&
           !strcmp(a->name, listed->name);
}

int parts_source(const struct parts *p, const struct part *listed) {
    for (int64_t i = 0; i < p->list.n; i++)
        if (is_file(&p->list.p[i], listed))
            return p->list.p[i].host;
    return -1;
}

bool parts_has(const struct parts *p, const struct part *listed, int host) {
    for (int64_t i = 0; i < p->list.n; i++)
        if (p->list.p[i].host == host && is_file(&p->list.p[i], listed))
            return true;
    return false;
}

/* The newest step before this one that an index lists something of. */
static int64_t newest_listed(const struct parts *p, int64_t before) {
    int64_t step = 0;
    for (int64_t i = 0; i < p->list.n; i++) {
        const struct part *a = &p->list.p[i];
        if (a->listed && a->step < before && a->step > step)
            step = a->step;
    }
    return step;
}

/* A file that is listed and nowhere, or NULL. */
static const struct part *lacking(const struct parts *p, int64_t step) {
    for (int64_t i = 0; i < p->list.n; i++) {
        const struct part *a = &p->list.p[i];
        if (a->listed && a->step == step && parts_source(p, a) < 0)
            return a;
    }
    return NULL;
}

int64_t parts_newest(const struct parts *p, int64_t before, const struct part **lacks) {
    const struct part *none = NULL, **first = lacks ? lacks : &none;
    *first = NULL;
    for (int64_t step = before; (step = newest_listed(p, step));) {
        const struct part *l = lacking(p, step);
        if (!l)
            return step;
        *first = *first ? *first : l;
    }
    return 0;
}

int parts_peer(int n, int copies, int i, int c) {
    const int each = copies + 1, groups = n / each > 0 ? n / each : 1;
    const int group = i / each < groups ? i / each : groups - 1;
    const int first = group * each, size = group == groups - 1 ? n - first : each;
    return c < size ? first + (i - first + c) % size : -1;
}
