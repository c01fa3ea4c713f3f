#!/usr/bin/env bash
# Steps of GPT on A100s as Megatron-LM measured them, beside what weft predicts from datasheets alone.
#   scripts/megatron.sh BIN_DIR
# The measured ones are those of Korthikanti et al., Reducing Activation Recomputation in Large
# Transformer Models (2022), tables 3 and 5 (the micro-batches as the inputs of Calculon for them have
# them, its validation/22B_full.json and the others): 22B to 1T parameters on nodes of eight, 8 tensor-parallel
# devices, micro-batches of 1 (22B: of 4); once with full recomputation, once with sequence parallelism and
# selective recomputation. Here attention is fused, theirs was not; so "selective" computes less again.
# The cluster is share/clusters/a100-2x8.json with as many nodes. Columns: model, devices, stages,
# what is recomputed; seconds of a step measured, predicted, and between which bounds; measured over
# predicted; MFU as the paper counts it, of both (its table has 41.5, 51.4, 56.0 and 56.3 for "selective").
# Needs: jq
set -euo pipefail
bin=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
clusters=$(cd "$(dirname "$0")/../share/clusters" && pwd)

row() { # row NAME LAYERS HIDDEN HEADS PP CHUNKS BATCH RECOMPUTE SECONDS
    local how=(--recompute "$8") micro=1
    [ "$1" != 22B ] || micro=4
    [ "$8" = full ] || how+=(--sp)
    [ "$6" = 1 ] || how+=(--schedule interleaved --chunks "$6")
    jq --argjson nodes "$5" '.nodes = $nodes' "$clusters/a100-2x8.json" >"$work/cluster.json"
    "$bin/weft-plan" -q -m gpt:1.3B --set "layers=$2,hidden=$3,heads=$4,seq=2048,vocab=51200,dropout=0.1" \
        --dtype bf16 --tp 8 --pp "$5" -b "$7" --micro-batch "$micro" "${how[@]}" --cluster "$work/cluster.json" |
        "$bin/weft-predict" -q - | jq -r --arg name "$1" --argjson L "$2" --argjson h "$3" --argjson p "$5" \
        --argjson B "$7" --arg recompute "$8" --argjson measured "$9" '
        2048 as $s | 51200 as $V |
        (72 * $B * $s * $L * $h * $h * (1 + $s / (6 * $h) + $V / (12 * $h * $L))) as $flops |
        def mfu: 100 * $flops / (. * 8 * $p * 312e12);
        def fixed($digits): pow(10; $digits) as $u | . * $u | round / $u;
        [$name, 8 * $p, $p, $recompute, $measured, (.time | fixed(2)), (.low_us / 1e6 | fixed(2)),
         (.high_us / 1e6 | fixed(2)), ($measured / .time | fixed(2)),
         ($measured | mfu | fixed(1)), (.time | mfu | fixed(1))] | @tsv'
}
both() { # both NAME LAYERS HIDDEN HEADS PP CHUNKS BATCH FULL SELECTIVE
    row "${@:1:7}" full "$8"
    row "${@:1:7}" selective "$9"
}
{
    printf 'model\tdevices\tstages\trecompute\tmeasured\tpredicted\tfrom\tto\tratio\tMFU\tpredicted\n'
    both 22B 48 6144 64 1 1 4 1.42 1.10
    both 175B 96 12288 96 8 3 64 18.13 13.75
    both 530B 105 20480 128 35 3 280 49.05 37.83
    both 1T 128 25600 160 64 1 512 94.42 71.49
} | awk -F'\t' '{ printf "%-6s%8s%7s  %-10s%9s%10s%8s%8s%7s%6s%10s\n", $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11 }'
