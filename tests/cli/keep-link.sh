#!/usr/bin/env bash
# The link of a host is dead, while both hosts answer: the rank that the others wait for is named with its host, and the run
# goes on when the link is there again. Hosts are network namespaces.
# Prints TAP; the programs are in $WEFT_BIN.
# Needs: jq mpirun unshare ip setsid
set -u
bin=${WEFT_BIN:?}
# shellcheck source=tests/cli/tap.bash
. "$(dirname "$0")/tap.bash"
n=0 failed=0
export ASAN_OPTIONS=detect_leaks=0 # Open MPI does not free all
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_plm_rsh_agent=$PWD/agent OMPI_MCA_oob_tcp_if_include=10.77.0.0/24 OMPI_MCA_btl_tcp_if_include=10.77.0.0/24
# Daemons of one machine would put what they know of it to one place of its memory, both at once.
export OMPI_MCA_rtc_hwloc_vmhole=none

cat >two.json <<'END'
{"format": "weft-plan/1", "model": "gpt:nano", "set": "layers=1,hidden=48,heads=4,seq=16", "batch": 8,
 "stages": [{"mesh": "dp:2", "layout": {"dp": "batch"}}]}
END
cat >agent <<'END'
#!/bin/sh
host=$1
shift
exec ip netns exec "weft${host##*.}" setsid sh -c "$*"
END
chmod +x agent
cat >hosts <<'END'
set -e
mount -t tmpfs none /run
mkdir /run/netns
ip link add bridge type bridge
ip addr add 10.77.0.1/24 dev bridge
ip link set bridge up
for i in 2 3; do
    ip netns add weft$i
    ip link add here$i type veth peer name there$i
    ip link set there$i netns weft$i
    ip netns exec weft$i ip addr add 10.77.0.$i/24 dev there$i
    ip netns exec weft$i ip link set there$i up
    ip netns exec weft$i ip link set lo up
    ip link set here$i master bridge
    ip link set here$i up
done
END
cat >trial <<'END'
await() { # await LINES
    tries=800
    while [ "$(wc -l <lines)" -lt "$1" ] && [ $((tries--)) -gt 0 ]; do sleep 0.05; done
}
bash ./hosts
: >lines
"$bin/weft-keep" --hang 2s --no-search -H 10.77.0.2:1,10.77.0.3:1 -- "$bin/weft-run" -q --threads 1 -n 1000000 \
    --memory-every 1 --save ck two.json >>lines 2>said </dev/null &
pid=$!
await 5
ip link set here3 down
tries=400
while ! grep -q 'starting again' said && [ $((tries--)) -gt 0 ]; do sleep 0.05; done
ip link set here3 up
was=$(wc -l <lines)
await $((was + 3))
echo $(($(wc -l <lines) >= was + 3)) >result
kill -TERM $pid
wait $pid
echo $? >>result
END
unshare -rmn bash ./hosts 2>/dev/null || skip_rest 'a link that is dead' 'no network namespaces can be made'
bin=$bin unshare -rmn --pid --fork --mount-proc bash ./trial 2>err
grep -q '^weft-keep: attempt 1, .*no progress: rank [01] (process [0-9]* on 10.77.0.[23]) ' said
ok $? "a link that is dead: $(grep -m1 'no progress' said)"
is "$(paste -sd ' ' result)" '1 5' 'when it is there again the run goes on'

echo "1..$n"
[ "$failed" -eq 0 ]
