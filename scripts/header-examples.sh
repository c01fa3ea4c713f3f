#!/usr/bin/env bash
# The examples in the comments that open headers, compiled.
#   scripts/header-examples.sh [CC]
# An example is a block of an opening comment, indented by four blanks, in which a line ends in ";". It is
# put into a function, after what scripts/header-examples.txt declares for that header, and goes
# through -fsyntax-only. In it "..." is what a reader puts there: at the end of an if or a for, as a
# line of its own, around an expression, at the end of a list. A block that begins with "static" stands
# outside functions. V=1 shows what was compiled. Prints one line per finding; status 1 if there is any.
set -u
cd "$(dirname "$0")/.." || exit 2
cc=${1:-gcc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags="-std=c17 -D_POSIX_C_SOURCE=200809L -Ilib -Wall -Wno-unused"
flags="$flags -Wno-uninitialized -Werror -fopenmp -fsyntax-only $(mpicc --showme:compile 2>/dev/null)"

# The blocks of the opening comment that are code.
example_of() { # example_of HEADER
    awk '
        function flush() {
            if (code) printf "%s", block
            block = ""
            code = 0
        }
        /^ \*     / {
            line = substr($0, 8)
            if (line ~ /;[ ]*(\/\/.*)?$/) code = 1
            block = block line "\n"
            next
        }
        { flush() }
        /\*\// { exit }' "$1"
}

# Something in place of every "...".
fill() {
    sed -E -e '/^\.\.\. /d' \
        -e 's@\) \.\.\. (.+) \.\.\.$@) { (void)(\1); }@' \
        -e 's@^for \(\.\.\.\)@for (;;)@' \
        -e 's@ \.\.\.( *//.*)?$@ {}@' \
        -e 's@, \.\.\.\}@}@'
}

wrap() { # wrap HEADER EXAMPLE: what is compiled
    local declarations err='struct err *err = NULL;'
    declarations=$(sed -n "s@^$1: @@p" scripts/header-examples.txt)
    grep -q '&err\b' "$2" && err='struct err err = {0};'
    printf '#include <%s.h>\n' math stdbool stdint stdio stdlib string
    grep '^#' <<<"$declarations"
    printf '#include "%s"\n' "${1#lib/}" common/err.h
    echo 'void use(), compute(), run(), measure(), visit(), *expensive();'
    if head -1 "$2" | grep -q '^static .*) {$'; then
        cat "$2"
        return
    fi
    printf 'int example(int argc, char **argv);\nint example(int argc, char **argv) {\n'
    printf '%s\n' "$err"
    grep -v '^#' <<<"$declarations"
    fill <"$2"
    echo 'return argc; }'
}

# What kernels of GPUs are written with is C++; nvcc compiles it, and tests/emulate. Headers of the CUDA
# toolkit may not be here.
is_for_kernels() {
    local needs
    # shellcheck disable=SC2086
    needs=$("$cc" $flags -MM "$1" 2>/dev/null) || return 0
    grep -q cuda/cuda_kernel.h <<<"$needs"
}

for header in lib/*/*.h lib/*/*/*.h; do
    example_of "$header" >"$work/block"
    [ -s "$work/block" ] || continue
    is_for_kernels "$header" && continue
    wrap "$header" "$work/block" >"$work/example.c"
    # shellcheck disable=SC2086
    "$cc" $flags "$work/example.c" 2>"$work/out" && continue
    echo "$header: its example: $(grep -m 1 -oE '(error|warning): .*' "$work/out")"
    [ -z "${V:-}" ] || cat "$work/example.c" "$work/out" >&2
done >"$work/findings"
cat "$work/findings"
[ ! -s "$work/findings" ]
