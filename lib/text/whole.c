/* Whole code points (see whole.h). */
#include "text/whole.h"

#include "text/unicode.h"

#include <string.h>

int whole_end(struct whole_text *w, char out[WHOLE_BYTES]) {
    const int n = w->n > 0 ? 3 : 0;
    memcpy(out, "\xef\xbf\xbd", (size_t)n);
    w->n = 0;
    return n;
}

int whole_put(struct whole_text *w, unsigned char byte, char out[WHOLE_BYTES]) {
    int written = 0;
    w->held[w->n++] = byte;
    int length = utf8_begun(w->held, w->n);
    if (length == 0 && w->n > 1) { /* the byte is not of what is held */
        written = whole_end(w, out);
        w->held[w->n++] = byte;
        length = utf8_begun(w->held, 1);
    }
    if (length == 0)
        return written + whole_end(w, out + written);
    if (length > w->n)
        return written;
    memcpy(out + written, w->held, (size_t)w->n);
    written += w->n;
    w->n = 0;
    return written;
}
