#!/usr/bin/env bash
# Weights of other programs in and out: --init under any plan, weft-ckpt, and what they refuse.
# Prints TAP; the programs are in $WEFT_BIN.
# Needs: jq mpirun
set -u
bin=${WEFT_BIN:?}
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0
export ASAN_OPTIONS=detect_leaks=0 # Open MPI does not free all

sizes=layers=2,hidden=48,heads=4,seq=16,vocab=256
model=(-m gpt:nano --set "$sizes")
cat >one.json <<EOM
{"format": "weft-plan/1", "model": "gpt:nano", "set": "$sizes", "batch": 8, "stages": [{}]}
EOM
cat >four.json <<EOM
{"format": "weft-plan/1", "model": "gpt:nano", "set": "$sizes", "batch": 8, "stages": [
  {"ops": ["wte", "wpe", "layer.0"], "mesh": "tp:2", "layout": {"tp": ["heads", "ffn", "vocab"]}},
  {"mesh": "dp:2", "layout": {"dp": "batch"}, "zero": 1}]}
EOM
# One epoch is one batch, so that every step has the same samples.
seq 1000 | head -c $((8 * 16 + 1)) >text

run() { # run RANKS PLAN ARGS...: leaves $status, out, err
    local plan=$2 launch=(mpirun -n "$1")
    [ "$1" -gt 1 ] || launch=()
    shift 2
    timeout 120 "${launch[@]}" "$bin/weft-run" -q --threads 1 --data text --validation 0 \
        "$@" "$plan" >out 2>err </dev/null
    status=$?
}
ckpt() { # ckpt ARGS...
    "$bin/weft-ckpt" "$@" >out 2>err </dev/null
    status=$?
}
refuses() { # refuses STATUS PATTERN TEXT: what was run last
    [ "$status" -eq "$1" ] && [ ! -s out ] && grep -q "^weft-[a-z]*: error: .*$2" err
    ok $? "$3: $(grep -m1 ': error: ' err) (exit $status)"
}
close() { # close A B TEXT: losses
    jq -en "($1 - $2) | fabs < 1e-5 * $1" >/dev/null 2>&1
    ok $? "$3: $1, $2"
}

# ---- out and in -----------------------------------------------------------------------------------
run 4 four.json -n 2 --lr 0.01 --save ck
ckpt export "${model[@]}" -o out1 ck
is "$status $(ls out1 | tr '\n' ' ')" '0 config.json model.safetensors ' 'a folder is exported'
is "$(jq -c '[.model_type, .n_embd, .n_layer, .vocab_size, .tie_word_embeddings]' out1/config.json)" \
    '["gpt2",48,2,256,true]' 'with a config'
ckpt list out1
is "$(jq -rs 'map(select(.name == "transformer.h.1.attn.c_attn.weight"))[0] | "\(.dtype) \(.shape)"' out)" \
    'F32 [48,144]' 'under the names of GPT-2'
ckpt list ck
is "$(jq -rs 'map(select(.kind == "adam_v")) | length' out)" \
    "$(jq -rs 'map(select(.kind == "param")) | length' out)" 'a checkpoint is listed, all kinds'
run 1 one.json -n 3 --resume ck
resumed=$(jq .loss out)
run 1 one.json -n 1 --lr 0 --init out1 --save same
close "$resumed" "$(jq .loss out)" '--init begins where the training was'
run 4 four.json -n 1 --lr 0 --init out1/model.safetensors --save four
close "$resumed" "$(jq .loss out)" 'under another plan too'
for from in same four; do
    ckpt export "${model[@]}" -o $from.safetensors $from
    [ $status -eq 0 ] && cmp $from.safetensors out1/model.safetensors
    ok $? "in and out again, bit for bit ($from)"
done

# A set of two files, and names without the prefix.
mkdir set
python='import json, struct, sys
data = open("out1/model.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
header.pop("__metadata__")
names, where = sorted(header), {}
for k, file in enumerate(["a.safetensors", "b.safetensors"]):
    part, body, out = names[k::2], b"", {}
    for name in part:
        begin, end = header[name]["data_offsets"]
        short = name.removeprefix("transformer.")
        out[short] = dict(header[name], data_offsets=[len(body), len(body) + end - begin])
        body += data[8 + size + begin:8 + size + end]
        where[short] = file
    text = json.dumps(out).encode()
    open("set/" + file, "wb").write(struct.pack("<Q", len(text)) + text + body)
json.dump({"metadata": {}, "weight_map": where}, open("set/model.safetensors.index.json", "w"))'
if command -v python3 >/dev/null; then
    python3 -c "$python"
    run 1 one.json -n 1 --lr 0 --init set
    close "$resumed" "$(jq .loss out)" 'a set of files with an index'
    sed -i 's/"a.safetensors"/"c.safetensors"/' set/model.safetensors.index.json
    run 1 one.json -n 1 --init set
    refuses 3 'c.safetensors: No such file' 'an index that names another file'
else
    skip 'a set of files with an index' 'not installed: python3'
    skip 'an index that names another file' 'not installed: python3'
fi

# ---- what is refused --------------------------------------------------------------------------------
run 1 one.json -n 1 --init nowhere
refuses 3 'nowhere: No such file' 'no weights'
run 1 one.json -n 1 --init ck
refuses 3 'ck: holds neither model.safetensors nor' 'a folder without weights'
run 1 one.json -n 1 --init out1 --resume ck
refuses 2 '--init and --resume exclude each other' 'two beginnings'
jq '.set = "layers=3,hidden=48,heads=4,seq=16,vocab=256"' one.json >three.json
run 1 three.json -n 1 --init out1
refuses 3 'tensor "transformer.h.2.ln_1.weight": missing; the model.s layer.2.ln1.weight lies there' \
    'a model with more layers'
jq '.set = "layers=1,hidden=48,heads=4,seq=16,vocab=256"' one.json >short.json
run 1 short.json -n 1 --init out1
refuses 3 'tensor "transformer.h.1.attn.c_attn.bias": extra' 'a model with fewer layers'
jq '.set = "layers=2,hidden=48,heads=4,seq=8,vocab=256"' one.json >seq.json
run 1 seq.json -n 1 --init out1
refuses 3 'tensor "transformer.wpe.weight": shape \[16, 48\], expected \[8, 48\]' 'another shape'
head -c -1 out1/model.safetensors >cut.safetensors
run 1 one.json -n 1 --init cut.safetensors
refuses 3 'cut.safetensors: tensor "transformer.*": data_offsets' 'a truncated file names the tensor'
head -c 5 out1/model.safetensors >cut.safetensors
run 1 one.json -n 1 --init cut.safetensors
refuses 3 'cut.safetensors: ' 'a file without a header'

ckpt export "${model[@]}" -o out1 ck
refuses 4 'out1: exists already, and nothing is written over' 'an output that is there'
ckpt export "${model[@]}" -o same.safetensors/ ck
refuses 4 'same.safetensors: exists already' 'a file that is there'
ckpt export "${model[@]}" -o no/where ck
refuses 4 'no/where' 'an output that cannot be written'
ckpt export -m gpt:nano -o out2 ck
refuses 3 'written by a model gpt that differs' 'sizes of another model'
ckpt export -m mlp -o out2 ck
refuses 3 'written by model gpt, expected mlp' 'another model'
ckpt export "${model[@]}" -o out2 nowhere
refuses 3 'nowhere' 'no checkpoint'
printf x | dd of="$(ls ck/step-*/rank-0000.safetensors)" bs=1 seek=5000 conv=notrunc 2>/dev/null
ckpt export "${model[@]}" -o out2 ck
refuses 3 'checksum' 'a damaged checkpoint'
[ ! -e out2 ] && [ -z "$(ls -d ./*.tmp.* 2>/dev/null)" ]
ok $? 'nothing is left of what failed'
ckpt export -o out2 ck
refuses 2 'missing option -m MODEL' 'no model'
ckpt export "${model[@]}" ck
refuses 2 'missing option -o NAME' 'no output'
ckpt list -m gpt ck
refuses 2 'list takes none' 'an option of export'
ckpt import ck
refuses 2 'expected a command: list or export, got "import"' 'an unknown command'
ckpt list
refuses 2 'expected a command and one path' 'no path'
"$bin/weft-ckpt" list out1 >/dev/full 2>err
[ $? -eq 4 ]
ok $? "a full disk: $(grep error err)"
echo "1..$n"
[ $failed -eq 0 ]
