#!/usr/bin/env bash
# Ranks that differ: in their options, files, or in what happens to one of them alone. Every job ends
# with one message that names the first difference. Prints TAP; the programs are in $WEFT_BIN.
set -u
tool=${WEFT_BIN:?}/weft-run
nodes=$(cd "$(dirname "$0")/../mpi" && pwd)/fakersh
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0
export ASAN_OPTIONS=detect_leaks=0 # Open MPI does not free all
export OMPI_MCA_rmaps_base_oversubscribe=1

# shellcheck disable=SC2154 # dir is set by tap.bash
there=$dir/there

# pair ARGS0 : ARGS1: two ranks, the second in the folder there
pair() {
    local first=()
    while [ "$1" != : ]; do
        first+=("$1")
        shift
    done
    shift
    timeout 60 mpirun -n 1 "$tool" -q --threads 1 -n 2 "${first[@]}" : \
        -n 1 -wdir "$there" "$tool" -q --threads 1 -n 2 "$@" >out 2>err </dev/null
    status=$?
}
differ() { # differ STATUS PATTERN ARGS0 : ARGS1
    local want=$1 pattern=$2
    shift 2
    pair "$@"
    [ $status -eq "$want" ] && [ ! -s out ] && grep -q "^weft-run: error: $pattern" err &&
        [ "$(grep -c '^weft-run: error' err)" -eq 1 ]
    ok $? "$(grep -m1 '^weft-run' err) (exit $status)"
}

mkdir there
cat >two.json <<'EOF'
{"format": "weft-plan/1", "model": "gpt:nano", "set": "layers=1,hidden=48,heads=4,seq=16",
 "batch": 8, "stages": [{"mesh": "dp:2", "layout": {"dp": "batch"}}]}
EOF

# ---- what must be alike ------------------------------------------------------------------------
differ 2 'rank 1: --lr is 0.2, rank 0 has 0.1$' --lr 0.1 two.json : --lr 0.2 two.json
differ 2 'rank 1: --lr is not given, rank 0 has 0.1$' --lr 0.1 two.json : two.json
differ 2 'rank 1: --seed is 18446744073709551615, rank 0 has 1$' --seed 1 two.json : \
    --seed 18446744073709551615 two.json
differ 2 'rank 1: --trace is not given, rank 0 has t$' --trace t two.json : two.json
differ 2 'rank 1: unknown option --bogus$' two.json : --bogus two.json
differ 2 'unknown option --bogus$' --bogus two.json : two.json
differ 2 'rank 1: --lr: expected a number, got "x"$' two.json : --lr x two.json
seq 9999 >text
seq 9998 >there/text
differ 3 'rank 1: --data is text, [0-9]* samples, hash .*, rank 0 has text' --data text two.json : \
    --data text two.json
rm there/text
differ 3 'rank 1: text: No such file' --data text two.json : --data text two.json
differ 3 'rank 1: --data is synthetic tokens, .*, rank 0 has text' --data text two.json : two.json

# ---- what only rank 0 reads ------------------------------------------------------------------------
pair two.json : elsewhere.json
is "$status $(jq -s length out)" '0 2' 'a plan that only rank 0 has'
jq '.presets.tiny = {layers: 1, hidden: 48, heads: 4, seq: 16, vocab: 256, tied: 1} |
    .rates.dropout = 0.1' "${WEFT_ROOT:?}/share/models/gpt.json" >own.json
jq '.model = "./own.json:tiny" | del(.set)' two.json >own-plan.json
pair own-plan.json : own-plan.json
cp out alone.out
is "$status $(jq -s length out)" '0 2' 'a model file that only rank 0 has'
jq '.rates.dropout = 0.9' own.json >there/own.json
pair own-plan.json : own-plan.json
[ "$status" -eq 0 ] && [ "$(jq .loss out)" = "$(jq .loss alone.out)" ]
ok $? 'another model file beside rank 1 is not read'

# ---- one rank alone fails in the midst ----------------------------------------------------------------
head -c 400000 /dev/zero >data.bin
cp data.bin there
rm out # what it says is waited for
timeout 60 mpirun -n 1 "$tool" -q --threads 1 -n 10000000 --data data.bin two.json : \
    -n 1 -wdir "$there" "$tool" -q --threads 1 -n 10000000 --data data.bin two.json >out 2>err &
pid=$!
for _ in $(seq 300); do
    [ -s out ] && break
    sleep 0.1
done
truncate -s 1000 there/data.bin
wait $pid
is $? 4 'data cut short under one rank ends the job'
[ "$(grep -c '^weft-run: error: step [0-9]*: input: sample [0-9]*: data.bin: nothing at byte' err)" -eq 1 ]
ok $? "$(grep -m1 '^weft-run' err)"

# A rank that stands still: the other waits no longer than it may.
rm out
timeout 60 mpirun -n 2 "$tool" -q --threads 1 -n 10000000 --timeout 5s two.json >out 2>err &
pid=$!
for _ in $(seq 300); do
    [ -s out ] && break
    sleep 0.1
done
mapfile -t ranks < <(pgrep -P $pid)
[ "${#ranks[@]}" -eq 1 ] && mapfile -t ranks < <(pgrep -P "${ranks[0]}") # timeout, then mpirun
kill -STOP "${ranks[1]}"
SECONDS=0
wait $pid
is $? 4 'a rank that is stopped ends the job'
took=$SECONDS
kill -CONT "${ranks[1]}" 2>/dev/null
[ $took -lt 30 ] && [ "$(grep -c '^weft-run: error: step [0-9]*: ' err)" -eq 1 ]
ok $? "after $took s: $(grep -m1 '^weft-run' err)"

# ---- memory: all ranks of a node count, on each of several nodes -----------------------------------------
# A rank takes two thirds of the memory; two of them stand on each of two nodes.
mem=$(($(getconf _PHYS_PAGES) * $(getconf PAGE_SIZE)))
hidden=1024
[ $mem -lt 64000000000 ] || hidden=4096
layers=$((mem * 2 / 3 / (12 * 16 * hidden * hidden)))
jq ".set = \"layers=$layers,hidden=$hidden,heads=4,seq=16\" | .stages[0].mesh = \"dp:4\"" two.json >large.json
timeout 120 mpirun --mca plm_rsh_agent "$nodes" --mca btl tcp,self --mca oob_tcp_if_include lo \
    --mca btl_tcp_if_include lo -H 127.0.0.2:2,127.0.0.3:2 --map-by slot \
    "$tool" -q -n 1 large.json >out 2>err </dev/null
is $? 4 'two nodes of two ranks, each of two thirds of the memory'
awk '/^weft-run: error: stages\[0\]: one rank needs/ {
    for (i = 1; i <= NF; i++)
        if ($i == "GB" || $i == "GB;")
            g[++k] = $(i - 1)
    good = k == 3 && g[2] > 1.99 * g[1] && g[1] < g[3] && g[2] > g[3]
} END { exit !good }' err
ok $? "$(grep -m1 '^weft-run' err)"

echo "1..$n"
[ "$failed" -eq 0 ]
