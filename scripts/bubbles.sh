#!/usr/bin/env bash
# How long the groups of a pipeline wait under each schedule, and what they keep meanwhile, beside the
# formulas of the papers; 4 and 8 groups, several numbers of micro-batches.
#   scripts/bubbles.sh BIN_DIR
# A GPT whose stages are alike (its vocabulary is tiny), on devices that communicate for nothing.
# F, B and W, which the formulas are of, are those of the same prediction: zero-bubble's, where B and W
# come apart. Columns: groups, micro-batches, schedule; the shortest wait of a group over the time of
# its work, and the formula's; micro-batches of a stage whose activations the fullest rank holds, and
# the papers' number.
#   gpipe, 1f1b   (p - 1) (F + B + W)        holds m, p   (Huang 2019; Narayanan 2019)
#   interleaved   a v-th of that             holds p + (p - 1) / v   (Narayanan 2021)
#   zero-bubble   (p - 1) (F + B - W)        holds p   (ZB-H1, Qi 2023)
# Needs: jq
set -euo pipefail
bin=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat >free.json <<'END'
{"format": "weft-cluster/1", "nodes": 1, "devices_per_node": 8, "device": "ideal", "memory": "1T",
 "flops": 1e14, "bandwidth": 1e18, "latency_us": 0,
 "links": [{"level": "node", "bandwidth": 1e18, "latency_us": 0}]}
END

predict() { # predict P M SCHEDULE [CHUNKS]
    "$bin/weft-plan" -q -m gpt:1.3B --set layers=32,seq=1024,vocab=64 --pp "$1" -b "$2" \
        --micro-batch 1 --schedule "$3" --chunks "${4:-1}" --cluster free.json |
        "$bin/weft-predict" -q -
}
row() { # row P M SCHEDULE CHUNKS: a line of the table
    predict "$1" "$2" "$3" "$4" | jq -r --argjson p "$1" --argjson m "$2" --argjson v "$4" \
        --argjson times "$times" --argjson unit "$unit" '
        ($times.f + $times.b + $times.w) as $all |
        {gpipe: $m, "1f1b": $p, interleaved: ($p + ($p - 1) / $v), "zero-bubble": $p} as $held |
        (if .schedule == "zero-bubble" then $times.f + $times.b - $times.w else $all / $v end) as $each |
        def round2: . * 100 | round / 100;
        [$p, $m, .schedule + (if $v > 1 then "-\($v)" else "" end),
         (100 * ([.stages[].bubble_us] | min) / ($m * $all) | round2),
         (100 * ($p - 1) * $each / ($m * $all) | round2),
         (([.stages[].memory.activations] | max) / $unit | round2),
         ([$held[.schedule], $m] | min | round2)] | @tsv'
}

table() {
    local p m schedule chunks times unit
    printf 'p\tm\tschedule\twaits %%\tformula\tholds\tpaper\n'
    for p in 4 8; do
        # The second stage is like all but the first and the last.
        times=$(predict $p $p zero-bubble |
            jq -c '.stages[1] | {f: .forward_us, b: (.backward_us - .weights_us), w: .weights_us}')
        unit=$(predict $p $p gpipe | jq ".stages[1].memory.activations / $p")
        for m in $p $((p + 2)) $((2 * p)) $((8 * p)); do
            for schedule in gpipe 1f1b interleaved-2 zero-bubble interleaved-4; do
                chunks=${schedule#interleaved-}
                [ "$chunks" != "$schedule" ] || chunks=1
                row $p "$m" "${schedule%-[24]}" "$chunks"
            done
        done
    done
}
table | awk -F'\t' '{ printf "%-3s%-4s%-15s%8s%9s%7s%7s\n", $1, $2, $3, $4, $5, $6, $7 }'
