/* byte_chars.h - GPT-2's bytes as characters (private to lib/text): printable bytes of Latin-1 are the
 * characters of their numbers, the others those from U+0100 on, in their order.
 *
 *     int byte = byte_of_char(0x120);     // 0x20: the blank
 */
#ifndef WEFT_BYTE_CHARS_H
#define WEFT_BYTE_CHARS_H

#include <stdint.h>

/* -1: a character that is no byte. */
int byte_of_char(uint32_t point);

#endif
