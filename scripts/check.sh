#!/usr/bin/env bash
# Runs tests that print TAP and adds them up.
#   scripts/check.sh BUILD_DIR [NAME...]
# Every program in BUILD_DIR/tests/unit and every tests/cli/*.sh and tests/mpi/run.sh is one
# test file; NAME limits the run to files whose path contains it. JOBS of them run at a time (half
# the cores and one: many use several themselves). A test fails when it prints
# "not ok", ends with a status other than 0, or prints no plan. One that needs programs says so in
# a line "# Needs: PROGRAM...", and is skipped where one is not installed. The folder of a failing
# test's output is kept and named; tables that tests print, in lines of "#|", and what was skipped
# with the reason stand at the end. The last line is "N passed, N failed, N skipped". TIMES=FILE: a
# line for each file, the most expensive first: its processor seconds, children's too, and its wall time.
set -u -m # -m: without, what runs in the background ignores an interrupt
here=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
shift
export WEFT_BIN="$build/bin" WEFT_BUILD="$build" WEFT_ROOT="$here"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_odls_base_sigkill_timeout=0
case "$build" in *address*) export ASAN_OPTIONS=detect_leaks=${WEFT_LEAKS:-1} ;; esac
unset MAKEFLAGS MFLAGS # the jobserver of the make that called is closed to tests that call make
out=$(mktemp -d)
jobs=${JOBS:-$(($(nproc) / 2 + 1))}
limit=1800 # seconds of one file
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

# run_one FILE: prints a line on it, with what failed; its counts go into a file, for it runs in a
# shell of its own.
run_one() {
    local file=$1 name=${1#"$here"/} log start=$SECONDS status good bad left lacking
    log="$out/${name//\//-}.log"
    lacking=$(lacks "$file")
    if [ -n "$lacking" ]; then
        echo "0 0 1" >"$log.counts"
        echo "skipped: $name: not installed: $lacking" >"$log.skipped"
        return
    fi
    case "$file" in
    */mpi/run.sh) (cd "$here" && timeout $limit bash "$file" "$build/tests/mpi") >"$log" 2>&1 ;;
    *.sh) (cd "$here" && timeout $limit bash "$file") >"$log" 2>&1 ;;
    *) (cd "$here" && timeout $limit "$file") >"$log" 2>&1 ;;
    esac
    status=$?
    [ -z "${TIMES:-}" ] || times >"$log.times" # of this shell, and of what it waited for
    left=$(grep -cE '^(ok|1\.\.0).* # SKIP ' "$log")
    good=$(($(grep -c '^ok' "$log") - $(grep -c '^ok.* # SKIP ' "$log")))
    bad=$(grep -c '^not ok' "$log")
    sed -nE "s|^(ok [0-9]+ - \|1\.\.0)(.*) # SKIP (.*)|skipped: $name: \2: \3|p" "$log" |
        sed 's/: *: /: /' >"$log.skipped"
    sed -n 's/^#| //p' "$log" >"$log.tables"
    if [ "$status" -ne 0 ] || ! grep -q '^1\.\.' "$log"; then
        [ "$bad" -gt 0 ] || bad=1
    fi
    echo "$good $bad $left" >"$log.counts"
    [ -z "${TIMES:-}" ] || tr 'ms' '  ' <"$log.times" | awk -v name="$name" -v wall=$((SECONDS - start)) '
        { used += 60 * ($1 + $3) + $2 + $4 } END { printf "%7.1f %5d %s\n", used, wall, name }' >"$log.used"
    {
        printf '%-44s %5d ok %3d not ok %4d s\n' "$name" "$good" "$bad" $((SECONDS - start))
        if [ "$bad" -gt 0 ]; then
            grep '^not ok' "$log" | head -20
            grep -Ev '^(ok|#\|)' "$log" | tail -15
            echo "    (status $status, all output in $log)"
        fi
    } >"$log.said"
    cat "$log.said" # at once: lines of two files do not mix
}

# The longest first: what is short fills the gaps at the end.
for file in "$here"/tests/mpi/run.sh "$here"/tests/cli/*.sh "$build"/tests/unit/*; do
    [ -x "$file" ] || [ "${file##*.}" = sh ] || continue
    case "$file" in *.o | *.d) continue ;; esac
    [ -f "$file" ] || continue
    wanted "$file" "$@" || continue
    while [ "$(jobs -pr | wc -l)" -ge "$jobs" ]; do wait -n; done
    run_one "$file" </dev/null &
done
wait
find "$out" -name '*.tables' -o -name '*.skipped' | sort | xargs -r cat
read -r passed failed skipped < <(cat "$out"/*.counts 2>/dev/null |
    awk '{ p += $1; f += $2; s += $3 } END { print p + 0, f + 0, s + 0 }')
[ -z "${TIMES:-}" ] || cat "$out"/*.used | sort -rn >"$TIMES"
[ "$failed" -eq 0 ] && rm -rf "$out"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
