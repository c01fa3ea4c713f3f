/* data.h - training data as a function of the sample index.
 *
 * A sample depends on (source, seed, split, index) and on nothing else: not on the plan,
 * the number of ranks, or who reads it in which order. Whoever owns positions [first,
 * first+count) of sample i reads just those.
 *
 * Sources of tokens, by file name and content:
 *   FILE               any file: its bytes are the tokens (vocab >= 256)
 *   FILE.bin           16-bit little-endian tokens as nanoGPT writes them, or 16- or 32-bit ones
 *                      with a header of llm.c (recognized by its magic number)
 *   FILE.u32           32-bit little-endian tokens
 *   FILE.m32           the same; those whose highest bit is set are read, but are no targets
 *   FILE,FILE,...      the same, one after the other (shards)
 *   synthetic          a random Markov chain: a loss well below ln(vocab) can be learned
 * Sources of pairs, an input and a target sequence of tokens:
 *   INPUTS.idx,TARGETS.idx  sequences as Megatron-LM writes them, each .idx with a .bin beside it;
 *                      longer ones than the model's are cut
 *   any of tokens      spans of it are left out of the input, and are the target (T5)
 * Sources of images, whose values come rows, columns, channels:
 *   IMAGES[,LABELS]    IDX files (MNIST); without LABELS its name is that of IMAGES with
 *                      "images" and "idx3" turned into "labels" and "idx1"
 *   FILE.bin,...       binary files of CIFAR-10
 *   synthetic          one prototype per class, plus noise
 *
 *   SOURCE@WEIGHT+...  any of these, in each round of as many samples as the weights add up to each
 *                      source as many as its weight; an epoch of each is as it would be alone
 *
 * Order. A stream of n tokens has (n-1)/seq windows of seq+1 tokens, of which the last is
 * the first of the next: so every token is a target once in an epoch. (Windows for pairs do not
 * overlap.) Windows of masked tokens begin where their examples do, in both splits. Sample i of
 * training is window P(i mod size) of epoch i / size, where P is a permutation drawn from (seed,
 * epoch); balanced by label, the labels' places in the epoch are even, and P is drawn for the images of
 * each. Validation is read in file order, the same in every epoch.
 *
 * Invariants: files are fully checked when opened: tokens are < vocab and labels < classes; and
 * what is read of them later is checked again, so a file that is cut short or changed meanwhile is
 * an error, never a wrong id. After data_open nothing is allocated, and any number of threads may read.
 *
 *     struct data_spec spec = {.source = "input.txt", .kind = DATA_TOKENS, .seq = 256,
 *                              .vocab = 256, .validation = DATA_VALIDATION, .seed = 1};
 *     if (data_open(&data, &spec, &err) < 0) ...
 *     data_tokens(data, DATA_TRAIN, step * batch + b, 0, 256, tokens, targets, &err);
 *     data_close(data);
 */
#ifndef WEFT_DATA_H
#define WEFT_DATA_H

#include "common/dtype.h"
#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

#define DATA_VALIDATION 0.1 /* usual share of the validation split */

#define DATA_IGNORED (-1) /* the target behind the end of a sequence: it does not count */

enum data_kind { DATA_TOKENS, DATA_IMAGES, DATA_PAIRS };
enum data_split { DATA_TRAIN, DATA_VALID, DATA_SPLITS };

enum { DATA_MAX_DIMS = 8 };

/* Token ids with a meaning of their own. */
struct data_ids {
    int64_t pad;      /* behind the end of an input, and of a shifted target */
    int64_t start;    /* before the first token of a shifted target */
    int64_t eos;      /* at the end of both sequences where spans are left out; -1 = none */
    int64_t sentinel; /* of the first span; those of the others count down from it */
};

struct data_spec {
    const char *source;       /* see above; borrowed during data_open only */
    const char *valid_source; /* of the validation split; NULL = the end of source */
    enum data_kind kind;      /* what the model reads */
    int64_t seq;              /* tokens: positions of a sample; pairs: of an input; > 0 */
    int64_t vocab;            /* tokens, pairs: ids are < vocab, > 0 */
    int64_t target_seq;       /* pairs: positions of a target, > 0 */
    struct data_ids ids;      /* pairs */
    double noise, span; /* pairs out of plain tokens: share that is left out, 0 < noise < 1;
                                 mean length of a span, >= 1 */
    int64_t pixels;     /* images: values of one image (all channels), > 0 */
    int rank;           /* images: their dims, as far as they must agree with a file's, */
    int64_t dims[DATA_MAX_DIMS]; /* and their sizes; 0 = any */
    int64_t classes;             /* images: labels are < classes, > 0 */
    double validation;           /* share [0, 1) at the end of source kept for validation;
                                 unused beside valid_source */
    bool gaps; /* samples of training that cannot be read are no errors: see data_missing */
    bool balanced; /* images: batches have labels as often as the data has them */
    uint64_t seed; /* of the order, and of what synthetic sources hold */
};

struct data_info {
    /* "text", "nanoGPT tokens", "llm.c tokens", "32-bit tokens", "masked tokens", "token sequences",
     * "IDX images", "CIFAR-10 images", "synthetic tokens", "synthetic images", "mixture" */
    const char *format;
    int64_t items;             /* tokens, pairs or images in source */
    bool cut;                  /* pairs: some are longer than the model's sequences */
    int64_t size[DATA_SPLITS]; /* samples of each split */
    /* of what each split holds and how it is cut: equal means the same samples (large files are
     * hashed by samples of them) */
    uint64_t hash[DATA_SPLITS];
};

struct data;

/* Opens and checks a source. The training split has at least one sample; validation may
 * have none. Returns 0, or -1 with an error (EXIT_INPUT for a wrong file) naming the
 * file. */
int data_open(struct data **data, const struct data_spec *spec, struct err *err);
void data_close(struct data *data); /* NULL is fine */

/* What was found; borrowed from data. */
const struct data_info *data_info(const struct data *data);

/* Samples in one epoch of a split. */
int64_t data_size(const struct data *data, enum data_split split);

/* Which of the split's samples it is: the number, from 0, of its window, pair or image in the order of the
 * files. In an epoch of training each comes once. */
int64_t data_number(const struct data *data, enum data_split split, int64_t sample);

/* With data_spec.gaps a sample of training any part of which cannot be read, or holds ids beyond the
 * vocabulary, is missing as a whole, whichever part is asked for: its tokens, input or values are read as zeros or
 * padding, its targets and its label as DATA_IGNORED, so that nothing of it counts. Returns 1 where it is,
 * with the reason in *why, else 0. Reads all of the sample. */
int data_missing(const struct data *data, int64_t sample, struct err *why);
bool data_has_gaps(const struct data *data);
/* May targets of tokens be DATA_IGNORED? */
bool data_ignores(const struct data *data);

/* Positions [first, first+count) of a sample (0 <= first, first+count <= seq):
 *   tokens[count]   the inputs, or NULL when not wanted
 *   targets[count]  the token that follows each of them, or NULL
 * sample counts from the start of training (>= 0, grows without bound; epoch = sample /
 * size). The split must have samples. Costs O(count) on files, O(first + count) on
 * synthetic. Returns 0, or -1 (EXIT_SYSTEM) where a file cannot be read any more. */
int data_tokens(const struct data *data, enum data_split split, int64_t sample,
                int64_t first, int64_t count, int32_t *tokens, int32_t *targets,
                struct err *err);

/* For positions [first, first+count) of a sample the position of the first token of the document that it is
 * in: the one behind the last token `end` in front of it, or 0. That token is in the document that it
 * ends. Costs O(first + count), otherwise as data_tokens. */
int data_documents(const struct data *data, enum data_split split, int64_t sample,
                   int64_t first, int64_t count, int32_t end, int32_t *starts,
                   struct err *err);
/* The same of tokens[count] that are there, the first at position `at` and in the document that begins at *open,
 * which becomes that of the token behind them. starts may be NULL. */
void documents_mark(const int32_t *tokens, int64_t at, int64_t count, int32_t end,
                    int64_t *open, int32_t *starts);

/* Positions [first, first+count) of the input of a pair (0 <= first, first+count <= seq), padded.
 * Otherwise as data_tokens, but O(seq) where spans are left out. */
int data_input(const struct data *data, enum data_split split, int64_t sample,
               int64_t first, int64_t count, int32_t *input, struct err *err);

/* How many positions of the input are no padding: 1..seq. */
int data_input_length(const struct data *data, enum data_split split, int64_t sample,
                      int32_t *length, struct err *err);

/* Positions [first, first+count) of the target (0 <= first, first+count <= target_seq), DATA_IGNORED
 * behind its end; shifted: the decoder's input instead, whose position i holds the target at i-1, the
 * first `start`, those behind the end `pad`. Otherwise as data_tokens. */
int data_target(const struct data *data, enum data_split split, int64_t sample,
                int64_t first, int64_t count, bool shifted, int32_t *target,
                struct err *err);

/* Values [first, first+count) of a sample's image (0 <= first, first+count <= pixels):
 *   values[count]  in [0, 1] (bytes / 255), or NULL when not wanted
 *   *label         the class, or NULL
 * Otherwise as data_tokens. */
int data_image(const struct data *data, enum data_split split, int64_t sample,
               int64_t first, int64_t count, float *values, int32_t *label,
               struct err *err);

/* Tokens or values of images as narrow as the source has them, for who has room elsewhere to widen them
 * (device_unpack): ids are of type u8, u16 or i32, values u8, of which 255 is 1, or f32. */
enum dtype data_form(const struct data *data, enum data_split split);
/* out[count] of this type: tokens, of which the last is at position seq, or values of an image; otherwise
 * as data_tokens. Not for pairs. */
int data_packed(const struct data *data, enum data_split split, int64_t sample,
                int64_t first, int64_t count, void *out, struct err *err);

#endif
