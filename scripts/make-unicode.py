#!/usr/bin/env python3
"""Writes lib/text/unicode_table.c: which code points are letters, numbers and white space.

    $PYTHON scripts/make-unicode.py > lib/text/unicode_table.c

Needs the package unicodedata2, or a Python whose own unicodedata is of the same version: that of the
regular expressions of Hugging Face's tokenizers, which scripts/compare-tokens.py compares code point by
code point.
"""
import sys

VERSION = "16.0.0"
try:
    import unicodedata2 as unicodedata
except ImportError:
    import unicodedata
if unicodedata.unidata_version != VERSION:
    sys.exit(f"Unicode {VERSION} is wanted, this Python has {unicodedata.unidata_version}: "
             f"pip install unicodedata2=={VERSION}")

# The property White_Space (PropList.txt), which is not among the categories.
SPACE = {9, 11, 12, 32, 0x85, 0xa0, 0x1680, *range(0x2000, 0x200b), 0x2028, 0x2029, 0x202f, 0x205f, 0x3000}
NEWLINE = {10, 13}


def kind(c):
    if c in NEWLINE:
        return 4
    if c in SPACE:
        return 3
    return {"L": 1, "N": 2}.get(unicodedata.category(chr(c))[0], 0)


ranges, begin = [], 0
for c in range(1, 0x110001):
    if c == 0x110000 or kind(c) != kind(begin):
        if kind(begin):
            ranges.append("{0x%x, 0x%x, %d}" % (begin, c - 1, kind(begin)))
        begin = c
print(f"/* Made by scripts/make-unicode.py from Unicode {VERSION}. */")
print('#include "text/unicode.h"\n')
print("/* clang-format off */")
print("const struct unicode_range unicode_ranges[] = {")
for i in range(0, len(ranges), 4):
    print("    " + " ".join(r + "," for r in ranges[i:i + 4]))
print("};\n/* clang-format on */")
print(f"const int unicode_n_ranges = {len(ranges)};")
