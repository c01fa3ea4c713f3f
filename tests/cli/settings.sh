#!/usr/bin/env bash
# How weft-run is set up and what it says of a model: learning rates step by step, epsilon, what a
# resume takes over, --eval. Prints TAP; the programs are in $WEFT_BIN.
# Needs: jq mpirun
set -u
bin=${WEFT_BIN:?}
: "${WEFT_ROOT:?}"
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0
export ASAN_OPTIONS=detect_leaks=0 # Open MPI does not free all

sizes=layers=1,hidden=16,heads=2,seq=16,vocab=256
cat >plan.json <<EOM
{"format": "weft-plan/1", "model": "gpt:nano", "set": "$sizes", "batch": 4, "stages": [{}]}
EOM
jq '.stages = [{"mesh": "dp:2", "layout": {"dp": "batch"}}]' plan.json >two.json
seq 1 600 >text

run() { # run ARGS...: leaves $status, out, err
    timeout 120 "$bin/weft-run" --threads 1 --data text "$@" plan.json >out 2>err </dev/null
    status=$?
}
says() { # says PATTERN TEXT: on stderr
    grep -q "$1" err
    ok $? "$2: $(grep -m1 "$1" err)"
}
refuses() { # refuses STATUS PATTERN TEXT: what was run last
    [ "$status" -eq "$1" ] && [ ! -s out ] && grep -q "^weft-run: error: .*$2" err
    ok $? "$3: $(grep -m1 ': error: ' err) (exit $status)"
}
rates() { # rates WANT TEXT: learning rates, in units of 1e-4
    is "$(jq -r '.lr * 1e6 | round / 100' out | paste -sd' ')" "$1" "$2"
}

# ---- learning rates ---------------------------------------------------------------------------------
usual=(-q -n 10 --lr 0.001 --min-lr 0.0002 --warmup 2)
run "${usual[@]}" --decay linear
rates '5 10 10 9 8 7 6 5 4 3' 'linear'
run "${usual[@]}" --decay constant
rates '5 10 10 10 10 10 10 10 10 10' 'constant'
run "${usual[@]}" --decay wsd
rates '5 10 10 10 10 10 10 10 10 6' 'wsd: a fifth of the steps is for the decay'
run "${usual[@]}" --decay wsd --decay-from 5 --decay-steps 9
rates '5 10 10 10 10 10 8 6 4 2' 'wsd from a step on, and behind its end'
run "${usual[@]}" --decay cosine
cp out cosine
run "${usual[@]}"
cmp -s <(jq .lr out) <(jq .lr cosine)
ok $? "a cosine unless told otherwise: $(jq .lr out | paste -sd' ')"

# What is stable goes on from its checkpoint as if it had never been meant to end.
run "${usual[@]}" -n 12 --decay wsd --decay-from 8 --save whole
jq -c '[.step, .loss, .lr]' out | tail -6 >want
run "${usual[@]}" -n 6 --decay wsd --decay-from 8 --decay-steps 12 --save half
run -q -n 12 --resume half
cmp -s want <(jq -c '[.step, .loss, .lr]' out)
ok $? "wsd is resumed: $(tail -1 want)"
run -n 14 --decay linear --resume whole
says 'resume: --decay linear replaces wsd of the checkpoint' 'another decay is said'
run -n 12 --resume whole
says 'nothing to do: 12 of 12 steps are done; --steps' 'a finished run says how to go on'
is "$status $(wc -l <out)" '0 0' 'and does nothing'

# ---- epsilon ----------------------------------------------------------------------------------------
# One far above the gradients leaves next to nothing of a step.
still=(-q -n 3 --warmup 0 --weight-decay 0)
run "${still[@]}" --lr 0
jq .loss out >same
run "${still[@]}" --lr 0.01 --eps 1e6
far=$(paste same <(jq .loss out) | awk '{d = $1 - $2; s += d < 0 ? -d : d} END {print s < 1e-5}')
is "$far" 1 'a large epsilon holds still'
run "${still[@]}" --lr 0.01
far=$(paste same <(jq .loss out) | awk '{d = $1 - $2; s += d < 0 ? -d : d} END {print s < 1e-2}')
is "$far" 0 'the usual one does not'
run -q -n 3 --lr 0.01 --warmup 0 --eps 1e-8 --save eps
is "$(jq .settings.eps eps/step-*/index.json)" 1e-08 'it is kept'

# ---- evaluation -------------------------------------------------------------------------------------
run -q -n 30 --lr 0.01 --valid-every 30 --valid-batches 3 --save ck
trained=$(jq -s 'map(select(.valid_loss))[0].valid_loss' out)
run -q --eval --valid-batches 3 --resume ck
is "$(jq -c '[.step, .samples]' out)" '[30,12]' 'an evaluation of some batches'
is "$(jq "(.valid_loss - $trained) | fabs < 1e-6" out)" true "as the training found: $trained"
is "$(jq -c '[(.valid_loss | exp) - .perplexity, .valid_loss / (2 | log) - .bits_per_byte,
    .bits_per_byte - .bits_per_token] | map(fabs < 1e-9)' out)" '[true,true,true]' \
    "perplexity and bits: $(jq -c '[.perplexity, .bits_per_byte]' out)"
run -q --eval --resume ck
all=$(jq .valid_loss out)
is "$(jq .samples out)" 12 'all whole batches of it'
timeout 120 mpirun -n 2 "$bin/weft-run" -q --threads 1 --data text --eval --resume ck two.json >out 2>err
is "$(jq "(.valid_loss - $all) | fabs < 1e-6" out)" true 'under another plan too'
"$bin/weft-ckpt" export -q -o folder ck
run -q --eval --init folder
is "$(jq "(.valid_loss - $all) | fabs < 1e-6" out)" true 'of weights in a folder'
seq 600 1200 >other
run -q --eval --resume ck --valid-data other
is "$status $(jq '.samples > 100' out)" '0 true' 'over data of its own'

# ---- what is said of a training ---------------------------------------------------------------------
run -n 3 --valid-every 2 --lr 0.01
says 'gpt:nano, 0.007664 million parameters, fp32; 1 rank on CPUs, 1 stage, adamw' 'the model and the plan'
says 'a step is 4 samples of 16 tokens; text: [0-9]* samples to train on, 14 to validate' 'a step and the data'
samples=$(sed -n 's/.*text: \([0-9]*\) samples.*/\1/p' err)
is "$(jq -s "map(select(.loss)) | .[2].epoch * $samples | round" out)" 12 'epochs count samples'
is "$(jq -s 'map(select(.loss).elapsed_s) | . == sort and .[0] > 0' out)" true 'time goes on'
is "$(jq -s 'map(has("mfu")) | any' out)" false 'no peak, no share of it'
cp plan.json bare.json
jq --slurpfile c "$WEFT_ROOT/share/clusters/cpu-2.json" '.cluster = $c[0]' bare.json >plan.json
run -q -n 3
is "$(jq -s 'map(.mfu * .step_ms) | (max - min) / max < 1e-9 and min > 0' out)" true \
    'with one it goes with the time of a step'
cp bare.json plan.json

# ---- what is refused --------------------------------------------------------------------------------
run --eval
refuses 2 '--eval: expected --resume DIR or --init' 'nothing to evaluate'
run --eval --resume ck --save x
refuses 2 '--eval and --save exclude' 'nothing to save'
run --eval --resume ck --validation 0
refuses 3 '--eval: the validation data has 0 samples' 'no data for it'
run --decay exponential
refuses 2 '--decay: expected cosine, linear, constant or wsd, got "exponential"' 'no such decay'
echo "1..$n"
exit $((failed > 0))
