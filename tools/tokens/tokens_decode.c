/* Ids to text. */
#include "tokens.h"

#include "common/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int put_token(const struct tokenizer *t, long long id, bool first, struct err *err) {
    int64_t n;
    const char *bytes = tokenizer_bytes(t, id, first, &n);
    if (!bytes)
        return err_input(err, "token %lld: expected an id of the vocabulary of %lld", id,
                         (long long)tokenizer_vocab(t));
    fwrite(bytes, 1, (size_t)n, stdout);
    return 0;
}

/* Ids with blanks, commas, brackets or line ends between. */
static int decode_text(const struct tokenizer *t, const char *text, struct err *err) {
    static const char between[] = " \t\r\n,[]";
    bool first = true;
    for (const char *s = text + strspn(text, between); *s; s += strspn(s, between)) {
        char *end;
        errno = 0;
        long long id = strtoll(s, &end, 10);
        if (end == s || errno || (*end && !strchr(between, *end)))
            return err_input(err, "byte %lld: expected token ids, got \"%.40s\"",
                             (long long)(s - text), s);
        if (put_token(t, id, first, err) < 0)
            return err_prefix(err, "byte %lld", (long long)(s - text));
        first = false;
        s = end;
    }
    return 0;
}

int tokens_decode(const struct tokenizer *t, char *const *files, int n, struct err *err) {
    int rc = 0;
    for (int i = 0; rc == 0 && i < n; i++) {
        size_t size;
        char *text = file_read(files[i], 0, &size, err);
        rc = text ? decode_text(t, text, err) : -1;
        free(text);
        if (rc < 0 && text)
            err_prefix(err, "%s", strcmp(files[i], "-") ? files[i] : "standard input");
    }
    return rc < 0 ? -1 : file_stdout_check(err);
}
