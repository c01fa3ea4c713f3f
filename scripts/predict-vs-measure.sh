#!/usr/bin/env bash
# Prediction against measurement: at least 20 plans of one GPT on 2 ranks of this machine.
#   scripts/predict-vs-measure.sh BIN_DIR [WORK_DIR]
# Profiles what the plans need (kept in WORK_DIR and not measured again), predicts every plan, runs
# them all in ROUNDS rounds, and prints the error of each, the median error, Spearman's rank
# correlation, and the regret: how much slower the plan predicted best is than the measured best.
set -euo pipefail
bin=$(cd "$1" && pwd)
work=${2:-$(mktemp -d)}
mkdir -p "$work/plans"
cd "$work"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
rounds=${ROUNDS:-3} steps=${STEPS:-6} time=${PROFILE_TIME:-300ms}
set="layers=4,hidden=256,heads=8,seq=256,vocab=1024"
head="\"format\":\"weft-plan/1\",\"model\":\"gpt:nano\",\"set\":\"$set\",\"batch\":16"

# name, micro-batch, the rest of the document from "stages" on
plan() { echo "{$head,\"micro_batch\":$2,$3}" >"plans/$1.json"; }
one() { plan "$1" "$2" "\"stages\":[{\"mesh\":\"a:2\",\"layout\":{\"a\":$3}${4:-}}]"; }
two() { plan "$1" "$2" "\"schedule\":\"$4\",\"stages\":[{\"ops\":[\"wte\",\"wpe\",$3]${5:-}},{${6:-}}]"; }
one dp-16 16 '"batch"'
one dp-8 8 '"batch"'
one dp-4 4 '"batch"'
one dp-2 2 '"batch"'
one dp-16-zero 16 '"batch"' ',"zero":1'
one dp-4-recompute 4 '"batch"' ',"recompute":"all"'
one tp-16 16 '["heads","ffn","vocab"]'
one tp-4 4 '["heads","ffn","vocab"]'
one tp-8-novocab 8 '["heads","ffn"]'
one sp-16 16 '["heads","ffn","vocab","seq"]'
one sp-4 4 '["heads","ffn","vocab","seq"]'
one ffn-8 8 '["ffn","batch"]'
one heads-8 8 '["heads","batch"]'
one vocab-8 8 '["vocab","batch"]'
one hidden-8 8 '["hidden","heads"]'
one seq-mlp-8 8 '["heads","seq"]'
two pp-half-16 16 '"layer.0-1"' 1f1b
two pp-half-8 8 '"layer.0-1"' 1f1b
two pp-half-4 4 '"layer.0-1"' 1f1b
two pp-half-2 2 '"layer.0-1"' 1f1b
two pp-half-4-gpipe 4 '"layer.0-1"' gpipe
two pp-one-4 4 '"layer.0"' 1f1b
two pp-three-4 4 '"layer.0-2"' 1f1b
two pp-cut-4 4 '"layer.0","layer.1","layer.2.ln1","layer.2.qkv","layer.2.attn"' 1f1b
two pp-recompute-4 4 '"layer.0-1"' 1f1b ',"recompute":"all"' '"recompute":"all"'

"$bin/weft-profile-op" -m gpt:nano --set "$set" -p p.db --max-devices 2 \
    --micro-batch 1,2,4,8,16 --time "$time"
mpirun -n 2 "$bin/weft-profile-comm" -p p.db --time "$time"

for f in plans/*.json; do
    name=$(basename "$f" .json)
    "$bin/weft-predict" -p p.db "$f" | jq -r --arg n "$name" '[$n, .time_us / 1000] | @tsv'
done >predicted.tsv
: >measured.tsv
for _ in $(seq "$rounds"); do
    while read -r name _; do
        mpirun -n 2 "$bin/weft-run" -q --threads 1 -n "$steps" "plans/$name.json" </dev/null |
            jq -rs --arg n "$name" '[.[1:][].step_ms] | sort | [$n, .[length / 2 | floor]] | @tsv'
    done <predicted.tsv >>measured.tsv
done
awk '
    FNR == NR { p[$1] = $2; names[++n] = $1; next }
    { m[$1] = m[$1] == "" || $2 < m[$1] ? $2 : m[$1] }   # the quietest round
    function rank(a, k,   i, r) { r = 1; for (i = 1; i <= n; i++) r += (a[names[i]] < a[k]) + 0.5 * (a[names[i]] == a[k] && names[i] != k); return r }
    END {
        printf "%-18s %12s %12s %8s\n", "plan", "predicted", "measured", "error"
        for (i = 1; i <= n; i++) {
            k = names[i]
            e[i] = p[k] / m[k] - 1
            printf "%-18s %9.1f ms %9.1f ms %+7.1f %%\n", k, p[k], m[k], 100 * e[i]
            a[i] = e[i] < 0 ? -e[i] : e[i]
            if (best == "" || p[k] < p[best]) best = k
            if (real == "" || m[k] < m[real]) real = k
            rp[k] = rank(p, k); rm[k] = rank(m, k)
            mean = (n + 1) / 2
            sxy += (rp[k] - mean) * (rm[k] - mean); sxx += (rp[k] - mean) ^ 2; syy += (rm[k] - mean) ^ 2
        }
        for (i = 1; i <= n; i++) for (j = i + 1; j <= n; j++) if (a[j] < a[i]) { x = a[i]; a[i] = a[j]; a[j] = x }
        printf "%d plans: median error %.1f %%, rank correlation %.3f, regret of %s %.1f %% (best measured: %s)\n",
            n, 100 * a[int((n + 1) / 2)], sxy / sqrt(sxx * syy), best, 100 * (m[best] / m[real] - 1), real
    }' predicted.tsv measured.tsv
