#!/usr/bin/env bash
# weft-import as a user runs it: a config.json as a model, in every tool, and what it refuses. Prints
# TAP; the programs are in $WEFT_BIN.
# Needs: jq
set -u
bin=${WEFT_BIN:?}
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0

run() { # run TOOL ARGS...: leaves $status, out, err
    "$bin/$1" "${@:2}" >out 2>err </dev/null
    status=$?
}
refuses() { # refuses STATUS PATTERN TEXT: what was run last
    [ "$status" -eq "$1" ] && [ ! -s out ] && grep -q "^weft-[a-z]*: error: .*$2" err
    ok $? "$3: $(grep -m1 ': error: ' err) (exit $status)"
}

mkdir folder
cat >folder/config.json <<EOM
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_hidden_layers": 2,
 "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
 "head_dim": 24, "vocab_size": 256, "max_position_embeddings": 128, "rms_norm_eps": 1e-6,
 "rope_theta": 1000000, "rope_scaling": null, "hidden_act": "silu", "attention_bias": false,
 "use_sliding_window": false, "sliding_window": null, "tie_word_embeddings": true,
 "torch_dtype": "bfloat16", "eos_token_id": 7, "transformers_version": "4.51.0"}
EOM
run weft-import folder/config.json
cp out model.json
is "$status $(jq -c '[.name, .sizes.hidden, .sizes.kv, .sizes.tied, .rates.base, .presets]' out)" \
    '0 ["qwen3",64,24,1,1000000,null]' 'a config is a model'
is "$(sed 's/.*: \([0-9]*\) parameters.*/\1/' err)" \
    $((256 * 64 + 2 * (64 * 96 + 2 * 64 * 48 + 96 * 64 + 3 * 64 * 96 + 2 * 64 + 2 * 24) + 64)) \
    'with as many parameters'
run weft-import folder
cmp -s out model.json
ok $? 'a folder has one'
"$bin/weft-import" -q <folder/config.json >out 2>err
[ ! -s err ] && cmp -s out model.json
ok $? 'standard input is one'
run weft-import -q --set seq=32 folder
is "$(jq -c .sizes.seq out)" 32 'sizes are changed'
run weft-import -q -o named.json folder
[ ! -s out ] && cmp -s named.json model.json
ok $? 'a file is named'

# ---- wherever a model is taken ----------------------------------------------------------------------
run weft-plan -m folder/config.json --set seq=64 --tp 2
jq -c . out >plan.json
is "$status $(jq -c '[.model.name, .set, .stages[0].mesh]' out)" '0 ["qwen3","seq=64","tp:2"]' \
    'weft-plan takes it as it is'
run weft-run --dry-run plan.json
is "$status" 0 'the plan holds the model'
run weft-search -q -m folder/config.json --set seq=64 --cluster h100-8 -b 16
is "$status $(jq -c '.model.name' out)" '0 "qwen3"' 'and so does weft-search'

# ---- programs of torch.export ------------------------------------------------------------------------
archives=${WEFT_ROOT:?}/tests/import
run weft-import "$archives/llama.pt2"
cp out llama.json
is "$status $(jq -c '[.name, .sizes.layers, .sizes.kv_heads, (.ops | length)]' out)" \
    '0 ["llama",2,2,5]' 'a program is a model, with blocks that repeat'
is "$(sed 's/.*: \([0-9]*\) parameters.*/\1/' err)" 48624 'with as many parameters'
run weft-search -q -m ./llama.json --cluster h100-8 -b 16
is "$status $(jq -c '.model.name' out)" '0 "llama"' 'weft-search takes it'
run weft-import --set layers=5 "$archives/own-gpt.pt2"
is "$status $(jq -c .sizes.layers out)" '0 5' 'its sizes are changed'
"$bin/weft-import" -q <"$archives/llama.pt2" 2>err | jq -c '.name = "llama"' >out
[ "$(jq -cS . out)" = "$(jq -cS . llama.json)" ]
ok $? 'an archive may come on standard input'
run weft-import "$archives/unet.pt2"
refuses 3 'unet.pt2: .*aten.conv_transpose2d.input (1, in up: ' 'ops that weft lacks, with their module'
head -c 3000 "$archives/unet.pt2" >cut.pt2
run weft-import cut.pt2
refuses 3 'cut.pt2: .*zip' 'an archive that is cut off'

# ---- models of ONNX --------------------------------------------------------------------------------------
run weft-import "$archives/gpt2.onnx"
is "$status $(jq -c '[.name, .sizes.layers, .sizes.heads, (.ops | length)]' out)" \
    '0 ["gpt2",2,4,6]' 'a model of ONNX is a model, with blocks that repeat'
is "$(sed 's/.*: \([0-9]*\) parameters.*/\1/' err)" 63552 'with as many parameters'
cp out gpt2.json
run weft-search -q -m ./gpt2.json --cluster h100-8 -b 16
is "$status $(jq -c '.model.name' out)" '0 "gpt2"' 'weft-search takes it'
run weft-import --weights folded.safetensors "$archives/folded.onnx"
cp out folded.json
jq -n '{format: "weft-plan/1", model: "./folded.json", batch: 2, stages: [{}]}' >folded.plan
seq 0 48 | awk '{ printf "%c%c", $1 % 12 + 48, 0 }' | tr '0123456789:;' '\0\1\2\3\4\5\6\7\10\11\12\13' >tokens.bin
run weft-run -q -n 1 --data tokens.bin --validation 0 --init folded.safetensors folded.plan
is "$status $(jq -c '.loss > 0' out)" '0 true' 'training begins with the weights of a model of ONNX'
run weft-import --weights w.safetensors "$archives/llama.pt2"
refuses 3 'llama.pt2: expected a model of ONNX' 'weights of what is no model of ONNX'
"$bin/weft-import" --weights w.safetensors <"$archives/folded.onnx" >out 2>err
status=$?
refuses 2 '--weights: ' 'weights of a model without a name'
head -c 3000 "$archives/gpt2.onnx" >cut.onnx
run weft-import cut.onnx
refuses 3 'cut.onnx: ' 'a model that is cut off'

# ---- HLO modules -----------------------------------------------------------------------------------------
run weft-import "$archives/gpt-scan.hlo"
cp out gpt.json
is "$status $(jq -c '[.name, .sizes.layers, (.ops | length), .about]' out)" \
    '0 ["gpt-scan",3,6,"From an HLO module."]' 'a scan over layers is blocks that repeat'
is "$(sed 's/.*: \([0-9]*\) parameters.*/\1/' err)" 91824 'with as many parameters'
is "$(jq -c '.weights.tensors["layer.*.up.weight"]' out)" '"blocks.*.mlp.up"' 'which have names'
"$bin/weft-import" -q <"$archives/gpt-scan.hlo" 2>err | jq -c '.name = "gpt-scan"' >out
[ "$(jq -cS . out)" = "$(jq -cS . gpt.json)" ]
ok $? 'a module may come on standard input'
run weft-search -q -m ./gpt.json --cluster h100-8 -b 16
is "$status $(jq -c '.model.name' out)" '0 "gpt-scan"' 'weft-search takes it'
run weft-import "$archives/sorted.hlo"
refuses 3 'sorted.hlo: .*sort (1, in sort: ' 'an opcode that weft lacks'
head -c 3000 "$archives/gpt-scan.hlo" >cut.hlo
run weft-import cut.hlo
refuses 3 'cut.hlo: .*cut off' 'a module that is cut off'
echo 'HloModule jit_f' >text.hlo
run weft-import text.hlo
refuses 3 'text.hlo: expected a serialized' 'the text of one'

# ---- what is refused -----------------------------------------------------------------------------------
jq '.rope_scaling = {rope_type: "longrope", factor: 4.0}' folder/config.json >longrope.json
run weft-import longrope.json
refuses 3 'longrope.json: rope_scaling: .*longrope.*qwen3' 'positions scaled in an unknown way'
run weft-search -m ./longrope.json --cluster h100-8 -b 16
refuses 3 'longrope.json: rope_scaling: ' 'by every tool'
jq '.hidden_act = "gelu"' folder/config.json >act.json
run weft-import act.json
refuses 3 'hidden_act: .*"silu".*"gelu"' 'another activation'
jq 'del(.num_hidden_layers)' folder/config.json >less.json
run weft-import less.json
refuses 3 'num_hidden_layers: missing' 'a key that is missing'
jq '.num_attention_heads = 5' folder/config.json >heads.json
run weft-import heads.json
refuses 3 'heads' 'heads that do not share'
jq '.vocab_size = 1e400' folder/config.json 2>/dev/null | sed 's/"vocab_size": [^,]*/"vocab_size": 99999999999999999/' >absurd.json
run weft-import absurd.json
refuses 3 'vocab' 'an absurd size'
run weft-import model.json
cmp -s out model.json
ok $? 'a model stays as it is'
for family in "${WEFT_ROOT:?}"/share/models/*.json; do
    jq -S . "$family" >sorted.json
    "$bin/weft-import" sorted.json >out 2>err && "$bin/weft-import" out >again 2>>err && cmp -s out again ||
        echo "${family##*/}: $(grep -m1 error: err)"
done >unread
[ ! -s unread ]
ok $? "shipped models are read in whatever order their members stand $(head -n 1 unread)"
echo '{"model_type": 3}' >none.json
run weft-import none.json
refuses 3 'expected a config.json' 'a type that is a number'
echo '{"model_type": "mamba"}' >mamba.json
run weft-import mamba.json
refuses 3 'model_type: "mamba".*llama' 'an unknown family, with those that there are'
run weft-import nowhere.json
refuses 3 'nowhere.json' 'no file'
run weft-import a b
refuses 2 'one file' 'two files'
run weft-import --set layer=3 folder
refuses 3 'layer' 'a size that the model lacks'
echo "1..$n"
exit $((failed > 0))
