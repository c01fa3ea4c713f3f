/* Tokenizers: merges against the plain definition, words against the patterns' own examples, UTF-8. */
#include "common/mem.h"
#include "common/rng.h"
#include "tap.h"
#include "text/tokenizer_impl.h"
#include "text/unicode.h"
#include "text/whole.h"

#include <stdlib.h>
#include <string.h>

/* ---- merges ----------------------------------------------------------------------------- */

/* The definition: again and again the leftmost of the pairs of the least rank. */
static int64_t merge_plainly(const struct pairs *m, int32_t *ids, int64_t n) {
    for (;;) {
        const struct pair *best = NULL;
        int64_t at = 0;
        for (int64_t i = 0; i + 1 < n; i++) {
            const struct pair *x = pairs_find(m, ids[i], ids[i + 1]);
            if (x && (!best || x->rank < best->rank))
                best = x, at = i;
        }
        if (!best)
            return n;
        ids[at] = best->id;
        memmove(ids + at + 1, ids + at + 2, (size_t)(n - at - 2) * sizeof *ids);
        n--;
    }
}

/* Random merges of 3 letters, each a new token, as training makes them. */
static void test_merges(uint64_t seed) {
    enum { LETTERS = 3, MERGES = 40, LONGEST = 200 };
    struct rng r = {.seed = seed};
    int bad = 0;
    for (int trial = 0; trial < 200; trial++) {
        struct pairs m;
        struct merging room = {0};
        pairs_init(&m, MERGES);
        for (int i = 0; i < MERGES; i++) {
            int32_t a = (int32_t)rng_below(&r, LETTERS + i),
                    b = (int32_t)rng_below(&r, LETTERS + i);
            if (!pairs_find(&m, a, b))
                pairs_put(&m, (struct pair){a, b, i, LETTERS + i});
        }
        int32_t ids[LONGEST], want[LONGEST];
        int64_t n = 1 + rng_below(&r, LONGEST);
        for (int64_t i = 0; i < n; i++)
            ids[i] = want[i] = (int32_t)rng_below(&r, LETTERS);
        int64_t k = merge_plainly(&m, want, n), got = merge_word(&m, &room, ids, n);
        bad += k != got || memcmp(ids, want, (size_t)k * sizeof *ids) != 0;
        arr_release(&room.symbols);
        arr_release(&room.heap);
        free(m.slot);
    }
    ok(!bad, "seed %llu: the heap merges as the definition does", (unsigned long long)seed);
}

/* ---- words ------------------------------------------------------------------------------ */

static void splits(enum split_pattern pattern, const unsigned char *kinds, const char *text,
                   const char *want) {
    static int number;
    char got[256] = "";
    const char *end = text + strlen(text);
    for (const char *s = text, *next; s < end; s = next) {
        next = split_word(pattern, kinds, s, end);
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%.*s", s > text ? "|" : "",
                 (int)(next - s), s);
    }
    for (char *p = got; (p = strpbrk(p, "\r\n")); p++)
        *p = '~'; /* a line of TAP is one line */
    ok(!strcmp(got, want), "words %d: \"%s\", expected \"%s\"", ++number, got, want);
}

static void test_words(void) {
    unsigned char *kinds = unicode_kinds();
    splits(SPLIT_GPT2, kinds, "I'll pay  $1234", "I|'ll| pay| | $|1234");
    splits(SPLIT_GPT2, kinds, "I'LL  ", "I|'|LL|  ");
    splits(SPLIT_LLAMA3, kinds, "I'LL pay  $1234", "I|'LL| pay| | $|123|4");
    splits(SPLIT_QWEN2, kinds, "(a) 12", "(a|)| |1|2");
    splits(SPLIT_QWEN2, kinds, "a \n \nb!\n\nc", "a| ~ ~|b|!~~|c");
    splits(SPLIT_QWEN2, kinds, "né\tжук", "né|\tжук");
    free(kinds);
}

static void test_utf8(void) {
    static const struct {
        const char *text;
        int64_t bad;
    } cases[] = {{"a\xc3\xa9", -1},      {"\xf4\x8f\xbf\xbf", -1}, {"a\xc0\x80", 1},
                 {"\xe0\x9f\xbf", 0},    {"ab\xed\xa0\x80", 2},    {"\xf4\x90\x80\x80", 0},
                 {"\xe2\x82", 0},        {"\xf0\x8f\xbf\xbf", 0},  {"x\x80", 1},
                 {"\xe2\x82\xac\xff", 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t got = utf8_check(cases[i].text, (int64_t)strlen(cases[i].text));
        ok(got == cases[i].bad, "text %d: %lld, expected %lld", (int)i, (long long)got,
           (long long)cases[i].bad);
    }
}

/* Bytes one by one; what is expected is Python's bytes.decode("utf-8", "replace"). */
static void test_whole(void) {
    static const char *const cases[][2] = {
        {"a\xc3\xa9", "a\xc3\xa9"},
        {"\xf0\x9f\x98\x80!", "\xf0\x9f\x98\x80!"},
        {"\xe2\x82", "\xef\xbf\xbd"},
        {"\xe2\x82z", "\xef\xbf\xbdz"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf0\x9f\xff", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xe2\x82\xc3\xa9\x80", "\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct whole_text w = {.n = 0};
        char got[64] = "";
        int n = 0;
        for (const char *s = cases[i][0]; *s; s++)
            n += whole_put(&w, (unsigned char)*s, got + n);
        n += whole_end(&w, got + n);
        ok(n == (int)strlen(cases[i][1]) && !memcmp(got, cases[i][1], (size_t)n),
           "bytes %d come whole", (int)i);
    }
}

int main(void) {
    test_merges(1);
    test_merges(20261125);
    test_words();
    test_utf8();
    test_whole();
    return done_testing();
}
