#!/usr/bin/env bash
# What one rank keeps of a transformer layer, beside the formulas of Korthikanti et al., Reducing
# Activation Recomputation in Large Transformer Models (2022): their GPTs from 22B to 1T, and Llama.
#   scripts/memory.sh BIN_DIR [DTYPE]
# Plans of 8 tensor-parallel devices are made with weft-plan; a layer is what weft-predict says of four
# layers less what it says of three. Columns: model, how it is split and recomputed; bytes of
# activations in units of s b h, by the formulas, by weft, and what lies between them:
#   masks   dropout draws its numbers from counters, so no mask is kept
#   scores  attention keeps its result and a sum for each row, not s x s scores
#   silu    SwiGLU computes silu(gate) again
#   result  of attention, which "selective" computes again too
#   sums    fp32: a mean and a deviation for each row of a norm, one sum for each row of attention
# and bytes of parameters, gradients and optimizer. Ends with 1 where what lies between does not
# account for the difference, or the bytes of parameters are not those of their formula, to the byte.
# A second table has whole models, with sequence parallelism and 1F1B over P stages: GiB on each rank
# of the first, which holds P micro-batches of one sample. The formulas leave out the embeddings'
# activations, and state is 16 bytes (fp32) for each parameter of the layers and of the vocabulary.
# Needs: jq
set -euo pipefail
bin=$(cd "$1" && pwd) dtype=${2:-fp32}
b=4 t=8

predict() { # predict MODEL SET OPTIONS...
    "$bin/weft-plan" -q -m "$1" --set "$2" --tp $t "${@:3}" |
        jq --arg d "$dtype" 'if $d == "fp32" then . else .dtype = $d end' |
        "$bin/weft-predict" -q --memory - | jq -c '.stages[0].memory |
            {activations, state: (.parameters + .gradients + .optimizer)}'
}

# What all formulas are written in: E bytes of an element, bytes for each of s b positions.
# shellcheck disable=SC2016 # jq's variables
counts='
    (if $dtype == "fp32" then 4 else 2 end) as $E |
    ($kv_heads / $heads) as $g |
    (if $sp == "--sp" then $t else 1 end) as $S |
    ($ref | startswith("gpt")) as $gpt |
    # A layer as they count it: norms read 2 h, products and attention the rest.
    (if $gpt then {
        whole: (4 * $E * $h), split: (12 * $E * $h), masks: (2 * $h), silu: 0,
        scores: ((2 * $E + 1) * $heads * $s), sums: 16, matrices: (12 * $h * $h),
        shared: (6 * $h), split_bias: (7 * $h)
    } else {
        whole: (4 * $E * $h), split: ($E * ((2 + 2 * $g) * $h + 4 * $f)), masks: 0,
        silu: ($E * $f), scores: ($E * $heads * $s), sums: 8,
        matrices: ((2 + 2 * $g) * $h * $h + 3 * $h * $f), shared: (2 * $h), split_bias: 0
    } end) as $c |
    (($c.whole + $c.masks) / $S + ($c.split + $c.scores) / $t) as $none |
    {none: $none, selective: ($none - $c.scores / $t), full: ($E * $h / $S)}[$recompute] as $paper |
    (if $recompute == "full" then {} else {
        masks: (-$c.masks / $S), silu: (-$c.silu / $t), sums: ($c.sums / $S),
        scores: (if $recompute == "none" then -$c.scores / $t else 0 end),
        result: (if $recompute == "none" then 0 else -$E * $h / $t end),
        rows: (if $recompute == "none" then 4 * $heads / $t else 0 end)
    } end) as $between |
    (if $dtype == "fp32" then 16 else 18 end) as $each |
    ($each * (($c.matrices + $c.split_bias) / $t + $c.shared)) as $state |
    ([$between[]] | add // 0) as $difference |'
# shellcheck disable=SC2016
layer=$counts'
    def round3: . * 1000 | round / 1000;
    [$name, (["tp", $sp[2:], ($recompute | if . == "none" then "" else . end)] | map(select(. != "")) | join(" "))] as $head |
    $head + ([$paper, $paper + $difference, $between.masks, $between.scores, $between.silu,
              $between.result, (($between.sums // 0) + ($between.rows // 0))] |
             map((. // 0) / $h | round3 | if . == 0 then 0 else . end)) +
    [(($four.activations - $three.activations) / ($s * $b) / $h | round3),
     ($four.state - $three.state),
     if ($paper + $difference) * $s * $b != $four.activations - $three.activations
     then "UNEXPLAINED" elif $state != $four.state - $three.state then "STATE \($state)" else "" end] |
    @tsv'

row() { # row NAME REF H HEADS KV_HEADS FFN S SP RECOMPUTE
    local set=$2
    set="hidden=$3,heads=$4,seq=$7,vocab=51200"
    case $2 in gpt*) set=$set,dropout=0.1 ;; *) set=$set,kv_heads=$5,ffn=$6 ;; esac
    jq -nr --arg name "$1" --arg ref "$2" --arg sp "$8" --arg recompute "$9" --arg dtype "$dtype" \
        --argjson h "$3" --argjson heads "$4" --argjson kv_heads "$5" --argjson f "$6" \
        --argjson s "$7" --argjson b $b --argjson t $t \
        --argjson three "$(predict "$2" "$set,layers=3" -b $b --micro-batch $b ${8:+$8} --recompute "$9")" \
        --argjson four "$(predict "$2" "$set,layers=4" -b $b --micro-batch $b ${8:+$8} --recompute "$9")" \
        "$layer"
}
rows() { # rows NAME REF H HEADS KV_HEADS FFN S
    row "$@" "" none
    row "$@" --sp none
    row "$@" --sp selective
    row "$@" --sp full
}
layers() {
    printf 'a layer\tsplit\tformula\tso weft\tmasks\tscores\tsilu\tresult\tsums\tweft\tstate\n'
    rows gpt-22B gpt:1.3B 6144 64 64 24576 2048
    rows gpt-175B gpt:1.3B 12288 96 96 49152 2048
    rows gpt-530B gpt:1.3B 20480 128 128 81920 2048
    rows gpt-1T gpt:1.3B 25600 160 160 102400 2048
    rows llama-7B llama:7B 4096 32 32 11008 4096
    rows llama-13B llama:13B 5120 40 40 13824 4096
    rows llama-70B llama:70B 8192 64 8 28672 4096
}
stage() { # stage NAME REF LAYERS H HEADS KV_HEADS FFN S P RECOMPUTE
    local set="layers=$3,hidden=$4,heads=$5,seq=$8,vocab=51200"
    case $2 in gpt*) set=$set,dropout=0.1 ;; *) set=$set,kv_heads=$6,ffn=$7 ;; esac
    jq -nr --arg name "$1" --arg ref "$2" --arg recompute "${10}" --arg dtype "$dtype" \
        --argjson layers "$3" --argjson h "$4" --argjson heads "$5" --argjson kv_heads "$6" \
        --argjson f "$7" --argjson s "$8" --argjson p "$9" --argjson t $t --argjson vocab 51200 \
        --argjson first "$(predict "$2" "$set" --pp "$9" -b "$9" --micro-batch 1 --sp --recompute "${10}")" \
        '"--sp" as $sp |'"$counts"'
        def gib: . / 1073741824 * 100 | round / 100;
        [$name, $p, $recompute, ($paper * $s * $layers | gib), (($paper + $difference) * $s * $layers | gib),
         ($first.activations | gib),
         (($state * $layers / $p + $each * $vocab * $h / $t * (if $p == 1 then 2 else 1 end)) | gib),
         ($first.state | gib)] | @tsv'
}
stages() {
    printf 'first stage\tP\trecompute\tformula\tso weft\tweft\tformula\tstate\n'
    for recompute in none selective full; do
        stage gpt-22B gpt:1.3B 48 6144 64 64 24576 2048 1 $recompute
        stage gpt-175B gpt:1.3B 96 12288 96 96 49152 2048 8 $recompute
        stage gpt-530B gpt:1.3B 105 20480 128 128 81920 2048 35 $recompute
        stage gpt-1T gpt:1.3B 128 25600 160 160 102400 2048 64 $recompute
        stage llama-70B llama:70B 80 8192 64 8 28672 4096 8 $recompute
    done
}
table=$(layers | awk -F'\t' '{ printf "%-10s %-16s%9s%9s%8s%9s%7s%8s%7s%9s%14s %s\n",
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12 }')
printf '%s\n' "$table"
echo
stages | awk -F'\t' '{ printf "%-12s%3s %-10s%9s%9s%9s%10s%9s\n", $1, $2, $3, $4, $5, $6, $7, $8 }'
! grep -qE 'UNEXPLAINED|STATE' <<<"$table"
