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

# The checkpoint says which model it is of.
ckpt export -o own ck
[ $status -eq 0 ] && cmp own/model.safetensors out1/model.safetensors && cmp own/config.json out1/config.json
ok $? 'a checkpoint is exported without its model named'

# The config beside weights is compared with the model.
cp -r out1 relu
jq '.activation_function = "relu"' out1/config.json >relu/config.json
run 1 one.json -n 1 --init relu
refuses 3 'relu/config.json: activation_function: .*"gelu_new".*"relu"' 'weights of another model'
run 1 one.json -n 1 --init relu/model.safetensors
refuses 3 'relu/config.json: activation_function: ' 'by the name of their file too'

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

# Experts are slices of a parameter here, and tensors there; a rank reads those that it holds.
mixtral=layers=2,hidden=32,heads=4,kv_heads=2,ffn=24,seq=8,vocab=256,experts=4
cat >experts.json <<EOM
{"format": "weft-plan/1", "model": "mixtral:nano", "set": "$mixtral", "batch": 8, "stages": [
  {"mesh": "ep:2", "layout": {"ep": ["experts", "batch"]}}]}
EOM
jq '.stages = [{}]' experts.json >expert.json
run 2 experts.json -n 2 --lr 0.01 --save mixed
ckpt export -m mixtral:nano --set $mixtral -o mixtral mixed
ckpt list mixtral
is "$(jq -rs 'map(select(.name == "model.layers.1.block_sparse_moe.experts.3.w2.weight"))[0].shape' -c out)" \
    '[32,24]' 'each expert has tensors of its own there'
is "$(jq -c '[.model_type, .num_local_experts, .num_experts_per_tok]' mixtral/config.json)" \
    '["mixtral",4,2]' 'Mixtral, says the config'
run 1 expert.json -n 1 --lr 0 --init mixtral
want=$(jq .loss out)
run 2 experts.json -n 1 --lr 0 --init mixtral --save mixed2
close "$want" "$(jq .loss out)" 'experts split over ranks'
ckpt export -m mixtral:nano --set $mixtral -o mixtral2 mixed2
cmp mixtral/model.safetensors mixtral2/model.safetensors
ok $? 'experts in and out again, bit for bit'

# ---- what is refused --------------------------------------------------------------------------------
run 1 one.json -n 1 --init nowhere
refuses 3 'nowhere: No such file' 'no weights'
run 1 one.json -n 1 --init ck
refuses 3 'ck: holds neither model.safetensors nor' 'a folder without weights'
run 1 one.json -n 1 --init out1 --resume ck
refuses 2 '--init and --adapter exclude --resume' 'two beginnings'
cp -r out1 plain && rm plain/config.json # only the tensors can tell
jq '.set = "layers=3,hidden=48,heads=4,seq=16,vocab=256"' one.json >three.json
run 1 three.json -n 1 --init plain
refuses 3 '"transformer.h.2.ln_1.weight": missing.*model.s layer.2.ln1.weight' \
    'a model with more layers'
jq '.set = "layers=1,hidden=48,heads=4,seq=16,vocab=256"' one.json >short.json
run 1 short.json -n 1 --init plain
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

# A file and what is wrong with it: one change of the header or of the bytes each.
cat >change.py <<'EOM'
import json, struct, sys
def expert(e, w): return "model.layers.0.block_sparse_moe.experts.%d.w%d.weight" % (e, w)
data = open("mixtral/model.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header, body = json.loads(data[8:8 + size]), data[8 + size:]
one, text, end = header[expert(1, 3)], None, None
begin, stop = one["data_offsets"]
how = sys.argv[1]
if how == "missing":
    del header[expert(1, 3)]
    header["spare"] = one
elif how == "extra":
    header[expert(4, 1)] = dict(one, shape=[0], data_offsets=[stop, stop])
elif how == "shape":
    one["shape"].reverse()
elif how == "type":
    one["dtype"] = "F4"
elif how == "cut":
    end = -9
elif how == "twice":
    text = json.dumps(header)[:-1] + ', "%s": {}}' % expert(1, 3)
elif how == "overlap":
    one["data_offsets"] = [begin - 64, stop - 64]
elif how == "range":
    one["data_offsets"] = [len(body), len(body) + stop - begin]
elif how == "negative":
    one["data_offsets"] = [-64, stop - begin - 64]
elif how == "huge":
    one["shape"] = [1 << 40, 1 << 40]
text = (text or json.dumps(header)).encode()
size = {"long": 1 << 40, "longer": len(text) + len(body) + 1}.get(how, len(text))
open("bad.safetensors", "wb").write(struct.pack("<Q", size) + text + body[:end])
EOM
expert='model.layers.0.block_sparse_moe.experts'
while IFS='|' read -r how message; do
    if ! command -v python3 >/dev/null; then
        skip "a file: $how" 'not installed: python3'
        continue
    fi
    python3 change.py "$how"
    run 1 expert.json -n 1 --init bad.safetensors
    refuses 3 "bad.safetensors: $message" "a file: $how"
done <<EOM
missing|tensor "$expert.1.w3.weight": missing; the model.s layer.0.up.weight
extra|tensor "$expert.4.w1.weight": extra
shape|tensor "$expert.1.w3.weight": shape \[32, 24\], expected \[24, 32\]
type|tensor "$expert.1.w3.weight": dtype: unknown type "F4"
cut|tensor "[a-z_.]*": data_offsets: .* is not inside the [0-9]* bytes
twice|header:.*: duplicate key "$expert.1.w3.weight"
overlap|tensor "$expert.1.w3.weight": data_offsets: begins at [0-9]*, inside another tensor
range|tensor "$expert.1.w3.weight": data_offsets: [0-9.]* is not inside
negative|tensor "$expert.1.w3.weight": data_offsets.0.: expected a whole number >= 0
huge|tensor "$expert.1.w3.weight": shape: the tensor is too large
long|no safetensors file: byte 0: a header of 1099511627776 bytes
longer|cut short, or no safetensors file: byte 0: a header of [0-9]* bytes, and [0-9]* follow
EOM
run 1 one.json -n 1 --init ''
refuses 2 '--init: expected FILE, got ""' 'no name'

ckpt export "${model[@]}" -o out1 ck
refuses 4 'out1: exists.*written' 'an output that is there'
ckpt export "${model[@]}" -o same.safetensors/ ck
refuses 4 'same.safetensors: exists already' 'a file that is there'
ckpt export "${model[@]}" -o no/where ck
refuses 4 'no/where' 'an output that cannot be written'
ckpt export -m gpt:nano -o out2 ck
refuses 3 'written by another model gpt: the size of seq is 256, and 16 ' 'sizes of another model'
ckpt export -m mlp -o out2 ck
refuses 3 'written by model gpt, expected mlp' 'another model'
ckpt export "${model[@]}" -o out2 nowhere
refuses 3 'nowhere' 'no checkpoint'
printf x | dd of="$(ls ck/step-*/rank-0000.safetensors)" bs=1 seek=5000 conv=notrunc 2>/dev/null
ckpt export "${model[@]}" -o out2 ck
refuses 3 'checksum' 'a damaged checkpoint'
[ ! -e out2 ] && [ -z "$(ls -d ./*.tmp.* 2>/dev/null)" ]
ok $? 'nothing is left of what failed'
# ---- whole or not at all ------------------------------------------------------------------------------
large=layers=2,hidden=512,heads=4,seq=16
jq --arg set $large '.set = $set' one.json >large.json
large=(-m gpt:nano --set "$large" -q)
run 1 large.json -n 1 --save grown
ckpt export "${large[@]}" -o whole grown
wrong=0 done=0
for i in 00 02 04 06 08 10 12 15; do
    "$bin/weft-ckpt" export "${large[@]}" -o killed grown >out 2>err </dev/null &
    sleep 0.$i
    { kill -9 $! && wait $!; } 2>/dev/null
    [ ! -e killed ] || { done=$((done + 1)) && cmp whole/model.safetensors killed/model.safetensors &&
        cmp whole/config.json killed/config.json; } || wrong=$((wrong + 1))
    rm -rf killed killed.tmp.*
done
is $wrong 0 "killed eight times, $done of them too late: whole or not there"
"$bin/weft-ckpt" export "${large[@]}" -o stopped grown >out 2>err </dev/null &
sleep 0.05
{ kill -TERM $! && wait $!; } 2>/dev/null
[ -e stopped/config.json ] || [ -z "$(ls -d stopped* 2>/dev/null)" ]
ok $? "stopped: nothing is left of half an export: $(grep error err)"
for out in limited limited.safetensors; do
    (ulimit -f 20000 && exec "$bin/weft-ckpt" export "${large[@]}" -o $out grown) >out 2>err
    status=$?
    refuses 4 'cannot write: File too large' "a file beyond the limit ($out)"
    is "$(ls -d limited* 2>/dev/null)" '' 'nothing is left of it'
done
(ulimit -f 20000 && run 1 large.json -n 2 --resume grown --save grown; exit $status)
[ $? -eq 4 ] && grep -q 'cannot write: File too large' err
ok $? "a checkpoint beyond the limit: $(grep error err)"
ckpt export "${large[@]}" -o after grown
cmp whole/model.safetensors after/model.safetensors
ok $? 'the checkpoint before it is what it was'

jq --slurpfile m "${WEFT_ROOT:?}/share/models/gpt.json" '.model = $m[0]' one.json >embedded.json
run 1 embedded.json -n 1 --save mine
ckpt export -o unnamed mine
is "$status $(jq -c '[.n_embd, .n_layer]' unnamed/config.json)" '0 [48,2]' \
    'a model of the user'"'"'s own, which the checkpoint holds'
jq '.set += ",kv=8"' one.json >narrow.json
run 1 narrow.json -n 1 --save narrow
ckpt export -o narrow-folder narrow
refuses 3 'model gpt: a config.json cannot say its sizes' 'heads of GPT-2 that are no share of hidden'
ckpt export -o narrow.safetensors narrow
is $status 0 'a file alone has no config'
ckpt export "${model[@]}" ck
refuses 2 'missing option -o NAME' 'no output'
ckpt list -m gpt ck
refuses 2 'list takes none' 'an option of export'
ckpt import ck
refuses 2 'command:.*"import"' 'an unknown command'
ckpt list
refuses 2 'expected a command and one path' 'no path'
"$bin/weft-ckpt" list out1 >/dev/full 2>err
[ $? -eq 4 ]
ok $? "a full disk: $(grep error err)"
echo "1..$n"
[ $failed -eq 0 ]
