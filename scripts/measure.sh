#!/usr/bin/env bash
# How the source is made, in a few numbers: length of functions, share of them with a comment above,
# number of public functions.
#   scripts/measure.sh [CHECKOUT]     this one by default
# Counts lib/ and tools/ as clang-format lays them out: a function is defined where a line that begins
# in the first column ends in "{" after a ")", and ends with "}" in the first column; its length counts
# both lines and those between. Public is what a header of lib/ declares, once each.
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

functions() { # functions FILE...: a line "LENGTH COMMENTED" each
    awk '
        FNR == 1 { inside = 0; start = 0; previous = "" }
        inside && /^}/ { print FNR - first + 1, commented; inside = 0; start = 0; next }
        inside { next }
        # The first line of a definition, which may be broken into several.
        !start && /^[A-Za-z_].*\(/ && !/^(enum|struct|union|typedef)[^(]*\{/ && !/;[ ]*(\/\*.*)?$/ {
            start = FNR
            above = previous
        }
        start && /\) \{$/ { inside = 1; first = start; commented = above ~ /\*\/$/ }
        start && /[;=]/ && !inside { start = 0 }
        { previous = $0 }' "$@"
}

public_functions() {
    cat lib/*/*.h lib/*/*/*.h | awk '
        /^[A-Za-z_#].*\(/ && !/^#/ && !/\{/ && !/^(static|typedef)/ { text = "" ; open = 1 }
        open { text = text $0 }
        open && /;/ {
            if (match(text, /[a-z_0-9]+\(/)) print substr(text, RSTART, RLENGTH - 1)
            open = 0
        }' | sort -u | wc -l
}

functions lib/*/*.c lib/*/*/*.c tools/*/*.c | sort -n | awk -v public="$(public_functions)" '
    { length_[NR] = $1; commented += $2; short += $1 <= 50 }
    END {
        printf "functions %d: median length %d lines, %.1f %% of at most 50, longest %d\n", NR,
            length_[int((NR + 1) / 2)], 100 * short / NR, length_[NR]
        printf "commented %.0f %%\n", 100 * commented / NR
        printf "public functions %d\n", public
    }'
awk 'FNR == 1 { files++ } END { print "files " files ", lines " NR ", a file has " int(NR / files) }' \
    lib/*/*.[ch] lib/*/*/*.[ch] tools/*/*.[ch]
