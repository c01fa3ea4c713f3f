#!/bin/sh
# run.sh DIR [PART...] - runs the MPI tests whose binaries are in DIR, all or those parts; one TAP
# stream of all their checks.
#
# Each test prints TAP of its own: here its lines are numbered on and say which run they are of.
# A run that ends with a status, or without a plan, is one "not ok" more; what it printed besides
# follows as comments; lines that begin with "#|" are a table, and always do. Nothing is built.
# WEFT_LONG=1 runs more sizes, plans and pairs. What is drawn anew every day is that of SEED=YYYYMMDD.
# Needs: mpirun
dir=${1:?usage: run.sh DIRECTORY-OF-BINARIES}
shift
here=$(cd "$(dirname "$0")" && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
work=$(mktemp -d) || exit 4
trap 'rm -rf "$work"' EXIT
out=$work/out
count=0 failed=0
# shellcheck source=tests/today.sh
. "$here/../today.sh"

# check NAME COMMAND...
check() {
    name=$1
    shift
    "$@" >"$out" 2>&1
    status=$?
    awk -v count=$count -v name="$name" '
        match($0, /^(not )?ok [0-9]+( - )?/) {
            print ($1 == "not" ? "not ok " : "ok ") ++count " - " name ": " substr($0, RLENGTH + 1)
        }' "$out"
    grep '^#|' "$out"
    bad=$(grep -c '^not ok' "$out")
    count=$((count + bad + $(grep -c '^ok' "$out")))
    if [ $status -ne 0 ] || ! grep -q '^1\.\.' "$out"; then
        bad=$((bad + 1)) count=$((count + 1))
        echo "not ok $count - $name: ended with status $status"
    fi
    [ "$bad" -eq 0 ] || grep -Ev '^(ok|1\.\.|#\|)' "$out" | head -n 40 | sed 's/^#* */# /'
    failed=$((failed + bad))
}

# ends STATUS SECONDS MESSAGE NAME COMMAND... - the job ends so, soon, and says why just once
ends() {
    want=$1 most=$2 message=$3 name=$4
    shift 4
    start=$(date +%s)
    "$@" >"$out" 2>&1
    status=$? took=$(($(date +%s) - start)) said=$(grep -Ec "^[a-z]*-[a-z]*: error: $message" "$out")
    [ -n "$message" ] || said=1
    count=$((count + 1))
    if [ $status -eq "$want" ] && [ $took -le "$most" ] && [ "$said" -eq 1 ]; then
        echo "ok $count - $name"
    else
        failed=$((failed + 1))
        echo "not ok $count - $name: status $status after $took s, said $said times why"
        head -n 40 "$out" | sed 's/^/# /'
    fi
}

limit=600 # seconds of one job
[ -z "$WEFT_LONG" ] || limit=3600

# on RANKS COMMAND... - ranks on this machine
on() {
    n=$1
    shift
    timeout $limit mpirun --oversubscribe --mca odls_base_sigkill_timeout 0 -n "$n" "$@"
}

# nodes PLACES COMMAND... - two "nodes"; PLACES is node or slot: ranks dealt out or in blocks
nodes() {
    ranks=$1 places=$2
    shift 2
    timeout $limit mpirun --oversubscribe --mca mpi_yield_when_idle 1 --mca plm_rsh_agent "$here/fakersh" --mca btl tcp,self \
        --mca oob_tcp_if_include lo --mca btl_tcp_if_include lo \
        -H "127.0.0.2:$ranks,127.0.0.3:$ranks" --map-by "$places" "$@"
}

collectives() {
    check "collectives, no mpirun" "$dir/comm-collectives" 65536
    if [ -z "$WEFT_LONG" ]; then
        check "collectives, 3 ranks" on 3 "$dir/comm-collectives" 65536
        check "collectives, 2 nodes of 1" nodes 1 node "$dir/comm-collectives" 65536
        return
    fi
    for n in 1 2; do
        check "collectives, $n ranks" on $n "$dir/comm-collectives" 4194304
    done
    for n in 3 4 6 8; do
        check "collectives, $n ranks" on $n "$dir/comm-collectives" 262144
    done
    check "collectives, 2 nodes of 1" nodes 1 node "$dir/comm-collectives" 4194304
    check "collectives, 2 nodes of 2" nodes 2 slot "$dir/comm-collectives" 262144
    check "collectives, 2 nodes of 2, dealt" nodes 2 node "$dir/comm-collectives" 262144
    check "collectives, 2 nodes of 4" nodes 4 slot "$dir/comm-collectives" 100000
}

messages() {
    check "messages, no mpirun" "$dir/comm-p2p"
    for n in 2 8; do
        check "messages, $n ranks" on $n "$dir/comm-p2p"
    done
    check "messages, 2 nodes of 2" nodes 2 node "$dir/comm-p2p"
    # A message needs twice its size on each rank; above 2 GiB only where there is room.
    if [ "$WEFT_LONG" ] &&
        [ "$(awk '/^MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)" -ge 16 ]; then
        check "messages above 2 GiB, 2 ranks" on 2 "$dir/comm-p2p" 2200000123
    fi
}

# Works of devices whose memory is not the host's.
staged() {
    [ -x "$dir/comm-stage" ] || return
    for seed in 1 "$today"; do
        check "staged works, 3 ranks" on 3 "$dir/comm-stage" "$seed"
        check "staged works, 2 nodes of 2" nodes 2 slot "$dir/comm-stage" "$seed"
    done
    check "staged works, messages direct" on 3 "$dir/comm-stage" 1 direct
    ends 4 5 "rank [012] has waited 2 s for the others: all_reduce of 5000 f32" \
        "a rank that never comes, staged" on 3 "$dir/comm-stage" late
}

# Measured once, all rows are known.
profile_gpus() {
    on 2 "$dir/gpu-profile-comm" -p "$work/gpu.db" --device cuda --max-bytes 2K --time 20ms || return
    on 2 "$dir/gpu-profile-comm" -p "$work/gpu.db" --device cuda --max-bytes 2K --dry-run >"$work/rows"
    known=$(grep -c 'known$' "$work/rows")
    [ "$known" -eq 10 ] && grep -q '^# device fake-80gb' "$work/rows" || echo "not ok 1 - $known rows known"
    printf 'ok 1 - ten rows, named after the GPU\n1..1\n'
}

# lib/cuda and lib/nccl on fakes of what they call; not built without CUDA.
gpus() {
    [ -x "$dir/gpu-works" ] || return
    for how in own pairs one; do
        check "works of GPUs, $how" on 4 "$dir/gpu-works" "$today" $how
        check "training on GPUs, $how, 4 ranks" on 4 "$dir/gpu-train" $how
    done
    check "works of GPUs, 3 ranks" on 3 "$dir/gpu-works" 1 own
    check "pairs in captured regions" on 1 "$dir/gpu-pairs"
    check "training on GPUs, 2 ranks" on 2 "$dir/gpu-train" own
    check "collectives of GPUs, measured" profile_gpus
    if "$dir/plans" reference "$work" >"$out" 2>&1; then
        for n in 2 4; do
            check "plans on GPUs, $n ranks" on $n "$dir/gpu-plans" check-gpu "$work" 1 8 "$today" 8
        done
    else
        check "one rank alone, to compare with" false
    fi
    ends 4 5 "rank [012] has waited 2 s for the others: all_reduce of 5000 f32" \
        "a rank that never comes, NCCL" on 3 "$dir/gpu-works" late
    ends 4 5 "NCCL: communicating: remote process exited or there was a network error" \
        "an error of NCCL" on 3 "$dir/gpu-works" broken
}

# Random plans with the kernels of lib/cuda emulated, beside the references of the plans before.
emulated() {
    [ -x "$dir/plans-emulated" ] || return
    fixed=1 new=1
    [ -z "$WEFT_LONG" ] || fixed=30 new=10
    for n in 1 2; do
        check "plans on emulated GPUs, $n ranks" on $n "$dir/plans-emulated" check-gpu "$work" \
            $((n + 1)) $fixed "$today" $new
    done
}

# Works under way together; and how jobs end in which something goes wrong.
works() {
    [ -x "$dir/comm-works" ] || return
    check "works, no mpirun" "$dir/comm-works" 1
    for seed in 1 "$today"; do
        check "works, 3 ranks" on 3 "$dir/comm-works" "$seed"
        check "works, 2 nodes of 2" nodes 2 slot "$dir/comm-works" "$seed"
    done
}

backends() {
    [ -x "$dir/comm-backend" ] || return
    check "a second backend, 3 ranks" on 3 "$dir/comm-backend"
}

endings() {
    [ -x "$dir/comm-fail" ] || return
    late="rank [012] has waited 2 s for (rank 3|the others): "
    for op in all_reduce recv; do
        ends 4 5 "$late$op of [0-9]+ (f32|u8)" "a rank that never comes to $op" \
            on 4 "$dir/comm-fail" late $op 2
        ends 4 5 "$late$op of [0-9]+ (f32|u8)" "a rank that never comes to $op, 2 nodes" \
            nodes 2 slot "$dir/comm-fail" late $op 2
        ends 3 4 "the disk is on fire" "a rank that fails before $op" \
            on 3 "$dir/comm-fail" fail $op
        ends 3 4 "the disk is on fire" "a rank that fails before $op, 2 nodes" \
            nodes 2 slot "$dir/comm-fail" fail $op
        ends 137 5 "" "a rank that is killed before $op" on 2 "$dir/comm-fail" die $op
        ends 137 5 "" "a rank that is killed before $op, 2 nodes" \
            nodes 1 slot "$dir/comm-fail" die $op
    done
}

# All pairs of placements, or some that are always the same and some of today.
reshards() {
    seeds="1 $today"
    [ -z "$WEFT_LONG" ] || seeds=all
    for n in 1 2 3 4 5 6 7 8; do
        # shellcheck disable=SC2086
        check "reshards, $n ranks, seeds $seeds" on $n "$dir/reshard" $seeds
    done
}

# The executor on streams that run apart.
streams() {
    check "streams" on 2 "$dir/exec-streams" "$work/streams"
    check "streams, by way of the hosts" on 2 "$dir/exec-streams" "$work/staged" stage
}

# Random plans against one rank: the same ones always, and others every day. The long form wants
# every family, schedule, level of ZeRO and sort of split among them.
plans() {
    fixed=15 new=14
    [ -z "$WEFT_LONG" ] || fixed=160 new=40
    if ! "$dir/plans" reference "$work" >"$out" 2>&1; then
        failed=$((failed + 1)) count=$((count + 1))
        echo "not ok $count - one rank alone, to compare with: $(head -n 1 "$out")"
        return
    fi
    ranks="1 2 4"
    of_today 0 3 && ranks="$ranks 3"
    of_today 1 3 && ranks="$ranks 6"
    of_today 2 3 && ranks="$ranks 8"
    for n in $ranks; do
        check "$n ranks" on "$n" "$dir/plans" check "$work" 1 $fixed "$today" $new
    done
    [ -z "$WEFT_LONG" ] || check "coverage" "$dir/plans" coverage "$work/coverage"
}

# A step that is not finite on one rank.
skips() {
    [ -x "$dir/skip" ] || return
    for n in 1 2 4; do
        check "a step skipped, $n ranks" on $n "$dir/skip" "$work/skip-$n"
    done
}

# A replica whose gradients are wrong.
aggregates() {
    [ -x "$dir/aggregate" ] || return
    check "a bad replica of ten" on 10 --mca mpi_yield_when_idle 1 "$dir/aggregate" ${WEFT_LONG:+all}
    check "gradients in pieces" on 3 "$dir/aggregate" pieces
    [ -z "$WEFT_LONG" ] || check "cost beside an all-reduce" on 10 --mca mpi_yield_when_idle 1 "$dir/aggregate" cost
}

# Replicas that train apart.
averages() {
    [ -x "$dir/average" ] || return
    for n in 2 3 4; do
        mkdir "$work/average-$n"
        check "replicas apart, $n ranks" on $n "$dir/average" "$work/average-$n"
    done
}

# Data that is read before it is wanted.
prefetches() {
    [ -x "$dir/prefetch" ] || return
    for plan in 0 1 2; do
        of_today $plan 3 && check "read ahead" on 1 "$dir/prefetch" "$work" $plan
    done
    for plan in 3 4; do
        of_today $plan 2 && check "read ahead, 2 ranks" on 2 "$dir/prefetch" "$work" $plan
    done
}

[ $# -gt 0 ] || set -- streams reshards plans emulated skips aggregates averages prefetches messages collectives works staged gpus backends endings
for part; do
    "$part"
done
echo "1..$count"
[ $failed -eq 0 ]
