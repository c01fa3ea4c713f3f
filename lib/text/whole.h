/* whole.h - bytes that come piece by piece, as whole code points.
 *
 * A token may end inside a code point: its bytes are held until the others come. What can be no UTF-8
 * becomes U+FFFD, as the Unicode Standard recommends (3.9, substitution of maximal subparts).
 *
 *     struct whole_text w = {0};
 *     char out[WHOLE_BYTES];
 *     fwrite(out, 1, (size_t)whole_put(&w, byte, out), stdout);     // for each byte
 *     fwrite(out, 1, (size_t)whole_end(&w, out), stdout);
 */
#ifndef WEFT_WHOLE_H
#define WEFT_WHOLE_H

enum { WHOLE_BYTES = 6 }; /* that one call writes at most */

struct whole_text {
    unsigned char held[4];
    int n;
};

/* Takes a byte. Writes to out what is whole now, and returns how many bytes that are. */
int whole_put(struct whole_text *w, unsigned char byte, char out[WHOLE_BYTES]);
/* No more comes: what is held is not whole. */
int whole_end(struct whole_text *w, char out[WHOLE_BYTES]);

#endif
