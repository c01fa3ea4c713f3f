/* grapheme.h - user-perceived characters: a letter and the marks on it (Unicode Standard Annex #29; private
 * to lib/text).
 *
 * Only what decides about characters of a few bytes is followed: controls stand alone (GB3 to GB5), marks
 * join what is before them, and signs that are put before what they belong to, that (GB9 to GB9b). Hangul,
 * flags, emoji joined to emoji and conjuncts of Indic scripts (GB6 to GB8, GB9c to GB13) come apart.
 *
 *     unsigned char *classes = grapheme_classes();
 *     const char *next = grapheme_end(classes, "e\xcc\x81!", end);     // behind the accent
 *     free(classes);
 */
#ifndef WEFT_GRAPHEME_H
#define WEFT_GRAPHEME_H

#include "text/unicode.h"

enum grapheme_class {
    GRAPHEME_OTHER,
    GRAPHEME_CONTROL,
    GRAPHEME_EXTEND,  /* Extend, ZWJ and SpacingMark: joins what is before */
    GRAPHEME_PREPEND, /* joins what is behind */
};

extern const struct unicode_range grapheme_ranges[]; /* ascending; in none is OTHER */
extern const int grapheme_ranges_count;

/* The class of each code point; free() it. */
unsigned char *grapheme_classes(void);

/* The end of the one that begins at s < end, of UTF-8. */
const char *grapheme_end(const unsigned char *classes, const char *s, const char *end);

#endif
