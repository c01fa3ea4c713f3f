#!/usr/bin/env bash
# weft-search --explain and --pareto: what bounds a plan, what other decisions cost, and how fast a
# step can be within a memory. Prints TAP; the programs are in $WEFT_BIN.
# Needs: jq
set -u
tool=${WEFT_BIN:?}/weft-search
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0

problem=(-q -m gpt:nano --set 'layers=4,hidden=96,heads=4,seq=64,vocab=128' --cluster v100-4x8
    --devices 4 -b 16 --micro-batch '2,4,8' --schedule 1f1b)
"$tool" "${problem[@]}" >free.json 2>err
ok $? 'a plan without a limit'
most=$(jq .provenance.predicted.memory_bytes free.json)
tight=(--memory $((most / 2)))

# The same number as the tools print it (lib/common/text.c), without its unit.
shown() { # shown FILE: the predicted time of a plan
    jq -r .provenance.predicted.time_us "$1" |
        awk '{ print $1 < 1e4 ? sprintf("%.1f", $1) : $1 < 1e7 ? sprintf("%.2f", $1 / 1e3) : sprintf("%.3f", $1 / 1e6) }'
}

# ---- --explain ---------------------------------------------------------------------------------
"$tool" "${problem[@]}" "${tight[@]}" >plan.json 2>err && "$tool" "${problem[@]}" "${tight[@]}" --explain >out 2>err
ok $? '--explain'
grep -q '^time    stage [0-9]* sets the pace: computes [0-9.]* % of the step' out &&
    grep -q '^memory  stage [0-9]* is fullest: [0-9.]* [MG]iB of [0-9.]* [MG]iB$' out
ok $? "what bounds it: $(head -1 out)"
line() { # line WHAT: milliseconds and ratio of that line
    awk -v w="$1" 'index($0, w " ") == 1 { $0 = substr($0, length(w) + 1); print $1, $3 }' out
}
[ "$(line 'this plan')" = "$(shown plan.json) 1.000" ]
ok $? "this plan: $(line 'this plan')"
[ "$(grep -c ' [mu]s  *[0-9.]*  pp [0-9]*' out)" -ge 8 ]
ok $? "$(grep -c ' [mu]s  *[0-9.]*  pp [0-9]*' out) lines with a plan"
micro=$(jq .micro_batch plan.json)
other=$((micro == 2 ? 4 : micro / 2))
"$tool" "${problem[@]}" "${tight[@]}" --micro-batch $other >other.json 2>err
[ "$(line "micro-batch $other" | cut -d' ' -f1)" = "$(shown other.json)" ]
ok $? "another micro-batch costs what its own search says: $(line "micro-batch $other")"
echo '{"format": "weft-plan/1", "pin": {"*": {"recompute": "all"}}}' >part.json
"$tool" "${problem[@]}" "${tight[@]}" --pin part.json >again.json 2>err
[ "$(line 'recompute full' | cut -d' ' -f1)" = "$(shown again.json)" ]
ok $? "so does a pinned decision: $(line 'recompute full')"

"$tool" "${problem[@]}" "${tight[@]}" --explain --pin part.json >bound 2>err
awk '/^without the pins/ { found = $6 < 1 } END { exit !found }' bound && grep -q '^binds   the pins: ' bound
ok $? "what pins cost: $(grep '^binds   the pins' bound)"
[ "$(line 'with any memory' | cut -d' ' -f1)" = "$(shown free.json)" ] &&
    grep -qE '^(binds|free)    ?the limit of memory: ' out
ok $? "whether memory binds: $(grep 'limit of memory' out)"
grep -qE '^(next|missed)  +[a-z0-9-]+( [0-9a-z]+)?: .* takes [0-9.]* % (more|less)$' out
ok $? "the next best decision: $(tail -1 out)"
if [ -w /dev/full ]; then
    "$tool" "${problem[@]}" --explain >/dev/full 2>err
    [ $? -eq 4 ] && [ "$(grep -c error err)" -eq 1 ]
    ok $? "a full disk ends it at the first line: $(cat err)"
fi

jq '.nodes = 1' "${WEFT_ROOT:?}/share/clusters/v100-4x8.json" >one.json
"$tool" -q -m gpt:nano --cluster one.json -b 16 --micro-batch 16 -a dp-only --explain >out 2>err &&
    [ "$(line 'with one node more' | wc -w)" -eq 2 ]
ok $? "a node more than the cluster has: $(line 'with one node more')"
jq '.nodes = 2' "${WEFT_ROOT:?}/share/clusters/v100-4x8.json" >two.json
"$tool" -q -m gpt:nano --cluster two.json -b 16 --micro-batch 16 -a dp-only --explain >out 2>err &&
    sed -n '/^with devices/,/^$/p' out >table &&
    awk 'NR > 1 && NF { n++; devices += $1; bad += ($2 * $3 / $1 - 1) ^ 2 > 1e-5 } # $3 = $1 / $2
        END { exit !(n == 3 && devices == 8 + 16 + 24 && !bad) }' table &&
    grep '^this plan' out | awk -v each="$(awk '$1 == 16 { print $2 }' table)" '
        { exit !((each * $3 / 16 / ($4 == "us" ? 1e6 : $4 == "ms" ? 1e3 : 1) - 1) ^ 2 < 1e-6) }'
ok $? "what a node more or less gives: $(tail -n +2 table | paste -sd ';')"

# Of three stages, one stage is both the least and half of them.
echo '{"format": "weft-plan/1", "pin": {"stages": 3}}' >three.json
"$tool" -q -m mlp --set layers=2 --cluster v100-4x8 --devices 4 -b 16 --micro-batch 4 -a hops --pin three.json --explain >out 2>err &&
    [ "$(grep -c '^stages 1 ' out)" -eq 1 ]
ok $? "no decision is tried twice: $(grep '^stages 1 ' out | head -1)"

# ---- --pareto ----------------------------------------------------------------------------------
"$tool" "${problem[@]}" --pareto >front 2>err
ok $? '--pareto'
jq -s -e 'length >= 3 and ([.[].time] | . == sort) and ([.[].memory] | . == (sort | reverse)) and
    all(.[]; .plan.format == "weft-plan/1" and (.words | startswith("pp ")))' front >/dev/null
ok $? "$(wc -l <front) plans, none both slower and larger than another"
jq -s -e --argjson t "$(jq .provenance.predicted.time_us free.json)" '.[0].time * 1e6 - $t | fabs < 0.01' front >/dev/null
ok $? 'the fastest is the one without a limit'
tail -1 front | jq .plan | "$WEFT_BIN/weft-predict" -q --cluster v100-4x8 - >pred.json 2>err &&
    [ "$(jq .memory pred.json)" = "$(tail -1 front | jq .memory)" ]
ok $? 'the smallest holds what it says'
"$tool" "${problem[@]}" --memory 1K --pareto >out 2>err
[ $? -eq 1 ] && [ ! -s out ] && grep -q 'no plan fits' err
ok $? "no plan at all: $(cat err)"
echo "1..$n"
[ $failed -eq 0 ]
