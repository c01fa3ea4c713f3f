/* Unigram: of all ways to cut a word into tokens the one of the greatest sum of log-probabilities, found
 * from the left. Sums are of double precision and added in the library's order, since ways of equal sums
 * are told apart by what rounding leaves. */
#include "text/tokenizer_impl.h"
#include "text/unicode.h"

#include <math.h>

void unigram_init(struct tokenizer *t) {
    const double penalty = 10; /* as sentencepiece has it */
    struct unigram *u = &t->unigram;
    double least = INFINITY;
    int64_t bytes = 0;
    for (int64_t id = 0; id < t->tokens.n; id++) {
        least = u->scores[id] < least ? u->scores[id] : least;
        bytes += t->tokens.p[id].key.n;
    }
    u->unknown = least - penalty;
    pairs_init(&u->trie, bytes);
    int32_t nodes = 1;
    for (int32_t id = 0; id < t->tokens.n; id++) {
        const struct span key = t->tokens.p[id].key;
        int32_t node = 0;
        for (int64_t i = 0; i < key.n; i++) {
            const int32_t byte = (unsigned char)key.bytes[i];
            struct pair *edge = pairs_find(&u->trie, node, byte);
            if (!edge) {
                pairs_put(&u->trie, (struct pair){node, byte, -1, nodes++});
                edge = pairs_find(&u->trie, node, byte);
            }
            if (i == key.n - 1)
                edge->rank = id;
            node = edge->id;
        }
    }
}

static void offer(struct unigram_end *end, double score, int32_t id, int64_t begin) {
    if (end->begin < 0 || score > end->score)
        *end = (struct unigram_end){score, id, (int32_t)begin};
}

/* All tokens that begin at a byte; a code point that is none of them is unknown. */
static void offer_from(struct tokenizer *t, struct span s, int64_t begin, int64_t point) {
    const struct unigram *u = &t->unigram;
    struct unigram_end *ends = u->ends.p;
    const double so_far = ends[begin].score;
    const struct pair *edge;
    bool known = false;
    int32_t node = 0;
    for (int64_t i = begin; i < s.n; i++, node = edge->id) {
        edge = pairs_find(&u->trie, node, (unsigned char)s.bytes[i]);
        if (!edge)
            break;
        if (edge->rank < 0)
            continue;
        offer(&ends[i + 1], u->scores[edge->rank] + so_far, edge->rank, begin);
        known |= i + 1 == begin + point;
    }
    if (!known)
        offer(&ends[begin + point], u->unknown + so_far, t->unk_id, begin);
}

/* What is unknown: the bytes where they have tokens, else the unknown one. */
static void put_unknown(const struct tokenizer *t, struct span s, struct token_ids *ids) {
    const int32_t whole = tokenizer_of_key(t, s.bytes, s.n);
    bool bytes = t->byte_fallback && whole < 0;
    for (int64_t i = 0; bytes && i < s.n; i++)
        bytes = t->byte_id[(unsigned char)s.bytes[i]] >= 0;
    for (int64_t i = 0; bytes && i < s.n; i++)
        arr_push(ids, t->byte_id[(unsigned char)s.bytes[i]]);
    if (!bytes)
        arr_push(ids, whole < 0 ? t->unk_id : whole);
}

void unigram_encode(struct tokenizer *t, struct span word, struct token_ids *ids) {
    struct unigram *u = &t->unigram;
    u->ends.n = 0;
    for (int64_t i = 0; i <= word.n; i++)
        arr_push(&u->ends, (struct unigram_end){.begin = i ? -1 : 0});
    int bytes;
    for (int64_t i = 0; i < word.n; i += bytes) {
        utf8_point(word.bytes + i, &bytes);
        offer_from(t, word, i, bytes);
    }
    /* The links lead back from the end; turned round, each beginning says where its token ends. */
    struct unigram_end *ends = u->ends.p;
    int32_t behind = (int32_t)word.n;
    for (int32_t at = behind, next = -1; at > 0; at = behind) {
        behind = ends[at].begin;
        ends[at].begin = next;
        next = at;
        if (behind == 0)
            ends[0].begin = next;
    }
    for (int32_t at = 0, end; at < word.n; at = end) {
        end = ends[at].begin;
        if (ends[end].id != t->unk_id) {
            arr_push(ids, ends[end].id);
            continue;
        }
        while (end < word.n && ends[ends[end].begin].id == t->unk_id)
            end = ends[end].begin;
        put_unknown(t, (struct span){word.bytes + at, end - at}, ids);
    }
}
