#include "text/grapheme.h"

#include "common/mem.h"
#include "text/unicode.h"

#include <string.h>

unsigned char *grapheme_classes(void) {
    unsigned char *classes = mem_alloc(UNICODE_POINTS);
    for (int i = 0; i < grapheme_ranges_count; i++) {
        const struct grapheme_range *r = &grapheme_ranges[i];
        memset(classes + r->first, r->class, r->last - r->first + 1);
    }
    return classes;
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
