#!/usr/bin/env bash
# What rules over gradients cost that trust no replica, beside an all-reduce of the same gradients
# (tests/mpi/aggregate.c): HOSTS ranks, each its own "host" on the loopback device of a network
# namespace, which carries RATE for all of them together.
#   tests/bench/aggregate.sh [BUILD_DIR] [HOSTS] [RATE]
# Needs root: it unshares the network. Nothing is left of it.
set -eu
build=$(cd "${1:-build/gcc}" && pwd) hosts=${2:-10} rate=${3:-5gbit}
root=$(cd "$(dirname "$0")/../.." && pwd)
if [ "${4:-}" != inside ]; then
    exec unshare -n "$0" "$build" "$hosts" "$rate" inside
fi
ip link set lo up
tc qdisc add dev lo root tbf rate "$rate" burst 1mb latency 50ms
list=127.0.0.2:1
for ((i = 3; i < hosts + 2; i++)); do
    list=$list,127.0.0.$i:1
done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpirun --oversubscribe --mca mpi_yield_when_idle 1 --mca plm_rsh_agent "$root/tests/mpi/fakersh" \
    --mca btl tcp,self --mca oob_tcp_if_include lo --mca btl_tcp_if_include lo -H "$list" \
    --map-by node "$build/tests/mpi/aggregate" cost | grep '^#|'
