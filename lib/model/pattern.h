/* pattern.h - patterns of the names of ops and parameters.
 *
 * Components are separated by dots; "*" matches any text inside one, "0-3,7" a set of numbers; a pattern
 * that ends early covers all below.
 *
 *     struct pattern p = {.text = "layer.0-3"};
 *     pattern_covers(&p, "layer.2.fc1");     // true, and of layer.2.fc1.weight as well
 */
#ifndef WEFT_PATTERN_H
#define WEFT_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

struct pattern {
    const char *text;
    /* The last answer, and how many bytes of that name led to it. */
    const char *last;
    size_t decided;
    bool covers;
};
/* Does it cover this name, which must live as long as the pattern? Names that begin alike are
 * asked one after the other, and most answered by the one before. */
bool pattern_covers(struct pattern *p, const char *name);
/* Syntax check: no empty components, well-formed sets. */
bool pattern_valid(const char *pattern);

#endif
