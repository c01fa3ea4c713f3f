/* data.h - what the tests of data share: files in a folder of their own, sources opened and refused. */
#ifndef WEFT_TEST_DATA_H
#define WEFT_TEST_DATA_H

#include "data/data.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

/* mkdtemp makes it. */
static char dir[64] = "/tmp/weft-data-XXXXXX";

/* A path in the folder; the last eight stay. */
static const char *path_of(const char *name) {
    static char path[8][128];
    static int turn;
    char *p = path[turn++ % 8];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

static const char *write_file(const char *name, const void *bytes, size_t n) {
    const char *path = path_of(name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f))
        exit(4);
    return path;
}

static struct data *open_with(struct data_spec spec, const char *source) {
    struct data *d;
    struct err err = {0};
    spec.source = source;
    if (data_open(&d, &spec, &err) < 0)
        printf("# %s\n", err.msg);
    return d;
}

/* Opening fails with EXIT_INPUT and a message that has both texts. */
static void refused(struct data_spec spec, const char *source, const char *a,
                    const char *b) {
    struct data *d;
    struct err err = {0};
    spec.source = source;
    int rc = data_open(&d, &spec, &err);
    ok(rc < 0 && !d && err.status == EXIT_INPUT && strstr(err.msg, a) && strstr(err.msg, b),
       "refused: %s", err.msg);
    data_close(d);
}

#endif
