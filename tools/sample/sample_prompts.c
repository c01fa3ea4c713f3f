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

/* Who reads texts: a tokenizer, and what it puts around each; or nobody, and bytes are the tokens. */
struct reader {
    struct tokenizer *t;
    struct token_ids before, behind;
    int64_t vocab;
};

static int add_ids(struct prompt *p, const struct token_ids *ids, int64_t vocab,
                   struct err *err) {
    int rc = 0;
    for (int64_t i = 0; rc == 0 && i < ids->n; i++)
        rc = add_id(p, ids->p[i], vocab, err);
    return rc;
}

static int read_text(struct prompt *p, const struct reader *r, const char *line,
                     struct err *err) {
    struct token_ids ids = {0};
    int rc = 0;
    p->text = mem_strdup(line);
    if (r->t)
        rc = tokenizer_encode(r->t, line, (int64_t)strlen(line), &ids, err);
    else
        for (const char *s = line; *s; s++)
            arr_push(&ids, (unsigned char)*s);
    const struct token_ids *parts[] = {&r->before, &ids, &r->behind};
    for (int i = 0; rc == 0 && i < 3; i++)
        rc = add_ids(p, parts[i], r->vocab, err);
    free(ids.p);
    return rc;
}

static int add_prompt(struct prompts *all, const struct sample_options *o,
                      const struct reader *r, const char *line, struct err *err) {
    arr_push(&all->all, (struct prompt){0});
    struct prompt *p = &arr_last(&all->all);
    int rc = o->ids ? read_ids(p, line, r->vocab, err) : read_text(p, r, line, err);
    if (rc == 0 && p->n == 0)
        rc = err_input(err, "expected at least one token");
    if (p->n > all->longest)
        all->longest = p->n;
    return rc;
}

static int add_lines(struct prompts *all, const struct sample_options *o,
                     const struct reader *r, const char *path, struct err *err) {
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
        if (add_prompt(all, o, r, line, err) < 0)
            rc = err_prefix(err, "%s: line %lld",
                            strcmp(path, "-") ? path : "standard input",
                            (long long)all->all.n);
    }
    free(text);
    if (rc == 0 && !all->all.n)
        rc = err_input(err, "%s: no prompt", strcmp(path, "-") ? path : "standard input");
    return rc;
}

static int read_prompts(struct prompts *p, const struct sample_options *o,
                        const struct reader *r, struct err *err) {
    if (!o->prompt)
        return add_lines(p, o, r, o->prompts ? o->prompts : "-", err);
    return add_prompt(p, o, r, o->prompt, err) < 0 ? err_prefix(err, "--prompt") : 0;
}

int prompts_read(struct prompts *p, const struct sample_options *o, struct tokenizer *t,
                 int64_t vocab, struct err *err) {
    struct reader r = {.t = t, .vocab = vocab};
    *p = (struct prompts){.longest = 0};
    if (!o->ids && !t && vocab != BYTES) {
        err_input(err, "the model has %lld tokens, which are not the bytes of a text",
                  (long long)vocab);
        return err_hint(err, "--tokenizer FILE says what its tokens are; --ids takes and "
                             "writes token ids");
    }
    int rc = 0;
    if (t && !o->plain && tokenizer_around(t, &r.before, &r.behind, err) < 0) {
        rc = err_prefix(err, "%s", o->tokenizer);
        err_hint(err, "--no-special puts nothing around prompts");
    }
    if (rc == 0)
        rc = read_prompts(p, o, &r, err);
    free(r.before.p);
    free(r.behind.p);
    return rc;
}

void prompts_release(struct prompts *p) {
    for (int64_t i = 0; i < p->all.n; i++) {
        free(p->all.p[i].text);
        free(p->all.p[i].ids);
    }
    arr_release(&p->all);
}
