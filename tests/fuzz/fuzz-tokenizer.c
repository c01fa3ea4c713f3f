/* Fuzzes the reader of tokenizer.json (libFuzzer): the document ends at the first NUL, behind it stands a
 * text. What is accepted encodes the text, and the ids are those of the vocabulary. */
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void encode(struct tokenizer *t, const char *text, int64_t n) {
    struct err err = {0};
    struct token_ids ids = {0};
    if (tokenizer_encode(t, text, n, &ids, &err) < 0 &&
        (err.status != EXIT_INPUT || !err.msg[0] || ids.n))
        abort();
    for (int64_t i = 0, length; i < ids.n; i++)
        if (!tokenizer_bytes(t, ids.p[i], i == 0, &length))
            abort();
    free(ids.p);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    struct err err = {0};
    const uint8_t *nul = size ? memchr(bytes, 0, size) : NULL;
    const size_t end = nul ? (size_t)(nul - bytes) : size, text = nul ? end + 1 : size;
    json_t *doc = json_parse((const char *)bytes, end, "fuzzed", &err);
    struct tokenizer *t = doc ? tokenizer_from_json(doc, &err) : NULL;
    if (!t && (err.status != EXIT_INPUT || !err.msg[0]))
        abort();
    if (t)
        encode(t, (const char *)bytes + text, (int64_t)(size - text));
    tokenizer_destroy(t);
    json_decref(doc);
    return 0;
}
