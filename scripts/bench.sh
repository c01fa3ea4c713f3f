#!/bin/sh
# make bench: kernels, collectives, and the training speed of one rank beside PyTorch eager.
#   scripts/bench.sh BUILD_DIR
# With WEFT_DATA=DIR the published instances of the solvers are timed as well.
# PyTorch is optional: PYTHON=python that has torch. The two take turns in every round, and the
# ratio is that of the rounds, so that a machine that changes its speed does not decide.
set -eu
build=$1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
python=${PYTHON:-python3}
rounds=${ROUNDS:-3}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$python" -c 'import torch' 2>/dev/null || { python=; echo "PyTorch: not found (PYTHON=...), its columns are left out"; }

# layers hidden heads seq vocab batch threads steps [experts] -> milliseconds of a step (median)
weft() {
    model=gpt:gpt2 more=
    [ -z "${9:-}" ] || model=moe:nano more=,experts=$9
    cat >"$dir/plan.json" <<PLAN
{"format": "weft-plan/1", "model": "$model", "batch": $6, "stages": [{}],
 "set": "layers=$1,hidden=$2,heads=$3,seq=$4,vocab=$5$more"}
PLAN
    mpirun -n 1 --bind-to none "$build/bin/weft-run" -q --threads "$7" -n "$8" --timing \
        "$dir/plan.json" 2>"$dir/timing" |
        jq -s '[.[2:][].step_ms] | sort | .[length / 2 | floor]'
}

compare() {
    name=$1
    shift
    : >"$dir/w"
    : >"$dir/t"
    for _ in $(seq "$rounds"); do
        weft "$@" >>"$dir/w"
        [ -z "$python" ] || "$python" "$(dirname "$0")/bench-pytorch.py" "$@" >>"$dir/t"
    done
    outside=$(sed -n 's/^outside products *[0-9.]* s *//p' "$dir/timing")
    paste "$dir/w" "$dir/t" | awk -v name="$name" -v tokens=$(($6 * $4)) -v threads="$7" \
        -v outside="$outside" '
        { w[NR] = $1; t[NR] = $2; r[NR] = $2 / $1 }
        function median(a, n,   i, j, x) {
            for (i = 1; i <= n; i++) for (j = i + 1; j <= n; j++)
                if (a[j] < a[i]) { x = a[i]; a[i] = a[j]; a[j] = x }
            return a[int((n + 1) / 2)]
        }
        END {
            m = median(w, NR)
            printf "%-28s %d thread%s  weft %8.0f tokens/s", name, threads, (threads > 1 ? "s" : " "), 1e3 * tokens / m
            if (t[1] != "") printf "   PyTorch %8.0f   ratio %.2f", 1e3 * tokens / median(t, NR), median(r, NR)
            printf "   outside products %s\n", outside
        }'
}

echo "== one rank, fp32, AdamW =="
for threads in 1 2; do
    compare "6 x 384, seq 256, batch 8" 6 384 6 256 1024 8 $threads 10
done
for threads in 1 2; do
    compare "gpt2 (124M), seq 1024" 12 768 12 1024 50257 "${GPT2_BATCH:-2}" $threads 5
done
for threads in 1 2; do
    compare "moe 4 x 256, 8 experts" 4 256 4 256 256 8 $threads 10 8
done
echo "== kernels =="
"$build/tests/bench/kernel-bench" 2>/dev/null || true
echo "== collectives, 2 ranks =="
mpirun --oversubscribe -n 2 "$build/tests/bench/comm-bench" 2>/dev/null || true
if [ -n "${WEFT_DATA:-}" ]; then
    echo "== solvers =="
    sh "$(dirname "$0")/repro-solvers.sh" "$WEFT_DATA" "$build/bin" 20 || true
fi
