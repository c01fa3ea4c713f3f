#!/bin/sh
# make bench: training speed beside PyTorch (eager, compiled, DDP), kernels, collectives.
#   scripts/bench.sh BUILD_DIR
# One table, and one JSON line for each of its rows in BUILD_DIR/bench.jsonl. By the environment:
#   PYTHON=python         one that has torch; without it weft's columns stand alone
#   PARTS="training"      of training, kernels, collectives (all)
#   SIZE="nano small"     rows of these sizes (nano)
#   ROWS="gpt:nano mlp"   only rows whose name begins so
#   THREADS="1 2"         threads of one rank; RANKS="1 2": 2 are two ranks of one thread beside DDP
#   ROUNDS=3              in every round weft, eager and compiled PyTorch take turns: a ratio is the
#                         median of the rounds', so that a machine that changes its speed does not decide
#   COMPILE=no            without torch.compile, which takes half a minute a row
#   CLOCK=cpu             processor time instead of elapsed time, for a busy machine (one rank)
#   WEFT_DATA=DIR         times the published instances of the solvers as well
set -eu
build=$1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
python=${PYTHON:-python3}
here=$(dirname "$0")
clock=${CLOCK:-wall}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap '' PIPE # a PyTorch that has died is a column of dashes
export TORCHINDUCTOR_CACHE_DIR="$dir/inductor"

# size, row, sizes that are not the preset's (B: samples of a rank), batch, optimizer, steps of a turn;
# the rows of two ranks are marked in the last column.
rows() {
    cat <<ROWS
nano  gpt:nano         -                                             8   adamw 3 ddp
nano  llama:nano       -                                             8   adamw 3
nano  transformer:nano -                                             16  adamw 3
nano  t5:nano          -                                             16  adamw 4 ddp
nano  moe:nano         experts=8                                     8   adamw 4
nano  mlp:mnist        -                                             256 adamw 15
nano  wide-resnet:nano group=B,base=16                               64  sgd   6
small gpt:gpt2         -                                             1   adamw 2
small llama:160M       seq=512                                       1   adamw 2
small transformer:140M -                                             2   adamw 2
small t5:770M          layers=6,hidden=512,heads=8,ffn=2048,seq=512,target_seq=128 2 adamw 3
small moe:380M         layers=4,hidden=512,heads=8,ffn=2048,seq=512  2   adamw 3
small mlp:wide         -                                             256 adamw 2
small wide-resnet:250M group=B,base=64,width=1                       8   sgd   2
ROWS
}

plan() { # model sizes batch optimizer ranks
    set="" stage="{}"
    [ "$2" = - ] || set="\"set\": \"$2\","
    [ "$5" = 1 ] || stage="{\"mesh\": \"dp:$5\", \"layout\": {\"dp\": \"batch\"}}"
    cat <<PLAN
{"format": "weft-plan/1", "model": "$1", $set "batch": $3, "optimizer": "$4", "stages": [$stage]}
PLAN
}

# Images are read from files: PyTorch has them in memory, and weft's synthetic ones cost as much as a layer.
images() { # sides of an image...: 1,024 of noise, and labels below 10
    bytes=1024 header='\0\0\10'
    header=$header$(printf '\\%o' $(($# + 1)))$(be32 1024)
    for side; do bytes=$((bytes * side)) header=$header$(be32 "$side"); done
    { printf "$header"; head -c "$bytes" /dev/urandom; } >"$dir/images"
    {
        printf "\0\0\10\1$(be32 1024)"
        awk 'BEGIN { for (i = 0; i < 1024; i++) printf "%d", i % 10 }' | tr 0-9 '\0-\11'
    } >"$dir/labels"
}

be32() { # number: its four bytes for printf
    printf '\\%o\\%o\\%o\\%o' $(($1 >> 24)) $(($1 >> 16 & 255)) $(($1 >> 8 & 255)) $(($1 & 255))
}

source_of() { # row -> weft-run's --data
    case $1 in
        mlp:*) images 28 28 ;;
        wide-resnet:nano) images 32 32 3 ;;
        wide-resnet:*) images 224 224 3 ;;
        *) echo synthetic; return ;;
    esac
    echo "$dir/images,$dir/labels"
}

# ranks threads steps [option...]: metrics on stdout, processor time in $dir/times
weft() {
    n=$1 threads=$2 steps=$3
    shift 3
    (
        mpirun -n "$n" --bind-to none --oversubscribe "$build/bin/weft-run" -q --threads "$threads" \
            -n "$steps" --data "$data" --validation 0 --timing "$@" "$dir/plan.json" </dev/null 2>"$dir/timing"
        times >"$dir/times"
    )
}

# What $dir/times says of the children, user and system: 1m2.5s 0m0.5s is 63
seconds() {
    sed -n '2s/[ms]/ /gp' "$dir/times" | awk '{ print 60 * $1 + $2 + 60 * $3 + $4 }'
}

# ranks threads steps -> milliseconds of a step: the median, or processor time of a step more
weft_turn() {
    weft "$1" "$2" "$(($3 + 1))" >"$dir/metrics"
    if [ "$clock" = wall ]; then
        jq -s '[.[1:][].step_ms] | sort | .[length / 2 | floor]' "$dir/metrics"
    else
        long=$(seconds)
        weft "$1" "$2" 1 >/dev/null
        echo "$long $(seconds) $3" | awk '{ print 1e3 * ($1 - $2) / $3 }'
    fi
}

# PyTorch waits on its input between turns: 3 is what it reads, 4 what it answers.
torch_begin() { # arguments of bench-pytorch.py
    compile_s=null
    [ -n "$python" ] || return 0
    rm -f "$dir/in" "$dir/out"
    mkfifo "$dir/in" "$dir/out"
    "$python" "$here/bench-pytorch.py" "$@" <"$dir/in" >"$dir/out" 2>"$dir/torch" &
    torch=$!
    exec 3>"$dir/in" 4<"$dir/out"
    read -r compile_s <&4 || { tail -n 1 "$dir/torch" >&2; compile_s=null; }
}

torch_turn() { # way steps -> milliseconds of a step, or null
    answer=null
    [ -z "$python" ] || { echo "$1 $2" >&3 && read -r answer <&4; } 2>/dev/null || answer=null
    echo "$answer"
}

torch_end() {
    [ -n "$python" ] || return 0
    exec 3>&- 4<&-
    wait "$torch" || true
}

compare() { # row sizes batch optimizer steps ranks threads
    sizes=$(echo "$2" | sed "s/=B/=$(($3 / $6))/")
    plan "$1" "$sizes" "$3" "$4" "$6" >"$dir/plan.json"
    data=$(source_of "$1")
    rm -rf "$dir/begin"
    [ -z "$python" ] || weft "$6" "$7" 1 --lr 0 --save "$dir/begin" >/dev/null
    torch_begin "$1" "$sizes" "$3" "$4" "$7" "$6" "$dir/begin"
    : >"$dir/rounds"
    for _ in $(seq "${ROUNDS:-3}"); do
        w=$(weft_turn "$6" "$7" "$5") e=$(torch_turn eager "$5") c=$(torch_turn compile "$5")
        echo "{\"weft\": $w, \"eager\": $e, \"compile\": $c}" >>"$dir/rounds"
    done
    torch_end
    outside=$(sed -n 's/^outside products *[0-9.]* s *\([0-9.]*\) %/\1/p' "$dir/timing")
    jq -sc --arg row "$1" --arg set "$2" --arg optimizer "$4" --arg clock "$clock" \
        --argjson batch "$3" --argjson ranks "$6" --argjson threads "$7" \
        --argjson compile_s "$compile_s" --argjson outside "${outside:-null}" '
        def median: map(select(. != null)) | sort | .[(length - 1) / 2 | floor];
        {row: $row, set: $set, batch: $batch, optimizer: $optimizer, ranks: $ranks, threads: $threads,
         clock: $clock, weft_ms: map(.weft) | median, eager_ms: map(.eager) | median,
         compile_ms: map(.compile) | median, compile_s: $compile_s, outside_products_percent: $outside,
         eager_ratio: map(if .eager then .eager / .weft else null end) | median,
         compile_ratio: map(if .compile then .compile / .weft else null end) | median}' \
        "$dir/rounds" | tee -a "$build/bench.jsonl" | show
}

show() {
    jq -r '[.row, .ranks, .threads, .weft_ms, .eager_ms, .eager_ratio, .compile_ms, .compile_ratio,
            .compile_s, .outside_products_percent] | map(. // "-") | @tsv' |
        awk -F '\t' '
        function number(x, form) { return x == "-" ? x : sprintf(form, x) }
        { printf "%-18s %5d %7d %9.1f %9s %6s %9s %6s %9s %8s\n", $1, $2, $3, $4, number($5, "%.1f"),
              number($6, "%.2f"), number($7, "%.1f"), number($8, "%.2f"), number($9, "%.0f"), number($10, "%.1f") }'
}

# line of the table, without its size: all of its rows
compare_all() { # row sizes batch optimizer steps [ddp]
    for ranks in ${RANKS:-1 2}; do
        if [ "$ranks" = 1 ]; then
            for threads in ${THREADS:-1 2}; do
                compare "$1" "$2" "$3" "$4" "$5" 1 "$threads"
            done
        elif [ -n "${6:-}" ] && [ "$clock" = wall ]; then
            compare "$1" "$2" "$3" "$4" "$5" "$ranks" 1
        fi
    done
}

wanted() { # size row
    case " ${SIZE:-nano} " in *" $1 "*) ;; *) return 1 ;; esac
    for begin in ${ROWS:-$2}; do
        case $2 in "$begin"*) return 0 ;; esac
    done
    return 1
}

training() {
    "$python" -c 'import torch' 2>/dev/null ||
        { python=; echo "PyTorch: not found (PYTHON=...), its columns are left out"; }
    echo "== training, fp32: milliseconds of a step ($clock), and PyTorch's over weft's =="
    printf '%-18s %5s %7s %9s %9s %6s %9s %6s %9s %8s\n' row ranks threads weft eager ratio \
        compile ratio compiling outside
    printf '%72s %10s\n' s "products %"
    : >"$build/bench.jsonl"
    rows | while read -r size row sizes batch optimizer steps ddp; do
        if wanted "$size" "$row"; then
            compare_all "$row" "$sizes" "$batch" "$optimizer" "$steps" "$ddp"
        fi
    done
}

kernels() {
    echo "== kernels =="
    "$build/tests/bench/kernel-bench" 2>/dev/null
}

collectives() {
    echo "== collectives, 2 ranks =="
    mpirun --oversubscribe -n 2 "$build/tests/bench/comm-bench" 2>/dev/null
}

for part in ${PARTS:-training kernels collectives}; do
    $part || echo "$part: failed"
done
if [ -n "${WEFT_DATA:-}" ]; then
    echo "== solvers =="
    sh "$here/repro-solvers.sh" "$WEFT_DATA" "$build/bin" 20 || true
fi
