#!/usr/bin/env bash
# weft-predict --waterfall: the terms are the step to the nanosecond, whatever the schedule and the code
# that runs it, and each says what it is about. Prints TAP; the programs are in $WEFT_BIN.
# Needs: jq
set -u
tool=${WEFT_BIN:?}/weft-predict
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0

run() { # run ARGS...: leaves $status, out, err
    "$tool" "$@" >out 2>err <plan.json
    status=$?
}
plan() { # plan ARGS...
    "$WEFT_BIN/weft-plan" -m gpt:350M --dtype bf16 -b 32 --micro-batch 2 --cluster h100:8 "$@" >plan.json 2>err
}
adds_up() { # adds_up TEXT ARGS...: to the nanosecond, and peak is the part that is reached
    local text=$1
    shift
    run -q --waterfall "$@"
    jq -e '.time_us as $t | .utilization as $u | (.waterfall.terms | length == 12) and
        (.waterfall.terms | map(.us * 1000 | round) | add) == ($t * 1000 | round) and
        (.waterfall.terms[0] | .term == "peak" and (.us / $t - $u | fabs) < 1e-5)' out >/dev/null
    ok $? "$text: all terms are the step: $(jq -c '[.waterfall.terms[].us | round]' out)"
}
term() { # term NAME EXPRESSION TEXT: of the last one
    jq -e --arg t "$1" "(.waterfall.terms | map({(.term): .us}) | add)[\$t] | $2" out >/dev/null
    ok $? "$3: $(jq --arg t "$1" '.waterfall.terms[] | select(.term == $t).us' out)"
}

plan --pp 4 --dp 2
adds_up 'a pipeline'
term bubble '. > 0' 'it waits'
term messages '. > 0' 'stages talk'
term recompute '. == 0' 'nothing is computed again'
term rest 'fabs < 0.1' 'nothing is left unexplained'
jq '.schedule = "zero-bubble"' plan.json >zero.json && mv zero.json plan.json
adds_up 'weight gradients put off'
plan --tp 8 --recompute full
adds_up 'all recomputed on a tensor-parallel stage'
term recompute '. > 0' 'it computes again'
term collectives '. > 0' 'nothing hides its collectives'
term bubble '. == 0' 'it waits for nobody'
adds_up 'under Megatron, which recomputes blocks whole' --runtime megatron
plan --pp 2 --schedule interleaved --chunks 4 --dp 4
adds_up 'four chunks a group'
plan
adds_up 'one device'
jq -e '.waterfall.terms | map({(.term): .us}) | add | (.uneven | fabs) < .peak / 20' out >/dev/null
ok $? 'it has its share'
plan --set hidden=256,heads=4
adds_up 'small kernels of an eager host' --runtime torch-eager
term host '. > 0' 'wait to be issued'
run -q --waterfall --text
grep -q '^peak .* |##*' out && grep -q '^memory .* what moves memory$' out
ok $? 'as bars'
run -q --waterfall --memory
[ $status -eq 2 ] && grep -q 'no --waterfall' err
ok $? "memory alone falls nowhere: $(head -1 err)"
"$WEFT_BIN/weft-profile-op" -q --plan plan.json -p a.db --roofline 312T:1.5T:5us --device a100 >out 2>err
run -q --waterfall -p a.db --cluster node:1\ gpu:1
[ $status -eq 3 ] && grep -q 'does not say the peak' err && grep -q '^hint: ' err
ok $? "a cluster without a peak: $(head -1 err)"

echo "1..$n"
[ "$failed" -eq 0 ]
