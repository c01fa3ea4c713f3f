/* unicode.h - code points of UTF-8, and what they are to a tokenizer's pattern (private to lib/text).
 *
 *     unsigned char *kinds = unicode_kinds();
 *     int bytes;
 *     if (utf8_check("né", 3) < 0 && kinds[utf8_point("é", &bytes)] == UNICODE_LETTER) ...
 *     free(kinds);
 */
#ifndef WEFT_UNICODE_H
#define WEFT_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

/* \p{L}, \p{N} and \s of regular expressions, which do not overlap. */
enum unicode_kind {
    UNICODE_OTHER,
    UNICODE_LETTER,
    UNICODE_NUMBER,
    UNICODE_SPACE,   /* white space but for the next */
    UNICODE_NEWLINE, /* CR and LF */
    UNICODE_END,     /* no code point: the end of the text */
};

enum { UNICODE_POINTS = 0x110000 };

struct unicode_range {
    uint32_t first, last;
    unsigned char kind;
};
extern const struct unicode_range
    unicode_ranges[]; /* ascending; what is in none is OTHER */
extern const int unicode_n_ranges;

/* What ranges say of each code point, 0 of those in none; free() it. */
unsigned char *unicode_spread(const struct unicode_range *ranges, int n);
/* The kind of each code point; free() it. */
unsigned char *unicode_kinds(void);

/* Where the white space before `s` begins, not before `least`; and where that at s < end ends. */
const char *unicode_space_before(const unsigned char *kinds, const char *least,
                                 const char *s);
const char *unicode_space_behind(const unsigned char *kinds, const char *s,
                                 const char *end);

/* The first byte of n that is not UTF-8 (RFC 3629), or -1. */
int64_t utf8_check(const char *s, int64_t n);

/* The bytes of the code point that begins at u, of which n >= 1 are there; 0 where these begin none.
 * More than n: the others are still to come. */
int utf8_begun(const unsigned char *u, int64_t n);

/* The code point that begins at s, of a text that was checked, and its bytes. */
static inline uint32_t utf8_point(const char *s, int *bytes) {
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80)
        return *bytes = 1, u[0];
    if (u[0] < 0xe0)
        return *bytes = 2, (u[0] & 0x1fu) << 6 | (u[1] & 0x3fu);
    uint32_t three = (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu);
    if (u[0] < 0xf0)
        return *bytes = 3, (u[0] & 0xfu) << 12 | three;
    return *bytes = 4, (u[0] & 7u) << 18 | three << 6 | (u[3] & 0x3fu);
}

/* Is the code point that begins at s white space? */
static inline bool unicode_is_space(const unsigned char *kinds, const char *s, int *bytes) {
    const unsigned char kind = kinds[utf8_point(s, bytes)];
    return kind == UNICODE_SPACE || kind == UNICODE_NEWLINE;
}

#endif
