#!/usr/bin/env python3
"""Writes lib/text/unicode_table.c: which code points are letters, numbers and white space; with --nfc
lib/text/nfc_table.c: canonical decompositions and combining classes; with --graphemes
lib/text/grapheme_table.c: what parts or joins user-perceived characters.

    $PYTHON scripts/make-unicode.py > lib/text/unicode_table.c
    $PYTHON scripts/make-unicode.py --nfc > lib/text/nfc_table.c
    $PYTHON scripts/make-unicode.py --graphemes > lib/text/grapheme_table.c

Needs the package unicodedata2, or a Python whose own unicodedata is of the same version: that of the
regular expressions of Hugging Face's tokenizers, which scripts/compare-tokens.py compares code point by
code point. Its normal forms are of an older Unicode: --nfc needs the package tokenizers, and leaves out
what that does not know. --graphemes needs the package regex, of this Unicode or a later one.
"""
import sys
import textwrap

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


def NFD(text):
    """As tokenizers has it, which knows the marks of Unicode 9.0 alone."""
    from tokenizers import normalizers
    return normalizers.NFD().normalize_str(text)


def decompositions():
    """Canonical ones; those of Hangul follow a rule. A pair that no composition leads to has 0 as last."""
    for c in range(0x110000):
        text = unicodedata.decomposition(chr(c))
        if not text or text[0] == "<":
            continue
        parts = [int(x, 16) for x in text.split()]
        if NFD(chr(c)) == chr(c):
            continue
        back = len(parts) == 2 and unicodedata.normalize("NFC", chr(c)) == chr(c)
        yield "{%d, %d, %d, %d}," % (c, parts[0], parts[1] if len(parts) == 2 else 0, back)


def combining(c):
    """The class, 0 where tokenizers does not put the mark into its order."""
    k = unicodedata.combining(chr(c))
    text = f"b{chr(c)}\u0316" if k == 230 else f"b\u0301{chr(c)}" if k < 230 else f"b{chr(c)}\u0301"
    return k if k and NFD(text) == unicodedata.normalize("NFD", text) else 0


def classes():
    begin = 0
    for c in range(1, 0x110001):
        k = combining(begin)
        if c == 0x110000 or combining(c) != k:
            if k:
                yield "{%d, %d, %d}," % (begin, c - 1, k)
            begin = c


def graphemes():
    """Each range that is not OTHER; what is not assigned yet joins nothing."""
    import regex
    classes = [regex.compile("[" + "".join(r"\p{GCB=%s}" % name for name in names.split()) + "]")
               for names in ("Control CR LF", "Extend SpacingMark ZWJ", "Prepend")]

    def of(c):
        found = next((i for i, x in enumerate(classes, 1) if c < 0x110000 and x.match(chr(c))), 0)
        return 0 if found > 1 and unicodedata.category(chr(c)) == "Cn" else found
    begin, last = 0, of(0)
    for c in range(1, 0x110001):
        now = of(c)
        if now != last:
            if last:
                yield "{%d, %d, %d}," % (begin, c - 1, last)
            begin, last = c, now


def table(kind, name, rows):
    rows = list(rows)
    print(f"const struct {kind} {name}[] = {{")
    print(textwrap.fill(" ".join(row.replace(" ", "_") for row in rows), 90, initial_indent="    ",
                        subsequent_indent="    ").replace("_", ""))
    print(f"}};\nconst int {name}_count = {len(rows)};")


if "--nfc" in sys.argv[1:]:
    print(f"/* Made by scripts/make-unicode.py --nfc from Unicode {VERSION}, as far as tokenizers knows it. */")
    print('#include "text/nfc.h"\n')
    print("/* clang-format off */")
    table("nfc_pair", "nfc_pairs", decompositions())
    table("nfc_class", "nfc_classes", classes())
    print("/* clang-format on */")
    sys.exit()
if "--graphemes" in sys.argv[1:]:
    print(f"/* Made by scripts/make-unicode.py --graphemes from Unicode {VERSION}. */")
    print('#include "text/grapheme.h"\n')
    print("/* clang-format off */")
    table("unicode_range", "grapheme_ranges", graphemes())
    print("/* clang-format on */")
    sys.exit()

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
