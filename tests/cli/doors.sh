#!/usr/bin/env bash
# Plans to other trainers and back: launch lines like published ones come back with the same flags, what
# a trainer cannot say is refused by op or stage. Prints TAP; the programs are in $WEFT_BIN.
# Needs: jq
set -u
bin=${WEFT_BIN:?}
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0

run() { # run ARGS...: leaves $status, out, err
    "$bin/weft-plan" "$@" >out 2>err </dev/null
    status=$?
}
holds() { # holds FILTER TEXT: of the plan that was made last
    [ "$status" -eq 0 ] && [ "$(jq "$1" out 2>>err)" = true ]
    ok $? "$2"
}
refuses() { # refuses STATUS PATTERN TEXT: what was run last
    [ "$status" -eq "$1" ] && [ ! -s out ] && grep -q "^weft-[a-z]*: error: .*$2" err &&
        [ "$(grep -c ': error: ' err)" -eq 1 ]
    ok $? "$3: $(grep -m1 ': error: ' err) (exit $status)"
}
flags() { # flags: words of stdin as lines "--name value", sorted
    xargs -n 1 | awk '/^--/ { if (f) print f; f = $0; next } { f = f " " $0 } END { print f }' | sort
}

# ---- lines like published ones ----------------------------------------------------------------------
# Sizes and degrees are those of the table or script that each names, from memory rather than a copy;
# where a table does not say the micro-batch, the type or what is recomputed, it was chosen here.
# The flags of the plan must come back, no more and no fewer; those of the model must come back, beside
# others that say what is a default.
plan='^--(tensor-model-parallel|pipeline-model|context-parallel|cp-comm|expert-|sequence-parallel|micro-batch|global-batch|recompute|use-distributed|use-megatron|data-parallel|overlap|bf16|fp16|accumulate|grad-reduce|num-layers-per|num-virtual|decoder-|optimizer)'
same() { # same NAME LINE
    run --from megatron "torchrun $2"
    cp out made.json
    "$bin/weft-plan" --to megatron <made.json >out 2>>err
    flags <out >got
    flags <<<"$2" | grep -vE '^--(nnodes|nproc-per-node)' >want
    diff <(grep -E "$plan" want) <(grep -E "$plan" got | grep -vE -- '-model-parallel-size 1$') >>err
    local plans=$?
    comm -23 want got >lost
    [ "$status" -eq 0 ] && [ $plans -eq 0 ] && [ ! -s lost ]
    ok $? "$1: $(grep -cE "$plan" got) flags of its plan come back$(paste -sd ' ' lost)"
}
# The step that was published beside the one that is predicted without any measurement of it.
step() { # step NAME SECONDS NODES: of the plan that was made last
    local us ratio
    us=$("$bin/weft-predict" -q --runtime megatron --cluster "a100-80gb:$3x8" made.json 2>>err | jq .time)
    ratio=$(jq -n "$us / $2 * 1000 | round / 1000")
    printf '#| %-34s%9.2f s published %9.2f s predicted %7s\n' "$1" "$2" "$us" "$ratio"
    [ "$(jq -n "$ratio > 0.88 and $ratio < 1.12")" = true ]
    ok $? "$1: predicted $ratio of the published step"
}
gpt() { # gpt LAYERS HIDDEN HEADS GPUS BATCH MICRO REST...
    echo "--nnodes $(($4 < 8 ? 1 : $4 / 8)) --nproc-per-node $(($4 < 8 ? $4 : 8)) --num-layers $1" \
        "--hidden-size $2 --num-attention-heads $3 --seq-length 2048 --max-position-embeddings 2048" \
        "--vocab-size 51200 --global-batch-size $5 --micro-batch-size ${*:6}"
}
sc21() { # sc21 NAME LAYERS HIDDEN HEADS TP PP GPUS BATCH TFLOPS
    local tp="" pp=""
    [ "$5" -eq 1 ] || tp="--tensor-model-parallel-size $5"
    [ "$6" -eq 1 ] || pp="--pipeline-model-parallel-size $6"
    same "Narayanan et al. 2021, table 1: $1" "$(gpt "$2" "$3" "$4" "$7" "$8" 1 --fp16 \
        --untie-embeddings-and-output-weights "$tp" "$pp")  --recompute-granularity full
        --recompute-method uniform --recompute-num-layers 1"
    # The paper's formula of a step's flops, over what a GPU achieved.
    step "Narayanan et al. $1" "$(jq -n "96 * $8 * 2048 * $2 * pow($3; 2) *
        (1 + 2048 / (6 * $3) + 51200 / (16 * $2 * $3)) / ($7 * $9 * 1e12)")" $(($7 / 8))
}
# Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, arXiv 2104.04473
sc21 1.7B 24 2304 24 1 1 32 512 137
sc21 3.6B 30 3072 32 2 1 64 512 138
sc21 7.5B 36 4096 32 4 1 128 512 142
sc21 18.4B 40 6144 48 8 1 256 1024 135
sc21 39.1B 48 8192 64 8 2 512 1536 138
sc21 76.1B 60 10240 80 8 4 1024 1792 140
sc21 145.6B 80 12288 96 8 8 1536 2304 148
sc21 310.1B 96 16384 128 8 16 1920 2160 155
sc21 529.6B 105 20480 128 8 35 2520 2520 163
sc21 1008B 128 25600 160 8 64 3072 3072 163
# Reducing Activation Recomputation in Large Transformer Models, arXiv 2205.05198, table 3
both='--tensor-model-parallel-size 8 --sequence-parallel --recompute-granularity selective --fp16'
same 'Korthikanti et al. 2022, table 3: 22B' "$(gpt 48 6144 64 8 4 4 "$both")"
step 'Korthikanti et al. 22B' 1.10 1
same 'Korthikanti et al. 2022, table 3: 175B' "$(gpt 96 12288 96 64 64 1 "$both" \
    --pipeline-model-parallel-size 8 --num-layers-per-virtual-pipeline-stage 4)"
step 'Korthikanti et al. 175B' 13.75 8
same 'Korthikanti et al. 2022, table 3: 530B' "$(gpt 105 20480 128 280 280 1 "$both" \
    --pipeline-model-parallel-size 35 --num-layers-per-virtual-pipeline-stage 1)"
step 'Korthikanti et al. 530B' 37.83 35
same 'Korthikanti et al. 2022, table 3: 1T' "$(gpt 128 25600 160 512 512 1 "$both" \
    --pipeline-model-parallel-size 64)"
step 'Korthikanti et al. 1T' 71.49 64
# NVIDIA/Megatron-LM, examples
small='--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024
 --max-position-embeddings 1024 --vocab-size 51200 --fp16'
same 'Megatron-LM: examples/gpt3/train_gpt3_175b_distributed.sh' "$(gpt 96 12288 96 128 1536 1 --fp16 \
    --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16)"
same 'Megatron-LM: examples/pretrain_gpt.sh' "--nproc-per-node 1 $small --micro-batch-size 4
    --global-batch-size 8"
same 'Megatron-LM: examples/pretrain_gpt_distributed.sh' "--nproc-per-node 8 $small
    --micro-batch-size 8 --global-batch-size 64"
same 'Megatron-LM: examples/pretrain_gpt_distributed_with_mp.sh' "--nproc-per-node 8 $small
    --micro-batch-size 4 --global-batch-size 16 --tensor-model-parallel-size 2
    --pipeline-model-parallel-size 2 --sequence-parallel"
# sequence-parallel over one device and overlap-param-gather of a sharded optimizer mean nothing here.
mixtral='--nnodes 4 --nproc-per-node 8 --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336
 --num-attention-heads 32 --group-query-attention --num-query-groups 8 --seq-length 4096
 --vocab-size 32000 --disable-bias-linear --swiglu --normalization RMSNorm
 --position-embedding-type rope --rotary-base 1e+06 --hidden-dropout 0.0 --attention-dropout 0.0
 --untie-embeddings-and-output-weights --num-experts 8 --moe-router-topk 2 --moe-aux-loss-coeff 0.01
 --micro-batch-size 1 --global-batch-size 256 --bf16 --pipeline-model-parallel-size 4 --expert-model-parallel-size 8
 --use-distributed-optimizer --overlap-grad-reduce'
same 'Megatron-LM: examples/mixtral/train_mixtral_8x7b_distributed.sh' "$mixtral"
same 'Megatron-LM: examples/llama/train_llama3_8b_h100_fp8.sh, in bf16' "--nnodes 1 --nproc-per-node 8
 --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
 --group-query-attention --num-query-groups 8 --seq-length 8192 --vocab-size 128256 --swiglu
 --disable-bias-linear --normalization RMSNorm --position-embedding-type rope --rotary-base 1e+06
 --hidden-dropout 0.0 --attention-dropout 0.0 --untie-embeddings-and-output-weights --bf16
 --micro-batch-size 1 --global-batch-size 128 --use-distributed-optimizer --overlap-grad-reduce"

# ---- a script ---------------------------------------------------------------------------------------
cat >run.sh <<'EOM'
#!/bin/bash
# comments --tensor-model-parallel-size 3
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NUM_NODES=${NUM_NODES:-2}
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
NODES=2
MODEL_ARGS=(
    --num-layers 24   # of them
    --hidden-size 2048 --num-attention-heads 32
    --seq-length 2048 --max-position-embeddings 2048 --vocab-size "51200"
)
LOG="--log-interval 10 \
 --save-interval 1000"
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NODES --master_addr localhost pretrain_gpt.py \
    ${MODEL_ARGS[@]} $LOG --tensor-model-parallel-size=4 --pipeline-model-parallel-size 2 \
    --micro-batch-size 2 --global-batch-size 64 --bf16 --use-distributed-optimizer \
    --lr 6.0e-5 --data-path 1 corpus_text_document --train-iters 100
EOM
run --from megatron run.sh
holds '.batch == 64 and .micro_batch == 4 and .dtype == "bf16" and
    (.stages | length == 2 and all(.mesh == "dp:2 tp:4" and .zero == 1))' 'a script is read, and not run'
"$bin/weft-run" --dry-run out >dry 2>>err
ok $? "its plan is legal: $(head -1 dry | cut -d: -f2-)"
"$bin/weft-plan" --from megatron <run.sh >piped 2>>err
cmp -s piped out
ok $? 'from standard input too'

# ---- stages that are not alike --------------------------------------------------------------------------
line='torchrun --nproc-per-node 8 --num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 16
 --max-position-embeddings 16 --vocab-size 256 --micro-batch-size 1 --global-batch-size 16'
run --from megatron "$line --pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'E|(t*3|)*2ttL'"
holds '[.stages[].ops] == [["wte","wpe","drop"],["layer.0-2"],["layer.3-5"],["layer.6-7","ln","head","loss"]]' \
    'a layout with an embedding of its own'
"$bin/weft-plan" --to megatron <out 2>err | grep -qxF -- "--pipeline-model-parallel-layout 'E|t*3|t*3|t*2L'"
ok $? 'comes back'
run --from megatron "$line --pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 1"
holds '[.stages[].ops | map(select(startswith("layer")))[0]] == ["layer.0","layer.1-3","layer.4-6","layer.7"]' \
    'ends that have fewer'
"$bin/weft-plan" --to megatron <out 2>err | grep -c 'decoder-[a-z]*-pipeline-num-layers 1' >count
is "$(cat count)" 2 'come back'
run --from megatron "$line --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Ett|tt|tt|ttL'"
holds '.schedule == "interleaved" and [.stages[].group] == [0,1,0,1]' 'a layout whose stages take turns'
run --from megatron "$line --context-parallel-size 2"
holds '.model.name == "gpt-qkv" and .stages[0].ring' 'context parallelism sends keys round'

# ---- what is refused of a line ------------------------------------------------------------------------
while IFS='@' read -r extra pattern; do
    run --from megatron "$line $extra"
    refuses 3 "$pattern" "a line with $extra"
done <<'EOM'
--fp8-format hybrid@fp8-format
--multi-latent-attention@multi-latent-attention
--tensor-model-parallel-size 3@8 devices.*tp 3
--swiglu@swiglu.*LayerNorm
--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'tt|tttttt'@layout: .*E first
--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'E(tt|tL'@layout: .*brackets
--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*99999999999|L'@layout: .*times
--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Ett|ttL'@layout: .*4 layers.*8
--pipeline-model-parallel-size 3@num-layers: 8
--rotary-percent 0.5@rotary-percent
--recompute-granularity full --recompute-num-layers 2@recompute-num-layers
--tensor-model-parallel-size x@tensor-model-parallel-size.*"x"
EOM
run --from megatron "x.py --hidden-size 64"
refuses 3 'num-layers: missing' 'a line without layers'
run --from megatron "x.py --num-layers 8 'x"
refuses 3 'quote' 'a quote that is not closed'

# ---- what a trainer cannot say ------------------------------------------------------------------------
model=(-m llama:nano --set layers=4)
run "${model[@]}" --pp 2 --dp 2 -b 16 --schedule zero-bubble
cp out zb.json
run --to megatron zb.json
refuses 3 'zb.json: schedule: .*zero-bubble' 'a schedule'
jq '.stages[1].recompute = "all" | .schedule = "1f1b"' zb.json >some.json
run --to megatron some.json
refuses 3 'some.json: stages\[1\]: layer.2.norm1 is recomputed' 'recompute in one stage'
jq '.schedule = "1f1b" | .stages[0].ops = ["wte", "layer.0", "layer.1.norm1"] | del(.stages[1].ops)' zb.json >cut.json
run --to torchtitan cut.json
refuses 3 'stages\[1\]: begins with layer.1.q, inside layer.1' 'a stage cut inside a layer'
run "${model[@]}" --tp 2 --dp 2 -b 16
jq '.stages[0].except = [{ops: "layer.1.down", layout: {tp: "hidden"}}]' out >op.json
run --to megatron op.json
refuses 3 'stages\[0\]: layer.1.down is split ' 'an op that is split otherwise'
run "${model[@]}" --tp 2 --pp 2 -b 16
cp out pp.json
run --to deepspeed pp.json
refuses 3 'stages: 2.*DeepSpeed' 'a pipeline as configuration'
run "${model[@]}" --dp 2 --zero 1 -b 16 --to torchtitan
refuses 3 'stages\[0\].zero: ' 'a level of ZeRO'
run --from accelerate pp.json
refuses 2 'from: .*megatron' 'a form that is only written'

# ---- the others' forms --------------------------------------------------------------------------------
run "${model[@]}" --dp 4 --zero 3 -b 64 --micro-batch 16 --dtype bf16 --overlap --to deepspeed
is "$status $(jq -c '[.train_batch_size, .train_micro_batch_size_per_gpu, .gradient_accumulation_steps,
    .zero_optimization, .bf16]' out)" '0 [64,4,4,{"overlap_comm":true,"stage":3},{"enabled":true}]' \
    'DeepSpeed: batch = micro-batch x accumulation x replicas'
run "${model[@]}" --dp 4 --zero 2 -b 64 --recompute all --to deepspeed
is "$status $(grep -c 'deepspeed.*gradient_checkpointing_enable' err)" '0 1' \
    'DeepSpeed: what is recomputed is said to be code'
run "${model[@]}" --dp 4 -b 64 --recompute all --to accelerate
is "$status $(grep -c 'accelerate.*gradient_checkpointing_enable' err)" '0 1' \
    'accelerate: the same where nothing is sharded'
run "${model[@]}" --dp 4 -b 64 --recompute selective --to deepspeed
refuses 3 'stages\[0\].recompute: .*DeepSpeed' 'what is recomputed in part'
run "${model[@]}" --dp 2 --tp 2 --pp 2 --zero 2 -b 32 --dtype bf16 --to torchtitan
is "$(grep -cE '^(data_parallel_shard_degree|tensor_parallel_degree|pipeline_parallel_degree) = 2$' out)" 3 \
    'torchtitan: degrees'
if command -v python3 >/dev/null && python3 -c 'import tomllib' 2>/dev/null; then
    is "$(python3 -c 'import tomllib
d = tomllib.load(open("out", "rb"))
p = d["parallelism"]
print(p["module_fqns_per_model_part"][1], d["training"]["global_batch_size"])')" \
        "['layers.2', 'layers.3', 'norm', 'output'] 32" 'torchtitan: a parser of TOML reads it'
else
    skip 'torchtitan: a parser of TOML reads it' 'no python3 with tomllib'
fi
run "${model[@]}" --dp 2 --tp 2 --zero 3 -b 32 --dtype bf16 --to accelerate
is "$(grep -cE 'parallelism_config_(dp_shard|tp)_size: 2$|mixed_precision: .bf16.|num_processes: 4' out)" 4 \
    'accelerate: degrees'

# Galvatron has degrees for each layer. Its reader wants as many entries as layers in each list, and a batch that
# the most replicas of a layer divide.
run "${model[@]}" --tp 2 --dp 2 -b 16 --zero 3 --dtype bf16
jq '.stages[0].except = [{ops: "layer.2-3", layout: {dp: "batch", tp: "batch"}}] |
    .stages[0].recompute = ("norm1 q k v turn_q turn_k attn proj add1 norm2 gate up swiglu down" | split(" ") |
        map("layer.1." + .))' out >layers.json
run --to galvatron layers.json
is "$status $(jq -c '[.pp_deg, .tp_sizes_enc, .checkpoint, .dp_types_enc, .default_dp_type, .vtp, .pp_division, .global_bsz]' out)" \
    '0 [1,"2,2,1,1","0,1,0,0","1,1,1,1","zero3",2,"4",16]' 'Galvatron: degrees of each layer'
is "$(jq '[.tp_sizes_enc, .tp_consecutive_flags, .cp_sizes_enc, .use_sp, .checkpoint] | map(split(",") | length) | unique == [4]' out)" \
    true 'each list has an entry for each layer'
run --to megatron layers.json
refuses 3 'layers.json: stages\[0\]: ' 'what Megatron-LM cannot say'
jq '.stages[0].except += [{ops: "layer.1.down", layout: {tp: "hidden"}}]' layers.json >op.json
run --to galvatron op.json
refuses 3 'stages\[0\]: layer.1.down is split ' 'an op that is split otherwise than its layer'
run "${model[@]}" --pp 2 --dp 2 -b 16 --to galvatron
is "$status $(jq -c '[.pp_deg, .pp_division, .chunks > 1, .pipeline_type, .default_dp_type]' out)" \
    '0 [2,"2,2",true,"pipedream_flush","ddp"]' 'Galvatron: a pipeline'
run "${model[@]}" --pp 2 --dp 2 --tp 2 --sp -b 16 --to galvatron
is "$status $(jq -c '[.pp_deg, .tp_sizes_enc, .vtp]' out)" '0 [2,"2,2,2,2",2]' 'Galvatron: an embedding that only replicas split'
run "${model[@]}" --cp 2 --ring --dp 2 -b 16 --to galvatron
is "$status $(jq -c '[.cp_sizes_enc, .vcp]' out)" '0 ["2,2,2,2",2]' 'Galvatron: a ring'
run "${model[@]}" --cp 2 --dp 2 -b 16 --to galvatron
refuses 3 'layer.0: keys and values are gathered' 'keys and values that do not go round'
run "${model[@]}" --dp 4 --zero 1 -b 16 --to galvatron
refuses 3 'layer.0: zero is 1' 'a level of ZeRO'
run "${model[@]}" --pp 2 --tp 2 --dp 2 --zero 1 -b 32 --dtype bf16 --to nnscaler
is "$status $(grep -cE '^  (plan_ngpus: 4|runtime_ngpus: 8|use_zero: true)$|^    pipeline_nstages: 2$|^global_batch_size: 32$' out)" '0 5' \
    'nnScaler: replicas of four devices'
run "${model[@]}" --dp 2 --zero 2 -b 16 --to nnscaler
refuses 3 'stages\[0\].zero: nnScaler' 'a level of ZeRO'

# ---- and back -------------------------------------------------------------------------------------------
back() { # back FORM TEXT -- MODEL_OPTIONS... -- PLAN_OPTIONS...
    local form=$1 text=$2 given=()
    shift 3
    while [ "$1" != -- ]; do given+=("$1") && shift; done
    run "${given[@]}" "${@:2}" --to "$form"
    cp out written
    run -q --from "$form" "${given[@]}" written
    cp out read.json
    "$bin/weft-plan" -q --to "$form" read.json >out 2>>err
    [ "$status" -eq 0 ] && cmp -s out written
    ok $? "$form: $text comes back"
    "$bin/weft-plan" -q "${given[@]}" "${@:2}" --show >want
    "$bin/weft-plan" -q --show read.json | diff want - >>err
    ok $? "$form: $text is the same plan"
}
back torchtitan 'a pipeline' -- "${model[@]}" -- --dp 2 --tp 2 --pp 2 --sp --zero 2 -b 32 --dtype bf16
back torchtitan 'sharded parameters' -- "${model[@]}" -- --dp 4 --zero 3 -b 32 --dtype bf16 --recompute full
back torchtitan 'a ring' -- "${model[@]}" -- --cp 2 --ring -b 32 --dtype bf16
back torchtitan 'turns' -- -m llama:nano --set layers=8 -- --pp 2 --chunks 2 -b 32
back torchtitan 'tensor parallelism alone' -- "${model[@]}" -- --tp 2 -b 32
back deepspeed 'sharded parameters' -- "${model[@]}" -- --dp 4 --zero 3 -b 64 --micro-batch 16 --dtype bf16 --overlap
back deepspeed 'a state on hosts' -- "${model[@]}" -- --dp 4 --zero 2 -b 64 --dtype fp16 --offload optimizer
back deepspeed 'tensor parallelism' -- "${model[@]}" -- --tp 2 --dp 2 -b 8

cat >titan.toml <<'EOM'
# as torchtitan's own files are written
job.dump_folder = './outputs'   # a dotted key
[metrics]
log_freq = 10
[model]
name = "llama3" # the command line says it
[optimizer]
name = "AdamW"
lr = 3e-4
eps = 1e-8
[training]
local_batch_size = 1_6
seq_len = 256
"dataset" = "c4 # no comment"
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 2
pipeline_parallel_degree = 2
pipeline_parallel_microbatch_size = 4
pipeline_parallel_schedule = "1F1B"
module_fqns_per_model_part = [
    ["tok_embeddings", "layers.0", ], # one
    ["layers.1", 'layers.2', "layers.3", "norm", "output"],
]
[quantize.linear.float8]
filter_fqns = ["output"]
EOM
run -q --from torchtitan "${model[@]}" --dp 4 titan.toml
holds '.batch == 64 and .micro_batch == 16 and .dtype == "bf16" and ([.stages[].ops[1]] == ["layer.0", "layer.2"] or
    [.stages[].ops] == [["wte","layer.0"],["layer.1-3","norm","head","loss"]]) and (.stages | all(.mesh == "dp:4 tp:2" and .zero == 2))' \
    'torchtitan: comments, dotted keys, arrays of several lines, the rest of the devices'
grep -v module_fqns titan.toml | sed '/"tok_embeddings"/,/^\]/d' >even.toml
run -q --from torchtitan "${model[@]}" --dp 4 even.toml
holds '[.stages[].ops | map(select(startswith("layer")))[0]] == ["layer.0-1", "layer.2-3"]' \
    'torchtitan: its own split, where embedding and output count as layers'
n_bad=0
for cut in $(seq 40 23 "$(wc -c <titan.toml)"); do
    head -c "$cut" titan.toml >cut.toml
    run -q --from torchtitan "${model[@]}" --dp 4 cut.toml
    [ "$status" -eq 0 ] || { [ "$status" -eq 3 ] && [ "$(grep -c 'error: cut.toml' err)" -eq 1 ]; } || n_bad=$((n_bad + 1))
done
is "$n_bad" 0 'torchtitan: files that end anywhere are read or refused with their name; others'
while IFS='@' read -r form edit pattern; do
    case $form in
    torchtitan) sed "$edit" titan.toml >edited ;;
    deepspeed) jq -n "$edit" >edited ;;
    esac
    run -q --from "$form" "${model[@]}" --dp 4 edited
    refuses 3 "$pattern" "$form: $edit"
done <<'EOM'
torchtitan@s/1F1B/ZBVZeroBubble/@parallelism.pipeline_parallel_schedule: "ZBVZeroBubble"
torchtitan@s/^seq_len = 256/seq_len = 512/@training.seq_len: 512.*256
torchtitan@s/^local_batch_size/local_batches/@training.local_batches 16: this is not understood
torchtitan@s/^log_freq = 10/log_freq = /@line 4: expected a number
torchtitan@s/^log_freq/[[log_freq/@line 4: arrays of tables
torchtitan@s/"layers.1", //@module_fqns_per_model_part: 3 layers, expected 4
torchtitan@s/^tensor_parallel_degree = 2/data_parallel_replicate_degree = 2/@data_parallel_shard_degree: 2 of 4
torchtitan@s/^local_batch_size.*/local_batch_size = 16\nglobal_batch_size = 128/@global_batch_size: 128
torchtitan@s/^tensor_parallel_degree = 2/tensor_parallel_degree = 99999999999/@tensor_parallel_degree: 99999999999
deepspeed@{train_batch_size: 8, train_micro_batch_size_per_gpu: 3}@train_batch_size: 8
deepspeed@{train_batch_size: "auto"}@train_batch_size.*"auto"
deepspeed@{train_batch_size: 8, zero_optimization: {stage: 3, zero_hpz_partition_size: 8}}@zero_hpz_partition_size 8
deepspeed@{train_batch_size: 8, zero_optimization: {stage: 4}}@zero_optimization.stage: "4"
EOM
run --from deepspeed written
refuses 2 'MODEL' 'a configuration without a model'
run --from deepspeed "${model[@]}" --tp 2 written
refuses 2 'tp: ' 'a degree that the configuration says'

# ---- searching for a trainer ------------------------------------------------------------------------------
"$bin/weft-search" -q "${model[@]}" --cluster h100-8 -b 32 --dtype bf16 --for megatron >found.json 2>err
ok $? 'weft-search --for megatron'
run --to megatron found.json
ok $status "$(grep -c . out) flags say all of what it found"
"$bin/weft-search" -q "${model[@]}" --cluster h100-8 -b 32 --for alpa >out 2>err
status=$?
refuses 2 'for: .*megatron.*alpa' 'an unknown trainer'

# A sequence that is split is gathered again by these trainers; a plan that keeps it cannot be said.
"$bin/weft-search" -q -m llama:70B --cluster h100:2x8 -b 64 --dtype bf16 --for megatron >found.json 2>err
run --to megatron found.json
grep -q -- '--sequence-parallel' out && grep -q -- '--tensor-model-parallel-size [248]' out
ok $? "large models get sequence parallelism: $(jq '.provenance.predicted.time_us / 1e3 | round' found.json) ms"
# The fastest plans of experts split them, which DeepSpeed's file cannot say.
"$bin/weft-search" -q -m moe:10B --cluster h100:2x8 --memory 40G -b 64 --dtype bf16 --for deepspeed >found.json 2>err
run --to deepspeed found.json
ok $status 'those that can be said are found behind many that cannot'
"$bin/weft-search" -q "${model[@]}" --cluster h100-8 -b 32 --dtype fp16 --for torchtitan >out 2>err
status=$?
refuses 2 'dtype: torchtitan' 'a type that the trainer lacks'

# What runs now, and what to change: the model, the batch and the machines come from the plan.
"$bin/weft-plan" -q --from megatron run.sh | tee now.json |
    "$bin/weft-search" --for megatron --from - --explain >out 2>err
ok $? "one command says what to change ($(grep -c '^[-+] ' out) flags)"
grep -q 'taken is h100:2x8' err
ok $? "a script does not name its devices: $(grep -m1 taken err | cut -d: -f2-)"
line() { # line WHAT: the time of that line, in ms
    awk -v w="$1" 'index($0, w " ") == 1 { print substr($0, length(w) + 1) + 0 }' out
}
time_of() { # time_of PLAN: by weft-predict, in ms
    "$bin/weft-predict" -q --cluster h100:2x8 "$1" | jq '.time * 1e5 | round / 100'
}
is "$(line 'the plan to start from')" "$(time_of now.json)" 'what runs now takes what weft-predict says'
"$bin/weft-plan" --to megatron now.json >flags.now
{
    grep -vxF -f <(sed -n 's/^- //p' out) flags.now
    sed -n 's/^+ //p' out
} >flags.new
cp out explained
run -q --from megatron "torchrun --nnodes 2 --nproc-per-node 8 $(paste -sd ' ' flags.new)"
cp out new.json && cp explained out
is "$(line 'this plan')" "$(time_of new.json)" 'with the changes it takes what was promised'
[ "$(jq -n "$(line 'this plan') < $(line 'the plan to start from')")" = true ]
ok $? 'which is less'
"$bin/weft-search" -q --for megatron --from new.json --explain >out 2>err
[ "$(sed -n '/^what to change/,$p' out | wc -l)" -eq 2 ] && grep -q '^nothing: ' out
ok $? 'and then nothing is left to change'
"$bin/weft-search" -q --for megatron --from now.json --pareto >front 2>err
[ "$(wc -l <front)" -gt 3 ] && jq -s -e '[.[].time] == ([.[].time] | sort)' front >out
ok $? "--pareto: $(wc -l <front) plans"
jq -c .plan front | while read -r plan; do
    "$bin/weft-plan" --to megatron <<<"$plan" >flags.out 2>>err || exit 1
done
ok $? 'all of them can be said'
"$bin/weft-search" --for deepspeed --from now.json --explain >out 2>err &&
    grep -q 'cannot be said: stages: 2' err && grep -q '^+ .*train_batch_size' out
ok $? 'from one trainer to another that cannot say what runs now'
"$bin/weft-search" -q --for megatron --from now.json --set layers=4 >out 2>err
status=$?
refuses 2 'set: .*-m' 'sizes of a model that a plan brings'
echo "1..$n"
exit $((failed > 0))
