#!/usr/bin/env bash
# Each plan in tests/golden compiles to the program beside it, NAME.plan.json to NAME.program.txt.
#   golden.sh [update]
# "update" writes the programs anew (make update-golden): read the difference before it is committed.
# The programs are in $WEFT_BIN. Prints TAP.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
tool=$(cd "${WEFT_BIN:?}" && pwd)/weft-run

explain() { # explain PLAN: paths in a plan are from the root of the tree
    (cd "$root" && "$tool" --threads 1 --explain "$1")
}

if [ "${1:-}" = update ]; then
    for plan in "$root"/tests/golden/*.plan.json; do
        explain "$plan" >"$plan.new" || exit 1
        mv "$plan.new" "${plan%.plan.json}.program.txt"
    done
    exit 0
fi

# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0
for plan in "$root"/tests/golden/*.plan.json; do
    name=$(basename "$plan" .plan.json)
    explain "$plan" >got 2>err
    ok $? "$name compiles"
    diff -u --label "$name.program.txt" --label "what it compiles to" \
        "${plan%.plan.json}.program.txt" got >out 2>err
    ok $? "$name: the program of tests/golden"
done
for program in "$root"/tests/golden/*.program.txt; do
    [ -f "${program%.program.txt}.plan.json" ]
    ok $? "$(basename "$program") has a plan"
done
echo "1..$n"
[ "$failed" -eq 0 ]
