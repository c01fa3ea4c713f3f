/* The lowest floor: errors, options, JSON text, statistics, counter-based numbers. */
#include "common/err.h"
#include "common/file.h"
#include "common/json.h"
#include "common/mem.h"
#include "common/opt.h"
#include "common/rng.h"
#include "common/stats.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_err(void) {
    struct err err = {0};
    err_input(&err, "mesh: 3 devices do not divide batch 8");
    err_at(&err, "stages[%d]", 2);
    err_prefix(&err, "plan.json");
    ok(!strcmp(err.msg, "plan.json: stages[2].mesh: 3 devices do not divide batch 8"),
       "places are put before the message: %s", err.msg);
    ok(err.status == EXIT_INPUT, "the exit status is kept");
    char big[4000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = 0;
    err_prefix(&err, "%s", big);
    ok(strlen(err.msg) < sizeof err.msg, "a long prefix is cut, not overrun");
}

static void test_json(void) {
    struct err err = {0};
    const char text[] = "{\"b\": [1, 2.5, \"x\"], \"a\": {\"k\": 0.1, \"z\": 1e300}}";
    json_t *v = json_parse(text, strlen(text), "t", &err);
    char *out = NULL;
    size_t n;
    FILE *f = open_memstream(&out, &n);
    json_write(v, f);
    fclose(f);
    ok(!strcmp(out,
               "{\n  \"a\": {\"k\": 0.1, \"z\": 1e+300},\n  \"b\": [1, 2.5, \"x\"]\n}\n"),
       "canonical text: %s", out);
    free(out);
    int64_t i;
    ok(json_int(v, "b", 0, 1, &i, &err) < 0 &&
           !strcmp(err.msg, "b: expected a whole number, got an array"),
       "located type message: %s", err.msg);
    ok(json_keys(v, "a bc", &err) < 0, "unknown keys are refused: %s", err.msg);
    ok(json_keys(v, "a b", &err) == 0, "known keys pass");
    json_decref(v);
    v = json_parse("{\"memory\": 80e9, \"half\": 0.5, \"far\": 1e17}", 42, "t", &err);
    ok(v && !json_int(v, "memory", 0, INT64_MAX, &i, &err) && i == 80000000000,
       "80e9 is a whole number");
    ok(json_int(v, "half", 0, 1, &i, &err) < 0, "0.5 is none: %s", err.msg);
    ok(json_int(v, "far", 0, INT64_MAX, &i, &err) < 0,
       "nor is what a real number holds inexactly: %s", err.msg);
    json_decref(v);
    static const char twice[] =
        "{\"a\": 1, \"b\\\"\": {\"no\": 2,\n \"yes\": 3, \"yes\": 4}}";
    ok(!json_parse(twice, strlen(twice), "t", &err) &&
           !strcmp(err.msg, "t:2:16: duplicate key \"yes\""),
       "a key that is given twice is named: %s", err.msg);
    char list[16] = "";
    err_list(list, sizeof list, "gpt");
    err_list(list, sizeof list, "wide-resnet-nano");
    err_list(list, sizeof list, "t5");
    ok(!strcmp(list, " gpt t5"), "a list of names leaves out what has no room:%s", list);
    ok(!json_parse("{\"a\":1,\"a\":2}", 13, "t", &err), "duplicate keys: %s", err.msg);
}

/* Texts that editors of other systems write: said as such, not as wrong characters. */
static void test_json_encodings(void) {
    static const struct {
        const char *text;
        size_t size;
        const char *want;
    } c[] = {
        {"\xEF\xBB\xBF{}", 5,
         "t: begins with a byte-order mark: expected UTF-8 without one"},
        {"\xFF\xFE{\0}\0", 6, "t: is UTF-16 or UTF-32: expected UTF-8"},
        {"\xFE\xFF\0{\0}", 6, "t: is UTF-16 or UTF-32: expected UTF-8"},
        {"{\0}\0", 4, "t: is UTF-16 or UTF-32: expected UTF-8"},
        {"\0{\0}", 4, "t: is UTF-16 or UTF-32: expected UTF-8"},
        {"{}\0\0", 4, "t: holds a byte of zero: expected text in UTF-8"},
        {"[\"\xE4\"]", 5, "t:1:2: unable to decode byte 0xe4 near '\"': expected UTF-8"},
        {"[\"\\u0000\"]", 10, "t:1:9: \\u0000 is not allowed near '\"\\u0000\"'"}};
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct err err = {0};
        json_t *v = json_parse(c[i].text, c[i].size, "t", &err);
        ok(!v && !strcmp(err.msg, c[i].want), "encoding %zu: %s", i, err.msg);
        json_decref(v);
    }
    static const char crlf[] = "{\"a\":\r\n 1}\r\n";
    json_t *v = json_parse(crlf, strlen(crlf), "t", NULL);
    ok(v != NULL, "lines may end with a carriage return too");
    json_decref(v);
}

static bool holds(const char *path, const char *want) {
    char *text = file_read(path, 0, NULL, NULL);
    bool same = text && !strcmp(text, want);
    free(text);
    return same;
}

static int write_to(const char *path, const char *text, struct err *err) {
    struct file_out out;
    if (file_out_open(&out, path, err) < 0)
        return -1;
    fputs(text, out.f);
    return file_out_close(&out, err);
}

/* What is written over a link, over a private file, over a link to nothing. */
static void test_file_out(void) {
    char folder[] = "/tmp/weft-file-XXXXXX";
    struct err err = {0};
    struct stat st;
    if (!mkdtemp(folder) || chdir(folder) < 0 || mkdir("in", 0777) < 0 ||
        symlink("in/file", "one") < 0 || symlink("../one", "in/two") < 0) {
        ok(false, "a folder for files");
        return;
    }
    ok(write_to("in/two", "a", &err) == 0 && holds("in/file", "a"),
       "links to nothing: what the last one names is made%s", err.msg);
    chmod("in/file", 0600);
    ok(write_to("one", "b", &err) == 0 && holds("in/file", "b") && holds("in/two", "b"),
       "what a link leads to is replaced%s", err.msg);
    ok(lstat("one", &st) == 0 && S_ISLNK(st.st_mode), "and the link stays one");
    ok(stat("in/file", &st) == 0 && (st.st_mode & 0777) == 0600,
       "a file that is replaced keeps its permissions: %o", st.st_mode & 0777u);
    ok(write_to("in", "c", &err) < 0 && strstr(err.msg, "Is a directory"), "%s", err.msg);
    unlink("in/two");
    unlink("one");
    unlink("in/file");
    ok(rmdir("in") == 0 && chdir("/") == 0 && rmdir(folder) == 0, "nothing else is left");
}

static void test_opt_list(void) {
    struct {
        char *set;
    } o = {0};
    const struct opt options[] = {{0, "set", OPT_LIST, "LIST", "sizes", &o.set}, {0}};
    const struct opt_tool tool = {"t", "", "", options};
    char t[] = "t", set[] = "--set", one[] = "a=1", two[] = "--set=b=2,c=3",
         none[] = "--set=";
    char *argv[] = {t, set, one, two, NULL}, *empty[] = {t, none, NULL}, buf[32];
    struct err err = {0};
    ok(opt_parse(&tool, 4, argv, &err) == 0 && o.set && !strcmp(o.set, "a=1,b=2,c=3"),
       "a list that is given twice is one list%s", err.msg);
    ok(!strcmp(opt_format(options, buf, sizeof buf), "a=1,b=2,c=3"), "as text: %s", buf);
    ok(opt_parse(&tool, 2, empty, &err) < 0, "an empty one is refused: %s", err.msg);
    free(o.set);
}

/* The word of an option may be left out; what follows then is an operand. */
static void test_opt_word(void) {
    const char *value = NULL;
    const struct opt options[] = {{0, "show", OPT_WORD, "PART", "shows it", &value}, {0}};
    const struct opt_tool tool = {"t", "", "", options};
    char t[] = "t", bare[] = "--show", given[] = "--show=all",
         none[] = "--show=", file[] = "file", buf[32];
    char *alone[] = {t, bare, file, NULL}, *word[] = {t, given, file, NULL},
         *empty[] = {t, none, NULL};
    struct err err = {0};
    ok(!strcmp(opt_format(options, buf, sizeof buf), "not given"), "a word: %s", buf);
    ok(opt_parse(&tool, 3, alone, &err) == 1 && value && !*value && alone[0] == file,
       "left out, the operand behind it stays one%s", err.msg);
    ok(opt_parse(&tool, 3, word, &err) == 1 && !strcmp(value, "all"), "given: %s", value);
    ok(opt_parse(&tool, 2, empty, &err) < 0, "an empty one is refused: %s", err.msg);
}

static void test_opt(void) {
    int64_t v;
    double s;
    ok(!opt_parse_bytes("28G", &v) && v == 28LL << 30, "28G is 28 GiB");
    ok(!opt_parse_bytes("1.5K", &v) && v == 1536, "1.5K");
    ok(opt_parse_bytes("1e30", &v) < 0 && opt_parse_bytes("", &v) < 0 &&
           opt_parse_bytes("-1", &v) < 0 && opt_parse_bytes("5X", &v) < 0,
       "nonsense is refused");
    ok(!opt_parse_time("500ms", &s) && s == 0.5, "500ms");
    ok(opt_parse_time("0x10", &s) < 0 && opt_parse_time("inf", &s) < 0, "no hexadecimal");
    static const struct {
        const char *text;
        int64_t value; /* < 0: refused */
    } ints[] = {{"9223372036854775807", INT64_MAX},
                {"9007199254740993", 9007199254740993},
                {"9223372036854775808", -1},
                {"18446744073709551616", -1},
                {"1.5K", 1500},
                {"1.50", -1},
                {"2e3", 2000},
                {"2.5e1K", 25000},
                {"20e-1", 2},
                {"1e30", -1},
                {"0e300", 0},
                {"0x10", -1},
                {" 1", -1},
                {"1 ", -1},
                {".", -1},
                {"1e", -1},
                {"9G", 9000000000},
                {"9300000000G", -1}};
    int bad = 0;
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        v = -1;
        if (opt_parse_int(ints[i].text, &v) < 0)
            v = -1;
        if (v != ints[i].value)
            printf("# %s: %lld\n", ints[i].text, (long long)v);
        bad += v != ints[i].value;
    }
    ok(!bad, "whole numbers are exact or refused");
}

static void test_numbers(void) {
    double x[] = {5, 1, 3};
    ok(stats_median(x, 3) == 3, "median");
    double sum = 0, sq = 0;
    for (int i = 0; i < 100000; i++) {
        double z = rng_normal(1, 2, (uint64_t)i);
        sum += z, sq += z * z;
    }
    ok(fabs(sum / 1e5) < 0.02 && fabs(sq / 1e5 - 1) < 0.02,
       "normal draws have moments 0, 1");
}

int main(void) {
    test_err();
    test_json();
    test_json_encodings();
    test_file_out();
    test_opt();
    test_opt_list();
    test_opt_word();
    test_numbers();
    return done_testing();
}
