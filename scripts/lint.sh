#!/usr/bin/env bash
# What the compiler does not check, one line a finding; status 1 if there is any.
#   scripts/lint.sh [CC]
# clang-format; no blanks at ends of lines, no tabs; every folder of lib/ includes only floors
# below it, and every tool only those that the Makefile gives it; no files of a floor call each other
# in a circle (where the Makefile says so); every public function is called;
# planning tools link neither MPI nor a BLAS nor CUDA; the examples of headers compile; shellcheck;
# mandoc; clang-tidy. What is not installed is left out and named. clang-tidy sees a file again when
# it or one of its headers changed (stamps in build/lint).
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -u
cd "$(dirname "$0")/.." || exit 2
cc=${1:-gcc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/findings"

found() { # found: lines on stdin are findings
    tee -a "$work/findings"
}
have() {
    command -v "$1" >/dev/null && return 0
    echo "lint: $1 is not installed: left out" >&2
    return 1
}
# Files that git knows or would add.
files() {
    git ls-files -co --exclude-standard -- "$@" | sort -u | while read -r f; do
        [ -f "$f" ] && echo "$f"
    done
}
files '*.c' '*.h' >"$work/c"
files '*.sh' '*.bash' .ci/run >"$work/sh"
files 'man/*' >"$work/man"

# ---- blanks ---------------------------------------------------------------------------------
files '*.c' '*.h' '*.sh' '*.json' '*.md' 'man/*' '.ci/*' | xargs -d '\n' grep -nHE '[[:blank:]]+$' |
    cut -d: -f1,2 | sed 's/$/: blanks at the end of the line/' | found
cat "$work/c" "$work/man" | xargs -d '\n' grep -nHP '\t' | cut -d: -f1,2 |
    sed 's/$/: a tab/' | found

# ---- form -----------------------------------------------------------------------------------
if have clang-format; then
    # shellcheck disable=SC2016
    xargs -d '\n' -P "$(nproc)" -n 8 bash -c 'out=$(clang-format --dry-run "$@" 2>&1); echo "$out"' _ \
        <"$work/c" >"$work/format"
    # One line a file: how often it differs and where first.
    grep -E '^[^ ]+:[0-9]+:[0-9]+: warning: code should be clang-formatted' "$work/format" |
        awk -F: '{ if (!n[$1]++) first[$1] = $2 }
             END { for (f in n) print f ":" first[f] ": clang-format differs in " n[f] " places" }' |
        sort | found
fi

# ---- floors ---------------------------------------------------------------------------------
floors=$(sed -n 's/^FLOORS *:= *//p' Makefile)
check_includes() { # check_includes FILE ALLOWED...: floors that it may name
    local file=$1 line floor
    shift
    # Of NAME_workspace.h a tool may ask without its floor: it knows programs alone (program/workspace.h).
    grep -nE '^#include "[a-z]+/' "$file" | { case "$file" in
    tools/*) grep -v '_workspace\.h"' ;;
    *) cat ;;
    esac } | while IFS= read -r line; do
        floor=$(sed 's/.*#include "\([a-z]*\)\/.*/\1/' <<<"$line")
        case " $floors " in *" $floor "*) ;; *) continue ;; esac
        case " $* " in
        *" $floor "*) ;;
        *) echo "$file:${line%%:*}: includes $floor/, which is no floor below" ;;
        esac
    done
}
below=""
for floor in $floors; do
    below="$below $floor"
    for file in lib/"$floor"/*.[ch] lib/"$floor"/*/*.[ch]; do
        # shellcheck disable=SC2086
        [ -f "$file" ] && check_includes "$file" $below
    done
done | found
# Rooms: the folders of a floor that has an order of them. What stands beside them may be named by
# all. An algorithm sees a search through state.h alone, and bounds where it proves something.
for floor in $floors; do
    rooms=$(sed -n "s/^ROOMS_$floor *:= *//p" Makefile) below=""
    for room in $rooms; do
        below="$below $room"
        grep -nE "^#include \"$floor/[a-z_]+/" lib/"$floor"/"$room"/*.[ch] | while IFS= read -r line; do
            other=$(sed "s|.*#include \"$floor/\([a-z_]*\)/.*|\1|" <<<"$line")
            case " $rooms " in *" $other "*) ;; *) continue ;; esac
            case " $below " in
            *" $other "*) ;;
            *) echo "${line%%:#*}: includes $floor/$other/, which is no room before $room" ;;
            esac
        done
    done
done | found
grep -nE '^#include "search/(budget|graph|space|evaluate|pool)/' lib/search/algorithms/*.[ch] |
    sed 's|:#include.*|: an algorithm includes search/state.h instead|' | found
# Files of a floor call each other in one direction.
for build in build/gcc build/clang; do
    [ -d $build/lib ] || continue
    # shellcheck disable=SC2046
    scripts/cycles.sh $build $(sed -n 's/^ACYCLIC *:= *//p' Makefile)
    break
done | found
for main in tools/*/weft-*.c; do
    tool=$(basename "$main" .c)
    uses=$(sed -n "s/^uses_$tool *:= *//p" Makefile)
    for file in "$main" "$(dirname "$main")/${tool#weft-}"-*.c "$(dirname "$main")/${tool#weft-}".[ch]; do
        # shellcheck disable=SC2086
        [ -f "$file" ] && check_includes "$file" $uses
    done
done | found

# ---- header examples ------------------------------------------------------------------------
if have mpicc; then
    scripts/header-examples.sh "$cc" | found
fi

# ---- public functions -------------------------------------------------------------------------
scripts/uncalled.sh | found

# ---- links ----------------------------------------------------------------------------------
linked() { # linked TOOL: the newest build of it
    find build -path "*/bin/$1" -type f -printf '%T@ %p\n' 2>/dev/null | sort -rn | head -1 | cut -d' ' -f2
}
for tool in weft-ckpt weft-import weft-keep weft-plan weft-predict weft-search weft-solve weft-tokens; do
    binary=$(linked $tool)
    [ -n "$binary" ] || continue
    ldd "$binary" | grep -oE '(libmpi|libopen-|libdnnl|libopenblas|libcblas|libcuda|libnccl|libgomp)[^ ]*' |
        sort -u | sed "s|^|$binary: links |" | found
done

# ---- scripts and pages ----------------------------------------------------------------------
if have shellcheck; then
    xargs -d '\n' shellcheck -S warning -f gcc <"$work/sh" | found
fi
if have mandoc; then
    while read -r page; do
        mandoc -T lint "$page" 2>&1 |
            grep -Ev 'outdated mandoc.db|referenced manual not found' |
            sed 's/^mandoc: //'
    done <"$work/man" | found
fi

# ---- clang-tidy -----------------------------------------------------------------------------
# To the analyzer err_input() and the like might return anything; here they return -1.
for f in no usage input system prefix at hint; do
    echo "#define err_$f(...) (err_$f(__VA_ARGS__), -1)"
done | sed '1i #include "common/err.h"' >"$work/err.h"
tidy_one() { # tidy_one FILE
    local stamp out flags include=(-include "$WORK/err.h")
    [ "$1" != lib/common/err.c ] || include=()
    flags="-std=c17 -D_POSIX_C_SOURCE=200809L -DWEFT_GEMM_reference"
    flags="$flags -Ilib $MPI -fopenmp"
    stamp="build/lint/$(tr / _ <<<"$1").ok"
    # Nothing that the file is made of is newer than its stamp.
    # shellcheck disable=SC2046,SC2086
    [ -f "$stamp" ] && out=$("$CC" $flags -MM "$1" | sed 's/^[^:]*://; s/\\$//') &&
        [ -z "$(find .clang-tidy $out -newer "$stamp" 2>&1)" ] && return
    # shellcheck disable=SC2086
    out=$(nice clang-tidy --quiet "$1" -- $flags "${include[@]}" 2>/dev/null |
        grep -E '^/?[^ ]+:[0-9]+:[0-9]+: (warning|error):' | sed "s|^$PWD/||" | sort -u)
    if [ -n "$out" ]; then echo "$out"; else touch "$stamp"; fi
}
if have clang-tidy; then
    mkdir -p build/lint
    export -f tidy_one
    export CC=$cc WORK=$work MPI
    MPI=$(mpicc --showme:compile 2>/dev/null)
    grep -E '^(lib|tools)/' "$work/c" | grep '\.c$' |
        xargs -d '\n' -P "$(nproc)" -I{} bash -c 'tidy_one {}' | sort -u | found
fi

n=$(wc -l <"$work/findings")
[ "$n" -eq 0 ] || echo "lint ($cc): $n findings" >&2
[ "$n" -eq 0 ]
