/* lines.h - lines that come through a pipe, in pieces.
 *
 *     while (lines_read(&l, fd) > 0)
 *         for (char *line; (line = lines_next(&l));)
 *             obey(line);
 */
#ifndef WEFT_KEEP_LINES_H
#define WEFT_KEEP_LINES_H

#include <stddef.h>
#include <sys/types.h>

/* Zeroed at first. */
struct lines {
    char text[65536];
    size_t n, at; /* bytes there are, and which of them have been handed out */
};

/* One read of what is there, after all lines have been handed out. Of a line that is longer than the text what
 * came so far is dropped. Returns as read(2). */
ssize_t lines_read(struct lines *l, int fd);
/* The next whole line, without its end, valid until the next read; NULL = none so far. */
char *lines_next(struct lines *l);
/* All whole lines that have not been handed out, n bytes with their ends, valid until the next read. */
const char *lines_all(struct lines *l, size_t *n);

#endif
