#!/usr/bin/env bash
# Training and profiling on GPUs that are described (tests/described): every launch is one that the GPU
# takes, with the registers and the shared memory that each kernel has as nvcc compiled it, and nothing
# is done while a stream is captured that ends the capture. Nothing is computed: losses are zero.
# Prints TAP; the programs are in $WEFT_BUILD.
set -u
tools=${WEFT_BUILD:?}/tests/described
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
: "${dir:?}"
n=0 failed=0

[ -x "$tools/weft-run" ] || skip_rest 'GPUs that are described' 'built without CUDA'
export DESCRIBED_LIST=$dir/list DESCRIBED_GPU

taken() { # taken STATUS TEXT: the tool's end, and its last line
    [ "$1" -eq 0 ] && tail -1 err | grep -q "^# $DESCRIBED_GPU: [1-9][0-9]* launches of .* kernels, 0 refused$"
    ok $? "$2: $(tail -1 err)"
}
train() { # train GPU DTYPE MODEL MICRO_BATCH [SET [ARGS...]]
    local plan='{"format": "weft-plan/1", "model": "%s", "set": "%s", "dtype": "%s", "micro_batch": %d,
                 "batch": %d, "optimizer": "%s", "logits": %d, "stages": [{}]}'
    local optimizer=${optimizer:-adamw} set=${5:-} pieces=${pieces:-1} text
    DESCRIBED_GPU=$1 text="$1, $2: $3 $4 $set ${*:6}"
    case $3 in wide-resnet*) optimizer=sgd ;; esac
    # shellcheck disable=SC2059
    printf "$plan" "$3" "$set" "$2" "$4" $((2 * $4)) $optimizer "$pieces" >plan.json
    "$tools/weft-run" -q --threads 1 --device cuda -n 2 --valid-every 1 "${@:6}" plan.json >out 2>err
    taken $? "$text"
}
# Whole models, as they are recorded and replayed.
for dtype in fp32 bf16 fp16; do
    train h100 $dtype gpt:gpt2 8 layers=1,vocab=1000
    train h100 $dtype llama:nano 4
    train h100 $dtype t5:nano 4
    train h100 $dtype mixtral:nano 4
    train h100 $dtype wide-resnet:nano 4
done
train h100 fp32 gpt:nano 4 '' --tf32 --deterministic
optimizer=muon train h100 fp32 gpt:nano 4
optimizer=muon train h100 bf16 mixtral:nano 4
# Logits in pieces, which evaluation makes in the same captured regions without their gradients.
pieces=4 train h100 bf16 gpt:gpt2 8 layers=1,vocab=1000
pieces=2 train h100 fp32 llama:nano 4
train h100 bf16 wide-resnet:nano 32 image=224,base=64,classes=1000,stem_taps=7,stem_stride=2,pool_stride=2
# Other GPUs have less shared memory.
for gpu in a100 a40; do
    train $gpu fp32 moe:nano 4
    train $gpu bf16 gpt:nano 4
    train $gpu bf16 t5:nano 4
    train $gpu bf16 wide-resnet:nano 4
done
# Heads of all widths that attention has a kernel for, and of some that it has not.
for gpu in 'h100 bf16' 'h100 fp16' 'a40 bf16'; do
    for head in 32 64 80 128 256; do
        # shellcheck disable=SC2086
        train $gpu gpt:nano 1 layers=1,seq=2048,hidden=$((2 * head)),heads=2
    done
done
# Grids that are large.
train h100 bf16 gpt:nano 512 layers=1,seq=2048,hidden=128,heads=2
train h100 fp32 gpt:nano 512 layers=1,seq=1024,hidden=64,heads=2

# Tests of GPUs (tests/gpu): every instruction, launched, replayed and in place, with the numbers of the
# CPU, which nobody makes here; and all kernels of attention, those of wgmma too.
instructions() {
    "$tools/gpu-kernels" 3 >out 2>err
    status=$?
    [ $status -le 1 ] && tail -1 out | grep -q '^1[.][.][0-9]*$'
    taken $? "$DESCRIBED_GPU: instructions as gpu-kernels draws them"
}
attention() {
    "$tools/gpu-attention" >out 2>err
    taken $? "$DESCRIBED_GPU: kernels of attention beside each other"
}
which=0
for DESCRIBED_GPU in h100 a100 a40; do
    [ $DESCRIBED_GPU = h100 ] || of_today $((which++)) 2 || continue
    instructions
    attention
done

# What any plan on eight devices runs, one by one, as the profiler times it.
DESCRIBED_GPU=h100
if of_today 2 3; then
    "$tools/weft-profile-op" -q -m gpt:1.3B -p p.db --device cuda --dtype bf16 --micro-batch 8 --time 1ms >out 2>err
    taken $? 'the instructions of gpt:1.3B on up to 8 devices'
fi

kernels=$(sort -u list | awk '{print $2}' | sort -u | wc -l)
launched=$(awk '$1 == "launched" {print $2}' list | sort -u | wc -l)
[ "$launched" -gt $((kernels * 9 / 10)) ]
ok $? "$launched of $kernels kernels were launched"
awk '{print $2}' list | sort -u | grep -vxFf <(awk '$1 == "launched" {print $2}' list) | sed 's/^/# not: /'

echo "1..$n"
[ $failed -eq 0 ]
