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

const char *lines_all(struct lines *l, size_t *n) {
    const char *first = l->text + l->at;
    const size_t before = l->at;
    for (size_t i = l->at; i < l->n; i++)
        if (l->text[i] == '\n')
            l->at = i + 1;
    *n = l->at - before;
    return first;
}
