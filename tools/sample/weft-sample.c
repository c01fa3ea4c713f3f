/* weft-sample - text out of a model that was trained, or imported.
 *
 *     weft-sample --prompt 'Once upon a time' checkpoint
 *     weft-sample --tokenizer gpt2/tokenizer.json --prompt 'Once upon a time' gpt2
 *     echo 15496 995 | weft-sample --ids gpt2
 *
 * One rank; no MPI is started. */
#include "sample.h"

#include "common/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct sample_options o = {.tokens = 100,
                                  .stop = -1,
                                  .dtype = "fp32",
                                  .choice = {.temperature = 1, .top_p = 1},
                                  .seed = {.value = 1}};

static const struct opt options[] = {
    {'m', "model", OPT_STR, "MODEL", "the model (as the checkpoint or config.json says)",
     &o.model},
    {0, "set", OPT_LIST, "LIST", "its sizes changed: layers=4,hidden=64", &o.set},
    {'p', "prompt", OPT_STR, "TEXT", "the text to go on from", &o.prompt},
    {0, "prompts", OPT_STR, "FILE", "several, one a line (standard input)", &o.prompts},
    {0, "tokenizer", OPT_STR, "FILE",
     "the tokenizer.json of prompts and of what is written", &o.tokenizer},
    {0, "no-special", OPT_FLAG, NULL, "prompts without what its post-processor puts there",
     &o.plain},
    {0, "ids", OPT_FLAG, NULL, "prompts are token ids, and so is what is written", &o.ids},
    {'n', "tokens", OPT_INT, "N", "tokens behind each prompt, at most (100)", &o.tokens},
    {0, "stop", OPT_INT, "ID", "end behind this token (an encoder's model: its own)",
     &o.stop},
    {0, "temperature", OPT_REAL, "X", "0 = always the most likely token (1)",
     &o.choice.temperature},
    {0, "top-k", OPT_INT, "N", "choose among the N most likely, 0 = all (0)",
     &o.choice.top_k},
    {0, "top-p", OPT_REAL, "X", "among the fewest that come to this probability (1)",
     &o.choice.top_p},
    {0, "seed", OPT_SEED, "N", "seed of the choices (1)", &o.seed},
    {0, "json", OPT_FLAG, NULL, "write a line of JSON for each prompt", &o.json},
    {0, "dtype", OPT_STR, "WHAT", "type of numbers: fp32, bf16 or fp16 (fp32)", &o.dtype},
    {0, "threads", OPT_INT, "N", "threads (all cores)", &o.threads},
    {0}};

static const struct opt_tool tool = {"weft-sample", "[options] CHECKPOINT|FOLDER",
                                     "Write text with a trained or imported model.",
                                     options};

static int check_options(struct err *err) {
    if (o.prompt && o.prompts)
        return err_usage(err, "--prompt and --prompts exclude each other");
    if (o.tokenizer && o.ids)
        return err_usage(err, "--tokenizer and --ids exclude each other");
    if (o.plain && !o.tokenizer)
        return err_usage(err, "--no-special needs --tokenizer");
    if (o.choice.temperature < 0)
        return err_usage(err, "--temperature: expected at least 0, got %g",
                         o.choice.temperature);
    if (!(o.choice.top_p > 0 && o.choice.top_p <= 1))
        return err_usage(err, "--top-p: expected more than 0 and at most 1, got %g",
                         o.choice.top_p);
    if (plan_dtype_find(o.dtype) < 0)
        return err_usage(err, "--dtype: expected " PLAN_DTYPES ", got \"%.40s\"", o.dtype);
    return 0;
}

/* The model is made as long as is wanted, and run. */
static int sample(struct sample_source *s, const struct prompts *p,
                  const struct tokenizer *t, struct err *err) {
    const bool encodes = source_encodes(s);
    const int64_t behind = encodes ? 1 : p->longest;
    if (o.stop < 0 && encodes)
        o.stop = s->model->data.eos;
    if (source_fit(s, behind + o.tokens - (o.tokens > 0), encodes ? p->longest : 0, err) <
        0)
        return -1;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct sample_decoding x = {.source = s,
                                .how = {.batch = p->all.n,
                                        .dtype = (enum dtype)plan_dtype_find(o.dtype),
                                        .threads = o.threads   ? (int)o.threads
                                                   : cores > 0 ? (int)cores
                                                               : 1},
                                .positions = source_positions(s),
                                .turn = source_turn(s)};
    int rc = sample_write(&x, p, &o, t, err);
    decoder_destroy(x.d);
    return rc;
}

static int run(const char *path, struct err *err) {
    struct sample_source s = {0};
    struct prompts p = {.longest = 0};
    interrupt_catch();
    struct tokenizer *t = o.tokenizer ? tokenizer_read(o.tokenizer, err) : NULL;
    int rc = o.tokenizer && !t ? -1 : source_open(&s, &o, path, err);
    if (rc == 0)
        rc = prompts_read(&p, &o, t, source_vocab(&s), err);
    if (rc == 0)
        rc = sample(&s, &p, t, err);
    prompts_release(&p);
    source_close(&s);
    tokenizer_destroy(t);
    return rc;
}

int main(int argc, char **argv) {
    struct err err = {0};
    int n = opt_parse(&tool, argc, argv, &err), rc = n < 0 ? -1 : check_options(&err);
    if (rc == 0 && n == 0)
        rc = err_usage(&err, "expected a checkpoint or a folder with weights");
    else if (rc == 0 && n > 1)
        rc = err_usage(&err, "expected one checkpoint or folder, got %d operands", n);
    if (rc == 0)
        rc = run(argv[0], &err);
    free(o.set);
    return rc == 0 ? EXIT_DONE : err_report(&err, tool.name);
}
