#!/usr/bin/env bash
# make as a user types it: what it says when libraries are missing, that a new prefix builds little
# again, that uninstall takes away what install brought, that help is true. Prints TAP; the sources
# are in $WEFT_ROOT, what is built already in $WEFT_BUILD.
set -u
# shellcheck source=tests/cli/tap.bash
. "$(dirname "$0")/tap.bash"
n=0 failed=0
root=${WEFT_ROOT:?}
run() { # run ARGS...: leaves $status, out, err
    make --no-print-directory -C "$root" "$@" >out 2>err
    status=$?
}

# ---- what is missing ------------------------------------------------------------------------
# A compiler without any library but that of C; no mpicc.
cat >bare <<'END'
#!/bin/sh
for word in "$@"; do case "$word" in -l* | -fopenmp) exit 1 ;; esac; done
exec cc "$@"
END
chmod +x bare
bare=(CC="$dir/bare" MPICC=false O="$dir/bare.o" PREFIX="$dir/none")
for goal in all tests install bench-build repro-solvers; do
    run "${bare[@]}" $goal
    [ $status -eq 2 ] && [ "$(grep -c 'not found' err)" -eq 1 ] && ! grep -q CC out
    ok $? "make $goal, without libraries, compiles nothing: $(grep 'not found' err | cut -c1-60)..."
done
for what in jansson SQLite lp_solve 'Open MPI' OpenMP libjansson-dev libopenmpi-dev 'make deps'; do
    grep -q "not found: .*$what" err
    ok $? "it names $what"
done
[ ! -e none ]
ok $? 'nothing was installed'
run "${bare[@]}" CC="$dir/none/cc" all
grep -q "not found: a C compiler, $dir/none/cc" err
ok $? 'a compiler that is not there is named, and it alone'
# What deps would do: jq is not on this path.
mkdir path
for tool in sh id tr sort sed echo; do ln -s "$(command -v $tool)" path; done
PATH=$dir/path DEPS=no sh "$root/scripts/deps.sh" demo libdnnl-dev >out 2>err
is $? 0 'deps with DEPS=no'
grep -q 'not here: jq libdnnl-dev openmpi-bin sqlite3 (make deps-demo brings them)' err
ok $? "it says what is missing: $(cat err)"

# ---- GPUs without all of NVIDIA's libraries -----------------------------------------------------
# A toolkit of links, with or without these headers.
toolkit() { # toolkit HEADER_PATTERN...
    local header
    rm -rf toolkit
    mkdir -p toolkit/include toolkit/bin
    ln -s "$(dirname "$cudart")" toolkit/lib
    printf '#!/bin/sh\nexec %s "$@"\n' "$nvcc" >toolkit/bin/nvcc
    chmod +x toolkit/bin/nvcc
    for header in ${folders//:/ }; do
        ln -s "$header"/* toolkit/include 2>/dev/null
    done
    for header; do rm -f toolkit/include/$header; done
    rm -rf t.o
    run CUDA_HOME="$dir/toolkit" O="$dir/t.o" config
}
says() { # says PATTERN TEXT
    [ "$status" -eq 0 ] && grep -Eq "$1" out
    ok $? "$2: $(grep -E 'CUDA|cuDNN|NCCL' out | tr -s ' ' | paste -sd ';')"
}
# Wheels that python3 has by itself would stand in for what is left out.
mkdir without
printf '#!/bin/sh\nexit 1\n' >without/python3
chmod +x without/python3
with_wheels=$PATH
PATH=$dir/without:$PATH
found=$WEFT_BUILD/found.mk
nvcc=$(sed -n 's/^NVCC := //p' "$found")
cudart=$(sed -n 's/^CUDA_LIBS := \([^ ]*\).*/\1/p' "$found")
folders=$(sed -n 's/^CUDA_CFLAGS := *//p' "$found" | sed 's/ *-isystem */:/g')
if ! grep -q '^HAVE_NCCL := yes' "$found" || ! grep -q '^HAVE_CUDNN := yes' "$found"; then
    skip 'what is left out without cuDNN or NCCL' 'there is no toolkit with both'
elif [ -e /usr/include/cudnn.h ] || [ -e /usr/include/nccl.h ]; then
    skip 'what is left out without cuDNN or NCCL' 'they are where every compiler looks'
else
    toolkit
    says 'cuDNN +yes' 'links to all of it are a toolkit'
    toolkit 'cudnn*'
    says 'CUDA +[0-9]' 'without cuDNN there are GPUs'
    says 'cuDNN +no: not found: cudnn.h' 'and it says what is lacking'
    says 'NCCL +yes' 'NCCL is there'
    run CUDA_HOME="$dir/toolkit" O="$dir/t.o" "$dir/t.o/lib/cuda/cuda_dnn_none.o"
    is "$status $(nm "$dir/t.o/lib/cuda/cuda_dnn_none.o" | sed -n 's/.* T //p' | sort | paste -sd ' ')" \
        "0 $(sed -n 's/^[a-z].*[ *]\(dnn_[a-z_]*\)(.*/\1/p' "$WEFT_ROOT/lib/cuda/cuda_dnn.h" | sort | paste -sd ' ')" \
        'what stands in for it has the same functions'
    toolkit 'cudnn_graph*'
    says 'cuDNN +no:.*found: cuDNN 9.8' 'an old one is left out too'
    toolkit 'nccl*'
    says 'NCCL +no: not found: nccl.h' 'without NCCL'
    run -n CUDA_HOME="$dir/toolkit" O="$dir/t.o" "$dir/t.o/libweft-nccl.a"
    is "$status $(grep -o 'lib/nccl/[a-z_]*\.c' out | sort -u | paste -sd ' ')" \
        '0 lib/nccl/nccl_none.c' 'the hosts carry what is between GPUs'
    toolkit 'cublas*'
    says 'CUDA +no: not found: cublasLt.h' 'without cuBLASLt there are none'
fi
PATH=$with_wheels

# ---- install and uninstall --------------------------------------------------------------------
cp -a "${WEFT_BUILD:?}" o
run O="$dir/o" PREFIX="$dir/x" install
is $status 0 'make install PREFIX=x'
compiled=$(grep '  CC ' out | grep -vc ' lib/model/')
is "$compiled" 0 'a new prefix compiles nothing again but the floor that knows it'
(cd / && unset WEFT_ROOT && "$dir/x/bin/weft-run" -h) >out 2>err
ok $? 'an installed tool runs'
for file in bin/weft-search share/man/man1/weft-run.1 share/man/man7/weft.7 \
    share/weft/models/gpt.json share/bash-completion/completions/weft-predict; do
    [ -s "x/$file" ]
    ok $? "there is $file"
done
run O="$dir/o" PREFIX="$dir/x" uninstall
is "$status $(find x ! -type d | wc -l)" '0 0' 'make uninstall leaves no file'
touch x/kept
echo '{"format": "weft-plan/1", "model": "gpt:nano", "batch": 1, "stages": [{}]}' >gpt.json
run O="$dir/o" PREFIX="$dir/x y" install
(cd / && unset WEFT_ROOT && "$dir/x y/bin/weft-run" --dry-run "$dir/gpt.json") >out 2>err
ok $? 'a prefix with a blank in it: an installed tool finds its models'
run O="$dir/o" PREFIX="$dir/x y" uninstall
is "$status $(find 'x y' ! -type d | wc -l) $(ls x)" '0 0 bin
kept
share' 'and uninstall takes away nothing beside it'
run O="$dir/o" PREFIX=/usr DESTDIR="$dir/y" install
is "$status $(find y -mindepth 1 -maxdepth 1) $(find y -path "*/bin/weft-run")" \
    "0 y/usr y/usr/bin/weft-run" 'DESTDIR stands before the prefix'

# ---- help ---------------------------------------------------------------------------------------
run help
goals=$(grep -oE '^ *make( [a-z-]+)+' out | tr -s ' ' '\n' | grep -v -e '^make$' -e '^$')
# shellcheck disable=SC2086
run -n -k O="$dir/o" $goals # all at once: each make reads all there is to read
[ -s out ] && ! grep 'No rule to make' err
ok $? "make help tells of $(wc -w <<<"$goals") goals that exist"
# What is not typed: parts of other goals.
untold=$(sed -n '/^.PHONY:/,$p' "$root/Makefile" | tr -s ' :\\' '\n' |
    grep -vxE -e '.PHONY|all|unit|help|FORCE||.*-build|fuzz-run' | grep -vxF -e "$goals")
is "$untold" '' 'make help tells of all of them'

echo "1..$n"
[ $failed -eq 0 ]
