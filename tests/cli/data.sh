#!/usr/bin/env bash
# weft-run on each kind of data: pairs of sequences, plain tokens whose spans are left out, 32-bit
# tokens, colour images; targets that do not count; and what wrong data gets. Prints TAP; the
# programs are in $WEFT_BIN.
# Needs: jq mpirun python3
set -u
tool=${WEFT_BIN:?}/weft-run
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0
export ASAN_OPTIONS=detect_leaks=0 # Open MPI does not free all
models=${WEFT_ROOT:?}/tests/models

run() { # run RANKS ARGS...: leaves $status, out, err
    local ranks=$1 launch=()
    shift
    [ "$ranks" -eq 1 ] || launch=(mpirun -n "$ranks")
    timeout 120 "${launch[@]}" "$tool" --threads 1 "$@" >out 2>err </dev/null
    status=$?
}
refuses() { # refuses STATUS PATTERN TEXT -- ARGS...: one line, and nothing on stdout
    local want=$1 pattern=$2 text=$3
    shift 4
    run 1 "$@"
    [ "$status" -eq "$want" ] && [ ! -s out ] && grep -q "^weft-run: error: .*$pattern" err &&
        [ "$(grep -c '^weft-run: error' err)" -eq 1 ]
    ok $? "$text: $(grep -m1 '^weft-run: error' err) (exit $status)"
}
same() { # same FILE TEXT: no number differs by more than a hundred thousandth of it
    [ "$status" -eq 0 ] && jq -en --slurpfile a "$1" --slurpfile b out '
        def numbers: map([.step, .targets, .loss, .grad_norm, .valid_loss] | map(. // 0));
        ($a | length) > 0 and ($a | length) == ($b | length) and
        ([$a, $b | numbers | flatten] | transpose |
            all((.[0] - .[1] | fabs) <= 1e-5 * (.[0] | fabs)))' >/dev/null
    ok $? "$2"
}
plan() { # plan MODEL SET STAGES
    jq -n --arg m "$1" --arg set "$2" --argjson stages "$3" \
        '{format: "weft-plan/1", model: $m, set: $set, batch: 8, micro_batch: 4, stages: $stages}'
}

# ---- pairs of sequences --------------------------------------------------------------------------
cat >pairs.py <<'END'
"""Writes 60 inputs and targets of many lengths, as Megatron-LM does; prints how many targets of the
first 48 a model with 12 positions has."""
import struct
def write(name, sequences):
    with open(name + ".bin", "wb") as f:
        for s in sequences:
            f.write(struct.pack(f"<{len(s)}H", *s))
    sizes = [len(s) for s in sequences]
    with open(name + ".idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(sizes), 1))
        f.write(struct.pack(f"<{len(sizes)}i", *sizes))
        f.write(struct.pack(f"<{len(sizes)}q", *(2 * sum(sizes[:i]) for i in range(len(sizes)))))
        f.write(struct.pack("<q", 0))
write("in", [[6 + (i * k) % 40 for k in range(1 + i * 7 % 24)] for i in range(60)])
write("out", [[6 + (i + k) % 40 for k in range(1 + i * 5 % 14)] for i in range(60)])
print(sum(min(12, 1 + i * 5 % 14) for i in range(48)))
END
targets=$(python3 pairs.py)
plan "$models/pairs.json" "" '[{}]' >pairs.json
pairs=(--data "in.idx,out.idx" --validation 0.2 -n 6 --lr 0.01 --valid-every 3 --valid-batches 1)
run 1 "${pairs[@]}" --save ck pairs.json
is $status 0 'a model of text to text trains on pairs'
cp out first
is "$(grep -c 'sequences that are longer than the model.s are cut' err)" 1 'and says that some are cut'
jq -es 'map(select(.loss)) | .[0].loss > .[5].loss' first >/dev/null
ok $? 'it learns'
# 48 pairs are six batches, an epoch.
jq --slurpfile m "$models/pairs.json" '.model = $m[0] | .model.ops |=
    [.[] | select(.name | test("_in$") | not) | del(.ignore)]' pairs.json >one-loss.json
run 1 "${pairs[@]}" one-loss.json
is "$(jq -s 'map(.targets) | add' out)" "$targets" 'targets count as far as they go'
while read -r stages; do
    plan "$models/pairs.json" "" "$stages" >two.json
    run 2 "${pairs[@]}" two.json
    same first "the same under another plan: $stages"
done <<'END'
[{"mesh": "dp:2", "layout": {"dp": "batch"}}]
[{"mesh": "cp:2", "layout": {"cp": ["target_seq", "seq"]}}]
[{"mesh": "tp:2", "layout": {"tp": ["heads", "ffn", "vocab"]}, "zero": 1}]
[{"ops": ["wte", "enc", "keys", "wde"]}, {}]
END
run 1 --data "in.idx,out.idx" --valid-data "in.idx,out.idx" -n 1 --valid-every 1 --valid-batches 100 pairs.json
is "$(grep -c 'has 7 batches' err) $(jq -s '.[1].valid_loss > 0' out)" '1 true' 'pairs of their own for validation'
run 1 "${pairs[@]}" -n 3 --decay-steps 6 --warmup 0 --save half pairs.json
run 1 "${pairs[@]}" --resume half pairs.json
jq -c 'del(.step_ms, .tokens_per_s, .elapsed_s)' out >resumed
run 1 "${pairs[@]}" --warmup 0 pairs.json
is "$(jq -c 'del(.step_ms, .tokens_per_s, .elapsed_s)' out | tail -4)" "$(cat resumed)" 'resumed, to the bit'
refuses 3 'checkpoint.*sequences.*60' 'other pairs on resume' -- \
    --data in.idx,in.idx --validation 0.2 --resume ck pairs.json
refuses 3 'checkpoint.*sequences.*60' 'or other padding' -- \
    --data in.idx,out.idx --validation 0.2 --resume ck <(jq '.model.data.start = 2' <(
        jq --slurpfile m "$models/pairs.json" '.model = $m[0]' pairs.json))

# ---- spans of plain text ---------------------------------------------------------------------------
seq 4000 >text
plan "$models/pairs.json" "vocab=384,skip=-1,layers=1" '[{}]' >spans.json
run 1 -q --data text -n 4 --valid-every 4 spans.json
cp out first
is "$status $(jq -s '.[0].targets' out)" '0 192' 'a model of text to text trains on plain text: inputs are full'
jq '.stages[0] += {mesh: "dp:2", layout: {dp: "batch"}} | .micro_batch = 8' spans.json >two.json
run 2 -q --data text -n 4 --valid-every 4 two.json
same first 'the same spans on two ranks'
plan "$models/pairs.json" "vocab=256" '[{}]' >small.json
refuses 3 'text:.*vocabulary.*256.*255' \
    'text where sentinels are bytes' -- --data text small.json

# ---- targets that do not count -----------------------------------------------------------------------
head -c 2000 /dev/zero | tr '\0' a >same.txt
jq --slurpfile m "$models/block.json" '.model = $m[0] | .set = "vocab=256" | .model.ops[-1].ignore = 97' \
    pairs.json >none.json
run 1 -q --data same.txt -n 3 --valid-every 1 --valid-batches 1 none.json
jq -es 'map(select(.step_ms)) | length == 3 and all(.loss == 0 and .grad_norm == 0 and .targets == 0)' out >/dev/null
ok $? 'steps without a target that counts: a loss of 0'
is "$(jq -sc 'map(.valid_loss | select(. != null))' out)" '[0,0,0]' 'and in validation'
printf 'abab%.0s' $(seq 500) >half.txt
run 1 -q --data half.txt -n 1 none.json
is "$(jq .targets out)" 32 'every second one, where every second is ignored'

# ---- 32-bit tokens -----------------------------------------------------------------------------------
python3 - <<'END'
import struct
ids = [i * 7 % 90000 + i % 13 * 5000 for i in range(4000)]
for name, head in ("a.u32", b""), ("b.bin", struct.pack("<256i", 20240801, 7, 4000, *[0] * 253)):
    open(name, "wb").write(head + struct.pack("<4000i", *ids))
open("half.bin", "wb").write(struct.pack("<4000i", *ids))
END
plan "$models/block.json" "vocab=90000" '[{}]' >wide.json
run 1 -q --data a.u32 -n 2 wide.json
cp out first
is $status 0 '32-bit tokens'
run 1 -q --data b.bin -n 2 wide.json
same first 'with the header of llm.c'
refuses 3 'half.bin:.*1:.*32-bit tokens' 'without either' -- \
    --data half.bin wide.json

# ---- colour images -----------------------------------------------------------------------------------
jq '.sizes += {rows: 32, columns: 32, channels: 3, pixels: "rows*columns*channels", classes: 10} |
    .inputs.image.dims += ["channels"] | .ops[0].dims += ["channels"] |
    .ops[0].weight.dims = ["channels"] | .ops[0].bias.dims = ["channels"]' "$models/patches.json" >colour.json
plan ./colour.json "" '[{}]' >images.json
python3 - <<'END'
for name, first in ("b1.bin", 0), ("b2.bin", 20):
    with open(name, "wb") as f:
        for i in range(first, first + 20):
            f.write(bytes([i % 10]) + bytes((i * 3 + k * (i % 10)) % 256 for k in range(3072)))
END
run 1 -q --data b1.bin,b2.bin -n 2 images.json
is "$status $(jq -s '.[0].targets' out)" '0 8' 'CIFAR-10'
jq '.set = "rows=3,columns=1024,channels=1"' images.json >flat.json
refuses 3 'b1.bin: images.*32x32x3.*3x1024x1' 'in other dims' -- --data b1.bin flat.json
head -c 5000 b1.bin >cut.bin
refuses 3 'cut.bin: 5000 bytes, expected a multiple of 3073' 'cut short' -- --data b2.bin,cut.bin images.json

# ---- models that no data fits ------------------------------------------------------------------------
wrong() { # wrong FILTER PATTERN TEXT: the model of pairs after a jq filter
    jq "$1" "$models/pairs.json" >bad-model.json
    plan ./bad-model.json "" '[{}]' >bad.json
    refuses 3 "$2" "$3" -- bad.json
}
wrong '.inputs.targets.source = "label"' 'inputs.targets.*dims: expected batch alone' 'a label with positions'
wrong '.inputs.targets.source = "next-token"' 'inputs: no data has both "input" and "targets"' 'two kinds of data'
wrong '.inputs.targets.source = "answer"' 'source: expected token, .*, label.* or document-position, got "answer"' \
    'an unknown source'
wrong '.inputs.input.source = "target"' \
    'inputs.before: 12 positions, another input has 24 of the same sequence' 'one sequence of two lengths'
wrong '.sizes.target_seq = 24 | .inputs[].source = "target"' 'inputs: the model reads no input sequence' 'no input'
wrong '.data.noise = 1' 'data.*noise: expected more than 0 and less than 1, got 1' 'noise 1'
wrong '.data.span = 0.5' 'data.*span: expected at least 1' 'a span of half a token'
wrong '.data.colour = 1' 'data.*colour: unknown key' 'an unknown key'
wrong '.data.eos = "vocab"' 'data.eos: token id 48, expected -1..47' 'an id beyond the vocabulary'
wrong '.ops[-1].ignore = -2' 'ignore: expected at least -1 and less than 2147483648, got -2' 'ignore -2'
wrong '.ops[-1].ignore = 0.5' 'ignore: expected a whole number' 'ignore 0.5'
wrong '.data.noise = 0.5' 'are targets of' 'spans too many for the targets'

# ---- mixtures ------------------------------------------------------------------------------------------
seq 1 55 >few # 156 bytes: nine windows of 16
seq 1 400 >many
plan gpt:nano layers=1,hidden=16,heads=2,seq=16,vocab=256 '[{}]' | jq '.micro_batch = 8' >mix.json
mix() { run 1 -q --data few@1+many@7 --validation 0 --ledger "$1" "${@:2}" mix.json; }
mix whole -n 18
cp out want
is "$(jq -sc 'map([.numbers[] | select(. < 9)] | length) | unique' whole)" '[1]' 'a mixture of 1 to 7: every step has one of the few'
is "$(jq -sc '[.[].numbers[] | select(. < 9)] | [.[:9], .[9:]] | map(sort == [range(9)])' whole)" '[true,true]' \
    'each once an epoch'
mix parts -n 7 --decay-steps 18 --warmup 1 --save mixed
mix parts -n 18 --resume mixed --save mixed
cmp -s <(jq -c .numbers whole) <(jq -c .numbers parts)
ok $? 'a resumed run goes on in all sources'
refuses 3 'many@8x.*expected SOURCE@WEIGHT' 'a weight that is none' -- -q --data few@1+many@8x mix.json

# ---- pairs that change under a training ----------------------------------------------------------------
rm -f out # what it says is waited for
timeout 120 "$tool" -q --threads 1 --data in.idx,out.idx -n 10000000 pairs.json >out 2>err &
pid=$!
for _ in $(seq 600); do
    [ -s out ] && break
    sleep 0.1
done
: >out.bin
wait $pid
is "$? $(grep -c '^weft-run: error: step .*out.bin: nothing at byte' err)" '4 1' 'targets cut short under a training'

echo "1..$n"
[ "$failed" -eq 0 ]
