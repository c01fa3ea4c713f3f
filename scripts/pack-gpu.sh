#!/usr/bin/env bash
# A folder with weft, its tests for GPUs and the libraries that they need, for another x86-64 Linux that
# has an NVIDIA driver and CUDA 13's libraries, and no package manager.
#   scripts/pack-gpu.sh BUILD_DIR FOLDER
# FOLDER/weft-gpu is how everything in it is run:
#   weft-gpu check|bench [PART...]     as `make check-gpu`, `make bench-gpu`
#   weft-gpu measure LOGS [PART...]    all that is to be measured (measure-gpu.py)
#   weft-gpu COMMAND...                mpirun, weft-run, ... with the folder's libraries
# libc, libstdc++ and CUDA are the machine's. At most 60 MB.
set -euo pipefail
build=$1 out=$2 limit=60
cd "$(dirname "$0")/.."
plugins=$(ompi_info --parsable --path pkglibdir | sed -n 's/^path:pkglibdir://p')
data=$(ompi_info --parsable --path pkgdatadir | sed -n 's/^path:pkgdatadir://p')
rm -rf "$out"
mkdir -p "$out"/{bin,lib/openmpi,build/tests/gpu,build/tests/mpi,tests,scripts,share/openmpi,share/models}

# Only what runs on one machine: transports of networks, launchers of clusters and files in parallel are
# left out, and with them the libraries that they want.
plugin() {
    case $1 in
    *_ucx* | *_ofi* | *openib* | *psm* | *_slurm* | *_flux* | *gridengine* | *_jsm* | *romio* | *ompio* | *_cm.so) ;;
    mca_fs_* | mca_atomic_* | mca_fbtl_* | mca_fcoll_* | mca_sharedfp_* | *memheap* | *scoll* | *sshmem* | *spml* | *monitoring*) ;;
    *) cp "$plugins/$1" "$out/lib/openmpi/" ;;
    esac
}
for p in "$plugins"/mca_*.so; do plugin "${p##*/}"; done
cp "$data"/help-*.txt "$out/share/openmpi/"
pmix=$(find /usr/lib /usr/local/lib -type d -path '*pmix*/lib/pmix' 2>/dev/null | head -1)
if [ "$pmix" ]; then
    mkdir -p "$out/lib/pmix" "$out/share/pmix"
    cp "$pmix"/*.so "$out/lib/pmix/"
    cp "$pmix"/../../share/pmix/help-*.txt "$out/share/pmix/"
fi

strip -o "$out/bin/mpirun" "$(readlink -f "$(command -v mpirun)")"
strip -o "$out/bin/orted" "$(readlink -f "$(command -v orted)")"
for f in "$build"/bin/weft-{run,profile-op,profile-comm,predict,search,plan,ckpt}; do strip -o "$out/bin/${f##*/}" "$f"; done
for f in gpu/gpu-device gpu/gpu-kernels gpu/gpu-attention gpu/gpu-convolution gpu/gpu-epilogues mpi/plans; do strip -o "$out/build/tests/$f" "$build/tests/$f"; done
ln -s ../bin "$out/build/bin"
cp -r tests/models "$out/tests/"
cp -r share/models share/clusters share/devices "$out/share/"
cp scripts/{check-gpu.sh,bench-gpu.py,bench-pytorch.py,pytorch_models.py,real-run.py,measure-gpu.py,trace-both.sh} "$out/scripts/"

# Libraries of all of it, but those that every system or CUDA has.
needed() {
    find "$out" -type f \( -name '*.so*' -o -perm -u+x \) -exec ldd {} \; 2>/dev/null |
        sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | grep -v "^$PWD/" | sort -u |
        grep -Ev '/(libc|libm|libdl|librt|libpthread|libutil|libresolv|libnsl|libstdc\+\+|libgcc_s|ld-linux[^/]*)\.so'
}
for f in $(needed); do cp -L "$f" "$out/lib/"; done
chmod u+w "$out"/lib/*.so*
strip --strip-unneeded "$out"/lib/*.so* "$out"/lib/openmpi/*.so 2>/dev/null || true

# What is large travels compressed: each program has all kernels.
find "$out" -type f -size +1M -exec gzip -9 {} +

cat >"$out/weft-gpu" <<'RUN'
#!/bin/sh
# weft-gpu check|bench [PART...] | measure LOGS [PART...] | COMMAND...: with the libraries of this folder (scripts/pack-gpu.sh)
here=$(cd "$(dirname "$0")" && pwd)
find "$here" -name '*.gz' -exec gzip -df {} + || exit
# CUDA's libraries: the toolkit's, or those of the wheels that PyTorch brings.
cuda=/usr/local/cuda/lib64:/usr/local/cuda/lib
wheels=${WEFT_WHEELS-$(python3 -c 'import nvidia, glob
print(":".join(d for p in nvidia.__path__ for d in glob.glob(p + "/*/lib")))' 2>/dev/null)}
export WEFT_WHEELS="$wheels" # is asked once: this script is run again for each command of bench
outside=${LD_LIBRARY_PATH-} # PyTorch is to have its own libraries; bench-gpu.py comes back here for weft's
export LD_LIBRARY_PATH="$here/lib${wheels:+:$wheels}:$cuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export PATH="$here/bin:${PATH:-/usr/bin:/bin}" OPAL_PREFIX="$here"
export OMPI_MCA_mca_base_component_path="$here/lib/openmpi"
[ ! -d "$here/lib/pmix" ] || export PMIX_MCA_mca_base_component_path="$here/lib/pmix"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_plm=isolated OMPI_MCA_btl=self,vader OMPI_MCA_oob_tcp_if_include=lo
export OPAL_PKGDATADIR="$here/share/openmpi" PMIX_INSTALL_PREFIX="$here" PMIX_PKGDATADIR="$here/share/pmix"
# Without a plugin that compresses, PMIx says so in ten lines at each start; a job of one machine has
# nothing to compress.
export PMIX_MCA_pcompress_base_silence_warning=1
case ${1:-} in
check) shift; exec bash "$here/scripts/check-gpu.sh" "$here/build" "$@" ;;
bench) shift; LD_LIBRARY_PATH=$outside WEFT_GPU=$here/weft-gpu exec python3 "$here/scripts/bench-gpu.py" "$here/build" "$@" ;;
measure) shift; LD_LIBRARY_PATH=$outside WEFT_GPU=$here/weft-gpu exec python3 "$here/scripts/measure-gpu.py" "$here/build" "$@" ;;
'') sed -n 2p "$0"; exit 2 ;;
*) exec "$@" ;;
esac
RUN
chmod +x "$out/weft-gpu"
mb=$(du -sm "$out" | cut -f1)
echo "$out: $mb MB"
[ "$mb" -le $limit ] || { echo "pack-gpu: more than $limit MB" >&2; exit 1; }
