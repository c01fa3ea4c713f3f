#!/usr/bin/env bash
# Datasheets against steps that Megatron-LM measured: the table of scripts/megatron.sh. Prints TAP; the
# programs are in $WEFT_BIN.
# Needs: jq
set -u
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0

bash "${WEFT_ROOT:?}/scripts/megatron.sh" "${WEFT_BIN:?}" >table 2>err
ok $? 'the table is made'
is "$(sed 1d table | wc -l)" 8 'rows: four sizes of GPT, recomputed in two ways'

each() { # each CONDITION TEXT: of model, what was measured and predicted, and between which bounds
    awk "NR > 1 { model = \$1; what = \$4; measured = \$5; predicted = \$6; low = \$7; high = \$8; mfu = \$10
                  if (!($1)) { print; bad = 1 } }
         END { exit bad }" table >out
    ok $? "$2"
}
each 'low < measured && measured < high' 'what was measured lies between the bounds'
each 'measured > 1.25 * predicted && measured < 1.65 * predicted' 'and 25 to 65 % above the prediction'
# The paper's own figures agree with each other, so none is mistyped.
each 'what != "selective" || mfu == (model == "22B" ? 41.7 : model == "175B" ? 51.4 : model == "530B" ? 56 : 56.3)' \
    'MFU is that of the paper (22B: within its rounding)'
awk 'NR > 1 { measured[$1, $4] = $5; predicted[$1, $4] = $6; seen[$1] = 1 }
     END { for (m in seen) {
               gain = measured[m, "full"] / measured[m, "selective"]
               ratio = predicted[m, "full"] / predicted[m, "selective"] / gain
               if (ratio < 0.89 || ratio > 1.08) { print m, ratio; bad = 1 } }
           exit bad }' table >out
# weft recomputes less of a block than they did, so its "full" costs less.
ok $? 'what less recomputation gains is predicted within 11 %'

# Activations of GPT-22B on 8 devices, micro-batches of 4, by the formulas of the paper: s b h L (34 / t) with
# sequence parallelism and selective recomputation, s b h L (10 + 24 / t + 5 a s / (h t)) without either.
near() { # near GIB TEXT -- PLAN_OPTIONS...
    local gib=$1 text=$2
    shift 3
    "$WEFT_BIN/weft-plan" -q -m gpt:1.3B --set layers=48,hidden=6144,heads=64,seq=2048,vocab=51200,dropout=0.1 \
        --dtype fp16 --tp 8 -b 4 --micro-batch 4 "$@" --cluster a100-80gb:8 |
        "$WEFT_BIN/weft-predict" -q --memory --runtime megatron - >out
    jq -e --argjson gib "$gib" '.stages[0].memory |
        ((.activations + .runtime) / pow(2; 30) - 2) / $gib - 1 | fabs < 0.03' out >/dev/null
    ok $? "$text: $(jq -c '.stages[0].memory | [.activations, .runtime]' out)"
}
near 9.5625 'activations under Megatron, selective recomputation' -- --recompute selective --sp
near 59.25 'and without recomputation' -- --recompute none

echo "1..$n"
[ $failed -eq 0 ]
