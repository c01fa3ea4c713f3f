/* What an attempt prints: metrics go to standard output, in whole lines, since the end of one may die with mpirun;
 * messages to standard error, and the last of these are kept for the verdict on its end. */
#include "keep.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static void pass_on(int fd, const char *p, size_t n) {
    while (n) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return; /* nobody reads any more; the training is worth more */
        p += k;
        n -= (size_t)k;
    }
}

/* It says of each signal that it passes it on. */
static bool is_chatter(const char *p, size_t n) {
    static const char words[] = "mpirun: Forwarding signal";
    return n > sizeof words && !strncmp(p, words, sizeof words - 1);
}

/* mpirun's essays stand between lines of dashes: they are kept for the verdict, and
 * not shown. */
static void show_lines(struct output *o, const char *p, size_t n) {
    while (n) {
        const char *end = memchr(p, '\n', n);
        size_t line = end ? (size_t)(end - p) + 1 : n;
        const bool dashes = line > 20 && !strncmp(p, "--------------------", 20);
        if (dashes)
            o->in_block = !o->in_block;
        else if (!o->in_block && !is_chatter(p, line))
            pass_on(STDERR_FILENO, p, line);
        p += line;
        n -= line;
    }
}

static void remember(struct output *o, const char *p, size_t n) {
    if (n >= OUTPUT_TAIL) {
        p += n - (OUTPUT_TAIL - 1);
        n = OUTPUT_TAIL - 1;
    }
    if (o->n_tail + n >= OUTPUT_TAIL) {
        size_t drop = o->n_tail + n - (OUTPUT_TAIL - 1);
        memmove(o->tail, o->tail + drop, o->n_tail - drop);
        o->n_tail -= drop;
    }
    memcpy(o->tail + o->n_tail, p, n);
    o->n_tail += n;
    o->tail[o->n_tail] = '\0';
}

static bool read_metrics(struct output *o) {
    if (lines_read(&o->metrics, o->fd[0]) <= 0)
        return false;
    size_t n = 0;
    const char *whole = lines_all(&o->metrics, &n);
    pass_on(STDOUT_FILENO, whole, n);
    o->spoke = true;
    return true;
}

static bool read_messages(struct output *o) {
    char block[16384];
    ssize_t n = read(o->fd[1], block, sizeof block);
    if (n <= 0)
        return false;
    remember(o, block, (size_t)n);
    show_lines(o, block, (size_t)n);
    return true;
}

bool output_read(struct output *o, int which) {
    return which == 0 ? read_metrics(o) : read_messages(o);
}

void output_read_all(struct output *o) {
    for (int i = 0; i < 2; i++)
        while (output_read(o, i))
            ;
}
