/* Documents to ids. */
#include "tokens.h"

#include "common/file.h"
#include "common/mem.h"
#include "common/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct encoding {
    struct tokenizer *t;
    struct tokens_around around; /* each document */
    struct token_ids ids;
    ARR(struct document) documents;
    int64_t bytes;
};

const char *tokens_name(const char *path) {
    return strcmp(path, "-") ? path : "standard input";
}

/* The id of an added token that an option names, or -1 for NULL. Returns 0 or -1. */
static int find(const struct tokenizer *t, const char *option, const char *content,
                int64_t *id, struct err *err) {
    *id = content ? tokenizer_added(t, content) : -1;
    if (content && *id < 0)
        return err_input(err, "%s: \"%.80s\" is none of the tokenizer's added tokens",
                         option, content);
    return 0;
}

int tokens_around(const struct tokenizer *t, const struct tokens_options *o,
                  struct tokens_around *out, struct err *err) {
    int64_t begin, end;
    *out = (struct tokens_around){0};
    if (find(t, "--begin", o->begin, &begin, err) < 0 ||
        find(t, "--end", o->end, &end, err) < 0)
        return -1;
    struct token_ids inner = {0};
    if (begin >= 0)
        arr_push(&out->before, (int32_t)begin);
    int rc = o->special ? tokenizer_around(t, &inner, &out->behind, err) : 0;
    tokens_put(&out->before, &inner);
    free(inner.p);
    if (rc < 0)
        return err_prefix(err, "--special");
    if (end >= 0)
        arr_push(&out->behind, (int32_t)end);
    return 0;
}

void tokens_around_release(struct tokens_around *around) {
    free(around->before.p);
    free(around->behind.p);
}

void tokens_put(struct token_ids *ids, const struct token_ids *more) {
    for (int64_t i = 0; i < more->n; i++)
        arr_push(ids, more->p[i]);
}

static int add_text(struct encoding *e, const char *text, size_t size, struct err *err) {
    struct document d = {.first = e->ids.n};
    tokens_put(&e->ids, &e->around.before);
    if (tokenizer_encode(e->t, text, (int64_t)size, &e->ids, err) < 0)
        return -1;
    tokens_put(&e->ids, &e->around.behind);
    d.n = e->ids.n - d.first;
    e->bytes += (int64_t)size;
    arr_push(&e->documents, d);
    return 0;
}

/* Each line a document under a key. */
static int add_lines(struct encoding *e, const char *key, char *text, struct err *err) {
    int number = 0;
    for (char *line = text, *next; line; line = next) {
        if ((next = strchr(line, '\n')))
            *next++ = '\0';
        number++;
        if (!line[strspn(line, " \t\r")])
            continue;
        const char *document;
        json_t *doc = json_parse(line, strlen(line), "document", err);
        int rc = !doc || json_str(doc, key, &document, err) < 0 ||
                         add_text(e, document, strlen(document), err) < 0
                     ? -1
                     : 0;
        json_decref(doc);
        if (rc < 0)
            return err_prefix(err, "line %d", number);
    }
    return 0;
}

static int add_file(struct encoding *e, const char *key, const char *path,
                    struct err *err) {
    size_t size;
    char *text = file_read(path, 0, &size, err);
    if (!text)
        return -1;
    int rc = key ? add_lines(e, key, text, err) : add_text(e, text, size, err);
    free(text);
    return rc < 0 ? err_prefix(err, "%s", tokens_name(path)) : 0;
}

static int write_output(const struct encoding *e, const struct tokens_options *o,
                        struct err *err) {
    if (o->pack)
        return tokens_pack(o->output, o->pack, &e->ids, e->documents.p, e->documents.n,
                           err);
    return tokens_write(o->output, o->raw, tokenizer_vocab(e->t), &e->ids, e->documents.p,
                        e->documents.n, err);
}

static void print_ids(const struct encoding *e, struct document d) {
    for (int64_t i = 0; i < d.n; i++)
        printf("%s%d", i ? " " : "", e->ids.p[d.first + i]);
    putchar('\n');
}

int tokens_encode(struct tokenizer *t, const struct tokens_options *o, char *const *files,
                  int n, struct err *err) {
    struct encoding e = {.t = t};
    const double start = now_s();
    int rc = tokens_around(t, o, &e.around, err);
    for (int i = 0; rc == 0 && i < n; i++)
        rc = add_file(&e, o->lines, files[i], err);
    if (rc == 0)
        note_verbose("weft-tokens: %lld bytes, %lld tokens in %.3f s", (long long)e.bytes,
                     (long long)e.ids.n, now_s() - start);
    if (rc == 0 && o->output)
        rc = write_output(&e, o, err);
    for (int64_t i = 0; rc == 0 && !o->output && i < e.documents.n; i++)
        print_ids(&e, e.documents.p[i]);
    tokens_around_release(&e.around);
    free(e.ids.p);
    arr_release(&e.documents);
    return rc < 0 ? -1 : file_stdout_check(err);
}
