/* Pairs of an input and a target: sequences from indexed files, and spans left out of plain tokens. */
#include "data.h"
#include "data/spans.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEQ = 7, TARGET = 5, VOCAB = 1000, PAIRS = 40 };

static struct data_spec base = {
    .kind = DATA_PAIRS,
    .seq = SEQ,
    .target_seq = TARGET,
    .vocab = VOCAB,
    .ids = {.pad = 3, .start = 2, .eos = 1, .sentinel = VOCAB - 1},
    .noise = 0.15,
    .span = 3,
    .validation = 0.25,
    .seed = 7};

/* ---- files of sequences --------------------------------------------------------------- */

/* Sequence i of a set has 1 + i * step % longest tokens: begin + i, begin + i + 1, ... */
struct set {
    const char *name;
    int width, step, longest, begin;
};
static const struct set inputs = {"in", 2, 5, SEQ + 1, 10}, targets = {"out", 4, 3, 6, 100};

static int length_of(const struct set *s, int i) {
    return 1 + i * s->step % s->longest;
}

static unsigned char *put(unsigned char *p, int64_t v, size_t bytes) {
    memcpy(p, &v, bytes);
    return p + bytes;
}

/* The index in `out`; returns its size. Sequences lie from the last to the first in the file. */
static size_t make_index(const struct set *s, unsigned char *out) {
    unsigned char *p = out;
    int64_t place = 0;
    memcpy(p, "MMIDIDX\0", 9);
    p = put(p + 9, 1, 8);
    p = put(p, s->width == 1 ? 1 : s->width == 2 ? 8 : 4, 1);
    p = put(put(p, PAIRS, 8), 1, 8);
    for (int i = 0; i < PAIRS; i++)
        p = put(p, length_of(s, i), 4);
    unsigned char *places = p;
    for (int i = PAIRS - 1; i >= 0; i--) {
        put(places + 8 * i, place, 8);
        place += length_of(s, i) * s->width;
    }
    return (size_t)(put(places + 8 * PAIRS, 0, 8) - out);
}

static size_t make_tokens(const struct set *s, unsigned char *out) {
    unsigned char *p = out;
    for (int i = PAIRS - 1; i >= 0; i--)
        for (int k = 0; k < length_of(s, i); k++)
            p = put(p, s->begin + i + k, (size_t)s->width);
    return (size_t)(p - out);
}

static void write_set(const struct set *s) {
    unsigned char bytes[4096];
    char name[32];
    snprintf(name, sizeof name, "%s.idx", s->name);
    write_file(name, bytes, make_index(s, bytes));
    snprintf(name, sizeof name, "%s.bin", s->name);
    write_file(name, bytes, make_tokens(s, bytes));
}

static const char *list_of(const char *a, const char *b) {
    static char list[300];
    snprintf(list, sizeof list, "%s,%s", path_of(a), path_of(b));
    return list;
}

/* A sample is pair i, as far as the model's sequences hold it. */
static bool is_pair(const struct data *d, enum data_split split, int64_t sample, int i) {
    int32_t in[SEQ], out[TARGET], shifted[TARGET], length;
    data_input(d, split, sample, 0, SEQ, in, NULL);
    data_input_length(d, split, sample, &length, NULL);
    data_target(d, split, sample, 0, TARGET, false, out, NULL);
    data_target(d, split, sample, 0, TARGET, true, shifted, NULL);
    int n = length_of(&inputs, i), m = length_of(&targets, i);
    bool good = length == (n < SEQ ? n : SEQ) && shifted[0] == 2;
    for (int k = 0; k < SEQ; k++)
        good &= in[k] == (k < n ? inputs.begin + i + k : 3);
    for (int k = 0; k < TARGET; k++)
        good &= out[k] == (k < m ? targets.begin + i + k : DATA_IGNORED);
    for (int k = 1; k < TARGET; k++)
        good &= shifted[k] == (out[k - 1] == DATA_IGNORED ? 3 : out[k - 1]);
    return good;
}

static void test_pairs(void) {
    write_set(&inputs);
    write_set(&targets);
    struct data *d = open_with(base, list_of("in.idx", "out.idx"));
    ok(d && data_size(d, DATA_TRAIN) == 30 && data_size(d, DATA_VALID) == 10 &&
           !strcmp(data_info(d)->format, "token sequences") && data_info(d)->cut,
       "token sequences: 30 and 10 pairs, some longer than the model's");
    int bad = 0;
    char seen[PAIRS] = {0};
    for (int64_t s = 0; s < 30; s++) {
        int32_t first;
        data_input(d, DATA_TRAIN, s, 0, 1, &first, NULL);
        int i = first - inputs.begin;
        bad += i < 0 || i >= 30 || seen[i]++ || !is_pair(d, DATA_TRAIN, s, i);
    }
    for (int64_t s = 0; s < 10; s++)
        bad += !is_pair(d, DATA_VALID, s, 30 + (int)s);
    ok(!bad, "an epoch shows every pair once, padded or cut");
    data_close(d);
    struct data_spec longer = base;
    longer.seq = 8, longer.target_seq = 6;
    d = open_with(longer, list_of("in.idx", "out.idx"));
    ok(d && !data_info(d)->cut, "and none is cut where all fit");
    data_close(d);
}

/* A byte of the good index changed. */
static void spoil(size_t at, int byte, const char *a, const char *b) {
    unsigned char bytes[4096];
    size_t n = make_index(&inputs, bytes);
    bytes[at] = (unsigned char)byte;
    write_file("bad.idx", bytes, n);
    refused(base, list_of("bad.idx", "out.idx"), a, b);
}

static void test_refused_files(void) {
    unsigned char bytes[4096];
    size_t n = make_index(&inputs, bytes);
    write_file("bad.bin", bytes, 2 * 1000);
    write_file("bad.idx", bytes, n - 1);
    refused(base, list_of("bad.idx", "out.idx"), "bad.idx: truncated", "holds 521");
    write_file("bad.idx", bytes, 20);
    refused(base, list_of("bad.idx", "out.idx"), "bad.idx: byte 0", "MMIDIDX");
    refused(base, list_of("bad.idx", "none.idx"), "bad.idx: byte 0", "MMIDIDX");
    write_file("bad.bin", bytes, make_tokens(&inputs, bytes));
    spoil(0, 'X', "bad.idx: byte 0", "MMIDIDX");
    spoil(9, 2, "byte 9: version 2", "expected 1");
    spoil(17, 6, "byte 17: tokens of type 6", "16 or 32 bits");
    spoil(18, PAIRS + 1, "truncated", "41 sequences");
    spoil(18, 0, "byte 18: 0 sequences", "");
    spoil(25, 255, "byte 18: -", "");
    spoil(34, 0, "byte 34: sequence 0 is empty", "bad.idx");
    spoil(37, 255, "sequence 0: -", "are not in");
    spoil(34 + 4 * PAIRS, 1, "sequence 0: 1 tokens at byte", "bad.bin");
    spoil(34 + 4 * PAIRS + 3, 1, "sequence 0: 1 tokens at byte 1677", "2 bytes");
    spoil(17, 4, "bad.bin: byte 0: token id", "below the vocabulary of 1000");
    struct data_spec spec = base;
    spec.vocab = 105, spec.ids.sentinel = 104;
    refused(spec, list_of("in.idx", "out.idx"), "out.bin: byte ", "token id 139 ");
    refused(base, path_of("in.idx"), "INPUTS.idx,TARGETS.idx", "in.idx");
    refused(base, list_of("in.idx", "in.bin"), "INPUTS.idx,TARGETS.idx", "in.bin");
    refused(base, list_of("in.idx", "none.idx"), "none.idx", "No such file");
    write_file("lone.idx", bytes, make_index(&inputs, bytes));
    refused(base, list_of("lone.idx", "out.idx"), "lone.bin", "No such file");
    spec = base, spec.ids.pad = VOCAB;
    refused(spec, list_of("in.idx", "out.idx"), "pad: token id 1000", "0..999");
    spec = base, spec.target_seq = 0;
    refused(spec, list_of("in.idx", "out.idx"), "target seq: expected 1..", "got 0");
}

/* What is read after a file was changed is an error with its place. */
static void test_changed(void) {
    struct data *d = open_with(base, list_of("in.idx", "out.idx"));
    unsigned char bytes[4096];
    struct err err = {0};
    int32_t in[SEQ];
    size_t n = make_index(&inputs, bytes);
    memset(bytes + 34, 0, 4 * PAIRS);
    write_file("in.idx", bytes, n);
    int rc = data_input(d, DATA_TRAIN, 0, 0, SEQ, in, &err);
    ok(rc < 0 && err.status == EXIT_SYSTEM &&
           strstr(err.msg, "in.idx: changed while in use: sequence"),
       "%s", err.msg);
    write_file("in.idx", bytes, 100);
    rc = data_input_length(d, DATA_TRAIN, 0, in, &err);
    ok(rc < 0 && strstr(err.msg, "nothing at byte"), "%s", err.msg);
    write_set(&inputs);
    memset(bytes, 255, sizeof bytes);
    write_file("in.bin", bytes, make_tokens(&inputs, bytes + 2048));
    rc = data_input(d, DATA_TRAIN, 0, 0, SEQ, in, &err);
    ok(rc < 0 && strstr(err.msg, "token id 65535, expected ids below 1000"), "%s", err.msg);
    data_close(d);
    write_set(&inputs);
}

/* ---- spans ----------------------------------------------------------------------------- */

/* Lengths that T5's own random_spans_helper gives. */
static void test_lengths(void) {
    static const struct {
        int64_t seq, window, target;
        double noise, span;
    } t5[] = {{512, 568, 114, 0.15, 3},   {128, 141, 29, 0.15, 3},
              {2048, 2274, 456, 0.15, 3}, {512, 548, 74, 0.1, 3},
              {512, 673, 243, 0.3, 5},    {64, 70, 14, 0.15, 3},
              {1024, 1137, 229, 0.15, 3}, {512, 591, 99, 0.15, 10}};
    for (size_t i = 0; i < sizeof t5 / sizeof *t5; i++) {
        struct spans s;
        spans_init(&s, t5[i].seq, t5[i].noise, t5[i].span, VOCAB - 1, 1, NULL);
        ok(s.window == t5[i].window && s.target == t5[i].target && s.input == t5[i].seq,
           "inputs of %d, %g in spans of %g: a window of %d, targets of %d", (int)t5[i].seq,
           t5[i].noise, t5[i].span, (int)s.window, (int)s.target);
    }
}

static int count_up(const void *ctx, int64_t first, int64_t count, int32_t *out,
                    struct err *err) {
    (void)err;
    for (int64_t i = 0; i < count; i++)
        out[i] = *(const int32_t *)ctx + (int32_t)(first + i);
    return 0;
}

/* Puts the spans of the target back in the place of the sentinels of the input. */
static bool whole_again(const struct spans *s, const int32_t *in, const int32_t *out) {
    int64_t at = 0, spans = 0, next = 0;
    for (int64_t i = 0; i < s->input - 1; i++) {
        if (in[i] != s->sentinel - spans) {
            if (in[i] != at++)
                return false;
            continue;
        }
        if (out[next++] != s->sentinel - spans++)
            return false;
        while (next < s->target - 1 && out[next] < VOCAB / 2)
            if (out[next++] != at++)
                return false;
    }
    return at == s->window && spans == s->spans && next == s->target - 1 &&
           in[s->input - 1] == s->eos && out[next] == s->eos;
}

static void test_spans(void) {
    enum { DRAWS = 4000 };
    struct spans s;
    int32_t in[64], out[64], part[64], zero = 0;
    int bad = 0, parts = 0;
    double begins = 0, longest = 0, lost[70] = {0};
    spans_init(&s, 64, 0.15, 3, VOCAB - 1, 1, NULL);
    for (uint64_t key = 0; key < DRAWS; key++) {
        spans_read(&s, &(struct spans_part){key, false, 0, s.input}, count_up, &zero, in,
                   NULL);
        spans_read(&s, &(struct spans_part){key, true, 0, s.target}, count_up, &zero, out,
                   NULL);
        bad += !whole_again(&s, in, out);
        for (int64_t i = 0; i < s.target; i++)
            if (out[i] < 70 && out[i] != s.eos)
                lost[out[i]]++;
        begins += in[0] == 0 && in[1] == s.sentinel;
        longest += out[s.target - 3 - (s.noise - s.spans)] == s.sentinel - s.spans + 1;
        int64_t first = (int64_t)(key % 60), n = 1 + (int64_t)(key / 60 % 4);
        spans_read(&s, &(struct spans_part){key, false, first, n}, count_up, &zero, part,
                   NULL);
        parts += memcmp(part, in + first, (size_t)n * sizeof *in) != 0;
    }
    ok(!bad, "spans put back into the input make the window again");
    ok(!parts, "slices are parts of the whole");
    /* Of 60 tokens in 3 parts the first has length 1 with 2/59; of 10, the last length 8 with 1/36. */
    ok(begins / DRAWS > 0.025 && begins / DRAWS < 0.045 && longest / DRAWS > 0.02 &&
           longest / DRAWS < 0.036,
       "lengths are drawn evenly: the first part is 1 in %.4f, the last span 8 in %.4f",
       begins / DRAWS, longest / DRAWS);
    double least = DRAWS;
    for (int64_t i = 40; i < 70; i++)
        least = lost[i] < least ? lost[i] : least;
    ok(lost[0] == 0 && lost[69] == DRAWS && least > 0,
       "a window begins with text and ends in a span");
}

static void test_plain(void) {
    char text[4000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)('a' + i % 23);
    struct data_spec spec = base;
    spec.seq = 64, spec.target_seq = 20;
    struct data *d = open_with(spec, write_file("t.txt", text, sizeof text));
    ok(d && data_size(d, DATA_TRAIN) == 3000 / 70 && !strcmp(data_info(d)->format, "text"),
       "plain text: windows of 70 that do not overlap");
    int32_t in[64], out[20], again[64], length;
    int bad = 0, same = 0;
    int64_t n = data_size(d, DATA_TRAIN);
    for (int64_t s = 0; s < n; s++) {
        data_input(d, DATA_TRAIN, s, 0, 64, in, NULL);
        data_input_length(d, DATA_TRAIN, s, &length, NULL);
        data_target(d, DATA_TRAIN, s, 0, 20, false, out, NULL);
        bad += length != 64 || in[63] != 1 || out[0] != VOCAB - 1 || out[13] != 1;
        for (int i = 14; i < 20; i++)
            bad += out[i] != DATA_IGNORED;
        data_input(d, DATA_TRAIN, s + n, 0, 64, again, NULL);
        same += !memcmp(in, again, sizeof in);
    }
    ok(!bad && !same, "inputs are full, targets end; other spans in the next epoch");
    data_input(d, DATA_TRAIN, 3 * n + 1, 0, 64, in, NULL);
    data_close(d);
    d = open_with(spec, path_of("t.txt"));
    data_input(d, DATA_TRAIN, 3 * n + 1, 0, 64, again, NULL);
    ok(d && !memcmp(in, again, sizeof in), "a sample is found without those before it");
    data_close(d);
    spec.seed++;
    d = open_with(spec, path_of("t.txt"));
    data_input(d, DATA_TRAIN, 3 * n + 1, 0, 64, again, NULL);
    ok(d && memcmp(in, again, sizeof in) != 0, "another seed leaves out other spans");
    data_close(d);
    spec.target_seq = 13;
    refused(spec, path_of("t.txt"), "are targets of 14", "have 13");
    spec = base, spec.seq = 2;
    refused(spec, path_of("t.txt"), "too short for spans", "at least 3");
    spec = base, spec.seq = 64, spec.target_seq = 20, spec.ids.sentinel = 257;
    refused(spec, path_of("t.txt"), "the model has 255 without the sentinels of spans",
            "vocabulary of 256");
    spec.ids.sentinel = 2;
    refused(spec, path_of("t.txt"), "sentinel: token id 2", "for 3 spans");
    spec = base, spec.seq = 64, spec.target_seq = 20;
    spec.valid_source = list_of("in.idx", "out.idx");
    refused(spec, path_of("t.txt"), "holds token sequences", "the training data text");
}

static void test_synthetic(void) {
    struct data_spec spec = base;
    spec.seq = 64, spec.target_seq = 14, spec.vocab = 40, spec.ids.sentinel = 39;
    struct data *d = open_with(spec, "synthetic");
    int32_t out[14];
    int bad = 0;
    for (int64_t s = 0; s < 500; s++) {
        data_target(d, DATA_TRAIN, s, 0, 14, false, out, NULL);
        for (int i = 0; i < 14; i++)
            bad += out[i] < 0 || out[i] >= 40;
        bad += out[0] != 39 || out[13] != 1;
    }
    ok(d && !bad, "synthetic pairs");
    data_close(d);
}

int main(void) {
    if (!mkdtemp(dir))
        return 4;
    test_pairs();
    test_refused_files();
    test_changed();
    test_lengths();
    test_spans();
    test_plain();
    test_synthetic();
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) ? 1 : done_testing();
}
