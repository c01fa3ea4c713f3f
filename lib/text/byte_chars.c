#include "text/byte_chars.h"

int byte_of_char(uint32_t point) {
    if ((point > 0x20 && point < 0x7f) || (point > 0xa0 && point < 0x100 && point != 0xad))
        return (int)point;
    const int k = (int)point - 0x100;
    if (k < 0 || k > 67)
        return -1;
    return k <= 0x20 ? k : k <= 0x42 ? 0x7f + k - 0x21 : 0xad;
}
