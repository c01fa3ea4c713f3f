/* Lines through a pipe, in whatever pieces they come. */
#include "tap.h"

#include "keep/lines.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct lines l;
static int ends[2];

static void put(const char *text, size_t n) {
    if (write(ends[1], text, n) != (ssize_t)n)
        abort();
    lines_read(&l, ends[0]);
}

static void comes(const char *want, const char *text) {
    const char *got = lines_next(&l);
    ok(got && want ? !strcmp(got, want) : got == want, "%s: %s", text,
       got ? got : "no line");
}

int main(void) {
    static char much[30000];
    if (pipe(ends) < 0)
        return 4;
    memset(much, 'x', sizeof much);
    put("one\ntwo", 7);
    comes("one", "the first");
    comes(NULL, "half of the second");
    put("fold\n\n", 6);
    comes("twofold", "its other half");
    comes("", "an empty one");
    comes(NULL, "and no more");
    for (int i = 0; i < 3; i++)
        put(much, sizeof much);
    put("\nnext\n", 6);
    const char *rest = lines_next(&l);
    ok(rest && strlen(rest) < 2 * sizeof much, "of one too long its end: %zu bytes",
       rest ? strlen(rest) : 0);
    comes("next", "the one behind it is whole");
    put("a\nb\nc", 5);
    size_t n = 0;
    const char *all = lines_all(&l, &n);
    ok(n == 4 && !memcmp(all, "a\nb\n", 4), "all whole ones at once: %zu bytes", n);
    lines_all(&l, &n);
    ok(n == 0, "once");
    put("d\n", 2);
    comes("cd", "then what was begun");
    close(ends[1]);
    ok(lines_read(&l, ends[0]) == 0, "the end");
    return done_testing();
}
