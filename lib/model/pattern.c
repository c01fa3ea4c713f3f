#include "model/pattern.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Is text[0..n) a set such as "4", "0-3" or "0-3,7"? */
static bool is_set(const char *p, size_t n) {
    if (!n || !isdigit((unsigned char)p[0]) || !isdigit((unsigned char)p[n - 1]))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isdigit((unsigned char)p[i]) &&
            !((p[i] == '-' || p[i] == ',') && isdigit((unsigned char)p[i + 1])))
            return false;
    return true;
}

static bool in_set(const char *p, size_t n, long value) {
    const char *end = p + n;
    while (p < end) {
        char *next;
        long lo = strtol(p, &next, 10), hi = lo;
        if (next < end && *next == '-')
            hi = strtol(next + 1, &next, 10);
        if (lo <= value && value <= hi)
            return true;
        p = next + 1;
    }
    return false;
}

/* "*" matches any text. On a mismatch the last star takes one character more: no recursion, and at
 * most length times length steps. */
static bool glob(const char *p, const char *p_end, const char *s, const char *s_end) {
    const char *star = NULL, *mark = NULL;
    while (s < s_end) {
        if (p < p_end && *p == '*') {
            star = p++;
            mark = s;
        } else if (p < p_end && *p == *s) {
            p++, s++;
        } else if (star) {
            p = star + 1;
            s = ++mark;
        } else {
            return false;
        }
    }
    while (p < p_end && *p == '*')
        p++;
    return p == p_end;
}

static bool component_match(const char *p, size_t pn, const char *s, size_t sn) {
    if (is_set(p, pn) && is_set(s, sn))
        return in_set(p, pn, strtol(s, NULL, 10));
    return glob(p, p + pn, s, s + sn);
}

/* decided: how much of the name was looked at, with the dot or the end behind it. */
static bool match(const char *pattern, const char *name, size_t *decided) {
    for (const char *begin = name;;) {
        size_t pn = strcspn(pattern, "."), sn = strcspn(name, ".");
        *decided = (size_t)(name - begin) + sn + 1;
        if (!component_match(pattern, pn, name, sn))
            return false;
        if (!pattern[pn])
            return true;
        if (!name[sn])
            return false;
        pattern += pn + 1;
        name += sn + 1;
    }
}

bool pattern_covers(struct pattern *p, const char *name) {
    if (!p->last || strncmp(name, p->last, p->decided) != 0) {
        p->covers = match(p->text, name, &p->decided);
        p->last = name;
    }
    return p->covers;
}

bool pattern_valid(const char *pattern) {
    for (;;) {
        size_t n = strcspn(pattern, ".");
        if (!n)
            return false;
        if (isdigit((unsigned char)pattern[0]) && !is_set(pattern, n))
            return false;
        if (!pattern[n])
            return true;
        pattern += n + 1;
    }
}
