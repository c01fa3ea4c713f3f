#!/usr/bin/env bash
# Public functions that nobody needs: declared by a header of lib/, called by no other file of lib/ or
# tools/. What its own file calls may be public for a test or a fuzzer that calls it too. The tests that
# write the tables of the man pages (tests/unit/*-manual.c) count as tools.
#   scripts/uncalled.sh
# Words of the code are counted, comments left out; a name that a macro pastes together is not seen.
set -euo pipefail
cd "$(dirname "$0")/.."

words() { # words TAG FILE...: a line "TAG FILE WORD" for every word of the code
    awk -v tag="$1" '
        FNR == 1 { comment = 0 }
        {
            text = ""
            for (line = $0; line != ""; comment = !comment) {
                at = index(line, comment ? "*/" : "/*")
                if (!comment) text = text " " (at ? substr(line, 1, at - 1) : line)
                if (!at) break
                line = substr(line, at + 2)
            }
            for (; match(text, /[A-Za-z_][A-Za-z_0-9]*/); text = substr(text, RSTART + RLENGTH))
                print tag, FILENAME, substr(text, RSTART, RLENGTH)
        }' "${@:2}"
}

public() { # public FILE...: the same for every function that it declares; its name precedes a bracket
    awk '
        /^[A-Za-z_].*\(/ && !/[{}]/ && !/^(static|typedef|_Static|CUDA_|BOTH)/ {
            if (match($0, /[a-z_0-9]+\(/)) print "public", FILENAME, substr($0, RSTART, RLENGTH - 1)
        }' "$@"
}

{
    public lib/*/*.h lib/*/*/*.h
    words code lib/*/*.[ch] lib/*/*/*.[ch] lib/*/*.cu lib/*/*.def tools/*/*.[ch] tests/unit/*-manual.c
    words test tests/*/*.[ch]
} | awk '
    $1 == "public" { header[$3] = $2; next }
    !($3 in header) { next }
    $1 == "test" { tested[$3] = 1; next }
    # The first word in a file of code is its definition or a call, in a header its prototype.
    { again = ($3, $2) in seen; seen[$3, $2] = 1 }
    !again && $2 ~ /cu?$/ { files[$3]++ }
    again && $2 ~ /cu?$/ { own[$3] = 1 }
    again && $2 ~ /h$/ { files[$3]++ }
    END {
        for (name in header)
            if (files[name] < 2 && !(own[name] && tested[name]))
                print header[name] ": " name ": called by " \
                    (own[name] ? "its own file alone" : tested[name] ? "tests alone" : "nobody")
    }' | sort
