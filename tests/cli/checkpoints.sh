#!/usr/bin/env bash
# Checkpoint folders and the runs that they belong to: what a resumed run goes on with, what it
# refuses, who may write where, and what a training that diverges leaves. Prints TAP; the programs
# are in $WEFT_BIN.
set -u
tool=${WEFT_BIN:?}/weft-run
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0
export ASAN_OPTIONS=detect_leaks=0 # Open MPI does not free all

run() { # run ARGS...: leaves $status, out, err
    timeout 120 "$tool" --threads 1 --data text "$@" one.json >out 2>err </dev/null
    status=$?
}
refuses() { # refuses STATUS PATTERN TEXT ARGS...: one line, and nothing trained
    local want=$1 pattern=$2 text=$3
    shift 3
    run "$@"
    [ "$status" -eq "$want" ] && [ ! -s out ] && grep -q "^weft-run: error: $pattern" err
    ok $? "$text: $(grep -m1 '^weft-run: error' err) (exit $status)"
}
says() { # says PATTERN: on stderr
    grep -q "^weft-run: $1" err
    ok $? "says: $(grep -m1 "^weft-run: $1" err)"
}
stepped() { # stepped STEPS TEXT: trained just these
    is "$status $(jq -sc 'map(.step)' out)" "0 $1" "$2"
}
bits() { # bits FILE: what must be the same
    jq -c "[.step, .lr, .loss, .grad_norm]" "$1"
}
index() { # index STEP FILTER
    jq -c "$2" "ck/step-$(printf %08d "$1")/index.json"
}

cat >one.json <<'EOF'
{"format": "weft-plan/1", "model": "gpt:nano", "set": "layers=1,hidden=48,heads=4,seq=16,dropout=0.1",
 "batch": 8, "stages": [{}]}
EOF
seq 5000 >text

# ---- settings ----------------------------------------------------------------------------------
run -n 12 --lr 0.01 --min-lr 0.002 --warmup 3 --clip 0.7 --weight-decay 0.3 --beta1 0.8 --beta2 0.9 \
    --validation 0.2 --seed 18446744073709551615
cp out whole.out
run -n 12 --lr 0.01 --min-lr 0.002 --warmup 3 --clip 0.7 --weight-decay 0.3 --beta1 0.8 --beta2 0.9 \
    --validation 0.2 --seed 18446744073709551615 --save ck --save-every 4 --keep 0
rm -r ck/step-00000012
run --resume ck --save ck --keep 0
stepped '[9,10,11,12]' 'without options a run goes on to its end'
[ "$(bits out)" = "$(bits whole.out | tail -n 4)" ]
ok $? 'with the same settings and seed, bit for bit'
! grep -q resume: err
ok $? 'and nothing to say'
is "$(index 12 .seed)" '"18446744073709551615"' 'the seed has all its bits'
[ "$(index 4 .run)" = "$(index 12 .run)" ] && [ "$(index 4 .run)" != '"0000000000000000"' ]
ok $? "a run keeps its identity: $(index 12 .run)"

run --resume ck
stepped '[]' 'a run that is done does nothing'
says 'nothing to do: 12.*12'
run --resume ck -n 15
stepped '[13,14,15]' 'more steps than were meant'
is "$(jq -sc 'map(.lr) | unique' out)" '[0.002]' 'the learning rate goes on where it was'
says 'resume: --steps 15 replaces 12 of the checkpoint'
says 'resume:.*learning.*0.002.*12.*--decay-steps'
run --resume ck -n 15 --decay-steps 24 --lr 0.02 --clip 0.7
says 'resume: --decay-steps 24.*12'
says 'resume: --lr 0.02 replaces 0.01 of the checkpoint'
[ "$(grep -c ' replaces ' err)" -eq 3 ] && jq -se 'all(.lr > 0.005 and .lr < 0.02)' out >/dev/null
ok $? 'just what differs, and it counts'

# ---- what to go on from ---------------------------------------------------------------------------
run --resume ck/step-00000004 -n 6
stepped '[5,6]' 'one older step'
run --resume ck/step-00000004/ -n 5
stepped '[5]' 'with a slash behind it'
jq '.optimizer = "sgd"' one.json >sgd.json
timeout 120 "$tool" --threads 1 --data text --resume ck sgd.json >out 2>err
[ $? -eq 3 ] && [ ! -s out ] && grep -q 'ck/step-00000012: trained with another optimizer' err && grep -q '^hint: .*--init' err
ok $? "another optimizer: $(head -1 err)"
jq '.optimizer = "muon"' one.json >muon.json
timeout 120 "$tool" --threads 1 --data text --resume ck muon.json >out 2>err
[ $? -eq 3 ] && [ ! -s out ] && grep -q "ck/step-00000012: trained with another optimizer .*muon" err
ok $? "adamw's state is not muon's: $(head -1 err)"
refuses 3 'ckk: No such file' 'a misspelt folder' --resume ckk
refuses 3 'ck/step-00000005: No such file' 'a step that is not there' --resume ck/step-00000005
mkdir foreign
echo >foreign/file
refuses 3 'foreign: holds no complete checkpoint' 'a foreign folder' --resume foreign
refuses 3 'text:.*checkpoint\|text: Not' 'a file' --resume text
run -n 2 --save auto --auto-resume
stepped '[1,2]' '--auto-resume begins in an empty folder'
run -n 4 --save auto --auto-resume
stepped '[3,4]' 'and goes on in a used one'
refuses 2 '--auto-resume and --resume' 'both' --auto-resume --resume ck --save auto

# ---- muon: matrices have one state, all else has adamw's; under any plan --------------------------
muon() { # muon RANKS STAGE ARGS...: trains under this stage
    local ranks=$1 stage=$2
    shift 2
    jq ".stages = [$stage]" muon.json >part.json
    timeout 120 mpirun -n "$ranks" "$tool" -q --threads 1 --data text -n 6 "$@" part.json 2>err
}
muon 2 '{mesh: "dp:2", layout: {dp: "batch"}, zero: 1}' --save muon --save-every 3 >whole.out
is "$(jq -sc 'map(.step)' whole.out)" '[1,2,3,4,5,6]' 'muon trains'
"$WEFT_BIN/weft-ckpt" list muon | jq -sc \
    'map(select(.name | test("wte|layer.0.(qkv|ln1).weight"))) | group_by(.name) | map([.[0].name] + (map(.kind) | sort))' >got
is "$(cat got)" '[["layer.0.ln1.weight","adam_m","adam_v","param"],["layer.0.qkv.weight","muon_m","param"],["wte.weight","adam_m","adam_v","param"]]' \
    'its checkpoint has one state of matrices, and two of others'
timeout 120 "$tool" --threads 1 --data text --resume muon one.json >out 2>err
[ $? -eq 3 ] && grep -q "muon/step-00000006: trained with another optimizer .*adamw" err
ok $? "muon's state is not adamw's: $(head -1 err)"
rm -r muon/step-00000006
for stage in '1 {}' '2 {mesh: "dp:2", layout: {dp: "batch"}, zero: 3}' \
    '4 {mesh: "dp:2 tp:2", layout: {dp: "batch", tp: ["heads", "ffn", "vocab"]}, zero: 2}'; do
    muon "${stage%% *}" "${stage#* }" --resume muon >out
    ok "$(jq -n --slurpfile a whole.out --slurpfile b out '[$a[3:], $b] | transpose |
        if length == 3 and all((.[0].loss - .[1].loss | fabs) < 1e-6) then 0 else 1 end')" \
        "goes on under $stage"
done

# ---- damage --------------------------------------------------------------------------------------
cp -r ck rotten
sed -i 's/"sample": 96/"sample": 95/' rotten/step-00000012/index.json
refuses 3 'rotten/step-00000012/index.json: checksum: ' 'a changed index' --resume rotten
head -c 1000 ck/step-00000012/index.json >rotten/step-00000012/index.json
refuses 3 'rotten/step-00000012/index.json:[0-9]*:' 'a torn index' --resume rotten
sed 's/weft-checkpoint.2/weft-checkpoint\/1/' ck/step-00000012/index.json >rotten/step-00000012/index.json
refuses 3 'rotten/step-00000012/index.json: format: ' 'another format' --resume rotten

# ---- other data -------------------------------------------------------------------------------------
cp text kept
sed -i 's/2500/2501/' text
refuses 3 '--data:.*ck/step-00000012' 'a changed byte of the data' -n 13 --resume ck
grep -q '^hint: --other-data' err
ok $? "$(grep -m1 '^hint' err)"
run -n 13 --resume ck --other-data
stepped '[13]' '--other-data accepts it'
says 'resume: .*data'
mv kept text
refuses 3 '--data: text, ' 'another share of training data' -n 13 --resume ck --validation 0.1

# ---- whose folder it is ------------------------------------------------------------------------------
before=$(ls ck)
refuses 3 'ck/step-00000012:.*written' 'a new run into a used folder' -n 3 --save ck
grep -q '^hint: .*another folder.* --resume ck' err
ok $? "$(grep -m1 '^hint' err)"
refuses 3 'ck/step-00000012:.*written' 'another run resumed' -n 99 --resume auto --save ck
refuses 3 'ck/step-00000012: is later than step 4' 'an older step beside later ones' -n 99 \
    --resume ck/step-00000004 --save ck
[ "$(ls ck)" = "$before" ]
ok $? 'none of them touched a step'
run -n 6 --resume ck/step-00000004 --save branch
stepped '[5,6]' 'an older step goes on in another folder'

# ---- two writers ---------------------------------------------------------------------------------------
"$tool" -q --threads 1 --data text -n 10000000 --save busy --save-every 1 one.json >writer.out 2>writer.err &
pid=$!
for _ in $(seq 300); do
    [ -s writer.out ] && break
    sleep 0.1
done
refuses 4 'busy:.*(process [0-9]*)' 'a second writer' -n 3 --save busy
refuses 4 'busy: another run is writing here' 'a second one that resumes' -n 99999 --save busy --auto-resume
kill -KILL $pid
wait $pid 2>/dev/null
newest=$(find busy -name 'step-*' | sed 's/.*step-0*//' | sort -n | tail -1)
run -n $((newest + 1)) --save busy --auto-resume
stepped "[$((newest + 1))]" 'kill -9 frees the folder'

# ---- types --------------------------------------------------------------------------------------
cp one.json fp32.json
for type in bf16 fp16; do
    jq ".dtype = \"$type\"" fp32.json >one.json
    run -n 6 --lr 0.01
    bits out >whole.bits
    run -n 6 --lr 0.01 --save "$type" --save-every 3
    rm -r $type/step-00000006
    run --resume $type
    is "$(bits out)" "$(tail -n 3 whole.bits)" "$type: a run goes on bit for bit"
    cp fp32.json one.json
    run --resume $type
    near=$(jq -sc '.[2].loss' out)
    jq -es --argjson near "$near" '.[-1][2] - $near | fabs < 0.02' whole.bits >/dev/null
    ok $? "in fp32 too, to rounding: $(jq -c '.[2]' whole.bits | tail -1), $near"
done
is "$(jq -c '[.loss_scale, .good_steps] | map(floor)' fp16/step-00000003/index.json)" '[65536,3]' \
    'the loss scale is kept'
is "$(jq -c .loss_scale bf16/step-00000003/index.json)" null 'where there is one'
run -n 3 --lr 0.01 --save fp32
jq '.dtype = "fp16"' fp32.json >one.json
run -n 4 --resume fp32
is "$(jq -sc 'map([.step, .loss_scale] | map(floor))' out)" '[[4,65536]]' 'fp16 begins with a scale of its own'
sed -i 's/"loss_scale": *65536[.]0/"loss_scale":1e40/' fp16/step-00000003/index.json
refuses 3 'fp16/step-00000003/index.json: loss_scale' 'a loss scale beyond all' --resume fp16
cp fp32.json one.json

# ---- steps that are not finite ---------------------------------------------------------------------------
finite() { # finite DIR: every float of every checkpoint in it is a number
    find "$1" -name '*.safetensors' | while read -r file; do
        header=$(od -An -t u8 -N 8 "$file")
        tail -c +$((9 + header)) "$file" | od -An -t f4 -v | grep -Eq 'nan|inf' && echo "$file"
    done | wc -l
}
run -n 6 --lr 1e30 --warmup 2 --save diverged --save-every 1
jq -se 'length == 6 and (.[0].skipped | not) and
    all(.[2:][]; .skipped and .loss == null and .lr != null)' out >/dev/null
ok $? 'a run that diverges skips steps'
says 'step [23]:.*loss.*finite:'
is "$status $(finite diverged)" '0 0' 'and saves only numbers'
first=$(jq -s 'map(select(.skipped | not).step) | max' out)
[ -e "diverged/step-$(printf %08d "$first")" ]
ok $? "the last good step, $first, is kept"
is "$(jq .skipped diverged/step-00000006/index.json)" $((6 - first)) 'what was skipped is counted'
run -n 6 --lr 1e30 --warmup 2 --save stopped --save-every 1 --non-finite stop
is "$status $(jq -sc 'map(.step) | max' out)" "1 $((first + 1))" '--non-finite stop ends the run'
says "error: step $((first + 1)): the loss is not finite"
is "$(finite stopped)" 0 'and saves only numbers'
# Weight decay at such a rate takes the parameters themselves to infinity within a finite step.
run -n 2 --lr 1e38 --warmup 0 --weight-decay 1e30 --save infinite --save-every 1
is "$status $(find infinite -name 'step-*' | wc -l)" '1 0' 'parameters that are not finite are not saved'
says 'error:.*2: parameters.*finite'
is "$(find infinite -name '.tmp*' -o -name '*.safetensors')" '' 'and nothing of them stays'

run -n 60 --lr 1e30 --clip 0 --save dead
is "$status $(find dead -name 'step-*' | wc -l) $(wc -l <out)" '1 0 21' 'twenty skipped steps in a row end the run'
says 'error: step 21: 20 steps in a row.*not saved'
says '20 of 21 steps were skipped'

# ---- older checkpoints ------------------------------------------------------------------------------------
run -n 9 --lr 0.01
bits out | tail -n 6 >whole.bits
run -n 9 --lr 0.01 --save older --save-every 3 --keep 0
printf x | dd of=older/step-00000009/rank-0000.safetensors bs=1 seek=20000 conv=notrunc 2>err
echo torn >older/step-00000006/index.json
mkdir older/step-00000008
run --save older --keep 0 --auto-resume
[ "$status" -eq 0 ] && [ "$(bits out)" = "$(cat whole.bits)" ]
ok $? '--auto-resume goes on from the newest checkpoint that is whole, bit for bit'
says 'older/step-00000009/rank-0000.safetensors: checksum.*older/step-00000003'
says 'older/step-00000006/index.json:1:'
says 'older/step-00000008: has no index.json'
says 'resuming from older/step-00000003'
run --save older --keep 0 --auto-resume
stepped '[]' 'and what was damaged is whole again'
mv older/step-00000003 gone && rm -r older/step-00000006
printf x | dd of=older/step-00000009/rank-0000.safetensors bs=1 seek=20000 conv=notrunc 2>err
refuses 3 'older/step-00000009/rank-0000.safetensors: checksum' 'no older one' --save older --auto-resume
jq '.batch = 4' one.json >kept.json && mv one.json full.json && mv kept.json one.json
run -n 5 --resume gone
says 'resume: a batch of 4 samples replaces 8 of.*number 24'
jq '.set = "layers=1,hidden=64,heads=4,seq=16,dropout=0.1"' full.json >one.json
refuses 3 'gone: .*the size of hidden is 64, and 48' 'another size' --resume gone
jq '.set = "layers=1,hidden=48,heads=4,seq=16,dropout=0.2"' full.json >one.json
refuses 3 'gone: .*rate of drop is 0.2.*, and 0.1' 'another rate' --resume gone
mv full.json one.json

# ---- in memory -------------------------------------------------------------------------------------------
run -n 6 --lr 0.01 --save disk --save-every 3 --memory memory
bits out | tail -n 1 >last.bits
is "$(ls memory | tr '\n' ' ')" 'step-00000004 step-00000005 ' 'checkpoints of the last two steps in memory'
rm -r disk/step-00000006
run -n 6 --save disk --memory memory --auto-resume
stepped '[6]' 'the newer of both folders is gone on from'
[ "$(bits out)" = "$(cat last.bits)" ]
ok $? 'bit for bit'

# ---- several threads ---------------------------------------------------------------------------------
# Five million parameters: the file is written and read in a dozen pieces.
threads() { # threads N PLAN ARGS...
    timeout 120 "$tool" --threads "$1" --data text "${@:3}" "$2" >out 2>err </dev/null
    status=$?
}
jq '.set = "layers=1,hidden=512,heads=4,seq=16"' fp32.json >big.json
jq '.dtype = "bf16"' big.json >big16.json
cores=$(nproc)
[ "$cores" -gt 4 ] && cores=4
threads 1 big.json -v -n 1 --save large
says 'step 1:.* [0-9.]* s.* [0-9.]* GB.*rank 0'
most=$(ulimit -S -f)
ulimit -S -f 16384 # kilobytes of a file: as MPI needs them, and less than this checkpoint
threads 1 big.json -n 4 --save full --save-every 2
ulimit -S -f "$most"
is "$status $(wc -l <out)" '4 4' 'a checkpoint that fails lets training go on, but for the last one'
says 'step 2: not saved: .*training goes on'
for plan in big.json big16.json; do
    threads 1 $plan -n 2 --resume large
    bits out >one.bits
    threads "$cores" $plan -n 2 --resume large
    jq -es --slurpfile one one.bits '.[0].loss as $b | $one[0][2] as $a | $a > 1 and ($a - $b | fabs) < 1e-4 * $a' out >/dev/null
    ok $? "$plan: read by $cores threads as by one: $(jq .loss out), $(jq -c '.[2]' one.bits)"
    jq '.stages[0] += {mesh: "dp:2", layout: {dp: "batch"}}' $plan >two.json
    timeout 120 mpirun --oversubscribe -n 2 "$tool" --threads 1 --data text -n 2 --resume large two.json \
        >out 2>err
    jq -es --slurpfile one one.bits '.[0].loss as $b | $one[0][2] as $a | ($a - $b | fabs) < 1e-3 * $a' out >/dev/null
    ok $? "$plan: and by two ranks: $(jq .loss out) $(grep -m1 error: err)"
done
file=large/step-00000001/rank-0000.safetensors
cp $file kept
printf x | dd of=$file bs=1 seek=20000000 conv=notrunc 2>/dev/null
for t in 1 "$cores"; do
    threads "$t" big.json -n 2 --resume large
    [ "$status" -eq 3 ] && grep -q "^weft-run: error: .*rank-0000.safetensors: checksum" err && [ ! -s out ]
    ok $? "a byte is wrong, seen by $t threads: $(grep -m1 error: err)"
done
truncate -s -5000000 $file
threads "$cores" big.json -n 2 --resume large
[ "$status" -eq 3 ] && grep -q 'rank-0000.safetensors: truncated' err
ok $? "cut short: $(grep -m1 error: err)"
rm $file && mkdir $file
threads "$cores" big.json -n 2 --resume large
[ "$status" -eq 3 ] && grep -q 'rank-0000.safetensors: expected a regular file' err
ok $? "no file: $(grep -m1 error: err)"
rmdir $file
threads "$cores" big.json -n 2 --resume large
[ "$status" -eq 3 ] && grep -q 'rank-0000.safetensors: No such file' err
ok $? "none at all: $(grep -m1 error: err)"
mv kept $file
(ulimit -f 10000 && threads "$cores" big.json -n 2 --resume large --save large; exit $status)
[ $? -eq 4 ] && grep -q 'rank-0000.safetensors:.*write: File' err
ok $? "a full disk: $(grep -m1 error: err)"
threads "$cores" big.json -n 2 --resume large
stepped '[2]' 'after which the old step is whole'

echo "1..$n"
[ "$failed" -eq 0 ]
