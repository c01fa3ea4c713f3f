#!/usr/bin/env bash
# The compiler of CUDA remarked nothing on the kernels as they were built: no register is spilled, no array
# lies in local memory, and no wgmma waits for another (C7510 and its like, which ptxas gives as information, so
# that -Werror would let them pass). And it does say such things.
# Prints TAP; what it said stands beside the objects in $WEFT_BUILD.
set -u
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0

objects=$(ls "${WEFT_BUILD:?}"/lib/cuda/*.cu.o 2>/dev/null)
nvcc=$(sed -n 's/^NVCC := //p' "$WEFT_BUILD/found.mk" 2>/dev/null)
if [ -z "$objects" ] || [ -z "$nvcc" ]; then
    echo '1..0 # SKIP built without CUDA'
    exit
fi

for object in $objects; do
    cat "${object%.o}.said" >out 2>err && [ ! -s out ]
    ok $? "$(basename "${object%.o}")"
done

# A thread that keeps 100 numbers across a barrier, with 32 registers.
cat >spill.cu <<'END'
__global__ void __launch_bounds__(1024, 2) spill(float *x) {
    float kept[100];
#pragma unroll
    for (int i = 0; i < 100; i++)
        kept[i] = x[i * threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 100; i++)
        x[i * threadIdx.x + 1] = kept[i];
}
END
grep -q -e '-warn-spills' "$WEFT_BUILD/nvcc" &&
    "$nvcc" -arch=sm_90 -Xptxas -warn-spills -cubin -o spill.cubin spill.cu 2>out && grep -q 'spilled' out
ok $? 'a register that is spilled is remarked'
echo "1..$n"
[ $failed -eq 0 ]
