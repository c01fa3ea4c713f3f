/* Fuzzes the safetensors reader and, on inputs that begin with '{', the readers of a
 * checkpoint's index.json and of the index of a set of files (libFuzzer). What is accepted must
 * be what the headers promise; every byte of every tensor is read.
 *
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined -Ilib tests/fuzz/fuzz-safetensors.c \
 *         lib/common/[a-z]*.c lib/checkpoint/[a-z]*.c -ljansson -lm -o fuzz-safetensors */
#include "checkpoint/ckptindex.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/stset.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void parse_index(const char *text, size_t size) {
    struct err err = {0};
    struct ckpt_index ix = {0};
    struct checkpoint_info info = {0};
    json_t *doc = json_parse(text, size, "index.json", &err);
    if (doc && ckpt_index_read(&ix, &info, doc, &err) == 0) {
        for (int64_t i = 0; i < ix.tensors.n; i++)
            if (ckpt_index_find(&ix, ix.tensors.p[i].kind, ix.tensors.p[i].name) !=
                &ix.tensors.p[i])
                abort();
        json_t *again = ckpt_index_json(&ix, &info);
        if (!json_equal(json_object_get(again, "files"), json_object_get(doc, "files")))
            abort();
        json_decref(again);
    } else if (err.status != EXIT_INPUT) {
        abort();
    }
    json_decref(doc);
    ckpt_index_release(&ix);
}

/* Names of files only, each once. */
static void parse_set_index(const char *text, size_t size) {
    struct err err = {0};
    struct arena arena = {0};
    const char **files;
    json_t *doc = json_parse(text, size, "model.safetensors.index.json", &err);
    int64_t n = doc ? st_index_files(&arena, doc, &files, &err) : -1;
    if (n < 0 && err.status != EXIT_INPUT)
        abort();
    for (int64_t i = 0; i < n; i++)
        if (!files[i][0] || strchr(files[i], '/') || files[i][0] == '.' ||
            (i && strcmp(files[i - 1], files[i]) >= 0))
            abort();
    json_decref(doc);
    arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    if (size && bytes[0] == '{') {
        parse_index((const char *)bytes, size);
        parse_set_index((const char *)bytes, size);
        return 0;
    }
    struct err err = {0};
    struct st_file f;
    if (st_parse(&f, bytes, (int64_t)size, &err) < 0) {
        if (err.status != EXIT_INPUT || !err.msg[0])
            abort();
        return 0;
    }
    int64_t total = 0, end = 0;
    for (int64_t i = 0; i < f.tensors; i++) {
        const struct st_tensor *t = &f.tensor[i];
        if (t->offset < 8 || t->bytes < 0 || t->bytes > f.size - t->offset)
            abort();
        struct xxh64 h;
        xxh64_begin(&h);
        xxh64_add(&h, f.bytes + t->offset, (size_t)t->bytes);
        total += t->bytes;
        end = t->offset + t->bytes;
    }
    if (f.tensors && (end != f.size || total > f.size))
        abort();
    st_close(&f);
    return 0;
}
