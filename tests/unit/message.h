/* message.h - what a message must say: its place, the key and the values, in this order, whatever words
 * stand between them.
 *
 *     ok(message_says(err.msg, "ops[1] (fc): axis a (3)...divide...(8)"), "refused: %s", err.msg);
 */
#ifndef WEFT_TESTS_MESSAGE_H
#define WEFT_TESTS_MESSAGE_H

#include <stdbool.h>
#include <string.h>

/* Returns whether the message holds the pieces of `want` that stand between "...", one behind the
 * other. */
static inline bool message_holds(const char *message, const char *want) {
    while (message) {
        const char *end = strstr(want, "...");
        size_t n = end ? (size_t)(end - want) : strlen(want);
        while (*message && strncmp(message, want, n) != 0)
            message++;
        if (strncmp(message, want, n) != 0)
            return false;
        if (!end)
            return true;
        message += n;
        want = end + 3;
    }
    return false;
}

/* Returns the same of a message that begins with the first piece. */
static inline bool message_says(const char *message, const char *want) {
    const char *end = strstr(want, "...");
    size_t n = end ? (size_t)(end - want) : strlen(want);
    return strncmp(message, want, n) == 0 && message_holds(message, want);
}

#endif
