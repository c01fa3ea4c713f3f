/* Lines of JSON: on standard output, and in the files that options name. */
#include "run.h"

#include "common/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* NULL where memory is full; the caller frees it. */
static char *text_of(const json_t *line, size_t *n, struct err *err) {
    char *text = NULL;
    FILE *f = open_memstream(&text, n);
    if (!f) {
        err_system(err, "memory is full");
        return NULL;
    }
    json_write_line(line, f);
    fclose(f);
    return text;
}

/* After a signal mpirun may not read any more what its ranks print: a write would never end. */
static bool still_read(void) {
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return !interrupted() || poll(&p, 1, 200) > 0;
}

int run_print_line(const json_t *line, struct err *err) {
    size_t n = 0;
    char *text = text_of(line, &n, err);
    int rc = text ? 0 : -1;
    for (size_t at = 0; at < n && rc == 0 && still_read();) {
        ssize_t wrote = write(STDOUT_FILENO, text + at, n - at);
        if (wrote > 0)
            at += (size_t)wrote;
        else if (errno != EINTR)
            rc = err_system(err, "standard output: %s", strerror(errno));
    }
    free(text);
    return rc;
}

int run_append_line(const char *option, const char *path, const json_t *line,
                    struct err *err) {
    size_t n = 0;
    char *text = text_of(line, &n, err);
    if (!text)
        return -1;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    ssize_t wrote = fd < 0 ? -1 : write(fd, text, n); /* one: a kill leaves whole lines */
    int why = errno;
    if (fd >= 0)
        close(fd);
    free(text);
    if (wrote == (ssize_t)n)
        return 0;
    return err_system(err, "%s: %s: %s", option, path,
                      wrote < 0 ? strerror(why) : "a line was cut short");
}
