#include "text/nfc.h"

#include "common/mem.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

/* Hangul syllables: leading and trailing consonants and vowels by rule (The Unicode Standard, 3.12). */
enum {
    S_BASE = 0xac00,
    L_BASE = 0x1100,
    V_BASE = 0x1161,
    T_BASE = 0x11a7,
    L_COUNT = 19,
    V_COUNT = 21,
    T_COUNT = 28,
    S_COUNT = L_COUNT * V_COUNT * T_COUNT,
};

struct nfc {
    unsigned char *combining;        /* of each code point */
    const struct nfc_pair **by_pair; /* those that compose, ascending by their two */
    int n;
    ARR(uint32_t) points;
};

static int by_two(const void *a, const void *b) {
    const struct nfc_pair *x = *(const struct nfc_pair *const *)a,
                          *y = *(const struct nfc_pair *const *)b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x->second < y->second ? -1 : x->second > y->second;
}

struct nfc *nfc_create(void) {
    struct nfc *form = mem_alloc(sizeof *form);
    form->combining = mem_alloc(UNICODE_POINTS);
    for (int i = 0; i < nfc_classes_count; i++)
        memset(form->combining + nfc_classes[i].first, nfc_classes[i].combining,
               nfc_classes[i].last - nfc_classes[i].first + 1);
    form->by_pair = mem_array((size_t)nfc_pairs_count, sizeof(void *));
    for (int i = 0; i < nfc_pairs_count; i++)
        if (nfc_pairs[i].composes)
            form->by_pair[form->n++] = &nfc_pairs[i];
    qsort(form->by_pair, (size_t)form->n, sizeof(void *), by_two);
    return form;
}

void nfc_destroy(struct nfc *form) {
    if (!form)
        return;
    free(form->combining);
    free(form->by_pair);
    arr_release(&form->points);
    free(form);
}

void nfc_text_put(struct nfc_text *text, const char *s, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        arr_push(text, s[i]);
}

bool nfc_may_change(const char *text, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if ((unsigned char)text[i] >= 0xcc) /* the first byte of U+0300 and of all behind */
            return true;
    return false;
}

/* ---- apart --------------------------------------------------------------------------------- */

static int by_whole(const void *key, const void *row) {
    const uint32_t point = *(const uint32_t *)key,
                   whole = ((const struct nfc_pair *)row)->whole;
    return point < whole ? -1 : point > whole;
}

/* Puts a mark before those of higher classes that it stands behind. */
static void put(struct nfc *form, uint32_t point) {
    const int class = form->combining[point];
    arr_push(&form->points, point);
    if (!class)
        return;
    int64_t i = form->points.n - 1;
    for (; i > 0 && form->combining[form->points.p[i - 1]] > class; i--)
        form->points.p[i] = form->points.p[i - 1];
    form->points.p[i] = point;
}

static void take_apart(struct nfc *form, uint32_t point) {
    enum { DEEPEST = 8 }; /* no code point goes apart in more steps */
    uint32_t tail[DEEPEST];
    int n = 0;
    const uint32_t s = point - S_BASE;
    if (s < S_COUNT) {
        put(form, L_BASE + s / (V_COUNT * T_COUNT));
        put(form, V_BASE + s % (V_COUNT * T_COUNT) / T_COUNT);
        if (s % T_COUNT)
            put(form, T_BASE + s % T_COUNT);
        return;
    }
    const struct nfc_pair *p;
    while (n < DEEPEST && (p = bsearch(&point, nfc_pairs, (size_t)nfc_pairs_count,
                                       sizeof *nfc_pairs, by_whole))) {
        if (p->second)
            tail[n++] = p->second;
        point = p->first;
    }
    put(form, point);
    while (n)
        put(form, tail[--n]);
}

/* ---- together ------------------------------------------------------------------------------ */

/* What two code points become; 0: they stay two. */
static uint32_t together(const struct nfc *form, uint32_t a, uint32_t b) {
    if (a - L_BASE < L_COUNT && b - V_BASE < V_COUNT)
        return S_BASE + ((a - L_BASE) * V_COUNT + b - V_BASE) * T_COUNT;
    if (a - S_BASE < S_COUNT && (a - S_BASE) % T_COUNT == 0 && b - T_BASE - 1 < T_COUNT - 1)
        return a + b - T_BASE;
    const struct nfc_pair two = {.first = a, .second = b}, *key = &two;
    const struct nfc_pair **found =
        bsearch(&key, form->by_pair, (size_t)form->n, sizeof(void *), by_two);
    return found ? (*found)->whole : 0;
}

/* Each code point joins the starter before it, unless one between them keeps it off. */
static void join(struct nfc *form) {
    uint32_t *p = form->points.p;
    int64_t n = 0, starter = -1;
    for (int64_t i = 0; i < form->points.n; i++) {
        const int class = form->combining[p[i]];
        const bool near = starter == n - 1;
        const int last = near ? 0 : n ? form->combining[p[n - 1]] : 0;
        const bool reaches = starter >= 0 && (near || (last != 0 && last < class));
        const uint32_t whole = reaches ? together(form, p[starter], p[i]) : 0;
        if (whole) {
            p[starter] = whole;
            continue;
        }
        if (!class)
            starter = n;
        p[n++] = p[i];
    }
    form->points.n = n;
}

void nfc_text_point(struct nfc_text *out, uint32_t c) {
    if (c < 0x80) {
        arr_push(out, (char)c);
        return;
    }
    const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    arr_push(out, (char)(lead[more] | c >> 6 * more));
    for (int i = more - 1; i >= 0; i--)
        arr_push(out, (char)(0x80 | (c >> 6 * i & 0x3f)));
}

void nfc_compose(struct nfc *form, const char *text, int64_t n, struct nfc_text *out) {
    form->points.n = out->n = 0;
    int bytes;
    for (const char *s = text; s < text + n; s += bytes)
        take_apart(form, utf8_point(s, &bytes));
    join(form);
    for (int64_t i = 0; i < form->points.n; i++)
        nfc_text_point(out, form->points.p[i]);
}
