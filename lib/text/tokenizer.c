#include "common/rng.h"
#include "text/tokenizer_impl.h"

#include <stdlib.h>
#include <string.h>

void tokenizer_destroy(struct tokenizer *t) {
    if (!t)
        return;
    json_decref(t->post);
    arr_release(&t->tokens);
    hashtable_release(&t->by_key);
    arr_release(&t->hashed);
    free(t->merges.slot);
    arr_release(&t->added);
    free(t->kinds);
    arr_release(&t->room.symbols);
    arr_release(&t->room.heap);
    hashtable_release(&t->known.table);
    arr_release(&t->known.words);
    arr_release(&t->known.text);
    arr_release(&t->known.ids);
    free(t->unigram.scores);
    free(t->unigram.trie.slot);
    arr_release(&t->unigram.ends);
    free(t->prefixed.p);
    normalizer_release(&t->normalizer);
    arena_release(&t->arena);
    free(t);
}

int64_t tokenizer_vocab(const struct tokenizer *t) {
    return t->tokens.n;
}

int64_t tokenizer_added(const struct tokenizer *t, const char *content) {
    for (int64_t i = 0; i < t->added.n; i++)
        if (!strcmp(t->added.p[i].content, content))
            return t->added.p[i].id;
    return -1;
}

const char *tokenizer_bytes(const struct tokenizer *t, int64_t id, bool first, int64_t *n) {
    if (id < 0 || id >= t->tokens.n || !t->tokens.p[id].key.bytes)
        return NULL;
    const struct token *token = &t->tokens.p[id];
    const struct span s = first ? token->first : token->text;
    *n = s.n;
    return s.bytes;
}

static bool same_key(const void *entries, int64_t i, const void *key) {
    const struct tokenizer *t = entries;
    const struct span *a = &t->tokens.p[t->hashed.p[i]].key, *b = key;
    return a->n == b->n && !memcmp(a->bytes, b->bytes, (size_t)a->n);
}

int32_t tokenizer_of_key(const struct tokenizer *t, const char *key, int64_t n) {
    const struct span s = {key, n};
    int64_t i = hashtable_find(&t->by_key, hash_bytes(key, (size_t)n, 0), same_key, t, &s);
    return i < 0 ? -1 : t->hashed.p[i];
}

int tokenizer_put(struct tokenizer *t, const char *key, size_t size, int64_t id, bool found,
                  struct err *err) {
    while (t->tokens.n <= id)
        arr_push(&t->tokens, (struct token){0});
    if (t->tokens.p[id].key.bytes)
        return err_input(err, "%lld is the id of another token too", (long long)id);
    char *bytes = arena_alloc(&t->arena, size + 1);
    memcpy(bytes, key, size);
    const struct span s = {bytes, (int64_t)size};
    t->tokens.p[id] = (struct token){s, s, s};
    if (!found)
        return 0;
    if (hashtable_put(&t->by_key, hash_bytes(key, size, 0), same_key, t, &s) < t->hashed.n)
        return err_input(err, "the token has another id too");
    arr_push(&t->hashed, (int32_t)id);
    return 0;
}
