#!/usr/bin/env bash
# The folder of pack-gpu, without CUDA: its programs start on a machine that has no Open MPI, and nothing but
# their own words is on stderr. What it cannot do without, tests of GPUs, is anything here. Prints TAP.
# Needs: mpirun
set -u
bin=${WEFT_BIN:?}
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=/dev/null
. "$here/tap.bash"
n=0 failed=0
skip() {
    echo "1..0 # SKIP $1"
    exit 0
}
[ -z "${ASAN_OPTIONS-}" ] || skip 'the sanitizers want to be loaded first'
for p in mpirun orted ompi_info strip ldd; do command -v $p >/dev/null || skip "no $p"; done

mkdir -p build/tests/gpu build/tests/mpi
ln -s "$bin" build/bin
for f in gpu/gpu-device gpu/gpu-kernels gpu/gpu-attention gpu/gpu-convolution gpu/gpu-epilogues mpi/plans; do
    cp "$(type -P true)" build/tests/$f
done
"$here/../../scripts/pack-gpu.sh" "$PWD/build" "$PWD/weft-gpu" >out 2>err
is "$? $(grep -c 'weft-gpu: [0-9]* MB' out) $(cat err)" '0 1 ' 'a folder is packed'
seq 5000 >text
weft-gpu/weft-gpu weft-plan -m gpt:nano --set layers=1,hidden=48,heads=4,seq=16 -b 4 --dp 2 -o two.json
weft-gpu/weft-gpu weft-plan -m gpt:nano --set layers=1,hidden=48,heads=4,seq=16 -b 4 -o one.json

# Of the system's Open MPI and PMIx only what the folder has, where this user may hide them.
hidden=()
for d in $(dirname "$(dirname "$(find /usr/lib /usr/local/lib -type d -path '*pmix*/lib/pmix' 2>/dev/null | head -1)")") \
    "$(ompi_info --parsable --path pkglibdir | sed -n 's/^path:pkglibdir://p')" \
    "$(ompi_info --parsable --path pkgdatadir | sed -n 's/^path:pkgdatadir://p')"; do
    [ "$d" = . ] || [ ! -d "$d" ] || hidden+=("$d")
done
bare() { # bare COMMAND...: with an empty environment, and those folders empty
    # shellcheck disable=SC2016
    unshare -m sh -c 'while [ "$1" != -- ]; do mount -t tmpfs none "$1" || exit 99; shift; done; shift
        exec env -i HOME=/ PATH=/usr/bin:/bin WEFT_WHEELS= "$@"' sh "${hidden[@]}" -- "$@"
}
if ! bare true 2>/dev/null; then
    bare() { env -i HOME=/ PATH=/usr/bin:/bin WEFT_WHEELS= "$@"; }
    echo '# folders of the system cannot be hidden'
fi
quiet() { # quiet TEXT PLAN COMMAND...
    bare weft-gpu/weft-gpu "${@:3}" weft-run -q --threads 1 --data text -n 2 "$2" >out 2>err
    is "$? $(jq -sc 'map(.step)' out) $(cat err)" '0 [1,2] ' "$1: nothing on stderr"
}
quiet 'one process' one.json
quiet 'two ranks' two.json mpirun -n 2
rm -f weft-gpu/lib/pmix/*zlib*
quiet 'without plugins that compress' two.json mpirun -n 2
rm -rf weft-gpu/lib/pmix
quiet 'without any of PMIx' one.json
quiet 'without any, two ranks' two.json mpirun -n 2

echo "1..$n"
[ "$failed" -eq 0 ]
