/* Tokenizers: merges, Unigram and training against their plain definitions, words against the patterns' own
 * examples, graphemes, UTF-8. */
#include "common/mem.h"
#include "common/rng.h"
#include "tap.h"
#include "text/grapheme.h"
#include "text/tokenizer_impl.h"
#include "text/train.h"
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

/* ---- Unigram ---------------------------------------------------------------------------- */

enum { PIECES = 24, LONGEST_WORD = 12, UNKNOWN = 0 };

/* The greatest sum of all ways to cut the word; scores are halves, so that sums are exact. */
static double best_plainly(const json_t *vocab, const char *word) {
    if (!*word)
        return 0;
    double best = -1e9;
    bool single = false;
    for (size_t i = 0; i < json_array_size(vocab); i++) {
        const json_t *one = json_array_get(vocab, i);
        const char *name = json_string_value(json_array_get(one, 0));
        const size_t n = strlen(name);
        if (strncmp(word, name, n) != 0)
            continue;
        single |= n == 1;
        const double sum =
            json_real_value(json_array_get(one, 1)) + best_plainly(vocab, word + n);
        best = sum > best ? sum : best;
    }
    const double unknown = -60; /* the least score less 10 */
    const double sum = single ? best : unknown + best_plainly(vocab, word + 1);
    return sum > best ? sum : best;
}

static json_t *random_pieces(struct rng *r) {
    json_t *vocab = json_pack("[[s,f],[s,f]]", "<unk>", -50.0, "\xe2\x96\x81", -1.0);
    while (json_array_size(vocab) < PIECES) {
        char name[5] = "";
        bool twice = false;
        for (int64_t k = 1 + rng_below(r, 4); k > 0; k--)
            name[k - 1] = (char)('a' + rng_below(r, 3));
        for (size_t i = 0; i < json_array_size(vocab); i++)
            twice |= !strcmp(
                name, json_string_value(json_array_get(json_array_get(vocab, i), 0)));
        if (!twice)
            json_array_append_new(
                vocab, json_pack("[s,f]", name, -0.5 * (double)(1 + rng_below(r, 60))));
    }
    return vocab;
}

/* The sum of what the tokenizer makes of a word. */
static double sum_of(struct tokenizer *t, const json_t *vocab, const char *word) {
    struct token_ids ids = {0};
    struct err err = {0};
    double sum = 0;
    if (tokenizer_encode(t, word, (int64_t)strlen(word), &ids, &err) < 0)
        return 1;
    for (int64_t i = 0; i < ids.n; i++)
        sum += json_real_value(json_array_get(json_array_get(vocab, (size_t)ids.p[i]), 1));
    free(ids.p);
    return sum;
}

/* Words without unknown letters, since several of those in a row are one token. */
static void test_unigram(uint64_t seed) {
    struct rng r = {.seed = seed};
    int bad = 0;
    for (int trial = 0; trial < 50; trial++) {
        json_t *vocab = random_pieces(&r);
        json_t *doc = json_pack("{s:{s:s,s:s,s:s},s:{s:s,s:s},s:{s:s,s:i,s:O}}",
                                "pre_tokenizer", "type", "Metaspace", "replacement",
                                "\xe2\x96\x81", "prepend_scheme", "never", "decoder",
                                "type", "Metaspace", "replacement", "\xe2\x96\x81", "model",
                                "type", "Unigram", "unk_id", UNKNOWN, "vocab", vocab);
        for (int c = 0; doc && c < 3; c++) { /* each letter alone is a token */
            const char letter[2] = {(char)('a' + c)};
            bool there = false;
            for (size_t i = 0; i < json_array_size(vocab); i++)
                there |= !strcmp(
                    letter, json_string_value(json_array_get(json_array_get(vocab, i), 0)));
            if (!there)
                json_array_append_new(vocab, json_pack("[s,f]", letter, -30.0));
        }
        struct err err = {0};
        struct tokenizer *t = tokenizer_from_json(doc, &err);
        for (int k = 0; t && k < 20; k++) {
            char word[LONGEST_WORD + 1] = "";
            for (int64_t i = 1 + rng_below(&r, LONGEST_WORD); i > 0; i--)
                word[i - 1] = (char)('a' + rng_below(&r, 3));
            bad += sum_of(t, vocab, word) != best_plainly(vocab, word);
        }
        bad += !t;
        tokenizer_destroy(t);
        json_decref(doc);
        json_decref(vocab);
    }
    ok(!bad, "seed %llu: no way to cut a word is likelier than Unigram's",
       (unsigned long long)seed);
}

/* ---- training --------------------------------------------------------------------------- */

/* All pairs counted anew before each merge: the most frequent, of equal ones that of the smaller ids. Ids of
 * letters are in their order; the text is one word. Returns how many merges there are. */
static int train_plainly(int32_t *s, int64_t n, int32_t next, int32_t merges[][2]) {
    int done = 0;
    for (;; done++, next++) {
        int64_t most = 0;
        int32_t best[2] = {0};
        for (int64_t i = 0; i + 1 < n; i++) {
            int64_t count = 0;
            for (int64_t k = 0; k + 1 < n; k++)
                count += s[k] == s[i] && s[k + 1] == s[i + 1];
            if (count > most || (count == most && (s[i] < best[0] || (s[i] == best[0] &&
                                                                      s[i + 1] < best[1]))))
                most = count, best[0] = s[i], best[1] = s[i + 1];
        }
        if (!most)
            return done;
        memcpy(merges[done], best, sizeof best);
        int64_t left = 0;
        for (int64_t i = 0; i < n; i++) {
            const bool here = i + 1 < n && s[i] == best[0] && s[i + 1] == best[1];
            s[left++] = here ? next : s[i];
            i += here;
        }
        n = left;
    }
}

static void test_training(uint64_t seed) {
    enum { LENGTH = 60, FIRST = 256, LETTER_A = 'a' - '!' };
    struct rng r = {.seed = seed};
    int bad = 0;
    for (int trial = 0; trial < 50; trial++) {
        char text[LENGTH];
        int32_t s[LENGTH], merges[LENGTH][2];
        for (int i = 0; i < LENGTH; i++) {
            text[i] = (char)('a' + rng_below(&r, 2 + trial % 3));
            s[i] = text[i] - 'a' + LETTER_A;
        }
        struct err err = {0};
        struct bpe_trainer *t = bpe_trainer_create();
        bad += bpe_trainer_feed(t, text, LENGTH, &err) < 0;
        json_t *doc = bpe_trainer_finish(t, 1000, NULL, 0);
        const json_t *model = json_object_get(doc, "model"),
                     *list = json_object_get(model, "merges"),
                     *vocab = json_object_get(model, "vocab");
        const int n = train_plainly(s, LENGTH, FIRST, merges);
        bad += (int)json_array_size(list) != n;
        for (int i = 0; !bad && i < n; i++)
            for (size_t k = 0; k < 2; k++) {
                const char *name =
                    json_string_value(json_array_get(json_array_get(list, (size_t)i), k));
                bad += json_integer_value(json_object_get(vocab, name)) != merges[i][k];
            }
        json_decref(doc);
        bpe_trainer_destroy(t);
    }
    ok(!bad, "seed %llu: training merges as the definition does", (unsigned long long)seed);
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

static void test_graphemes(void) {
    static const struct {
        const char *text;
        int bytes;
    } cases[] = {{"ab", 1},
                 {"e\xcc\x81x", 3},
                 {"e\xcc\x81\xcc\xa3", 5},
                 {"\r\n\n", 2},
                 {"\n\xcc\x81", 1},
                 {"\xd8\x80"
                  "a\xcc\x81"
                  "b",
                  5}, /* U+0600 is put before */
                 {"\xd8\x80\n", 2},
                 {"\xe0\xa4\xa8\xe0\xa4\xbf\xe0\xa4\xa8", 6}};
    unsigned char *classes = grapheme_classes();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *s = cases[i].text;
        const int got = (int)(grapheme_end(classes, s, s + strlen(s)) - s);
        ok(got == cases[i].bytes, "grapheme %d: %d bytes, expected %d", (int)i, got,
           cases[i].bytes);
    }
    free(classes);
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
    test_unigram(3);
    test_training(5);
    test_words();
    test_graphemes();
    test_utf8();
    test_whole();
    return done_testing();
}
