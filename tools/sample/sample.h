/* sample.h - the parts of weft-sample: whose weights, which prompts, and what comes of them. */
#ifndef WEFT_SAMPLE_H
#define WEFT_SAMPLE_H

#include "common/mem.h"
#include "common/opt.h"
#include "exec/choose.h"
#include "exec/decode.h"
#include "text/tokenizer.h"

struct sample_options {
    const char *model, *prompt, *prompts, *dtype, *tokenizer;
    char *set;
    int64_t tokens, stop; /* < 0: not given */
    struct choice choice;
    struct opt_seed seed;
    int64_t threads;
    bool ids, json, plain;
};

/* ---- sample_prompts.c --------------------------------------------------------------------- */

struct prompt {
    char *text; /* as it was given; NULL: as ids */
    int32_t *ids;
    int64_t n;
};
struct prompts {
    ARR(struct prompt) all;
    int64_t longest;
};

/* Those of --prompt, --prompts or standard input, as ids below the vocabulary. Texts are encoded by t, or
 * their bytes are the tokens (NULL). Returns 0 or -1; prompts_release either way. */
int prompts_read(struct prompts *p, const struct sample_options *o, struct tokenizer *t,
                 int64_t vocab, struct err *err);
void prompts_release(struct prompts *p);

/* ---- sample_source.c ---------------------------------------------------------------------- */

/* A model and where its parameters are: a checkpoint, or files of another program. */
struct sample_source {
    struct model *model;
    struct checkpoint *ck;
    struct weights *weights;
    struct weight_file *file;
};

/* Opens PATH and checks that it is of the model. Returns 0 or -1; source_close either way. */
int source_open(struct sample_source *s, const struct sample_options *o, const char *path,
                struct err *err);
void source_close(struct sample_source *s);

/* Tokens that there are. */
int64_t source_vocab(const struct sample_source *s);
/* Makes the model's sequences no longer than is wanted, where no parameter depends on it: that of
 * the tokens, that of an encoder's input (0 = none). Returns 0, or -1 where the model's are too
 * short. */
int source_fit(struct sample_source *s, int64_t tokens, int64_t input, struct err *err);
/* Positions of the sequences that are written. */
int64_t source_positions(const struct sample_source *s);
/* Positions up to which the pairs of heads turn by another list than in sequences as long as the model's now are; 0:
 * they always turn by one. */
int64_t source_turn(const struct sample_source *s);
/* Makes the sequences so long, where no parameter depends on it. */
void source_resize(struct sample_source *s, int64_t positions);
/* Has the model an encoder? */
bool source_encodes(const struct sample_source *s);
int source_load(const struct sample_source *s, struct decoder *d, struct err *err);

/* ---- sample_write.c ----------------------------------------------------------------------- */

/* What decodes: sequences of up to `turn` positions (0: of all) as the source's model of that length says, longer
 * ones as that of `positions`. */
struct sample_decoding {
    struct sample_source *source;
    struct decoder_options how;
    int64_t positions, turn;
    struct decoder *d; /* made by sample_decoding_make; destroy it */
};
/* A decoder for sequences of so many positions, `turn` or `positions`, in place of the one that was. Returns 0 or
 * -1. */
int sample_decoding_make(struct sample_decoding *x, int64_t positions, struct err *err);

/* Writes what the model says behind each prompt, as text by t (NULL: ids are bytes). Returns 0 or -1. */
int sample_write(struct sample_decoding *x, const struct prompts *p,
                 const struct sample_options *o, const struct tokenizer *t,
                 struct err *err);

#endif
