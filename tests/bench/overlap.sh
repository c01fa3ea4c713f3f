#!/usr/bin/env bash
# What it gains to reduce gradients while the last backward pass computes, over a slow network: two
# ranks in network namespaces joined at RATE, one GPT, data parallel.
#   tests/bench/overlap.sh [BUILD_DIR] [RATE] [ROUNDS]
# Trains with "overlap" false and true in turn, and predicts both from a profile that is taken over
# the same link. Prints medians of the step time in ms. Needs root (scripts/netns.sh says more).
set -eu
build=$(cd "${1:-build/gcc}" && pwd) rate=${2:-1gbit} rounds=${3:-3}
root=$(cd "$(dirname "$0")/../.." && pwd)
bin=$build/bin
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
set_=layers=6,hidden=384,heads=6,seq=256,vocab=256
for overlap in false true; do
    jq -n --argjson o $overlap --arg set $set_ '{format: "weft-plan/1", model: "gpt:nano", set: $set,
        batch: 8, overlap: $o, stages: [{mesh: "dp:2", layout: {dp: "batch"}}]}' >$overlap.json
done
# Both hosts share this machine's memory: operators are timed with two ranks on it.
"$bin/weft-profile-op" -q --threads 1 --ranks 2 --plan true.json -p p.db >/dev/null
"$root/scripts/netns.sh" -r "$rate" "$bin/weft-profile-comm" -q --threads 1 -p "$dir/p.db" \
    --min-bytes 1M --max-bytes 64M --time 300ms >/dev/null
seq 1 60000 >text
for ((i = 0; i < rounds; i++)); do
    for overlap in false true; do
        "$root/scripts/netns.sh" -r "$rate" "$bin/weft-run" -q --threads 1 --data "$dir/text" \
            --steps 8 "$dir/$overlap.json" | jq 'select(.step > 2) | .step_ms' >>$overlap.ms
    done
done
for overlap in false true; do
    measured=$(sort -n $overlap.ms | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }')
    predicted=$("$bin/weft-predict" -p p.db --cluster 'node:2 cpu:1' $overlap.json |
        jq '.time * 1000')
    printf 'overlap %-5s  measured %7.1f ms  predicted %7.1f ms\n' $overlap "$measured" "$predicted"
done
