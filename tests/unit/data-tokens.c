/* Token sources: formats, windows, order, splits, slices, and what wrong files get. */
#include "common/rng.h"
#include "data.h"
#include "data/shuffle.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct data_spec base = {
    .kind = DATA_TOKENS, .seq = 8, .vocab = 50257, .validation = 0.1, .seed = 7};

/* n tokens: i * 7 % mod */
static const char *write_tokens(const char *name, bool llmc, int64_t n, int mod) {
    size_t header = llmc ? 1024 : 0;
    unsigned char *bytes = calloc(1, header + 2 * (size_t)n);
    int32_t head[3] = {20240520, 1, (int32_t)n};
    if (llmc)
        memcpy(bytes, head, sizeof head);
    for (int64_t i = 0; i < n; i++) {
        uint16_t t = (uint16_t)(i * 7 % mod);
        memcpy(bytes + header + 2 * i, &t, 2);
    }
    const char *path = write_file(name, bytes, header + 2 * (size_t)n);
    free(bytes);
    return path;
}

static void test_shuffle(void) {
    int bad = 0, fixed = 0;
    for (int64_t n = 1; n <= 300; n++) {
        char seen[300] = {0};
        for (int64_t i = 0; i < n; i++) {
            int64_t x = shuffle_at(3, (uint64_t)n, n, i);
            bad += x < 0 || x >= n || seen[x];
            seen[x < 0 || x >= n ? 0 : x] = 1;
        }
    }
    ok(!bad, "shuffle is a permutation for 1..300");
    int64_t n = 100000, big = INT64_C(1) << 61;
    char *seen = calloc((size_t)n, 1);
    for (int64_t i = 0; i < n; i++) {
        int64_t x = shuffle_at(5, 1, n, i);
        bad += seen[x]++;
        fixed += x == i;
    }
    ok(!bad && fixed < 10, "shuffle of 100000: a permutation with %d fixed points", fixed);
    for (int64_t i = 0; i < 1000; i++) {
        int64_t x = shuffle_at(5, 1, big, big - 1 - i);
        bad += x < 0 || x >= big;
    }
    ok(!bad, "shuffle of 2^61 stays inside");
    free(seen);
}

/* An epoch reads each window once, in another order than the next, and targets follow. */
static void test_epoch(const char *source, const char *format, int mod) {
    struct data *d = open_with(base, source);
    int64_t n = data_size(d, DATA_TRAIN);
    ok(n == 899 / 8 && data_size(d, DATA_VALID) == 99 / 8 &&
           !strcmp(data_info(d)->format, format) && data_info(d)->items == 1000,
       "%s: %d and %d windows", format, (int)n, (int)data_size(d, DATA_VALID));
    char seen[1000] = {0};
    int bad = 0, moved = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t x[8], y[8], next[8];
        data_tokens(d, DATA_TRAIN, i, 0, 8, x, y, NULL);
        data_tokens(d, DATA_TRAIN, i + n, 0, 8, next, NULL, NULL);
        int begin = -1;
        for (int k = 0; begin < 0 && k < 900; k++)
            begin = x[0] == k * 7 % mod && x[1] == (k + 1) * 7 % mod && !seen[k] ? k : -1;
        for (int j = 0; j < 8; j++)
            bad += x[j] != (begin + j) * 7 % mod || y[j] != (begin + j + 1) * 7 % mod;
        bad += begin < 0;
        if (begin >= 0)
            seen[begin] = 1;
        moved += memcmp(x, next, sizeof x) != 0;
    }
    ok(!bad, "%s: an epoch visits every window once", format);
    ok(moved > n / 2, "%s: the next epoch has another order", format);
    data_close(d);
}

/* Wrong tokens of those that come as narrow as they are in the file. */
static int packed_apart(const struct data *d, enum data_split split, int64_t sample,
                        int64_t first, int64_t n, const int32_t *tokens) {
    union {
        uint8_t u8[16];
        uint16_t u16[16];
        int32_t i32[16];
    } p;
    enum dtype form = data_form(d, split);
    int bad = data_packed(d, split, sample, first, n, &p, NULL) < 0;
    for (int64_t i = 0; i < n; i++)
        bad += tokens[i] != (form == DTYPE_u8    ? p.u8[i]
                             : form == DTYPE_u16 ? p.u16[i]
                                                 : p.i32[i]);
    return bad;
}

/* Ids beyond 16 bits, with and without a header; shards of both widths; and halves of them are not
 * taken for tokens. */
static void test_wide(void) {
    int32_t ids[256 + 600] = {20240801, 7, 600}, *id = ids + 256;
    uint16_t narrow[100] = {0};
    for (int i = 0; i < 600; i++)
        id[i] = i * 199 % 120000;
    struct data_spec spec = base;
    spec.vocab = 120000, spec.validation = 0;
    const char *const files[] = {write_file("wide.bin", ids, sizeof ids),
                                 write_file("wide.u32", id, sizeof ids - 1024)};
    for (int f = 0; f < 2; f++) {
        struct data *d = open_with(spec, files[f]);
        int32_t x[8], y[8];
        int bad = !d || data_info(d)->items != 600;
        for (int64_t s = 0; s < 74 && !bad; s++) {
            data_tokens(d, DATA_TRAIN, s, 0, 8, x, y, NULL);
            for (int k = 0; k < 8; k++)
                bad += y[k] != (x[k] + 199) % 120000 || (k && x[k] != y[k - 1]);
        }
        ok(!bad, "%s: ids of 32 bits", data_info(d)->format);
        data_close(d);
    }
    write_file("narrow.bin", narrow, sizeof narrow);
    char list[300];
    snprintf(list, sizeof list, "%s,%s", path_of("wide.u32"), path_of("narrow.bin"));
    struct data *d = open_with(spec, list);
    ok(d && data_info(d)->items == 700, "shards of 32 and of 16 bits");
    int bad = data_form(d, DATA_TRAIN) != DTYPE_i32;
    for (int64_t s = 0; s < data_size(d, DATA_TRAIN); s++) {
        int32_t x[8];
        data_tokens(d, DATA_TRAIN, s, 0, 8, x, NULL, NULL);
        bad += packed_apart(d, DATA_TRAIN, s, 0, 8, x);
    }
    ok(!bad, "which travel in 32");
    data_close(d);
    refused(spec, write_file("halves.bin", id, sizeof ids - 1024), "every second token",
            "32-bit tokens");
    spec.vocab = 100000;
    refused(spec, path_of("wide.u32"), "wide.u32: byte 2012: token id 100097", "100000");
    refused(spec, path_of("wide.bin"), "wide.bin: byte 3036: token id 100097", "100000");
    id[7] = -1;
    refused(spec, write_file("neg.u32", id, 400), "byte 28: token id 4294967295", "100000");
    refused(spec, write_file("odd.u32", id, 402), "402 bytes", "multiple of 4");
}

static void test_slices(const char *source, enum dtype form) {
    struct data *d = open_with(base, source);
    int bad = data_form(d, DATA_TRAIN) != form;
    for (int64_t s = 0; s < 40; s++) {
        enum data_split split = s % 2 ? DATA_TRAIN : DATA_VALID;
        int32_t x[8], y[8], a[8], b[8];
        data_tokens(d, split, s, 0, 8, x, y, NULL);
        for (int first = 0; first < 8; first++)
            for (int count = 1; first + count <= 8; count++) {
                data_tokens(d, split, s, first, count, a, b, NULL);
                bad += memcmp(a, x + first, 4 * (size_t)count) != 0;
                bad += memcmp(b, y + first, 4 * (size_t)count) != 0;
                bad += packed_apart(d, split, s, first, count, a);
                bad += packed_apart(d, split, s, first + 1, count, b);
                memset(b, 0, sizeof b);
                data_tokens(d, split, s, first, count, NULL, b, NULL);
                bad += memcmp(b, y + first, 4 * (size_t)count) != 0;
            }
    }
    ok(!bad, "%s: slices are parts of the whole window", data_info(d)->format);
    data_close(d);
}

static void test_shards(void) {
    const char *whole = write_tokens("whole.bin", false, 1000, 30011);
    uint16_t t[1000];
    for (int i = 0; i < 1000; i++)
        t[i] = (uint16_t)(i * 7 % 30011);
    write_file("a.bin", t, 2 * 5);
    write_file("b.bin", t + 5, 2 * 3);
    write_file("c.bin", t + 8, 2 * 992);
    char list[512];
    snprintf(list, sizeof list, "%s,%s,%s", path_of("a.bin"), path_of("b.bin"),
             path_of("c.bin"));
    struct data *one = open_with(base, whole), *many = open_with(base, list);
    int bad = 0;
    for (int64_t s = 0; s < 300; s++) {
        int32_t x[8], y[8], a[8], b[8];
        data_tokens(one, DATA_TRAIN, s, 0, 8, x, y, NULL);
        data_tokens(many, DATA_TRAIN, s, 0, 8, a, b, NULL);
        bad += memcmp(x, a, sizeof x) || memcmp(y, b, sizeof y);
    }
    ok(!bad, "shards read as one file");
    data_close(one);
    data_close(many);
    one = open_with(base, write_tokens("with,comma.bin", false, 100, 50));
    ok(one && data_info(one)->items == 100, "a comma in a file's own name");
    data_close(one);
    struct data_spec spec = base;
    spec.valid_source = path_of("whole.bin");
    one = open_with(spec, path_of("with,comma.bin"));
    ok(one && data_size(one, DATA_TRAIN) == 99 / 8 && data_size(one, DATA_VALID) == 999 / 8,
       "a validation source of its own");
    data_close(one);
}

static uint64_t hash_of(struct data_spec spec, const char *source) {
    struct data *d = open_with(spec, source);
    uint64_t h = d ? data_info(d)->hash[DATA_TRAIN] : 0;
    data_close(d);
    return h;
}

static void test_hash(void) {
    enum { LARGE = 40 << 20 };
    struct data_spec spec = base;
    uint64_t h = hash_of(base, write_tokens("h.bin", false, 1000, 500));
    spec.validation = 0.2;
    ok(h && h == hash_of(base, write_tokens("copy.bin", false, 1000, 500)) &&
           h != hash_of(base, write_tokens("h.bin", false, 1001, 500)) &&
           h != hash_of(base, write_tokens("h.bin", false, 1000, 499)) &&
           h != hash_of(spec, path_of("copy.bin")),
       "the hash tells content, length and share apart, not names");
    spec = base, spec.seed++;
    ok(h == hash_of(spec, path_of("copy.bin")) &&
           hash_of(spec, "synthetic") != hash_of(base, "synthetic"),
       "the seed counts where it makes the data");
    char *bytes = calloc(1, LARGE);
    base.vocab = 256;
    h = hash_of(base, write_file("large", bytes, LARGE));
    bytes[LARGE - 1] = 1;
    uint64_t last = hash_of(base, write_file("large", bytes, LARGE));
    bytes[LARGE - 1] = 0;
    uint64_t again = hash_of(base, write_file("large", bytes, LARGE));
    uint64_t shorter = hash_of(base, write_file("large", bytes, LARGE - 1));
    ok(h == again && h != last && h != shorter, "a large file, by its ends and its size");
    base.vocab = 50257;
    free(bytes);
}

/* A file that changes after it was opened. */
static void test_changed(void) {
    const char *path = write_tokens("change.bin", true, 1000, 500);
    struct data *d = open_with(base, path);
    struct err err = {0};
    int32_t x[8], y[8];
    int failed = 0, high = 0;
    unsigned char ones[2048];
    memset(ones, 0xff, sizeof ones);
    write_file("change.bin", ones, sizeof ones);
    for (int64_t s = 0; s < 112; s++) {
        failed += data_tokens(d, DATA_TRAIN, s, 0, 8, x, y, &err) < 0;
        high += failed == 0 && x[7] >= 50257;
    }
    ok(failed > 0 && !high && err.status == EXIT_SYSTEM && strstr(err.msg, "change.bin: "),
       "other ids: %s", err.msg);
    ok(truncate(path, 1100) == 0 && data_tokens(d, DATA_TRAIN, 3, 0, 8, x, y, &err) < 0 &&
           err.status == EXIT_SYSTEM && strstr(err.msg, "it had 3024"),
       "cut short: %s", err.msg);
    data_close(d);
}

/* Token k of example i is 8 i + k; the first ones of each, and the last if i is odd, are no targets. Every epoch has
 * the examples as they are, in both splits, whoever reads them and how. */
static void test_masked(void) {
    enum { EXAMPLES = 20 };
    const uint32_t mask = (uint32_t)1 << 31;
    uint32_t tokens[8 * EXAMPLES + 1];
    for (int j = 0; j <= 8 * EXAMPLES; j++)
        tokens[j] = (uint32_t)j | (j % 8 < 3 || j % 16 == 15 ? mask : 0);
    const char *source = write_file("e.m32", tokens, sizeof tokens);
    struct data *d = open_with(base, source);
    int bad = 0, valid = 0, seen[2 * EXAMPLES] = {0};
    bad += data_size(d, DATA_TRAIN) != 18 || data_size(d, DATA_VALID) != 2;
    bad += !data_ignores(d) || strcmp(data_info(d)->format, "masked tokens") != 0;
    for (int i = 0; i < 38; i++) {
        const bool train = i < 36;
        const enum data_split split = train ? DATA_TRAIN : DATA_VALID;
        int32_t x[8], y[8], part[4], packed[8];
        data_tokens(d, split, train ? i : i - 36, 0, 8, x, y, NULL);
        data_tokens(d, split, train ? i : i - 36, 4, 4, NULL, part, NULL);
        data_packed(d, split, train ? i : i - 36, 0, 8, packed, NULL);
        const int begin = x[0];
        valid += !train && begin >= 8 * 18;
        bad += begin % 8 != 0 || memcmp(part, y + 4, sizeof part) != 0 ||
               memcmp(packed, x, sizeof x) != 0;
        for (int k = 0; k < 8; k++)
            bad += x[k] != begin + k ||
                   y[k] != (tokens[begin + k + 1] & mask ? DATA_IGNORED : begin + k + 1);
        if (train)
            seen[(i / 18) * EXAMPLES + begin / 8]++;
    }
    for (int i = 0; i < 2 * EXAMPLES; i++)
        bad += seen[i] != (i % EXAMPLES < 18);
    ok(!bad && valid == 2, "masked tokens: examples stay whole, in both splits");
    data_close(d);
    refused(base, write_file("s.m32", tokens, sizeof tokens - 4), "160 masked tokens",
            "examples of 8");
    tokens[5] = mask | 50257;
    refused(base, write_file("v.m32", tokens, sizeof tokens), "byte 20", "token id 50257");
    char both[300];
    snprintf(both, sizeof both, "%s,%s", path_of("n.bin"), source);
    refused(base, both, "e.m32", "masked tokens are one file");
}

/* Of every round each source has its share; of every epoch of a source each window comes once; a sample is the same
 * whoever asks. */
/* Of every part of each sample, against the tokens looked through from the front; with sequences longer than
 * what is read at a time, which begin with that token, hold two of them side by side, and have none. */
static void check_documents(const char *source, int64_t seq, int32_t end) {
    struct data_spec spec = base;
    spec.seq = seq, spec.source = source, spec.validation = 0;
    struct data *d = open_with(spec, source);
    int32_t *tokens = calloc((size_t)seq, 4), *want = calloc((size_t)seq, 4);
    int32_t *got = calloc((size_t)seq, 4);
    int64_t wrong = 0, borders = 0;
    for (int64_t s = 0; s < data_size(d, DATA_TRAIN); s++) {
        data_tokens(d, DATA_TRAIN, s, 0, seq, tokens, NULL, NULL);
        for (int64_t i = 0; i < seq; i++) {
            want[i] = i == 0 ? 0 : tokens[i - 1] == end ? (int32_t)i : want[i - 1];
            borders += i > 0 && want[i] == i;
        }
        for (int64_t part = 1; part <= 4; part++)
            for (int64_t k = 0; k < part; k++) {
                const int64_t first = seq * k / part, n = seq * (k + 1) / part - first;
                wrong += data_documents(d, DATA_TRAIN, s, first, n, end, got, NULL) != 0;
                wrong += memcmp(got, want + first, (size_t)n * 4) != 0;
            }
    }
    ok(wrong == 0 && (end == 4999) == (borders == 0),
       "documents that %d ends in sequences of %d: %d of them begin, %d parts are wrong",
       (int)end, (int)seq, (int)borders, (int)wrong);
    free(tokens), free(want), free(got);
    data_close(d);
}

static void test_documents(void) {
    enum { N = 20000 };
    uint16_t *ids = calloc(N, sizeof *ids);
    for (int i = 0; i < N; i++)
        ids[i] = (uint16_t)(i % 41 == 0 || i % 97 == 0 || i % 1000 == 1 ? 7 : i % 4000 + 8);
    const char *source = write_file("documents.bin", ids, N * sizeof *ids);
    check_documents(source, 16, 7);
    check_documents(source, 9000, 7);
    check_documents(source, 100, 4999);
    int64_t open = 0;
    const int32_t tokens[] = {7, 1, 7, 7, 2};
    int32_t starts[5];
    documents_mark(tokens, 0, 2, 7, &open, starts);
    documents_mark(tokens + 2, 2, 3, 7, &open, starts + 2);
    ok(open == 4 && starts[0] == 0 && starts[1] == 1 && starts[2] == 1 && starts[3] == 3 &&
           starts[4] == 4,
       "the token that ends a document is in it; the next begins behind it");
    free(ids);
}

static void test_mixture(void) {
    int32_t few[61], many[161];
    for (int i = 0; i < 161; i++) {
        many[i] = 1000 + i;
        if (i < 61)
            few[i] = i;
    }
    struct data_spec spec = base;
    spec.validation = 0;
    char source[400];
    snprintf(source, sizeof source, "%s@3+%s@2", write_file("few.u32", few, sizeof few - 4),
             write_file("many.u32", many, sizeof many));
    struct data *d = open_with(spec, source);
    const int64_t sizes[] = {7, 20}; /* windows of 8 and the token that follows */
    int bad = data_size(d, DATA_TRAIN) != 27, seen[2][20] = {{0}};
    for (int round = 0; round < 70; round++) {
        int of[2] = {0, 0};
        for (int i = 0; i < 5; i++) {
            int32_t x[8], y[8], again[8];
            const int64_t sample = 5 * round + i,
                          number = data_number(d, DATA_TRAIN, sample);
            data_tokens(d, DATA_TRAIN, sample, 0, 8, x, y, NULL);
            data_packed(d, DATA_TRAIN, sample, 0, 8, again, NULL);
            const int k = x[0] >= 1000;
            bad += memcmp(x, again, sizeof x) != 0 || y[7] != x[7] + 1 ||
                   k != (number >= 7) || number >= 27;
            of[k]++;
            seen[k][number - 7 * k]++;
        }
        bad += of[0] != 3 || of[1] != 2;
    }
    for (int k = 0; k < 2; k++) /* 210 and 140 samples: 30 and 7 epochs */
        for (int i = 0; i < sizes[k]; i++)
            bad += seen[k][i] != (k ? 7 : 30);
    ok(!bad, "a mixture: shares are exact in every round, each window once an epoch");
    data_close(d);
    snprintf(source, sizeof source, "%s@3+many.u32", path_of("few.u32"));
    refused(spec, source, "many.u32", "expected SOURCE@WEIGHT");
    refused(spec, "few.u32@0+many.u32@1", "few.u32@0", "weights from 1");
    refused(spec, "missing.u32@1", "missing.u32", "No such file");
}

static void test_synthetic(void) {
    struct data *d = open_with(base, "synthetic"), *again = open_with(base, "synthetic");
    int bad = 0, pairs = 0;
    static int next[50257], count[50257];
    for (int64_t s = 0; s < 2000; s++) {
        int32_t x[8], y[8], a[3];
        data_tokens(d, DATA_TRAIN, s, 0, 8, x, y, NULL);
        data_tokens(again, DATA_TRAIN, s, 4, 3, a, NULL, NULL);
        bad += memcmp(a, x + 4, sizeof a) != 0;
        for (int j = 0; j < 8; j++) {
            bad += x[j] < 0 || x[j] >= 50257 || (j && x[j] != y[j - 1]);
            /* the first follower that is seen of a token is often its likeliest */
            if (!count[x[j]]++)
                next[x[j]] = y[j];
            pairs += next[x[j]] == y[j];
        }
    }
    ok(!bad, "synthetic tokens: in range, targets follow, slices agree");
    ok(pairs > 4000, "synthetic tokens can be predicted: %d of 16000", pairs);
    ok(data_size(d, DATA_VALID) > 0, "synthetic validation");
    data_close(d);
    data_close(again);
    struct data_spec one = base;
    one.vocab = 1;
    d = open_with(one, "synthetic");
    int32_t x[8];
    data_tokens(d, DATA_TRAIN, 12345678901, 0, 8, x, NULL, NULL);
    ok(x[0] == 0 && x[7] == 0, "synthetic with a vocabulary of 1");
    data_close(d);
}

static void test_text(void) {
    const char text[] = "The bytes of text are its tokens; \xff is 255.";
    struct data_spec spec = base;
    spec.vocab = 256;
    spec.validation = 0;
    spec.seq = sizeof text - 2;
    struct data *d = open_with(spec, write_file("t.txt", text, sizeof text - 1));
    int32_t x[sizeof text], y[sizeof text];
    data_tokens(d, DATA_TRAIN, 3, 0, spec.seq, x, y, NULL);
    int bad = 0;
    for (int j = 0; j < (int)spec.seq; j++)
        bad += x[j] != (unsigned char)text[j] || y[j] != (unsigned char)text[j + 1];
    ok(!bad && data_size(d, DATA_TRAIN) == 1 && data_size(d, DATA_VALID) == 0,
       "text of just one sequence");
    data_close(d);
    spec.seq++;
    refused(spec, path_of("t.txt"), "43 tokens", "needs 44");
    spec.seq = 42, spec.validation = 0.5;
    refused(spec, path_of("t.txt"), "22 are for training", "needs 43");
    spec.vocab = 255;
    refused(spec, path_of("t.txt"), "vocabulary of 256", "255");
    /* Where the windows begin varies by epoch, so that the rest is seen too. */
    spec.vocab = 256, spec.validation = 0, spec.seq = 30;
    d = open_with(spec, path_of("t.txt"));
    int first = 0;
    for (int64_t s = 0; s < 200; s++) {
        data_tokens(d, DATA_TRAIN, s, 0, 30, x, y, NULL);
        first |= y[29] == '.' ? 2 : x[0] == 'T' ? 1 : 0;
    }
    ok(first == 3, "all of a stream is seen in the course of the epochs");
    data_close(d);
}

static void test_refused(void) {
    uint16_t t[600] = {0};
    struct data_spec spec = base;
    refused(spec, path_of("absent"), "absent", "No such file");
    refused(spec, dir, "is a directory", "expected a file");
    refused(spec, write_file("empty.bin", "", 0), "empty.bin", "is empty");
    refused(spec, "/dev/null", "/dev/null", "regular file");
    refused(spec, write_file("odd.bin", t, 701), "701 bytes", "even");
    refused(spec, write_file("z.txt", "\x1f\x8b\x08zzzzzzzzz", 12), "z.txt", "gzip");
    refused(spec, write_file("idx.txt", "\0\0\x08\x03zzzzzzzzzzzz", 16), "idx.txt", "IDX");
    for (int at = 0; at < 600; at += 37) {
        struct err err = {0};
        struct data *d;
        char want[64];
        t[at] = 50257;
        spec.source = write_file("ids.bin", t, sizeof t);
        snprintf(want, sizeof want, "byte %d: token id 50257 (token %d of 600)", 2 * at,
                 at);
        if (data_open(&d, &spec, &err) == 0 || !strstr(err.msg, want))
            ok(0, "a token beyond the vocabulary at %d: %s", at, err.msg);
        t[at] = 50256;
    }
    struct data *d = open_with(spec, write_file("ids.bin", t, sizeof t));
    ok(d != NULL, "the last token of the vocabulary");
    data_close(d);
    t[599] = 65535;
    spec.vocab = 65535;
    refused(spec, write_file("ids.bin", t, sizeof t), "byte 1198: token id 65535", "65535");
    spec.vocab = 65536;
    d = open_with(spec, path_of("ids.bin"));
    ok(d != NULL, "a vocabulary of all 16-bit tokens");
    data_close(d);
    int32_t head[512] = {20240520, 1, 512};
    head[256] = 50257;
    spec.vocab = 50257;
    refused(spec, write_file("v.bin", head, sizeof head), "byte 1024: token id 50257",
            "v.bin");
    refused(spec, write_file("v.bin", head, sizeof head - 2), "byte 8", "512 tokens");
    head[2] = -1;
    refused(spec, write_file("v.bin", head, sizeof head), "byte 8", "-1 tokens");
    head[1] = 2;
    refused(spec, write_file("v.bin", head, sizeof head), "byte 4: version 2",
            "expected 1");
    head[0] = 20240801, head[1] = 7;
    refused(spec, write_file("v.bin", head, sizeof head), "byte 8", "the header counts");
    char list[300];
    snprintf(list, sizeof list, "%s,%s", path_of("ids.bin"), path_of("t.txt"));
    spec.vocab = 65536;
    refused(spec, list, "holds text", "nanoGPT");
    snprintf(list, sizeof list, "%s,,%s", path_of("ids.bin"), path_of("ids.bin"));
    refused(spec, list, "empty file name", "");
    spec.seq = 0;
    refused(spec, path_of("ids.bin"), "seq", "expected 1..");
}

int main(void) {
    if (!mkdtemp(dir))
        return 4;
    test_shuffle();
    test_epoch(write_tokens("n.bin", false, 1000, 50257), "nanoGPT tokens", 50257);
    test_epoch(write_tokens("l.bin", true, 1000, 50257), "llm.c tokens", 50257);
    unsigned char text[1000];
    for (int i = 0; i < 1000; i++)
        text[i] = (unsigned char)(i * 7 % 251);
    struct data_spec keep = base;
    base.vocab = 256;
    write_file("x.txt", text, sizeof text);
    test_slices(path_of("x.txt"), DTYPE_u8);
    base = keep;
    test_slices(path_of("l.bin"), DTYPE_u16);
    test_slices("synthetic", DTYPE_i32);
    test_shards();
    test_wide();
    test_masked();
    test_documents();
    test_mixture();
    test_synthetic();
    test_hash();
    test_changed();
    test_text();
    test_refused();
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) ? 1 : done_testing();
}
