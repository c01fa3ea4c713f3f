#!/usr/bin/env bash
# Runs tests that print TAP and adds them up.
#   scripts/check.sh BUILD_DIR [NAME...]
# Every program in BUILD_DIR/tests/unit and every tests/cli/*.sh and tests/mpi/run.sh is one
# test file; NAME limits the run to files whose path contains it. A test fails when it prints
# "not ok", ends with a status other than 0, or prints no plan. One that needs programs says so in
# a line "# Needs: PROGRAM...", and is skipped where one is not installed. The folder of a failing
# test's output is kept and named; tables that tests print, in lines of "#|", and what was skipped
# with the reason stand at the end. The last line is "N passed, N failed, N skipped".
set -u
here=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
shift
export WEFT_BIN="$build/bin" WEFT_BUILD="$build" WEFT_ROOT="$here"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_odls_base_sigkill_timeout=0
case "$build" in *address*) export ASAN_OPTIONS=detect_leaks=${WEFT_LEAKS:-1} ;; esac
out=$(mktemp -d)
passed=0 failed=0 skipped=0
limit=900 # seconds of one file
[ -z "${WEFT_LONG:-}" ] || limit=3600

wanted() {
    [ $# -eq 1 ] && return 0
    local file=$1 name
    shift
    for name in "$@"; do case "$file" in *"$name"*) return 0 ;; esac; done
    return 1
}

lacks() { # lacks FILE: a program that the test needs and that is not installed
    local program
    for program in $(case "$1" in *.sh) sed -n 's/^# Needs: //p' "$1" ;; esac); do
        command -v "$program" >/dev/null || echo "$program"
    done | paste -sd ' '
}

run_one() {
    local file=$1 log start=$SECONDS status good bad left lacking
    log="$out/$(basename "$file").log"
    lacking=$(lacks "$file")
    if [ -n "$lacking" ]; then
        skipped=$((skipped + 1))
        echo "skipped: ${file#"$here"/}: not installed: $lacking" >>"$out/skipped"
        return
    fi
    case "$file" in
    */mpi/run.sh) (cd "$here" && timeout $limit bash "$file" "$build/tests/mpi") >"$log" 2>&1 ;;
    *.sh) (cd "$here" && timeout $limit bash "$file") >"$log" 2>&1 ;;
    *) (cd "$here" && timeout $limit "$file") >"$log" 2>&1 ;;
    esac
    status=$?
    left=$(grep -cE '^(ok|1\.\.0).* # SKIP ' "$log")
    good=$(($(grep -c '^ok' "$log") - $(grep -c '^ok.* # SKIP ' "$log")))
    bad=$(grep -c '^not ok' "$log")
    sed -nE "s|^(ok [0-9]+ - \|1\.\.0)(.*) # SKIP (.*)|skipped: ${file#"$here"/}: \2: \3|p" "$log" |
        sed 's/: *: /: /' >>"$out/skipped"
    sed -n 's/^#| //p' "$log" >>"$out/tables"
    if [ "$status" -ne 0 ] || ! grep -q '^1\.\.' "$log"; then
        [ "$bad" -gt 0 ] || bad=1
    fi
    printf '%-44s %5d ok %3d not ok %4d s\n' "${file#"$here"/}" "$good" "$bad" $((SECONDS - start))
    if [ "$bad" -gt 0 ]; then
        grep '^not ok' "$log" | head -20
        grep -Ev '^(ok|#\|)' "$log" | tail -15
        echo "    (status $status, all output in $log)"
    fi
    passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + left))
}

for file in "$build"/tests/unit/* "$here"/tests/cli/*.sh "$here"/tests/mpi/run.sh; do
    [ -x "$file" ] || [ "${file##*.}" = sh ] || continue
    case "$file" in *.o | *.d) continue ;; esac
    [ -f "$file" ] && wanted "$file" "$@" && run_one "$file"
done
[ ! -s "$out/tables" ] || cat "$out/tables"
[ ! -s "$out/skipped" ] || cat "$out/skipped"
[ "$failed" -eq 0 ] && rm -rf "$out"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
