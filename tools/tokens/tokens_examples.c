/* Examples for fine-tuning: prompts, which are read, and answers, which are learned. Each begins a sequence of
 * the model, padded to its end; what is no answer is masked (data/tokens.h). */
#include "tokens.h"

#include "common/file.h"
#include "common/json.h"
#include "common/mem.h"
#include "common/progress.h"

#include <stdlib.h>
#include <string.h>

struct examples {
    struct tokenizer *t;
    struct tokens_around around; /* each example */
    int64_t seq;                 /* positions of a sequence */
    struct token_ids ids;
    int64_t n, cut; /* of them longer than a sequence */
};

static int encode(struct examples *x, const json_t *line, const char *key,
                  struct err *err) {
    const char *text = NULL;
    if (json_str(line, key, &text, err) < 0)
        return -1;
    return tokenizer_encode(x->t, text, (int64_t)strlen(text), &x->ids, err) < 0
               ? err_prefix(err, "%s", key)
               : 0;
}

/* The first token of all has none before it that could foretell it. */
static int add_example(struct examples *x, const json_t *line, struct err *err) {
    const int64_t first = x->ids.n, end = first + x->seq;
    if (json_keys(line, "prompt answer", err) < 0)
        return -1;
    tokens_put(&x->ids, &x->around.before);
    if (encode(x, line, "prompt", err) < 0)
        return -1;
    const int64_t answer = x->ids.n > first ? x->ids.n : first + 1;
    if (encode(x, line, "answer", err) < 0)
        return -1;
    tokens_put(&x->ids, &x->around.behind);
    if (answer >= x->ids.n || answer >= end)
        return err_input(err, "answer: nothing of it is among the first %lld tokens",
                         (long long)x->seq);
    for (int64_t i = first; i < answer; i++)
        x->ids.p[i] |= TOKENS_MASK;
    x->n++;
    x->cut += x->ids.n > end;
    while (x->ids.n < end)
        arr_push(&x->ids, TOKENS_MASK);
    x->ids.n = end;
    return 0;
}

static int add_lines(struct examples *x, char *text, const char *name, struct err *err) {
    int number = 0;
    for (char *line = text, *next; line; line = next) {
        if ((next = strchr(line, '\n')))
            *next++ = '\0';
        number++;
        if (!line[strspn(line, " \t\r")])
            continue;
        json_t *doc = json_parse(line, strlen(line), "example", err);
        int rc = doc ? add_example(x, doc, err) : -1;
        json_decref(doc);
        if (rc < 0)
            return err_prefix(err, "%s: line %d", name, number);
    }
    return 0;
}

int tokens_examples(struct tokenizer *t, const struct tokens_options *o, char *const *files,
                    int n, struct err *err) {
    struct examples x = {.t = t, .seq = o->examples};
    int rc = tokens_around(t, o, &x.around, err);
    for (int i = 0; rc == 0 && i < n; i++) {
        size_t size;
        char *text = file_read(files[i], 0, &size, err);
        rc = text ? add_lines(&x, text, tokens_name(files[i]), err) : -1;
        free(text);
    }
    if (rc == 0 && !x.n)
        rc = err_input(err, "there is no example");
    if (rc == 0 && x.cut)
        note("weft-tokens: %lld of %lld examples have more than %lld tokens: they are cut",
             (long long)x.cut, (long long)x.n, (long long)x.seq);
    if (rc == 0)
        rc = tokens_write_masked(o->output, &x.ids, err);
    tokens_around_release(&x.around);
    free(x.ids.p);
    return rc;
}
