#!/usr/bin/env bash
# Schedules measured: a GPT in a pipeline of two ranks of one thread each, under every schedule in
# turn, round after round.
#   tests/bench/schedules.sh [BUILD_DIR] [ROUNDS]
# Prints for each, as predicted from a profile taken before the rounds, the share of the step that a
# rank waits, and the step; the median step measured, and the median of its ratio to gpipe's step of
# the same round, with the quartiles. Wants two cores that nothing else uses.
# Needs: jq mpirun
set -eu
build=$(cd "${1:-build/gcc}" && pwd) rounds=${2:-9}
bin=$build/bin
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
schedules="gpipe 1f1b interleaved-2 zero-bubble"

plan() { # plan SCHEDULE [CHUNKS]
    "$bin/weft-plan" -q -m gpt:nano --set layers=8,hidden=384,heads=6,seq=128,vocab=64 --pp 2 -b 4 \
        --micro-batch 1 --schedule "$1" --chunks "${2:-1}"
}
plan gpipe >gpipe.json
plan 1f1b >1f1b.json
plan interleaved 2 >interleaved-2.json
plan zero-bubble >zero-bubble.json

for name in $schedules; do
    "$bin/weft-profile-op" -q --threads 1 --ranks 2 --time 100ms --plan "$name.json" -p p.db >/dev/null
done
mpirun -n 2 "$bin/weft-profile-comm" -q --threads 1 -p p.db --time 100ms >/dev/null
for ((i = 0; i < rounds; i++)); do
    for name in $schedules; do
        mpirun -n 2 "$bin/weft-run" -q --threads 1 --steps 6 "$name.json" |
            jq -s '[.[] | select(.step > 1) | .step_ms] | sort | .[length / 2 | floor]' >>"$name.ms"
    done
done

quartiles() { # of numbers on stdin: the first, the median, the third
    sort -n | awk '{ x[NR] = $1 } END { print x[int((NR + 3) / 4)], x[int((NR + 1) / 2)], x[int((3 * NR + 3) / 4)] }'
}
printf '%-14s %8s %13s %12s  %s\n' schedule waits predicted measured 'of gpipe (quartiles)'
for name in $schedules; do
    "$bin/weft-predict" -q -p p.db "$name.json" >"$name.predicted"
    read -r _ ms _ <<<"$(quartiles <"$name.ms")"
    read -r low ratio high <<<"$(paste "$name.ms" gpipe.ms | awk '{ print $1 / $2 }' | quartiles)"
    printf '%-14s %6.1f %% %10.1f ms %9.1f ms  %.3f (%.3f to %.3f)\n' "$name" \
        "$(jq '100 * ([.stages[].bubble_us] | min) / .time_us' "$name.predicted")" \
        "$(jq '.time * 1000' "$name.predicted")" "$ms" "$ratio" "$low" "$high"
done
