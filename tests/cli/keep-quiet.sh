#!/usr/bin/env bash
# What is silent for long and is no hang: a validation that takes many times as long as --hang. And what no other attempt
# would mend ends the run in its first one.
# Prints TAP; the programs are in $WEFT_BIN.
# Needs: jq mpirun
set -u
bin=${WEFT_BIN:?}
# shellcheck source=tests/cli/tap.bash
. "$(dirname "$0")/tap.bash"
n=0 failed=0
export ASAN_OPTIONS=detect_leaks=0 # Open MPI does not free all
export OMPI_MCA_rmaps_base_oversubscribe=1

cat >two.json <<'END'
{"format": "weft-plan/1", "model": "gpt:nano", "set": "layers=3,hidden=256,heads=4,seq=64",
 "batch": 8, "stages": [{"mesh": "dp:2", "layout": {"dp": "batch"}}]}
END

# ---- a validation ------------------------------------------------------------------------------------
# The limit is 0.3 s, or five steps. Each line with the time at which it came.
"$bin/weft-keep" --hang 0.3s -- "$bin/weft-run" -q --threads 1 -n 10 --save ck --valid-every 6 --valid-batches 128 two.json 2>said </dev/null |
    while IFS= read -r line; do echo "[${EPOCHREALTIME/,/.}, $line]"; done >lines
is "${PIPESTATUS[0]} $(grep -c 'starting again' said)" '0 0' 'a validation is no hang'
jq -es '(map(.[0]) | [range(1; length) as $i | .[$i] - .[$i - 1]]) as $gap | ($gap | sort | .[length / 2 | floor]) as $step |
    ($gap | max) > 2 * ([0.3, 5 * $step] | max)' lines >/dev/null
ok $? "which took $(jq -s 'map(.[0]) | [range(1; length) as $i | .[$i] - .[$i - 1]] | max' lines) s, with steps of $(
    jq -s 'map(.[0]) | [range(1; length) as $i | .[$i] - .[$i - 1]] | sort | .[length / 2 | floor]' lines) s"

# ---- what is decided by cause --------------------------------------------------------------------------
for how in skip stop; do
    "$bin/weft-keep" -- "$bin/weft-run" -q --threads 1 -n 60 --save "dead-$how" --lr 1e30 --clip 0 --non-finite $how two.json \
        >out 2>err </dev/null
    is "$? $(grep -c '^weft-keep: error: ' err) $(grep -c 'starting again' err)" '1 1 0' "--non-finite $how: $(grep -m1 '^weft-keep: error' err)"
    "$bin/weft-keep" --report -C "dead-$how" >out
    grep -q '^attempts 1, failures 1' out && grep -q 'diverged' out
    ok $? "the journal has one attempt, which diverged: $(grep -m1 diverged out)"
done

echo "1..$n"
[ "$failed" -eq 0 ]
