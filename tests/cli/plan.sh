#!/usr/bin/env bash
# weft-plan as a user runs it: plans from words and rules, tables, Aceso's form there and back, and
# what it refuses. Prints TAP; the programs are in $WEFT_BIN, published data in $WEFT_DATA.
# Needs: jq mpirun
set -u
tool=${WEFT_BIN:?}/weft-plan
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0

run() { # run ARGS...: leaves $status, out, err
    "$tool" "$@" >out 2>err </dev/null
    status=$?
}
holds() { # holds FILTER TEXT: of the plan that was made last
    [ "$status" -eq 0 ] && [ "$(jq "$1" out 2>>err)" = true ]
    ok $? "$2"
}
shows() { # shows PATTERN TEXT: a line of the table
    [ "$status" -eq 0 ] && grep -qE "$1" out
    ok $? "$2: $(grep -m1 -E "$1" out)"
}
refuses() { # refuses STATUS PATTERN TEXT -- ARGS...
    local want=$1 pattern=$2 text=$3
    shift 4
    run "$@"
    [ $status -eq "$want" ] && [ ! -s out ] && grep -q "^weft-plan: error: .*$pattern" err &&
        [ "$(grep -c ': error: ' err)" -eq 1 ]
    ok $? "$text: $(grep error err) (exit $status)"
}
valid() { # valid TEXT: the plan that was made last compiles without fault
    "$WEFT_BIN/weft-run" --dry-run out >dry 2>>err
    ok $? "$1: $(head -1 dry | cut -d: -f2-)"
}

# ---- Megatron's words ----------------------------------------------------------------------------
run -m gpt:13B --tp 8 --pp 4 --dp 4 --sp --zero 1 --recompute selective
holds '.stages | length == 4 and all(.mesh == "dp:4 tp:8")' 'degrees are meshes'
holds '[.stages[].ops] == [["wte","wpe","layer.0-9"],["layer.10-19"],["layer.20-29"],["layer.30-39","ln","head","loss"]]' \
    'stages have as many blocks'
holds '.stages[0].layout == {"dp": "batch", "tp": ["vocab","heads","ffn","seq"]}' \
    'the dims of tensor and sequence parallelism are found'
holds '.batch == 64 and .micro_batch == 4' 'batch and micro-batch have defaults'
holds '.stages | all(.zero == 1 and .regather and .recompute == "selective")' 'the rest is said'
valid 'the plan is legal'
cp out big.json
"$WEFT_BIN/weft-predict" --memory - <big.json >predicted 2>err
[ "$(jq '[.memory[]?, .stages[]?.memory?] | length > 0' predicted)" = true ]
ok $? 'and can be predicted'
run -m gpt:13B --tp 8 --pp 4 --dp 4 --sp --recompute selective
"$WEFT_BIN/weft-predict" --memory - <out >whole 2>err
run -m gpt:13B --tp 8 --pp 4 --dp 4 --sp --recompute selective --offload optimizer,activations
holds '.stages | all(.offload == ["optimizer", "activations"])' 'what the hosts hold'
valid 'a plan that offloads is legal'
"$WEFT_BIN/weft-predict" --memory - <out >spared 2>err
spared='[.stages[].memory | select(.optimizer == 0 and .activations == 0) | .host]'
all='[.stages[].memory | .optimizer + .activations]'
[ "$(jq -c "$spared" spared)" = "$(jq -c "$all" whole)" ]
ok $? "what leaves the devices is on their hosts: $(jq -c "$spared" spared)"
cp out spared.json
run --show spared.json
shows '^stage 0 has .* on its host: optimizer activations' 'the table says so'
run --show big.json
shows '^model +gpt:13B, 13.12 billion parameters' 'the table names the model'
shows '^batch +64: 16 micro-batches of 4' 'the micro-batches'
shows '^pipeline +pp 4, schedule 1f1b' 'the pipeline'
shows '^ +0 +10 +32 +4 +8 +1 +1 +yes +1 +1 +selective +[0-9.]+ GiB +wte .. layer.9.add2$' 'and the stages'
"$tool" --show <big.json >table 2>err
cmp -s table out
ok $? 'a plan is read from standard input'
run -m gpt:1.3B --pp 5 -b 60 --micro-batch 3 --schedule gpipe --optimizer sgd --recompute full --overlap
holds '[.stages[].ops | map(select(startswith("layer")))[0]] == ["layer.0-4","layer.5-9","layer.10-14","layer.15-19","layer.20-23"]' \
    'where stages do not divide the blocks, the first have one more'
holds '[.batch, .micro_batch, .schedule, .optimizer, .overlap, .stages[0].recompute] == [60,3,"gpipe","sgd",true,"all"]' \
    'everything else that can be said'
run -m gpt:1.3B --pp 2 --chunks 3 --dp 2
holds '[.schedule, (.stages | map(.group)), .stages[3].ops] == ["interleaved",[0,1,0,1,0,1],["layer.12-15"]]' \
    'chunks of device groups'
valid 'the plan is legal'
cp out chunks.json
run --show chunks.json
shows '^pipeline +pp 2, schedule interleaved, stages take turns' 'which the table says'
refuses 2 '--chunks: expected --pp of 2 or more' 'chunks of one group' -- -m gpt:nano --chunks 2
refuses 2 '--pp: 8 stages.*gpt.*6 blocks' 'more chunks than blocks' -- -m gpt:nano --pp 4 --chunks 2
run -m gpt:nano --set heads=8 --cp 2 --tp 2 --dp 2
holds '.stages[0] | .mesh == "dp:2 cp:2 tp:2" and .layout.cp == ["seq","vocab","heads","ffn"]' 'context parallelism'
[ ! -s err ]
ok $? 'leaves no op whole'
run -m gpt:nano --set heads=8 --cp 2 --tp 2 --dp 2 --show
shows '^ +0 +6 +8 +2 +2 +2 +1 +no ' 'and is shown'
run -m llama:nano --set heads=8,kv_heads=2,hidden=512 --tp 4
holds '.stages[0].layout.tp | (index("heads") != null and index("kv_heads") == null)' \
    'fewer heads of keys than devices are whole'
valid 'the plan is legal'
run -m gpt:nano --set heads=4 --cp 2 --tp 4
holds '.stages[0].layout.cp | index("heads") == null' 'heads that tp has used up are not split by cp'
grep -q 'attn cannot be split over cp' err
ok $? "which is said: $(cat err)"
refuses 2 'global-batch: 16 .*3 replicas' 'a batch that replicas cannot share' \
    -- -m gpt:nano --dp 3 -b 16 --pp 2
run -m llama:nano --cp 4 --ring
holds '.stages[0] | .mesh == "cp:4" and .ring' 'keys and values that go round'
valid 'the plan is legal'
run -m llama:nano --dp 2 --cp 4 --ring --show
shows '^ +0 +6 +8 +2 +1 +4 ring +1 +no ' 'and is shown'
run -m llama:nano -b 2 --pp 2 --mesh x:2,y:2 --layout seq:x,seq:y --ring --show
shows '^ +0 +3 +4 +1 +1 +4 ring +1 +no ' 'a ring over two axes'
refuses 2 '--ring:.*gpt' 'a ring of packed keys' -- -m gpt:nano --cp 2 --ring
refuses 2 '--ring:.*--cp.*2.*--mesh' 'a ring of one' -- -m llama:nano --dp 2 --ring
run -m gpt:nano --tp 2 --dp 2 --sp
jq 'del(.stages[0].regather)' out >kept.json
run --show kept.json
shows ' kept +0 ' 'sequence parallelism that keeps what it gathers'
run -m mlp --tp 2
grep -q '^weft-plan: fc_in.*tp: 2 devices' err
ok $? "says what is done twice: $(cat err)"
cat >experts.json <<'EOM'
{"format": "weft-model/1", "name": "experts",
 "sizes": {"seq": 8, "hidden": 16, "ffn": 32, "inner": 16, "experts": 4, "classes": 10},
 "inputs": {"x": {"dims": ["batch", "seq", "hidden"], "source": "image"},
            "label": {"dims": ["batch"], "source": "label"}},
 "ops": [{"name": "b", "repeat": 2, "ops": [
   {"name": "up", "kind": "einsum", "in": ["x"], "out": "h", "dims": ["batch", "seq", "experts", "ffn"],
    "weight": {"dims": ["hidden", "experts", "ffn"]}},
   {"name": "down", "kind": "einsum", "in": ["h"], "out": "h", "dims": ["batch", "seq", "experts", "inner"],
    "weight": {"dims": ["experts", "ffn", "inner"]}},
   {"name": "sum", "kind": "einsum", "in": ["h"], "out": "x", "dims": ["batch", "seq", "hidden"],
    "weight": {"dims": ["experts", "inner", "hidden"]}}]},
  {"name": "out", "kind": "einsum", "in": ["x"], "out": "y", "dims": ["batch", "classes"],
   "weight": {"dims": ["seq", "hidden", "classes"]}},
  {"name": "loss", "kind": "cross-entropy", "in": ["y", "label"], "out": "loss", "dims": []}]}
EOM
run -m ./experts.json --ep 2 --dp 4 -b 8
holds '.stages[0] | .mesh == "dp:2 ep:2" and .layout.ep == ["experts","batch"]' \
    'expert parallelism is over replicas'
run -m ./experts.json --ep 2 --dp 4 -b 8 --show
shows '^ +0 +2 +4 +4 +1 +1 +2 +no ' 'and is shown'
run -m moe:nano --set heads=8 --dp 4 --ep 2 --tp 2 --sp --show
shows '^ +0 +2 +8 +4 +2 +1 +2 +yes ' 'a mixture of experts, with routers by position'
refuses 2 '--ep: 2.*divide.*3 replicas.*--dp' 'experts on replicas that do not divide' \
    -- -m gpt:nano --ep 2 --dp 3

# ---- Mesh-TensorFlow's rules ----------------------------------------------------------------------
run -m gpt:1.3B -b 8 --mesh rows:2,cols:4 --layout 'batch:rows;vocab:cols,heads:cols,ffn:cols'
holds '.stages == [{"mesh": "rows:2 cols:4", "layout": {"rows": "batch", "cols": ["vocab","heads","ffn"]}}]' \
    'rules are a layout'
valid 'the plan is legal'
run -m gpt:nano --set layers=2 -b 8 --pp 2 --mesh x:2 --layout batch:x,heads:x
holds '.stages | length == 2 and .[1].layout.x == ["batch","heads"]' 'stages and several dims on an axis'
cp out four.json
timeout 120 mpirun -n 4 "$WEFT_BIN/weft-run" -q -n 1 --threads 1 four.json >metrics 2>err
jq '.stages = [{}] | .micro_batch = .batch' four.json >one.json
timeout 120 "$WEFT_BIN/weft-run" -q -n 1 --threads 1 one.json >one 2>>err
jq -se '(.[0].loss - .[1].loss) | fabs < 1e-5' metrics one >/dev/null
ok $? "the plan trains as one rank does: $(jq -c .loss metrics one | paste -sd ' ')"

# ---- a cluster -------------------------------------------------------------------------------------
run -m gpt:1.3B --tp 4 --dp 2 -b 8 --cluster v100-4x8
cp out v100.json
"$WEFT_BIN/weft-predict" v100.json >predicted 2>err
[ "$(jq '.time | type' predicted)" = '"number"' ] || [ "$(jq '.time | type' predicted)" = '"object"' ]
ok $? "the plan keeps the cluster: $(jq -c .time predicted)"
refuses 2 '--cluster:.*64 devices.*32' 'a cluster that is too small' \
    -- -m gpt:1.3B --dp 64 -b 64 --cluster v100-4x8

# ---- Aceso -------------------------------------------------------------------------------------------
same() { # same TEXT: out, to Aceso and back, is the same plan
    jq -S 'del(.provenance)' out >plan.json
    "$tool" --to aceso plan.json >config.json 2>err && "$tool" --from aceso config.json >again.json 2>>err
    "$tool" --show plan.json >table 2>>err && "$tool" --show again.json >table2 2>>err && cmp -s table table2 &&
        "$WEFT_BIN/weft-run" --explain plan.json >program 2>>err &&
        "$WEFT_BIN/weft-run" --explain again.json 2>>err | cmp -s - program
    ok $? "$1: $(jq -c '.stages | length' again.json) stages"
}
run -m gpt:1.3B --set layers=4 --pp 2 --dp 2 --tp 4 -b 64
same 'there and back'
run -m gpt:1.3B --set layers=4 --dp 2 --tp 2 -b 64 --recompute full
same 'with recomputation'
run -m gpt:1.3B --set layers=4 --dp 2 -b 64 --recompute selective
same 'of attention alone'
run -m gpt:1.3B --set layers=4 -b 64 --mesh dp:2,x1:2,tp:2 --layout batch:dp,batch:x1,heads:tp,ffn:tp,vocab:tp
jq '.stages[0].except = [{"ops": ["layer.0-1.qkv","layer.0-1.attn","layer.0-1.proj"],
      "layout": {"dp": "batch", "x1": "heads", "tp": "heads"}},
    {"ops": "layer.2.fc*", "layout": {"dp": "batch", "x1": "batch", "tp": "hidden"}}]' out >mixed.json
cp mixed.json out
same 'with degrees that differ from op to op'
is "$(jq -c '[.model_size, .num_layers, .hidden_size, .num_gpus, .num_ops_in_each_stage, .resharding_stages]' config.json)" \
    '["1_3B",4,2048,[8],[55],[true]]' 'what the document says'
is "$(jq -c '[.model_parallel_size_of_each_op[0][1:9]]' config.json)" '[[2,4,4,4,4,4,4,2]]' 'op by op'
run -m gpt:1.3B --set layers=4 --dp 2 -b 64
"$tool" --to aceso out >config.json 2>err
jq '.num_stages = 2 | .num_gpus = [2,2] | .num_ops_in_each_stage = [17,38]
    | (.model_parallel_size_of_each_op, .data_parallel_size_of_each_op, .recompute_ops, .algo_of_each_op) |=
      [.[0][:17], .[0][17:]]' config.json >inside.json
run --from aceso inside.json
grep -q '1.*enc-attention-softmax' err &&
    [ "$(jq -c '.stages[1].ops[:2]' out)" = '["layer.1.proj","layer.1.add1"]' ]
ok $? "a cut inside of attention: $(head -1 err)"

breaks() { # breaks FILTER PATTERN TEXT: a configuration changed like this is refused
    jq "$1" config.json >broken.json
    refuses 3 "$2" "$3" -- --from aceso broken.json
}
breaks '.model_name = "t5"' 'model_name: Aceso.s form is known for gpt, got "t5"' 'another family'
jq '.model_size = "../scale-layer" | .hidden_size = 512 | .num_attention_heads = 8' config.json >other.json
run --from aceso other.json
holds '.model == "gpt:1.3B" and .set == "heads=8,hidden=512,layers=4"' 'a size of its own'
breaks 'del(.num_layers)' 'num_layers' 'no layers'
breaks '.num_ops_in_each_stage = [54]' 'num_ops_in_each_stage: 54 ops in all, the model has 55' 'an op too few'
breaks '.num_gpus = [4]' 'stage 0: encoder-embedding: 1 x 2 devices, the stage has 4' 'degrees that do not fit'
breaks '.recompute_ops[0][3] = 2' 'recompute_ops\[0\]\[3\]: expected a whole number from 0 to 1' 'a mark that is none'
breaks '.algo_of_each_op = [3]' 'algo_of_each_op\[0\]: expected an array' 'a list that is none'
breaks '.data_parallel_size_of_each_op[0] |= .[1:]' 'data_parallel_size_of_each_op\[0\]: expected 55 numbers, got 54' \
    'a list that is too short'
breaks '.micro_batch_size = 3 | .global_batch_size = 3' 'does not divide batch (3)' 'a batch that does not divide'
breaks '(.num_gpus = [6]) | .model_parallel_size_of_each_op[0] |= [.[range(54)] | 2] + [3]
    | .data_parallel_size_of_each_op[0] |= [.[range(54)] | 3] + [2]' \
    '2 and 3 do not divide each other' 'degrees without a common mesh'
wrong=0
for key in $(jq -r 'keys[]' config.json); do
    for value in null '"x"' -1 '[[]]' 1e300; do
        jq ".$key = $value" config.json >broken.json
        run --from aceso broken.json
        [ $status -eq 0 ] || [ $status -eq 3 ] || wrong=$((wrong + 1))
    done
done
is $wrong 0 'other values in each key are answered'

to_aceso() { # to_aceso PATTERN TEXT ARGS...: a plan that Aceso cannot say
    local pattern=$1 text=$2
    shift 2
    "$tool" -q "$@" >out 2>err && mv out cannot.json
    refuses 3 "$pattern" "$text" -- --to aceso cannot.json
}
to_aceso 'stages\[0\].zero: Aceso has nothing like it' 'ZeRO' -m gpt:nano --dp 2 --zero 1
to_aceso 'schedule: Aceso runs 1f1b, the plan gpipe' 'another schedule' -m gpt:nano --pp 2 --schedule gpipe
to_aceso 'axis cp splits another dim' 'context parallelism' -m gpt:nano --cp 2
to_aceso 'axis x splits nothing' 'work that is done twice' -m gpt:nano --mesh x:2
to_aceso 'for gpt, not for mlp' 'another model' -m mlp

# Configurations of Aceso's own, where they are there.
configs=$(find "${WEFT_DATA:-/nonexistent}/aceso" -name '*.json' 2>/dev/null | head -20)
if [ -n "$configs" ]; then
    for config in $configs; do
        [ "$(jq -r .model_name "$config")" = gpt ] || continue
        run --from aceso "$config"
        same "$(basename "$config")"
    done
else
    skip "configurations of Aceso's own" 'WEFT_DATA has none'
fi

# ---- what is wrong -------------------------------------------------------------------------------------
refuses 2 'axis tp (5).*divide heads (32).*layer.0.qkv' 'a degree that does not divide' -- -m gpt:1.3B --tp 5
refuses 2 'axis tp (2).*divide vocab (50257).*wte' 'the dim is named' -- -m gpt:gpt2 --tp 2
for word in tp dp pp cp ep chunks global-batch micro-batch; do
    refuses 2 "--$word: expected at least 1, got 0" "--$word 0 is not --$word 1" -- -m gpt:nano --$word 0
done
run -m gpt:nano --zero 0
holds '.format == "weft-plan/1"' '--zero 0 is a level'
refuses 2 '--zero: only with -m MODEL' 'a word for a plan that is read' -- --zero 0 tensor.json
refuses 2 'axis dp (3) does not divide batch (8)' 'a batch' -- -m gpt:nano --dp 3 -b 8
refuses 2 '--micro-batch: 3.*divide.*batch.*8' 'a micro-batch' -- -m gpt:nano -b 8 --micro-batch 3
refuses 2 '--pp: 7 stages.*gpt.*6 blocks' 'more stages than blocks' -- -m gpt:nano --pp 7
refuses 2 '--ep:.*gpt.*experts' 'experts that are not there' -- -m gpt:nano --ep 2 --dp 2
refuses 2 '--cp:.*mlp.*sequence' 'a sequence that is not there' -- -m mlp --cp 2
refuses 2 '--recompute:.*none.*selective.*full.*"some"' 'an unknown word' -- -m gpt:nano --recompute some
refuses 2 'schedule: expected .*, got "fifo"' 'an unknown schedule' -- -m gpt:nano --schedule fifo
refuses 2 '--optimizer: expected adamw, sgd, lion or muon' 'an unknown optimizer' -- -m gpt:nano --optimizer adam
refuses 2 'stages\[0\].zero: 9 is not in' 'an unknown ZeRO' -- -m gpt:nano --zero 9
refuses 2 'stages\[0\].offload\[1\]:.*optimizer.*parameters.*activations' 'an unknown word' \
    -- -m gpt:nano --offload optimizer,gradients
refuses 2 '--layout:.*"bach" (there are: batch seq' 'an unknown dim' \
    -- -m gpt:nano --mesh x:2 --layout bach:x
refuses 2 '--layout: the mesh has no axis "y"' 'an unknown axis' -- -m gpt:nano --mesh x:2 --layout batch:y
refuses 2 '--layout:.*rules.*batch:rows' 'no rule' -- -m gpt:nano --mesh x:2 --layout batch
refuses 2 '--mesh: "x2": expected axes such as' 'no mesh' -- -m gpt:nano --mesh x2
refuses 2 '--layout: expected --mesh' 'rules without a mesh' -- -m gpt:nano --layout batch:x
refuses 2 '--mesh and --tp exclude each other' 'rules and words' -- -m gpt:nano --mesh x:2 --tp 2
refuses 2 '--tp: only with -m MODEL' 'words for a plan that is read' -- --tp 2 big.json
refuses 2 '-m makes a plan, so no plan is read' 'two plans' -- -m gpt:nano big.json
refuses 2 '-m makes a plan, so no --from' 'a plan made and read' -- -m gpt:nano --from aceso
refuses 2 '--show and --to exclude each other' 'two outputs' -- --show --to aceso big.json
refuses 2 'from: .*aceso.*alpa' 'an unknown form' -- --from alpa big.json
refuses 2 'expected one file, got 2 operands' 'two files' -- big.json out
refuses 3 '"gpt9":.*(there are:.*gpt.*mlp' 'an unknown model' -- -m gpt9
refuses 3 'no preset "9" (there are: nano' 'an unknown size' -- -m gpt:9
refuses 3 'nowhere.json' 'no file' -- --show nowhere.json
refuses 3 'config.json: algo_of_each_op: unknown' 'a plan that is none' -- --show config.json
refuses 3 'big.json: ' 'a configuration that is none' -- --from aceso big.json
refuses 3 '"lyers" (there are: layers.*balance' 'an unknown name' \
    -- -m mixtral:nano --set lyers=3
refuses 2 '--model: expected MODEL, got ""' 'an empty name' -- -m ""
refuses 2 'an operand is empty' 'an empty path' -- --show ""
# Which dim, which size, which divisor.
refuses 2 'axis dp (5).*divide batch (24).*wte' 'replicas' -- -m t5:nano -b 24 --dp 5
refuses 2 'axis tp (4).*divide heads (6).*layer.0.qkv' 'heads' -- -m gpt:nano --tp 4
refuses 2 'axis tp (5).*divide inner (1024).*layer.0.fc1' 'inner products' -- -m mlp --tp 5
refuses 2 'axis cp (3).*divide seq (256).*wte' 'positions' -- -m llama:nano --cp 3
refuses 2 'axis ep (3).*divide experts (4).*layer.0.router' 'experts' -- -m mixtral:nano -b 24 --dp 3 --ep 3
refuses 2 '--ep: 3.*divide.*4 replicas.*--dp' 'replicas of experts' -- -m moe:nano --dp 4 --ep 3
refuses 2 'axis.*(3).*divide.*(32).*conv' 'height' \
    -- -m wide-resnet:nano -b 24 --mesh h:3 --layout height:h
refuses 2 'axis.*(8).*divide height5 (4).*stage.3' 'height after pooling' \
    -- -m wide-resnet:nano -b 24 --mesh h:8 --layout height:h,height2:h,height3:h,height4:h
refuses 2 'axis.*(8).*divide.*heads (4.*16).*layer.0.q' 'two axes' \
    -- -m llama:nano --set heads=16,kv_heads=16,hidden=256 --mesh a:4,b:8 --layout heads:a,heads:b
refuses 3 'attn): k: kv_heads (3).*divide heads (8)' 'groups of heads' -- -m mixtral:nano --set kv_heads=3
run -m wide-resnet:nano --dp 2 --pp 2 -b 32
is "$(jq -c '[.batch, .micro_batch]' out)" '[32,4]' 'batch norm shares a sample group out: the least is one'
refuses 2 'micro-batch (6) cuts.*group (4).*bn' 'a sample group' -- -m wide-resnet:nano -b 6 --micro-batch 6
refuses 4 'no/where' 'an output that cannot be written' -- -m gpt:nano -o no/where
"$tool" -m gpt:nano >/dev/full 2>err
[ $? -eq 4 ]
ok $? "a full disk: $(grep error err)"
echo "1..$n"
[ $failed -eq 0 ]
