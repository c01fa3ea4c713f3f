#!/usr/bin/env bash
# How the source is made, in a few numbers: length and parameters of functions, how many have a comment
# above, number of public functions, lines of each floor.
#   scripts/measure.sh [CHECKOUT]     this one by default
#   LIST=1 scripts/measure.sh         the functions that are long, or have many parameters, or (above 15
#                                     lines) no comment
# Counts lib/ and tools/ as clang-format lays them out: a function is defined where a line that begins
# in the first column ends in "{" after a ")", and ends with "}" in the first column; its length counts
# both lines and those between. Public is what a header of lib/ declares, once each.
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

functions() { # functions FILE...: a line "LENGTH COMMENTED PARAMETERS FILE NAME" each
    awk '
        FNR == 1 { inside = 0; start = 0; previous = "" }
        inside && /^}/ { print FNR - first + 1, commented, parameters, FILENAME, name; inside = 0; start = 0; next }
        inside { next }
        # The first line of a definition, which may be broken into several.
        !start && /^[A-Za-z_].*\(/ && !/^(enum|struct|union|typedef)[^(]*\{/ && !/;[ ]*(\/\*.*)?$/ {
            start = FNR
            above = previous
            head = ""
        }
        start && !inside { head = head $0 }
        start && /\) \{$/ {
            inside = 1
            first = start
            commented = above ~ /\*\/$/
            match(head, /[A-Za-z_0-9]+\(/)
            name = substr(head, RSTART, RLENGTH - 1)
            # Commas outside of the brackets of a parameter that is a function itself.
            list = substr(head, RSTART + RLENGTH)
            while (sub(/\([^()]*\)\([^()]*\)/, "", list)) {}
            parameters = list ~ /^void\)/ ? 0 : 1 + gsub(/,/, "", list)
        }
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

all=$(functions lib/*/*.c lib/*/*/*.c tools/*/*.c | sort -n)
if [ -n "${LIST:-}" ]; then
    awk '$1 > 50 || $3 > 8 || ($1 > 15 && !$2) {
        print $4 ": " $5 ": " $1 " lines, " $3 " parameters" ($2 ? "" : ", no comment")
    }' <<<"$all"
    exit
fi
awk -v public="$(public_functions)" '
    { length_[NR] = $1; commented += $2; short += $1 <= 50; wide += $3 > 8 }
    $1 > 15 { larger++; said += $2 }
    END {
        printf "functions %d: median length %d lines, %.1f %% of at most 50, longest %d\n", NR,
            length_[int((NR + 1) / 2)], 100 * short / NR, length_[NR]
        printf "above 50 lines %d, above 8 parameters %d\n", NR - short, wide
        printf "commented %.0f %%, of those above 15 lines %.0f %%\n", 100 * commented / NR,
            100 * said / larger
        printf "public functions %d\n", public
    }' <<<"$all"
awk 'FNR == 1 { files++ } END { print "files " files ", lines " NR ", a file has " int(NR / files) }' \
    lib/*/*.[ch] lib/*/*/*.[ch] tools/*/*.[ch]
for floor in $(sed -n 's/^FLOORS *:= *//p' Makefile); do
    find "lib/$floor" -name '*.[ch]' -exec cat {} + | awk -v f="$floor" 'END { printf "%s %d  ", f, NR }'
done
echo
