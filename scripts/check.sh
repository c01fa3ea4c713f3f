#!/usr/bin/env bash
# Runs tests that print TAP and adds them up.
#   scripts/check.sh BUILD_DIR [NAME...]
# Every program in BUILD_DIR/tests/unit and every tests/cli/*.sh and tests/mpi/run.sh is one
# test file; NAME limits the run to files whose path contains it. A test fails when it prints
# "not ok", ends with a status other than 0, or prints no plan. The folder of a failing test's
# output is kept and named. The last line is "N passed, N failed".
set -u
here=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
shift
export WEFT_BIN="$build/bin" WEFT_BUILD="$build" WEFT_ROOT="$here"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_odls_base_sigkill_timeout=0
case "$build" in *address*) export ASAN_OPTIONS=detect_leaks=${WEFT_LEAKS:-1} ;; esac
out=$(mktemp -d)
passed=0 failed=0

wanted() {
    [ $# -eq 1 ] && return 0
    local file=$1 name
    shift
    for name in "$@"; do case "$file" in *"$name"*) return 0 ;; esac; done
    return 1
}

run_one() {
    local file=$1 log start=$SECONDS status good bad
    log="$out/$(basename "$file").log"
    case "$file" in
    */mpi/run.sh) (cd "$here" && timeout 900 bash "$file" "$build/tests/mpi") >"$log" 2>&1 ;;
    *.sh) (cd "$here" && timeout 900 bash "$file") >"$log" 2>&1 ;;
    *) (cd "$here" && timeout 900 "$file") >"$log" 2>&1 ;;
    esac
    status=$?
    good=$(grep -c '^ok' "$log")
    bad=$(grep -c '^not ok' "$log")
    if [ "$status" -ne 0 ] || ! grep -q '^1\.\.' "$log"; then
        [ "$bad" -gt 0 ] || bad=1
    fi
    printf '%-44s %5d ok %3d not ok %4d s\n' "${file#"$here"/}" "$good" "$bad" $((SECONDS - start))
    if [ "$bad" -gt 0 ]; then
        grep '^not ok' "$log" | head -20
        grep -v '^ok' "$log" | tail -15
        echo "    (status $status, all output in $log)"
    fi
    passed=$((passed + good)) failed=$((failed + bad))
}

for file in "$build"/tests/unit/* "$here"/tests/cli/*.sh "$here"/tests/mpi/run.sh; do
    [ -x "$file" ] || [ "${file##*.}" = sh ] || continue
    case "$file" in *.o | *.d) continue ;; esac
    [ -f "$file" ] && wanted "$file" "$@" && run_one "$file"
done
[ "$failed" -eq 0 ] && rm -rf "$out"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
