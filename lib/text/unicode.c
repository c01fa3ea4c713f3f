#include "text/unicode.h"

#include "common/mem.h"

#include <string.h>

unsigned char *unicode_spread(const struct unicode_range *ranges, int n) {
    unsigned char *kinds = mem_alloc(UNICODE_POINTS);
    for (int i = 0; i < n; i++) {
        const struct unicode_range *r = &ranges[i];
        memset(kinds + r->first, r->kind, r->last - r->first + 1);
    }
    return kinds;
}

unsigned char *unicode_kinds(void) {
    return unicode_spread(unicode_ranges, unicode_n_ranges);
}

const char *unicode_space_before(const unsigned char *kinds, const char *least,
                                 const char *s) {
    for (const char *p = s; p > least; s = p) {
        int bytes;
        do
            p--;
        while (p > least && (*p & 0xc0) == 0x80);
        if (!unicode_is_space(kinds, p, &bytes))
            break;
    }
    return s;
}

const char *unicode_space_behind(const unsigned char *kinds, const char *s,
                                 const char *end) {
    for (int bytes; s < end && unicode_is_space(kinds, s, &bytes); s += bytes)
        ;
    return s;
}

/* Overlong ones, surrogates and what is beyond U+10FFFF are none: the second byte's bounds keep them out. */
int utf8_begun(const unsigned char *u, int64_t n) {
    if (u[0] < 0x80)
        return 1;
    const int all = u[0] < 0xc2   ? 0
                    : u[0] < 0xe0 ? 2
                    : u[0] < 0xf0 ? 3
                    : u[0] < 0xf5 ? 4
                                  : 0;
    const int lo = u[0] == 0xe0 ? 0xa0 : u[0] == 0xf0 ? 0x90 : 0x80;
    const int hi = u[0] == 0xed ? 0x9f : u[0] == 0xf4 ? 0x8f : 0xbf;
    if (n > 1 && (u[1] < lo || u[1] > hi))
        return 0;
    for (int i = 2; i < n && i < all; i++)
        if ((u[i] & 0xc0) != 0x80)
            return 0;
    return all;
}

int64_t utf8_check(const char *s, int64_t n) {
    for (int64_t i = 0, k; i < n; i += k) {
        k = utf8_begun((const unsigned char *)s + i, n - i);
        if (k == 0 || k > n - i)
            return i;
    }
    return -1;
}
