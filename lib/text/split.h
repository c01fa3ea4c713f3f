/* split.h - the words that a tokenizer's pattern cuts a text into (private to lib/text).
 *
 * The patterns are regular expressions that the models' files spell out; each is followed here by hand,
 * alternative by alternative, as a backtracking matcher would. They leave no gaps: every byte of a text
 * is in one word.
 *
 *     enum split_pattern pattern = split_find(regex);
 *     for (const char *s = text; s < end; s = next)
 *         next = split_word(pattern, kinds, s, end);      // the word is [s, next)
 */
#ifndef WEFT_SPLIT_H
#define WEFT_SPLIT_H

enum split_pattern {
    SPLIT_GPT2,
    SPLIT_QWEN2,
    SPLIT_LLAMA3,
    SPLIT_NONE,
};

/* The pattern of this regular expression, letter for letter; SPLIT_NONE: another. */
enum split_pattern split_find(const char *regex);

/* The end of the word that begins at s < end, of UTF-8; kinds are those of unicode_kinds. */
const char *split_word(enum split_pattern pattern, const unsigned char *kinds,
                       const char *s, const char *end);

#endif
