/* normalize.h - what a tokenizer does to a text before it cuts it into words: the normalizer of
 * tokenizer.json (private to lib/text).
 *
 *     struct normalizer z = {0};
 *     if (normalizer_read(&z, &arena, json_object_get(doc, "normalizer"), &err) < 0) ...
 *     struct span normal = normalizer_run(&z, kinds, (struct span){text, n});
 *     normalizer_release(&z);
 */
#ifndef WEFT_NORMALIZE_H
#define WEFT_NORMALIZE_H

#include "common/json.h"
#include "common/mem.h"
#include "text/charsmap.h"
#include "text/nfc.h"

#include <stdbool.h>

/* Bytes of a text; borrowed. */
struct span {
    const char *bytes;
    int64_t n;
};

enum normal_kind {
    NORMAL_NFC,
    NORMAL_CHARSMAP,
    NORMAL_PREPEND, /* `to`, where there is text at all */
    NORMAL_REPLACE, /* each `from` by `to` */
    NORMAL_BLANKS,  /* two blanks and more by one `to` */
    NORMAL_STRIP,   /* white space at the ends */
};

struct normal_step {
    enum normal_kind kind;
    struct span from, to; /* in the arena */
    bool left, right;     /* of NORMAL_STRIP */
};

struct normalizer {
    ARR(struct normal_step) steps;
    struct nfc *nfc;
    struct charsmap map;
    struct nfc_text rooms[2];
    int64_t
        head; /* bytes of what was normalized last that begin where its text does; > 0 */
};

/* Null, one normalizer or a Sequence of them; what is not known is refused by its key. Returns 0 or -1, and
 * is to be released either way. */
int normalizer_read(struct normalizer *z, struct arena *arena, const json_t *doc,
                    struct err *err);
void normalizer_release(struct normalizer *z); /* a zeroed one is fine */

/* The text after all steps, which stays until the next call; kinds are those of unicode_kinds. */
struct span normalizer_run(struct normalizer *z, const unsigned char *kinds, struct span s);

/* Is each " " replaced by something else, so that none is left? */
bool normalizer_takes_blanks(const struct normalizer *z);

#endif
