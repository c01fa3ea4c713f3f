#include "text/grapheme.h"

unsigned char *grapheme_classes(void) {
    return unicode_spread(grapheme_ranges, grapheme_ranges_count);
}

const char *grapheme_end(const unsigned char *classes, const char *s, const char *end) {
    int bytes;
    int class = classes[utf8_point(s, &bytes)];
    if (*s == '\r' && s + 1 < end && s[1] == '\n')
        return s + 2;
    for (s += bytes; s < end && class != GRAPHEME_CONTROL; s += bytes) {
        const int next = classes[utf8_point(s, &bytes)];
        if (next != GRAPHEME_EXTEND &&
            (class != GRAPHEME_PREPEND || next == GRAPHEME_CONTROL))
            break;
        class = next;
    }
    return s;
}
