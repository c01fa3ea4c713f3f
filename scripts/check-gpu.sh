#!/usr/bin/env bash
# What is tested on a GPU, as one stream of TAP; without one it says so and ends with 0.
#   scripts/check-gpu.sh BUILD_DIR [PART...]
# Parts: device (memory, streams, graphs), kernels (every instruction beside the CPU's), attention (its
# kernels beside each other, on long sequences), convolution (weft's kernels beside cuDNN), epilogues (GELU
# and gradients of biases in the products, beside the CPU's), plans (random ones on 1, 2 and 4 ranks that share
# the GPU, beside one rank on the CPU), bits (two runs with --deterministic, and what that costs), kept
# (algorithms that weft-profile-op found, taken by weft-run), types (losses in bf16 and fp16 beside
# fp32), sanitizer (compute-sanitizer on a small model, where it is installed). SEEDS, PLANS: how many of each;
# BUDGET=240: seconds, after which no part is begun.
set -u
build=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.." || exit 2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_odls_base_sigkill_timeout=0
work=$(mktemp -d) || exit 4
trap 'rm -rf "$work"' EXIT
count=0 failed=0 end=$((SECONDS + ${BUDGET:-240}))

# limit MOST: seconds that a command may take, of those that are left, but half a minute at least
limit() {
    local left=$((end - SECONDS))
    [ $left -ge 30 ] || left=30
    [ $left -lt "$1" ] && echo $left || echo "$1"
}

# tap NAME COMMAND...: its checks, numbered on; one more "not ok" where it ends badly
tap() {
    local name=$1 status good bad
    shift
    timeout -k 5 "$(limit 300)" "$@" >"$work/out" 2>&1
    status=$?
    awk -v count=$count -v name="$name" 'match($0, /^(not )?ok [0-9]+( - )?/) {
        print ($1 == "not" ? "not ok " : "ok ") ++count " - " name ": " substr($0, RLENGTH + 1) }' "$work/out"
    good=$(grep -c '^ok' "$work/out") bad=$(grep -c '^not ok' "$work/out")
    count=$((count + good + bad))
    if [ $status -ne 0 ] || ! grep -q '^1\.\.' "$work/out"; then
        count=$((count + 1)) bad=$((bad + 1))
        echo "not ok $count - $name: ended with status $status"
        grep -Ev '^(ok|1\.\.)' "$work/out" | tail -n 20 | sed 's/^/# /'
    fi
    failed=$((failed + bad))
}

# is STATUS NAME: one check
is() {
    count=$((count + 1))
    [ "$1" -eq 0 ] && echo "ok $count - $2" && return
    failed=$((failed + 1))
    echo "not ok $count - $2"
    [ ! -s "$work/err" ] || tail -n 20 "$work/err" | sed 's/^/# /'
}

# plan DTYPE: of a small GPT
plan() {
    echo "{\"format\": \"weft-plan/1\", \"model\": \"gpt:nano\", \"set\": \"layers=3,hidden=192,heads=3,seq=128\"," \
        "\"batch\": 16, \"micro_batch\": 8, \"dtype\": \"$1\", \"stages\": [{}]}" >"$work/$1.json"
}
train() { # train PLAN OUT OPTION...: metrics
    local plan=$1 out=$2
    shift 2
    timeout -k 5 "$(limit 60)" "$build/bin/weft-run" -q --device cuda "$@" "$plan" >"$work/$out" 2>"$work/err"
}
# Of a file of metrics: a key's values, one a line
values() { sed -n "s/.*\"$1\": \([-0-9.e+]*\).*/\1/p" "$work/$2"; }

device() { tap device "$build/tests/gpu/gpu-device"; }
kernels() { tap kernels "$build/tests/gpu/gpu-kernels" "${SEEDS:-4}"; }
attention() { tap attention "$build/tests/gpu/gpu-attention"; }
convolution() { tap convolution "$build/tests/gpu/gpu-convolution"; }
epilogues() { tap epilogues "$build/tests/gpu/gpu-epilogues" "${SEEDS:-10}"; }

plans() {
    "$build/tests/mpi/plans" reference "$work" >"$work/out" 2>"$work/err"
    is $? "one rank on the CPU, to compare with"
    for n in 1 2 4; do
        tap "plans, $n ranks" mpirun --oversubscribe -n $n "$build/tests/mpi/plans" check-gpu "$work" 1 "${PLANS:-34}"
    done
}

bits() {
    plan bf16
    train "$work/bf16.json" a -n 20 --deterministic && train "$work/bf16.json" b -n 20 --deterministic
    is $? "two runs with --deterministic"
    values loss a >"$work/a.loss"
    values loss b | cmp -s - "$work/a.loss" && [ -s "$work/a.loss" ]
    is $? "have the same losses to the bit"
    train "$work/bf16.json" c -n 20
    is $? "a run without"
    for run in a c; do values step_ms $run | sort -n | sed -n 10p; done | paste -sd ' ' |
        awk '{ printf "# a step takes %s ms with --deterministic, %s ms without\n", $1, $2 }'
}

# kept_of PLAN WHAT [OPTION...]: two runs take the algorithms that a profile of the plan has kept
kept_of() {
    local plan=$work/$1.json what=$2
    shift 2
    timeout -k 5 "$(limit 60)" "$build/bin/weft-profile-op" -q --plan "$plan" --device cuda --time 20ms \
        -p "$work/kept.db" 2>"$work/err"
    is $? "$what: a profile of the plan"
    timeout -k 5 "$(limit 60)" "$build/bin/weft-run" -v --device cuda -n 5 --profile "$work/kept.db" "$@" \
        "$plan" >"$work/a" 2>"$work/err" && grep -q " [1-9][0-9]* $what are computed as it says" "$work/err" &&
        ! grep -q 'anew' "$work/err"
    is $? "$what: its algorithms are taken, none is refused"
    sed -n 's/^weft-run: .*: \([0-9]* [a-z]*\) are computed.*/# \1/p' "$work/err"
}
kept() {
    plan bf16
    kept_of bf16 products --deterministic
    train "$work/bf16.json" b -n 5 --deterministic --profile "$work/kept.db"
    values loss a >"$work/a.loss"
    values loss b | cmp -s - "$work/a.loss" && [ -s "$work/a.loss" ]
    is $? "products: two runs with them have the same losses to the bit"
    echo '{"format": "weft-plan/1", "model": "wide-resnet:nano", "set": "image=32", "batch": 16, "micro_batch": 8,' \
        '"dtype": "bf16", "optimizer": "sgd", "stages": [{}]}' >"$work/convolve.json"
    kept_of convolve convolutions
}

types() {
    for t in fp32 bf16 fp16; do
        plan $t
        train "$work/$t.json" $t.out -n 60 --lr 1e-3 && values loss $t.out | tail -n 10 >"$work/$t.loss"
        is $? "60 steps in $t"
    done
    for t in bf16 fp16; do
        paste "$work/$t.loss" "$work/fp32.loss" | awk -v type=$t '
            { a += $1; b += $2; n++ }
            END { printf "# mean of the last losses: %s %.4f, fp32 %.4f\n", type, a / n, b / n
                  exit !(n == 10 && (a - b) ^ 2 <= (0.02 * b) ^ 2) }'
        is $? "losses in $t are within 2 % of those in fp32"
    done
}

# What a tool finds stands first, the summary last. One that takes too long has found nothing so far.
sanitizer() {
    local tool status sanitizer
    sanitizer=$(PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin command -v compute-sanitizer)
    [ "$sanitizer" ] || { echo "# compute-sanitizer is not installed"; return; }
    plan bf16
    for tool in memcheck racecheck initcheck synccheck; do
        timeout -k 5 "$(limit 60)" "$sanitizer" --tool $tool --error-exitcode 9 "$build/bin/weft-run" -q --device cuda \
            --deterministic -n 2 "$work/bf16.json" >"$work/out" 2>&1
        status=$?
        : >"$work/err"
        if [ $status -eq 124 ]; then
            is 0 "compute-sanitizer, $tool # SKIP it takes too long"
            continue
        fi
        [ $status -eq 0 ] || { head -n 16 "$work/out"; tail -n 3 "$work/out"; } >"$work/err"
        is $status "compute-sanitizer, $tool"
    done
}

why=$("$build/tests/gpu/gpu-device" | sed -n 's/^1\.\.0 # SKIP //p')
if [ "$why" ]; then
    echo "1..0 # SKIP $why"
    exit 0
fi
[ $# -gt 0 ] || set -- device kernels attention convolution epilogues bits kept types plans sanitizer
for part; do
    start=$SECONDS
    [ $start -lt $end ] || { echo "# $part: left out, the time is over (BUDGET)"; continue; }
    "$part"
    echo "# $part: $((SECONDS - start)) s"
done
echo "1..$count"
echo "# $((count - failed)) passed, $failed failed"
[ $failed -eq 0 ]
