#!/usr/bin/env bash
# Each plan in tests/golden compiles to the program beside it, NAME.plan.json to NAME.program.txt, and
# has the memory plan beside it, if there is a NAME.memory.txt.
#   golden.sh [update]
# "update" writes them anew (make update-golden): read the difference before it is committed.
# The programs are in $WEFT_BIN. Prints TAP.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
tool=$(cd "${WEFT_BIN:?}" && pwd)/weft-run

explain() { # explain PASS PLAN: paths in a plan are from the root of the tree
    (cd "$root" && "$tool" --threads 1 --explain="$1" "$2")
}
last=overlap # of all passes

if [ "${1:-}" = update ]; then
    for plan in "$root"/tests/golden/*.plan.json; do
        explain $last "$plan" >"$plan.new" || exit 1
        mv "$plan.new" "${plan%.plan.json}.program.txt"
        [ -f "${plan%.plan.json}.memory.txt" ] || continue
        explain memory "$plan" >"$plan.new" || exit 1
        mv "$plan.new" "${plan%.plan.json}.memory.txt"
    done
    exit 0
fi

# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0
for plan in "$root"/tests/golden/*.plan.json; do
    name=$(basename "$plan" .plan.json)
    explain $last "$plan" >got 2>err
    ok $? "$name compiles"
    diff -u --label "$name.program.txt" --label "what it compiles to" \
        "${plan%.plan.json}.program.txt" got >out 2>err
    ok $? "$name: the program of tests/golden"
done
for memory in "$root"/tests/golden/*.memory.txt; do
    name=$(basename "$memory" .memory.txt)
    explain memory "$root/tests/golden/$name.plan.json" >got 2>err
    diff -u --label "$name.memory.txt" --label "where its buffers lie" "$memory" got >out 2>>err
    ok $? "$name: the memory plan of tests/golden"
done
for program in "$root"/tests/golden/*.program.txt; do
    [ -f "${program%.program.txt}.plan.json" ]
    ok $? "$(basename "$program") has a plan"
done

# ---- pass by pass --------------------------------------------------------------------------
golden=$root/tests/golden
for name in one data-offload pipeline-zero-bubble data-zero3-overlap; do
    # What --explain prints is what the last pass leaves, behind the bytes of memory.
    (cd "$root" && "$tool" --threads 1 --explain "$golden/$name.plan.json") 2>err |
        sed '/^  [a-z]* *[0-9]*$/d; / beside these$/d; /^stage/s/, [0-9]* in flight, [0-9]* bytes$//' >got
    diff "$golden/$name.program.txt" got >out
    ok $? "$name: the program is what the last pass leaves"
done
changed() { # changed PASS NAME: does the pass change the program?
    explain "$1" "$golden/$2.plan.json" >after 2>err
    ! diff before after >out
}
for case in 'forward backward one' 'backward split pipeline-zero-bubble' \
    'split prefetch data-zero3-overlap' 'prefetch update one' 'update offload data-offload' \
    'offload fresh one' 'persistent bucket data' 'round clear one' 'clear reuse one' \
    'memory overlap data-overlap'; do
    # shellcheck disable=SC2086 # three words
    set -- $case
    explain "$1" "$golden/$3.plan.json" >before 2>err
    changed "$2" "$3"
    ok $? "$3: $2 changes what $1 left"
done
explain split "$golden/one.plan.json" >before 2>err
! changed prefetch one
ok $? 'a pass whose condition a stage does not meet leaves it as it is'
"$tool" --explain=split-up "$golden/one.plan.json" >out 2>err
is $? 2 'a pass that there is not'
grep -q '^weft-run: error: --explain:.*overlap.*"split-up"$' err
ok $? 'the message lists those that there are'
echo "1..$n"
[ "$failed" -eq 0 ]
