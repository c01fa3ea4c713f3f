#define _GNU_SOURCE /* accept4 */
#include "keep/courier.h"

#include "checkpoint/ckptdir.h"
#include "common/mem.h"
#include "common/progress.h"
#include "keep/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

enum { SILENCE_S = 10, LINE = 512, BLOCK = 1 << 20, ROUNDS = 20, LARGE_ROUNDS = 5 };
#define HELLO "weft-keep/1"

/* ---- bytes --------------------------------------------------------------------------------- */

static int send_all(int fd, const void *bytes, size_t n) {
    for (const char *p = bytes; n;) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return -1;
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

static int send_line(int fd, const char *text) {
    char line[LINE];
    int n = snprintf(line, sizeof line, "%s\n", text);
    return send_all(fd, line, (size_t)n);
}

/* One by one: what follows the line is somebody else's. */
static int read_line(int fd, char *line) {
    for (size_t n = 0; n < LINE; n++) {
        if (recv(fd, line + n, 1, 0) != 1)
            return -1;
        if (line[n] == '\n') {
            line[n] = '\0';
            return 0;
        }
    }
    errno = EPROTO;
    return -1;
}

static int send_file(int fd, int file, int64_t bytes) {
    while (bytes > 0) {
        ssize_t k = sendfile(fd, file, NULL, (size_t)(bytes < BLOCK ? bytes : BLOCK));
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return -1;
        bytes -= k;
    }
    return 0;
}

/* To a file; to nowhere where that is < 0. */
static int receive(int fd, int file, int64_t bytes) {
    char *block = mem_alloc(BLOCK);
    int rc = 0;
    while (rc == 0 && bytes > 0) {
        ssize_t k = recv(fd, block, (size_t)(bytes < BLOCK ? bytes : BLOCK), 0);
        if (k < 0 && errno == EINTR)
            continue;
        if (k == 0)
            errno = ECONNRESET;
        rc = k <= 0 ? -1 : file < 0 ? 0 : copy_bytes(file, block, k);
        bytes -= k;
    }
    free(block);
    return rc;
}

/* ---- files --------------------------------------------------------------------------------- */

/* What a checkpoint can have: a caller names no other place. */
static bool name_is_good(const char *name) {
    return *name && *name != '.' && !strchr(name, '/');
}

static char *folder_of(const struct courier *c, int64_t step) {
    return ckpt_dir_path(c->dir, CKPT_WHOLE, step);
}

/* Whole or not at all: under another name until all of it is there. */
static int receive_file(const struct courier *c, int fd, int64_t step, const char *name,
                        int64_t bytes) {
    char part[80], *dir = folder_of(c, step), *path = ckpt_join(dir, name), *temp;
    snprintf(part, sizeof part, ".part-%.64s", name);
    temp = ckpt_join(dir, part);
    int rc = ckpt_make_dirs(dir, NULL);
    int file = rc == 0 ? open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    rc = file < 0 ? -1 : receive(fd, file, bytes);
    if (file >= 0 && close(file) < 0)
        rc = -1;
    if (rc == 0)
        rc = rename(temp, path);
    const int why = errno;
    if (rc < 0)
        unlink(temp);
    errno = why;
    free(dir);
    free(path);
    free(temp);
    return rc;
}

static int open_file(const struct courier *c, int64_t step, const char *name,
                     int64_t *bytes) {
    struct stat st;
    char *dir = folder_of(c, step), *path = ckpt_join(dir, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0 && fstat(file, &st) == 0)
        *bytes = st.st_size;
    free(dir);
    free(path);
    return file;
}

/* ---- who listens --------------------------------------------------------------------------- */

static int listen_on(int family, const void *address, socklen_t n) {
    const int off = 0;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, address, n) == 0 && listen(fd, 16) == 0)
        return fd;
    close(fd);
    return -1;
}

int courier_listen(int *port, struct err *err) {
    const struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    const struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_storage own;
    socklen_t n = sizeof own;
    int fd = listen_on(AF_INET6, &six, sizeof six);
    if (fd < 0)
        fd = listen_on(AF_INET, &four, sizeof four);
    if (fd < 0 || getsockname(fd, (struct sockaddr *)&own, &n) < 0)
        return err_system(err, "no port to listen on: %s", strerror(errno));
    *port = ntohs(own.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&own)->sin6_port
                                            : ((struct sockaddr_in *)&own)->sin_port);
    return fd;
}

static void set_patience(int fd) {
    const struct timeval t = {.tv_sec = SILENCE_S};
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void give(const struct courier *c, int fd, int64_t step, const char *name) {
    int64_t bytes = 0;
    char line[LINE];
    int file = open_file(c, step, name, &bytes);
    snprintf(line, sizeof line, "%lld", (long long)bytes);
    if (file < 0)
        snprintf(line, sizeof line, "no %s", strerror(errno));
    if (send_line(fd, line) == 0 && file >= 0)
        send_file(fd, file, bytes);
    if (file >= 0)
        close(file);
}

void courier_serve(const struct courier *c, int fd) {
    char line[LINE], token[100], verb[16], name[100];
    long long step, bytes;
    fcntl(fd, F_SETFL, 0);
    set_patience(fd);
    while (read_line(fd, line) == 0 &&
           sscanf(line, HELLO " %99s %15s %lld %99s %lld", token, verb, &step, name,
                  &bytes) == 5 &&
           !strcmp(token, c->token) && name_is_good(name) && step >= 0 && bytes >= 0) {
        int rc = 0;
        if (!strcmp(verb, "get")) {
            give(c, fd, step, name);
            continue;
        }
        if (!strcmp(verb, "put"))
            rc = receive_file(c, fd, step, name, bytes);
        else
            rc = receive(fd, -1, bytes);
        if (send_line(fd, rc == 0 ? "ok" : strerror(errno)) < 0 || rc < 0)
            break;
    }
    close(fd);
}

/* ---- who calls ----------------------------------------------------------------------------- */

static int failed(const struct courier_peer *p, const char *why, struct err *err) {
    return err_system(err, "host %s, port %d: %s", p->host, p->port, why);
}

static int call(const struct courier_peer *p, struct err *err) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all = NULL;
    char port[12];
    int fd = -1;
    snprintf(port, sizeof port, "%d", p->port);
    int rc = getaddrinfo(p->host, port, &hints, &all);
    if (rc)
        return failed(p, gai_strerror(rc), err);
    for (struct addrinfo *a = all; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd < 0)
            continue;
        set_patience(fd);
        if (connect(fd, a->ai_addr, a->ai_addrlen) < 0) {
            rc = errno;
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(all);
    return fd < 0 ? failed(p, strerror(rc), err) : fd;
}

static int ask(const struct courier *c, int fd, const char *verb, int64_t step,
               const char *name, int64_t bytes) {
    char line[LINE];
    snprintf(line, sizeof line, HELLO " %.90s %s %lld %.90s %lld", c->token, verb,
             (long long)step, name, (long long)bytes);
    return send_line(fd, line);
}

/* The other side's "ok", or its reason. */
static int answer(int fd, const struct courier_peer *p, struct err *err) {
    char line[LINE];
    if (read_line(fd, line) < 0)
        return failed(p, strerror(errno), err);
    return strcmp(line, "ok") ? failed(p, line, err) : 0;
}

int courier_put(const struct courier *c, const struct courier_peer *to, int64_t step,
                const char *name, struct err *err) {
    int64_t bytes = 0;
    int file = open_file(c, step, name, &bytes);
    if (file < 0)
        return err_system(err, "%s/step-%08lld/%s: %s", c->dir, (long long)step, name,
                          strerror(errno));
    int fd = call(to, err), rc = fd < 0 ? -1 : 0;
    if (rc == 0 &&
        (ask(c, fd, "put", step, name, bytes) < 0 || send_file(fd, file, bytes) < 0))
        rc = failed(to, strerror(errno), err);
    if (rc == 0)
        rc = answer(fd, to, err);
    if (fd >= 0)
        close(fd);
    close(file);
    return rc;
}

int courier_get(const struct courier *c, const struct courier_peer *from, int64_t step,
                const char *name, struct err *err) {
    char line[LINE], *end;
    int fd = call(from, err), rc = fd < 0 ? -1 : 0;
    if (fd < 0)
        return -1;
    if (ask(c, fd, "get", step, name, 0) < 0 || read_line(fd, line) < 0)
        rc = failed(from, strerror(errno), err);
    long long bytes = rc == 0 ? strtoll(line, &end, 10) : 0;
    if (rc == 0 && (end == line || *end))
        rc = failed(from, line, err);
    if (rc == 0 && receive_file(c, fd, step, name, bytes) < 0)
        rc = failed(from, strerror(errno), err);
    close(fd);
    return rc;
}

/* Sends so many zeroes, and waits until they are there; the seconds, or -1. */
static double throw(const struct courier *c, int fd, int64_t bytes, const char *block) {
    char line[LINE];
    const double start = now_s();
    int rc = ask(c, fd, "drop", 0, "zeroes", bytes);
    for (int64_t left = bytes; rc == 0 && left > 0; left -= BLOCK)
        rc = send_all(fd, block, (size_t)(left < BLOCK ? left : BLOCK));
    if (rc < 0 || read_line(fd, line) < 0 || strcmp(line, "ok") != 0)
        return -1;
    return now_s() - start;
}

/* Of so many times; -1 where one failed. */
static double shortest(const struct courier *c, int fd, int64_t bytes, const char *block,
                       int times) {
    double best = throw(c, fd, bytes, block);
    for (int i = 1; i < times && best >= 0; i++) {
        const double one = throw(c, fd, bytes, block);
        best = one < best ? one : best;
    }
    return best;
}

int courier_measure(const struct courier *c, const struct courier_peer *to, int64_t bytes,
                    double *bytes_per_s, double *round_s, struct err *err) {
    int fd = call(to, err);
    if (fd < 0)
        return -1;
    char *block = mem_array(BLOCK, 1);
    *round_s = shortest(c, fd, 1, block, ROUNDS);
    const double took = *round_s < 0 ? -1 : shortest(c, fd, bytes, block, LARGE_ROUNDS);
    *bytes_per_s = took > 0 ? (double)bytes / took : 0;
    int rc = took > 0 ? 0 : failed(to, strerror(errno), err);
    free(block);
    close(fd);
    return rc;
}
