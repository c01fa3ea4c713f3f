/* The safetensors format: round trip, the hash, and every way a file can be wrong. */
#include "checkpoint/safetensors.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct st_tensor *find(const struct st_file *f, const char *name) {
    for (int64_t i = 0; i < f->tensors; i++)
        if (!strcmp(f->tensor[i].name, name))
            return &f->tensor[i];
    return NULL;
}

static char dir[64] = "/tmp/weft-st-XXXXXX";

static uint64_t hash_of(const void *p, size_t n, size_t step) {
    struct xxh64 h;
    xxh64_begin(&h);
    for (size_t i = 0; i < n; i += step)
        xxh64_add(&h, (const char *)p + i, n - i < step ? n - i : step);
    return xxh64_end(&h);
}

static void test_hash(void) {
    const char *text = "Nobody inspects the spammish repetition";
    ok(hash_of("", 0, 1) == 0xef46db3751d8e999u, "XXH64 of nothing");
    ok(hash_of("abc", 3, 3) == 0x44bc2cf5ad770999u, "XXH64 of abc");
    ok(hash_of(text, strlen(text), 100) == 0xfbcea83c8a378bf1u, "XXH64 of a line");
    unsigned char bytes[300];
    int bad = 0;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * i >> 3);
    for (size_t step = 1; step < 100; step++)
        bad += hash_of(bytes, 300, step) != hash_of(bytes, 300, 300);
    ok(!bad, "XXH64 in pieces of any size");
}

static void test_round_trip(void) {
    char path[128];
    snprintf(path, sizeof path, "%s/a.safetensors", dir);
    float a[24], b[1] = {42}, c[5];
    for (int i = 0; i < 24; i++)
        a[i] = (float)i / 3;
    for (int i = 0; i < 5; i++)
        c[i] = -(float)i;
    struct st_tensor t[] = {{.name = "b [0:1,2:3]", .dims = 3, .shape = {2, 3, 4}},
                            {.name = "scalar"},
                            {.name = "\xc3\xa9t\xc3\xa9", .dims = 1, .shape = {5}},
                            {.name = "none", .dims = 2, .shape = {0, 7}}};
    const char *meta[] = {"step", "100", NULL};
    struct st_writer w;
    struct st_file f;
    struct err err = {0};
    int64_t bytes;
    uint64_t hash;
    ok(st_create(&w, path, t, 4, meta, &err) == 0 && st_append(&w, a, 40, &err) == 0 &&
           st_append(&w, (char *)a + 40, sizeof a - 40, &err) == 0 &&
           st_append(&w, b, sizeof b, &err) == 0 && st_append(&w, c, sizeof c, &err) == 0 &&
           st_finish(&w, &bytes, &hash, &err) == 0,
       "write %s", err.msg);
    ok(st_open(&f, path, &err) == 0 && f.tensors == 4 && f.size == bytes &&
           hash_of(f.bytes, (size_t)f.size, 1000) == hash,
       "open; size and hash are those of the file %s", err.msg);
    const struct st_tensor *x = find(&f, "b [0:1,2:3]"), *y = find(&f, "scalar"),
                           *z = find(&f, t[2].name), *e = find(&f, "none");
    ok(x && x->dims == 3 && x->shape[2] == 4 && x->dtype == ST_F32 &&
           !memcmp(f.bytes + x->offset, a, sizeof a) && x->offset % 64 == 0 &&
           x->offset == t[0].offset,
       "a tensor of three dims");
    ok(y && y->dims == 0 && !memcmp(f.bytes + y->offset, b, 4), "a scalar");
    ok(z && !memcmp(f.bytes + z->offset, c, sizeof c), "a name in UTF-8");
    ok(e && e->bytes == 0 && !find(&f, "absent"), "an empty tensor, an absent one");
    st_close(&f);
    ok(st_create(&w, path, t, 4, NULL, &err) == 0 && st_append(&w, a, 4, &err) == 0 &&
           st_finish(&w, &bytes, &hash, &err) < 0 && err.status == EXIT_SYSTEM,
       "incomplete: %s", err.msg);
    ok(access(path, F_OK) < 0, "an incomplete file is removed");
    ok(st_create(&w, path, t, 1, NULL, &err) == 0 && st_append(&w, a, 97, &err) < 0,
       "too much: %s", err.msg);
    st_abort(&w);
    t[1].name = t[0].name;
    ok(st_create(&w, path, t, 2, NULL, &err) < 0, "one name twice: %s", err.msg);
    t[1].name = "\xff";
    ok(st_create(&w, path, t, 2, NULL, &err) < 0, "a name that is not UTF-8: %s", err.msg);
    ok(st_create(&w, "/nowhere/a", t, 1, NULL, &err) < 0 && err.status == EXIT_SYSTEM, "%s",
       err.msg);
    ok(st_open(&f, dir, &err) < 0 && err.status == EXIT_INPUT, "%s", err.msg);
}

/* A file of this header and n bytes of data. */
static int parse(const char *header, size_t n, struct err *err) {
    uint64_t size = strlen(header);
    unsigned char *bytes = calloc(1, 8 + size + n);
    memcpy(bytes, &size, 8);
    memcpy(bytes + 8, header, size);
    struct st_file f;
    int rc = st_parse(&f, bytes, (int64_t)(8 + size + n), err);
    if (rc == 0)
        st_close(&f);
    free(bytes);
    return rc;
}

static void wrong(const char *header, size_t n, const char *want) {
    struct err err = {0};
    int rc = parse(header, n, &err);
    ok(rc < 0 && err.status == EXIT_INPUT && strstr(err.msg, want), "wrong: %s", err.msg);
}

#define T(dtype, shape, begin, end)                                                        \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static void test_headers(void) {
    struct err err = {0};
    ok(parse("{}", 0, &err) == 0, "no tensors");
    ok(parse("{\"a\":" T("BF16", "[3]", "2", "8") ",\"b\":" T("U8", "[2]", "0", "2") "}   ",
             8, &err) == 0,
       "tensors in any order, blanks at the end %s", err.msg);
    wrong("", 0, "byte 8");
    wrong(" {}", 0, "byte 8");
    wrong("{\"a\":", 0, "header:1");
    wrong("{}{}", 0, "header:1");
    wrong("[]", 0, "byte 8");
    wrong("{}", 4, "4 bytes of data");
    wrong("{\"a\":1}", 0, "\"a\"");
    wrong("{\"a\":{}}", 0, "dtype: missing");
    wrong("{\"a\":" T("F31", "[1]", "0", "4") "}", 4, "F31");
    wrong("{\"a\":" T("F32", "[-1]", "0", "4") "}", 4, "shape[0]");
    wrong("{\"a\":" T("F32", "[1.5]", "0", "4") "}", 4, "shape[0]");
    wrong("{\"a\":" T("F32", "1", "0", "4") "}", 4, "shape: expected an array");
    wrong("{\"a\":" T("F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, "at most 8");
    wrong("{\"a\":" T("F32", "[2]", "0", "4") "}", 4, "shape needs 8");
    wrong("{\"a\":" T("F32", "[4294967296,4294967296]", "0", "4") "}", 4, "needs -1");
    wrong("{\"a\":" T("F32", "[1]", "4", "0") "}", 4, "not inside");
    wrong("{\"a\":" T("F32", "[1]", "4", "8") "}", 4, "not inside");
    wrong("{\"a\":" T("F32", "[1]", "4", "8") "}", 8, "behind a gap");
    wrong("{\"a\":" T("F32", "[2]", "0", "8") ",\"b\":" T("F32", "[2]", "4", "12") "}", 12,
          "inside another");
    wrong("{\"a\":" T("F32", "[1]", "0", "4") ",\"a\":" T("F32", "[1]", "4", "8") "}", 8,
          "duplicate");
    wrong("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4,
          "unknown key");
    wrong("{\"__metadata__\":[]}", 0, "__metadata__");
    wrong("{\"__metadata__\":{\"a\":1}}", 0, "__metadata__");
    wrong("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4,
          "data_offsets");
    struct st_file f;
    unsigned char few[8] = {0}, huge[16] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    ok(st_parse(&f, few, 7, &err) < 0, "%s", err.msg);
    ok(st_parse(&f, huge, 16, &err) < 0, "%s", err.msg);
    ok(st_parse(&f, few, 8, &err) < 0, "%s", err.msg);
}

int main(void) {
    if (!mkdtemp(dir))
        return 4;
    test_hash();
    test_round_trip();
    test_headers();
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) ? 1 : done_testing();
}
