#!/usr/bin/env bash
# scripts/bench-gpu.py without a GPU: programs of the right names stand in for those that need one, and
# PyTorch is not to be had; and what scripts/gpu-roofline.py computes. Prints TAP; the sources are in $WEFT_ROOT, the
# programs in $WEFT_BIN.
# Needs: python3 jq
set -u
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0

mkdir -p bin tests/gpu
# Steps of 100 ms; of fp32 none, for the program fails.
cat >bin/weft-run <<'END'
#!/bin/sh
for plan; do :; done
if grep -q fp32 "$plan"; then
    echo 'weft-run: error: no float today' >&2
    exit 4
fi
for i in 1 2 3 4 5 6 7 8; do echo '{"step_ms": 100.0, "loss": 2.5, "bytes": 1000, "host_ms": 1.0}'; done
END
echo '#!/bin/sh
echo "{\"time_us\": 110000, \"stages\": [{\"memory\": {\"total\": 1000}}]}"' >bin/weft-predict
echo '#!/bin/sh' >bin/weft-profile-op
echo 'this cannot be executed' >tests/gpu/gpu-attention
chmod +x bin/*
echo 'raise ImportError("not here")' >torch.py
bench() { PYTHONPATH=. BUDGET=${BUDGET:-60} python3 "${WEFT_ROOT:?}/scripts/bench-gpu.py" . "$@" >out 2>&1; }

MODELS=124M bench training prediction profile attention
is $? 0 'parts that cannot be measured do not end the others'
grep -q '^124M  *100.0  *1.0 ' out
ok $? 'milliseconds of a step'
grep -q '^# PyTorch: ImportError: not here' out
ok $? 'PyTorch says why there is nothing of it'
is "$(grep -c '^# not predicted: weft-run: error: no float today' out)" 12 'plans that fail say why'
grep -q '^# 12 plans: median error 10.0 %, memory wrong in 0$' out
ok $? 'and the others are compared'
grep -q '^# attention: .*[Ee]rmission' out
ok $? 'a program that cannot be started'
is "$(jq -s 'map(select(.part == "plan")) | length' bench-gpu.jsonl)" 12 'a line of JSON for each plan'
# 12 layers of 12 C^2 + 13 C, 50304 + 1024 rows of C, 2 C; 6 N + 6 L C T
is "$(python3 -c "import runpy; b = runpy.run_path('$WEFT_ROOT/scripts/bench-gpu.py')
print(b['parameters'](b['MODELS']['124M'][1]), b['flops_of_token'](b['MODELS']['124M'][1]))")" \
    '124475904 803478528' 'parameters, and flops of a token'
BUDGET=0 bench prediction profile attention
is "$(grep -c 'left out, the time is over' out)" 3 'when the time is over nothing is begun'

measure() { PYTHONPATH=. BUDGET=60 python3 "${WEFT_ROOT:?}/scripts/measure-gpu.py" . logs "$@" >out 2>&1; }
measure profile start
is "$? $(grep -c '^# failed: none' out)" '0 1' 'parts are measured one by one'
grep -q '^# profile of gpt:1.3B: ' logs/profile.log && grep -q 'behind the second step' logs/start.log
ok $? 'each with a log of its own'
measure profile nothing
is "$? $(grep -c 'no part nothing' out)" '2 1' 'a part that is not there'

# ---- scripts/gpu-roofline.py -------------------------------------------------------------------
python3 "$WEFT_ROOT/scripts/gpu-roofline.py" "$(dirname "${WEFT_BIN:?}")" 124M >out 2>&1
is $? 0 'a step that is computed'
# Flops that instructions count, and those of 6 N + 6 L C T: norms and GELU are beside these.
awk '/^all/ { counted = $3 } /^model flops/ { said = $3 } END {
    exit !(counted > said && counted < 1.01 * said) }' out
ok $? 'its instructions have the flops of the model'
awk '/^124M:/ { next } /^all/ { all = $5; next } /^model/ { next } NF { match($0, /^[a-z, A-Z-]+[a-zA-Z]/)
    split(substr($0, RLENGTH + 1), x, " "); sum += x[4] } END { exit !(sum > 0.99 * all && sum < 1.01 * all) }' out
ok $? 'its parts are the whole'

echo "1..$n"
[ $failed -eq 0 ]
