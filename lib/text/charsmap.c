#include "text/charsmap.h"

#include "common/mem.h"
#include "text/grapheme.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

enum { WHOLE_BELOW = 6 }; /* bytes of a grapheme that is looked for as a whole */

/* ---- the block ----------------------------------------------------------------------------- */

static int digit_of(unsigned char c) {
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Writes the bytes to out, of which 3 for each 4 characters must have room; how many, or -1. */
static int64_t from_base64(const char *s, size_t length, unsigned char *out) {
    int64_t n = 0;
    if (length % 4)
        return -1;
    for (const char *end = s + length; s < end; s += 4) {
        const int missing = end - s > 4 ? 0 : (s[3] == '=') + (s[3] == '=' && s[2] == '=');
        uint32_t bits = 0;
        for (int i = 0; i < 4; i++) {
            const int digit = i < 4 - missing ? digit_of((unsigned char)s[i]) : 0;
            if (digit < 0)
                return -1;
            bits = bits << 6 | (uint32_t)digit;
        }
        for (int i = 0; i < 3 - missing; i++)
            out[n++] = (unsigned char)(bits >> (16 - 8 * i));
    }
    return n;
}

/* ---- the trie ------------------------------------------------------------------------------ */

/* Where the text of the shortest key begins that the n bytes begin with, or -1. */
static int64_t charsmap_find(const struct charsmap *map, const char *s, int64_t n) {
    enum { HAS_LEAF = 1 << 8, LABEL = 0xff };
    uint32_t unit = map->units[0], at = unit >> 10 << ((unit & 1 << 9) >> 6);
    for (int64_t i = 0; i < n && s[i]; i++) {
        at ^= (unsigned char)s[i];
        if (at >= map->n)
            return -1;
        unit = map->units[at];
        if ((unit & (1u << 31 | LABEL)) != (unsigned char)s[i])
            return -1;
        at ^= unit >> 10 << ((unit & 1 << 9) >> 6);
        if (unit & HAS_LEAF) {
            const int64_t text = at < map->n ? map->units[at] & INT32_MAX : map->size;
            return text < map->size ? text : -1;
        }
    }
    return -1;
}

int charsmap_read(struct charsmap *map, const char *base64, size_t length,
                  struct err *err) {
    *map = (struct charsmap){0};
    unsigned char *block = mem_alloc(length / 4 * 3 + 1);
    const int64_t n = from_base64(base64, length, block);
    uint32_t trie = 0;
    if (n > 4)
        memcpy(&trie, block, sizeof trie);
    const int64_t size = n - 4 - (int64_t)trie;
    if (trie < 4 || trie % 4 || size < 1 || block[n - 1] ||
        utf8_check((const char *)block + 4 + trie, size) >= 0) {
        free(block);
        return err_input(err, "expected base64 of a trie and of texts");
    }
    map->n = trie / 4;
    map->units = mem_alloc(trie);
    memcpy(map->units, block + 4, trie);
    map->size = size;
    map->texts = mem_alloc((size_t)size);
    memcpy(map->texts, block + 4 + trie, (size_t)size);
    free(block);
    for (int c = 0; c < 128; c++) {
        const char byte = (char)c;
        map->ascii[c] = charsmap_find(map, &byte, 1);
    }
    map->classes = grapheme_classes();
    return 0;
}

void charsmap_release(struct charsmap *map) {
    free(map->units);
    free(map->texts);
    free(map->classes);
    *map = (struct charsmap){0};
}

/* ---- a text -------------------------------------------------------------------------------- */

/* What comes of [s, end); of the first that anything comes of, *head is how much belongs to its beginning. */
static void put(const struct charsmap *map, int64_t found, const char *s, const char *end,
                struct nfc_text *out, int64_t *head) {
    const char *text = found < 0 ? s : map->texts + found;
    int bytes;
    nfc_text_put(out, text, found < 0 ? end - s : (int64_t)strlen(text));
    if (*head == 0 && out->n > 0) {
        utf8_point(s, &bytes);
        *head = s + bytes == end ? out->n : 1;
    }
}

static void put_grapheme(const struct charsmap *map, const char *s, const char *end,
                         struct nfc_text *out, int64_t *head) {
    const int64_t whole = end - s < WHOLE_BELOW ? charsmap_find(map, s, end - s) : -1;
    if (whole >= 0) {
        put(map, whole, s, end, out, head);
        return;
    }
    for (int bytes; s < end; s += bytes) {
        utf8_point(s, &bytes);
        put(map, charsmap_find(map, s, bytes), s, s + bytes, out, head);
    }
}

int64_t charsmap_apply(const struct charsmap *map, const char *text, int64_t n,
                       struct nfc_text *out) {
    const char *end = text + n;
    int64_t head = 0;
    out->n = 0;
    for (const char *s = text, *next; s < end; s = next) {
        next = s + 1;
        if ((unsigned char)*s < 0x80 && *s != '\r' &&
            (next == end || (unsigned char)*next < 0x80)) {
            put(map, map->ascii[(unsigned char)*s], s, next, out, &head);
            continue;
        }
        next = grapheme_end(map->classes, s, end);
        put_grapheme(map, s, next, out, &head);
    }
    return head;
}
