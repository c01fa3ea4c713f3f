/* Files written and read by several threads: the bytes, hashes and refusals of one. */
#include "checkpoint/safetensors.h"
#include "common/half.h"
#include "common/rng.h"
#include "tap.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TENSORS = 40, FLOATS = 5000000 };

static char top[64] = "/tmp/weft-bulk-XXXXXX";
static struct st_tensor tensor[TENSORS];
static const float *data[TENSORS];
static const char *const metadata[] = {"a", "b", NULL};
static float numbers[FLOATS],
    hidden[FLOATS]; /* "on a device": what lies at hidden is at numbers */

static char *path_of(const char *name) {
    static char path[4][100];
    static int turn;
    char *p = path[turn++ % 4];
    snprintf(p, 100, "%s/%s", top, name);
    return p;
}

/* Tensors of 1 to 400000 floats, one after the other in the numbers; the last takes what is left. */
static void make_tensors(void) {
    static char names[TENSORS][8];
    struct rng rng = {.seed = 4};
    int64_t at = 0;
    for (int64_t i = 0; i < FLOATS; i++)
        numbers[i] = (float)i - 77.5f;
    for (int i = 0; i < TENSORS; i++) {
        int64_t n = i % 3 ? 1 + rng_below(&rng, 50) : 1 + rng_below(&rng, 200000);
        n = i == TENSORS - 1 ? FLOATS - at : n;
        snprintf(names[i], sizeof names[i], "t%d", i);
        tensor[i] = (struct st_tensor){.name = names[i], .dims = 1, .shape = {n}};
        data[i] = numbers + at;
        at += n;
    }
}

static char *contents(const char *path, int64_t *n) {
    struct stat st;
    FILE *f = fopen(path, "rb");
    if (!f || fstat(fileno(f), &st) < 0)
        return NULL;
    char *p = malloc((size_t)st.st_size);
    *n = (int64_t)fread(p, 1, (size_t)st.st_size, f);
    fclose(f);
    return p;
}

static bool same_files(const char *a, const char *b) {
    int64_t n = 0, m = 1;
    char *p = contents(a, &n), *q = contents(b, &m);
    bool same = p && q && n == m && !memcmp(p, q, (size_t)n);
    free(p);
    free(q);
    return same;
}

/* Where fetches must come from, and how many there were. */
struct device {
    pthread_t thread;
    bool elsewhere;
    int64_t calls, fails_at;
};

static int fetch(void *ctx, void *to, const void *from, int64_t bytes, struct err *err) {
    struct device *d = ctx;
    d->elsewhere |= !pthread_equal(d->thread, pthread_self());
    if (d->calls++ == d->fails_at)
        return err_system(err, "the device is gone");
    memcpy(to, numbers + ((const float *)from - hidden), (size_t)bytes);
    return 0;
}

static int write_as(const char *name, const struct bulk_way *way, struct bulk_done *done,
                    struct err *err) {
    const void *there[TENSORS];
    for (int i = 0; i < TENSORS; i++)
        there[i] = way->fetch ? hidden + (data[i] - numbers) : data[i];
    struct st_source src = {tensor, there, NULL, TENSORS, metadata};
    return st_write(path_of(name), &src, way, done, err);
}

/* By the stream that knows no threads. */
static void write_plain(struct bulk_done *done) {
    struct st_writer w;
    struct err err = {0};
    int rc = st_create(&w, path_of("plain"), tensor, TENSORS, metadata, &err);
    for (int i = 0; i < TENSORS && rc == 0; i++)
        rc = st_append(&w, data[i], tensor[i].bytes, &err);
    if (rc == 0)
        rc = st_finish(&w, &done->bytes, &done->hash, &err);
    ok(rc == 0, "a file out of a stream, %lld bytes %s", (long long)done->bytes, err.msg);
}

static void test_same(const struct bulk_done *plain) {
    static const int threads[] = {0, 1, 2, 3, 16};
    for (int i = 0; i < 10; i++) {
        struct device d = {.thread = pthread_self(), .fails_at = -1};
        atomic_llong moved = 0;
        struct bulk_way way = {.threads = threads[i % 5], .done = &moved, .ctx = &d};
        way.fetch = i < 5 ? NULL : fetch;
        struct bulk_done done;
        struct err err = {0};
        uint64_t hash = 0;
        int rc = write_as("many", &way, &done, &err);
        ok(rc == 0 && done.bytes == plain->bytes && done.hash == plain->hash &&
               done.finite && moved == done.bytes &&
               same_files(path_of("plain"), path_of("many")),
           "the same of %d threads%s %s", way.threads, way.fetch ? ", fetched" : "",
           err.msg);
        ok(!d.elsewhere && (d.calls > 0) == (way.fetch != NULL),
           "fetched by the calling thread alone");
        moved = 0;
        ok(bulk_hash(path_of("many"), done.bytes, &way, &hash, &err) == 0 &&
               hash == plain->hash && moved == done.bytes,
           "and read %s", err.msg);
    }
}

static void test_finite(void) {
    static const int64_t at[] = {0, FLOATS / 2, FLOATS - 1};
    for (int i = 0; i < 6; i++) {
        float kept = numbers[at[i % 3]];
        struct bulk_done done;
        struct err err = {0};
        struct bulk_way way = {.threads = 3};
        numbers[at[i % 3]] = i < 3 ? NAN : -INFINITY;
        ok(write_as("many", &way, &done, &err) == 0 && !done.finite, "%s at %lld is seen",
           i < 3 ? "NaN" : "infinity", (long long)at[i % 3]);
        numbers[at[i % 3]] = kept;
    }
    struct bulk_done done;
    float kept = numbers[9];
    numbers[9] = 3.4e38f;
    ok(write_as("many", &(struct bulk_way){.threads = 2}, &done, NULL) == 0 && done.finite,
       "a large number is a number");
    numbers[9] = kept;
}

/* Every other tensor out of numbers of 16 bits: the file has the floats that they are. */
static void test_narrow(void) {
    static uint16_t halves[FLOATS];
    enum dtype dtype[TENSORS];
    const void *there[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        const int64_t at = data[i] - numbers;
        dtype[i] = i % 3 ? (i % 3 == 1 ? DTYPE_bf16 : DTYPE_f16) : DTYPE_f32;
        for (int64_t k = at; k < at + tensor[i].shape[0] && dtype[i] != DTYPE_f32; k++) {
            const bool bf16 = dtype[i] == DTYPE_bf16;
            const float f = (float)(k % 4096) - 9.5f;
            halves[k] = bf16 ? bf16_narrow(f) : f16_narrow(f);
            numbers[k] = bf16 ? bf16_widen(halves[k]) : f16_widen(halves[k]);
        }
        there[i] = dtype[i] == DTYPE_f32 ? (const void *)data[i] : halves + at;
    }
    struct bulk_done plain = {0}, done = {0};
    struct err err = {0};
    struct st_source src = {tensor, there, dtype, TENSORS, metadata};
    write_plain(&plain);
    for (int threads = 1; threads < 4; threads++) {
        struct bulk_way way = {.threads = threads};
        int rc = st_write(path_of("narrow"), &src, &way, &done, &err);
        ok(rc == 0 && done.hash == plain.hash &&
               same_files(path_of("plain"), path_of("narrow")),
           "halves are written as floats, by %d threads %s", threads, err.msg);
    }
}

static void test_failures(const struct bulk_done *plain) {
    struct bulk_done done;
    struct err err = {0};
    uint64_t hash;
    struct bulk_way way = {.threads = 3};
    struct device d = {.thread = pthread_self(), .fails_at = 30};
    struct bulk_way fetched = {.threads = 3, .fetch = fetch, .ctx = &d};
    ok(write_as("gone", &fetched, &done, &err) < 0 && err.status == EXIT_SYSTEM &&
           access(path_of("gone"), F_OK) < 0,
       "%s", err.msg);
    struct rlimit was, few = {6 << 20, 6 << 20};
    getrlimit(RLIMIT_FSIZE, &was);
    few.rlim_max = was.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &few);
    ok(write_as("large", &way, &done, &err) < 0 && err.status == EXIT_SYSTEM &&
           strstr(err.msg, "large: cannot write: ") && access(path_of("large"), F_OK) < 0,
       "%s", err.msg);
    setrlimit(RLIMIT_FSIZE, &was);
    ok(write_as("none/a", &way, &done, &err) < 0 && err.status == EXIT_SYSTEM, "%s",
       err.msg);
    ok(bulk_hash(path_of("plain"), plain->bytes + 1, &way, &hash, &err) < 0 &&
           err.status == EXIT_INPUT && strstr(err.msg, "plain: truncated"),
       "%s", err.msg);
    ok(bulk_hash(top, 10, &way, &hash, &err) < 0 && err.status == EXIT_SYSTEM, "%s",
       err.msg);
    ok(bulk_hash(path_of("none"), 10, &way, &hash, &err) < 0 && err.status == EXIT_SYSTEM,
       "%s", err.msg);
    ok(bulk_hash(path_of("plain"), 0, &way, &hash, &err) == 0, "nothing has a hash, too");
}

int main(void) {
    if (!mkdtemp(top))
        return 4;
    struct bulk_done plain = {0};
    make_tensors();
    write_plain(&plain);
    test_same(&plain);
    test_finite();
    test_failures(&plain);
    test_narrow();
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", top);
    return system(command) ? 1 : done_testing();
}
