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
    wrong("{\"a\":" T("F32", "[4294967296,4294967296]", "0", "4") "}", 4,
          "\"a\": shape: the tensor is too large");
    wrong("{\"a\":" T("F32", "[1]", "4", "0") "}", 4, "not inside");
    wrong("{\"a\":" T("F32", "[1]", "4", "8") "}", 4, "not inside");
    wrong("{\"a\":" T("F32", "[1]", "4", "8") "}", 8, "behind a gap");
    wrong("{\"a\":" T("F32", "[2]", "0", "8") ",\"b\":" T("F32", "[2]", "4", "12") "}", 12,
          "\"b\": data_offsets: begins at 4, inside another");
    wrong("{\"a\":" T("F32", "[2]", "0", "8") ",\"b\":" T("F32", "[2]", "0", "8") "}", 8,
          "\"b\": data_offsets: begins at 0, inside another");
    wrong("{\"a\":" T("F32", "[1]", "-4", "0") "}", 4, "\"a\": data_offsets[0]: expected");
    wrong(
        "{\"a\":" T("F32", "[1]", "9223372036854775800", "9223372036854775804") "}", 4,
        "\"a\": data_offsets: 9223372036854775800..9223372036854775804 is not inside the 4");
    wrong("{\"a\":" T("F32", "[1]", "0", "4") ",\"a\":" T("F32", "[1]", "4", "8") "}", 8,
          "duplicate key \"a\"");
    wrong("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4,
          "unknown key");
    wrong("{\"__metadata__\":[]}", 0, "__metadata__");
    wrong("{\"__metadata__\":{\"a\":1}}", 0, "__metadata__");
    wrong("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4,
          "data_offsets");
}

/* Whatever the first bytes are, nothing beyond the end is read, and the message says what it takes
 * them for. */
static void test_lengths(void) {
    static const struct {
        const char *bytes;
        size_t size;
        const char *want;
    } cases[] = {
        {"\0\0\0\0\0\0\0", 7, "7 bytes, too short"},
        {"\0\0\0\0\0\0\0\0", 8, "no safetensors file: byte 8: expected the '{'"},
        {"\0\0\0\0\0\0\0\0{}", 10, "no safetensors file: byte 8: expected the '{'"},
        {"\x3\0\0\0\0\0\0\0{}", 10,
         "cut short, or no safetensors file: byte 0: a header of 3 "
         "bytes, and 2 follow"},
        {"\x1\xe1\xf5\x5\0\0\0\0{}", 10,
         "no safetensors file: byte 0: a header of 100000001 "
         "bytes, expected at most 100000000"},
        {"\xff\xff\xff\xff\xff\xff\xff\xff{}", 10,
         "a header of 18446744073709551615 bytes"},
        {"\0\0\0\0\0\0\0\x80{}", 10, "a header of 9223372036854775808 bytes"},
        {"PK\3\4\0\0\0\0\0\0", 10, "cut short, or no safetensors file"},
        {"version https://git-lfs", 23, "no safetensors file: byte 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct st_file f;
        struct err err = {0};
        unsigned char *bytes = malloc(cases[i].size); /* its end is where sanitizers look */
        memcpy(bytes, cases[i].bytes, cases[i].size);
        ok(st_parse(&f, bytes, (int64_t)cases[i].size, &err) < 0 &&
               err.status == EXIT_INPUT && strstr(err.msg, cases[i].want),
           "wrong: %s", err.msg);
        free(bytes);
    }
}

int main(void) {
    if (!mkdtemp(dir))
        return 4;
    test_hash();
    test_round_trip();
    test_headers();
    test_lengths();
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) ? 1 : done_testing();
}
