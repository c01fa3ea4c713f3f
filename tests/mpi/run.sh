#!/bin/sh
# run.sh DIR - runs the MPI tests whose binaries are in DIR; prints TAP, one line a run.
#
# Each test prints TAP of its own; here a run passes when it exits 0 and says nothing "not ok".
# What a failing run printed follows it as comments. Nothing is built.
dir=${1:?usage: run.sh DIRECTORY-OF-BINARIES}
here=$(cd "$(dirname "$0")" && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
out=$(mktemp) || exit 4
trap 'rm -f "$out"' EXIT
count=0 failed=0

# check NAME COMMAND...
check() {
    name=$1
    shift
    count=$((count + 1))
    "$@" >"$out" 2>&1
    status=$?
    if [ $status -eq 0 ] && ! grep -q '^not ok' "$out"; then
        echo "ok $count - $name ($(grep -c '^ok' "$out") checks)"
    else
        failed=$((failed + 1))
        echo "not ok $count - $name: exit $status"
        grep -v '^ok' "$out" | head -n 40 | sed 's/^/# /'
    fi
}

# on RANKS COMMAND... - ranks on this machine
on() {
    n=$1
    shift
    timeout 600 mpirun --oversubscribe --mca odls_base_sigkill_timeout 0 -n "$n" "$@"
}

# nodes PLACES COMMAND... - two "nodes"; PLACES is node or slot: ranks dealt out or in blocks
nodes() {
    ranks=$1 places=$2
    shift 2
    timeout 600 mpirun --oversubscribe --mca mpi_yield_when_idle 1 --mca plm_rsh_agent "$here/fakersh" --mca btl tcp,self \
        --mca oob_tcp_if_include lo --mca btl_tcp_if_include lo \
        -H "127.0.0.2:$ranks,127.0.0.3:$ranks" --map-by "$places" "$@"
}

if [ -x "$dir/comm-collectives" ]; then
    check "collectives, no mpirun" "$dir/comm-collectives" 65536
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
fi
if [ -x "$dir/comm-p2p" ]; then
    check "messages, no mpirun" "$dir/comm-p2p"
    for n in 2 3 8; do
        check "messages, $n ranks" on $n "$dir/comm-p2p"
    done
    check "messages, 2 nodes of 2" nodes 2 node "$dir/comm-p2p"
    # A message needs twice its size on each rank; above 2 GiB only where there is room.
    if [ "$(awk '/^MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)" -ge 16 ]; then
        check "messages above 2 GiB, 2 ranks" on 2 "$dir/comm-p2p" 2200000123
    fi
fi
echo "1..$count"
[ $failed -eq 0 ]
