/* nfc.h - Unicode's normalization form C: marks in their order, composed with what they stand on
 * (Unicode Standard Annex #15; private to lib/text).
 *
 *     struct nfc *form = nfc_create();
 *     struct nfc_text out = {0};
 *     if (nfc_may_change("e\xcc\x81", 3))
 *         nfc_compose(form, "e\xcc\x81", 3, &out);        // out.p is "\xc3\xa9"
 *     free(out.p);
 *     nfc_destroy(form);
 */
#ifndef WEFT_NFC_H
#define WEFT_NFC_H

#include <stdbool.h>
#include <stdint.h>

struct nfc_pair {
    uint32_t whole, first, second; /* second 0: of one code point */
    bool composes;                 /* the two become the whole again */
};
struct nfc_class {
    uint32_t first, last;
    unsigned char combining; /* > 0; the class of those in no row is 0 */
};
extern const struct nfc_pair nfc_pairs[]; /* ascending by whole */
extern const struct nfc_class nfc_classes[];
extern const int nfc_pairs_count, nfc_classes_count;

struct nfc_text {
    char *p; /* owned */
    int64_t n, cap;
};

/* Append n bytes; and a code point. */
void nfc_text_put(struct nfc_text *text, const char *s, int64_t n);
void nfc_text_point(struct nfc_text *text, uint32_t point);

struct nfc;
struct nfc *nfc_create(void);
void nfc_destroy(struct nfc *form); /* NULL is fine */

/* False: all of the text is below U+0300, where every text is its own form. */
bool nfc_may_change(const char *text, int64_t n);

/* Puts the form of n bytes of UTF-8 into *out, in place of what it held. */
void nfc_compose(struct nfc *form, const char *text, int64_t n, struct nfc_text *out);

#endif
