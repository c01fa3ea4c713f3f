/* train.h - byte-level BPE from texts: the merges that Hugging Face's tokenizers learns.
 *
 * The words of GPT-2's pattern are counted; again and again the most frequent pair of neighbours becomes a
 * token, of equally frequent ones that of the smaller ids (Sennrich, Haddow and Birch, arXiv:1508.07909; the
 * order is that of BpeTrainer). Frequencies are kept up to date where a pair was merged, nowhere else.
 *
 *     struct bpe_trainer *trainer = bpe_trainer_create();
 *     if (bpe_trainer_feed(trainer, text, n, &err) < 0) ...
 *     const char *const added[] = {"<|endoftext|>"};
 *     json_t *tokenizer = bpe_trainer_finish(trainer, 50257, added, 1);
 *     bpe_trainer_destroy(trainer);
 */
#ifndef WEFT_TRAIN_H
#define WEFT_TRAIN_H

#include "common/json.h"

struct bpe_trainer;
struct bpe_trainer *bpe_trainer_create(void);
void bpe_trainer_destroy(struct bpe_trainer *t); /* NULL is fine */

/* Counts the words of a document, n bytes of UTF-8. Returns 0, or -1 (EXIT_INPUT). */
int bpe_trainer_feed(struct bpe_trainer *t, const char *text, int64_t n, struct err *err);

/* A tokenizer.json, to be released by the caller. Its ids are those of the n added special tokens, the bytes,
 * and what is merged, until they are `vocab` or no pair is left. The trainer is of no use then but to be
 * destroyed. */
json_t *bpe_trainer_finish(struct bpe_trainer *t, int64_t vocab, const char *const *added,
                           int n);

#endif
