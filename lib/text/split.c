#include "text/split.h"

#include "text/unicode.h"

#include <stdbool.h>
#include <string.h>

#define CL100K(numbers)                                                                    \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers                  \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const char *const regexes[SPLIT_NONE] = {
    [SPLIT_GPT2] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
                   "|\\s+(?!\\S)|\\s+",
    [SPLIT_QWEN2] = CL100K("\\p{N}"),
    [SPLIT_LLAMA3] = CL100K("\\p{N}{1,3}"),
};

enum split_pattern split_find(const char *regex) {
    int i = 0;
    while (i < SPLIT_NONE && strcmp(regexes[i], regex) != 0)
        i++;
    return (enum split_pattern)i;
}

enum { SPACES = 1 << UNICODE_SPACE | 1 << UNICODE_NEWLINE };

static inline int kind_at(const unsigned char *kinds, const char *s, const char *end,
                          int *bytes) {
    *bytes = 0;
    return s < end ? kinds[utf8_point(s, bytes)] : UNICODE_END;
}

/* The end of the run of at most `most` code points of these kinds (bits). */
static const char *skip(const unsigned char *kinds, int wanted, int64_t most, const char *s,
                        const char *end) {
    int bytes;
    while (most-- > 0 && wanted >> kind_at(kinds, s, end, &bytes) & 1)
        s += bytes;
    return s;
}

/* 's, 't, 're, 've, 'm, 'll, 'd; of any case, U+017F is an s as well. */
static const char *contraction(const char *s, const char *end, bool any_case) {
    static const char *const tails[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    if (*s++ != '\'')
        return NULL;
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        const char *t = tails[i], *at = s;
        while (*t && at < end && (*at == *t || (any_case && *at == (*t ^ 0x20))))
            t++, at++;
        if (!*t)
            return at;
    }
    return any_case && end - s >= 2 && !memcmp(s, "\xc5\xbf", 2) ? s + 2 : NULL;
}

/* White space: all of it where no word follows, else all but the last, which goes with the word;
 * one alone stands for itself. */
static const char *space(const unsigned char *kinds, const char *s, const char *end) {
    const char *e = skip(kinds, SPACES, INT64_MAX, s, end), *last = e;
    if (e == end)
        return e;
    do
        last--;
    while ((*last & 0xc0) == 0x80);
    return last > s ? last : e;
}

static const char *word_gpt2(const unsigned char *kinds, const char *s, const char *end) {
    const char *e = contraction(s, end, false);
    if (e)
        return e;
    int bytes, kind = kind_at(kinds, s, end, &bytes);
    const char *begin = s;
    if (*s == ' ') {
        int next = kind_at(kinds, s + 1, end, &bytes);
        if (next <= UNICODE_NUMBER)
            kind = next, begin++;
    }
    if (kind > UNICODE_NUMBER)
        return space(kinds, s, end);
    return skip(kinds, 1 << kind, INT64_MAX, begin, end);
}

/* The end of `\s*[\r\n]+`: behind the last CR or LF of the white space. NULL where it has none. */
static const char *newlines(const unsigned char *kinds, const char *s, const char *end) {
    const char *e = skip(kinds, SPACES, INT64_MAX, s, end);
    while (e > s && e[-1] != '\n' && e[-1] != '\r')
        e--;
    return e > s ? e : NULL;
}

static const char *word_cl100k(const unsigned char *kinds, int numbers, const char *s,
                               const char *end) {
    const char *e = contraction(s, end, true);
    if (e)
        return e;
    int bytes, after, kind = kind_at(kinds, s, end, &bytes);
    if (kind == UNICODE_NUMBER)
        return skip(kinds, 1 << kind, numbers, s, end);
    const int next = kind_at(kinds, s + bytes, end, &after);
    if (kind == UNICODE_LETTER || (kind != UNICODE_NEWLINE && next == UNICODE_LETTER))
        return skip(kinds, 1 << UNICODE_LETTER, INT64_MAX, s + bytes, end);
    if (kind == UNICODE_OTHER || (*s == ' ' && next == UNICODE_OTHER)) {
        e = skip(kinds, 1 << UNICODE_OTHER, INT64_MAX, s + bytes, end);
        return skip(kinds, 1 << UNICODE_NEWLINE, INT64_MAX, e, end);
    }
    e = newlines(kinds, s, end);
    return e ? e : space(kinds, s, end);
}

const char *split_word(enum split_pattern pattern, const unsigned char *kinds,
                       const char *s, const char *end) {
    if (pattern == SPLIT_GPT2)
        return word_gpt2(kinds, s, end);
    return word_cl100k(kinds, pattern == SPLIT_LLAMA3 ? 3 : 1, s, end);
}
