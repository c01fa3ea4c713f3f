#!/usr/bin/env bash
# What weft-run says where a GPU is missing, too old, too small or another than the plan's: on the fakes of
# CUDA (tests/mpi/gpu-run.c). Prints TAP; the programs are in $WEFT_BIN and beside it.
# Needs: jq
set -u
tests=$(cd "${WEFT_BIN:?}/../tests/mpi" 2>/dev/null && pwd)
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0

[ -x "$tests/gpu-run" ] || skip_rest 'GPUs that do not do' 'built without CUDA'

cat >plan.json <<'END'
{"format": "weft-plan/1", "model": "gpt:nano", "set": "layers=1,hidden=16,heads=2,seq=8,vocab=256",
 "batch": 4, "provenance": {"profile": {"device": "h100-80gb"}}, "stages": [{}]}
END
no_device=100 old_driver=35 # cudaErrorNoDevice, cudaErrorInsufficientDriver
train() { # train VARIABLE=VALUE...: leaves out, err
    env "$@" "$tests/gpu-run" --threads 1 -n 1 plan.json >out 2>err
    status=$?
}
fails() { # fails TEXT MESSAGE HINT: with the status of a device that fails
    [ $status -eq 4 ] && [ ! -s out ] && grep -qxF "weft-run: error: $2" err && grep -qxF "hint: $3" err
    ok $? "$1: $(grep -m 1 'error: ' err)"
}
planned='the plan is for devices of kind "h100-80gb"'

train FAKE_NONE=$no_device
fails 'no GPU' "$planned: no GPU is to be seen" '--device cpu trains under it on the CPU'
train FAKE_NONE=$no_device CUDA_VISIBLE_DEVICES=
fails 'none that CUDA shows' "$planned: no GPU is to be seen" 'CUDA_VISIBLE_DEVICES is "": CUDA hides all others'
train FAKE_NONE=$old_driver
fails 'no driver' "$planned: CUDA: no driver of NVIDIA's is installed" '--device cpu trains under it on the CPU'
built=$(sed -n 's/.*weft was built with \([0-9.]*\)$/\1/p' <(FAKE_NONE=$old_driver FAKE_DRIVER=11080 "$tests/gpu-run" -n 1 plan.json 2>&1))
train FAKE_NONE=$old_driver FAKE_DRIVER=11080
fails 'an old driver' "$planned: CUDA: the driver is of CUDA 11.8, and weft was built with ${built:-?}" \
    'install a newer driver, or build weft with the CUDA of this one'

other() { grep -c "^weft-run: $planned.*GPU.*kind \"$1\"$" err; }
train FAKE_GPU='Tesla V100-SXM2-32GB:70:34359738368'
is "$status $(grep -c "^weft-run: error: GPU 0: compute capability 7.0: weft's kernels want 8.0$" err) $(other v100-32gb)" \
    '4 1 1' 'a GPU of an architecture that kernels are not for'
train FAKE_GPU='NVIDIA A100-SXM4-40GB:80:42949672960'
is "$status $(other a100-40gb)" '0 1' 'another GPU than the plan is for trains, and that is said'
for same in 'NVIDIA H100 80GB HBM3' 'NVIDIA H100'; do
    train FAKE_GPU="$same:90:85899345920"
    is "$status $(grep -c 'is for devices of kind' err)" '0 0' "\"$same\" is what the plan is for"
done

train FAKE_GPU='NVIDIA H100 80GB HBM3:90:20000000'
fails 'too little memory for a workspace' \
    'out of memory: 0.034 GB are planned for 1 rank of a GPU, and 0.020 of its 0.020 GB are free' \
    'weft-predict says what a plan takes; ranks that share a GPU share its memory'
train FAKE_GPU='NVIDIA H100 80GB HBM3:90:2000000000' FAKE_USED=1980000000
fails 'memory that another process has' \
    'out of memory: 0.034 GB are planned for 1 rank of a GPU, and 0.020 of its 2.000 GB are free' \
    'weft-predict says what a plan takes; ranks that share a GPU share its memory'

# A GPU that is gone in the midst of training: one line, what was printed is whole, what was saved is good.
"$tests/gpu-run" --threads 1 -n 12 plan.json >whole 2>err
env FAKE_LOST=40 "$tests/gpu-run" --threads 1 -n 12 --save kept --save-every 2 plan.json >out 2>err
status=$?
[ $status -eq 4 ] && [ "$(grep -c '^weft-run: error: ' err)" -eq 1 ] &&
    grep -qE '^weft-run: error: .*CUDA: (launching|waiting for the GPU)' err
ok $? "a GPU that is gone: $(grep -m 1 'error: ' err) (exit $status)"
steps=$(jq -s 'map(select(.loss)) | length' out)
[ "$steps" -gt 0 ] && [ "$steps" -lt 12 ]
ok $? "what it printed before is whole: ${steps:-no} steps"
"$tests/gpu-run" --threads 1 -n 12 --resume kept plan.json >out 2>err
status=$?
last() { jq -s 'map(select(.loss)) | last | .loss * 1e4 | round' "$1"; } # algorithms differ, and so last bits
is "$status $(last out)" "0 $(last whole)" 'its last checkpoint goes on to the same loss'

sed -i 's/"batch": 4/"batch": 65536, "micro_batch": 65536/' plan.json
train FAKE_GPU='NVIDIA H100 80GB HBM3:90:100000000'
[ $status -eq 4 ] && grep -q '^weft-run: error: out of memory: [0-9.]* GB.*0.100 GB' err
ok $? "for the arena or what is tried: $(grep -m 1 'error: ' err)"

echo "1..$n"
[ $failed -eq 0 ]
