/* Prompts: lines of text, whose tokens are bytes or what a tokenizer says, or lines of token ids. */
#include "sample.h"

#include "common/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 256 };

static int add_id(struct prompt *p, int64_t id, int64_t vocab, struct err *err) {
    if (id < 0 || id >= vocab)
        return err_input(err, "token %lld: expected 0 to %lld", (long long)id,
                         (long long)vocab - 1);
    p->ids = mem_grow(p->ids, (size_t)p->n + 1, sizeof *p->ids);
    p->ids[p->n++] = (int32_t)id;
    return 0;
}

/* "15 2 7" or "15,2,7". */
static int read_ids(struct prompt *p, const char *line, int64_t vocab, struct err *err) {
    static const char between[] = " \t,[]";
    for (const char *s = line + strspn(line, between); *s; s += strspn(s, between)) {
        char *end;
        errno = 0;
        long long id = strtoll(s, &end, 10);
        if (end == s || errno || !strchr(" \t,]", *end))
            return err_input(err, "expected token ids, got \"%.40s\"", s);
        if (add_id(p, id, vocab, err) < 0)
            return -1;
        s = end;
    }
    return 0;
}

static int read_text(struct prompt *p, struct tokenizer *t, const char *line, int64_t vocab,
                     struct err *err) {
    struct token_ids ids = {0};
    int rc = 0;
    p->text = mem_strdup(line);
    if (t)
        rc = tokenizer_encode(t, line, (int64_t)strlen(line), &ids, err);
    else
        for (const char *s = line; *s; s++)
            arr_push(&ids, (unsigned char)*s);
    for (int64_t i = 0; rc == 0 && i < ids.n; i++)
        rc = add_id(p, ids.p[i], vocab, err);
    free(ids.p);
    return rc;
}

static int add_prompt(struct prompts *all, const struct sample_options *o,
                      struct tokenizer *t, const char *line, int64_t vocab,
                      struct err *err) {
    arr_push(&all->all, (struct prompt){0});
    struct prompt *p = &arr_last(&all->all);
    int rc = o->ids ? read_ids(p, line, vocab, err) : read_text(p, t, line, vocab, err);
    if (rc == 0 && p->n == 0)
        rc = err_input(err, "expected at least one token");
    if (p->n > all->longest)
        all->longest = p->n;
    return rc;
}

static int add_lines(struct prompts *all, const struct sample_options *o,
                     struct tokenizer *t, const char *path, int64_t vocab,
                     struct err *err) {
    size_t size;
    char *text = file_read(path, 0, &size, err), *next;
    if (!text)
        return -1;
    int rc = 0;
    for (char *line = text; rc == 0 && line < text + size; line = next) {
        char *end = memchr(line, '\n', (size_t)(text + size - line));
        next = end ? end + 1 : text + size;
        if (end)
            *end = '\0';
        if (add_prompt(all, o, t, line, vocab, err) < 0)
            rc = err_prefix(err, "%s: line %lld",
                            strcmp(path, "-") ? path : "standard input",
                            (long long)all->all.n);
    }
    free(text);
    if (rc == 0 && !all->all.n)
        rc = err_input(err, "%s: no prompt", strcmp(path, "-") ? path : "standard input");
    return rc;
}

int prompts_read(struct prompts *p, const struct sample_options *o, struct tokenizer *t,
                 int64_t vocab, struct err *err) {
    *p = (struct prompts){.longest = 0};
    if (!o->ids && !t && vocab != BYTES) {
        err_input(err, "the model has %lld tokens, which are not the bytes of a text",
                  (long long)vocab);
        return err_hint(err, "--tokenizer FILE says what its tokens are; --ids takes and "
                             "writes token ids");
    }
    if (o->prompt)
        return add_prompt(p, o, t, o->prompt, vocab, err) < 0 ? err_prefix(err, "--prompt")
                                                              : 0;
    return add_lines(p, o, t, o->prompts ? o->prompts : "-", vocab, err);
}

void prompts_release(struct prompts *p) {
    for (int64_t i = 0; i < p->all.n; i++) {
        free(p->all.p[i].text);
        free(p->all.p[i].ids);
    }
    arr_release(&p->all);
}
