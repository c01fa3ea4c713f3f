/* text.h - durations and sizes as people read them, with a unit that suits the number; words as
 * shells read them.
 *
 *     struct text t = text_time(62360);        // t.s is "62.36 ms"
 *     printf("%s of %s\n", text_bytes(a).s, text_bytes(b).s);
 */
#ifndef WEFT_TEXT_H
#define WEFT_TEXT_H

#include <stdint.h>

struct text {
    char s[32];
};

/* Microseconds: "843.2 us", "62.36 ms" from 10 ms on, "93.001 s" from 10 s on. */
struct text text_time(double us);
/* The same in the unit that suits another duration, for a column of several. */
struct text text_time_beside(double us, double other_us);

/* "512 bytes", "12.5 MiB", "3.21 GiB". */
struct text text_bytes(double bytes);

/* For commands that a message tells the reader to type: the word itself, or in single quotes if it
 * holds anything that a POSIX shell would take for more than a letter. free() it. */
char *text_shell_word(const char *word);

#endif
