/* weft-tokens - texts as the token ids of a model, ids as text, and tokenizers of texts.
 *
 *     weft-tokens tokenizer.json book.txt
 *     weft-tokens --end '<|endoftext|>' -o train.bin tokenizer.json *.txt
 *     echo 15496 995 | weft-tokens --decode tokenizer.json
 *     weft-tokens --train 8000 --end '<|endoftext|>' *.txt > tokenizer.json
 *
 * Each file is one document. */
#include "tokens.h"

#include "common/opt.h"
#include "common/progress.h"

#include <stdlib.h>
#include <string.h>

static struct tokens_options o;

static const struct opt options[] = {
    {0, "ids", OPT_FLAG, NULL, "write ids to standard output (without -o: as if given)",
     &o.ids},
    {'o', "output", OPT_STR, "FILE",
     "write FILE.bin (llm.c), or FILE.idx and its .bin; or the tokenizer", &o.output},
    {0, "begin", OPT_STR, "TOKEN", "put this token before each document", &o.begin},
    {0, "end", OPT_STR, "TOKEN", "put this token behind each document", &o.end},
    {0, "examples", OPT_INT, "SEQ",
     "read lines of {\"prompt\", \"answer\"}, write FILE.m32 for sequences of SEQ",
     &o.examples},
    {0, "decode", OPT_FLAG, NULL, "read ids, write their text", &o.decode},
    {0, "train", OPT_INT, "N", "learn a tokenizer of N tokens from the files", &o.train},
    {0}};

static const struct opt_tool tool = {
    "weft-tokens", "[options] [TOKENIZER] [FILE...]",
    "Turn text into the token ids of a tokenizer.json, or ids into text.", options};

static int check_options(int n, struct err *err) {
    if (o.train && (o.train < 258 || o.train > 1 << 24))
        return err_usage(err, "--train: expected 258 to %d tokens", 1 << 24);
    if (o.train && (o.ids || o.decode || o.examples))
        return err_usage(err, "--train excludes --ids, --decode and --examples");
    if (n < 1 && !o.train)
        return err_usage(err, "expected a tokenizer.json");
    if (o.decode && (o.ids || o.output || o.begin || o.end))
        return err_usage(err, "--decode excludes --ids, -o, --begin and --end");
    const size_t length = o.output ? strlen(o.output) : 0;
    if (o.examples &&
        (o.decode || length < 5 || strcmp(o.output + length - 4, ".m32") != 0))
        return err_usage(err, "--examples: expected -o FILE.m32, and no --decode");
    if (o.examples && o.examples < 2)
        return err_usage(err, "--examples: expected at least 2");
    if (o.ids && o.output)
        return err_usage(err, "--ids and -o exclude each other");
    return 0;
}

static int run(int n, char **argv, struct err *err) {
    static char in[] = "-", *const stdin_alone[] = {in};
    if (o.train)
        return tokens_train(&o, n ? argv : stdin_alone, n ? n : 1, err);
    struct tokenizer *t = tokenizer_read(argv[0], err);
    if (!t)
        return -1;
    char *const *files = n > 1 ? argv + 1 : stdin_alone;
    const int count = n > 1 ? n - 1 : 1;
    int rc = o.decode     ? tokens_decode(t, files, count, err)
             : o.examples ? tokens_examples(t, &o, files, count, err)
                          : tokens_encode(t, &o, files, count, err);
    tokenizer_destroy(t);
    return rc;
}

int main(int argc, char **argv) {
    struct err err = {0};
    int n = opt_parse(&tool, argc, argv, &err);
    int rc = n < 0 || check_options(n, &err) < 0 ? -1 : run(n, argv, &err);
    return rc == 0 ? EXIT_DONE : err_report(&err, tool.name);
}
