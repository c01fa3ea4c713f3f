#!/usr/bin/env bash
# Each sample is used once: through kills of ranks and of the supervisor, other numbers of ranks, and resumes, the
# ledger has every sample of every epoch once. Samples that cannot be read are named, and left out of the loss.
# Prints TAP; the programs are in $WEFT_BIN.
# Needs: jq mpirun pgrep python3
set -u
bin=${WEFT_BIN:?}
# shellcheck source=tests/cli/tap.bash
. "$(dirname "$0")/tap.bash"
n=0 failed=0
export ASAN_OPTIONS=detect_leaks=0 # Open MPI does not free all

# Steps take so long that the run is not over before the last of what is done to it.
cat >two.json <<'END'
{"format": "weft-plan/1", "model": "gpt:nano", "set": "layers=4,hidden=192,heads=4,seq=16,dropout=0.1",
 "batch": 8, "stages": [{"mesh": "dp:2", "layout": {"dp": "batch"}, "zero": 1}]}
END
jq '.stages = [{}]' two.json >one.json
jq '.stages = [{"ops": ["wte", "wpe"]}, {}]' two.json >pipe.json
# An epoch of 44 samples, which 8 do not divide.
python3 -c '
import random
random.seed(1)
open("text", "w").write("".join(random.choice("abcdefgh ") for _ in range(44 * 16 + 1)))'
steps=60
command=("$bin/weft-keep" --plans one.json -- "$bin/weft-run" -q --threads 1 -n "$steps" --data text --validation 0
    --save ck --memory-every 1 --ledger ledger)

begin() { # begin PLAN: the supervisor in $pid
    "${command[@]}" "$1" >>lines 2>>said </dev/null &
    pid=$!
}
further() { # further N: lines in the ledger
    local want=$(($(wc -l <ledger) + $1)) tries=2000
    while [ "$(wc -l <ledger)" -lt "$want" ] && [ $((tries--)) -gt 0 ]; do
        sleep 0.01
    done
}
rank_of() { pgrep -P "$(pgrep -P "$pid" mpirun)" | tail -n 1; }

# ---- the ledger --------------------------------------------------------------------------------------
: >ledger
begin two.json
further 6 && kill -KILL "$(rank_of)"
further 6 && kill -KILL $pid
wait $pid 2>/dev/null
begin two.json
further 6 && "$bin/weft-keep" --size 1 -C ck
further 8 && kill -KILL "$(rank_of)"
further 5 && "$bin/weft-keep" --size 2 -C ck
further 5 && kill -TERM $pid
wait $pid
begin two.json
wait $pid
is $? 0 'killed, shrunk, grown, stopped and gone on with: the run is done'
is "$(jq -cs 'map(.ranks) | unique' ledger)" '[1,2]' 'by one rank and by two'
# The last time that a step was done counts.
jq -cs 'group_by(.step) | map(.[-1])' ledger >steps.json
is "$(jq -c --argjson n $steps 'map(.step) == [range(1; $n + 1)], map(.sample) == [range(0; 8 * $n; 8)]' steps.json | xargs)" \
    'true true' 'the ledger has all steps'
is "$(jq -c 'map(.numbers) | add | [range(0; 440; 44) as $i | .[$i:$i + 44] | sort == [range(44)]] | [length, all]' steps.json)" \
    '[10,true]' 'each sample of each of ten epochs is used once'
"$bin/weft-run" -q --threads 1 -n "$steps" --data text --validation 0 --ledger alone one.json >whole 2>err
is "$(jq -c '.[].numbers' steps.json | cksum)" "$(jq -c .numbers alone | cksum)" \
    'in the order of one rank that nobody disturbed'
jq -es --slurpfile whole whole 'all(. as $m | $whole[$m.step - 1].loss / $m.loss - 1 | fabs < 1e-5)' lines >/dev/null
ok $? 'with its losses'

# ---- batches balanced by label -------------------------------------------------------------------
# 30 images of 28 x 28: ten of label 0, fifteen of label 1, five of label 2, one label after the other.
python3 -c '
import struct
kinds = [0] * 10 + [1] * 15 + [2] * 5
open("images", "wb").write(struct.pack(">4sIII", b"\0\0\x08\x03", 30, 28, 28) + b"".join(bytes([8 * i]) * 784 for i in range(30)))
open("labels", "wb").write(struct.pack(">4sI", b"\0\0\x08\x01", 30) + bytes(kinds))'
echo '{"format": "weft-plan/1", "model": "mlp:mnist", "set": "hidden=16", "batch": 6, "stages": [{}]}' >mlp.json
jq '.stages[0] = {"mesh": "dp:2", "layout": {"dp": "batch"}}' mlp.json >mlp-2.json
balanced=("$bin/weft-run" -q --threads 1 --warmup 2 --decay-steps 20 --data 'images,labels' --validation 0 --balanced --ledger kinds)
"${balanced[@]}" -n 4 --save bal mlp.json >first 2>err
OMPI_MCA_rmaps_base_oversubscribe=1 mpirun -n 2 "${balanced[@]}" -n 10 --resume bal mlp-2.json >rest 2>err
is "$? $(jq -cs 'map(.numbers) | [(.[:5] | add), (.[5:] | add)] | map(sort == [range(30)])' kinds)" '0 [true,true]' \
    'balanced by label: each image once in an epoch, on one rank and on two'
jq -es 'all(.numbers | map(if . < 10 then 0 elif . < 25 then 1 else 2 end) | [range(3) as $l | map(select(. == $l)) | length] |
    [.[0] - 2, .[1] - 3, .[2] - 1] | all(fabs <= 1))' kinds >/dev/null
ok $? "each batch of 6 has two, three and one of the labels, or one more or less"
rm kinds
"${balanced[@]}" -n 10 mlp.json >whole-bal 2>err
jq -es --slurpfile whole whole-bal 'all(. as $m | $whole[$m.step - 1].loss / $m.loss - 1 | fabs < 1e-5)' first rest >/dev/null
ok $? 'with the losses of one rank'
"$bin/weft-run" -q -n 11 --data 'images,labels' --validation 0 --resume bal mlp.json >out 2>err
is "$? $(grep -c -e '--data: .* hash' err)" '3 1' 'resuming in another order is refused'
"$bin/weft-run" -q -n 1 --balanced one.json >out 2>err
is "$? $(grep -c 'no images with labels' err)" '2 1' 'a model of tokens has no labels'

# ---- samples that cannot be read -----------------------------------------------------------------
# 44 windows of tokens below 256, and one id in window 7 that no vocabulary of 256 has.
python3 -c '
import random, struct
random.seed(2)
t = [random.randrange(9) for _ in range(44 * 16 + 1)]
open("good.u32", "wb").write(struct.pack("<705I", *t))
t[7 * 16 + 5] = 70000
open("bad.u32", "wb").write(struct.pack("<705I", *t))'
run=("$bin/weft-run" --threads 1 -n 11 --validation 0 --lr 1e-3)
"${run[@]}" --data bad.u32 one.json >out 2>err
is "$? $(grep -c 'bad.u32: byte 468: token id 70000' err)" '3 1' 'without leave for it such a file is not taken'
"${run[@]}" --data bad.u32 --bad-samples 2 --ledger some --save sck one.json >some.lines 2>err
is "$?" 0 'two samples may be bad: the run ends well'
grep -q '^weft-run: step [0-9]*: sample [0-9]* is left out: bad.u32: byte 468: token id 70000' err
ok $? "it says $(grep -m1 'left out' err)"
is "$(jq -cs '[.[] | select(.missing != []) | .numbers[.missing[0] - .sample]]' some)" '[7,7]' \
    'in both epochs it is window 7 alone'
is "$(jq -cs 'map([.targets, .missing // 0]) | unique' some.lines)" '[[112,1],[128,0]]' 'whose targets do not count'
is "$(jq .missing sck/step-*11/index.json)" 2 'the checkpoint has their number'
"${run[@]}" --data bad.u32 --bad-samples 1 one.json >out 2>err
is "$? $(grep -c 'error: step [0-9]*: 2 samples could not be read by now; --bad-samples allows 1' err)" '3 1' \
    'a third one would end it'
for plan in two.json pipe.json; do
    ranks=2
    mpirun --oversubscribe -n $ranks "${run[@]}" --data bad.u32 --bad-samples 2 $plan >out 2>err
    jq -es --slurpfile one some.lines 'length == 11 and
        all(. as $m | $one[$m.step - 1] | (.loss / $m.loss - 1 | fabs < 1e-5) and .targets == $m.targets)' out >/dev/null
    ok $? "$plan leaves out the same: $(grep -m1 'left out' err)"
done
"${run[@]}" --data good.u32 one.json >good.lines 2>err
jq -es --slurpfile some some.lines 'all(. as $m | $some[$m.step - 1] |
    (.loss == $m.loss) or ($some | map(select(.targets == 112)) | .[0].step) <= $m.step)' good.lines >/dev/null
ok $? 'until the first of them losses are those of the whole data'
"${run[@]}" --data good.u32 --bad-samples 5 one.json >out 2>err
jq -es --slurpfile good good.lines 'all(. as $m | $good[$m.step - 1].loss / $m.loss - 1 | fabs < 1e-6)' out >/dev/null
ok $? 'and with none that is bad, all of them'

echo "1..$n"
[ "$failed" -eq 0 ]
