/* A text to ids: its added tokens, and what is between them. */
#include "text/tokenizer_impl.h"
#include "text/unicode.h"

#include <string.h>

/* The longest added token of this kind that begins at s. */
static const struct added *added_at(const struct tokenizer *t, bool normalized,
                                    const char *s, int64_t left) {
    for (int64_t i = 0; i < t->added.n; i++) {
        const struct added *a = &t->added.p[i];
        if (a->normalized == normalized && a->sought.n <= left &&
            !memcmp(s, a->sought.bytes, (size_t)a->sought.n))
            return a;
    }
    return NULL;
}

static void encode_between(struct tokenizer *t, bool normalized, struct span s, bool first,
                           struct token_ids *ids);

static void encode_part(struct tokenizer *t, bool normalized, struct span s, bool first,
                        struct token_ids *ids) {
    if (s.n && !normalized)
        s = normalizer_run(&t->normalizer, t->kinds, s);
    if (s.n == 0)
        return;
    if (normalized)
        tokenizer_encode_words(t, s, first, ids);
    else
        encode_between(t, true, s, first, ids);
}

/* First those that are looked for in the text as it is, then in what is left the others; first: s begins
 * the text. */
static void encode_between(struct tokenizer *t, bool normalized, struct span s, bool first,
                           struct token_ids *ids) {
    const char *from = s.bytes, *at = from, *end = from + s.n;
    while (at < end) {
        const struct added *a = t->begins[normalized][(unsigned char)*at]
                                    ? added_at(t, normalized, at, end - at)
                                    : NULL;
        if (!a) {
            at++;
            continue;
        }
        const char *to = a->lstrip ? unicode_space_before(t->kinds, from, at) : at;
        encode_part(t, normalized, (struct span){from, to - from}, first, ids);
        first = false;
        arr_push(ids, a->id);
        at += a->sought.n;
        from = at = a->rstrip ? unicode_space_behind(t->kinds, at, end) : at;
    }
    encode_part(t, normalized, (struct span){from, end - from}, first, ids);
}

int tokenizer_encode(struct tokenizer *t, const char *text, int64_t n,
                     struct token_ids *ids, struct err *err) {
    const int64_t bad = utf8_check(text, n);
    if (bad >= 0)
        return err_input(err, "byte %lld: expected text in UTF-8", (long long)bad);
    if (n > INT32_MAX)
        return err_input(err, "%lld bytes, expected at most %d", (long long)n, INT32_MAX);
    encode_between(t, false, (struct span){text, n}, true, ids);
    return 0;
}
