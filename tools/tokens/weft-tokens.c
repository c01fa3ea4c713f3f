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

static struct tokens_options o;

static const struct opt options[] = {
    {0, "ids", OPT_FLAG, NULL, "write ids to standard output (without -o: as if given)",
     &o.ids},
    {'o', "output", OPT_STR, "FILE",
     "write FILE.bin (llm.c), .u32, or .idx and its .bin (Megatron-LM)", &o.output},
    {0, "raw", OPT_FLAG, NULL, "FILE.bin without llm.c's header, as nanoGPT has it",
     &o.raw},
    {0, "begin", OPT_STR, "TOKEN", "put this token before each document", &o.begin},
    {0, "end", OPT_STR, "TOKEN", "put this token behind each document", &o.end},
    {0, "special", OPT_FLAG, NULL, "put what the post-processor does around each document",
     &o.special},
    {0, "lines", OPT_STR, "KEY", "files hold lines of JSON, each a document under KEY",
     &o.lines},
    {0, "pack", OPT_INT, "SEQ", "pack documents into FILE.m32 for sequences of SEQ",
     &o.pack},
    {0, "examples", OPT_INT, "SEQ",
     "read lines of {\"prompt\", \"answer\"}, write FILE.m32 for sequences of SEQ",
     &o.examples},
    {0, "decode", OPT_FLAG, NULL, "read ids, write their text", &o.decode},
    {0, "train", OPT_INT, "N", "learn a tokenizer of N tokens from the files", &o.train},
    {0}};

static const struct opt_tool tool = {
    "weft-tokens", "[options] [TOKENIZER] [FILE...]",
    "Turn text into the token ids of a tokenizer.json, or ids into text.", options};

/* Which of the options go together. */
static int check_modes(struct err *err) {
    const bool masked = o.output && tokens_ends(o.output, ".m32");
    if (o.decode && (o.ids || o.output || o.begin || o.end || o.special))
        return err_usage(err, "--decode excludes --ids, -o, --begin, --end and --special");
    if (o.train && (o.ids || o.decode || o.examples || o.special))
        return err_usage(err, "--train excludes --ids, --decode, --examples and --special");
    if ((o.lines || o.raw || o.pack) && (o.train || o.decode || o.examples))
        return err_usage(err, "--lines, --raw and --pack exclude --train, --decode and "
                              "--examples");
    if (o.examples && (o.decode || !masked))
        return err_usage(err, "--examples: expected -o FILE.m32, and no --decode");
    if (o.pack && !masked)
        return err_usage(err, "--pack: expected -o FILE.m32");
    if (o.raw && !(o.output && tokens_ends(o.output, ".bin")))
        return err_usage(err, "--raw: expected -o FILE.bin");
    if (o.ids && o.output)
        return err_usage(err, "--ids and -o exclude each other");
    return 0;
}

static int check_options(int n, struct err *err) {
    enum { BYTES_AND_TWO = 258, MOST = 1 << 24 };
    if (n < 1 && !o.train)
        return err_usage(err, "expected a tokenizer.json");
    if (check_modes(err) < 0)
        return -1;
    if (o.train && (o.train < BYTES_AND_TWO || o.train > MOST))
        return err_usage(err, "--train: expected %d to %d tokens", BYTES_AND_TWO, MOST);
    if (o.examples && o.examples < 2)
        return err_usage(err, "--examples: expected at least 2");
    if (o.pack && (o.pack < 2 || o.pack > MOST))
        return err_usage(err, "--pack: expected 2 to %d", MOST);
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
