/* Which step is whole among hosts, whose copies are where, and the files on their way. */
#include "checkpoint/ckptdir.h"
#include "common/err.h"
#include "keep/courier.h"
#include "keep/parts.h"
#include "tap.h"

#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- groups -------------------------------------------------------------------------------- */

/* Do all hosts of a set that stays have, between them, what every host had? */
static bool survives(int n, int copies, unsigned lost) {
    for (int i = 0; i < n; i++) {
        bool there = !(lost >> i & 1);
        for (int c = 1; c <= copies; c++) {
            int p = parts_peer(n, copies, i, c);
            there |= p >= 0 && !(lost >> p & 1);
        }
        if (!there)
            return false;
    }
    return true;
}

static void test_groups(void) {
    for (int n = 2; n <= 9; n++) {
        bool own = true, one = true;
        for (int i = 0; i < n; i++) {
            int p = parts_peer(n, 1, i, 1);
            own &= p >= 0 && p < n && p != i;
            one &= survives(n, 1, 1u << i);
        }
        ok(own && one, "%d hosts: any one may be lost", n);
    }
    int pairs = 0;
    for (int i = 0; i < 8; i++)
        for (int j = i + 1; j < 8; j++)
            pairs += !survives(8, 1, 1u << i | 1u << j);
    ok(pairs == 4, "of the 28 pairs of 8 hosts, 4 take a checkpoint with them: 1 in N - 1");
    bool two = true;
    for (int i = 0; i < 7; i++)
        for (int j = i + 1; j < 7; j++)
            two &= survives(7, 2, 1u << i | 1u << j);
    ok(two, "with two copies any two of 7 may be lost");
    ok(parts_peer(1, 1, 0, 1) < 0, "a single host has no peer");
}

/* ---- steps --------------------------------------------------------------------------------- */

static void put(struct parts *p, int host, int64_t step, const char *name, int64_t bytes,
                bool listed) {
    struct part one = {.host = host, .step = step, .bytes = bytes, .listed = listed};
    snprintf(one.name, sizeof one.name, "%s", name);
    parts_add(p, &one);
}

static void test_steps(void) {
    struct parts p = {0};
    const struct part *lacks;
    ok(parts_newest(&p, INT64_MAX, &lacks) == 0 && !lacks, "nothing is nothing");
    for (int64_t step = 4; step <= 5; step++) {
        put(&p, 0, step, "a", 10, true);
        put(&p, 0, step, "b", 20, true);
        put(&p, 0, step, "a", 10, false);
    }
    put(&p, 1, 5, "b", 19, false);
    put(&p, 2, 4, "b", 20, false);
    ok(parts_newest(&p, INT64_MAX, &lacks) == 4 && lacks && lacks->step == 5 &&
           !strcmp(lacks->name, "b"),
       "a file that is too short is none: an older step is whole");
    ok(parts_source(&p, &(struct part){.step = 4, .bytes = 20, .name = "b"}) == 2,
       "and its file is found");
    put(&p, 2, 5, "b", 20, false);
    ok(parts_newest(&p, INT64_MAX, &lacks) == 5 && !lacks, "a copy makes it whole");
    ok(parts_newest(&p, 5, NULL) == 4, "before it there is another");
    put(&p, 1, 7, "a", 10, false);
    ok(parts_newest(&p, INT64_MAX, NULL) == 5, "files without an index are no step");
    parts_release(&p);
}

/* ---- files --------------------------------------------------------------------------------- */

static pid_t serve(const struct courier *c, int fd) {
    pid_t pid = fork();
    if (pid)
        return pid;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    for (int i = 0; i < 5 && poll(&p, 1, 5000) > 0; i++)
        courier_serve(c, accept(fd, NULL, NULL));
    _exit(0);
}

static void write_text(const char *dir, const char *name, const char *text) {
    char *path = ckpt_join(dir, name);
    FILE *f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
    free(path);
}

static bool holds(const char *dir, const char *name, const char *text) {
    char *path = ckpt_join(dir, name), was[64] = "";
    FILE *f = fopen(path, "r");
    bool same = f && fread(was, 1, sizeof was - 1, f) == strlen(text) && !strcmp(was, text);
    if (f)
        fclose(f);
    free(path);
    return same;
}

static void test_courier(void) {
    char dir[] = "/tmp/weft-courier-XXXXXX";
    struct err err = {0};
    int port = 0, fd = courier_listen(&port, &err);
    char *here, *there, *a, *b;
    if (!mkdtemp(dir))
        return;
    here = ckpt_join(dir, "here");
    there = ckpt_join(dir, "there");
    a = ckpt_dir_path(here, CKPT_WHOLE, 3);
    b = ckpt_dir_path(there, CKPT_WHOLE, 3);
    ckpt_make_dirs(a, NULL);
    write_text(a, "rank-0000.safetensors", "some bytes");
    const struct courier mine = {here, "secret"}, other = {there, "secret"};
    const struct courier stranger = {here, "guessed"};
    const struct courier_peer peer = {"127.0.0.1", port};
    pid_t pid = serve(&other, fd);
    ok(courier_put(&mine, &peer, 3, "rank-0000.safetensors", &err) == 0 &&
           holds(b, "rank-0000.safetensors", "some bytes"),
       "a file is put: %s", err.msg);
    ckpt_remove_dir(a, NULL);
    ok(courier_get(&mine, &peer, 3, "rank-0000.safetensors", &err) == 0 &&
           holds(a, "rank-0000.safetensors", "some bytes"),
       "and got again: %s", err.msg);
    ok(courier_get(&mine, &peer, 3, "rank-0001.safetensors", &err) < 0 &&
           strstr(err.msg, "No such file"),
       "one that is not there: %s", err.msg);
    ok(courier_put(&stranger, &peer, 3, "rank-0000.safetensors", &err) < 0,
       "who has another token is not served: %s", err.msg);
    ok(courier_get(&mine, &peer, 3, "../../secret", &err) < 0,
       "a name cannot lead out of the folder: %s", err.msg);
    waitpid(pid, NULL, 0);
    close(fd);
    ok(courier_put(&mine, &peer, 3, "rank-0000.safetensors", &err) < 0,
       "nobody listens: %s", err.msg);
    ckpt_remove_dir(dir, NULL);
    free(here);
    free(there);
    free(a);
    free(b);
}

int main(void) {
    test_groups();
    test_steps();
    test_courier();
    return done_testing();
}
