/* The profile database: rows, keys, interpolation, refusal of other files, and its speed.
 */
#include "common/file.h"
#include "common/mem.h"
#include "common/progress.h"
#include "cost/profile.h"
#include "program/program.h"
#include "tap.h"

#include <math.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64], path[128];

static struct profile *open_or_die(bool create) {
    struct err err = {0};
    struct profile *p = profile_open(path, create, &err);
    if (!p) {
        printf("Bail out! %s\n", err.msg);
        exit(1);
    }
    return p;
}

static int put_op(struct profile *p, const char *device, const char *instr,
                  const char *shape, double us) {
    struct profile_op row = {.device = device,
                             .instr = instr,
                             .shape = shape,
                             .dtype = "f32",
                             .median_us = us,
                             .spread = 0.01,
                             .repeats = 9,
                             .source = "measured"};
    return profile_put_op(p, &row, NULL);
}

static struct profile_time op_time(const struct profile_times *t, enum opcode code,
                                   union instr_n n) {
    return profile_op_time(t, &(struct instr_key){code, DTYPE_f32, n});
}

static int put_comm(struct profile *p, const char *name, int64_t group, int64_t stride,
                    int64_t groups, const char *link, int64_t bytes, double us) {
    struct profile_comm row = {.device = "cpu-1t",
                               .collective = name,
                               .group_size = group,
                               .stride = stride,
                               .groups = groups,
                               .link = link,
                               .bytes = bytes,
                               .median_us = us,
                               .repeats = 5,
                               .source = "measured"};
    return profile_put_comm(p, &row, NULL);
}

static void sql(const char *text) {
    sqlite3 *db;
    sqlite3_open(path, &db);
    char *message = NULL;
    if (sqlite3_exec(db, text, NULL, NULL, &message) != SQLITE_OK)
        printf("# %s\n", message);
    sqlite3_free(message);
    sqlite3_close(db);
}

static bool near(double a, double b) {
    return fabs(a - b) < 1e-9 * (1 + fabs(b));
}

/* ---- rows and keys ------------------------------------------------------- */

static void test_rows(void) {
    struct err err = {0};
    struct profile *p = open_or_die(true);
    ok(!profile_has_op(p, "cpu-1t", "linear", "8,4,2,0,1", "f32"),
       "a new database holds nothing");
    ok(put_op(p, "cpu-1t", "linear", "8,4,2,0,1", 12.5) == 0, "a row is written");
    ok(profile_has_op(p, "cpu-1t", "linear", "8,4,2,0,1", "f32"), "and found");
    ok(!profile_has_op(p, "cpu-2t", "linear", "8,4,2,0,1", "f32"),
       "not on another device kind");
    ok(put_op(p, "cpu-1t", "linear", "8,4,2,0,1", 99) == 0, "writing it again is no error");
    ok(put_op(p, "cpu-1t", "linear", "8,4,2,1,1", (double)NAN) < 0,
       "a time that is no number is refused");
    struct profile_times *t = profile_load(p, NULL, &err);
    ok(t && near(op_time(t, I_linear, (union instr_n){.v = {8, 4, 2, 0, 1}}).us, 12.5),
       "the first measurement stays");
    ok(t && op_time(t, I_linear, (union instr_n){.v = {8, 4, 2, 1, 1}}).us == -1,
       "other shapes: -1");
    ok(t && op_time(t, I_input, (union instr_n){.v = {8}}).us == 0, "input is free");
    ok(t && !strcmp(profile_times_device(t), "cpu-1t"), "the only kind is taken");
    profile_times_destroy(t);
    put_op(p, "cpu-2t", "linear", "8,4,2,0,1", 7);
    ok(!profile_load(p, NULL, &err) && err.status == EXIT_INPUT &&
           strstr(err.msg, "cpu-2t"),
       "of two kinds one must be named: %s", err.msg);
    ok(!profile_load(p, "gpu", &err) && strstr(err.msg, "cpu-1t, cpu-2t"),
       "an unknown kind: %s", err.msg);
    profile_close(p);
}

static void test_curves(void) {
    struct profile *p = open_or_die(true);
    for (int k = 10; k <= 14; k += 2) {
        char shape[64];
        snprintf(shape, sizeof shape, "%d", 1 << k);
        put_op(p, "curve", "gelu", shape, 3 + (1 << k) * 1e-3);
        for (int inner = 4; inner <= 256; inner *= 64) {
            snprintf(shape, sizeof shape, "%d,%d", 1 << k, inner);
            put_op(p, "curve", "copy", shape, inner + (1 << k) * 1e-3);
        }
    }
    struct profile_times *t = profile_load(p, "curve", NULL);
    ok(near(op_time(t, I_gelu, (union instr_n){.v = {4096}}).us, 3 + 4.096),
       "a measured size");
    ok(near(op_time(t, I_gelu, (union instr_n){.v = {3000}}).us, 3 + 3.0),
       "between two sizes: a line");
    ok(near(op_time(t, I_gelu, (union instr_n){.v = {7}}).us, 3 + 1.024),
       "below the smallest: its time");
    ok(op_time(t, I_gelu, (union instr_n){.v = {16385}}).us == -1, "above the largest: -1");
    ok(op_time(t, I_relu, (union instr_n){.v = {1024}}).us == -1,
       "another instruction: -1");
    ok(near(op_time(t, I_copy, (union instr_n){.v = {2000, 8}}).us, 4 + 2.0),
       "inner 8 is nearer to 4");
    ok(near(op_time(t, I_copy, (union instr_n){.v = {2000, 2000}}).us, 256 + 2.0),
       "inner 2000 is nearest to 256");
    profile_times_destroy(t);
    profile_close(p);
}

static void test_comm(void) {
    struct profile *p = open_or_die(true);
    put_comm(p, "all_reduce", 4, 1, 1, "node", 1024, 10);
    put_comm(p, "all_reduce", 4, 1, 2, "node", 1024, 20);
    put_comm(p, "all_reduce", 4, 1, 2, "node", 4096, 50);
    put_comm(p, "all_reduce", 4, 8, 1, "node", 4096, 80);
    put_comm(p, "p2p", 2, 1, 1, "cross", 4096, 5);
    struct profile_overlap half = {"cpu-1t", "p2p", "cross", 0.5};
    profile_put_overlap(p, &half, NULL);
    struct profile_comm key = {.device = "cpu-1t",
                               .collective = "all_reduce",
                               .group_size = 4,
                               .stride = 1,
                               .groups = 2,
                               .link = "node",
                               .bytes = 4096};
    ok(profile_has_comm(p, &key), "a collective's row is found by its whole key");
    key.bytes = 2048;
    ok(!profile_has_comm(p, &key), "and no other");
    struct profile_times *t = profile_load(p, "cpu-1t", NULL);
    ok(near(profile_comm_time(t, "all_reduce", 4, 1, false, 1024).us, 20),
       "of several numbers of groups the largest counts");
    ok(near(profile_comm_time(t, "all_reduce", 4, 1, false, 2048).us, 30),
       "a line between sizes");
    ok(near(profile_comm_time(t, "all_reduce", 4, 1, false, 16).us, 20),
       "small: the smallest time");
    ok(profile_comm_time(t, "all_reduce", 4, 1, false, 8192).us == -1, "large: -1");
    ok(near(profile_comm_time(t, "all_reduce", 4, 16, false, 4096).us, 80),
       "the nearest stride");
    ok(profile_comm_time(t, "all_reduce", 2, 1, false, 1024).us == -1,
       "another group size: -1");
    ok(profile_comm_time(t, "all_reduce", 4, 1, true, 1024).us == -1, "another link: -1");
    ok(profile_comm_time(t, "all_reduce", 1, 1, true, 1024).us == 0,
       "a group of one is free");
    ok(near(profile_overlap_of(t, "p2p", true), 0.5), "overlap");
    ok(profile_overlap_of(t, "p2p", false) == 0, "nothing hides unless measured");
    profile_times_destroy(t);
    profile_close(p);
}

/* ---- algorithms, and files without them ----------------------------------- */

static struct library_algorithm algorithm_row(const char *problem, int64_t library,
                                              const char *algorithm) {
    struct library_algorithm row = {.device = "h100",
                                    .library = library,
                                    .shape = "8,4,2",
                                    .dtype = "bf16",
                                    .dtype_y = "f32",
                                    .workspace_bytes = 512,
                                    .least_us = 2.5};
    snprintf(row.problem, sizeof row.problem, "%s", problem);
    snprintf(row.algorithm, sizeof row.algorithm, "%s", algorithm);
    return row;
}

/* As version 2 had it, with one row of this library. */
#define VERSION_2                                                                          \
    "CREATE TABLE product (device, library, shape, dtype, dtype_y, algorithm, workspace, " \
    "least_us, machine, measured_at);"                                                     \
    "INSERT INTO product SELECT device, 130300, shape, dtype, dtype_y, algorithm, "        \
    "workspace, least_us, machine, measured_at FROM algorithm LIMIT 1;"                    \
    "DROP TABLE algorithm; PRAGMA user_version = 2;"                                       \
    "UPDATE meta SET value = 'weft-profile/2' WHERE key = 'format';"

static void test_version_2(const struct library_algorithm *added) {
    struct profile_algorithms all = {0};
    sql(VERSION_2);
    struct profile *p = open_or_die(false);
    int rc = profile_load_algorithms(p, &all, NULL);
    ok(rc == 0 && all.n == 1 && !strcmp(all.p[0].problem, "product") &&
           all.p[0].library == 130300,
       "of version 2 its products are read");
    all.n = 0;
    profile_close(p);
    p = open_or_die(true);
    rc = profile_put_algorithm(p, added, NULL) | profile_load_algorithms(p, &all, NULL);
    ok(rc == 0 && all.n == 2, "and kept when it is opened to be written to");
    arr_release(&all);
    profile_close(p);
}

static void test_algorithms(void) {
    struct profile_algorithms all = {0};
    struct profile *p = open_or_die(true);
    const struct library_algorithm rows[] = {
        algorithm_row("conv2d", 91900, "own"), algorithm_row("product", 130100, "1,2"),
        algorithm_row("product", 130100, "3,4"), algorithm_row("product", 130200, "5,6")};
    int rc = 0;
    for (int i = 0; i < 4; i++)
        rc |= profile_put_algorithm(p, &rows[i], NULL);
    rc |= profile_load_algorithms(p, &all, NULL);
    ok(rc == 0 && all.n == 3, "a problem has one row for each version of the library");
    ok(all.n == 3 && !memcmp(&all.p[0], &rows[0], sizeof *rows) &&
           !memcmp(&all.p[1], &rows[1], sizeof *rows) &&
           !memcmp(&all.p[2], &rows[3], sizeof *rows),
       "the first one stays, and is read as it was written");
    arr_release(&all);
    profile_close(p);
    test_version_2(&rows[0]);
    sql("DROP TABLE algorithm; PRAGMA user_version = 1;"
        "UPDATE meta SET value = 'weft-profile/1' WHERE key = 'format';");
    p = open_or_die(false);
    rc = profile_load_algorithms(p, &all, NULL);
    ok(rc == 0 && all.n == 0, "a file of version 1 is read, and knows no algorithms");
    profile_close(p);
    p = open_or_die(true);
    rc = profile_put_algorithm(p, &rows[0], NULL) | profile_load_algorithms(p, &all, NULL);
    ok(rc == 0 && all.n == 1, "it has room for them when it is opened to be written to");
    arr_release(&all);
    profile_close(p);
}

/* ---- what is refused ----------------------------------------------------- */

static void write_file(const char *text, size_t n) {
    FILE *f = fopen(path, "wb");
    fwrite(text, 1, n, f);
    fclose(f);
}

static void refused(bool create, int status, const char *want, const char *what) {
    struct err err = {0};
    struct profile *p = profile_open(path, create, &err);
    struct profile_times *t = p ? profile_load(p, NULL, &err) : NULL;
    ok(!t && err.status == status && strstr(err.msg, want), "%s: %s", what, err.msg);
    ok(!strncmp(err.msg, path, strlen(path)), "the message begins with the file");
    profile_times_destroy(t);
    profile_close(p);
}

static void test_refusals(void) {
    struct err err = {0};
    unlink(path);
    ok(!profile_open(path, false, &err) && err.status == EXIT_INPUT &&
           strstr(err.hint, "weft-profile-op"),
       "a missing file hints at the profiler: %s (%s)", err.msg, err.hint);
    ok(access(path, F_OK) != 0, "and is not made");
    write_file("", 0);
    refused(false, EXIT_INPUT, "empty", "an empty file is no profile");
    char text[4096];
    memset(text, 'x', sizeof text);
    write_file(text, sizeof text);
    refused(false, EXIT_INPUT, "not a weft profile", "a text file");
    refused(true, EXIT_INPUT, "not a weft profile", "a text file, to be written to");
    unlink(path);
    sql("CREATE TABLE t (x);");
    refused(true, EXIT_INPUT, "another kind", "a database of another kind");
    unlink(path);
    profile_close(open_or_die(true));
    refused(false, EXIT_INPUT, "holds no measurements", "an empty profile");
    sql("PRAGMA user_version = 4;");
    refused(false, EXIT_INPUT, "is version 4, this weft reads 3", "a later version");
    sql("PRAGMA user_version = 3; DROP TABLE op;");
    refused(false, EXIT_INPUT, "no such table", "a table is missing");
    unlink(path);
    snprintf(path, sizeof path, "%s", folder);
    refused(true, EXIT_SYSTEM, "cannot write", "a folder cannot be written");
    snprintf(path, sizeof path, "%s/none/p.db", folder);
    refused(true, EXIT_SYSTEM, "cannot write", "no such folder");
    snprintf(path, sizeof path, "%s/p.db", folder);
}

static void test_edited_rows(void) {
    static const char *const bad[] = {"8,4,2,0",
                                      "8,4,2,0,1,1",
                                      "8,4,x,0,1",
                                      "",
                                      "8,4,,0,1",
                                      "8,4,-2,0,1",
                                      "99999999999999999999,4,2,0,1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        unlink(path);
        struct profile *p = open_or_die(true);
        put_op(p, "cpu-1t", "linear", bad[i], 1);
        profile_close(p);
        refused(false, EXIT_INPUT, "expected the shape", "a shape that is none");
    }
    unlink(path);
    struct profile *p = open_or_die(true);
    put_op(p, "cpu-1t", "linear", "8,4,2,0,1", 1);
    put_op(p, "cpu-1t", "instruction-of-tomorrow", "1,2,3,4,5,6,7", 1);
    profile_close(p);
    p = open_or_die(false);
    struct profile_times *t = profile_load(p, NULL, NULL);
    ok(t != NULL, "unknown instructions are passed over");
    profile_times_destroy(t);
    profile_close(p);
}

/* Every truncation and many single-byte errors: a message or a result, never a crash. */
static void test_damage(void) {
    unlink(path);
    struct profile *p = open_or_die(true);
    profile_begin(p, NULL);
    for (int i = 0; i < 200; i++) {
        char shape[64];
        snprintf(shape, sizeof shape, "%d,4,2,0,1", i + 1);
        put_op(p, "cpu-1t", "linear", shape, i);
    }
    profile_commit(p, NULL);
    profile_close(p);
    size_t n;
    char *whole = file_read(path, 0, &n, NULL);
    int survived = 0, tried = 0;
    for (size_t i = 0; i < 300; i++) {
        char *copy = malloc(n);
        memcpy(copy, whole, n);
        size_t cut = i % 3 ? n : n * i / 300;
        if (i % 3)
            copy[i * 2654435761u % (i % 3 == 1 ? 200 : n)] ^= (char)(1 + i % 255);
        write_file(copy, cut);
        free(copy);
        struct err err = {0};
        struct profile *q = profile_open(path, false, &err);
        struct profile_times *t = q ? profile_load(q, NULL, &err) : NULL;
        tried++;
        /* Measuring into a damaged file is no remedy. */
        survived += t ? 1
                      : err.status != 0 && err.msg[0] != '\0' &&
                            !(strstr(err.msg, "damaged") && err.hint[0]);
        profile_times_destroy(t);
        profile_close(q);
    }
    free(whole);
    ok(survived == tried, "%d damaged files: each is read or refused with a message",
       tried);
}

/* ---- speed, names -------------------------------------------------------- */

static void test_speed(void) {
    unlink(path);
    struct profile *p = open_or_die(true);
    profile_begin(p, NULL);
    for (int i = 0; i < 20000; i++) {
        char shape[64];
        snprintf(shape, sizeof shape, "%d,%d,768,0,1", 1 + i / 100, 1 + i % 100);
        put_op(p, "cpu-1t", i % 2 ? "linear" : "linear_dw", shape, 1 + i);
    }
    profile_commit(p, NULL);
    profile_close(p);
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        double start = now_s();
        p = open_or_die(false);
        struct profile_times *t = profile_load(p, NULL, NULL);
        double took = now_s() - start;
        best = took < best ? took : best;
        if (i == 0)
            ok(near(op_time(t, I_linear, (union instr_n){.v = {200, 100, 768, 0, 1}}).us,
                    20000),
               "20000 rows are loaded");
        profile_times_destroy(t);
        profile_close(p);
    }
    printf("# opening and loading 20000 rows: %.1f ms\n", 1e3 * best);
    ok(best < 0.5, "loading 20000 rows is fast");
}

static void test_device_kind(void) {
    char buf[64];
    ok(!strcmp(profile_device_kind(2, 1, 2, buf, sizeof buf), "cpu-2t"),
       "one rank, two threads");
    ok(!strcmp(profile_device_kind(1, 2, 2, buf, sizeof buf), "cpu-1t"),
       "two ranks on two cores");
    ok(!strcmp(profile_device_kind(1, 8, 2, buf, sizeof buf), "cpu-1t-over4"),
       "eight ranks on two cores");
}

int main(void) {
    snprintf(folder, sizeof folder, "/tmp/weft-profile-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof path, "%s/p.db", folder);
    test_rows();
    test_curves();
    test_comm();
    test_algorithms();
    test_refusals();
    test_edited_rows();
    test_damage();
    test_speed();
    test_device_kind();
    unlink(path);
    rmdir(folder);
    return done_testing();
}
