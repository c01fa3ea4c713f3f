#!/usr/bin/env bash
# Documents that follow each other in a sequence: packed by weft-tokens --pack, with the token that ends one
# named in the model, they train as each would alone, under plans that split sequences and heads too; what is
# written behind a prompt of several documents goes on from the last alone. Prints TAP; the programs are in
# $WEFT_BIN.
# Needs: jq mpirun python3
set -u
bin=${WEFT_BIN:?}
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
# shellcheck source=tests/cli/tokenizer.bash
. "$WEFT_ROOT/tests/cli/tokenizer.bash"
n=0 failed=0
export ASAN_OPTIONS=detect_leaks=0 # Open MPI does not free all

byte_tokenizer >tokenizer.json
for text in 'a sky' 'blue and green' 'two' 'four is more than three' 'the end of it' 'sea' 'one two three' 'no' \
    'a document that is longer than one sequence is cut, and its rest ends as all do' 'stone'; do
    jq -cn --arg text "$text" '{$text}'
done >lines.jsonl
"$bin/weft-tokens" --lines text --pack 32 --end '<end>' -o packed.m32 tokenizer.json lines.jsonl 2>err
is $? 0 "documents are packed: $(tail -1 err)"
# The same documents, each alone in a sequence, and padding.
python3 - >counts <<'END_PYTHON'
import struct
raw = open("packed.m32", "rb").read()
words = struct.unpack(f"<{len(raw) // 4}I", raw)
alone, packed = [], len(words) // 32
for s in range(packed):
    one = []
    for w in words[32 * s:32 * s + 32]:
        one.append(w)
        if w & 0x7fffffff == 258:
            alone.append(one)
            one = []
    if any(w >> 31 == 0 for w in one):
        alone.append(one)
out = [w for one in alone for w in one + [1 << 31] * (32 - len(one))] + [1 << 31]
open("alone.m32", "wb").write(struct.pack(f"<{len(out)}I", *out))
print(packed, len(alone))
END_PYTHON
read -r packed alone <counts
[ "$packed" -lt "$alone" ] && [ "$alone" -gt 10 ]
ok $? "$alone pieces in $packed sequences"

run() { # run RANKS DATA PLAN: leaves $status, out, err
    timeout 120 mpirun -n "$1" "$bin/weft-run" -q --threads 1 --data "$2" --validation 0 -n 4 --lr 0.003 \
        "$3" >out 2>err </dev/null
    status=$?
}
same() { # same FILE FILE: losses, and targets that count
    jq -s --slurpfile want "$2" 'length == 4 and ([., $want] | transpose
        | all((.[0].loss - .[1].loss | fabs) < 1e-5 * .[1].loss and .[0].targets == .[1].targets))' "$1" |
        grep -q true
}
plan() { # plan FAMILY SET BATCH
    jq -n --arg model "$1:nano" --arg set "layers=2,hidden=48,heads=4,seq=32,vocab=259,$2" --argjson batch "$3" \
        '{format: "weft-plan/1", $model, $set, $batch, micro_batch: 1, stages: [{}]}'
}
for family in llama: gpt: gemma3:window=6 opt:positions=32; do
    set=${family#*:} family=${family%%:*}
    set=$set${set:+,}
    plan "$family" "${set}documents=258" "$packed" >packed.json
    plan "$family" "${set}documents=258" "$alone" >alone.json
    plan "$family" "${set}documents=-1" "$packed" >leaky.json
    plan "$family" "${set}documents=-1" "$alone" >plain.json
    run 1 alone.m32 plain.json
    cp out want
    run 1 packed.m32 packed.json
    same out want
    ok $? "$family: packed documents train as each alone"
    cp out inside
    run 1 alone.m32 alone.json
    same out want
    ok $? "$family: where each is alone, as without the token"
    run 1 packed.m32 leaky.json
    [ "$status" -eq 0 ] && ! same out want
    ok $? "$family: without the token each sees those before it"
    for how in '{mesh: "cp:2", layout: {cp: ["seq"]}}' '{mesh: "cp:2", ring: true, layout: {cp: ["seq"]}}' \
        '{mesh: "tp:2", layout: {tp: ["heads"]}}'; do
        jq ".stages = [$how]" packed.json >split.json
        run 2 packed.m32 split.json
        same out inside
        ok $? "$family: the same losses under $how"
    done
done
plan gpt documents=258 "$packed" >one.json
jq '.stages = [{ops: ["wte", "wpe", "layer.0"]}, {}]' one.json >pipeline.json
run 1 packed.m32 one.json
cp out want
run 2 packed.m32 pipeline.json
same out want
ok $? 'and in a pipeline, whose later stages read where documents start by themselves'

# ---- the token -------------------------------------------------------------------------------------------
plan llama documents=259 "$packed" >bad.json
run 1 packed.m32 bad.json
[ "$status" -eq 3 ] && grep -q 'inputs.starts.end: token 259 is none' err
ok $? "an id that is no token: $(grep -m1 error: err)"
plan llama documents=-5 "$packed" >bad.json
run 1 packed.m32 bad.json
[ "$status" -eq 3 ] && grep -q 'inputs.starts.end: .*-5' err
ok $? "and one below -1: $(grep -m1 error: err)"
jq '.model = "mlp:mnist" | .set = "documents=258"' one.json >bad.json
run 1 packed.m32 bad.json
[ "$status" -eq 3 ] && grep -q 'no size or rate "documents"' err
ok $? "a family without: $(grep -m1 error: err)"

# ---- writing ---------------------------------------------------------------------------------------------
for family in llama gpt; do
    plan $family documents=258 "$packed" >packed.json
    timeout 120 "$bin/weft-run" -q --threads 1 --data packed.m32 --validation 0 -n 30 --lr 0.01 --save ck-$family \
        packed.json >out 2>err
    write() { # write PROMPTS: what follows each
        "$bin/weft-sample" -q --ids --json -n 6 --temperature 0 --prompts "$1" ck-$family 2>err | jq -c .tokens
    }
    printf '%s\n' '66 77 85 258 81 79' '81 79' '258 258 81 79' >prompts
    write prompts >out
    [ "$(wc -l <out)" -eq 3 ] && [ "$(sort -u out | wc -l)" -eq 1 ]
    ok $? "$family: what is written behind several documents goes on from the last: $(head -1 out)"
    printf '%s\n' '66 77 85 81 79' >other
    write other >>out
    [ "$(sort -u out | wc -l)" -eq 2 ]
    ok $? "$family: and otherwise where no document ends in between"
done
echo "1..$n"
exit $((failed > 0))
