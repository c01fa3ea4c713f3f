#!/usr/bin/env bash
# Scale of planning: GPT with 1,024 layers on 64 stages of 16 devices, 4,096 micro-batches.
#   tests/bench/plan-scale.sh [BUILD_DIR]
# Prints how long weft-predict takes as a whole process, and its peak memory. Aim: 0.2 s, 40 MB.
set -eu
build=${1:-build/gcc}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
jq -n '{format: "weft-plan/1", model: "gpt:1.3B", set: "layers=1024", batch: 16384,
        micro_batch: 4, stages: [range(64) | {
            ops: ((if . == 0 then ["wte", "wpe"] else [] end)
                  + ["layer.\(16 * .)-\(16 * . + 15)"]
                  + (if . == 63 then ["ln", "head", "loss"] else [] end)),
            mesh: "dp:2 tp:8", layout: {dp: "batch", tp: ["heads", "ffn", "vocab"]}}]}' \
    >"$dir/plan.json"
"$build/tests/unit/cost-program" --profile "$dir/plan.json" "$dir/a.db"
for _ in 1 2 3; do
    /usr/bin/time -f '%e s elapsed, %U s user, %M KiB peak' \
        "$build/bin/weft-predict" -p "$dir/a.db" "$dir/plan.json" -o "$dir/out.json"
done
jq -r '"\(.devices) devices, \(.stages | length) stages, \(.micro_batches) micro-batches, \(.stages | length * 2 * 4096) actions"' "$dir/out.json"
