#!/bin/sh
# What there is to build with on this machine, as variables of make:
#   CC=gcc MPICC=mpicc FLAGS= WITH_CUDA=auto scripts/probe.sh FILE
# HAVE_NAME is "yes" when a call of the library compiles and links, MISSING names what nothing is
# built without, MISSING_PACKAGES has the Debian packages of all that was not found. Answers are kept
# in FILE as long as compiler, flags and this script are the same and no package came or went since; what was not
# found is looked for again every time. The status is 0, whatever is missing.
set -u
file=$1
key="# $CC | $MPICC | $FLAGS | ${WITH_CUDA:=auto} | ${CUDA_HOME:-}"
installed=/var/lib/dpkg/status
mkdir -p "$(dirname "$file")"
kept=""
# shellcheck disable=SC3013 # every sh that there is knows -nt
if [ "$file" -nt "$0" ] && IFS= read -r line <"$file" && [ "$line" = "$key" ] &&
    { [ ! -e $installed ] || [ "$(find "$file" -newer $installed)" ]; }; then
    grep -q '^MISSING_PACKAGES :=$' "$file" &&
        { [ "$WITH_CUDA" = no ] || [ "$(grep -Ec '^HAVE_(CUDA|CUDNN|NCCL) := yes' "$file")" = 3 ]; } && exit 0
    kept=$(cat "$file")
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
missing="" packages=""

# probe NAME INCLUDE CALL FLAGS...: a call, because only that shows whether a static library lacks
# another one.
probe() {
    name=$1 found=yes
    case "$kept" in
    *"HAVE_$name := yes"*) ;;
    *)
        printf '#include <%s>\nint main(void) { %s; return 0; }\n' "$2" "$3" >"$work/probe.c"
        shift 3
        # shellcheck disable=SC2086 # these are several words
        $CC $FLAGS "$work/probe.c" -o "$work/probe" "$@" >/dev/null 2>&1 || found=""
        ;;
    esac
    echo "HAVE_$name := $found"
    [ "$found" ]
}
lacks() { # lacks TEXT PACKAGES: nothing is built without it
    missing="$missing${missing:+, }$1 ($2)"
    packages="$packages $2"
}

# ---- CUDA: nvcc, its runtime, and the headers of cuBLASLt; cuDNN's and NCCL's --------------------
# From CUDA_HOME, from where nvcc is, from the usual place, or from wheels of PyPI, which have each
# library in a folder of its own. Libraries but the runtime are opened when a GPU is wanted
# (lib/cuda/cuda_library.h), so nothing is linked with them; where they are is told to the program.
# Without cuDNN or NCCL there are GPUs all the same: other files do what theirs would.
wheels() { # folders of nvidia's wheels
    python3 -c 'import nvidia; print("\n".join(nvidia.__path__))' 2>/dev/null
}
# The first FOLDER/include with the header.
header() { # header NAME FOLDER...
    wanted=$1
    shift
    for folder; do
        [ -f "$folder/include/$wanted" ] && echo "$folder/include" && return
    done
}
include() { # include FOLDER: where the compiler does not look by itself
    case "$includes /usr/include " in
    *" $1 "*) ;;
    *) includes="$includes${1:+ -isystem $1}" ;;
    esac
}
cuda() {
    nvcc=${CUDA_HOME:+$CUDA_HOME/bin/nvcc}
    [ -x "$nvcc" ] || nvcc=$(command -v nvcc)
    [ -x "$nvcc" ] || nvcc=/usr/local/cuda/bin/nvcc
    from_wheels=$(wheels)
    [ -x "$nvcc" ] || nvcc=$(find $from_wheels -path '*/bin/nvcc' 2>/dev/null | head -1)
    home=${CUDA_HOME:-$(dirname "$(dirname "$(readlink -f "$nvcc")")")}
    case "$home" in */nvidia/*) from_wheels="$(dirname "$home") $from_wheels" ;; esac
    # What CUDA_HOME names stands for /usr/local/cuda; Debian's packages are in /usr.
    # shellcheck disable=SC2046,SC2086
    set -- "$home" $([ "${CUDA_HOME:-}" ] || echo /usr/local/cuda) $(for w in $from_wheels; do ls -d "$w"/*; done)
    lacking="" includes="" folders="" cudnn="" nccl=""
    [ -x "$nvcc" ] || lacking=nvcc
    for name in cuda_runtime_api.h cublasLt.h; do
        found=$(header $name "$@" /usr)
        [ "$found" ] || lacking="$lacking${lacking:+, }$name"
        include "$found"
    done
    found=$(header cudnn.h "$@" /usr)
    # Graphs for a device that is described are of 9.8.
    if [ -z "$found" ]; then
        cudnn="cudnn.h"
    elif ! grep -qs ATTR_EXECUTION_PLAN_DEVICEPROP "$found"/cudnn_graph*.h; then
        cudnn="cuDNN 9.8 or later"
    else
        include "$found"
    fi
    found=$(header nccl.h "$@" /usr)
    [ "$found" ] || nccl=nccl.h
    include "$found"
    for folder; do
        for lib in "$folder/lib64" "$folder/lib"; do # one of them may be a link to the other
            lib=$(readlink -f "$lib")
            case ":$folders:" in *":$lib:"*) continue ;; esac
            [ -z "$(find "$lib" -maxdepth 1 -name 'lib[cn][uc]*.so*' 2>/dev/null | head -1)" ] ||
                folders="$folders${folders:+:}$lib"
        done
    done
    runtime=""
    for lib in $(echo "$folders" | tr : ' '); do
        [ -f "$lib/libcudart_static.a" ] && runtime="$lib/libcudart_static.a -ldl -lrt -pthread" && break
    done
    [ "$lacking" ] || probe CUDA cuda_runtime_api.h 'int n; cudaGetDeviceCount(&n)' \
        $includes $runtime || lacking="a runtime that links"
    [ -z "$lacking" ] || echo "HAVE_CUDA :="
    [ "$lacking$cudnn" ] || echo "HAVE_CUDNN := yes"
    [ "$lacking$nccl" ] || echo "HAVE_NCCL := yes"
    echo "CUDA_LACKS := $lacking"
    echo "CUDNN_LACKS := $cudnn"
    echo "NCCL_LACKS := $nccl"
    echo "NVCC := $nvcc"
    echo "CUDA_CFLAGS :=$includes"
    echo "CUDA_LIBS := $runtime"
    echo "CUDA_FOLDERS := $folders"
}

# Debian's -dev package of lp_solve has no shared library, and the static one orders its columns
# with COLAMD, of SuiteSparse.
lpsolve='-l:liblpsolve55.a -lcolamd -lm -ldl'
mpi_compile=$($MPICC --showme:compile 2>/dev/null)
mpi_link=$($MPICC --showme:link 2>/dev/null)
openmp=gcc
case "$CC" in *clang*) openmp=libomp-dev ;; esac
{
    echo "$key"
    # shellcheck disable=SC2086
    if probe CC stdio.h 'puts("")'; then
        # Only for tests of kernels of GPUs on the CPU: the compiler takes C++ too.
        printf '#include <cmath>\nint main() { return 0; }\n' >"$work/probe.cc"
        $CC $FLAGS -c "$work/probe.cc" -o "$work/probe" >/dev/null 2>&1 && echo "HAVE_CXX := yes"
        probe OPENMP omp.h 'omp_get_max_threads()' -fopenmp || lacks OpenMP $openmp
        probe JANSSON jansson.h 'json_null()' -ljansson || lacks jansson libjansson-dev
        probe SQLITE sqlite3.h 'sqlite3_libversion()' -lsqlite3 || lacks SQLite libsqlite3-dev
        probe LPSOLVE lpsolve/lp_lib.h 'solve(make_lp(0, 0))' $lpsolve ||
            lacks lp_solve 'liblpsolve55-dev libsuitesparse-dev'
        probe MPI mpi.h 'MPI_Init(0, 0)' $mpi_compile $mpi_link ||
            lacks 'Open MPI' libopenmpi-dev
    else
        lacks "a C compiler, $CC" "${CC##*/} libc6-dev"
        packages="$packages $openmp libjansson-dev libsqlite3-dev liblpsolve55-dev"
        packages="$packages libsuitesparse-dev libopenmpi-dev"
    fi
    # One of them is enough, and there is a plain product in C without any.
    probe DNNL oneapi/dnnl/dnnl.h 'dnnl_version()' -ldnnl || {
        packages="$packages libdnnl-dev"
        probe BLAS cblas.h 'openblas_get_num_threads()' -lopenblas
    }
    [ "$WITH_CUDA" = no ] || cuda
    echo "LPSOLVE_LIBS := $lpsolve"
    echo "MPI_CFLAGS := $mpi_compile"
    echo "MPI_LIBS := $mpi_link"
    echo "MISSING := $missing"
    echo "MISSING_PACKAGES :=$packages"
} >"$work/found"
mv "$work/found" "$file"
