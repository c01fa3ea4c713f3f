#include "keep/lines.h"

#include <string.h>
#include <unistd.h>

ssize_t lines_read(struct lines *l, int fd) {
    l->n -= l->at;
    memmove(l->text, l->text + l->at, l->n);
    l->at = 0;
    if (l->n == sizeof l->text)
        l->n = 0;
    ssize_t n = read(fd, l->text + l->n, sizeof l->text - l->n);
    l->n += n > 0 ? (size_t)n : 0;
    return n;
}

char *lines_next(struct lines *l) {
    char *line = l->text + l->at, *end = memchr(line, '\n', l->n - l->at);
    if (!end)
        return NULL;
    *end = '\0';
    l->at = (size_t)(end + 1 - l->text);
    return line;
}
